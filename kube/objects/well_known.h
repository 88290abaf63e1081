// Labels, annotations and taints that Kubernetes, Karpenter, scheduler-plugins and Kueue have given
// a meaning, as far as more than one file needs them.
#pragma once

namespace muster::kube {

// Kubernetes' own (k8s.io/api/core/v1/well_known_labels.go).
inline constexpr char kHostnameLabel[] = "kubernetes.io/hostname";
inline constexpr char kInstanceTypeLabel[] = "node.kubernetes.io/instance-type";
inline constexpr char kCapacityTypeLabel[] = "karpenter.sh/capacity-type";
inline constexpr char kReservationIdLabel[] = "karpenter.k8s.aws/capacity-reservation-id";
inline constexpr char kZoneLabel[] = "topology.kubernetes.io/zone";
inline constexpr char kRegionLabel[] = "topology.kubernetes.io/region";
// Of a claim that waits for its first consumer: for which node its volume is to be made.
inline constexpr char kSelectedNodeAnnotation[] = "volume.kubernetes.io/selected-node";
// Of a StorageClass whose volumes somebody makes beforehand.
inline constexpr char kNoProvisioner[] = "kubernetes.io/no-provisioner";

// sigs.k8s.io/karpenter/pkg/apis/v1/labels.go and taints.go v1.8.0
inline constexpr char kNodePoolLabel[] = "karpenter.sh/nodepool";
inline constexpr char kRegisteredLabel[] = "karpenter.sh/registered";
inline constexpr char kInitializedLabel[] = "karpenter.sh/initialized";
inline constexpr char kDoNotDisruptAnnotation[] = "karpenter.sh/do-not-disrupt";
inline constexpr char kUnregisteredTaint[] = "karpenter.sh/unregistered";

// sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1 v0.33.5
inline constexpr char kPodGroupLabel[] = "scheduling.x-k8s.io/pod-group";

// sigs.k8s.io/kueue v0.15.2: pkg/controller/constants and pkg/controller/jobs/pod/constants
// Of a Job's pods, its UID.
inline constexpr char kControllerUidLabel[] = "batch.kubernetes.io/controller-uid";
inline constexpr char kQueueLabel[] = "kueue.x-k8s.io/queue-name";
inline constexpr char kKueueGroupLabel[] = "kueue.x-k8s.io/pod-group-name";
// On the pod template of a job that was resumed, and so on its pods (v0.19.2 pkg/controller/
// jobframework/reconciler.go startJob): which pod set they are, of which Workload.
inline constexpr char kPodSetLabel[] = "kueue.x-k8s.io/podset";
inline constexpr char kWorkloadAnnotation[] = "kueue.x-k8s.io/workload";

}  // namespace muster::kube
