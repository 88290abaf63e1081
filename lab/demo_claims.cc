#include "lab/demo_claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/embedded/api_server.h"
#include "kube/objects/well_known.h"
#include "lab/demo_job.h"

namespace muster::lab {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kMostApart = absl::Seconds(1);
constexpr absl::Duration kMostAfterLastNode = absl::Seconds(2);
constexpr absl::Duration kMostAfterDeadline = absl::Seconds(5);

std::string Milliseconds(absl::Duration duration) {
  if (duration < absl::Milliseconds(1)) return "less than 1 ms";
  return fmt::format("{:.0f} ms", absl::ToDoubleMilliseconds(duration));
}

Json Items(kube::embedded::ApiServer& server, const std::string& path,
           const std::string& selector = "") {
  kube::Request request;
  request.path = path;
  if (!selector.empty()) request.query = {{"labelSelector", selector}};
  const kube::Response response = server.Handle(request);
  const Json list = Json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  return response.ok() && list.is_object() ? list.value("items", Json::array()) : Json::array();
}

std::vector<BoundPod> BoundPodsOf(const DemoObserver& observer, const std::string& job) {
  std::vector<BoundPod> pods;
  for (const auto& [name, pod] : observer.bound_pods()) {
    if (name.starts_with(job + "-master-") || name.starts_with(job + "-worker-")) {
      pods.push_back(pod);
    }
  }
  return pods;
}

bool IsAtRest(const Json& pod) {
  const Json& spec = pod.at("spec");
  if (!spec.value("nodeName", "").empty()) return false;
  const Json gates = spec.value("schedulingGates", Json::array());
  const bool gated = std::ranges::any_of(
      gates, [](const Json& gate) { return gate.value("name", "") == "muster.dev/admission"; });
  const Json conditions = pod.value("/status/conditions"_json_pointer, Json::array());
  return gated && std::ranges::any_of(conditions, [](const Json& condition) {
           return condition.value("type", "") == "PodScheduled" &&
                  condition.value("reason", "") == "SchedulingGated";
         });
}

bool IsHeld(const Json& node) {
  const Json annotations = node.value("/metadata/annotations"_json_pointer, Json::object());
  return annotations.contains("muster.dev/holds") ||
         annotations.contains(kube::kDoNotDisruptAnnotation);
}

auto CountHeldBefore(const std::vector<NodeProgress>& nodes) {
  return std::ranges::count_if(nodes, &NodeProgress::was_held);
}

}  // namespace

int PodsAtRest(kube::embedded::ApiServer& server, const std::string& job) {
  const Json pods =
      Items(server, "/api/v1/namespaces/default/pods", "training.kubeflow.org/job-name=" + job);
  return static_cast<int>(std::ranges::count_if(pods, IsAtRest));
}

int HeldNodes(kube::embedded::ApiServer& server, const std::vector<NodeProgress>& nodes) {
  std::set<std::string> names;
  for (const NodeProgress& node : nodes) names.insert(node.name);
  const Json items = Items(server, "/api/v1/nodes");
  return static_cast<int>(std::ranges::count_if(items, [&](const Json& node) {
    return names.contains(node.at("metadata").at("name")) && IsHeld(node);
  }));
}

std::vector<DemoClaim> BoundAtOnce(kube::embedded::ApiServer& server, const DemoObserver& observer,
                                   const std::string& job, const std::vector<NodeProgress>& nodes) {
  const std::vector<BoundPod> pods = BoundPodsOf(observer, job);
  const std::map<std::string, Moment> complete = observer.complete_nodes();
  std::set<std::string> places;
  Moment last_node = {absl::InfinitePast()};
  bool all_complete = true;
  for (const BoundPod& pod : pods) {
    places.insert(pod.node);
    auto it = complete.find(pod.node);
    if (it == complete.end()) {
      all_complete = false;
    } else if (it->second.revision > last_node.revision) {
      last_node = it->second;
    }
  }
  std::vector<DemoClaim> claims;
  const bool all = pods.size() == kDemoMembers && places.size() == kDemoMembers && all_complete;
  claims.push_back({all, fmt::format("{} of {} pods are bound, on {} nodes that are complete",
                                     pods.size(), kDemoMembers, places.size())});
  if (!all) return claims;
  const auto by_revision = [](const BoundPod& pod) { return pod.bound.revision; };
  const Moment first = std::ranges::min(pods, {}, by_revision).bound;
  const Moment last = std::ranges::max(pods, {}, by_revision).bound;
  claims.push_back({first.revision > last_node.revision,
                    "no pod was bound before the last node was registered and initialized"});
  claims.push_back(
      {last.at - first.at <= kMostApart && last.at - last_node.at <= kMostAfterLastNode,
       fmt::format("all four bound at once: {} after the last node, {} apart",
                   Milliseconds(last.at - last_node.at), Milliseconds(last.at - first.at))});
  const auto held = CountHeldBefore(nodes);
  claims.push_back({held >= kDemoMembers - 1,
                    fmt::format("{} nodes were held while the last one was awaited", held)});
  const int left = HeldNodes(server, nodes);
  claims.push_back({left == 0, fmt::format("holds left on nodes: {}", left)});
  return claims;
}

std::vector<DemoClaim> DeadlineReleased(kube::embedded::ApiServer& server,
                                        const DemoObserver& observer, const std::string& job,
                                        const std::vector<NodeProgress>& nodes,
                                        absl::Duration released_after) {
  const std::map<std::string, Moment> complete = observer.complete_nodes();
  const auto came = std::ranges::count_if(
      nodes, [&](const NodeProgress& node) { return complete.contains(node.name); });
  const size_t bound = BoundPodsOf(observer, job).size();
  const auto were_held = CountHeldBefore(nodes);
  const int held = HeldNodes(server, nodes);
  const int at_rest = PodsAtRest(server, job);
  return {
      {came == kDemoMembers - 1 && nodes.size() == kDemoMembers,
       fmt::format("{} of {} nodes came", came, nodes.size())},
      {were_held >= kDemoMembers - 1 && held == 0 && released_after <= kMostAfterDeadline,
       fmt::format("the deadline released the nodes: {} were held, {} are; {} after it", were_held,
                   held, Milliseconds(released_after))},
      {bound == 0, fmt::format("pods bound: {}", bound)},
      {at_rest == kDemoMembers,
       fmt::format("{} of {} pods still have their gate, and no longer ask for a node", at_rest,
                   kDemoMembers)},
  };
}

}  // namespace muster::lab
