package cluster

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"muster.dev/tests/cluster/timeline"
)

// How long GPUs that were paid for waited for their gang, and how much of a gang
// stood alone, whoever schedules it. All of it is read from the watch's record.

// attendance is how many members stood at a moment, until the next one.
type attendance struct {
	at      time.Time
	running int
	bound   int // running or about to
}

func running(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && placed(pod)
}

// placed tells whether a pod has a node, hasn't ended and isn't to go.
func placed(pod *corev1.Pod) bool {
	return bound(pod) && pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

// attendances is the gang's history.
func (g *Gang) attendances() []attendance {
	var history []attendance
	now := map[string]*corev1.Pod{}
	for _, event := range shared.Timeline.PodEvents(g.Namespace) {
		pod := event.Object.(*corev1.Pod)
		if !strings.HasPrefix(pod.Name, g.Name+"-") {
			continue
		}
		if event.Type == "DELETED" {
			delete(now, pod.Name)
		} else {
			now[pod.Name] = pod
		}
		moment := attendance{at: event.At}
		for _, pod := range now {
			if placed(pod) {
				moment.bound++
			}
			if running(pod) {
				moment.running++
			}
		}
		history = append(history, moment)
	}
	return history
}

// firstWhole is when so many members first ran, zero if never.
func (g *Gang) firstWhole(size int) time.Time {
	for _, moment := range g.attendances() {
		if moment.running >= size {
			return moment.at
		}
	}
	return time.Time{}
}

// wholeAgain is when so many members ran after a loss that had left fewer of them,
// zero if never.
func (g *Gang) wholeAgain(size int, loss time.Time) time.Time {
	lost := false
	for _, moment := range g.attendances() {
		if moment.at.Before(loss) {
			continue
		}
		lost = lost || moment.running < size
		if lost && moment.running >= size {
			return moment.at
		}
	}
	return time.Time{}
}

// goneSince is when the deletion of the last of the members began, zero if one is
// left.
func (g *Gang) goneSince() time.Time {
	if g.Count(func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil }) > 0 {
		return time.Time{}
	}
	first := map[string]time.Time{}
	for _, event := range shared.Timeline.PodEvents(g.Namespace, g.Members...) {
		going := event.Type == "DELETED" || event.Object.GetDeletionTimestamp() != nil
		if name := event.Object.GetName(); going && first[name].IsZero() {
			first[name] = event.At
		}
	}
	var gone time.Time
	for _, at := range first {
		gone = latest(gone, at)
	}
	return gone
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// alone is the longest time for which a part of the gang stood on nodes without
// the rest.
func (g *Gang) alone(size int, end time.Time) time.Duration {
	var longest time.Duration
	var since time.Time
	finish := func(at time.Time) {
		if !since.IsZero() {
			longest = max(longest, at.Sub(since))
		}
		since = time.Time{}
	}
	for _, moment := range g.attendances() {
		if moment.bound == 0 || moment.bound >= size {
			finish(moment.at)
		} else if since.IsZero() {
			since = moment.at
		}
	}
	finish(end)
	return longest
}

// idleGPUs is what nodes cost that wait for a gang, in GPU-seconds: each node's GPUs
// from its launch, or from its registration, until the gang that has a member on it
// first runs whole, or the node is gone, or nobody waits any more.
type idleGPUs struct {
	launched, registered float64
}

func (i idleGPUs) plus(other idleGPUs) idleGPUs {
	return idleGPUs{i.launched + other.launched, i.registered + other.registered}
}

// idle sums it up for all of the case's NodeClaims, as long as one of its gangs
// waits, up to a moment.
func (c *Case) idle(gangs []*Gang, size, gpusPerNode int, end time.Time) idleGPUs {
	began := map[string]time.Time{} // by node
	var waits time.Time
	for _, g := range gangs {
		whole := g.firstWhole(size)
		if whole.IsZero() {
			if gone := g.goneSince(); gone.IsZero() {
				waits = end
			} else {
				waits = latest(waits, gone)
			}
			continue
		}
		waits = latest(waits, whole)
		for _, event := range shared.Timeline.PodEvents(g.Namespace) {
			pod := event.Object.(*corev1.Pod)
			if !strings.HasPrefix(pod.Name, g.Name+"-") || !bound(pod) {
				continue
			}
			at := latest(whole, event.At)
			if known := began[pod.Spec.NodeName]; known.IsZero() || at.Before(known) {
				began[pod.Spec.NodeName] = at
			}
		}
	}
	var sum idleGPUs
	for _, life := range c.claimLives() {
		until := waits
		for _, at := range []time.Time{life.deleted, began[life.node]} {
			if !at.IsZero() && at.Before(until) {
				until = at
			}
		}
		cost := func(from time.Time) float64 {
			if from.IsZero() || !from.Before(until) {
				return 0
			}
			return float64(gpusPerNode) * until.Sub(from).Seconds()
		}
		sum = sum.plus(idleGPUs{cost(life.first["Launched"]), cost(life.first["Registered"])})
	}
	return sum
}

// emptyNodes counts the case's nodes without a placed pod.
func (c *Case) emptyNodes(state *timeline.State) int {
	occupied := map[string]bool{}
	for _, pod := range state.Pods {
		if placed(pod) {
			occupied[pod.Spec.NodeName] = true
		}
	}
	count := 0
	for name, node := range state.Nodes {
		if c.mine(node) && !occupied[name] {
			count++
		}
	}
	return count
}
