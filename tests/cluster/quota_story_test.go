package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/kubelet"
	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// A whole life under quota, of each form that a gang can have: it is admitted, evicted, admitted again
// after somebody else, and ends. What Muster writes meanwhile is what the cases of quota_kills_test.go
// kill and stop it between.

// shape is a form of gang "a", which asks for three GPUs.
type shape struct {
	name string
	// Makes whatever its pods come from.
	create func(*story) error
	// What its controller would do now, where none runs.
	control func(*story)
	// Deletes all of it.
	remove func(*story)
	// Its Workload goes with its pods, so that nothing waits while it is evicted.
	goesWithPods bool
}

var shapes = []shape{
	{name: "a suspended Job", create: (*story).createJob, remove: (*story).removeJob},
	{name: "a PodGroup", create: (*story).createGroup, control: (*story).makeMembers, remove: (*story).removeGroup},
	{name: "a bare pod", create: (*story).wantPod, control: (*story).makePod, remove: (*story).removePods, goesWithPods: true},
	{name: "a JobSet with stages", create: (*story).createJobSet, control: (*story).controlJobSet, remove: (*story).removeJobSet},
}

const (
	storySize = 3
	// How long a step may take with a kill in it, on a machine that is busy otherwise.
	storyPatience = time.Minute
)

// There is room for a, or for b, who comes later, and never for both.
var storyQuota = usage{"nvidia": 4, "nvidia-efa": 0}

// story is one such life.
type story struct {
	*Case
	shape shape
	lock  *lock
	other *Gang // b

	wanted atomic.Bool // of pods that nobody's controller makes
	turn   sync.Mutex  // held by who decides what happens next
}

// newStory makes what it needs. Each of its steps is named to the lock.
func (c *Case) newStory(of shape, l *lock) *story {
	c.Helper()
	c.persistent = true
	node := c.Namespace + "-nvidia.node"
	c.flavorNode(node, "nvidia", int(storyQuota["nvidia"]))
	c.AwaitReady(node)
	c.ApplyQuota(nominalQuota(storyQuota), onNodesLabelled)
	s := &story{Case: c, shape: of, lock: l}
	var playing sync.WaitGroup
	ctx, end := context.WithCancel(context.Background())
	playing.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			s.play(ctx)
		}
	})
	c.Cleanup(func() {
		end()
		playing.Wait()
	})
	return s
}

// play is what kubelets and controllers do. What is refused is tried again.
func (s *story) play(ctx context.Context) {
	for _, pod := range s.of("", func(pod *corev1.Pod) bool { return bound(pod) && pod.Status.Phase == corev1.PodPending }) {
		s.setPhase(ctx, pod, corev1.PodRunning)
	}
	if s.shape.control != nil {
		s.shape.control(s)
	}
}

