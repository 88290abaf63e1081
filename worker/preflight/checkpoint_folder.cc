#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <random>

#include "absl/cleanup/cleanup.h"
#include "fmt/format.h"
#include "worker/diagnose/text.h"
#include "worker/preflight/checks.h"

namespace muster::worker {
namespace {

constexpr char kIdFile[] = ".muster-folder-id";
constexpr size_t kMaxId = 64;

absl::Status Errno(const char* what, const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, Concat("can't ", what, " ", path));
}

// Of 64 random bits, so that nobody else has it.
std::string RandomName() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

absl::Status WriteNewFile(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return Errno("create", path);
  const absl::Cleanup close_file = [file] { close(file); };
  if (write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return Errno("write", path);
  }
  if (fsync(file) != 0) return Errno("flush", path);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return Errno("open", path);
  const absl::Cleanup close_file = [file] { close(file); };
  std::string text(kMaxId, '\0');
  const ssize_t got = read(file, text.data(), text.size());
  if (got < 0) return Errno("read", path);
  text.resize(static_cast<size_t>(got));
  return text;
}

// Writes a file, renames it over another, and reads it back.
absl::Status TryRename(const std::string& folder) {
  const std::string name = Concat(folder, "/.muster-preflight-", RandomName());
  const std::string part = name + ".part";
  const absl::Cleanup remove = [&] {
    unlink(part.c_str());
    unlink(name.c_str());
  };
  if (auto status = WriteNewFile(name, "old"); !status.ok()) return status;
  if (auto status = WriteNewFile(part, "new"); !status.ok()) return status;
  if (rename(part.c_str(), name.c_str()) != 0) return Errno("rename over", name);
  const auto text = ReadSmallFile(name);
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
  if (auto status = WriteNewFile(part, id); !status.ok()) return status;
  const absl::Cleanup remove = [&] { unlink(part.c_str()); };
  // A link, other than a rename, leaves alone what another rank has put there.
  if (link(part.c_str(), path.c_str()) != 0 && errno != EEXIST) return Errno("link", path);
  return ReadSmallFile(path);
}

}  // namespace muster::worker
