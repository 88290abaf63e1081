// Made by generate_core_schema.py from the OpenAPI document of Kubernetes v1.34.2.
//
// One type a line (continued on indented lines): its name, then field:type. Types: s string,
// i int32, l int64, n number, b boolean, q quantity, t time, T time with fractions, y base64,
// x int or string, ? anything, *T list, *T@key list merged by key, *T@ list merged as a set,
// %T map of strings to T, or the name of another type. Server-side apply merges lists in the same
// way, but for *T@key~: not at all, *T~*: as a set, *T~key,key=DEFAULT: by these keys. A map or
// type marked ! has one owner.
#include <memory>
#include <string>
#include <string_view>

#include "kube/embedded/compact_schema.h"
#include "kube/embedded/schema.h"

namespace muster::kube::embedded {
namespace {

constexpr std::string_view kTypes = R"(
AWSElasticBlockStoreVolumeSource fsType:s partition:i readOnly:b volumeID:s
Affinity nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity
AppArmorProfile localhostProfile:s type:s
AttachedVolume devicePath:s name:s
AzureDiskVolumeSource cachingMode:s diskName:s diskURI:s fsType:s kind:s readOnly:b
AzureFilePersistentVolumeSource readOnly:b secretName:s secretNamespace:s shareName:s
AzureFileVolumeSource readOnly:b secretName:s shareName:s
Binding apiVersion:s kind:s metadata:ObjectMeta target:ObjectReference
CSIDriver apiVersion:s kind:s metadata:ObjectMeta spec:CSIDriverSpec
CSIDriverSpec attachRequired:b fsGroupPolicy:s nodeAllocatableUpdatePeriodSeconds:l
  podInfoOnMount:b preventPodSchedulingIfMissing:b requiresRepublish:b seLinuxMount:b
  storageCapacity:b tokenRequests:*TokenRequest volumeLifecycleModes:*s~*
CSINode apiVersion:s kind:s metadata:ObjectMeta spec:CSINodeSpec
CSINodeDriver allocatable:VolumeNodeResources name:s nodeID:s topologyKeys:*s
CSINodeSpec drivers:*CSINodeDriver@name
CSIPersistentVolumeSource controllerExpandSecretRef:SecretReference
  controllerPublishSecretRef:SecretReference driver:s fsType:s nodeExpandSecretRef:SecretReference
  nodePublishSecretRef:SecretReference nodeStageSecretRef:SecretReference readOnly:b
  volumeAttributes:%s volumeHandle:s
CSIStorageCapacity apiVersion:s capacity:q kind:s maximumVolumeSize:q metadata:ObjectMeta
  nodeTopology:LabelSelector storageClassName:s
CSIVolumeSource driver:s fsType:s nodePublishSecretRef:LocalObjectReference readOnly:b
  volumeAttributes:%s
Capabilities add:*s drop:*s
CephFSPersistentVolumeSource monitors:*s path:s readOnly:b secretFile:s secretRef:SecretReference
  user:s
CephFSVolumeSource monitors:*s path:s readOnly:b secretFile:s secretRef:LocalObjectReference
  user:s
CinderPersistentVolumeSource fsType:s readOnly:b secretRef:SecretReference volumeID:s
CinderVolumeSource fsType:s readOnly:b secretRef:LocalObjectReference volumeID:s
ClientIPConfig timeoutSeconds:i
ClusterTrustBundleProjection labelSelector:LabelSelector name:s optional:b path:s signerName:s
Condition lastTransitionTime:t message:s observedGeneration:l reason:s status:s type:s
ConfigMap apiVersion:s binaryData:%y data:%s immutable:b kind:s metadata:ObjectMeta
ConfigMapEnvSource name:s optional:b
ConfigMapKeySelector ! key:s name:s optional:b
ConfigMapNodeConfigSource kubeletConfigKey:s name:s namespace:s resourceVersion:s uid:s
ConfigMapProjection items:*KeyToPath name:s optional:b
ConfigMapVolumeSource defaultMode:i items:*KeyToPath name:s optional:b
Container args:*s command:*s env:*EnvVar@name envFrom:*EnvFromSource image:s imagePullPolicy:s
  lifecycle:Lifecycle livenessProbe:Probe name:s
  ports:*ContainerPort@containerPort~containerPort,protocol=TCP readinessProbe:Probe
  resizePolicy:*ContainerResizePolicy resources:ResourceRequirements restartPolicy:s
  restartPolicyRules:*ContainerRestartRule securityContext:SecurityContext startupProbe:Probe
  stdin:b stdinOnce:b terminationMessagePath:s terminationMessagePolicy:s tty:b
  volumeDevices:*VolumeDevice@devicePath volumeMounts:*VolumeMount@mountPath workingDir:s
ContainerExtendedResourceRequest containerName:s requestName:s resourceName:s
ContainerImage names:*s sizeBytes:l
ContainerPort containerPort:i hostIP:s hostPort:i name:s protocol:s
ContainerResizePolicy resourceName:s restartPolicy:s
ContainerRestartRule action:s exitCodes:ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes operator:s values:*i~*
ContainerState running:ContainerStateRunning terminated:ContainerStateTerminated
  waiting:ContainerStateWaiting
ContainerStateRunning startedAt:t
ContainerStateTerminated containerID:s exitCode:i finishedAt:t message:s reason:s signal:i
  startedAt:t
ContainerStateWaiting message:s reason:s
ContainerStatus allocatedResources:%q allocatedResourcesStatus:*ResourceStatus@name containerID:s
  image:s imageID:s lastState:ContainerState name:s ready:b resources:ResourceRequirements
  restartCount:i started:b state:ContainerState stopSignal:s user:ContainerUser
  volumeMounts:*VolumeMountStatus@mountPath
ContainerUser linux:LinuxContainerUser
CustomResourceColumnDefinition description:s format:s jsonPath:s name:s priority:i type:s
CustomResourceConversion strategy:s webhook:WebhookConversion
CustomResourceDefinition apiVersion:s kind:s metadata:ObjectMeta spec:CustomResourceDefinitionSpec
  status:CustomResourceDefinitionStatus
CustomResourceDefinitionCondition lastTransitionTime:t message:s reason:s status:s type:s
CustomResourceDefinitionNames categories:*s kind:s listKind:s plural:s shortNames:*s singular:s
CustomResourceDefinitionSpec conversion:CustomResourceConversion group:s
  names:CustomResourceDefinitionNames preserveUnknownFields:b scope:s
  versions:*CustomResourceDefinitionVersion
CustomResourceDefinitionStatus acceptedNames:CustomResourceDefinitionNames
  conditions:*CustomResourceDefinitionCondition~type storedVersions:*s
CustomResourceDefinitionVersion additionalPrinterColumns:*CustomResourceColumnDefinition
  deprecated:b deprecationWarning:s name:s schema:CustomResourceValidation
  selectableFields:*SelectableField served:b storage:b subresources:CustomResourceSubresources
CustomResourceSubresourceScale labelSelectorPath:s specReplicasPath:s statusReplicasPath:s
CustomResourceSubresourceStatus
CustomResourceSubresources scale:CustomResourceSubresourceScale
  status:CustomResourceSubresourceStatus
CustomResourceValidation openAPIV3Schema:?
DaemonEndpoint Port:i
DaemonSet apiVersion:s kind:s metadata:ObjectMeta spec:DaemonSetSpec status:DaemonSetStatus
DaemonSetCondition lastTransitionTime:t message:s reason:s status:s type:s
DaemonSetSpec minReadySeconds:i revisionHistoryLimit:i selector:LabelSelector
  template:PodTemplateSpec updateStrategy:DaemonSetUpdateStrategy
DaemonSetStatus collisionCount:i conditions:*DaemonSetCondition@type currentNumberScheduled:i
  desiredNumberScheduled:i numberAvailable:i numberMisscheduled:i numberReady:i
  numberUnavailable:i observedGeneration:l updatedNumberScheduled:i
DaemonSetUpdateStrategy rollingUpdate:RollingUpdateDaemonSet type:s
DeleteOptions apiVersion:s dryRun:*s gracePeriodSeconds:l
  ignoreStoreReadErrorWithClusterBreakingPotential:b kind:s orphanDependents:b
  preconditions:Preconditions propagationPolicy:s
DownwardAPIProjection items:*DownwardAPIVolumeFile
DownwardAPIVolumeFile fieldRef:ObjectFieldSelector mode:i path:s
  resourceFieldRef:ResourceFieldSelector
DownwardAPIVolumeSource defaultMode:i items:*DownwardAPIVolumeFile
EmptyDirVolumeSource medium:s sizeLimit:q
EnvFromSource configMapRef:ConfigMapEnvSource prefix:s secretRef:SecretEnvSource
EnvVar name:s value:s valueFrom:EnvVarSource
EnvVarSource configMapKeyRef:ConfigMapKeySelector fieldRef:ObjectFieldSelector
  fileKeyRef:FileKeySelector resourceFieldRef:ResourceFieldSelector secretKeyRef:SecretKeySelector
EphemeralContainer args:*s command:*s env:*EnvVar@name envFrom:*EnvFromSource image:s
  imagePullPolicy:s lifecycle:Lifecycle livenessProbe:Probe name:s
  ports:*ContainerPort@containerPort~containerPort,protocol=TCP readinessProbe:Probe
  resizePolicy:*ContainerResizePolicy resources:ResourceRequirements restartPolicy:s
  restartPolicyRules:*ContainerRestartRule securityContext:SecurityContext startupProbe:Probe
  stdin:b stdinOnce:b targetContainerName:s terminationMessagePath:s terminationMessagePolicy:s
  tty:b volumeDevices:*VolumeDevice@devicePath volumeMounts:*VolumeMount@mountPath workingDir:s
EphemeralVolumeSource volumeClaimTemplate:PersistentVolumeClaimTemplate
Event action:s apiVersion:s count:i eventTime:T firstTimestamp:t involvedObject:ObjectReference
  kind:s lastTimestamp:t message:s metadata:ObjectMeta reason:s related:ObjectReference
  reportingComponent:s reportingInstance:s series:EventSeries source:EventSource type:s
EventSeries count:i lastObservedTime:T
EventSource component:s host:s
Eviction apiVersion:s deleteOptions:DeleteOptions kind:s metadata:ObjectMeta
ExecAction command:*s
FCVolumeSource fsType:s lun:i readOnly:b targetWWNs:*s wwids:*s
FileKeySelector ! key:s optional:b path:s volumeName:s
FlexPersistentVolumeSource driver:s fsType:s options:%s readOnly:b secretRef:SecretReference
FlexVolumeSource driver:s fsType:s options:%s readOnly:b secretRef:LocalObjectReference
FlockerVolumeSource datasetName:s datasetUUID:s
GCEPersistentDiskVolumeSource fsType:s partition:i pdName:s readOnly:b
GRPCAction port:i service:s
GitRepoVolumeSource directory:s repository:s revision:s
GlusterfsPersistentVolumeSource endpoints:s endpointsNamespace:s path:s readOnly:b
GlusterfsVolumeSource endpoints:s path:s readOnly:b
HTTPGetAction host:s httpHeaders:*HTTPHeader path:s port:x scheme:s
HTTPHeader name:s value:s
HostAlias hostnames:*s ip:s
HostIP ip:s
HostPathVolumeSource path:s type:s
ISCSIPersistentVolumeSource chapAuthDiscovery:b chapAuthSession:b fsType:s initiatorName:s iqn:s
  iscsiInterface:s lun:i portals:*s readOnly:b secretRef:SecretReference targetPortal:s
ISCSIVolumeSource chapAuthDiscovery:b chapAuthSession:b fsType:s initiatorName:s iqn:s
  iscsiInterface:s lun:i portals:*s readOnly:b secretRef:LocalObjectReference targetPortal:s
ImageVolumeSource pullPolicy:s reference:s
Job apiVersion:s kind:s metadata:ObjectMeta spec:JobSpec status:JobStatus
JobCondition lastProbeTime:t lastTransitionTime:t message:s reason:s status:s type:s
JobSpec activeDeadlineSeconds:l backoffLimit:i backoffLimitPerIndex:i completionMode:s
  completions:i managedBy:s manualSelector:b maxFailedIndexes:i parallelism:i
  podFailurePolicy:PodFailurePolicy podReplacementPolicy:s selector:LabelSelector
  successPolicy:SuccessPolicy suspend:b template:PodTemplateSpec ttlSecondsAfterFinished:i
JobStatus active:i completedIndexes:s completionTime:t conditions:*JobCondition@type~ failed:i
  failedIndexes:s ready:i startTime:t succeeded:i terminating:i
  uncountedTerminatedPods:UncountedTerminatedPods
KeyToPath key:s mode:i path:s
LabelSelector ! matchExpressions:*LabelSelectorRequirement matchLabels:%s
LabelSelectorRequirement key:s operator:s values:*s
Lease apiVersion:s kind:s metadata:ObjectMeta spec:LeaseSpec
LeaseSpec acquireTime:T holderIdentity:s leaseDurationSeconds:i leaseTransitions:i
  preferredHolder:s renewTime:T strategy:s
Lifecycle postStart:LifecycleHandler preStop:LifecycleHandler stopSignal:s
LifecycleHandler exec:ExecAction httpGet:HTTPGetAction sleep:SleepAction tcpSocket:TCPSocketAction
LinuxContainerUser gid:l supplementalGroups:*l uid:l
LoadBalancerIngress hostname:s ip:s ipMode:s ports:*PortStatus
LoadBalancerStatus ingress:*LoadBalancerIngress
LocalObjectReference ! name:s
LocalVolumeSource fsType:s path:s
ManagedFieldsEntry apiVersion:s fieldsType:s fieldsV1:? manager:s operation:s subresource:s time:t
MatchCondition expression:s name:s
ModifyVolumeStatus status:s targetVolumeAttributesClassName:s
MutatingWebhook admissionReviewVersions:*s clientConfig:WebhookClientConfig failurePolicy:s
  matchConditions:*MatchCondition@name matchPolicy:s name:s namespaceSelector:LabelSelector
  objectSelector:LabelSelector reinvocationPolicy:s rules:*RuleWithOperations sideEffects:s
  timeoutSeconds:i
MutatingWebhookConfiguration apiVersion:s kind:s metadata:ObjectMeta
  webhooks:*MutatingWebhook@name
NFSVolumeSource path:s readOnly:b server:s
Namespace apiVersion:s kind:s metadata:ObjectMeta spec:NamespaceSpec status:NamespaceStatus
NamespaceCondition lastTransitionTime:t message:s reason:s status:s type:s
NamespaceSpec finalizers:*s
NamespaceStatus conditions:*NamespaceCondition@type phase:s
Node apiVersion:s kind:s metadata:ObjectMeta spec:NodeSpec status:NodeStatus
NodeAddress address:s type:s
NodeAffinity preferredDuringSchedulingIgnoredDuringExecution:*PreferredSchedulingTerm
  requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
NodeCondition lastHeartbeatTime:t lastTransitionTime:t message:s reason:s status:s type:s
NodeConfigSource configMap:ConfigMapNodeConfigSource
NodeConfigStatus active:NodeConfigSource assigned:NodeConfigSource error:s
  lastKnownGood:NodeConfigSource
NodeDaemonEndpoints kubeletEndpoint:DaemonEndpoint
NodeFeatures supplementalGroupsPolicy:b
NodeRuntimeHandler features:NodeRuntimeHandlerFeatures name:s
NodeRuntimeHandlerFeatures recursiveReadOnlyMounts:b userNamespaces:b
NodeSelector ! nodeSelectorTerms:*NodeSelectorTerm
NodeSelectorRequirement key:s operator:s values:*s
NodeSelectorTerm ! matchExpressions:*NodeSelectorRequirement matchFields:*NodeSelectorRequirement
NodeSpec configSource:NodeConfigSource externalID:s podCIDR:s podCIDRs:*s@ providerID:s
  taints:*Taint unschedulable:b
NodeStatus addresses:*NodeAddress@type allocatable:%q capacity:%q conditions:*NodeCondition@type
  config:NodeConfigStatus daemonEndpoints:NodeDaemonEndpoints declaredFeatures:*s
  features:NodeFeatures images:*ContainerImage nodeInfo:NodeSystemInfo phase:s
  runtimeHandlers:*NodeRuntimeHandler volumesAttached:*AttachedVolume volumesInUse:*s
NodeSwapStatus capacity:l
NodeSystemInfo architecture:s bootID:s containerRuntimeVersion:s kernelVersion:s
  kubeProxyVersion:s kubeletVersion:s machineID:s operatingSystem:s osImage:s swap:NodeSwapStatus
  systemUUID:s
ObjectFieldSelector ! apiVersion:s fieldPath:s
ObjectMeta annotations:%s creationTimestamp:t deletionGracePeriodSeconds:l deletionTimestamp:t
  finalizers:*s@ generateName:s generation:l labels:%s managedFields:*ManagedFieldsEntry name:s
  namespace:s ownerReferences:*OwnerReference@uid resourceVersion:s selfLink:s uid:s
ObjectReference ! apiVersion:s fieldPath:s kind:s name:s namespace:s resourceVersion:s uid:s
OwnerReference ! apiVersion:s blockOwnerDeletion:b controller:b kind:s name:s uid:s
PersistentVolume apiVersion:s kind:s metadata:ObjectMeta spec:PersistentVolumeSpec
  status:PersistentVolumeStatus
PersistentVolumeClaim apiVersion:s kind:s metadata:ObjectMeta spec:PersistentVolumeClaimSpec
  status:PersistentVolumeClaimStatus
PersistentVolumeClaimCondition lastProbeTime:t lastTransitionTime:t message:s reason:s status:s
  type:s
PersistentVolumeClaimSpec accessModes:*s dataSource:TypedLocalObjectReference
  dataSourceRef:TypedObjectReference resources:VolumeResourceRequirements selector:LabelSelector
  storageClassName:s volumeAttributesClassName:s volumeMode:s volumeName:s
PersistentVolumeClaimStatus accessModes:*s allocatedResourceStatuses:%s allocatedResources:%q
  capacity:%q conditions:*PersistentVolumeClaimCondition@type currentVolumeAttributesClassName:s
  modifyVolumeStatus:ModifyVolumeStatus phase:s
PersistentVolumeClaimTemplate metadata:ObjectMeta spec:PersistentVolumeClaimSpec
PersistentVolumeClaimVolumeSource claimName:s readOnly:b
PersistentVolumeSpec accessModes:*s awsElasticBlockStore:AWSElasticBlockStoreVolumeSource
  azureDisk:AzureDiskVolumeSource azureFile:AzureFilePersistentVolumeSource capacity:%q
  cephfs:CephFSPersistentVolumeSource cinder:CinderPersistentVolumeSource claimRef:ObjectReference
  csi:CSIPersistentVolumeSource fc:FCVolumeSource flexVolume:FlexPersistentVolumeSource
  flocker:FlockerVolumeSource gcePersistentDisk:GCEPersistentDiskVolumeSource
  glusterfs:GlusterfsPersistentVolumeSource hostPath:HostPathVolumeSource
  iscsi:ISCSIPersistentVolumeSource local:LocalVolumeSource mountOptions:*s nfs:NFSVolumeSource
  nodeAffinity:VolumeNodeAffinity persistentVolumeReclaimPolicy:s
  photonPersistentDisk:PhotonPersistentDiskVolumeSource portworxVolume:PortworxVolumeSource
  quobyte:QuobyteVolumeSource rbd:RBDPersistentVolumeSource scaleIO:ScaleIOPersistentVolumeSource
  storageClassName:s storageos:StorageOSPersistentVolumeSource volumeAttributesClassName:s
  volumeMode:s vsphereVolume:VsphereVirtualDiskVolumeSource
PersistentVolumeStatus lastPhaseTransitionTime:t message:s phase:s reason:s
PhotonPersistentDiskVolumeSource fsType:s pdID:s
Pod apiVersion:s kind:s metadata:ObjectMeta spec:PodSpec status:PodStatus
PodAffinity preferredDuringSchedulingIgnoredDuringExecution:*WeightedPodAffinityTerm
  requiredDuringSchedulingIgnoredDuringExecution:*PodAffinityTerm
PodAffinityTerm labelSelector:LabelSelector matchLabelKeys:*s mismatchLabelKeys:*s
  namespaceSelector:LabelSelector namespaces:*s topologyKey:s
PodAntiAffinity preferredDuringSchedulingIgnoredDuringExecution:*WeightedPodAffinityTerm
  requiredDuringSchedulingIgnoredDuringExecution:*PodAffinityTerm
PodCertificateProjection certificateChainPath:s credentialBundlePath:s keyPath:s keyType:s
  maxExpirationSeconds:i signerName:s
PodCondition lastProbeTime:t lastTransitionTime:t message:s observedGeneration:l reason:s status:s
  type:s
PodDNSConfig nameservers:*s options:*PodDNSConfigOption searches:*s
PodDNSConfigOption name:s value:s
PodDisruptionBudget apiVersion:s kind:s metadata:ObjectMeta spec:PodDisruptionBudgetSpec
  status:PodDisruptionBudgetStatus
PodDisruptionBudgetSpec maxUnavailable:x minAvailable:x selector:LabelSelector
  unhealthyPodEvictionPolicy:s
PodDisruptionBudgetStatus conditions:*Condition@type currentHealthy:i desiredHealthy:i
  disruptedPods:%t disruptionsAllowed:i expectedPods:i observedGeneration:l
PodExtendedResourceClaimStatus requestMappings:*ContainerExtendedResourceRequest
  resourceClaimName:s
PodFailurePolicy rules:*PodFailurePolicyRule
PodFailurePolicyOnExitCodesRequirement containerName:s operator:s values:*i~*
PodFailurePolicyOnPodConditionsPattern status:s type:s
PodFailurePolicyRule action:s onExitCodes:PodFailurePolicyOnExitCodesRequirement
  onPodConditions:*PodFailurePolicyOnPodConditionsPattern
PodIP ip:s
PodOS name:s
PodReadinessGate conditionType:s
PodResourceClaim name:s resourceClaimName:s resourceClaimTemplateName:s
PodResourceClaimStatus name:s resourceClaimName:s
PodSchedulingGate name:s
PodSchedulingGroup podGroupName:s
PodSecurityContext appArmorProfile:AppArmorProfile fsGroup:l fsGroupChangePolicy:s runAsGroup:l
  runAsNonRoot:b runAsUser:l seLinuxChangePolicy:s seLinuxOptions:SELinuxOptions
  seccompProfile:SeccompProfile supplementalGroups:*l supplementalGroupsPolicy:s sysctls:*Sysctl
  windowsOptions:WindowsSecurityContextOptions
PodSpec activeDeadlineSeconds:l affinity:Affinity automountServiceAccountToken:b
  containers:*Container@name dnsConfig:PodDNSConfig dnsPolicy:s enableServiceLinks:b
  ephemeralContainers:*EphemeralContainer@name hostAliases:*HostAlias@ip hostIPC:b hostNetwork:b
  hostPID:b hostUsers:b hostname:s hostnameOverride:s imagePullSecrets:*LocalObjectReference@name
  initContainers:*Container@name nodeName:s nodeSelector:!%s os:PodOS overhead:%q
  preemptionPolicy:s priority:i priorityClassName:s readinessGates:*PodReadinessGate
  resourceClaims:*PodResourceClaim@name resources:ResourceRequirements restartPolicy:s
  runtimeClassName:s schedulerName:s schedulingGates:*PodSchedulingGate@name
  schedulingGroup:PodSchedulingGroup securityContext:PodSecurityContext serviceAccount:s
  serviceAccountName:s setHostnameAsFQDN:b shareProcessNamespace:b subdomain:s
  terminationGracePeriodSeconds:l tolerations:*Toleration
  topologySpreadConstraints:*TopologySpreadConstraint@topologyKey~topologyKey,whenUnsatisfiable
  volumes:*Volume@name
PodStatus conditions:*PodCondition@type containerStatuses:*ContainerStatus
  ephemeralContainerStatuses:*ContainerStatus
  extendedResourceClaimStatus:PodExtendedResourceClaimStatus hostIP:s hostIPs:*HostIP@ip~
  initContainerStatuses:*ContainerStatus message:s nominatedNodeName:s observedGeneration:l
  phase:s podIP:s podIPs:*PodIP@ip qosClass:s reason:s resize:s
  resourceClaimStatuses:*PodResourceClaimStatus@name startTime:t
PodTemplateSpec metadata:ObjectMeta spec:PodSpec
PortStatus error:s port:i protocol:s
PortworxVolumeSource fsType:s readOnly:b volumeID:s
Preconditions resourceVersion:s uid:s
PreferredSchedulingTerm preference:NodeSelectorTerm weight:i
PriorityClass apiVersion:s description:s globalDefault:b kind:s metadata:ObjectMeta
  preemptionPolicy:s value:i
Probe exec:ExecAction failureThreshold:i grpc:GRPCAction httpGet:HTTPGetAction
  initialDelaySeconds:i periodSeconds:i successThreshold:i tcpSocket:TCPSocketAction
  terminationGracePeriodSeconds:l timeoutSeconds:i
ProjectedVolumeSource defaultMode:i sources:*VolumeProjection
QuobyteVolumeSource group:s readOnly:b registry:s tenant:s user:s volume:s
RBDPersistentVolumeSource fsType:s image:s keyring:s monitors:*s pool:s readOnly:b
  secretRef:SecretReference user:s
RBDVolumeSource fsType:s image:s keyring:s monitors:*s pool:s readOnly:b
  secretRef:LocalObjectReference user:s
ResourceClaim name:s request:s
ResourceFieldSelector ! containerName:s divisor:q resource:s
ResourceHealth health:s resourceID:s
ResourceRequirements claims:*ResourceClaim~name limits:%q requests:%q
ResourceStatus name:s resources:*ResourceHealth~resourceID
RollingUpdateDaemonSet maxSurge:x maxUnavailable:x
RollingUpdateStatefulSetStrategy maxUnavailable:x partition:i
RuleWithOperations apiGroups:*s apiVersions:*s operations:*s resources:*s scope:s
SELinuxOptions level:s role:s type:s user:s
ScaleIOPersistentVolumeSource fsType:s gateway:s protectionDomain:s readOnly:b
  secretRef:SecretReference sslEnabled:b storageMode:s storagePool:s system:s volumeName:s
ScaleIOVolumeSource fsType:s gateway:s protectionDomain:s readOnly:b
  secretRef:LocalObjectReference sslEnabled:b storageMode:s storagePool:s system:s volumeName:s
SeccompProfile localhostProfile:s type:s
SecretEnvSource name:s optional:b
SecretKeySelector ! key:s name:s optional:b
SecretProjection items:*KeyToPath name:s optional:b
SecretReference ! name:s namespace:s
SecretVolumeSource defaultMode:i items:*KeyToPath optional:b secretName:s
SecurityContext allowPrivilegeEscalation:b appArmorProfile:AppArmorProfile
  capabilities:Capabilities privileged:b procMount:s readOnlyRootFilesystem:b runAsGroup:l
  runAsNonRoot:b runAsUser:l seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile
  windowsOptions:WindowsSecurityContextOptions
SelectableField jsonPath:s
Service apiVersion:s kind:s metadata:ObjectMeta spec:ServiceSpec status:ServiceStatus
ServiceAccountTokenProjection audience:s expirationSeconds:l path:s
ServicePort appProtocol:s name:s nodePort:i port:i protocol:s targetPort:x
ServiceReference name:s namespace:s path:s port:i
ServiceSpec allocateLoadBalancerNodePorts:b clusterIP:s clusterIPs:*s externalIPs:*s
  externalName:s externalTrafficPolicy:s healthCheckNodePort:i internalTrafficPolicy:s
  ipFamilies:*s ipFamilyPolicy:s loadBalancerClass:s loadBalancerIP:s loadBalancerSourceRanges:*s
  ports:*ServicePort@port~port,protocol=TCP publishNotReadyAddresses:b selector:!%s
  sessionAffinity:s sessionAffinityConfig:SessionAffinityConfig trafficDistribution:s type:s
ServiceStatus conditions:*Condition@type loadBalancer:LoadBalancerStatus
SessionAffinityConfig clientIP:ClientIPConfig
SleepAction seconds:l
StatefulSet apiVersion:s kind:s metadata:ObjectMeta spec:StatefulSetSpec status:StatefulSetStatus
StatefulSetCondition lastTransitionTime:t message:s reason:s status:s type:s
StatefulSetOrdinals start:i
StatefulSetPersistentVolumeClaimRetentionPolicy whenDeleted:s whenScaled:s
StatefulSetSpec minReadySeconds:i ordinals:StatefulSetOrdinals
  persistentVolumeClaimRetentionPolicy:StatefulSetPersistentVolumeClaimRetentionPolicy
  podManagementPolicy:s replicas:i revisionHistoryLimit:i selector:LabelSelector serviceName:s
  template:PodTemplateSpec updateStrategy:StatefulSetUpdateStrategy
  volumeClaimTemplates:*PersistentVolumeClaim
StatefulSetStatus availableReplicas:i collisionCount:i conditions:*StatefulSetCondition@type
  currentReplicas:i currentRevision:s observedGeneration:l readyReplicas:i replicas:i
  updateRevision:s updatedReplicas:i
StatefulSetUpdateStrategy rollingUpdate:RollingUpdateStatefulSetStrategy type:s
StorageClass allowVolumeExpansion:b allowedTopologies:*TopologySelectorTerm apiVersion:s kind:s
  metadata:ObjectMeta mountOptions:*s parameters:%s provisioner:s reclaimPolicy:s
  volumeBindingMode:s
StorageOSPersistentVolumeSource fsType:s readOnly:b secretRef:ObjectReference volumeName:s
  volumeNamespace:s
StorageOSVolumeSource fsType:s readOnly:b secretRef:LocalObjectReference volumeName:s
  volumeNamespace:s
SuccessPolicy rules:*SuccessPolicyRule
SuccessPolicyRule succeededCount:i succeededIndexes:s
Sysctl name:s value:s
TCPSocketAction host:s port:x
Taint effect:s key:s timeAdded:t value:s
TokenRequest audience:s expirationSeconds:l
Toleration effect:s key:s operator:s tolerationSeconds:l value:s
TopologySelectorLabelRequirement key:s values:*s
TopologySelectorTerm ! matchLabelExpressions:*TopologySelectorLabelRequirement
TopologySpreadConstraint labelSelector:LabelSelector matchLabelKeys:*s maxSkew:i minDomains:i
  nodeAffinityPolicy:s nodeTaintsPolicy:s topologyKey:s whenUnsatisfiable:s
TypedLocalObjectReference ! apiGroup:s kind:s name:s
TypedObjectReference apiGroup:s kind:s name:s namespace:s
UncountedTerminatedPods failed:*s~* succeeded:*s~*
ValidatingWebhook admissionReviewVersions:*s clientConfig:WebhookClientConfig failurePolicy:s
  matchConditions:*MatchCondition@name matchPolicy:s name:s namespaceSelector:LabelSelector
  objectSelector:LabelSelector rules:*RuleWithOperations sideEffects:s timeoutSeconds:i
ValidatingWebhookConfiguration apiVersion:s kind:s metadata:ObjectMeta
  webhooks:*ValidatingWebhook@name
Volume awsElasticBlockStore:AWSElasticBlockStoreVolumeSource azureDisk:AzureDiskVolumeSource
  azureFile:AzureFileVolumeSource cephfs:CephFSVolumeSource cinder:CinderVolumeSource
  configMap:ConfigMapVolumeSource csi:CSIVolumeSource downwardAPI:DownwardAPIVolumeSource
  emptyDir:EmptyDirVolumeSource ephemeral:EphemeralVolumeSource fc:FCVolumeSource
  flexVolume:FlexVolumeSource flocker:FlockerVolumeSource
  gcePersistentDisk:GCEPersistentDiskVolumeSource gitRepo:GitRepoVolumeSource
  glusterfs:GlusterfsVolumeSource hostPath:HostPathVolumeSource image:ImageVolumeSource
  iscsi:ISCSIVolumeSource name:s nfs:NFSVolumeSource
  persistentVolumeClaim:PersistentVolumeClaimVolumeSource
  photonPersistentDisk:PhotonPersistentDiskVolumeSource portworxVolume:PortworxVolumeSource
  projected:ProjectedVolumeSource quobyte:QuobyteVolumeSource rbd:RBDVolumeSource
  scaleIO:ScaleIOVolumeSource secret:SecretVolumeSource storageos:StorageOSVolumeSource
  vsphereVolume:VsphereVirtualDiskVolumeSource
VolumeAttachment apiVersion:s kind:s metadata:ObjectMeta spec:VolumeAttachmentSpec
  status:VolumeAttachmentStatus
VolumeAttachmentSource inlineVolumeSpec:PersistentVolumeSpec persistentVolumeName:s
VolumeAttachmentSpec attacher:s nodeName:s source:VolumeAttachmentSource
VolumeAttachmentStatus attachError:VolumeError attached:b attachmentMetadata:%s
  detachError:VolumeError
VolumeDevice devicePath:s name:s
VolumeError errorCode:i message:s time:t
VolumeMount mountPath:s mountPropagation:s name:s readOnly:b recursiveReadOnly:s subPath:s
  subPathExpr:s
VolumeMountStatus mountPath:s name:s readOnly:b recursiveReadOnly:s
VolumeNodeAffinity required:NodeSelector
VolumeNodeResources count:i
VolumeProjection clusterTrustBundle:ClusterTrustBundleProjection configMap:ConfigMapProjection
  downwardAPI:DownwardAPIProjection podCertificate:PodCertificateProjection
  secret:SecretProjection serviceAccountToken:ServiceAccountTokenProjection
VolumeResourceRequirements limits:%q requests:%q
VsphereVirtualDiskVolumeSource fsType:s storagePolicyID:s storagePolicyName:s volumePath:s
WebhookClientConfig caBundle:y service:ServiceReference url:s
WebhookConversion clientConfig:WebhookClientConfig conversionReviewVersions:*s
WeightedPodAffinityTerm podAffinityTerm:PodAffinityTerm weight:i
WindowsSecurityContextOptions gmsaCredentialSpec:s gmsaCredentialSpecName:s hostProcess:b
  runAsUserName:s
)";

}  // namespace

std::shared_ptr<const Schema> CoreSchema(std::string_view kind) {
  static const CompactSchemas* const kSchemas = new CompactSchemas(kTypes);
  return kSchemas->Find(kind);
}

}  // namespace muster::kube::embedded
