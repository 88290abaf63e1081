package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
	"sigs.k8s.io/kueue/pkg/util/routine"
	"sigs.k8s.io/kueue/pkg/util/wait"
	"sigs.k8s.io/kueue/pkg/workload"
	"sigs.k8s.io/kueue/pkg/workload/evict"
	"sigs.k8s.io/kueue/pkg/workload/patching"
)

// One scheduling cycle, and what runs its writes: Kueue exports neither.

//go:linkname schedule sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).schedule
func schedule(*scheduler.Scheduler, context.Context) wait.SpeedSignal

//go:linkname setAdmissionRoutineWrapper sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).setAdmissionRoutineWrapper
func setAdmissionRoutineWrapper(*scheduler.Scheduler, routine.Wrapper)

// atOnce runs what Kueue would leave to a goroutine.
type atOnce struct{}

func (atOnce) Run(write func()) { write() }

// world is Kueue without a cluster: its scheduler, cache, queue manager and
// core controllers on a store, one step after the other.
type world struct {
	ctx       context.Context
	store     *store
	clock     *testingclock.FakeClock
	cache     *schdcache.Cache
	queues    *qcache.Manager
	requeuer  interface{ ProcessRequeues(context.Context) int }
	scheduler *scheduler.Scheduler

	flavors       *core.ResourceFlavorReconciler
	cohorts       *core.CohortReconciler
	clusterQueues *core.ClusterQueueReconciler
	localQueues   *core.LocalQueueReconciler
	workloads     *core.WorkloadReconciler

	cycles int
}

func newWorld(fair bool) *world {
	var fairSharing *config.FairSharing
	if fair {
		fairSharing = &config.FairSharing{} // no strategies named: the default ones
	}
	w := &world{
		ctx:   logr.NewContext(context.Background(), logr.Discard()),
		store: newStore(),
		clock: testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
	}
	expected := expectations.New()
	recorder := &events.FakeRecorder{}
	w.cache = schdcache.New(w.store, schdcache.WithFairSharing(fair))
	w.queues, w.requeuer = qcache.NewManagerForUnitTestsWithRequeuer(w.store, w.cache,
		qcache.WithClock(w.clock), qcache.WithPreemptionExpectations(expected))
	w.scheduler = scheduler.New(w.queues, w.cache, w.store, recorder, scheduler.WithFairSharing(fairSharing),
		scheduler.WithClock(nil, w.clock), scheduler.WithPreemptionExpectations(expected))
	setAdmissionRoutineWrapper(w.scheduler, atOnce{})
	w.flavors = core.NewResourceFlavorReconciler(w.store, w.queues, w.cache, nil)
	w.cohorts = core.NewCohortReconciler(w.store, w.cache, w.queues, core.CohortReconcilerWithFairSharing(fair))
	w.clusterQueues = core.NewClusterQueueReconciler(w.store, w.queues, w.cache, core.WithFairSharing(fair))
	w.localQueues = core.NewLocalQueueReconciler(w.store, w.queues, w.cache, core.WithClock(w.clock))
	w.workloads = core.NewWorkloadReconciler(w.store, w.queues, w.cache, recorder, core.WithPreemptionExpectations(expected))
	return w
}

// apply creates the object, or writes its spec.
func (w *world) apply(object client.Object) error {
	known := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
	if err := w.store.Get(w.ctx, client.ObjectKeyFromObject(object), known); err != nil {
		return w.store.Create(w.ctx, object)
	}
	part(known, "Spec").Set(part(object, "Spec"))
	return w.store.Update(w.ctx, known)
}

// tell gives a change to the controller that watches the kind.
func (w *world) tell(c change) {
	switch c.key.kind {
	case reflect.TypeFor[*kueue.ResourceFlavor]():
		tell(w.flavors, c, (*kueue.ResourceFlavor)(nil))
	case reflect.TypeFor[*kueue.Cohort]():
		tell(w.cohorts, c, (*kueue.Cohort)(nil))
	case reflect.TypeFor[*kueue.ClusterQueue]():
		tell(w.clusterQueues, c, (*kueue.ClusterQueue)(nil))
	case reflect.TypeFor[*kueue.LocalQueue]():
		tell(w.localQueues, c, (*kueue.LocalQueue)(nil))
	case reflect.TypeFor[*kueue.Workload]():
		tell(w.workloads, c, (*kueue.Workload)(nil))
	}
}

type watcher[T client.Object] interface {
	Create(event.TypedCreateEvent[T]) bool
	Update(event.TypedUpdateEvent[T]) bool
	Delete(event.TypedDeleteEvent[T]) bool
}

func tell[T client.Object](to watcher[T], c change, _ T) {
	switch {
	case c.old == nil:
		to.Create(event.TypedCreateEvent[T]{Object: c.now.(T)})
	case c.now == nil:
		to.Delete(event.TypedDeleteEvent[T]{Object: c.old.(T)})
	default:
		to.Update(event.TypedUpdateEvent[T]{ObjectOld: c.old.(T), ObjectNew: c.now.(T)})
	}
}

// react brings Kueue's memory and the objects' status up to date with what
// changed: every controller sees every change, and what it writes.
func (w *world) react() error {
	for {
		changes := w.store.takeChanges()
		if len(changes) == 0 {
			w.requeuer.ProcessRequeues(w.ctx)
			return nil
		}
		workloads, all := map[key]bool{}, false
		for _, c := range changes {
			w.tell(c)
			if c.key.kind == reflect.TypeFor[*kueue.Workload]() {
				workloads[c.key] = true
			} else {
				all = true
			}
		}
		if err := w.reconcile(changes, workloads, all); err != nil {
			return err
		}
	}
}

