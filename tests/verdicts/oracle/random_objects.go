package main

import (
	"fmt"
	"math/rand"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// dice makes random objects from few names and values, so that they meet often. They are as the API
// server would have stored them: defaults applied, what its gates refuse left out (tolerations with
// Gt and Lt, in 1.37).
type dice struct{ *rand.Rand }

func newDice(seed int64) dice { return dice{rand.New(rand.NewSource(seed))} }

const nodeCount = 6

// What pods ask for as a whole, beside what their containers do.
var podLevel = []struct {
	name   v1.ResourceName
	values []string
}{
	{"cpu", []string{"3", "6"}},
	{"memory", []string{"4Gi", "10Gi"}},
	{"hugepages-2Mi", []string{"64Mi"}},
}

func (d dice) chance(percent int) bool      { return d.Intn(100) < percent }
func (d dice) pick(values ...string) string { return values[d.Intn(len(values))] }
func (d dice) quantity(values ...string) resource.Quantity {
	return resource.MustParse(d.pick(values...))
}

func (d dice) labels(values []string, keys ...string) map[string]string {
	labels := map[string]string{}
	for _, key := range keys {
		if d.chance(60) {
			labels[key] = d.pick(values...)
		}
	}
	return labels
}

func (d dice) labelSelector() *metav1.LabelSelector {
	if d.chance(8) {
		return nil
	}
	selector := &metav1.LabelSelector{}
	if d.chance(8) {
		return selector
	}
	if d.chance(60) {
		selector.MatchLabels = map[string]string{d.pick("app", "tier"): d.pick("x", "y")}
	}
	if d.chance(50) {
		operator := metav1.LabelSelectorOperator(d.pick("In", "NotIn", "Exists", "DoesNotExist"))
		requirement := metav1.LabelSelectorRequirement{Key: d.pick("app", "tier"), Operator: operator}
		if operator == "In" || operator == "NotIn" {
			requirement.Values = []string{d.pick("x", "y")}
		}
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	return selector
}

// Label keys of the pod as parts of the selector, which the API server merges into it.
func (d dice) foldLabelKey(term *v1.PodAffinityTerm, labels map[string]string) {
	const key = "rev"
	operator := metav1.LabelSelectorOpIn
	if d.chance(50) {
		term.MatchLabelKeys = []string{key}
	} else {
		term.MismatchLabelKeys = []string{key}
		operator = metav1.LabelSelectorOpNotIn
	}
	if value, ok := labels[key]; ok {
		term.LabelSelector.MatchExpressions = append(term.LabelSelector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
	}
}

func (d dice) podAffinityTerms(labels map[string]string) []v1.PodAffinityTerm {
	var terms []v1.PodAffinityTerm
	for range 1 + d.Intn(2) {
		term := v1.PodAffinityTerm{
			TopologyKey:   d.pick("zone", "rack", v1.LabelHostname),
			LabelSelector: d.labelSelector(),
		}
		if d.chance(25) {
			term.Namespaces = []string{d.pick("ns0", "ns1", "ns2")}
		}
		if d.chance(25) {
			term.NamespaceSelector = &metav1.LabelSelector{}
			if d.chance(75) {
				term.NamespaceSelector.MatchLabels = map[string]string{"team": d.pick("x", "y")}
			}
		}
		if term.LabelSelector != nil && d.chance(15) {
			d.foldLabelKey(&term, labels)
		}
		terms = append(terms, term)
	}
	return terms
}

func (d dice) nodeRequirement() v1.NodeSelectorRequirement {
	key := d.pick("zone", "rack")
	switch d.Intn(6) {
	case 0:
		return v1.NodeSelectorRequirement{Key: key, Operator: "In", Values: []string{d.pick("a", "b"), "c"}}
	case 1:
		return v1.NodeSelectorRequirement{Key: key, Operator: "NotIn", Values: []string{d.pick("a", "b")}}
	case 2:
		return v1.NodeSelectorRequirement{Key: key, Operator: "Exists"}
	case 3:
		return v1.NodeSelectorRequirement{Key: key, Operator: "DoesNotExist"}
	case 4:
		return v1.NodeSelectorRequirement{Key: "gen", Operator: "Gt", Values: []string{strconv.Itoa(d.Intn(10))}}
	}
	return v1.NodeSelectorRequirement{Key: "gen", Operator: "Lt", Values: []string{strconv.Itoa(d.Intn(12))}}
}

func (d dice) nodeSelector() *v1.NodeSelector {
	selector := &v1.NodeSelector{}
	for range 1 + d.Intn(2) {
		term := v1.NodeSelectorTerm{}
		for range d.Intn(3) {
			term.MatchExpressions = append(term.MatchExpressions, d.nodeRequirement())
		}
		if d.chance(20) {
			term.MatchFields = []v1.NodeSelectorRequirement{{
				Key:      metav1.ObjectNameField,
				Operator: v1.NodeSelectorOperator(d.pick("In", "NotIn")),
				Values:   []string{d.nodeName()},
			}}
		}
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
	}
	return selector
}

func (d dice) effect() v1.TaintEffect {
	return v1.TaintEffect(d.pick("NoSchedule", "NoExecute", "PreferNoSchedule"))
}

func (d dice) toleration() v1.Toleration {
	toleration := v1.Toleration{
		Key:      d.pick("t0", "t1", v1.TaintNodeUnschedulable),
		Operator: v1.TolerationOperator(d.pick("Equal", "Exists", "")),
	}
	if toleration.Operator != "Exists" {
		toleration.Value = d.pick("", "v")
	} else if d.chance(20) {
		toleration.Key = ""
	}
	if d.chance(50) {
		toleration.Effect = d.effect()
	}
	return toleration
}

func (d dice) spreadConstraint() v1.TopologySpreadConstraint {
	constraint := v1.TopologySpreadConstraint{
		MaxSkew:           int32(1 + d.Intn(2)),
		TopologyKey:       d.pick("zone", "rack", v1.LabelHostname),
		WhenUnsatisfiable: v1.DoNotSchedule,
		LabelSelector:     d.labelSelector(),
	}
	if d.chance(20) {
		constraint.WhenUnsatisfiable = v1.ScheduleAnyway
	} else if d.chance(30) {
		domains := int32(1 + d.Intn(4))
		constraint.MinDomains = &domains
	}
	for _, policy := range []**v1.NodeInclusionPolicy{&constraint.NodeAffinityPolicy, &constraint.NodeTaintsPolicy} {
		if d.chance(30) {
			value := v1.NodeInclusionPolicy(d.pick("Honor", "Ignore"))
			*policy = &value
		}
	}
	if d.chance(20) && constraint.LabelSelector != nil {
		constraint.MatchLabelKeys = []string{d.pick("app", "tier")}
	}
	return constraint
}

func (d dice) container(name string) v1.Container {
	container := v1.Container{Name: name}
	container.Resources.Requests = v1.ResourceList{}
	if d.chance(70) {
		container.Resources.Requests["cpu"] = d.quantity("1", "500m", "2500m", "0")
	}
	if d.chance(40) {
		container.Resources.Requests["memory"] = d.quantity("1Gi", "3Gi", "100M")
	}
	if d.chance(40) {
		gpus := d.quantity("1", "2", "4")
		container.Resources.Requests["nvidia.com/gpu"] = gpus
		container.Resources.Limits = v1.ResourceList{"nvidia.com/gpu": gpus}
	}
	if d.chance(10) {
		container.Resources.Requests[v1.ResourceEphemeralStorage] = d.quantity("1Gi", "10Gi")
	}
	if d.chance(8) {
		pages := d.quantity("2Mi", "64Mi")
		container.Resources.Requests["hugepages-2Mi"] = pages
		container.Resources.Limits = v1.ResourceList{"hugepages-2Mi": pages}
	}
	if d.chance(40) {
		container.Ports = []v1.ContainerPort{{
			ContainerPort: 80,
			HostPort:      int32(80 + d.Intn(2)),
			HostIP:        d.pick("", "10.0.0.1", "10.0.0.2", "0.0.0.0", "::"),
			Protocol:      v1.Protocol(d.pick("TCP", "UDP", "SCTP")),
		}}
	}
	return container
}

func (d dice) nodeName() string { return fmt.Sprint("n", d.Intn(nodeCount)) }

func (d dice) pod(number, relations int) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name:      fmt.Sprint("p", number),
		Namespace: d.pick("ns0", "ns1", "ns2"),
		UID:       types.UID(fmt.Sprint("uid-", number)),
		Labels:    d.labels([]string{"x", "y"}, "app", "tier", "rev"),
	}}
	pod.Spec.Containers = []v1.Container{d.container("c0")}
	if d.chance(40) {
		pod.Spec.Containers = append(pod.Spec.Containers, d.container("c1"))
	}
	if d.chance(25) {
		init := d.container("i0")
		if d.chance(50) {
			always := v1.ContainerRestartPolicyAlways
			init.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, init)
	}
	if d.chance(15) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, d.container("i1"))
	}
	if d.chance(10) {
		pod.Spec.Overhead = v1.ResourceList{"cpu": resource.MustParse("250m")}
	}
	if d.chance(12) {
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{}}
		for _, one := range podLevel {
			if d.chance(60) {
				pod.Spec.Resources.Requests[one.name] = d.quantity(one.values...)
			}
		}
	}
	if d.chance(5) {
		pod.Spec.HostNetwork = true
		for i := range pod.Spec.Containers {
			for k := range pod.Spec.Containers[i].Ports {
				port := &pod.Spec.Containers[i].Ports[k]
				port.ContainerPort = port.HostPort
			}
		}
	}
	pod.Spec.Affinity = &v1.Affinity{}
	if d.chance(relations) {
		pod.Spec.Affinity.PodAffinity = &v1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: d.podAffinityTerms(pod.Labels)}
	}
	if d.chance(relations) {
		pod.Spec.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: d.podAffinityTerms(pod.Labels)}
	}
	return pod
}

