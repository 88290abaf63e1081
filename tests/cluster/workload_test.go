package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/tests/cluster/timeline"
)

// kueueWorkload is a Workload of Kueue's, as far as it says what was reserved.
type kueueWorkload struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		Admission *struct {
			ClusterQueue string           `json:"clusterQueue"`
			PodSets      []reservedPodSet `json:"podSetAssignments"`
		} `json:"admission"`
		ReclaimablePods []reclaimedPods    `json:"reclaimablePods"`
		Conditions      []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

type reservedPodSet struct {
	Name    string                       `json:"name"`
	Count   int64                        `json:"count"`
	Flavors map[string]string            `json:"flavors"`
	Usage   map[string]resource.Quantity `json:"resourceUsage"`
}

type reclaimedPods struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

func readWorkload(object metav1.Object) *kueueWorkload {
	w := new(kueueWorkload)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.(*unstructured.Unstructured).Object, w); err != nil {
		panic(fmt.Sprintf("the API server sent a Workload that isn't one: %v", err))
	}
	return w
}

func (w *kueueWorkload) reserved() bool {
	return meta.IsStatusConditionTrue(w.Status.Conditions, "QuotaReserved")
}

func (w *kueueWorkload) reservedAt() time.Time {
	return meta.FindStatusCondition(w.Status.Conditions, "QuotaReserved").LastTransitionTime.Time
}

// gpus is what it holds.
func (w *kueueWorkload) gpus() usage {
	held := usage{}
	if w == nil || !w.reserved() {
		return held
	}
	for _, set := range w.Status.Admission.PodSets {
		amount := set.Usage[string(gpu)]
		held[set.Flavors[string(gpu)]] += amount.Value()
	}
	return held
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

// recount adds up what the Workloads of a namespace hold of jobs/quota.yaml's
// ClusterQueue, without Muster.
func recount(workloads map[string]*unstructured.Unstructured, namespace string) usage {
	sum := usage{}
	for _, object := range workloads {
		if object.GetNamespace() != namespace {
			continue
		}
		if w := readWorkload(object); w.reserved() && w.Status.Admission.ClusterQueue == clusterQueueName {
			sum.add(w.gpus())
		}
	}
	return sum
}

func unfinished(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func isWorkload(object metav1.Object) bool {
	one, ok := object.(*unstructured.Unstructured)
	return ok && one.GetKind() == "Workload"
}

// checkNeverAbove goes through all that happened to the Workloads of the case's
// namespace in the order of the store and recounts after each change.
func (c *Case) checkNeverAbove(nominal usage) (highest usage) {
	c.Helper()
	events := shared.Timeline.Events(func(event timeline.Event) bool {
		return isWorkload(event.Object) && event.Object.GetNamespace() == c.Namespace
	})
	slices.SortStableFunc(events, func(a, b timeline.Event) int { return int(a.Revision - b.Revision) })
	workloads := map[string]*unstructured.Unstructured{}
	highest = usage{}
	for _, event := range events {
		if key := timeline.Key(event.Object); event.Type == "DELETED" {
			delete(workloads, key)
		} else {
			workloads[key] = event.Object.(*unstructured.Unstructured)
		}
		for flavor, amount := range recount(workloads, c.Namespace) {
			highest[flavor] = max(highest[flavor], amount)
			if amount > nominal[flavor] {
				c.Fatalf("at revision %d the Workloads hold %d GPUs of flavor %s, of %d there are", event.Revision, amount, flavor, nominal[flavor])
			}
		}
	}
	if len(events) == 0 {
		c.Error("there never was a Workload")
	}
	return highest
}

// isMine tells whether the Workload is that of the gang's PodGroup, or of its job.
func (g *Gang) isMine(object metav1.Object) bool {
	owner := metav1.GetControllerOf(object)
	return object.GetNamespace() == g.Namespace && owner != nil && owner.Kind != "Pod" && owner.Name == g.Name
}

// workloadIn is the gang's, nil if there is none. Of several that of which something is held.
func (g *Gang) workloadIn(workloads map[string]*unstructured.Unstructured) *kueueWorkload {
	var found *kueueWorkload
	for _, object := range workloads {
		if !g.isMine(object) {
			continue
		}
		if w := readWorkload(object); found == nil || w.reserved() {
			found = w
		}
	}
	return found
}

// workload is the gang's present one, nil if there is none.
func (g *Gang) workload() (found *kueueWorkload) {
	shared.Timeline.Look(func(state *timeline.State) { found = g.workloadIn(state.Workloads) })
	return found
}

// workloadHistory are all events of the gang's Workload.
func (g *Gang) workloadHistory() []timeline.Event {
	return shared.Timeline.Events(func(event timeline.Event) bool {
		return isWorkload(event.Object) && g.isMine(event.Object)
	})
}

// everHeldQuota tells whether any version of its Workload did.
func (g *Gang) everHeldQuota() bool {
	return slices.ContainsFunc(g.workloadHistory(), func(event timeline.Event) bool {
		return readWorkload(event.Object).reserved()
	})
}
