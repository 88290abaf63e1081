package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// How long nobody may ask the API server for anything before a race begins, and
// after it.
const quiet = 2 * time.Second

// result is one race of one program.
type result struct {
	took     time.Duration            // from the release of the queues until the last gang was seen admitted
	bound    time.Duration            // the same until the last member was bound; 0: it binds none
	cpu      map[string]time.Duration // of each program, until the last gang was admitted
	requests []plane.Request
	asOf     int // how many of the requests were received until the last gang was admitted
}

// race lets a contestant admit the load once.
func race(ctx context.Context, p *plane.Plane, l load, c contestant) (r result, err error) {
	defer func() {
		if stopped := c.stop(ctx); stopped != nil {
			err = errors.Join(err, fmt.Errorf("%s: clearing away: %w", c.name(), stopped))
		}
	}()
	if err := c.start(ctx); err != nil {
		return r, err
	}
	if err := l.createQueues(ctx, p); err != nil {
		return r, err
	}
	if err := c.createGangs(ctx); err != nil {
		return r, err
	}
	if err := p.AwaitQuiet(quiet, 5*time.Minute, true); err != nil {
		return r, err
	}
	admissions, err := watchAdmissions(ctx, p, l, c)
	if err != nil {
		return r, err
	}
	idle := p.CPU()
	begin := time.Now()
	if err := l.release(ctx, p); err != nil {
		return r, err
	}
	end, err := admissions.await(ctx, 5*time.Minute)
	if err != nil {
		return r, fmt.Errorf("%s: %w", c.name(), err)
	}
	r.took = end.Sub(begin)
	r.cpu = p.CPU()
	for name, before := range idle {
		r.cpu[name] -= before
	}
	if err := c.finish(ctx); err != nil {
		return r, err
	}
	finished := time.Now()
	// Muster's events go on for minutes, at most 50 per second.
	if err := p.AwaitQuiet(quiet, time.Minute, false); err != nil {
		return r, err
	}
	all, err := p.Requests(begin, time.Now())
	if err != nil {
		return r, err
	}
	for _, request := range all {
		// kube-scheduler's own way to bind isn't Muster's.
		if request.Resource == "pods/binding" && request.Received.Before(finished) {
			r.bound = max(r.bound, request.Answered.Sub(begin))
		}
	}
	r.requests = slices.DeleteFunc(all, func(request plane.Request) bool { return !c.asked(request) })
	slices.SortFunc(r.requests, func(a, b plane.Request) int { return a.Received.Compare(b.Received) })
	r.asOf, _ = slices.BinarySearchFunc(r.requests, end, func(request plane.Request, end time.Time) int {
		return request.Received.Compare(end)
	})
	return r, nil
}

// admissions follows the Workloads, which say who is admitted whoever does it.
type admissions struct {
	client   dynamic.ResourceInterface
	watch    watch.Interface
	revision string // up to which everything was seen
	waiting  map[string]bool
}

func watchAdmissions(ctx context.Context, p *plane.Plane, l load, c contestant) (*admissions, error) {
	client := p.Dynamic.Resource(timeline.Workloads)
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	a := &admissions{waiting: map[string]bool{}}
	for i := range list.Items {
		if admitted(&list.Items[i]) {
			return nil, fmt.Errorf("%s admitted %s although its queue is held", c.name(), gangOf(&list.Items[i]))
		}
		a.waiting[gangOf(&list.Items[i])] = true
	}
	for _, g := range l.gangs {
		if !a.waiting[g.key()] {
			return nil, fmt.Errorf("gang %s wasn't created", g.key())
		}
	}
	a.revision = list.GetResourceVersion()
	a.client = client
	return a, a.follow(ctx)
}

// follow watches from where it ended: the API server ends the watch of one who is
// slow, as a small machine makes everybody now and then.
func (a *admissions) follow(ctx context.Context) (err error) {
	a.watch, err = a.client.Watch(ctx, metav1.ListOptions{ResourceVersion: a.revision})
	return err
}

