package main

import (
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/workload"
)

// shares are the dominant resource shares of the nodes below each cohort, each
// as it would be with its candidate admitted.
type shares map[*schdcache.CohortSnapshot]map[*entry]schdcache.DRS

// fairOrder takes the entry next whose subtree stays furthest behind its fair
// share, level by level from the root. Shares change with each entry, so each
// is chosen only when its turn comes.
func (a *admission) fairOrder(entries []*entry) func(func(*entry) bool) {
	return func(yield func(*entry) bool) {
		waiting := map[*schdcache.ClusterQueueSnapshot]*entry{}
		for _, e := range entries {
			waiting[e.queue] = e
		}
		// The trees don't touch each other: they may come in any order.
		for _, first := range entries {
			for waiting[first.queue] != nil {
				chosen := first
				if first.queue.HasParent() {
					root := first.queue.Parent().Root()
					chosen = a.fairest(root, sharesBelow(root, waiting), waiting)
				}
				delete(waiting, chosen.queue)
				if !yield(chosen) {
					return
				}
			}
		}
	}
}

// sharesBelow tries each entry of a tree by itself.
func sharesBelow(root *schdcache.CohortSnapshot, waiting map[*schdcache.ClusterQueueSnapshot]*entry) shares {
	all := shares{}
	for _, queue := range root.SubtreeClusterQueues() {
		e := waiting[queue]
		if e == nil {
			continue
		}
		revert := queue.SimulateUsageAddition(workload.Usage{Quota: e.assignment.Usage.Quota})
		share := queue.DominantResourceShare()
		for cohort := range queue.PathParentToRoot() {
			if all[cohort] == nil {
				all[cohort] = map[*entry]schdcache.DRS{}
			}
			all[cohort][e] = share
			share = cohort.DominantResourceShare()
		}
		revert()
	}
	return all
}

// fairest is the entry that a cohort sends up; nil if none of its queues has
// one left.
func (a *admission) fairest(cohort *schdcache.CohortSnapshot, all shares, waiting map[*schdcache.ClusterQueueSnapshot]*entry) *entry {
	var best *entry
	consider := func(e *entry) {
		if e == nil {
			return
		}
		if best != nil {
			order := schdcache.CompareDRS(all[cohort][e], all[cohort][best])
			if order > 0 || order == 0 && compare(a.ordering, e.info, best.info) >= 0 {
				return
			}
		}
		best = e
	}
	for _, child := range cohort.ChildCohorts() {
		consider(a.fairest(child, all, waiting))
	}
	for _, queue := range cohort.ChildCQs() {
		consider(waiting[queue])
	}
	return best
}
