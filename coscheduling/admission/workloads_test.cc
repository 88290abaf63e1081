#include "coscheduling/admission/workloads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "coscheduling/engine.h"
#include "coscheduling/test_owners.h"
#include "fmt/format.h"
#include "kube/objects/decode.h"

namespace muster::coscheduling {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class WorkloadsTest : public testing::Test {
 protected:
  // That of PodGroup `name`, made by the process `leader`.
  kube::Workload Of(const std::string& name, const std::string& leader) {
    kube::Workload workload;
    workload.meta.name = "podgroup-" + name;
    workload.meta.name_space = "default";
    workload.meta.uid = "workload-" + name;
    workload.meta.resource_version = std::to_string(++version_);
    workload.meta.finalizers = {"others", std::string(kube::kInUseFinalizer)};
    workload.meta.owners = {
        {"scheduling.x-k8s.io/v1alpha1", "PodGroup", name, "group-" + name, true}};
    workload.meta.annotations[quota::kLeaderAnnotation] = leader;
    workload.pod_sets = {{"main", 1, std::make_shared<const kube::PodSpec>()}};
    return workload;
  }
  static kube::Workload Reserved(kube::Workload workload) {
    workload.reserved = true;
    workload.cluster_queue = "gpus";
    workload.conditions["QuotaReserved"] = {"True", "QuotaReserved", "", absl::UnixEpoch()};
    return workload;
  }
  // The same once `leader` has taken it over.
  kube::Workload Taken(kube::Workload workload, const std::string& leader) {
    workload.meta.resource_version = std::to_string(++version_);
    workload.conditions = quota::Taken(workload, leader, owners_.agenda.now());
    return workload;
  }
  template <typename Action>
  std::vector<Action> Asked() {
    owners_.Take();
    owners_.FinishAll(absl::OkStatus());
    return owners_.Asked<Action>();
  }
  // Whatever tree it is in.
  bool MayReserve() {
    const auto untaken = owners_.workloads.Attend();
    return untaken && untaken->empty();
  }
  bool TakeOver(const Gang& gang) {
    return owners_.workloads.TakeOver(gang, *owners_.workloads.Of(gang));
  }
  std::vector<PatchWorkload> Patched() { return Asked<PatchWorkload>(); }

  TestOwners owners_;  // process "muster"
  int version_ = 0;
};

TEST_F(WorkloadsTest, AProcessReservesNothingBeforeItHasTakenOverWhatIsNotReserved) {
  owners_.AddGang("train", {cluster::test::MakePod("train-0")});
  owners_.workloads.Upsert(Of("train", "before"));
  EXPECT_FALSE(MayReserve());
  const auto taken = Asked<ApplyWorkloadStatus>();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].workload.uid, "workload-train");
  EXPECT_TRUE(taken[0].takes_over);
  EXPECT_EQ(taken[0].conditions.at("muster.dev/Leader").message, "muster");
  owners_.workloads.Upsert(Taken(Of("train", "before"), "muster"));
  EXPECT_TRUE(MayReserve());
  EXPECT_THAT(Asked<ApplyWorkloadStatus>(), IsEmpty());
}

// It may have been decided for a queue that is gone, of whose tree nothing was kept back.
TEST_F(WorkloadsTest, WhatTheProcessBeforeReservesLateIsTakenBackAndStartsNobody) {
  const Gang& gang = owners_.AddGang("train", {cluster::test::MakePod("train-0")});
  owners_.workloads.Upsert(Of("train", "before"));
  owners_.workloads.Upsert(Reserved(Of("train", "before")));
  EXPECT_FALSE(TakeOver(gang));
  owners_.workloads.Attend();
  const auto written = Asked<ApplyWorkloadStatus>();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0].conditions.at("QuotaReserved").status, "False");
  EXPECT_FALSE(written[0].admission);
  owners_.workloads.Upsert(Of("train", "before"));
  EXPECT_FALSE(MayReserve());
  EXPECT_TRUE(Asked<ApplyWorkloadStatus>()[0].takes_over);
}

TEST_F(WorkloadsTest, WhatTheProcessBeforeReservesLateForAPodStartsNobodyEither) {
  const Gang& gang = owners_.AddGang("train", {cluster::test::MakePod("train-0")});
  kube::Workload alone = Of("alone", "before");
  alone.meta.owners = {{"v1", "Pod", "train-0", *gang.pods.begin(), true}};
  owners_.workloads.Upsert(alone);
  alone.meta.resource_version = std::to_string(++version_);
  owners_.workloads.Upsert(Reserved(alone));
  const kube::Workload& late = *owners_.workloads.OfPod({gang.key.name_space, *gang.pods.begin()});
  EXPECT_FALSE(owners_.workloads.TakeOver(gang, late));
  owners_.workloads.Attend();
  const auto written = Asked<ApplyWorkloadStatus>();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0].conditions.at("QuotaReserved").status, "False");
}

