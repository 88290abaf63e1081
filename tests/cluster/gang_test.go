package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// Gang is a PodGroup and its pods.
type Gang struct {
	*Case
	Name    string
	Members []string
	Created time.Time // when the last member was

	gpus          int // of each member
	priorityClass string
	edit          func(*corev1.Pod) // changes each member before it is created
}

// Gang makes a PodGroup and all its members.
func (c *Case) Gang(name string, size, gpus int) *Gang {
	c.Helper()
	g := c.PodGroup(name, size, gpus)
	g.AddMembers(size)
	return g
}

// PodGroup makes a PodGroup without members yet.
func (c *Case) PodGroup(name string, minMember, gpus int) *Gang {
	c.Helper()
	_, err := shared.Dynamic.Resource(timeline.PodGroups).Namespace(c.Namespace).Create(c.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": timeline.PodGroups.GroupVersion().String(),
		"kind":       "PodGroup",
		"metadata":   map[string]any{"name": name},
		"spec":       map[string]any{"minMember": int64(minMember)},
	}}, metav1.CreateOptions{})
	c.must(err)
	return &Gang{Case: c, Name: name, gpus: gpus}
}

// AddMembers creates further members.
func (g *Gang) AddMembers(count int) {
	g.Helper()
	for range count {
		pod := g.Pod(fmt.Sprintf("%s-%d", g.Name, len(g.Members)), plane.SchedulerName, g.gpus)
		pod.Labels = map[string]string{podGroupLabel: g.Name}
		pod.Spec.PriorityClassName = g.priorityClass
		if g.edit != nil {
			g.edit(pod)
		}
		g.Create(pod)
		g.Members = append(g.Members, pod.Name)
	}
	g.Created = time.Now()
}

// Delete deletes the gang's pods at once, as the end of its job would. Some may be
// gone already.
func (g *Gang) Delete() {
	g.Helper()
	for _, member := range g.Members {
		err := shared.Client.CoreV1().Pods(g.Namespace).Delete(g.Context(), member, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if !apierrors.IsNotFound(err) {
			g.must(err)
		}
	}
}

// pods returns the members that exist, from a state of the timeline.
func (g *Gang) pods(state *timeline.State) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range state.Pods {
		if pod.Namespace == g.Namespace && strings.HasPrefix(pod.Name, g.Name+"-") {
			pods = append(pods, pod)
		}
	}
	return pods
}

// Count counts the members for which the predicate holds now.
func (g *Gang) Count(predicate func(*corev1.Pod) bool) int {
	count := 0
	shared.Timeline.Look(func(state *timeline.State) { count = countPods(g.pods(state), predicate) })
	return count
}

func countPods(pods []*corev1.Pod, predicate func(*corev1.Pod) bool) int {
	count := 0
	for _, pod := range pods {
		if predicate(pod) {
			count++
		}
	}
	return count
}

// AwaitAll waits until the predicate holds for all members at once.
func (g *Gang) AwaitAll(what string, patience time.Duration, predicate func(*corev1.Pod) bool) {
	g.Helper()
	if err := shared.Timeline.Await(patience, func(state *timeline.State) string {
		if count := countPods(g.pods(state), predicate); count < len(g.Members) {
			return fmt.Sprintf("gang %s: %d of %d members are %s", g.Name, count, len(g.Members), what)
		}
		return ""
	}); err != nil {
		g.Fatalf("%v\nmuster says: %s", err, g.Explained())
	}
}

// AwaitBound waits until every member is bound.
func (g *Gang) AwaitBound(patience time.Duration) {
	g.Helper()
	g.AwaitAll("bound", patience, bound)
}

// Moments returns, for each member that exists or existed, the first event in
// which the predicate held.
func (g *Gang) Moments(predicate func(*corev1.Pod) bool) []timeline.Event {
	var moments []timeline.Event
	for _, member := range g.Members {
		history := shared.Timeline.PodEvents(g.Namespace, member)
		if event, ok := timeline.First(history, func(object metav1.Object) bool { return predicate(object.(*corev1.Pod)) }); ok {
			moments = append(moments, event)
		}
	}
	slices.SortFunc(moments, func(a, b timeline.Event) int { return int(a.Revision - b.Revision) })
	return moments
}

// spread is the time from the first of the moments to the last.
func spread(moments []timeline.Event) time.Duration {
	if len(moments) == 0 {
		return 0
	}
	first, last := moments[0].At, moments[0].At
	for _, moment := range moments {
		if moment.At.Before(first) {
			first = moment.At
		}
		if moment.At.After(last) {
			last = moment.At
		}
	}
	return last.Sub(first)
}

// AwaitHoldsGone waits until none of the case's nodes is held any more.
func (c *Case) AwaitHoldsGone(patience time.Duration) {
	c.Helper()
	if err := shared.Timeline.Await(patience, func(state *timeline.State) string {
		for _, node := range state.Nodes {
			if c.mine(node) && held(node) {
				return fmt.Sprintf("node %s is still held: %s=%q %s=%q", node.Name,
					holds, node.Annotations[holds], doNotDisrupt, node.Annotations[doNotDisrupt])
			}
		}
		return ""
	}); err != nil {
		c.Error(err)
	}
}

// Ask returns what Muster's REST interface says about the gang.
func (g *Gang) Ask() (map[string]any, error) {
	return g.muster().Get(g.resource())
}

func (g *Gang) resource() string { return "/v1/gangs/" + g.Namespace + "/" + g.Name }

// muster is the one that is asked.
func (c *Case) muster() *plane.Muster {
	if c.leader != nil {
		return c.leader()
	}
	return shared.Muster
}

// Explained is the gang's state and reason in one line, for messages.
func (g *Gang) Explained() string {
	answer, err := g.Ask()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%v: %s", answer["state"], reasonText(answer))
}

// AwaitAnswer polls Muster's answer until it satisfies the condition, which
// returns what is still missing.
func (g *Gang) AwaitAnswer(patience time.Duration, condition func(answer map[string]any) string) {
	g.Helper()
	deadline := time.Now().Add(patience)
	for {
		answer, err := g.Ask()
		missing := ""
		if err != nil {
			missing = err.Error()
		} else if missing = condition(answer); missing == "" {
			return
		}
		if time.Now().After(deadline) {
			g.Fatalf("gang %s after %v: %s\nmuster says: %v", g.Name, patience, missing, answer)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// reasonText is the reason of an answer: code, message and fix.
func reasonText(answer map[string]any) string {
	reason, _ := answer["reason"].(map[string]any)
	return strings.TrimSpace(fmt.Sprintf("%v %v %v", reason["code"], reason["message"], reason["fix"]))
}

// patchStatus writes a merge patch on a pod's status, as a scheduler would.
func (c *Case) patchStatus(pod, patch string) {
	c.Helper()
	_, err := shared.Client.CoreV1().Pods(c.Namespace).Patch(c.Context(), pod, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	c.must(err)
}

// setScheduleTimeout sets how long the gang may wait for its nodes.
func (g *Gang) setScheduleTimeout(seconds int64) {
	g.Helper()
	patch := fmt.Sprintf(`{"spec":{"scheduleTimeoutSeconds":%d}}`, seconds)
	_, err := shared.Dynamic.Resource(timeline.PodGroups).Namespace(g.Namespace).Patch(g.Context(), g.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	g.must(err)
}
