package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"muster.dev/tests/cluster/faults"
)

// provider is the kwok provider with the faults that each KWOKNodeClass orders.
// What no fault concerns is the kwok provider's own doing.
type provider struct {
	*kwok.CloudProvider
	client client.Client
	types  []*cloudprovider.InstanceType
	// The program's: what happens to a node comes long after its launch.
	context context.Context

	mutex   sync.Mutex
	classes map[types.UID]*history
	drifted map[types.UID]bool // by NodeClaim
}

// history is what has happened to the launches of one KWOKNodeClass.
type history struct {
	launches    map[types.UID]int      // by NodeClaim; Karpenter asks again after an error
	began       map[int]time.Time      // by place in the order
	unavailable map[offering]time.Time // until when
}

func newProvider(ctx context.Context, c client.Client, instanceTypes []*cloudprovider.InstanceType) *provider {
	for _, one := range instanceTypes {
		// Computed at the first call, and copied by others meanwhile.
		one.Allocatable()
	}
	return &provider{
		CloudProvider: kwok.NewCloudProvider(ctx, c, instanceTypes),
		client:        c,
		types:         instanceTypes,
		context:       ctx,
		classes:       map[types.UID]*history{},
		drifted:       map[types.UID]bool{},
	}
}

// order returns the class of this name and the faults that it orders. A class
// that doesn't exist orders none, and the kwok provider says so itself.
func (p *provider) order(ctx context.Context, name string) (*v1alpha1.KWOKNodeClass, []faults.Fault, error) {
	class := &v1alpha1.KWOKNodeClass{}
	if err := p.client.Get(ctx, types.NamespacedName{Name: name}, class); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	order := class.Annotations[faults.OrderAnnotation]
	if order == "" {
		return class, nil, nil
	}
	list, err := faults.Parse(order)
	if err != nil {
		return class, nil, fmt.Errorf("KWOKNodeClass %s: %w", name, err)
	}
	return class, list, nil
}

// Create launches the node of a claim, or fails to.
func (p *provider) Create(ctx context.Context, claim *v1.NodeClaim) (*v1.NodeClaim, error) {
	class, order, err := p.order(ctx, claim.Spec.NodeClassRef.Name)
	if err != nil {
		return nil, cloudprovider.NewNodeClassNotReadyError(err)
	}
	if len(order) == 0 {
		return p.CloudProvider.Create(ctx, claim)
	}
	l := p.launch(class, order, claim)
	if err := l.wait(ctx, faults.LaunchDelay); err != nil {
		return nil, err
	}
	chosen, err := l.choose()
	if err != nil {
		return nil, err
	}
	return kwok.NewCloudProvider(ctx, &nodeClient{p.client, l}, []*cloudprovider.InstanceType{chosen}).
		Create(ctx, onlyOf(claim, chosen))
}

// GetInstanceTypes shows what was asked for in vain as unavailable for a time.
func (p *provider) GetInstanceTypes(ctx context.Context, pool *v1.NodePool) ([]*cloudprovider.InstanceType, error) {
	class, order, err := p.order(ctx, pool.Spec.Template.Spec.NodeClassRef.Name)
	if err != nil || len(order) == 0 {
		// Create says what is wrong with the order.
		return p.types, nil
	}
	return p.shown(class.UID), nil
}

// IsDrifted tells whether a drift that was ordered has come.
func (p *provider) IsDrifted(_ context.Context, claim *v1.NodeClaim) (cloudprovider.DriftReason, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.drifted[claim.UID] {
		return "FaultOrdered", nil
	}
	return "", nil
}

// history returns that of a class; the caller holds the mutex.
func (p *provider) history(class types.UID) *history {
	if p.classes[class] == nil {
		p.classes[class] = &history{
			launches:    map[types.UID]int{},
			began:       map[int]time.Time{},
			unavailable: map[offering]time.Time{},
		}
	}
	return p.classes[class]
}

// annotate writes one annotation of a class.
func (p *provider) annotate(class *v1alpha1.KWOKNodeClass, key, value string) {
	err := annotate(p.context, p.client, class.DeepCopy(), key, value)
	if client.IgnoreNotFound(err) != nil {
		log.FromContext(p.context).Error(err, "a case isn't told what became of its faults", "KWOKNodeClass", class.Name, key, value)
	}
}

func annotate(ctx context.Context, c client.Client, object client.Object, key, value string) error {
	stored := object.DeepCopyObject().(client.Object)
	annotations := map[string]string{}
	for k, v := range object.GetAnnotations() {
		annotations[k] = v
	}
	annotations[key] = value
	object.SetAnnotations(annotations)
	return c.Patch(ctx, object, client.MergeFrom(stored))
}
