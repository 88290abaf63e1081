// What a pod asks of its node, from what its containers ask.
//
// k8s.io/component-helpers/resource v0.34 helpers.go (PodRequests with UseStatusResources, as
// kube-scheduler calls it), on resources that have had v1's defaults applied
// (k8s.io/kubernetes pkg/apis/core/v1/defaults.go v1.34). Fractions of a base unit are rounded up
// per container, where kube-scheduler rounds up their sum.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "kube/objects/resource_list.h"

namespace muster::kube {

struct ContainerResources {
  ResourceList requests;
  // An init container that keeps running beside the others (restartPolicy Always).
  bool restartable = false;
};

struct PodResources {
  std::vector<ContainerResources> containers;
  std::vector<ContainerResources> init_containers;  // in order
  // spec.resources, with what a resize in place has made of it; only cpu, memory and hugepages-*
  // count there.
  ResourceList pod_requests;
  ResourceList pod_limits;
  ResourceList overhead;
};

// Fills what `limits` names and `requests` doesn't.
void DefaultRequestsToLimits(ResourceList& requests, const ResourceList& limits);

// The whole pod's request, with pods=1. OutOfRange naming the resource on overflow.
absl::StatusOr<ResourceList> EffectiveRequests(const PodResources& resources);

}  // namespace muster::kube
