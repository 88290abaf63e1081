package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Case is one question: what would Kueue decide about each pending workload,
// given these queues and what they have admitted.
type Case struct {
	ID            int64                  `json:"id"`
	FairSharing   bool                   `json:"fairSharing"`
	Flavors       []kueue.ResourceFlavor `json:"flavors"`
	Cohorts       []kueue.Cohort         `json:"cohorts"`
	ClusterQueues []kueue.ClusterQueue   `json:"clusterQueues"`
	Admitted      []Workload             `json:"admitted"`
	Pending       []Workload             `json:"pending"`
}

// Workload is what Kueue calls a Workload, in short.
type Workload struct {
	UID          types.UID   `json:"uid"`
	Name         string      `json:"name"`
	ClusterQueue string      `json:"clusterQueue"`
	Priority     int32       `json:"priority"`
	CreatedAt    metav1.Time `json:"createdAt"`
	// When its quota was reserved; only of an admitted one.
	ReservedAt metav1.Time `json:"reservedAt"`
	PodSets    []PodSet    `json:"podSets"`
	// Labels of its namespace, for the namespaceSelector of its ClusterQueue.
	NamespaceLabels map[string]string `json:"namespaceLabels"`
}

// PodSet is a number of equal pods.
type PodSet struct {
	Name         string              `json:"name"`
	Count        int32               `json:"count"`
	Requests     corev1.ResourceList `json:"requests"` // of one pod
	NodeSelector map[string]string   `json:"nodeSelector"`
	Affinity     *corev1.Affinity    `json:"affinity"`
	Tolerations  []corev1.Toleration `json:"tolerations"`
	// The flavor of each resource; only of an admitted one.
	Flavors map[corev1.ResourceName]string `json:"flavors"`
}

// Answer is what Kueue decides. Error is set where the case can't be judged.
type Answer struct {
	ID      int64    `json:"id"`
	Results []Result `json:"results"`
	Error   string   `json:"error,omitempty"`
}

// Result is the decision about one workload, judged alone.
type Result struct {
	UID types.UID `json:"uid"`
	Verdict
	// Other verdicts that Kueue came to on the same input: it walks maps, and
	// not everywhere does the order not matter.
	Alternatives []Verdict `json:"alternatives,omitempty"`
	Reasons      []string  `json:"reasons"`
}

// Verdict is the part of a result that another scheduler should agree with.
type Verdict struct {
	Mode      string         `json:"mode"`      // Fit, Preempt or NoFit
	Borrowing int            `json:"borrowing"` // height of the subtree that lends; 0: no borrowing
	PodSets   []PodSetResult `json:"podSets"`   // empty for NoFit
	Victims   []Victim       `json:"victims"`   // by UID; empty but for Preempt
}

// PodSetResult names the flavor of each resource of a pod set.
type PodSetResult struct {
	Name    string                         `json:"name"`
	Flavors map[corev1.ResourceName]string `json:"flavors"`
}

// Victim is a workload that would be preempted.
type Victim struct {
	UID    types.UID `json:"uid"`
	Reason string    `json:"reason"`
}

// parseCase refuses fields that it doesn't know: a misspelt one would be
// silently ignored on both sides of a comparison.
func parseCase(content []byte) (*Case, error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	var c Case
	if err := decoder.Decode(&c); err != nil {
		return &c, err
	}
	return &c, c.check()
}

// check finds what would make Kueue's answer depend on chance, or on what the
// case doesn't say.
func (c *Case) check() error {
	uids := map[types.UID]bool{}
	reserved := map[time.Time]types.UID{}
	for i, workloads := range [][]Workload{c.Admitted, c.Pending} {
		for _, w := range workloads {
			switch {
			case w.UID == "" || w.Name == "" || w.ClusterQueue == "":
				return fmt.Errorf("workload %q (uid %q) needs a uid, a name and a clusterQueue", w.Name, w.UID)
			case uids[w.UID]:
				return fmt.Errorf("two workloads have the uid %s", w.UID)
			case len(w.PodSets) == 0:
				return fmt.Errorf("workload %s has no podSets", w.UID)
			case w.CreatedAt.IsZero():
				return fmt.Errorf("workload %s has no createdAt", w.UID)
			}
			uids[w.UID] = true
			if i == 1 {
				continue
			}
			if w.ReservedAt.IsZero() {
				return fmt.Errorf("admitted workload %s has no reservedAt", w.UID)
			}
			if other, ok := reserved[w.ReservedAt.UTC()]; ok {
				return fmt.Errorf("workloads %s and %s have the same reservedAt", other, w.UID)
			}
			reserved[w.ReservedAt.UTC()] = w.UID
		}
	}
	return nil
}

// hasSiblingCohorts tells whether two cohorts have the same parent.
func (c *Case) hasSiblingCohorts() bool {
	parents := map[kueue.CohortReference]bool{}
	for i := range c.Cohorts {
		parent := c.Cohorts[i].Spec.ParentName
		if parent != "" && parents[parent] {
			return true
		}
		parents[parent] = true
	}
	return false
}
