#include "extender/move/json_objects.h"

#include <utility>

#include "fmt/format.h"
#include "kube/objects/time_text.h"

namespace muster::extender {

using nlohmann::json;

const std::vector<json>& ClusterObjects::of(std::string_view list) const {
  static const std::vector<json> kNone;
  const auto it = lists.find(list);
  return it == lists.end() ? kNone : it->second;
}

const json& At(const json& object, JsonPath path) {
  static const json kNothing;
  const json* at = &object;
  for (std::string_view step : path) {
    if (!at->is_object()) return kNothing;
    const auto it = at->find(step);
    if (it == at->end()) return kNothing;
    at = &*it;
  }
  return *at;
}

std::string Text(const json& object, JsonPath path) {
  const json& at = At(object, path);
  return at.is_string() ? at.get<std::string>() : "";
}

std::string NameOf(const json& object) { return Text(object, {"metadata", "name"}); }
std::string NamespaceOf(const json& object) { return Text(object, {"metadata", "namespace"}); }
std::string UidOf(const json& object) { return Text(object, {"metadata", "uid"}); }
std::string FullName(const json& object) { return NamespaceOf(object) + "/" + NameOf(object); }

const json* ControllerOf(const json& object) {
  const json& owners = At(object, {"metadata", "ownerReferences"});
  if (!owners.is_array()) return nullptr;
  for (const json& each : owners) {
    if (const json& is = At(each, {"controller"}); is.is_boolean() && is.get<bool>()) return &each;
  }
  return nullptr;
}

bool IsTrue(const json& object, std::string_view condition) {
  return Any(At(object, {"status", "conditions"}), [&](const json& each) {
    return Text(each, {"type"}) == condition && Text(each, {"status"}) == "True";
  });
}

kube::Request PatchOf(std::string path, std::string_view type, const json& body) {
  kube::Request request;
  request.method = kube::Method::kPatch;
  request.path = std::move(path);
  request.content_type = type;
  request.body = body.dump();
  return request;
}

int64_t ReplicasOf(const json& deployment) {
  const json& replicas = At(deployment, {"spec", "replicas"});
  return replicas.is_number() ? replicas.get<int64_t>() : 1;
}

std::optional<std::string> HeldSince(const json& lease, absl::Time now) {
  const std::string holder = Text(lease, {"spec", "holderIdentity"});
  const json& seconds = At(lease, {"spec", "leaseDurationSeconds"});
  const auto renewed = kube::ReadTimeText(Text(lease, {"spec", "renewTime"}));
  const absl::Duration lasts = absl::Seconds(seconds.is_number() ? seconds.get<int64_t>() : 15);
  if (holder.empty() || !renewed || *renewed + lasts < now) return std::nullopt;
  return fmt::format("{} renewed Lease {} {}s ago", holder, FullName(lease),
                     absl::ToInt64Seconds(now - *renewed));
}

std::string PlanText(const ChangePlan& plan, std::string_view command) {
  std::string text;
  const auto add = [&text](std::string_view title, const std::vector<std::string>& items) {
    if (items.empty()) return;
    text += fmt::format("{}\n", title);
    for (const std::string& item : items) {
      std::string lines = item;
      for (size_t at = 0; (at = lines.find('\n', at)) != std::string::npos; at += 5) {
        lines.replace(at, 1, "\n      ");
      }
      text += fmt::format("  - {}\n", lines);
    }
  };
  add("To be done by hand:", plan.by_hand);
  std::vector<std::string> fixes;
  for (const ChangePlan::Fix& fix : plan.fixes) fixes.push_back(fix.what);
  add(fmt::format("{} is to:", command), fixes);
  add("To be known:", plan.notes);
  if (plan.by_hand.empty() && plan.fixes.empty()) text += "Nothing is left to do.\n";
  return text;
}

}  // namespace muster::extender
