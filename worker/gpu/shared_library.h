// A library that is loaded when it is needed, so that the worker starts where it isn't there.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::worker {

// Stays loaded until the process ends: CUDA's libraries keep state that outlives their users.
class SharedLibrary {
 public:
  // The first of `names` that loads; NotFound with each one's error.
  static absl::StatusOr<SharedLibrary> Open(const std::vector<std::string>& names);

  // Null if the library has no function of this name.
  template <typename Function>
  Function* Find(const char* name) const {
    return reinterpret_cast<Function*>(Symbol(name));
  }
  void* handle() const { return handle_; }

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}
  void* Symbol(const char* name) const;

  void* handle_;
};

}  // namespace muster::worker
