package cluster

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/faults"
	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// Where Muster may, it takes orders back: NodeClaims whose nodes are still coming
// up and that no gang needs any more, or that are late. These cases run alone,
// because Muster has another configuration, and rights that deploy/ gives it only
// where they are asked for.

const withdrawalRights = "../../deploy/withdraw-nodes"

// soonest is how long a gang goes on asking in these cases once it was refused.
const soonest = 10 * time.Second

func newWithdrawalCase(t *testing.T, engine map[string]any) *Case {
	t.Helper()
	c := newGangCase(t, "withdrawal")
	settings := map[string]any{"refusalDeadline": soonest.String(), "signalGrace": "2s"}
	for key, value := range engine {
		settings[key] = value
	}
	c.letWithdraw(settings)
	return c
}

// letWithdraw starts Muster anew, with these settings and the right to take nodes
// back, until the case is over.
func (c *Case) letWithdraw(engine map[string]any) {
	c.Helper()
	shared.Muster.Kill()
	c.Cleanup(shared.Muster.Kill) // the next case starts it as usual
	c.Cleanup(func() {
		if output, err := shared.Kubectl("delete", "--kustomize="+withdrawalRights, "--ignore-not-found"); err != nil {
			c.Error(err, output)
		}
	})
	mustKubectl(c.T, "apply", "--server-side", "--validate=strict", "--kustomize="+withdrawalRights)
	settings := map[string]any{"withdrawNodes": true}
	for key, value := range engine {
		settings[key] = value
	}
	c.must(shared.Muster.Start(plane.Launch{Engine: settings}))
}

// One launch of four is refused for ever, and the three others take longer to come
// up than it is tried again. What no gang needs goes at that moment, before it is
// up; what another gang counts on stays, and that gang runs on it.
func TestOrdersBesideOneThatIsRefusedAreTakenBack(t *testing.T) {
	for _, test := range []struct {
		name   string
		needed int // NodeClaims, by another gang
	}{
		{"nobody needs them", 0},
		{"another gang needs two", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newWithdrawalCase(t, nil)
			const comesUp = 30 * time.Second
			c.NodePool("pool", 8, 8, comesUp,
				faults.Fault{Kind: faults.InsufficientCapacity, FromLaunch: 4, UnavailableSeconds: 3})
			g := c.Gang("four", 4, 8)
			c.awaitClaims("launched", 3, func(life claimLife) bool { return life.until("Launched") > 0 })
			other := &Gang{Case: c, Name: "other"}
			if test.needed > 0 {
				other = c.Gang("other", test.needed, 8)
			}
			g.awaitState(comesUp, "BACKING_OFF")
			gaveUp := g.gaveUp()
			refused := g.firstRefusal()
			if took := gaveUp.Sub(refused); took < soonest-time.Second || took > soonest+5*time.Second {
				t.Errorf("gave up %v after the first refusal, want %v", took, soonest)
			}
			g.checkSays("INSUFFICIENT_CAPACITY", `0 of 4 members have usable nodes; .*refused for insufficient capacity`)

			c.awaitClaims("gone though launched", 3-test.needed, func(life claimLife) bool {
				return life.until("Launched") > 0 && !life.deleted.IsZero()
			})
			for _, life := range c.launched() {
				if life.condemned.IsZero() {
					continue
				}
				if after := life.condemned.Sub(gaveUp); after < 0 || after > 6*time.Second {
					t.Errorf("NodeClaim %s was deleted %v after the gang gave up, want 0 to 6 s", life.name, after)
				}
				if life.until("Registered") > 0 {
					t.Errorf("NodeClaim %s was deleted when its node was there", life.name)
				}
				t.Logf("%s: %v after the gang gave up, gone %v later", life.name,
					life.condemned.Sub(gaveUp).Round(time.Millisecond), life.deleted.Sub(life.condemned).Round(time.Millisecond))
			}
			if test.needed > 0 {
				other.AwaitBound(2 * comesUp)
				other.checkOneStroke(3 * time.Second)
			}
			g.checkGivenBack()
			c.stays(5*time.Second, "as many NodeClaims stand as are needed", func(state *timeline.State) bool {
				standing := 0
				for _, claim := range state.NodeClaims {
					if c.mine(claim) && conditions(claim)["Launched"] == "True" && claim.GetDeletionTimestamp() == nil {
						standing++
					}
				}
				return standing == test.needed && g.noneBound(state)
			})
		})
	}
}

