#include "extender/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace muster::extender {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Seconds since the epoch at which the kernel began to count.
double BootTime(const std::string& proc) {
  std::istringstream lines(ReadAll(proc + "/stat"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key;
    double value = 0;
    if (words >> key >> value && key == "btime") return value;
  }
  return 0;
}

}  // namespace

ProcessStats ReadProcessStats(const std::string& proc) {
  ProcessStats stats;
  // Fields by man 5 proc, from the third on: the second is the name, in parentheses, which may hold
  // anything.
  const std::string text = ReadAll(proc + "/self/stat");
  const size_t name_ends = text.rfind(')');
  if (name_ends == std::string::npos) return stats;
  std::istringstream words(text.substr(name_ends + 1));
  const std::vector<std::string> fields(std::istream_iterator<std::string>(words), {});
  const auto field = [&](size_t number) {
    return number - 3 < fields.size() ? std::strtod(fields[number - 3].c_str(), nullptr) : 0.0;
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  stats.cpu_seconds = (field(14) + field(15)) / ticks;
  stats.threads = static_cast<int64_t>(field(20));
  stats.start_time_seconds = BootTime(proc) + field(22) / ticks;
  stats.virtual_bytes = static_cast<int64_t>(field(23));
  stats.resident_bytes = static_cast<int64_t>(field(24)) * sysconf(_SC_PAGESIZE);
  std::error_code error;
  for (std::filesystem::directory_iterator at(proc + "/self/fd", error), end; !error && at != end;
       at.increment(error)) {
    ++stats.open_files;
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    stats.max_files = static_cast<int64_t>(limit.rlim_cur);
  }
  return stats;
}

}  // namespace muster::extender
