package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// What becomes of a gang that stands and loses a member, or the node of one.

// Members are safe from Karpenter's own disruption from the moment they are
// bound: the annotation comes with the binding, so there is no state of a bound
// member without it.
func TestMembersCarryDoNotDisruptFromTheMomentTheyAreBound(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "protected")
	c.Nodes(2, 1)
	g := c.Gang("train", 2, 1)
	g.AwaitBound(20 * time.Second)
	for _, moment := range g.Moments(bound) {
		if moment.Object.GetAnnotations()[doNotDisrupt] != "true" {
			t.Errorf("%s was bound without %s", moment.Object.GetName(), doNotDisrupt)
		}
	}
}

// The workshop's evening: the kubelet turns a bound member away because none of
// its GPUs is healthy. The replacement joins the gang and goes to another node.
func TestMemberThatTheKubeletTurnsAwayIsReplacedOnAnotherNode(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "refused")
	c.Nodes(3, 1)
	g := c.replicated("train", 2)
	g.AwaitBound(20 * time.Second)
	failed := g.fail(t, "UnexpectedAdmissionError",
		"Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected")
	g.awaitWholeWithout(failed.Spec.NodeName, 30*time.Second)

	c.awaitNodesSay("no healthy devices present", 5*time.Second)
	c.awaitSuspect(failed.Spec.NodeName, "no healthy devices present")
}

// A Node is deleted by force, and a NodeClaim by whoever wants the machine gone.
func TestGangWhoseNodeIsDeletedIsWholeAgainOnANewOne(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name             string
		terminationGrace string
		remove           func(c *Case, node *corev1.Node)
	}{
		{"the NodeClaim, with a terminationGracePeriod", "5s", func(c *Case, node *corev1.Node) {
			_, err := shared.Kubectl("delete", "nodeclaim", "--wait=false", claimOf(c, node.Name))
			c.must(err)
		}},
		{"the Node, by force", "", func(c *Case, node *corev1.Node) {
			c.deleteByForce(node.Name)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newGangCase(t, "deleted")
			c.terminationGrace = test.terminationGrace
			c.NodePool("pool", 1, 4, time.Second)
			g := c.replicated("train", 2)
			g.AwaitBound(time.Minute)
			node := g.nodes()[0]
			removed := time.Now()
			test.remove(c, node)
			g.awaitState(time.Minute, "REPAIRING")
			t.Logf("%v later: %s", time.Since(removed).Round(time.Millisecond), g.Explained())
			g.awaitWholeWithout(node.Name, 3*time.Minute)
			t.Logf("whole on a new node after %v", time.Since(removed).Round(time.Millisecond))
		})
	}
}

// Karpenter drains a node, but waits for members for as long as they run: the
// training goes on, and the gang says that its node goes.
func TestGangOnANodeThatIsBeingRemovedRunsOn(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "going")
	c.NodePool("pool", 1, 2, time.Second)
	g := c.replicated("train", 2)
	g.AwaitBound(time.Minute)
	_, err := shared.Kubectl("delete", "nodeclaim", "--wait=false", claimOf(c, g.nodes()[0].Name))
	c.must(err)
	g.awaitReason("is being removed since")
	c.stays(20*time.Second, "both members run", func(state *timeline.State) bool {
		return countPods(g.pods(state), func(pod *corev1.Pod) bool { return bound(pod) && pod.DeletionTimestamp == nil }) == 2
	})
	if answer, err := g.Ask(); err != nil || answer["state"] != "BOUND" {
		t.Errorf("the gang isn't BOUND: %v %v", answer, err)
	}
}

