#include "cluster/predicates.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "cluster/attached_volumes.h"
#include "cluster/made_volumes.h"
#include "cluster/relations.h"
#include "cluster/volumes.h"
#include "fmt/format.h"
#include "kube/objects/quantity.h"

namespace muster::cluster {
namespace {

constexpr int64_t kPreferNoScheduleWeight = 100;

bool Tolerates(const kube::PodSpec& spec, const kube::Taint& taint) {
  return std::any_of(
      spec.tolerations.begin(), spec.tolerations.end(),
      [&](const kube::Toleration& toleration) { return toleration.Tolerates(taint); });
}

bool ToleratesUnschedulable(const kube::PodSpec& spec) {
  return Tolerates(spec, {"node.kubernetes.io/unschedulable", "", kube::TaintEffect::kNoSchedule});
}

// Null if the node's kubelet declares all that the pod needs.
const std::string* FirstUndeclared(const kube::PodSpec& spec, const kube::Node& node) {
  for (const std::string& feature : spec.node_features) {
    if (!std::ranges::binary_search(node.declared_features, feature)) return &feature;
  }
  return nullptr;
}

// The part of CheckClass that depends on nothing but the pod's spec and what a NodeInfo says its
// node is.
std::optional<RejectionCode> WhyNotNode(const kube::PodSpec& spec, const NodeInfo& info) {
  if (info.node->unschedulable && !ToleratesUnschedulable(spec)) {
    return RejectionCode::kUnschedulable;
  }
  if (FirstUntoleratedTaint(spec, info.node->taints) != nullptr) {
    return RejectionCode::kUntoleratedTaint;
  }
  if (!CouldMatchNodeAffinity(spec, info)) return RejectionCode::kNodeSelector;
  // Before there is a kubelet nothing is known of it.
  if (info.object != nullptr && FirstUndeclared(spec, *info.node) != nullptr) {
    return RejectionCode::kNodeFeature;
  }
  return std::nullopt;
}

// What of the selector a node doesn't meet, for people; the verdict is CouldMatchNodeAffinity's.
std::string DescribeMismatch(const kube::PodSpec& spec, const NodeInfo& info) {
  for (const auto& [key, value] : spec.node_selector) {
    if (CouldHaveLabel(info, {key, kube::SelectorOperator::kIn, {value}})) continue;
    const std::string* have = info.node->meta.Label(key);
    if (have != nullptr)
      return fmt::format("nodeSelector {}={}, the node has {}", key, value, *have);
    return fmt::format("nodeSelector {}={}, the node has no such label", key, value);
  }
  return "no term of the required node affinity matches";
}

std::string Describe(RejectionCode why_not_node, const kube::PodSpec& spec, const NodeInfo& info) {
  if (why_not_node == RejectionCode::kUnschedulable) return "cordoned";
  if (why_not_node == RejectionCode::kNodeSelector) return DescribeMismatch(spec, info);
  if (why_not_node == RejectionCode::kNodeFeature) {
    return fmt::format("its kubelet doesn't declare {}", *FirstUndeclared(spec, *info.node));
  }
  return fmt::format("taint {} isn't tolerated",
                     FirstUntoleratedTaint(spec, info.node->taints)->ToString());
}

// CheckClass; `why_not_node` is WhyNotNode, asked if the node counts at all.
template <typename Ask>
std::optional<Rejection> CheckClassBy(const Snapshot& snapshot, const kube::Pod& pod,
                                      const NodeInfo& info, Detail detail, Ask why_not_node) {
  const bool written = detail == Detail::kWritten;
  const bool counts = info.Coming() || (info.UsableNow() && IsWholeFor(pod.spec->requests, info));
  if (!counts) {
    return Rejection{RejectionCode::kNotUsable, written ? info.readiness.message : ""};
  }
  const std::optional<RejectionCode> code = why_not_node();
  if (code) return Rejection{*code, written ? Describe(*code, *pod.spec, info) : ""};
  return CheckVolumes(snapshot, pod, info);
}

bool IsAnyAddress(const std::string& ip) { return ip.empty() || ip == "0.0.0.0"; }

// kube-scheduler's HostPortInfo.CheckConflict.
bool Conflict(const kube::HostPort& a, const kube::HostPort& b) {
  if (a.port <= 0 || a.port != b.port || a.protocol != b.protocol) return false;
  return IsAnyAddress(a.ip) || IsAnyAddress(b.ip) || a.ip == b.ip;
}

const kube::HostPort* FindConflict(const kube::PodSpec& wanted, const kube::PodSpec& standing) {
  for (const kube::HostPort& port : wanted.host_ports) {
    for (const kube::HostPort& taken : standing.host_ports) {
      if (Conflict(port, taken)) return &port;
    }
  }
  return nullptr;
}

int64_t FreeFor(const kube::Pod& pod, const NodeInfo& info, const std::string& resource) {
  int64_t free = 0;
  if (__builtin_sub_overflow(info.node->allocatable.Get(resource), info.requested.Get(resource),
                             &free)) {
    return 0;
  }
  if (free >= pod.spec->requests.Get(resource)) return free;
  // What the pod itself takes there is free for it.
  const PlacedPod* standing = info.FindPod(pod.meta.uid);
  return standing == nullptr ? free : free + standing->pod->spec->requests.Get(resource);
}

std::optional<Rejection> CheckResources(const kube::Pod& pod, const NodeInfo& info) {
  for (const auto& [resource, want] : pod.spec->requests.entries()) {
    if (want <= 0) continue;
    const int64_t free = FreeFor(pod, info, resource);
    if (want <= free) continue;
    return ShortOf(info, resource, want, std::max<int64_t>(free, 0));
  }
  return std::nullopt;
}

std::unique_ptr<const WantedVolumes> WantedIfAny(const Snapshot& snapshot, const kube::Pod& pod) {
  if (pod.spec->persistent_volume_claims.empty()) return nullptr;
  return std::make_unique<const WantedVolumes>(WantedBy(snapshot, pod));
}

std::optional<Rejection> CheckHostPorts(const kube::Pod& pod, const NodeInfo& info) {
  if (pod.spec->host_ports.empty()) return std::nullopt;
  const auto why_not = [&](const kube::Pod& other) -> std::optional<Rejection> {
    if (other.meta.uid == pod.meta.uid) return std::nullopt;
    const kube::HostPort* port = FindConflict(*pod.spec, *other.spec);
    if (port == nullptr) return std::nullopt;
    return Rejection{RejectionCode::kHostPorts,
                     fmt::format("port {}/{} is used by pod {}", port->port, port->protocol,
                                 other.meta.FullName())};
  };
  for (const PlacedPod& placed : info.pods) {
    if (auto rejection = why_not(*placed.pod)) return rejection;
  }
  for (const std::shared_ptr<const kube::Pod>& other : info.nominated) {
    if (auto rejection = why_not(*other)) return rejection;
  }
  return std::nullopt;
}

bool SelectsNamespace(const Snapshot& snapshot, const kube::PodAffinityTerm& term,
                      const std::string& owner_namespace, const std::string& other_namespace) {
  if (term.namespaces.empty() && !term.namespace_selector) {
    return owner_namespace == other_namespace;
  }
  if (std::find(term.namespaces.begin(), term.namespaces.end(), other_namespace) !=
      term.namespaces.end()) {
    return true;
  }
  if (!term.namespace_selector) return false;
  const kube::Namespace* known = snapshot.FindNamespace(other_namespace);
  return term.namespace_selector->Matches(known == nullptr ? kube::StringMap()
                                                           : known->meta.labels);
}

// What the pod asks for, by position in NodeInfo::free, which the node's family decides; nullopt if
// the node hasn't all of it.
std::optional<std::vector<std::pair<size_t, int64_t>>> AskedOf(const kube::Pod& pod,
                                                               const NodeInfo& info) {
  std::vector<std::pair<size_t, int64_t>> asked;
  const auto& allocatable = info.node->allocatable.entries();
  size_t at = 0;
  for (const auto& [resource, amount] : pod.spec->requests.entries()) {
    if (amount <= 0) continue;
    while (at < allocatable.size() && allocatable[at].first < resource) ++at;
    if (at == allocatable.size() || allocatable[at].first != resource) return std::nullopt;
    asked.emplace_back(at, amount);
  }
  return asked;
}

int64_t RoomOf(const kube::Pod& pod,
               const std::optional<std::vector<std::pair<size_t, int64_t>>>& asked,
               const NodeInfo& info) {
  if (!asked) return 0;
  int64_t room = pod.spec->host_ports.empty() ? kManyPods : 1;
  for (const auto& [at, amount] : *asked) room = std::min(room, info.free[at] / amount);
  return room;
}

}  // namespace

const kube::Taint* FirstUntoleratedTaint(const kube::PodSpec& spec,
                                         const std::vector<kube::Taint>& taints) {
  for (const kube::Taint& taint : taints) {
    if (taint.effect != kube::TaintEffect::kPreferNoSchedule && !Tolerates(spec, taint)) {
      return &taint;
    }
  }
  return nullptr;
}

bool HostPortsConflict(const kube::PodSpec& a, const kube::PodSpec& b) {
  return FindConflict(a, b) != nullptr;
}

bool MembersClash(const kube::PodSpec& a, const kube::PodSpec& b) {
  return (a.uses_resource_claims && b.uses_resource_claims) || HostPortsConflict(a, b);
}

bool MayClash(const kube::PodSpec& spec) {
  return spec.uses_resource_claims || !spec.host_ports.empty();
}

std::optional<Rejection> CheckClass(const Snapshot& snapshot, const kube::Pod& pod,
                                    const NodeInfo& info) {
  return CheckClassBy(snapshot, pod, info, Detail::kWritten,
                      [&] { return WhyNotNode(*pod.spec, info); });
}

ClassCheck::ClassCheck(const Snapshot& snapshot, const kube::Pod& pod)
    : snapshot_(snapshot),
      pod_(pod),
      looks_at_names_(LooksAtNames(*pod.spec)),
      wanted_(WantedIfAny(snapshot, pod)) {}
ClassCheck::~ClassCheck() = default;
ClassCheck::ClassCheck(ClassCheck&&) noexcept = default;

std::optional<Rejection> ClassCheck::Check(const NodeInfo& info, Detail detail) {
  return CheckClassBy(snapshot_, pod_, info, detail, [&] {
    // A virtual node is judged by its claim, too.
    const int family = info.is_virtual || looks_at_names_ ? -1 : info.family;
    return by_family_.Get(family, [&] { return WhyNotNode(*pod_.spec, info); });
  });
}

Rejection ShortOf(const NodeInfo& info, const std::string& resource, int64_t wanted, int64_t free,
                  Detail detail) {
  if (const std::string_view driver = DriverOf(resource); !driver.empty()) {
    return LacksAttachments(driver, wanted, free);
  }
  if (resource.starts_with(kMadeVolume)) return LacksMadeVolumes(resource, wanted, free);
  if (detail == Detail::kOmitted) return {RejectionCode::kResources, ""};
  const kube::QuantityUnit unit = kube::UnitOf(resource);
  return {RejectionCode::kResources,
          fmt::format("{}: wants {}, {} of {} free{}", resource, kube::FormatQuantity(wanted, unit),
                      kube::FormatQuantity(free, unit),
                      kube::FormatQuantity(info.node->allocatable.Get(resource), unit),
                      SlicesNote(resource, info))};
}

std::optional<Rejection> CheckRoom(const Snapshot& snapshot, const kube::Pod& pod,
                                   const NodeInfo& info) {
  if (std::optional<Rejection> rejection = CheckResources(pod, info)) return rejection;
  if (std::optional<Rejection> rejection = CheckHostPorts(pod, info)) return rejection;
  const auto wanted = WantedIfAny(snapshot, pod);
  return wanted == nullptr ? std::nullopt : CheckAttaching(snapshot, *wanted, pod, info);
}

int64_t RoomFor(const kube::Pod& pod, const NodeInfo& info) {
  return RoomOf(pod, AskedOf(pod, info), info);
}

int64_t ClassCheck::RoomOn(const NodeInfo& info) {
  const int64_t room =
      RoomOf(pod_, asked_.Get(info.family, [&] { return AskedOf(pod_, info); }), info);
  if (room == 0 || wanted_ == nullptr) return room;
  return std::min(
      {room, AttachRoom(snapshot_, *wanted_, pod_, info), MadeRoom(snapshot_, pod_, info)});
}

int64_t ClassCheck::PreferenceOn(const NodeInfo& info) {
  const bool by_name = !pod_.spec->affinity.preferred_node_terms.empty();
  return preferences_.Get(by_name ? -1 : info.family,
                          [&] { return NodePreferenceScore(*pod_.spec, info); });
}

int64_t RoomNow(const Snapshot& snapshot, const kube::Pod& pod, const NodeInfo& info) {
  int64_t room = RoomFor(pod, info);
  if (room == 0 || CheckClass(snapshot, pod, info)) return 0;
  if (const auto wanted = WantedIfAny(snapshot, pod)) {
    room =
        std::min({room, AttachRoom(snapshot, *wanted, pod, info), MadeRoom(snapshot, pod, info)});
  }
  return pod.spec->host_ports.empty() || !CheckHostPorts(pod, info) ? room : 0;
}

int64_t RoomBeside(const NodeInfo& info, const std::vector<ClassRoom>& classes) {
  // By device: the rooms' sum, and what one of them asks at least.
  absl::InlinedVector<ClassRoom, 2> sums;
  for (const ClassRoom& one : classes) {
    if (one.room == 0) continue;
    auto sum = std::ranges::find(sums, one.device, &ClassRoom::device);
    if (sum == sums.end()) sum = sums.insert(sum, ClassRoom{0, one.device, kManyPods});
    sum->room = std::min(kManyPods, sum->room + one.room);
    sum->amount = std::min(sum->amount, one.amount);
  }
  int64_t all = 0;
  for (const ClassRoom& sum : sums) {
    const int64_t at_most = sum.device.empty() ? kManyPods : info.Free(sum.device) / sum.amount;
    all = std::min(kManyPods, all + std::min(sum.room, at_most));
  }
  return all;
}

std::optional<Rejection> CheckRelations(const Snapshot& snapshot, const kube::Pod& pod,
                                        const NodeInfo& info) {
  std::vector<const NodeInfo*> nodes;
  int node = -1;
  for (const auto& [name, other] : snapshot.nodes()) {
    if (&other == &info) node = static_cast<int>(nodes.size());
    nodes.push_back(&other);
  }
  const Relations relations(snapshot, {&pod}, nodes, info.is_virtual);
  return relations.WhyNot(relations.KindOf(0), node);
}

std::optional<Rejection> CheckAll(const Snapshot& snapshot, const kube::Pod& pod,
                                  const NodeInfo& info) {
  if (std::optional<Rejection> rejection = CheckClass(snapshot, pod, info)) return rejection;
  if (std::optional<Rejection> rejection = CheckRoom(snapshot, pod, info)) return rejection;
  return CheckRelations(snapshot, pod, info);
}

int64_t NodePreferenceScore(const kube::PodSpec& spec, const NodeInfo& info) {
  int64_t score = PreferredNodeWeight(spec, *info.node);
  for (const kube::Taint& taint : info.node->taints) {
    if (taint.effect == kube::TaintEffect::kPreferNoSchedule && !Tolerates(spec, taint)) {
      score -= kPreferNoScheduleWeight;
    }
  }
  return score;
}

bool HasRelations(const kube::PodSpec& spec) {
  return !spec.affinity.required_pod_affinity.empty() ||
         !spec.affinity.required_pod_anti_affinity.empty() ||
         std::any_of(spec.topology_spread.begin(), spec.topology_spread.end(),
                     [](const auto& constraint) { return constraint.do_not_schedule; });
}

bool HasPreferredRelations(const kube::PodSpec& spec) {
  return !spec.affinity.preferred_pod_affinity.empty() ||
         !spec.affinity.preferred_pod_anti_affinity.empty() ||
         std::any_of(spec.topology_spread.begin(), spec.topology_spread.end(),
                     [](const auto& constraint) { return !constraint.do_not_schedule; });
}

bool TermSelects(const Snapshot& snapshot, const kube::PodAffinityTerm& term,
                 const kube::Pod& owner, const kube::Pod& other) {
  return term.selector && term.selector->Matches(other.meta.labels) &&
         SelectsNamespace(snapshot, term, owner.meta.name_space, other.meta.name_space);
}

const char* TextOf(RejectionCode code) {
  switch (code) {
    case RejectionCode::kNotUsable:
      return "not usable yet";
    case RejectionCode::kUnschedulable:
      return "unschedulable";
    case RejectionCode::kUntoleratedTaint:
      return "untolerated taint";
    case RejectionCode::kNodeSelector:
      return "nodeSelector or node affinity doesn't match";
    case RejectionCode::kNodeFeature:
      return "feature not declared";
    case RejectionCode::kResources:
      return "not enough free";
    case RejectionCode::kHostPorts:
      return "host port taken";
    case RejectionCode::kVolume:
      return "volume can't be reached";
    case RejectionCode::kVolumeLimit:
      return "no more volumes can be attached";
    case RejectionCode::kVolumeInUse:
      return "volume in use";
    case RejectionCode::kPodAffinity:
      return "pod affinity not met";
    case RejectionCode::kPodAntiAffinity:
    case RejectionCode::kExistingAntiAffinity:
      return "pod anti-affinity";
    case RejectionCode::kTopologySpread:
      return "topology spread";
    case RejectionCode::kExcluded:
      return "left out";
  }
  return "";
}

}  // namespace muster::cluster
