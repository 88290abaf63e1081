#include "coscheduling/commit/repair.h"

#include <algorithm>
#include <utility>

#include "cluster/node_faults.h"
#include "fmt/format.h"
#include "kube/objects/excerpt.h"

namespace muster::coscheduling {
namespace {

// Of pods that are gone; more than that need not be told one by one.
constexpr size_t kRememberedLosses = 64;
// A pod may be seen bound before its node is seen at all.
constexpr absl::Duration kUnseenNode = absl::Seconds(5);
// Losses that a reason tells.
constexpr size_t kShownLosses = 3;

// What became of a member that ended or is being deleted.
std::string EndText(const kube::Pod& pod) {
  const std::string where = fmt::format("{} on {}", pod.meta.name, pod.node_name);
  if (pod.phase != kube::PodPhase::kFailed) return where + " is being deleted";
  const std::string why = cluster::FailureText(pod);
  return where + " failed" + (why.empty() ? "" : ": " + why);
}

}  // namespace

std::string LossesText(const Losses& losses) {
  std::vector<std::string> texts;
  for (const auto& [uid, loss] : losses) {
    if (!loss.over) texts.push_back(loss.text);
  }
  std::ranges::sort(texts);
  return kube::FirstFew(texts, kShownLosses);
}

const cluster::NodeTrouble* Repair::TroubleOn(const std::string& node) const {
  const auto it = troubles_.find(node);
  return it == troubles_.end() ? nullptr : &it->second;
}

void Repair::Observe(const cluster::Journal& journal) {
  for (const auto& [name, entry] : journal.nodes) {
    if (entry.observed.HasAny(cluster::kOfObjects)) NoteTrouble(name);
  }
}

void Repair::NoteTrouble(const std::string& node) {
  const auto known = troubles_.find(node);
  std::optional<cluster::NodeTrouble> before;
  if (known != troubles_.end()) before = known->second;
  std::optional<cluster::NodeTrouble> trouble =
      cluster::TroubleOf(snapshot_.FindNode(node), before, agenda_->now(), options_.node_grace);
  // Of a node that is gone only the members are left.
  const bool exists = snapshot_.FindNodeObject(node) != nullptr;
  const std::vector<GangId> standing = gangs_.StandingOn(node);
  if (!exists && standing.empty()) trouble.reset();
  if (trouble == before) return;
  if (trouble) {
    troubles_.insert_or_assign(node, *std::move(trouble));
  } else {
    troubles_.erase(known);
  }
  for (GangId gang : standing) agenda_->Note(gang);
}

const cluster::NodeTrouble* Repair::FindTrouble(const std::string& node) {
  if (const cluster::NodeTrouble* known = TroubleOn(node)) return known;
  if (snapshot_.FindNodeObject(node) != nullptr) return nullptr;
  cluster::NodeTrouble gone =
      *cluster::TroubleOf(nullptr, std::nullopt, agenda_->now(), options_.node_grace);
  gone.lost_at += kUnseenNode;
  return &troubles_.emplace(node, std::move(gone)).first->second;
}

std::set<std::string> Repair::Find(const Gang& gang) {
  std::set<std::string> lost;
  Losses losses;
  Part& part = parts_[gang.id];
  for (const kube::Pod* pod : gangs_.PodsOf(gang)) {
    const std::string& uid = pod->meta.uid;
    if (!pod->IsBound() || pod->phase == kube::PodPhase::kSucceeded) continue;
    const auto before = part.losses.find(uid);
    if (pod->IsTerminal() || pod->IsDeleting()) {
      losses[uid] = before != part.losses.end() ? before->second : Loss{EndText(*pod)};
      continue;
    }
    const cluster::NodeTrouble* trouble = FindTrouble(pod->node_name);
    if (trouble == nullptr) continue;
    if (agenda_->now() < trouble->lost_at) {
      agenda_->NoteAt(gang.id, trouble->lost_at);
      continue;
    }
    lost.insert(uid);
    losses[uid] = {fmt::format("{} on {}, which {}", pod->meta.name, pod->node_name, trouble->what),
                   true};
  }
  for (const auto& [uid, loss] : part.losses) {
    if (!loss.over && snapshot_.FindPod(uid) == nullptr && losses.size() < kRememberedLosses) {
      losses.emplace(uid, loss);
    }
  }
  part.losses = std::move(losses);
  return lost;
}

void Repair::NoteRemoved(const Gang& gang, const kube::Pod& pod) {
  if (pod.IsBound() && pod.phase != kube::PodPhase::kSucceeded) {
    parts_[gang.id].losses.try_emplace(
        pod.meta.uid, Loss{fmt::format("{} on {} was deleted", pod.meta.name, pod.node_name)});
  }
  // Of a node that is gone nothing is kept once nobody is left there.
  const bool exists = snapshot_.FindNodeObject(pod.node_name) != nullptr;
  if (!exists && gangs_.StandingOn(pod.node_name).size() <= 1) troubles_.erase(pod.node_name);
}

void Repair::Follow(const Gang& gang, v1::GangState before) {
  Part& part = parts_[gang.id];
  if (gang.state != before) {
    part.repairing_since = Never();
    if (gang.state == v1::BOUND) {
      std::erase_if(part.losses,
                    [this](const auto& loss) { return snapshot_.FindPod(loss.first) == nullptr; });
      for (auto& [uid, loss] : part.losses) loss.over = true;
    }
  }
  if (gang.facts.bound == 0) {
    part.repairing_since = Never();  // nothing of it could hang
  } else if (gang.state == v1::REPAIRING && part.repairing_since == Never()) {
    // A process before this one may have noted it.
    const AdmissionRecord* record = records_.Of(gang);
    const bool noted = before == v1::GANG_STATE_UNSPECIFIED && record != nullptr;
    part.repairing_since =
        noted ? record->repairing_since.value_or(agenda_->now()) : agenda_->now();
  }
}

void Repair::Decide(const Gang& gang) {
  // Where nothing stands any more there is nothing that could hang.
  if (gang.state != v1::REPAIRING || gang.facts.bound == 0) return;
  const absl::Time due = DueOf(gang);
  if (agenda_->now() < due) {
    agenda_->NoteAt(gang.id, due);
    return;
  }
  const std::string why = fmt::format("{} of {} members of gang {} were left for {}",
                                      gang.facts.bound, gang.facts.min_member, gang.key.ToString(),
                                      absl::FormatDuration(options_.repair_deadline));
  if (restarts_->RestartWhole(gang, why)) return;
  for (const std::string& uid : gang.bound) {
    const kube::Pod* pod = snapshot_.FindPod(uid);
    const bool started = outbox_->Act(gang.id, "evict/" + uid, EvictPod{RefOf(*pod)});
    if (started && uid == gang.bound.front()) ++evicted_;
  }
}

// That a gang was whole, and with how many, is noted because one that loses members from then on is
// repaired, not committed; since when it is being repaired, so that a process that starts meanwhile
// doesn't begin to wait anew.
std::optional<AdmissionRecord> Repair::Remember(const Gang& gang) const {
  const AdmissionRecord* known = records_.OwnOf(gang);
  if (known == nullptr) return std::nullopt;
  AdmissionRecord record = *known;
  if (gang.state == v1::BOUND) {
    if (!record.bound_at) {
      record.bound_at = gang.state_since;
      record.identity = options_.identity;
    }
    record.whole_with = std::max(gang.facts.min_member, record.whole_with.value_or(0));
  }
  const bool waits = gang.state == v1::REPAIRING && gang.facts.bound_before && gang.facts.bound > 0;
  if (waits && !record.repairing_since) {
    record.repairing_since = parts_.Of(gang.id).repairing_since;
  } else if ((gang.state == v1::BOUND || gang.state == v1::REPAIRING) && !waits) {
    record.repairing_since.reset();
  }
  if (record == *known) return std::nullopt;
  return record;
}

}  // namespace muster::coscheduling
