package cluster

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/faults"
	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// What a gang does when the nodes that it asked for don't come as they should.

// Karpenter launches claims one by one, so some of a gang's may find no
// instance. It asks again, and the gang binds whole or not at all.
func TestGangBindsWholeAfterLaunchesWithoutCapacity(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		fault   faults.Fault
		refused int // NodeClaims, at least
	}{
		{"one launch of four", faults.Fault{Kind: faults.InsufficientCapacity, Launches: []int{2}}, 1},
		{"no launch for 6 s", faults.Fault{Kind: faults.InsufficientCapacity, LastsSeconds: 6, UnavailableSeconds: 4}, 4},
		{"one launch finds its zone empty", outOf(plane.Zone, 2), 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newGangCase(t, "capacity")
			c.NodePool("pool", plane.TwoZones, 8, time.Second, test.fault)
			g := c.Gang("train", 4, plane.TwoZones)
			g.AwaitBound(90 * time.Second)

			g.checkOneStroke(3 * time.Second)
			c.AwaitHoldsGone(10 * time.Second)
			lives := c.claimLives()
			if refused := len(c.refusedClaims(lives)); refused < test.refused {
				t.Errorf("%d of %d NodeClaims found no instance, want at least %d", refused, len(lives), test.refused)
			}
			t.Logf("bound on %d of %d NodeClaims, the last made %v after the first",
				len(c.boundNodes()), len(lives), lives[len(lives)-1].created.Sub(lives[0].created).Round(time.Millisecond))
		})
	}
}

// One node of a gang's four can't be had, for ever. At its deadline the gang
// gives back what it has: none is bound, no hold stays, Karpenter isn't asked.
// While it waits and after it says of that node what is wrong with it.
func TestGangThatOneNodeFailsGivesEverythingBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		faults []faults.Fault
		code   string
		words  string // of the reason's message
	}{
		{"without capacity", []faults.Fault{{Kind: faults.InsufficientCapacity, FromLaunch: 4, UnavailableSeconds: 3}},
			"INSUFFICIENT_CAPACITY", `3 of 4 members have usable nodes; .*\(NodePool \S+-pool\) was refused for insufficient capacity (\d+ times, last )?at .*: insufficient capacity, launch \d+ found no instance in \d+ offerings`},
		{"launched and never registered", []faults.Fault{{Kind: faults.NeverRegisters, FromLaunch: 4}},
			"NODE_NOT_REGISTERED", `3 of 4 members have usable nodes; nodeclaim/\S+-pool-\S+ .*was launched at .* and isn't registered`},
		{"with 7 of 8 GPUs for ever", []faults.Fault{{Kind: faults.Devices, FromLaunch: 4, Resources: map[string]int64{string(gpu): 7}}},
			// Karpenter takes such a node for an empty one, and may have removed it again.
			"NODES_INCOMPLETE", `3 of 4 members have usable nodes; .*node \S+ .*(and lacks devices|at \S+): nvidia.com/gpu: 7 of 8 allocatable`},
		{"with its startup taint for ever", []faults.Fault{agentTaint(1, 1, 2, 3), agentTaintFrom(4)},
			"STARTUP_TAINT_STAYS", `3 of 4 members have usable nodes; node \S+ .*was registered at .* and keeps taint tests.muster.dev/agent`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newGangCase(t, "give-up")
			c.NodePool("pool", 8, 8, time.Second, test.faults...)
			g := c.PodGroup("train", 4, 8)
			g.setScheduleTimeout(40)
			g.AddMembers(4)
			c.awaitNode(func(node *corev1.Node) bool { return held(node) })

			g.AwaitAnswer(80*time.Second, func(answer map[string]any) string {
				if answer["state"] != "BACKING_OFF" {
					return "not BACKING_OFF"
				}
				return ""
			})
			gaveUp := time.Now()
			c.AwaitHoldsGone(5 * time.Second)
			t.Logf("no hold %v after it gave up", time.Since(gaveUp).Round(time.Millisecond))
			g.checkSays(test.code, test.words)
			g.checkGivenBack()
			// An order from an earlier pass may still be on its way.
			before := len(c.Claims())
			c.stays(12*time.Second, "no member is bound", g.noneBound)
			if after := len(c.Claims()); after > before {
				t.Errorf("%d NodeClaims were made after the gang gave up", after-before)
			}
			t.Logf("%d NodeClaims; it says %s", before, g.Explained())
		})
	}
}

