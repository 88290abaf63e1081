package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"muster.dev/tests/cluster/faults"
)

// launch is one claim's launch and the faults that befall it, by their place in
// the order of its class.
type launch struct {
	provider *provider
	class    *v1alpha1.KWOKNodeClass
	claim    *v1.NodeClaim
	number   int
	types    []*cloudprovider.InstanceType // as they were offered when it was counted: a later launch that fails takes none of them
	faults   map[int]faults.Fault
}

// launch counts the claim's launch, if it isn't counted yet.
func (p *provider) launch(class *v1alpha1.KWOKNodeClass, order []faults.Fault, claim *v1.NodeClaim) *launch {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	launches := p.history(class.UID).launches
	if launches[claim.UID] == 0 {
		launches[claim.UID] = len(launches) + 1
	}
	l := &launch{provider: p, class: class, claim: claim.DeepCopy(), number: launches[claim.UID],
		types: p.offered(class.UID), faults: map[int]faults.Fault{}}
	for place, fault := range order {
		if fault.Befalls(l.number) {
			l.faults[place] = fault
		}
	}
	return l
}

// happened tells the case that the fault befell a launch.
func (l *launch) happened(place int) {
	l.provider.annotate(l.class, faults.HappenedAnnotation(place), time.Now().UTC().Format(time.RFC3339Nano))
}

// failed tells the case that the fault couldn't be carried out.
func (l *launch) failed(place int, err error) {
	l.provider.annotate(l.class, faults.AnswerAnnotation, string(l.faults[place].Kind)+" of "+l.claim.Name+" failed: "+err.Error())
}

// wait lets the delays of one kind pass.
func (l *launch) wait(ctx context.Context, kind faults.Kind) error {
	for place, fault := range l.faults {
		if fault.Kind != kind {
			continue
		}
		if err := sleep(ctx, fault.DelaySeconds); err != nil {
			return err
		}
		l.happened(place)
	}
	return nil
}

func sleep(ctx context.Context, count int64) error {
	select {
	case <-time.After(seconds(count)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nodeClient is what the kwok provider of one launch creates the node with, when
// its class's own delay is over.
type nodeClient struct {
	client.Client
	launch *launch
}

// Create creates the node as the faults have it.
func (c *nodeClient) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	node, isNode := object.(*corev1.Node)
	if !isNode {
		return c.Client.Create(ctx, object, options...)
	}
	return c.launch.register(node)
}

func (l *launch) register(whole *corev1.Node) error {
	if l.neverRegisters() {
		return nil
	}
	ctx := l.provider.context
	if err := l.wait(ctx, faults.RegistrationDelay); err != nil {
		return err
	}
	// The instance of a claim that is gone has been terminated.
	if !l.wanted() {
		return nil
	}
	// The provider's answer to Karpenter shares the node's maps.
	node := whole.DeepCopy()
	for place, fault := range l.faults {
		switch fault.Kind {
		case faults.Devices:
			for name, count := range fault.Resources {
				node.Status.Allocatable[corev1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
			}
			l.happened(place)
		case faults.Taint:
			node.Spec.Taints = append(node.Spec.Taints, taintOf(fault))
			l.happened(place)
		}
	}
	if err := l.provider.client.Create(ctx, node); err != nil {
		return err
	}
	go l.live(whole)
	return nil
}

func (l *launch) neverRegisters() bool {
	for place, fault := range l.faults {
		if fault.Kind == faults.NeverRegisters {
			l.happened(place)
			return true
		}
	}
	return false
}

// wanted tells whether the claim still stands.
func (l *launch) wanted() bool {
	now := &v1.NodeClaim{}
	err := l.provider.client.Get(l.provider.context, types.NamespacedName{Name: l.claim.Name}, now)
	return err == nil && now.UID == l.claim.UID && now.DeletionTimestamp.IsZero()
}

func taintOf(fault faults.Fault) corev1.Taint {
	return corev1.Taint{Key: fault.Taint, Effect: corev1.TaintEffectNoSchedule}
}
