package cluster

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

const hostTopology = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: hosts}
spec:
  levels:
  - nodeLabel: ` + flavorLabel + `
  - nodeLabel: kubernetes.io/hostname
`

// inTopology names the Topology in each flavor.
func inTopology(object *unstructured.Unstructured) {
	if object.GetKind() == "ResourceFlavor" {
		_ = unstructured.SetNestedField(object.Object, "hosts", "spec", "topologyName")
	}
}

// placesIn counts the pods of an assignment by the host that its lowest level names.
func placesIn(assignment map[string]any) map[string]int64 {
	places := map[string]int64{}
	slices, _, _ := unstructured.NestedSlice(assignment, "slices")
	for _, one := range slices {
		slice := one.(map[string]any)
		levels, _, _ := unstructured.NestedSlice(slice, "valuesPerLevel")
		lowest, _ := levels[len(levels)-1].(map[string]any)
		hosts, _, _ := unstructured.NestedStringSlice(lowest, "individual", "roots")
		if host, all, _ := unstructured.NestedString(lowest, "universal"); all {
			hosts = []string{host}
		}
		counts, _, _ := unstructured.NestedSlice(slice, "podCounts", "individual")
		each, alike, _ := unstructured.NestedInt64(slice, "podCounts", "universal")
		for i, host := range hosts {
			if alike {
				places[host] += each
			} else {
				places[host] += number(counts[i])
			}
		}
	}
	return places
}

// standsOtherwise tells how what its Workload says differs from where its pods stand.
func (g *Gang) standsOtherwise() string {
	want := map[string]int64{}
	shared.Timeline.Look(func(state *timeline.State) {
		for _, pod := range g.pods(state) {
			want[pod.Spec.NodeName]++
		}
	})
	var assignment map[string]any
	for _, event := range g.workloadHistory() {
		assignment = nil
		sets, _, _ := unstructured.NestedSlice(event.Object.(*unstructured.Unstructured).Object, "status", "admission", "podSetAssignments")
		if len(sets) == 1 {
			assignment, _, _ = unstructured.NestedMap(sets[0].(map[string]any), "topologyAssignment")
		}
	}
	if got := placesIn(assignment); fmt.Sprint(got) != fmt.Sprint(want) {
		found, _ := json.Marshal(assignment)
		return fmt.Sprintf("its Workload says %s, want %v", found, want)
	}
	return ""
}

// awaitStanding waits until its Workload says where all its pods stand.
func (g *Gang) awaitStanding(within time.Duration) {
	g.Helper()
	for deadline := time.Now().Add(within); g.standsOtherwise() != "" && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	if missing := g.standsOtherwise(); missing != "" {
		g.Fatal(missing)
	}
}

// gangOnHosts is bound, of a queue of four GPUs whose flavor names a Topology, and its
// Workload says where it stands.
func gangOnHosts(t *testing.T, name string) *Gang {
	t.Helper()
	c := newQuotaCase(t, name)
	c.flavorNodes(usage{"nvidia": 4})
	mustApply(c.T, hostTopology)
	c.Cleanup(func() { _, _ = shared.Kubectl("delete", "topologies.kueue.x-k8s.io", "--all") })
	c.ApplyQuota(nominalQuota(usage{"nvidia": 4, "nvidia-efa": 0}), onNodesLabelled, inTopology)
	g := c.quotaGang("train", 3, 1)
	g.AwaitBound(20 * time.Second)
	g.awaitStanding(5 * time.Second)
	return g
}

// The Workload of a gang on a flavor with a Topology says on which hosts its pods
// stand once all do, in the form that the definition has it, and a Muster that is
// started anew leaves it so.
func TestAWorkloadSaysWhereItsPodsStand(t *testing.T) {
	g := gangOnHosts(t, "topology")
	written := len(g.workloadHistory())
	shared.Muster.Kill()
	g.must(shared.Muster.Start(plane.Launch{}))
	g.AwaitAnswer(10*time.Second, func(answer map[string]any) string {
		if answer["state"] != "BOUND" {
			return fmt.Sprintf("it is %v", answer["state"])
		}
		return ""
	})
	time.Sleep(3 * time.Second)
	if missing := g.standsOtherwise(); missing != "" {
		t.Error(missing)
	}
	if more := len(g.workloadHistory()) - written; more > 1 {
		t.Errorf("the Muster that was started anew wrote the Workload %d times, want once at most", more)
	}
}

// Of an admission that is written Kueue's webhook lets nothing be changed but where
// its pods stand, which Muster writes anew when one of them comes to stand elsewhere.
// This Kueue has no Lease, by which Muster would notice that it runs.
func TestPeerKueuesWebhookLetsMusterSayWherePodsStand(t *testing.T) {
	g := gangOnHosts(t, "topology-webhook")
	g.started(shared.StartKueue(plane.Kueue{Frameworks: []string{"batch/job"}}))
	history := g.workloadHistory()
	_, err := shared.Kubectl("patch", "kwl", history[len(history)-1].Object.GetName(), "--namespace="+g.Namespace, "--subresource=status",
		"--type=merge", `--patch={"status":{"admission":{"clusterQueue":"another"}}}`)
	g.refusedByWebhook("quota of another queue", err)

	first, err := shared.Client.CoreV1().Pods(g.Namespace).Get(g.Context(), g.Members[0], metav1.GetOptions{})
	g.must(err)
	mustKubectl(t, "cordon", first.Spec.NodeName)
	mustKubectl(t, "delete", "pod", first.Name, "--namespace="+g.Namespace, "--grace-period=0", "--force")
	g.AddMembers(1)
	g.awaitStanding(30 * time.Second)
	again, err := shared.Client.CoreV1().Pods(g.Namespace).Get(g.Context(), g.Members[3], metav1.GetOptions{})
	g.must(err)
	if again.Spec.NodeName == first.Spec.NodeName {
		t.Errorf("%s stands on %s, which is cordoned", again.Name, first.Spec.NodeName)
	}
}
