#include "worker/checkpoint/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "fmt/format.h"

namespace muster::worker {
namespace {

constexpr char kTemporarySuffix[] = ".tmp";

absl::StatusOr<FileDescriptor> Open(const std::string& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return FileError("open", path, errno);
  }
  return FileDescriptor(descriptor);
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

int FileDescriptor::Release() { return std::exchange(descriptor_, -1); }

absl::StatusOr<FileDescriptor> OpenForReading(const std::string& path) {
  return Open(path, O_RDONLY);
}

absl::StatusOr<FileDescriptor> OpenForWriting(const std::string& path) {
  return Open(path, O_WRONLY | O_CREAT | O_TRUNC);
}

absl::StatusOr<FileDescriptor> OpenForAppending(const std::string& path) {
  return Open(path, O_WRONLY | O_CREAT | O_APPEND);
}

absl::StatusOr<uint64_t> FileSize(const FileDescriptor& file, const std::string& path) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) {
    return FileError("stat", path, errno);
  }
  return static_cast<uint64_t>(status.st_size);
}

absl::Status ReadAt(const FileDescriptor& file, const std::string& path, uint64_t offset,
                    std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return FileError("read", path, errno);
    }
    if (count == 0) {
      return absl::DataLossError(fmt::format("{}: cut short: {} bytes are missing at byte {}", path,
                                             bytes.size(), offset));
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return absl::OkStatus();
}

absl::Status WriteAll(const FileDescriptor& file, const std::string& path,
                      std::span<const std::byte> bytes) {
  // Linux writes no more than 2 GiB at once.
  constexpr size_t kMost = size_t{1} << 30;
  while (!bytes.empty()) {
    const ssize_t count = ::write(file.get(), bytes.data(), std::min(bytes.size(), kMost));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return FileError("write", path, errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::Status WriteInPieces(const FileDescriptor& file, const std::string& path,
                           std::span<const std::byte> bytes, const std::stop_token& stop) {
  constexpr int64_t kPiece = int64_t{64} << 20;  // some tenths of a second on a slow disk
  int64_t at = ::lseek(file.get(), 0, SEEK_CUR);
  if (at < 0) {
    return FileError("seek in", path, errno);
  }
  const auto to_disk = [&](int64_t from, unsigned flags) {
    // Not every file system can; then all is left for Flush.
    return ::sync_file_range(file.get(), from, kPiece, flags) == 0 || errno == EINVAL ||
                   errno == ENOSYS || errno == ESPIPE || errno == EOPNOTSUPP
               ? absl::OkStatus()
               : FileError("flush", path, errno);
  };
  absl::Status status;
  while (!bytes.empty() && status.ok()) {
    if (stop.stop_requested()) {
      return absl::CancelledError(fmt::format("{}: given up", path));
    }
    const auto count =
        static_cast<size_t>(std::min(static_cast<int64_t>(bytes.size()), kPiece - at % kPiece));
    status = WriteAll(file, path, bytes.first(count));
    bytes = bytes.subspan(count);
    at += static_cast<int64_t>(count);
    if (at % kPiece == 0 && status.ok()) {
      status = to_disk(at - kPiece, SYNC_FILE_RANGE_WRITE);
      if (at > kPiece) {
        status.Update(to_disk(at - 2 * kPiece, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                                   SYNC_FILE_RANGE_WAIT_AFTER));
      }
    }
  }
  return status;
}

absl::Status Flush(const FileDescriptor& file, const std::string& path) {
  if (::fsync(file.get()) != 0) {
    return FileError("flush", path, errno);
  }
  return absl::OkStatus();
}

absl::Status FlushDirectory(const std::string& path) {
  const absl::StatusOr<FileDescriptor> directory = Open(path, O_RDONLY | O_DIRECTORY);
  if (!directory.ok()) {
    return directory.status();
  }
  return Flush(*directory, path);
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    return FileError("rename to " + to, from, errno);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t most) {
  const absl::StatusOr<FileDescriptor> file = OpenForReading(path);
  if (!file.ok()) {
    return file.status();
  }
  const absl::StatusOr<uint64_t> size = FileSize(*file, path);
  if (!size.ok()) {
    return size.status();
  }
  if (*size > most) {
    return absl::DataLossError(
        fmt::format("{}: has {} bytes; at most {} make sense", path, *size, most));
  }
  std::string text(*size, '\0');
  if (absl::Status status =
          ReadAt(*file, path, 0, std::as_writable_bytes(std::span(text.data(), text.size())));
      !status.ok()) {
    return status;
  }
  return text;
}

absl::Status WriteFileWhole(const std::string& path, std::string_view text) {
  const std::string temporary = path + kTemporarySuffix;
  const absl::StatusOr<FileDescriptor> file = OpenForWriting(temporary);
  if (!file.ok()) {
    return file.status();
  }
  absl::Status status =
      WriteAll(*file, temporary, std::as_bytes(std::span(text.data(), text.size())));
  if (status.ok()) {
    status = Flush(*file, temporary);
  }
  return status.ok() ? Rename(temporary, path) : status;
}

void RemoveWritten(const std::string& path) {
  ::unlink(path.c_str());
  ::unlink((path + kTemporarySuffix).c_str());
}

absl::Status MakeDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? FileError("make the directory", path, error.value()) : absl::OkStatus();
}

absl::Status FileError(std::string_view action, const std::string& path, int error) {
  const std::string message =
      fmt::format("{}: can't {}: {}", path, action, std::generic_category().message(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message +
                                         "; let the pod's user write there, or name another "
                                         "directory");
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(
          message +
          "; free or add space: a checkpoint needs 12 bytes for each parameter, and "
          "one more than are kept are on disk at a time");
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace muster::worker