func (d dice) standingPod(number int) *v1.Pod {
	pod := d.pod(number, 20)
	pod.Spec.NodeName = d.nodeName()
	if d.chance(4) {
		pod.Spec.NodeName = "gone"
	}
	pod.Status.Phase = v1.PodRunning
	if d.chance(6) {
		pod.Status.Phase = v1.PodPhase(d.pick("Succeeded", "Failed"))
	}
	if d.chance(8) {
		deleted := metav1.Unix(1700000000, 0)
		pod.DeletionTimestamp = &deleted
		pod.Finalizers = []string{"example.com/keep"}
	}
	if d.chance(25) {
		d.resize(pod)
	}
	return pod
}

// resize lets what the node has given to the pod differ from what is asked for.
func (d dice) resize(pod *v1.Pod) {
	given := func() v1.ResourceList {
		return v1.ResourceList{"cpu": d.quantity("1", "500m", "3"), "memory": d.quantity("1Gi", "2Gi")}
	}
	status := func(container v1.Container) v1.ContainerStatus {
		status := v1.ContainerStatus{Name: container.Name}
		if d.chance(70) {
			status.AllocatedResources = given()
		}
		if d.chance(70) {
			status.Resources = &v1.ResourceRequirements{Requests: given()}
		}
		return status
	}
	for _, container := range pod.Spec.Containers {
		if d.chance(80) {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status(container))
		}
	}
	for _, container := range pod.Spec.InitContainers {
		if d.chance(80) {
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, status(container))
		}
	}
	if d.chance(40) {
		if d.chance(80) {
			pod.Status.AllocatedResources = given()
		}
		if d.chance(80) {
			pod.Status.Resources = &v1.ResourceRequirements{Requests: given()}
		}
	}
	if d.chance(50) {
		pod.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: d.pick("Infeasible", "Deferred")}}
	}
}

