package main

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// The load is Kueue's own scalability setup (v0.19.2, test/performance/scheduler,
// default_generator_config.yaml): 5 cohorts of 6 queues, each queue in a namespace
// of its own, and in each queue suspended Jobs of three sizes, 70 % small, 20 %
// medium and 10 % large, the larger the more important. There a Workload is one pod
// of 1, 5 or 20 cpu; here a Job makes as many pods of one cpu.
const (
	cohorts         = 5
	queuesPerCohort = 6
)

type size struct {
	name     string
	share    int // how many of them there are, of each ten
	pods     int
	priority int32
}

var sizes = []size{
	{"small", 7, 1, 50},
	{"medium", 2, 5, 100},
	{"large", 1, 20, 200},
}

// job is what one of the programs is to admit.
type job struct {
	namespace string // also the name of its ClusterQueue and LocalQueue
	name      string
	size      size
}

func (j job) key() string { return j.namespace + "/" + j.name }

type load struct {
	queues []string
	jobs   []job // those of all queues mixed, in the order of their creation
	pods   int   // of all jobs
	quota  int   // of each queue
	borrow int   // the most that it may borrow
	admits int   // how many of the jobs there is quota for
}

// newLoad makes ten jobs in each queue, that many times. There is quota for all of
// them, or for a third: the large and the medium ones, and a small one of 21.
func newLoad(tens int, third bool) load {
	var l load
	for c := range cohorts {
		for q := range queuesPerCohort {
			l.queues = append(l.queues, fmt.Sprintf("cohort%d-queue%d", c, q))
		}
	}
	for ten := range tens {
		for _, size := range sizes {
			for i := range size.share {
				for _, queue := range l.queues {
					l.jobs = append(l.jobs, job{queue, fmt.Sprintf("%s-%d", size.name, ten*size.share+i), size})
					l.pods += size.pods
				}
			}
		}
	}
	if !third {
		l.quota, l.borrow, l.admits = l.pods/len(l.queues), 100, len(l.jobs)
		return l
	}
	// Without borrowing nobody is preempted, whichever queue is released first.
	for _, size := range sizes[1:] {
		l.quota += tens * size.share * size.pods
		l.admits += tens * size.share
	}
	l.quota += tens / 3
	l.admits = (l.admits + tens/3) * len(l.queues)
	return l
}

const (
	flavor      = "default"
	flavorLabel = "bench.muster.dev/flavor"
	// What a node has room for, as many cpus as pods.
	podsPerNode = 100
)

var kueueGroup = schema.GroupVersion{Group: "kueue.x-k8s.io", Version: "v1beta2"}

// createShared makes what all races use.
func (l load) createShared(ctx context.Context, p *plane.Plane) error {
	// The limit is the client's, the same for both.
	if err := plane.Exempt(ctx, p.Client, plane.KueueUser, plane.ServiceAccount); err != nil {
		return err
	}
	if err := l.createNodes(ctx, p); err != nil {
		return err
	}
	return plane.EachOf(l.queues, plane.Creators, func(queue string) error {
		_, err := p.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: queue},
		}, metav1.CreateOptions{})
		return err
	})
}

