// The objects of one resource as the API shows them: found, listed with a resourceVersion, and told
// when they change since one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "extender/aggregated/api_resources.h"
#include "extender/state_store.h"

namespace muster::extender {

struct ApiItems {
  std::vector<ApiItem> items;
  std::string version = {};  // a watch since then tells of what isn't in `items`
};

struct ApiChange {
  enum class Type { kAdded, kModified, kDeleted };
  Type type = Type::kAdded;
  ApiItem item;  // if deleted, as it was last; with the version of this change
};

// What changes from some version on. Used by one thread at a time.
class ApiChanges {
 public:
  virtual ~ApiChanges() = default;
  // nullopt: nothing now, and whoever watches will be woken.
  virtual std::optional<ApiChange> Next() = 0;
  // It can't go on: whoever watches must list anew.
  virtual bool lost() const = 0;
};

// Thread-safe.
class ApiObjects {
 public:
  virtual ~ApiObjects() = default;
  // Those of the namespace, and of that name; "" is any. In order of namespace and name.
  virtual ApiItems Find(const GangFilter& filter) = 0;
  // What changed after `since`, or without it all that are there first. `wake` as of a subscription
  // of the store. OutOfRange if that isn't known any more, ResourceExhausted, Unavailable.
  virtual absl::StatusOr<std::unique_ptr<ApiChanges>> Watch(const GangFilter& filter,
                                                            std::optional<uint64_t> since,
                                                            std::function<void()> wake) = 0;
  // OK, or the error that Watch would give now.
  virtual absl::Status RoomForWatch(std::optional<uint64_t> since) = 0;
};

// `store` must outlive it and all that it hands out; so must the resource.
//
// What is published as a list is compared with the list before, once for all who read and only when
// somebody does; its last 256 objects that are gone are remembered.
std::shared_ptr<ApiObjects> ObjectsOf(const ApiResource& resource, StateStore* store);

}  // namespace muster::extender
