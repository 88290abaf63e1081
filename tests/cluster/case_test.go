package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"

	"muster.dev/tests/cluster/faults"
	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// Case is one test's part of the control plane: a namespace of its own, and
// nodes and NodePools that only its pods select.
type Case struct {
	*testing.T
	Namespace string // also the value of caseLabel
	Begin     time.Time

	// How long its NodePools leave an underused node alone: by default the
	// least patient setting, where an empty node goes as soon as it may.
	consolidateAfter string
	// How long its NodePools' nodes wait for pods that mustn't be disrupted;
	// without it for ever.
	terminationGrace string
	// Pods that are refused are created again, as a job's controller does.
	persistent bool
	// Whose Muster is asked where it isn't the shared one.
	leader func() *plane.Muster
	// Manifests written so far.
	applied int
}

const (
	// caseLabel keeps cases apart: pods select it, nodes carry it.
	caseLabel = "tests.muster.dev/case"
	gpu       = corev1.ResourceName("nvidia.com/gpu")
	efa       = corev1.ResourceName("vpc.amazonaws.com/efa")
	// podGroupLabel makes a pod a member.
	podGroupLabel = "scheduling.x-k8s.io/pod-group"
	// queueLabel names its LocalQueue.
	queueLabel   = "kueue.x-k8s.io/queue-name"
	gate         = "muster.dev/admission"
	holds        = "muster.dev/holds"
	doNotDisrupt = "karpenter.sh/do-not-disrupt"
)

var (
	nodePoolResource  = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}
	nodeClassResource = schema.GroupVersionResource{Group: "karpenter.kwok.sh", Version: "v1alpha1", Resource: "kwoknodeclasses"}
)

// newCase makes the namespace and sees to the end of everything in it. On a
// failure it prints what happened to the case's objects, moment by moment.
func newCase(t *testing.T, name string) *Case {
	t.Helper()
	c := &Case{T: t, Begin: time.Now(), consolidateAfter: "0s"}
	namespace, err := shared.Client.CoreV1().Namespaces().Create(c.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + rand.String(5)},
	}, metav1.CreateOptions{})
	c.must(err)
	c.Namespace = namespace.Name
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what happened in %s:\n%s", c.Namespace, c.story())
			if dead := shared.Dead(); dead != "" {
				t.Log(dead)
			}
		}
		c.clear()
	})
	return c
}

// newStockCase is newCase for pods that Muster doesn't protect: consolidation
// may take a running bare pod's node, and nothing makes such a pod anew.
func newStockCase(t *testing.T, name string) *Case {
	t.Helper()
	c := newCase(t, name)
	c.consolidateAfter = "Never"
	return c
}

// newGangCase is newCase with Muster running.
func newGangCase(t *testing.T, name string) *Case {
	t.Helper()
	if err := shared.Muster.Ensure(); err != nil {
		t.Fatal(err)
	}
	return newCase(t, name)
}

func (c *Case) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// clear asks for the end of everything of the case and doesn't wait for it:
// nothing of one case fits another.
func (c *Case) clear() {
	// The test's own context ends before its cleanups.
	ctx := context.Background()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	mine := metav1.ListOptions{LabelSelector: caseLabel + "=" + c.Namespace}
	_ = shared.Client.CoreV1().Pods(c.Namespace).DeleteCollection(ctx, now, metav1.ListOptions{})
	_ = shared.Dynamic.Resource(nodePoolResource).DeleteCollection(ctx, now, mine)
	_ = shared.Dynamic.Resource(nodeClassResource).DeleteCollection(ctx, now, mine)
	_ = shared.Client.CoreV1().Nodes().DeleteCollection(ctx, now, mine)
	_ = shared.Client.CoreV1().Namespaces().Delete(ctx, c.Namespace, now)
}

// Nodes makes nodes that no autoscaler knows, and waits until they are Ready.
// Their names are the case's with a number.
func (c *Case) Nodes(count, gpus int) []string {
	c.Helper()
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", c.Namespace, i)
		c.Node(names[i], gpus, gpus)
	}
	c.AwaitReady(names...)
	return names
}

// Node makes one node whose device plugin offers some of the GPUs it has. No
// allocatable GPU at all is a device plugin that hasn't reported yet.
func (c *Case) Node(name string, capacity, allocatable int) {
	c.Helper()
	resources := func(gpus int) corev1.ResourceList {
		list := corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("96"),
			corev1.ResourceMemory: resource.MustParse("1Ti"),
			corev1.ResourcePods:   resource.MustParse("110"),
		}
		if gpus > 0 {
			list[gpu] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
		}
		return list
	}
	_, err := shared.Client.CoreV1().Nodes().Create(c.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				caseLabel:                      c.Namespace,
				corev1.LabelHostname:           name,
				corev1.LabelTopologyZone:       "us-west-2a",
				corev1.LabelArchStable:         "amd64",
				corev1.LabelOSStable:           "linux",
				corev1.LabelInstanceTypeStable: plane.InstanceType(capacity),
			},
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
		},
		Status: corev1.NodeStatus{Capacity: resources(capacity), Allocatable: resources(allocatable)},
	}, metav1.CreateOptions{})
	c.must(err)
}

