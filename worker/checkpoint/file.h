// Files as checkpoints need them: whole writes, flushed to disk, and errors that name the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::worker {

// An open file; closed with the object.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return descriptor_; }

 private:
  int Release();
  int descriptor_ = -1;
};

// NotFound if there is none, otherwise what the system says. The same for those below; a full disk
// is ResourceExhausted, and says what to do.
absl::StatusOr<FileDescriptor> OpenForReading(const std::string& path);
// Makes the file, or empties it.
absl::StatusOr<FileDescriptor> OpenForWriting(const std::string& path);
// Makes the file, if need be; what is written goes to its end.
absl::StatusOr<FileDescriptor> OpenForAppending(const std::string& path);

absl::StatusOr<uint64_t> FileSize(const FileDescriptor& file, const std::string& path);
// DataLoss if the file ends before.
absl::Status ReadAt(const FileDescriptor& file, const std::string& path, uint64_t offset,
                    std::span<std::byte> bytes);
absl::Status WriteAll(const FileDescriptor& file, const std::string& path,
                      std::span<const std::byte> bytes);
// As WriteAll, in pieces that go to disk as they are written: little is left for Flush, which
// nothing can end early. Cancelled soon after `stop` asks for it.
absl::Status WriteInPieces(const FileDescriptor& file, const std::string& path,
                           std::span<const std::byte> bytes, const std::stop_token& stop);
// To disk: a file's contents, or the names in a directory.
absl::Status Flush(const FileDescriptor& file, const std::string& path);
absl::Status FlushDirectory(const std::string& path);
absl::Status Rename(const std::string& from, const std::string& to);

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t most);
// By a temporary name, flushed and renamed; the directory is not flushed.
absl::Status WriteFileWhole(const std::string& path, std::string_view text);
// What WriteFileWhole left there, whether or not it succeeded; never mind if there is nothing.
void RemoveWritten(const std::string& path);
// And those above it; one that is there already is fine.
absl::Status MakeDirectory(const std::string& path);

// For a system call that failed with `error`.
absl::Status FileError(std::string_view action, const std::string& path, int error);

}  // namespace muster::worker
