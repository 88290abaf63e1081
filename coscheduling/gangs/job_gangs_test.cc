#include "coscheduling/gangs/job_gangs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "kube/objects/decode.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// An object NAME in namespace "team" with UID "NAME-uid".
template <typename T>
T Object(const std::string& name, const std::string& spec, const std::string& meta = "") {
  auto object =
      kube::Decode<T>(R"({"metadata":{"namespace":"team","name":")" + name + R"(","uid":")" + name +
                      R"(-uid")" + (meta.empty() ? "" : ",") + meta + R"(},"spec":)" + spec + "}");
  EXPECT_TRUE(object.ok()) << object.status();
  return object.ok() ? *std::move(object) : T();
}

std::string OwnedBy(const std::string& api_version, const std::string& kind,
                    const std::string& name) {
  return R"("ownerReferences":[{"apiVersion":")" + api_version + R"(","kind":")" + kind +
         R"(","name":")" + name + R"(","uid":")" + name + R"(-uid","controller":true}])";
}

kube::Pod Pod(const std::string& api_version, const std::string& kind, const std::string& owner,
              kube::StringMap labels = {}) {
  kube::Pod pod;
  pod.meta.name_space = "team";
  pod.meta.name = owner + "-0";
  pod.meta.labels = std::move(labels);
  pod.meta.owners.push_back({api_version, kind, owner, owner + "-uid", true});
  return pod;
}

kube::NamespacedUid Uid(const std::string& name) { return {"team", name + "-uid"}; }

kube::Pod PodOfJob(const std::string& job, kube::StringMap labels = {}) {
  return Pod("batch/v1", "Job", job, std::move(labels));
}

// "NAME MIN/AT_ONCE of OWNER-KIND OWNER-NAME", "alone" or "waits for OWNER".
std::string GangNameOf(const JobGangs& jobs, const kube::Pod& pod) {
  const Derivation derivation = jobs.Derive(pod);
  if (derivation.missing) return "waits for " + derivation.missing->name;
  if (!derivation.gang || !derivation.gang->wanted) return "alone";
  const DerivedGang& gang = *derivation.gang;
  if (!gang.fault.empty()) return "fault: " + gang.fault;
  return gang.name + " " + std::to_string(gang.min_member) + "/" + std::to_string(gang.at_once) +
         " of " + gang.owner.kind + " " + gang.owner.name;
}

std::string Replicated(const std::string& name, int replicas, int parallelism,
                       const std::string& depends_on = "", const std::string& status = "Complete") {
  const std::string dependency = depends_on.empty() ? ""
                                                    : R"("dependsOn":[{"name":")" + depends_on +
                                                          R"(","status":")" + status + R"("}],)";
  return R"({"name":")" + name + R"(",)" + dependency + R"("replicas":)" +
         std::to_string(replicas) + R"(,"template":{"spec":{"parallelism":)" +
         std::to_string(parallelism) + R"(,"completions":)" + std::to_string(parallelism) + "}}}";
}

std::string Set(const std::vector<std::string>& replicated, const std::string& more = "") {
  std::string jobs;
  for (const std::string& job : replicated) jobs += (jobs.empty() ? "" : ",") + job;
  return R"({"replicatedJobs":[)" + jobs + "]" + more + "}";
}

// --- Job ---

TEST(JobGangs, AJobsGangIsWhatRunsInParallelAndIsLeftToComplete) {
  for (const auto& [spec, gang] : std::vector<std::pair<std::string, std::string>>{
           {R"({"parallelism":4,"completions":4})", "j 4/4 of Job j"},
           {R"({"parallelism":4,"completions":2})", "j 2/2 of Job j"},
           {R"({"parallelism":4,"completions":9})", "j 4/4 of Job j"},
           {R"({"parallelism":4})", "j 4/4 of Job j"},
           {R"({"parallelism":1,"completions":9})", "j 1/1 of Job j"},
           {R"({})", "j 1/1 of Job j"},
           {R"({"parallelism":0})", "j 0/0 of Job j"}}) {
    JobGangs jobs;
    jobs.Upsert(kube::ToAnyJob(Object<kube::Job>("j", spec)));
    EXPECT_EQ(GangNameOf(jobs, PodOfJob("j")), gang) << spec;
  }
}

TEST(JobGangs, ThePodGroupGoesWithTheJob) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::Job>("j", R"({"parallelism":2})")));
  const kube::OwnerReference owner = jobs.Derive(PodOfJob("j")).gang->owner;
  EXPECT_EQ(owner.api_version, "batch/v1");
  EXPECT_EQ(owner.kind, "Job");
  EXPECT_EQ(owner.uid, "j-uid");
  EXPECT_TRUE(owner.controller);
}