// setPhase does so unless the pod has changed meanwhile.
func (s *story) setPhase(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase) {
	_, _ = shared.Client.CoreV1().Pods(s.Namespace).Patch(ctx, pod.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"status":{"phase":%q}}`, pod.ResourceVersion, phase), metav1.PatchOptions{}, "status")
}

// run tells it from its beginning to its end.
func (s *story) run() {
	s.Helper()
	s.does("admission", func() { s.must(s.shape.create(s)) })
	s.awaitUses("a", storySize)
	s.does("admission", func() {
		s.other = s.PodGroup("b", 2, 1)
		s.other.edit = asStoryPod
		s.other.AddMembers(2)
	})
	s.awaitExact(storyPatience, 1, 1, usage{"nvidia": 3})

	s.does("eviction", func() {
		s.wanted.Store(!s.shape.goesWithPods)
		s.setActive(false)
	})
	s.awaitUses("b", 2)
	s.awaitExact(storyPatience, 1, 0, usage{"nvidia": 2})

	// Who interfered may have taken it for a while.
	s.does("readmission", func() {
		s.awaitUses("b", 2)
		s.wanted.Store(true)
		s.setActive(true)
	})
	s.end("b")
	s.awaitUses("a", storySize)
	s.awaitExact(storyPatience, 1, 0, usage{"nvidia": 3})

	s.does("end", func() {
		s.awaitUses("a", storySize)
		s.wanted.Store(false)
	})
	s.end("a")
	s.awaitExact(storyPatience, 0, 0, usage{})
	s.does("end", func() {
		s.shape.remove(s)
		s.other.Delete()
		s.removeGroupOf("b")
	})
	s.awaitNothingLeft(storyPatience)
}

// does begins a step, once nobody interferes.
func (s *story) does(step string, what func()) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.lock.begins(step)
	what()
}

// of returns the pods of a contender (empty: of all) of which the predicate holds.
func (s *story) of(who string, predicate func(*corev1.Pod) bool) (pods []*corev1.Pod) {
	shared.Timeline.Look(func(state *timeline.State) {
		for _, pod := range state.Pods {
			if pod.Namespace == s.Namespace && (who == "" || contender(pod.Name) == who) && predicate(pod) {
				pods = append(pods, pod)
			}
		}
	})
	return pods
}

// gpusOf is what a contender's bound pods that have not ended ask for.
func (s *story) gpusOf(state *timeline.State, who string) int64 {
	return total(map[string]usage{"": s.account(state.Workloads, state.Pods).use[who]})["nvidia"]
}

func (s *story) awaitUses(who string, gpus int64) {
	s.Helper()
	if err := shared.Timeline.Await(storyPatience, func(state *timeline.State) string {
		if used := s.gpusOf(state, who); used != gpus {
			return fmt.Sprintf("the pods of %s use %d GPUs, want %d", who, used, gpus)
		}
		return ""
	}); err != nil {
		answer, _ := s.muster().Get("/v1/gangs")
		s.Fatalf("%v\nmuster says: %v", err, answer)
	}
}

// end lets all pods of a contender succeed, those that come meanwhile too, until it holds nothing.
func (s *story) end(who string) {
	s.Helper()
	missing := ""
	for deadline := time.Now().Add(storyPatience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for _, pod := range s.of(who, func(pod *corev1.Pod) bool { return bound(pod) && unfinished(pod) }) {
			s.setPhase(s.Context(), pod, corev1.PodSucceeded)
		}
		missing = ""
		shared.Timeline.Look(func(state *timeline.State) {
			a := s.account(state.Workloads, state.Pods)
			if a.use[who].String()+a.hold[who].String() != "{}{}" {
				missing = fmt.Sprintf("%s holds %s and uses %s", who, a.hold[who], a.use[who])
			}
		})
		if missing == "" {
			return
		}
	}
	jobs, _ := shared.Kubectl("get", "jobs", "--namespace="+s.Namespace, "--output=jsonpath={.items[*].status}")
	s.Fatalf("all pods of %s have succeeded, and %s; the status of its Jobs: %s", who, missing, jobs)
}

// setActive evicts a, or lets it ask again.
func (s *story) setActive(active bool) {
	s.Helper()
	for _, w := range s.workloadsOf("a") {
		if readWorkload(w).finished() {
			continue
		}
		_, err := shared.Dynamic.Resource(timeline.Workloads).Namespace(s.Namespace).Patch(s.Context(), w.GetName(), types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"active":%v}}`, active), metav1.PatchOptions{})
		if err != nil {
			s.Logf("Workload %s: active=%v: %v", w.GetName(), active, err)
		}
	}
}

func (s *story) workloadsOf(who string) (found []*unstructured.Unstructured) {
	shared.Timeline.Look(func(state *timeline.State) {
		for _, w := range state.Workloads {
			if owner := metav1.GetControllerOf(w); w.GetNamespace() == s.Namespace && owner != nil && contender(owner.Name) == who {
				found = append(found, w)
			}
		}
	})
	return found
}

// ---- The forms ----

// asStoryPod asks for GPUs alone, names the queue, ends at once when it must, and is nobody's but the
// story's while it runs.
func asStoryPod(pod *corev1.Pod) {
	withoutCPU(pod)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, kubelet.Annotation, kubelet.RunsProcesses)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, queueLabel, "default")
}

func (s *story) storyPod(name string, gpus int) *corev1.Pod {
	pod := s.Pod(name, plane.SchedulerName, gpus)
	asStoryPod(pod)
	return pod
}

