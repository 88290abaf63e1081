// Package timeline records what the API server's own watch says happened, and
// when. Judgements about order and time are made from this record, never from
// polling: order by resourceVersion (one counter for the whole store), time by
// the moment an event was received.
package timeline

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// The kinds that are recorded.
var (
	Pods       = corev1.SchemeGroupVersion.WithResource("pods")
	Nodes      = corev1.SchemeGroupVersion.WithResource("nodes")
	NodeClaims = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}
	PodGroups  = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}
	// While they are defined.
	Workloads = schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"}
)

// Event is one change of one object, in the order it was received.
type Event struct {
	At       time.Time
	Type     watch.EventType
	Revision int64
	// One of *corev1.Pod, *corev1.Node, or *unstructured.Unstructured for
	// NodeClaims, PodGroups and Workloads.
	Object metav1.Object
}

// Timeline is the record. It is safe for concurrent use.
type Timeline struct {
	mutex   sync.Mutex
	changed chan struct{} // closed and replaced at every event
	events  []Event
	state   State
	failure error
	gaps    bool // are bridged
}

// State is the newest version of every recorded object. Valid only inside the
// function it is handed to.
type State struct {
	Pods       map[string]*corev1.Pod // by namespace/name
	Nodes      map[string]*corev1.Node
	NodeClaims map[string]*unstructured.Unstructured
	PodGroups  map[string]*unstructured.Unstructured // by namespace/name
	Workloads  map[string]*unstructured.Unstructured // by namespace/name
}

// Record starts watching and returns once each kind is listed. It ends with
// the context.
func Record(ctx context.Context, client dynamic.Interface) (*Timeline, error) {
	t := &Timeline{
		changed: make(chan struct{}),
		state: State{
			Pods:       map[string]*corev1.Pod{},
			Nodes:      map[string]*corev1.Node{},
			NodeClaims: map[string]*unstructured.Unstructured{},
			PodGroups:  map[string]*unstructured.Unstructured{},
			Workloads:  map[string]*unstructured.Unstructured{},
		},
	}
	for _, kind := range []schema.GroupVersionResource{Pods, Nodes, NodeClaims, PodGroups} {
		list, err := client.Resource(kind).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Resource, err)
		}
		for i := range list.Items {
			t.add(time.Now(), kind, watch.Added, &list.Items[i])
		}
		go t.follow(ctx, client, kind, list.GetResourceVersion())
	}
	go t.followWhereDefined(ctx, client, Workloads)
	return t, nil
}

// followWhereDefined records a kind that comes and goes. What happens between two watches is told as
// how things stand then.
func (t *Timeline) followWhereDefined(ctx context.Context, client dynamic.Interface, kind schema.GroupVersionResource) {
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		list, err := client.Resource(kind).List(ctx, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			list = &unstructured.UnstructuredList{}
		}
		t.catchUp(kind, list.Items)
		if err != nil {
			continue
		}
		stream, err := client.Resource(kind).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			continue
		}
		for event := range stream.ResultChan() {
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type == watch.Error {
				break
			}
			t.add(time.Now(), kind, event.Type, object)
		}
		stream.Stop()
	}
}

func (t *Timeline) follow(ctx context.Context, client dynamic.Interface, kind schema.GroupVersionResource, revision string) {
	for ctx.Err() == nil {
		stream, err := client.Resource(kind).Watch(ctx, metav1.ListOptions{ResourceVersion: revision, AllowWatchBookmarks: true})
		if err != nil {
			// The server may be stopping; a gap would be told as Expired.
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				if revision = t.bridge(ctx, client, kind, revision); revision == "" {
					t.fail(fmt.Errorf("watch %s: the record has a gap: %w", kind.Resource, err))
					return
				}
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		for event := range stream.ResultChan() {
			received := time.Now()
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type == watch.Error {
				if revision = t.bridge(ctx, client, kind, revision); revision == "" {
					t.fail(fmt.Errorf("watch %s: the record has a gap: %v", kind.Resource, apierrors.FromObject(event.Object)))
					return
				}
				stream.Stop()
				break
			}
			revision = object.GetResourceVersion()
			if event.Type != watch.Bookmark {
				t.add(received, kind, event.Type, object)
			}
		}
	}
}

// BridgeGaps is for cases in which the API server ends: a new one doesn't tell what happened before
// it began, so what lies between is left out of the record instead of failing it. How things stand
// is in State all the same.
func (t *Timeline) BridgeGaps() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.gaps = true
}

// bridge records how things stand as if it had just happened, and returns from where to watch on;
// "" if gaps aren't bridged. A watch that can't be had for another reason goes on where it was.
func (t *Timeline) bridge(ctx context.Context, client dynamic.Interface, kind schema.GroupVersionResource, revision string) string {
	t.mutex.Lock()
	bridged := t.gaps
	t.mutex.Unlock()
	if !bridged {
		return ""
	}
	list, err := client.Resource(kind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return revision
	}
	t.catchUp(kind, list.Items)
	return list.GetResourceVersion()
}

