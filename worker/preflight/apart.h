// A process of its own for what loads libraries that may hang, crash or leave something behind.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::worker {

struct ApartOptions {
  absl::Duration timeout = absl::Minutes(1);
  // Looked at some ten times a second: whether to give up before.
  std::function<bool()> stopped = {};
  // What is started; by itself this very program.
  std::string program = "/proc/self/exe";
};

struct ApartEnd {
  // kLate and kStopped: it was killed, and is gone unless the kernel holds it.
  enum class How : uint8_t { kExited, kSignalled, kLate, kStopped };
  How how = How::kExited;
  int number = 0;           // the exit code, or the signal that ended it
  std::string answer = {};  // what it wrote to standard output until then, of bounded length
};

// Starts the program with these words, its name first, and waits for its end. It has this process's
// environment and standard error. Unavailable if it can't be started.
absl::StatusOr<ApartEnd> RunApart(std::vector<std::string> words, const ApartOptions& options);

}  // namespace muster::worker