// gangOf is the gang that the Workload is of: its owner, if it has one.
func gangOf(workload metav1.Object) string {
	name := workload.GetName()
	if owner := metav1.GetControllerOf(workload); owner != nil {
		name = owner.Name
	}
	return workload.GetNamespace() + "/" + name
}

func admitted(workload *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(workload.Object, "status", "conditions")
	for _, raw := range conditions {
		condition, _ := raw.(map[string]any)
		if condition["type"] == "Admitted" {
			return condition["status"] == "True"
		}
	}
	return false
}

// await returns when the last one was seen admitted.
func (a *admissions) await(ctx context.Context, patience time.Duration) (time.Time, error) {
	defer func() { a.watch.Stop() }()
	all := len(a.waiting)
	timeout := time.After(patience)
	for {
		select {
		case event, open := <-a.watch.ResultChan():
			if !open {
				if err := a.follow(ctx); err != nil {
					return time.Time{}, err
				}
				continue
			}
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type == watch.Error {
				return time.Time{}, fmt.Errorf("the watch ended with %d of %d admitted: %w", all-len(a.waiting), all, apierrors.FromObject(event.Object))
			}
			a.revision = object.GetResourceVersion()
			if gang := gangOf(object); a.waiting[gang] && admitted(object) {
				if delete(a.waiting, gang); len(a.waiting) == 0 {
					return time.Now(), nil
				}
			}
		case <-timeout:
			return time.Time{}, fmt.Errorf("%d of %d gangs were admitted within %v, not %s",
				all-len(a.waiting), all, patience, slices.Min(slices.Collect(maps.Keys(a.waiting))))
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// writes counts what of the requests changes something.
func writes(requests []plane.Request) int {
	count := 0
	for _, request := range requests {
		if request.Writes() {
			count++
		}
	}
	return count
}

// refused counts the writes that had no effect.
func refused(requests []plane.Request) int {
	count := 0
	for _, request := range requests {
		if request.Writes() && request.Code >= 400 {
			count++
		}
	}
	return count
}

// describeWrites is what was written for each gang on average, by kind of object,
// the most frequent first.
func describeWrites(requests []plane.Request, gangs int) string {
	counts := map[string]int{}
	for _, request := range requests {
		if request.Writes() {
			counts[request.Resource]++
		}
	}
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	var parts []string
	for _, kind := range kinds {
		parts = append(parts, fmt.Sprintf("%s %.2f", kind, float64(counts[kind])/float64(gangs)))
	}
	return strings.Join(parts, ", ")
}

// describeCPU names the programs that computed, the busiest first.
func describeCPU(times map[string]time.Duration) string {
	names := slices.SortedFunc(maps.Keys(times), func(a, b string) int {
		return cmp.Or(cmp.Compare(times[b], times[a]), strings.Compare(a, b))
	})
	var parts []string
	for _, name := range names {
		if times[name] >= 10*time.Millisecond {
			parts = append(parts, fmt.Sprintf("%s %.2f s", name, times[name].Seconds()))
		}
	}
	return strings.Join(parts, ", ")
}

// withinLimit tells whether a client's limit of so many requests per second, and
// as many at once after a pause, would never have held one of them back. client-go
// has such a limit before the request is sent; Muster has none of its own.
func withinLimit(requests []plane.Request, perSecond float64) bool {
	tokens := perSecond
	for i, request := range requests {
		if i > 0 {
			tokens = min(perSecond, tokens+perSecond*request.Received.Sub(requests[i-1].Received).Seconds())
		}
		if tokens--; tokens < 0 {
			return false
		}
	}
	return true
}

// peak is the largest number of requests within one second.
func peak(requests []plane.Request) int {
	most, first := 0, 0
	for i, request := range requests {
		for request.Received.Sub(requests[first].Received) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
