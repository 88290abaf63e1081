// Pods of a job that must be on one node with each other, though their specs don't say so.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lint/made_pods.h"
#include "lint/manifests.h"

namespace muster::lint {

struct Together {
  std::vector<size_t> pods;  // indices into MadePods::pods
  std::string why, fix;      // a sentence without its end
  std::string at;            // the field of their spec that says so; empty: `line` does
  int line = 0;              // in the job's file
};

// Those that share a ReadWriteOnce volume of `given`, and those of each Job of a JobSet whose
// exclusive topology is the host.
std::vector<Together> PodsOfOneNode(const std::vector<Given>& given, const Workload& workload,
                                    const MadePods& made);

}  // namespace muster::lint
