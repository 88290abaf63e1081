// Runs a program to its end and keeps what it printed: for credential plugins.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::kube {

struct Subprocess {
  std::string program;  // looked up in PATH unless it contains a slash
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment;  // on top of this process's own
  absl::Duration timeout = absl::Seconds(30);
  size_t max_output = 1 << 20;  // bytes of standard output
};

struct SubprocessOutput {
  int exit_code = 0;       // 128 + the signal that ended it
  std::string output;      // standard output
  std::string error_text;  // the first line of standard error, at most 256 bytes
};

// Blocks. Standard input is empty; no other descriptor of this process is inherited. NotFound if
// the program can't be started, DeadlineExceeded if it ran too long, ResourceExhausted if it
// printed too much; in the last two cases it and its children are killed.
absl::StatusOr<SubprocessOutput> RunSubprocess(const Subprocess& subprocess);

}  // namespace muster::kube
