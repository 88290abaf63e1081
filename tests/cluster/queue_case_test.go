package cluster

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// What cases with quota are made of. Queues concern every gang on the control
// plane, so none of these cases is parallel, and each one leaves a cluster
// without queues.

// newQuotaCase is newGangCase in a cluster that has Kueue's definitions.
func newQuotaCase(t *testing.T, name string) *Case {
	t.Helper()
	installQueues(t)
	return newGangCase(t, name)
}

// installQueues gives the cluster Kueue's definitions and, at the end, sees that
// Muster has forgotten all queues.
func installQueues(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if !shared.Muster.Running() {
			return
		}
		if err := awaitQueues(sharedMuster, time.Minute, func(queues []queueAnswer) string {
			if len(queues) > 0 {
				return fmt.Sprintf("Muster still knows %d queues", len(queues))
			}
			return ""
		}); err != nil && shared.Muster.Running() {
			t.Error(err)
		}
	})
	installQueueDefinitions(t)
}

// nominalQuota changes a ClusterQueue's nominal quota of GPUs, by flavor.
func nominalQuota(nominal usage) Change {
	return func(object *unstructured.Unstructured) {
		if object.GetKind() != "ClusterQueue" {
			return
		}
		eachMap(object.Object, func(m map[string]any) {
			name, _ := m["name"].(string)
			resources, ok := m["resources"].([]any)
			if amount, known := nominal[name]; ok && known {
				for _, one := range resources {
					one.(map[string]any)["nominalQuota"] = amount
				}
			}
		})
	}
}

// preempting lets gangs of the ClusterQueue displace those of lower priority.
func preempting(object *unstructured.Unstructured) {
	if object.GetKind() == "ClusterQueue" {
		_ = unstructured.SetNestedField(object.Object, "LowerPriority", "spec", "preemption", "withinClusterQueue")
	}
}

// queueAnswer is one of Muster's /v1/queues.
type queueAnswer struct {
	name, namespace, problem string
	pending, admitted        int64
	nominal, reserved        usage
	line                     []string // names of those that wait, the first first
	reasons                  map[string]string
}

const clusterQueueName = "cluster-queue-gpu"

func readQueues(m *plane.Muster) ([]queueAnswer, error) {
	answer, err := m.Get("/v1/queues")
	if err != nil {
		return nil, err
	}
	var queues []queueAnswer
	list, _ := answer["queues"].([]any)
	for _, item := range list {
		object, _ := item.(map[string]any)
		queue := queueAnswer{
			name: text(object, "name"), namespace: text(object, "namespace"), problem: text(object, "error"),
			pending: number(object["pending"]), admitted: number(object["admitted"]),
			nominal: usage{}, reserved: usage{}, reasons: map[string]string{},
		}
		flavors, _ := object["usage"].([]any)
		for _, item := range flavors {
			one, _ := item.(map[string]any)
			if text(one, "resource") == string(gpu) {
				queue.nominal[text(one, "flavor")] += number(one["nominal"])
				queue.reserved[text(one, "flavor")] += number(one["reserved"])
			}
		}
		waiting, _ := object["pendingGangs"].([]any)
		for _, item := range waiting {
			one, _ := item.(map[string]any)
			queue.line = append(queue.line, text(one, "name"))
			queue.reasons[text(one, "name")] = reasonText(one)
		}
		queues = append(queues, queue)
	}
	return queues, nil
}

func text(object map[string]any, key string) string {
	value, _ := object[key].(string)
	return value
}

// number reads an int64, which the JSON of protocol buffers writes as a string.
func number(value any) int64 {
	switch v := value.(type) {
	case string:
		parsed, _ := strconv.ParseInt(v, 10, 64)
		return parsed
	case float64:
		return int64(v)
	}
	return 0
}

