package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/kubelet"
	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// Gangs of which each is in another state when the version changes, and what is to come of them.

const (
	// Nodes that come after the change of version.
	lateNodes = 80 * time.Second
	// What may pass until whatever was waited for has come.
	stagePatience = 3 * time.Minute
)

// Of the queue whose quota is scarce.
var stageQuota = usage{"nvidia": 6, "nvidia-efa": 0}

// Where there are queues the version before had everything under quota.
const (
	roomyQueue = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: roomy}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu, cpu]
    flavors: [{name: any, resources: [{name: nvidia.com/gpu, nominalQuota: 1000}, {name: cpu, nominalQuota: 1000}]}]
`
	roomyLocalQueue = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: default, namespace: %s}
spec: {clusterQueue: roomy}
`
)

// eachState are such gangs.
type eachState struct {
	*upgrade
	plain, coming, commits, failing *Case

	short  *Gang // lacks a member
	runs   *Gang
	done   *Gang // has succeeded
	never  *Gang // fits on no node
	early  *Gang // one of its nodes is there and held
	commit *Gang // one of its members is bound
	failed *Gang // gave up as its nodes didn't come

	running   map[string]types.UID // pods that nothing may happen to, by namespace/name
	turnstile *turnstile
	node      string // that is held

	// With queues:
	holds     *Gang // has quota, and runs
	high      *Gang // likewise, having displaced a job
	queued    *Gang // waits for quota
	displaced *Gang // that job
	falls     *Gang // gave up its first flavor, and waits for nodes of the second
}

func (u *upgrade) fill() *eachState {
	u.Helper()
	began := time.Now()
	s := &eachState{upgrade: u, plain: u.newCase("plain"), coming: u.newCase("coming"), commits: u.newCase("commits"), failing: u.newCase("failing"),
		running: map[string]types.UID{}}
	s.failing.NodePool("never", 1, 2, time.Hour)
	s.failed = s.failing.PodGroup("failed", 2, 1)
	s.failed.setScheduleTimeout(10)
	s.failed.AddMembers(2)
	if u.queues {
		s.fillQuota()
	}

	s.plain.Nodes(4, 4)
	s.runs = s.plain.Gang("runs", 2, 1)
	s.done = s.plain.Gang("done", 2, 1)
	s.never = s.plain.Gang("never", 2, 16)
	s.short = s.plain.PodGroup("short", 3, 1)
	s.short.AddMembers(2)
	s.awaitWhole(time.Minute, s.runs, s.done)
	s.leaveAlone(s.runs, s.done)
	s.done.succeed()
	s.short.awaitSays(30*time.Second, "MembersMissing")

	s.failed.awaitGaveUp(time.Minute)
	if s.queues {
		s.awaitFalling()
	}

	s.coming.NodePool("early", 1, 1, 0)
	s.coming.NodePool("late", 1, 1, lateNodes)
	s.early = s.coming.Gang("early", 2, 1)
	s.coming.awaitNodesHeld(1)
	shared.Timeline.Look(func(state *timeline.State) {
		for _, node := range state.Nodes {
			if s.coming.mine(node) && held(node) {
				s.node = node.Name
			}
		}
	})

	s.commits.Nodes(3, 1)
	s.turnstile = s.commits.turnstile(binding, 1)
	s.commit = s.commits.Gang("commit", 3, 1)
	s.must(s.turnstile.awaitFull(s.commit, 30*time.Second))
	u.Logf("filled after %v", time.Since(began).Round(time.Second))
	return s
}

func (s *eachState) fillQuota() {
	s.Helper()
	s.holds = s.quota.prioritizedGang("holds", 2, 1, s.class(1000))
	s.awaitWhole(time.Minute, s.holds)
	s.quota.Apply("job.yaml", renamed("displaced"), queuedIn("default"), scheduledBy(plane.SchedulerName), withoutNodeSelector, ofSize(4), ofPriority(s.class(10)), thatRuns)
	s.displaced = s.quota.AwaitPods("displaced", 4, time.Minute)
	s.awaitWhole(time.Minute, s.displaced)
	s.high = s.quota.prioritizedGang("high", 4, 1, s.class(100))
	s.awaitWhole(time.Minute, s.high)
	s.leaveAlone(s.holds, s.high)
	s.queued = s.quota.prioritizedGang("queued", 2, 1, s.class(50))
	s.queued.awaitSays(30*time.Second, "QuotaInUse", "Preempting")

	// Its first flavor has no nodes, ever.
	s.falls = s.fallback.impatientJob(2, 12)
}

