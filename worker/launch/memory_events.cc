#include "worker/launch/memory_events.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace muster::worker {
namespace {

// What v1 writes where there is no limit is about this.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::optional<std::string> Contents(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Of "name number" lines.
int64_t Count(const std::string& text, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t count = 0;
    if (words.size() == 2 && words[0] == name && absl::SimpleAtoi(words[1], &count)) return count;
  }
  return 0;
}

std::optional<int64_t> Limit(const std::string& path) {
  int64_t limit = 0;
  if (!absl::SimpleAtoi(Contents(path).value_or(""), &limit) || limit >= kNoLimit) {
    return std::nullopt;
  }
  return limit;
}

// This process's group in the hierarchy of v2 ("0::/...") or in v1's of memory ("4:memory:/...").
std::string GroupIn(const std::string& cgroup, bool v2) {
  for (const absl::string_view line : absl::StrSplit(cgroup, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(parts[1], ',');
    const bool has_memory =
        std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    if (v2 ? parts[1].empty() : has_memory) return std::string(parts[2]);
  }
  return "/";
}

}  // namespace

std::optional<MemoryEvents> ReadMemoryEvents(const std::string& root) {
  const std::string cgroup = Contents(root + "/proc/self/cgroup").value_or("");
  // In a container the mount shows its own group as the root, whatever the path says.
  for (const std::string& group : {GroupIn(cgroup, /*v2=*/true), std::string("/")}) {
    const std::string folder = absl::StrCat(root, "/sys/fs/cgroup", group);
    const std::optional<std::string> events = Contents(folder + "/memory.events");
    if (!events.has_value()) continue;
    return MemoryEvents{.killed = Count(*events, "oom_kill"),
                        .limit_reached = Count(*events, "oom"),
                        .limit = Limit(folder + "/memory.max")};
  }
  for (const std::string& group : {GroupIn(cgroup, /*v2=*/false), std::string("/")}) {
    const std::string folder = absl::StrCat(root, "/sys/fs/cgroup/memory", group);
    const std::optional<std::string> control = Contents(folder + "/memory.oom_control");
    if (!control.has_value()) continue;
    int64_t failures = 0;
    if (!absl::SimpleAtoi(Contents(folder + "/memory.failcnt").value_or(""), &failures)) {
      failures = 0;
    }
    return MemoryEvents{.killed = Count(*control, "oom_kill"),
                        .limit_reached = failures,
                        .limit = Limit(folder + "/memory.limit_in_bytes")};
  }
  return std::nullopt;
}

}  // namespace muster::worker
