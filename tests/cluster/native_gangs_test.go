package cluster

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/tests/cluster/plane"
)

// nativeGangsVariable is "on" where the cluster is to have its own gang scheduling on.
const nativeGangsVariable = "MUSTER_NATIVE_GANGS"

// A Job whose pods name a PodGroup of Kubernetes' own. Where the cluster's gang scheduling is on, they wait
// and say why, beside a gang of the cluster's own scheduler and one of Muster's. Elsewhere the API server
// forgets what they name, and the Job is a gang like any other.
func TestSoakJobThatNamesANativePodGroup(t *testing.T) {
	c := newGangCase(t, "native")
	on := os.Getenv(nativeGangsVariable) == "on"
	if served := c.serves(plane.NativePodGroups.GroupVersion().String()); served != on {
		t.Fatalf("the API server serves %v: %v, want %v", plane.NativePodGroups, served, on)
	}
	c.NodePool("gpu", 1, 4, 2*time.Second)
	if on {
		c.nativeGroup("train", 4)
	}
	path := c.Manifest("job.yaml", scheduledBy(plane.SchedulerName), eachPodSpec(func(spec map[string]any) {
		spec["schedulingGroup"] = map[string]any{"podGroupName": "train"}
	}))
	_, err := shared.Kubectl("create", "--validate=ignore", "--namespace="+c.Namespace, "--filename="+path)
	c.must(err)
	if !on {
		c.checkOneGang("train", 4, derivedFrom("Job"))
		return
	}
	job := c.AwaitPods("train", 4, 30*time.Second)
	job.awaitReason("NATIVE_POD_GROUP")

	c.Nodes(2, 1)
	c.nativeGroup("own", 2)
	own := &Gang{Case: c, Name: "own"}
	own.addNativeMember()
	c.stays(3*time.Second, "the cluster's scheduler binds nobody without the other one", own.noneBound)
	own.addNativeMember()
	own.AwaitBound(20 * time.Second)

	// Of four nodes that the NodePool may have, all are free for it.
	c.Apply("job.yaml", scheduledBy(plane.SchedulerName), renamed("other"))
	other := c.AwaitPods("other", 4, 30*time.Second)
	other.AwaitOnPool("gpu", time.Minute)
	other.checkOneStroke(2 * time.Second)
	other.checkMembersProtected()

	for word, want := range map[string]string{"podgroups": "podgroup.scheduling.k8s.io/own", "pg": "podgroup.scheduling.x-k8s.io/other"} {
		if shown, err := shared.Kubectl("get", word, "--output=name", "--namespace="+c.Namespace); err != nil || !strings.Contains(shown, want+"\n") {
			t.Errorf("kubectl get %s shows %q (%v), want %s", word, shown, err, want)
		}
	}

	job.awaitReason("NATIVE_POD_GROUP")
	for _, pod := range job.present() {
		if bound(pod) || !gated(pod) || signalled(pod) {
			t.Errorf("pod %s, which names a native PodGroup, wasn't left alone: %+v", pod.Name, pod)
		}
	}
}

// serves tells whether the API server has a group's version.
func (c *Case) serves(groupVersion string) bool {
	c.Helper()
	groups, err := shared.Client.Discovery().ServerGroups()
	c.must(err)
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			if version.GroupVersion == groupVersion {
				return true
			}
		}
	}
	return false
}

// nativeGroup makes a PodGroup of Kubernetes' own.
func (c *Case) nativeGroup(name string, minCount int64) {
	c.Helper()
	_, err := shared.Dynamic.Resource(plane.NativePodGroups).Namespace(c.Namespace).Create(c.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": plane.NativePodGroups.GroupVersion().String(),
		"kind":       "PodGroup",
		"metadata":   map[string]any{"name": name},
		"spec":       map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": minCount}}},
	}}, metav1.CreateOptions{})
	c.must(err)
}

// addNativeMember creates one more pod of the cluster's own scheduler, of the native PodGroup that the gang
// is called after.
func (g *Gang) addNativeMember() {
	g.Helper()
	pod := g.Pod(fmt.Sprintf("%s-%d", g.Name, len(g.Members)), corev1.DefaultSchedulerName, 1)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	g.must(err)
	object["apiVersion"], object["kind"] = "v1", "Pod"
	g.must(unstructured.SetNestedField(object, g.Name, "spec", "schedulingGroup", "podGroupName"))
	_, err = shared.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(g.Namespace).Create(
		g.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	g.must(err)
	g.Members = append(g.Members, pod.Name)
}
