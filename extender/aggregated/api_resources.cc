#include "extender/aggregated/api_resources.h"

#include <utility>

#include "extender/message_json.h"
#include "fmt/format.h"
#include "muster/v1/admission.pb.h"

namespace muster::extender {
namespace {

std::optional<absl::Time> TimeOf(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0) return std::nullopt;
  return absl::FromUnixSeconds(time.seconds());
}

std::vector<ApiItem> QueuesIn(const MessageList& list, bool local) {
  std::vector<ApiItem> items;
  for (const v1::Queue& queue :
       dynamic_cast<const v1::ListQueuesResponse&>(list.message()).queues()) {
    if (queue.namespace_().empty() == local) continue;
    items.push_back(
        {.name_space = queue.namespace_(),
         .name = queue.name(),
         .uid = "",
         .created = {},
         .status = ToJson(queue),
         .cells = {local ? queue.cluster_queue() : queue.cohort(), std::to_string(queue.pending()),
                   std::to_string(queue.admitted()), queue.error()}});
  }
  return items;
}

std::vector<ApiItem> FlavorsIn(const MessageList& list) {
  std::vector<ApiItem> items;
  for (const v1::Flavor& flavor :
       dynamic_cast<const v1::ListFlavorsResponse&>(list.message()).flavors()) {
    items.push_back({.name_space = "",
                     .name = flavor.name(),
                     .uid = "",
                     .created = {},
                     .status = ToJson(flavor),
                     .cells = {}});
  }
  return items;
}

std::vector<ApiItem> NodesIn(const MessageList& list) {
  std::vector<ApiItem> items;
  for (const v1::Node& node : dynamic_cast<const v1::ListNodesResponse&>(list.message()).nodes()) {
    items.push_back({.name_space = "",
                     .name = NameOf(node),
                     .uid = "",
                     .created = {},
                     .status = ToJson(node),
                     .cells = {v1::NodeStage_Name(node.stage()), node.node_pool(),
                               node.instance_type(), node.zone()}});
  }
  return items;
}

}  // namespace

ApiItem ItemOf(const SharedGang& shared) {
  const v1::Gang& gang = shared->gang();
  int bound = 0;
  for (const v1::Member& member : gang.members()) bound += !member.node().empty();
  const v1::ReasonCode code = gang.reason().code();
  return {.name_space = gang.namespace_(),
          .name = gang.name(),
          .uid = gang.uid(),
          .created = gang.has_created_at() ? TimeOf(gang.created_at()) : std::nullopt,
          .status = std::string(shared->Json()),
          .cells = {v1::GangState_Name(gang.state()),
                    code == v1::REASON_UNSPECIFIED ? "" : v1::ReasonCode_Name(code),
                    fmt::format("{}/{}", bound, gang.min_member()), gang.queue()}};
}

const std::vector<ApiResource>& ApiResources() {
  static const auto* const resources = new std::vector<ApiResource>{
      {"clusterqueues",
       "clusterqueue",
       "ClusterQueue",
       false,
       "Usage of a ClusterQueue, and who waits in it.",
       v1::Queue::descriptor(),
       {"Cohort", "Pending", "Admitted", "Error"},
       Listed::kQueues,
       [](const MessageList& list) { return QueuesIn(list, false); }},
      {"flavors",
       "flavor",
       "Flavor",
       false,
       "Usage of a ResourceFlavor over all ClusterQueues.",
       v1::Flavor::descriptor(),
       {},
       Listed::kFlavors,
       FlavorsIn},
      {"gangs",
       "gang",
       "Gang",
       true,
       "A gang's state, why it is in it and what to do, its members and nodes.",
       v1::Gang::descriptor(),
       {"State", "Reason", "Bound", "Queue"},
       std::nullopt,
       nullptr},
      {"localqueues",
       "localqueue",
       "LocalQueue",
       true,
       "Usage of a LocalQueue, and who waits in it.",
       v1::Queue::descriptor(),
       {"ClusterQueue", "Pending", "Admitted", "Error"},
       Listed::kQueues,
       [](const MessageList& list) { return QueuesIn(list, true); }},
      {"nodes",
       "node",
       "Node",
       false,
       "How far a node has come, and for whom it is held.",
       v1::Node::descriptor(),
       {"Stage", "NodePool", "Type", "Zone"},
       Listed::kNodes,
       NodesIn},
  };
  return *resources;
}

}  // namespace muster::extender
