#include "kube/objects/expected_runtime.h"

#include "fmt/format.h"
#include "kube/objects/excerpt.h"

namespace muster::kube {

ExpectedRuntime ExpectedRuntimeOf(const std::vector<const ObjectMeta*>& said_by) {
  constexpr size_t kShown = 64;
  for (const ObjectMeta* meta : said_by) {
    const std::string* said = meta->Annotation(kExpectedRuntimeAnnotation);
    if (said == nullptr) continue;
    absl::Duration time;
    if (absl::ParseDuration(*said, &time) && time > absl::ZeroDuration() &&
        time < absl::InfiniteDuration()) {
      return {time, ""};
    }
    return {absl::InfiniteDuration(),
            fmt::format("annotation {} of {} is \"{}\", must be a duration such as 2h30m",
                        kExpectedRuntimeAnnotation, meta->name, Excerpt(*said, kShown))};
  }
  return {};
}

}  // namespace muster::kube
