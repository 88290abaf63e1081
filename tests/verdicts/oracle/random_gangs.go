package main

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// clusterWithGang makes a cluster with more room and fewer pods, and the members of a gang that
// waits there, of one to three templates. Half of the gangs have no relations.
func (d dice) clusterWithGang() (*cluster, []*v1.Pod) {
	made := d.cluster()
	made.pods = made.pods[:d.Intn(len(made.pods))]
	for _, node := range made.nodes {
		node.Status.Allocatable["cpu"] = d.quantity("8", "16")
		node.Status.Allocatable["memory"] = d.quantity("16Gi", "32Gi")
		node.Status.Allocatable["nvidia.com/gpu"] = d.quantity("4", "8")
		node.Status.Allocatable["pods"] = resource.MustParse("10")
		if d.chance(70) {
			node.Spec.Taints, node.Spec.Unschedulable = nil, false
		}
	}
	related := d.chance(50)
	priority := d.priority()
	var members []*v1.Pod
	size := 1 + d.Intn(10)
	for class := range 1 + d.Intn(3) {
		template := d.incomingPod(made, class)
		template.Namespace = "ns0"
		template.Spec.Priority = priority
		template.Spec.Volumes = slices.DeleteFunc(template.Spec.Volumes, isChosenForOne)
		if d.chance(60) {
			template.Spec.Volumes = nil
		}
		d.relate(&template.Spec, related)
		for range 1 + d.Intn(size) {
			member := template.DeepCopy()
			member.Name = fmt.Sprint("m", len(members))
			member.UID = types.UID("uid-" + member.Name)
			members = append(members, member)
		}
	}
	return made, members
}

// isChosenForOne is true of what members can't share.
func isChosenForOne(volume v1.Volume) bool {
	claim := volume.PersistentVolumeClaim
	return volume.Ephemeral != nil || claim != nil && slices.Contains(localClaims, claim.ClaimName)
}

// relate replaces the pod's relations by what gangs usually have, or any, or none.
func (d dice) relate(spec *v1.PodSpec, related bool) {
	kind := d.Intn(5)
	if related && kind == 0 {
		return
	}
	spec.Affinity.PodAffinity, spec.Affinity.PodAntiAffinity = nil, nil
	spec.TopologySpreadConstraints = nil
	if !related {
		return
	}
	gang := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "app", Operator: metav1.LabelSelectorOpExists}}}
	term := func(key string) []v1.PodAffinityTerm {
		return []v1.PodAffinityTerm{{TopologyKey: key, LabelSelector: gang}}
	}
	switch kind {
	case 1:
		spec.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: term(v1.LabelHostname)}
	case 2:
		spec.Affinity.PodAffinity = &v1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: term(d.pick("zone", v1.LabelTopologyZone))}
	case 3:
		constraint := d.spreadConstraint()
		constraint.LabelSelector = gang
		spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{constraint}
	}
}
