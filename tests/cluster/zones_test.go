package cluster

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/faults"
	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// EFA reaches no further than its zone: a gang that asks for it runs in one, also where the zone that
// Karpenter prefers, the cheaper one, has too little. Eight jobs at once, each with a NodePool of its
// own on which something else goes wrong.
func TestZonesAGangWithEFARunsInOne(t *testing.T) {
	makes := func(nodes int) faults.Fault {
		return faults.Fault{
			Kind: faults.InsufficientCapacity, FromLaunch: nodes + 1, UnavailableSeconds: 60,
			Offering: map[string]string{corev1.LabelTopologyZone: plane.Zone},
		}
	}
	jobs := []struct {
		name  string
		wrong []faults.Fault
		zone  string // where it must run; empty: in either
	}{
		{"both zones have all", nil, ""},
		{"the preferred zone makes none", []faults.Fault{makes(0)}, plane.DearerZone},
		{"it makes one", []faults.Fault{makes(1)}, plane.DearerZone},
		{"it makes two", []faults.Fault{makes(2)}, plane.DearerZone},
		{"it makes three", []faults.Fault{makes(3)}, plane.DearerZone},
		{"four launches fail", []faults.Fault{{Kind: faults.InsufficientCapacity, Launches: []int{1, 2, 3, 4}, UnavailableSeconds: 3}}, ""},
		{"two nodes never register", []faults.Fault{{Kind: faults.NeverRegisters, Launches: []int{2, 3}}}, ""},
		{"one is taken back before the last one comes", []faults.Fault{
			{Kind: faults.RegistrationDelay, Launches: []int{4}, DelaySeconds: 6},
			{Kind: faults.Interruption, Launches: []int{2}, DelaySeconds: 1},
		}, ""},
	}
	c := newWithdrawalCase(t, map[string]any{
		"launchDeadline": "15s", "registrationDeadline": "15s", "initializationDeadline": "15s", "capacityBackoff": "5s",
	})
	for round := range pick(1, 10) {
		t.Run(fmt.Sprintf("round %d", round+1), func(t *testing.T) {
			for _, job := range jobs {
				t.Run(job.name, func(t *testing.T) {
					t.Parallel()
					c := newCase(t, "zones")
					c.NodePool("gpu", plane.TwoZones, 12, time.Second, job.wrong...)
					c.inZones("gpu", plane.Zone, plane.DearerZone)
					c.Apply("job.yaml", scheduledBy(plane.SchedulerName), wholeNodes)
					g := &Gang{Case: c, Name: "train", Members: make([]string, 4)}
					begin := time.Now()
					g.AwaitAll("done", 4*time.Minute, succeeded)
					whole := g.wholeAt()
					c.checkOneZone(job.zone)
					c.awaitNodesGone(time.Until(whole.Add(2 * time.Minute)))
					c.checkNothingFailed(4)
					t.Logf("whole %v after it was asked for", whole.Sub(begin).Round(100*time.Millisecond))
				})
			}
		})
		if t.Failed() {
			return
		}
	}
	c.AwaitHoldsGone(10 * time.Second)
}

// inZones names the zones of a NodePool.
func (c *Case) inZones(pool string, zones ...string) {
	c.Helper()
	patch, err := json.Marshal([]any{map[string]any{
		"op": "add", "path": "/spec/template/spec/requirements/-",
		"value": map[string]any{"key": corev1.LabelTopologyZone, "operator": "In", "values": zones},
	}})
	c.must(err)
	_, err = shared.Dynamic.Resource(nodePoolResource).Patch(c.Context(), c.Namespace+"-"+pool, types.JSONPatchType, patch, metav1.PatchOptions{})
	c.must(err)
}

// wholeNodes gives each pod all that a node of TwoZones has.
var wholeNodes = eachPodSpec(func(spec map[string]any) {
	eachMap(spec, func(m map[string]any) {
		if _, asks := m[string(gpu)]; asks {
			m[string(gpu)], m[string(efa)] = plane.TwoZones, plane.TwoZones
		}
	})
})

// wholeAt is when the last of its pods was bound.
func (g *Gang) wholeAt() time.Time {
	bindings := g.bindings()
	return bindings[len(bindings)-1].At
}

// bindings are the moments at which its pods, those of earlier attempts too, were bound.
func (c *Case) bindings() []timeline.Event {
	seen := map[string]bool{}
	return shared.Timeline.Events(func(event timeline.Event) bool {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || pod.Namespace != c.Namespace || !bound(pod) || seen[string(pod.UID)] {
			return false
		}
		seen[string(pod.UID)] = true
		return true
	})
}

// checkOneZone sees that no two pods of the case ever ran in different zones, and where.
func (c *Case) checkOneZone(want string) {
	c.Helper()
	zoneOf := map[string]string{}
	for _, event := range c.nodeEvents() {
		if zone := event.Object.GetLabels()[corev1.LabelTopologyZone]; zone != "" {
			zoneOf[event.Object.GetName()] = zone
		}
	}
	zones := map[string][]string{}
	for _, binding := range c.bindings() {
		node := binding.Object.(*corev1.Pod).Spec.NodeName
		zones[zoneOf[node]] = append(zones[zoneOf[node]], binding.Object.GetName())
	}
	if len(zones) != 1 || (want != "" && zones[want] == nil) {
		c.Errorf("its pods ran in zones %v, want one, %q", zones, want)
	}
}

// awaitNodesGone waits until neither a NodeClaim nor a node of the case is there.
func (c *Case) awaitNodesGone(patience time.Duration) {
	c.Helper()
	if err := shared.Timeline.Await(patience, func(state *timeline.State) string {
		for _, claim := range state.NodeClaims {
			if c.mine(claim) {
				return fmt.Sprintf("NodeClaim %s is still there", claim.GetName())
			}
		}
		for _, node := range state.Nodes {
			if c.mine(node) {
				return fmt.Sprintf("node %s is still there", node.Name)
			}
		}
		return ""
	}); err != nil {
		c.Error(err)
	}
}
