#include "cluster/label_bits.h"

#include <string_view>

#include "absl/hash/hash.h"

namespace muster::cluster {
namespace {

uint64_t Bit(size_t hash) { return uint64_t{1} << (hash % 64); }
uint64_t KeyBit(std::string_view key) { return Bit(absl::HashOf(key)); }
uint64_t ValueBit(std::string_view key, std::string_view value) {
  return Bit(absl::HashOf(key, value));
}

}  // namespace

uint64_t LabelBits(const kube::StringMap& labels) {
  uint64_t bits = 0;
  for (const auto& [key, value] : labels) bits |= KeyBit(key) | ValueBit(key, value);
  return bits;
}

uint64_t NeededBits(const kube::LabelSelector& selector) {
  uint64_t bits = 0;
  for (const kube::Requirement& requirement : selector.requirements) {
    switch (requirement.op) {
      case kube::SelectorOperator::kIn:
        if (requirement.values.size() == 1) {
          bits |= ValueBit(requirement.key, requirement.values[0]);
        }
        [[fallthrough]];
      case kube::SelectorOperator::kExists:
      case kube::SelectorOperator::kGt:
      case kube::SelectorOperator::kLt:
        bits |= KeyBit(requirement.key);
        break;
      case kube::SelectorOperator::kNotIn:
      case kube::SelectorOperator::kDoesNotExist:
        break;
    }
  }
  return bits;
}

}  // namespace muster::cluster
