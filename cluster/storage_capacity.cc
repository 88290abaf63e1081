#include "cluster/storage_capacity.h"

#include <algorithm>

namespace muster::cluster {

void StorageCapacities::Add(std::shared_ptr<const kube::CsiStorageCapacity> capacity) {
  if (!capacity->nodes || !capacity->most) return;
  OfClass& of_class = by_class_[capacity->storage_class];
  for (const kube::Requirement& one : capacity->nodes->requirements) {
    if (one.op != kube::SelectorOperator::kIn || one.values.size() != 1) continue;
    of_class.by_label[one.key][one.values.front()].push_back(std::move(capacity));
    return;
  }
  of_class.others.push_back(std::move(capacity));
}

bool StorageCapacities::Suffice(std::string_view storage_class, int64_t bytes,
                                const kube::StringMap& labels) const {
  const auto of_class = by_class_.find(storage_class);
  if (of_class == by_class_.end()) return false;
  const auto suffices = [&](const auto& one) {
    return *one->most >= bytes && one->nodes->Matches(labels);
  };
  for (const auto& [key, by_value] : of_class->second.by_label) {
    const auto label = labels.find(key);
    if (label == labels.end()) continue;
    const auto some = by_value.find(label->second);
    if (some != by_value.end() && std::ranges::any_of(some->second, suffices)) return true;
  }
  return std::ranges::any_of(of_class->second.others, suffices);
}

}  // namespace muster::cluster
