#include "worker/diagnose/line_splitter.h"

#include <algorithm>

namespace muster::worker {

void LineSplitter::Feed(std::string_view chunk, Receiver receive) {
  while (!chunk.empty()) {
    const size_t end = chunk.find_first_of("\r\n");
    Append(chunk.substr(0, end));
    if (end == std::string_view::npos) return;
    Emit(receive);
    if (chunk[end] == '\n') ++number_;
    chunk.remove_prefix(end + 1);
  }
}

void LineSplitter::Finish(Receiver receive) { Emit(receive); }

void LineSplitter::Append(std::string_view piece) {
  line_.append(piece.substr(0, kMaxLine - std::min(kMaxLine, line_.size())));
}

void LineSplitter::Emit(Receiver receive) {
  if (!line_.empty()) receive(number_, line_);
  line_.clear();
}

}  // namespace muster::worker
