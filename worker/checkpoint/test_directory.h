// A directory of a test's own, removed with the object.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace muster::worker {

class TestDirectory {
 public:
  TestDirectory() : path_(std::filesystem::temp_directory_path() / "muster-worker-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) {
      std::abort();
    }
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  ~TestDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace muster::worker