// A node that isn't Ready: the gang is being repaired after the grace, and not
// any more once the node is back; where it stays away the rest is restarted
// whole. Not parallel, because the grace and the deadline are everybody's.
func TestGangWhoseNodeIsNotReadyIsRepairedThenRestartedWhole(t *testing.T) {
	c := newGangCase(t, "not-ready")
	shared.Muster.Kill()
	c.Cleanup(shared.Muster.Kill) // the next case starts it as usual
	c.must(shared.Muster.Start(plane.Launch{Engine: map[string]any{"nodeGrace": "3s", "repairDeadline": "15s"}}))
	c.Nodes(5, 1)
	g := c.replicated("train", 4)
	g.AwaitBound(20 * time.Second)
	node := g.nodes()[1].Name

	c.setReady(node, false)
	g.awaitState(10*time.Second, "REPAIRING")
	g.awaitReason(node + ", which isn't Ready since")
	t.Log(g.Explained())
	c.setReady(node, true)
	g.awaitState(10*time.Second, "BOUND")

	before := g.uids()
	c.setReady(node, false)
	g.awaitWholeWithout(node, 40*time.Second)
	for uid := range g.uids() {
		if before[uid] {
			t.Errorf("a member was not restarted: %s", uid)
		}
	}
}

// To Karpenter a suspect node looks like free room for the replacement; the
// taint says otherwise.
func TestTaintOnASuspectNodeLetsKarpenterMakeAnother(t *testing.T) {
	c := newGangCase(t, "tainted")
	shared.Muster.Kill()
	c.Cleanup(shared.Muster.Kill)
	c.must(shared.Muster.Start(plane.Launch{Engine: map[string]any{"taintSuspects": true, "suspectTime": "40s"}}))
	c.NodePool("pool", 1, 4, time.Second)
	g := c.replicated("train", 2)
	g.AwaitBound(time.Minute)
	failed := g.fail(t, "UnexpectedAdmissionError", "Pod was rejected: Allocate failed due to no healthy devices present")
	c.awaitTaint(failed.Spec.NodeName, true)
	g.awaitWholeWithout(failed.Spec.NodeName, 30*time.Second)

	// Killed before its time is over: the next process takes the taint away.
	shared.Muster.Kill()
	c.must(shared.Muster.Start(plane.Launch{}))
	c.awaitTaint(failed.Spec.NodeName, false)
}

// replicated is a gang whose members a controller makes anew. (kwok ends the
// pods of a Job as soon as they run.)
func (c *Case) replicated(name string, size int) *Gang {
	c.Helper()
	g := c.PodGroup(name, size, 1)
	g.replicate(size)
	return g
}

// replicate has a ReplicaSet create the members.
func (g *Gang) replicate(size int) {
	g.Helper()
	selector := map[string]string{"app": g.Name}
	template := g.Pod(g.Name, plane.SchedulerName, g.gpus)
	template.Labels = map[string]string{"app": g.Name, podGroupLabel: g.Name}
	if g.edit != nil {
		g.edit(template)
	}
	_, err := shared.Client.AppsV1().ReplicaSets(g.Namespace).Create(g.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: g.Name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr(int32(size)),
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: template.Labels, Annotations: template.Annotations},
				Spec:       template.Spec,
			},
		},
	}, metav1.CreateOptions{})
	g.must(err)
	g.Members = g.AwaitPods(g.Name, size, 20*time.Second).Members
	g.Created = time.Now()
}

func ptr[T any](value T) *T { return &value }

// standing are the members that neither ended nor are being deleted.
func (g *Gang) standing(state *timeline.State) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range g.pods(state) {
		if pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed {
			pods = append(pods, pod)
		}
	}
	return pods
}

// nodes are those that members stand on, in the order of the members' names.
func (g *Gang) nodes() []*corev1.Node {
	g.Helper()
	var nodes []*corev1.Node
	shared.Timeline.Look(func(state *timeline.State) {
		for _, name := range g.Members {
			for _, pod := range g.standing(state) {
				if node := state.Nodes[pod.Spec.NodeName]; pod.Name == name && node != nil {
					nodes = append(nodes, node)
				}
			}
		}
	})
	if len(nodes) != len(g.Members) {
		g.Fatalf("%d members stand on nodes, want %d", len(nodes), len(g.Members))
	}
	return nodes
}

func (g *Gang) uids() map[types.UID]bool {
	uids := map[types.UID]bool{}
	shared.Timeline.Look(func(state *timeline.State) {
		for _, pod := range g.standing(state) {
			uids[pod.UID] = true
		}
	})
	return uids
}

