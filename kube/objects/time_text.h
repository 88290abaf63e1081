// Points in time as API objects write them: RFC 3339, in UTC.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace muster::kube {

// Whole seconds, the rest is cut off: metav1.Time (apimachinery/pkg/apis/meta/v1/time.go v1.34).
std::string TimeText(absl::Time time);

// Milliseconds: Muster's own annotations.
std::string MilliTimeText(absl::Time time);

// Microseconds: metav1.MicroTime, which Leases have.
std::string MicroTimeText(absl::Time time);

// "10:00:40Z": how messages tell a moment.
std::string ClockText(absl::Time time);

// Any offset and any fraction of a second. Nothing if it isn't such a time.
std::optional<absl::Time> ReadTimeText(std::string_view text);

}  // namespace muster::kube
