package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/resources"
	"sigs.k8s.io/kueue/pkg/scheduler/flavorassigner"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption"
	"sigs.k8s.io/kueue/pkg/workload"
)

// Outcome is what the admission of a whole case took. Reading the case and
// filling the cache and the queues isn't in it.
type Outcome struct {
	Pending   int     `json:"pending"`
	Admitted  int     `json:"admitted"` // of those pending
	Seconds   float64 `json:"seconds"`
	Cycles    int     `json:"cycles"`
	Preempted int     `json:"preempted"`
}

// entry is a head that got flavors.
type entry struct {
	info       *workload.Info
	assignment flavorassigner.Assignment
	targets    []*preemption.Target
	queue      *schdcache.ClusterQueueSnapshot
}

// admission repeats the cycle of Kueue's scheduler (pkg/scheduler of v0.15)
// until it leads to nothing. What the scheduler writes to the API server is
// done at once and costs nothing; what was preempted ends at the end of its
// cycle and waits in its queue again.
type admission struct {
	*cluster
	queues  map[kueue.ClusterQueueReference]*pendingQueue
	order   []kueue.ClusterQueueReference
	counted map[types.UID]bool // the case's pending workloads
	changed bool               // in this cycle, so that the next one differs
	outcome Outcome
}

func bench(c *Case) (Outcome, error) {
	k, err := newCluster(c)
	if err != nil {
		return Outcome{}, err
	}
	a := &admission{cluster: k, queues: map[kueue.ClusterQueueReference]*pendingQueue{}, counted: map[types.UID]bool{}}
	a.outcome.Pending = len(c.Pending)
	mostFlavors := 0
	for i := range c.ClusterQueues {
		queue := &c.ClusterQueues[i]
		name := kueue.ClusterQueueReference(queue.Name)
		a.queues[name] = newPendingQueue(k.ordering, string(queue.Spec.QueueingStrategy) == string(kueue.StrictFIFO))
		a.order = append(a.order, name)
		for _, group := range queue.Spec.ResourceGroups {
			mostFlavors = max(mostFlavors, len(group.Flavors))
		}
	}
	for i := range c.Pending {
		info := workload.NewInfo(k.pending(&c.Pending[i]))
		info.ClusterQueue = kueue.ClusterQueueReference(c.Pending[i].ClusterQueue)
		queue := a.queues[info.ClusterQueue]
		if queue == nil {
			return Outcome{}, fmt.Errorf("workload %s: there is no ClusterQueue %s", info.Obj.UID, info.ClusterQueue)
		}
		queue.push(info)
		a.counted[info.Obj.UID] = true
	}

	begin := time.Now()
	// A head that stays may try its next flavor in each cycle, so only as many
	// idle ones as there are flavors are the end.
	for idle := 0; idle <= mostFlavors; {
		if err := a.cycle(); err != nil {
			return Outcome{}, err
		}
		idle++
		if a.changed {
			idle = 0
		}
	}
	a.outcome.Seconds = time.Since(begin).Seconds()
	return a.outcome, nil
}

// cycle takes the head of each queue through one decision.
func (a *admission) cycle() error {
	var heads []*workload.Info
	for _, name := range a.order {
		if head := a.queues[name].pop(); head != nil {
			heads = append(heads, head)
		}
	}
	a.changed = false
	if len(heads) == 0 {
		return nil
	}
	a.outcome.Cycles++
	snapshot, err := a.cache.Snapshot(context.Background())
	if err != nil {
		return err
	}
	var entries []*entry
	for _, info := range heads {
		if a.refusal(info, snapshot) != "" {
			a.requeue(info, false)
			continue
		}
		e := &entry{info: info, queue: snapshot.ClusterQueue(info.ClusterQueue)}
		e.assignment, e.targets = a.assign(info, snapshot)
		info.LastAssignment = &e.assignment.LastState
		entries = append(entries, e)
	}

	preempted := preemption.PreemptedWorkloads{}
	next := a.classicalOrder
	if a.fairSharing {
		next = a.fairOrder
	}
	for e := range next(entries) {
		if err := a.process(e, snapshot, preempted); err != nil {
			return err
		}
	}
	for _, victim := range preempted {
		if err := a.evict(victim); err != nil {
			return err
		}
	}
	return nil
}

