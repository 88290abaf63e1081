#include "worker/preflight/image_nccl.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "worker/checkpoint/test_directory.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

// An image's folders. Its Pythons are files of no use.
class NcclOfPythonTest : public testing::Test {
 protected:
  std::string Put(const std::string& packages) const {
    const fs::path file = fs::path(directory_ / packages) / "nvidia/nccl/lib/libnccl.so.2";
    Write(file);
    return file;
  }
  std::string Python(const std::string& path) const {
    Write(directory_ / path);
    return directory_ / path;
  }
  std::string Find(const std::string& program = "python3") const {
    return NcclOfPython(environment_, program);
  }
  static void Write(const fs::path& file) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "";
  }

  const TestDirectory directory_;
  std::map<std::string, std::string> environment_ = {{"PATH", directory_ / "base/bin"}};
};

TEST_F(NcclOfPythonTest, IsBesideThePythonOnThePath) {
  EXPECT_EQ(Find(), "");
  Python("base/bin/python3");
  EXPECT_EQ(Find(), "");
  Python("base/lib/python3.10/site-packages/torch/__init__.py");
  const std::string base = Put("base/lib/python3.12/site-packages");
  EXPECT_EQ(Find(), base);
  // The command may be no Python's: a shell that starts one.
  EXPECT_EQ(Find("sh"), base);
  EXPECT_EQ(Find("/bin/sh"), base);
}

TEST_F(NcclOfPythonTest, IsThatOfTheCommandBeforeTheEnvironmentsAndThePaths) {
  Python("base/bin/python3");
  const std::string base = Put("base/lib/python3.12/site-packages");
  environment_["HOME"] = directory_ / "home";
  const std::string home = Put("home/.local/lib/python3.12/site-packages");
  EXPECT_EQ(Find(), base) << "python3 is in a prefix of its own";
  EXPECT_EQ(Find("sh"), home);
  environment_["CONDA_PREFIX"] = directory_ / "conda";
  const std::string conda = Put("conda/lib/python3.11/site-packages");
  EXPECT_EQ(Find("sh"), conda);
  environment_["VIRTUAL_ENV"] = directory_ / "venv";
  const std::string venv = Put("venv/lib64/python3.12/site-packages");
  EXPECT_EQ(Find("sh"), venv);
  const std::string torchrun = Python("other/bin/torchrun");
  const std::string other = Put("other/lib/python3.9/site-packages");
  EXPECT_EQ(Find(torchrun), other);
  environment_["PYTHONPATH"] = directory_ / "none:" + directory_ / "packages";
  EXPECT_EQ(Find(torchrun), other);
  const std::string packages = Put("packages");
  EXPECT_EQ(Find(torchrun), packages);
}

TEST_F(NcclOfPythonTest, IsThatOfThePythonThatALinkMeans) {
  const std::string python = Python("real/bin/python3.12");
  const std::string real = Put("real/lib/python3.12/dist-packages");
  fs::create_directories(directory_ / "base/bin");
  fs::create_symlink(python, directory_ / "base/bin/python3");
  EXPECT_EQ(Find(), real);
}

}  // namespace
}  // namespace muster::worker
