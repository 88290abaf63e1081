package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// A gang of high priority takes quota back from exactly those gangs that Kueue's
// own packages name, asked about the state that the API server shows, and each
// of them goes whole. Where Kueue says that it fits, or that nobody may be
// displaced for it, nobody is.
func TestHighPriorityGangDisplacesExactlyTheGangsThatKueueNames(t *testing.T) {
	_, seed := randomSource(t)
	p := &preemption{Case: newQuotaCase(t, "preemption"), oracle: startOracle(t), outcomes: map[string]int{}}
	p.classes = map[int32]string{urgentPriority: p.PriorityClass(urgentPriority)}
	for _, priority := range runningPriorities {
		p.classes[priority] = p.PriorityClass(priority)
	}
	rounds := pick(8, 200)
	t.Cleanup(func() {
		t.Logf("%d rounds: %v", rounds, p.outcomes)
		few := p.outcomes[displaces] < rounds/4 || p.outcomes[fits] == 0 || p.outcomes[waits] == 0
		if full && few && !t.Failed() {
			t.Errorf("the set-ups that were drawn decide little: of %d rounds %v", rounds, p.outcomes)
		}
	})
	for round := range uint64(rounds) {
		t.Run(fmt.Sprintf("round %d", round+1), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed+round, 0))
			r := &preemptionRound{preemption: p, Case: newGangCase(t, "round"), seed: seed + round, setup: drawPreemption(random)}
			r.run()
		})
	}
}

const (
	displaces = "displaced"
	fits      = "fitted"
	waits     = "waited"
)

// preemption is what the rounds share.
type preemption struct {
	*Case
	oracle  *oracle
	classes map[int32]string // PriorityClasses by value

	mutex    sync.Mutex
	outcomes map[string]int
}

// preemptionRound has queues, nodes and gangs that no other round's touch.
type preemptionRound struct {
	*preemption
	*Case
	seed    uint64
	setup   preemptionSetup
	queues  []*unstructured.Unstructured
	flavors []*unstructured.Unstructured
	running []*Gang
}

