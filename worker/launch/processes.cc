#include "worker/launch/processes.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "worker/communicator/tcp_socket.h"

namespace muster::worker {
namespace {

// Environments of programs that put whole files into them are cut.
constexpr size_t kLongestFile = 256 << 10;

std::string FileOf(pid_t pid, absl::string_view name) {
  std::string text;
  const Socket file(open(absl::StrCat("/proc/", pid, "/", name).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return text;
  std::array<char, 4096> buffer;
  while (text.size() < kLongestFile) {
    const ssize_t size = read(file.fd(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(size));
  }
  return text;
}

int64_t Number(absl::string_view text) {
  int64_t number = 0;
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

// The number in the line that begins with `name`.
int64_t NumberIn(absl::string_view text, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, name)) return Number(line.substr(name.size()));
  }
  return 0;
}

// proc(5): the fields of stat after the name, which may hold anything.
enum Field : uint8_t {
  kState = 0,
  kParent = 1,
  kMinorFaults = 7,
  kMajorFaults = 9,
  kUserTicks = 11,
  kSystemTicks = 12,
  kStarted = 19,
  kFields
};

std::optional<ProcessSample> ReadStat(pid_t pid) {
  const std::string stat = FileOf(pid, "stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(stat).substr(name_end + 1), ' ', absl::SkipEmpty());
  if (fields.size() < kFields || fields[kState].empty()) return std::nullopt;
  return ProcessSample{.pid = pid,
                       .parent = static_cast<pid_t>(Number(fields[kParent])),
                       .started = Number(fields[kStarted]),
                       .state = fields[kState][0],
                       .ticks = Number(fields[kUserTicks]) + Number(fields[kSystemTicks]),
                       .events = Number(fields[kMinorFaults]) + Number(fields[kMajorFaults])};
}

void AddEvents(ProcessSample& sample) {
  const std::string io = FileOf(sample.pid, "io");
  sample.events += NumberIn(io, "syscr:") + NumberIn(io, "syscw:");
  sample.events += NumberIn(FileOf(sample.pid, "status"), "voluntary_ctxt_switches:");
}

}  // namespace

std::optional<ProcessSample> SampleOf(pid_t pid) {
  std::optional<ProcessSample> sample = ReadStat(pid);
  if (sample.has_value()) AddEvents(*sample);
  return sample;
}

std::vector<ProcessSample> ProcessesBelow(pid_t root) {
  std::multimap<pid_t, ProcessSample> children;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().native(), &pid)) continue;
    const std::optional<ProcessSample> sample = ReadStat(pid);
    if (sample.has_value()) children.emplace(sample->parent, *sample);
  }
  std::vector<ProcessSample> found;
  std::vector<pid_t> parents = {root};
  for (size_t next = 0; next < parents.size(); ++next) {
    const auto [begin, end] = children.equal_range(parents[next]);
    for (auto child = begin; child != end; ++child) {
      AddEvents(child->second);
      found.push_back(child->second);
      parents.push_back(child->second.pid);
    }
  }
  return found;
}

int64_t TicksPerSecond() {
  static const int64_t ticks = sysconf(_SC_CLK_TCK);
  return ticks;
}

std::optional<std::string> VariableOf(pid_t pid, const std::string& name) {
  const std::string environment = FileOf(pid, "environ");
  const std::string prefix = name + "=";
  for (const absl::string_view variable : absl::StrSplit(environment, '\0')) {
    if (absl::StartsWith(variable, prefix)) return std::string(variable.substr(prefix.size()));
  }
  return std::nullopt;
}

std::string WaitChannelOf(pid_t pid) {
  const std::string channel = FileOf(pid, "wchan");
  return channel == "0" ? "" : channel;
}

}  // namespace muster::worker
