package cluster

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"muster.dev/tests/cluster/timeline"
)

// A gang binds in one stroke when the last of its nodes is registered and
// initialized, never before, and the nodes that were early are still there.
func TestGangBindsInOneStrokeWhenItsLastNodeIsThere(t *testing.T) {
	t.Parallel()
	for round := range pick(1, 10) {
		t.Run(fmt.Sprintf("round %d", round+1), func(t *testing.T) {
			c := newGangCase(t, "staggered")
			// One NodePool for each node: what one pool makes, registers at once.
			delays := []time.Duration{3 * time.Second, 6 * time.Second, 12 * time.Second, 20 * time.Second}
			for i, delay := range delays {
				c.NodePool(fmt.Sprintf("pool-%d", i), 1, 1, delay)
			}
			g := c.Gang("train", len(delays), 1)
			answers := g.followAnswers()
			g.AwaitBound(90 * time.Second)
			c.AwaitHoldsGone(10 * time.Second)

			g.checkOneStroke(2 * time.Second)
			g.checkNoNodeLost(len(delays))
			g.checkMembersProtected()
			answers.check(t)
			if claims := c.Claims(); len(claims) != len(delays) || spread(claims) > 2*time.Second {
				t.Errorf("%d NodeClaims within %v, want %d in one batch", len(claims), spread(claims), len(delays))
			}
		})
	}
}

// checkOneStroke judges a gang that is bound on nodes of Karpenter's: all
// bindings after its last node was there, within a second of each other, and
// not later than patience after that moment.
func (g *Gang) checkOneStroke(patience time.Duration) {
	g.Helper()
	last := g.lastNodeComplete()
	bindings := g.Moments(bound)
	for _, binding := range bindings {
		if binding.Revision <= last.Revision {
			g.Errorf("member %s was bound at revision %d, before node %s was registered and initialized (revision %d)",
				binding.Object.GetName(), binding.Revision, last.Object.GetName(), last.Revision)
		}
	}
	for _, lift := range g.Moments(func(pod *corev1.Pod) bool { return !gated(pod) }) {
		if lift.Revision <= last.Revision {
			g.Errorf("member %s lost its gate at revision %d, before node %s was there (revision %d)",
				lift.Object.GetName(), lift.Revision, last.Object.GetName(), last.Revision)
		}
	}
	apart := spread(bindings)
	if apart > time.Second {
		g.Errorf("the bindings lie %v apart, want at most 1 s", apart)
	}
	var delay time.Duration
	for _, binding := range bindings {
		delay = max(delay, binding.At.Sub(last.At))
	}
	if delay > patience {
		g.Errorf("the last binding came %v after the last node was there, want at most %v", delay, patience)
	}
	g.Logf("%d members bound %v after the last node, %v apart", len(bindings), delay.Round(time.Millisecond), apart.Round(time.Millisecond))
}

// lastNodeComplete is the moment at which the last of the case's nodes became
// registered and initialized.
func (c *Case) lastNodeComplete() timeline.Event {
	c.Helper()
	return c.lastNodeEvent(complete)
}

func (c *Case) nodeEvents() []timeline.Event {
	return shared.Timeline.Events(func(event timeline.Event) bool {
		node, ok := event.Object.(*corev1.Node)
		return ok && c.mine(node)
	})
}

func (c *Case) checkNoNodeLost(want int) {
	c.Helper()
	seen := map[string]bool{}
	for _, event := range c.nodeEvents() {
		seen[event.Object.GetName()] = true
		if event.Type == "DELETED" || event.Object.GetDeletionTimestamp() != nil {
			c.Errorf("node %s was lost", event.Object.GetName())
		}
	}
	if len(seen) != want {
		c.Errorf("%d nodes came, want %d", len(seen), want)
	}
}

// checkMembersProtected: consolidation must not take a member of a running
// gang, and the protection must be there from the very binding.
func (g *Gang) checkMembersProtected() {
	g.Helper()
	for _, binding := range g.Moments(bound) {
		if binding.Object.GetAnnotations()[doNotDisrupt] != "true" {
			g.Errorf("member %s was bound without %s", binding.Object.GetName(), doNotDisrupt)
		}
	}
}

// answers are what Muster's REST interface said about a gang over time.
type answers struct {
	mutex  sync.Mutex
	states []string       // each change of state, in order
	codes  []string       // each change of the reason's code, in order
	since  []time.Time    // when each of them was first seen
	stages map[string]int // most nodes seen in one stage while PROVISIONING
	vague  []string       // answers without a reason or without members
}

// followAnswers polls until the gang is bound or the test ends.
func (g *Gang) followAnswers() *answers {
	a := &answers{stages: map[string]int{}}
	go func() {
		for g.Context().Err() == nil {
			if answer, err := g.Ask(); err == nil && a.add(answer) == "BOUND" {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	return a
}

func (a *answers) add(answer map[string]any) string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	state, _ := answer["state"].(string)
	if len(a.states) == 0 || a.states[len(a.states)-1] != state {
		a.states = append(a.states, state)
	}
	reason, _ := answer["reason"].(map[string]any)
	code, _ := reason["code"].(string)
	if len(a.codes) == 0 || a.codes[len(a.codes)-1] != code {
		a.codes = append(a.codes, code)
		a.since = append(a.since, time.Now())
	}
	members, _ := answer["members"].([]any)
	if reason["message"] == nil || len(members) == 0 {
		a.vague = append(a.vague, fmt.Sprint(answer))
	}
	if state == "PROVISIONING" {
		count := map[string]int{}
		nodes, _ := answer["nodes"].([]any)
		for _, raw := range nodes {
			node, _ := raw.(map[string]any)
			stage, _ := node["stage"].(string)
			count[stage]++
			a.stages[stage] = max(a.stages[stage], count[stage])
		}
	}
	return state
}

// The only order in which a gang that nothing goes wrong with moves.
var orderOfStates = []string{"WAITING_FOR_MEMBERS", "WAITING_FOR_QUOTA", "PROVISIONING", "READY", "BINDING", "BOUND"}

// await waits until the poller saw the gang bound, which is a moment after the
// watch did.
func (a *answers) await() {
	for range 40 {
		a.mutex.Lock()
		done := slices.Contains(a.states, "BOUND")
		a.mutex.Unlock()
		if done {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (a *answers) check(t *testing.T) {
	t.Helper()
	a.await()
	a.mutex.Lock()
	defer a.mutex.Unlock()
	position := -1
	for _, state := range a.states {
		next := slices.Index(orderOfStates, state)
		if next <= position {
			t.Errorf("REST went through the states %v, want an order of %v", a.states, orderOfStates)
			break
		}
		position = next
	}
	for _, state := range []string{"PROVISIONING", "BOUND"} {
		if !slices.Contains(a.states, state) {
			t.Errorf("REST showed the states %v and never %s", a.states, state)
		}
	}
	if a.stages["USABLE"] != 3 {
		t.Errorf("while PROVISIONING, REST showed at most %d of the 4 nodes as USABLE, want 3 (all stages: %v)", a.stages["USABLE"], a.stages)
	}
	if a.stages["REQUESTED"]+a.stages["LAUNCHED"] == 0 {
		t.Errorf("while PROVISIONING, REST never showed a node on its way (stages: %v)", a.stages)
	}
	if len(a.vague) > 0 {
		t.Errorf("%d answers without a reason or without members, the first: %s", len(a.vague), a.vague[0])
	}
	t.Logf("REST showed %v for %v, nodes by stage %v", a.states, a.codes, a.stages)
}
