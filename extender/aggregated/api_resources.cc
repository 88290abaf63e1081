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

bool IsWanted(const std::string& name, const std::string& wanted) {
  return wanted.empty() || name == wanted;
}

ApiItems Gangs(const StateStore& store, const std::string& name_space, const std::string& name) {
  GangPages found = store.GangsOn({name_space, name}, {});
  ApiItems all{.items = {}, .version = std::to_string(found.version)};
  std::string last;
  for (const SharedGang& gang : found.gangs) {
    ApiItem item = ItemOf(gang);
    // A pod's gang of the same name as a PodGroup's: one object has a name, that which get finds.
    std::string key = item.name_space + "/" + item.name;
    if (key == std::exchange(last, key)) {
      if (gang->gang().kind() == "PodGroup") all.items.back() = std::move(item);
      continue;
    }
    all.items.push_back(std::move(item));
  }
  return all;
}

template <typename Response>
const Response& ListIn(const StateStore& store, Listed kind,
                       std::shared_ptr<const MessageList>* kept) {
  *kept = store.List(kind);
  return dynamic_cast<const Response&>((*kept)->message());
}

ApiItems Queues(const StateStore& store, bool local, const std::string& name_space,
                const std::string& name) {
  std::shared_ptr<const MessageList> kept;
  ApiItems found;
  for (const v1::Queue& queue :
       ListIn<v1::ListQueuesResponse>(store, Listed::kQueues, &kept).queues()) {
    if (queue.namespace_().empty() == local || !IsWanted(queue.name(), name)) continue;
    if (local && !IsWanted(queue.namespace_(), name_space)) continue;
    found.items.push_back(
        {.name_space = queue.namespace_(),
         .name = queue.name(),
         .uid = "",
         .created = {},
         .status = ToJson(queue),
         .cells = {local ? queue.cluster_queue() : queue.cohort(), std::to_string(queue.pending()),
                   std::to_string(queue.admitted()), queue.error()}});
  }
  return found;
}

ApiItems Flavors(const StateStore& store, const std::string&, const std::string& name) {
  std::shared_ptr<const MessageList> kept;
  ApiItems found;
  for (const v1::Flavor& flavor :
       ListIn<v1::ListFlavorsResponse>(store, Listed::kFlavors, &kept).flavors()) {
    if (!IsWanted(flavor.name(), name)) continue;
    found.items.push_back({.name_space = "",
                           .name = flavor.name(),
                           .uid = "",
                           .created = {},
                           .status = ToJson(flavor),
                           .cells = {}});
  }
  return found;
}

ApiItems Nodes(const StateStore& store, const std::string&, const std::string& name) {
  std::shared_ptr<const MessageList> kept;
  ApiItems found;
  for (const v1::Node& node : ListIn<v1::ListNodesResponse>(store, Listed::kNodes, &kept).nodes()) {
    const std::string& called = NameOf(node);
    if (!IsWanted(called, name)) continue;
    found.items.push_back({.name_space = "",
                           .name = called,
                           .uid = "",
                           .created = {},
                           .status = ToJson(node),
                           .cells = {v1::NodeStage_Name(node.stage()), node.node_pool(),
                                     node.instance_type(), node.zone()}});
  }
  return found;
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
  using Names = const std::string&;
  static const auto* const resources = new std::vector<ApiResource>{
      {"clusterqueues",
       "clusterqueue",
       "ClusterQueue",
       false,
       false,
       "Usage of a ClusterQueue, and who waits in it.",
       v1::Queue::descriptor(),
       {"Cohort", "Pending", "Admitted", "Error"},
       [](const StateStore& store, Names, Names name) { return Queues(store, false, "", name); }},
      {"flavors",
       "flavor",
       "Flavor",
       false,
       false,
       "Usage of a ResourceFlavor over all ClusterQueues.",
       v1::Flavor::descriptor(),
       {},
       Flavors},
      {"gangs",
       "gang",
       "Gang",
       true,
       true,
       "A gang's state, why it is in it and what to do, its members and nodes.",
       v1::Gang::descriptor(),
       {"State", "Reason", "Bound", "Queue"},
       Gangs},
      {"localqueues",
       "localqueue",
       "LocalQueue",
       true,
       false,
       "Usage of a LocalQueue, and who waits in it.",
       v1::Queue::descriptor(),
       {"ClusterQueue", "Pending", "Admitted", "Error"},
       [](const StateStore& store, Names name_space, Names name) {
         return Queues(store, true, name_space, name);
       }},
      {"nodes",
       "node",
       "Node",
       false,
       false,
       "How far a node has come, and for whom it is held.",
       v1::Node::descriptor(),
       {"Stage", "NodePool", "Type", "Zone"},
       Nodes},
  };
  return *resources;
}

}  // namespace muster::extender