// class is a PriorityClass of that value; they outlive the gangs of one round.
func (s *eachState) class(value int32) string {
	s.Helper()
	name := fmt.Sprintf("%s-%d", s.quota.Namespace, value)
	if _, err := shared.Client.SchedulingV1().PriorityClasses().Get(s.Context(), name, metav1.GetOptions{}); err == nil {
		return name
	}
	return s.quota.PriorityClass(value)
}

func ofPriority(class string) Change {
	return eachPodSpec(func(spec map[string]any) { spec["priorityClassName"] = class })
}

// thatRuns makes the pods of a Job run until they are deleted.
func thatRuns(object *unstructured.Unstructured) {
	if object.GetKind() == "Job" {
		_ = unstructured.SetNestedField(object.Object, kubelet.RunsProcesses, "spec", "template", "metadata", "annotations", kubelet.Annotation)
		_ = unstructured.SetNestedField(object.Object, int64(0), "spec", "template", "spec", "terminationGracePeriodSeconds")
	}
}

// intoClusterQueue gives the ClusterQueue of a file another name.
func intoClusterQueue(name string) Change {
	return func(object *unstructured.Unstructured) {
		switch object.GetKind() {
		case "ClusterQueue":
			object.SetName(name)
		case "LocalQueue":
			_ = unstructured.SetNestedField(object.Object, name, "spec", "clusterQueue")
		}
	}
}

// awaitFalling waits until the job's pods are of the second flavor.
func (s *eachState) awaitFalling() {
	s.Helper()
	s.must(shared.Timeline.Await(time.Minute, func(state *timeline.State) string {
		pods := s.falls.pods(state)
		for _, pod := range pods {
			if !strings.HasSuffix(pod.Spec.NodeSelector[nodePoolLabel], "-second") {
				_, message := s.falls.reasonIn(state)
				return fmt.Sprintf("pod %s is to go to %q: %s", pod.Name, pod.Spec.NodeSelector[nodePoolLabel], message)
			}
		}
		return fmt.Sprint(map[bool]string{true: "", false: "the job has no pods"}[len(pods) == 2])
	}))
}

// awaitGaveUp waits until the record says so.
func (g *Gang) awaitGaveUp(patience time.Duration) {
	g.Helper()
	g.must(shared.Timeline.Await(patience, func(state *timeline.State) string {
		if group := state.PodGroups[g.Namespace+"/"+g.Name]; group == nil || !strings.Contains(group.GetAnnotations()[gate], "retryAfter") {
			return "gang " + g.Name + " hasn't given up"
		}
		return ""
	}))
}

// awaitWhole waits until all members of each are bound.
func (s *eachState) awaitWhole(patience time.Duration, gangs ...*Gang) {
	s.Helper()
	for _, g := range gangs {
		if err := shared.Timeline.Await(patience, func(state *timeline.State) string {
			if count := countPods(g.pods(state), bound); count < len(g.Members) {
				code, message := g.reasonIn(state)
				return fmt.Sprintf("gang %s: %d of %d members are bound: %s %s", g.Name, count, len(g.Members), code, message)
			}
			return ""
		}); err != nil {
			s.Error(err)
		}
	}
}

// leaveAlone says that nothing may happen to these from now on.
func (s *eachState) leaveAlone(gangs ...*Gang) {
	s.Helper()
	shared.Timeline.Look(func(state *timeline.State) {
		for _, g := range gangs {
			for _, pod := range g.pods(state) {
				s.running[timeline.Key(pod)] = pod.UID
			}
		}
	})
}

// checkRan sees that what ran is as it was.
func (s *eachState) checkRan() {
	s.Helper()
	shared.Timeline.Look(func(state *timeline.State) {
		for name, uid := range s.running {
			pod := state.Pods[name]
			if pod == nil || pod.UID != uid || pod.DeletionTimestamp != nil || !bound(pod) {
				s.Errorf("pod %s, which ran, is gone or going", name)
			}
		}
	})
}