// catchUp records how things of a kind stand as if it had just happened.
func (t *Timeline) catchUp(kind schema.GroupVersionResource, items []unstructured.Unstructured) {
	t.mutex.Lock()
	known := t.known(kind)
	t.mutex.Unlock()
	for i := range items {
		object := &items[i]
		if version, ok := known[Key(object)]; !ok {
			t.add(time.Now(), kind, watch.Added, object)
		} else if version.GetResourceVersion() != object.GetResourceVersion() {
			t.add(time.Now(), kind, watch.Modified, object)
		}
		delete(known, Key(object))
	}
	for _, gone := range known {
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(gone)
		if err != nil {
			panic(fmt.Sprintf("an object that was read can't be written: %v", err))
		}
		t.add(time.Now(), kind, watch.Deleted, &unstructured.Unstructured{Object: raw})
	}
}

// known is what the record has of a kind.
func (t *Timeline) known(kind schema.GroupVersionResource) map[string]metav1.Object {
	objects := map[string]metav1.Object{}
	switch kind {
	case Pods:
		copyInto(objects, t.state.Pods)
	case Nodes:
		copyInto(objects, t.state.Nodes)
	case NodeClaims:
		copyInto(objects, t.state.NodeClaims)
	case PodGroups:
		copyInto(objects, t.state.PodGroups)
	case Workloads:
		copyInto(objects, t.state.Workloads)
	}
	return objects
}

func copyInto[T metav1.Object](all map[string]metav1.Object, some map[string]T) {
	for key, object := range some {
		all[key] = object
	}
}

func (t *Timeline) fail(err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.failure = err
	t.wake()
}

func (t *Timeline) add(at time.Time, kind schema.GroupVersionResource, change watch.EventType, raw *unstructured.Unstructured) {
	event := Event{At: at, Type: change, Object: raw}
	event.Revision, _ = strconv.ParseInt(raw.GetResourceVersion(), 10, 64)

	t.mutex.Lock()
	defer t.mutex.Unlock()
	switch kind {
	case Pods:
		event.Object = put(t.state.Pods, change, convert[corev1.Pod](raw))
	case Nodes:
		event.Object = put(t.state.Nodes, change, convert[corev1.Node](raw))
	case NodeClaims:
		put(t.state.NodeClaims, change, raw)
	case PodGroups:
		put(t.state.PodGroups, change, raw)
	case Workloads:
		put(t.state.Workloads, change, raw)
	}
	t.events = append(t.events, event)
	t.wake()
}

func (t *Timeline) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func convert[T any](raw *unstructured.Unstructured) *T {
	object := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, object); err != nil {
		panic(fmt.Sprintf("the API server sent an object that isn't its kind: %v", err))
	}
	return object
}

func put[T metav1.Object](objects map[string]T, change watch.EventType, object T) T {
	if change == watch.Deleted {
		delete(objects, Key(object))
	} else {
		objects[Key(object)] = object
	}
	return object
}

// Key is namespace/name, or the name alone of an object without a namespace.
func Key(object metav1.Object) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}

// Await returns once the condition holds. The condition is evaluated at every
// event and returns what is still missing, or "" when it holds.
func (t *Timeline) Await(patience time.Duration, condition func(*State) string) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		t.mutex.Lock()
		missing, failure, changed := condition(&t.state), t.failure, t.changed
		t.mutex.Unlock()
		if failure != nil {
			return failure
		}
		if missing == "" {
			return nil
		}
		select {
		case <-changed:
		case <-deadline.C:
			return fmt.Errorf("after %v: %s", patience, missing)
		}
	}
}

// Look calls a function with the present state.
func (t *Timeline) Look(at func(*State)) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	at(&t.state)
}

// Events returns every event so far that the filter lets pass.
func (t *Timeline) Events(filter func(Event) bool) []Event {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	var found []Event
	for _, event := range t.events {
		if filter(event) {
			found = append(found, event)
		}
	}
	return found
}

// PodEvents returns the history of a namespace's pods; with names, of these
// pods only.
func (t *Timeline) PodEvents(namespace string, names ...string) []Event {
	return t.Events(func(event Event) bool {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || pod.Namespace != namespace {
			return false
		}
		for _, name := range names {
			if pod.Name == name {
				return true
			}
		}
		return len(names) == 0
	})
}

// First returns the first of the events for which the predicate holds.
func First(events []Event, predicate func(metav1.Object) bool) (Event, bool) {
	for _, event := range events {
		if event.Type != watch.Deleted && predicate(event.Object) {
			return event, true
		}
	}
	return Event{}, false
}
