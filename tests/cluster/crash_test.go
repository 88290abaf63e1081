package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"muster.dev/tests/cluster/plane"
)

// Muster kills itself (SIGKILL) right after a certain write when it is started
// with this variable, "<kind>:<n>": the n-th write of that kind.
const crashAfter = "MUSTER_TEST_CRASH_AFTER"

// These cases end and start Muster, so they don't run beside others: go test
// runs what isn't marked parallel first.

// Killed between two writes of a kind, Muster's next start finds enough in the
// API server to finish what was begun.
func TestKilledBetweenTwoWritesTheGangEndsWhole(t *testing.T) {
	for _, test := range []struct {
		write  write
		done   int // of the four writes, when Muster is killed
		rounds int
	}{
		{write: signalWrite, done: 2, rounds: pick(1, 10)},
		{write: gateLift, done: 2, rounds: pick(1, 10)},
		{write: binding, done: 1, rounds: pick(1, 4)},
		{write: binding, done: 2, rounds: pick(1, 3)},
		{write: binding, done: 3, rounds: pick(1, 3)},
	} {
		for round := range test.rounds {
			t.Run(fmt.Sprintf("%d of 4 %ss, round %d", test.done, test.write.name, round+1), func(t *testing.T) {
				c := newGangCase(t, "between")
				c.supply(test.write.name == signalWrite.name)
				if test.write.name == gateLift.name {
					// Standalone gates pods where there is one.
					c.NodePool("of-no-nodes", 1, 0, 0)
				}
				turnstile := c.turnstile(test.write, test.done)
				g := c.Gang("train", 4, 1)
				c.must(turnstile.awaitFull(g, 30*time.Second))
				shared.Muster.Kill()
				turnstile.letAllPass()
				t.Logf("killed with %s", g.progress())
				if count := g.Count(bound); test.write.name != binding.name && count > 0 {
					t.Errorf("%d members are bound although not all have lost their gate", count)
				}
				g.awaitWholeAfterRestart()
			})
		}
	}
}

// Killed right after a write, before Muster could do anything with its success.
func TestKilledRightAfterAWriteTheGangEndsWhole(t *testing.T) {
	for _, test := range []struct {
		after     string
		karpenter bool
		rounds    int
	}{
		{after: "record:1", rounds: pick(1, 3)},
		{after: "gate-lift:1", rounds: pick(0, 3)},
		{after: "binding:1", rounds: pick(0, 3)},
		{after: "signal:1", rounds: pick(0, 3), karpenter: true},
		{after: "hold:1", rounds: pick(1, 3), karpenter: true},
	} {
		for round := range test.rounds {
			t.Run(fmt.Sprintf("%s round %d", test.after, round+1), func(t *testing.T) {
				// The nodes are made before Muster is started, so that the
				// crash falls into the gang's own story.
				shared.Muster.Kill()
				c := newCase(t, "crash")
				c.supply(test.karpenter)
				// A Muster that was to crash and didn't must not go on to the
				// next case.
				t.Cleanup(func() {
					if t.Failed() {
						shared.Muster.Kill()
					}
				})
				c.must(shared.Muster.Start(plane.Launch{Environment: []string{crashAfter + "=" + test.after}}))
				g := c.Gang("train", 4, 1)
				c.must(shared.Muster.AwaitCrash(30 * time.Second))
				t.Logf("killed with %s", g.progress())
				g.awaitWholeAfterRestart()
			})
		}
	}
}

// supply gives the case what four members with one GPU each need: nodes that
// are there, or NodePools whose nodes come one after another.
func (c *Case) supply(karpenter bool) {
	c.Helper()
	if !karpenter {
		c.Nodes(4, 1)
		return
	}
	for i := range 4 {
		c.NodePool(fmt.Sprint(i), 1, 1, time.Duration(1+i)*time.Second)
	}
}

