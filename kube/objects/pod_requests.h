// What a pod asks of its node, from what its containers ask.
//
// k8s.io/component-helpers/resource v0.37 helpers.go (PodRequests as kube-scheduler calls it for
// pods that stand, with all gates that v1.37 has open), on resources that have had v1's defaults
// applied (k8s.io/kubernetes pkg/apis/core/v1/defaults.go v1.37). v1.34 takes the larger of what is
// asked and given for each container, where this compares sums, and knows no status of the whole
// pod. Fractions of a base unit are rounded up per container, where kube-scheduler rounds up their
// sum.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "kube/objects/resource_list.h"

namespace muster::kube {

// What the kubelet says that it has given, while a resize is under way or was refused.
struct GivenResources {
  std::optional<ResourceList> allocated;  // status' allocatedResources
  std::optional<ResourceList> actual;  // status' resources.requests; empty if only that is absent
};

struct ContainerResources {
  ResourceList requests;
  // An init container that keeps running beside the others (restartPolicy Always).
  bool restartable = false;
  GivenResources given = {};
};

struct PodResources {
  std::vector<ContainerResources> containers;
  std::vector<ContainerResources> init_containers;  // in order
  // spec.resources; only cpu, memory and hugepages-* count there.
  ResourceList pod_requests;
  ResourceList pod_limits;
  ResourceList overhead;
  GivenResources given = {};  // of the whole pod
  // The node can't do the resize that is asked for, so that counts for nothing.
  bool resize_infeasible = false;
};

// Fills what `limits` names and `requests` doesn't.
void DefaultRequestsToLimits(ResourceList& requests, const ResourceList& limits);

// The whole pod's request, with pods=1. OutOfRange naming the resource on overflow.
absl::StatusOr<ResourceList> EffectiveRequests(const PodResources& resources);

}  // namespace muster::kube
