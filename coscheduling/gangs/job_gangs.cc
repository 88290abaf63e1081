#include "coscheduling/gangs/job_gangs.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>

#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

constexpr std::string_view kReplicatedJobLabel = "jobset.sigs.k8s.io/replicatedjob-name";
constexpr std::string_view kKueueFastAdmissionAnnotation =
    "kueue.x-k8s.io/pod-group-fast-admission";
constexpr int64_t kMaxMinMember = std::numeric_limits<int32_t>::max();
constexpr size_t kSpareNameDigits = 8;

constexpr std::string_view kJob = "Job";
constexpr std::string_view kStatefulSet = "StatefulSet";
constexpr std::string_view kJobSet = "JobSet";
constexpr std::string_view kPyTorchJob = "PyTorchJob";
constexpr std::string_view kTrainJob = "TrainJob";
constexpr std::string_view kCronJob = "CronJob";

struct JobKind {
  std::string_view kind;
  std::string_view api_version;
};
constexpr std::array<JobKind, 5> kJobKinds = {{{kJob, "batch/v1"},
                                               {kStatefulSet, "apps/v1"},
                                               {kJobSet, "jobset.x-k8s.io/v1alpha2"},
                                               {kPyTorchJob, "kubeflow.org/v1"},
                                               {kTrainJob, "trainer.kubeflow.org/v1alpha1"}}};

std::string_view GroupOf(std::string_view api_version) {
  const size_t slash = api_version.find('/');
  return slash == std::string_view::npos ? "" : api_version.substr(0, slash);
}

std::string_view ApiVersionOf(std::string_view kind) {
  const auto* known = std::ranges::find(kJobKinds, kind, &JobKind::kind);
  return known == kJobKinds.end() ? "" : known->api_version;
}

// Of a kind that is read, whatever its version.
bool IsReadKind(const kube::OwnerReference& owner) {
  const std::string_view api_version = ApiVersionOf(owner.kind);
  return !api_version.empty() && GroupOf(api_version) == GroupOf(owner.api_version);
}

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](unsigned char c) { return std::tolower(c); },
      [](unsigned char c) { return std::tolower(c); });
}

int64_t AtOnce(const kube::JobSpec& spec) {
  return spec.completions ? std::min(spec.parallelism, *spec.completions) : spec.parallelism;
}

std::string AnnotationOf(const kube::ObjectMeta& meta, std::string_view key) {
  const std::string* value = meta.Annotation(key);
  return value == nullptr ? "" : *value;
}

}  // namespace

std::optional<DerivedGang> KueueGroupOf(const kube::Pod& pod) {
  const std::string* name = pod.meta.Label(kube::kKueueGroupLabel);
  if (name == nullptr || name->empty()) return std::nullopt;
  if (AnnotationOf(pod.meta, kKueueFastAdmissionAnnotation) == "true") return std::nullopt;
  DerivedGang gang;
  gang.name = *name;
  gang.spare_name = *name + "-pods";
  gang.maker = fmt::format("pod group {}/{}", pod.meta.name_space, *name);
  const std::string count = AnnotationOf(pod.meta, kKueueTotalCountAnnotation);
  int64_t total = 0;
  const char* const end = count.data() + count.size();
  const auto [parsed, error] = std::from_chars(count.data(), end, total);
  if (error != std::errc() || parsed != end || total < 1 || total > kMaxMinMember) {
    gang.fault = fmt::format("annotation {} of {} is \"{}\", must be an integer from 1 to {}",
                             kKueueTotalCountAnnotation, pod.meta.name, count, kMaxMinMember);
    return gang;
  }
  gang.at_once = gang.min_member = total;
  return gang;
}

// --- the known jobs ---

std::string JobGangs::KnownJob::Title() const {
  return fmt::format("{} {}/{}", kind, name_space, name);
}

const std::string* JobGangs::KnownJob::Annotation(std::string_view key) const {
  const auto it = annotations.find(key);
  return it == annotations.end() ? nullptr : &it->second;
}