// It was seen late, not written late.
TEST_F(WorkloadsTest, WhatAGangRunsByIsNotTakenBack) {
  kube::Pod pod = cluster::test::MakePod("train-0");
  pod.node_name = "node";
  owners_.AddGang("train", {pod});
  owners_.workloads.Upsert(Of("train", "before"));
  owners_.workloads.Upsert(Reserved(Of("train", "before")));
  owners_.workloads.Attend();
  EXPECT_THAT(Asked<ApplyWorkloadStatus>(), IsEmpty());
}

// What the one before did in its own term is no late write.
TEST_F(WorkloadsTest, WhatAnotherReservedBeforeThisOnesTermStays) {
  const Gang& gang = owners_.AddGang("train", {cluster::test::MakePod("train-0")});
  owners_.workloads.Upsert(Of("train", "before"));
  owners_.workloads.Upsert(Reserved(Of("train", "before")));
  owners_.workloads.BeginTerm();
  owners_.workloads.Attend();
  EXPECT_THAT(Asked<ApplyWorkloadStatus>(), IsEmpty());
  EXPECT_FALSE(TakeOver(gang));
  EXPECT_TRUE(Asked<ApplyWorkloadStatus>()[0].takes_over);
}

// Another process that leads by now takes it first, then reserves it.
TEST_F(WorkloadsTest, WhatTheNextLeaderReservesIsItsOwn) {
  owners_.AddGang("train", {cluster::test::MakePod("train-0")});
  owners_.workloads.Upsert(Of("train", "before"));
  owners_.workloads.Upsert(Taken(Of("train", "before"), "after"));
  kube::Workload reserved = Reserved(Of("train", "before"));
  const kube::Workload taken = Taken(Of("train", "before"), "after");
  reserved.conditions.insert(taken.conditions.begin(), taken.conditions.end());
  reserved.meta.resource_version = std::to_string(++version_);
  owners_.workloads.Upsert(reserved);
  owners_.workloads.Attend();
  EXPECT_THAT(Asked<ApplyWorkloadStatus>(), IsEmpty());
}

// Whoever may write Workloads may name another leader in them.
TEST_F(WorkloadsTest, WhatUsersSayOfLeadersHoldsUpNobodyElse) {
  owners_.AddGang("train", {cluster::test::MakePod("train-0")});
  owners_.workloads.Upsert(Of("train", "muster"));
  EXPECT_TRUE(MayReserve());
  owners_.workloads.Upsert(Of("train", "me"));
  EXPECT_TRUE(MayReserve());
  EXPECT_EQ(Asked<ApplyWorkloadStatus>().size(), 1u);
  owners_.workloads.Upsert(Taken(Of("train", "me"), "muster"));
  owners_.workloads.Upsert(Taken(Of("train", "you"), "muster"));
  EXPECT_TRUE(MayReserve());
  EXPECT_THAT(Asked<ApplyWorkloadStatus>(), IsEmpty());
}

TEST_F(WorkloadsTest, WhatIsReservedIsLeftAsItIs) {
  owners_.AddGang("train", {cluster::test::MakePod("train-0")});
  owners_.workloads.Upsert(Reserved(Of("train", "before")));
  EXPECT_TRUE(MayReserve());
  EXPECT_THAT(Patched(), IsEmpty());
}

// When it was given quota again after it had run for a while.
TEST_F(WorkloadsTest, TakingOverWhatIsReservedLeavesAllElseAsItIs) {
  const Gang& gang = owners_.AddGang("train", {cluster::test::MakePod("train-0")});
  kube::Workload reserved = Reserved(Of("train", "before"));
  reserved.reserved_sets.push_back({"main", 1, {{"nvidia.com/gpu", "any"}}, {}});
  reserved.past_seconds = 40;
  owners_.workloads.Upsert(reserved);
  EXPECT_FALSE(TakeOver(gang));
  const auto taken = Asked<ApplyWorkloadStatus>();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_TRUE(taken[0].takes_over);
  ASSERT_TRUE(taken[0].admission);
  EXPECT_EQ(*taken[0].admission, quota::ReservedIn(reserved));
  EXPECT_EQ(taken[0].conditions.at("QuotaReserved").status, "True");
  EXPECT_EQ(taken[0].past_seconds, 40);
}