// checkGoesOn is right after a change of version.
func (s *eachState) checkGoesOn() {
	s.Helper()
	s.awaitCommitted()
	s.fresh.awaitBound(soonAfterRollout)
	s.checkRan()
	s.checkWholeOrNone()
	if s.queues {
		s.checkQuota()
		return
	}
	shared.Timeline.Look(func(state *timeline.State) {
		if node := state.Nodes[s.node]; node == nil || node.DeletionTimestamp != nil {
			s.Errorf("node %s, which was held for a gang, is gone", s.node)
		}
	})
}

// awaitCommitted waits until a gang that was being bound is whole, or, where its quota got lost, has
// been restarted whole.
func (s *eachState) awaitCommitted() {
	s.Helper()
	if !s.queues {
		s.awaitWhole(soonAfterRollout, s.commit)
		return
	}
	if err := shared.Timeline.Await(soonAfterRollout+hastyRepair, func(state *timeline.State) string {
		if count := countPods(s.commit.pods(state), bound); count != 0 && count != len(s.commit.Members) {
			code, message := s.commit.reasonIn(state)
			return fmt.Sprintf("gang %s: %d of %d members are bound: %s %s", s.commit.Name, count, len(s.commit.Members), code, message)
		}
		return ""
	}); err != nil {
		s.Error(err)
	}
}

func (s *eachState) all() []*Gang {
	gangs := []*Gang{s.short, s.runs, s.done, s.never, s.early, s.commit, s.failed}
	if s.queues {
		gangs = append(gangs, s.queued)
	}
	return gangs
}

func (s *eachState) checkWholeOrNone() {
	s.Helper()
	shared.Timeline.Look(func(state *timeline.State) {
		for _, g := range s.all() {
			if count := countPods(g.pods(state), bound); count != 0 && count != len(g.Members) {
				s.Errorf("of gang %s %d of %d members are bound", g.Name, count, len(g.Members))
			}
		}
	})
}

// end gives each gang what it waits for, and takes all of them away.
func (s *eachState) end() {
	s.Helper()
	began := time.Now()
	s.short.AddMembers(1)
	for _, member := range s.failed.Members {
		// Whoever gave up tries again later; here the pods go to nodes that are there.
		s.failing.must(deletePod(s.failing, member))
	}
	s.awaitWhole(time.Minute, s.short)
	s.awaitWhole(lateNodes+time.Minute, s.early)
	shared.Timeline.Look(func(state *timeline.State) {
		if !s.queues && !slices.ContainsFunc(s.early.pods(state), func(pod *corev1.Pod) bool { return pod.Spec.NodeName == s.node }) {
			s.Errorf("nobody of gang early is on %s, which was held for it", s.node)
		}
	})
	if s.queues {
		s.endQuota()
	}
	s.checkRan()
	s.checkWholeOrNone()
	shared.Timeline.Look(func(state *timeline.State) {
		if count := countPods(s.never.pods(state), signalled); count > 0 {
			s.Errorf("%d members of a gang that fits nowhere ask for nodes", count)
		}
	})
	s.Logf("all of it went on after %v", time.Since(began).Round(time.Second))
	s.remove()
}