// createQueues makes the flavor, the priorities and all queues. Nothing is admitted
// before release.
func (l load) createQueues(ctx context.Context, p *plane.Plane) error {
	create := func(kind, resource, namespace, name, field string, value any) error {
		_, err := p.Dynamic.Resource(kueueGroup.WithResource(resource)).Namespace(namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": kueueGroup.String(),
			"kind":       kind,
			"metadata":   map[string]any{"name": name},
			field:        value,
		}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("%s %s: %w", kind, name, err)
		}
		return nil
	}
	if err := create("ResourceFlavor", "resourceflavors", "", flavor, "spec", map[string]any{
		"nodeLabels": map[string]any{flavorLabel: flavor},
	}); err != nil {
		return err
	}
	for _, size := range sizes {
		if err := create("WorkloadPriorityClass", "workloadpriorityclasses", "", size.name, "value", int64(size.priority)); err != nil {
			return err
		}
	}
	return plane.EachOf(l.queues, plane.Creators, func(queue string) error {
		if err := create("ClusterQueue", "clusterqueues", "", queue, "spec", map[string]any{
			"namespaceSelector": map[string]any{},
			"cohortName":        queue[:len("cohort0")],
			"preemption":        map[string]any{"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
			"stopPolicy":        "Hold",
			"resourceGroups": []any{map[string]any{
				"coveredResources": []any{"cpu"},
				"flavors": []any{map[string]any{
					"name": flavor,
					"resources": []any{map[string]any{
						"name": "cpu", "nominalQuota": fmt.Sprint(l.quota), "borrowingLimit": fmt.Sprint(l.borrow),
					}},
				}},
			}},
		}); err != nil {
			return err
		}
		return create("LocalQueue", "localqueues", queue, queue, "spec", map[string]any{"clusterQueue": queue})
	})
}

// release lets the jobs of all queues be admitted.
func (l load) release(ctx context.Context, p *plane.Plane) error {
	return plane.EachOf(l.queues, plane.Creators, func(queue string) error {
		_, err := p.Dynamic.Resource(kueueGroup.WithResource("clusterqueues")).Patch(ctx, queue, types.MergePatchType,
			[]byte(`{"spec":{"stopPolicy":"None"}}`), metav1.PatchOptions{})
		return err
	})
}

// createNodes makes Ready nodes with room for all pods.
func (l load) createNodes(ctx context.Context, p *plane.Plane) error {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(podsPerNode, resource.DecimalSI),
		corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods:   *resource.NewQuantity(podsPerNode, resource.DecimalSI),
	}
	names := make([]string, (l.pods+podsPerNode-1)/podsPerNode)
	for i := range names {
		names[i] = fmt.Sprintf("node-%d", i)
	}
	return plane.CreateReadyNodes(ctx, p.Client, names, map[string]string{flavorLabel: flavor}, resources)
}

// createJobs makes all jobs, suspended, for this scheduler.
func (l load) createJobs(ctx context.Context, p *plane.Plane, scheduler string) error {
	yes := true
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	return plane.EachOf(l.jobs, plane.Creators, func(j job) error {
		pods := int32(j.size.pods)
		_, err := p.Client.BatchV1().Jobs(j.namespace).Create(ctx, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: j.name, Labels: map[string]string{
				kueueGroup.Group + "/queue-name":     j.namespace,
				kueueGroup.Group + "/priority-class": j.size.name,
			}},
			Spec: batchv1.JobSpec{
				Suspend: &yes, Parallelism: &pods, Completions: &pods,
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					SchedulerName: scheduler,
					RestartPolicy: corev1.RestartPolicyNever,
					Containers: []corev1.Container{{
						Name: "worker", Image: "worker",
						Resources: corev1.ResourceRequirements{Requests: cpu, Limits: cpu},
					}},
				}},
			},
		}, metav1.CreateOptions{})
		return err
	})
}

// deleteJobs ends all jobs, and returns when their Workloads have followed them.
func (l load) deleteJobs(ctx context.Context, p *plane.Plane) error {
	background := metav1.DeletePropagationBackground
	if err := plane.EachOf(l.queues, plane.Creators, func(queue string) error {
		return p.Client.BatchV1().Jobs(queue).DeleteCollection(ctx,
			metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{})
	}); err != nil {
		return err
	}
	return plane.Await(ctx, "the end of all Workloads", func() (string, error) {
		left, err := p.Dynamic.Resource(timeline.Workloads).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) || err == nil && len(left.Items) == 0 {
			return "", nil
		} else if err != nil {
			return "", err
		}
		return left.Items[0].GetNamespace() + "/" + left.Items[0].GetName() + " is there", nil
	})
}