TEST(JobGangs, AnAnnotationTurnsAJobsGangOff) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::Job>("j", R"({"parallelism":4})",
                                               R"("annotations":{"muster.dev/gang":"false"})")));
  EXPECT_EQ(GangNameOf(jobs, PodOfJob("j")), "alone");
}

TEST(JobGangs, ABadCountIsTheGangsFault) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::Job>("j", R"({"parallelism":-4})")));
  EXPECT_THAT(GangNameOf(jobs, PodOfJob("j")),
              HasSubstr("fault: Job team/j: spec.parallelism is -4, must be"));
}

// --- whose owner isn't known ---

TEST(JobGangs, APodWaitsForAnOwnerOfAKindThatIsRead) {
  JobGangs jobs;
  EXPECT_EQ(GangNameOf(jobs, PodOfJob("j")), "waits for j");
  jobs.Upsert(kube::ToAnyJob(Object<kube::Job>(
      "j", R"({"parallelism":2})", OwnedBy("jobset.x-k8s.io/v1alpha2", "JobSet", "s"))));
  EXPECT_EQ(GangNameOf(jobs, PodOfJob("j")), "waits for s");
}

TEST(JobGangs, PodsThatStandForThemselvesAreAlone) {
  JobGangs jobs;
  EXPECT_EQ(GangNameOf(jobs, Pod("apps/v1", "ReplicaSet", "r")), "alone");
  EXPECT_EQ(GangNameOf(jobs, Pod("apps/v1", "DaemonSet", "d")), "alone");
  EXPECT_EQ(GangNameOf(jobs, Pod("v1", "ReplicationController", "r")), "alone");
  kube::Pod bare;
  EXPECT_EQ(GangNameOf(jobs, bare), "alone");
}

TEST(JobGangs, APodOfAnyOtherKindWaitsUntilItSaysThatItIsAlone) {
  JobGangs jobs;
  EXPECT_EQ(GangNameOf(jobs, Pod("batch.volcano.sh/v1alpha1", "Job", "v")), "waits for v");
  EXPECT_EQ(GangNameOf(jobs, Pod("example.com/v1", "ReplicaSet", "r")), "waits for r");
  kube::Pod pod = Pod("example.com/v1", "Operator", "o");
  EXPECT_EQ(GangNameOf(jobs, pod), "waits for o");
  pod.meta.annotations["muster.dev/gang"] = "true";
  EXPECT_EQ(GangNameOf(jobs, pod), "waits for o");
  pod.meta.annotations["muster.dev/gang"] = "false";
  EXPECT_EQ(GangNameOf(jobs, pod), "alone");
}

TEST(JobGangs, AnOwnerOfAnotherNamespaceIsNone) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::JobSet>("s", Set({Replicated("a", 1, 2)}))));
  jobs.Upsert(kube::ToAnyJob(Object<kube::Job>("j", R"({"parallelism":2})")));
  kube::Pod pod = PodOfJob("j");
  pod.meta.name_space = "others";
  EXPECT_EQ(GangNameOf(jobs, pod), "waits for j");
  EXPECT_EQ(jobs.OutermostOf(pod), nullptr);
  EXPECT_EQ(jobs.FindOwner(pod.meta), nullptr);
  // Nor is a job whose owner it would be.
  kube::Job stranger =
      Object<kube::Job>("x", "{}", OwnedBy("jobset.x-k8s.io/v1alpha2", "JobSet", "s"));
  stranger.meta.name_space = "others";
  jobs.Upsert(kube::ToAnyJob(stranger));
  EXPECT_THAT(jobs.known().Family(Uid("s")), ElementsAre(Uid("s")));
  EXPECT_THAT(
      jobs.known().WholeFamily({"others", "s-uid"}),
      ElementsAre(kube::NamespacedUid{"others", "s-uid"}, kube::NamespacedUid{"others", "x-uid"}));
}

TEST(JobGangs, AnOwnerThatDoesntControlThePodSaysNothing) {
  JobGangs jobs;
  kube::Pod pod = PodOfJob("j");
  pod.meta.owners.front().controller = false;
  EXPECT_EQ(GangNameOf(jobs, pod), "alone");
}

TEST(JobGangs, AJobOfAKindThatIsntReadIsTheOutermost) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(
      Object<kube::Job>("j", R"({"parallelism":2})", OwnedBy("batch/v1", "CronJob", "nightly"))));
  EXPECT_EQ(GangNameOf(jobs, PodOfJob("j")), "j 2/2 of Job j");
}

// --- PyTorchJob ---

