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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

var jobResource = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}

const (
	// How long nobody may ask the API server for anything before the clock starts.
	quiet = 2 * time.Second
	// How long a program is watched once all that can be is admitted: what it writes
	// about the others then counts as well.
	aftermath = 40 * time.Second
)

// result is one race of one program.
type result struct {
	asked    time.Duration            // from the creation of the first job until it was quiet
	took     time.Duration            // from the release of the queues until the last job was seen admitted and resumed
	cpu      map[string]time.Duration // of each program, until then
	requests []plane.Request          // from the creation of the jobs until it was quiet again
	racing   []plane.Request          // those while the clock ran
}

// race lets a contestant admit the load once.
func race(ctx context.Context, p *plane.Plane, l load, c contestant) (r result, err error) {
	defer func() {
		if stopped := errors.Join(l.deleteJobs(ctx, p), c.stop()); stopped != nil {
			err = errors.Join(err, fmt.Errorf("%s: clearing away: %w", c.name(), stopped))
		}
	}()
	if err := c.start(ctx); err != nil {
		return r, err
	}
	if err := l.createQueues(ctx, p); err != nil {
		return r, err
	}
	created := time.Now()
	if err := l.createJobs(ctx, p, c.scheduler()); err != nil {
		return r, err
	}
	// A program that is slow to start is quiet too.
	if err := awaitWorkloads(ctx, p, l, 5*time.Minute); err != nil {
		return r, err
	}
	if err := p.AwaitQuiet(quiet, 5*time.Minute, true); err != nil {
		return r, err
	}
	r.asked = time.Since(created) - quiet
	admissions, err := watchAdmissions(ctx, p, l)
	if err != nil {
		return r, err
	}
	defer admissions.stop()
	idle := p.CPU()
	begin := time.Now()
	if err := l.release(ctx, p); err != nil {
		return r, err
	}
	end, err := admissions.await(ctx, l.admits, 5*time.Minute)
	if err != nil {
		return r, fmt.Errorf("%s: %w", c.name(), err)
	}
	r.took = end.Sub(begin)
	r.cpu = p.CPU()
	for name, before := range idle {
		r.cpu[name] -= before
	}
	if l.admits < len(l.jobs) {
		time.Sleep(aftermath)
	}
	// Events may go on for minutes.
	if err := p.AwaitQuiet(quiet, time.Minute, false); err != nil {
		return r, err
	}
	if more, err := watchAdmissions(ctx, p, l); err != nil || more.admitted() != l.admits {
		return r, fmt.Errorf("%s admitted %d jobs, not %d: %w", c.name(), more.admitted(), l.admits, err)
	}
	if r.requests, err = p.Requests(created, time.Now()); err != nil {
		return r, err
	}
	r.requests = slices.DeleteFunc(r.requests, func(request plane.Request) bool { return !c.asked(request) })
	slices.SortFunc(r.requests, func(a, b plane.Request) int { return a.Received.Compare(b.Received) })
	for _, request := range r.requests {
		if !request.Received.Before(begin) && request.Received.Before(end) {
			r.racing = append(r.racing, request)
		}
	}
	return r, nil
}

// awaitWorkloads returns once each job has its Workload.
func awaitWorkloads(ctx context.Context, p *plane.Plane, l load, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		there, err := p.Dynamic.Resource(timeline.Workloads).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		count := len(there.Items)
		if more := there.GetRemainingItemCount(); more != nil {
			count += int(*more)
		}
		if count >= len(l.jobs) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d jobs have a Workload after %v", count, len(l.jobs), patience)
		}
		time.Sleep(time.Second)
	}
}

// admissions follows the Workloads and the jobs, which say who is admitted and
// resumed, whoever does it.
type admissions struct {
	workloads, jobs *following
}

// following is what is known of all objects of a kind, by the job.
type following struct {
	client   dynamic.ResourceInterface
	done     func(*unstructured.Unstructured) bool
	watch    watch.Interface
	revision string // up to which everything was seen
	known    map[string]bool
}

