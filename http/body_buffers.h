// Memory of request bodies, used again. A filter call's 200 KiB would else be mapped from the
// kernel, page by page, and given back each time.
#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace muster::http {

// Thread-safe. Keeps at most kKept buffers of at most kLargest bytes; their content is unspecified.
class BodyBuffers {
 public:
  std::string Take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return {};
    std::string buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
  }

  void Give(std::string buffer) {
    if (buffer.capacity() < kSmallest || buffer.capacity() > kLargest) return;
    const std::lock_guard lock(mutex_);
    if (free_.size() < kKept) free_.push_back(std::move(buffer));
  }

 private:
  static constexpr size_t kKept = 8;
  static constexpr size_t kSmallest = 16 << 10;
  static constexpr size_t kLargest = 1 << 20;

  std::mutex mutex_;
  std::vector<std::string> free_;
};

}  // namespace muster::http
