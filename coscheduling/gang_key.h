// What names a gang, and what is kept by it.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "absl/container/node_hash_map.h"

namespace muster::coscheduling {

struct GangKey {
  std::string name_space;
  std::string name;
  bool is_pod = false;  // a gang of one without a PodGroup
  auto operator<=>(const GangKey&) const = default;
  std::string ToString() const { return name_space + "/" + name; }
};

// A gang for as long as it exists in this process: by it each owner finds what it keeps of the
// gang. Never used again.
enum class GangId : uint64_t { kNone = 0 };

// What an owner keeps of each gang. A Part stays where it is until its gang is forgotten.
template <typename Part>
class PerGang {
 public:
  // Made if nothing is kept.
  Part& operator[](GangId gang) { return parts_[gang]; }
  // Null if nothing is kept.
  Part* Find(GangId gang) {
    const auto it = parts_.find(gang);
    return it == parts_.end() ? nullptr : &it->second;
  }
  // Of which something is kept.
  Part& at(GangId gang) { return parts_.at(gang); }
  const Part& at(GangId gang) const { return parts_.at(gang); }
  // As a new one if nothing is kept.
  const Part& Of(GangId gang) const {
    static const Part kNew{};
    const auto it = parts_.find(gang);
    return it == parts_.end() ? kNew : it->second;
  }
  void Forget(GangId gang) { parts_.erase(gang); }
  auto begin() const { return parts_.begin(); }
  auto end() const { return parts_.end(); }

 private:
  absl::node_hash_map<GangId, Part> parts_;
};

}  // namespace muster::coscheduling