// jobSpec is that of a Job whose pods are so many, of one GPU each.
func (s *story) jobSpec(pods int32) batchv1.JobSpec {
	pod := s.storyPod("", 1)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return batchv1.JobSpec{
		Parallelism: &pods, Completions: &pods, CompletionMode: new(batchv1.IndexedCompletion),
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: pod.Annotations}, Spec: pod.Spec},
	}
}

func (s *story) createJob() error { return s.createJobOf("a", "") }

func (s *story) createJobOf(name, priorityClass string) error {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{queueLabel: "default"}},
		Spec:       s.jobSpec(storySize),
	}
	job.Spec.Suspend = new(true)
	job.Spec.Template.Spec.PriorityClassName = priorityClass
	return s.insist(func() error {
		_, err := shared.Client.BatchV1().Jobs(s.Namespace).Create(s.Context(), job, metav1.CreateOptions{})
		return err
	})
}

// insist tries again for a while: a Muster that is being started again refuses what its webhook sees.
func (s *story) insist(do func() error) error {
	deadline := time.Now().Add(time.Minute)
	for {
		err := do()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *story) removeJob() { s.removeJobOf("a") }

func (s *story) removeJobOf(name string) {
	_ = shared.Client.BatchV1().Jobs(s.Namespace).Delete(context.Background(), name,
		metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
}

func (s *story) createGroup() error {
	s.PodGroup("a", storySize, 1)
	s.wanted.Store(true)
	return nil
}

func (s *story) makeMembers() {
	for i := range storySize {
		s.makeAnew(s.storyPod(fmt.Sprintf("a-%d", i), 1), podGroupLabel, "a")
	}
}

func (s *story) wantPod() error {
	s.wanted.Store(true)
	return nil
}

func (s *story) makePod() { s.makeAnew(s.storyPod("a-0", storySize)) }

// makeAnew makes a pod unless it is there.
func (s *story) makeAnew(pod *corev1.Pod, labels ...string) {
	if !s.wanted.Load() || len(s.of("a", func(there *corev1.Pod) bool { return there.Name == pod.Name })) > 0 {
		return
	}
	for pair := range slices.Chunk(labels, 2) {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, pair[0], pair[1])
	}
	_, _ = shared.Client.CoreV1().Pods(s.Namespace).Create(context.Background(), pod, metav1.CreateOptions{})
}

func (s *story) removeGroup() {
	s.removePods()
	s.removeGroupOf("a")
}

func (s *story) removeGroupOf(name string) {
	_ = shared.Dynamic.Resource(timeline.PodGroups).Namespace(s.Namespace).Delete(context.Background(), name, metav1.DeleteOptions{})
}

func (s *story) removePods() {
	for _, pod := range s.of("a", func(*corev1.Pod) bool { return true }) {
		_ = shared.Client.CoreV1().Pods(s.Namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	}
}

// ---- A JobSet whose workers wait for its driver ----

// Its controller is the story: of the real one it has what Muster can see, Jobs that follow the JobSet's
// suspend field, the second once the first is ready, and the status.

var stages = []struct {
	name string
	pods int32
}{{"driver", 1}, {"node", 2}}

// defineJobSets makes the kind, without its controller.
func (c *Case) defineJobSets() { c.define("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet") }

func (s *story) createJobSet() error {
	var parts []any
	for i, stage := range stages {
		spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(new(s.jobSpec(stage.pods)))
		s.must(err)
		part := map[string]any{"name": stage.name, "replicas": int64(1), "template": map[string]any{"spec": spec}}
		if i > 0 {
			part["dependsOn"] = []any{map[string]any{"name": stages[i-1].name, "status": "Ready"}}
		}
		parts = append(parts, part)
	}
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": jobSetResource.GroupVersion().String(), "kind": "JobSet",
		"metadata": map[string]any{"name": "a", "labels": map[string]any{queueLabel: "default"}},
		"spec":     map[string]any{"suspend": true, "replicatedJobs": parts},
	}}
	return s.insist(func() error {
		_, err := shared.Dynamic.Resource(jobSetResource).Namespace(s.Namespace).Create(s.Context(), set, metav1.CreateOptions{})
		return err
	})
}