func (w *world) reconcile(changes []change, workloads map[key]bool, everything bool) error {
	for _, c := range changes {
		var err error
		request := ctrl.Request{NamespacedName: c.key.name}
		switch c.key.kind {
		case reflect.TypeFor[*kueue.Cohort]():
			// A cycle is reported on the Cohort; its members are inactive.
			_, _ = w.cohorts.Reconcile(w.ctx, request)
		case reflect.TypeFor[*kueue.Workload]():
			_, err = w.workloads.Reconcile(w.ctx, request)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.key, err)
		}
	}
	if !everything {
		return nil
	}
	for _, queue := range all[*kueue.ClusterQueue](w.store) {
		if _, err := w.clusterQueues.Reconcile(w.ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(queue)}); err != nil {
			return fmt.Errorf("ClusterQueue %s: %w", queue.Name, err)
		}
	}
	for _, queue := range all[*kueue.LocalQueue](w.store) {
		if _, err := w.localQueues.Reconcile(w.ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(queue)}); err != nil {
			return fmt.Errorf("LocalQueue %s: %w", queue.Name, err)
		}
	}
	for _, object := range all[*kueue.Workload](w.store) {
		if workloads[keyOf(object)] {
			continue
		}
		if _, err := w.workloads.Reconcile(w.ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)}); err != nil {
			return fmt.Errorf("Workload %s: %w", object.Name, err)
		}
	}
	return nil
}

// mostCycles of one event: more would be a livelock.
const mostCycles = 1000

// settle runs scheduling cycles until another one would change nothing.
func (w *world) settle() error {
	if err := w.react(); err != nil {
		return err
	}
	for idle := 0; w.hasHeads(); w.cycles++ {
		before := w.signature()
		schedule(w.scheduler, w.ctx)
		if err := w.react(); err != nil {
			return err
		}
		idle++
		if before != w.signature() {
			idle = 0
		}
		// A head that stays may try its next flavor in the next cycle.
		if idle > 0 && (len(w.scanning()) == 0 || idle > mostFlavors) {
			return nil
		}
		if w.cycles > mostCycles {
			return fmt.Errorf("it doesn't come to rest")
		}
	}
	return nil
}

// mostFlavors that heads may have before them in turn.
const mostFlavors = 24

func (w *world) hasHeads() bool {
	for name := range w.queues.Dump() {
		if w.cache.ClusterQueueActive(name) {
			return true
		}
	}
	return false
}

// scanning are those who would try further flavors in the next cycle. Where
// another cycle would change nothing else they do so for ever.
func (w *world) scanning() []string {
	var names []string
	for name := range w.queues.Dump() {
		for _, info := range w.queues.PendingWorkloadsInfo(name) {
			if info.LastAssignment.PendingFlavors() && w.cache.ClusterQueueActive(name) {
				names = append(names, info.Obj.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// signature is all that a cycle may change, but for what heads tried last.
func (w *world) signature() string {
	var all strings.Builder
	for id, state := range w.states() {
		fmt.Fprintln(&all, id, state)
	}
	lines := strings.Split(all.String(), "\n")
	for name, waiting := range w.queues.Dump() {
		slices.Sort(waiting)
		lines = append(lines, fmt.Sprint(name, waiting))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// states of all workloads by name, in words: "pending", "inactive", or
// "admitted" or "evicting" with the queue and the flavors.
func (w *world) states() map[string]string {
	states := map[string]string{}
	for _, object := range all[*kueue.Workload](w.store) {
		switch {
		case !workload.IsActive(object):
			states[object.Name] = "inactive"
		case !workload.HasQuotaReservation(object):
			states[object.Name] = "pending"
		case evict.IsEvicted(object):
			states[object.Name] = "evicting " + flavorsOf(object.Status.Admission)
		default:
			states[object.Name] = "admitted " + flavorsOf(object.Status.Admission)
		}
	}
	return states
}

func flavorsOf(admission *kueue.Admission) string {
	words := []string{string(admission.ClusterQueue)}
	for _, set := range admission.PodSetAssignments {
		var flavors []string
		for name, flavor := range set.Flavors {
			flavors = append(flavors, fmt.Sprintf("%s=%s", name, flavor))
		}
		slices.Sort(flavors)
		words = append(words, string(set.Name)+":"+strings.Join(flavors, ","))
	}
	return strings.Join(words, " ")
}

func (w *world) find(name string) *kueue.Workload {
	var object kueue.Workload
	if w.store.Get(w.ctx, client.ObjectKey{Namespace: namespace, Name: name}, &object) != nil {
		return nil
	}
	return &object
}

// stopped does what a job's controller does once the pods of an evicted
// workload are gone: gives the quota back, to wait again or not.
func (w *world) stopped(object *kueue.Workload) error {
	evicted := apimeta.FindStatusCondition(object.Status.Conditions, kueue.WorkloadEvicted)
	again := evicted.Reason == kueue.WorkloadEvictedByPreemption
	return patching.PatchAdmissionStatus(w.ctx, w.store, object, w.clock, func(object *kueue.Workload) (bool, error) {
		workload.SetRequeuedCondition(object, evicted.Reason, "", again)
		workload.UnsetQuotaReservationWithCondition(object, kueue.WorkloadPending, "", w.clock.Now()) //nolint:staticcheck
		return true, nil
	})
}

// addNamespace is where all workloads are.
func (w *world) addNamespace() error {
	object := &corev1.Namespace{}
	object.Name = namespace
	return w.store.Create(w.ctx, object)
}
