#include "quota/workload_end.h"

#include <gtest/gtest.h>

namespace muster::quota {
namespace {

class WorkloadEndsTest : public ::testing::Test {
 protected:
  static kube::Workload Of(const std::string& kind, const std::string& uid) {
    kube::Workload workload;
    workload.meta.name_space = "team";
    const std::string version = kind == "Pod" ? "v1" : kind == "Job" ? "batch/v1" : "x/v1";
    workload.meta.owners = {{version, kind, "owner", uid, true}};
    return workload;
  }
  static kube::Pod Ended(const std::string& uid, bool well, const std::string& where = "team") {
    kube::Pod pod;
    pod.meta.uid = uid;
    pod.meta.name_space = where;
    pod.phase = well ? kube::PodPhase::kSucceeded : kube::PodPhase::kFailed;
    return pod;
  }
  std::string EndOf(const kube::Workload& workload, const kube::AnyJob* job = nullptr) {
    const auto stands = [this](const std::string& uid) { return uid == standing_; };
    return std::string(ends_.EndOf(workload, job, stands).value_or("(runs)"));
  }

  WorkloadEnds ends_;
  std::string standing_;
};

TEST_F(WorkloadEndsTest, AJobSaysItself) {
  kube::AnyJob job;
  job.name_space = "team";
  const kube::Workload workload = Of("Job", "job");
  EXPECT_EQ(EndOf(workload, &job), "(runs)");
  job.finished = true;
  EXPECT_EQ(EndOf(workload, &job), "Succeeded");
  job.failed = true;
  EXPECT_EQ(EndOf(workload, &job), "Failed");
  EXPECT_EQ(EndOf(workload), "OwnerNotFound");
  job.name_space = "elsewhere";
  EXPECT_EQ(EndOf(workload, &job), "OwnerNotFound") << "any UID can be written in one's namespace";
}

TEST_F(WorkloadEndsTest, OfAKindThatIsNotReadItsOwnDeletionTells) {
  kube::Workload workload = Of("AppWrapper", "one");
  EXPECT_EQ(EndOf(workload), "(runs)");
  workload.meta.deletion_time = absl::UnixEpoch();
  EXPECT_EQ(EndOf(workload), "OwnerNotFound");
}

TEST_F(WorkloadEndsTest, APodAloneHasEndedOnceItIsSeenSo) {
  kube::Workload workload = Of("Pod", "pod");
  EXPECT_EQ(EndOf(workload), "(runs)") << "it may not have a node yet";
  ends_.Note(Ended("pod", true, "elsewhere"));
  EXPECT_EQ(EndOf(workload), "(runs)");
  ends_.Note(Ended("pod", true));
  EXPECT_EQ(EndOf(workload), "Succeeded");
  ends_.Note(Ended("pod", false));
  EXPECT_EQ(EndOf(workload), "Failed");
  ends_.Forget("pod");
  workload.meta.deletion_time = absl::UnixEpoch();
  standing_ = "pod";
  EXPECT_EQ(EndOf(workload), "(runs)") << "somebody deleted the Workload alone";
  standing_ = "";
  EXPECT_EQ(EndOf(workload), "OwnerNotFound");
}

TEST_F(WorkloadEndsTest, AGroupHasEndedWithItsLastPod) {
  kube::Workload workload = Of("PodGroup", "");
  workload.members = {"a", "b"};
  ends_.Note(Ended("a", true));
  EXPECT_EQ(EndOf(workload), "(runs)");
  ends_.Note(Ended("b", true));
  EXPECT_EQ(EndOf(workload), "Succeeded");
  ends_.Note(Ended("a", false));
  EXPECT_EQ(EndOf(workload), "Failed");
}

}  // namespace
}  // namespace muster::quota
