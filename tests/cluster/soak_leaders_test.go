package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

const (
	// From one end of the leader to the next.
	leaderLives = 25 * time.Second
	// A leader that hangs goes on after this; another one has led for some time by then.
	leaderHangs = 15 * time.Second
	// From the end of a leader until another one leads, by the 99th percentile.
	takeoverWithin = 10 * time.Second
	// So long a gang may be bound in part while its leader lives, and so much longer where one ended in
	// between, whereupon the next one reads the cluster and completes the gang, or where one that had
	// hung has just gone on: what it writes before it looks at its Lease makes others' writes conflict.
	strokeWithin, completedWithin, disturbs = 3 * time.Second, 10 * time.Second, 2 * time.Second
	// What every gang may take from its creation to its last binding, with leaders ending meanwhile.
	gangPatience = 2 * time.Minute
	// After the last gang has gone nothing of any is left.
	leavesNothingWithin = 60 * time.Second
)

// The leader ends every 25 s under a load of gangs that come and go: killed with its kube-scheduler,
// and another one starts in its place; or frozen, and 15 s later it goes on.
func TestSoakLeaders(t *testing.T) { endLeaders(t, 24, takeoverWithin) }

// The same, three times each way, beside other cases' programs.
func TestLeadersThatEndUnderLoadLeaveNothing(t *testing.T) { endLeaders(t, 3, leaseRunsOut) }

func endLeaders(t *testing.T, times int, within time.Duration) {
	installQueues(t)
	pair := startReplicas(t, "north", "south")
	var leads atomic.Pointer[plane.Replica]
	leader, _ := pair.awaitLeader(t)
	leads.Store(leader)
	t.Run("killed", func(t *testing.T) {
		endLeadersUnderLoad(t, pair, &leads, times, within, func(leader *plane.Replica) (back func() error, after time.Duration, err error) {
			leader.Lose()
			return leader.Start, time.Second, nil
		})
	})
	t.Run("frozen", func(t *testing.T) {
		endLeadersUnderLoad(t, pair, &leads, times, within, func(leader *plane.Replica) (back func() error, after time.Duration, err error) {
			return leader.Thaw, leaderHangs, leader.Freeze()
		})
	})
}

// takeover is what followed the end of a leader.
type takeover struct {
	lease time.Duration // until another kube-scheduler held the Lease
	lead  time.Duration // until the Muster beside it led
	bound time.Duration // until a gang was bound whole that wasn't when the leader ended
}

func endLeadersUnderLoad(t *testing.T, pair *replicas, leads *atomic.Pointer[plane.Replica], times int, within time.Duration,
	end func(*plane.Replica) (back func() error, after time.Duration, err error),
) {
	l := newLoad(t, func() *plane.Muster { return leads.Load().Muster })
	began := time.Now()
	l.start()
	var takeovers []takeover
	var ends []time.Time // and when those that had ended came back
	for range times {
		leader, _ := pair.awaitLeader(t)
		leads.Store(leader)
		before, ended := pair.holder(), time.Now()
		back, after, err := end(leader)
		ends = append(ends, ended, ended.Add(after))
		l.standing.must(err)
		returned := make(chan error, 1)
		time.AfterFunc(after-time.Since(ended), func() { returned <- back() })
		next := pair.awaitNext(t, endOfALeader{successor: either, patience: leaderHangs}, leader, before)
		took := takeover{lead: time.Since(ended), lease: pair.heldSince().Sub(ended)}
		leads.Store(next)
		if took.bound, err = l.awaitNextWhole(ended, ended.Add(leaderLives+5*time.Second)); err != nil {
			t.Error(err)
		}
		takeovers = append(takeovers, took)
		l.standing.must(<-returned)
		time.Sleep(time.Until(ended.Add(leaderLives)))
	}
	leader, _ := pair.awaitLeader(t)
	leads.Store(leader)
	gangs := l.stop()
	t.Logf("%d gangs in %v, %d leaders ended", len(gangs), time.Since(began).Round(time.Second), len(takeovers))
	report(t, "until another kube-scheduler held the Lease", takeovers, func(one takeover) time.Duration { return one.lease })
	report(t, "until another one led", takeovers, func(one takeover) time.Duration { return one.lead })
	report(t, "until the next gang was bound whole", takeovers, func(one takeover) time.Duration { return one.bound })
	if slowest := percentile(takeovers, 0.99, func(one takeover) time.Duration { return one.lead }); slowest > within {
		t.Errorf("it took %v until another one led (p99), want at most %v", slowest.Round(time.Millisecond), within)
	}
	l.checkWhole(gangs, ends)
	l.checkNothingTwice(began)
	l.checkNothingLeft()
}

