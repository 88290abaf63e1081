// The rules, each a look at one object among the others. README.md says why each of them is one.
#pragma once

#include <string>
#include <vector>

#include "cluster/instance_types.h"
#include "lint/finding.h"
#include "lint/gangs.h"
#include "lint/judge.h"
#include "lint/manifests.h"
#include "lint/pool_fit.h"

namespace muster::lint {

// What an object is checked against. Rules that need what isn't there are silent.
struct Surroundings {
  const Manifests& manifests;
  const cluster::InstanceTypes& types;
  const PoolIndex& pools;
  const Judge& judge;
};

// All that concerns one gang, or one job that isn't a gang: what a webhook could ask about one
// object.
void CheckGang(const LintGang& gang, const Surroundings& around, Findings* findings);

// What the scheduler says of a job, whose gangs these are.
void CheckByJudge(const Workload& workload, const std::vector<const LintGang*>& gangs,
                  const Surroundings& around, Findings* findings);
// What never gets to the scheduler.
void CheckRefused(const Workload& workload, Findings* findings);
void CheckRefused(const Written& object, const Manifests& manifests, Findings* findings);
void CheckRefused(const NodePool& pool, const Surroundings& around, Findings* findings);
// What the API server refuses, where nothing else was said of the same line.
void CheckByApi(const Workload& workload, Findings* findings);
void CheckByApi(const Written& object, Findings* findings);
// Names that lead nowhere, and amounts that nobody means, in all objects: where nothing else was
// said of the same line.
void CheckAllNames(const Manifests& manifests, const std::string& scheduler_name,
                   Findings* findings);
void CheckAllValues(const Manifests& manifests, Findings* findings);
// What a namespace's pod security level refuses, and what pods themselves can't ask for.
void CheckPodSecurity(const Manifests& manifests, Findings* findings);
// What is wanted of one kind only.
void CheckAllKinds(const Manifests& manifests, Findings* findings);
// What the scheduler says of the queues that were given.
void CheckQueues(const Surroundings& around, Findings* findings);

// Its parts.
void CheckGangPolicy(const LintGang& gang, Findings* findings);
void CheckProtection(const LintGang& gang, const Surroundings& around, Findings* findings);
void CheckLaunch(const LintGang& gang, Findings* findings);
void CheckDeviceSetup(const LintGang& gang, const Surroundings& around, Findings* findings);
void CheckMaxSeconds(const std::string& what, const std::string& file, const LocatedText& label,
                     Findings* findings);
void CheckHonoured(const LintGang& gang, Findings* findings);

void CheckOptOut(const LintGang& gang, const Manifests& manifests, Findings* findings);
void CheckPriorityClass(const PriorityClass& priority_class, Findings* findings);

void CheckPodGroup(const PodGroup& group, Findings* findings);
// `gangs` are those that may use the pool.
void CheckNodePool(const NodePool& pool, const std::vector<LintGang>& gangs,
                   const Surroundings& around, Findings* findings);
// What a NodePool's node class, limits and lifetimes mean for the gangs that use it.
void CheckNodes(const std::vector<LintGang>& gangs, const Surroundings& around, Findings* findings);
void CheckFlavor(const ResourceFlavor& flavor, const Surroundings& around, Findings* findings);
void CheckClusterQueue(const ClusterQueue& queue, Findings* findings);

// What a Karpenter node with GPUs takes from its launch until its devices are there: some 2 minutes
// for the small types, up to 5 for p4d and larger.
inline constexpr int64_t kNodeStartSeconds = 300;
// torchrun's own timeout for ranks that don't come (its rendezvous, and NCCL's default in PyTorch).
inline constexpr int64_t kRendezvousSeconds = 600;
// PyTorch's longest default, the store's: nothing waits longer than that unless it is told to.
inline constexpr int64_t kLongestRendezvousSeconds = 1800;

}  // namespace muster::lint
