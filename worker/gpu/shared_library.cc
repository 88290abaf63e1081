#include "worker/gpu/shared_library.h"

#include <dlfcn.h>

#include "fmt/format.h"

namespace muster::worker {

absl::StatusOr<SharedLibrary> SharedLibrary::Open(const std::vector<std::string>& names) {
  std::string errors;
  for (const std::string& name : names) {
    // Global, because CUDA's libraries look for each other's symbols.
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL); handle != nullptr) {
      return SharedLibrary(handle);
    }
    errors += fmt::format("{}{}", errors.empty() ? "" : "; ", dlerror());
  }
  return absl::NotFoundError(errors);
}

void* SharedLibrary::Symbol(const char* name) const { return dlsym(handle_, name); }

}  // namespace muster::worker
