// How large a volume CSI drivers can still make for a node, by their CSIStorageCapacities
// (kube-scheduler's VolumeBinding, v1.37).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kube/objects/storage.h"

namespace muster::cluster {

// Mostly each is about one node, or one zone: they are found by a label that their nodes have.
class StorageCapacities {
 public:
  void Add(std::shared_ptr<const kube::CsiStorageCapacity> capacity);
  // One of them is about the class and nodes with these labels, and says that so much can be had.
  bool Suffice(std::string_view storage_class, int64_t bytes, const kube::StringMap& labels) const;

 private:
  using Some = std::vector<std::shared_ptr<const kube::CsiStorageCapacity>>;
  struct OfClass {
    std::map<std::string, absl::flat_hash_map<std::string, Some>> by_label;  // key, value
    Some others;
  };
  std::map<std::string, OfClass, std::less<>> by_class_;
};

}  // namespace muster::cluster
