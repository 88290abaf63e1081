package main

import (
	"fmt"
	"reflect"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/workload"
	"sigs.k8s.io/kueue/pkg/workload/evict"
)

// Outcome is what the admission of a whole case took. The clock runs from the
// first workload that comes, while Kueue's own packages work: not while queues
// are made, or while it is looked whether they are done.
type Outcome struct {
	Pending   int     `json:"pending"`
	Admitted  int     `json:"admitted"`
	Seconds   float64 `json:"seconds"`
	Cycles    int     `json:"cycles"`
	Preempted int     `json:"preempted"`
	Ended     int     `json:"ended"`
}

type benchmark struct {
	*world
	outcome Outcome
	running []*kueue.Workload // first admitted first; some may have been evicted
}

// bench lets the pending workloads of a case come in waves, each once Kueue's
// scheduler admits nobody of those before any more. Then, up to `ends` times, the
// workload that was admitted first ends, another one comes if any are left, and it
// goes on. Evictions are done at once.
func bench(c *Case, waves []int, ends int) (Outcome, error) {
	b := benchmark{world: newWorld(c.FairSharing)}
	b.outcome.Pending = len(c.Pending)
	if len(c.Admitted) > 0 {
		return b.outcome, fmt.Errorf("what runs before the clock isn't measured: the case must have nothing admitted")
	}
	if err := b.addQueues(c); err != nil {
		return b.outcome, err
	}
	left := c.Pending
	for _, wave := range waves {
		if wave > len(left) {
			return b.outcome, fmt.Errorf("a wave of %d, and only %d workloads are left", wave, len(left))
		}
		if err := b.arrive(left[:wave]); err != nil {
			return b.outcome, err
		}
		left = left[wave:]
	}
	for {
		for len(b.running) > 0 && !b.runs(b.running[0]) {
			b.running = b.running[1:]
		}
		if b.outcome.Ended == ends || len(b.running) == 0 {
			return b.outcome, nil
		}
		b.outcome.Ended++
		if err := b.store.Delete(b.ctx, b.running[0]); err != nil {
			return b.outcome, err
		}
		next := min(1, len(left))
		if err := b.arrive(left[:next]); err != nil {
			return b.outcome, err
		}
		left = left[next:]
	}
}

func (b *benchmark) arrive(workloads []Workload) error {
	for i := range workloads {
		if err := b.store.Create(b.ctx, workloads[i].object(kueue.LocalQueueName(workloads[i].ClusterQueue))); err != nil {
			return err
		}
	}
	return b.admit()
}

func (b *benchmark) addQueues(c *Case) error {
	if err := b.addNamespace(); err != nil {
		return err
	}
	var objects []client.Object
	for i := range c.Flavors {
		objects = append(objects, &c.Flavors[i])
	}
	for i := range c.Cohorts {
		objects = append(objects, &c.Cohorts[i])
	}
	for i := range c.ClusterQueues {
		setDefaults(&c.ClusterQueues[i])
		local := &kueue.LocalQueue{}
		local.Name, local.Namespace = c.ClusterQueues[i].Name, namespace
		local.Spec.ClusterQueue = kueue.ClusterQueueReference(local.Name)
		objects = append(objects, &c.ClusterQueues[i], local)
	}
	for _, object := range objects {
		if err := b.apply(object); err != nil {
			return err
		}
	}
	return b.react()
}

func (b *benchmark) runs(object *kueue.Workload) bool {
	now := b.find(object.Name)
	return now != nil && workload.HasQuotaReservation(now)
}

// admit runs cycles until one neither admits, nor evicts, nor parks anybody.
func (b *benchmark) admit() error {
	if err := b.see(); err != nil {
		return err
	}
	for waiting := -1; b.hasHeads(); {
		before := b.outcome.Admitted + b.outcome.Preempted
		begin := time.Now()
		schedule(b.scheduler, b.ctx)
		b.outcome.Seconds += time.Since(begin).Seconds()
		b.outcome.Cycles++
		if err := b.see(); err != nil {
			return err
		}
		now := 0
		for _, heap := range b.queues.Dump() {
			now += len(heap)
		}
		if now == waiting && before == b.outcome.Admitted+b.outcome.Preempted {
			return nil
		}
		waiting = now
	}
	return nil
}

// see tells the controllers what changed, and does the evictions.
func (b *benchmark) see() error {
	for {
		changes := b.store.takeChanges()
		if len(changes) == 0 {
			begin := time.Now()
			b.requeuer.ProcessRequeues(b.ctx)
			b.outcome.Seconds += time.Since(begin).Seconds()
			return nil
		}
		begin := time.Now()
		for _, c := range changes {
			b.tell(c)
		}
		b.outcome.Seconds += time.Since(begin).Seconds()
		for _, c := range changes {
			if c.key.kind != reflect.TypeFor[*kueue.Workload]() || c.old == nil || c.now == nil {
				continue
			}
			old, now := c.old.(*kueue.Workload), c.now.(*kueue.Workload)
			switch {
			case !workload.HasQuotaReservation(now):
			case !workload.HasQuotaReservation(old):
				b.outcome.Admitted++
				b.running = append(b.running, now)
			case evict.IsEvicted(now) && !evict.IsEvicted(old):
				b.outcome.Preempted++
				b.outcome.Admitted--
				if err := b.stopped(now.DeepCopy()); err != nil {
					return err
				}
			}
		}
	}
}
