#include "cluster/volumes.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "cluster/made_volumes.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

constexpr std::array<std::string_view, 4> kTopologyLabels = {
    "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone", "topology.kubernetes.io/region"};

Rejection Reject(std::string detail) { return {RejectionCode::kVolume, std::move(detail)}; }

// "us-west-2a__us-west-2b": a volume that several zones reach. Empty if malformed, which counts as
// no restriction.
std::vector<std::string> SplitZones(std::string_view text) {
  std::vector<std::string> zones;
  while (true) {
    size_t end = text.find("__");
    std::string_view zone = text.substr(0, end);
    if (zone.empty()) return {};
    zones.emplace_back(zone);
    if (end == std::string_view::npos) return zones;
    text.remove_prefix(end + 2);
  }
}

// The topology label `key` of a node; a deprecated key falls back to its successor.
kube::Requirement ZoneRequirement(const NodeInfo& info, std::string_view key,
                                  std::vector<std::string> values) {
  std::string_view name = key;
  if (info.node->meta.Label(key) == nullptr) {
    if (key == kTopologyLabels[0]) name = kTopologyLabels[2];
    if (key == kTopologyLabels[1]) name = kTopologyLabels[3];
  }
  return {std::string(name), kube::SelectorOperator::kIn, std::move(values)};
}

// Volumes from before node affinity carry their zone as a label.
bool ReachesZone(const kube::PersistentVolume& volume, const NodeInfo& info) {
  const bool node_has_topology =
      std::any_of(kTopologyLabels.begin(), kTopologyLabels.end(),
                  [&](std::string_view key) { return info.node->meta.Label(key) != nullptr; });
  if (!node_has_topology) return true;
  return std::all_of(kTopologyLabels.begin(), kTopologyLabels.end(), [&](std::string_view key) {
    const std::string* value = volume.meta.Label(key);
    if (value == nullptr) return true;
    std::vector<std::string> zones = SplitZones(*value);
    return zones.empty() || CouldHaveLabel(info, ZoneRequirement(info, key, std::move(zones)));
  });
}

std::optional<Rejection> CheckBound(const Snapshot& snapshot,
                                    const kube::PersistentVolumeClaim& claim, bool ephemeral,
                                    const NodeInfo& info) {
  const kube::PersistentVolume* volume = snapshot.FindPersistentVolume(claim.volume_name);
  if (volume == nullptr) {
    return Reject(fmt::format("PersistentVolume {} of claim {} doesn't exist", claim.volume_name,
                              claim.meta.FullName()));
  }
  if (!volume->error.empty()) {
    return Reject(fmt::format("PersistentVolume {}: {}", volume->meta.name, volume->error));
  }
  const bool reachable =
      (!volume->required_node_terms || CouldMatchVolumeTerms(*volume->required_node_terms, info)) &&
      (ephemeral || ReachesZone(*volume, info));  // VolumeZone looks at no ephemeral ones
  if (reachable) return std::nullopt;
  return Reject(fmt::format("PersistentVolume {} of claim {} can't be reached from this node",
                            volume->meta.name, claim.meta.FullName()));
}

std::optional<Rejection> CheckUnbound(const Snapshot& snapshot,
                                      const kube::PersistentVolumeClaim& claim,
                                      const NodeInfo& info) {
  const kube::StorageClass* storage_class = snapshot.FindStorageClass(claim.storage_class);
  const bool waits = claim.volume_name.empty() && storage_class != nullptr &&
                     storage_class->wait_for_first_consumer;
  if (!waits) {
    return Reject(fmt::format(
        "PersistentVolumeClaim {} isn't bound, and its storage class \"{}\" doesn't wait for a pod",
        claim.meta.FullName(), claim.storage_class));
  }
  const std::string* selected = SelectedNode(claim);
  if (selected != nullptr && *selected != info.name()) {
    return Reject(fmt::format("PersistentVolumeClaim {} is being provisioned for node {}",
                              claim.meta.FullName(), *selected));
  }
  return std::nullopt;
}

bool SameText(const std::string* a, const std::string* b) {
  return a == nullptr || b == nullptr ? a == b : *a == *b;
}

}  // namespace

std::string FullClaimName(const kube::Pod& pod, const std::string& claim) {
  return fmt::format("{}/{}", pod.meta.name_space, claim);
}

