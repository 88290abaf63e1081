package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sharingANode is the workshop's affinity: each pod wants to be where the others are.
func sharingANode(label string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: pod.Labels[label]}},
				TopologyKey:   corev1.LabelHostname,
			}},
		}}
	}
}

// The workshop's job, four members of one GPU that all want to be on one node, where
// no instance type has more than one GPU.
func TestGangThatMustShareATooSmallNode(t *testing.T) {
	t.Run("leaves one member running alone with the stock scheduler", leavesOneRunningAlone)
	t.Run("is infeasible and buys nothing with Muster", isInfeasibleAndBuysNothing)
}

// One pod starts, and its node is paid for while the other three can never come.
func leavesOneRunningAlone(t *testing.T) {
	t.Parallel()
	c := newStockCase(t, "alone")
	c.NodePool("gpu", 1, 4, time.Second)
	g := &Gang{Case: c, Name: "pytorch-dist-job"}
	for i := range 4 {
		pod := c.Pod(fmt.Sprintf("%s-%d", g.Name, i), "default-scheduler", 1)
		pod.Labels = map[string]string{"app": g.Name}
		sharingANode("app")(pod)
		g.Members = append(g.Members, c.Create(pod).Name)
	}
	running := func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }
	deadline := time.Now().Add(time.Minute)
	for g.Count(running) == 0 && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(pick(15*time.Second, time.Minute))
	if alone := g.Count(running); alone != 1 {
		t.Errorf("%d of 4 pods run, want the one that has the node", alone)
	}
	t.Logf("1 of 4 pods runs, %d NodeClaim(s) were made", len(c.Claims()))
}

// The reason says what to change.
func isInfeasibleAndBuysNothing(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "one-node")
	c.NodePool("gpu", 1, 4, time.Second)
	g := c.PodGroup("pytorch-dist-job", 4, 1)
	g.edit = sharingANode(podGroupLabel)
	g.AddMembers(4)
	wanted := []string{
		"INFEASIBLE", "POD_AFFINITY_ONE_NODE",
		"required podAffinity on kubernetes.io/hostname puts 4 pods on one node",
		"one pod asks for 4 nvidia.com/gpu, the largest instance type that is left, gpu-1, has 1",
	}
	g.AwaitAnswer(10*time.Second, func(answer map[string]any) string {
		said := fmt.Sprintf("%v %s", answer["state"], reasonText(answer))
		for _, part := range wanted {
			if !strings.Contains(said, part) {
				return fmt.Sprintf("muster says %q, without %q", said, part)
			}
		}
		return ""
	})
	answer, err := g.Ask()
	c.must(err)
	reason, _ := answer["reason"].(map[string]any)
	if fix := text(reason, "fix"); !strings.Contains(fix, "prefer that affinity instead of requiring it") {
		t.Errorf("the fix is %q", fix)
	}
	time.Sleep(pick(15*time.Second, time.Minute))
	g.checkNothingAsked()
}

// checkNothingAsked sees that Karpenter was never told of the gang.
func (g *Gang) checkNothingAsked() {
	g.Helper()
	if claims := g.Claims(); len(claims) > 0 {
		g.Errorf("%d NodeClaims were made, want none", len(claims))
	}
	if asked := g.Moments(signalled); len(asked) > 0 {
		g.Errorf("%d members were marked Unschedulable at some moment, want none", len(asked))
	}
	g.AwaitAll("gated", 2*time.Second, gated)
}

// Each cause of Karpenter's "no instance type ... met the scheduling requirements" is
// told by a reason of its own, before anything is asked for, and is over when the
// NodePool or the gang is put right.
func TestEachReasonWhyNoNodePoolCanServeAGang(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "causes")
	c.NodePool("gpu", 2, 4, time.Second)
	selecting := func(key, value string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.NodeSelector[key] = value }
	}
	var gangs []*Gang
	for _, cause := range []struct {
		name, reason string
		gpus         int
		edit         func(*corev1.Pod)
	}{
		{"gpus", "GPU_COUNT_TOO_LARGE", 16, nil},
		{"efa", "EFA_COUNT_TOO_LARGE", 2, func(pod *corev1.Pod) {
			for _, list := range []corev1.ResourceList{pod.Spec.Containers[0].Resources.Requests, pod.Spec.Containers[0].Resources.Limits} {
				list[efa] = resource.MustParse("8")
			}
		}},
		{"type", "INSTANCE_TYPE_NOT_ALLOWED", 2, selecting(corev1.LabelInstanceTypeStable, "p4d.24xlarge")},
		{"label", "NODE_LABEL_NOT_OFFERED", 2, selecting("team", "ml")},
		{"cpu", "RESOURCES_TOO_LARGE", 2, func(pod *corev1.Pod) {
			for _, list := range []corev1.ResourceList{pod.Spec.Containers[0].Resources.Requests, pod.Spec.Containers[0].Resources.Limits} {
				list[corev1.ResourceCPU] = resource.MustParse("25")
			}
		}},
	} {
		g := c.PodGroup(cause.name, 2, cause.gpus)
		g.edit = cause.edit
		g.AddMembers(2)
		gangs = append(gangs, g)
		g.AwaitAnswer(10*time.Second, func(answer map[string]any) string {
			said := fmt.Sprintf("%v %s", answer["state"], reasonText(answer))
			if !strings.HasPrefix(said, "INFEASIBLE "+cause.reason) {
				return fmt.Sprintf("muster says %q, want INFEASIBLE %s", said, cause.reason)
			}
			return ""
		})
	}
	large := c.PodGroup("limit", 5, 2)
	large.AddMembers(5)
	large.AwaitAnswer(10*time.Second, func(answer map[string]any) string {
		if said := fmt.Sprintf("%v %s", answer["state"], reasonText(answer)); !strings.HasPrefix(said, "INFEASIBLE POOL_LIMIT_BELOW_GANG") {
			return said
		}
		return ""
	})
	for _, g := range append(gangs, large) {
		g.checkNothingAsked()
	}
	// Its limit is raised: the gang goes on by itself.
	_, err := shared.Dynamic.Resource(nodePoolResource).Patch(c.Context(), c.Namespace+"-gpu", types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"limits":{%q:"10"}}}`, gpu), metav1.PatchOptions{})
	c.must(err)
	large.AwaitBound(time.Minute)
}
