package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// Killed at any moment while 20 gangs want quota for 6 and make room for each
// other, Muster's next start counts what the Workloads say, gives nobody more than
// there is, leaves everybody's place in line, and remembers which flavors a gang
// gave up on.
func TestKilledAtARandomMomentQuotaIsTheSumOfTheWorkloads(t *testing.T) {
	random, seed := randomSource(t)
	const gangs, size = 20, 2
	for round := range pick(2, 30) {
		t.Run(fmt.Sprintf("round %d", round+1), func(t *testing.T) {
			c := newQuotaCase(t, "recount")
			c.persistent = true
			nominal := usage{"nvidia": 7, "nvidia-efa": 6} // one GPU is too few for a fourth gang
			c.flavorNodes(nominal)
			c.ApplyQuota(nominalQuota(nominal), onNodesLabelled)
			exhausted := c.exhaustedGang(size)

			life := time.Duration(random.Int64N(int64(3 * time.Second)))
			pause := time.Duration(random.Int64N(int64(time.Second)))
			w := &turnover{Case: c, size: size}
			for i := range gangs {
				w.gangs = append(w.gangs, &Gang{Case: c, Name: fmt.Sprintf("train-%c", 'a'+i), gpus: 1, edit: withoutCPU})
			}
			over := make(chan error, 1)
			go func() { over <- w.run(2 * time.Minute) }()
			restarted := make(chan error, 1)
			go func() {
				time.Sleep(life)
				shared.Muster.Kill()
				w.set(true)
				t.Logf("seed %d: killed after %v; the Workloads hold %s, %d gangs were whole once, %d in line",
					seed, life.Round(time.Millisecond), c.recounted(), w.whole(), len(w.lastLine()))
				time.Sleep(pause)
				restarted <- errors.Join(shared.Muster.Start(plane.Launch{}), c.checkRecount(nominal), c.checkLineKept(w.lastLine()))
				w.set(false)
			}()
			for _, g := range w.gangs {
				c.PodGroup(g.Name, size, 1)
				g.AddMembers(size)
			}
			c.must(<-restarted)
			c.must(<-over)
			if err := shared.Timeline.Await(5*time.Second, func(state *timeline.State) string {
				if again := recount(state.Workloads, c.Namespace); again.String() != "{}" {
					return "all gangs are gone and the Workloads hold " + again.String()
				}
				return ""
			}); err != nil {
				t.Error(err)
			}
			t.Logf("all %d gangs were whole once; the Workloads held at most %s", gangs, c.checkNeverAbove(nominal))
			exhausted.checkTriedKept()
		})
		if t.Failed() {
			return
		}
	}
}

