package cluster

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/faults"
	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// Each fault by itself, with pods of the stock scheduler: that it happens, and
// what Karpenter does then. The times are in the README's table.

func TestLaunchWithoutCapacityIsDeletedAndMadeAnew(t *testing.T) {
	t.Parallel()
	c := newStockCase(t, "no-capacity")
	c.NodePool("pool", 1, 4, time.Second, faults.Fault{Kind: faults.InsufficientCapacity, Launches: []int{2}})
	c.stockPods(3, 1).awaitEachBound(time.Minute)
	lives := c.claimLives()
	refused := c.refusedClaims(lives)
	// Karpenter may make more than the one that is missing: at that moment it
	// takes none of the others into account.
	if len(lives) < 4 || len(refused) != 1 {
		t.Fatalf("%d NodeClaims of which %d were deleted unlaunched, want 4 at least and 1", len(lives), len(refused))
	}
	if again := lives[3].created; again.Before(refused[0].condemned) {
		t.Errorf("the fourth NodeClaim was made at %v, before launch 2 failed at %v", again, refused[0].condemned)
	}
	t.Logf("deleted %v after it was made, gone after %v; %d made anew %v after that failure",
		refused[0].condemned.Sub(refused[0].created).Round(time.Millisecond), refused[0].lasted(),
		len(lives)-3, lives[3].created.Sub(refused[0].condemned).Round(time.Millisecond))
}

func TestUnavailableOfferingIsNotAskedForUntilItsTimeIsOver(t *testing.T) {
	t.Parallel()
	c := newStockCase(t, "unavailable")
	c.NodePool("pool", 1, 2, time.Second,
		faults.Fault{Kind: faults.InsufficientCapacity, Launches: []int{1}, UnavailableSeconds: 12})
	c.stockPods(1, 1).awaitEachBound(time.Minute)
	lives := c.claimLives()
	if len(lives) != 2 || len(c.refusedClaims(lives)) != 1 {
		t.Fatalf("NodeClaims: %v, want one deleted and one launched", lives)
	}
	// The offering is unavailable from the failed launch on.
	gap := lives[1].created.Sub(lives[0].created)
	if gap < 12*time.Second {
		t.Errorf("asked for again after %v, want at least 12 s", gap)
	}
	t.Logf("asked for again after %v", gap.Round(time.Millisecond))
}

func TestWhereOneZoneIsOutTheNodeComesFromTheOther(t *testing.T) {
	t.Parallel()
	c := newStockCase(t, "zone")
	c.NodePool("pool", plane.TwoZones, 1, time.Second, outOf(plane.Zone))
	c.stockPods(1, plane.TwoZones).awaitEachBound(time.Minute)
	c.awaitNode(func(node *corev1.Node) bool { return node.Labels[corev1.LabelTopologyZone] == plane.DearerZone })
	if lives := c.claimLives(); len(lives) != 1 {
		t.Errorf("%d NodeClaims, want 1", len(lives))
	}
}

// Not parallel: while one claim is being launched, Karpenter provisions for nobody.
func TestLaunchTakesItsTime(t *testing.T) {
	c := newStockCase(t, "launch")
	c.NodePool("pool", 1, 1, time.Second, faults.Fault{Kind: faults.LaunchDelay, DelaySeconds: 4})
	c.stockPods(1, 1).awaitEachBound(time.Minute)
	life := c.claimLives()[0]
	if took := life.until("Launched"); took < 4*time.Second {
		t.Errorf("launched after %v, want at least 4 s", took)
	}
	t.Logf("launched after %v", life.until("Launched"))
}

func TestNodesOfOnePoolRegisterOneByOne(t *testing.T) {
	t.Parallel()
	c := newStockCase(t, "one-by-one")
	c.NodePool("pool", 1, 2, time.Second, faults.Fault{Kind: faults.RegistrationDelay, Launches: []int{2}, DelaySeconds: 10})
	c.stockPods(2, 1).awaitEachBound(time.Minute)
	// The node says so first, its claim a moment later.
	c.awaitClaims("registered", 2, func(life claimLife) bool { return life.until("Registered") > 0 })
	lives := c.claimLives()
	apart := (lives[0].until("Registered") - lives[1].until("Registered")).Abs()
	if apart < 5*time.Second {
		t.Errorf("registered %v apart, want at least 5 s", apart)
	}
	t.Logf("registered %v apart", apart)
}

