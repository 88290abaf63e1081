#include "coscheduling/gangs/job_gangs.h"

#include <algorithm>
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

// Nothing that anybody asks of it has changed.
bool SameButVersion(const kube::AnyJob& a, kube::AnyJob b) {
  b.resource_version = a.resource_version;
  b.generation = a.generation;
  return a == b;
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

// --- the known jobs ---

std::vector<std::string> JobGangs::Upsert(kube::AnyJob job) {
  for (const kube::AnyJob::Part& part : job.parts) {
    if (part.fewest <= kMaxMinMember || !job.fault.empty()) continue;
    job.fault =
        fmt::format("it makes {} pods at once, a gang has at most {}", part.fewest, kMaxMinMember);
  }
  std::vector<std::string> affected;
  const std::string uid = job.uid;
  if (auto it = jobs_.find(uid); it != jobs_.end()) {
    if (kube::IsOlderVersion(job.resource_version, it->second.resource_version)) return {};
    if (SameButVersion(it->second, job)) {
      it->second.resource_version = std::move(job.resource_version);
      it->second.generation = job.generation;
      return {};
    }
    Release(it->second, &affected);
  }
  Claim(job);
  if (job.annotations.contains(kRestartAnnotation)) restarting_.insert(uid);
  if (job.parent) children_[job.parent->uid].insert(uid);
  AddContenders(job, &affected);
  jobs_.insert_or_assign(uid, std::move(job));
  AddDescendants(uid, &affected);
  return affected;
}

std::vector<std::string> JobGangs::Remove(const std::string& uid) {
  auto it = jobs_.find(uid);
  if (it == jobs_.end()) return {};
  std::vector<std::string> affected;
  Release(it->second, &affected);
  jobs_.erase(it);
  AddDescendants(uid, &affected);
  return affected;
}

// --- names ---

void JobGangs::Claim(const kube::AnyJob& job) {
  if (!WantsGang(job) || (job.kind == kube::kJobKind && job.parent)) return;
  for (const kube::AnyJob::Part& part : job.parts) {
    if (part.fewest > 1) {
      claims_[job.name_space + "/" + part.name].insert({job.created, job.uid});
    }
  }
}

void JobGangs::Release(const kube::AnyJob& job, std::vector<std::string>* affected) {
  restarting_.erase(job.uid);
  AddContenders(job, affected);
  for (const kube::AnyJob::Part& part : job.parts) {
    auto claim = claims_.find(job.name_space + "/" + part.name);
    if (claim == claims_.end()) continue;
    claim->second.erase({job.created, job.uid});
    if (claim->second.empty()) claims_.erase(claim);
  }
  if (!job.parent) return;
  auto siblings = children_.find(job.parent->uid);
  if (siblings == children_.end()) return;
  siblings->second.erase(job.uid);
  if (siblings->second.empty()) children_.erase(siblings);
}

void JobGangs::AddContenders(const kube::AnyJob& job, std::vector<std::string>* out) const {
  for (const kube::AnyJob::Part& part : job.parts) {
    auto claim = claims_.find(job.name_space + "/" + part.name);
    if (claim == claims_.end()) continue;
    for (const auto& [created, uid] : claim->second) {
      if (uid != job.uid) AddDescendants(uid, out);
    }
  }
}

void JobGangs::AddDescendants(const std::string& uid, std::vector<std::string>* out,
                              int levels) const {
  out->push_back(uid);
  auto children = children_.find(uid);
  if (levels == 0 || children == children_.end()) return;
  for (const std::string& child : children->second) AddDescendants(child, out, levels - 1);
}

bool JobGangs::IsClaimed(const std::string& name_space, const std::string& name) const {
  return claims_.contains(name_space + "/" + name);
}

std::vector<std::string> JobGangs::Family(const std::string& uid) const {
  std::vector<std::string> uids;
  AddDescendants(uid, &uids);
  return uids;
}

std::vector<std::string> JobGangs::WholeFamily(const std::string& uid) const {
  auto job = jobs_.find(uid);
  while (job != jobs_.end() && job->second.parent) {
    const auto parent = jobs_.find(job->second.parent->uid);
    if (parent == jobs_.end() || parent->second.kind != job->second.parent->kind) break;
    job = parent;
  }
  return Family(job == jobs_.end() ? uid : job->first);
}

// --- a pod ---

JobGangs::Chain JobGangs::ChainOf(const kube::Pod& pod) const {
  Chain chain;
  const kube::OwnerReference* owner = pod.meta.Controller();
  const bool is_read = owner != nullptr && kube::IsAnyJob(*owner);
  while (owner != nullptr) {
    const kube::AnyJob* job = Find(*owner);
    if (job == nullptr) break;
    chain.known.push_back(job);
    owner = job->parent ? &*job->parent : nullptr;
  }
  if (is_read) chain.missing = owner;
  return chain;
}

// Owner references can name anything. That kinds agree keeps a chain from running in circles.
const kube::AnyJob* JobGangs::Find(const kube::OwnerReference& owner) const {
  auto it = jobs_.find(owner.uid);
  return it == jobs_.end() || it->second.kind != owner.kind ? nullptr : &it->second;
}

std::string JobGangs::ReplicatedJobOf(const kube::Pod& pod, const kube::AnyJob& innermost) {
  const std::string* label = pod.meta.Label(kube::kReplicatedJobLabel);
  return label == nullptr ? innermost.replicated_job : *label;
}

const kube::AnyJob::Part* JobGangs::PartOf(const kube::AnyJob& maker,
                                           const std::string& replicated_job) {
  if (maker.kind != kube::kJobSetKind) return maker.parts.empty() ? nullptr : &maker.parts.front();
  const auto part = std::ranges::find_if(maker.parts, [&](const kube::AnyJob::Part& candidate) {
    return std::ranges::count(candidate.replicated_jobs, replicated_job) > 0;
  });
  return part == maker.parts.end() ? nullptr : &*part;
}

std::set<std::string> JobGangs::MakersOf(const std::vector<const kube::Pod*>& pods) const {
  std::set<std::string> makers;
  std::set<const kube::AnyJob::Part*> seen;
  for (const kube::Pod* pod : pods) {
    const kube::OwnerReference* owner = pod->meta.Controller();
    if (owner == nullptr) continue;
    makers.insert(owner->uid);
    const auto chain = ChainOf(*pod).known;
    const auto set = std::ranges::find(chain, kube::kJobSetKind, &kube::AnyJob::kind);
    if (set == chain.end()) continue;
    const kube::AnyJob::Part* part = PartOf(**set, ReplicatedJobOf(*pod, *chain.front()));
    const auto jobs = children_.find((*set)->uid);
    if (part == nullptr || jobs == children_.end() || !seen.insert(part).second) continue;
    for (const std::string& uid : jobs->second) {
      const std::string& replicated_job = jobs_.at(uid).replicated_job;
      if (std::ranges::count(part->replicated_jobs, replicated_job) > 0) makers.insert(uid);
    }
  }
  return makers;
}

Derivation JobGangs::Derive(const kube::Pod& pod) const {
  const auto [chain, missing] = ChainOf(pod);
  if (missing != nullptr) return {std::nullopt, *missing};
  if (chain.empty()) return {};
  const auto set = std::ranges::find(chain, kube::kJobSetKind, &kube::AnyJob::kind);
  const kube::AnyJob& maker = set == chain.end() ? *chain.front() : **set;
  const kube::AnyJob& outermost = *chain.back();
  if (maker.parts.empty()) return {};

  DerivedGang gang;
  gang.maker = maker.Title();
  gang.owner = {std::string(outermost.api_version), std::string(outermost.kind), outermost.name,
                outermost.uid, /*controller=*/true};
  gang.schedule_timeout_seconds = maker.schedule_timeout_seconds;
  gang.suspended = std::ranges::any_of(chain, &kube::AnyJob::suspended);
  gang.one_by_one = maker.one_by_one;
  for (const kube::AnyJob* job : chain) {
    gang.wanted &= WantsGang(*job);
    if (job->fault.empty() || !gang.fault.empty()) continue;
    gang.fault = fmt::format("{}: {}", job->Title(), job->fault);
  }
  const std::string replicated = ReplicatedJobOf(pod, *chain.front());
  const kube::AnyJob::Part* const part = PartOf(maker, replicated);
  if (maker.parts.size() > 1) gang.maker += fmt::format(" ({})", replicated);
  if (part == nullptr) {
    gang.name = maker.name;
    gang.fault = fmt::format("{} has no replicated job \"{}\", which {} names", gang.maker,
                             replicated, pod.meta.name);
    return {gang, std::nullopt};
  }
  gang.name = part->name;
  gang.spare_name = fmt::format("{}-{}", part->name, maker.uid.substr(0, kSpareNameDigits));
  gang.at_once = part->at_once;
  gang.min_member = part->fewest;
  gang.schedulers = part->schedulers;
  const auto claim = claims_.find(maker.name_space + "/" + part->name);
  gang.contested = claim != claims_.end() && claim->second.begin()->second != maker.uid;
  return {gang, std::nullopt};
}

const kube::AnyJob* JobGangs::OutermostOf(const kube::Pod& pod) const {
  const auto [chain, missing] = ChainOf(pod);
  return missing != nullptr || chain.empty() ? nullptr : chain.back();
}

const kube::AnyJob* JobGangs::Find(const std::string& uid) const {
  const auto it = jobs_.find(uid);
  return it == jobs_.end() ? nullptr : &it->second;
}

std::string JobGangs::OwnersAnnotation(const kube::Pod& pod, std::string_view key) const {
  const auto chain = ChainOf(pod).known;
  for (const kube::AnyJob* job : chain) {
    if (const std::string* value = job->Annotation(key)) return *value;
  }
  return "";
}

std::string JobGangs::OwnersLabel(const kube::Pod& pod, std::string_view key) const {
  const auto chain = ChainOf(pod).known;
  for (const kube::AnyJob* job : chain) {
    auto label = job->labels.find(key);
    if (label != job->labels.end()) return label->second;
  }
  return "";
}

}  // namespace muster::coscheduling
