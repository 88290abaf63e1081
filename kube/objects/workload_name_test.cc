#include "kube/objects/workload_name.h"

#include <gtest/gtest.h>

#include <string>

namespace muster::kube {
namespace {

// echo -en 'Job\nbatch\ntrain\nuid-1' | sha1sum
TEST(WorkloadName, HasTheKindAndAHashOfAllThatTellsTheOwner) {
  EXPECT_EQ(WorkloadName({"batch/v1", "Job", "train", "uid-1", true}), "job-train-a6870");
  EXPECT_EQ(WorkloadName({"v1", "Pod", "a", "uid-2", true}), "pod-a-80740");
}

TEST(WorkloadName, IsCutToWhatANameMayBe) {
  const std::string name = WorkloadName({"batch/v1", "Job", std::string(253, 'x'), "u", true});
  EXPECT_EQ(name.size(), 253u);
  EXPECT_EQ(name.substr(0, 248), "job-" + std::string(243, 'x') + "-");
}

}  // namespace
}  // namespace muster::kube
