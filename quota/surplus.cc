#include "quota/surplus.h"

#include <algorithm>
#include <optional>

#include "quota/borrowing.h"

namespace muster::quota {
namespace {

const PodSetAssignment* FindNamed(const Admission& admission, const std::string& name) {
  for (const auto* all : {&admission.pod_sets, &admission.surplus}) {
    for (const PodSetAssignment& each : *all) {
      if (each.name == name) return &each;
    }
  }
  return nullptr;
}

// One pod set: the pair that each of its requests is counted in.
class FlavorsOfPodSet {
 public:
  FlavorsOfPodSet(Ledger& ledger, const PodSetDemand& demand, const AssignmentRequest& request,
                  int index)
      : ledger_(ledger), demand_(demand), request_(request), index_(index) {}

  std::vector<FlavorRefusal> refusals;

  // Those that the gang has; no value if it may not have one of them any more.
  std::optional<std::vector<Assignment::Choice>> Like(const PodSetAssignment& like) {
    const QueueConfig& queue = ledger_.layout().queue(request_.queue);
    std::vector<Assignment::Choice> choices;
    for (const GroupDemand& group : demand_.groups) {
      auto name = like.flavors.find(ledger_.names().ResourceName(group.requests.front().resource));
      if (name == like.flavors.end()) return std::nullopt;
      const auto& flavors = queue.groups[static_cast<size_t>(group.group)].flavors;
      auto flavor = std::find_if(flavors.begin(), flavors.end(), [&](const GroupFlavor& each) {
        return ledger_.names().FlavorName(each.flavor) == name->second;
      });
      if (flavor == flavors.end() || !IsPlaceable(*flavor)) return std::nullopt;
      for (const GroupDemand::Request& each : group.requests) {
        choices.push_back({.resource = each.resource,
                           .flavor = flavor->flavor,
                           .pair = flavor->pairs[static_cast<size_t>(each.position)],
                           .amount = each.each});
      }
    }
    return choices;
  }

  // Those that one more pod would get.
  std::optional<std::vector<Assignment::Choice>> Assign() {
    Demand one;
    one.pod_sets.push_back(demand_);
    for (GroupDemand& group : one.pod_sets.front().groups) {
      for (GroupDemand::Request& each : group.requests) each.amount = each.each;
    }
    AssignmentRequest request = request_;
    request.demand = &one;
    if (request_.placeable) {
      request.placeable = [this](int, const GroupFlavor& flavor) -> const std::string& {
        return request_.placeable(index_, flavor);
      };
    }
    Assignment assignment = AssignFlavors(ledger_, request);
    if (assignment.mode == AssignmentMode::kFit) return assignment.choices;
    refusals = std::move(assignment.refusals);
    return std::nullopt;
  }

 private:
  bool IsPlaceable(const GroupFlavor& flavor) {
    if (!request_.placeable) return true;
    const std::string& why_not = request_.placeable(index_, flavor);
    if (why_not.empty()) return true;
    refusals.push_back(
        {.kind = FlavorRefusal::Kind::kNotPlaceable, .flavor = flavor.flavor, .detail = why_not});
    return false;
  }

  Ledger& ledger_;
  const PodSetDemand& demand_;
  const AssignmentRequest& request_;
  const int index_;
};

PairAmount& Of(std::vector<PairAmount>& all, int pair) {
  auto it = std::find_if(all.begin(), all.end(),
                         [&](const PairAmount& each) { return each.pair == pair; });
  return it != all.end() ? *it : all.emplace_back(PairAmount{pair, 0});
}

// The most pods, up to `count`, of which each takes `choices`.
int64_t HowMany(const Ledger& ledger, int node, const std::vector<Assignment::Choice>& choices,
                int64_t count, const std::vector<PairAmount>* unadmitted,
                std::vector<PairAmount>& usage, std::vector<FlavorRefusal>& refusals) {
  for (const Assignment::Choice& each : choices) {
    if (each.amount <= 0) continue;
    const Amount beside = unadmitted == nullptr ? 0 : AmountOf(*unadmitted, each.pair);
    const Amount free =
        ledger.tree().Available(node, each.pair) - Of(usage, each.pair).amount - beside;
    const Amount countable = std::clamp(free, Amount(0), Amount(kBeyondAnyQuota - 1));
    const int64_t room = Saturate(countable / each.amount);
    if (room < count) {
      refusals.push_back({.kind = FlavorRefusal::Kind::kInUse,
                          .flavor = each.flavor,
                          .resource = each.resource,
                          .wanted = SaturatingProduct(each.amount, count),
                          .limit = Saturate(std::max(Amount(0), free))});
    }
    count = std::min(count, room);
  }
  return count;
}

}  // namespace

std::vector<PodSet> UncountedSurplus(const Workload& workload, const Admission& admission) {
  std::vector<PodSet> asked = workload.surplus;
  for (const PodSetAssignment& counted : admission.surplus) {
    int64_t rest = counted.count;
    for (PodSet& each : asked) {
      if (each.name != counted.name) continue;
      const int64_t taken = std::min(rest, each.count);
      each.count -= taken;
      rest -= taken;
    }
  }
  std::erase_if(asked, [](const PodSet& each) { return each.count <= 0; });
  return asked;
}

SurplusGrant FitSurplus(Ledger& ledger, const Reservation& reservation,
                        const std::vector<PodSet>& asked, const Demand& demand,
                        const AssignmentRequest& request) {
  SurplusGrant grant;
  const int node = ledger.layout().queue(request.queue).node;
  for (size_t i = 0; i < asked.size(); ++i) {
    FlavorsOfPodSet flavors(ledger, demand.pod_sets[i], request, static_cast<int>(i));
    const PodSetAssignment* like = FindNamed(*reservation.admission, asked[i].name);
    const auto choices = like != nullptr ? flavors.Like(*like) : flavors.Assign();
    grant.refusals.insert(grant.refusals.end(), flavors.refusals.begin(), flavors.refusals.end());
    if (!choices) continue;
    const int64_t count = HowMany(ledger, node, *choices, asked[i].count, request.unadmitted,
                                  grant.usage, grant.refusals);
    if (count == 0) continue;
    PodSetAssignment& made = grant.pod_sets.emplace_back();
    made.name = asked[i].name;
    made.count = count;
    for (const Assignment::Choice& each : *choices) {
      const int64_t amount = SaturatingProduct(each.amount, count);
      const std::string& resource = ledger.names().ResourceName(each.resource);
      made.flavors[resource] = ledger.names().FlavorName(each.flavor);
      made.usage.Set(resource, amount);
      PairAmount& total = Of(grant.usage, each.pair);
      total.amount = Saturate(Amount(total.amount) + Amount(amount));
      const Reach reach = FindReach(ledger.tree(), node, each.pair, total.amount);
      grant.borrowing = std::max(grant.borrowing, reach.height);
    }
  }
  return grant;
}

}  // namespace muster::quota
