package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler/flavorassigner"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption"
	"sigs.k8s.io/kueue/pkg/workload"
)

// fairRepeats is how often a preemption under fair sharing is asked for, where
// cohorts have siblings. Among siblings of equal share Kueue takes the one that
// comes last in a walk over a map, which isn't even fair: of two, one was seen to
// come last in three cases of ten. It stays unseen in one of 10^10.
const fairRepeats = 64

// judge answers a case.
func judge(c *Case) Answer {
	answer := Answer{ID: c.ID, Results: []Result{}}
	k, err := newCluster(c)
	if err != nil {
		answer.Error = err.Error()
		return answer
	}
	leftToChance := c.FairSharing && c.hasSiblingCohorts()
	for i := range c.Pending {
		w := &c.Pending[i]
		result := k.judge(w)
		if leftToChance && result.Mode == flavorassigner.Preempt.String() {
			for range fairRepeats - 1 {
				again := k.judge(w).Verdict
				same := func(other Verdict) bool { return reflect.DeepEqual(other, again) }
				if !same(result.Verdict) && !slices.ContainsFunc(result.Alternatives, same) {
					result.Alternatives = append(result.Alternatives, again)
				}
			}
		}
		answer.Results = append(answer.Results, result)
	}
	return answer
}

func noFit(w *Workload, reason string) Result {
	result := Result{UID: w.UID, Reasons: []string{}}
	result.Mode = flavorassigner.NoFit.String()
	result.PodSets = []PodSetResult{}
	result.Victims = []Victim{}
	if reason != "" {
		result.Reasons = append(result.Reasons, reason)
	}
	return result
}

// judge asks what the scheduler asks about the head of a queue, in its order.
func (k *cluster) judge(w *Workload) Result {
	snapshot, err := k.cache.Snapshot(context.Background())
	if err != nil {
		return noFit(w, err.Error())
	}
	info := workload.NewInfo(k.pending(w))
	info.ClusterQueue = kueue.ClusterQueueReference(w.ClusterQueue)
	if reason := k.refusal(info, snapshot); reason != "" {
		return noFit(w, reason)
	}
	assignment, targets := k.assign(info, snapshot)
	result := noFit(w, "")
	for _, set := range assignment.PodSets {
		if !set.Status.IsFit() {
			reason := strings.TrimSpace(set.Status.Message())
			result.Reasons = append(result.Reasons, fmt.Sprintf("%s: %s", set.Name, reason))
		}
	}
	mode := assignment.RepresentativeMode()
	if mode == flavorassigner.NoFit {
		return result
	}
	result.Mode, result.Borrowing = mode.String(), assignment.Borrows()
	for _, set := range assignment.PodSets {
		one := PodSetResult{Name: string(set.Name), Flavors: map[corev1.ResourceName]string{}}
		for name, flavor := range set.Flavors {
			one.Flavors[name] = string(flavor.Name)
		}
		result.PodSets = append(result.PodSets, one)
	}
	for _, target := range targets {
		result.Victims = append(result.Victims, Victim{target.WorkloadInfo.Obj.UID, target.Reason})
	}
	slices.SortFunc(result.Victims, func(a, b Victim) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return result
}

// refusal is why the scheduler wouldn't even look for flavors.
func (k *cluster) refusal(info *workload.Info, snapshot *schdcache.Snapshot) string {
	queue := snapshot.ClusterQueue(info.ClusterQueue)
	switch {
	case snapshot.InactiveClusterQueueSets.Has(info.ClusterQueue):
		return fmt.Sprintf("ClusterQueue %s is inactive", info.ClusterQueue)
	case queue == nil:
		return fmt.Sprintf("ClusterQueue %s not found", info.ClusterQueue)
	case !queue.NamespaceSelector.Matches(labels.Set(k.namespaces[workload.Key(info.Obj)])):
		return fmt.Sprintf("the namespace doesn't match the namespaceSelector of ClusterQueue %s", info.ClusterQueue)
	}
	if err := workload.ValidateResources(info); err != nil {
		return err.ToAggregate().Error()
	}
	return ""
}

// assign finds flavors for the whole workload, and victims where they are
// needed. Partial admission isn't tried.
func (k *cluster) assign(info *workload.Info, snapshot *schdcache.Snapshot) (flavorassigner.Assignment, []*preemption.Target) {
	ctx := logr.NewContext(context.Background(), logr.Discard())
	assigner := k.newAssigner(info, snapshot)
	assignment := assigner.Assign(ctx, nil)
	if assignment.RepresentativeMode() != flavorassigner.Preempt {
		return assignment, nil
	}
	return assignment, k.preemptor.GetTargets(ctx, *info, assignment, snapshot)
}