// awaitQueues asks who leads at each look.
func awaitQueues(leader func() *plane.Muster, patience time.Duration, condition func(queues []queueAnswer) string) error {
	deadline := time.Now().Add(patience)
	for {
		queues, err := readQueues(leader())
		missing := ""
		if err != nil {
			missing = err.Error()
		} else if missing = condition(queues); missing == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v: %s", patience, missing)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func sharedMuster() *plane.Muster { return shared.Muster }

// clusterQueueOf returns the one ClusterQueue of jobs/quota.yaml.
func clusterQueueOf(queues []queueAnswer) (queueAnswer, bool) {
	for _, queue := range queues {
		if queue.name == clusterQueueName && queue.namespace == "" {
			return queue, true
		}
	}
	return queueAnswer{}, false
}

// AwaitQueue waits until what Muster says of the ClusterQueue meets a condition.
func (c *Case) AwaitQueue(patience time.Duration, condition func(queue queueAnswer) string) {
	c.Helper()
	c.must(c.awaitQueue(patience, condition))
}

func (c *Case) awaitQueue(patience time.Duration, condition func(queue queueAnswer) string) error {
	return awaitQueues(c.muster, patience, func(queues []queueAnswer) string {
		queue, ok := clusterQueueOf(queues)
		if !ok {
			return fmt.Sprintf("Muster doesn't know ClusterQueue %s; it knows %d queues", clusterQueueName, len(queues))
		}
		return condition(queue)
	})
}

// ApplyQuota applies jobs/quota.yaml and waits until Muster knows both queues. It
// looks for kinds that weren't there every ten seconds.
func (c *Case) ApplyQuota(changes ...Change) {
	c.Helper()
	c.ApplyQuotaOf("quota.yaml", changes...)
}

// ApplyQuotaOf is ApplyQuota with another file, whose queues have the same names.
func (c *Case) ApplyQuotaOf(file string, changes ...Change) {
	c.Helper()
	c.Apply(file, changes...)
	c.must(awaitQueues(c.muster, 30*time.Second, func(queues []queueAnswer) string {
		for _, queue := range queues {
			if queue.namespace == c.Namespace && queue.problem != "" {
				return queue.problem
			}
		}
		if len(queues) != 2 {
			return fmt.Sprintf("Muster knows %d queues, want a ClusterQueue and a LocalQueue", len(queues))
		}
		if queue, ok := clusterQueueOf(queues); !ok || queue.problem != "" {
			return "the ClusterQueue isn't usable: " + queue.problem
		}
		return ""
	}))
}

// withoutCPU makes pods that ask for GPUs only. As in Kueue, a resource that the
// queue doesn't cover isn't admitted.
func withoutCPU(pod *corev1.Pod) {
	for _, list := range []corev1.ResourceList{pod.Spec.Containers[0].Resources.Requests, pod.Spec.Containers[0].Resources.Limits} {
		delete(list, corev1.ResourceCPU)
	}
}

// quotaGang makes a PodGroup and members that ask for GPUs only.
func (c *Case) quotaGang(name string, size, gpus int) *Gang {
	c.Helper()
	return c.prioritizedGang(name, size, gpus, "")
}

func (c *Case) prioritizedGang(name string, size, gpus int, priorityClass string) *Gang {
	c.Helper()
	g := c.PodGroup(name, size, gpus)
	g.priorityClass = priorityClass
	g.edit = withoutCPU
	g.AddMembers(size)
	return g
}

// podGroup is the gang's present one, nil if there is none.
func (g *Gang) podGroup() (group *unstructured.Unstructured) {
	shared.Timeline.Look(func(state *timeline.State) { group = state.PodGroups[g.Namespace+"/"+g.Name] })
	return group
}

// awaitAdmitted returns when the Workload was seen that gives the gang quota.
func (g *Gang) awaitAdmitted(patience time.Duration) time.Time {
	g.Helper()
	g.must(shared.Timeline.Await(patience, func(state *timeline.State) string {
		if w := g.workloadIn(state.Workloads); w == nil || !w.reserved() {
			return fmt.Sprintf("gang %s has no quota: %+v", g.Name, w)
		}
		return ""
	}))
	for _, event := range g.workloadHistory() {
		if readWorkload(event.Object).reserved() {
			return event.At
		}
	}
	panic("what was seen just now is no part of the record")
}

// succeed ends the gang's pods as a kubelet does when their work is done.
func (g *Gang) succeed() {
	g.Helper()
	for _, member := range g.Members {
		g.patchStatus(member, `{"status":{"phase":"Succeeded"}}`)
	}
}

var clusterQueueResource = schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "clusterqueues"}

// awaitStatus waits until the ClusterQueue's status in the API server says so.
func (c *Case) awaitStatus(gangs, pending int64, gpus usage) {
	c.Helper()
	want := fmt.Sprintf("reserving %d, admitted %d, pending %d, reservation %s, usage %s", gangs, gangs, pending, gpus, gpus)
	got := ""
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if got = c.queueStatus(); got == want {
			return
		}
	}
	c.Errorf("the status of ClusterQueue %s is\n%s, want\n%s", clusterQueueName, got, want)
}

