#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kube/objects/decode.h"

namespace muster::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string Object(const std::string& spec) {
  return R"({"metadata":{"name":"j","namespace":"n","uid":"u"},"spec":)" + spec + "}";
}

template <typename T>
T ReadSpec(const std::string& spec) {
  auto object = Decode<T>(Object(spec));
  EXPECT_TRUE(object.ok()) << object.status();
  return object.ok() ? *std::move(object) : T();
}

TEST(DecodeJob, ReadsHowManyPodsItMakes) {
  const Job job = ReadSpec<Job>(
      R"({"parallelism":4,"completions":8,"completionMode":"Indexed","suspend":true,
          "template":{"spec":{"schedulerName":"coscheduling"}}})");
  EXPECT_EQ(job.spec.parallelism, 4);
  EXPECT_EQ(job.spec.completions, 8);
  EXPECT_TRUE(job.spec.suspend);
  EXPECT_EQ(job.spec.scheduler_name, "coscheduling");
  EXPECT_EQ(job.error, "");
}

TEST(DecodeJob, WithoutCompletionsItMakesAsManyAsItTakes) {
  EXPECT_EQ(ReadSpec<Job>(R"({"parallelism":4})").spec.completions, std::nullopt);
}

TEST(DecodeJob, WithNeitherItMakesOnePod) {
  const Job job = ReadSpec<Job>("{}");
  EXPECT_EQ(job.spec.parallelism, 1);
  EXPECT_EQ(job.spec.completions, 1);
}

TEST(DecodeJob, KeepsOnlyTheLabelsAndAnnotationsThatSayWhichGang) {
  const auto job = Decode<Job>(R"({"metadata":{"name":"j","uid":"u","finalizers":["f"],
    "labels":{"app":"a","kueue.x-k8s.io/queue-name":"q",
              "jobset.sigs.k8s.io/replicatedjob-name":"node","jobset.sigs.k8s.io/job-key":"k"},
    "annotations":{"x":"y","muster.dev/gang":"false"},
    "ownerReferences":[{"kind":"JobSet","name":"s","uid":"u-0","controller":true}]},"spec":{}})");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->meta.labels, ElementsAre(Pair("jobset.sigs.k8s.io/replicatedjob-name", "node"),
                                            Pair("kueue.x-k8s.io/queue-name", "q")));
  EXPECT_THAT(job->meta.annotations, ElementsAre(Pair("muster.dev/gang", "false")));
  EXPECT_EQ(job->meta.Controller()->uid, "u-0");
}

TEST(DecodeJob, ReadsAStatefulSet) {
  StatefulSet set = ReadSpec<StatefulSet>(R"({"replicas":3,"podManagementPolicy":"Parallel"})");
  EXPECT_EQ(set.replicas, 3);
  EXPECT_TRUE(set.parallel);
  set = ReadSpec<StatefulSet>("{}");
  EXPECT_EQ(set.replicas, 1);
  EXPECT_FALSE(set.parallel);
}

TEST(DecodeJob, ReadsAJobSetsReplicatedJobsAndTheirOrder) {
  const JobSet set = ReadSpec<JobSet>(R"({"suspend":true,
    "startupPolicy":{"startupPolicyOrder":"InOrder"},
    "replicatedJobs":[
      {"name":"init","template":{"spec":{}}},
      {"name":"node","replicas":2,"dependsOn":[{"name":"init","status":"Complete"}],
       "template":{"spec":{"parallelism":3,"completions":3,
                           "template":{"spec":{"schedulerName":"s"}}}}}]})");
  EXPECT_TRUE(set.in_order);
  EXPECT_TRUE(set.suspend);
  ASSERT_EQ(set.replicated_jobs.size(), 2);
  EXPECT_EQ(set.replicated_jobs[0].name, "init");
  EXPECT_EQ(set.replicated_jobs[0].replicas, 1);
  EXPECT_EQ(set.replicated_jobs[0].spec.completions, 1);
  EXPECT_EQ(set.replicated_jobs[1].replicas, 2);
  EXPECT_EQ(set.replicated_jobs[1].spec.parallelism, 3);
  EXPECT_EQ(set.replicated_jobs[1].spec.scheduler_name, "s");
  EXPECT_THAT(set.replicated_jobs[1].depends_on, ElementsAre("init/Complete"));
}