// Karpenter calls a node initialized that has any GPU, and one that lacks EFA
// only if somebody asked for it. A gang waits for every device.
func TestGangBindsOnlyWhenItsNodesAreWhole(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		faults []faults.Fault
	}{
		{"7 of 8 GPUs", []faults.Fault{{Kind: faults.Devices, Launches: []int{2}, Resources: map[string]int64{string(gpu): 7}, LastsSeconds: 6}}},
		{"no GPU", []faults.Fault{{Kind: faults.Devices, Launches: []int{1}, Resources: map[string]int64{string(gpu): 0}, LastsSeconds: 6}}},
		{"6 of 8 EFA interfaces", []faults.Fault{{Kind: faults.Devices, Launches: []int{2}, Resources: map[string]int64{string(efa): 6}, LastsSeconds: 6}}},
		{"no device at all", []faults.Fault{{Kind: faults.Devices, Resources: map[string]int64{string(gpu): 0, string(efa): 0}, LastsSeconds: 6}}},
		{"a startup taint", []faults.Fault{agentTaint(1, 1), agentTaint(6, 2)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newGangCase(t, "whole")
			c.NodePool("pool", 8, 2, time.Second, test.faults...)
			g := c.PodGroup("train", 2, 8)
			g.edit = withEFA
			g.AddMembers(2)
			g.AwaitBound(time.Minute)

			nodes := c.boundNodes()
			c.must(shared.Timeline.Await(10*time.Second, func(state *timeline.State) string {
				for node := range nodes {
					if !whole(state.Nodes[node]) {
						return node + " has members and isn't whole"
					}
				}
				return ""
			}))
			last := c.lastNodeEvent(whole)
			for _, binding := range g.Moments(bound) {
				if binding.Revision <= last.Revision {
					t.Errorf("%s was bound at revision %d, before the last node was whole (%d)",
						binding.Object.GetName(), binding.Revision, last.Revision)
				}
			}
			g.checkOneStroke(20 * time.Second)
			g.checkNoNodeLost(2)
			c.AwaitHoldsGone(10 * time.Second)
			moments := g.Moments(bound)
			after := moments[len(moments)-1].At.Sub(last.At).Round(time.Millisecond)
			// kube-scheduler may be a moment behind, and is asked again then.
			if after > 15*time.Second {
				t.Errorf("bound %v after the last node was whole, want at most 15 s", after)
			}
			t.Logf("bound %v after the last node was whole", after)
		})
	}
}

// A node that is taken back while the gang waits for the others is replaced,
// though it is held: a hold doesn't keep a spot instance.
func TestGangBindsWholeOnAReplacementOfAnInterruptedNode(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "interruption")
	c.NodePool("pool", 1, 8, time.Second,
		faults.Fault{Kind: faults.Interruption, Launches: []int{1}, DelaySeconds: 3},
		faults.Fault{Kind: faults.RegistrationDelay, Launches: []int{2}, DelaySeconds: 9})
	g := c.Gang("train", 3, 1)
	g.awaitReason("taken back")
	t.Logf("it says %s", g.Explained())
	g.AwaitBound(90 * time.Second)

	g.checkOneStroke(3 * time.Second)
	c.AwaitHoldsGone(10 * time.Second)
	lives := c.claimLives()
	if len(lives) < 4 || lives[len(lives)-1].created.Before(lives[0].created.Add(3*time.Second)) {
		t.Errorf("%d NodeClaims, want three and a replacement", len(lives))
	}
	t.Logf("replaced %v after the gang asked", lives[len(lives)-1].created.Sub(lives[0].created).Round(time.Millisecond))
}

