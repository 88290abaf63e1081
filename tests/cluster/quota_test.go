package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/timeline"
)

// The workshop's quota: 64 GPUs on nodes without EFA and 36 on nodes with it, for
// gangs of 8. The NodePools could make nodes for all of them; quota says who gets
// some.
func TestWorkshopQuotaRunsEightGangsOnOneFlavorFourOnTheOtherAndTheThirteenthWaits(t *testing.T) {
	first, second := pick(1, 8), pick(1, 4)
	nominal := usage{"nvidia": int64(8 * first), "nvidia-efa": int64(8*second + 4)}
	c := newQuotaCase(t, "workshop")
	const size, gpus = 2, 4
	nodes := size * (first + second + 1)
	c.NodePool("gpu", gpus, nodes, time.Second)
	c.NodePool("gpu-efa", gpus, nodes, 2*time.Second)
	c.ApplyQuota(nominalQuota(nominal))

	var gangs []*Gang
	for i := range first + second + 1 {
		gangs = append(gangs, c.quotaGang(fmt.Sprintf("train-%c", 'a'+i), size, gpus))
	}
	byFlavor, last := c.awaitAllButOne(gangs, 2*time.Minute)
	if len(byFlavor["nvidia"]) != first || len(byFlavor["nvidia-efa"]) != second {
		t.Errorf("%d gangs run on nvidia and %d on nvidia-efa, want %d and %d",
			len(byFlavor["nvidia"]), len(byFlavor["nvidia-efa"]), first, second)
	}
	for flavor, pool := range map[string]string{"nvidia": "gpu", "nvidia-efa": "gpu-efa"} {
		for _, g := range byFlavor[flavor] {
			g.AwaitOnPool(pool, time.Second)
		}
	}
	t.Logf("%d gangs bound %v after the first was created", len(gangs)-1, time.Since(gangs[0].Created).Round(time.Millisecond))

	full := usage{"nvidia": int64(8 * first), "nvidia-efa": int64(8 * second)}
	last.checkWaitsForQuota("flavor nvidia has 0 nvidia.com/gpu unused of the 8", "flavor nvidia-efa has 4 nvidia.com/gpu unused of the 8")
	c.AwaitQueue(5*time.Second, func(queue queueAnswer) string {
		got := fmt.Sprintf("%d admitted, %d pending, line %v, reserved %s", queue.admitted, queue.pending, queue.line, queue.reserved)
		want := fmt.Sprintf("%d admitted, 1 pending, line [%s], reserved %s", len(gangs)-1, last.Name, full)
		if got != want {
			return fmt.Sprintf("/v1/queues says %s, want %s", got, want)
		}
		if !strings.Contains(queue.reasons[last.Name], "0 nvidia.com/gpu unused of the 8") {
			return "its reason in the line is " + queue.reasons[last.Name]
		}
		return ""
	})
	c.awaitStatus(int64(len(gangs)-1), 1, full)
	c.checkClaims(map[string]int{"gpu": size * first, "gpu-efa": size * second})

	// One finishes, and then another one is deleted: each makes room for one.
	done := byFlavor["nvidia"][0]
	last.checkAdmittedAfter("finished", done.succeed, done, func(state *timeline.State) bool {
		return countPods(done.pods(state), succeeded) == size
	})
	last.AwaitOnPool("gpu", time.Minute)
	later := c.quotaGang("later", size, gpus)
	later.checkWaitsForQuota("flavor nvidia has 0 nvidia.com/gpu unused of the 8")
	gone := byFlavor["nvidia-efa"][0]
	later.checkAdmittedAfter("deleted", gone.Delete, gone, func(state *timeline.State) bool { return len(gone.pods(state)) == 0 })
	later.AwaitOnPool("gpu-efa", time.Minute)
	c.awaitStatus(int64(len(gangs)-1), 0, full)
	t.Logf("the Workloads held at most %s", c.checkNeverAbove(nominal))
	metrics, err := shared.Muster.Metrics()
	c.must(err)
	for _, family := range []string{"kueue_admitted_workloads_total", "kueue_admission_wait_time_seconds_count"} {
		if !strings.Contains(metrics, family+`{cluster_queue="`+clusterQueueName+`"} `) {
			t.Errorf("%s doesn't count this queue", family)
		}
	}
}

// awaitAllButOne waits until all gangs but one are bound, and returns them by the
// flavor that their Workload names. Whoever is left out must stay so.
func (c *Case) awaitAllButOne(gangs []*Gang, patience time.Duration) (byFlavor map[string][]*Gang, last *Gang) {
	c.Helper()
	c.must(shared.Timeline.Await(patience, func(state *timeline.State) string {
		var waiting []string
		for _, g := range gangs {
			if countPods(g.pods(state), bound) < len(g.Members) {
				waiting = append(waiting, g.Name)
				last = g
			}
		}
		if len(waiting) != 1 {
			return fmt.Sprintf("gangs %v aren't bound, want one of %d", waiting, len(gangs))
		}
		return ""
	}))
	c.stays(pick(2*time.Second, 10*time.Second), fmt.Sprintf("gang %s has no member bound", last.Name), last.noneBound)
	byFlavor = map[string][]*Gang{}
	for _, g := range gangs {
		if g == last {
			continue
		}
		held := g.workload().gpus()
		if len(held) != 1 {
			c.Errorf("the Workload of gang %s names %d flavors: %s", g.Name, len(held), held)
		}
		for flavor, amount := range held {
			if amount != 8 {
				c.Errorf("the Workload of gang %s holds %d GPUs, want 8", g.Name, amount)
			}
			byFlavor[flavor] = append(byFlavor[flavor], g)
		}
	}
	return byFlavor, last
}