func (d dice) priority() *int32 {
	priority := int32(d.Intn(3))
	return &priority
}

// nominatedPod is one for which kube-scheduler has made room that isn't free yet.
func (d dice) nominatedPod(number int) *v1.Pod {
	pod := d.pod(number, 30)
	pod.Spec.Priority = d.priority()
	pod.Status.NominatedNodeName = d.nodeName()
	return pod
}

func (d dice) incomingPod(made *cluster, number int) *v1.Pod {
	pod := d.pod(number, 25)
	pod.Spec.Priority = d.priority()
	if d.chance(30) {
		pod.Spec.Affinity.NodeAffinity = &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: d.nodeSelector()}
	}
	if d.chance(20) {
		pod.Spec.NodeSelector = map[string]string{d.pick("zone", "rack"): d.pick("a", "b")}
	}
	d.useFeature(&pod.Spec)
	for range d.Intn(3) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, d.toleration())
	}
	if d.chance(35) {
		for range 1 + d.Intn(2) {
			constraint := d.spreadConstraint()
			// No pod that stands counts for an empty selector, but one that is nominated does.
			selector := constraint.LabelSelector
			if len(made.nominated) > 0 && selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
				continue
			}
			pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, constraint)
		}
	}
	if d.chance(30) {
		d.mount(pod, "c0", "c1", "c2", "c3", "c0", "c1", "c2", "c3", "missing")
	} else if d.chance(20) {
		d.mount(pod, append(localClaims, "c0")...)
	}
	if d.chance(8) {
		d.ephemeral(made, pod)
	}
	return pod
}

