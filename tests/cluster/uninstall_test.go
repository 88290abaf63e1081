package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// Muster is taken out of a cluster as deploy/README.md says, with gangs in each state and pods that
// go on being created: none is refused, none is stuck, and nothing of it is left but what is named.

// onItsOwnPlane runs the rest of a test on a control plane that no other case sees afterwards.
func onItsOwnPlane(t *testing.T, changes ...func(*plane.Options)) {
	t.Helper()
	others := shared
	options, err := plane.Locate(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(&options)
	}
	if shared, err = plane.Start(options); err != nil {
		shared = others
		t.Fatal(err)
	}
	t.Cleanup(func() {
		own := shared
		shared = others
		own.Stop()
		if !t.Failed() {
			_ = os.RemoveAll(own.Folder)
		}
	})
}

// leaving are the cases of such a cluster, and who creates pods in it all the while.
type leaving struct {
	*Case  // without quota
	quota  *Case
	coming *Case // whose nodes don't all come

	holds, queued, runs, short, early *Gang

	stop    chan struct{}
	over    sync.WaitGroup
	created int
	refused []error
}

func TestMusterLeavesAndNothingIsRefusedOrStuck(t *testing.T) {
	onItsOwnPlane(t)
	l := &leaving{quota: newQuotaCase(t, "quota"), Case: newGangCase(t, "plain"), coming: newGangCase(t, "coming"), stop: make(chan struct{})}
	l.fill()
	l.createOn()

	// Its webhooks go while it runs, and nothing else.
	output := l.command(1)
	l.says(output, "muster uninstall --yes is to:", "delete its webhooks", "A Muster is alive", "--gates=lift")
	output = l.command(1, "--yes", "--gates=lift")
	l.says(output, "done: delete its webhooks", "A Muster is alive")
	if strings.Contains(output, "done: give") {
		t.Error("it took nodes from a Muster that runs")
	}
	l.must(shared.StandAside())
	l.leaveBehind()

	output = l.command(1, "--yes")
	l.says(output, "pods wait behind Muster's gate, and 1 jobs", "--gates=keep")
	output = l.command(0, "--yes", "--gates=lift")
	l.says(output, "done: resume 1 jobs", "done: lift the gate of", "done: delete Lease muster-system/coscheduling", "what stays")
	output = l.command(0, "--yes", "--gates=lift")
	l.says(output, "Nothing is left to do.")
	l.checkGivenBack()

	mustKubectl(t, "delete", "--ignore-not-found", "--kustomize=../../deploy/base", "--timeout=120s")
	l.checkNothingIsLeft("PodGroup", "Workload", "CustomResourceDefinition")

	// Whoever schedules under its name starts what waited; what ran is as it was.
	l.must(shared.ScheduleStock())
	l.awaitStarted()
	close(l.stop)
	l.over.Wait()
	if len(l.refused) > 0 {
		t.Errorf("of %d pods %d were refused, the first: %v", l.created, len(l.refused), l.refused[0])
	}
	t.Logf("%d pods were created all the while", l.created)
	for _, c := range []*Case{l.quota, l.Case, l.coming} {
		mustKubectl(t, "delete", "namespace", c.Namespace, "--timeout=60s")
	}
	mustKubectl(t, "delete", "clusterqueues.kueue.x-k8s.io,resourceflavors.kueue.x-k8s.io", "--all", "--timeout=30s")
}

// fill makes a gang of each state.
func (l *leaving) fill() {
	l.Helper()
	l.quota.flavorNodes(usage{"nvidia": 4})
	l.quota.ApplyQuota(nominalQuota(usage{"nvidia": 2, "nvidia-efa": 0}), onNodesLabelled)
	l.holds = l.quota.quotaGang("holds", 2, 1)
	l.holds.AwaitBound(time.Minute)
	l.queued = l.quota.quotaGang("queued", 2, 1)
	l.queued.awaitState(30*time.Second, "WAITING_FOR_QUOTA")
	l.quota.Apply("job.yaml", renamed("suspended"), queuedIn("default"), scheduledBy(plane.SchedulerName), withoutNodeSelector, ofSize(2), suspended)

	l.Nodes(2, 4)
	l.runs = l.Gang("runs", 2, 1)
	l.runs.AwaitBound(time.Minute)
	l.short = l.PodGroup("short", 3, 1)
	l.short.AddMembers(2)
	l.short.awaitState(30*time.Second, "WAITING_FOR_MEMBERS")
	l.Apply("job.yaml", renamed("restarting"), scheduledBy(plane.SchedulerName), ofSize(2), suspended,
		eachPodSpec(func(spec map[string]any) { spec["nodeSelector"] = map[string]any{caseLabel: l.Namespace} }))

	l.coming.NodePool("early", 1, 1, 0)
	l.coming.NodePool("late", 1, 1, time.Hour)
	l.early = l.coming.Gang("coming", 2, 1)
	l.coming.awaitNodesHeld(1)
}

// createOn creates pods until it is stopped.
func (l *leaving) createOn() {
	l.over.Go(func() {
		for {
			select {
			case <-l.stop:
				return
			case <-time.After(500 * time.Millisecond):
			}
			pod := l.Pod(fmt.Sprintf("fresh-%d", l.created), plane.SchedulerName, 0)
			withoutCPU(pod)
			l.created++
			if _, err := shared.Client.CoreV1().Pods(l.Namespace).Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
				l.refused = append(l.refused, err)
			}
		}
	})
}