func (g *Gang) awaitWholeAfterRestart() {
	g.Helper()
	begin := time.Now()
	g.must(shared.Muster.Start(plane.Launch{}))
	g.AwaitBound(30 * time.Second)
	g.AwaitHoldsGone(15 * time.Second)
	g.Logf("whole %v after the restart", time.Since(begin).Round(time.Millisecond))
}

// progress counts the members by how far they are.
func (g *Gang) progress() string {
	return fmt.Sprintf("%d signalled, %d ungated, %d bound",
		g.Count(signalled), g.Count(func(pod *corev1.Pod) bool { return !gated(pod) }), g.Count(bound))
}

// Killed at any moment from the first pod's creation on, while two gangs fight
// for 6 GPUs, one ends whole and the other with nothing; and when the first is
// gone the other is whole.
func TestKilledAtARandomMomentGangsEndWholeOrNotAtAll(t *testing.T) {
	random, seed := randomSource(t)
	for round := range pick(4, 20) {
		t.Run(fmt.Sprintf("round %d", round+1), func(t *testing.T) {
			c := newGangCase(t, "chaos")
			c.persistent = true
			c.Nodes(6, 1)
			a, b := c.PodGroup("a", 4, 1), c.PodGroup("b", 4, 1)

			life := time.Duration(random.Int64N(int64(600 * time.Millisecond)))
			pause := time.Duration(random.Int64N(int64(time.Second)))
			restarted := make(chan error, 1)
			go func() {
				time.Sleep(life)
				shared.Muster.Kill()
				t.Logf("seed %d: killed after %v with a: %s; b: %s", seed, life.Round(time.Millisecond), a.progress(), b.progress())
				time.Sleep(pause)
				restarted <- shared.Muster.Start(plane.Launch{})
			}()
			for range 4 {
				a.AddMembers(1)
				b.AddMembers(1)
			}
			c.must(<-restarted)

			winner, loser := c.awaitOneWhole(a, b, 30*time.Second)
			c.stays(2*time.Second, fmt.Sprintf("gang %s has no member bound", loser.Name), loser.noneBound)
			winner.Delete()
			loser.AwaitBound(10 * time.Second)
		})
	}
}

// Killed while Karpenter makes the nodes.
func TestKilledWhileNodesComeTheGangEndsWhole(t *testing.T) {
	random, seed := randomSource(t)
	for round := range pick(1, 10) {
		t.Run(fmt.Sprintf("round %d", round+1), func(t *testing.T) {
			c := newGangCase(t, "buying")
			for i := range 4 {
				c.NodePool(fmt.Sprint(i), 1, 1, time.Duration(1+2*i)*time.Second)
			}
			g := c.Gang("train", 4, 1)
			life := time.Duration(random.Int64N(int64(12 * time.Second)))
			time.Sleep(life)
			shared.Muster.Kill()
			t.Logf("seed %d: killed %v after the gang existed with %s", seed, life, g.progress())
			time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))

			c.must(shared.Muster.Start(plane.Launch{}))
			g.AwaitBound(time.Minute)
			c.AwaitHoldsGone(15 * time.Second)
		})
	}
}

// A node is held until the gang's deadline, also when Muster isn't there to
// see the deadline pass.
func TestKilledWhileHoldingNoHoldOutlivesItsDeadline(t *testing.T) {
	c := newGangCase(t, "orphan")
	g := c.halfProvisioned("train", 10)
	shared.Muster.Kill()
	time.Sleep(time.Until(g.Created.Add(10 * time.Second)))
	c.must(shared.Muster.Start(plane.Launch{}))
	c.AwaitHoldsGone(15 * time.Second)
	g.checkGivenBack()
}

// randomSource is seeded anew each run; the seed is printed with each round
// and MUSTER_SEED repeats it.
func randomSource(t *testing.T) (*rand.Rand, uint64) {
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("MUSTER_SEED"); given != "" {
		parsed, err := strconv.ParseUint(given, 10, 64)
		if err != nil {
			t.Fatalf("MUSTER_SEED: %v", err)
		}
		seed = parsed
	}
	return rand.New(rand.NewPCG(seed, 0)), seed
}