TEST_F(WorkloadsTest, AProcessThatIsReplacedReservesNothingUntilItLeadsAgain) {
  const Gang& gang = owners_.AddGang("train", {cluster::test::MakePod("train-0")});
  owners_.workloads.Upsert(Of("train", "muster"));
  EXPECT_TRUE(MayReserve());
  owners_.workloads.Upsert(Taken(Of("train", "muster"), "after"));
  EXPECT_FALSE(MayReserve());
  owners_.workloads.Reserve(gang, *owners_.workloads.Of(gang), {});
  owners_.Take();
  EXPECT_THAT(owners_.Asked<ApplyWorkloadStatus>(), IsEmpty());
  owners_.workloads.BeginTerm();
  EXPECT_FALSE(MayReserve());
  EXPECT_EQ(Asked<ApplyWorkloadStatus>().size(), 1u);
}

// As two processes do for a moment when one follows the other.
TEST_F(WorkloadsTest, AProcessThatStillLeadsAfterAnotherTookSomethingBeginsItsTermAnew) {
  owners_.AddGang("train", {cluster::test::MakePod("train-0")});
  owners_.workloads.Upsert(Of("train", "muster"));
  EXPECT_TRUE(MayReserve());
  owners_.workloads.Upsert(Taken(Of("train", "muster"), "before"));
  EXPECT_FALSE(MayReserve());
  EXPECT_FALSE(owners_.workloads.MustBeginTerm());
  EXPECT_LE(owners_.agenda.NextWake(), owners_.agenda.now() + Workloads::kHandOver);
  owners_.agenda.AdvanceTo(owners_.agenda.now() + Workloads::kHandOver);
  ASSERT_TRUE(owners_.workloads.MustBeginTerm());
  owners_.workloads.BeginTerm();
  EXPECT_FALSE(MayReserve());
  EXPECT_TRUE(Asked<ApplyWorkloadStatus>().at(0).takes_over);
  owners_.workloads.Upsert(Taken(Of("train", "before"), "muster"));
  EXPECT_TRUE(MayReserve());
  EXPECT_FALSE(owners_.workloads.MustBeginTerm());
}

TEST_F(WorkloadsTest, ThatOfAGangThatIsGoneGivesItsQuotaBackAndThenGoes) {
  owners_.workloads.Upsert(Reserved(Of("gone", "muster")));
  owners_.workloads.Attend();
  owners_.Take();
  const auto released = owners_.Asked<ApplyWorkloadStatus>();
  ASSERT_EQ(released.size(), 1u);
  EXPECT_FALSE(released[0].admission);
  EXPECT_EQ(released[0].conditions.at("QuotaReserved").status, "False");
  owners_.FinishAll(absl::OkStatus());
  owners_.workloads.Upsert(Of("gone", "muster"));
  owners_.workloads.Attend();
  const std::vector<PatchWorkload> ended = Patched();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(*ended[0].finalizers, ElementsAre("others"));
}

// As Kueue does with one that is stopped before it was ever admitted.
TEST_F(WorkloadsTest, OneThatIsDeactivatedWhileItWaitsSaysThatItIsOutOfTheLineOnce) {
  const Gang& gang = owners_.AddGang("train", {cluster::test::MakePod("train-0")});
  kube::Workload workload = Of("train", "muster");
  owners_.workloads.Upsert(workload);
  workload.active = false;
  owners_.workloads.Wait(gang, workload, {});
  const auto applied = Asked<ApplyWorkloadStatus>();
  ASSERT_EQ(applied.size(), 1u);
  EXPECT_FALSE(applied[0].admission);
  EXPECT_EQ(applied[0].conditions.at("Evicted").status, "True");
  EXPECT_EQ(applied[0].conditions.at("Evicted").reason, "Deactivated");
  workload.evicted = true;
  owners_.workloads.Wait(gang, workload, {});
  EXPECT_THAT(Asked<ApplyWorkloadStatus>(), IsEmpty());
}

TEST_F(WorkloadsTest, OneThatSomebodyElseMadeIsHis) {
  kube::Workload kueues = Reserved(Of("gone", ""));
  kueues.meta.annotations = {};
  owners_.workloads.Upsert(kueues);
  EXPECT_TRUE(MayReserve());
  EXPECT_THAT(Patched(), IsEmpty());
}

