// Objects for lint's tests and benchmark.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lint/known_policies.h"
#include "lint/object_lint.h"

namespace muster::lint {

// Four pods that must all be on one node.
inline nlohmann::json OneNodeJob(const std::string& scheduler = "coscheduling") {
  return nlohmann::json::parse(R"json({
    "apiVersion": "batch/v1", "kind": "Job",
    "metadata": {"name": "train", "namespace": "team"},
    "spec": {"parallelism": 4, "completions": 4, "template": {
      "metadata": {"labels": {"app": "train"},
                   "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
      "spec": {
        "schedulerName": ")json" +
                               scheduler + R"json(",
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
          {"topologyKey": "kubernetes.io/hostname",
           "labelSelector": {"matchLabels": {"app": "train"}}}]}},
        "containers": [{"name": "c", "image": "i",
                        "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}}})json");
}

// A NodePool of one instance type.
inline nlohmann::json Pool(const std::string& name, const std::string& type, int generation = 1) {
  return nlohmann::json::parse(R"json({"metadata": {"name": ")json" + name +
                               R"json(", "uid": "u-)json" + name + R"json(", "generation": )json" +
                               std::to_string(generation) +
                               R"json(}, "spec": {"template": {"spec": {"requirements": [
                       {"key": "node.kubernetes.io/instance-type", "operator": "In",
                        "values": [")json" +
                               type + R"json("]}]}}}})json");
}

// Twenty NodePools that leave the type open.
inline void AddPoolsByRequirement(KnownPolicies* known) {
  for (int i = 0; i < 20; ++i) {
    const std::string name = "pool-" + std::to_string(i);
    nlohmann::json pool = Pool(name, "");
    pool["spec"]["template"]["spec"]["requirements"] = nlohmann::json::parse(
        R"([{"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["g", "p"]},
            {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["3"]}])");
    known->Upsert(PolicyKind::kNodePool, name, pool.dump());
  }
}

// What each is large in, and its JSON: nearly the most that is looked at at all.
inline std::vector<std::pair<std::string, std::string>> LargestObjects() {
  nlohmann::json containers = OneNodeJob();
  for (int i = 0; i < 1500; ++i) {
    containers["spec"]["template"]["spec"]["containers"].push_back(
        {{"name", "c" + std::to_string(i)}, {"args", {"torchrun --nnodes 4"}}});
  }
  nlohmann::json script = OneNodeJob();
  std::string lines;
  while (lines.size() < kMaxObjectBytes * 9 / 10) {
    lines += "torchrun --nnodes=4 --nproc_per_node=1\n";
  }
  script["spec"]["template"]["spec"]["containers"][0]["args"] = {lines};
  nlohmann::json alternatives = OneNodeJob();
  nlohmann::json& terms =
      alternatives["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
                  ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
  for (int i = 0; i < 10; ++i) {
    terms.push_back({{"matchExpressions",
                      {{{"key", "karpenter.k8s.aws/instance-gpu-count"},
                        {"operator", "Gt"},
                        {"values", {std::to_string(i)}}}}}});
  }
  return {{"containers", containers.dump()},
          {"a script", script.dump()},
          {"alternatives", alternatives.dump()}};
}

}  // namespace muster::lint