std::string Replicas(int master, int workers, const std::string& more = "") {
  return R"({"pytorchReplicaSpecs":{"Master":{"replicas":)" + std::to_string(master) +
         R"(},"Worker":{"replicas":)" + std::to_string(workers) + "}}" + more + "}";
}

TEST(JobGangs, APyTorchJobsGangIsAllOfItsReplicas) {
  for (const auto& [spec, gang] : std::vector<std::pair<std::string, std::string>>{
           {Replicas(1, 3), "p 4/4 of PyTorchJob p"},
           {Replicas(1, 3, R"(,"runPolicy":{"schedulingPolicy":{"minAvailable":2}})"),
            "p 2/4 of PyTorchJob p"},
           {Replicas(1, 3, R"(,"runPolicy":{"schedulingPolicy":{"minAvailable":9}})"),
            "p 9/4 of PyTorchJob p"},
           {Replicas(1, 3, R"(,"elasticPolicy":{"minReplicas":2,"maxReplicas":3})"),
            "p 3/4 of PyTorchJob p"},
           {Replicas(1, 3, R"(,"elasticPolicy":{"minReplicas":5})"), "p 4/4 of PyTorchJob p"}}) {
    JobGangs jobs;
    jobs.Upsert(kube::ToAnyJob(Object<kube::PyTorchJob>("p", spec)));
    EXPECT_EQ(GangNameOf(jobs, Pod("kubeflow.org/v1", "PyTorchJob", "p")), gang) << spec;
  }
}

// --- JobSet ---

// A pod of a replicated job's first Job, which is known.
kube::Pod PodOfSet(JobGangs* jobs, const std::string& set, const std::string& replicated) {
  const std::string job = set + "-" + replicated + "-0";
  jobs->Upsert(kube::ToAnyJob(
      Object<kube::Job>(job, "{}", OwnedBy("jobset.x-k8s.io/v1alpha2", "JobSet", set))));
  return PodOfJob(job, {{"jobset.sigs.k8s.io/replicatedjob-name", replicated}});
}

TEST(JobGangs, AJobSetsReplicatedJobsAreOneGang) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(
      Object<kube::JobSet>("s", Set({Replicated("leader", 1, 1), Replicated("w", 2, 3)}))));
  EXPECT_EQ(GangNameOf(jobs, PodOfSet(&jobs, "s", "leader")), "s 7/7 of JobSet s");
  EXPECT_EQ(GangNameOf(jobs, PodOfSet(&jobs, "s", "w")), "s 7/7 of JobSet s");
}

TEST(JobGangs, WhatWaitsForAnotherIsAGangOfItsOwn) {
  for (const std::string status : {"Ready", "Complete"}) {
    JobGangs jobs;
    jobs.Upsert(kube::ToAnyJob(Object<kube::JobSet>(
        "s", Set({Replicated("dataset", 1, 1), Replicated("model", 2, 1, "dataset", status),
                  Replicated("node", 1, 4, "model", status)}))));
    EXPECT_EQ(GangNameOf(jobs, PodOfSet(&jobs, "s", "dataset")), "s-dataset 1/1 of JobSet s");
    EXPECT_EQ(GangNameOf(jobs, PodOfSet(&jobs, "s", "model")), "s-model 2/2 of JobSet s");
    EXPECT_EQ(GangNameOf(jobs, PodOfSet(&jobs, "s", "node")), "s-node 4/4 of JobSet s");
  }
}

TEST(JobGangs, WhatWaitsForTheSameStartsTogether) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::JobSet>(
      "s", Set({Replicated("init", 1, 1), Replicated("launcher", 1, 1, "init"),
                Replicated("node", 1, 4, "init"), Replicated("late", 1, 4, "init", "Ready")}))));
  EXPECT_EQ(GangNameOf(jobs, PodOfSet(&jobs, "s", "launcher")), "s-launcher 5/5 of JobSet s");
  EXPECT_EQ(GangNameOf(jobs, PodOfSet(&jobs, "s", "node")), "s-launcher 5/5 of JobSet s");
  EXPECT_EQ(GangNameOf(jobs, PodOfSet(&jobs, "s", "late")), "s-late 4/4 of JobSet s");
}

TEST(JobGangs, InOrderSeparatesAllOfThem) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(
      Object<kube::JobSet>("s", Set({Replicated("a", 1, 2), Replicated("b", 1, 3)},
                                    R"(,"startupPolicy":{"startupPolicyOrder":"InOrder"})"))));
  EXPECT_EQ(GangNameOf(jobs, PodOfSet(&jobs, "s", "a")), "s-a 2/2 of JobSet s");
  EXPECT_EQ(GangNameOf(jobs, PodOfSet(&jobs, "s", "b")), "s-b 3/3 of JobSet s");
}