// process admits an entry, begins its preemptions, or puts it back.
func (a *admission) process(e *entry, snapshot *schdcache.Snapshot, preempted preemption.PreemptedWorkloads) error {
	mode := e.assignment.RepresentativeMode()
	if mode == flavorassigner.Preempt && len(e.targets) == 0 && !preemption.CanAlwaysReclaim(e.queue) {
		e.queue.AddUsage(workload.Usage{Quota: reserve(e)})
	}
	if mode == flavorassigner.NoFit || mode == flavorassigner.Preempt && len(e.targets) == 0 {
		a.requeue(e.info, false)
		return nil
	}
	usage := workload.Usage{Quota: e.assignment.Usage.Quota}
	if preempted.HasAny(e.targets) || !stillFits(e, usage, snapshot, preempted) {
		e.info.LastAssignment = nil
		a.requeue(e.info, true)
		return nil
	}
	preempted.Insert(e.targets)
	e.queue.AddUsage(usage)
	if mode == flavorassigner.Preempt {
		e.info.LastAssignment = nil
		a.requeue(e.info, true)
		return nil
	}

	object := e.info.Obj.DeepCopy()
	workload.SetQuotaReservation(object, &kueue.Admission{
		ClusterQueue:      e.info.ClusterQueue,
		PodSetAssignments: e.assignment.ToAPI(),
	}, clock.RealClock{})
	a.changed = true
	if a.counted[object.UID] {
		a.outcome.Admitted++
	}
	return a.cache.AssumeWorkload(logr.Discard(), object)
}

// stillFits looks again, now that other entries of the cycle have their part.
func stillFits(e *entry, usage workload.Usage, snapshot *schdcache.Snapshot, preempted preemption.PreemptedWorkloads) bool {
	var leaving []*workload.Info
	for _, info := range preempted {
		leaving = append(leaving, info)
	}
	for _, target := range e.targets {
		leaving = append(leaving, target.WorkloadInfo)
	}
	revert := snapshot.SimulateWorkloadRemoval(leaving)
	defer revert()
	return e.queue.Fits(usage)
}

// reserve is what an entry keeps from those after it although it has no
// victims: its own queue's free quota, or what it could borrow.
func reserve(e *entry) resources.FlavorResourceQuantities {
	kept := resources.FlavorResourceQuantities{}
	for key, wanted := range e.assignment.Usage.Quota {
		quota := e.queue.QuotaFor(key)
		free := quota.Nominal - e.queue.ResourceNode.Usage[key]
		switch {
		case e.assignment.Borrowing == 0:
			kept[key] = max(0, min(wanted, free))
		case quota.BorrowingLimit == nil:
			kept[key] = wanted
		default:
			kept[key] = min(wanted, free+*quota.BorrowingLimit)
		}
	}
	return kept
}

// requeue puts a head back, or parks it until quota is freed.
func (a *admission) requeue(info *workload.Info, soon bool) {
	queue := a.queues[info.ClusterQueue]
	if soon || queue.strict || info.LastAssignment.PendingFlavors() {
		queue.push(info)
		return
	}
	queue.park(info)
	a.changed = true
}

// evict ends a victim and wakes all that is parked: some of it may fit now.
func (a *admission) evict(victim *workload.Info) error {
	if err := a.cache.DeleteWorkload(logr.Discard(), victim.Obj); err != nil {
		return err
	}
	a.outcome.Preempted++
	a.changed = true
	if a.counted[victim.Obj.UID] {
		a.outcome.Admitted--
	}
	object := victim.Obj.DeepCopy()
	object.Status.Admission = nil
	workload.UnsetQuotaReservationWithCondition(object, "Pending", "preempted", time.Now())
	workload.SetEvictedCondition(object, time.Now(), kueue.WorkloadEvictedByPreemption, "preempted")
	info := workload.NewInfo(object)
	info.ClusterQueue = victim.ClusterQueue
	a.queues[victim.ClusterQueue].push(info)
	for _, name := range a.order {
		a.queues[name].wake()
	}
	return nil
}

// classicalOrder: what borrows least, then the highest priority, then the
// longest wait.
func (a *admission) classicalOrder(entries []*entry) func(func(*entry) bool) {
	slices.SortStableFunc(entries, func(x, y *entry) int {
		if difference := x.assignment.Borrows() - y.assignment.Borrows(); difference != 0 {
			return difference
		}
		return compare(a.ordering, x.info, y.info)
	})
	return slices.Values(entries)
}
