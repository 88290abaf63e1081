package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"muster.dev/tests/cluster/faults"
	"muster.dev/tests/cluster/timeline"
)

// Two gangs of 4 can't both have 6 GPUs. One gets all it needs; the other
// waits with nothing, and follows when the first is gone.
func TestTwoGangsOfFourOnSixGPUs(t *testing.T) {
	t.Parallel()
	for round := range pick(2, 10) {
		t.Run(fmt.Sprintf("round %d", round+1), func(t *testing.T) {
			c := newGangCase(t, "contention")
			c.Nodes(6, 1)
			a, b := c.PodGroup("a", 4, 1), c.PodGroup("b", 4, 1)
			for range 4 {
				a.AddMembers(1)
				b.AddMembers(1)
			}
			winner, loser := c.awaitOneWhole(a, b, 30*time.Second)
			c.stays(pick(2*time.Second, 5*time.Second), fmt.Sprintf("gang %s has no member bound", loser.Name), loser.noneBound)
			loser.AwaitAnswer(5*time.Second, func(answer map[string]any) string {
				if reason, _ := answer["reason"].(map[string]any); reason["message"] == nil || reason["message"] == "" {
					return "a gang waits without a reason"
				}
				return ""
			})

			begin := time.Now()
			winner.Delete()
			loser.AwaitBound(5 * time.Second)
			t.Logf("%s followed %v after %s was deleted", loser.Name, time.Since(begin).Round(time.Millisecond), winner.Name)
		})
	}
}

// Karpenter buys for both gangs at once, pod by pod, and six of eight nodes come.
// The nodes that came for both complete one gang, by priority, then age; the other
// says what it lacks, and gets them when the first is gone.
func TestOfTwoGangsThatCapacityFailsOneIsCompleted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name            string
		youngerPriority int32
		wins            string
	}{
		{"the older one", 0, "older"},
		{"the more important one", 1000, "younger"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newGangCase(t, "short")
			c.NodePool("pool", 1, 8, 4*time.Second,
				faults.Fault{Kind: faults.InsufficientCapacity, FromLaunch: 7, UnavailableSeconds: 3})
			older := c.PodGroup("older", 4, 1)
			time.Sleep(1100 * time.Millisecond) // creation times are whole seconds
			younger := c.PodGroup("younger", 4, 1)
			if test.youngerPriority > 0 {
				younger.priorityClass = c.PriorityClass(test.youngerPriority)
			}
			older.AddMembers(4)
			younger.AddMembers(4)
			winner, loser := c.awaitOneWhole(older, younger, 60*time.Second)
			if winner.Name != test.wins {
				t.Errorf("%s is bound, want %s", winner.Name, test.wins)
			}
			loser.checkSays("INSUFFICIENT_CAPACITY", `2 of 4 members have usable nodes; .*refused for insufficient capacity`)
			c.stays(3*time.Second, "no member of the other is bound", loser.noneBound)

			winner.Delete()
			loser.AwaitBound(30 * time.Second)
		})
	}
}

// The NodePool may make six nodes for two gangs of four: one gets its four, and
// the other asks for none that can't complete it.
func TestOfTwoGangsThatANodePoolsLimitFailsOneIsCompleted(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "limit")
	c.NodePool("pool", 1, 6, time.Second)
	winner, loser := c.awaitOneWhole(c.Gang("one", 4, 1), c.Gang("two", 4, 1), 60*time.Second)
	loser.AwaitAnswer(90*time.Second, func(answer map[string]any) string {
		if text := reasonText(answer); !strings.HasPrefix(text, "POOL_LIMIT_REACHED ") {
			return "its reason isn't POOL_LIMIT_REACHED: " + text
		}
		return ""
	})
	t.Logf("it says %s", loser.Explained())
	claims := len(c.Claims())
	c.stays(3*time.Second, "no member of the other is bound", loser.noneBound)
	if after := len(c.Claims()); after > claims {
		t.Errorf("%d NodeClaims were made for a gang that they can't complete", after-claims)
	}

	winner.Delete()
	loser.AwaitBound(60 * time.Second)
}

// awaitOneWhole waits until one of two gangs is bound whole. The other must
// not have a single member bound at that moment.
func (c *Case) awaitOneWhole(a, b *Gang, patience time.Duration) (winner, loser *Gang) {
	c.Helper()
	if err := shared.Timeline.Await(patience, func(state *timeline.State) string {
		boundA, boundB := countPods(a.pods(state), bound), countPods(b.pods(state), bound)
		switch {
		case boundA == len(a.Members) && boundB == 0:
			winner, loser = a, b
		case boundB == len(b.Members) && boundA == 0:
			winner, loser = b, a
		default:
			return fmt.Sprintf("%d members of %s and %d of %s are bound", boundA, a.Name, boundB, b.Name)
		}
		return ""
	}); err != nil {
		c.Fatalf("%v\n%s: %s\n%s: %s", err, a.Name, a.Explained(), b.Name, b.Explained())
	}
	return winner, loser
}

// stays fails the test when the condition doesn't hold all the time. Like any
// condition it sees the state it is handed and must not ask the timeline.
func (c *Case) stays(duration time.Duration, what string, condition func(*timeline.State) bool) {
	c.Helper()
	err := shared.Timeline.Await(duration, func(state *timeline.State) string {
		if condition(state) {
			return "holds"
		}
		return ""
	})
	if err == nil {
		c.Errorf("no longer true: %s", what)
	}
}

// A commit of which the API server refuses one binding is completed, not left
// half.
func TestGangWithARefusedBindingEndsWhole(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "refused")
	c.Nodes(4, 1)
	turnstile := c.turnstile(binding, 3)
	g := c.Gang("train", 4, 1)
	c.must(turnstile.awaitFull(g, 30*time.Second))
	turnstile.letAllPass()
	g.AwaitBound(15 * time.Second)
}

// The stock kube-scheduler would evict for one member at a time and leave the
// rest of the gang waiting. Beside Muster it evicts nothing.
func TestHighPriorityGangEvictsNothingMemberByMember(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "priority")
	c.Nodes(4, 1)
	low, high := c.PriorityClass(-10), c.PriorityClass(1000000)
	running := &Gang{Case: c, Name: "low"}
	for i := range 4 {
		pod := c.Pod(fmt.Sprintf("low-%d", i), "default-scheduler", 1)
		pod.Spec.PriorityClassName = low
		running.Members = append(running.Members, c.Create(pod).Name)
	}
	running.AwaitAll("running", 30*time.Second, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })

	g := c.PodGroup("high", 4, 1)
	g.priorityClass = high
	g.AddMembers(4)
	time.Sleep(pick(8*time.Second, 60*time.Second))
	for _, event := range shared.Timeline.PodEvents(c.Namespace) {
		pod := event.Object.(*corev1.Pod)
		if event.Type == "DELETED" || pod.DeletionTimestamp != nil {
			t.Errorf("pod %s was deleted", pod.Name)
		}
		if pod.Status.NominatedNodeName != "" {
			t.Errorf("pod %s was nominated to %s", pod.Name, pod.Status.NominatedNodeName)
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.DisruptionTarget {
				t.Errorf("pod %s is a target of disruption: %s", pod.Name, condition.Message)
			}
		}
	}
	if count := g.Count(bound); count != 0 {
		t.Errorf("%d members of the waiting gang are bound on a full cluster", count)
	}

	running.Delete()
	g.AwaitBound(5 * time.Second)
}
