package cluster

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/faults"
	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// A flavor whose nodes don't come is left for the next one of the queue: the job
// is suspended and resumed, so that its pods are made anew. Real controllers make
// and delete them.

const restartAnnotation = "muster.dev/restart"

// soldOut: no launch ever finds an instance.
var soldOut = faults.Fault{Kind: faults.InsufficientCapacity, UnavailableSeconds: 3}

// ofSize is a Job of so many pods at a time.
func ofSize(pods int) Change {
	return func(object *unstructured.Unstructured) {
		if object.GetKind() == "Job" {
			for _, field := range []string{"parallelism", "completions"} {
				_ = unstructured.SetNestedField(object.Object, int64(pods), "spec", field)
			}
		}
	}
}

// impatientGroup is a PodGroup for a job of that many pods, which waits so long for
// the nodes of one flavor.
func (c *Case) impatientGroup(size int, timeoutSeconds int64) *Gang {
	c.Helper()
	g := c.PodGroup("train", size, 1)
	g.setScheduleTimeout(timeoutSeconds)
	return g
}

// impatientJob applies job.yaml without a NodePool of its own. Its PodGroup says
// how long it waits for the nodes of one flavor.
func (c *Case) impatientJob(size int, timeoutSeconds int64) *Gang {
	c.Helper()
	g := c.impatientGroup(size, timeoutSeconds)
	c.Apply("job.yaml", scheduledBy(plane.SchedulerName), withoutNodeSelector, ofSize(size))
	return g
}

func (c *Case) job() *batchv1.Job {
	c.Helper()
	job, err := shared.Client.BatchV1().Jobs(c.Namespace).Get(c.Context(), "train", metav1.GetOptions{})
	c.must(err)
	return job
}

// isRestarting tells whether Muster has suspended the job and is to resume it.
func isRestarting(job *batchv1.Job) bool {
	return job.Spec.Suspend != nil && *job.Spec.Suspend && job.Annotations[restartAnnotation] != ""
}

// awaitDoneOn waits until all pods that exist have ended well, and were on nodes
// of this flavor.
func (g *Gang) awaitDoneOn(pool string, size int, patience time.Duration) {
	g.Helper()
	selected := func(pod *corev1.Pod) bool {
		return succeeded(pod) && pod.Spec.NodeSelector[nodePoolLabel] == g.Namespace+"-"+pool
	}
	if err := shared.Timeline.Await(patience, func(state *timeline.State) string {
		pods := g.pods(state)
		if done := countPods(pods, selected); done != size || len(pods) != size {
			return fmt.Sprintf("%d of %d pods, %d in all, have ended on %s", done, size, len(pods), pool)
		}
		return ""
	}); err != nil {
		g.Fatalf("%v\nmuster says: %s", err, g.Explained())
	}
}

// checkNothingFailed sees that the Job counts no pod as failed, and is whole.
func (c *Case) checkNothingFailed(size int) {
	c.Helper()
	deadline := time.Now().Add(20 * time.Second)
	job := c.job()
	for ; int(job.Status.Succeeded) < size && time.Now().Before(deadline); job = c.job() {
		time.Sleep(100 * time.Millisecond)
	}
	if job.Status.Failed != 0 || int(job.Status.Succeeded) != size {
		c.Errorf("the Job counts %d pods as failed and %d as succeeded, want 0 and %d", job.Status.Failed, job.Status.Succeeded, size)
	}
	if isRestarting(job) || job.Annotations[restartAnnotation] != "" {
		c.Errorf("the Job is done and still marked: %v", job.Annotations)
	}
}

// checkNeverBoundOn sees that no member was ever bound on this flavor.
func (c *Case) checkNeverBoundOn(pool string) {
	c.Helper()
	bindings := shared.Timeline.Events(func(event timeline.Event) bool {
		pod, ok := event.Object.(*corev1.Pod)
		return ok && c.mine(pod) && bound(pod) && pod.Spec.NodeSelector[nodePoolLabel] == c.Namespace+"-"+pool
	})
	if len(bindings) > 0 {
		c.Errorf("pod %s was bound on %s, which never had nodes for all", bindings[0].Object.GetName(), pool)
	}
}

// nodesOf counts the nodes of a NodePool that are there now.
func (c *Case) nodesOf(state *timeline.State, pool string) int {
	count := 0
	for _, node := range state.Nodes {
		if node.Labels[nodePoolLabel] == c.Namespace+"-"+pool {
			count++
		}
	}
	return count
}

