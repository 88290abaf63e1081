// What the quota objects together mean: the tree of quota, and each ClusterQueue's flavors in the
// order in which they are tried. Built anew when an object changes, read only otherwise.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kube/objects/quota.h"
#include "quota/names.h"
#include "quota/quota_objects.h"
#include "quota/quota_tree.h"

namespace muster::quota {

struct GroupFlavor {
  int flavor = 0;
  const kube::ResourceFlavor* object = nullptr;  // null: it doesn't exist
  std::vector<int> pairs;                        // with each of the group's resources
};

struct Group {
  std::vector<int> resources;
  std::vector<GroupFlavor> flavors;
};

struct QueueConfig {
  const kube::ClusterQueue* object = nullptr;
  int node = kNoNode;
  int root = kNoNode;
  std::vector<Group> groups;
  std::string error;  // why nothing is admitted to it; empty normally
  std::string fix;
  bool lacks_flavor = false;  // a flavor that it names doesn't exist

  bool IsGoing() const { return object->meta.deletion_time.has_value(); }
  // Nobody is admitted any more, though nothing is wrong with it.
  bool IsStopped() const { return IsGoing() || object->stop_policy != kube::StopPolicy::kNone; }
  bool IsActive() const { return error.empty() && !IsStopped(); }
  struct Place {
    int group = -1;  // -1: not covered
    int position = 0;
  };
  Place Find(int resource) const;
};

struct Layout {
  // Points into `objects`, which must outlive it unchanged. Pairs in `names` at that time can be
  // counted.
  Layout(const QuotaObjects& objects, Names& names);

  const QueueConfig& queue(int index) const { return queues[static_cast<size_t>(index)]; }
  int FindQueue(std::string_view name) const;  // -1: there is none

  QuotaTree tree;
  std::vector<QueueConfig> queues;  // in name order
  std::vector<int> queue_of_node;   // -1 for a cohort
  NameMap<int> by_name;
};

}  // namespace muster::quota
