package main

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"muster.dev/tests/cluster/faults"
)

// live does to a node what its faults have in store after its registration.
func (l *launch) live(whole *corev1.Node) {
	if !l.awaitRegistered(whole.Name) {
		// Whoever ended the instance may have looked for its node just before that came.
		gone := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: whole.Name}}
		_ = l.provider.client.Delete(l.provider.context, gone)
		return
	}
	for place, fault := range l.faults {
		switch fault.Kind {
		case faults.Devices:
			if fault.LastsSeconds > 0 {
				go l.later(place, fault.LastsSeconds, func(ctx context.Context) error { return l.completeDevices(ctx, whole, fault) })
			}
		case faults.Taint:
			if fault.LastsSeconds > 0 {
				go l.later(place, fault.LastsSeconds, func(ctx context.Context) error { return l.removeTaint(ctx, whole.Name, fault) })
			}
		case faults.Interruption:
			go l.later(place, fault.DelaySeconds, func(ctx context.Context) error { return l.interrupt(ctx, place) })
		case faults.Drift:
			go l.later(place, fault.DelaySeconds, func(ctx context.Context) error { return l.drift(ctx, place) })
		}
	}
}

// awaitRegistered returns false if the claim goes first.
func (l *launch) awaitRegistered(name string) bool {
	for l.wanted() {
		node := &corev1.Node{}
		err := l.provider.client.Get(l.provider.context, types.NamespacedName{Name: name}, node)
		if err == nil && node.Labels[v1.NodeRegisteredLabelKey] == "true" {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

// later acts after a while, unless the node or its claim has gone.
func (l *launch) later(place int, after int64, act func(context.Context) error) {
	if sleep(l.provider.context, after) != nil {
		return
	}
	if err := client.IgnoreNotFound(act(l.provider.context)); err != nil {
		l.failed(place, err)
	}
}

// completeDevices is the device plugin's report of all that the node has.
func (l *launch) completeDevices(ctx context.Context, whole *corev1.Node, fault faults.Fault) error {
	node := &corev1.Node{}
	if err := l.provider.client.Get(ctx, types.NamespacedName{Name: whole.Name}, node); err != nil {
		return err
	}
	stored := node.DeepCopy()
	for name := range fault.Resources {
		node.Status.Allocatable[corev1.ResourceName(name)] = whole.Status.Allocatable[corev1.ResourceName(name)]
	}
	return l.provider.client.Status().Patch(ctx, node, client.MergeFrom(stored))
}

func (l *launch) removeTaint(ctx context.Context, name string, fault faults.Fault) error {
	taint := taintOf(fault)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node := &corev1.Node{}
		if err := l.provider.client.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
			return err
		}
		stored := node.DeepCopy()
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(one corev1.Taint) bool { return one.MatchTaint(&taint) })
		return l.provider.client.Patch(ctx, node, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
	})
}

// interrupt does what AWS's provider does when an instance is about to be taken back.
func (l *launch) interrupt(ctx context.Context, place int) error {
	if err := l.provider.client.Delete(ctx, l.claim, client.Preconditions{UID: &l.claim.UID}); err != nil {
		return err
	}
	l.happened(place)
	return nil
}

func (l *launch) drift(ctx context.Context, place int) error {
	l.provider.mutex.Lock()
	l.provider.drifted[l.claim.UID] = true
	l.provider.mutex.Unlock()
	claim := &v1.NodeClaim{}
	if err := l.provider.client.Get(ctx, types.NamespacedName{Name: l.claim.Name}, claim); err != nil {
		return err
	}
	// Karpenter asks about drift when a claim changes, and every five minutes.
	if err := annotate(ctx, l.provider.client, claim.DeepCopy(), faults.HappenedAnnotation(place), "true"); err != nil {
		return err
	}
	l.happened(place)
	return nil
}
