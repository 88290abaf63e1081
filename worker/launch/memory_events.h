// What the kernel's out-of-memory killer did in this container, as its memory cgroup counts it
// (cgroup v2's memory.events, v1's memory.oom_control).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::worker {

struct MemoryEvents {
  int64_t killed = 0;            // processes
  int64_t limit_reached = 0;     // times; 0 with killed: the node itself was out of memory
  std::optional<int64_t> limit;  // bytes; nothing without one
};

// Nothing where the cgroup can't be seen. `root` is put before /proc and /sys.
std::optional<MemoryEvents> ReadMemoryEvents(const std::string& root = "");

}  // namespace muster::worker