func percentile(takeovers []takeover, part float64, of func(takeover) time.Duration) time.Duration {
	var sorted []time.Duration
	for _, one := range takeovers {
		sorted = append(sorted, of(one))
	}
	slices.Sort(sorted)
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}

func report(t *testing.T, what string, takeovers []takeover, of func(takeover) time.Duration) {
	t.Helper()
	at := func(part float64) time.Duration { return percentile(takeovers, part, of).Round(time.Millisecond) }
	t.Logf("%s: p50 %v, p99 %v, at most %v", what, at(0.5), at(0.99), at(1))
}

// load is gangs that come at a steady pace, run for some seconds once they are whole, and go: half of
// all with quota on nodes that stand, and some that need nodes from Karpenter.
type load struct {
	*testing.T
	standing, buying *Case

	cancel  context.CancelFunc
	context context.Context
	working sync.WaitGroup

	mutex sync.Mutex
	gangs []*Gang
}

const (
	standingNodes = 16
	standingPace  = 2 * time.Second
	buyingPace    = 6 * time.Second
	gangRuns      = 4 * time.Second
)

func newLoad(t *testing.T, leader func() *plane.Muster, changes ...Change) *load {
	t.Helper()
	l := &load{T: t, standing: newCase(t, "leaders-standing"), buying: newCase(t, "leaders-buying")}
	l.standing.leader, l.buying.leader = leader, leader
	l.standing.flavorNodes(usage{"nvidia": standingNodes})
	l.standing.ApplyQuota(append(changes, nominalQuota(usage{"nvidia": standingNodes, "nvidia-efa": 0}), onNodesLabelled)...)
	// Without its own LocalQueue a namespace's gangs need no quota.
	l.buying.NodePool("pool", 8, 8, time.Second)
	return l
}

func (l *load) start() {
	l.context, l.cancel = context.WithCancel(context.Background())
	l.Cleanup(l.cancel)
	l.working.Go(func() { l.come(l.standing, "standing", standingPace, 1) })
	l.working.Go(func() { l.come(l.buying, "buying", buyingPace, 8) })
}

// stop lets no further gang come, and returns all that came once the last has gone.
func (l *load) stop() []*Gang {
	l.cancel()
	l.working.Wait()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.gangs
}

func (l *load) come(c *Case, name string, pace time.Duration, gpus int) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := 0; ; i++ {
		g := &Gang{Case: c, Name: fmt.Sprintf("%s%d", name, i), gpus: gpus}
		for member := range 2 + i%3 {
			g.Members = append(g.Members, fmt.Sprintf("%s-%d", g.Name, member))
		}
		l.mutex.Lock()
		l.gangs = append(l.gangs, g)
		l.mutex.Unlock()
		l.working.Go(func() {
			if err := live(g); err != nil {
				l.Errorf("gang %s/%s: %v", g.Namespace, g.Name, err)
			}
		})
		select {
		case <-l.context.Done():
			return
		case <-tick.C:
		}
	}
}

