package cluster

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/tests/cluster/timeline"
)

// The control plane itself, without Muster: pods of the stock scheduler get
// nodes from Karpenter and run.
func TestStockPodsGetNodesFromKarpenterAndRun(t *testing.T) {
	t.Parallel()
	c := newStockCase(t, "stock")
	c.NodePool("pool", 1, 4, time.Second)
	g := &Gang{Case: c, Name: "pod"}
	for i := range 4 {
		g.Members = append(g.Members, c.Create(c.Pod(fmt.Sprintf("pod-%d", i), "default-scheduler", 1)).Name)
	}
	g.AwaitAll("running", time.Minute, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	if claims := c.Claims(); len(claims) != 4 {
		t.Errorf("4 pods with one GPU each got %d NodeClaims, want 4", len(claims))
	}
}

// What the gate rests on: Karpenter looks at the condition and not at gates.
// Should another version of it change that, this case says so first.
func TestGatedPodMarkedUnschedulableGetsANode(t *testing.T) {
	t.Parallel()
	c := newStockCase(t, "gated")
	c.NodePool("pool", 1, 1, time.Second)
	pod := c.Pod("pod", "default-scheduler", 1)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "tests.muster.dev/gate"}}
	c.Create(pod)
	c.patchStatus(pod.Name, `{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"no node"}]}}`)
	c.must(shared.Timeline.Await(time.Minute, func(state *timeline.State) string {
		for _, node := range state.Nodes {
			if c.mine(node) && complete(node) {
				return ""
			}
		}
		return "no node is registered and initialized"
	}))
	if now, _ := shared.Client.CoreV1().Pods(c.Namespace).Get(c.Context(), pod.Name, metav1.GetOptions{}); !gated(now) || bound(now) {
		t.Errorf("the pod isn't gated any more: %v", describePod(now))
	}
}
