package main

import (
	"cmp"
	"container/heap"
	"strings"

	"sigs.k8s.io/kueue/pkg/util/priority"
	"sigs.k8s.io/kueue/pkg/workload"
)

// pendingQueue orders what waits for one ClusterQueue. It is lighter than
// Kueue's own queue, which is made for events from outside.
type pendingQueue struct {
	strict   bool // its head blocks it
	ordering workload.Ordering
	heap     []*workload.Info
	parked   []*workload.Info // not tried again until quota is freed
}

func newPendingQueue(ordering workload.Ordering, strict bool) *pendingQueue {
	return &pendingQueue{strict: strict, ordering: ordering}
}

func (q *pendingQueue) push(info *workload.Info) { heap.Push(q, info) }

// pop takes the head away; nil if there is none.
func (q *pendingQueue) pop() *workload.Info {
	if len(q.heap) == 0 {
		return nil
	}
	return heap.Pop(q).(*workload.Info)
}

func (q *pendingQueue) park(info *workload.Info) { q.parked = append(q.parked, info) }

func (q *pendingQueue) wake() {
	for _, info := range q.parked {
		q.push(info)
	}
	q.parked = nil
}

// compare puts the higher priority first, then what was created (or evicted)
// earlier.
func compare(ordering workload.Ordering, a, b *workload.Info) int {
	return cmp.Or(
		cmp.Compare(priority.Priority(b.Obj), priority.Priority(a.Obj)),
		ordering.GetQueueOrderTimestamp(a.Obj).Compare(ordering.GetQueueOrderTimestamp(b.Obj).Time),
		strings.Compare(string(a.Obj.UID), string(b.Obj.UID)),
	)
}

// For package heap only.

func (q *pendingQueue) Len() int           { return len(q.heap) }
func (q *pendingQueue) Less(i, j int) bool { return compare(q.ordering, q.heap[i], q.heap[j]) < 0 }
func (q *pendingQueue) Swap(i, j int)      { q.heap[i], q.heap[j] = q.heap[j], q.heap[i] }
func (q *pendingQueue) Push(info any)      { q.heap = append(q.heap, info.(*workload.Info)) }

func (q *pendingQueue) Pop() any {
	last := len(q.heap) - 1
	info := q.heap[last]
	q.heap[last] = nil
	q.heap = q.heap[:last]
	return info
}
