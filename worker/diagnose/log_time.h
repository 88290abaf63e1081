// When a line of a log was written.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "absl/time/time.h"

namespace muster::worker {

struct LineTime {
  absl::Time time = {};  // UTC where the line doesn't say an offset
  bool has_year = true;  // glog's lines have none; `time` is in the year 2000 then
};

// The time that a line begins with, in any of these forms, after brackets and rank prefixes:
//   2026-01-01 12:08:32[.5]  2026-01-01T12:08:32.5Z  2026-01-01 12:08:32,500  2026-01-01_12:08:32
//   E0101 11:10:18.826000    W101 12:08:33.945328381 (glog, and PyTorch's C++ part)
//   libfabric:194:1767269312::
//   [Thu Jan  1 12:08:32 2026] (dmesg -T)
//   Finished:     Thu, 01 Jan 2026 12:08:33 +0000 (kubectl describe, the end of a container)
std::optional<LineTime> TimeOf(std::string_view line);

// Whether the kernel wrote this record: it has its name after the time, or the seconds since the
// kernel began, as dmesg writes them.
bool IsOfKernel(std::string_view line);

// The length of a time that `text` begins with and of what sets it off, 0 if there is none:
// "2026-03-02 10:41:17,123 ", "[10:41:17] ", "03-02 10:41:17.5 - ", "May 27 15:02:40.123456 ",
// "Thu 2026-05-07 15:02:40 UTC ".
size_t TimeLength(std::string_view text);

// `time` in the year that brings it nearest to `near`.
absl::Time WithYearNear(absl::Time time, absl::Time near);

// From `a` to `b`; one of them may have no year.
absl::Duration Since(const LineTime& a, const LineTime& b);

}  // namespace muster::worker
