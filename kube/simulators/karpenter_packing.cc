#include "kube/simulators/karpenter_packing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "kube/objects/quantity.h"

namespace muster::kube::simulators {
namespace {

// One way to read a pod's constraints: Karpenter first takes the first required node affinity term
// and the heaviest preference, and drops them one by one while the pod fits nowhere.
struct Reading {
  LabelRequirements requirements;
  bool tolerates_prefer_no_schedule = false;
};

std::vector<Reading> ReadingsOf(const PodSpec& spec, bool strict) {
  LabelRequirements base = LabelRequirements::FromLabels(spec.node_selector);
  std::vector<const NodeSelectorTerm*> terms;
  if (spec.affinity.required_node_terms) {
    for (const NodeSelectorTerm& term : *spec.affinity.required_node_terms) terms.push_back(&term);
  }
  std::vector<const PreferredNodeTerm*> preferences;
  if (!strict) {
    for (const PreferredNodeTerm& term : spec.affinity.preferred_node_terms) {
      preferences.push_back(&term);
    }
  }
  std::stable_sort(preferences.begin(), preferences.end(),
                   [](const auto* a, const auto* b) { return a->weight > b->weight; });
  std::vector<Reading> readings;
  auto add = [&](const NodeSelectorTerm* term, const PreferredNodeTerm* preference) {
    Reading reading{base};
    if (term != nullptr) reading.requirements.Add(term->match_expressions);
    if (preference != nullptr) reading.requirements.Add(preference->term.match_expressions);
    readings.push_back(std::move(reading));
  };
  const PreferredNodeTerm* heaviest = preferences.empty() ? nullptr : preferences.front();
  for (const NodeSelectorTerm* term : terms) add(term, heaviest);
  const NodeSelectorTerm* last = terms.empty() ? nullptr : terms.back();
  if (terms.empty()) add(nullptr, heaviest);
  for (size_t i = 1; i < preferences.size(); ++i) add(last, preferences[i]);
  if (heaviest != nullptr) add(last, nullptr);
  if (!strict) {
    readings.push_back(readings.back());
    readings.back().tolerates_prefer_no_schedule = true;
  }
  return readings;
}

// Empty if all taints are tolerated.
std::string WhyNotTolerated(const PodSpec& spec, const Reading& reading,
                            const std::vector<Taint>& taints) {
  std::vector<std::string> reasons;
  for (const Taint& taint : taints) {
    if (taint.effect == TaintEffect::kPreferNoSchedule && reading.tolerates_prefer_no_schedule) {
      continue;
    }
    bool tolerated =
        std::any_of(spec.tolerations.begin(), spec.tolerations.end(),
                    [&](const Toleration& toleration) { return toleration.Tolerates(taint); });
    if (!tolerated) {
      reasons.push_back(fmt::format("did not tolerate taint (taint={})", taint.ToString()));
    }
  }
  return fmt::format("{}", fmt::join(reasons, "; "));
}

// {"cpu":"4","pods":"1"}
std::string ResourcesText(const ResourceList& resources) {
  std::vector<std::string> parts;
  for (const auto& [name, amount] : resources.entries()) {
    parts.push_back(fmt::format("\"{}\":\"{}\"", name, FormatQuantity(amount, UnitOf(name))));
  }
  return fmt::format("{{{}}}", fmt::join(parts, ","));
}

// What of the three criteria no instance type met, in the words of InstanceTypeFilterError.
struct TypeFilter {
  bool requirements_met = false;
  bool fits = false;
  bool has_offering = false;
  bool requirements_and_fits = false;
  bool requirements_and_offering = false;
  bool fits_and_offering = false;

  void Count(bool meets, bool fit, bool offered) {
    requirements_met |= meets;
    fits |= fit;
    has_offering |= offered;
    requirements_and_fits |= meets && fit && !offered;
    requirements_and_offering |= meets && offered && !fit;
    fits_and_offering |= fit && offered && !meets;
  }

  std::string_view Text() const {
    if (!requirements_met && !fits && !has_offering) {
      return "no instance type met the scheduling requirements or had enough resources or had a "
             "required offering";
    }
    if (!requirements_met && !fits) {
      return "no instance type met the scheduling requirements or had enough resources";
    }
    if (!requirements_met && !has_offering) {
      return "no instance type met the scheduling requirements or had a required offering";
    }
    if (!fits && !has_offering) {
      return "no instance type had enough resources or had a required offering";
    }
    if (!requirements_met) return "no instance type met all requirements";
    if (!fits) return "no instance type has enough resources";
    if (!has_offering) return "no instance type has the required offering";
    if (requirements_and_fits) {
      return "no instance type which met the scheduling requirements and had enough resources, had "
             "a required offering";
    }
    if (fits_and_offering) {
      return "no instance type which had enough resources and the required offering met the "
             "scheduling requirements";
    }
    if (requirements_and_offering) {
      return "no instance type which met the scheduling requirements and the required offering had "
             "the required resources";
    }
    return "no instance type met the requirements/resources/offering tuple";
  }
};

class Packer {
 public:
  Packer(std::vector<PackingNode> nodes, std::vector<PackingPool> pools,
         const std::vector<InstanceType>& types, const IsOffered& is_offered)
      : nodes_(std::move(nodes)), is_offered_(is_offered) {
    for (const InstanceType& type : types) {
      facts_[&type] = {RequirementsOf(type), type.Allocatable()};
    }
    for (PackingPool& pool : pools) {
      std::string reason;
      std::vector<const InstanceType*> all;
      for (const InstanceType& type : types) all.push_back(&type);
      std::vector<const InstanceType*> usable =
          FilterTypes(all, pool.requirements, {}, {}, {}, &reason);
      if (!usable.empty()) templates_.push_back({std::move(pool), std::move(usable)});
    }
  }