// Karpenter waits 15 minutes for a node to register. Half of the gang's own time is
// enough here: another one is asked for, and the nodes that came stay.
func TestNodeThatIsLateToRegisterIsReplaced(t *testing.T) {
	c := newWithdrawalCase(t, map[string]any{"registrationDeadline": "40s"})
	c.NodePool("pool", 8, 8, time.Second, faults.Fault{Kind: faults.NeverRegisters, Launches: []int{2}})
	g := c.Gang("train", 3, 8)
	g.AwaitBound(90 * time.Second)

	g.checkOneStroke(3 * time.Second)
	// What is told of NodeClaims may come a moment after the pods that it let bind.
	c.awaitClaims("registered", 3, func(life claimLife) bool { return life.until("Registered") > 0 })
	lives := c.launched()
	if len(lives) != 4 {
		t.Fatalf("%d NodeClaims were launched, want three and one in place of the one that is late", len(lives))
	}
	for _, life := range lives {
		registered := life.until("Registered") > 0
		if registered == !life.condemned.IsZero() {
			t.Errorf("NodeClaim %s: registered %t, deleted %t", life.name, registered, !life.condemned.IsZero())
		}
		// The condition is dated in whole seconds, and was seen a moment later.
		if after := life.condemned.Sub(life.first["Launched"]); !registered && (after < 18*time.Second || after > 26*time.Second) {
			t.Errorf("deleted %v after its launch, want 20 s", after)
		}
	}
	c.AwaitHoldsGone(10 * time.Second)
}

// Without the right nothing is taken back, and the gang goes its way.
func TestWithoutTheRightNoOrderIsTakenBack(t *testing.T) {
	c := newWithdrawalCase(t, nil)
	mustKubectl(t, "delete", "--kustomize="+withdrawalRights)
	c.checkMayNotDelete("nodeclaims.karpenter.sh")
	c.NodePool("pool", 8, 8, 20*time.Second,
		faults.Fault{Kind: faults.InsufficientCapacity, FromLaunch: 2, LastsSeconds: 15, UnavailableSeconds: 3})
	g := c.Gang("two", 2, 8)
	g.awaitState(30*time.Second, "BACKING_OFF")
	c.stays(5*time.Second, "no NodeClaim that was launched goes", func(state *timeline.State) bool {
		for _, claim := range state.NodeClaims {
			if c.mine(claim) && conditions(claim)["Launched"] == "True" && claim.GetDeletionTimestamp() != nil {
				return false
			}
		}
		return true
	})
	g.checkGivenBack()
}

// The right is for NodeClaims alone.
func TestTheRightToTakeOrdersBackIsForNodeClaimsAlone(t *testing.T) {
	c := newWithdrawalCase(t, nil)
	answer, _ := shared.KubectlAsMuster("auth", "can-i", "--all-namespaces", "delete", "nodeclaims.karpenter.sh")
	if lines := strings.Fields(answer); len(lines) == 0 || lines[len(lines)-1] != "yes" {
		t.Errorf("may Muster delete NodeClaims? %s", answer)
	}
	for _, kind := range []string{"nodes", "nodepools.karpenter.sh", "podgroups.scheduling.x-k8s.io"} {
		c.checkMayNotDelete(kind)
	}
}

func (c *Case) checkMayNotDelete(kind string) {
	c.Helper()
	// kubectl ends with status 1 after a "no".
	answer, _ := shared.KubectlAsMuster("auth", "can-i", "--all-namespaces", "delete", kind)
	if lines := strings.Fields(answer); len(lines) == 0 || lines[len(lines)-1] != "no" {
		c.Errorf("may Muster delete %s? %s", kind, answer)
	}
}

// launched are those of the case's NodeClaims that found an instance.
func (c *Case) launched() []claimLife {
	var lives []claimLife
	for _, life := range c.claimLives() {
		if life.until("Launched") > 0 {
			lives = append(lives, life)
		}
	}
	return lives
}

// gaveUp is when the gang's record first said that it backs off.
func (g *Gang) gaveUp() time.Time {
	g.Helper()
	for _, event := range shared.Timeline.Events(func(event timeline.Event) bool {
		group, ok := event.Object.(*unstructured.Unstructured)
		return ok && group.GetKind() == "PodGroup" && group.GetNamespace() == g.Namespace && group.GetName() == g.Name
	}) {
		if strings.Contains(event.Object.GetAnnotations()[gate], `"retryAfter"`) {
			return event.At
		}
	}
	g.Fatal("no record says that it gave up")
	return time.Time{}
}

// firstRefusal is when the first of the case's NodeClaims was deleted unlaunched.
func (g *Gang) firstRefusal() time.Time {
	g.Helper()
	refused := g.refusedClaims(g.claimLives())
	if len(refused) == 0 {
		g.Fatal("no launch was refused")
	}
	first := refused[0].condemned
	for _, life := range refused {
		if life.condemned.Before(first) {
			first = life.condemned
		}
	}
	return first
}
