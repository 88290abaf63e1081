// Gangs without pods, made from the specs of their jobs: a suspended job waits for quota before its
// pods exist, and those of one that got it are about to come.

#include <algorithm>

#include "coscheduling/gangs/gangs.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {

void Gangs::Await(const kube::NamespacedUid& job, bool awaited) {
  const bool changed = awaited ? awaited_.insert(job).second : awaited_.erase(job) > 0;
  if (changed) OwnersChanged(jobs_.known().Family(job));
}

// What the spec of this job says, if its pods are a gang of ours that is to exist before them.
std::optional<DerivedGang> Gangs::DerivedFromSpec(const std::string& uid) const {
  const kube::AnyJob* job = jobs_.Find(uid);
  if (options_.quota != QuotaMode::kInternal || job == nullptr || job->parts.empty() ||
      (job->kind == kube::kJobKind && job->parent)) {
    return std::nullopt;
  }
  const cluster::KnownJobs::Chain chain = jobs_.known().ChainOf(*job);
  const kube::AnyJob& outermost = *chain.known.back();
  const bool comes = outermost.suspended || awaited_.contains(outermost.Key());
  // What made it may have suspended it for reasons of its own.
  const bool is_others = !outermost.foreign_owner.empty() &&
                         cluster::KnownJobs::LabelOf(chain, kube::kQueueLabel).empty();
  if (chain.missing != nullptr || outermost.going || outermost.finished || !comes || is_others) {
    return std::nullopt;
  }
  DerivedGang gang = jobs_.DeriveFromSpec(*job);
  const bool ours = std::ranges::any_of(gang.schedulers, [this](const auto& each) {
    return each.scheduler_name == options_.scheduler_name;
  });
  return gang.wanted && ours && (gang.is_whole || gang.is_stage) ? std::optional(std::move(gang))
                                                                 : std::nullopt;
}

void Gangs::SyncSpec(const std::string& job) {
  const std::optional<DerivedGang> derived = DerivedFromSpec(job);
  Gang* gang = nullptr;
  if (derived) {
    const std::string& name_space = jobs_.Find(job)->name_space;
    gang = &GangFor({name_space, GroupNameOf(name_space, *derived), false});
    gang->spec_of = job;
    if (gang->pods.empty()) gang->derived = derived;
    agenda_->Note(gang->id);
  }
  const auto known = gang_of_spec_.find(job);
  const auto before = known == gang_of_spec_.end() ? by_id_.end() : by_id_.find(known->second);
  if (known != gang_of_spec_.end()) gang_of_spec_.erase(known);
  if (gang != nullptr) gang_of_spec_[job] = gang->id;
  if (before == by_id_.end() || before->second == gang || before->second->spec_of != job) return;
  Gang& former = *before->second;
  former.spec_of.clear();
  agenda_->Note(former.id);
  if (!former.pods.empty()) return;
  former.derived.reset();
  if (former.group == nullptr) Remove(former);
}

}  // namespace muster::coscheduling
