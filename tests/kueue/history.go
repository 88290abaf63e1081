package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	"sigs.k8s.io/kueue/pkg/workload"
	"sigs.k8s.io/kueue/pkg/workload/evict"
	"sigs.k8s.io/kueue/pkg/workload/finish"
)

// History is what happens to queues and workloads, one event after the other.
type History struct {
	FairSharing bool    `json:"fairSharing"`
	Events      []Event `json:"events"`
}

// Event is one of these, and Wake with it or alone. What it can't be done to is left as it is.
type Event struct {
	Flavor       *kueue.ResourceFlavor `json:"flavor,omitempty"`
	Cohort       *kueue.Cohort         `json:"cohort,omitempty"`
	ClusterQueue *kueue.ClusterQueue   `json:"clusterQueue,omitempty"`
	LocalQueue   *kueue.LocalQueue     `json:"localQueue,omitempty"`
	DeleteCohort string                `json:"deleteCohort,omitempty"`
	Wake         bool                  `json:"wake,omitempty"` // tries all that wait again, at its end

	Arrives     *Workload        `json:"arrives,omitempty"`     // `clusterQueue` is its LocalQueue
	Ends        string           `json:"ends,omitempty"`        // or is deleted, if it doesn't run
	Stopped     string           `json:"stopped,omitempty"`     // its eviction is done
	Deactivated string           `json:"deactivated,omitempty"` // and stopped at once
	Activated   string           `json:"activated,omitempty"`
	Priority    map[string]int32 `json:"priority,omitempty"` // new ones
}

// Course is what came of it: after each event the workloads whose state is
// another than before it; null if they are gone.
type Course struct {
	Changes  []map[string]any `json:"changes"`
	Circling map[int][]string `json:"circling,omitempty"` // by event, see README.md
	Error    string           `json:"error,omitempty"`    // after those events
}

func parseHistory(content []byte) (*History, error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	var h History
	return &h, decoder.Decode(&h)
}

func follow(h *History) (course Course) {
	course.Changes = []map[string]any{}
	course.Circling = map[int][]string{}
	defer func() {
		if reason := recover(); reason != nil {
			course.Error = fmt.Sprint("panic: ", reason)
		}
	}()
	w := newWorld(h.FairSharing)
	if err := w.addNamespace(); err != nil {
		return Course{Error: err.Error()}
	}
	before := map[string]string{}
	for i := range h.Events {
		w.clock.Step(time.Second)
		w.cycles = 0
		err := w.happen(&h.Events[i])
		if h.Events[i].Wake {
			qcache.NotifyRetryInadmissible(w.queues, sets.New(w.queues.GetClusterQueueNames()...))
		}
		if err == nil {
			err = w.settle()
		}
		if err != nil {
			course.Error = err.Error()
			return course
		}
		now := w.states()
		course.Changes = append(course.Changes, changes(before, now))
		if circling := w.scanning(); len(circling) > 0 {
			course.Circling[i] = circling
		}
		before = now
	}
	return course
}

func changes(before, now map[string]string) map[string]any {
	changed := map[string]any{}
	for name, state := range now {
		if before[name] != state {
			changed[name] = state
		}
	}
	for name := range before {
		if _, ok := now[name]; !ok {
			changed[name] = nil
		}
	}
	return changed
}

func (w *world) happen(e *Event) error {
	switch {
	case e.Flavor != nil:
		return w.apply(e.Flavor)
	case e.Cohort != nil:
		return w.apply(e.Cohort)
	case e.ClusterQueue != nil:
		setDefaults(e.ClusterQueue)
		return w.apply(e.ClusterQueue)
	case e.LocalQueue != nil:
		e.LocalQueue.Namespace = namespace
		return w.apply(e.LocalQueue)
	case e.DeleteCohort != "":
		cohort := &kueue.Cohort{}
		cohort.Name = e.DeleteCohort
		return client.IgnoreNotFound(w.store.Delete(w.ctx, cohort))
	case e.Arrives != nil:
		e.Arrives.CreatedAt.Time = w.clock.Now()
		return w.store.Create(w.ctx, e.Arrives.object(kueue.LocalQueueName(e.Arrives.ClusterQueue)))
	case e.Ends != "":
		return w.end(e.Ends)
	case e.Stopped != "":
		if object := w.find(e.Stopped); object != nil && workload.HasQuotaReservation(object) && evict.IsEvicted(object) {
			return w.stopped(object)
		}
	case e.Deactivated != "":
		return w.deactivate(e.Deactivated)
	case e.Activated != "":
		if object := w.find(e.Activated); object != nil {
			object.Spec.Active = new(true)
			return w.store.Update(w.ctx, object)
		}
	}
	for name, priority := range e.Priority {
		if object := w.find(name); object != nil {
			object.Spec.Priority = &priority
			if err := w.store.Update(w.ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) end(name string) error {
	object := w.find(name)
	if object == nil {
		return nil
	}
	if workload.HasQuotaReservation(object) {
		if err := finish.Finish(w.ctx, w.store, object, kueue.WorkloadFinishedReasonSucceeded, "", w.clock); err != nil {
			return err
		}
		if err := w.react(); err != nil {
			return err
		}
	}
	return client.IgnoreNotFound(w.store.Delete(w.ctx, object))
}

func (w *world) deactivate(name string) error {
	object := w.find(name)
	if object == nil {
		return nil
	}
	object.Spec.Active = new(false)
	if err := w.store.Update(w.ctx, object); err != nil {
		return err
	}
	if err := w.react(); err != nil {
		return err
	}
	if object = w.find(name); workload.HasQuotaReservation(object) && evict.IsEvicted(object) {
		return w.stopped(object)
	}
	return nil
}