// Of a Job whose pods another scheduler places.
class OthersWorkloadTest : public WorkloadsTest {
 protected:
  void See(bool finished) {
    kube::Job job;
    job.meta.name = "job";
    job.meta.name_space = "default";
    job.meta.uid = "job-uid";
    job.meta.resource_version = std::to_string(++version_);
    job.finished = finished;
    owners_.workloads.LoseOwner({"default", "job-uid"});
    owners_.gangs.ObserveJob(kube::ToAnyJob(job));
  }
  kube::Workload OfJob() {
    kube::Workload kueues = Of("job", "");
    kueues.meta.annotations = {};
    kueues.meta.owners = {{"batch/v1", "Job", "job", "job-uid", true}};
    return kueues;
  }
};

TEST_F(OthersWorkloadTest, IsCountedUntilItsJobHasEndedAndIsFinishedThen) {
  See(/*finished=*/false);
  owners_.workloads.Upsert(Reserved(OfJob()));
  EXPECT_TRUE(MayReserve());
  ASSERT_EQ(owners_.workloads.Orphans().size(), 1u);
  See(/*finished=*/false);
  owners_.workloads.Attend();
  EXPECT_EQ(owners_.workloads.Orphans().size(), 1u);
  EXPECT_THAT(Asked<ApplyWorkloadStatus>(), IsEmpty());

  See(/*finished=*/true);
  owners_.workloads.Attend();
  ASSERT_EQ(owners_.workloads.Orphans().size(), 1u);
  EXPECT_TRUE(owners_.workloads.Orphans()[0].going);
  const auto released = Asked<ApplyWorkloadStatus>();
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].conditions.at("Finished").reason, "Succeeded");
  kube::Workload finished = OfJob();
  finished.finished = true;
  owners_.workloads.Upsert(finished);
  owners_.workloads.Attend();
  const std::vector<PatchWorkload> ended = Patched();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(*ended[0].finalizers, ElementsAre("others"));
}

TEST_F(OthersWorkloadTest, IsLeftAloneWhileItWaits) {
  See(/*finished=*/false);
  owners_.workloads.Upsert(OfJob());
  EXPECT_TRUE(MayReserve());
  EXPECT_THAT(owners_.workloads.Orphans(), IsEmpty());
  EXPECT_THAT(Patched(), IsEmpty());
}

// One whose pods Muster places, once it is evicted: what the job's templates were lies in it.
TEST_F(OthersWorkloadTest, IsItsGangsAlsoWithoutQuota) {
  kube::Job job;
  job.meta.name = "job";
  job.meta.name_space = "default";
  job.meta.uid = "job-uid";
  job.spec.parallelism = 2;
  job.spec.completions = 2;
  job.spec.suspend = true;
  job.spec.scheduler_name = owners_.options.scheduler_name;
  owners_.gangs.ObserveJob(kube::ToAnyJob(job));
  owners_.workloads.Upsert(OfJob());
  const Gang* gang = owners_.gangs.OfSpec("job-uid");
  ASSERT_NE(gang, nullptr);
  ASSERT_NE(owners_.workloads.Of(*gang), nullptr);
  EXPECT_EQ(owners_.workloads.Of(*gang)->meta.name, OfJob().meta.name);
}

TEST_F(OthersWorkloadTest, IsFinishedWithTheLastPodOfItsGroup) {
  kube::Workload group = Reserved(OfJob());
  group.meta.owners = {{"scheduling.x-k8s.io/v1alpha1", "PodGroup", "train", "", true}};
  group.members = {"a", "b"};
  owners_.workloads.Upsert(group);
  for (const char* uid : {"a", "b"}) {
    owners_.workloads.Attend();
    EXPECT_EQ(owners_.workloads.Orphans().size(), 1u);
    kube::Pod pod = cluster::test::MakePod(uid);
    pod.meta.uid = uid;
    pod.meta.labels[kube::kKueueGroupLabel] = "train";
    pod.phase = kube::PodPhase::kSucceeded;
    owners_.workloads.NoteEnd(pod);
  }
  owners_.workloads.Attend();
  ASSERT_EQ(owners_.workloads.Orphans().size(), 1u);
  EXPECT_TRUE(owners_.workloads.Orphans()[0].going);
  EXPECT_EQ(Asked<ApplyWorkloadStatus>().size(), 1u);
}

