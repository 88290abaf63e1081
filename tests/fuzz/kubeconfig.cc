// kubeconfig files.
#include "kube/client/kubeconfig.h"

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

// A file in memory, gone with this.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view text)
      : descriptor_(memfd_create("kubeconfig", MFD_CLOEXEC)) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    Require(written == static_cast<ssize_t>(text.size()), "the input can be written");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  const int descriptor_;
};

}  // namespace
}  // namespace muster::fuzz

MUSTER_FUZZ_TARGET(std::string_view input) {
  using namespace muster::fuzz;
  const MemoryFile file(input);
  const auto config = muster::kube::LoadKubeconfig({file.path()});
  if (!config.ok()) {
    RequireSayable(MessageOf(config.status()));
    return;
  }
  Require(config->server.starts_with("http"), "a cluster has an address");
  Require(config->credentials != nullptr, "a user has credentials, if only empty ones");
}