// exhaustedGang is given quota for nodes that never come, and gives up after a
// second.
func (c *Case) exhaustedGang(size int) *Gang {
	c.Helper()
	c.NodePool("late", 1, size, time.Hour)
	c.Apply("late_quota.yaml")
	g := c.PodGroup("exhausted", size, 1)
	_, err := shared.Dynamic.Resource(timeline.PodGroups).Namespace(c.Namespace).Patch(c.Context(), g.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"late"}},"spec":{"scheduleTimeoutSeconds":1}}`), metav1.PatchOptions{})
	c.must(err)
	g.edit = withoutCPU
	g.AddMembers(size)
	return g
}

// checkTriedKept sees that the gang gave up on a flavor, and that each version of
// its record since says so until the time that was recorded at first.
func (g *Gang) checkTriedKept() {
	g.Helper()
	gaveUp := func(state *timeline.State) string {
		record, err := recordOf(state.PodGroups[g.Namespace+"/"+g.Name])
		if err != nil || len(record.FlavorsTried) == 0 {
			return fmt.Sprintf("gang %s hasn't given up on its flavor: %v", g.Name, err)
		}
		return ""
	}
	if err := shared.Timeline.Await(30*time.Second, gaveUp); err != nil {
		g.Errorf("%v; muster says: %s", err, g.Explained())
	}
	until, versions := map[string]time.Time{}, 0
	for _, event := range g.groupHistory() {
		record, err := recordOf(event.Object.(*unstructured.Unstructured))
		g.must(err)
		for flavor, end := range until {
			if now := record.FlavorsTried[flavor]; now.Before(end) && event.At.Before(end) {
				g.Errorf("at revision %d flavor %s is one to leave until %v; before it was until %v", event.Revision, flavor, now, end)
			}
		}
		maps.Copy(until, record.FlavorsTried)
		if len(until) > 0 {
			versions++
		}
	}
	g.Logf("gang %s gave up on %v, in all %d versions of its PodGroup since", g.Name, slices.Sorted(maps.Keys(until)), versions)
}

// turnover ends one gang after another that is bound whole, so that there is always
// somebody who is given quota and somebody who waits.
type turnover struct {
	*Case
	gangs []*Gang
	size  int

	mutex  sync.Mutex // held while something is deleted
	ended  int
	paused bool
	line   []string // of those that wait, as Muster said last
}

// turnoverPause leaves room for a line: 20 gangs take three seconds.
const turnoverPause = 150 * time.Millisecond

// run returns when all gangs were whole once.
func (w *turnover) run(patience time.Duration) error {
	left := slices.Clone(w.gangs)
	for deadline := time.Now().Add(patience); len(left) > 0; time.Sleep(turnoverPause) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d gangs weren't bound whole; gang %s: %s", len(left), left[0].Name, left[0].Explained())
		}
		var err error
		if left, err = w.step(left); err != nil {
			return err
		}
	}
	return nil
}

// step ends one that is whole and returns the others.
func (w *turnover) step(left []*Gang) ([]*Gang, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.paused {
		return left, nil
	}
	if queues, err := readQueues(shared.Muster); err == nil {
		if queue, ok := clusterQueueOf(queues); ok {
			w.line = queue.line
		}
	}
	at := slices.IndexFunc(left, func(g *Gang) bool { return g.Count(bound) == w.size })
	if at < 0 {
		return left, nil
	}
	w.ended++
	var failed error
	for i := range w.size {
		failed = errors.Join(failed, shared.Client.CoreV1().Pods(w.Namespace).Delete(context.Background(),
			fmt.Sprintf("%s-%d", left[at].Name, i), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	}
	return slices.Delete(left, at, at+1), failed
}

// set stops and resumes it; once it is stopped nothing is deleted any more.
func (w *turnover) set(paused bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.paused = paused
}

func (w *turnover) whole() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.ended
}

// lastLine is the line before the kill, the first first.
func (w *turnover) lastLine() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.line
}

// recounted is what the Workloads hold now.
func (c *Case) recounted() usage {
	var sum usage
	shared.Timeline.Look(func(state *timeline.State) { sum = recount(state.Workloads, c.Namespace) })
	return sum
}

// checkRecount compares what Muster counts, right after it said that it is ready,
// with what the Workloads hold. Both may change between the two looks.
func (c *Case) checkRecount(nominal usage) error {
	begin, looks, above := time.Now(), 0, ""
	err := c.awaitQueue(3*time.Second, func(queue queueAnswer) string {
		looks++
		for flavor, amount := range queue.reserved {
			if amount > nominal[flavor] {
				above = fmt.Sprintf("Muster counts %d GPUs of flavor %s, of %d there are", amount, flavor, nominal[flavor])
			}
		}
		if sum := c.recounted(); sum.String() != queue.reserved.String() {
			return fmt.Sprintf("/v1/queues has %s reserved, the Workloads hold %s", queue.reserved, sum)
		}
		return ""
	})
	c.Logf("Muster's count was the Workloads' %v after it was ready, at look %d", time.Since(begin).Round(time.Millisecond), looks)
	if above != "" {
		err = errors.Join(err, errors.New(above))
	}
	return err
}

// checkLineKept sees that those who waited before the kill wait in the same order or
// were admitted meanwhile.
func (c *Case) checkLineKept(before []string) error {
	return c.awaitQueue(3*time.Second, func(queue queueAnswer) string {
		now := queue.line
		still := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return !slices.Contains(now, name) })
		for _, name := range before {
			if g := (&Gang{Case: c, Name: name}); !slices.Contains(now, name) && !g.everHeldQuota() {
				return fmt.Sprintf("gang %s was in line and isn't any more, without quota", name)
			}
		}
		kept := slices.DeleteFunc(slices.Clone(now), func(name string) bool { return !slices.Contains(before, name) })
		if !slices.Equal(still, kept) {
			return fmt.Sprintf("the line was %v and is %v", before, now)
		}
		return ""
	})
}