func TestNodeThatNeverRegistersKeepsItsClaim(t *testing.T) {
	t.Parallel()
	c := newStockCase(t, "never")
	c.NodePool("pool", 1, 1, time.Second, faults.Fault{Kind: faults.NeverRegisters})
	c.stockPods(1, 1)
	c.awaitClaims("launched", 1, func(life claimLife) bool { return life.until("Launched") > 0 })
	// Karpenter's own patience is 15 minutes.
	c.stays(15*time.Second, "the claim waits for its node", func(state *timeline.State) bool {
		for _, claim := range state.NodeClaims {
			if c.mine(claim) {
				return claim.GetDeletionTimestamp() == nil && conditions(claim)["Registered"] != "True"
			}
		}
		return false
	})
}

func TestNodeWithoutDevicesIsNotInitialized(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		resources   map[string]int64
		initialized bool // before the devices are complete
	}{
		{"no GPU", map[string]int64{string(gpu): 0}, false},
		{"7 of 8 GPUs", map[string]int64{string(gpu): 7}, true},
		{"no EFA", map[string]int64{string(efa): 0}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newStockCase(t, "devices")
			c.NodePool("pool", 8, 1, time.Second, faults.Fault{Kind: faults.Devices, Resources: test.resources, LastsSeconds: 6})
			c.stockPods(1, 8).awaitEachBound(time.Minute)
			fixed := c.firstNodeEvent(func(node *corev1.Node) bool { return devicesOf(node) == "8 GPUs, 8 EFA" })
			initialized := c.firstNodeEvent(complete)
			if before := initialized.Revision < fixed.Revision; before != test.initialized {
				t.Errorf("initialized at revision %d, the devices complete at %d; want initialized before: %v",
					initialized.Revision, fixed.Revision, test.initialized)
			}
			t.Logf("initialized %v after the devices were complete", initialized.At.Sub(fixed.At).Round(time.Millisecond))
		})
	}
}

func TestNodeWithAStartupTaintIsNotInitialized(t *testing.T) {
	t.Parallel()
	c := newStockCase(t, "taint")
	c.NodePool("pool", 1, 1, time.Second, agentTaint(5))
	c.stockPods(1, 1).awaitEachBound(time.Minute)
	tainted := c.firstNodeEvent(func(node *corev1.Node) bool { return hasAgentTaint(node) })
	free := c.firstNodeEvent(func(node *corev1.Node) bool { return !hasAgentTaint(node) })
	initialized := c.firstNodeEvent(complete)
	if free.Revision <= tainted.Revision || initialized.Revision <= free.Revision {
		t.Errorf("tainted at revision %d, free at %d, initialized at %d", tainted.Revision, free.Revision, initialized.Revision)
	}
	t.Logf("initialized %v after the taint went", initialized.At.Sub(free.At).Round(time.Millisecond))
}

func TestInterruptedNodeGoes(t *testing.T) {
	t.Parallel()
	c := newStockCase(t, "interrupted")
	c.NodePool("pool", 1, 1, time.Second, faults.Fault{Kind: faults.Interruption, DelaySeconds: 3})
	c.stockPods(1, 1)
	c.awaitClaims("gone", 1, func(life claimLife) bool { return !life.deleted.IsZero() })
	life := c.claimLives()[0]
	t.Logf("the node was there after %v, its claim gone after %v", life.until("Initialized"), life.lasted())
}

// Alone: Karpenter replaces a drifted node by nodes for every pod that is
// pending at that moment, those of other cases too, beside the nodes that its
// provisioner has ordered for them.
func TestDriftedEmptyNodeGoes(t *testing.T) {
	c := newStockCase(t, "drifted")
	c.NodePool("pool", 1, 1, time.Second, faults.Fault{Kind: faults.Drift, DelaySeconds: 1})
	g := c.stockPods(1, 1)
	g.awaitEachBound(time.Minute)
	g.Delete()
	c.awaitClaims("gone", 1, func(life claimLife) bool { return !life.deleted.IsZero() })
	life := c.claimLives()[0]
	if life.until("Drifted") == 0 {
		t.Error("the claim went without having drifted")
	}
	t.Logf("gone %v after it drifted", (life.lasted() - life.until("Drifted")).Round(time.Millisecond))
}

// stockPods are pods of the default scheduler.
func (c *Case) stockPods(count, gpus int) *Gang {
	c.Helper()
	g := &Gang{Case: c, Name: "pod"}
	for i := range count {
		pod := c.Pod(fmt.Sprintf("pod-%d", i), "default-scheduler", gpus)
		requests := pod.Spec.Containers[0].Resources.Requests
		requests[efa] = requests[gpu]
		g.Members = append(g.Members, c.Create(pod).Name)
	}
	return g
}