TEST(DecodeJob, ReadsAPyTorchJobsReplicaTypesAndSchedulingPolicy) {
  const PyTorchJob job = ReadSpec<PyTorchJob>(R"({
    "runPolicy":{"suspend":true,
                 "schedulingPolicy":{"minAvailable":3,"scheduleTimeoutSeconds":60}},
    "elasticPolicy":{"minReplicas":2,"maxReplicas":5},
    "pytorchReplicaSpecs":{
      "Master":{"template":{"spec":{"schedulerName":"coscheduling"}}},
      "Worker":{"replicas":3,"template":{}}}})");
  ASSERT_EQ(job.replica_types.size(), 2);
  EXPECT_EQ(job.replica_types[0].name, "Master");
  EXPECT_EQ(job.replica_types[0].replicas, 1);
  EXPECT_EQ(job.replica_types[0].scheduler_name, "coscheduling");
  EXPECT_EQ(job.replica_types[1].name, "Worker");
  EXPECT_EQ(job.replica_types[1].replicas, 3);
  EXPECT_EQ(job.replica_types[1].scheduler_name, "");
  EXPECT_TRUE(job.suspend);
  EXPECT_EQ(job.min_available, 3);
  EXPECT_EQ(job.schedule_timeout_seconds, 60);
  EXPECT_EQ(job.elastic_min_replicas, 2);
}

TEST(DecodeJob, TheElasticMaximumStandsInForTheMinimum) {
  EXPECT_EQ(ReadSpec<PyTorchJob>(R"({"elasticPolicy":{"maxReplicas":5}})").elastic_min_replicas, 5);
}

TEST(DecodeJob, ReadsAnMPIJob) {
  const MPIJob job = ReadSpec<MPIJob>(R"({
    "launcherCreationPolicy":"WaitForWorkersReady",
    "runPolicy":{"suspend":true,
                 "schedulingPolicy":{"minAvailable":3,"scheduleTimeoutSeconds":60}},
    "mpiReplicaSpecs":{
      "Launcher":{"template":{"spec":{"schedulerName":"coscheduling"}}},
      "Worker":{"replicas":3,"template":{}}}})");
  ASSERT_EQ(job.replica_types.size(), 2);
  EXPECT_EQ(job.replica_types[0].name, "Launcher");
  EXPECT_EQ(job.replica_types[0].replicas, 1);
  EXPECT_EQ(job.replica_types[0].scheduler_name, "coscheduling");
  EXPECT_EQ(job.replica_types[1].replicas, 3);
  EXPECT_TRUE(job.launcher_waits);
  EXPECT_TRUE(job.suspend);
  EXPECT_EQ(job.min_available, 3);
  EXPECT_EQ(job.schedule_timeout_seconds, 60);
  EXPECT_FALSE(ReadSpec<MPIJob>(R"({"launcherCreationPolicy":"AtStartup"})").launcher_waits);
}

TEST(DecodeJob, ReadsARayClustersGroupsWithinTheirBounds) {
  const RayCluster cluster = ReadSpec<RayCluster>(R"({
    "suspend":true,
    "headGroupSpec":{"template":{"spec":{"schedulerName":"coscheduling"}}},
    "workerGroupSpecs":[
      {"groupName":"plain","replicas":3,"minReplicas":1,"maxReplicas":9},
      {"groupName":"few","replicas":1,"minReplicas":2},
      {"groupName":"many","replicas":7,"maxReplicas":4,"numOfHosts":2},
      {"groupName":"unsaid","minReplicas":1},
      {"groupName":"off","replicas":3,"suspend":true}]})");
  EXPECT_TRUE(cluster.suspend);
  ASSERT_EQ(cluster.groups.size(), 6);
  EXPECT_EQ(cluster.groups[0].name, "head");
  EXPECT_EQ(cluster.groups[0].scheduler_name, "coscheduling");
  std::vector<int64_t> replicas;
  for (const RayGroup& group : cluster.groups) replicas.push_back(group.replicas);
  EXPECT_THAT(replicas, ElementsAre(1, 3, 2, 4, 1, 0));
  EXPECT_EQ(cluster.groups[3].hosts, 2);
}