JobGangs::KnownJob JobGangs::Known(std::string_view kind, const kube::ObjectMeta& meta,
                                   const std::string& error) {
  KnownJob job;
  job.kind = kind;
  job.api_version = ApiVersionOf(kind);
  job.generation = meta.generation;
  job.name_space = meta.name_space;
  job.name = meta.name;
  job.uid = meta.uid;
  job.resource_version = meta.resource_version;
  job.created = meta.creation_time;
  job.labels = meta.labels;
  job.annotations = meta.annotations;
  job.going = meta.deletion_time.has_value();
  job.no_gang = AnnotationOf(meta, kGangAnnotation) == "false";
  job.fault = error;
  if (const std::string* name = meta.Label(kReplicatedJobLabel)) job.replicated_job = *name;
  const kube::OwnerReference* owner = meta.Controller();
  const std::string_view parent = kind == kJob ? kJobSet : kind == kJobSet ? kTrainJob : "";
  if (owner != nullptr && owner->kind == parent && IsReadKind(*owner)) {
    job.parent = *owner;
  } else if (owner != nullptr && owner->kind != kCronJob) {
    job.foreign_owner = fmt::format("{} {}/{}", owner->kind, meta.name_space, owner->name);
  }
  return job;
}

bool JobGangs::SameButVersion(const KnownJob& a, const KnownJob& b) {
  return a.labels == b.labels && a.annotations == b.annotations && a.going == b.going &&
         a.foreign_owner == b.foreign_owner && a.parts == b.parts &&
         a.schedule_timeout_seconds == b.schedule_timeout_seconds && a.no_gang == b.no_gang &&
         a.suspended == b.suspended && a.finished == b.finished && a.fault == b.fault &&
         a.one_by_one == b.one_by_one && a.parent.has_value() == b.parent.has_value() &&
         (!a.parent || a.parent->uid == b.parent->uid) && a.replicated_job == b.replicated_job;
}

std::vector<std::string> JobGangs::Upsert(const kube::Job& job) {
  KnownJob known = Known(kJob, job.meta, job.error);
  known.suspended = job.spec.suspend;
  known.finished = job.finished;
  const int64_t count = AtOnce(job.spec);
  known.parts.push_back({{}, job.meta.name, count, count, {{"", job.spec.scheduler_name}}});
  return Replace(std::move(known));
}

std::vector<std::string> JobGangs::Upsert(const kube::StatefulSet& set) {
  KnownJob known = Known(kStatefulSet, set.meta, set.error);
  known.no_gang = AnnotationOf(set.meta, kGangAnnotation) != "true";
  const int64_t at_once = set.parallel ? set.replicas : std::min<int64_t>(set.replicas, 1);
  if (!set.parallel) {
    known.one_by_one =
        "spec.podManagementPolicy is OrderedReady, so its pods are made one after the other, each "
        "once the one before is ready";
  }
  known.parts.push_back({{}, set.meta.name, at_once, set.replicas, {{"", set.scheduler_name}}});
  return Replace(std::move(known));
}

std::vector<std::string> JobGangs::Upsert(const kube::JobSet& set) {
  KnownJob known = Known(kJobSet, set.meta, set.error);
  known.suspended = set.suspend;
  known.finished = set.finished;
  // Those that wait for the same start at the same moment.
  std::vector<std::set<std::string>> waits_for;
  for (const kube::ReplicatedJob& job : set.replicated_jobs) {
    std::set<std::string> conditions(job.depends_on.begin(), job.depends_on.end());
    if (set.in_order) conditions.insert("before " + job.name);
    auto at = std::ranges::find(waits_for, conditions);
    if (at == waits_for.end()) {
      at = waits_for.insert(at, std::move(conditions));
      known.parts.emplace_back().name = fmt::format("{}-{}", set.meta.name, job.name);
    }
    Part& part = known.parts[static_cast<size_t>(at - waits_for.begin())];
    part.replicated_jobs.push_back(job.name);
    part.schedulers.push_back({job.name, job.spec.scheduler_name});
    // Both factors are below 2^31.
    if (__builtin_add_overflow(part.at_once, job.replicas * AtOnce(job.spec), &part.at_once)) {
      part.at_once = std::numeric_limits<int64_t>::max();
    }
    part.min_member = part.at_once;
  }
  if (known.parts.size() == 1) known.parts.front().name = set.meta.name;
  return Replace(std::move(known));
}

