#include "cluster/zones.h"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kube/objects/time_text.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {

std::string ZoneOf(const NodeInfo* info) {
  const std::string* zone = info == nullptr ? nullptr : info->node->meta.Label(kube::kZoneLabel);
  return zone == nullptr ? "" : *zone;
}

std::set<std::string> ZonesOf(const NodePools& pools, const std::vector<const NodeInfo*>& nodes) {
  std::set<std::string> names;
  bool any_zone = false;
  for (const auto& [name, pool] : pools) {
    const auto zones = std::ranges::find_if(pool.requirements, [](const auto& requirement) {
      return requirement.key == kube::kZoneLabel && requirement.op == kube::SelectorOperator::kIn;
    });
    any_zone |= zones == pool.requirements.end();
    if (zones != pool.requirements.end()) names.insert(zones->values.begin(), zones->values.end());
  }
  for (const NodeInfo* info : nodes) {
    if (!any_zone) break;
    if (std::string zone = ZoneOf(info); !zone.empty()) names.insert(std::move(zone));
  }
  return names;
}

void Order(std::vector<Zone>* zones) {
  std::ranges::stable_sort(*zones, {}, [](const Zone& zone) {
    return std::tuple(zone.failed_until, !zone.suffices, zone.refused_at, -zone.room);
  });
}

std::string LackOf(const Zone& zone) {
  if (zone.failed_until != absl::InfinitePast()) {
    return fmt::format("failed, not before {}", kube::ClockText(zone.failed_until));
  }
  if (!zone.suffices) {
    return fmt::format("room for {} of {} members, and NodePools make nodes for {} more", zone.room,
                       zone.needed, zone.makeable);
  }
  return zone.refused_at == absl::InfinitePast() ? ""
                                                 : "refused at " + kube::ClockText(zone.refused_at);
}

std::string OthersText(const std::vector<Zone>& zones, std::string_view but) {
  std::vector<std::string> others;
  for (const Zone& zone : zones) {
    if (zone.name == but) continue;
    const bool failed = zone.failed_until != absl::InfinitePast();
    others.push_back(failed ? fmt::format("{} (failed, not before {})", zone.name,
                                          kube::ClockText(zone.failed_until))
                            : zone.name + (zone.suffices ? "" : " (NodePools make too few)"));
  }
  return fmt::format("{}", fmt::join(others, ", "));
}

std::string BeyondOneText(const kube::TopologyAsked& asked,
                          const std::vector<const kube::Node*>& nodes) {
  constexpr size_t kShown = 3;
  const bool by_itself = asked.annotation.empty() && asked.required.empty();
  if (asked.preferred.empty() && !by_itself) return "";
  const std::string label = by_itself ? kube::kZoneLabel : asked.preferred;
  std::map<std::string, size_t> members;
  size_t apart = 0;  // on nodes without the label: in no domain with others
  for (const kube::Node* node : nodes) {
    const std::string* value = node->meta.Label(label);
    if (value == nullptr) {
      ++apart;
    } else {
      ++members[*value];
    }
  }
  const std::string why =
      by_itself ? "" : fmt::format(", which annotation {} prefers", asked.annotation);
  if (members.empty()) {
    return by_itself ? "" : fmt::format("; none of their nodes has label {}{}", label, why);
  }
  if (members.size() == 1 && apart == 0) return "";
  std::vector<std::pair<std::string, size_t>> most(members.begin(), members.end());
  std::ranges::stable_sort(most, std::greater<>(), [](const auto& each) { return each.second; });
  std::vector<std::string> told;
  for (const auto& [value, count] : most) {
    if (told.size() < kShown) told.push_back(fmt::format("{} ({})", value, count));
  }
  if (most.size() > kShown) told.push_back(fmt::format("{} more", most.size() - kShown));
  if (apart > 0) told.push_back(fmt::format("nodes without that label ({})", apart));
  return fmt::format("; over {} domains of {}{}: {}; one would have needed room for all {}",
                     members.size() + (apart > 0 ? 1 : 0), label, why, fmt::join(told, ", "),
                     nodes.size());
}

}  // namespace muster::cluster
