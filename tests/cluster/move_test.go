package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/kubelet"
	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// A cluster changes from Kueue to Muster and back, as docs/from-kueue.md says, with everything that
// runs and waits there. What is used is counted here once from the pods and once from the Workloads,
// by nothing of Muster's.

const (
	moveFirst, moveSecond = "nvidia", "nvidia-efa"
	kueueManaged          = "kueue.x-k8s.io/managed"
	inUse                 = "kueue.x-k8s.io/resource-in-use"
)

var moveKinds = []string{"job", "jobset", "pytorchjob", "pod", "group"}

// movingCase has pods of one or two GPUs on nodes of two flavors, and remembers which pods must
// stay as they are.
type movingCase struct {
	*Case
	kueue    *plane.Peer
	nominal  []usageSince
	standing map[string]*corev1.Pod // by name: as they were when they began to run
	members  map[string]int         // how many pods each has, by its name
	handover [2]time.Time           // when `muster move out --apply` began, and when all that it did was seen
}

// usageSince is a quota and the time from which it was in force.
type usageSince struct {
	at    time.Time
	quota usage
}

func newMovingCase(t *testing.T) *movingCase {
	t.Helper()
	c := &movingCase{Case: newCase(t, "move"), standing: map[string]*corev1.Pod{}, members: map[string]int{}}
	c.must(shared.Muster.Stop())
	// The next case has the usual one again.
	t.Cleanup(func() { c.must(shared.Muster.Stop()) })
	c.started(shared.StartTrainingOperator(""))
	c.started(shared.StartJobSet())
	c.kueue = c.started(shared.StartKueue(plane.Kueue{LeaderElection: true, Frameworks: []string{
		"batch/job", "jobset.x-k8s.io/jobset", "kubeflow.org/pytorchjob", "pod",
	}}))
	c.must(shared.Muster.Start(plane.Launch{Quota: "kueue"}))
	var names []string
	for flavor, count := range map[string]int{moveFirst: 7, moveSecond: 4} {
		for i := range count {
			names = append(names, fmt.Sprintf("%s-%s-%d", c.Namespace, flavor, i))
			c.flavorNode(names[len(names)-1], flavor, 8)
		}
	}
	c.AwaitReady(names...)
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go c.runPods(done)
	return c
}

// runPods is the kubelet of the case: kwok would end pods of Jobs at once.
func (c *movingCase) runPods(done chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(200 * time.Millisecond):
		}
		var begin []string
		shared.Timeline.Look(func(state *timeline.State) {
			for _, pod := range state.Pods {
				if pod.Namespace == c.Namespace && bound(pod) && pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil {
					begin = append(begin, pod.Name)
				}
			}
		})
		for _, name := range begin {
			// One that is gone meanwhile is gone.
			_, _ = shared.Client.CoreV1().Pods(c.Namespace).Patch(context.Background(), name, types.StrategicMergePatchType,
				[]byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status")
		}
	}
}

// ranByCase leaves a template's pods to runPods; nobody else ends them, so they go at once.
func ranByCase(object *unstructured.Unstructured) {
	eachMap(object.Object, func(template map[string]any) {
		spec, ok := template["spec"].(map[string]any)
		if _, isPod := spec["containers"].([]any); !ok || !isPod {
			return
		}
		spec["terminationGracePeriodSeconds"] = int64(0)
		template["metadata"] = map[string]any{"annotations": map[string]any{kubelet.Annotation: kubelet.RunsProcesses}}
	})
}