// Deleting a Job and orphaning what it owns takes the references to it off its pods and Workload.
TEST_F(WorkloadsTest, OneWhoseOwnerWentWithoutItIsCountedUntilThePodsHaveEnded) {
  kube::Workload workload = Reserved(Of("train", "muster"));
  workload.meta.owners.clear();
  workload.meta.annotations[quota::kOwnerAnnotation] = "Job/train";
  workload.meta.labels[quota::kJobUidLabel] = "job-uid";
  kube::Pod pod = cluster::test::MakePod("train-0");
  pod.node_name = "n";
  pod.meta.labels[kube::kControllerUidLabel] = "job-uid";
  owners_.Add(pod);
  owners_.workloads.Upsert(workload);
  owners_.workloads.Attend();
  ASSERT_EQ(owners_.workloads.Orphans().size(), 1u);
  EXPECT_FALSE(owners_.workloads.Orphans()[0].going);
  EXPECT_THAT(Asked<ApplyWorkloadStatus>(), IsEmpty());
  pod.phase = kube::PodPhase::kSucceeded;
  owners_.Add(pod);
  owners_.workloads.Attend();
  const auto released = Asked<ApplyWorkloadStatus>();
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].workload.resource_version, workload.meta.resource_version);
  EXPECT_FALSE(released[0].admission);
  workload.reserved = false;
  workload.meta.resource_version += "0";
  owners_.workloads.Upsert(workload);
  owners_.workloads.Attend();
  ASSERT_EQ(Patched().size(), 1u);
}

TEST_F(WorkloadsTest, OneInAnotherNamespaceIsOfNoGangHere) {
  const Gang& gang = owners_.AddGang("train", {cluster::test::MakePod("train-0")});
  kube::Workload others = Reserved(Of("train", "muster"));
  others.meta.name_space = "others";
  owners_.workloads.Upsert(others);
  EXPECT_EQ(owners_.workloads.Of(gang), nullptr);
}

// Whether its queues' definitions are not installed, or are and haven't been noticed.
TEST_F(WorkloadsTest, WhoNamesAQueueWaitsWhereNoDefinitionIsKnown) {
  owners_.Add(cluster::test::Labelled(cluster::test::MakePod("p"), kube::kQueueLabel, "team"));
  const Gang& gang = *owners_.gangs.Find(GangKey{"default", "p", true});
  EXPECT_TRUE(MayReserve());
  for (int attempt = 0; attempt < 2; ++attempt) {
    owners_.gangs.Read(gang.id, std::nullopt);
    owners_.quota.Read(gang);
    owners_.quota.Sync(gang, {});
    owners_.quota.Admit(gang, /*fits_now=*/false);
    owners_.Take();
    EXPECT_EQ(owners_.Asked<WriteWorkload>().size(), 1u);
    EXPECT_THAT(owners_.Asked<WriteRecord>(), IsEmpty());
    owners_.FinishAll(absl::NotFoundError("the server could not find the requested resource"));
    EXPECT_TRUE(owners_.quota.IsAsked(gang));
    EXPECT_FALSE(owners_.quota.Holds(gang));
    EXPECT_THAT(owners_.quota.WorkloadErrorOf(gang), testing::HasSubstr("could not find"));
    owners_.Pass(absl::Minutes(1));
  }
}

// Of JobSet "set": a gang of replicated job `stage`, of which one pod is there.
class StagesTest : public WorkloadsTest {
 protected:
  StagesTest() {
    kube::ReplicatedJob first, second;
    first.name = "driver";
    second.name = "node";
    for (kube::ReplicatedJob* each : {&first, &second}) {
      each->replicas = each->spec.parallelism = 1;
      each->spec.scheduler_name = owners_.options.scheduler_name;
    }
    second.depends_on = {"driver"};
    kube::JobSet set;
    set.meta.name = "set";
    set.meta.name_space = "default";
    set.meta.uid = "set-uid";
    set.replicated_jobs = {first, second};
    owners_.gangs.ObserveJob(kube::ToAnyJob(set));
  }

  const Gang& Stage(const std::string& stage) {
    kube::Job job;
    job.meta.name = "set-" + stage + "-0";
    job.meta.name_space = "default";
    job.meta.uid = job.meta.name + "-uid";
    job.meta.owners = {{"jobset.x-k8s.io/v1alpha2", "JobSet", "set", "set-uid", true}};
    owners_.gangs.ObserveJob(kube::ToAnyJob(job));
    kube::Pod pod = cluster::test::MakePod(job.meta.name + "-0");
    pod.meta.owners = {{"batch/v1", "Job", job.meta.name, job.meta.uid, true}};
    pod.meta.labels[std::string(kube::kReplicatedJobLabel)] = stage;
    owners_.Add(std::move(pod));
    const Gang& gang = *owners_.gangs.Find(GangKey{"default", "set-" + stage});
    owners_.gangs.Read(gang.id, std::nullopt);
    return gang;
  }

