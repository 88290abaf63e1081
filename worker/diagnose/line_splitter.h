// Cuts a stream into lines within bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace muster::worker {

// Lines end at '\n' and are counted by it, as editors do. A lone '\r' ends a line too, without
// counting: a progress bar rewrites itself for hours before something else is printed after it. Of
// a line that is longer than kMaxLine only the beginning is kept.
class LineSplitter {
 public:
  static constexpr size_t kMaxLine = 16 * 1024;
  using Receiver = absl::FunctionRef<void(int64_t number, std::string_view line)>;

  // Hands on the lines that end in `chunk`, without their end; numbers begin at 1. The line is
  // valid during the call only.
  void Feed(std::string_view chunk, Receiver receive);

  // Hands on the last line if the stream didn't end with an end of line.
  void Finish(Receiver receive);

 private:
  void Append(std::string_view piece);
  void Emit(Receiver receive);

  std::string line_;
  int64_t number_ = 1;
};

}  // namespace muster::worker
