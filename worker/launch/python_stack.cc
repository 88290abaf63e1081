#include "worker/launch/python_stack.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace muster::worker {
namespace {

constexpr size_t kMostFrames = 100;

bool IsLibrary(const Frame& frame) {
  constexpr std::array<absl::string_view, 4> kLibraries = {"site-packages/", "dist-packages/",
                                                           "/lib/python3", "<frozen "};
  return std::any_of(kLibraries.begin(), kLibraries.end(),
                     [&](absl::string_view part) { return absl::StrContains(frame.file, part); });
}

// `  File "train.py", line 31 in step`
bool ReadFrame(absl::string_view line, Frame* frame) {
  if (!absl::ConsumePrefix(&line, "  File \"")) return false;
  const size_t file_end = line.find("\", line ");
  if (file_end == absl::string_view::npos) return false;
  frame->file = std::string(line.substr(0, file_end));
  line.remove_prefix(file_end + absl::string_view("\", line ").size());
  const size_t number_end = line.find(" in ");
  if (number_end == absl::string_view::npos) return false;
  frame->function = std::string(line.substr(number_end + 4));
  return absl::SimpleAtoi(line.substr(0, number_end), &frame->line);
}

}  // namespace

void PythonStack::Read(absl::string_view line) {
  // "Current thread 0x00007f58d9fad4c0 (most recent call first):", since Python 3.14 with its name.
  if (absl::StartsWith(line, "Current thread ") &&
      absl::StrContains(line, "(most recent call first)")) {
    frames_.clear();
    reading_ = true;
    return;
  }
  if (!reading_) return;
  Frame frame;
  reading_ = frames_.size() < kMostFrames && ReadFrame(line, &frame);
  if (reading_) frames_.push_back(std::move(frame));
}

const Frame* UserFrame(const std::vector<Frame>& frames) {
  if (frames.empty()) return nullptr;
  const auto own = std::find_if(frames.begin(), frames.end(),
                                [](const Frame& frame) { return !IsLibrary(frame); });
  return own == frames.end() ? &frames.front() : &*own;
}

std::string ToText(const Frame& frame) {
  return absl::StrCat(frame.file.substr(frame.file.rfind('/') + 1), ":", frame.line, " (",
                      frame.function, ")");
}

bool WaitsForOthers(const std::vector<Frame>& frames) {
  // Of the innermost ones: what waits is called by what the user calls.
  constexpr size_t kInnermost = 6;
  constexpr std::array<absl::string_view, 6> kPlaces = {"torch/distributed/", "torch/autograd/",
                                                        "torch/cuda/",        "torch/nn/parallel/",
                                                        "deepspeed/comm/",    "horovod/"};
  for (size_t i = 0; i < std::min(kInnermost, frames.size()); ++i) {
    for (const absl::string_view place : kPlaces) {
      if (absl::StrContains(frames[i].file, place)) return true;
    }
  }
  return false;
}

}  // namespace muster::worker