// What kubelets declare that pods can ask for.
var nodeFeatures = []string{
	"RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "VolumeBindMountOptions"}

// useFeature lets the pod need what not all kubelets can do, or nearly so.
func (d dice) useFeature(spec *v1.PodSpec) {
	if d.chance(6) {
		action := v1.ContainerRestartRuleAction(d.pick("Restart", "RestartAllContainers"))
		spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: action}}
	}
	if d.chance(6) {
		spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v0", MountPath: "/v"}}
		if d.chance(60) {
			spec.Containers[0].VolumeMounts[0].BindMountOptions = []string{"noexec"}
		}
	}
	if d.chance(6) || spec.HostNetwork {
		users := d.chance(30)
		spec.HostUsers = &users
	}
}

// mount gives the pod one or two of these claims.
func (d dice) mount(pod *v1.Pod, claims ...string) {
	for i := range 1 + d.Intn(2) {
		claim := &v1.PersistentVolumeClaimVolumeSource{ClaimName: d.pick(claims...)}
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{
			Name: fmt.Sprint("v", i), VolumeSource: v1.VolumeSource{PersistentVolumeClaim: claim}})
	}
}

var drivers = []string{"disk.example.com", "files.example.com"}

// attach says which drivers are on which nodes, how many of their volumes each takes, and what is
// attached already, whether or not a pod uses it.
func (d dice) attach(made *cluster) {
	for _, name := range drivers {
		if d.chance(50) {
			prevents, tells := d.chance(50), d.chance(50)
			made.csiDrivers = append(made.csiDrivers, &storagev1.CSIDriver{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: storagev1.CSIDriverSpec{
					PreventPodSchedulingIfMissing: &prevents, StorageCapacity: &tells}})
		}
	}
	for _, node := range made.nodes {
		if d.chance(20) {
			continue
		}
		csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
		for _, name := range drivers {
			if d.chance(15) {
				continue
			}
			driver := storagev1.CSINodeDriver{Name: name, NodeID: node.Name}
			if d.chance(75) {
				most := int32(d.Intn(4))
				driver.Allocatable = &storagev1.VolumeNodeResources{Count: &most}
			}
			csi.Spec.Drivers = append(csi.Spec.Drivers, driver)
		}
		made.csiNodes = append(made.csiNodes, csi)
	}
	for i, volume := range made.volumes {
		if volume.Spec.CSI == nil || !d.chance(20) {
			continue
		}
		made.attachments = append(made.attachments, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("va", i)},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: volume.Spec.CSI.Driver,
				NodeName: d.nodeName(),
				Source:   storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume.Name}}})
	}
}

