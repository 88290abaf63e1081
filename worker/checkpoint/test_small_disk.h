// A file system of a test's own that can be full.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

namespace muster::worker {

// Lies over a directory, and is seen by the thread that made it, the threads and the processes that
// this one starts from then on, and nobody else. Needs root.
class SmallDisk {
 public:
  SmallDisk(const std::string& directory, int64_t bytes) : directory_(directory) {
    const std::string size = "size=" + std::to_string(bytes);
    // Without MS_PRIVATE the mount would show outside.
    const bool mounted = ::unshare(CLONE_NEWNS) == 0 &&
                         ::mount("none", "/", /*filesystemtype=*/nullptr, MS_REC | MS_PRIVATE,
                                 /*data=*/nullptr) == 0 &&
                         ::mount("tmpfs", directory_.c_str(), "tmpfs", 0, size.c_str()) == 0;
    error_ = mounted ? "" : "no tmpfs of its own: " + std::generic_category().message(errno);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (error_.empty()) ::umount2(directory_.c_str(), MNT_DETACH);
  }

  // Why it isn't there; empty if it is.
  const std::string& error() const { return error_; }

  // What one file takes: it is used in pieces of this.
  int64_t page() const { return static_cast<int64_t>(Statistics().f_frsize); }
  int64_t free() const { return static_cast<int64_t>(Statistics().f_bavail) * page(); }

  // Fills all of it but so many bytes, or what there is; true if that worked.
  bool LeaveFree(int64_t bytes) {
    ::unlink(ballast_.c_str());
    const int64_t fill = free() - bytes;
    if (fill <= 0) return true;
    const int file = ::open(ballast_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const bool filled = file >= 0 && ::posix_fallocate(file, 0, fill) == 0;
    if (file >= 0) ::close(file);
    return filled;
  }

  // Of what LeaveFree filled; also while others write.
  bool GiveBack(int64_t bytes) {
    struct stat status = {};
    return ::stat(ballast_.c_str(), &status) == 0 &&
           ::truncate(ballast_.c_str(), std::max<int64_t>(0, status.st_size - bytes)) == 0;
  }

 private:
  struct statvfs Statistics() const {
    struct statvfs statistics = {};
    ::statvfs(directory_.c_str(), &statistics);
    return statistics;
  }

  const std::string directory_;
  const std::string ballast_ = directory_ + "/ballast";
  std::string error_;
};

}  // namespace muster::worker
