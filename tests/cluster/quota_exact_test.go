package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/timeline"
)

// Whether quota is exact, twice recounted: from what Workloads hold, and from where pods are bound. A
// flavor's only node tells which pods use it.

// finished tells whether nothing is counted for it any more, whatever it holds.
func (w *kueueWorkload) finished() bool {
	return meta.IsStatusConditionTrue(w.Status.Conditions, "Finished")
}

// counts is what it holds less what it gave back while it runs.
func (w *kueueWorkload) counts() usage {
	if w.finished() {
		return usage{}
	}
	held := w.gpus()
	for _, set := range w.assigned() {
		if flavor := set.Flavors[string(gpu)]; set.Count > 0 {
			amount := set.Usage[string(gpu)]
			held[flavor] -= amount.Value() / set.Count * w.reclaimable()[set.Name]
		}
	}
	return held
}

func (w *kueueWorkload) assigned() []reservedPodSet {
	if w.Status.Admission == nil {
		return nil
	}
	return w.Status.Admission.PodSets
}

func (w *kueueWorkload) reclaimable() map[string]int64 {
	pods := map[string]int64{}
	for _, one := range w.Status.ReclaimablePods {
		pods[one.Name] = one.Count
	}
	return pods
}

// inconsistent says which of its conditions don't go together; "" if all do.
func (w *kueueWorkload) inconsistent() string {
	is := func(condition string) bool { return meta.IsStatusConditionTrue(w.Status.Conditions, condition) }
	switch {
	case is("QuotaReserved") != (w.Status.Admission != nil):
		return fmt.Sprintf("QuotaReserved is %v, and it has status.admission: %v", is("QuotaReserved"), w.Status.Admission != nil)
	case is("Admitted") && !is("QuotaReserved"):
		return "it is Admitted without QuotaReserved"
	case is("PodsReady") && !is("Admitted") && !w.finished():
		return "its pods are ready, and it isn't Admitted"
	}
	seen := map[string]bool{}
	for _, condition := range w.Status.Conditions {
		if seen[condition.Type] {
			return "condition " + condition.Type + " is there twice"
		}
		seen[condition.Type] = true
	}
	return ""
}

// Who in the case it is about: the first letter of names, since everything that belongs to gang a is
// called "a" or "a-...".
func contender(name string) string {
	letter, _, _ := strings.Cut(name, "-")
	return letter
}

// accounts are what each contender holds by its Workloads, and uses by its pods.
type accounts struct {
	hold, use map[string]usage
	// Workloads by which something is held.
	by map[string][]string
}

// account adds up. A Workload counts as long as Muster keeps it by its finalizer.
func (c *Case) account(workloads map[string]*unstructured.Unstructured, pods map[string]*corev1.Pod) accounts {
	a := accounts{map[string]usage{}, map[string]usage{}, map[string][]string{}}
	into := func(all map[string]usage, who string, amounts usage) {
		if all[who] == nil {
			all[who] = usage{}
		}
		all[who].add(amounts)
	}
	for _, object := range workloads {
		owner := metav1.GetControllerOf(object)
		if object.GetNamespace() != c.Namespace || owner == nil || !slices.Contains(object.GetFinalizers(), inUse) {
			continue
		}
		w := readWorkload(object)
		if held := w.counts(); held.String() != "{}" {
			into(a.hold, contender(owner.Name), held)
			a.by[contender(owner.Name)] = append(a.by[contender(owner.Name)], w.Name)
		}
	}
	for _, pod := range pods {
		if pod.Namespace == c.Namespace && bound(pod) && unfinished(pod) {
			into(a.use, contender(pod.Name), usage{c.flavorOf(pod.Spec.NodeName): asks(pod)[gpu]})
		}
	}
	return a
}

// flavorOf is told by the node's name.
func (c *Case) flavorOf(node string) string {
	flavor, _, _ := strings.Cut(strings.TrimPrefix(node, c.Namespace+"-"), ".")
	return flavor
}

