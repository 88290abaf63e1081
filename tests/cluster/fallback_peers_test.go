package cluster

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/tests/cluster/plane"
)

// The other kinds of jobs, each suspended and resumed through its own controller.

var (
	pyTorchJobResource = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "pytorchjobs"}
	jobSetResource     = schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}
	trainJobResource   = schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"}
)

// impatient lets a PyTorchJob wait so long for the nodes of one flavor.
func impatient(seconds int64) Change {
	return func(object *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(object.Object, seconds, "spec", "runPolicy", "schedulingPolicy", "scheduleTimeoutSeconds")
	}
}

// twoFlavors of which the first is sold out.
func (c *Case) twoFlavors(size int) {
	c.Helper()
	c.NodePool("first", 1, size, time.Second, soldOut)
	c.NodePool("second", 1, size, time.Second)
	c.ApplyQuotaOf("fallback_quota.yaml", withoutThird)
}

// checkResumed sees that nothing of the restart is left on the job but what was
// tried.
func (c *Case) checkResumed(resource schema.GroupVersionResource, suspend ...string) {
	c.Helper()
	job, err := shared.Dynamic.Resource(resource).Namespace(c.Namespace).Get(c.Context(), "train", metav1.GetOptions{})
	c.must(err)
	if suspended, _, _ := unstructured.NestedBool(job.Object, suspend...); suspended {
		c.Error("the job is still suspended")
	}
	annotations := job.GetAnnotations()
	if annotations[restartAnnotation] != "" || annotations["muster.dev/flavors-tried"] == "" {
		c.Errorf("the job has annotations %v, want no mark and the flavors tried", annotations)
	}
}

// With the operator's own PodGroups the record goes with the PodGroup, which the
// operator deletes when the job is suspended.
func TestPeerPyTorchJobFallsBack(t *testing.T) {
	for _, gangScheduler := range []string{"", plane.SchedulerName} {
		t.Run("gang scheduler "+gangScheduler, func(t *testing.T) {
			c := newQuotaCase(t, "pytorch-fallback")
			c.started(shared.StartTrainingOperator(gangScheduler))
			c.twoFlavors(4)
			c.Apply("pytorchjob.yaml", scheduledBy(plane.SchedulerName), withoutNodeSelector, impatient(12))
			g := c.AwaitPods("train", 4, 30*time.Second)
			g.AwaitOnPool("second", 2*time.Minute)
			c.checkNeverBoundOn("first")
			c.checkResumed(pyTorchJobResource, "spec", "runPolicy", "suspend")
		})
	}
}

func TestPeerJobSetFallsBack(t *testing.T) {
	c := newQuotaCase(t, "jobset-fallback")
	c.started(shared.StartJobSet())
	c.fallsBack("jobset.yaml", jobSetResource)
}

func TestPeerTrainJobFallsBack(t *testing.T) {
	c := newQuotaCase(t, "trainjob-fallback")
	c.started(shared.StartJobSet())
	c.started(shared.StartTrainer())
	c.fallsBack("trainjob.yaml", trainJobResource)
}

// fallsBack sees the job of four pods in the file run on the second flavor.
func (c *Case) fallsBack(file string, resource schema.GroupVersionResource) {
	c.Helper()
	c.twoFlavors(4)
	g := c.impatientGroup(4, 12)
	c.Apply(file, scheduledBy(plane.SchedulerName), withoutNodeSelector)
	g.awaitDoneOn("second", 4, 2*time.Minute)
	c.checkNeverBoundOn("first")
	c.checkResumed(resource, "spec", "suspend")
}
