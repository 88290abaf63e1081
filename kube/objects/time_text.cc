#include "kube/objects/time_text.h"

namespace muster::kube {

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

std::string MilliTimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

std::string MicroTimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

std::string ClockText(absl::Time time) {
  return absl::FormatTime("%H:%M:%SZ", time, absl::UTCTimeZone());
}

std::optional<absl::Time> ReadTimeText(std::string_view text) {
  absl::Time time;
  if (!absl::ParseTime(absl::RFC3339_full, absl::string_view(text.data(), text.size()), &time,
                       nullptr)) {
    return std::nullopt;
  }
  return time;
}

}  // namespace muster::kube
