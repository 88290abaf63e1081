// Kubernetes' objects as the API server sends them: every kind that is watched, from each input.
#include <cstdint>
#include <string>

#include "kube/objects/decode.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

using namespace kube;

void CheckAmounts(const ResourceList& list) {
  for (const auto& [name, amount] : list.entries()) {
    Require(amount >= 0, "an amount that was taken isn't negative");
  }
}

void CheckRequirements(const std::vector<Requirement>& requirements) {
  const std::string value = "7";
  for (const Requirement& requirement : requirements) {
    const bool absent_matches = requirement.Matches(nullptr);
    const bool negative = requirement.op == SelectorOperator::kNotIn ||
                          requirement.op == SelectorOperator::kDoesNotExist;
    Require(absent_matches == negative, "only NotIn and DoesNotExist match what isn't there");
    (void)requirement.Matches(&value);
    (void)requirement.ToString();
  }
}

void CheckParts(const Pod& pod) {
  Require(pod.spec != nullptr, "a pod has a spec");
  CheckAmounts(pod.spec->requests);
}

void CheckParts(const Node& node) {
  CheckAmounts(node.capacity);
  CheckAmounts(node.allocatable);
}

void CheckParts(const NodeClaim& claim) {
  CheckAmounts(claim.requests);
  CheckAmounts(claim.capacity);
  CheckRequirements(claim.requirements);
}

void CheckParts(const NodePool& pool) {
  if (pool.limits) CheckAmounts(*pool.limits);
  CheckAmounts(pool.usage);
  CheckRequirements(pool.requirements);
}

void CheckParts(const ClusterQueue& queue) {
  if (queue.namespace_selector) CheckRequirements(queue.namespace_selector->requirements);
  if (!queue.error.empty()) return;
  for (const ResourceGroup& group : queue.resource_groups) {
    for (const FlavorQuotas& flavor : group.flavors) {
      Require(flavor.resources.size() == group.covered_resources.size(),
              "each flavor of a usable queue has each resource");
    }
  }
}

void CheckParts(const JobSet& set) {
  for (const ReplicatedJob& job : set.replicated_jobs) {
    Require(job.replicas >= 0 && job.spec.parallelism >= 0, "counts aren't negative");
  }
}

template <typename T>
void CheckParts(const T&) {}

template <typename T>
void Check(std::string_view input) {
  const absl::StatusOr<T> object = Decode<T>(input);
  if (!object.ok()) {
    Require(!object.status().message().empty(), "a refusal has a reason");
    RequireSayable(MessageOf(object.status()));
    return;
  }
  if constexpr (requires { object->error; }) RequireSayable(object->error);
  if constexpr (requires { object->spec_error; }) RequireSayable(object->spec_error);
  CheckParts(*object);
}

template <typename... Kinds>
void CheckAll(std::string_view input) {
  (Check<Kinds>(input), ...);
}

}  // namespace
}  // namespace muster::fuzz

MUSTER_FUZZ_TARGET(std::string_view input) {
  using namespace muster::kube;
  muster::fuzz::CheckAll<Pod, Node, ResourceSlice, PodGroup, NodeClaim, NodePool, DaemonSet,
                         PodDisruptionBudget, Namespace, PersistentVolumeClaim, PersistentVolume,
                         StorageClass, CsiNode, CsiDriver, CsiStorageCapacity, VolumeAttachment,
                         Job, StatefulSet, JobSet, PyTorchJob, TrainJob, MPIJob, RayCluster, RayJob,
                         Event, ResourceFlavor, Topology, ClusterQueue, LocalQueue, Cohort,
                         WorkloadPriorityClass, PriorityClass, Workload>(input);
}
