package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// With `quota: kueue`, a job whose flavor's nodes don't come is given back to the
// real Kueue through its Workload, and Kueue gives it the next flavor. By itself
// Kueue would give it the first one again.

const kueueFallbackRights = "../../deploy/kueue-fallback"

var batchJobResource = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}

// newKueueFallbackCase is newKueueCase with the option, and the rights that it takes.
// The job's controllers come first: Kueue refuses jobs of whose kind it learns later.
func newKueueFallbackCase(t *testing.T, name string, environment []string, framework string, controllers ...func() (*plane.Peer, error)) *Case {
	t.Helper()
	c := newCase(t, name)
	c.must(shared.Muster.Stop())
	// The next case has the usual one again.
	c.Cleanup(shared.Muster.Kill)
	for _, start := range controllers {
		c.started(start())
	}
	c.started(shared.StartKueue(plane.Kueue{Frameworks: []string{framework}}))
	c.Cleanup(func() {
		if output, err := shared.Kubectl("delete", "--kustomize="+kueueFallbackRights, "--ignore-not-found"); err != nil {
			t.Error(err, output)
		}
	})
	mustKubectl(t, "apply", "--server-side", "--validate=strict", "--kustomize="+kueueFallbackRights)
	c.must(shared.Muster.Start(plane.Launch{
		Quota: "kueue", Engine: map[string]any{"kueueFallback": true}, Environment: environment,
	}))
	return c
}

// kueuesWorkload is the one that Kueue keeps for the job.
func (c *Case) kueuesWorkload() *unstructured.Unstructured {
	c.Helper()
	all, err := shared.Dynamic.Resource(workloadResource).Namespace(c.Namespace).List(c.Context(), metav1.ListOptions{})
	c.must(err)
	if len(all.Items) != 1 {
		c.Fatalf("there are %d Workloads, want one", len(all.Items))
	}
	return &all.Items[0]
}

// flavorOfKueue is what Kueue gives the job's GPUs now; "" while it gives nothing.
func flavorOfKueue(workload *unstructured.Unstructured) string {
	assignments, _, _ := unstructured.NestedSlice(workload.Object, "status", "admission", "podSetAssignments")
	for _, assignment := range assignments {
		flavors, _, _ := unstructured.NestedStringMap(assignment.(map[string]any), "flavors")
		return flavors["nvidia.com/gpu"]
	}
	return ""
}

// checkGivenBack sees that the Workload is Kueue's again, on the last of these
// flavors, and was evicted for that alone, once for each of the others.
func (c *Case) checkGivenBack(flavors ...string) {
	c.Helper()
	last := len(flavors) - 1
	workload := c.kueuesWorkload()
	// Kueue takes it back with the end of the job.
	if flavor := flavorOfKueue(workload); flavor != flavors[last] && conditions(workload)["Finished"] != "True" {
		c.Errorf("Kueue gives it flavor %q, want %s: %v", flavor, flavors[last], workload.Object["status"])
	}
	if active, found, _ := unstructured.NestedBool(workload.Object, "spec", "active"); found && !active {
		c.Error("its Workload isn't active")
	}
	annotations := workload.GetAnnotations()
	for _, tried := range flavors[:last] {
		if annotations[restartAnnotation] != "" || !strings.Contains(annotations["muster.dev/flavors-tried"], `"`+tried+`"`) {
			c.Errorf("its Workload has annotations %v, want no mark, and %s as one that was tried", annotations, tried)
		}
	}
	stats, _, _ := unstructured.NestedSlice(workload.Object, "status", "schedulingStats", "evictions")
	if told := fmt.Sprint(stats); told != fmt.Sprintf("[map[count:%d reason:Deactivated underlyingCause:]]", last) {
		c.Errorf("Kueue counts evictions %v, want %d, because it was deactivated", stats, last)
	}
}

// checkNoMarkOn sees that Muster left the job itself alone.
func (c *Case) checkNoMarkOn(resource schema.GroupVersionResource) {
	c.Helper()
	job, err := shared.Dynamic.Resource(resource).Namespace(c.Namespace).Get(c.Context(), "train", metav1.GetOptions{})
	c.must(err)
	for key := range job.GetAnnotations() {
		if strings.HasPrefix(key, "muster.dev/") {
			c.Errorf("the job has annotation %s, and Kueue suspends it", key)
		}
	}
}

