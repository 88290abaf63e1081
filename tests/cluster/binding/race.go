package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/tests/cluster/plane"
)

// When the clock starts.
const (
	// The scheduler runs, its caches are warm, and the first pod is created.
	creating = "creating"
	// All pods are there, and the scheduler is started.
	draining = "draining"
	// As creating, of gangs that need more than there is.
	contending = "contending"
)

const (
	// How long a contender has for a load.
	patience = 4 * time.Minute
	// How long it may bind nobody, where not all find room.
	hesitation = 30 * time.Second
	// How long a contender may write nothing before a race begins and after it.
	quiet = 2 * time.Second
)

// result is one race.
type result struct {
	row     string
	load    load
	mode    string
	workers int       // of raw
	began   time.Time // when the scheduler was started, while draining

	pods     []created
	bindings map[string]time.Time // when the API server had taken each pod's, by its name
	cpu      map[string]time.Duration
	memory   map[string]int64 // most bytes, of each program
	gets     int              // of single objects, and
	requests []plane.Request  // writes of the contender, from the PodGroups' creation until it was quiet again
	events   map[string]int   // by kind and reason, as far as they have come
	bound    map[int]int      // members with a node in the end, by gang
	fitting  int              // gangs that had room and aren't whole
	over     int              // nodes with more than they have
}

