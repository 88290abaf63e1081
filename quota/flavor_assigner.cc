#include "quota/flavor_assigner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "quota/borrowing.h"

namespace muster::quota {
namespace {

// Better ones are larger.
enum class Availability { kNone, kNoCandidates, kPreempt, kReclaim, kFit };

struct Grade {
  Availability availability = Availability::kFit;
  int borrowing = 0;
};

constexpr Grade kWorst = {Availability::kNone, std::numeric_limits<int>::max()};

AssignmentMode ModeOf(Availability availability) {
  if (availability == Availability::kFit) return AssignmentMode::kFit;
  return availability == Availability::kNone ? AssignmentMode::kNoFit : AssignmentMode::kPreempt;
}

bool IsBetter(const Grade& a, const Grade& b, const kube::FlavorFungibility& fungibility) {
  if (a.availability == Availability::kNone) return false;
  if (b.availability == Availability::kNone) return true;
  if (fungibility.preference == kube::FungibilityPreference::kPreemptionOverBorrowing) {
    // What can't be had at present is never better than what can.
    const bool a_helps = a.availability != Availability::kNoCandidates;
    const bool b_helps = b.availability != Availability::kNoCandidates;
    if (a_helps != b_helps) return a_helps;
    return std::pair(-a.borrowing, a.availability) > std::pair(-b.borrowing, b.availability);
  }
  return std::pair(a.availability, -a.borrowing) > std::pair(b.availability, -b.borrowing);
}

bool TriesNextFlavor(const Grade& grade, const kube::FlavorFungibility& fungibility) {
  using kube::FungibilityPolicy;
  switch (grade.availability) {
    case Availability::kNone:
    case Availability::kNoCandidates:
      return true;
    case Availability::kPreempt:
    case Availability::kReclaim:
      if (fungibility.when_can_preempt == FungibilityPolicy::kTryNextFlavor) return true;
      break;
    case Availability::kFit:
      break;
  }
  return grade.borrowing > 0 && fungibility.when_can_borrow == FungibilityPolicy::kTryNextFlavor;
}

class Assigner {
 public:
  Assigner(Ledger& ledger, const AssignmentRequest& request)
      : ledger_(ledger),
        request_(request),
        queue_(ledger.layout().queue(request.queue)),
        fungibility_(queue_.object->fungibility) {}

  Assignment Run() {
    const std::vector<PodSetDemand>& pod_sets = request_.demand->pod_sets;
    for (size_t i = 0; i < pod_sets.size(); ++i) {
      const size_t groups_before = result_.next_flavor.size();
      if (AssignPodSet(static_cast<int>(i), pod_sets[i])) continue;
      result_.next_flavor.resize(groups_before);
      result_.mode = AssignmentMode::kNoFit;
      break;
    }
    if (result_.mode != AssignmentMode::kNoFit) result_.decisive = 0;
    return std::move(result_);
  }

 private:
  using Refusal = FlavorRefusal;

  // What was chosen for a group, as it is found.
  struct Found {
    Grade grade = kWorst;
    int flavor = -1;  // in the group's order
    int borrowing = 0;
    absl::InlinedVector<Grade, 4> grades;  // by request of the demand
  };

  bool AssignPodSet(int index, const PodSetDemand& demand) {
    pod_set_ = index;
    if (!demand.uncovered.empty()) result_.decisive = result_.refusals.size();
    for (int resource : demand.uncovered) {
      result_.refusals.push_back(
          {.kind = Refusal::Kind::kNotCovered, .pod_set = index, .resource = resource});
    }
    if (!demand.uncovered.empty()) return false;
    const auto first = static_cast<std::ptrdiff_t>(result_.choices.size());
    for (const GroupDemand& group : demand.groups) {
      const Found found = FindFlavor(group);
      if (found.flavor < 0) return false;
      result_.next_flavor.push_back(
          last_tried_ + 1 == FlavorsOf(group).size() ? 0 : static_cast<int>(last_tried_) + 1);
      for (size_t i = 0; i < group.requests.size(); ++i) {
        result_.choices.push_back(
            MakeChoice(group, group.requests[i], found.flavor, found.grades[i]));
      }
    }
    std::for_each(result_.choices.begin() + first, result_.choices.end(),
                  [&](const Assignment::Choice& each) { Count(each); });
    return true;
  }

