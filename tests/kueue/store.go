package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"
)

// key of an object: no two kinds share a type.
type key struct {
	kind reflect.Type
	name types.NamespacedName
}

func keyOf(object client.Object) key {
	return key{reflect.TypeOf(object), client.ObjectKeyFromObject(object)}
}

func (k key) String() string { return k.kind.String() + " " + k.name.String() }

// change is what a watch would tell. One of the two is nil where the object
// came or went.
type change struct {
	key      key
	old, now client.Object
}

// store is as much of an API server as Kueue's core asks for: objects, their
// status written apart from the rest, and what changed. What Kueue applies to a
// status is all that it wants there, so that it replaces what was there.
type store struct {
	client.Client // nil: anything else would be a new question of Kueue's
	mutex         sync.Mutex
	objects       map[key]client.Object
	changes       []change
}

func newStore() *store { return &store{objects: map[key]client.Object{}} }

var indexed = map[string]client.IndexerFunc{
	indexer.QueueClusterQueueKey:    indexer.IndexQueueClusterQueue,
	indexer.WorkloadQueueKey:        indexer.IndexWorkloadQueue,
	indexer.WorkloadClusterQueueKey: indexer.IndexWorkloadClusterQueue,
}

func deepCopy(object client.Object) client.Object {
	return object.DeepCopyObject().(client.Object)
}

func assign(to, from client.Object) {
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem())
}

func part(object client.Object, name string) reflect.Value {
	return reflect.ValueOf(object).Elem().FieldByName(name)
}

func notFound(k key) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: k.kind.Elem().Name()}, k.name.String())
}

// ofKind is what there is of a kind, in the order of names. The mutex is held.
func (s *store) ofKind(kind reflect.Type) []client.Object {
	var found []client.Object
	for k, object := range s.objects {
		if k.kind == kind {
			found = append(found, object)
		}
	}
	slices.SortFunc(found, func(a, b client.Object) int {
		return strings.Compare(client.ObjectKeyFromObject(a).String(), client.ObjectKeyFromObject(b).String())
	})
	return found
}

// all of a kind, not to be changed.
func all[T client.Object](s *store) []T {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var found []T
	for _, object := range s.ofKind(reflect.TypeFor[T]()) {
		found = append(found, object.(T))
	}
	return found
}

// takeChanges are those since the last call. Kueue preempts in parallel, so
// that those of different objects come in no order.
func (s *store) takeChanges() []change {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	taken := s.changes
	s.changes = nil
	slices.SortStableFunc(taken, func(a, b change) int { return strings.Compare(a.key.String(), b.key.String()) })
	return taken
}

func (s *store) Get(_ context.Context, name client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	k := key{reflect.TypeOf(object), name}
	found := s.objects[k]
	if found == nil {
		return notFound(k)
	}
	assign(object, deepCopy(found))
	return nil
}

func (s *store) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	matches := func(object client.Object) bool {
		if options.Namespace != "" && object.GetNamespace() != options.Namespace {
			return false
		}
		if options.FieldSelector == nil {
			return true
		}
		for _, wanted := range options.FieldSelector.Requirements() {
			index := indexed[wanted.Field]
			if index == nil || !slices.Contains(index(object), wanted.Value) {
				return false
			}
		}
		return true
	}
	switch list := list.(type) {
	case *kueue.LocalQueueList:
		for _, object := range s.ofKind(reflect.TypeFor[*kueue.LocalQueue]()) {
			if matches(object) {
				list.Items = append(list.Items, *object.DeepCopyObject().(*kueue.LocalQueue))
			}
		}
	case *kueue.WorkloadList:
		for _, object := range s.ofKind(reflect.TypeFor[*kueue.Workload]()) {
			if matches(object) {
				list.Items = append(list.Items, *object.DeepCopyObject().(*kueue.Workload))
			}
		}
	case *corev1.LimitRangeList, *nodev1.RuntimeClassList: // there are none
	default:
		return fmt.Errorf("the store lists no %T", list)
	}
	return nil
}

func (s *store) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	k := keyOf(object)
	if s.objects[k] != nil {
		return fmt.Errorf("%s exists", k)
	}
	object.SetGeneration(1)
	s.objects[k] = deepCopy(object)
	s.changes = append(s.changes, change{key: k, now: deepCopy(object)})
	return nil
}

// Update writes all but the status.
func (s *store) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	return s.replace(object, func(next client.Object) {
		if status := part(next, "Status"); status.IsValid() {
			status.Set(part(s.objects[keyOf(object)], "Status"))
		}
		if spec := part(next, "Spec"); !equality.Semantic.DeepEqual(spec.Interface(), part(s.objects[keyOf(object)], "Spec").Interface()) {
			next.SetGeneration(next.GetGeneration() + 1)
		}
	})
}

func (s *store) replace(object client.Object, prepare func(next client.Object)) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	k := keyOf(object)
	old := s.objects[k]
	if old == nil {
		return notFound(k)
	}
	next := deepCopy(object)
	next.SetGeneration(old.GetGeneration())
	prepare(next)
	assign(object, deepCopy(next))
	if equality.Semantic.DeepEqual(old, next) {
		return nil
	}
	s.objects[k] = next
	s.changes = append(s.changes, change{k, old, deepCopy(next)})
	return nil
}

func (s *store) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	k := keyOf(object)
	old := s.objects[k]
	if old == nil {
		return notFound(k)
	}
	delete(s.objects, k)
	s.changes = append(s.changes, change{key: k, old: old})
	return nil
}

func (s *store) Status() client.SubResourceWriter { return statusOf{store: s} }

// statusOf writes nothing but the status.
type statusOf struct {
	client.SubResourceWriter // nil
	store                    *store
}

func (w statusOf) Update(_ context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	return w.store.replace(object, func(next client.Object) {
		status := part(object, "Status").Interface()
		assign(next, deepCopy(w.store.objects[keyOf(object)]))
		part(next, "Status").Set(reflect.ValueOf(status))
	})
}

func (w statusOf) Patch(ctx context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return w.Update(ctx, object)
}
