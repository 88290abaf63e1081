package cluster

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"muster.dev/tests/cluster/timeline"
)

// Karpenter hears of a gang when it is whole and not before; then it hears of
// all members at once, and they are still gated.
func TestKarpenterHearsOfAGangOnlyWhenItIsWhole(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "quorum")
	c.NodePool("pool", 1, 4, time.Second)
	g := c.PodGroup("train", 4, 1)
	g.AddMembers(3)
	time.Sleep(pick(10*time.Second, 60*time.Second))

	if claims := c.Claims(); len(claims) > 0 {
		t.Errorf("%d NodeClaims for a gang that lacks a member", len(claims))
	}
	if early := g.Moments(signalled); len(early) > 0 {
		t.Errorf("%d members of an incomplete gang were marked Unschedulable", len(early))
	}
	answer, err := g.Ask()
	c.must(err)
	if answer["state"] != "WAITING_FOR_MEMBERS" || !strings.Contains(reasonText(answer), "3 of 4") {
		t.Errorf("muster says %v: %s; want WAITING_FOR_MEMBERS and 3 of 4", answer["state"], reasonText(answer))
	}

	g.AddMembers(1)
	g.AwaitBound(time.Minute)
	arrived := shared.Timeline.PodEvents(c.Namespace, g.Members[3])[0]
	signals := g.Moments(signalled)
	if len(signals) != 4 {
		t.Fatalf("%d members were marked Unschedulable, want 4", len(signals))
	}
	for _, signal := range signals {
		if !gated(signal.Object.(*corev1.Pod)) {
			t.Errorf("member %s wasn't gated any more when it was signalled", signal.Object.GetName())
		}
		if after := signal.At.Sub(arrived.At); after > time.Second {
			t.Errorf("member %s was signalled %v after the fourth arrived, want at most 1 s", signal.Object.GetName(), after)
		}
	}
	claims := c.Claims()
	if len(claims) != 4 || spread(claims) > time.Second {
		t.Errorf("%d NodeClaims within %v, want 4 in one batch", len(claims), spread(claims))
	}
	t.Logf("signalled within %v, NodeClaims within %v", spread(signals).Round(time.Millisecond), spread(claims).Round(time.Millisecond))
	g.checkOneStroke(2 * time.Second)
}

// A gang whose nodes don't come by its deadline gives everything back: no
// member stays marked, no node stays held, and Karpenter may remove the node
// that came.
func TestDeadlineGivesEarlyNodesBack(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "deadline")
	g := c.halfProvisioned("train", 10)
	c.AwaitHoldsGone(20 * time.Second)
	g.checkGivenBack()
}

// halfProvisioned makes a gang of two of whose nodes one comes and is held and
// the other never comes, and waits for the hold.
func (c *Case) halfProvisioned(name string, timeoutSeconds int64) *Gang {
	c.Helper()
	c.NodePool("early", 1, 1, time.Second)
	c.NodePool("never", 1, 1, time.Hour)
	g := c.PodGroup(name, 2, 1)
	g.setScheduleTimeout(timeoutSeconds)
	g.AddMembers(2)
	c.must(shared.Timeline.Await(time.Duration(timeoutSeconds)*time.Second, func(state *timeline.State) string {
		for _, node := range state.Nodes {
			if c.mine(node) && held(node) {
				return ""
			}
		}
		return "no node is held: " + g.Explained()
	}))
	return g
}

// checkGivenBack judges a gang after its deadline.
func (g *Gang) checkGivenBack() {
	g.Helper()
	g.AwaitAll("unmarked", 10*time.Second, func(pod *corev1.Pod) bool { return !signalled(pod) })
	g.AwaitAll("gated", time.Second, gated)
	if moments := g.Moments(bound); len(moments) > 0 {
		g.Errorf("%d members were bound although a node never came", len(moments))
	}
	g.AwaitAnswer(5*time.Second, func(answer map[string]any) string {
		if answer["state"] != "BACKING_OFF" {
			return "not BACKING_OFF"
		}
		return ""
	})
}
