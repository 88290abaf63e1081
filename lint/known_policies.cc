#include "lint/known_policies.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lint/field_reader.h"
#include "lint/json_tree.h"

namespace muster::lint {
namespace {

// In the order of PolicyKind.
constexpr std::array<std::string_view, kPolicyKinds> kKinds = {
    "NodePool", "ResourceFlavor", "ClusterQueue", "LocalQueue", "Topology", "PodGroup"};

std::string RevisionOf(const yaml::YamlValue& object) {
  const std::string& uid = object.At("metadata.uid").Text();
  const std::string& generation = object.At("metadata.generation").Text();
  return uid.empty() || generation.empty() ? "" : absl::StrCat(uid, "/", generation);
}

// Without what points into the tree that it was read from.
void ReadInto(PolicyKind kind, const yaml::YamlValue& object, FieldReader* reader, Manifests* out) {
  switch (kind) {
    case PolicyKind::kNodePool:
      out->pools.push_back(ReadNodePool(object, reader));
      out->pools.back().yaml = {};
      return;
    case PolicyKind::kResourceFlavor:
      out->flavors.push_back(ReadFlavor(object, reader));
      out->flavors.back().node_selector = {};
      return;
    case PolicyKind::kClusterQueue:
      out->cluster_queues.push_back(ReadClusterQueue(object, reader));
      return;
    case PolicyKind::kLocalQueue:
    case PolicyKind::kTopology:
      return;
    case PolicyKind::kPodGroup:
      out->groups.push_back(ReadPodGroup(object, reader));
      return;
  }
}

template <typename Object>
void AppendAll(const std::vector<Object>& more, std::vector<Object>* all) {
  all->insert(all->end(), more.begin(), more.end());
}

}  // namespace

void KnownPolicies::Upsert(PolicyKind kind, const std::string& name, std::string_view json) {
  const yaml::YamlFile file = ParseJson(json);
  const yaml::YamlValue root = file.documents.empty() ? yaml::YamlValue() : file.documents.front();
  Entry entry;
  entry.revision = RevisionOf(root);
  const std::lock_guard lock(mutex_);
  Entry& known = entries_[static_cast<size_t>(kind)][name];
  if (!entry.revision.empty() && entry.revision == known.revision) return;
  std::vector<FileError> errors;
  FieldReader reader("", &errors);
  ReadInto(kind, root, &reader, &entry.object);
  ReadGivenAs(kKinds[static_cast<size_t>(kind)], root, "", &entry.object);
  for (Given& given : entry.object.given) given.yaml = {};
  entry.readable = root.is_mapping() && errors.empty();
  known = std::move(entry);
  if (kind != PolicyKind::kPodGroup) all_ = nullptr;
}

void KnownPolicies::Remove(PolicyKind kind, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const bool gone = entries_[static_cast<size_t>(kind)].erase(name) > 0;
  if (gone && kind != PolicyKind::kPodGroup) all_ = nullptr;
}

std::shared_ptr<const Manifests> KnownPolicies::All() const {
  const std::lock_guard lock(mutex_);
  if (all_ != nullptr) return all_;
  auto all = std::make_shared<Manifests>();
  all->quota_mode = quota_mode_;
  all->resources = resources_;
  for (size_t kind = 0; kind < kPolicyKinds; ++kind) {
    if (kind == static_cast<size_t>(PolicyKind::kPodGroup)) continue;
    const auto& entries = entries_[kind];
    if (!std::ranges::all_of(entries, [](const auto& entry) { return entry.second.readable; })) {
      continue;
    }
    for (const auto& [name, entry] : entries) {
      AppendAll(entry.object.pools, &all->pools);
      AppendAll(entry.object.flavors, &all->flavors);
      AppendAll(entry.object.cluster_queues, &all->cluster_queues);
      AppendAll(entry.object.given, &all->given);
    }
  }
  all_ = std::move(all);
  return all_;
}

int64_t KnownPolicies::MinMember(std::string_view name_space, std::string_view name) const {
  const std::string key = std::string(name_space) + "/" + std::string(name);
  const std::lock_guard lock(mutex_);
  const auto& groups = entries_[static_cast<size_t>(PolicyKind::kPodGroup)];
  const auto group = groups.find(key);
  if (group == groups.end() || group->second.object.groups.empty()) return 0;
  return group->second.object.groups.front().min_member.value;
}

}  // namespace muster::lint