  const std::vector<GroupFlavor>& FlavorsOf(const GroupDemand& group) const {
    return queue_.groups[static_cast<size_t>(group.group)].flavors;
  }

  Found FindFlavor(const GroupDemand& group) {
    Found best;
    result_.decisive = result_.refusals.size();
    const std::vector<GroupFlavor>& flavors = FlavorsOf(group);
    for (size_t f = FirstFlavor(); f < flavors.size(); ++f) {
      last_tried_ = f;
      if (!MayUse(group, flavors[f], f)) continue;
      Found found = GradeFlavor(group, flavors[f]);
      found.flavor = static_cast<int>(f);
      const bool is_enough = !TriesNextFlavor(found.grade, fungibility_);
      if (is_enough || IsBetter(found.grade, best.grade, fungibility_)) best = std::move(found);
      if (is_enough) break;
    }
    if (best.grade.availability == Availability::kFit) result_.refusals.resize(result_.decisive);
    return best;
  }

  size_t FirstFlavor() const {
    const size_t group = result_.next_flavor.size();
    if (request_.next_flavor == nullptr || group >= request_.next_flavor->size()) return 0;
    return static_cast<size_t>((*request_.next_flavor)[group]);
  }

  // What there must be for the request, beside what earlier pod sets got of the pair.
  int64_t Wanted(const GroupDemand::Request& request, int pair) const {
    const int64_t beside = request.amount == 0 ? 0 : Unadmitted(pair);
    return Saturate(Amount(AmountOf(result_.usage, pair)) + Amount(request.amount) +
                    Amount(beside));
  }

  int64_t Unadmitted(int pair) const {
    return request_.unadmitted == nullptr ? 0 : AmountOf(*request_.unadmitted, pair);
  }

  // Before quota is looked at in detail: may pods with this demand get this flavor at all?
  bool MayUse(const GroupDemand& group, const GroupFlavor& flavor, size_t index) {
    Refusal refusal = {
        .kind = Refusal::Kind::kMismatch, .pod_set = pod_set_, .flavor = flavor.flavor};
    if (!group.mismatches[index].empty()) {
      refusal.detail = group.mismatches[index];
      result_.refusals.push_back(std::move(refusal));
      return false;
    }
    for (const GroupDemand::Request& request : group.requests) {
      const int pair = flavor.pairs[static_cast<size_t>(request.position)];
      const int64_t wanted = Wanted(request, pair);
      const Amount most = ledger_.tree().PotentialAvailable(queue_.node, pair);
      if (Amount(wanted) <= most && wanted < kBeyondAnyQuota) continue;
      refusal.kind = Refusal::Kind::kTooSmall;
      refusal.resource = request.resource;
      refusal.wanted = wanted;
      refusal.unadmitted = Unadmitted(pair);
      refusal.limit = Saturate(most);
      result_.refusals.push_back(std::move(refusal));
      return false;
    }
    if (!request_.placeable) return true;
    const std::string& why_not = request_.placeable(pod_set_, flavor);
    if (why_not.empty()) return true;
    refusal.kind = Refusal::Kind::kNotPlaceable;
    refusal.detail = why_not;
    result_.refusals.push_back(std::move(refusal));
    return false;
  }

  Found GradeFlavor(const GroupDemand& group, const GroupFlavor& flavor) {
    Found found;
    found.grade = {Availability::kFit, 0};
    for (const GroupDemand::Request& request : group.requests) {
      const int pair = flavor.pairs[static_cast<size_t>(request.position)];
      const Grade grade = GradePair(request, flavor, pair);
      found.grades.push_back(grade);
      if (IsBetter(found.grade, grade, fungibility_)) found.grade = grade;
      if (found.grade.availability == Availability::kNone) break;
    }
    return found;
  }