// fail lets a bound member end as its kubelet would, once kwok has set it
// Running: kwok would overwrite a phase that came before.
func (g *Gang) fail(t *testing.T, reason, message string) *corev1.Pod {
	t.Helper()
	g.AwaitAll("running", 10*time.Second, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	pod, err := shared.Client.CoreV1().Pods(g.Namespace).Get(g.Context(), g.Members[0], metav1.GetOptions{})
	g.must(err)
	g.patchStatus(pod.Name, fmt.Sprintf(`{"status":{"phase":"Failed","reason":%q,"message":%q}}`, reason, message))
	return pod
}

func (g *Gang) awaitState(patience time.Duration, state string) {
	g.Helper()
	g.AwaitAnswer(patience, func(answer map[string]any) string {
		if answer["state"] != state {
			return "not " + state
		}
		return ""
	})
}

// awaitWholeWithout waits until as many members as there were stand bound, none
// of them on that node.
func (g *Gang) awaitWholeWithout(node string, patience time.Duration) {
	g.Helper()
	if err := shared.Timeline.Await(patience, func(state *timeline.State) string {
		count := countPods(g.standing(state), func(pod *corev1.Pod) bool { return bound(pod) && pod.Spec.NodeName != node })
		if count != len(g.Members) {
			return fmt.Sprintf("%d of %d members stand bound on other nodes than %s", count, len(g.Members), node)
		}
		return ""
	}); err != nil {
		g.Fatalf("%v\nmuster says: %s", err, g.Explained())
	}
	g.awaitState(10*time.Second, "BOUND")
}

// setReady sets a node's condition and keeps kwok from setting it back.
func (c *Case) setReady(node string, ready bool) {
	c.Helper()
	managed := `"fake"`
	status := "True"
	if !ready {
		managed, status = "null", "False"
	}
	_, err := shared.Client.CoreV1().Nodes().Patch(c.Context(), node, types.MergePatchType,
		[]byte(fmt.Sprintf(`{"metadata":{"annotations":{"kwok.x-k8s.io/node":%s}}}`, managed)), metav1.PatchOptions{})
	c.must(err)
	now := time.Now().UTC().Format(time.RFC3339)
	_, err = shared.Client.CoreV1().Nodes().Patch(c.Context(), node, types.StrategicMergePatchType,
		[]byte(fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Test","message":"container runtime is down","lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`, status, now, now)),
		metav1.PatchOptions{}, "status")
	c.must(err)
}

// claimOf is the name of the NodeClaim that a node was made for.
func claimOf(c *Case, node string) string {
	c.Helper()
	name, err := shared.Kubectl("get", "nodeclaims", "--output=jsonpath={.items[?(@.status.nodeName==\""+node+"\")].metadata.name}")
	c.must(err)
	return strings.TrimSpace(name)
}

func (c *Case) awaitSuspect(node, fault string) {
	c.Helper()
	c.must(shared.Timeline.Await(10*time.Second, func(state *timeline.State) string {
		if mark := state.Nodes[node].Annotations[suspect]; !strings.Contains(mark, fault) {
			return fmt.Sprintf("node %s: %s=%q", node, suspect, mark)
		}
		return ""
	}))
}

// awaitNodesSay waits until the list of nodes, published a few times a second,
// says it.
func (c *Case) awaitNodesSay(words string, patience time.Duration) {
	c.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		answer, err := shared.Muster.Get("/v1/nodes")
		c.must(err)
		text := fmt.Sprint(answer)
		if strings.Contains(text, words) {
			return
		}
		if time.Now().After(deadline) {
			c.Fatalf("/v1/nodes doesn't say %q after %v: %s", words, patience, text)
		}
	}
}

// awaitTaint waits until the node carries the mark of a suspect, or doesn't, or
// is gone.
func (c *Case) awaitTaint(node string, want bool) {
	c.Helper()
	c.must(shared.Timeline.Await(time.Minute, func(state *timeline.State) string {
		tainted := false
		if object := state.Nodes[node]; object != nil {
			for _, taint := range object.Spec.Taints {
				tainted = tainted || taint.Key == suspect
			}
		}
		if tainted != want {
			return fmt.Sprintf("node %s: taint %s: %v, want %v", node, suspect, tainted, want)
		}
		return ""
	}))
}

const suspect = "muster.dev/suspect"