std::vector<const kube::PersistentVolumeClaim*> UnboundClaims(const Snapshot& snapshot,
                                                              const kube::Pod& pod) {
  std::vector<const kube::PersistentVolumeClaim*> unbound;
  for (const std::string& name : pod.spec->persistent_volume_claims) {
    const auto* claim = snapshot.FindPersistentVolumeClaim(FullClaimName(pod, name));
    if (claim != nullptr && IsUnbound(*claim)) unbound.push_back(claim);
  }
  return unbound;
}

const std::string* SelectedNode(const kube::PersistentVolumeClaim& claim) {
  return claim.meta.Annotation(kube::kSelectedNodeAnnotation);
}

bool IsUnbound(const kube::PersistentVolumeClaim& claim) {
  return !claim.bound || claim.volume_name.empty();
}

bool IsMadeFor(const Snapshot& snapshot, const kube::PersistentVolumeClaim& claim,
               const NodeInfo& info) {
  const kube::StorageClass* storage_class = snapshot.FindStorageClass(claim.storage_class);
  if (storage_class == nullptr) return false;
  const auto holds = [&](const kube::Requirement& one) { return CouldHaveLabel(info, one); };
  const bool allowed =
      storage_class->allowed_topologies.empty() ||
      std::ranges::any_of(storage_class->allowed_topologies, [&](const auto& term) {
        return !term.empty() && std::ranges::all_of(term, holds);
      });
  return allowed && snapshot.CanMake(claim.storage_class, claim.wants.bytes, info);
}

bool IsOfMadeVolumes(const Snapshot& snapshot, const kube::PersistentVolumeClaim& claim) {
  const kube::StorageClass* storage_class = snapshot.FindStorageClass(claim.storage_class);
  return storage_class != nullptr && storage_class->provisioner == kube::kNoProvisioner;
}

bool ReadAlike(const kube::PersistentVolumeClaim& a, const kube::PersistentVolumeClaim& b) {
  return a.bound == b.bound && a.volume_name == b.volume_name &&
         a.storage_class == b.storage_class && a.wants == b.wants && a.selector == b.selector &&
         a.error == b.error &&
         a.meta.deletion_time.has_value() == b.meta.deletion_time.has_value() &&
         a.meta.ControllerUid() == b.meta.ControllerUid() &&
         SameText(SelectedNode(a), SelectedNode(b));
}

bool ReadAlike(const kube::PersistentVolume& a, const kube::PersistentVolume& b) {
  return a.error == b.error && a.storage_class == b.storage_class && a.claim_ref == b.claim_ref &&
         a.claim_uid == b.claim_uid && a.available == b.available && a.has == b.has &&
         a.meta.deletion_time.has_value() == b.meta.deletion_time.has_value() &&
         a.driver == b.driver && a.handle == b.handle && a.in_tree == b.in_tree &&
         a.required_node_terms == b.required_node_terms && a.meta.labels == b.meta.labels;
}

bool ReadAlike(const kube::StorageClass& a, const kube::StorageClass& b) {
  return a.wait_for_first_consumer == b.wait_for_first_consumer && a.provisioner == b.provisioner &&
         a.allowed_topologies == b.allowed_topologies;
}

std::optional<Rejection> CheckVolumes(const Snapshot& snapshot, const kube::Pod& pod,
                                      const NodeInfo& info) {
  bool any_waits = false;
  for (const std::string& name : pod.spec->persistent_volume_claims) {
    const std::string full_name = FullClaimName(pod, name);
    const kube::PersistentVolumeClaim* claim = snapshot.FindPersistentVolumeClaim(full_name);
    if (claim == nullptr) {
      return Reject(fmt::format("PersistentVolumeClaim {} doesn't exist", full_name));
    }
    if (claim->meta.deletion_time) {
      return Reject(fmt::format("PersistentVolumeClaim {} is being deleted", full_name));
    }
    const bool ephemeral = std::ranges::count(pod.spec->ephemeral_claims, name) > 0;
    if (ephemeral && claim->meta.ControllerUid().uid != pod.meta.uid) {
      return Reject(fmt::format("PersistentVolumeClaim {} isn't the pod's own", full_name));
    }
    const bool waits = IsUnbound(*claim);
    std::optional<Rejection> rejection = waits ? CheckUnbound(snapshot, *claim, info)
                                               : CheckBound(snapshot, *claim, ephemeral, info);
    if (rejection) return rejection;
    any_waits |= waits;
  }
  if (!any_waits) return std::nullopt;
  return PlanClaims(snapshot, pod, info, snapshot.taken_volumes()).why_not;
}

}  // namespace muster::cluster
