#include "tests/verdicts/verdicts.h"

#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "cluster/predicates.h"
#include "cluster/profile.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kube/objects/decode.h"

namespace muster::testing {
namespace {

using cluster::NodeInfo;
using cluster::Rejection;
using cluster::RejectionCode;
using Json = nlohmann::json;
using Plugins = std::set<std::string, std::less<>>;

template <typename T>
T Read(const Json& object) {
  absl::StatusOr<T> read = kube::Decode<T>(object.dump());
  if (!read.ok()) {
    throw std::runtime_error(fmt::format("{}: {}", read.status().ToString(), object.dump()));
  }
  return *std::move(read);
}

template <typename T>
void FeedAll(const Json& line, const char* kind, cluster::Snapshot* snapshot) {
  if (!line.contains(kind) || line[kind].is_null()) return;
  for (const Json& object : line[kind]) snapshot->Upsert(Read<T>(object));
}

// The plugins that a reason can be the word of; none of Muster's own reasons.
Plugins SpokenFor(RejectionCode code) {
  switch (code) {
    case RejectionCode::kUnschedulable:
      return {"NodeUnschedulable"};
    case RejectionCode::kUntoleratedTaint:
      return {"TaintToleration"};
    case RejectionCode::kNodeSelector:
      return {"NodeAffinity"};
    case RejectionCode::kNodeFeature:
      return {"NodeDeclaredFeatures"};
    case RejectionCode::kResources:
      return {"NodeResourcesFit"};
    case RejectionCode::kHostPorts:
      return {"NodePorts"};
    case RejectionCode::kVolume:
      return {"VolumeBinding", "VolumeZone", "NodeVolumeLimits"};
    case RejectionCode::kVolumeLimit:
      return {"NodeVolumeLimits"};
    case RejectionCode::kVolumeInUse:
      return {"VolumeRestrictions"};
    case RejectionCode::kPodAffinity:
    case RejectionCode::kPodAntiAffinity:
    case RejectionCode::kExistingAntiAffinity:
      return {"InterPodAffinity"};
    case RejectionCode::kTopologySpread:
      return {"PodTopologySpread"};
    default:
      return {};
  }
}

const Plugins kClassPlugins = {"NodeUnschedulable",    "TaintToleration", "NodeAffinity",
                               "NodeDeclaredFeatures", "VolumeBinding",   "VolumeZone"};
const Plugins kRoomPlugins = {"NodePorts", "NodeResourcesFit"};
const Plugins kAttachPlugins = {"NodeVolumeLimits", "VolumeRestrictions"};
const Plugins kRelationPlugins = {"InterPodAffinity", "PodTopologySpread"};

Plugins Both(const Plugins& a, const Plugins& b) {
  Plugins both;
  for (const std::string& one : a) {
    if (b.contains(one)) both.insert(one);
  }
  return both;
}

// The difference in words, or empty.
std::string Compare(std::string_view part, const Plugins& plugins, const Plugins& refusing,
                    const std::optional<Rejection>& got) {
  const Plugins refused = Both(plugins, refusing);
  if (!got) {
    return refused.empty() ? ""
                           : fmt::format("{} passes, {} refuses", part, fmt::join(refused, ", "));
  }
  if (!Both(SpokenFor(got->code), refused).empty()) return "";
  return fmt::format("{} refuses ({}: {}), of the plugins {}", part, TextOf(got->code), got->detail,
                     refused.empty() ? "none" : fmt::format("only {}", fmt::join(refused, ", ")));
}

// By node.
std::map<std::string, Plugins> RefusingPlugins(const Json& refused) {
  std::map<std::string, Plugins> refusing;
  for (const auto& [plugin, nodes] : refused.items()) {
    for (const Json& node : nodes) refusing[node.get<std::string>()].insert(plugin);
  }
  return refusing;
}

std::vector<std::string> CompareOn(const cluster::Snapshot& snapshot, const kube::Pod& pod,
                                   const NodeInfo& info, const Plugins& refusing) {
  std::vector<std::string> differences;
  const auto compare = [&](std::string_view part, const Plugins& plugins,
                           const std::optional<Rejection>& got) {
    std::string difference = Compare(part, plugins, refusing, got);
    if (!difference.empty()) differences.push_back(std::move(difference));
  };
  compare("class", kClassPlugins, CheckClass(snapshot, pod, info));
  // Every volume plugin refuses a claim that is missing; here the class part does it for all.
  const auto got = CheckRoom(snapshot, pod, info);
  Plugins room = kRoomPlugins;
  if (got || !refusing.contains("VolumeBinding")) {
    room.insert(kAttachPlugins.begin(), kAttachPlugins.end());
  }
  compare("room", room, got);
  compare("relations", kRelationPlugins, CheckRelations(snapshot, pod, info));
  // What planners ask instead of the room part.
  if ((RoomFor(pod, info) > 0) == refusing.contains("NodeResourcesFit")) {
    differences.push_back(
        fmt::format("room for {} such pods, NodeResourcesFit {}", RoomFor(pod, info),
                    refusing.contains("NodeResourcesFit") ? "refuses" : "passes"));
  }
  return differences;
}

}  // namespace

void Feed(const Json& line, cluster::Snapshot* snapshot) {
  FeedAll<kube::Node>(line, "nodes", snapshot);
  FeedAll<kube::Namespace>(line, "namespaces", snapshot);
  FeedAll<kube::PersistentVolumeClaim>(line, "claims", snapshot);
  FeedAll<kube::PersistentVolume>(line, "volumes", snapshot);
  FeedAll<kube::StorageClass>(line, "storageClasses", snapshot);
  FeedAll<kube::CsiNode>(line, "csiNodes", snapshot);
  FeedAll<kube::CsiDriver>(line, "csiDrivers", snapshot);
  FeedAll<kube::VolumeAttachment>(line, "attachments", snapshot);
  FeedAll<kube::CsiStorageCapacity>(line, "capacities", snapshot);
  FeedAll<kube::Pod>(line, "pods", snapshot);
}

kube::Pod ReadPod(const Json& line, const Json& pod) {
  kube::Pod read = Read<kube::Pod>(pod);
  const auto added = line.find("addedAffinity");
  if (added == line.end() || added->is_null()) return read;
  // As a pod that has nothing else.
  const Json having = {{"metadata", {{"name", "added"}}},
                       {"spec", {{"affinity", {{"nodeAffinity", *added}}}}}};
  cluster::AddedAffinity affinity;
  affinity.required = Read<kube::Pod>(having).spec->affinity.required_node_terms;
  affinity.ApplyTo(&read);
  return read;
}

std::vector<std::string> VerdictComparison::Add(const Json& line) {
  cluster::Snapshot snapshot;
  Feed(line, &snapshot);
  std::vector<std::string> differences;
  for (const Json& asked : line["asked"]) {
    const kube::Pod pod = ReadPod(line, asked["pod"]);
    const cluster::NominationsFor counted(&snapshot, pod.priority);
    const auto refusing = RefusingPlugins(asked["refused"]);
    for (const auto& [plugin, nodes] : asked["refused"].items()) {
      plugins_[plugin].verdicts += static_cast<int64_t>(snapshot.nodes().size());
      plugins_[plugin].refusals += static_cast<int64_t>(nodes.size());
    }
    for (const auto& [name, info] : snapshot.nodes()) {
      const auto found = refusing.find(name);
      ++verdicts_;
      passes_ += found == refusing.end();
      const Plugins none;
      for (const std::string& difference :
           CompareOn(snapshot, pod, info, found == refusing.end() ? none : found->second)) {
        differences.push_back(fmt::format("seed {}, pod {} on {}: {}", line["seed"].get<int64_t>(),
                                          pod.meta.FullName(), name, difference));
      }
    }
  }
  return differences;
}

}  // namespace muster::testing