func deletePod(c *Case, name string) error {
	return shared.Client.CoreV1().Pods(c.Namespace).Delete(c.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

// remove deletes the gangs, and waits until nothing of them is left: no finalizer keeps anything.
func (s *eachState) remove() {
	s.Helper()
	for _, c := range []*Case{s.plain, s.coming, s.commits, s.failing} {
		c.clear()
	}
	if s.queues {
		for _, g := range []*Gang{s.holds, s.high, s.queued} {
			g.removeAll()
		}
		for _, job := range []*Gang{s.displaced, s.falls} {
			mustKubectl(s.T, "delete", "job", job.Name, "--namespace="+job.Namespace, "--ignore-not-found", "--timeout=60s")
		}
		mustKubectl(s.T, "delete", "podgroups.scheduling.x-k8s.io", "--all", "--namespace="+s.fallback.Namespace, "--timeout=60s")
	}
	for _, c := range []*Case{s.plain, s.coming, s.commits, s.failing} {
		if output, err := shared.Kubectl("delete", "namespace", c.Namespace, "--ignore-not-found", "--timeout=60s"); err != nil {
			left, _ := shared.Kubectl("get", "namespace", c.Namespace, "--output=jsonpath={.status.conditions}")
			s.Errorf("namespace %s can't be deleted: %v %s: %s", c.Namespace, err, output, left)
		}
	}
	if s.queues {
		s.awaitNoWorkloads()
	}
}

func (g *Gang) removeAll() {
	g.Helper()
	g.Delete()
	mustKubectl(g.T, "delete", "pg", g.Name, "--namespace="+g.Namespace, "--ignore-not-found", "--timeout=60s")
}

// awaitNoWorkloads waits until the quota of what has gone is nobody's.
func (s *eachState) awaitNoWorkloads() {
	s.Helper()
	if err := shared.Timeline.Await(30*time.Second, func(state *timeline.State) string {
		for _, object := range state.Workloads {
			if object.GetNamespace() == s.quota.Namespace || object.GetNamespace() == s.fallback.Namespace {
				return fmt.Sprintf("Workload %s/%s is left, with finalizers %v, deleted %v", object.GetNamespace(), object.GetName(), object.GetFinalizers(), object.GetDeletionTimestamp())
			}
		}
		return ""
	}); err != nil {
		s.Error(err)
	}
}

// ---- Quota ----

// checkQuota recounts: of pods and, where this version runs, of Workloads.
func (s *eachState) checkQuota() {
	s.Helper()
	pods := map[string]*corev1.Pod{}
	for _, event := range shared.Timeline.Events(func(event timeline.Event) bool {
		_, ok := event.Object.(*corev1.Pod)
		return ok && event.Object.GetNamespace() == s.quota.Namespace
	}) {
		if event.Type == "DELETED" {
			delete(pods, event.Object.GetName())
		} else {
			pods[event.Object.GetName()] = event.Object.(*corev1.Pod)
		}
		if used := gpusInUse(pods); used > stageQuota["nvidia"] {
			s.Fatalf("at %s %d GPUs are in use under a quota of %d", event.At.Format("15:04:05"), used, stageQuota["nvidia"])
		}
		if s.highest == nil {
			s.highest = usage{}
		}
		s.highest["nvidia"] = max(s.highest["nvidia"], gpusInUse(pods))
	}
	if s.old {
		return
	}
	got, want := "", ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		sum := usage{}
		shared.Timeline.Look(func(state *timeline.State) { sum = recount(state.Workloads, s.quota.Namespace) })
		queue, err := shared.Dynamic.Resource(clusterQueueResource).Get(s.Context(), clusterQueueName, metav1.GetOptions{})
		s.must(err)
		status, _ := queue.Object["status"].(map[string]any)
		if got, want = flavorTotals(status["flavorsReservation"]).String(), sum.String(); got == want {
			s.Logf("the queue says %s, as its Workloads do", got)
			return
		}
	}
	s.Errorf("the queue says that %s is reserved, its Workloads %s", got, want)
}

// endQuota gives quota back, so that who waits gets it.
func (s *eachState) endQuota() {
	s.Helper()
	time.Sleep(3 * time.Second)
	if count := s.queued.Count(bound); count > 0 {
		s.Errorf("%d members of a gang that waits for quota are bound", count)
	}
	for _, g := range []*Gang{s.holds, s.high} {
		for _, member := range g.Members {
			delete(s.running, g.Namespace+"/"+member)
		}
		g.removeAll()
	}
	if s.old {
		s.resumeQueue(clusterQueueName)
		s.quota.resume("displaced")
	}
	s.awaitWhole(stagePatience, s.queued)
	s.awaitDisplaced()
	s.falls.awaitDoneOn("second", 2, stagePatience)
	s.checkQuota()
}

// awaitDisplaced waits until the job that was displaced runs again.
func (s *eachState) awaitDisplaced() {
	s.Helper()
	if err := shared.Timeline.Await(stagePatience, func(state *timeline.State) string {
		if count := countPods(s.displaced.pods(state), bound); count != 4 {
			job := "no Job"
			if found, err := shared.Client.BatchV1().Jobs(s.quota.Namespace).Get(context.Background(), "displaced", metav1.GetOptions{}); err == nil {
				job = fmt.Sprintf("suspend %v, annotations %v", *found.Spec.Suspend, found.Annotations)
			}
			return fmt.Sprintf("%d of 4 pods of the job that was displaced run; %s", count, job)
		}
		return ""
	}); err != nil {
		s.Error(err)
	}
}

// resume is by hand.
func (c *Case) resume(job string) {
	c.Helper()
	_, err := shared.Client.BatchV1().Jobs(c.Namespace).Patch(c.Context(), job, types.MergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{})
	c.must(err)
}
