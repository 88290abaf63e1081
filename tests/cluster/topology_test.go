package cluster

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

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

// The Workload of a gang on a flavor with a Topology says on which hosts its pods
// stand once all do, in the form that the definition has it, and a Muster that is
// started anew leaves it so.
func TestAWorkloadSaysWhereItsPodsStand(t *testing.T) {
	c := newQuotaCase(t, "topology")
	mustApply(t, hostTopology)
	t.Cleanup(func() { _, _ = shared.Kubectl("delete", "topologies.kueue.x-k8s.io", "--all") })
	c.flavorNodes(usage{"nvidia": 4})
	c.ApplyQuota(nominalQuota(usage{"nvidia": 4, "nvidia-efa": 0}), onNodesLabelled, inTopology)
	g := c.quotaGang("train", 3, 1)
	g.AwaitBound(20 * time.Second)
	want := map[string]int64{}
	shared.Timeline.Look(func(state *timeline.State) {
		for _, pod := range g.pods(state) {
			want[pod.Spec.NodeName]++
		}
	})
	says := func() (assignment map[string]any) {
		for _, event := range g.workloadHistory() {
			assignment = nil
			sets, _, _ := unstructured.NestedSlice(event.Object.(*unstructured.Unstructured).Object, "status", "admission", "podSetAssignments")
			if len(sets) == 1 {
				assignment, _, _ = unstructured.NestedMap(sets[0].(map[string]any), "topologyAssignment")
			}
		}
		return assignment
	}
	check := func() string {
		assignment := says()
		if got := placesIn(assignment); fmt.Sprint(got) != fmt.Sprint(want) {
			found, _ := json.Marshal(assignment)
			return fmt.Sprintf("its Workload says %s, want %v", found, want)
		}
		return ""
	}
	for deadline := time.Now().Add(5 * time.Second); check() != "" && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	if missing := check(); missing != "" {
		t.Fatal(missing)
	}
	written := len(g.workloadHistory())
	shared.Muster.Kill()
	c.must(shared.Muster.Start(plane.Launch{}))
	g.AwaitAnswer(10*time.Second, func(answer map[string]any) string {
		if answer["state"] != "BOUND" {
			return fmt.Sprintf("it is %v", answer["state"])
		}
		return ""
	})
	time.Sleep(3 * time.Second)
	if missing := check(); missing != "" {
		t.Error(missing)
	}
	if more := len(g.workloadHistory()) - written; more > 1 {
		t.Errorf("the Muster that was started anew wrote the Workload %d times, want once at most", more)
	}
}
