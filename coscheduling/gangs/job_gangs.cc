#include "coscheduling/gangs/job_gangs.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "kube/objects/kueue_pod_group.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

constexpr int64_t kMaxMinMember = std::numeric_limits<int32_t>::max();
constexpr size_t kSpareNameDigits = 8;

// A StatefulSet is a gang if it asks for that, any other job unless it asks not to be.
bool WantsGang(const kube::AnyJob& job) {
  const std::string* value = job.Annotation(kGangAnnotation);
  if (job.kind == kube::kStatefulSetKind) return value != nullptr && *value == "true";
  return value == nullptr || *value != "false";
}

}  // namespace

std::optional<DerivedGang> KueueGroupOf(const kube::Pod& pod) {
  const std::optional<kube::KueuePodGroup> group = kube::KueuePodGroupOf(pod);
  if (!group) return std::nullopt;
  DerivedGang gang;
  gang.name = group->name;
  gang.spare_name = group->name + "-pods";
  gang.maker = fmt::format("pod group {}/{}", pod.meta.name_space, group->name);
  gang.at_once = gang.min_member = group->total;
  gang.fault = group->fault;
  return gang;
}

std::vector<kube::NamespacedUid> JobGangs::Upsert(kube::AnyJob job) {
  for (const kube::AnyJob::Part& part : job.parts) {
    if (part.fewest <= kMaxMinMember || !job.fault.empty()) continue;
    job.fault =
        fmt::format("it makes {} pods at once, a gang has at most {}", part.fewest, kMaxMinMember);
  }
  if (!known_.Changes(job)) return {};
  std::vector<kube::NamespacedUid> affected;
  if (const kube::AnyJob* before = known_.Find(job.uid)) {
    AddContenders(*before, &affected);
    Release(*before);
  }
  Claim(job);
  AddContenders(job, &affected);
  const kube::NamespacedUid key = job.Key();
  known_.Put(std::move(job));
  AddFamily(key, &affected);
  return affected;
}

std::vector<kube::NamespacedUid> JobGangs::Remove(const std::string& uid) {
  const kube::AnyJob* job = known_.Find(uid);
  if (job == nullptr) return {};
  std::vector<kube::NamespacedUid> affected;
  const kube::NamespacedUid key = job->Key();
  AddContenders(*job, &affected);
  Release(*job);
  known_.Erase(uid);
  AddFamily(key, &affected);
  return affected;
}

void JobGangs::Claim(const kube::AnyJob& job) {
  if (!WantsGang(job) || (job.kind == kube::kJobKind && job.parent)) return;
  for (const kube::AnyJob::Part& part : job.parts) {
    if (part.fewest > 1 || job.parts.size() > 1) {
      claims_[job.name_space + "/" + part.name].insert({job.created, job.uid});
    }
  }
}

void JobGangs::Release(const kube::AnyJob& job) {
  for (const kube::AnyJob::Part& part : job.parts) {
    auto claim = claims_.find(job.name_space + "/" + part.name);
    if (claim == claims_.end()) continue;
    claim->second.erase({job.created, job.uid});
    if (claim->second.empty()) claims_.erase(claim);
  }
}

void JobGangs::AddFamily(const kube::NamespacedUid& owner,
                         std::vector<kube::NamespacedUid>* out) const {
  std::ranges::copy(known_.Family(owner), std::back_inserter(*out));
}

void JobGangs::AddContenders(const kube::AnyJob& job, std::vector<kube::NamespacedUid>* out) const {
  for (const kube::AnyJob::Part& part : job.parts) {
    auto claim = claims_.find(job.name_space + "/" + part.name);
    if (claim == claims_.end()) continue;
    for (const auto& [created, uid] : claim->second) {
      if (uid != job.uid) AddFamily({job.name_space, uid}, out);
    }
  }
}

bool JobGangs::IsClaimed(const std::string& name_space, const std::string& name) const {
  return claims_.contains(name_space + "/" + name);
}

JobGangs::Chain JobGangs::ChainOf(const kube::Pod& pod) const {
  Chain chain;
  const kube::OwnerReference* owner = pod.meta.Controller();
  if (owner == nullptr || kube::MakesSinglePods(*owner)) return chain;
  if (!kube::IsAnyJob(*owner)) {
    const std::string* says = pod.meta.Annotation(kGangAnnotation);
    if (says == nullptr || *says != "false") chain.missing = owner;
    return chain;
  }
  return known_.ChainFrom(pod.meta.name_space, owner);
}

const kube::AnyJob& JobGangs::MakerOf(const Chain& chain) {
  const auto maker = std::find_if(chain.known.rbegin(), chain.known.rend(),
                                  [](const kube::AnyJob* job) { return !job->parts.empty(); });
  return maker == chain.known.rend() ? *chain.known.front() : **maker;
}

std::string JobGangs::ReplicatedJobOf(const kube::Pod& pod, const kube::AnyJob& innermost) {
  const std::string* label = pod.meta.Label(kube::kReplicatedJobLabel);
  return label == nullptr ? innermost.replicated_job : *label;
}