// wrong says what must not be, whatever happened before.
func (a accounts) wrong(nominal usage) string {
	for what, each := range map[string]map[string]usage{"the Workloads hold": a.hold, "bound pods use": a.use} {
		sum := total(each)
		for flavor, amount := range sum {
			if amount > nominal[flavor] {
				return fmt.Sprintf("%s %d GPUs of flavor %s, of %d there are", what, amount, flavor, nominal[flavor])
			}
		}
	}
	for who, used := range a.use {
		for flavor, amount := range used {
			if amount > a.hold[who][flavor] {
				return fmt.Sprintf("bound pods of %s use %d GPUs of flavor %s, of which its Workload holds %d", who, amount, flavor, a.hold[who][flavor])
			}
		}
	}
	for who, names := range a.by {
		if len(names) > 1 {
			return fmt.Sprintf("quota of %s is held twice: %v", who, names)
		}
	}
	return ""
}

func total(each map[string]usage) usage {
	sum := usage{}
	for _, amounts := range each {
		sum.add(amounts)
	}
	return sum
}

// checkExactThroughout goes through all that happened to the case's Workloads and pods in the order of
// the store, and recounts after each change.
func (c *Case) checkExactThroughout(nominal usage) {
	c.Helper()
	events := shared.Timeline.Events(func(event timeline.Event) bool { return event.Object.GetNamespace() == c.Namespace })
	slices.SortStableFunc(events, func(a, b timeline.Event) int { return int(a.Revision - b.Revision) })
	workloads, pods := map[string]*unstructured.Unstructured{}, map[string]*corev1.Pod{}
	versions := 0
	for _, event := range events {
		key := timeline.Key(event.Object)
		switch object := event.Object.(type) {
		case *corev1.Pod:
			pods[key] = object
			if event.Type == "DELETED" {
				delete(pods, key)
			}
		case *unstructured.Unstructured:
			if object.GetKind() != "Workload" {
				continue
			}
			versions++
			workloads[key] = object
			if fault := readWorkload(object).inconsistent(); fault != "" {
				c.Errorf("at revision %d Workload %s is inconsistent: %s", event.Revision, object.GetName(), fault)
			}
			if event.Type == "DELETED" {
				delete(workloads, key)
			}
		}
		if fault := c.account(workloads, pods).wrong(nominal); fault != "" {
			c.Errorf("at revision %d %s", event.Revision, fault)
			return
		}
	}
	if versions == 0 {
		c.Error("there never was a Workload")
	}
}

// awaitExact waits until everybody counts the same: the Workloads, the bound pods, Muster's answer, and
// what the ClusterQueue's status says of it.
func (c *Case) awaitExact(patience time.Duration, gangs, pending int64, want usage) {
	c.Helper()
	c.must(shared.Timeline.Await(patience, func(state *timeline.State) string {
		a := c.account(state.Workloads, state.Pods)
		if hold, use := total(a.hold), total(a.use); hold.String() != want.String() || use.String() != want.String() {
			return fmt.Sprintf("the Workloads hold %s, bound pods use %s, want %s", hold, use, want)
		}
		return ""
	}))
	c.must(c.awaitQueue(patience, func(queue queueAnswer) string {
		if queue.reserved.String() != want.String() {
			return fmt.Sprintf("/v1/queues has %s reserved, want %s", queue.reserved, want)
		}
		return ""
	}))
	said := fmt.Sprintf("reserving %d, admitted %d, pending %d, reservation %s, usage %s", gangs, gangs, pending, want, want)
	got := ""
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if got = c.queueStatus(); got == said {
			return
		}
		if time.Now().After(deadline) {
			c.Fatalf("the status of the ClusterQueue is\n%s, want\n%s", got, said)
		}
	}
}

// awaitNothingLeft waits until nobody keeps a Workload any more: what is left then is the garbage
// collector's, which looks for new kinds every half minute.
func (c *Case) awaitNothingLeft(patience time.Duration) {
	c.Helper()
	c.must(shared.Timeline.Await(patience, func(state *timeline.State) string {
		for _, key := range slices.Sorted(maps.Keys(state.Workloads)) {
			w := state.Workloads[key]
			if w.GetNamespace() == c.Namespace && (len(w.GetFinalizers()) > 0 || readWorkload(w).reserved()) {
				return fmt.Sprintf("Workload %s is kept by %v: %v", w.GetName(), w.GetFinalizers(), describeConditions(w))
			}
		}
		return ""
	}))
}