TEST(JobGangs, TheJobsLabelSaysWhichReplicatedJobWhereThePodsDoesnt) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::JobSet>("s", Set({Replicated("a", 1, 2)}))));
  jobs.Upsert(kube::ToAnyJob(
      Object<kube::Job>("j", "{}",
                        OwnedBy("jobset.x-k8s.io/v1alpha2", "JobSet", "s") +
                            R"(,"labels":{"jobset.sigs.k8s.io/replicatedjob-name":"a"})")));
  EXPECT_EQ(GangNameOf(jobs, PodOfJob("j")), "s 2/2 of JobSet s");
}

TEST(JobGangs, AReplicatedJobThatTheJobSetDoesntHaveIsNamed) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::JobSet>("s", Set({Replicated("a", 1, 2)}))));
  EXPECT_EQ(GangNameOf(jobs, PodOfSet(&jobs, "s", "b")),
            R"(fault: JobSet team/s has no replicated job "b", which s-b-0-0 names)");
}

TEST(JobGangs, MorePodsThanAPodGroupCanCountAreAFault) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(
      Object<kube::JobSet>("s", Set({Replicated("a", 2'000'000'000, 2'000'000'000),
                                     Replicated("b", 2'000'000'000, 2'000'000'000),
                                     Replicated("c", 2'000'000'000, 2'000'000'000)}))));
  EXPECT_THAT(
      GangNameOf(jobs, PodOfSet(&jobs, "s", "a")),
      HasSubstr("it makes 9223372036854775807 pods at once, a gang has at most 2147483647"));
}

// --- TrainJob ---

TEST(JobGangs, ATrainJobsGangIsItsJobSetsAndGoesWithTheTrainJob) {
  JobGangs jobs;
  // The JobSet and the TrainJob have one name, not one UID.
  kube::TrainJob train = Object<kube::TrainJob>("t", "{}");
  train.meta.uid = "train-uid";
  kube::JobSet set = Object<kube::JobSet>(
      "t", Set({Replicated("init", 1, 1), Replicated("node", 1, 4, "init")}),
      R"("ownerReferences":[{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob",
         "name":"t","uid":"train-uid","controller":true}])");
  jobs.Upsert(kube::ToAnyJob(set));
  const kube::Pod pod = PodOfSet(&jobs, "t", "node");
  EXPECT_EQ(GangNameOf(jobs, pod), "waits for t");
  EXPECT_THAT(jobs.Upsert(kube::ToAnyJob(train)),
              UnorderedElementsAre(Uid("train"), Uid("t"), Uid("t-node-0")));
  EXPECT_EQ(GangNameOf(jobs, pod), "t-node 4/4 of TrainJob t");
  EXPECT_EQ(jobs.Derive(pod).gang->owner.uid, "train-uid");
  EXPECT_EQ(jobs.Derive(pod).gang->maker, "JobSet team/t (node)");
}

TEST(JobGangs, JobsThatNameEachOtherAsOwnersEndNowhere) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(
      Object<kube::JobSet>("a", Set({Replicated("x", 1, 2)}),
                           OwnedBy("trainer.kubeflow.org/v1alpha1", "TrainJob", "b"))));
  jobs.Upsert(kube::ToAnyJob(
      Object<kube::JobSet>("b", Set({Replicated("x", 1, 2)}),
                           OwnedBy("trainer.kubeflow.org/v1alpha1", "TrainJob", "a"))));
  jobs.Upsert(kube::ToAnyJob(
      Object<kube::JobSet>("c", Set({Replicated("x", 1, 2)}),
                           OwnedBy("trainer.kubeflow.org/v1alpha1", "TrainJob", "c"))));
  EXPECT_EQ(GangNameOf(jobs, PodOfSet(&jobs, "a", "x")), "waits for b");
  EXPECT_EQ(GangNameOf(jobs, PodOfSet(&jobs, "c", "x")), "waits for c");
}

// --- MPIJob ---

std::string MpiSpec(int workers, const std::string& more = "") {
  return R"({"mpiReplicaSpecs":{"Launcher":{},"Worker":{"replicas":)" + std::to_string(workers) +
         "}}" + more + "}";
}

kube::Pod PodOfLauncher(JobGangs* jobs, const std::string& name) {
  jobs->Upsert(kube::ToAnyJob(Object<kube::Job>(name + "-launcher", "{}",
                                                OwnedBy("kubeflow.org/v2beta1", "MPIJob", name))));
  return PodOfJob(name + "-launcher");
}

