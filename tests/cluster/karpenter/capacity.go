package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"muster.dev/tests/cluster/faults"
)

// offering names one, by the values of faults.OfferingLabels.
type offering [3]string

func offeringOf(instanceType *cloudprovider.InstanceType, offered *cloudprovider.Offering) offering {
	var name offering
	for i, label := range faults.OfferingLabels {
		requirements := offered.Requirements
		if label == corev1.LabelInstanceTypeStable {
			requirements = instanceType.Requirements
		}
		name[i] = requirements.Get(label).Any()
	}
	return name
}

func (o offering) matches(wanted map[string]string) bool {
	for i, label := range faults.OfferingLabels {
		if value, named := wanted[label]; named && value != o[i] {
			return false
		}
	}
	return true
}

// shown returns the instance types as Karpenter shall see them.
func (p *provider) shown(class types.UID) []*cloudprovider.InstanceType {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.offered(class)
}

// offered is shown with the mutex held.
func (p *provider) offered(class types.UID) []*cloudprovider.InstanceType {
	history := p.history(class)
	shown := slices.Clone(p.types)
	for i, one := range shown {
		shown[i] = restricted(one, func(name offering) bool { return time.Now().After(history.unavailable[name]) })
	}
	return shown
}

// restricted returns the type with only some of its offerings available.
func restricted(one *cloudprovider.InstanceType, available func(offering) bool) *cloudprovider.InstanceType {
	if !slices.ContainsFunc(one.Offerings, func(o *cloudprovider.Offering) bool { return !available(offeringOf(one, o)) }) {
		return one
	}
	restricted := &cloudprovider.InstanceType{}
	one.DeepCopyInto(restricted)
	for _, offered := range restricted.Offerings {
		offered.Available = offered.Available && available(offeringOf(one, offered))
	}
	return restricted
}

// choose returns the cheapest type that the claim allows and that has an
// instance, with only that offering available. As AWS's provider does, it tries
// the next dearer one where there is none, and remembers each that it tried in vain.
func (l *launch) choose() (*cloudprovider.InstanceType, error) {
	type candidate struct {
		instanceType *cloudprovider.InstanceType
		offering     *cloudprovider.Offering
	}
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(l.claim.Spec.Requirements...)
	var candidates []candidate
	for _, one := range l.types {
		if !requirements.Get(corev1.LabelInstanceTypeStable).Has(one.Name) {
			continue
		}
		for _, offered := range one.Offerings.Available().Compatible(requirements) {
			candidates = append(candidates, candidate{one, offered})
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.offering.Price, b.offering.Price) })
	for _, c := range candidates {
		name := offeringOf(c.instanceType, c.offering)
		if !l.exhausted(name) {
			return restricted(c.instanceType, func(other offering) bool { return other == name }), nil
		}
	}
	return nil, cloudprovider.NewInsufficientCapacityError(
		fmt.Errorf("launch %d found no instance in %d offerings", l.number, len(candidates)))
}

// exhausted tells whether a fault has it that there is no such instance now.
func (l *launch) exhausted(name offering) bool {
	for place, fault := range l.faults {
		if fault.Kind != faults.InsufficientCapacity || !name.matches(fault.Offering) {
			continue
		}
		if l.befalls(place, fault, name) {
			l.happened(place)
			return true
		}
	}
	return false
}

// befalls begins the fault's time at its first launch, and notes until when the
// offering is unavailable.
func (l *launch) befalls(place int, fault faults.Fault, name offering) bool {
	p := l.provider
	p.mutex.Lock()
	defer p.mutex.Unlock()
	history, now := p.history(l.class.UID), time.Now()
	if history.began[place].IsZero() {
		history.began[place] = now
	}
	if fault.LastsSeconds > 0 && now.Sub(history.began[place]) > seconds(fault.LastsSeconds) {
		return false
	}
	history.unavailable[name] = now.Add(seconds(fault.UnavailableSeconds))
	return true
}

// onlyOf narrows a claim to the one type that was chosen for it.
func onlyOf(claim *v1.NodeClaim, chosen *cloudprovider.InstanceType) *v1.NodeClaim {
	narrowed := claim.DeepCopy()
	for i, requirement := range narrowed.Spec.Requirements {
		if requirement.Key == corev1.LabelInstanceTypeStable {
			narrowed.Spec.Requirements[i].Values = []string{chosen.Name}
		}
	}
	return narrowed
}

func seconds(count int64) time.Duration { return time.Duration(count) * time.Second }
