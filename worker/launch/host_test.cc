#include "worker/launch/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace muster::worker {
namespace {

using ::testing::StartsWith;

TEST(CountDevices, CountsWhatCudaMaySee) {
  EXPECT_EQ(CountDevices({{"CUDA_VISIBLE_DEVICES", "0,2"}}), 2);
  EXPECT_EQ(CountDevices({{"CUDA_VISIBLE_DEVICES", "GPU-1b,GPU-2c,GPU-3d"}}), 3);
  EXPECT_EQ(CountDevices({{"CUDA_VISIBLE_DEVICES", "0,-1,2"}}), 1);
  EXPECT_EQ(CountDevices({{"CUDA_VISIBLE_DEVICES", ""}}), 0);
}

TEST(CountDevices, CountsDeviceFilesOtherwise) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/devices-", getpid());
  std::filesystem::create_directories(folder);
  for (const char* name : {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"}) {
    std::ofstream(absl::StrCat(folder, "/", name)) << "";
  }
  EXPECT_EQ(CountDevices({}, folder), 3);
  EXPECT_EQ(CountDevices({}, folder + "/none"), 0);
  std::filesystem::remove_all(folder);
}

TEST(ThisHost, KnowsItsName) {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  EXPECT_THAT(ThisHost({}).name, StartsWith(name));
}

}  // namespace
}  // namespace muster::worker
