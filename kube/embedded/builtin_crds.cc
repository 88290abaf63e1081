#include <fmt/format.h>

#include "kube/embedded/custom_types.h"
#include "kube/embedded/quota_crds.h"

namespace muster::kube::embedded {
namespace {

constexpr const char* kPodGroup = R"({
  "metadata": {"name": "podgroups.scheduling.x-k8s.io"},
  "spec": {
    "group": "scheduling.x-k8s.io", "scope": "Namespaced",
    "names": {"kind": "PodGroup", "plural": "podgroups", "shortNames": ["pg", "pgs"]},
    "versions": [{
      "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
      "additionalPrinterColumns": [
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "MinMember", "type": "integer", "jsonPath": ".spec.minMember"},
        {"name": "Scheduled", "type": "integer", "jsonPath": ".status.scheduled"},
        {"name": "Running", "type": "integer", "jsonPath": ".status.running"},
        {"name": "Succeeded", "type": "integer", "jsonPath": ".status.succeeded"},
        {"name": "Failed", "type": "integer", "jsonPath": ".status.failed"},
        {"name": "Reason", "type": "string",
         "jsonPath": ".status.conditions[?(@.type==\"Admitted\")].reason"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Message", "type": "string", "priority": 1,
         "jsonPath": ".status.conditions[?(@.type==\"Admitted\")].message"}],
      "schema": {"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
          "minMember": {"type": "integer", "format": "int32", "minimum": 1,
                        "maximum": 2147483647},
          "minResources": {"type": "object",
                           "additionalProperties": {"x-kubernetes-int-or-string": true}},
          "scheduleTimeoutSeconds": {"type": "integer", "format": "int32"}}},
        "status": {"type": "object", "properties": {
          "phase": {"type": "string"}, "occupiedBy": {"type": "string"},
          "scheduled": {"type": "integer", "format": "int32"},
          "running": {"type": "integer", "format": "int32"},
          "succeeded": {"type": "integer", "format": "int32"},
          "failed": {"type": "integer", "format": "int32"},
          "scheduleStartTime": {"type": "string", "format": "date-time"},
          "conditions": {"type": "array", "items": {
            "type": "object", "required": ["type", "status", "lastTransitionTime", "reason",
                                           "message"],
            "properties": {
              "type": {"type": "string"}, "status": {"type": "string",
                                                     "enum": ["True", "False", "Unknown"]},
              "observedGeneration": {"type": "integer", "format": "int64"},
              "lastTransitionTime": {"type": "string", "format": "date-time"},
              "reason": {"type": "string", "minLength": 1},
              "message": {"type": "string"}}}}}}}}}
    }]
  }
})";

