#include "coscheduling/provisioning/holds.h"

#include <algorithm>
#include <utility>

#include "kube/objects/well_known.h"

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

void NodeHolds::Observe(const cluster::Journal& journal) {
  for (const auto& [name, entry] : journal.nodes) {
    if (!entry.observed.HasAny(cluster::kOfObjects)) continue;
    const kube::Node* node = snapshot_.FindNodeObject(name);
    const bool marked = node != nullptr && kube::HasHoldMarks(node->meta.annotations);
    kube::Holds now = marked ? kube::ReadHolds(node->meta.annotations) : kube::Holds();
    const auto before = seen_.find(name);
    if (before != seen_.end()) {
      for (const auto& [uid, until] : before->second) {
        const auto naming = naming_.find(uid);
        naming->second.erase(name);
        if (naming->second.empty()) naming_.erase(naming);
      }
      seen_.erase(before);
    }
    if (marked || wanted_.contains(name)) touched_.insert(name);
    if (now.empty()) continue;
    for (const auto& [uid, until] : now) naming_[uid].insert(name);
    seen_[name] = std::move(now);
  }
}

kube::Holds NodeHolds::On(const std::string& node) const {
  const auto it = seen_.find(node);
  return it == seen_.end() ? kube::Holds() : it->second;
}

void NodeHolds::Want(const Gang& gang, bool undecided) {
  const Places& places = placement_.Of(gang);
  const AdmissionRecord* record = records_.Of(gang);
  const std::string uid = gang.uid();
  const bool placed = !places.fixed.empty() || !places.tentative.empty();
  if (record == nullptr || uid.empty() || (!placed && !undecided)) {
    Forget(gang.id);
    return;
  }
  Wanted wanted = {uid, {}};
  if (undecided) {
    if (const auto naming = naming_.find(uid); naming != naming_.end()) {
      for (const std::string& node : naming->second) {
        wanted.nodes[node] = seen_.at(node).at(uid);
      }
    }
  }
  if (placed) {
    const absl::Time now = agenda_->now();
    absl::Time until = record->deadline + kHoldMargin;
    if (gang.state != v1::PROVISIONING) {
      const int64_t steps = (now - gang.state_since) / kReadyHold + 1;
      until = std::max(until, gang.state_since + kReadyHold * steps);
      agenda_->NoteAt(gang.id, gang.state_since + kReadyHold * steps);
    }
    const absl::Time hold_from = gang.state == v1::READY ? gang.state_since + kQuickBind : now;
    if (now < hold_from) agenda_->NoteAt(gang.id, hold_from);
    for (const PlaceMap* some : {&places.fixed, &places.tentative}) {
      for (const auto& [pod, place] : *some) {
        const kube::Node* node = snapshot_.FindNodeObject(place);
        if (node == nullptr || node->meta.Label(kube::kNodePoolLabel) == nullptr) continue;
        const auto seen = seen_.find(node->meta.name);
        const bool held = seen != seen_.end() && seen->second.contains(uid);
        if (now < hold_from && !held) continue;
        wanted.nodes[node->meta.name] = until;
      }
    }
  }
  Replace(gang.id, std::move(wanted));
}

void NodeHolds::Replace(GangId gang, Wanted wanted) {
  Wanted& before = of_gang_[gang];
  if (before.uid == wanted.uid && before.nodes == wanted.nodes) return;
  for (const auto& [node, until] : before.nodes) {
    const auto holds = wanted_.find(node);
    holds->second.erase(before.uid);
    if (holds->second.empty()) wanted_.erase(holds);
    touched_.insert(node);
  }
  for (const auto& [node, until] : wanted.nodes) {
    wanted_[node][wanted.uid] = until;
    touched_.insert(node);
  }
  before = std::move(wanted);
}

void NodeHolds::Forget(GangId gang) {
  Replace(gang, {});
  of_gang_.erase(gang);
}

void NodeHolds::Reconcile() {
  for (auto it = touched_.begin(); it != touched_.end();) {
    const std::string name = *it;
    const kube::Node* node = snapshot_.FindNodeObject(name);
    const auto wanted = wanted_.find(name);
    if (node == nullptr) {
      it = touched_.erase(it);
      continue;
    }
    auto change = kube::ChangeHolds(node->meta.annotations,
                                    wanted == wanted_.end() ? kube::Holds() : wanted->second);
    // What was asked for may come to nothing, so it is looked at again when that has ended.
    const bool done =
        change.empty() ||
        outbox_->Act("node/" + name,
                     AnnotateNode{name, node->meta.resource_version, std::move(change)},
                     [this, name](const absl::Status&, absl::Time) { touched_.insert(name); });
    it = done ? touched_.erase(it) : std::next(it);
  }
}

}  // namespace muster::coscheduling
