// What the kernel says of this process, under the names that every Prometheus client has for it
// (https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics).
#pragma once

#include <cstdint>
#include <string>

namespace muster::extender {

struct ProcessStats {
  double cpu_seconds = 0;
  double start_time_seconds = 0;  // since the epoch
  int64_t resident_bytes = 0;
  int64_t virtual_bytes = 0;
  int64_t threads = 0;
  int64_t open_files = 0;
  int64_t max_files = 0;
};

// What can't be read stays 0. `proc`: another folder in place of /proc.
ProcessStats ReadProcessStats(const std::string& proc = "/proc");

}  // namespace muster::extender
