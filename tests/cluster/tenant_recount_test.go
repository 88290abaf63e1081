package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// What is used, recounted from pods and nothing that Muster writes.

// amounts are of resources in whole units, by flavor.
type amounts map[string]map[corev1.ResourceName]int64

func (a amounts) add(other amounts) {
	for flavor, resources := range other {
		if a[flavor] == nil {
			a[flavor] = map[corev1.ResourceName]int64{}
		}
		for name, amount := range resources {
			a[flavor][name] += amount
		}
	}
}

// limit is what the tenant's queues have from a revision on, by LocalQueue.
type limit struct {
	from   int64
	queues map[string]amounts
}

// counted is a bound pod that hasn't ended.
type counted struct {
	queue string
	asks  amounts
}

func revisionOf(text string) int64 {
	revision, _ := strconv.ParseInt(text, 10, 64)
	return revision
}

// checkQuota goes through all that happened in the tenant's namespace in the order of the store, and
// recounts whenever Muster has bound a pod.
func (t *tenant) checkQuota() {
	t.Helper()
	events := shared.Timeline.Events(func(event timeline.Event) bool {
		return event.Object.GetNamespace() == t.Namespace
	})
	slices.SortStableFunc(events, func(a, b timeline.Event) int { return int(a.Revision - b.Revision) })
	running := map[string]counted{}
	placedByTenant := map[string]bool{} // it named its node when it was created
	groupQueue := map[string]string{}
	for _, event := range events {
		key := timeline.Key(event.Object)
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			if group, ok := event.Object.(*unstructured.Unstructured); ok && group.GetKind() == "PodGroup" {
				groupQueue[group.GetName()] = group.GetLabels()[queueLabel]
			}
			continue
		}
		key += "/" + string(pod.UID)
		if event.Type == "ADDED" && bound(pod) {
			placedByTenant[key] = true
		}
		if event.Type == "DELETED" || !unfinished(pod) {
			delete(running, key)
			continue
		}
		if !bound(pod) {
			continue
		}
		one, known := running[key]
		if !known {
			one.queue = queueOf(pod, groupQueue)
		}
		one.asks = amounts{t.flavorOfNode(pod.Spec.NodeName): asks(pod)}
		running[key] = one
		if !known && !placedByTenant[key] && pod.Spec.SchedulerName == plane.SchedulerName {
			if fault := t.beyond(event.Revision, running, one); fault != "" {
				t.violated("when pod %s was bound (revision %d): %s", pod.Name, event.Revision, fault)
				return
			}
		}
	}
}

// beyond says of the flavor of the pod that was bound last what its queue, or all of the tenant's
// together, have less of than is used; "" if there is nothing.
func (t *tenant) beyond(revision int64, running map[string]counted, last counted) string {
	var present *limit
	for i := range t.limits {
		if t.limits[i].from <= revision {
			present = &t.limits[i]
		}
	}
	if present == nil {
		return ""
	}
	inQueue, inAll, total := amounts{}, amounts{}, amounts{}
	for _, one := range running {
		inAll.add(one.asks)
		if one.queue == last.queue {
			inQueue.add(one.asks)
		}
	}
	for _, queue := range present.queues {
		total.add(queue)
	}
	for flavor := range last.asks {
		if fault := exceeds(flavor, inQueue, present.queues[last.queue]); fault != "" {
			return "queue " + last.queue + " has " + fault
		}
		if fault := exceeds(flavor, inAll, total); fault != "" {
			return "all queues together have " + fault
		}
	}
	return ""
}

func exceeds(flavor string, used, nominal amounts) string {
	for name, amount := range used[flavor] {
		if have := nominal[flavor][name]; amount > have {
			return fmt.Sprintf("%d %s of flavor %s, and %d are used", have, name, flavor, amount)
		}
	}
	return ""
}

// queueOf is the LocalQueue that the pod or its group named when it was bound.
func queueOf(pod *corev1.Pod, groups map[string]string) string {
	for _, name := range []string{pod.Labels[queueLabel], groups[pod.Labels[podGroupLabel]]} {
		if name != "" {
			return name
		}
	}
	return "default"
}

// flavorOfNode is told by the node's name.
func (t *tenant) flavorOfNode(node string) string {
	flavor, _, _ := strings.Cut(strings.TrimPrefix(node, t.Namespace+"-"), "-")
	return flavor
}

// asks is what the pod takes of a node, as the scheduler counts it (k8s.io/component-helpers
// resource/helpers.go v0.34): containers and sidecars together, or the largest of what comes before
// with the sidecars that run by then, or what the pod says as a whole. In whole units, rounded up.
func asks(pod *corev1.Pod) map[corev1.ResourceName]int64 {
	totals := map[corev1.ResourceName]int64{}
	for _, name := range []corev1.ResourceName{gpu, corev1.ResourceCPU} {
		var main, sidecars, first int64
		for _, container := range pod.Spec.Containers {
			main += wholeUnits(container.Resources.Requests, name)
		}
		for _, container := range pod.Spec.InitContainers {
			amount := wholeUnits(container.Resources.Requests, name)
			if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
				sidecars += amount
				first = max(first, sidecars)
			} else {
				first = max(first, sidecars+amount)
			}
		}
		totals[name] = max(main+sidecars, first)
		if pod.Spec.Resources != nil {
			if _, said := pod.Spec.Resources.Requests[name]; said {
				totals[name] = wholeUnits(pod.Spec.Resources.Requests, name)
			}
		}
		totals[name] += wholeUnits(pod.Spec.Overhead, name)
	}
	return totals
}

func wholeUnits(list corev1.ResourceList, name corev1.ResourceName) int64 {
	quantity := list[name]
	return quantity.Value()
}