// setQuota changes what the ClusterQueue may give.
func (c *movingCase) setQuota(quota usage) {
	c.Helper()
	c.nominal = append(c.nominal, usageSince{time.Now(), quota})
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota","value":"%d"},
		{"op":"replace","path":"/spec/resourceGroups/0/flavors/1/resources/0/nominalQuota","value":"%d"}]`, quota[moveFirst], quota[moveSecond])
	_, err := shared.Kubectl("patch", "clusterqueues.v1beta2.kueue.x-k8s.io", clusterQueueName, "--type=json", "--patch="+patch)
	c.must(err)
}

// submit creates one of a kind, of two GPUs, whose pods name this scheduler.
func (c *movingCase) submit(kind, name, scheduler string, changes ...Change) {
	c.Helper()
	c.members[name] = 2
	changes = append([]Change{renamed(name), queuedIn("default"), withoutNodeSelector, scheduledBy(scheduler), ofTwoPods, ranByCase}, changes...)
	switch kind {
	case "job", "jobset", "pytorchjob":
		c.Apply(kind+".yaml", changes...)
		return
	case "pod":
		c.members[name] = 1
	}
	g := &Gang{Case: c.Case, Name: name, gpus: 2 / c.members[name], edit: func(pod *corev1.Pod) {
		withoutCPU(pod)
		pod.Spec.SchedulerName = scheduler
		pod.Spec.NodeSelector = nil
		pod.Labels = map[string]string{queueLabel: "default"}
		pod.Annotations = map[string]string{kubelet.Annotation: kubelet.RunsProcesses}
		if kind == "group" {
			pod.Labels["kueue.x-k8s.io/pod-group-name"] = name
			pod.Annotations["kueue.x-k8s.io/pod-group-total-count"] = "2"
		}
	}}
	g.AddMembers(c.members[name])
}

// ofTwoPods makes a training of two pods.
func ofTwoPods(object *unstructured.Unstructured) {
	set := func(value any, fields ...string) { _ = unstructured.SetNestedField(object.Object, value, fields...) }
	switch object.GetKind() {
	case "Job":
		inParallel(2)(object)
	case "PyTorchJob":
		set(int64(1), "spec", "pytorchReplicaSpecs", "Worker", "replicas")
	case "JobSet":
		replicated, _, _ := unstructured.NestedSlice(object.Object, "spec", "replicatedJobs")
		for _, one := range replicated {
			for _, field := range []string{"parallelism", "completions"} {
				_ = unstructured.SetNestedField(one.(map[string]any), int64(1), "template", "spec", field)
			}
		}
		set(replicated, "spec", "replicatedJobs")
	}
}

// gang is what there is of one, by its name.
func (c *movingCase) gang(name string) *Gang { return &Gang{Case: c.Case, Name: name} }

// awaitRunning waits until all pods of these run, and remembers them.
func (c *movingCase) awaitRunning(patience time.Duration, names ...string) {
	c.Helper()
	err := shared.Timeline.Await(patience, func(state *timeline.State) string {
		var missing []string
		for _, name := range names {
			running := countPods(c.gang(name).pods(state), func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
			if running != c.members[name] {
				missing = append(missing, fmt.Sprintf("%s (%d of %d)", name, running, c.members[name]))
			}
		}
		if len(missing) > 0 {
			return fmt.Sprintf("%d don't run: %s", len(missing), strings.Join(missing, ", "))
		}
		for _, name := range names {
			for _, pod := range c.gang(name).pods(state) {
				c.standing[pod.Name] = pod.DeepCopy()
			}
		}
		return ""
	})
	if err != nil {
		for _, name := range names {
			c.Logf("%s: %s", name, c.gang(name).Explained())
		}
		c.Fatal(err)
	}
}

// finish ends these as a kubelet does when their work is done.
func (c *movingCase) finish(names ...string) {
	c.Helper()
	for _, name := range names {
		var pods []string
		shared.Timeline.Look(func(state *timeline.State) {
			for _, pod := range c.gang(name).pods(state) {
				pods = append(pods, pod.Name)
			}
		})
		// A PyTorchJob's master last: once it has succeeded its controller deletes workers that run.
		slices.Sort(pods)
		slices.Reverse(pods)
		for _, pod := range pods {
			delete(c.standing, pod)
			c.patchStatus(pod, `{"status":{"phase":"Succeeded"}}`)
		}
	}
}

// keepsQuota tells whether quota counts for a Workload.
func keepsQuota(w *kueueWorkload) bool {
	return w.reserved() && !meta.IsStatusConditionTrue(w.Status.Conditions, "Finished")
}

// exact waits until what pods on nodes use is what the Workloads hold, and this, and sees that
// nothing that ran was touched.
func (c *movingCase) exact(step string, want usage) {
	c.Helper()
	c.must(shared.Timeline.Await(30*time.Second, func(state *timeline.State) string {
		pods, held := usage{}, usage{}
		for _, pod := range state.Pods {
			if pod.Namespace != c.Namespace || !bound(pod) || !unfinished(pod) {
				continue
			}
			gpus := pod.Spec.Containers[0].Resources.Requests[gpu]
			pods[state.Nodes[pod.Spec.NodeName].Labels[flavorLabel]] += gpus.Value()
		}
		for _, object := range state.Workloads {
			if w := readWorkload(object); object.GetNamespace() == c.Namespace && keepsQuota(w) {
				held.add(w.gpus())
			}
		}
		if pods.String() != want.String() || held.String() != want.String() {
			return fmt.Sprintf("%s: pods use %s, Workloads hold %s, want %s of both", step, pods, held, want)
		}
		return ""
	}))
	c.checkStanding(step)
	c.Logf("%s: pods and Workloads say %s, %d pods stand as they were", step, want, len(c.standing))
}

func (c *movingCase) checkStanding(step string) {
	c.Helper()
	shared.Timeline.Look(func(state *timeline.State) {
		for name, was := range c.standing {
			pod := state.Pods[c.Namespace+"/"+name]
			switch {
			case pod == nil || pod.UID != was.UID:
				c.Errorf("%s: pod %s, which ran, was made anew or is gone", step, name)
			case pod.DeletionTimestamp != nil || pod.Spec.NodeName != was.Spec.NodeName || pod.Status.Phase != corev1.PodRunning:
				c.Errorf("%s: pod %s, which ran, is %s on %s, deleted %v", step, name, pod.Status.Phase, pod.Spec.NodeName, pod.DeletionTimestamp)
			}
			if pod == nil {
				continue
			}
			for _, status := range pod.Status.ContainerStatuses {
				if status.RestartCount > 0 {
					c.Errorf("%s: pod %s was restarted", step, name)
				}
			}
		}
	})
}

// podsOf says whose pods a Workload counts: those of a group have one of Muster's by its PodGroup, and
// one in Kueue's form by its name.
func podsOf(object metav1.Object) string {
	if object.GetAnnotations()["kueue.x-k8s.io/is-group-workload"] == "true" {
		return "group " + object.GetName()
	}
	if owner := metav1.GetControllerOf(object); owner != nil && owner.Kind == "PodGroup" {
		return "group " + owner.Name
	}
	return string(object.GetUID())
}

// checkNeverAboveNominal goes through all that happened to the Workloads and recounts after each
// change. While groups are handed over their old Workload is there beside the new one, or a command
// that ends between them would leave pods without any: the two count as one, for that time alone.
func (c *movingCase) checkNeverAboveNominal() {
	c.Helper()
	held := map[string]usage{}
	pods := map[string]string{}
	for _, event := range shared.Timeline.Events(func(event timeline.Event) bool {
		return isWorkload(event.Object) && event.Object.GetNamespace() == c.Namespace
	}) {
		key := string(event.Object.GetUID())
		delete(held, key)
		if w := readWorkload(event.Object); event.Type != "DELETED" && keepsQuota(w) {
			held[key] = w.gpus()
			pods[key] = podsOf(event.Object)
		}
		handingOver := !event.At.Before(c.handover[0]) && !event.At.After(c.handover[1])
		sum, counted := usage{}, map[string]string{}
		for key, one := range held {
			if other, twice := counted[pods[key]]; twice && handingOver {
				if one.String() != other {
					c.Fatalf("at revision %d one Workload of %s holds %s, another %s", event.Revision, pods[key], one, other)
				}
				continue
			}
			counted[pods[key]] = one.String()
			sum.add(one)
		}
		limit := c.nominal[0].quota
		for _, later := range c.nominal {
			if !event.At.Before(later.at) {
				limit = later.quota
			}
		}
		for flavor, amount := range sum {
			if amount > limit[flavor] {
				c.Fatalf("at revision %d the Workloads hold %d GPUs of flavor %s, of %d there are", event.Revision, amount, flavor, limit[flavor])
			}
		}
	}
}

// command runs `muster move`, logs what it printed and expects this exit code.
func (c *movingCase) command(code int, arguments ...string) string {
	c.Helper()
	output, got, err := shared.Muster.Command(append([]string{"move"}, arguments...)...)
	c.must(err)
	c.Logf("muster move %s: exit code %d\n%s", strings.Join(arguments, " "), got, output)
	if got != code {
		c.Errorf("muster move %s: exit code %d, want %d", strings.Join(arguments, " "), got, code)
	}
	return output
}

func (c *movingCase) mentions(output string, words ...string) {
	c.Helper()
	for _, each := range words {
		if !strings.Contains(output, each) {
			c.Errorf("it doesn't name %q", each)
		}
	}
}

// clearTheWay is what docs/from-kueue.md has an administrator do once Kueue is at 0 replicas.
func (c *movingCase) clearTheWay() {
	c.Helper()
	for _, arguments := range [][]string{
		{"delete", "mutatingwebhookconfiguration", "kueue-mutating-webhook-configuration"},
		{"delete", "validatingwebhookconfiguration", "kueue-validating-webhook-configuration"},
	} {
		_, err := shared.Kubectl(arguments...)
		c.must(err)
	}
	crds, err := shared.Kubectl("get", "crd", "--output=name")
	c.must(err)
	for _, crd := range strings.Fields(crds) {
		if !strings.HasSuffix(crd, ".kueue.x-k8s.io") {
			continue
		}
		_, err := shared.Kubectl("patch", crd, "--type=json",
			`--patch=[{"op":"replace","path":"/spec/conversion","value":{"strategy":"None"}}]`)
		c.must(err)
	}
}

// awaitKueueGone waits for the end of its Lease, if its last holder didn't give it back.
func (c *movingCase) awaitKueueGone() {
	c.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Second) {
		output, _, err := shared.Muster.Command("move", "in")
		c.must(err)
		if !strings.Contains(output, "Kueue is alive") {
			return
		}
		if time.Now().After(deadline) {
			c.Fatal(output)
		}
	}
}

func names(prefix string, each func(kind, name string, i int), count int) []string {
	var all []string
	for _, kind := range moveKinds {
		for i := range count {
			name := fmt.Sprintf("%s-%s-%d", prefix, kind, i)
			each(kind, name, i)
			all = append(all, name)
		}
	}
	return all
}

// noneLeft waits until nothing of Kueue's keeps what has ended.
func (c *movingCase) noneLeft() {
	c.Helper()
	c.must(shared.Timeline.Await(time.Minute, func(state *timeline.State) string {
		for _, object := range state.Workloads {
			if object.GetNamespace() != c.Namespace {
				continue
			}
			w := readWorkload(object)
			if slices.Contains(object.GetFinalizers(), inUse) {
				return fmt.Sprintf("Workload %s still has its finalizer: %v", object.GetName(), describeConditions(object))
			}
			if keepsQuota(w) {
				return fmt.Sprintf("Workload %s still holds %s", object.GetName(), w.gpus())
			}
		}
		for _, pod := range state.Pods {
			if pod.Namespace == c.Namespace && slices.Contains(pod.Finalizers, kueueManaged) {
				return fmt.Sprintf("pod %s still has Kueue's finalizer", pod.Name)
			}
		}
		return ""
	}))
}

func TestPeerClusterMovesFromKueueToMusterAndBackWithWhatRuns(t *testing.T) {
	c := newMovingCase(t)
	c.setUpQueues()

	// 20 run, half of them placed by the cluster's own scheduler, and 10 wait.
	var foreign []string
	running := names("run", func(kind, name string, i int) {
		scheduler := plane.SchedulerName
		if i%2 == 1 {
			scheduler = "default-scheduler"
			foreign = append(foreign, name)
		}
		var changes []Change
		if name == "run-job-2" {
			changes = append(changes, labelled("kueue.x-k8s.io/priority-class", c.Namespace+"-low"))
		}
		c.submit(kind, name, scheduler, changes...)
	}, 4)
	c.awaitRunning(2*time.Minute, running...)
	waiting := names("wait", func(kind, name string, _ int) { c.submit(kind, name, plane.SchedulerName) }, 2)
	c.exact("20 run and 10 wait with Kueue", usage{moveFirst: 40})

	// In.
	output := c.command(1, "in")
	c.mentions(output, "kueue-system", plane.KueueLease, "kueue-mutating-webhook-configuration",
		"kueue-validating-webhook-configuration", "workloads.kueue.x-k8s.io")
	c.must(shared.Muster.Stop())
	c.must(c.kueue.Halt())
	c.clearTheWay()
	c.awaitKueueGone()
	output = c.command(1, "in")
	c.mentions(output, "gate", "finalizer")
	c.command(0, "in", "--apply")
	c.command(0, "in")
	c.must(shared.Muster.Start(plane.Launch{}))
	c.exact("moved in", usage{moveFirst: 40})
	c.awaitMusterCounts(40)

	// Ten end, of each kind one of either scheduler's, and those that waited start.
	var ended []string
	for _, kind := range moveKinds {
		ended = append(ended, fmt.Sprintf("run-%s-0", kind), fmt.Sprintf("run-%s-1", kind))
	}
	c.finish(ended...)
	c.awaitRunning(time.Minute, waiting...)
	c.exact("10 ended, 10 that waited run", usage{moveFirst: 40})

	// Ten new ones.
	c.setQuota(usage{moveFirst: 40, moveSecond: 22})
	fresh := names("new", func(kind, name string, _ int) { c.submit(kind, name, plane.SchedulerName) }, 2)
	c.awaitRunning(time.Minute, fresh...)
	c.exact("10 new ones run", usage{moveFirst: 40, moveSecond: 20})

	// One is evicted: it gets another flavor.
	c.forget("run-job-2")
	_, err := shared.Kubectl("patch", "clusterqueues.v1beta2.kueue.x-k8s.io", clusterQueueName, "--type=merge",
		`--patch={"spec":{"preemption":{"withinClusterQueue":"LowerPriority"}}}`)
	c.must(err)
	c.submit("job", "urgent", plane.SchedulerName, labelled("kueue.x-k8s.io/priority-class", c.Namespace+"-high"), onlyOnFlavor(moveFirst))
	c.awaitRunning(time.Minute, "urgent", "run-job-2")
	c.exact("one was evicted and has another flavor", usage{moveFirst: 40, moveSecond: 22})

	// Two wait over the move, one of which Muster was to resume. All that comes from here on is of the
	// lowest priority that runs, or it would preempt, as the queue says since the eviction.
	low := labelled("kueue.x-k8s.io/priority-class", c.Namespace+"-low")
	c.submit("job", "behind", plane.SchedulerName, low)
	c.submit("job", "queued", plane.SchedulerName, low, suspended)
	for _, name := range []string{"behind", "queued"} {
		c.awaitWorkload("job-"+name, "QuotaReserved", "False")
	}

	// Out.
	output = c.command(1, "out")
	c.mentions(output, "PodsReady", "job-behind", "job-queued")
	c.must(shared.Muster.Stop())
	c.removeMuster()
	_, err = shared.Kubectl("delete", "validatingwebhookconfiguration", "muster-warnings", "--ignore-not-found")
	c.must(err)
	c.handover[0] = time.Now()
	c.command(0, "out", "--apply")
	c.command(0, "out")
	c.exact("handed over", usage{moveFirst: 40, moveSecond: 22})
	c.handover[1] = time.Now()
	c.must(c.kueue.Resume())
	c.exact("moved out", usage{moveFirst: 40, moveSecond: 22})
	c.stays(10*time.Second, "all that run go on", func(*timeline.State) bool { return true })
	c.exact("Kueue has run for 10 s", usage{moveFirst: 40, moveSecond: 22})
	c.awaitKueueCounts(usage{moveFirst: 40, moveSecond: 22})

	// Kueue goes on with all of it, and Muster places for it.
	c.must(shared.Muster.Start(plane.Launch{Quota: "kueue"}))
	c.submit("job", "after", "default-scheduler", low)
	late := []string{"behind", "queued", "after"}
	for _, name := range late {
		c.awaitWorkload("job-"+name, "QuotaReserved", "False")
	}
	c.stays(5*time.Second, "they wait", func(state *timeline.State) bool {
		return !slices.ContainsFunc(late, func(name string) bool { return slices.ContainsFunc(c.gang(name).pods(state), bound) })
	})
	c.exact("three more wait", usage{moveFirst: 40, moveSecond: 22})
	c.finish("wait-pod-0", "wait-group-0", "wait-job-0")
	c.awaitRunning(time.Minute, late...)
	c.exact("three ended and the three that waited run", usage{moveFirst: 40, moveSecond: 22})
	c.finish("new-job-0", "new-group-0")
	c.exact("two more ended", usage{moveFirst: 40, moveSecond: 18})
	c.awaitKueueCounts(usage{moveFirst: 40, moveSecond: 18})
	for name := range c.members {
		c.finish(name)
	}
	c.exact("all have ended", usage{})
	c.noneLeft()
	c.checkNeverAboveNominal()
}

// setUpQueues has quota for all that run, of the first flavor.
func (c *movingCase) setUpQueues() {
	c.Helper()
	quota := usage{moveFirst: 40, moveSecond: 0}
	c.nominal = []usageSince{{time.Now(), quota}}
	c.Apply("quota.yaml", nominalQuota(quota), onNodesLabelled, alsoOfCPU)
	path := c.write("priorities.yaml", fmt.Sprintf(`apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: %[1]s-low}