// queueStatus is that of the ClusterQueue in the API server, as text.
func (c *Case) queueStatus() string {
	c.Helper()
	queue, err := shared.Dynamic.Resource(clusterQueueResource).Get(c.Context(), clusterQueueName, metav1.GetOptions{})
	c.must(err)
	status, _ := queue.Object["status"].(map[string]any)
	count := func(field string) int64 {
		if value, ok := status[field].(int64); ok {
			return value
		}
		return -1 // there is no status
	}
	return fmt.Sprintf("reserving %d, admitted %d, pending %d, reservation %s, usage %s",
		count("reservingWorkloads"), count("admittedWorkloads"), count("pendingWorkloads"),
		flavorTotals(status["flavorsReservation"]), flavorTotals(status["flavorsUsage"]))
}

func flavorTotals(list any) usage {
	totals := usage{}
	flavors, _ := list.([]any)
	for _, item := range flavors {
		one, _ := item.(map[string]any)
		resources, _ := one["resources"].([]any)
		for _, item := range resources {
			if entry, _ := item.(map[string]any); text(entry, "name") == string(gpu) {
				total, err := resource.ParseQuantity(text(entry, "total"))
				if err == nil {
					totals[text(one, "name")] += total.Value()
				}
			}
		}
	}
	return totals
}

const flavorLabel = "tests.muster.dev/flavor"

// onNodesLabelled leads each flavor to nodes that no NodePool made.
func onNodesLabelled(object *unstructured.Unstructured) {
	if object.GetKind() == "ResourceFlavor" {
		_ = unstructured.SetNestedStringMap(object.Object, map[string]string{flavorLabel: object.GetName()}, "spec", "nodeLabels")
	}
}

// flavorNodes makes Ready nodes of one GPU each, so many for each flavor.
func (c *Case) flavorNodes(counts usage) {
	c.Helper()
	var names []string
	for flavor, count := range counts {
		for i := range count {
			name := fmt.Sprintf("%s-%s-%d", c.Namespace, flavor, i)
			c.flavorNode(name, flavor, 1)
			names = append(names, name)
		}
	}
	c.AwaitReady(names...)
}

// flavorNode makes a node of a flavor and doesn't wait for it.
func (c *Case) flavorNode(name, flavor string, gpus int) {
	c.Helper()
	c.Node(name, gpus, gpus)
	_, err := shared.Client.CoreV1().Nodes().Patch(c.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, flavorLabel, flavor), metav1.PatchOptions{})
	c.must(err)
}

// queueManagers names who wrote to the case's queues, as the API server knows it.
func (c *Case) queueManagers() []string {
	c.Helper()
	var managers []string
	for _, kind := range []string{"clusterqueues", "localqueues"} {
		list, err := shared.Dynamic.Resource(clusterQueueResource.GroupVersion().WithResource(kind)).List(c.Context(), metav1.ListOptions{})
		c.must(err)
		for _, queue := range list.Items {
			for _, entry := range queue.GetManagedFields() {
				managers = append(managers, entry.Manager)
			}
		}
	}
	return managers
}
