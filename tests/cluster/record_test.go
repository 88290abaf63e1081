package cluster

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/timeline"
)

// admissionRecord is what a PodGroup's annotation muster.dev/admission says about
// attempts.
type admissionRecord struct {
	UID   string `json:"uid"`
	Epoch int64  `json:"epoch"`
	// Flavors the gang gave up on, and until when it prefers others.
	FlavorsTried map[string]time.Time `json:"flavorsTried"`
}

// recordOf reads a PodGroup's record; without one it says nothing.
func recordOf(group *unstructured.Unstructured) (admissionRecord, error) {
	var record admissionRecord
	text := group.GetAnnotations()[gate]
	if text == "" {
		return record, nil
	}
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return record, fmt.Errorf("record of PodGroup %s: %w: %s", group.GetName(), err, text)
	}
	return record, nil
}

// groupHistory are all events of the gang's PodGroup.
func (g *Gang) groupHistory() []timeline.Event {
	return shared.Timeline.Events(func(event timeline.Event) bool {
		group, ok := event.Object.(*unstructured.Unstructured)
		return ok && group.GetKind() == "PodGroup" && timeline.Key(group) == g.Namespace+"/"+g.Name
	})
}