  // `request` in this flavor, where there could be enough.
  Grade GradePair(const GroupDemand::Request& request, const GroupFlavor& flavor, int pair) {
    const QuotaTree& tree = ledger_.tree();
    const int64_t wanted = Wanted(request, pair);
    const Reach reach = FindReach(tree, queue_.node, pair, wanted);
    const Amount available = std::max(Amount(0), tree.Available(queue_.node, pair));
    if (Amount(wanted) <= available) return {Availability::kFit, reach.height};
    result_.refusals.push_back({.kind = Refusal::Kind::kInUse,
                                .pod_set = pod_set_,
                                .flavor = flavor.flavor,
                                .resource = request.resource,
                                .wanted = wanted,
                                .unadmitted = Unadmitted(pair),
                                .limit = Saturate(available)});
    const bool may_preempt = wanted <= tree.Nominal(queue_.node, pair) || reach.may_reclaim ||
                             MayPreemptWhileBorrowing();
    if (!may_preempt) return {Availability::kNone, reach.height};
    PreemptionRequest preemption = {.queue = request_.queue,
                                    .priority = request_.priority,
                                    .queued_at = request_.queued_at,
                                    .usage = {{pair, wanted}},
                                    .needed = {pair},
                                    .fair_sharing = request_.fair_sharing};
    const PreemptionOutlook outlook = ForeseePreemption(ledger_, std::move(preemption));
    switch (outlook.possible) {
      case Preemptability::kNoCandidates:
        return {Availability::kNoCandidates, outlook.borrowing};
      case Preemptability::kPreempt:
        return {Availability::kPreempt, outlook.borrowing};
      case Preemptability::kReclaim:
        return {Availability::kReclaim, outlook.borrowing};
    }
    return kWorst;
  }

  bool MayPreemptWhileBorrowing() const {
    const kube::PreemptionPolicy& policy = queue_.object->preemption;
    return policy.borrow_from_lower_priority ||
           (request_.fair_sharing && policy.reclaim_within_cohort != kube::ReclaimPolicy::kNever);
  }

  Assignment::Choice MakeChoice(const GroupDemand& group, const GroupDemand::Request& request,
                                int flavor, const Grade& grade) {
    const GroupFlavor& chosen = FlavorsOf(group)[static_cast<size_t>(flavor)];
    result_.borrowing = std::max(result_.borrowing, grade.borrowing);
    return {.pod_set = pod_set_,
            .resource = request.resource,
            .flavor = chosen.flavor,
            .pair = chosen.pairs[static_cast<size_t>(request.position)],
            .amount = request.amount,
            .mode = ModeOf(grade.availability)};
  }

  void Count(const Assignment::Choice& choice) {
    result_.mode = std::min(result_.mode, choice.mode);
    auto it = std::find_if(result_.usage.begin(), result_.usage.end(),
                           [&](const PairAmount& each) { return each.pair == choice.pair; });
    if (it == result_.usage.end()) {
      result_.usage.push_back({choice.pair, choice.amount});
    } else {
      it->amount = Saturate(Amount(it->amount) + Amount(choice.amount));
    }
    if (choice.mode == AssignmentMode::kPreempt &&
        std::find(result_.needed.begin(), result_.needed.end(), choice.pair) ==
            result_.needed.end()) {
      result_.needed.push_back(choice.pair);
    }
  }

  Ledger& ledger_;
  const AssignmentRequest& request_;
  const QueueConfig& queue_;
  const kube::FlavorFungibility& fungibility_;
  Assignment result_;
  int pod_set_ = 0;
  size_t last_tried_ = 0;  // of the last FindFlavor
};

}  // namespace

bool Assignment::HasUntriedFlavors() const {
  return std::any_of(next_flavor.begin(), next_flavor.end(), [](int next) { return next != 0; });
}

bool Assignment::IsRefusedFor(FlavorRefusal::Kind kind) const {
  return std::any_of(refusals.begin() + static_cast<std::ptrdiff_t>(decisive), refusals.end(),
                     [&](const FlavorRefusal& each) { return each.kind == kind; });
}

Assignment AssignFlavors(Ledger& ledger, const AssignmentRequest& request) {
  return Assigner(ledger, request).Run();
}

}  // namespace muster::quota
