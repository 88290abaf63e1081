// Flavors, resources and their pairs as small dense integers. Names are only ever added: an id
// stays valid over every change of the quota objects.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"

namespace muster::quota {

// A hash map that takes std::string_view for its keys, too.
struct NameHash {
  using is_transparent = void;
  size_t operator()(std::string_view name) const { return absl::Hash<std::string_view>()(name); }
};
template <typename Value>
using NameMap = absl::flat_hash_map<std::string, Value, NameHash, std::equal_to<>>;

// Owned objects by the id of their workload, which also std::string_view finds. The id stands in
// the object only, and objects keep their address.
template <typename Object>
struct WorkloadIdHash {
  using is_transparent = void;
  size_t operator()(std::string_view id) const { return NameHash()(id); }
  size_t operator()(const std::unique_ptr<Object>& each) const {
    return (*this)(each->workload.id);
  }
};
template <typename Object>
struct WorkloadIdEqual {
  using is_transparent = void;
  static std::string_view Id(std::string_view id) { return id; }
  static std::string_view Id(const std::unique_ptr<Object>& each) { return each->workload.id; }
  bool operator()(const auto& a, const auto& b) const { return Id(a) == Id(b); }
};
template <typename Object>
using ByWorkloadId =
    absl::flat_hash_set<std::unique_ptr<Object>, WorkloadIdHash<Object>, WorkloadIdEqual<Object>>;

class Interner {
 public:
  int Id(std::string_view name) {
    auto it = ids_.find(name);
    if (it != ids_.end()) return it->second;
    const int id = static_cast<int>(names_.size());
    names_.emplace_back(name);
    ids_.emplace(names_.back(), id);
    return id;
  }
  // -1 if there is none.
  int Find(std::string_view name) const {
    const auto it = ids_.find(name);
    return it == ids_.end() ? -1 : it->second;
  }
  const std::string& Name(int id) const { return names_[static_cast<size_t>(id)]; }
  int size() const { return static_cast<int>(names_.size()); }

 private:
  std::deque<std::string> names_;  // never moves what ids_ points at
  absl::flat_hash_map<std::string_view, int> ids_;
};

// A pair of flavor and resource: what quota is counted in.
struct FlavorResource {
  int flavor = 0;
  int resource = 0;
};

class Names {
 public:
  int Flavor(std::string_view name) { return flavors_.Id(name); }
  int Resource(std::string_view name) { return resources_.Id(name); }
  int Pair(int flavor, int resource) {
    auto [it, inserted] =
        pair_ids_.try_emplace(std::pair(flavor, resource), static_cast<int>(pairs_.size()));
    if (inserted) pairs_.push_back({flavor, resource});
    return it->second;
  }
  // -1 if nobody has asked for it.
  int FindPair(std::string_view flavor, std::string_view resource) const {
    const auto it = pair_ids_.find({flavors_.Find(flavor), resources_.Find(resource)});
    return it == pair_ids_.end() ? -1 : it->second;
  }
  const std::string& FlavorName(int flavor) const { return flavors_.Name(flavor); }
  const std::string& ResourceName(int resource) const { return resources_.Name(resource); }
  const FlavorResource& Of(int pair) const { return pairs_[static_cast<size_t>(pair)]; }
  int pair_count() const { return static_cast<int>(pairs_.size()); }
  int resource_count() const { return resources_.size(); }

 private:
  Interner flavors_;
  Interner resources_;
  std::vector<FlavorResource> pairs_;
  absl::flat_hash_map<std::pair<int, int>, int> pair_ids_;
};

}  // namespace muster::quota