// AwaitReady waits until the nodes are Ready and free of taints.
func (c *Case) AwaitReady(names ...string) {
	c.Helper()
	c.must(shared.Timeline.Await(time.Minute, func(state *timeline.State) string {
		for _, name := range names {
			node := state.Nodes[name]
			if node == nil || !nodeReady(node) || len(node.Spec.Taints) > 0 {
				return fmt.Sprintf("node %s isn't ready", name)
			}
		}
		return ""
	}))
}

// NodePool makes a NodePool of one instance type that at most so many nodes
// may come from, each registering after a delay, and what goes wrong with them.
// A taint that goes again is one of its startup taints.
func (c *Case) NodePool(name string, gpusPerNode, maxNodes int, delay time.Duration, wrong ...faults.Fault) {
	c.Helper()
	name = c.Namespace + "-" + name
	mine := map[string]any{caseLabel: c.Namespace}
	c.must(c.nodeClass(name, delay, wrong))
	pool := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.sh/v1",
		"kind":       "NodePool",
		"metadata":   map[string]any{"name": name, "labels": mine},
		"spec": map[string]any{
			"limits": map[string]any{string(gpu): fmt.Sprint(gpusPerNode * maxNodes)},
			"disruption": map[string]any{
				"consolidationPolicy": "WhenEmptyOrUnderutilized",
				"consolidateAfter":    c.consolidateAfter,
				"budgets":             []any{map[string]any{"nodes": "100%"}},
			},
			"template": map[string]any{
				"metadata": map[string]any{"labels": mine},
				"spec": map[string]any{
					"nodeClassRef":  map[string]any{"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": name},
					"expireAfter":   "Never",
					"startupTaints": startupTaints(wrong),
					"requirements": []any{map[string]any{
						"key": corev1.LabelInstanceTypeStable, "operator": "In", "values": []any{plane.InstanceType(gpusPerNode)},
					}},
				},
			},
		},
	}}
	if c.terminationGrace != "" {
		c.must(unstructured.SetNestedField(pool.Object, c.terminationGrace, "spec", "template", "spec", "terminationGracePeriod"))
	}
	_, err := shared.Dynamic.Resource(nodePoolResource).Create(c.Context(), pool, metav1.CreateOptions{})
	c.must(err)
}

// PriorityClass makes a PriorityClass and returns its name.
func (c *Case) PriorityClass(value int32) string {
	c.Helper()
	return c.makePriorityClass(fmt.Sprintf("%s-%d", c.Namespace, value), value, nil)
}

func (c *Case) makePriorityClass(name string, value int32, policy *corev1.PreemptionPolicy) string {
	c.Helper()
	_, err := shared.Client.SchedulingV1().PriorityClasses().Create(c.Context(), &schedulingv1.PriorityClass{
		ObjectMeta:       metav1.ObjectMeta{Name: name},
		Value:            value,
		PreemptionPolicy: policy,
	}, metav1.CreateOptions{})
	c.must(err)
	c.Cleanup(func() {
		_ = shared.Client.SchedulingV1().PriorityClasses().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	// What the API server asks of pods hears of it a moment later.
	pod := c.Pod("of-"+name, "nobody", 0)
	pod.Spec.PriorityClassName = name
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, err := shared.Client.CoreV1().Pods(c.Namespace).Create(c.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return name
		}
		if time.Now().After(deadline) {
			c.must(err)
		}
	}
}

// Pod describes a pod with one container that wants GPUs of the case's nodes.
func (c *Case) Pod(name, scheduler string, gpus int) *corev1.Pod {
	requests := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"),
		gpu:                *resource.NewQuantity(int64(gpus), resource.DecimalSI),
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.Namespace},
		Spec: corev1.PodSpec{
			SchedulerName:                 scheduler,
			NodeSelector:                  map[string]string{caseLabel: c.Namespace},
			TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name:      "worker",
				Image:     "worker",
				Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests},
			}},
		},
	}
}

