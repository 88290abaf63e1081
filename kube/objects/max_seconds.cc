#include "kube/objects/max_seconds.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "fmt/format.h"

namespace muster::kube {

std::optional<int64_t> MaxSecondsOf(const std::string& value) {
  int32_t seconds = 0;
  if (!absl::SimpleAtoi(value, &seconds) || seconds <= 0) return std::nullopt;
  return seconds;
}

std::string BadMaxSeconds(const std::string& value) {
  return fmt::format("label {} is \"{}\", must be an integer from 1 to {}", kMaxSecondsLabel, value,
                     std::numeric_limits<int32_t>::max());
}

}  // namespace muster::kube
