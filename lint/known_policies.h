// What one object is checked against where objects come one by one, as from an API server: the
// NodePools, flavors, queues and PodGroups that there are at the moment.
//
// Thread-safe. Readers share an immutable picture of all of them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "lint/manifests.h"

namespace muster::lint {

enum class PolicyKind {
  kNodePool,
  kResourceFlavor,
  kClusterQueue,
  kLocalQueue,
  kTopology,
  kPodGroup
};
inline constexpr size_t kPolicyKinds = 6;

class KnownPolicies {
 public:
  // `options`: as in Lint.
  explicit KnownPolicies(const coscheduling::EngineOptions& options = {})
      : quota_mode_(options.quota), resources_(options.resources) {}

  // The object of this name ("NAMESPACE/NAME" if it is in one) is new or has changed. Its JSON may
  // lack apiVersion and kind. What hasn't changed in more than its status costs nothing further.
  void Upsert(PolicyKind kind, const std::string& name, std::string_view json);
  void Remove(PolicyKind kind, const std::string& name);

  // Without workloads, and without PodGroups, which are many. A kind of which some object can't be
  // read is left out whole, for nothing can be said of what all of its objects lack. Never null.
  std::shared_ptr<const Manifests> All() const;

  // Of the PodGroup; 0: there is none, or it says none.
  int64_t MinMember(std::string_view name_space, std::string_view name) const;

 private:
  struct Entry {
    std::string revision;  // UID and generation; empty: not known
    bool readable = false;
    Manifests object;  // this one alone
  };

  const coscheduling::QuotaMode quota_mode_;
  const quota::ResourceRules resources_;
  mutable std::mutex mutex_;  // guards what follows
  std::array<std::map<std::string, Entry>, kPolicyKinds> entries_;
  mutable std::shared_ptr<const Manifests> all_;  // null: to be made when it is asked for
};

}  // namespace muster::lint