// leaveBehind is what a Muster leaves that ended in the middle: a job that it was to resume, and a
// node that it suspected.
func (l *leaving) leaveBehind() {
	l.Helper()
	mustKubectl(l.T, "annotate", "job", "restarting", "--namespace="+l.Namespace, restartAnnotation+`={"at":"2026-01-01T00:00:00Z","why":"its nodes didn't come"}`)
	node := l.Namespace + "-1"
	mustKubectl(l.T, "annotate", "node", node, "muster.dev/suspect={}")
	mustKubectl(l.T, "taint", "node", node, "muster.dev/suspect=until:NoSchedule")
}

// command runs `muster uninstall`, logs what it printed and expects this exit code.
func (l *leaving) command(code int, arguments ...string) string {
	l.Helper()
	output, got, err := shared.Muster.Command(append([]string{"uninstall"}, arguments...)...)
	l.must(err)
	l.Logf("muster uninstall %s: exit code %d\n%s", strings.Join(arguments, " "), got, output)
	if got != code {
		l.Fatalf("muster uninstall %s: exit code %d, want %d", strings.Join(arguments, " "), got, code)
	}
	return output
}

func (l *leaving) says(output string, words ...string) {
	l.Helper()
	for _, each := range words {
		if !strings.Contains(output, each) {
			l.Errorf("it doesn't say %q", each)
		}
	}
}

func (l *leaving) checkGivenBack() {
	l.Helper()
	if err := shared.Timeline.Await(10*time.Second, func(state *timeline.State) string {
		for _, node := range state.Nodes {
			if held(node) || slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return strings.HasPrefix(taint.Key, "muster.dev/") }) {
				return fmt.Sprintf("node %s is still held or tainted: %v %v", node.Name, node.Annotations, node.Spec.Taints)
			}
		}
		for _, pod := range state.Pods {
			switch {
			case gated(pod):
				return fmt.Sprintf("pod %s is still gated", pod.Name)
			case signalled(pod):
				return fmt.Sprintf("pod %s still asks for a node", pod.Name)
			}
		}
		for _, object := range state.Workloads {
			if slices.Contains(object.GetFinalizers(), inUse) {
				return fmt.Sprintf("Workload %s still has its finalizer", object.GetName())
			}
		}
		return ""
	}); err != nil {
		l.Error(err)
	}
}

// checkNothingIsLeft looks for Muster's name in all that the API server has, who wrote it apart.
func (l *leaving) checkNothingIsLeft(but ...string) {
	l.Helper()
	left := map[string][]string{}
	// The tests' own label, and what people wrote themselves.
	ofTests := regexp.MustCompile(`tests\.muster\.dev`)
	for _, kind := range strings.Fields(mustKubectl(l.T, "api-resources", "--verbs=list", "--output=name")) {
		if strings.HasPrefix(kind, "events") || kind == "componentstatuses" {
			continue
		}
		var list struct{ Items []*unstructured.Unstructured }
		output := mustKubectl(l.T, "get", kind, "--all-namespaces", "--output=json")
		// After warnings of kinds that are deprecated.
		_, objects, _ := strings.Cut(output, "{")
		l.must(json.Unmarshal([]byte("{"+objects), &list))
		for _, object := range list.Items {
			object.SetManagedFields(nil)
			if object.GetKind() == "Pod" {
				// What it was told last, until somebody tells it something else.
				unstructured.RemoveNestedField(object.Object, "status")
			}
			text, err := json.Marshal(object)
			l.must(err)
			if strings.Contains(ofTests.ReplaceAllString(string(text), ""), "muster") && !slices.Contains(but, object.GetKind()) {
				left[object.GetKind()] = append(left[object.GetKind()], object.GetNamespace()+"/"+object.GetName()+": "+string(text))
			}
		}
	}
	for kind, objects := range left {
		l.Errorf("%d of %s speak of Muster, for example %s", len(objects), kind, objects[0])
	}
}

func (l *leaving) awaitStarted() {
	l.Helper()
	for _, g := range []*Gang{l.queued, l.short} {
		if err := shared.Timeline.Await(time.Minute, func(state *timeline.State) string {
			if count := countPods(g.pods(state), bound); count < len(g.Members) {
				return fmt.Sprintf("gang %s: %d of %d members are bound", g.Name, count, len(g.Members))
			}
			return ""
		}); err != nil {
			l.Error(err)
		}
	}
	if err := shared.Timeline.Await(time.Minute, func(state *timeline.State) string {
		if count := countPods((&Gang{Case: l.Case, Name: "restarting"}).pods(state), bound); count < 2 {
			return fmt.Sprintf("of the job that was resumed %d pods are bound", count)
		}
		if count := countPods((&Gang{Case: l.Case, Name: "fresh"}).pods(state), bound); count < l.created-20 {
			return fmt.Sprintf("of %d fresh pods %d are bound", l.created, count)
		}
		return ""
	}); err != nil {
		l.Error(err)
	}
	for _, g := range []*Gang{l.holds, l.runs} {
		for _, member := range g.Members {
			versions := shared.Timeline.PodEvents(g.Namespace, member)
			first, last := versions[0].Object.(*corev1.Pod), versions[len(versions)-1]
			now := last.Object.(*corev1.Pod)
			if last.Type == "DELETED" || now.UID != first.UID || now.DeletionTimestamp != nil || !bound(now) {
				l.Errorf("pod %s, which ran, is %s, deleted %v", member, now.Status.Phase, now.DeletionTimestamp)
			}
		}
	}
}
