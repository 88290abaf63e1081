#include "cluster/label_bits.h"

#include <string_view>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace muster::cluster {
namespace {

// absl's own view is hashed faster than the standard's.
size_t HashOf(std::string_view text) {
  return absl::HashOf(absl::string_view(text.data(), text.size()));
}

uint64_t Bit(size_t hash) { return uint64_t{1} << (hash % 64); }
uint64_t ValueBit(size_t key, std::string_view value) {
  return Bit(absl::HashOf(key, HashOf(value)));
}

}  // namespace

uint64_t LabelBits(const kube::StringMap& labels) {
  uint64_t bits = 0;
  for (const auto& [key, value] : labels) {
    const size_t hash = HashOf(key);
    bits |= Bit(hash) | ValueBit(hash, value);
  }
  return bits;
}

uint64_t NeededBits(const kube::LabelSelector& selector) {
  uint64_t bits = 0;
  for (const kube::Requirement& requirement : selector.requirements) {
    const size_t key = HashOf(requirement.key);
    switch (requirement.op) {
      case kube::SelectorOperator::kIn:
        if (requirement.values.size() == 1) {
          bits |= ValueBit(key, requirement.values[0]);
        }
        [[fallthrough]];
      case kube::SelectorOperator::kExists:
      case kube::SelectorOperator::kGt:
      case kube::SelectorOperator::kLt:
        bits |= Bit(key);
        break;
      case kube::SelectorOperator::kNotIn:
      case kube::SelectorOperator::kDoesNotExist:
        break;
    }
  }
  return bits;
}

}  // namespace muster::cluster