  kube::Workload OfSet() {
    kube::Workload workload = Reserved(Of("set", "muster"));
    workload.meta.owners = {{"jobset.x-k8s.io/v1alpha2", "JobSet", "set", "set-uid", true}};
    workload.pod_sets.clear();
    for (const char* name : {"driver", "node"}) {
      workload.pod_sets.push_back({name, 1, std::make_shared<const kube::PodSpec>()});
      workload.reserved_sets.push_back({name, 1, {{"nvidia.com/gpu", "any"}}, {}});
    }
    return workload;
  }
};

TEST_F(StagesTest, TheWorkloadOfTheirJobIsEachStagesAndNobodyElses) {
  const Gang& driver = Stage("driver");
  const Gang& node = Stage("node");
  const Gang& other = owners_.AddGang("train", {cluster::test::MakePod("train-0")});
  owners_.workloads.Upsert(OfSet());
  const kube::Workload* workload = owners_.workloads.Of(driver);
  ASSERT_NE(workload, nullptr);
  EXPECT_EQ(owners_.workloads.Of(node), workload);
  EXPECT_EQ(owners_.workloads.Of(other), nullptr);
  for (const Gang* user : {&driver, &node}) {
    owners_.workloads.Use(*user, *workload);
    EXPECT_FALSE(owners_.workloads.IsOthers(driver, *workload));
    EXPECT_FALSE(owners_.workloads.IsOthers(node, *workload));
  }
  EXPECT_THAT(owners_.quota.StagesOf(driver), testing::UnorderedElementsAre(&driver, &node));
  EXPECT_TRUE(owners_.quota.IsShared(driver, /*used=*/false));
}

TEST_F(StagesTest, ThatOfOneWithQuotaStaysAsLongAsAStageIsThere) {
  const Gang& driver = Stage("driver");
  const Gang& node = Stage("node");
  owners_.workloads.Upsert(OfSet());
  for (const Gang* user : {&driver, &node}) {
    owners_.workloads.Use(*user, *owners_.workloads.Of(*user));
  }
  owners_.workloads.ForgetGang(driver.id, driver.key);
  owners_.workloads.Attend();
  EXPECT_THAT(Asked<ApplyWorkloadStatus>(), IsEmpty());
}

// As when a process that leads no longer resumes the job after its eviction.
TEST_F(StagesTest, OneThatIsWrittenAnewKeepsWhatItsTemplatesHadBeforeTheirFlavors) {
  const std::string replicated = R"({"name":"%n"%d,"replicas":1,"template":{"spec":{"parallelism":1,
      "template":{"metadata":{"annotations":{"kueue.x-k8s.io/workload":"w"}},
                  "spec":{"schedulerName":"%o","nodeSelector":{"pool":"a"}}}}}})";
  const auto with = [&](const char* name, const char* depends) {
    return absl::StrReplaceAll(
        replicated, {{"%n", name}, {"%d", depends}, {"%o", owners_.options.scheduler_name}});
  };
  const kube::AnyJob job = kube::ToAnyJob(*kube::Decode<kube::JobSet>(
      R"({"metadata":{"name":"set","namespace":"default","uid":"set-uid"},"spec":{"replicatedJobs":[)" +
      with("driver", "") + "," +
      with("node", R"(,"dependsOn":[{"name":"driver","status":"Complete"}])") + "]}}"));
  ASSERT_TRUE(job.HasFlavors());
  owners_.gangs.ObserveJob(job);
  const Gang& driver = Stage("driver");
  kube::Workload known = OfSet();
  known.reserved = false;
  known.reserved_sets.clear();
  known.meta.finalizers.clear();
  for (kube::Workload::PodSet& set : known.pod_sets) set.original = R"({"spec":{}})";
  owners_.workloads.Upsert(known);
  quota::Workload asked;
  asked.name_space = "default";
  asked.pod_sets = quota::PodSetsOf(job);
  EXPECT_EQ(owners_.workloads.Keep(driver, known.meta.owners[0], asked), nullptr);
  owners_.Take();
  const auto written = owners_.Asked<WriteWorkload>();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_THAT(written[0].pod_templates, ElementsAre(R"({"spec":{}})", R"({"spec":{}})"));
}

