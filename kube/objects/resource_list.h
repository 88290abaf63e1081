// Amounts of named resources in exact base units (quantity.h): cpu in milli, the rest whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace muster::kube {

inline constexpr std::string_view kCpu = "cpu";
inline constexpr std::string_view kMemory = "memory";
inline constexpr std::string_view kEphemeralStorage = "ephemeral-storage";
inline constexpr std::string_view kPods = "pods";
inline constexpr std::string_view kNvidiaGpu = "nvidia.com/gpu";
inline constexpr std::string_view kNeuron = "aws.amazon.com/neuron";
inline constexpr std::string_view kEfa = "vpc.amazonaws.com/efa";

// A small map from resource name to amount, sorted by name. An absent name counts as 0; entries
// of 0 are kept (a node that says "nvidia.com/gpu: 0" differs from one that says nothing).
class ResourceList {
 public:
  using Entry = std::pair<std::string, int64_t>;

  int64_t Get(std::string_view name) const;
  bool Has(std::string_view name) const;
  void Set(std::string_view name, int64_t amount);

  // Checked arithmetic: OutOfRange naming the resource, and no change at all, on overflow.
  absl::Status Add(const ResourceList& other);
  absl::Status Subtract(const ResourceList& other);
  // Takes the larger amount per resource.
  void Max(const ResourceList& other);

  // So that lists of equal amounts are equal, whatever they were summed up from.
  void DropZeros();

  // True if every amount of `request` that is above zero is at most the amount here.
  bool Covers(const ResourceList& request) const;
  // The first resource (in name order) of which `request` wants more than is here, or nullptr.
  const Entry* FirstShortage(const ResourceList& request) const;

  bool empty() const { return entries_.empty(); }
  const std::vector<Entry>& entries() const { return entries_; }
  // "cpu=1500m, nvidia.com/gpu=8"
  std::string ToString() const;
  bool operator==(const ResourceList&) const = default;

 private:
  const Entry* Find(std::string_view name) const;
  template <typename Operation>
  absl::Status Combine(const ResourceList& other, char sign, Operation operation);

  std::vector<Entry> entries_;
};

}  // namespace muster::kube
