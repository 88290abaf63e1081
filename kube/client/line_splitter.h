// Cuts a stream of bytes into lines, without copying those that arrive whole.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster::kube {

// Holds at most one unfinished line. What follows the last newline when the stream ends was cut off
// and is never delivered.
class LineSplitter {
 public:
  explicit LineSplitter(size_t max_line) : max_line_(max_line) {}

  // Calls on_line(std::string_view) for each line that `bytes` completes, empty ones left out,
  // until it returns false. False if it did, or if a line is longer than allowed.
  template <typename OnLine>
  bool Feed(std::string_view bytes, OnLine on_line) {
    while (!bytes.empty()) {
      const size_t newline = bytes.find('\n');
      if (newline == std::string_view::npos) {
        if (partial_.size() + bytes.size() > max_line_) return TooLong();
        partial_.append(bytes);
        return true;
      }
      if (partial_.size() + newline > max_line_) return TooLong();
      std::string_view line = bytes.substr(0, newline);
      bytes.remove_prefix(newline + 1);
      if (!partial_.empty()) {
        partial_.append(line);
        line = partial_;
      }
      const bool go_on = line.empty() || on_line(line);
      // A large line's memory is given back; a usual one's is kept for the next.
      if (partial_.capacity() > kKeptBytes) {
        partial_ = {};
      } else {
        partial_.clear();
      }
      if (!go_on) return false;
    }
    return true;
  }

  bool too_long() const { return too_long_; }

 private:
  static constexpr size_t kKeptBytes = 256 << 10;

  bool TooLong() {
    too_long_ = true;
    return false;
  }

  size_t max_line_;
  std::string partial_;
  bool too_long_ = false;
};

}  // namespace muster::kube
