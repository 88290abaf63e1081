// Events: what controllers say of the objects that they work on.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace muster::kube {

// The object that something else speaks of.
struct ObjectReference {
  std::string kind;
  std::string name_space;
  std::string name;
  std::string uid;
  bool operator==(const ObjectReference&) const = default;
};

// core/v1 Event, whichever of its two forms it was written in: core's own (lastTimestamp, count) or
// that of events.k8s.io (eventTime, series). k8s.io/api core/v1 v0.34.
struct Event {
  ObjectReference about;  // involvedObject
  std::string type;       // "Normal", "Warning"
  std::string reason;
  std::string message;
  int64_t count = 1;  // how often it was seen
  // When it was seen last: the latest time that the object carries.
  absl::Time last = absl::InfinitePast();
};

}  // namespace muster::kube
