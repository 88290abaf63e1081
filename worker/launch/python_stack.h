// Where a Python was when a signal ended it, as its faulthandler prints it.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace muster::worker {

struct Frame {
  std::string file = {};
  int line = 0;
  std::string function = {};
};

// Takes lines of one process as they come.
class PythonStack {
 public:
  void Read(absl::string_view line);

  // Of the thread that got the signal, the innermost frame first; empty until there is one. At most
  // 100, as many as faulthandler prints.
  const std::vector<Frame>& frames() const { return frames_; }

 private:
  bool reading_ = false;
  std::vector<Frame> frames_;
};

// The innermost frame of the user's own code; of a library's if there is no such; null if there is
// no frame.
const Frame* UserFrame(const std::vector<Frame>& frames);

// "train.py:31 (step)"
std::string ToText(const Frame& frame);

// Whether it is where ranks wait for each other: in torch.distributed, in a backward pass, ...
bool WaitsForOthers(const std::vector<Frame>& frames);

}  // namespace muster::worker