// pkg/apis/crds of sigs.k8s.io/karpenter v1.8.0.
constexpr const char* kNodePool = R"({
  "metadata": {"name": "nodepools.karpenter.sh"},
  "spec": {
    "group": "karpenter.sh", "scope": "Cluster",
    "names": {"kind": "NodePool", "plural": "nodepools", "categories": ["karpenter"]},
    "versions": [{
      "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
      "additionalPrinterColumns": [
        {"name": "NodeClass", "type": "string",
         "jsonPath": ".spec.template.spec.nodeClassRef.name"},
        {"name": "Nodes", "type": "string", "jsonPath": ".status.nodes"},
        {"name": "Ready", "type": "string",
         "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Weight", "type": "integer", "priority": 1, "jsonPath": ".spec.weight"}],
      "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "required": ["template"], "properties": {
          "disruption": {"type": "object", "default": {"consolidateAfter": "0s"},
                         "required": ["consolidateAfter"], "properties": {
            "consolidateAfter": {"type": "string"},
            "consolidationPolicy": {"type": "string", "default": "WhenEmptyOrUnderutilized",
                                    "enum": ["WhenEmpty", "WhenEmptyOrUnderutilized"]},
            "budgets": {"type": "array", "default": [{"nodes": "10%"}], "maxItems": 50,
                        "items": {"type": "object", "required": ["nodes"], "properties": {
              "nodes": {"type": "string", "default": "10%"},
              "duration": {"type": "string"}, "schedule": {"type": "string"},
              "reasons": {"type": "array", "maxItems": 50, "items": {
                "type": "string", "enum": ["Underutilized", "Empty", "Drifted"]}}}}}}},
          "limits": {"type": "object",
                     "additionalProperties": {"x-kubernetes-int-or-string": true}},
          "replicas": {"type": "integer", "format": "int64", "minimum": 0},
          "weight": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 100},
          "template": {"type": "object", "required": ["spec"], "properties": {
            "metadata": {"type": "object", "properties": {
              "labels": {"type": "object", "additionalProperties": {"type": "string"}},
              "annotations": {"type": "object", "additionalProperties": {"type": "string"}}}},
            "spec": {"type": "object", "required": ["requirements"], "properties": {
              "expireAfter": {"type": "string", "default": "720h"},
              "terminationGracePeriod": {"type": "string"},
              "nodeClassRef": {"type": "object", "required": ["group", "kind", "name"],
                               "properties": {
                "group": {"type": "string"}, "kind": {"type": "string"},
                "name": {"type": "string"}}},
              "requirements": {"type": "array", "maxItems": 100, "items": {
                "type": "object", "required": ["key", "operator"], "properties": {
                  "key": {"type": "string", "maxLength": 316},
                  "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist",
                                                          "Gt", "Lt", "Gte", "Lte"]},
                  "minValues": {"type": "integer", "format": "int64", "minimum": 1},
                  "values": {"type": "array", "items": {"type": "string"}}}}},
              "taints": {"type": "array", "items": {
                "type": "object", "required": ["effect", "key"], "properties": {
                  "key": {"type": "string"}, "value": {"type": "string"},
                  "timeAdded": {"type": "string", "format": "date-time"},
                  "effect": {"type": "string",
                             "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}}}},
              "startupTaints": {"type": "array", "items": {
                "type": "object", "required": ["effect", "key"], "properties": {
                  "key": {"type": "string"}, "value": {"type": "string"},
                  "timeAdded": {"type": "string", "format": "date-time"},
                  "effect": {"type": "string",
                             "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}}}}}}}}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}
    }]
  }
})";

constexpr const char* kNodeClaim = R"({
  "metadata": {"name": "nodeclaims.karpenter.sh"},
  "spec": {
    "group": "karpenter.sh", "scope": "Cluster",
    "names": {"kind": "NodeClaim", "plural": "nodeclaims", "categories": ["karpenter"]},
    "versions": [{
      "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
      "additionalPrinterColumns": [
        {"name": "Type", "type": "string",
         "jsonPath": ".metadata.labels.node\\.kubernetes\\.io/instance-type"},
        {"name": "Capacity", "type": "string",
         "jsonPath": ".metadata.labels.karpenter\\.sh/capacity-type"},
        {"name": "Zone", "type": "string",
         "jsonPath": ".metadata.labels.topology\\.kubernetes\\.io/zone"},
        {"name": "Node", "type": "string", "jsonPath": ".status.nodeName"},
        {"name": "Ready", "type": "string",
         "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "ID", "type": "string", "priority": 1, "jsonPath": ".status.providerID"},
        {"name": "NodePool", "type": "string", "priority": 1,
         "jsonPath": ".metadata.labels.karpenter\\.sh/nodepool"}],
      "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
          "expireAfter": {"type": "string", "default": "720h"},
          "requirements": {"type": "array", "items": {
            "type": "object", "required": ["key", "operator"],
            "x-kubernetes-preserve-unknown-fields": true}},
          "resources": {"type": "object", "properties": {
            "requests": {"type": "object",
                         "additionalProperties": {"x-kubernetes-int-or-string": true}}}}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}
    }]
  }
})";

// A kind whose own controllers know what it may hold: any spec and any status are kept.
std::string OpenCrd(const char* group, const char* version, const char* scope, const char* kind,
                    const char* plural, const char* columns) {
  return fmt::format(
      R"({{
  "metadata": {{"name": "{3}.{0}"}},
  "spec": {{
    "group": "{0}", "scope": "{5}",
    "names": {{"kind": "{2}", "plural": "{3}"}},
    "versions": [{{
      "name": "{1}", "served": true, "storage": true, "subresources": {{"status": {{}}}},
      "additionalPrinterColumns": [{4},
        {{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}}],
      "schema": {{"openAPIV3Schema": {{"type": "object", "properties": {{
        "spec": {{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        "status": {{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}}}}
    }}]
  }}
}})",
      group, version, kind, plural, columns, scope);
}

std::vector<std::string> MakeCrds() {
  std::vector<std::string> crds = {kPodGroup, kNodePool, kNodeClaim};
  crds.insert(crds.end(), QuotaCrds().begin(), QuotaCrds().end());
  // github.com/aws/karpenter-provider-aws v1.15.
  crds.push_back(OpenCrd("karpenter.k8s.aws", "v1", "Cluster", "EC2NodeClass", "ec2nodeclasses",
                         R"({"name": "Role", "type": "string", "jsonPath": ".spec.role"})"));
  constexpr const char* kNamespaced = "Namespaced";
  constexpr const char* kSuspended =
      R"({"name": "Suspended", "type": "string", "jsonPath": ".spec.suspend"})";
  // sigs.k8s.io/jobset v0.10, training-operator v1.8, trainer v2.1.
  crds.push_back(
      OpenCrd("jobset.x-k8s.io", "v1alpha2", kNamespaced, "JobSet", "jobsets", kSuspended));
  crds.push_back(
      OpenCrd("kubeflow.org", "v1", kNamespaced, "PyTorchJob", "pytorchjobs",
              R"({"name": "Suspended", "type": "string", "jsonPath": ".spec.runPolicy.suspend"})"));
  crds.push_back(OpenCrd("trainer.kubeflow.org", "v1alpha1", kNamespaced, "TrainJob", "trainjobs",
                         kSuspended));
  // mpi-operator v0.6, kuberay v1.4.
  crds.push_back(
      OpenCrd("kubeflow.org", "v2beta1", kNamespaced, "MPIJob", "mpijobs",
              R"({"name": "Suspended", "type": "string", "jsonPath": ".spec.runPolicy.suspend"})"));
  crds.push_back(OpenCrd("ray.io", "v1", kNamespaced, "RayCluster", "rayclusters", kSuspended));
  crds.push_back(OpenCrd("ray.io", "v1", kNamespaced, "RayJob", "rayjobs", kSuspended));
  return crds;
}

}  // namespace

const std::vector<std::string>& BuiltInCrds() {
  static const auto* const kCrds = new std::vector<std::string>(MakeCrds());
  return *kCrds;
}

}  // namespace muster::kube::embedded
