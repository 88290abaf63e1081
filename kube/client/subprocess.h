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
  // It has this process's standard input and error, and stays in its process group: it may ask
  // whoever sits at the terminal. Then only it is killed, not its children.
  bool interactive = false;
};

struct SubprocessOutput {
  int exit_code = 0;   // 128 + the signal that ended it
  std::string output;  // standard output
  // The first line of standard error, at most 256 bytes; empty of an interactive one.
  std::string error_text;
};

// Blocks. Standard input is empty unless it is interactive; no other descriptor of this process is
// inherited. NotFound if
// the program can't be started, DeadlineExceeded if it ran too long, ResourceExhausted if it
// printed too much; in the last two cases it and its children are killed.
absl::StatusOr<SubprocessOutput> RunSubprocess(const Subprocess& subprocess);

}  // namespace muster::kube
