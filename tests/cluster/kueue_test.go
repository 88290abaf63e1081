package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"muster.dev/tests/cluster/plane"
)

// With `quota: kueue` the real Kueue says who may start, and Muster starts him
// whole.

// newKueueCase starts the real Kueue, and Muster so that it leaves quota to it.
func newKueueCase(t *testing.T, name string, frameworks ...string) *Case {
	t.Helper()
	c := newCase(t, name)
	c.must(shared.Muster.Stop())
	c.must(shared.Muster.Start(plane.Launch{Quota: "kueue"}))
	// The next case has the usual one again.
	t.Cleanup(func() { c.must(shared.Muster.Stop()) })
	c.started(shared.StartKueue(plane.Kueue{Frameworks: frameworks}))
	c.NodePool("gpu", 1, 8, 2*time.Second)
	c.Apply("quota.yaml", nominalQuota(usage{"nvidia": 4, "nvidia-efa": 0}))
	return c
}

func TestPeerKueueAdmitsASuspendedJobAndMusterGangsIt(t *testing.T) {
	c := newKueueCase(t, "suspended", "batch/job")
	job := []Change{queuedIn("default"), withoutNodeSelector, scheduledBy(plane.SchedulerName)}
	// More than there is: it stays suspended, and no gang is heard of.
	c.Apply("job.yaml", append(job, renamed("much"), inParallel(5))...)
	c.awaitWorkload("job-much", "QuotaReserved", "False")

	c.Apply("job.yaml", append(job, suspended)...)
	g := c.checkOneGang("train", 4, derivedFrom("Job"))
	for _, pod := range g.present() {
		if selector := pod.Spec.NodeSelector[nodePoolLabel]; selector != c.Namespace+"-gpu" {
			t.Errorf("pod %s has no node selector of Kueue's flavor: %v", pod.Name, pod.Spec.NodeSelector)
		}
	}
	c.checkMusterCountsNothing(g)
	answer, err := shared.Muster.Get("/v1/gangs?namespace=" + c.Namespace)
	c.must(err)
	if gangs, _ := answer["gangs"].([]any); len(gangs) != 1 {
		t.Errorf("Muster knows %d gangs, want the one that Kueue admitted: %v", len(gangs), gangs)
	}
}

// Kueue's own gate on a group of plain pods is Kueue's to lift: until then Muster
// does nothing for them.
func TestPeerKueueUngatesAGroupOfPodsAndMusterGangsIt(t *testing.T) {
	c := newKueueCase(t, "podgroup", "pod")
	_, err := shared.Kubectl("patch", "clusterqueues.v1beta1.kueue.x-k8s.io", clusterQueueName, "--type=merge", `--patch={"spec":{"stopPolicy":"Hold"}}`)
	c.must(err)
	g := &Gang{Case: c, Name: "train", gpus: 1, edit: func(pod *corev1.Pod) {
		withoutCPU(pod)
		pod.Spec.NodeSelector = nil
		pod.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "default", "kueue.x-k8s.io/pod-group-name": "train"}
		pod.Annotations = map[string]string{"kueue.x-k8s.io/pod-group-total-count": "4"}
	}}
	g.AddMembers(4)
	g.AwaitAnswer(10*time.Second, func(answer map[string]any) string {
		reason, _ := answer["reason"].(map[string]any)
		if reason["code"] != "FOREIGN_GATE" || !strings.Contains(reasonText(answer), "kueue.x-k8s.io/admission") {
			return "the reason isn't Kueue's gate: " + reasonText(answer)
		}
		return ""
	})
	c.stays(2*time.Second, "no member is bound", g.noneBound)
	if asked := g.Moments(signalled); len(asked) > 0 {
		t.Errorf("Karpenter was asked for nodes for %d members before Kueue admitted them", len(asked))
	}

	_, err = shared.Kubectl("patch", "clusterqueues.v1beta1.kueue.x-k8s.io", clusterQueueName, "--type=merge", `--patch={"spec":{"stopPolicy":"None"}}`)
	c.must(err)
	g.AwaitOnPool("gpu", time.Minute)
	g.checkOneStroke(2 * time.Second)
	c.checkMusterCountsNothing(g)
}

// checkMusterCountsNothing: quota is Kueue's, and so is the status of its queues.
func (c *Case) checkMusterCountsNothing(g *Gang) {
	c.Helper()
	for _, event := range g.workloadHistory() {
		if event.Type != watch.Added {
			continue
		}
		if !slices.ContainsFunc(event.Object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == "kueue" }) {
			c.Errorf("gang %s has a Workload that Kueue didn't make: %v", g.Name, event.Object)
		}
	}
	if managers := c.queueManagers(); slices.Contains(managers, "muster") {
		c.Errorf("Muster wrote to queues that are Kueue's: %q", managers)
	}
}

func suspended(object *unstructured.Unstructured) {
	if isJob(object) {
		_ = unstructured.SetNestedField(object.Object, true, "spec", "suspend")
	}
}

// inParallel is another number of pods of a Job.
func inParallel(count int64) Change {
	return func(object *unstructured.Unstructured) {
		for _, field := range []string{"parallelism", "completions"} {
			_ = unstructured.SetNestedField(object.Object, count, "spec", field)
		}
	}
}