  PackingResult Run(const std::vector<PackingPod>& pods) {
    std::vector<const PackingPod*> order;
    for (const PackingPod& pod : pods) order.push_back(&pod);
    std::sort(order.begin(), order.end(), [](const PackingPod* a, const PackingPod* b) {
      int64_t a_cpu = a->spec->requests.Get(kCpu), b_cpu = b->spec->requests.Get(kCpu);
      if (a_cpu != b_cpu) return a_cpu > b_cpu;
      int64_t a_memory = a->spec->requests.Get(kMemory);
      int64_t b_memory = b->spec->requests.Get(kMemory);
      if (a_memory != b_memory) return a_memory > b_memory;
      return std::tie(a->created, a->uid) < std::tie(b->created, b->uid);
    });
    for (const PackingPod* pod : order) Place(*pod);
    for (PlannedClaim& claim : result_.claims) SortByPrice(&claim);
    return std::move(result_);
  }

 private:
  struct TypeFacts {
    LabelRequirements requirements;
    ResourceList allocatable;
  };
  struct Template {
    PackingPool pool;
    std::vector<const InstanceType*> types;
  };

  void Place(const PackingPod& pod) {
    std::string reason;
    for (const Reading& reading : ReadingsOf(*pod.spec, /*strict=*/false)) {
      if (PlaceOnNode(pod, reading) || PlaceOnClaim(pod, reading)) return;
      if (templates_.empty()) {
        reason = "nodepool requirements filtered out all available instance types";
        break;
      }
      reason = PlaceOnNewClaim(pod, reading);
      if (reason.empty()) return;
    }
    result_.failures.emplace_back(&pod, std::move(reason));
  }

  bool PlaceOnNode(const PackingPod& pod, const Reading& reading) {
    for (PackingNode& node : nodes_) {
      if (!node.free.Covers(pod.spec->requests)) continue;
      if (!WhyNotTolerated(*pod.spec, reading, node.taints).empty()) continue;
      if (!node.labels.WhyIncompatible(reading.requirements, false).empty()) continue;
      if (!node.free.Subtract(pod.spec->requests).ok()) continue;
      result_.on_nodes[node.name].push_back(&pod);
      return true;
    }
    return false;
  }

  bool PlaceOnClaim(const PackingPod& pod, const Reading& reading) {
    // The emptiest first, as Karpenter has it.
    std::vector<size_t> order(result_.claims.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return result_.claims[a].pods.size() < result_.claims[b].pods.size();
    });
    for (size_t i : order) {
      PlannedClaim& claim = result_.claims[i];
      if (TryAdd(pod, reading, *claim_templates_[i], &claim).empty()) return true;
    }
    return false;
  }

  // Empty on success.
  std::string PlaceOnNewClaim(const PackingPod& pod, const Reading& reading) {
    std::vector<std::string> reasons;
    for (Template& candidate : templates_) {
      PackingPool& pool = candidate.pool;
      PlannedClaim claim;
      claim.pool = pool.name;
      claim.requirements = pool.requirements;
      claim.requests = pool.daemon_requests;
      claim.types = WithinLimits(candidate);
      if (claim.types.empty()) {
        reasons.push_back(fmt::format(
            "all available instance types exceed limits for nodepool (NodePool={})", pool.name));
        continue;
      }
      std::string reason = TryAdd(pod, reading, candidate, &claim);
      if (!reason.empty()) {
        reasons.push_back(std::move(reason));
        continue;
      }
      ChargeLimits(claim.types, &pool);
      result_.claims.push_back(std::move(claim));
      claim_templates_.push_back(&candidate);
      return "";
    }
    return fmt::format("{}", fmt::join(reasons, "; "));
  }

