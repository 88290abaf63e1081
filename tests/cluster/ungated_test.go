package cluster

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/tests/cluster/plane"
)

// With webhook.gates: false the API server asks Muster about no pod that a controller makes, so that
// they come while it is down, too; and about all through which somebody could pass it by.
func TestUngatedPodsOfAControllerComeWithoutAskingMuster(t *testing.T) {
	onItsOwnPlane(t, func(options *plane.Options) { options.Standalone, options.Ungated = true, true })
	c := newGangCase(t, "ungated")
	c.Nodes(2, 1)
	owner, err := shared.Client.CoreV1().ConfigMaps(c.Namespace).Create(c.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "job"}}, metav1.CreateOptions{})
	c.must(err)
	owners := []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}

	shared.Muster.Kill()
	gang := c.PodGroup("gang", 2, 1)
	gang.edit = func(pod *corev1.Pod) { pod.OwnerReferences = owners }
	gang.AddMembers(2)
	refused := func(name, why string, change func(*corev1.Pod)) {
		t.Helper()
		pod := c.Pod(name, plane.SchedulerName, 1)
		pod.OwnerReferences = owners
		change(pod)
		_, err := shared.Client.CoreV1().Pods(c.Namespace).Create(c.Context(), pod, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("pod %s: %v, want %q", name, err, why)
		}
	}
	const nobodyAnswers = "failed calling webhook"
	withNode := func(pod *corev1.Pod) { pod.Spec.NodeName = "some" }
	withState := func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{"muster.dev/admission": "{}", "example.com/mine": "kept"}
	}
	refused("with-node", nobodyAnswers, withNode)
	refused("with-state", nobodyAnswers, withState)
	refused("applied", nobodyAnswers, func(pod *corev1.Pod) { pod.OwnerReferences = nil })

	c.must(shared.Muster.Start(plane.Launch{}))
	gang.AwaitAll("bound", 10*time.Second, func(pod *corev1.Pod) bool { return bound(pod) && !gated(pod) })
	refused("with-node", "would run there without any admission", withNode)
	pod := c.Pod("with-state", plane.SchedulerName, 1)
	withState(pod)
	if kept := c.Create(pod).Annotations; kept["muster.dev/admission"] != "" || kept["example.com/mine"] != "kept" {
		t.Errorf("of a new pod's annotations %v are left", kept)
	}
}