// checkWaitsForQuota waits until the gang is said to wait with these words, and
// sees that nothing was done for it.
func (g *Gang) checkWaitsForQuota(words ...string) {
	g.Helper()
	g.AwaitAnswer(5*time.Second, func(answer map[string]any) string {
		if answer["state"] != "WAITING_FOR_QUOTA" {
			return fmt.Sprintf("it is %v", answer["state"])
		}
		for _, each := range words {
			if !strings.Contains(reasonText(answer), each) {
				return fmt.Sprintf("the reason doesn't say %q: %s", each, reasonText(answer))
			}
		}
		return ""
	})
	if moments := g.Moments(signalled); len(moments) > 0 {
		g.Errorf("Karpenter was asked for nodes for gang %s, which has no quota", g.Name)
	}
	if ungated := g.Moments(func(pod *corev1.Pod) bool { return !gated(pod) }); len(ungated) > 0 {
		g.Errorf("%d members of gang %s, which has no quota, lost their gate", len(ungated), g.Name)
	}
	if held := g.workload().gpus(); len(held) > 0 {
		g.Errorf("gang %s waits and its Workload holds %s", g.Name, held)
	}
}

// checkClaims counts the NodeClaims by the NodePool that they are of.
func (c *Case) checkClaims(want map[string]int) {
	c.Helper()
	got := map[string]int{}
	for _, claim := range c.Claims() {
		pool := claim.Object.(*unstructured.Unstructured).GetLabels()[nodePoolLabel]
		got[strings.TrimPrefix(pool, c.Namespace+"-")]++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		c.Errorf("NodeClaims by NodePool: %v, want %v", got, want)
	}
}

// checkAdmittedAfter ends another gang and measures, from the moment at which the
// last of that is seen, until this gang's Workload has quota.
func (g *Gang) checkAdmittedAfter(what string, end func(), other *Gang, over func(*timeline.State) bool) {
	g.Helper()
	end()
	g.must(shared.Timeline.Await(10*time.Second, func(state *timeline.State) string {
		if !over(state) {
			return fmt.Sprintf("gang %s isn't %s", other.Name, what)
		}
		return ""
	}))
	events := shared.Timeline.PodEvents(g.Namespace, other.Members...)
	ended := events[len(events)-1].At
	admitted := g.awaitAdmitted(10 * time.Second)
	if delay := admitted.Sub(ended); delay > time.Second {
		g.Errorf("gang %s was admitted %v after gang %s was %s, want 1 s at most", g.Name, delay, other.Name, what)
	} else {
		g.Logf("gang %s was admitted %v after gang %s was %s", g.Name, delay.Round(time.Millisecond), other.Name, what)
	}
	g.AwaitAnswer(time.Second, func(answer map[string]any) string {
		switch answer["state"] {
		case "PROVISIONING", "READY", "BINDING", "BOUND":
			return ""
		}
		return fmt.Sprintf("it is %v", answer["state"])
	})
}

// A gang whose pods are all gone holds nothing any more, although its PodGroup and
// its Workload outlive them: when its pods come back, its old quota may be another's.
func TestGangThatComesBackWaitsForQuotaAnew(t *testing.T) {
	c := newQuotaCase(t, "return")
	nominal := usage{"nvidia": 4, "nvidia-efa": 0}
	c.flavorNodes(usage{"nvidia": 8})
	c.ApplyQuota(nominalQuota(nominal), onNodesLabelled)
	first := c.quotaGang("first", 4, 1)
	first.AwaitBound(20 * time.Second)
	first.Delete()
	second := c.quotaGang("second", 4, 1)
	second.AwaitBound(20 * time.Second)

	first.Members = nil
	first.AddMembers(4)
	first.AwaitAnswer(5*time.Second, func(answer map[string]any) string {
		if answer["state"] != "WAITING_FOR_QUOTA" {
			return fmt.Sprintf("it is %v", answer["state"])
		}
		return ""
	})
	c.stays(2*time.Second, "no member of the gang without quota is bound", first.noneBound)
	second.Delete()
	first.AwaitBound(20 * time.Second)
	c.checkNeverAbove(nominal)
}

// A queue that was deleted and made anew has its status again, although nothing in
// it is different.
func TestQueueMadeAnewHasAStatus(t *testing.T) {
	c := newQuotaCase(t, "anew")
	for range 2 {
		c.ApplyQuota()
		c.awaitStatus(0, 0, usage{})
		if managers := c.queueManagers(); !slices.Contains(managers, "muster") {
			t.Errorf("the status isn't Muster's, but of %q", managers)
		}
		_, err := shared.Kubectl("delete", "clusterqueues.kueue.x-k8s.io,localqueues.kueue.x-k8s.io,resourceflavors.kueue.x-k8s.io", "--all", "--namespace="+c.Namespace)
		c.must(err)
		c.must(awaitQueues(c.muster, 10*time.Second, func(queues []queueAnswer) string {
			if len(queues) > 0 {
				return fmt.Sprintf("Muster still knows %d queues", len(queues))
			}
			return ""
		}))
	}
}
