package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/timeline"
)

// admissionRecord is what a PodGroup's annotation muster.dev/admission says about
// quota.
type admissionRecord struct {
	UID       string `json:"uid"`
	Epoch     int64  `json:"epoch"`
	Queue     string `json:"queue"`
	Eviction  *struct{ Why string }
	RetryTime string `json:"retryAfter"`
	// Flavors the gang gave up on, and until when it prefers others.
	FlavorsTried map[string]time.Time `json:"flavorsTried"`
	Quota        *struct {
		ClusterQueue string           `json:"clusterQueue"`
		ReservedAt   time.Time        `json:"reservedAt"`
		PodSets      []recordedPodSet `json:"podSets"`
		Surplus      []recordedPodSet `json:"surplus"`
	} `json:"quota"`
}

type recordedPodSet struct {
	Name    string            `json:"name"`
	Count   int64             `json:"count"`
	Flavors map[string]string `json:"flavors"`
	Usage   map[string]int64  `json:"usage"`
}

// recordOf reads a PodGroup's record; without one its quota is nil.
func recordOf(group *unstructured.Unstructured) (admissionRecord, error) {
	var record admissionRecord
	text := group.GetAnnotations()[gate]
	if text == "" {
		return record, nil
	}
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return record, fmt.Errorf("record of PodGroup %s: %w: %s", group.GetName(), err, text)
	}
	if record.UID != string(group.GetUID()) {
		record.Quota = nil
	}
	return record, nil
}

// usage is GPUs by flavor.
type usage map[string]int64

func (u usage) add(other usage) {
	for flavor, amount := range other {
		u[flavor] += amount
	}
}

func (u usage) String() string {
	var parts []string
	for _, flavor := range slices.Sorted(maps.Keys(u)) {
		if u[flavor] != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", flavor, u[flavor]))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// gpus is what the record holds.
func (r admissionRecord) gpus() usage {
	held := usage{}
	if r.Quota == nil || r.RetryTime != "" {
		return held
	}
	for _, set := range slices.Concat(r.Quota.PodSets, r.Quota.Surplus) {
		held[set.Flavors[string(gpu)]] += set.Usage[string(gpu)]
	}
	return held
}

// recount adds up what the records of a namespace hold of jobs/quota.yaml's
// ClusterQueue, without Muster. A record of a gang that has no pod left that runs
// or may run holds nothing.
func recount(state *timeline.State, namespace string) (usage, error) {
	alive := map[string]bool{}
	for _, pod := range state.Pods {
		if pod.Namespace == namespace && unfinished(pod) {
			alive[pod.Labels[podGroupLabel]] = true
		}
	}
	sum := usage{}
	for _, group := range state.PodGroups {
		if group.GetNamespace() != namespace || !alive[group.GetName()] {
			continue
		}
		record, err := recordOf(group)
		if err != nil {
			return nil, err
		}
		if record.Quota != nil && record.Quota.ClusterQueue == clusterQueueName {
			sum.add(record.gpus())
		}
	}
	return sum, nil
}

func unfinished(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// checkNeverAbove goes through all that happened in the case's namespace in the
// order of the store and recounts after each change.
func (c *Case) checkNeverAbove(nominal usage) (highest usage) {
	c.Helper()
	events := shared.Timeline.Events(func(event timeline.Event) bool { return event.Object.GetNamespace() == c.Namespace })
	slices.SortStableFunc(events, func(a, b timeline.Event) int { return int(a.Revision - b.Revision) })
	state := timeline.State{Pods: map[string]*corev1.Pod{}, PodGroups: map[string]*unstructured.Unstructured{}}
	highest = usage{}
	for _, event := range events {
		switch object := event.Object.(type) {
		case *corev1.Pod:
			store(state.Pods, event, object)
		case *unstructured.Unstructured:
			store(state.PodGroups, event, object)
		}
		now, err := recount(&state, c.Namespace)
		c.must(err)
		for flavor, amount := range now {
			highest[flavor] = max(highest[flavor], amount)
			if amount > nominal[flavor] {
				c.Fatalf("at revision %d the records hold %d GPUs of flavor %s, of %d there are", event.Revision, amount, flavor, nominal[flavor])
			}
		}
	}
	return highest
}

func store[T any](objects map[string]T, event timeline.Event, object T) {
	key := timeline.Key(event.Object)
	if event.Type == "DELETED" {
		delete(objects, key)
		return
	}
	objects[key] = object
}

// groupHistory are all events of the gang's PodGroup.
func (g *Gang) groupHistory() []timeline.Event {
	return shared.Timeline.Events(func(event timeline.Event) bool {
		group, ok := event.Object.(*unstructured.Unstructured)
		return ok && group.GetKind() == "PodGroup" && timeline.Key(group) == g.Namespace+"/"+g.Name
	})
}

// groupVersions are all versions of the gang's PodGroup.
func (g *Gang) groupVersions() []*unstructured.Unstructured {
	var groups []*unstructured.Unstructured
	for _, event := range g.groupHistory() {
		groups = append(groups, event.Object.(*unstructured.Unstructured))
	}
	return groups
}

// everHeldQuota tells whether any version of its record did.
func (g *Gang) everHeldQuota() bool {
	return slices.ContainsFunc(g.groupVersions(), func(group *unstructured.Unstructured) bool {
		record, err := recordOf(group)
		return err == nil && len(record.gpus()) > 0
	})
}