const kube::AnyJob::Part* JobGangs::PartOf(const kube::AnyJob& maker,
                                           const std::string& replicated_job) {
  if (maker.kind != kube::kJobSetKind && maker.kind != kube::kMPIJobKind) {
    return maker.parts.empty() ? nullptr : &maker.parts.front();
  }
  const auto part = std::ranges::find_if(maker.parts, [&](const kube::AnyJob::Part& candidate) {
    return std::ranges::count(candidate.replicated_jobs, replicated_job) > 0;
  });
  return part == maker.parts.end() ? nullptr : &*part;
}

std::set<kube::NamespacedUid> JobGangs::MakersOf(const std::vector<const kube::Pod*>& pods) const {
  std::set<kube::NamespacedUid> makers;
  std::set<const kube::AnyJob::Part*> seen;
  for (const kube::Pod* pod : pods) {
    const kube::NamespacedUid owner = pod->meta.ControllerUid();
    if (owner.uid.empty()) continue;
    makers.insert(owner);
    const Chain chain = ChainOf(*pod);
    if (chain.known.empty()) continue;
    const kube::AnyJob& maker = MakerOf(chain);
    makers.insert(maker.Key());
    const kube::AnyJob::Part* part = PartOf(maker, ReplicatedJobOf(*pod, *chain.known.front()));
    const std::set<std::string>* jobs = known_.ChildrenOf(maker.Key());
    if (part == nullptr || jobs == nullptr || !seen.insert(part).second) continue;
    for (const std::string& uid : *jobs) {
      const std::string& replicated_job = known_.Find(uid)->replicated_job;
      if (std::ranges::count(part->replicated_jobs, replicated_job) > 0) {
        makers.insert({owner.name_space, uid});
      }
    }
  }
  return makers;
}

Derivation JobGangs::Derive(const kube::Pod& pod) const {
  const Chain chain = ChainOf(pod);
  if (chain.missing != nullptr) return {std::nullopt, *chain.missing};
  if (chain.known.empty()) return {};
  const kube::AnyJob& maker = MakerOf(chain);
  if (maker.parts.empty()) return {};
  const std::string replicated = ReplicatedJobOf(pod, *chain.known.front());
  DerivedGang gang = Describe(chain, maker, PartOf(maker, replicated), replicated);
  if (gang.spare_name.empty()) {
    gang.fault = fmt::format("{} has no replicated job \"{}\", which {} names", gang.maker,
                             replicated, pod.meta.name);
  }
  return {gang, std::nullopt};
}

DerivedGang JobGangs::DeriveFromSpec(const kube::AnyJob& maker) const {
  const kube::AnyJob::Part& first = maker.parts.front();
  const std::string of = first.replicated_jobs.empty() ? "" : first.replicated_jobs.front();
  return Describe(known_.ChainOf(maker), maker, &first, of);
}

// Without a part nothing but its name is known.
DerivedGang JobGangs::Describe(const Chain& chain, const kube::AnyJob& maker,
                               const kube::AnyJob::Part* part,
                               const std::string& replicated) const {
  const kube::AnyJob& outermost =
      chain.known.back()->kind == kube::kRayJobKind ? maker : *chain.known.back();
  DerivedGang gang;
  gang.maker = maker.Title();
  gang.maker_uid = maker.uid;
  gang.is_whole = maker.parts.size() == 1;
  gang.is_stage = part != nullptr && maker.HasStages();
  gang.owner = {std::string(outermost.api_version), std::string(outermost.kind), outermost.name,
                outermost.uid, /*controller=*/true};
  gang.schedule_timeout_seconds = maker.schedule_timeout_seconds;
  gang.suspended = std::ranges::any_of(chain.known, &kube::AnyJob::suspended);
  gang.one_by_one = maker.one_by_one;
  for (const kube::AnyJob* job : chain.known) {
    gang.wanted &= WantsGang(*job);
    if (job->fault.empty() || !gang.fault.empty()) continue;
    gang.fault = fmt::format("{}: {}", job->Title(), job->fault);
  }
  if (maker.parts.size() > 1) gang.maker += fmt::format(" ({})", replicated);
  gang.name = part == nullptr ? maker.name : part->name;
  if (part == nullptr) return gang;
  gang.spare_name = fmt::format("{}-{}", part->name, maker.uid.substr(0, kSpareNameDigits));
  gang.at_once = part->at_once;
  gang.min_member = part->fewest;
  gang.schedulers = part->schedulers;
  const auto claim = claims_.find(maker.name_space + "/" + part->name);
  gang.contested = claim != claims_.end() && claim->second.begin()->second != maker.uid;
  return gang;
}

const kube::AnyJob* JobGangs::OutermostOf(const kube::Pod& pod) const {
  const auto [chain, missing] = ChainOf(pod);
  return missing != nullptr || chain.empty() ? nullptr : chain.back();
}

}  // namespace muster::coscheduling
