#include "worker/diagnose/diagnosis.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "worker/diagnose/line_splitter.h"
#include "worker/diagnose/text.h"

namespace muster::worker {

absl::Status Diagnosis::ReadFile(const std::string& path) {
  const bool standard_input = path == "-";
  const int file = standard_input ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return absl::ErrnoToStatus(errno, Concat("can't open ", path));
  const absl::Cleanup close_file = [&] {
    if (!standard_input) close(file);
  };
  LogReader reader(standard_input ? "standard input" : path);
  const auto take = [&](int64_t number, std::string_view line) { reader.Read(number, line); };
  LineSplitter splitter;
  std::string buffer(64 * 1024, '\0');
  ssize_t got = 0;
  do {
    got = read(file, buffer.data(), buffer.size());
    if (got > 0) splitter.Feed(std::string_view(buffer).substr(0, static_cast<size_t>(got)), take);
  } while (got > 0 || (got < 0 && errno == EINTR));
  const int error = errno;
  splitter.Finish(take);
  logs_.push_back(reader.Facts());
  return got < 0 ? absl::ErrnoToStatus(error, Concat("can't read ", path)) : absl::OkStatus();
}

void Diagnosis::ReadText(std::string name, std::string_view text) {
  LogReader reader(std::move(name));
  const auto take = [&](int64_t number, std::string_view line) { reader.Read(number, line); };
  LineSplitter splitter;
  splitter.Feed(text, take);
  splitter.Finish(take);
  logs_.push_back(reader.Facts());
}

Explanation Diagnosis::Explain() { return Rank(std::exchange(logs_, {})); }

}  // namespace muster::worker