// capacities says how large volumes can still be made for whom.
func (d dice) capacities(made *cluster) {
	for i := range d.Intn(10) {
		capacity := &storagev1.CSIStorageCapacity{
			ObjectMeta:       metav1.ObjectMeta{Namespace: "kube-system", Name: fmt.Sprint("cap", i)},
			StorageClassName: d.pick("waits", "waits", "waits-in-a"),
		}
		selector := &metav1.LabelSelector{}
		if d.chance(70) {
			selector.MatchLabels = map[string]string{
				d.pick("zone", "rack", v1.LabelTopologyZone): d.pick("a", "b", "c")}
		}
		// One that says nothing would be left out of the line.
		if len(selector.MatchLabels) == 0 || d.chance(30) {
			selector.MatchExpressions = []metav1.LabelSelectorRequirement{{
				Key: v1.LabelHostname, Operator: "NotIn", Values: []string{d.nodeName(), d.nodeName()}}}
		}
		if d.chance(90) {
			capacity.NodeTopology = selector
		}
		if d.chance(85) {
			size := d.quantity("5Gi", "10Gi", "20Gi")
			capacity.Capacity = &size
		}
		if d.chance(25) {
			size := d.quantity("5Gi", "10Gi")
			capacity.MaximumVolumeSize = &size
		}
		made.capacities = append(made.capacities, capacity)
	}
}

// ephemeral gives the pod a volume that is made for it, and mostly the claim for that.
func (d dice) ephemeral(made *cluster, pod *v1.Pod) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{
		Name: "own",
		VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
			VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: v1.PersistentVolumeClaimSpec{
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}}}}}})
	if d.chance(15) {
		return
	}
	claim, volume := d.claim(pod.Namespace, pod.Name+"-own")
	if d.chance(85) {
		yes := true
		claim.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &yes}}
	}
	made.claims = append(made.claims, claim)
	if volume != nil {
		made.volumes = append(made.volumes, volume)
	}
}

func (d dice) node(number int) *v1.Node {
	name := fmt.Sprint("n", number)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		UID:    types.UID("node-" + name),
		Labels: d.labels([]string{"a", "b", "c"}, "zone", "rack"),
	}}
	if d.chance(90) {
		node.Labels[v1.LabelHostname] = name
	}
	if d.chance(60) {
		node.Labels["gen"] = strconv.Itoa(d.Intn(12))
	}
	if d.chance(3) {
		node.Labels["gen"] = "new"
	}
	if d.chance(60) {
		node.Labels[d.pick(v1.LabelTopologyZone, v1.LabelTopologyZone, v1.LabelFailureDomainBetaZone)] = d.pick("a", "b")
	}
	if d.chance(20) {
		node.Labels[d.pick(v1.LabelTopologyRegion, v1.LabelFailureDomainBetaRegion)] = d.pick("a", "b")
	}
	node.Status.Allocatable = v1.ResourceList{
		"cpu":    d.quantity("4", "8"),
		"memory": d.quantity("4Gi", "16Gi"),
		"pods":   d.quantity("2", "10"),
	}
	if d.chance(70) {
		node.Status.Allocatable["nvidia.com/gpu"] = d.quantity("4", "8")
	}
	if d.chance(70) {
		node.Status.Allocatable[v1.ResourceEphemeralStorage] = d.quantity("5Gi", "50Gi")
	}
	if d.chance(40) {
		node.Status.Allocatable["hugepages-2Mi"] = d.quantity("32Mi", "1Gi")
	}
	if d.chance(2) {
		delete(node.Status.Allocatable, "pods")
	}
	for _, feature := range nodeFeatures {
		if d.chance(50) {
			node.Status.DeclaredFeatures = append(node.Status.DeclaredFeatures, feature)
		}
	}
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	if d.chance(25) {
		for range 1 + d.Intn(2) {
			node.Spec.Taints = append(node.Spec.Taints,
				v1.Taint{Key: d.pick("t0", "t1"), Value: d.pick("", "v"), Effect: d.effect()})
		}
	}
	node.Spec.Unschedulable = d.chance(10)
	if node.Spec.Unschedulable && d.chance(50) {
		node.Spec.Taints = append(node.Spec.Taints,
			v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule})
	}
	return node
}

