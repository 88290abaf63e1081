package cluster

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/faults"
	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// One training, four pods, in every form that users have: unchanged but for
// schedulerName each is one gang of four.

func TestJobIsOneGangAndBindsInOneStroke(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "job")
	c.NodePool("gpu", 1, 4, 2*time.Second)
	c.Apply("job.yaml", scheduledBy(plane.SchedulerName))
	c.checkOneGang("train", 4, derivedFrom("Job"))
}

func TestPeerPyTorchJobIsOneGangAndBindsInOneStroke(t *testing.T) {
	for _, test := range []struct {
		name          string
		gangScheduler string // training-operator's flag --gang-scheduler-name
		group         func(*unstructured.Unstructured) string
	}{
		{name: "the operator knows nothing of gangs", group: derivedFrom("PyTorchJob")},
		{name: "the operator makes the PodGroup", gangScheduler: plane.SchedulerName, group: madeFor("PyTorchJob")},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newGangCase(t, "pytorchjob")
			c.started(shared.StartTrainingOperator(test.gangScheduler))
			c.NodePool("gpu", 1, 4, 2*time.Second)
			c.Apply("pytorchjob.yaml", scheduledBy(plane.SchedulerName))
			c.checkOneGang("train", 4, test.group)
		})
	}
}

func TestPeerJobSetIsOneGangAndBindsInOneStroke(t *testing.T) {
	c := newGangCase(t, "jobset")
	c.started(shared.StartJobSet())
	c.NodePool("gpu", 1, 4, 2*time.Second)
	c.Apply("jobset.yaml", scheduledBy(plane.SchedulerName))
	c.checkOneGang("train", 4, derivedFrom("JobSet"))
}

func TestPeerTrainJobIsOneGangAndBindsInOneStroke(t *testing.T) {
	c := newGangCase(t, "trainjob")
	c.started(shared.StartJobSet())
	c.started(shared.StartTrainer())
	c.NodePool("gpu", 1, 4, 2*time.Second)
	c.Apply("trainjob.yaml", scheduledBy(plane.SchedulerName))
	c.checkOneGang("train", 4, derivedFrom("TrainJob"))
}

// The initializer prepares what the trainers read: five pods, which never exist
// at once, and so two gangs, one after the other.
func TestPeerTrainJobsInitializerIsAGangOfItsOwn(t *testing.T) {
	c := newGangCase(t, "initializer")
	c.started(shared.StartJobSet())
	c.started(shared.StartTrainer())
	c.NodePool("gpu", 1, 4, 2*time.Second)
	c.Apply("trainjob-initializer.yaml", scheduledBy(plane.SchedulerName))
	initializer := c.AwaitPods("train-dataset-initializer", 1, 30*time.Second)
	initializer.AwaitAll("finished", time.Minute, succeeded)
	nodes := c.checkOneGang("train-node", 4, derivedFrom("TrainJob"))
	done := initializer.Moments(succeeded)[0]
	for _, created := range nodes.Moments(func(*corev1.Pod) bool { return true }) {
		if created.Revision < done.Revision {
			t.Errorf("pod %s came at revision %d, before the initializer had finished at %d",
				created.Object.GetName(), created.Revision, done.Revision)
		}
	}
}

// With a node that comes late the gang is whole, with one that never comes
// nothing of it is bound: ten times each.
func TestPeerMPIJobStartsWholeOrNotAtAll(t *testing.T) {
	checkWholeOrNotAtAll(t, "mpijob.yaml", "MPIJob", shared.StartMPIOperator)
}

// The launcher comes once all workers are ready: four pods, and a fifth that
// can't be waited for.
func TestPeerMPIJobsLauncherThatWaitsIsAGangOfItsOwn(t *testing.T) {
	c := newGangCase(t, "launcher")
	c.started(shared.StartMPIOperator())
	c.NodePool("gpu", 1, 4, 2*time.Second)
	c.Apply("mpijob-launcher-waits.yaml", scheduledBy(plane.SchedulerName))
	workers := c.AwaitPods("train-worker", 4, 30*time.Second)
	workers.AwaitOnPool("gpu", time.Minute)
	workers.checkOneStroke(2 * time.Second)
	launcher := c.AwaitPods("train-launcher", 1, 30*time.Second)
	launcher.AwaitBound(20 * time.Second)
}

// One replica of three hosts, and the head.
func TestPeerRayClusterStartsWholeOrNotAtAll(t *testing.T) {
	checkWholeOrNotAtAll(t, "raycluster.yaml", "RayCluster", shared.StartKubeRay)
}

