#include "cluster/zones.h"

#include <algorithm>
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

}  // namespace muster::cluster