// claim and volume: the volume is nil if there is none.
func (d dice) claim(namespace, name string) (*v1.PersistentVolumeClaim, *v1.PersistentVolume) {
	class := d.pick("immediate", "immediate", "unknown", "waits", "waits-in-a")
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name)}}
	claim.Spec.StorageClassName = &class
	claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.PersistentVolumeAccessMode(
		d.pick("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"))}
	claim.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse("10Gi")}
	claim.Status.Phase = v1.ClaimPending
	volumeName := fmt.Sprintf("pv-%s-%s", namespace, name)
	if d.chance(70) {
		claim.Spec.VolumeName = volumeName
		if d.chance(85) {
			claim.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
			claim.Status.Phase = v1.ClaimBound
			if d.chance(4) {
				claim.Status.Phase = v1.ClaimLost
			}
		}
	} else if d.chance(25) {
		claim.Annotations = map[string]string{"volume.kubernetes.io/selected-node": d.nodeName()}
	}
	if d.chance(4) {
		deleted := metav1.Unix(1700000000, 0)
		claim.DeletionTimestamp = &deleted
		claim.Finalizers = []string{"kubernetes.io/pvc-protection"}
	}
	if d.chance(10) || claim.Spec.VolumeName == "" {
		return claim, nil
	}
	volume := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volumeName}}
	volume.Spec.StorageClassName = class
	volume.Spec.ClaimRef = &v1.ObjectReference{Namespace: namespace, Name: name, UID: claim.UID}
	volume.Spec.AccessModes = claim.Spec.AccessModes
	volume.Spec.Capacity = claim.Spec.Resources.Requests
	volume.Status.Phase = v1.VolumeBound
	if d.chance(85) {
		volume.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: d.pick(drivers...), VolumeHandle: "h-" + volumeName}
	}
	if d.chance(60) {
		term := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{d.nodeRequirement()}}
		volume.Spec.NodeAffinity = &v1.VolumeNodeAffinity{
			Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}}}
	}
	if d.chance(40) {
		key := d.pick(v1.LabelTopologyZone, v1.LabelFailureDomainBetaZone, v1.LabelTopologyRegion,
			v1.LabelFailureDomainBetaRegion)
		volume.Labels = map[string]string{key: d.pick("a", "b", "a__b", "a____b")}
	}
	return claim, volume
}

// Of class "local", whose volumes somebody has made.
var localClaims = []string{"l0", "l1", "l2"}

func (d dice) volumeMode() *v1.PersistentVolumeMode {
	mode := v1.PersistentVolumeFilesystem
	if d.chance(15) {
		mode = v1.PersistentVolumeBlock
	}
	return &mode
}

// localVolumes adds claims that wait for one of the volumes that it adds, too: mostly on one node
// each. No two are of one size, or kept for one claim, as kube-scheduler takes any of those.
func (d dice) localVolumes(made *cluster) {
	storage := func(more int) v1.ResourceList {
		size := d.quantity("5Gi", "5Gi", "10Gi", "20Gi")
		size.Add(*resource.NewQuantity(int64(more), resource.BinarySI))
		return v1.ResourceList{v1.ResourceStorage: size}
	}
	var claims []*v1.PersistentVolumeClaim
	for _, namespace := range made.namespaces {
		for _, name := range localClaims {
			claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace.Name, Name: name, UID: types.UID(namespace.Name + "-" + name)}}
			class := "local"
			claim.Spec.StorageClassName = &class
			claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{
				v1.PersistentVolumeAccessMode(d.pick("ReadWriteOnce", "ReadWriteOnce", "ReadOnlyMany"))}
			claim.Spec.VolumeMode = d.volumeMode()
			claim.Spec.Resources.Requests = storage(0)
			claim.Status.Phase = v1.ClaimPending
			if d.chance(15) {
				claim.Spec.Selector = d.labelSelector()
			}
			if d.chance(5) {
				claim.Annotations = map[string]string{"volume.kubernetes.io/selected-node": d.nodeName()}
			}
			claims = append(claims, claim)
		}
	}
	made.claims = append(made.claims, claims...)
	for i := range 4 + d.Intn(16) {
		volume := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("lv", i), UID: types.UID(fmt.Sprint("uid-lv", i)),
			Labels: d.labels([]string{"x", "y"}, "app", "tier")}}
		volume.Spec.StorageClassName = "local"
		volume.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
		if d.chance(40) {
			volume.Spec.AccessModes = append(volume.Spec.AccessModes, v1.ReadOnlyMany)
		}
		volume.Spec.VolumeMode = d.volumeMode()
		volume.Spec.Capacity = storage(i)
		volume.Status.Phase = v1.VolumeAvailable
		if d.chance(10) {
			volume.Status.Phase = v1.PersistentVolumePhase(d.pick("Pending", "Released", "Failed"))
		}
		requirement := v1.NodeSelectorRequirement{
			Key: v1.LabelHostname, Operator: "In", Values: []string{d.nodeName()}}
		if d.chance(25) {
			requirement = d.nodeRequirement()
		}
		volume.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{requirement}}}}}
		if d.chance(15) {
			at := d.Intn(len(claims))
			claim := claims[at]
			claims = slices.Delete(claims, at, at+1)
			volume.Spec.ClaimRef = &v1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name}
			if d.chance(40) {
				volume.Spec.ClaimRef.UID = types.UID(d.pick(string(claim.UID), "another"))
			}
		}
		made.volumes = append(made.volumes, volume)
	}
}