TEST_F(WorkloadsTest, MorePodSetsThanAWorkloadMayHaveAreAReason) {
  const Gang& gang = owners_.AddGang("train", {cluster::test::MakePod("train-0")});
  quota::Workload asked;
  for (int i = 0; i < 19; ++i) {
    asked.pod_sets.push_back(
        {"set-" + std::to_string(i), 1, std::make_shared<const kube::PodSpec>()});
  }
  const kube::OwnerReference owner = {"v1", "Pod", "train-0", "uid", true};
  EXPECT_EQ(owners_.workloads.Keep(gang, owner, asked), nullptr);
  EXPECT_EQ(owners_.workloads.ErrorOf(gang), "it has 19 pod sets, a Workload at most 18");
  owners_.Take();
  EXPECT_THAT(owners_.Asked<WriteWorkload>(), IsEmpty());
}

template <typename T>
T Decoded(const std::string& kind, const std::string& json) {
  auto object = kube::Decode<T>(R"({"apiVersion":"kueue.x-k8s.io/v1beta2","kind":")" + kind +
                                R"(",)" + json + "}");
  EXPECT_TRUE(object.ok()) << object.status();
  return object.ok() ? *std::move(object) : T();
}

// Of job "train", whose queue is stopped.
class WorkloadOfAJobTest : public testing::Test {
 protected:
  WorkloadOfAJobTest() {
    engine_.SetSynced();
    engine_.Upsert(Decoded<kube::ClusterQueue>(
        "ClusterQueue",
        R"("metadata":{"name":"q"},"spec":{"namespaceSelector":{},"stopPolicy":"Hold"})"));
    engine_.Upsert(Decoded<kube::LocalQueue>(
        "LocalQueue", R"("metadata":{"namespace":"team","name":"q"},"spec":{"clusterQueue":"q"})"));
    auto job = kube::Decode<kube::Job>(
        R"({"metadata":{"namespace":"team","name":"train","uid":"train-uid","resourceVersion":"1",
            "labels":{"kueue.x-k8s.io/queue-name":"q"}},
            "spec":{"suspend":true,"template":{"spec":{"schedulerName":"coscheduling",
              "containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}}})");
    EXPECT_TRUE(job.ok()) << job.status();
    engine_.Upsert(*job);
  }

  // As it is once it was written.
  kube::Workload Written() {
    kube::Workload workload;
    for (const NumberedAction& action : engine_.Step(now_).actions) {
      const auto* write = std::get_if<WriteWorkload>(&action.action);
      if (write == nullptr) continue;
      engine_.Finish(action.id, absl::OkStatus(), now_);
      workload.meta.name_space = write->workload.name_space;
      workload.meta.name = write->workload.name;
      workload.meta.uid = "workload-uid";
      workload.meta.resource_version = "2";
      workload.meta.finalizers = {std::string(kube::kInUseFinalizer)};
      workload.meta.owners = {write->owner};
      workload.meta.annotations[quota::kLeaderAnnotation] = write->leader;
      workload.queue = write->queue;
      for (const quota::PodSet& set : write->pod_sets) {
        workload.pod_sets.push_back({set.name, set.count, set.spec});
      }
    }
    EXPECT_FALSE(workload.meta.uid.empty());
    for (const NumberedAction& again : engine_.Step(now_).actions) {
      engine_.Finish(again.id, absl::OkStatus(), now_);
    }
    return workload;
  }

  // What is written of status within some seconds.
  std::vector<ApplyWorkloadStatus> Told() {
    std::vector<ApplyWorkloadStatus> told;
    for (int i = 0; i < 5; ++i, now_ += absl::Seconds(1)) {
      for (const NumberedAction& action : engine_.Step(now_).actions) {
        const auto* status = std::get_if<ApplyWorkloadStatus>(&action.action);
        if (status != nullptr) told.push_back(*status);
      }
    }
    return told;
  }

  Engine engine_{EngineOptions()};
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
};

// Nothing else has it looked at again: no pass can help it, and its creation was answered before.
TEST_F(WorkloadOfAJobTest, SaysWhyItWaitsThoughItsQueueIsStopped) {
  engine_.Upsert(Written());
  const std::vector<ApplyWorkloadStatus> told = Told();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].conditions.at("QuotaReserved").reason, "Inadmissible");
  EXPECT_EQ(told[0].conditions.at("QuotaReserved").message,
            "ClusterQueue q is stopped by spec.stopPolicy Hold");
}

