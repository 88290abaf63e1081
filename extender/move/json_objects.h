// Objects as the API server has them, read field by field: what isn't there is null, "" or false.
#pragma once

#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "kube/api.h"

namespace muster::extender {

// As the API server has them, by list; what isn't served is missing.
struct ClusterObjects {
  std::map<std::string, std::vector<nlohmann::json>, std::less<>> lists;
  const std::vector<nlohmann::json>& of(std::string_view list) const;
};

using JsonPath = std::initializer_list<std::string_view>;
const nlohmann::json& At(const nlohmann::json& object, JsonPath path);
std::string Text(const nlohmann::json& object, JsonPath path);
std::string NameOf(const nlohmann::json& object);
std::string NamespaceOf(const nlohmann::json& object);
std::string UidOf(const nlohmann::json& object);
std::string FullName(const nlohmann::json& object);  // "NAMESPACE/NAME"
const nlohmann::json* ControllerOf(const nlohmann::json& object);
bool IsTrue(const nlohmann::json& object, std::string_view condition);

// Whether one of the list is so; of what is no list none is.
template <typename Predicate>
bool Any(const nlohmann::json& list, Predicate predicate) {
  if (!list.is_array()) return false;
  for (const nlohmann::json& each : list) {
    if (predicate(each)) return true;
  }
  return false;
}

kube::Request PatchOf(std::string path, std::string_view type, const nlohmann::json& body);

// The Deployment's replicas; 1 where it doesn't say.
int64_t ReplicasOf(const nlohmann::json& deployment);
// "HOLDER renewed Lease NAMESPACE/NAME 3s ago", or nothing where nobody holds it any more.
std::optional<std::string> HeldSince(const nlohmann::json& lease, absl::Time now);

// What stands between a cluster and a change of it: for hands, and for a command.
struct ChangePlan {
  std::vector<std::string> by_hand;  // and how
  struct Fix {
    std::string what;
    std::vector<kube::Request> requests;  // one after the other; done already: 404 of a removal
    bool at_once = false;                 // whatever is left for hands
  };
  std::vector<Fix> fixes;          // in their order
  std::vector<std::string> notes;  // what will be, and is in nobody's way
};

// `command`: "muster move in --apply".
std::string PlanText(const ChangePlan& plan, std::string_view command);

}  // namespace muster::extender