value: -10
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: %[1]s-high}
value: 10
`, c.Namespace))
	_, err := shared.Kubectl("create", "--filename="+path)
	c.must(err)
	c.Cleanup(func() { _, _ = shared.Kubectl("delete", "--ignore-not-found", "--timeout=20s", "--filename="+path) })
}

// alsoOfCPU covers what training-operator's init containers ask for.
func alsoOfCPU(object *unstructured.Unstructured) {
	eachMap(object.Object, func(m map[string]any) {
		if _, ok := m["coveredResources"]; !ok {
			return
		}
		m["coveredResources"] = []any{string(gpu), "cpu", "memory"}
		for _, flavor := range m["flavors"].([]any) {
			one := flavor.(map[string]any)
			one["resources"] = append(one["resources"].([]any),
				map[string]any{"name": "cpu", "nominalQuota": "1k"}, map[string]any{"name": "memory", "nominalQuota": "10Ti"})
		}
	})
}

// forget no longer expects the pods of this one to stay.
func (c *movingCase) forget(name string) {
	for pod := range c.standing {
		if strings.HasPrefix(pod, name+"-") {
			delete(c.standing, pod)
		}
	}
}

func onlyOnFlavor(flavor string) Change {
	return eachPodSpec(func(spec map[string]any) { spec["nodeSelector"] = map[string]any{flavorLabel: flavor} })
}

// awaitMusterCounts waits until Muster says that so many GPUs are reserved.
func (c *movingCase) awaitMusterCounts(gpus int64) {
	c.Helper()
	c.AwaitQueue(20*time.Second, func(queue queueAnswer) string {
		if queue.reserved[moveFirst] != gpus {
			return fmt.Sprintf("/v1/queues says %s", queue.reserved)
		}
		return ""
	})
}

// awaitKueueCounts waits until the status that Kueue writes says so.
func (c *movingCase) awaitKueueCounts(want usage) {
	c.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		queue, err := shared.Dynamic.Resource(clusterQueueResource).Get(c.Context(), clusterQueueName, metav1.GetOptions{})
		c.must(err)
		status, _ := queue.Object["status"].(map[string]any)
		got := flavorTotals(status["flavorsReservation"])
		if got.String() == want.String() {
			return
		}
		if time.Now().After(deadline) {
			c.Fatalf("Kueue's own status says that %s are reserved, want %s", got, want)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// A Kueue that runs beside Muster's own quota is noticed by its Lease: nobody is admitted, and
// everything says why. Once it has ended, all goes on.
func TestPeerOwnQuotaStopsBesideAKueueThatRuns(t *testing.T) {
	c := newCase(t, "rival")
	kueue := c.started(shared.StartKueue(plane.Kueue{LeaderElection: true, Frameworks: []string{"batch/job"}}))
	c.must(shared.Muster.Ensure())
	// It looks every two seconds, and this Kueue may have begun to lead just now.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		metrics, err := shared.Muster.Metrics()
		c.must(err)
		if strings.Contains(metrics, "\nmuster_another_kueue 1\n") {
			break
		}
		if time.Now().After(deadline) {
			c.Fatal("Muster didn't notice the Kueue that runs")
		}
	}
	c.flavorNodes(usage{moveFirst: 2})
	c.Apply("quota.yaml", nominalQuota(usage{moveFirst: 2, moveSecond: 0}), onNodesLabelled)
	g := c.PodGroup("train", 2, 1)
	g.edit = func(pod *corev1.Pod) {
		withoutCPU(pod)
		pod.Spec.NodeSelector = nil
		pod.Labels[queueLabel] = "default"
	}
	g.AddMembers(2)
	g.AwaitAnswer(30*time.Second, func(answer map[string]any) string {
		reason, _ := answer["reason"].(map[string]any)
		if reason["code"] != "ANOTHER_KUEUE" || !strings.Contains(reasonText(answer), "kueue-system/"+plane.KueueLease) {
			return "the reason isn't the Kueue that runs: " + reasonText(answer)
		}
		return ""
	})
	c.must(awaitQueues(sharedMuster, 20*time.Second, func(queues []queueAnswer) string {
		if len(queues) != 2 {
			return fmt.Sprintf("Muster knows %d queues", len(queues))
		}
		for _, queue := range queues {
			if !strings.Contains(queue.problem, plane.KueueLease) {
				return "queue " + queue.name + " says " + queue.problem
			}
		}
		return ""
	}))
	c.stays(3*time.Second, "nothing was asked for or bound", func(state *timeline.State) bool {
		return g.noneBound(state) && g.workloadIn(state.Workloads) == nil
	})
	events, err := shared.Client.CoreV1().Events(c.Namespace).List(c.Context(), metav1.ListOptions{})
	c.must(err)
	if !slices.ContainsFunc(events.Items, func(event corev1.Event) bool { return strings.Contains(event.Message, plane.KueueLease) }) {
		t.Errorf("none of %d events says it", len(events.Items))
	}

	// A Lease of that name elsewhere, which a namespace's user can write, is nobody's.
	lease := c.write("lease.yaml", fmt.Sprintf(`apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: %s, namespace: %s}
spec: {holderIdentity: somebody, leaseDurationSeconds: 3600, renewTime: %q}
`, plane.KueueLease, c.Namespace, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")))
	_, err = shared.Kubectl("create", "--filename="+lease)
	c.must(err)
	c.must(kueue.Halt())
	c.clearWebhooksOfKueue()
	g.AwaitBound(time.Minute)
}

func (c *Case) clearWebhooksOfKueue() {
	c.Helper()
	(&movingCase{Case: c}).clearTheWay()
}