func TestPeerKueueGivesAJobTheNextFlavorWhenNodesDontCome(t *testing.T) {
	for _, flavors := range [][]string{{"first", "second"}, {"first", "second", "third"}} {
		last := flavors[len(flavors)-1]
		t.Run(last, func(t *testing.T) {
			c := newKueueFallbackCase(t, "kueue-fallback", nil, "batch/job")
			const size = 4
			for _, tried := range flavors[:len(flavors)-1] {
				c.NodePool(tried, 1, size, time.Second, soldOut)
			}
			c.NodePool(last, 1, size, time.Second)
			c.Apply("fallback_quota.yaml", onlyFlavors(len(flavors)))
			g := c.queuedJob(size, 12)
			c.must(shared.Timeline.Await(30*time.Second, func(state *timeline.State) string {
				if asked := countPods(g.pods(state), signalled); asked != size {
					return fmt.Sprintf("Karpenter is asked for nodes for %d members, want %d", asked, size)
				}
				return ""
			}))
			if flavor := flavorOfKueue(c.kueuesWorkload()); flavor != "first" {
				t.Errorf("Kueue gave it flavor %q to begin with, want first", flavor)
			}
			begin := time.Now()
			g.awaitDoneOn(last, size, 2*time.Minute)
			t.Logf("done on flavor %s %v after Karpenter was asked", last, time.Since(begin).Round(100*time.Millisecond))

			c.checkNothingFailed(size)
			for _, tried := range flavors[:len(flavors)-1] {
				c.checkNeverBoundOn(tried)
			}
			c.checkGivenBack(flavors...)
			c.checkNoMarkOn(batchJobResource)
			c.checkMusterCountsNothing(g)
			c.AwaitHoldsGone(10 * time.Second)
			if attempt := g.attempt(); attempt != int64(len(flavors)) {
				t.Errorf("it ran in attempt %d, want %d", attempt, len(flavors))
			}
		})
	}
}

// onlyFlavors leaves the queue its first few.
func onlyFlavors(count int) Change {
	return func(object *unstructured.Unstructured) {
		eachMap(object.Object, func(m map[string]any) {
			if flavors, ok := m["flavors"].([]any); ok && len(flavors) > count {
				m["flavors"] = flavors[:count]
			}
		})
	}
}

// queuedJob is impatientJob in Kueue's queue.
func (c *Case) queuedJob(size int, timeoutSeconds int64) *Gang {
	c.Helper()
	g := c.impatientGroup(size, timeoutSeconds)
	c.Apply("job.yaml", queuedIn("default"), scheduledBy(plane.SchedulerName), withoutNodeSelector, ofSize(size))
	return g
}

// Killed when it has written down that the gang gave up, has given the Workload
// back, or has asked Kueue to queue it again, Muster's next start goes on from what
// record and Workload say.
func TestPeerKilledWhileKueueTakesAJobBackItGoesOn(t *testing.T) {
	for _, after := range []string{"record:2", "give-back:1", "requeue:1"} {
		t.Run(after, func(t *testing.T) {
			c := newKueueFallbackCase(t, "kueue-crash", []string{crashAfter + "=" + after}, "batch/job")
			const size = 2
			c.NodePool("first", 1, size, time.Second, soldOut)
			c.NodePool("second", 1, size, time.Second)
			c.Apply("fallback_quota.yaml", onlyFlavors(2))
			g := c.queuedJob(size, 8)
			c.must(shared.Muster.AwaitCrash(time.Minute))
			time.Sleep(2 * time.Second)
			c.must(shared.Muster.Start(plane.Launch{Quota: "kueue", Engine: map[string]any{"kueueFallback": true}}))
			g.awaitDoneOn("second", size, 2*time.Minute)
			c.checkNothingFailed(size)
			c.checkGivenBack("first", "second")
			if attempt := g.attempt(); attempt != 2 {
				t.Errorf("it ran in attempt %d, want the second", attempt)
			}
		})
	}
}

