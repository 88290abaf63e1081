package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/timeline"
)

// A node is Ready before its device plugin has reported every GPU. Until it
// has, the node isn't used, and the reason says what is missing.
func TestNodeWithoutAllItsGPUsIsNotUsed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		allocatable int
		reason      string
	}{
		{name: "7 of 8 GPUs", allocatable: 7, reason: "7 of 8"},
		{name: "no GPU at all", allocatable: 0, reason: "0 of 8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newGangCase(t, "devices")
			whole, partial := c.Namespace+"-whole", c.Namespace+"-partial"
			c.Node(whole, 8, 8)
			c.Node(partial, 8, test.allocatable)
			c.AwaitReady(whole, partial)
			g := c.Gang("train", 2, 8)
			g.awaitReason(test.reason)
			c.stays(3*time.Second, "no member is bound", g.noneBound)

			c.setGPUs(partial, 8)
			g.AwaitBound(5 * time.Second)
		})
	}
}

// Karpenter calls a node initialized when it has any GPU.
func TestInitializedNodeWithoutAllItsGPUsIsNotUsed(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "partial")
	c.NodePool("early", 8, 1, time.Second)
	c.NodePool("late", 8, 1, 8*time.Second)
	g := c.Gang("train", 2, 8)

	early := c.awaitNode(func(node *corev1.Node) bool { return complete(node) })
	c.setGPUs(early, 7)
	late := c.awaitNode(func(node *corev1.Node) bool { return complete(node) && node.Name != early })
	g.awaitReason("7 of 8")
	c.stays(5*time.Second, "no member is bound", g.noneBound)

	c.setGPUs(early, 8)
	g.AwaitBound(2 * time.Second)
	c.AwaitHoldsGone(10 * time.Second)
	t.Logf("%s waited for %s", late, early)
}

func (g *Gang) noneBound(state *timeline.State) bool { return countPods(g.pods(state), bound) == 0 }

func (g *Gang) awaitReason(words string) {
	g.Helper()
	g.AwaitAnswer(30*time.Second, func(answer map[string]any) string {
		if !strings.Contains(reasonText(answer), words) {
			return fmt.Sprintf("the reason doesn't say %q: %s", words, reasonText(answer))
		}
		return ""
	})
}

// awaitNode waits for a node of the case's and returns its name.
func (c *Case) awaitNode(predicate func(*corev1.Node) bool) string {
	c.Helper()
	name := ""
	c.must(shared.Timeline.Await(time.Minute, func(state *timeline.State) string {
		for _, node := range state.Nodes {
			if c.mine(node) && predicate(node) {
				name = node.Name
				return ""
			}
		}
		return "no such node came"
	}))
	return name
}

// setGPUs is the device plugin's report of healthy GPUs.
func (c *Case) setGPUs(node string, count int) {
	c.Helper()
	patch := fmt.Sprintf(`{"status":{"allocatable":{"%s":"%d"}}}`, gpu, count)
	_, err := shared.Client.CoreV1().Nodes().Patch(c.Context(), node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	c.must(err)
}