// With the default backoffLimit of 6, eight pods that are deleted one by one and
// count as failed would end the Job at its first fallback.
func TestJobFallsBackTwiceAndCompletesWithoutAFailure(t *testing.T) {
	c := newQuotaCase(t, "fallback")
	const size = 8
	c.NodePool("first", 1, size, time.Second, soldOut)
	c.NodePool("second", 1, size, time.Second, soldOut)
	c.NodePool("third", 1, size, time.Second)
	c.ApplyQuotaOf("fallback_quota.yaml")
	g := c.impatientJob(size, 12)
	g.awaitDoneOn("third", size, 3*time.Minute)

	c.checkNothingFailed(size)
	c.checkNeverBoundOn("first")
	c.checkNeverBoundOn("second")
	c.AwaitHoldsGone(10 * time.Second)
	if attempt := g.attempt(); attempt != 3 {
		t.Errorf("it ran in attempt %d, want the third", attempt)
	}
}

// attempt is the one that the gang's record counts.
func (g *Gang) attempt() int64 {
	g.Helper()
	answer, err := g.muster().Get("/v1/gangs/" + g.Namespace + "/" + g.Name)
	g.must(err)
	return number(answer["attempt"])
}

// One of four nodes can't be had of the first flavor, ever. The three that came
// are Karpenter's again as soon as the gang leaves them.
func TestGangLeavesTheNodesOfAFlavorThatLacksOne(t *testing.T) {
	c := newQuotaCase(t, "lacks-one")
	const size = 4
	c.NodePool("first", 1, size, time.Second, faults.Fault{Kind: faults.InsufficientCapacity, FromLaunch: 4, UnavailableSeconds: 3})
	c.NodePool("second", 1, size, time.Second)
	c.ApplyQuotaOf("fallback_quota.yaml", withoutThird)
	g := c.impatientJob(size, 20)
	c.must(shared.Timeline.Await(time.Minute, func(state *timeline.State) string {
		if nodes := c.nodesOf(state, "first"); nodes != size-1 {
			return fmt.Sprintf("%d nodes of the first flavor, want %d", nodes, size-1)
		}
		return ""
	}))
	c.must(shared.Timeline.Await(time.Minute, func(state *timeline.State) string {
		record, err := recordOf(state.PodGroups[g.Namespace+"/"+g.Name])
		if _, tried := record.FlavorsTried["first"]; err != nil || !tried {
			return "the gang hasn't given up on the first flavor"
		}
		return ""
	}))
	left := time.Now()
	c.must(shared.Timeline.Await(90*time.Second, func(state *timeline.State) string {
		if nodes := c.nodesOf(state, "first"); nodes > 0 {
			return fmt.Sprintf("%d nodes of the first flavor are still there", nodes)
		}
		return ""
	}))
	t.Logf("the nodes of the first flavor were gone %v after the fallback", time.Since(left).Round(100*time.Millisecond))
	g.awaitDoneOn("second", size, 2*time.Minute)
	c.checkNothingFailed(size)
	c.checkNeverBoundOn("first")
}

// withoutThird leaves the queue two flavors.
func withoutThird(object *unstructured.Unstructured) {
	if object.GetKind() != "ClusterQueue" {
		return
	}
	eachMap(object.Object, func(m map[string]any) {
		if flavors, ok := m["flavors"].([]any); ok && len(flavors) == 3 {
			m["flavors"] = flavors[:2]
		}
	})
}

// Killed when it has suspended the job, or resumed it, Muster's next start goes on
// from what the job says: none stays suspended.
func TestKilledWhileAJobRestartsItIsResumed(t *testing.T) {
	for _, after := range []string{"suspend:1", "resume:1"} {
		t.Run(after, func(t *testing.T) {
			shared.Muster.Kill()
			installQueues(t)
			c := newCase(t, "restart-crash")
			t.Cleanup(func() {
				if t.Failed() {
					shared.Muster.Kill()
				}
			})
			const size = 2
			c.NodePool("first", 1, size, time.Second, soldOut)
			c.NodePool("second", 1, size, time.Second)
			c.must(shared.Muster.Start(plane.Launch{Environment: []string{crashAfter + "=" + after}}))
			c.ApplyQuotaOf("fallback_quota.yaml", withoutThird)
			g := c.impatientJob(size, 8)
			c.must(shared.Muster.AwaitCrash(time.Minute))
			if job := c.job(); isRestarting(job) != (after == "suspend:1") {
				t.Errorf("killed after %s with the job suspended %v, its mark %q", after, *job.Spec.Suspend, job.Annotations[restartAnnotation])
			}
			// Nobody is there to resume it.
			time.Sleep(2 * time.Second)
			c.must(shared.Muster.Start(plane.Launch{}))
			g.awaitDoneOn("second", size, 2*time.Minute)
			c.checkNothingFailed(size)
		})
	}
}
