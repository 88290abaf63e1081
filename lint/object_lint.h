// The same rules for one object that is being applied to a cluster.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "cluster/instance_types.h"
#include "lint/finding.h"
#include "lint/manifests.h"

namespace muster::lint {

// Above what any job is, and below what takes 10 ms.
inline constexpr size_t kMaxObjectBytes = size_t{256} << 10;
inline constexpr int64_t kMaxObjectValues = 10'000;

struct ObjectLint {
  // Those that are errors first, each in the order of the rules' names. Lines mean nothing.
  std::vector<Finding> findings;
  // Too large, or too much to compare: nothing was looked at.
  bool skipped = false;
};

// minMember of the PodGroup of that namespace and name; 0: not known.
using MinMemberOf = std::function<int64_t(std::string_view name_space, std::string_view name)>;

// `json` is a job, a PodGroup, a flavor or a queue as the API server has it; of other kinds nothing
// is found, nor of jobs whose pods name other schedulers only. A TrainJob whose pods' scheduler its
// runtime names is looked at whoever that is. A pod that names its PodGroup is taken for one of
// minMember alike. `known`: the NodePools, flavors and queues there are.
ObjectLint LintObject(std::string_view json, std::string_view scheduler_name,
                      const Manifests& known, const cluster::InstanceTypes& types,
                      const MinMemberOf& min_member_of = nullptr);

}  // namespace muster::lint