// race lets a contender bind the load once.
func race(ctx context.Context, c *cluster, one contender, l load, mode string) (r result, err error) {
	r = result{row: one.name, load: l, mode: mode}
	namespace := ""
	running := false
	defer func() {
		if running {
			err = errors.Join(err, one.stop(c))
		}
		if namespace != "" {
			err = errors.Join(err, c.clearAway(ctx, namespace))
		}
	}()
	start := func() error {
		running = true
		return one.start(c)
	}
	if err := c.withoutWebhooks(ctx); err != nil {
		return r, err
	}
	if mode != draining {
		if err := start(); err != nil {
			return r, err
		}
		if one.isMuster() {
			if err := c.plane.Muster.AwaitReady(time.Minute); err != nil {
				return r, err
			}
		}
	}
	begin := time.Now()
	if namespace, err = c.createGroups(ctx, l); err != nil {
		return r, err
	}
	if mode != draining {
		if err := c.awaitQuiet(one, begin); err != nil {
			return r, err
		}
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	moments, err := c.watchBound(watching, namespace, l)
	if err != nil {
		return r, err
	}
	before := c.plane.CPU()
	gatedBefore := one.gated && mode == draining
	if r.pods, err = c.createPods(ctx, l, namespace, one.scheduler, gatedBefore, nil); err != nil {
		return r, err
	}
	if mode == draining {
		// What the pods' creation left to do.
		time.Sleep(quiet)
		before = c.plane.CPU()
		r.began = time.Now()
		if err := start(); err != nil {
			return r, err
		}
	}
	most := patience
	if mode == contending {
		most = hesitation
	}
	if err := awaitLast(ctx, moments, most); errors.Is(err, errNobody) && mode != contending {
		fmt.Printf("%s: not all of %v were bound: %v\n", one.name, l, err)
	} else if err != nil && !errors.Is(err, errNobody) {
		return r, err
	}
	return r, r.conclude(ctx, c, one, namespace, begin, before)
}

var errNobody = errors.New("nobody was bound any more")

// awaitLast returns when the moments of bindings end, or none comes for so long.
func awaitLast(ctx context.Context, moments <-chan error, patience time.Duration) error {
	for {
		select {
		case err, more := <-moments:
			if !more || err != nil {
				return err
			}
		case <-time.After(patience):
			return fmt.Errorf("%w for %v", errNobody, patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watchBound brings a nil whenever a pod has got a node, and ends when no further gang can become whole.
func (c *cluster) watchBound(ctx context.Context, namespace string, l load) (<-chan error, error) {
	pods := c.client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	revision := list.ResourceVersion
	moments := make(chan error, l.pods()+1)
	go func() {
		defer close(moments)
		known := map[string]bool{}
		bound := map[int]int{}
		for ctx.Err() == nil {
			watch, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: revision})
			if err != nil {
				moments <- err
				return
			}
			for event := range watch.ResultChan() {
				pod, ok := event.Object.(*corev1.Pod)
				if !ok {
					moments <- fmt.Errorf("the watch of pods brought %v", event.Object)
					return
				}
				revision = pod.ResourceVersion
				if pod.Spec.NodeName == "" || known[pod.Name] {
					continue
				}
				known[pod.Name] = true
				bound[gangOf(pod)]++
				if l.fitting(bound, c.gpus()) == 0 {
					watch.Stop()
					return
				}
				moments <- nil
			}
		}
	}()
	return moments, nil
}

// fitting counts the gangs that aren't whole and lack no more than is free of so many GPUs.
func (l load) fitting(bound map[int]int, gpus int64) int {
	for _, members := range bound {
		gpus -= int64(members) * l.gpus
	}
	count := 0
	for gang, size := range l.sizes {
		if lacks := int64(size-bound[gang]) * l.gpus; lacks > 0 && lacks <= gpus {
			count++
		}
	}
	return count
}

// conclude reads what became of a race that has just ended.
func (r *result) conclude(ctx context.Context, c *cluster, one contender, namespace string, begin time.Time, before map[string]time.Duration) error {
	r.cpu, r.memory = c.plane.CPU(), c.plane.PeakMemory()
	for name, earlier := range before {
		r.cpu[name] -= earlier
	}
	if r.mode == contending {
		// Who can't place a gang may try, and write, for ever.
		time.Sleep(quiet)
	} else if err := c.awaitQuiet(one, begin); err != nil {
		return err
	}
	requests, err := c.plane.Requests(begin, time.Now())
	if err != nil {
		return err
	}
	r.bindings = map[string]time.Time{}
	for _, request := range requests {
		if request.User != one.user {
			continue
		}
		if request.Verb == "get" {
			r.gets++
		}
		if !request.Writes() {
			continue
		}
		r.requests = append(r.requests, request)
		if name, mine := strings.CutPrefix(request.Object, namespace+"/"); mine && request.Resource == "pods/binding" && request.Code < 300 {
			r.bindings[name] = request.Answered
		}
	}
	pods, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	r.bound, r.over = standing(pods.Items, namespace)
	r.fitting = r.load.fitting(r.bound, c.gpus())
	events, err := c.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	r.events = map[string]int{}
	for _, event := range events.Items {
		r.events[event.InvolvedObject.Kind+" "+event.Reason]++
	}
	return nil
}

// awaitQuiet returns once the contender hasn't written anything for so long, but for events, which
// may come late. It may read.
func (c *cluster) awaitQuiet(one contender, begin time.Time) error {
	started := time.Now()
	for deadline := started.Add(time.Minute); ; time.Sleep(quiet / 4) {
		requests, err := c.plane.Requests(begin, time.Now())
		if err != nil {
			return err
		}
		last := started
		for _, request := range requests {
			if request.User == one.user && request.Writes() && request.Resource != "events" && request.Answered.After(last) {
				last = request.Answered
			}
		}
		if time.Since(last) >= quiet {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s wrote something %v ago still", one.name, time.Since(last))
		}
	}
}

// standing counts the members with a node by gang, and the nodes with more GPUs asked for than they
// have.
func standing(pods []corev1.Pod, namespace string) (bound map[int]int, over int) {
	bound = map[int]int{}
	used := map[string]int64{}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" {
			continue
		}
		asked := pod.Spec.Containers[0].Resources.Requests[gpu]
		used[pod.Spec.NodeName] += asked.Value()
		if pod.Namespace == namespace {
			bound[gangOf(&pod)]++
		}
	}
	for _, count := range used {
		if count > gpusOfNode {
			over++
		}
	}
	return bound, over
}
