#include "kube/objects/pod_requests.h"

namespace muster::kube {
namespace {

bool IsHugePages(std::string_view name) { return name.starts_with("hugepages-"); }

bool CountsForPod(std::string_view name) {
  return name == kCpu || name == kMemory || IsHugePages(name);
}

// The larger of the running containers' sum and the peak of each init step, where a step runs
// beside the restartable init containers before it.
absl::StatusOr<ResourceList> ContainerRequests(const PodResources& resources) {
  ResourceList running;
  for (const ContainerResources& container : resources.containers) {
    if (auto status = running.Add(container.requests); !status.ok()) return status;
  }
  ResourceList restartable;
  ResourceList peak;
  for (const ContainerResources& container : resources.init_containers) {
    ResourceList step = restartable;
    if (auto status = step.Add(container.requests); !status.ok()) return status;
    if (container.restartable) {
      if (auto status = running.Add(container.requests); !status.ok()) return status;
      restartable = step;
    }
    peak.Max(step);
  }
  running.Max(peak);
  return running;
}

// spec.resources overrides what the containers add up to. A pod-level limit stands in for an absent
// pod-level request: always for huge pages, which can't be overcommitted; for cpu and memory only
// if no container asks for any.
void ApplyPodLevel(const PodResources& resources, ResourceList& requests) {
  for (const auto& [name, amount] : resources.pod_limits.entries()) {
    if (!CountsForPod(name) || resources.pod_requests.Has(name)) continue;
    if (IsHugePages(name) || !requests.Has(name)) requests.Set(name, amount);
  }
  for (const auto& [name, amount] : resources.pod_requests.entries()) {
    if (CountsForPod(name)) requests.Set(name, amount);
  }
}

}  // namespace

void DefaultRequestsToLimits(ResourceList& requests, const ResourceList& limits) {
  for (const auto& [name, amount] : limits.entries()) {
    if (!requests.Has(name)) requests.Set(name, amount);
  }
}

absl::StatusOr<ResourceList> EffectiveRequests(const PodResources& resources) {
  auto requests = ContainerRequests(resources);
  if (!requests.ok()) return requests.status();
  ApplyPodLevel(resources, *requests);
  if (auto status = requests->Add(resources.overhead); !status.ok()) return status;
  requests->Set(kPods, 1);
  return requests;
}

}  // namespace muster::kube