  std::string TryAdd(const PackingPod& pod, const Reading& reading, const Template& from,
                     PlannedClaim* claim) const {
    std::string reason = WhyNotTolerated(*pod.spec, reading, from.pool.taints);
    if (!reason.empty()) return reason;
    reason = claim->requirements.WhyIncompatible(reading.requirements, true);
    if (!reason.empty()) return "incompatible requirements, " + reason;
    LabelRequirements requirements = claim->requirements;
    requirements.Add(reading.requirements);
    ResourceList requests = claim->requests;
    if (absl::Status added = requests.Add(pod.spec->requests); !added.ok()) {
      return std::string(added.message());
    }
    std::vector<const InstanceType*> types =
        FilterTypes(claim->types, requirements, pod.spec->requests, from.pool.daemon_requests,
                    requests, &reason);
    if (types.empty()) return reason;
    claim->requirements = std::move(requirements);
    claim->requests = std::move(requests);
    claim->types = std::move(types);
    claim->pods.push_back(&pod);
    return "";
  }

  std::vector<const InstanceType*> FilterTypes(const std::vector<const InstanceType*>& types,
                                               const LabelRequirements& requirements,
                                               const ResourceList& pod_requests,
                                               const ResourceList& daemon_requests,
                                               const ResourceList& total,
                                               std::string* reason) const {
    TypeFilter filter;
    std::vector<const InstanceType*> kept;
    for (const InstanceType* type : types) {
      const TypeFacts& facts = facts_.at(type);
      bool meets = requirements.WhyDisjoint(facts.requirements).empty();
      bool fits = facts.allocatable.Covers(total);
      bool offered = std::any_of(
          type->offerings.begin(), type->offerings.end(), [&](const Offering& offering) {
            return is_offered_(*type, offering) &&
                   requirements.Allows("topology.kubernetes.io/zone", offering.zone) &&
                   requirements.Allows("karpenter.sh/capacity-type", offering.capacity_type);
          });
      filter.Count(meets, fits, offered);
      if (meets && fits && offered) kept.push_back(type);
    }
    if (kept.empty()) {
      ResourceList asked = daemon_requests;
      asked.Add(pod_requests).IgnoreError();  // for the message; an overflow was caught before
      *reason = fmt::format("{}, requirements={}, resources={}", filter.Text(),
                            requirements.ToString(), ResourcesText(asked));
    }
    return kept;
  }

  static std::vector<const InstanceType*> WithinLimits(const Template& candidate) {
    if (!candidate.pool.remaining) return candidate.types;
    std::vector<const InstanceType*> kept;
    for (const InstanceType* type : candidate.types) {
      const auto& limits = candidate.pool.remaining->entries();
      bool exceeds = std::any_of(limits.begin(), limits.end(), [&](const auto& limit) {
        return type->capacity.Get(limit.first) > limit.second;
      });
      if (!exceeds) kept.push_back(type);
    }
    return kept;
  }

  // Counts the largest type that the claim might become.
  static void ChargeLimits(const std::vector<const InstanceType*>& types, PackingPool* pool) {
    if (!pool->remaining) return;
    ResourceList largest;
    for (const InstanceType* type : types) largest.Max(type->capacity);
    const ResourceList limits = *pool->remaining;
    for (const auto& [name, limit] : limits.entries()) {
      pool->remaining->Set(name, limit - largest.Get(name));
    }
  }

  void SortByPrice(PlannedClaim* claim) const {
    auto price = [&](const InstanceType* type) {
      int64_t cheapest = std::numeric_limits<int64_t>::max();
      for (const Offering& offering : type->offerings) {
        if (!is_offered_(*type, offering)) continue;
        if (!claim->requirements.Allows("topology.kubernetes.io/zone", offering.zone)) continue;
        if (!claim->requirements.Allows("karpenter.sh/capacity-type", offering.capacity_type)) {
          continue;
        }
        cheapest = std::min(cheapest, offering.price);
      }
      return cheapest;
    };
    std::stable_sort(
        claim->types.begin(), claim->types.end(),
        [&](const InstanceType* a, const InstanceType* b) { return price(a) < price(b); });
  }

  std::vector<PackingNode> nodes_;
  std::vector<Template> templates_;
  std::vector<const Template*> claim_templates_;  // of result_.claims
  std::map<const InstanceType*, TypeFacts> facts_;
  const IsOffered& is_offered_;
  PackingResult result_;
};

}  // namespace

PackingResult Pack(const std::vector<PackingPod>& pods, std::vector<PackingNode> nodes,
                   std::vector<PackingPool> pools, const std::vector<InstanceType>& types,
                   const IsOffered& is_offered) {
  return Packer(std::move(nodes), std::move(pools), types, is_offered).Run(pods);
}

bool CanRunOn(const PodSpec& spec, const LabelRequirements& labels,
              const std::vector<Taint>& taints, bool allow_unknown_well_known) {
  for (Reading reading : ReadingsOf(spec, /*strict=*/true)) {
    reading.tolerates_prefer_no_schedule = true;
    if (!WhyNotTolerated(spec, reading, taints).empty()) continue;
    if (labels.WhyIncompatible(reading.requirements, allow_unknown_well_known).empty()) return true;
  }
  return false;
}

}  // namespace muster::kube::simulators
