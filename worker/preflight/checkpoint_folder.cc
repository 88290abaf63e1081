#include <unistd.h>

#include <cerrno>
#include <random>

#include "absl/cleanup/cleanup.h"
#include "fmt/format.h"
#include "worker/checkpoint/file.h"
#include "worker/diagnose/text.h"
#include "worker/preflight/checks.h"

namespace muster::worker {
namespace {

constexpr char kIdFile[] = ".muster-folder-id";
constexpr uint64_t kMaxId = 64;

// Of 64 random bits, so that nobody else has it.
std::string RandomName() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

// Writes a file, renames another over it, and reads it back.
absl::Status TryRename(const std::string& folder) {
  const std::string name = Concat(folder, "/.muster-preflight-", RandomName());
  const absl::Cleanup remove = [&] { RemoveWritten(name); };
  if (auto status = WriteFileWhole(name, "old"); !status.ok()) return status;
  if (auto status = WriteFileWhole(name, "new"); !status.ok()) return status;
  const auto text = ReadFile(name, kMaxId);
  if (!text.ok()) return text.status();
  if (*text == "new") return absl::OkStatus();
  return absl::DataLossError(Concat(name, " has its old contents after a rename"));
}

}  // namespace

Row CheckCheckpointFolder(const std::string& folder) {
  constexpr char kCheck[] = "checkpoint folder";
  const absl::Status status = TryRename(folder);
  if (status.ok()) return {.check = kCheck, .numbers = Concat(folder, " takes files and renames")};
  return {.check = kCheck,
          .verdict = Verdict::kFailed,
          .numbers = std::string(status.message()),
          .fix = std::string(CauseOf(CauseId::kCheckpointUnwritable).fix),
          .cause = CauseId::kCheckpointUnwritable};
}

absl::StatusOr<std::string> FolderId(const std::string& folder) {
  const std::string path = Concat(folder, "/", kIdFile);
  const std::string id = RandomName();
  const std::string part = Concat(path, ".", id);
  const absl::Cleanup remove = [&] { RemoveWritten(part); };
  if (auto status = WriteFileWhole(part, id); !status.ok()) return status;
  // A link, other than a rename, leaves alone what another rank has put there.
  if (link(part.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    return FileError("link", path, errno);
  }
  return ReadFile(path, kMaxId);
}

}  // namespace muster::worker