TEST(DecodeJob, ReadsWhetherARayJobCanBeSuspendedAndHasEnded) {
  const auto job = Decode<RayJob>(
      R"({"metadata":{"name":"j","uid":"u"},"spec":{"suspend":true,"shutdownAfterJobFinishes":true},
          "status":{"jobDeploymentStatus":"Complete"}})");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job->suspend);
  EXPECT_TRUE(job->shuts_down);
  EXPECT_TRUE(job->finished);
  EXPECT_FALSE(ReadSpec<RayJob>("{}").finished);
}

template <typename T>
bool IsFinished(const std::string& type, const std::string& status) {
  auto object =
      Decode<T>(R"({"metadata":{"name":"j","uid":"u"},"status":{"conditions":[{"type":"Created",)"
                R"("status":"True"},{"type":")" +
                type + R"(","status":")" + status + R"("}]}})");
  return object.ok() && object->finished;
}

TEST(DecodeJob, ConditionsSayThatItHasEnded) {
  for (const char* end : {"Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"}) {
    EXPECT_TRUE(IsFinished<Job>(end, "True")) << end;
    EXPECT_FALSE(IsFinished<Job>(end, "False")) << end;
  }
  EXPECT_TRUE(IsFinished<JobSet>("Completed", "True"));
  EXPECT_TRUE(IsFinished<JobSet>("Failed", "True"));
  EXPECT_TRUE(IsFinished<PyTorchJob>("Succeeded", "True"));
  EXPECT_TRUE(IsFinished<PyTorchJob>("Failed", "True"));
  EXPECT_FALSE(IsFinished<PyTorchJob>("Restarting", "True"));
  EXPECT_TRUE(IsFinished<TrainJob>("Complete", "True"));
  EXPECT_TRUE(IsFinished<MPIJob>("Succeeded", "True"));
  EXPECT_FALSE(IsFinished<MPIJob>("Suspended", "True"));
  EXPECT_FALSE(IsFinished<TrainJob>("Suspended", "True"));
}

TEST(DecodeJob, ABadCountIsNamedAndTheObjectKept) {
  EXPECT_EQ(ReadSpec<Job>(R"({"parallelism":-1})").error,
            "spec.parallelism is -1, must be an integer from 0 to 2147483647");
  EXPECT_THAT(ReadSpec<Job>(R"({"completions":"4"})").error,
              HasSubstr(R"(spec.completions is "4")"));
  EXPECT_THAT(ReadSpec<StatefulSet>(R"({"replicas":1e30})").error, HasSubstr("spec.replicas is"));
  EXPECT_THAT(
      ReadSpec<PyTorchJob>(R"({"pytorchReplicaSpecs":{"Worker":{"replicas":2147483648}}})").error,
      HasSubstr("spec.pytorchReplicaSpecs.Worker.replicas is 2147483648"));
  EXPECT_THAT(ReadSpec<RayCluster>(R"({"workerGroupSpecs":[{"numOfHosts":-1}]})").error,
              HasSubstr("spec.workerGroupSpecs[0].numOfHosts is -1"));
  EXPECT_THAT(ReadSpec<JobSet>(R"({"replicatedJobs":[{"name":"a"},{"replicas":true}]})").error,
              HasSubstr("spec.replicatedJobs[1].replicas is true"));
}

TEST(DecodeJob, AWrongTypeIsNamedAndTheObjectKept) {
  EXPECT_THAT(ReadSpec<JobSet>(R"({"replicatedJobs":7})").error, HasSubstr("spec.replicatedJobs"));
  EXPECT_THAT(ReadSpec<TrainJob>(R"({"suspend":"no"})").error, HasSubstr("spec.suspend"));
}

TEST(DecodeJob, OneWithoutAnIdentityIsRefused) {
  EXPECT_FALSE(Decode<Job>(R"({"metadata":{"name":"j"}})").ok());
  EXPECT_FALSE(Decode<TrainJob>("[]").ok());
}

}  // namespace
}  // namespace muster::kube
