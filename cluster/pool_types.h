// Which instance types a NodePool may take for a pod: as far as its requirements and the table of
// types say. What isn't known counts as possible.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cluster/instance_types.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/resource_list.h"

namespace muster::cluster {

// Types that remain possible.
struct TypeSet {
  std::vector<const InstanceType*> known;  // by name
  bool unknown = false;  // also such that the table doesn't know, which may have devices
  bool others = false;   // also such without GPUs and Neuron devices

  bool empty() const { return known.empty() && !unknown && !others; }
  void Add(const TypeSet& other);
};

// Those that meet all of the requirements. `names_are_ec2`: a type that no requirement names is one
// of EC2's; otherwise only types that are named are known.
TypeSet TypesOf(const std::vector<kube::Requirement>& requirements, bool names_are_ec2,
                const InstanceTypes& types);

// Those of the pool on which the pod's nodeSelector and required node affinity are met.
TypeSet TypesOf(const kube::NodePool& pool, const kube::PodSpec& spec, const InstanceTypes& types);

// Devices by which types differ; and all that the table knows of, what matters most to pods first.
inline constexpr std::array kDevices = {kube::kNvidiaGpu, kube::kNeuron};
inline constexpr std::array kInTable = {kube::kNvidiaGpu, kube::kNeuron, kube::kEfa, kube::kCpu,
                                        kube::kMemory};

bool WantsDevices(const kube::PodSpec& spec);

// How much of a resource a type has, in base units; 0 of what the table doesn't have.
int64_t AmountOf(const InstanceType& type, std::string_view resource);
// How many times one node of the type can give so much of it. The system keeps some of its cpu and
// memory, so that nobody has all of these.
int64_t TimesOf(const InstanceType& type, std::string_view resource, int64_t each);

}  // namespace muster::cluster