TEST(JobGangs, AnMPIJobsGangIsItsLauncherAndItsWorkers) {
  for (const auto& [more, gang] : std::vector<std::pair<std::string, std::string>>{
           {"", "m 5/5 of MPIJob m"},
           {R"(,"runPolicy":{"schedulingPolicy":{"minAvailable":3}})", "m 3/5 of MPIJob m"}}) {
    JobGangs jobs;
    jobs.Upsert(kube::ToAnyJob(Object<kube::MPIJob>("m", MpiSpec(4, more))));
    EXPECT_EQ(GangNameOf(jobs, Pod("kubeflow.org/v2beta1", "MPIJob", "m")), gang);
    EXPECT_EQ(GangNameOf(jobs, PodOfLauncher(&jobs, "m")), gang);
  }
}

TEST(JobGangs, StagesAreOfOneWorkloadIfEachOfThemIsWhole) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::JobSet>(
      "s", Set({Replicated("init", 1, 1), Replicated("node", 1, 4, "init")}))));
  for (const char* of : {"init", "node"}) {
    const DerivedGang gang = *jobs.Derive(PodOfSet(&jobs, "s", of)).gang;
    EXPECT_TRUE(gang.is_stage);
    EXPECT_FALSE(gang.is_whole);
  }
  EXPECT_EQ(jobs.DeriveFromSpec(*jobs.Find("s-uid")).maker, "JobSet team/s (init)");
  const std::string waits = R"(,"launcherCreationPolicy":"WaitForWorkersReady")";
  jobs.Upsert(kube::ToAnyJob(Object<kube::MPIJob>("m", MpiSpec(4, waits))));
  EXPECT_TRUE(jobs.Derive(PodOfLauncher(&jobs, "m")).gang->is_stage);
  const std::string fewer = R"(,"runPolicy":{"schedulingPolicy":{"minAvailable":3}})";
  jobs.Upsert(kube::ToAnyJob(Object<kube::MPIJob>("f", MpiSpec(4, waits + fewer))));
  EXPECT_FALSE(jobs.Derive(PodOfLauncher(&jobs, "f")).gang->is_stage);
}

TEST(JobGangs, ALauncherThatWaitsForItsWorkersIsAGangOfItsOwn) {
  // The operator counts the launcher, which then doesn't exist.
  for (const char* more : {"", R"(,"runPolicy":{"schedulingPolicy":{"minAvailable":5}})"}) {
    JobGangs jobs;
    jobs.Upsert(kube::ToAnyJob(Object<kube::MPIJob>(
        "m",
        MpiSpec(4, std::string(R"(,"launcherCreationPolicy":"WaitForWorkersReady")") + more))));
    EXPECT_EQ(GangNameOf(jobs, Pod("kubeflow.org/v2beta1", "MPIJob", "m")), "m 4/4 of MPIJob m");
    EXPECT_EQ(GangNameOf(jobs, PodOfLauncher(&jobs, "m")), "m-launcher 1/1 of MPIJob m");
  }
}

TEST(JobGangs, AnMPIJobsPodsAreMadeByItAndByItsLauncher) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::MPIJob>("m", MpiSpec(4))));
  const kube::Pod launcher = PodOfLauncher(&jobs, "m");
  const kube::Pod worker = Pod("kubeflow.org/v2beta1", "MPIJob", "m");
  for (const kube::Pod* pod : {&launcher, &worker}) {
    EXPECT_THAT(jobs.MakersOf({pod}), UnorderedElementsAre(Uid("m"), Uid("m-launcher")));
  }
}

// --- RayCluster ---

TEST(JobGangs, ARayClustersGangIsItsHeadAndAllHostsOfItsWorkers) {
  for (const auto& [groups, gang] : std::vector<std::pair<std::string, std::string>>{
           {"", "r 1/1 of RayCluster r"},
           {R"({"groupName":"a","replicas":3})", "r 4/4 of RayCluster r"},
           {R"({"groupName":"a","replicas":2,"numOfHosts":4})", "r 9/9 of RayCluster r"},
           {R"({"groupName":"a","replicas":9,"minReplicas":1,"maxReplicas":2})",
            "r 3/3 of RayCluster r"},
           {R"({"groupName":"a","minReplicas":2},{"groupName":"b","replicas":5,"suspend":true})",
            "r 3/3 of RayCluster r"}}) {
    JobGangs jobs;
    jobs.Upsert(kube::ToAnyJob(Object<kube::RayCluster>(
        "r", R"({"headGroupSpec":{},"workerGroupSpecs":[)" + groups + "]}")));
    EXPECT_EQ(GangNameOf(jobs, Pod("ray.io/v1", "RayCluster", "r")), gang) << groups;
  }
}