// Create creates a pod or ends the test.
func (c *Case) Create(pod *corev1.Pod) *corev1.Pod {
	c.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		created, err := shared.Client.CoreV1().Pods(c.Namespace).Create(c.Context(), pod, metav1.CreateOptions{})
		if err == nil || !c.persistent || time.Now().After(deadline) {
			c.must(err)
			return created
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Claims returns the NodeClaims that Karpenter made for this case so far.
func (c *Case) Claims() []timeline.Event {
	return shared.Timeline.Events(func(event timeline.Event) bool {
		claim, ok := event.Object.(*unstructured.Unstructured)
		return ok && event.Type == "ADDED" && claim.GetKind() == "NodeClaim" && claim.GetLabels()[caseLabel] == c.Namespace
	})
}

// mine tells whether an object belongs to the case.
func (c *Case) mine(object metav1.Object) bool {
	return object.GetNamespace() == c.Namespace || object.GetLabels()[caseLabel] == c.Namespace
}

// story tells the case's events as lines of text, leaving out those in which
// nothing changed that a reader would look for.
func (c *Case) story() string {
	var lines strings.Builder
	last := map[string]string{}
	for _, event := range shared.Timeline.Events(func(event timeline.Event) bool { return c.mine(event.Object) }) {
		key := fmt.Sprintf("%T %s", event.Object, timeline.Key(event.Object))
		text := describe(event)
		if last[key] == text {
			continue
		}
		last[key] = text
		fmt.Fprintf(&lines, "%8.3f s  rev %-7d %s\n", event.At.Sub(c.Begin).Seconds(), event.Revision, text)
	}
	fmt.Fprintf(&lines, "muster's log: %s\n", c.muster().LogPath())
	return lines.String()
}

func describe(event timeline.Event) string {
	name := event.Object.GetName()
	if event.Type == "DELETED" {
		return fmt.Sprintf("%-9s %s deleted", kindOf(event.Object), name)
	}
	var facts []string
	if event.Object.GetDeletionTimestamp() != nil {
		facts = append(facts, "going")
	}
	switch object := event.Object.(type) {
	case *corev1.Pod:
		facts = append(facts, describePod(object)...)
	case *corev1.Node:
		facts = append(facts, describeNode(object)...)
	case *unstructured.Unstructured:
		facts = append(facts, describeConditions(object)...)
	}
	return fmt.Sprintf("%-9s %s: %s", kindOf(event.Object), name, strings.Join(facts, ", "))
}

func kindOf(object metav1.Object) string {
	switch object := object.(type) {
	case *corev1.Pod:
		return "Pod"
	case *corev1.Node:
		return "Node"
	case *unstructured.Unstructured:
		return object.GetKind()
	}
	return "?"
}

func describePod(pod *corev1.Pod) []string {
	facts := []string{string(pod.Status.Phase)}
	if gated(pod) {
		facts = append(facts, "gated")
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status != corev1.ConditionTrue {
			facts = append(facts, condition.Reason+": "+condition.Message)
		}
	}
	if pod.Status.NominatedNodeName != "" {
		facts = append(facts, "nominated to "+pod.Status.NominatedNodeName)
	}
	if bound(pod) {
		facts = append(facts, "bound to "+pod.Spec.NodeName)
	}
	return facts
}

func describeNode(node *corev1.Node) []string {
	gpus := node.Status.Allocatable[gpu]
	facts := []string{gpus.String() + " GPUs"}
	if nodeReady(node) {
		facts = append(facts, "ready")
	}
	for _, label := range []string{"karpenter.sh/registered", "karpenter.sh/initialized"} {
		if node.Labels[label] == "true" {
			facts = append(facts, strings.TrimPrefix(label, "karpenter.sh/"))
		}
	}
	for _, taint := range node.Spec.Taints {
		facts = append(facts, "taint "+taint.Key)
	}
	if held(node) {
		facts = append(facts, "held "+node.Annotations[holds])
	}
	return facts
}

func describeConditions(object *unstructured.Unstructured) []string {
	var facts []string
	if record := object.GetAnnotations()[gate]; record != "" {
		facts = append(facts, "record "+record)
	}
	if phase, _, _ := unstructured.NestedString(object.Object, "status", "phase"); phase != "" {
		facts = append(facts, phase)
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, raw := range conditions {
		condition, _ := raw.(map[string]any)
		facts = append(facts, fmt.Sprintf("%v=%v", condition["type"], condition["status"]))
	}
	slices.Sort(facts)
	return facts
}

func gated(pod *corev1.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 }

func bound(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" }

// signalled tells whether Karpenter would make a node for the pod.
func signalled(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
			return !bound(pod)
		}
	}
	return false
}

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// complete tells whether a node of Karpenter's is registered and initialized.
func complete(node *corev1.Node) bool {
	return node.Labels["karpenter.sh/registered"] == "true" && node.Labels["karpenter.sh/initialized"] == "true"
}

func held(node *corev1.Node) bool {
	return node.Annotations[holds] != "" || node.Annotations[doNotDisrupt] != ""
}
