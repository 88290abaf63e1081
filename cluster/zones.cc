#include "cluster/zones.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "cluster/node_affinity.h"
#include "cluster/pool_forecast.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kube/objects/time_text.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {

std::string ZoneOf(const NodeInfo* info) {
  return info == nullptr ? "" : info->node->meta.LabelText(kube::kZoneLabel);
}

std::set<std::string> ZonesOf(const NodePools& pools, const std::vector<const NodeInfo*>& nodes) {
  std::set<std::string> names;
  bool any_zone = false;
  for (const auto& [name, pool] : pools) {
    const auto zones = std::ranges::find_if(pool.requirements, [](const auto& requirement) {
      return requirement.key == kube::kZoneLabel && requirement.op == kube::SelectorOperator::kIn;
    });
    const bool open = zones == pool.requirements.end();
    if (!open) {
      const NodeInfo forecast = ForecastOf(pool);
      std::ranges::copy_if(zones->values, std::inserter(names, names.end()),
                           [&](const std::string& zone) {
                             return CouldHaveLabel(
                                 forecast, {kube::kZoneLabel, kube::SelectorOperator::kIn, {zone}});
                           });
    } else if (pool.node_class != nullptr) {
      names.insert(pool.node_class->zones.begin(), pool.node_class->zones.end());
    }
    any_zone |= open && (pool.node_class == nullptr || pool.node_class->zones.empty());
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

bool IsOpen(const Zone& zone) { return zone.suffices && zone.failed_until == absl::InfinitePast(); }

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

std::vector<NodeSource> SourcesIn(const std::vector<Zone>& zones, const std::string& tried) {
  std::vector<NodeSource> sources = {{.zone = tried}};
  for (const Zone& zone : zones) {
    (zone.name == tried ? sources.front() : sources.emplace_back()) = {
        .zone = zone.name, .lacking = LackOf(zone), .is_open = IsOpen(zone)};
  }
  return sources;
}

std::vector<NodeSource> InOrder(std::vector<NodeSource> zones, const std::string& own,
                                const std::vector<NodeSource>& flavors) {
  if (zones.empty() && !flavors.empty()) zones.emplace_back();
  for (NodeSource& source : zones) source.flavor = own;
  zones.insert(zones.end(), flavors.begin(), flavors.end());
  if (!zones.empty()) {
    std::stable_partition(zones.begin() + 1, zones.end(),
                          [](const auto& one) { return one.is_open; });
  }
  return zones;
}

std::vector<NodeSource>::const_iterator NextOf(const std::vector<NodeSource>& sources) {
  if (sources.empty()) return sources.end();
  return std::find_if(sources.begin() + 1, sources.end(),
                      [](const auto& one) { return one.is_open; });
}

std::string NodeSourcesText(const std::vector<NodeSource>& sources) {
  constexpr size_t kShown = 4;
  if (sources.empty()) return "";
  const auto title = [](const NodeSource& source, bool by_zone) {
    return by_zone ? "zone " + source.zone : "flavor " + source.flavor;
  };
  const NodeSource& first = sources.front();
  std::string text =
      fmt::format("; nodes are made {}",
                  first.zone.empty() ? "on " + title(first, false) : "in " + title(first, true));
  const char* before = ", next ";
  for (size_t i = 1; i < sources.size(); ++i, before = ", ") {
    if (i == kShown) return fmt::format("{}, {} more", text, sources.size() - kShown);
    const NodeSource& source = sources[i];
    text += before + title(source, !source.zone.empty());
    if (!source.is_open) text += fmt::format(" ({})", source.lacking);
  }
  return text;
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
