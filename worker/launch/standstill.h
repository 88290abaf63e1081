// Of ranks that all stand still: which one keeps the others waiting.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/launch/python_stack.h"

namespace muster::worker {

// One rank, as it was found.
struct RankPicture {
  int rank = 0;
  char state = '?';                 // of its main thread, as ProcessSample's
  std::string wait_channel = {};    // as WaitChannelOf()
  std::vector<Frame> stack = {};    // if it is a Python that said it
  std::optional<int> gpu_use = {};  // of its GPU, in per cent, as NVML tells it
};

struct Standstill {
  std::optional<int> rank;  // who is behind; nothing if that can't be told
  std::string detail;       // half a sentence: how it is known, or what all do
};

// What the first of these tells apart, in this order: a rank that is stopped (SIGSTOP); what the
// libraries between the ranks say (`told`, by nccl_ras.h or flight_recorder.h; may be empty); a
// rank that is elsewhere in its Python program than those that wait; one that waits for storage;
// one whose GPU does nothing while the others' spin; one that the kernel holds elsewhere than the
// others.
Standstill WhoIsBehind(const std::vector<RankPicture>& ranks, const Standstill& told);

}  // namespace muster::worker