// Where Workloads were just defined and their watch hasn't begun, nothing else tells of the end.
TEST_F(WorkloadOfAJobTest, IsGoneWithItsLastFinalizer) {
  bool made = false;
  const auto pass = [&] {
    made = false;
    for (int i = 0; i < 5; ++i, now_ += absl::Seconds(1)) {
      for (const NumberedAction& action : engine_.Step(now_).actions) {
        made |= std::holds_alternative<WriteWorkload>(action.action);
        engine_.Finish(action.id, absl::OkStatus(), now_);
      }
    }
  };
  kube::Workload workload = Written();
  engine_.Upsert(workload);
  pass();
  workload.meta.resource_version = "3";
  workload.meta.deletion_time = now_;
  engine_.Upsert(workload);
  pass();
  EXPECT_FALSE(made);
  workload.meta.resource_version = "4";
  workload.meta.finalizers.clear();
  engine_.Upsert(workload);
  pass();
  EXPECT_TRUE(made);
}

// An earlier process might still reserve what they wait for.
class OthersAreUntakenTest : public WorkloadOfAJobTest {
 protected:
  // `queue` leads to a ClusterQueue in the cohort of the job's, which is open, or in its own.
  void Begin(const std::string& queue) {
    engine_.Upsert(Decoded<kube::ResourceFlavor>("ResourceFlavor", R"("metadata":{"name":"any"})"));
    for (const auto& [name, cohort] : {std::pair("q", "team"), {"same", "team"}, {"other", "o"}}) {
      engine_.Upsert(Decoded<kube::ClusterQueue>(
          "ClusterQueue", fmt::format(R"("metadata":{{"name":"{}"}},"spec":{{"cohortName":"{}",
            "namespaceSelector":{{}},"resourceGroups":[{{"coveredResources":["cpu"],
              "flavors":[{{"name":"any","resources":[{{"name":"cpu","nominalQuota":"8"}}]}}]}}]}})",
                                      name, cohort)));
      engine_.Upsert(Decoded<kube::LocalQueue>(
          "LocalQueue", fmt::format(R"("metadata":{{"namespace":"team","name":"{}"}},
            "spec":{{"clusterQueue":"{}"}})",
                                    name, name)));
    }
    const kube::Workload workload = Written();
    others_ = workload;
    others_.meta.name = others_.meta.uid = "others";
    others_.meta.owners = {{"scheduling.x-k8s.io/v1alpha1", "PodGroup", "none", "none", true}};
    others_.meta.finalizers.clear();
    others_.meta.annotations[quota::kLeaderAnnotation] = "before";
    others_.queue = queue;
    engine_.SetLeading(false);
    engine_.Upsert(others_);
    engine_.Upsert(workload);
    engine_.SetLeading(true);
  }

  kube::Workload others_;
};

TEST_F(OthersAreUntakenTest, WhoIsInAnotherTreeIsGivenQuota) {
  Begin("other");
  const std::vector<ApplyWorkloadStatus> told = Told();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_TRUE(told[0].takes_over);
  EXPECT_EQ(told[1].workload.uid, "workload-uid");
  EXPECT_TRUE(told[1].admission);
}

TEST_F(OthersAreUntakenTest, WhoIsInTheSameTreeWaitsUntilTheyAreTakenOver) {
  Begin("same");
  ASSERT_EQ(Told().size(), 1u);
  others_.meta.resource_version = "3";
  others_.conditions = quota::Taken(others_, EngineOptions().identity, now_);
  engine_.Upsert(others_);
  const std::vector<ApplyWorkloadStatus> told = Told();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].workload.uid, "workload-uid");
  EXPECT_TRUE(told[0].admission);
}

// Most weren't judged yet; and while thousands are taken over, a second write of each would make
// all wait twice as long.
TEST_F(OthersAreUntakenTest, NobodyIsToldWhyHeWaitsBeforeAllAreTakenOver) {
  Begin("same");
  engine_.Upsert(Decoded<kube::ClusterQueue>(
      "ClusterQueue",
      R"("metadata":{"name":"q"},"spec":{"namespaceSelector":{},"stopPolicy":"Hold"})"));
  std::vector<ApplyWorkloadStatus> told = Told();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].takes_over);
  EXPECT_EQ(told[0].workload.uid, "others");

  others_.meta.resource_version = "3";
  others_.conditions = quota::Taken(others_, EngineOptions().identity, now_);
  engine_.Upsert(others_);
  told = Told();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].workload.uid, "workload-uid");
  EXPECT_EQ(told[0].conditions.at("QuotaReserved").reason, "Inadmissible");
}

}  // namespace
}  // namespace muster::coscheduling