// live is a gang's whole life, on any goroutine.
func live(g *Gang) error {
	group := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": timeline.PodGroups.GroupVersion().String(),
		"kind":       "PodGroup",
		"metadata":   map[string]any{"name": g.Name},
		"spec":       map[string]any{"minMember": int64(len(g.Members))},
	}}
	groups := shared.Dynamic.Resource(timeline.PodGroups).Namespace(g.Namespace)
	pods := shared.Client.CoreV1().Pods(g.Namespace)
	ctx := context.Background()
	err := insist(func() error { return existing(groups.Create(ctx, group, metav1.CreateOptions{})) })
	if err != nil {
		return err
	}
	err = eachMember(g, func(member string) error {
		pod := g.Pod(member, plane.SchedulerName, g.gpus)
		pod.Labels = map[string]string{podGroupLabel: g.Name}
		withoutCPU(pod)
		// One of the replicas may be gone, or hang, and the API server call its webhook.
		return insist(func() error { return existing(pods.Create(ctx, pod, metav1.CreateOptions{})) })
	})
	if err != nil {
		return err
	}
	if err := shared.Timeline.Await(gangPatience, func(state *timeline.State) string {
		for _, member := range g.Members {
			if pod := state.Pods[g.Namespace+"/"+member]; pod == nil || !bound(pod) {
				return member + " isn't bound"
			}
		}
		return ""
	}); err != nil {
		return err
	}
	time.Sleep(gangRuns)
	return errors.Join(
		eachMember(g, func(member string) error {
			return insist(func() error {
				_, err := pods.Patch(ctx, member, types.StrategicMergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
				return err
			})
		}),
		eachMember(g, func(member string) error {
			return insist(func() error {
				return unlessGone(pods.Delete(ctx, member, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
			})
		}),
		insist(func() error { return unlessGone(groups.Delete(ctx, g.Name, metav1.DeleteOptions{})) }),
	)
}

func eachMember(g *Gang, do func(member string) error) error {
	failed := make([]error, len(g.Members))
	var all sync.WaitGroup
	for i, member := range g.Members {
		all.Go(func() { failed[i] = do(member) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// insist tries for a minute.
func insist(attempt func() error) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := attempt()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func existing[T any](_ T, err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func unlessGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// awaitNextWhole waits for the first gang whose last binding is stored after that, and not by who led
// then: a second later at the soonest. It returns how long that took.
func (l *load) awaitNextWhole(since, deadline time.Time) (time.Duration, error) {
	for ; ; time.Sleep(50 * time.Millisecond) {
		l.mutex.Lock()
		recent := slices.Clone(l.gangs[max(0, len(l.gangs)-40):])
		l.mutex.Unlock()
		var first time.Time
		for _, g := range recent {
			moments := g.Moments(bound)
			if len(moments) < len(g.Members) {
				continue
			}
			last := slices.MaxFunc(moments, func(a, b timeline.Event) int { return a.At.Compare(b.At) }).At
			if last.After(since.Add(time.Second)) && (first.IsZero() || last.Before(first)) {
				first = last
			}
		}
		if !first.IsZero() {
			return first.Sub(since), nil
		}
		if time.Now().After(deadline) {
			return time.Since(since), fmt.Errorf("no gang is bound whole %v after a leader's end", time.Since(since).Round(time.Second))
		}
	}
}

// checkWhole judges each gang by the record: all of it was bound, and in one stroke, but for the time
// in which nobody led.
func (l *load) checkWhole(gangs []*Gang, ends []time.Time) {
	l.Helper()
	split, widest := 0, time.Duration(0)
	for _, g := range gangs {
		moments := g.Moments(bound)
		if len(moments) != len(g.Members) {
			l.Errorf("gang %s: %d of %d members were ever bound", g.Name, len(moments), len(g.Members))
			continue
		}
		first, last := moments[0].At, moments[0].At
		for _, moment := range moments {
			first, last = minTime(first, moment.At), maxTime(last, moment.At)
		}
		allowed := strokeWithin
		if slices.ContainsFunc(ends, func(end time.Time) bool { return end.After(first.Add(-disturbs)) && !end.After(last) }) {
			allowed += completedWithin
			split++
			widest = max(widest, last.Sub(first))
		}
		if took := last.Sub(first); took > allowed {
			l.Errorf("gang %s was bound in part for %v, want at most %v", g.Name, took.Round(time.Millisecond), allowed)
		}
	}
	l.Logf("%d gangs had a leader end or come back while they were being bound; they were bound in part for %v at most", split, widest.Round(time.Millisecond))
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func maxTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// checkNothingTwice judges every binding: each pod was bound once, by one request, to a node that had
// the GPUs for it at that moment.
func (l *load) checkNothingTwice(since time.Time) {
	l.Helper()
	type place struct {
		node string
		gpus int64
	}
	places, used, capacity := map[string]place{}, map[string]int64{}, map[string]int64{}
	bindings := 0
	for _, event := range shared.Timeline.Events(func(event timeline.Event) bool {
		return l.standing.mine(event.Object) || l.buying.mine(event.Object)
	}) {
		switch object := event.Object.(type) {
		case *corev1.Node:
			if count := object.Status.Capacity[gpu]; count.Value() > 0 {
				capacity[object.Name] = count.Value()
			}
		case *corev1.Pod:
			key := string(object.UID)
			before, placed := places[key]
			if placed && object.Spec.NodeName != before.node {
				l.Errorf("pod %s was on %s and is on %s", object.Name, before.node, object.Spec.NodeName)
			}
			over := event.Type == "DELETED" || object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed
			switch {
			case over && before.gpus > 0:
				used[before.node] -= before.gpus
				places[key] = place{node: before.node}
			case !placed && !over && bound(object):
				asked := object.Spec.Containers[0].Resources.Requests[gpu]
				places[key] = place{object.Spec.NodeName, asked.Value()}
				used[object.Spec.NodeName] += asked.Value()
				bindings++
				if used[object.Spec.NodeName] > capacity[object.Spec.NodeName] {
					l.Errorf("node %s has %d GPUs, and pods with %d are bound there with %s", object.Spec.NodeName,
						capacity[object.Spec.NodeName], used[object.Spec.NodeName], object.Name)
				}
			}
		}
	}
	requests, err := shared.Requests(since, time.Now())
	l.standing.must(err)
	stored := map[string]int{}
	for _, request := range requests {
		if strings.HasSuffix(request.Resource, "/binding") && request.Code < 300 {
			stored[request.Object]++
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(stored)) {
		if stored[pod] > 1 {
			l.Errorf("%d bindings of pod %s were stored", stored[pod], pod)
		}
	}
	l.Logf("%d pods were bound, by %d requests", bindings, len(stored))
	if bindings == 0 || bindings != len(stored) {
		l.Errorf("%d pods were bound, by %d requests of musters", bindings, len(stored))
	}
}

// checkNothingLeft waits until nothing of any gang is left.
func (l *load) checkNothingLeft() {
	l.Helper()
	begin := time.Now()
	err := shared.Timeline.Await(leavesNothingWithin, func(state *timeline.State) string {
		for key, pod := range state.Pods {
			if l.mine(pod) {
				return fmt.Sprintf("pod %s: %s, finalizers %v", key, strings.Join(describePod(pod), ", "), pod.Finalizers)
			}
		}
		for _, kind := range []map[string]*unstructured.Unstructured{state.PodGroups, state.Workloads, state.NodeClaims} {
			for key, object := range kind {
				if l.mine(object) {
					return fmt.Sprintf("%s %s, finalizers %v", object.GetKind(), key, object.GetFinalizers())
				}
			}
		}
		for _, node := range state.Nodes {
			if !l.mine(node) {
				continue
			}
			if held(node) || len(node.Spec.Taints) > 0 {
				return fmt.Sprintf("node %s is still %s", node.Name, strings.Join(describeNode(node), ", "))
			}
		}
		return ""
	})
	if err != nil {
		l.Errorf("after the last gang had gone: %v", err)
		return
	}
	for _, c := range []*Case{l.standing, l.buying} {
		awaitNoGang(l.T, c.muster(), c.Namespace, leavesNothingWithin-time.Since(begin))
	}
	l.Logf("nothing was left %v after the last gang had gone", time.Since(begin).Round(time.Millisecond))
}

func (l *load) mine(object metav1.Object) bool {
	return l.standing.mine(object) || l.buying.mine(object)
}
