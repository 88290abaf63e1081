#include "kube/objects/pod_requests.h"

#include <algorithm>

namespace muster::kube {
namespace {

bool IsHugePages(std::string_view name) { return name.starts_with("hugepages-"); }

bool CountsForPod(std::string_view name) {
  return name == kCpu || name == kMemory || IsHugePages(name);
}

const ResourceList& Nothing() {
  static const ResourceList nothing;
  return nothing;
}

// Of what `of` says for each container: the larger of the running containers' sum and the peak of
// each init step, where a step runs beside the restartable init containers before it.
template <typename Of>
absl::StatusOr<ResourceList> SumOf(const PodResources& resources, Of of) {
  ResourceList running;
  for (const ContainerResources& container : resources.containers) {
    if (auto status = running.Add(of(container)); !status.ok()) return status;
  }
  ResourceList restartable;
  ResourceList peak;
  for (const ContainerResources& container : resources.init_containers) {
    const ResourceList& amounts = of(container);
    ResourceList step = restartable;
    if (auto status = step.Add(amounts); !status.ok()) return status;
    if (container.restartable) {
      if (auto status = running.Add(amounts); !status.ok()) return status;
      restartable = step;
    }
    peak.Max(step);
  }
  running.Max(peak);
  return running;
}

bool IsGiven(const GivenResources& given) { return given.allocated || given.actual; }

bool SaysWhatIsGiven(const PodResources& resources) {
  const auto says = [](const ContainerResources& container) { return IsGiven(container.given); };
  return resources.resize_infeasible || IsGiven(resources.given) ||
         std::ranges::any_of(resources.containers, says) ||
         std::ranges::any_of(resources.init_containers, says);
}

bool HasAmounts(const std::optional<ResourceList>& amounts) { return amounts && !amounts->empty(); }

// What the containers ask for, or have been given if that is more; of a resize that the node can't
// do only what they have been given.
absl::StatusOr<ResourceList> ContainerRequests(const PodResources& resources) {
  auto total = SumOf(resources, [](const ContainerResources& container) -> const ResourceList& {
    return container.requests;
  });
  if (!total.ok() || !SaysWhatIsGiven(resources)) return total;
  if (resources.resize_infeasible) *total = {};
  const GivenResources& of_pod = resources.given;
  if (HasAmounts(of_pod.allocated) && HasAmounts(of_pod.actual)) {
    total->Max(*of_pod.allocated);
    total->Max(*of_pod.actual);
    return total;
  }
  const auto unless_given = [&](const ContainerResources& container) -> const ResourceList& {
    return resources.resize_infeasible ? Nothing() : container.requests;
  };
  const auto allocated =
      SumOf(resources, [&](const ContainerResources& container) -> const ResourceList& {
        return HasAmounts(container.given.allocated) ? *container.given.allocated
                                                     : unless_given(container);
      });
  const auto actual =
      SumOf(resources, [&](const ContainerResources& container) -> const ResourceList& {
        const GivenResources& given = container.given;
        if (HasAmounts(given.actual)) return *given.actual;
        return HasAmounts(given.allocated) ? *given.allocated : unless_given(container);
      });
  for (const auto* sum : {&allocated, &actual}) {
    if (!sum->ok()) return sum->status();
    total->Max(**sum);
  }
  return total;
}

// spec.resources overrides what the containers add up to. A pod-level limit stands in for an absent
// pod-level request: always for huge pages, which can't be overcommitted; for cpu and memory only
// if no container asks for any.
void ApplyPodLevel(const PodResources& resources, ResourceList& requests) {
  ResourceList asked;
  for (const auto& [name, amount] : resources.pod_limits.entries()) {
    if (!CountsForPod(name) || resources.pod_requests.Has(name)) continue;
    if (IsHugePages(name) || !requests.Has(name)) asked.Set(name, amount);
  }
  for (const auto& [name, amount] : resources.pod_requests.entries()) {
    if (CountsForPod(name)) asked.Set(name, amount);
  }
  if (asked.empty()) return;
  if (const GivenResources& given = resources.given; given.actual) {
    if (resources.resize_infeasible) asked = {};
    asked.Max(*given.actual);
    if (given.allocated) asked.Max(*given.allocated);
  }
  for (const auto& [name, amount] : asked.entries()) {
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
