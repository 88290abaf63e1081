// Muster's predicates beside what kube-scheduler's own filter plugins said (oracle/).
//
// Each part of the predicates stands for several plugins, and says why it refuses a node: then one
// of the plugins that stand for that reason must refuse it, too.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cluster/snapshot.h"
#include "kube/objects/pod.h"
#include "nlohmann/json.hpp"

namespace muster::testing {

// A cluster as a line of the oracle lists it. Throws what nlohmann::json throws, and
// std::runtime_error if an object can't be decoded: all of it is our own making.
void Feed(const nlohmann::json& line, cluster::Snapshot* snapshot);
// With the affinity that the cluster's profile adds.
kube::Pod ReadPod(const nlohmann::json& line, const nlohmann::json& pod);

class VerdictComparison {
 public:
  struct Tally {
    int64_t verdicts = 0;
    int64_t refusals = 0;
  };

  // Compares all verdicts of a line of `oracle verdicts`. Returns a sentence for each difference.
  std::vector<std::string> Add(const nlohmann::json& line);

  // Pods times nodes.
  int64_t verdicts() const { return verdicts_; }
  // Of them, those that no plugin refuses.
  int64_t passes() const { return passes_; }
  const std::map<std::string, Tally>& plugins() const { return plugins_; }

 private:
  int64_t verdicts_ = 0;
  int64_t passes_ = 0;
  std::map<std::string, Tally> plugins_;
};

}  // namespace muster::testing