func (s *story) controlJobSet() {
	ctx := context.Background()
	set, err := shared.Dynamic.Resource(jobSetResource).Namespace(s.Namespace).Get(ctx, "a", metav1.GetOptions{})
	if err != nil || set.GetDeletionTimestamp() != nil {
		return
	}
	jobs := shared.Client.BatchV1().Jobs(s.Namespace)
	suspended, _, _ := unstructured.NestedBool(set.Object, "spec", "suspend")
	parts, _, _ := unstructured.NestedSlice(set.Object, "spec", "replicatedJobs")
	var status []any
	completed, ready := 0, true // what comes before
	for i, part := range parts {
		name := stages[i].name
		running := int64(len(s.of("a", func(pod *corev1.Pod) bool {
			return pod.Labels["jobset.sigs.k8s.io/replicatedjob-name"] == name && pod.Status.Phase == corev1.PodRunning
		})))
		count := map[string]any{"name": name, "ready": int64(0), "succeeded": int64(0), "failed": int64(0), "active": int64(0), "suspended": int64(0)}
		status = append(status, count)
		job, err := jobs.Get(ctx, "a-"+name+"-0", metav1.GetOptions{})
		switch {
		case err != nil && !suspended && ready:
			if made := s.childJob(set, part, name); made != nil {
				_, _ = shared.Dynamic.Resource(batchJobResource).Namespace(s.Namespace).Create(ctx, made, metav1.CreateOptions{})
			}
		case err != nil:
		case job.Status.Succeeded == stages[i].pods:
			count["succeeded"] = int64(1)
			completed++
		case suspended && !*job.Spec.Suspend:
			_, _ = jobs.Patch(ctx, job.Name, types.MergePatchType, []byte(`{"spec":{"suspend":true}}`), metav1.PatchOptions{})
		case suspended:
			count["suspended"] = int64(1)
		case *job.Spec.Suspend:
			// Its pods are to be made by the JobSet's templates as they are now.
			_ = jobs.Delete(ctx, job.Name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
		default:
			count["active"] = int64(1)
			if running == int64(stages[i].pods) {
				count["ready"] = int64(1)
			}
		}
		ready = ready && (count["ready"] == int64(1) || count["succeeded"] == int64(1))
	}
	now := map[string]any{"replicatedJobsStatus": status}
	if completed == len(parts) {
		now["conditions"] = []any{map[string]any{
			"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "jobset completed successfully",
			"lastTransitionTime": set.GetCreationTimestamp().UTC().Format(time.RFC3339),
		}}
	}
	if was, _, _ := unstructured.NestedMap(set.Object, "status"); fmt.Sprint(was) != fmt.Sprint(now) {
		set.Object["status"] = now
		_, _ = shared.Dynamic.Resource(jobSetResource).Namespace(s.Namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
	}
}

// childJob is a Job as the JobSet's controller makes it.
func (s *story) childJob(set *unstructured.Unstructured, part any, name string) *unstructured.Unstructured {
	labels := map[string]string{
		"jobset.sigs.k8s.io/jobset-name": "a", "jobset.sigs.k8s.io/replicatedjob-name": name,
		"jobset.sigs.k8s.io/replicatedjob-replicas": "1", "jobset.sigs.k8s.io/job-index": "0", "jobset.sigs.k8s.io/restart-attempt": "0",
	}
	template, _, _ := unstructured.NestedMap(part.(map[string]any), "template", "spec")
	if template == nil {
		return nil
	}
	job := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job", "spec": template}}
	job.SetName("a-" + name + "-0")
	job.SetLabels(labels)
	job.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: set.GetAPIVersion(), Kind: set.GetKind(), Name: set.GetName(), UID: set.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true),
	}})
	_ = unstructured.SetNestedField(template, false, "suspend")
	_ = unstructured.SetNestedField(template, "Indexed", "completionMode")
	pods, _, _ := unstructured.NestedStringMap(template, "template", "metadata", "labels")
	if pods == nil {
		pods = map[string]string{}
	}
	for key, value := range labels {
		pods[key] = value
	}
	_ = unstructured.SetNestedStringMap(template, pods, "template", "metadata", "labels")
	return job
}

func (s *story) removeJobSet() {
	_ = shared.Dynamic.Resource(jobSetResource).Namespace(s.Namespace).Delete(context.Background(), "a",
		metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
}