// awaitEachBound waits until each of them was bound at some moment. The taint
// controller may delete one right after that, on a busy machine: it may see a pod on
// a node before it sees that the node's NoExecute taint of the registration is gone.
func (g *Gang) awaitEachBound(patience time.Duration) {
	g.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		count := len(g.Moments(bound))
		if count == len(g.Members) {
			return
		}
		if time.Now().After(deadline) {
			g.Fatalf("%d of %d pods were bound within %v", count, len(g.Members), patience)
		}
	}
}

const agent = "tests.muster.dev/agent"

// agentTaint is a startup taint that an agent takes off after so many seconds.
func agentTaint(lasts int64, launches ...int) faults.Fault {
	return faults.Fault{Kind: faults.Taint, Taint: agent, LastsSeconds: lasts, Launches: launches}
}

func hasAgentTaint(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == agent {
			return true
		}
	}
	return false
}

// outOf is a zone without instances.
func outOf(zone string, launches ...int) faults.Fault {
	return faults.Fault{
		Kind:     faults.InsufficientCapacity,
		Launches: launches,
		Offering: map[string]string{corev1.LabelTopologyZone: zone},
	}
}

func devicesOf(node *corev1.Node) string {
	gpus, efas := node.Status.Allocatable[gpu], node.Status.Allocatable[efa]
	return fmt.Sprintf("%d GPUs, %d EFA", gpus.Value(), efas.Value())
}

// firstNodeEvent is the first one in which a node of the case's satisfied the
// predicate. It may be received a moment after a pod's that came of it.
func (c *Case) firstNodeEvent(predicate func(*corev1.Node) bool) timeline.Event {
	c.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for _, event := range c.nodeEvents() {
			if event.Type != "DELETED" && predicate(event.Object.(*corev1.Node)) {
				return event
			}
		}
	}
	c.Fatal("no node was ever as it should be")
	return timeline.Event{}
}

// claimLife is what the watch saw of one NodeClaim.
type claimLife struct {
	name             string
	node             string // once it is known
	number           int    // in the order of creation
	created, deleted time.Time
	condemned        time.Time            // when its deletion was asked for
	first            map[string]time.Time // when a condition was first True
}

// until is how long after its creation a condition was first true; 0 is never.
func (l claimLife) until(condition string) time.Duration {
	if l.first[condition].IsZero() {
		return 0
	}
	return l.first[condition].Sub(l.created).Round(time.Millisecond)
}

func (l claimLife) lasted() time.Duration { return l.deleted.Sub(l.created).Round(time.Millisecond) }

// claimLives returns those of the case's NodeClaims, the oldest first.
func (c *Case) claimLives() []claimLife {
	var lives []claimLife
	place := map[string]int{}
	for _, event := range shared.Timeline.Events(func(event timeline.Event) bool {
		claim, ok := event.Object.(*unstructured.Unstructured)
		return ok && claim.GetKind() == "NodeClaim" && c.mine(claim)
	}) {
		claim := event.Object.(*unstructured.Unstructured)
		at, known := place[claim.GetName()]
		if !known {
			at = len(lives)
			place[claim.GetName()] = at
			lives = append(lives, claimLife{name: claim.GetName(), number: at, created: event.At, first: map[string]time.Time{}})
		}
		if event.Type == "DELETED" {
			lives[at].deleted = event.At
			continue
		}
		if node, _, _ := unstructured.NestedString(claim.Object, "status", "nodeName"); node != "" {
			lives[at].node = node
		}
		if claim.GetDeletionTimestamp() != nil && lives[at].condemned.IsZero() {
			lives[at].condemned = event.At
		}
		for condition, status := range conditions(claim) {
			if status == "True" && lives[at].first[condition].IsZero() {
				lives[at].first[condition] = event.At
			}
		}
	}
	return lives
}

// refusedClaims are those that were deleted without having been launched.
func (c *Case) refusedClaims(lives []claimLife) []claimLife {
	var refused []claimLife
	for _, life := range lives {
		if !life.deleted.IsZero() && life.until("Launched") == 0 {
			refused = append(refused, life)
		}
	}
	return refused
}

// awaitClaims waits until the predicate holds for so many of the case's NodeClaims.
func (c *Case) awaitClaims(what string, count int, predicate func(claimLife) bool) {
	c.Helper()
	seen := 0
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		seen = 0
		for _, life := range c.claimLives() {
			if predicate(life) {
				seen++
			}
		}
		if seen >= count {
			return
		}
	}
	c.Fatalf("%d NodeClaims were %s within two minutes, want %d", seen, what, count)
}

func conditions(object *unstructured.Unstructured) map[string]string {
	found := map[string]string{}
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, raw := range list {
		condition, _ := raw.(map[string]any)
		found[fmt.Sprint(condition["type"])] = fmt.Sprint(condition["status"])
	}
	return found
}
