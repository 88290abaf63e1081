package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/resources"
	"sigs.k8s.io/kueue/pkg/scheduler/flavorassigner"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
	"sigs.k8s.io/kueue/pkg/workload"
)

const namespace = "default"

// cluster is Kueue's own memory of a case, filled as its controllers fill it.
type cluster struct {
	cache       *schdcache.Cache
	preemptor   *preemption.Preemptor
	ordering    workload.Ordering
	fairSharing bool
	// Labels of the namespace of each workload.
	namespaces map[workload.Reference]map[string]string
}

// noClient answers the only question that the cache asks of an API server when
// a ClusterQueue comes: which of its LocalQueues and Workloads came before it.
type noClient struct{ client.Client }

func (noClient) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func newCluster(c *Case) (*cluster, error) {
	var fairSharing *config.FairSharing
	if c.FairSharing {
		fairSharing = &config.FairSharing{} // no strategies named: the default ones
	}
	ordering := workload.Ordering{PodsReadyRequeuingTimestamp: config.EvictionTimestamp}
	k := &cluster{
		cache:       schdcache.New(noClient{}, schdcache.WithFairSharing(c.FairSharing)),
		preemptor:   preemption.New(noClient{}, ordering, &events.FakeRecorder{}, fairSharing, false, clock.RealClock{}, nil, expectations.New(), nil),
		ordering:    ordering,
		fairSharing: c.FairSharing,
		namespaces:  map[workload.Reference]map[string]string{},
	}
	log := logr.Discard()
	for i := range c.Flavors {
		k.cache.AddOrUpdateResourceFlavor(log, &c.Flavors[i])
	}
	for i := range c.Cohorts {
		cohort := &c.Cohorts[i]
		// Kueue reports a cycle on the Cohort and goes on; its members are inactive.
		if err := k.cache.AddOrUpdateCohort(cohort); err != nil && !errors.Is(err, schdcache.ErrCohortHasCycle) {
			return nil, fmt.Errorf("Cohort %s: %w", cohort.Name, err)
		}
	}
	for i := range c.ClusterQueues {
		queue := &c.ClusterQueues[i]
		setDefaults(queue)
		if err := k.cache.AddClusterQueue(context.Background(), queue); err != nil && !errors.Is(err, schdcache.ErrCohortHasCycle) {
			return nil, fmt.Errorf("ClusterQueue %s: %w", queue.Name, err)
		}
	}
	for i := range c.Admitted {
		admitted, err := k.admitted(&c.Admitted[i])
		if err != nil {
			return nil, err
		}
		if !k.cache.AddOrUpdateWorkload(log, admitted) {
			return nil, fmt.Errorf("admitted workload %s: there is no ClusterQueue %s", admitted.UID, c.Admitted[i].ClusterQueue)
		}
	}
	return k, nil
}

// setDefaults sets what the API server sets from the schema of the CRD and the
// cache doesn't.
func setDefaults(queue *kueue.ClusterQueue) {
	if queue.Spec.QueueingStrategy == "" {
		queue.Spec.QueueingStrategy = kueue.BestEffortFIFO
	}
	if queue.Spec.Preemption == nil {
		queue.Spec.Preemption = &kueue.ClusterQueuePreemption{}
	}
	preemption := queue.Spec.Preemption
	if preemption.ReclaimWithinCohort == "" {
		preemption.ReclaimWithinCohort = kueue.PreemptionPolicyNever
	}
	if preemption.WithinClusterQueue == "" {
		preemption.WithinClusterQueue = kueue.PreemptionPolicyNever
	}
	if preemption.BorrowWithinCohort == nil {
		preemption.BorrowWithinCohort = &kueue.BorrowWithinCohort{}
	}
	if preemption.BorrowWithinCohort.Policy == "" {
		preemption.BorrowWithinCohort.Policy = kueue.BorrowWithinCohortPolicyNever
	}
}

// pending is the workload as its job's controller would create it.
func (k *cluster) pending(w *Workload) *kueue.Workload {
	result := w.object(kueue.LocalQueueName(w.ClusterQueue))
	k.namespaces[workload.Key(result)] = w.NamespaceLabels
	return result
}

// class of all: only a priority that comes from one ever changes (pkg/workload/workload.go:1581 of Kueue).
var class = kueue.NewWorkloadPriorityClassRef("any")

// object is a Workload that waits in this LocalQueue.
func (w *Workload) object(queue kueue.LocalQueueName) *kueue.Workload {
	result := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Name:              w.Name,
			Namespace:         namespace,
			UID:               w.UID,
			CreationTimestamp: w.CreatedAt,
		},
		Spec: kueue.WorkloadSpec{QueueName: queue, Priority: &w.Priority, PriorityClassRef: class, Active: new(true)},
	}
	for _, set := range w.PodSets {
		result.Spec.PodSets = append(result.Spec.PodSets, kueue.PodSet{
			Name:  kueue.PodSetReference(set.Name),
			Count: set.Count,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				NodeSelector: set.NodeSelector,
				Affinity:     set.Affinity,
				Tolerations:  set.Tolerations,
				Containers:   []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: set.Requests}}},
			}},
		})
	}
	return result
}

// admitted is the workload as Kueue leaves it once it has reserved its quota.
func (k *cluster) admitted(w *Workload) (*kueue.Workload, error) {
	result := k.pending(w)
	admission := &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(w.ClusterQueue)}
	for i := range w.PodSets {
		set := &w.PodSets[i]
		assignment := kueue.PodSetAssignment{
			Name:          kueue.PodSetReference(set.Name),
			Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{},
			ResourceUsage: corev1.ResourceList{},
			Count:         &set.Count,
		}
		for name, request := range set.Requests {
			usage := request.DeepCopy()
			if !usage.Mul(int64(set.Count)) {
				return nil, fmt.Errorf("admitted workload %s: %d times %s of %s overflow", w.UID, set.Count, request.String(), name)
			}
			assignment.ResourceUsage[name] = usage
		}
		for name, flavor := range set.Flavors {
			assignment.Flavors[name] = kueue.ResourceFlavorReference(flavor)
			if name == corev1.ResourcePods { // counted without being requested
				assignment.ResourceUsage[name] = *resource.NewQuantity(int64(set.Count), resource.DecimalSI)
			}
		}
		for name := range set.Requests {
			if assignment.Flavors[name] == "" {
				return nil, fmt.Errorf("admitted workload %s, pod set %s: no flavor for %s", w.UID, set.Name, name)
			}
		}
		admission.PodSetAssignments = append(admission.PodSetAssignments, assignment)
	}
	result.Status.Admission = admission
	for _, condition := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		result.Status.Conditions = append(result.Status.Conditions, metav1.Condition{
			Type: condition, Status: metav1.ConditionTrue, Reason: condition, LastTransitionTime: w.ReservedAt,
		})
	}
	return result, nil
}

// newAssigner is the one that the scheduler makes for one workload.
func (k *cluster) newAssigner(info *workload.Info, snapshot *schdcache.Snapshot) *flavorassigner.FlavorAssigner {
	return flavorassigner.New(info, snapshot.ClusterQueue(info.ClusterQueue), snapshot.ResourceFlavors, k.fairSharing,
		preemption.NewOracle(k.preemptor, snapshot), nil,
		config.QuotaCheckBlockUndeclared, resources.NewResourceFormatter(), 0)
}