func storageClasses() []*storagev1.StorageClass {
	immediate, waits := storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer
	class := func(name string, mode *storagev1.VolumeBindingMode) *storagev1.StorageClass {
		return &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: drivers[0], VolumeBindingMode: mode}
	}
	waitsInA := class("waits-in-a", &waits)
	waitsInA.AllowedTopologies = []v1.TopologySelectorTerm{{
		MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{
			{Key: v1.LabelTopologyZone, Values: []string{"a"}}}}}
	local := class("local", &waits)
	local.Provisioner = "kubernetes.io/no-provisioner"
	return []*storagev1.StorageClass{class("immediate", &immediate), class("waits", &waits), waitsInA, local}
}

// cluster is what stands, with all that plugins look up.
type cluster struct {
	nodes      []*v1.Node
	pods       []*v1.Pod
	namespaces []*v1.Namespace
	claims     []*v1.PersistentVolumeClaim
	volumes    []*v1.PersistentVolume
	classes    []*storagev1.StorageClass

	csiNodes    []*storagev1.CSINode
	csiDrivers  []*storagev1.CSIDriver
	attachments []*storagev1.VolumeAttachment
	capacities  []*storagev1.CSIStorageCapacity

	nominated     []*v1.Pod
	addedAffinity *v1.NodeAffinity
}

func (made *cluster) objects() []runtime.Object {
	return slices.Concat(asObjects(made.nodes), asObjects(made.namespaces), asObjects(made.claims), asObjects(made.volumes),
		asObjects(made.classes), asObjects(made.csiNodes), asObjects(made.csiDrivers), asObjects(made.attachments),
		asObjects(made.capacities))
}

func asObjects[T runtime.Object](some []T) []runtime.Object {
	var objects []runtime.Object
	for _, one := range some {
		objects = append(objects, one)
	}
	return objects
}

func (d dice) cluster() *cluster {
	made := &cluster{classes: storageClasses()}
	for i := range nodeCount {
		made.nodes = append(made.nodes, d.node(i))
	}
	for i := range 3 {
		namespace := fmt.Sprint("ns", i)
		made.namespaces = append(made.namespaces, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: namespace, Labels: d.labels([]string{"x", "y"}, "team")}})
		for k := range 4 {
			claim, volume := d.claim(namespace, fmt.Sprint("c", k))
			made.claims = append(made.claims, claim)
			if volume != nil {
				made.volumes = append(made.volumes, volume)
			}
		}
	}
	for i := range 2 + d.Intn(10) {
		pod := d.standingPod(i)
		if d.chance(30) {
			d.mount(pod, "c0", "c1", "c2", "c3")
		}
		made.pods = append(made.pods, pod)
	}
	for i := range d.Intn(4) {
		pod := d.nominatedPod(50 + i)
		if d.chance(30) {
			d.mount(pod, "c0", "c1", "c2", "c3")
		}
		made.nominated = append(made.nominated, pod)
	}
	if d.chance(15) {
		made.addedAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: d.nodeSelector()}
	}
	d.localVolumes(made)
	d.capacities(made)
	d.attach(made)
	return made
}