func (r *preemptionRound) run() {
	r.Helper()
	r.Logf("MUSTER_SEED=%d: %s", r.seed, r.setup)
	r.prepare()
	urgent := r.gang(r.setup.urgent)
	if r.setup.urgentIsOlder {
		// By one second: times of creation have no less.
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	}
	for _, one := range r.setup.running {
		g := r.gang(one)
		g.AddMembers(one.size)
		// One after the other, so that no two are given quota at the same moment.
		g.awaitAdmitted(20 * time.Second)
		r.running = append(r.running, g)
	}
	for _, g := range r.running {
		g.AwaitBound(30 * time.Second)
	}
	r.lowerQuota()

	question := r.question(urgent)
	verdict, err := r.oracle.ask(question)
	r.must(err)
	urgent.AddMembers(r.setup.urgent.size)
	outcome := r.check(urgent, verdict)
	if r.Failed() {
		text, _ := json.Marshal(question)
		r.Logf("Kueue was asked %s\nand says %+v", text, verdict)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.outcomes[outcome]++
}

// prepare makes the flavors with a node each that has room for all, and the
// queues with quota for all.
func (r *preemptionRound) prepare() {
	r.Helper()
	var nodes []string
	for flavor := range r.setup.flavors {
		name := flavorName(r.Namespace, flavor)
		r.flavorNode(name, name, 128)
		nodes = append(nodes, name)
		r.flavors = append(r.flavors, r.create("resourceflavors", "", map[string]any{
			"kind":     "ResourceFlavor",
			"metadata": map[string]any{"name": name},
			"spec":     map[string]any{"nodeLabels": map[string]any{flavorLabel: name}},
		}))
	}
	for i, queue := range r.setup.queues {
		name := queueName(r.Namespace, i)
		r.queues = append(r.queues, r.create("clusterqueues", "", map[string]any{
			"kind": "ClusterQueue", "metadata": map[string]any{"name": name}, "spec": queue.spec(r.Namespace, true),
		}))
		r.create("localqueues", r.Namespace, map[string]any{
			"kind": "LocalQueue", "metadata": map[string]any{"name": name}, "spec": map[string]any{"clusterQueue": name},
		})
	}
	r.AwaitReady(nodes...)
	r.awaitNominal(func(int, int) int64 { return openQuota })
}

// create creates one of Kueue's objects, which goes with the round.
func (r *preemptionRound) create(resource, namespace string, object map[string]any) *unstructured.Unstructured {
	r.Helper()
	kind := clusterQueueResource.GroupVersion().WithResource(resource)
	object["apiVersion"] = kind.GroupVersion().String()
	client := shared.Dynamic.Resource(kind).Namespace(namespace)
	created, err := client.Create(r.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	r.must(err)
	r.Cleanup(func() {
		if err := client.Delete(context.Background(), created.GetName(), metav1.DeleteOptions{}); err != nil {
			r.Error(err)
		}
	})
	return created
}

// lowerQuota gives the queues the quota, limits and policies that were drawn.
func (r *preemptionRound) lowerQuota() {
	r.Helper()
	for i, queue := range r.setup.queues {
		patch, err := json.Marshal(map[string]any{"spec": queue.spec(r.Namespace, false)})
		r.must(err)
		r.queues[i], err = shared.Dynamic.Resource(clusterQueueResource).Patch(r.Context(), r.queues[i].GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		r.must(err)
	}
	r.awaitNominal(func(queue, flavor int) int64 { return r.setup.queues[queue].quotas[flavor].nominal })
}

// awaitNominal waits until Muster has seen each queue's quota.
func (r *preemptionRound) awaitNominal(want func(queue, flavor int) int64) {
	r.Helper()
	// It looks for kinds that weren't there every ten seconds.
	r.must(awaitQueues(r.muster, 30*time.Second, func(queues []queueAnswer) string {
		for i, setup := range r.setup.queues {
			at := slices.IndexFunc(queues, func(q queueAnswer) bool { return q.name == queueName(r.Namespace, i) && q.namespace == "" })
			local := slices.ContainsFunc(queues, func(q queueAnswer) bool {
				return q.name == queueName(r.Namespace, i) && q.namespace == r.Namespace && q.problem == ""
			})
			if at < 0 || queues[at].problem != "" || !local {
				return fmt.Sprintf("Muster doesn't know queue %d or can't use it", i)
			}
			for flavor := range setup.quotas {
				name := flavorName(r.Namespace, flavor)
				if got := queues[at].nominal[name]; got != want(i, flavor) {
					return fmt.Sprintf("Muster counts with %d GPUs of flavor %s in queue %d, want %d", got, name, i, want(i, flavor))
				}
			}
		}
		return ""
	}))
}

// gang makes the PodGroup; its members come later.
func (r *preemptionRound) gang(setup gangSetup) *Gang {
	r.Helper()
	g := r.PodGroup(setup.name, setup.size, setup.gpus)
	g.priorityClass = r.classes[setup.priority]
	g.edit = func(pod *corev1.Pod) {
		withoutCPU(pod)
		pod.Labels["kueue.x-k8s.io/queue-name"] = queueName(r.Namespace, setup.queue)
		if setup.flavor != anyFlavor {
			pod.Spec.NodeSelector[flavorLabel] = flavorName(r.Namespace, setup.flavor)
		}
	}
	return g
}

// question is the present state, as the API server has it, and the newcomer.
func (r *preemptionRound) question(urgent *Gang) oracleCase {
	r.Helper()
	question := oracleCase{ID: r.seed}
	plain := func(object *unstructured.Unstructured) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": object.GetName()}, "spec": object.Object["spec"]}
	}
	for _, flavor := range r.flavors {
		question.Flavors = append(question.Flavors, plain(flavor))
	}
	for _, queue := range r.queues {
		question.ClusterQueues = append(question.ClusterQueues, plain(queue))
	}
	workload := func(g *Gang, setup gangSetup) oracleWorkload {
		group := g.podGroup()
		uid := group.GetUID() // it has no Workload before it has members
		if w := g.workload(); w != nil {
			uid = w.UID
		}
		return oracleWorkload{
			UID: uid, Name: g.Name, ClusterQueue: queueName(r.Namespace, setup.queue),
			Priority: setup.priority, CreatedAt: group.GetCreationTimestamp().Time,
		}
	}
	for i, g := range r.running {
		admitted := workload(g, r.setup.running[i])
		held := g.workload()
		reservedAt := held.reservedAt()
		admitted.ClusterQueue, admitted.ReservedAt = held.Status.Admission.ClusterQueue, &reservedAt
		for _, set := range held.Status.Admission.PodSets {
			one := oraclePodSet{Name: set.Name, Count: set.Count, Flavors: set.Flavors, Requests: map[corev1.ResourceName]int64{}}
			for resource, amount := range set.Usage {
				one.Requests[corev1.ResourceName(resource)] = amount.Value() / set.Count
			}
			admitted.PodSets = append(admitted.PodSets, one)
		}
		question.Admitted = append(question.Admitted, admitted)
	}
	pod := r.Pod("urgent", plane.SchedulerName, r.setup.urgent.gpus)
	pod.Labels = map[string]string{}
	urgent.edit(pod)
	pending := workload(urgent, r.setup.urgent)
	pending.PodSets = []oraclePodSet{{
		Name: "main", Count: int64(r.setup.urgent.size), NodeSelector: pod.Spec.NodeSelector,
		Requests: map[corev1.ResourceName]int64{gpu: int64(r.setup.urgent.gpus)},
	}}
	question.Pending = []oracleWorkload{pending}
	return question
}

// check sees that what Kueue says comes to pass, and nothing else.
func (r *preemptionRound) check(urgent *Gang, verdict verdict) (outcome string) {
	r.Helper()
	victims := map[types.UID]bool{}
	for _, victim := range verdict.Victims {
		victims[victim.UID] = true
	}
	switch {
	case len(victims) > 0:
		outcome = displaces
	case verdict.Mode == "Fit":
		outcome = fits
	default:
		outcome = waits
	}
	begin := time.Now()
	if outcome == waits {
		urgent.AwaitAnswer(10*time.Second, func(answer map[string]any) string {
			if answer["state"] != "WAITING_FOR_QUOTA" || reasonText(answer) == "" {
				return fmt.Sprintf("it is %v: %s", answer["state"], reasonText(answer))
			}
			return ""
		})
		r.stays(time.Second, "the gang without quota and those that run are left as they are", func(state *timeline.State) bool {
			return urgent.noneBound(state) && !slices.ContainsFunc(r.running, func(g *Gang) bool {
				return countPods(g.pods(state), undisturbed) != len(g.Members)
			})
		})
	} else {
		urgent.AwaitBound(30 * time.Second)
		if got, want := urgent.workload().Status.Admission.PodSets[0].Flavors, verdict.PodSets[0].Flavors; !maps.Equal(got, want) {
			r.Errorf("gang urgent runs on %v, want %v", got, want)
		}
	}
	took := time.Since(begin)

	var displaced []string
	for _, g := range r.running {
		if victims[g.workload().UID] {
			displaced = append(displaced, g.Name)
			g.checkGoneWhole(urgent)
		} else {
			g.checkUndisturbed()
		}
	}
	if len(displaced) != len(victims) {
		r.Errorf("Kueue names %d gangs, of which %v exist", len(victims), displaced)
	}
	r.Logf("gang urgent %s after %v; displaced: %v", outcome, took.Round(time.Millisecond), displaced)
	return outcome
}

func undisturbed(pod *corev1.Pod) bool {
	return bound(pod) && pod.DeletionTimestamp == nil && !disrupted(pod)
}

func disrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue
	})
}

