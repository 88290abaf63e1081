#include "cluster/known_jobs.h"

#include <utility>

#include "kube/objects/job_restart.h"

namespace muster::cluster {
namespace {

// Nothing that anybody asks of it has changed.
bool SameButVersion(const kube::AnyJob& a, kube::AnyJob b) {
  b.resource_version = a.resource_version;
  b.generation = a.generation;
  return a == b;
}

}  // namespace

// --- observations ---

bool KnownJobs::Changes(const kube::AnyJob& job) {
  const auto known = jobs_.find(job.uid);
  if (known == jobs_.end()) return true;
  if (kube::IsOlderVersion(job.resource_version, known->second.resource_version)) return false;
  if (!SameButVersion(known->second, job)) return true;
  known->second.resource_version = job.resource_version;
  known->second.generation = job.generation;
  return false;
}

void KnownJobs::Put(kube::AnyJob job) {
  Erase(job.uid);
  const std::string uid = job.uid;
  if (job.annotations.contains(kube::kRestartAnnotation)) restarting_.insert(uid);
  if (job.parent) children_[{job.name_space, job.parent->uid}].insert(uid);
  jobs_.emplace(uid, std::move(job));
}

void KnownJobs::Erase(const std::string& uid) {
  const auto known = jobs_.find(uid);
  if (known == jobs_.end()) return;
  const kube::AnyJob job = std::move(known->second);
  jobs_.erase(known);
  restarting_.erase(job.uid);
  if (!job.parent) return;
  const auto siblings = children_.find({job.name_space, job.parent->uid});
  siblings->second.erase(job.uid);
  if (siblings->second.empty()) children_.erase(siblings);
}

// --- questions ---

const kube::AnyJob* KnownJobs::Find(const std::string& uid) const {
  const auto it = jobs_.find(uid);
  return it == jobs_.end() ? nullptr : &it->second;
}

const kube::AnyJob* KnownJobs::Find(const std::string& name_space,
                                    const kube::OwnerReference& owner) const {
  const kube::AnyJob* job = Find(owner.uid);
  const bool same = job != nullptr && job->kind == owner.kind && job->name_space == name_space;
  return same ? job : nullptr;
}

const kube::AnyJob* KnownJobs::FindOwner(const kube::ObjectMeta& owned) const {
  const kube::OwnerReference* owner = owned.Controller();
  return owner == nullptr ? nullptr : Find(owned.name_space, *owner);
}

KnownJobs::Chain KnownJobs::ChainFrom(const std::string& name_space,
                                      const kube::OwnerReference* owner) const {
  Chain chain;
  while (owner != nullptr) {
    const kube::AnyJob* job = Find(name_space, *owner);
    if (job == nullptr) break;
    chain.known.push_back(job);
    owner = job->parent ? &*job->parent : nullptr;
  }
  chain.missing = owner;
  return chain;
}

KnownJobs::Chain KnownJobs::ChainOf(const kube::AnyJob& job) const {
  Chain chain = ChainFrom(job.name_space, job.parent ? &*job.parent : nullptr);
  chain.known.insert(chain.known.begin(), &job);
  return chain;
}

const std::set<std::string>* KnownJobs::ChildrenOf(const kube::NamespacedUid& owner) const {
  const auto it = children_.find(owner);
  return it == children_.end() ? nullptr : &it->second;
}

void KnownJobs::AddFamily(const kube::NamespacedUid& owner, std::vector<kube::NamespacedUid>* out,
                          int levels) const {
  out->push_back(owner);
  const std::set<std::string>* children = ChildrenOf(owner);
  if (levels == 0 || children == nullptr) return;
  for (const std::string& child : *children) AddFamily({owner.name_space, child}, out, levels - 1);
}

std::vector<kube::NamespacedUid> KnownJobs::Family(const kube::NamespacedUid& owner) const {
  std::vector<kube::NamespacedUid> all;
  AddFamily(owner, &all);
  return all;
}

std::vector<kube::NamespacedUid> KnownJobs::WholeFamily(const kube::NamespacedUid& owner) const {
  const kube::AnyJob* job = Find(owner.uid);
  if (job == nullptr || job->name_space != owner.name_space) return Family(owner);
  return Family(ChainOf(*job).known.back()->Key());
}

std::string KnownJobs::LabelOf(const Chain& chain, std::string_view key) {
  for (const kube::AnyJob* job : chain.known) {
    const auto label = job->labels.find(key);
    if (label != job->labels.end()) return label->second;
  }
  return "";
}

std::string KnownJobs::AnnotationOf(const Chain& chain, std::string_view key) {
  for (const kube::AnyJob* job : chain.known) {
    if (const std::string* value = job->Annotation(key)) return *value;
  }
  return "";
}

}  // namespace muster::cluster
