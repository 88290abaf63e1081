#include "kube/objects/any_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/objects/decode.h"

namespace muster::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <typename T>
AnyJob Parsed(const std::string& spec) {
  auto object =
      Decode<T>(R"({"metadata":{"name":"j","namespace":"n","uid":"u"},"spec":)" + spec + "}");
  EXPECT_TRUE(object.ok()) << object.status();
  return object.ok() ? ToAnyJob(*object) : AnyJob();
}

using Set = AnyJob::PodSet;

TEST(AnyJobPodSets, AJobHasOneOfWhatRunsInParallel) {
  EXPECT_THAT(
      Parsed<Job>(R"({"parallelism":4,"completions":3,
                            "template":{"spec":{"containers":[{"name":"c"}]}}})")
          .pod_sets,
      ElementsAre(Set{"main", 3, R"({"spec":{"containers":[{"name":"c"}]}})", "/spec/template"}));
}

TEST(AnyJobPodSets, AJobSetHasOneOfEachReplicatedJobWhateverItWaitsFor) {
  EXPECT_THAT(
      Parsed<JobSet>(R"({"replicatedJobs":[
      {"name":"Prepare","replicas":1,"template":{"spec":{"template":{"spec":{"a":1}}}}},
      {"name":"train","replicas":2,"dependsOn":[{"name":"Prepare","status":"Complete"}],
       "template":{"spec":{"parallelism":4,"completions":8,"template":{"spec":{"b":1}}}}}]})")
          .pod_sets,
      ElementsAre(
          Set{"prepare", 1, R"({"spec":{"a":1}})", "/spec/replicatedJobs/0/template/spec/template"},
          Set{"train", 8, R"({"spec":{"b":1}})", "/spec/replicatedJobs/1/template/spec/template"}));
}

TEST(AnyJobPodSets, KubeflowsHaveTheirFirstReplicaTypeFirst) {
  EXPECT_THAT(
      Parsed<PyTorchJob>(R"({"pytorchReplicaSpecs":{
      "Worker":{"replicas":3,"template":{"w":1}},"Master":{"replicas":1,"template":{"m":1}}}})")
          .pod_sets,
      ElementsAre(Set{"master", 1, R"({"m":1})", "/spec/pytorchReplicaSpecs/Master/template"},
                  Set{"worker", 3, R"({"w":1})", "/spec/pytorchReplicaSpecs/Worker/template"}));
  EXPECT_THAT(
      Parsed<MPIJob>(R"({"launcherCreationPolicy":"WaitForWorkersReady","mpiReplicaSpecs":{
      "Worker":{"replicas":2,"template":{"w":1}},"Launcher":{"template":{"l":1}}}})")
          .pod_sets,
      ElementsAre(Set{"launcher", 1, R"({"l":1})", "/spec/mpiReplicaSpecs/Launcher/template"},
                  Set{"worker", 2, R"({"w":1})", "/spec/mpiReplicaSpecs/Worker/template"}));
}

TEST(AnyJobPodSets, ARayClusterHasItsHeadAndAllHostsOfEachGroup) {
  EXPECT_THAT(Parsed<RayCluster>(R"({"headGroupSpec":{"template":{"h":1}},"workerGroupSpecs":[
      {"groupName":"GPU","replicas":2,"numOfHosts":4,"template":{"g":1}}]})")
                  .pod_sets,
              ElementsAre(Set{"head", 1, R"({"h":1})", "/spec/headGroupSpec/template"},
                          Set{"gpu", 8, R"({"g":1})", "/spec/workerGroupSpecs/0/template"}));
}

TEST(AnyJobPodSets, OfASuspendedJobSayWhatTheirTemplatesMake) {
  const AnyJob job = Parsed<Job>(R"({"suspend":true,"template":{
      "metadata":{"labels":{"a":"b"},"annotations":{"kueue.x-k8s.io/workload":"job-j-12345"}},
      "spec":{"nodeSelector":{"pool":"a"},"containers":[
        {"name":"c","resources":{"requests":{"nvidia.com/gpu":"8"}}}]}}})");
  const Pod& pod = *job.pod_sets.at(0).pod;
  EXPECT_EQ(pod.meta.name_space, "n");
  EXPECT_EQ(*pod.meta.Label("a"), "b");
  EXPECT_EQ(pod.spec->requests.Get("nvidia.com/gpu"), 8);
  EXPECT_TRUE(job.HasFlavors());
  EXPECT_EQ(Parsed<Job>(R"({"template":{"spec":{}}})").pod_sets.at(0).pod, nullptr);
  EXPECT_FALSE(Parsed<Job>(R"({"suspend":true,"template":{"spec":{}}})").HasFlavors());
}

TEST(AnyJobPodSets, ATemplateThatCannotBeReadIsAFaultOfASuspendedJob) {
  const std::string spec = R"("template":{"spec":{"containers":[
      {"name":"c","resources":{"requests":{"nvidia.com/gpu":"many"}}}]}}})";
  EXPECT_THAT(Parsed<Job>(R"({"suspend":true,)" + spec).fault,
              ::testing::StartsWith("/spec/template: spec.containers[0].resources.requests"));
  EXPECT_EQ(Parsed<Job>("{" + spec).fault, "");
}

TEST(AnyJobPodSets, WhereAnotherJobMakesThePodsThereAreNone) {
  EXPECT_THAT(Parsed<TrainJob>("{}").pod_sets, IsEmpty());
  EXPECT_THAT(Parsed<RayJob>("{}").pod_sets, IsEmpty());
  EXPECT_THAT(Parsed<StatefulSet>(R"({"replicas":2})").pod_sets, IsEmpty());
}

}  // namespace
}  // namespace muster::kube