func watchAdmissions(ctx context.Context, p *plane.Plane, l load) (*admissions, error) {
	workloads, err := follow(ctx, p.Dynamic.Resource(timeline.Workloads), isAdmitted)
	if err != nil {
		return nil, err
	}
	jobs, err := follow(ctx, p.Dynamic.Resource(jobResource), isResumed)
	if err != nil {
		return nil, err
	}
	for _, j := range l.jobs {
		for _, of := range []*following{workloads, jobs} {
			if _, there := of.known[j.key()]; !there {
				return nil, fmt.Errorf("job %s or its Workload isn't there", j.key())
			}
		}
	}
	return &admissions{workloads, jobs}, nil
}

func follow(ctx context.Context, client dynamic.ResourceInterface, done func(*unstructured.Unstructured) bool) (*following, error) {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	f := &following{client: client, done: done, revision: list.GetResourceVersion(), known: map[string]bool{}}
	for i := range list.Items {
		f.known[jobOf(&list.Items[i])] = done(&list.Items[i])
	}
	return f, f.again(ctx)
}

// again watches from where it ended: the API server ends the watch of one who is
// slow, as a small machine makes everybody now and then.
func (f *following) again(ctx context.Context) (err error) {
	f.watch, err = f.client.Watch(ctx, metav1.ListOptions{ResourceVersion: f.revision})
	return err
}

func (f *following) take(ctx context.Context, event watch.Event, open bool) error {
	if !open {
		return f.again(ctx)
	}
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type == watch.Error {
		return fmt.Errorf("a watch ended: %w", apierrors.FromObject(event.Object))
	}
	f.revision = object.GetResourceVersion()
	f.known[jobOf(object)] = f.done(object)
	return nil
}

// jobOf is the job that the object is, or that the Workload is of.
func jobOf(object metav1.Object) string {
	name := object.GetName()
	if owner := metav1.GetControllerOf(object); owner != nil {
		name = owner.Name
	}
	return object.GetNamespace() + "/" + name
}

func isAdmitted(workload *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(workload.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(raw any) bool {
		condition, _ := raw.(map[string]any)
		return condition["type"] == "Admitted" && condition["status"] == "True"
	})
}

func isResumed(job *unstructured.Unstructured) bool {
	suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
	return !suspended
}

// admitted counts the jobs that are resumed and whose Workload is admitted.
func (a *admissions) admitted() int {
	count := 0
	for job, resumed := range a.jobs.known {
		if resumed && a.workloads.known[job] {
			count++
		}
	}
	return count
}

func (a *admissions) stop() {
	a.workloads.watch.Stop()
	a.jobs.watch.Stop()
}

// await returns when so many were seen admitted.
func (a *admissions) await(ctx context.Context, wanted int, patience time.Duration) (time.Time, error) {
	timeout := time.After(patience)
	if before := a.admitted(); before > 0 {
		return time.Time{}, fmt.Errorf("%d were admitted although their queues are held", before)
	}
	for a.admitted() < wanted {
		var err error
		select {
		case event, open := <-a.workloads.watch.ResultChan():
			err = a.workloads.take(ctx, event, open)
		case event, open := <-a.jobs.watch.ResultChan():
			err = a.jobs.take(ctx, event, open)
		case <-timeout:
			err = fmt.Errorf("%d of %d jobs were admitted within %v", a.admitted(), wanted, patience)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return time.Time{}, err
		}
	}
	return time.Now(), nil
}

// ofAdmission counts the writes to Workloads and to jobs, their status included.
func ofAdmission(requests []plane.Request) int {
	return writes(slices.DeleteFunc(slices.Clone(requests), func(request plane.Request) bool {
		kind, _, _ := strings.Cut(request.Resource, "/")
		return kind != "workloads" && kind != "jobs"
	}))
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

// describeWrites is what was written for each job on average, by kind of object,
// the most frequent first.
func describeWrites(requests []plane.Request, jobs int) string {
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
		parts = append(parts, fmt.Sprintf("%s %.2f", kind, float64(counts[kind])/float64(jobs)))
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