TEST(JobGangs, ARayJobsGangGoesWithItsRayClusterAndWhatSubmitsIsAlone) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::RayCluster>(
      "r-abc", R"({"headGroupSpec":{},"workerGroupSpecs":[{"groupName":"a","replicas":3}]})",
      OwnedBy("ray.io/v1", "RayJob", "r"))));
  const kube::Pod pod = Pod("ray.io/v1", "RayCluster", "r-abc");
  EXPECT_EQ(GangNameOf(jobs, pod), "waits for r");
  jobs.Upsert(kube::ToAnyJob(Object<kube::RayJob>("r", "{}")));
  EXPECT_EQ(GangNameOf(jobs, pod), "r-abc 4/4 of RayCluster r-abc");
  EXPECT_EQ(jobs.OutermostOf(pod)->Title(), "RayJob team/r");
  EXPECT_THAT(jobs.OutermostOf(pod)->no_suspend, HasSubstr("shutdownAfterJobFinishes"));
  jobs.Upsert(kube::ToAnyJob(Object<kube::Job>("s", "{}", OwnedBy("ray.io/v1", "RayJob", "r"))));
  EXPECT_EQ(GangNameOf(jobs, PodOfJob("s")), "s 1/1 of Job s");
}

// --- StatefulSet ---

TEST(JobGangs, AStatefulSetIsAGangOnlyIfItAsksForIt) {
  JobGangs jobs;
  const kube::Pod pod = Pod("apps/v1", "StatefulSet", "s");
  const std::string opt_in = R"("annotations":{"muster.dev/gang":"true"})";
  jobs.Upsert(kube::ToAnyJob(
      Object<kube::StatefulSet>("s", R"({"replicas":3,"podManagementPolicy":"Parallel"})")));
  EXPECT_EQ(GangNameOf(jobs, pod), "alone");
  jobs.Upsert(kube::ToAnyJob(Object<kube::StatefulSet>(
      "s", R"({"replicas":3,"podManagementPolicy":"Parallel"})", opt_in)));
  EXPECT_EQ(GangNameOf(jobs, pod), "s 3/3 of StatefulSet s");
  jobs.Upsert(kube::ToAnyJob(Object<kube::StatefulSet>("s", R"({"replicas":3})", opt_in)));
  EXPECT_EQ(GangNameOf(jobs, pod), "s 3/1 of StatefulSet s");
  EXPECT_THAT(jobs.Derive(pod).gang->one_by_one, HasSubstr("OrderedReady"));
}

// --- Kueue's pod groups ---

kube::Pod InKueueGroup(const std::string& count) {
  kube::Pod pod;
  pod.meta.name_space = "team";
  pod.meta.name = "w-0";
  pod.meta.labels = {{"kueue.x-k8s.io/pod-group-name", "g"}};
  if (!count.empty()) pod.meta.annotations = {{"kueue.x-k8s.io/pod-group-total-count", count}};
  return pod;
}

TEST(JobGangs, KueuesPodGroupHasItsTotalCount) {
  const std::optional<DerivedGang> gang = KueueGroupOf(InKueueGroup("3"));
  ASSERT_TRUE(gang);
  EXPECT_EQ(gang->name, "g");
  EXPECT_EQ(gang->min_member, 3);
  EXPECT_EQ(gang->owner.uid, "");
}

TEST(JobGangs, ATotalCountThatIsNoneIsAFault) {
  for (const char* count : {"", "0", "-1", "3x", "1e3", "99999999999999999999", "2147483648"}) {
    EXPECT_THAT(KueueGroupOf(InKueueGroup(count))->fault,
                HasSubstr("pod-group-total-count of w-0 is \"" + std::string(count) + "\""));
  }
}

TEST(JobGangs, AKueueGroupWithFastAdmissionIsNoGang) {
  kube::Pod pod = InKueueGroup("3");
  pod.meta.annotations["kueue.x-k8s.io/pod-group-fast-admission"] = "true";
  EXPECT_FALSE(KueueGroupOf(pod));
}

// --- what changes ---