std::vector<std::string> JobGangs::Upsert(const kube::PyTorchJob& job) {
  KnownJob known = Known(kPyTorchJob, job.meta, job.error);
  known.suspended = job.suspend;
  known.finished = job.finished;
  known.schedule_timeout_seconds = job.schedule_timeout_seconds;
  Part part;
  part.name = job.meta.name;
  for (const kube::ReplicaType& type : job.replica_types) {
    part.at_once += type.replicas;  // two types at most, each below 2^31
    const bool elastic = job.elastic_min_replicas && EqualsIgnoringCase(type.name, "Worker");
    part.min_member += elastic ? std::min(type.replicas, *job.elastic_min_replicas) : type.replicas;
    part.schedulers.push_back({type.name, type.scheduler_name});
  }
  if (job.min_available && *job.min_available > 0) part.min_member = *job.min_available;
  known.parts.push_back(std::move(part));
  return Replace(std::move(known));
}

std::vector<std::string> JobGangs::Upsert(const kube::TrainJob& job) {
  KnownJob known = Known(kTrainJob, job.meta, job.error);
  known.suspended = job.suspend;
  known.finished = job.finished;
  return Replace(std::move(known));
}

std::vector<std::string> JobGangs::Replace(KnownJob job) {
  for (const Part& part : job.parts) {
    if (part.min_member <= kMaxMinMember || !job.fault.empty()) continue;
    job.fault = fmt::format("it makes {} pods at once, a gang has at most {}", part.min_member,
                            kMaxMinMember);
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

void JobGangs::Claim(const KnownJob& job) {
  if (job.no_gang || (job.kind == kJob && job.parent)) return;
  for (const Part& part : job.parts) {
    if (part.min_member > 1) {
      claims_[job.name_space + "/" + part.name].insert({job.created, job.uid});
    }
  }
}

void JobGangs::Release(const KnownJob& job, std::vector<std::string>* affected) {
  restarting_.erase(job.uid);
  AddContenders(job, affected);
  for (const Part& part : job.parts) {
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

void JobGangs::AddContenders(const KnownJob& job, std::vector<std::string>* out) const {
  for (const Part& part : job.parts) {
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

// A pod's known owners, innermost first, up to one that isn't known.
std::vector<const JobGangs::KnownJob*> JobGangs::ChainOf(const kube::Pod& pod) const {
  std::vector<const KnownJob*> chain;
  const kube::OwnerReference* owner = pod.meta.Controller();
  while (owner != nullptr) {
    const KnownJob* job = Find(*owner);
    if (job == nullptr) break;
    chain.push_back(job);
    owner = job->parent ? &*job->parent : nullptr;
  }
  return chain;
}

// Owner references can name anything. That kinds agree keeps a chain from running in circles.
const JobGangs::KnownJob* JobGangs::Find(const kube::OwnerReference& owner) const {
  auto it = jobs_.find(owner.uid);
  return it == jobs_.end() || it->second.kind != owner.kind ? nullptr : &it->second;
}

const kube::OwnerReference* JobGangs::MissingOwner(const kube::Pod& pod) const {
  const kube::OwnerReference* owner = pod.meta.Controller();
  if (owner == nullptr || !IsReadKind(*owner)) return nullptr;
  while (owner != nullptr) {
    const KnownJob* job = Find(*owner);
    if (job == nullptr) return owner;
    owner = job->parent ? &*job->parent : nullptr;
  }
  return nullptr;
}

std::string JobGangs::ReplicatedJobOf(const kube::Pod& pod, const KnownJob& innermost) {
  const std::string* label = pod.meta.Label(kReplicatedJobLabel);
  return label == nullptr ? innermost.replicated_job : *label;
}

const JobGangs::Part* JobGangs::PartOf(const KnownJob& maker, const std::string& replicated_job) {
  if (maker.kind != kJobSet) return maker.parts.empty() ? nullptr : &maker.parts.front();
  const auto part = std::ranges::find_if(maker.parts, [&](const Part& candidate) {
    return std::ranges::count(candidate.replicated_jobs, replicated_job) > 0;
  });
  return part == maker.parts.end() ? nullptr : &*part;
}

std::set<std::string> JobGangs::MakersOf(const std::vector<const kube::Pod*>& pods) const {
  std::set<std::string> makers;
  std::set<const Part*> seen;
  for (const kube::Pod* pod : pods) {
    const kube::OwnerReference* owner = pod->meta.Controller();
    if (owner == nullptr) continue;
    makers.insert(owner->uid);
    const std::vector<const KnownJob*> chain = ChainOf(*pod);
    const auto set = std::ranges::find(chain, kJobSet, &KnownJob::kind);
    if (set == chain.end()) continue;
    const Part* part = PartOf(**set, ReplicatedJobOf(*pod, *chain.front()));
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
  if (const kube::OwnerReference* missing = MissingOwner(pod)) return {std::nullopt, *missing};
  const std::vector<const KnownJob*> chain = ChainOf(pod);
  if (chain.empty()) return {};
  const auto set = std::ranges::find(chain, kJobSet, &KnownJob::kind);
  const KnownJob& maker = set == chain.end() ? *chain.front() : **set;
  const KnownJob& outermost = *chain.back();
  if (maker.parts.empty()) return {};

  DerivedGang gang;
  gang.maker = fmt::format("{} {}/{}", maker.kind, maker.name_space, maker.name);
  gang.owner = {std::string(ApiVersionOf(outermost.kind)), std::string(outermost.kind),
                outermost.name, outermost.uid, /*controller=*/true};
  gang.schedule_timeout_seconds = maker.schedule_timeout_seconds;
  gang.suspended = std::ranges::any_of(chain, &KnownJob::suspended);
  gang.one_by_one = maker.one_by_one;
  for (const KnownJob* job : chain) {
    gang.wanted &= !job->no_gang;
    if (job->fault.empty() || !gang.fault.empty()) continue;
    gang.fault = fmt::format("{} {}/{}: {}", job->kind, job->name_space, job->name, job->fault);
  }
  const std::string replicated = ReplicatedJobOf(pod, *chain.front());
  const Part* const part = PartOf(maker, replicated);
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
  gang.min_member = part->min_member;
  gang.schedulers = part->schedulers;
  const auto claim = claims_.find(maker.name_space + "/" + part->name);
  gang.contested = claim != claims_.end() && claim->second.begin()->second != maker.uid;
  return {gang, std::nullopt};
}

const JobGangs::KnownJob* JobGangs::OutermostOf(const kube::Pod& pod) const {
  if (MissingOwner(pod) != nullptr) return nullptr;
  const std::vector<const KnownJob*> chain = ChainOf(pod);
  return chain.empty() ? nullptr : chain.back();
}

const JobGangs::KnownJob* JobGangs::Find(const std::string& uid) const {
  const auto it = jobs_.find(uid);
  return it == jobs_.end() ? nullptr : &it->second;
}

std::string JobGangs::OwnersAnnotation(const kube::Pod& pod, std::string_view key) const {
  for (const KnownJob* job : ChainOf(pod)) {
    if (const std::string* value = job->Annotation(key)) return *value;
  }
  return "";
}

std::string JobGangs::OwnersLabel(const kube::Pod& pod, std::string_view key) const {
  for (const KnownJob* job : ChainOf(pod)) {
    auto label = job->labels.find(key);
    if (label != job->labels.end()) return label->second;
  }
  return "";
}

}  // namespace muster::coscheduling