// checkWholeOrNotAtAll has the operator make a job's four pods, time after time, on
// nodes of which one is late, and then on nodes of which one never comes.
func checkWholeOrNotAtAll(t *testing.T, file, kind string, start func() (*plane.Peer, error)) {
	operator := newCase(t, "operator")
	operator.must(shared.Muster.Stop())
	operator.must(shared.Muster.Start(plane.Launch{Engine: map[string]any{"provisioningDeadline": "25s"}}))
	// The next case has the usual one again.
	t.Cleanup(func() { operator.must(shared.Muster.Stop()) })
	operator.started(start())
	for round := range pick(1, 10) {
		t.Run(fmt.Sprintf("round %d, a node comes late", round+1), func(t *testing.T) {
			c := newGangCase(t, "late")
			c.NodePool("gpu", 1, 4, 2*time.Second, faults.Fault{Kind: faults.RegistrationDelay, Launches: []int{3}, DelaySeconds: 6})
			c.Apply(file, scheduledBy(plane.SchedulerName))
			c.checkOneGang("train", 4, derivedFrom(kind))
		})
		t.Run(fmt.Sprintf("round %d, a node never comes", round+1), func(t *testing.T) {
			c := newGangCase(t, "never")
			c.NodePool("gpu", 1, 8, 2*time.Second, faults.Fault{Kind: faults.NeverRegisters, FromLaunch: 4})
			c.Apply(file, scheduledBy(plane.SchedulerName))
			g := c.AwaitPods("train", 4, 30*time.Second)
			c.awaitNode(func(node *corev1.Node) bool { return held(node) })
			g.awaitState(time.Minute, "BACKING_OFF")
			c.AwaitHoldsGone(20 * time.Second)
			g.checkGivenBack()
		})
	}
}

// checkOneGang waits for a job's pods and sees that they are one gang, with such a
// PodGroup, from the first of them to the stroke in which they are bound.
func (c *Case) checkOneGang(name string, size int, checkGroup func(*unstructured.Unstructured) string) *Gang {
	c.Helper()
	g := c.AwaitPods(name, size, 30*time.Second)
	g.AwaitAnswer(30*time.Second, func(answer map[string]any) string {
		members, _ := answer["members"].([]any)
		if number(answer["minMember"]) != int64(size) || len(members) != size {
			return fmt.Sprintf("it has minMember %v and %d members, want %d", answer["minMember"], len(members), size)
		}
		return ""
	})
	var group *unstructured.Unstructured
	// Muster answers of a gang before the PodGroup that it makes for it is there.
	g.AwaitAnswer(30*time.Second, func(map[string]any) string {
		var err error
		if group, err = shared.Dynamic.Resource(timeline.PodGroups).Namespace(c.Namespace).Get(c.Context(), name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	if wrong := checkGroup(group); wrong != "" {
		c.Errorf("PodGroup %s %s", name, wrong)
	}
	if members, _, _ := unstructured.NestedInt64(group.Object, "spec", "minMember"); members != int64(size) {
		c.Errorf("PodGroup %s has minMember %d, want %d", name, members, size)
	}
	g.AwaitOnPool("gpu", time.Minute)
	g.checkOneStroke(2 * time.Second)
	g.checkMembersProtected()
	if asked := g.Moments(signalled); len(asked) > 0 && spread(asked) > time.Second {
		c.Errorf("Karpenter was asked for the members' nodes within %v, want 1 s at most", spread(asked))
	}
	return g
}

// madeFor is a PodGroup that belongs to a job of this kind.
func madeFor(kind string) func(*unstructured.Unstructured) string {
	return func(group *unstructured.Unstructured) string {
		if group.GetLabels()["muster.dev/derived"] != "" {
			return "is Muster's, though the operator makes one"
		}
		return ownedBy(group, kind)
	}
}

// derivedFrom is one that Muster made for it.
func derivedFrom(kind string) func(*unstructured.Unstructured) string {
	return func(group *unstructured.Unstructured) string {
		if group.GetLabels()["muster.dev/derived"] != "true" {
			return fmt.Sprintf("isn't labelled as Muster's: %v", group.GetLabels())
		}
		return ownedBy(group, kind)
	}
}

func ownedBy(group *unstructured.Unstructured, kind string) string {
	owner := metav1.GetControllerOf(group)
	if owner == nil || owner.Kind != kind || owner.Name != "train" {
		return fmt.Sprintf("is owned by %v, want %s train", owner, kind)
	}
	return ""
}