TEST(JobGangs, OnlyWhatMattersIsAChange) {
  JobGangs jobs;
  EXPECT_THAT(jobs.Upsert(kube::ToAnyJob(
                  Object<kube::Job>("j", R"({"parallelism":2})", R"("resourceVersion":"1")"))),
              ElementsAre(Uid("j")));
  EXPECT_THAT(jobs.Upsert(kube::ToAnyJob(
                  Object<kube::Job>("j", R"({"parallelism":2})", R"("resourceVersion":"2")"))),
              IsEmpty());
  EXPECT_THAT(jobs.Upsert(kube::ToAnyJob(
                  Object<kube::Job>("j", R"({"parallelism":3})", R"("resourceVersion":"4")"))),
              ElementsAre(Uid("j")));
  EXPECT_THAT(jobs.Upsert(kube::ToAnyJob(
                  Object<kube::Job>("j", R"({"parallelism":2})", R"("resourceVersion":"3")"))),
              IsEmpty());
  EXPECT_EQ(GangNameOf(jobs, PodOfJob("j")), "j 3/3 of Job j");
  EXPECT_THAT(jobs.Remove("j-uid"), ElementsAre(Uid("j")));
  EXPECT_THAT(jobs.Remove("j-uid"), IsEmpty());
  EXPECT_EQ(GangNameOf(jobs, PodOfJob("j")), "waits for j");
}

TEST(JobGangs, OfTwoJobsWithOneNameTheOlderHasIt) {
  JobGangs jobs;
  const kube::Pod of_job = PodOfJob("x");
  kube::Pod of_torch = Pod("kubeflow.org/v1", "PyTorchJob", "x");
  of_torch.meta.owners.front().uid = "torch-uid";
  kube::PyTorchJob torch = Object<kube::PyTorchJob>("x", Replicas(1, 1));
  torch.meta.uid = "torch-uid";
  torch.meta.creation_time = absl::FromUnixSeconds(10);
  kube::Job job = Object<kube::Job>("x", R"({"parallelism":2})");
  job.meta.creation_time = absl::FromUnixSeconds(20);
  jobs.Upsert(kube::ToAnyJob(job));
  EXPECT_FALSE(jobs.Derive(of_job).gang->contested);
  EXPECT_THAT(jobs.Upsert(kube::ToAnyJob(torch)), UnorderedElementsAre(Uid("torch"), Uid("x")));
  EXPECT_TRUE(jobs.Derive(of_job).gang->contested);
  EXPECT_EQ(jobs.Derive(of_job).gang->spare_name, "x-x-uid");
  EXPECT_FALSE(jobs.Derive(of_torch).gang->contested);
  EXPECT_THAT(jobs.Remove("torch-uid"), UnorderedElementsAre(Uid("torch"), Uid("x")));
  EXPECT_FALSE(jobs.Derive(of_job).gang->contested);
}

// --- labels of the owners ---

TEST(JobGangs, AnOwnersLabelIsTheInnermostThatHasIt) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::JobSet>("s", Set({Replicated("a", 1, 2)}),
                                                  R"("labels":{"kueue.x-k8s.io/queue-name":"outer",
                                                "kueue.x-k8s.io/priority-class":"high"})")));
  const kube::Pod pod = PodOfSet(&jobs, "s", "a");
  EXPECT_EQ(jobs.OwnersLabel(pod, kube::kQueueLabel), "outer");
  jobs.Upsert(
      kube::ToAnyJob(Object<kube::Job>("s-a-0", "{}",
                                       OwnedBy("jobset.x-k8s.io/v1alpha2", "JobSet", "s") +
                                           R"(,"labels":{"kueue.x-k8s.io/queue-name":"inner"})")));
  EXPECT_EQ(jobs.OwnersLabel(pod, kube::kQueueLabel), "inner");
  EXPECT_EQ(jobs.OwnersLabel(pod, kPriorityClassLabel), "high");
}

TEST(JobGangs, AnOwnersAnnotationIsTheInnermostThatHasIt) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::JobSet>(
      "s", Set({Replicated("a", 1, 2)}), R"("annotations":{"muster.dev/fallback":"never"})")));
  const kube::Pod pod = PodOfSet(&jobs, "s", "a");
  EXPECT_EQ(jobs.OwnersAnnotation(pod, "muster.dev/fallback"), "never");
  EXPECT_EQ(jobs.OwnersAnnotation(pod, "muster.dev/other"), "");
}

// --- what can be suspended ---

TEST(JobGangsOutermost, IsTheJobThatMakesAllOthers) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::Job>(
      "j", R"({"parallelism":2})", OwnedBy("jobset.x-k8s.io/v1alpha2", "JobSet", "s"))));
  const kube::Pod pod = PodOfJob("j");
  EXPECT_EQ(jobs.OutermostOf(pod), nullptr) << "its JobSet isn't known yet";
  jobs.Upsert(kube::ToAnyJob(
      Object<kube::JobSet>("s", Set({Replicated("a", 1, 2)}),
                           OwnedBy("trainer.kubeflow.org/v1alpha1", "TrainJob", "t"))));
  jobs.Upsert(kube::ToAnyJob(Object<kube::TrainJob>("t", "{}")));
  ASSERT_NE(jobs.OutermostOf(pod), nullptr);
  EXPECT_EQ(jobs.OutermostOf(pod)->Title(), "TrainJob team/t");
  EXPECT_EQ(jobs.OutermostOf(pod)->api_version, "trainer.kubeflow.org/v1alpha1");
  EXPECT_EQ(jobs.OutermostOf(kube::Pod()), nullptr);
}

