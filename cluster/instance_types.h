// EC2 instance types with GPUs or Neuron devices: how much of what a whole one has.
//
// The table is compiled in (instance_types.txt) and can be extended by text of the same form, one
// type per line, "#" begins a comment; UTF-8, at most 8 MiB, counts up to a million:
//
//   name  cpu  memory  gpu  neuron  efa  accelerator
//   p5.48xlarge  192  2048Gi  8  0  32  h100
//
// What a node of the type offers to pods is less than that: the kubelet and the system keep some
// cpu and memory. So a pod that asks for as much of these, or for more of anything, certainly
// doesn't fit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace muster::cluster {

struct InstanceType {
  std::string name;
  int64_t cpu = 0;          // vCPUs
  int64_t memory = 0;       // bytes
  int64_t gpu = 0;          // nvidia.com/gpu
  int64_t neuron = 0;       // aws.amazon.com/neuron
  int64_t efa = 0;          // vpc.amazonaws.com/efa
  std::string accelerator;  // "h100"; empty: not said

  // EC2's names have a dot, those of other providers' types don't.
  bool IsEc2() const { return name.find('.') != std::string::npos; }
  // "p6-b200" and "48xlarge" of p6-b200.48xlarge.
  std::string_view Family() const;
  std::string_view Size() const;
  bool operator==(const InstanceType&) const = default;
};

class InstanceTypes {
 public:
  // What is compiled in.
  static const InstanceTypes& BuiltIn();

  // Lays the types of `text` over those that are there; one of the same name takes the other's
  // place. InvalidArgument as "FILE:LINE: TYPE: what is wrong", and then nothing was changed.
  absl::Status Add(std::string_view text, std::string_view file);

  // nullptr: not known. Valid until the next Add.
  const InstanceType* Find(std::string_view name) const;
  // Some type of this family is known ("g6e").
  bool KnowsFamily(std::string_view family) const;
  // By name.
  const std::map<std::string, InstanceType, std::less<>>& all() const { return types_; }

 private:
  std::map<std::string, InstanceType, std::less<>> types_;
  std::set<std::string, std::less<>> families_;
};

// The table as it is compiled in.
std::string_view BuiltInInstanceTypes();

// Whether the label is one whose value follows from the figures above: the type's name, family,
// category, generation, size, cpu, memory, and its accelerators' names, makers and counts.
bool IsInstanceTypeLabel(std::string_view key);

// The value of such a label on a node of the type; empty: such a node doesn't have it.
std::string InstanceTypeLabel(const InstanceType& type, std::string_view key);

}  // namespace muster::cluster
