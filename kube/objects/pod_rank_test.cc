#include "kube/objects/pod_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace muster::kube {
namespace {

Pod Named(std::string name, StringMap labels = {}) {
  Pod pod;
  pod.meta.name = std::move(name);
  pod.meta.labels = std::move(labels);
  return pod;
}

std::vector<std::string> InOrder(std::vector<Pod> pods) {
  std::ranges::sort(pods, {}, RankOf);
  std::vector<std::string> names;
  names.reserve(pods.size());
  for (const Pod& pod : pods) names.push_back(pod.meta.name);
  return names;
}

TEST(PodRank, NumbersInNamesCountAsNumbers) {
  EXPECT_THAT(InOrder({Named("w-10"), Named("w-9"), Named("w-1"), Named("a-11")}),
              testing::ElementsAre("a-11", "w-1", "w-9", "w-10"));
}

TEST(PodRank, TheMasterComesBeforeTheWorkers) {
  auto labels = [](const char* type, const char* index) {
    return StringMap{{"training.kubeflow.org/replica-type", type},
                     {"training.kubeflow.org/replica-index", index}};
  };
  EXPECT_THAT(InOrder({Named("job-worker-1", labels("worker", "1")),
                       Named("job-worker-0", labels("worker", "0")),
                       Named("job-master-0", labels("Master", "0"))}),
              testing::ElementsAre("job-master-0", "job-worker-0", "job-worker-1"));
}

TEST(PodRank, AnMPIJobsLauncherAndARayClustersHeadComeFirst) {
  auto mpi = [](const char* name, const char* role, const char* index) {
    return Named(name, {{"training.kubeflow.org/job-role", role},
                        {"training.kubeflow.org/replica-index", index}});
  };
  EXPECT_THAT(InOrder({mpi("m-worker-10", "worker", "10"), mpi("m-worker-9", "worker", "9"),
                       mpi("m-launcher-x7k2p", "launcher", "0")}),
              testing::ElementsAre("m-launcher-x7k2p", "m-worker-9", "m-worker-10"));
  EXPECT_THAT(InOrder({Named("r-a-worker-2xk", {{"ray.io/node-type", "worker"}}),
                       Named("r-head", {{"ray.io/node-type", "head"}})}),
              testing::ElementsAre("r-head", "r-a-worker-2xk"));
}

TEST(PodRank, TheCompletionIndexOfAnIndexedJobDecidesBeforeTheRandomName) {
  auto indexed = [](const char* name, const char* index) {
    return Named(name, {{"batch.kubernetes.io/job-completion-index", index}});
  };
  EXPECT_THAT(
      InOrder({indexed("j-2-aaaaa", "2"), indexed("j-0-zzzzz", "0"), indexed("j-10-bbbbb", "10")}),
      testing::ElementsAre("j-0-zzzzz", "j-2-aaaaa", "j-10-bbbbb"));
}

TEST(PodRank, ReplicasOfOneTypeStayTogether) {
  auto labels = [](const char* type, const char* index) {
    return StringMap{{"training.kubeflow.org/replica-type", type},
                     {"training.kubeflow.org/replica-index", index}};
  };
  EXPECT_THAT(
      InOrder({Named("job-worker-0", labels("worker", "0")), Named("job-ps-1", labels("ps", "1")),
               Named("job-ps-0", labels("ps", "0")), Named("job-chief-0", labels("Chief", "0"))}),
      testing::ElementsAre("job-chief-0", "job-ps-0", "job-ps-1", "job-worker-0"));
}

TEST(PodRank, InAJobSetTheJobDecidesBeforeTheCompletionIndexInIt) {
  auto pod = [](const char* name, const char* job, const char* index) {
    return Named(name, {{"jobset.sigs.k8s.io/job-global-index", job},
                        {"batch.kubernetes.io/job-completion-index", index}});
  };
  EXPECT_THAT(InOrder({pod("s-w-1-0-a", "2", "0"), pod("s-w-0-10-b", "1", "10"),
                       pod("s-w-0-9-c", "1", "9"), pod("s-zero-0-0-d", "0", "0")}),
              testing::ElementsAre("s-zero-0-0-d", "s-w-0-9-c", "s-w-0-10-b", "s-w-1-0-a"));
}

TEST(PodRank, TheCompletionIndexMayBeAnAnnotation) {
  Pod pod = Named("j-a");
  pod.meta.annotations = {{"batch.kubernetes.io/job-completion-index", "3"}};
  EXPECT_EQ(RankOf(pod).index, 3);
}

TEST(PodRank, TheOrdinalOfAStatefulSetAndTheIndexInAPodGroupAreRanks) {
  EXPECT_EQ(RankOf(Named("s-4", {{"apps.kubernetes.io/pod-index", "4"}})).index, 4);
  EXPECT_EQ(RankOf(Named("w", {{"kueue.x-k8s.io/pod-group-pod-index", "5"}})).index, 5);
}

TEST(PodRank, AnIndexThatIsNoNumberIsIgnored) {
  EXPECT_EQ(RankOf(Named("a", {{"batch.kubernetes.io/job-completion-index", "x1"}})).index, 0);
}

}  // namespace
}  // namespace muster::kube