// checkGoneWhole sees that no member is left of a gang that was displaced.
func (g *Gang) checkGoneWhole(urgent *Gang) {
	g.Helper()
	if left := len(g.present()); left != 0 {
		g.Errorf("gang %s should have gone whole; %d of its %d members are left", g.Name, left, len(g.Members))
	}
	g.checkEvictedFor(urgent)
}

// checkUndisturbed sees that all members run, and that at no moment one was to go.
func (g *Gang) checkUndisturbed() {
	g.Helper()
	if left := countPods(g.present(), undisturbed); left != len(g.Members) {
		g.Errorf("gang %s should have stayed; %d of its %d members do", g.Name, left, len(g.Members))
	}
	if touched := g.Moments(func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil || disrupted(pod) }); len(touched) > 0 {
		g.Errorf("%d members of gang %s, which should have stayed, were to go", len(touched), g.Name)
	}
}

// What was displaced is made anew by its job: it waits whole, and starts again
// whole when there is quota.
func TestDisplacedGangWaitsWholeAndStartsAgainWhole(t *testing.T) {
	c := newQuotaCase(t, "return")
	const size = 4
	nominal := usage{"nvidia": size, "nvidia-efa": 0}
	c.flavorNodes(nominal)
	c.ApplyQuota(nominalQuota(nominal), preempting, onNodesLabelled)
	low := c.prioritizedGang("low", size, 1, c.PriorityClass(10))
	low.AwaitBound(30 * time.Second)
	high := c.prioritizedGang("urgent", size, 1, c.PriorityClass(urgentPriority))
	high.AwaitBound(30 * time.Second)
	low.checkGoneWhole(high)

	low.Members = nil
	low.AddMembers(size)
	low.AwaitAnswer(10*time.Second, func(answer map[string]any) string {
		if answer["state"] != "WAITING_FOR_QUOTA" {
			return fmt.Sprintf("it is %v", answer["state"])
		}
		return ""
	})
	c.stays(time.Second, "no member of a gang without quota is bound", low.noneBound)
	high.Delete()
	low.AwaitBound(20 * time.Second)
	c.checkNeverAbove(nominal)
}

// present returns the gang's pods that exist now.
func (g *Gang) present() []*corev1.Pod {
	var pods []*corev1.Pod
	shared.Timeline.Look(func(state *timeline.State) { pods = g.pods(state) })
	return pods
}

// checkEvictedFor sees that the Workload named the eviction and its reason, and
// that each member went through the API for evictions.
func (g *Gang) checkEvictedFor(other *Gang) {
	g.Helper()
	if moments := g.Moments(disrupted); len(moments) != len(g.Members) {
		g.Errorf("%d of %d members of gang %s have condition DisruptionTarget", len(moments), len(g.Members), g.Name)
	}
	why := ""
	for _, event := range g.workloadHistory() {
		if evicted := meta.FindStatusCondition(readWorkload(event.Object).Status.Conditions, "Evicted"); evicted != nil && evicted.Status == metav1.ConditionTrue {
			why = evicted.Message
		}
	}
	if !strings.Contains(why, other.Namespace+"/"+other.Name) {
		g.Errorf("gang %s was evicted and its Workload gave the reason %q, which doesn't name %s", g.Name, why, other.Name)
	}
}
