// Annotation muster.dev/expected-runtime on pods or their PodGroup: how long they say that they
// run. A forecast, which nothing is decided by.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/meta.h"

namespace muster::kube {

inline constexpr std::string_view kExpectedRuntimeAnnotation = "muster.dev/expected-runtime";

struct ExpectedRuntime {
  absl::Duration time = absl::InfiniteDuration();  // if nothing is said that can be read
  std::string error;                               // a sentence that names the field; or empty
  bool operator==(const ExpectedRuntime&) const = default;
};

// By the first of these that says anything.
ExpectedRuntime ExpectedRuntimeOf(const std::vector<const ObjectMeta*>& said_by);

}  // namespace muster::kube