TEST(JobGangsOutermost, OneThatSomethingElseControlsSaysWhat) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(
      Object<kube::Job>("w", "{}", OwnedBy("argoproj.io/v1alpha1", "Workflow", "flow"))));
  jobs.Upsert(
      kube::ToAnyJob(Object<kube::Job>("c", "{}", OwnedBy("batch/v1", "CronJob", "nightly"))));
  EXPECT_EQ(jobs.OutermostOf(PodOfJob("w"))->foreign_owner, "Workflow team/flow");
  EXPECT_EQ(jobs.OutermostOf(PodOfJob("c"))->foreign_owner, "") << "it leaves its Jobs alone";
}

TEST(JobGangsRestarting, AreTheJobsThatCarryTheMark) {
  JobGangs jobs;
  const std::string mark = R"("annotations":{"muster.dev/restart":"why"})";
  jobs.Upsert(kube::ToAnyJob(Object<kube::Job>("j", R"({"suspend":true})", mark)));
  jobs.Upsert(kube::ToAnyJob(Object<kube::Job>("k", R"({"suspend":true})")));
  EXPECT_THAT(jobs.known().Restarting(), ElementsAre("j-uid"));
  EXPECT_THAT(jobs.Upsert(kube::ToAnyJob(Object<kube::Job>("k", R"({"suspend":true})", mark))),
              ElementsAre(Uid("k")));
  EXPECT_THAT(jobs.known().Restarting(), ElementsAre("j-uid", "k-uid"));
  jobs.Upsert(kube::ToAnyJob(Object<kube::Job>("j", "{}")));
  jobs.Remove("k-uid");
  EXPECT_THAT(jobs.known().Restarting(), IsEmpty());
}

// --- who makes a gang's pods ---

TEST(JobGangsMakers, AreWhatOwnsThePods) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::Job>("j", R"({"parallelism":4})")));
  const kube::Pod pod = PodOfJob("j");
  const kube::Pod foreign = Pod("apps/v1", "ReplicaSet", "web");
  const kube::Pod bare;
  EXPECT_THAT(jobs.MakersOf({&pod, &pod, &foreign, &bare}),
              UnorderedElementsAre(Uid("j"), Uid("web")));
  EXPECT_THAT(jobs.known().WholeFamily(Uid("j")), ElementsAre(Uid("j")));
  EXPECT_THAT(jobs.known().WholeFamily(Uid("web")), ElementsAre(Uid("web")));
}

TEST(JobGangsMakers, OfAJobSetAreItsJobsThatRunAtTheSameTime) {
  JobGangs jobs;
  jobs.Upsert(kube::ToAnyJob(Object<kube::TrainJob>("train", "{}")));
  jobs.Upsert(kube::ToAnyJob(
      Object<kube::JobSet>("set",
                           R"({"replicatedJobs":[
        {"name":"init","template":{"spec":{"parallelism":1}}},
        {"name":"driver","template":{"spec":{"parallelism":1}},
         "dependsOn":[{"name":"init","status":"Complete"}]},
        {"name":"node","replicas":2,"template":{"spec":{"parallelism":2}},
         "dependsOn":[{"name":"init","status":"Complete"}]}]})",
                           OwnedBy("trainer.kubeflow.org/v1alpha1", "TrainJob", "train"))));
  for (const auto& [name, replicated] :
       {std::pair("i", "init"), {"d", "driver"}, {"n0", "node"}, {"n1", "node"}}) {
    jobs.Upsert(kube::ToAnyJob(Object<kube::Job>(
        name, R"({"parallelism":2})",
        R"("labels":{"jobset.sigs.k8s.io/replicatedjob-name":")" + std::string(replicated) +
            R"("},)" + OwnedBy("jobset.x-k8s.io/v1alpha2", "JobSet", "set"))));
  }
  const kube::Pod pod = PodOfJob("n0");
  EXPECT_THAT(jobs.MakersOf({&pod}),
              UnorderedElementsAre(Uid("set"), Uid("d"), Uid("n0"), Uid("n1")));
  // So a refusal of any of them concerns the pods of all.
  EXPECT_THAT(
      jobs.known().WholeFamily(Uid("n1")),
      UnorderedElementsAre(Uid("train"), Uid("set"), Uid("i"), Uid("d"), Uid("n0"), Uid("n1")));
}

}  // namespace
}  // namespace muster::coscheduling