// With one flavor there is nothing that Kueue could do: the job stays where it is,
// says so, and tries again after its pauses.
func TestPeerKueueKeepsAJobThatHasNoOtherFlavor(t *testing.T) {
	c := newKueueFallbackCase(t, "kueue-one-flavor", nil, "batch/job")
	const size = 2
	c.NodePool("first", 1, size, time.Second, soldOut)
	c.Apply("fallback_quota.yaml", onlyFlavors(1))
	g := c.queuedJob(size, 8)
	g.awaitState(time.Minute, "BACKING_OFF")
	g.checkSays("INSUFFICIENT_CAPACITY", `its queue in Kueue has no other flavor for it that wasn't tried`)
	// What it says may be seen before its members have stopped asking.
	c.must(shared.Timeline.Await(time.Second, func(state *timeline.State) string {
		if asking := countPods(g.pods(state), signalled); asking > 0 {
			return fmt.Sprintf("%d members still ask for nodes", asking)
		}
		return ""
	}))
	c.stays(10*time.Second, "none is bound, and Karpenter isn't asked", func(state *timeline.State) bool {
		return g.noneBound(state) && countPods(g.pods(state), signalled) == 0
	})
	workload := c.kueuesWorkload()
	if flavorOfKueue(workload) != "first" || len(workload.GetAnnotations()) > 0 {
		t.Errorf("its Workload was touched: flavor %q, annotations %v", flavorOfKueue(workload), workload.GetAnnotations())
	}
}

func TestPeerKueueGivesAPyTorchJobTheNextFlavor(t *testing.T) {
	c := newKueueFallbackCase(t, "kueue-pytorch", nil, "kubeflow.org/pytorchjob",
		func() (*plane.Peer, error) { return shared.StartTrainingOperator("") })
	c.fallsBackThroughKueue("pytorchjob.yaml", impatient(12))
	c.must(shared.Timeline.Await(2*time.Minute, func(state *timeline.State) string {
		g := &Gang{Case: c, Name: "train"}
		pods := g.pods(state)
		if standing := countPods(pods, bound); standing != 4 || len(pods) != 4 {
			return fmt.Sprintf("%d of %d pods are bound", standing, len(pods))
		}
		return ""
	}))
	c.AwaitPods("train", 4, time.Second).AwaitOnPool("second", 10*time.Second)
	c.checkFellBackThroughKueue(pyTorchJobResource)
}

// Its Workload has a pod set for each of its replicated jobs.
func TestPeerKueueGivesAJobSetTheNextFlavor(t *testing.T) {
	c := newKueueFallbackCase(t, "kueue-jobset", nil, "jobset.x-k8s.io/jobset", shared.StartJobSet)
	g := c.impatientGroup(4, 12)
	c.fallsBackThroughKueue("jobset.yaml")
	g.awaitDoneOn("second", 4, 2*time.Minute)
	c.checkFellBackThroughKueue(jobSetResource)
}

// The Workload is the TrainJob's; its JobSet is left to the trainer.
func TestPeerKueueGivesATrainJobTheNextFlavor(t *testing.T) {
	c := newKueueFallbackCase(t, "kueue-trainjob", nil, "trainer.kubeflow.org/trainjob", shared.StartJobSet, shared.StartTrainer)
	g := c.impatientGroup(4, 12)
	c.fallsBackThroughKueue("trainjob.yaml")
	g.awaitDoneOn("second", 4, 2*time.Minute)
	c.checkFellBackThroughKueue(trainJobResource)
}

// fallsBackThroughKueue queues the job of four pods in the file, for which the first
// of two flavors is sold out.
func (c *Case) fallsBackThroughKueue(file string, changes ...Change) {
	c.Helper()
	c.NodePool("first", 1, 4, time.Second, soldOut)
	c.NodePool("second", 1, 4, time.Second)
	c.Apply("fallback_quota.yaml", onlyFlavors(2))
	c.Apply(file, append(changes, queuedIn("default"), scheduledBy(plane.SchedulerName), withoutNodeSelector)...)
}

func (c *Case) checkFellBackThroughKueue(resource schema.GroupVersionResource) {
	c.Helper()
	c.checkNeverBoundOn("first")
	c.checkGivenBack("first", "second")
	c.checkNoMarkOn(resource)
}