// Drift is voluntary: the hold keeps the node until the gang runs on it, and the
// members' own protection from then on.
func TestGangBindsWholeOnANodeThatDriftedMeanwhile(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "drift")
	c.NodePool("pool", 1, 8, time.Second,
		faults.Fault{Kind: faults.Drift, Launches: []int{1}},
		// Karpenter looks for drifted nodes every 10 s and waits 15 s more.
		faults.Fault{Kind: faults.RegistrationDelay, Launches: []int{2}, DelaySeconds: 28})
	g := c.Gang("train", 3, 1)
	g.AwaitBound(90 * time.Second)

	g.checkOneStroke(3 * time.Second)
	g.checkNoNodeLost(3)
	g.checkMembersProtected()
	binding := g.Moments(bound)[0]
	drifted := time.Time{}
	for _, life := range c.claimLives() {
		if at := life.first["Drifted"]; !at.IsZero() {
			drifted = at
		}
	}
	if drifted.IsZero() || binding.At.Sub(drifted) < 20*time.Second {
		t.Errorf("drifted at %v, bound at %v: the node wasn't held for long", drifted, binding.At)
	}
	c.AwaitHoldsGone(10 * time.Second)
}

// checkSays checks the reason's code and, as a regular expression, its message,
// in Muster's answer and in the PodGroup's condition, and that the answer lists
// the setback.
func (g *Gang) checkSays(code, words string) {
	g.Helper()
	g.AwaitAnswer(2*time.Second, func(answer map[string]any) string {
		reason, _ := answer["reason"].(map[string]any)
		message, _ := reason["message"].(string)
		if reason["code"] != code || !regexp.MustCompile(words).MatchString(message) {
			return fmt.Sprintf("not %s with %q", code, words)
		}
		setbacks, _ := answer["setbacks"].([]any)
		for _, raw := range setbacks {
			if setback, _ := raw.(map[string]any); setback["code"] == code {
				return ""
			}
		}
		return "no setback " + code
	})
	g.must(shared.Timeline.Await(5*time.Second, func(state *timeline.State) string {
		group := state.PodGroups[g.Namespace+"/"+g.Name]
		if group == nil {
			return "no PodGroup"
		}
		conditions, _, _ := unstructured.NestedSlice(group.Object, "status", "conditions")
		for _, raw := range conditions {
			condition, _ := raw.(map[string]any)
			message, _ := condition["message"].(string)
			if regexp.MustCompile(words).MatchString(message) {
				return ""
			}
		}
		return fmt.Sprintf("the PodGroup's conditions don't say %q: %v", words, conditions)
	}))
}

// whole tells whether a node with 8 GPUs has all that members may ask for.
func whole(node *corev1.Node) bool {
	return node != nil && complete(node) && devicesOf(node) == "8 GPUs, 8 EFA" && !hasAgentTaint(node)
}

func withEFA(pod *corev1.Pod) {
	requests := pod.Spec.Containers[0].Resources.Requests
	requests[efa] = requests[gpu]
}

func agentTaintFrom(launch int) faults.Fault {
	fault := agentTaint(0)
	fault.FromLaunch = launch
	return fault
}

// boundNodes are the nodes that the case's pods are bound to.
func (c *Case) boundNodes() map[string]bool {
	nodes := map[string]bool{}
	shared.Timeline.Look(func(state *timeline.State) {
		for _, pod := range state.Pods {
			if pod.Namespace == c.Namespace && bound(pod) {
				nodes[pod.Spec.NodeName] = true
			}
		}
	})
	return nodes
}

// lastNodeEvent is the moment at which the last of the case's nodes first
// satisfied the predicate.
func (c *Case) lastNodeEvent(predicate func(*corev1.Node) bool) timeline.Event {
	c.Helper()
	first := map[string]timeline.Event{}
	for _, event := range c.nodeEvents() {
		node := event.Object.(*corev1.Node)
		if _, known := first[node.Name]; !known && predicate(node) {
			first[node.Name] = event
		}
	}
	var last timeline.Event
	for _, event := range first {
		if event.Revision > last.Revision {
			last = event
		}
	}
	if last.Object == nil {
		c.Fatal("no node was ever as it should be")
	}
	return last
}
