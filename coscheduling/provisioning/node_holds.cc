// Holds: every early node of a gang that waits is kept, and no other.

#include <algorithm>

#include "coscheduling/engine_state.h"
#include "coscheduling/provisioning/holds.h"

namespace muster::coscheduling {
namespace {

// Past the gang's deadline by as long as one round of giving up may take.
constexpr absl::Duration kHoldMargin = absl::Minutes(1);

// A gang that is READY or later may need its nodes past its deadline: in steps of this length.
constexpr absl::Duration kReadyHold = absl::Minutes(5);

// A gang that fits at once is bound before a hold could matter: nodes that aren't held yet are left
// alone for this long.
constexpr absl::Duration kQuickBind = absl::Seconds(1);

}  // namespace

std::string Engine::State::RealNodeOf(const std::string& place) const {
  const cluster::NodeInfo* info = snapshot.FindNode(place);
  return info == nullptr || info->object == nullptr ? "" : info->object->meta.name;
}

void Engine::State::KeepHolds(const std::string& uid, std::map<std::string, Holds>* want) const {
  for (const std::string& node : hold_candidates) {
    auto marks = node_marks.find(node);
    if (marks == node_marks.end()) continue;
    const Holds holds = ReadHolds(marks->second.annotations);
    if (auto hold = holds.find(uid); hold != holds.end()) (*want)[node][uid] = hold->second;
  }
}

std::map<std::string, Holds> Engine::State::WantedHolds(absl::Time now) {
  std::map<std::string, Holds> want;
  for (const auto& [key, gang] : gangs) {
    const bool placed = !gang.fixed.empty() || !gang.tentative.empty();
    if (!gang.record || (!placed && !IsUndecided(gang))) continue;
    const std::string uid = gang.uid();
    if (uid.empty()) continue;
    if (IsUndecided(gang)) KeepHolds(uid, &want);
    if (!placed) continue;
    absl::Time until = gang.record->deadline + kHoldMargin;
    if (gang.state != v1::PROVISIONING) {
      const int64_t steps = (now - gang.state_since) / kReadyHold + 1;
      until = std::max(until, gang.state_since + kReadyHold * steps);
      WakeAt(gang.state_since + kReadyHold * steps);
    }
    const absl::Time hold_from = gang.state == v1::READY ? gang.state_since + kQuickBind : now;
    if (now < hold_from) WakeAt(hold_from);
    for (const auto* places : {&gang.fixed, &gang.tentative}) {
      for (const auto& [pod, place] : *places) {
        const std::string node = RealNodeOf(place);
        auto marks = node_marks.find(node);
        if (marks == node_marks.end() || !marks->second.made_by_karpenter) continue;
        if (now < hold_from && !ReadHolds(marks->second.annotations).contains(uid)) continue;
        want[node][uid] = until;
        hold_candidates.insert(node);
      }
    }
  }
  return want;
}

void Engine::State::ReconcileHolds(absl::Time now) {
  const std::map<std::string, Holds> want = WantedHolds(now);
  for (auto it = hold_candidates.begin(); it != hold_candidates.end();) {
    auto marks = node_marks.find(*it);
    if (marks == node_marks.end()) {
      it = hold_candidates.erase(it);
      continue;
    }
    auto wanted = want.find(*it);
    auto change =
        ChangeHolds(marks->second.annotations, wanted == want.end() ? Holds{} : wanted->second);
    if (change.empty()) {
      it = wanted == want.end() && !HasHoldMarks(marks->second.annotations)
               ? hold_candidates.erase(it)
               : std::next(it);
      continue;
    }
    Act("node/" + *it, now, AnnotateNode{*it, marks->second.resource_version, std::move(change)});
    ++it;
  }
}

}  // namespace muster::coscheduling
