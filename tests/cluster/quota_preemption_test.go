package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"muster.dev/tests/cluster/timeline"
)

// A gang of high priority takes the quota of a lower one: exactly of those that
// Kueue's order names (lowest priority first, of equal ones whose quota was
// reserved last), each evicted whole, and the others don't notice. What was
// evicted waits whole, and starts again when there is quota.
func TestHighPriorityGangDisplacesWholeGangsAndNoMoreThanItMust(t *testing.T) {
	random, seed := randomSource(t)
	for round := range pick(2, 10) {
		t.Run(fmt.Sprintf("round %d", round+1), func(t *testing.T) {
			t.Logf("seed %d", seed)
			// The first round is the plain case.
			victims := 1
			if round > 0 {
				victims += random.IntN(2)
			}
			c := newQuotaCase(t, "preemption")
			c.preemptionRound(random, 4, victims)
		})
	}
}

func (c *Case) preemptionRound(random *rand.Rand, gangs, victims int) {
	c.Helper()
	const size = 4
	nominal := usage{"nvidia": int64(gangs * size), "nvidia-efa": 0}
	c.flavorNodes(nominal)
	c.ApplyQuota(nominalQuota(nominal), preempting, onNodesLabelled)

	classes := []string{c.PriorityClass(10), c.PriorityClass(20), c.PriorityClass(30)}
	urgent := c.PriorityClass(1000)
	type low struct {
		*Gang
		priority int
		reserved time.Time
	}
	var running []low
	for i := range gangs {
		priority := random.IntN(len(classes))
		g := c.prioritizedGang(fmt.Sprintf("low-%c", 'a'+i), size, 1, classes[priority])
		g.AwaitBound(30 * time.Second)
		running = append(running, low{g, priority, g.record().Quota.ReservedAt})
	}
	var order []string
	for _, g := range running {
		order = append(order, fmt.Sprintf("%s (priority %d)", g.Name, 10+10*g.priority))
	}
	slices.SortFunc(running, func(a, b low) int {
		if a.priority != b.priority {
			return a.priority - b.priority
		}
		return b.reserved.Compare(a.reserved)
	})
	expected := running[:victims]

	begin := time.Now()
	high := c.prioritizedGang("urgent", size*victims, 1, urgent)
	high.AwaitBound(30 * time.Second)
	took := time.Since(begin)

	var displaced []string
	for i, g := range running {
		gone := countPods(g.present(), func(*corev1.Pod) bool { return true })
		switch {
		case i < victims && gone != 0:
			c.Errorf("gang %s should have gone whole; %d of its %d members are left", g.Name, gone, size)
		case i >= victims && gone != size:
			c.Errorf("gang %s should have stayed; %d of its %d members are left", g.Name, gone, size)
		case i < victims:
			displaced = append(displaced, g.Name)
			g.checkEvictedFor(high)
		}
	}
	c.Logf("of %s gang urgent displaced %s and was bound %v after its first pod", strings.Join(order, ", "), strings.Join(displaced, ", "), took.Round(time.Millisecond))

	// Their jobs make them anew: they wait whole, and start again whole.
	first := expected[0].Gang
	first.Members = nil
	first.AddMembers(size)
	first.AwaitAnswer(10*time.Second, func(answer map[string]any) string {
		if answer["state"] != "WAITING_FOR_QUOTA" {
			return fmt.Sprintf("it is %v", answer["state"])
		}
		return ""
	})
	c.stays(time.Second, "no member of a gang without quota is bound", first.noneBound)
	high.Delete()
	first.AwaitBound(20 * time.Second)
	c.checkNeverAbove(nominal)
}

// present returns the gang's pods that exist now.
func (g *Gang) present() []*corev1.Pod {
	var pods []*corev1.Pod
	shared.Timeline.Look(func(state *timeline.State) { pods = g.pods(state) })
	return pods
}

// checkEvictedFor sees that the record named the eviction and its reason, and
// that each member went through the API for evictions.
func (g *Gang) checkEvictedFor(other *Gang) {
	g.Helper()
	disrupted := g.Moments(func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue
		})
	})
	if len(disrupted) != len(g.Members) {
		g.Errorf("%d of %d members of gang %s have condition DisruptionTarget", len(disrupted), len(g.Members), g.Name)
	}
	why := ""
	for _, event := range g.groupEvents() {
		record, err := recordOf(event)
		g.must(err)
		if record.Eviction != nil {
			why = record.Eviction.Why
		}
	}
	if !strings.Contains(why, other.Namespace+"/"+other.Name) {
		g.Errorf("gang %s was evicted and its record gave the reason %q, which doesn't name %s", g.Name, why, other.Name)
	}
}
