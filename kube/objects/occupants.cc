#include "kube/objects/occupants.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "kube/objects/well_known.h"

namespace muster::kube {
namespace {

constexpr size_t kSmallest = 1024;

size_t HashOf(const StringMap& labels) {
  size_t hash = 0;
  for (const auto& [key, value] : labels) hash = absl::HashOf(hash, key, value);
  return hash;
}

// Of what differs most between specs; equality decides.
size_t HashOf(const PodSpec& spec) {
  return absl::HashOf(spec.requests.entries(), spec.persistent_volume_claims,
                      spec.host_ports.size(), spec.affinity.required_pod_affinity.size(),
                      spec.affinity.required_pod_anti_affinity.size());
}

// The pool's own is the last.
template <typename Pool, typename IsShared>
void Sweep(Pool& pool, size_t& sweep_at, IsShared is_shared) {
  for (auto it = pool.begin(); it != pool.end();) {
    if (is_shared(it->second)) {
      ++it;
    } else {
      pool.erase(it++);
    }
  }
  sweep_at = std::max(kSmallest, 2 * pool.size());
}

PodSpec ReducedSpec(const PodSpec& spec) {
  PodSpec reduced;
  reduced.affinity.required_pod_affinity = spec.affinity.required_pod_affinity;
  reduced.affinity.required_pod_anti_affinity = spec.affinity.required_pod_anti_affinity;
  reduced.affinity.preferred_pod_affinity = spec.affinity.preferred_pod_affinity;
  reduced.affinity.preferred_pod_anti_affinity = spec.affinity.preferred_pod_anti_affinity;
  reduced.host_ports = spec.host_ports;
  reduced.requests = spec.requests;
  reduced.persistent_volume_claims = spec.persistent_volume_claims;
  reduced.uses_resource_claims = spec.uses_resource_claims;
  return reduced;
}

template <typename Container>
void Free(Container& container) {
  Container().swap(container);
}

}  // namespace

bool IsOccupant(const Pod& pod, std::string_view scheduler_name) {
  return pod.scheduler_name != scheduler_name && pod.meta.Label(kPodGroupLabel) == nullptr;
}

void ReduceToOccupant(Pod* pod) {
  pod->meta.annotations.clear();
  Free(pod->meta.finalizers);
  const OwnerReference* owner = pod->meta.Controller();
  if (owner == nullptr || owner->kind != "DaemonSet") Free(pod->meta.owners);
  for (std::string* text :
       {&pod->status_reason, &pod->status_message, &pod->scheduled_status, &pod->scheduled_reason,
        &pod->scheduled_message, &pod->termination_message, &pod->priority_class_name,
        &pod->native_group}) {
    Free(*text);
  }
  if (pod->IsBound()) Free(pod->nominated_node_name);
  Free(pod->scheduling_gates);
  pod->spec = std::make_shared<const PodSpec>(ReducedSpec(*pod->spec));
}

void OccupantPool::Reduce(Pod* pod) {
  ReduceToOccupant(pod);
  if (labels_.size() >= sweep_labels_at_) {
    Sweep(labels_, sweep_labels_at_, [](const StringMap& labels) { return labels.is_shared(); });
  }
  if (specs_.size() >= sweep_specs_at_) {
    Sweep(specs_, sweep_specs_at_, [](const auto& spec) { return spec.use_count() > 1; });
  }
  StringMap& labels = labels_[HashOf(pod->meta.labels)];
  if (labels == pod->meta.labels) {
    pod->meta.labels = labels;
  } else {
    labels = pod->meta.labels;
  }
  std::shared_ptr<const PodSpec>& spec = specs_[HashOf(*pod->spec)];
  if (spec != nullptr && *spec == *pod->spec) {
    pod->spec = spec;
  } else {
    spec = pod->spec;
  }
}

}  // namespace muster::kube
