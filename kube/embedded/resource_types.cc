#include "kube/embedded/resource_types.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "kube/embedded/schema.h"

namespace muster::kube::embedded {
namespace {

struct BuiltIn {
  const char* group;
  const char* version;
  const char* plural;
  const char* singular;
  const char* kind;
  std::vector<std::string> short_names;
  bool namespaced;
  bool status_subresource;
  bool counts_generation;
  std::vector<std::string> selectable_fields;
};

// Selectable fields are those of the real server (pkg/apis/*/v1/conversion.go v1.34).
const std::vector<BuiltIn>& BuiltIns() {
  static const auto* const kKinds = new std::vector<BuiltIn>{
      {"",
       "v1",
       "namespaces",
       "namespace",
       "Namespace",
       {"ns"},
       false,
       true,
       false,
       {"status.phase"}},
      {"", "v1", "nodes", "node", "Node", {"no"}, false, true, false, {"spec.unschedulable"}},
      {"",
       "v1",
       "pods",
       "pod",
       "Pod",
       {"po"},
       true,
       true,
       true,
       {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"}},
      {"",
       "v1",
       "events",
       "event",
       "Event",
       {"ev"},
       true,
       false,
       false,
       {"involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
        "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion",
        "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type"}},
      {"",
       "v1",
       "services",
       "service",
       "Service",
       {"svc"},
       true,
       true,
       false,
       {"spec.clusterIP", "spec.type"}},
      {"", "v1", "configmaps", "configmap", "ConfigMap", {"cm"}, true, false, false, {}},
      {"",
       "v1",
       "persistentvolumeclaims",
       "persistentvolumeclaim",
       "PersistentVolumeClaim",
       {"pvc"},
       true,
       true,
       false,
       {}},
      {"",
       "v1",
       "persistentvolumes",
       "persistentvolume",
       "PersistentVolume",
       {"pv"},
       false,
       true,
       false,
       {}},
      {"coordination.k8s.io", "v1", "leases", "lease", "Lease", {}, true, false, false, {}},
      {"apps", "v1", "daemonsets", "daemonset", "DaemonSet", {"ds"}, true, true, true, {}},
      {"apps", "v1", "statefulsets", "statefulset", "StatefulSet", {"sts"}, true, true, true, {}},
      {"batch", "v1", "jobs", "job", "Job", {}, true, true, true, {"status.successful"}},
      {"storage.k8s.io",
       "v1",
       "storageclasses",
       "storageclass",
       "StorageClass",
       {"sc"},
       false,
       false,
       false,
       {}},
      {"storage.k8s.io", "v1", "csinodes", "csinode", "CSINode", {}, false, false, false, {}},
      {"storage.k8s.io", "v1", "csidrivers", "csidriver", "CSIDriver", {}, false, false, false, {}},
      {"storage.k8s.io",
       "v1",
       "csistoragecapacities",
       "csistoragecapacity",
       "CSIStorageCapacity",
       {},
       true,
       false,
       false,
       {}},
      {"storage.k8s.io",
       "v1",
       "volumeattachments",
       "volumeattachment",
       "VolumeAttachment",
       {},
       false,
       true,
       false,
       {}},
      // Kept, not enforced: an eviction never waits for one.
      {"policy",
       "v1",
       "poddisruptionbudgets",
       "poddisruptionbudget",
       "PodDisruptionBudget",
       {"pdb"},
       true,
       true,
       true,
       {}},
      {"scheduling.k8s.io",
       "v1",
       "priorityclasses",
       "priorityclass",
       "PriorityClass",
       {"pc"},
       false,
       false,
       true,
       {}},
      {"admissionregistration.k8s.io",
       "v1",
       "mutatingwebhookconfigurations",
       "mutatingwebhookconfiguration",
       "MutatingWebhookConfiguration",
       {},
       false,
       false,
       true,
       {}},
      // Kept, not called.
      {"admissionregistration.k8s.io",
       "v1",
       "validatingwebhookconfigurations",
       "validatingwebhookconfiguration",
       "ValidatingWebhookConfiguration",
       {},
       false,
       false,
       true,
       {}},
      {"apiextensions.k8s.io",
       "v1",
       "customresourcedefinitions",
       "customresourcedefinition",
       "CustomResourceDefinition",
       {"crd", "crds"},
       false,
       true,
       true,
       {}},
  };
  return *kKinds;
}

ResourceType FromBuiltIn(const BuiltIn& kind) {
  ResourceType type;
  type.group = kind.group;
  type.version = kind.version;
  type.plural = kind.plural;
  type.singular = kind.singular;
  type.kind = kind.kind;
  type.short_names = kind.short_names;
  if (type.plural == "pods" || type.plural == "services" || type.plural == "daemonsets" ||
      type.plural == "statefulsets" || type.plural == "jobs") {
    type.categories = {"all"};
  }
  type.namespaced = kind.namespaced;
  type.status_subresource = kind.status_subresource;
  // A kubelet registers its node with the status filled in.
  type.keeps_status_on_create = type.plural == "nodes";
  type.counts_generation = kind.counts_generation;
  type.selectable_fields = kind.selectable_fields;
  type.schema = CoreSchema(type.kind);
  return type;
}

}  // namespace

std::string ResourceType::ApiVersion() const {
  return group.empty() ? version : group + "/" + version;
}

std::string ResourceType::GroupResource() const {
  return group.empty() ? plural : plural + "." + group;
}

ResourceTypes::ResourceTypes() {
  for (const BuiltIn& kind : BuiltIns()) Add(FromBuiltIn(kind));
}

const ResourceType* ResourceTypes::Find(std::string_view group, std::string_view version,
                                        std::string_view plural) const {
  const ResourceType* type = FindPlural(group, plural);
  return type != nullptr && type->version == version ? type : nullptr;
}

const ResourceType* ResourceTypes::FindPlural(std::string_view group,
                                              std::string_view plural) const {
  auto it = served_.find({std::string(group), std::string(plural)});
  return it == served_.end() ? nullptr : it->second.get();
}

const ResourceType& ResourceTypes::Add(ResourceType type) {
  std::pair<std::string, std::string> key(type.group, type.plural);
  auto known = served_.find(key);
  type.index = known == served_.end() ? next_index_++ : known->second->index;
  auto shared = std::make_shared<const ResourceType>(std::move(type));
  all_.push_back(shared);
  served_[key] = shared;
  return *shared;
}

void ResourceTypes::Remove(std::string_view group, std::string_view plural) {
  served_.erase({std::string(group), std::string(plural)});
}

std::vector<const ResourceType*> ResourceTypes::Served() const {
  std::vector<const ResourceType*> types;
  for (const auto& type : all_) {
    auto it = served_.find({type->group, type->plural});
    if (it != served_.end() && it->second == type) types.push_back(type.get());
  }
  return types;
}

}  // namespace muster::kube::embedded
