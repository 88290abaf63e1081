#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "coscheduling/engine.h"
#include "kube/objects/decode.h"
#include "muster/v1/admission.pb.h"

namespace muster::coscheduling {
namespace {

using ::testing::HasSubstr;

template <typename T>
T Decoded(const std::string& json) {
  auto object = kube::Decode<T>(json);
  EXPECT_TRUE(object.ok()) << object.status();
  return object.ok() ? *std::move(object) : T();
}

kube::Job Job(const std::string& name, int parallelism, const std::string& version = "1") {
  return Decoded<kube::Job>(
      R"({"metadata":{"namespace":"team","name":")" + name + R"(","uid":")" + name +
      R"(-uid","resourceVersion":")" + version +
      R"("},"spec":{"template":{"spec":{"schedulerName":"coscheduling"}},"parallelism":)" +
      std::to_string(parallelism) + "}}");
}

kube::Pod Pod(const std::string& job, int index, const std::string& labels = "{}") {
  const std::string name = job + "-" + std::to_string(index);
  return Decoded<kube::Pod>(
      R"({"metadata":{"namespace":"team","name":")" + name + R"(","uid":")" + name +
      R"(-uid","resourceVersion":"1","labels":)" + labels +
      R"(,"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":")" + job +
      R"(","uid":")" + job + R"(-uid","controller":true}]},
      "spec":{"schedulerName":"coscheduling","schedulingGates":[{"name":"muster.dev/admission"}],
              "containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}})");
}

// The engine, and what it asks for.
class DerivedGroups : public ::testing::Test {
 protected:
  DerivedGroups() : engine_(EngineOptions()) { engine_.SetSynced(); }

  void Step(absl::Duration after = absl::ZeroDuration()) {
    now_ += after;
    out_ = engine_.Step(now_);
  }
  template <typename T>
  std::vector<NumberedAction> Asked() const {
    std::vector<NumberedAction> asked;
    for (const NumberedAction& action : out_.actions) {
      if (std::holds_alternative<T>(action.action)) asked.push_back(action);
    }
    return asked;
  }
  v1::Gang Find(const std::string& name, bool is_pod = false) const {
    v1::Gang gang;
    engine_.Describe({"team", name, is_pod}, &gang);
    return gang;
  }
  // What the API server makes of it.
  static kube::PodGroup Made(const CreatePodGroup& create) {
    kube::PodGroup group;
    group.meta.name_space = create.name_space;
    group.meta.name = create.name;
    group.meta.uid = "group-uid";
    group.meta.resource_version = "10";
    group.meta.labels["muster.dev/derived"] = "true";
    group.meta.owners = create.owners;
    group.min_member = create.min_member;
    return group;
  }
  // Steps until the PodGroup is asked for, and makes it.
  kube::PodGroup MakeGroup() {
    Step();
    const auto asked = Asked<CreatePodGroup>();
    EXPECT_EQ(asked.size(), 1);
    if (asked.empty()) return {};
    kube::PodGroup group = Made(std::get<CreatePodGroup>(asked.front().action));
    engine_.Upsert(group);
    engine_.Finish(asked.front().id, absl::OkStatus(), now_);
    return group;
  }

  Engine engine_;
  StepOutput out_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
};

TEST_F(DerivedGroups, PodsThatComeBeforeTheirJobWaitForItAndJoinItsGang) {
  engine_.Upsert(Pod("j", 0));
  Step();
  EXPECT_EQ(Find("j-0", true).reason().code(), v1::OWNER_NOT_FOUND);
  EXPECT_TRUE(Asked<CreatePodGroup>().empty());
  engine_.Upsert(Job("j", 2));
  Step(absl::Seconds(1));
  EXPECT_EQ(Find("j-0", true).name(), "");
  EXPECT_THAT(Find("j").reason().message(), HasSubstr("1 of 2 members exist"));
  ASSERT_EQ(Asked<CreatePodGroup>().size(), 1);
  const auto create = std::get<CreatePodGroup>(Asked<CreatePodGroup>().front().action);
  EXPECT_EQ(create.name, "j");
  EXPECT_EQ(create.min_member, 2);
  EXPECT_EQ(create.owners.front().uid, "j-uid");
}

TEST_F(DerivedGroups, APodThatJoinsAnotherGangKeepsItsFilterAnswer) {
  engine_.Upsert(Pod("j", 0));
  Step();
  engine_.Upsert(Job("j", 2));
  Step(absl::Seconds(1));
  ASSERT_FALSE(out_.filter_answers.empty());
  EXPECT_EQ(out_.filter_answers.back().first, "j-0-uid");
  ASSERT_TRUE(out_.filter_answers.back().second);
  EXPECT_THAT(out_.filter_answers.back().second->message, HasSubstr("gang team/j is"));
}

TEST_F(DerivedGroups, NothingIsDecidedBeforeThePodGroupIsThere) {
  engine_.Upsert(Job("j", 2));
  engine_.Upsert(Pod("j", 0));
  engine_.Upsert(Pod("j", 1));
  Step();
  EXPECT_EQ(Find("j").reason().code(), v1::RECORD_PENDING);
  EXPECT_TRUE(Asked<WriteRecord>().empty());
  const auto asked = Asked<CreatePodGroup>();
  ASSERT_EQ(asked.size(), 1);
  engine_.Upsert(Made(std::get<CreatePodGroup>(asked.front().action)));
  engine_.Finish(asked.front().id, absl::OkStatus(), now_);
  Step();
  EXPECT_EQ(Asked<WriteRecord>().size(), 1);
  EXPECT_TRUE(Asked<SignalPod>().empty());
}

TEST_F(DerivedGroups, APodGroupThatIsRefusedIsToldAndAskedForAgain) {
  engine_.Upsert(Job("j", 1));
  engine_.Upsert(Job("j", 2, "2"));
  engine_.Upsert(Pod("j", 0));
  engine_.Upsert(Pod("j", 1));
  Step();
  ASSERT_EQ(Asked<CreatePodGroup>().size(), 1);
  engine_.Finish(Asked<CreatePodGroup>().front().id, absl::NotFoundError("no such resource"), now_);
  Step();
  EXPECT_EQ(Find("j").reason().code(), v1::RECORD_FAILED);
  EXPECT_THAT(Find("j").reason().message(), HasSubstr("no such resource"));
  Step(absl::Seconds(1));
  EXPECT_EQ(Asked<CreatePodGroup>().size(), 1);
}

TEST_F(DerivedGroups, AnotherParallelismBecomesAnotherQuorum) {
  engine_.Upsert(Job("j", 3));
  engine_.Upsert(Pod("j", 0));
  MakeGroup();
  engine_.Upsert(Job("j", 5, "2"));
  Step();
  ASSERT_EQ(Asked<UpdateMinMember>().size(), 1);
  const auto update = std::get<UpdateMinMember>(Asked<UpdateMinMember>().front().action);
  EXPECT_EQ(update.group.uid, "group-uid");
  EXPECT_EQ(update.group.resource_version, "10");
  EXPECT_EQ(update.min_member, 5);
  EXPECT_EQ(Find("j").min_member(), 5);
}

TEST_F(DerivedGroups, APodGroupThatMusterDidntMakeIsNeverChanged) {
  engine_.Upsert(Job("j", 3));
  engine_.Upsert(Pod("j", 0));
  kube::PodGroup group;
  group.meta.name_space = "team";
  group.meta.name = "j";
  group.meta.uid = "theirs";
  group.min_member = 2;
  engine_.Upsert(group);
  Step();
  EXPECT_TRUE(Asked<CreatePodGroup>().empty());
  EXPECT_TRUE(Asked<UpdateMinMember>().empty());
  EXPECT_EQ(Find("j").min_member(), 2);
}

TEST_F(DerivedGroups, WhereAnOperatorLabelsPodsThePodGroupIsItsToChange) {
  engine_.Upsert(Job("j", 3));
  engine_.Upsert(Pod("j", 0));
  engine_.Upsert(Pod("j", 1, R"({"scheduling.x-k8s.io/pod-group":"j"})"));
  kube::PodGroup group = MakeGroup();
  group.min_member = 2;
  group.meta.resource_version = "11";
  engine_.Upsert(group);
  Step();
  EXPECT_TRUE(Asked<UpdateMinMember>().empty());
}

TEST_F(DerivedGroups, AMemberThatItsJobReleasesLeavesTheGang) {
  engine_.Upsert(Job("j", 2));
  engine_.Upsert(Pod("j", 0));
  engine_.Upsert(Pod("j", 1));
  Step();
  EXPECT_EQ(Find("j").members_size(), 2);
  kube::Pod released = Pod("j", 1);
  released.meta.owners.clear();
  released.meta.resource_version = "2";
  engine_.Upsert(released);
  Step();
  EXPECT_EQ(Find("j").members_size(), 1);
  EXPECT_EQ(Find("j-1", true).members_size(), 1);
}

TEST_F(DerivedGroups, TheQueueIsNamedByThePodThePodGroupOrTheJobInThisOrder) {
  const auto queue = [](const char* name) {
    return kube::StringMap{{"kueue.x-k8s.io/queue-name", name}};
  };
  kube::Job job = Job("j", 2);
  engine_.Upsert(job);
  engine_.Upsert(Pod("j", 0));
  kube::PodGroup group = MakeGroup();
  Step();
  EXPECT_EQ(Find("j").queue(), "");
  job.meta.labels = queue("of-the-job");
  job.meta.resource_version = "2";
  engine_.Upsert(job);
  Step();
  EXPECT_EQ(Find("j").queue(), "of-the-job");
  group.meta.labels["kueue.x-k8s.io/queue-name"] = "of-the-group";
  group.meta.resource_version = "11";
  engine_.Upsert(group);
  Step();
  EXPECT_EQ(Find("j").queue(), "of-the-group");
  engine_.Upsert(Pod("j", 1, R"({"kueue.x-k8s.io/queue-name":"of-the-pod"})"));
  Step();
  EXPECT_EQ(Find("j").queue(), "of-the-pod");
}

TEST_F(DerivedGroups, AfterAJobIsGoneItsPodGroupIsNotMadeAgain) {
  engine_.Upsert(Job("j", 3));
  engine_.Upsert(Pod("j", 0));
  const kube::PodGroup made = MakeGroup();
  engine_.Remove(Job("j", 2));
  engine_.Remove(made);
  Step(absl::Minutes(1));
  EXPECT_TRUE(Asked<CreatePodGroup>().empty());
  EXPECT_EQ(Find("j").reason().code(), v1::OWNER_NOT_FOUND);
  engine_.Remove(Pod("j", 0));
  Step();
  EXPECT_EQ(Find("j").name(), "");
}

TEST_F(DerivedGroups, ThePodGroupLabelGoesBeforeTheOwner) {
  engine_.Upsert(Job("j", 3));
  engine_.Upsert(Pod("j", 0, R"({"scheduling.x-k8s.io/pod-group":"mine",
                                "kueue.x-k8s.io/pod-group-name":"kueues"})"));
  Step();
  EXPECT_EQ(Find("mine").reason().code(), v1::POD_GROUP_NOT_FOUND);
  EXPECT_TRUE(Asked<CreatePodGroup>().empty());
}

TEST_F(DerivedGroups, KueuesLabelGoesBeforeTheOwner) {
  engine_.Upsert(Job("j", 3));
  engine_.Upsert(Pod("j", 0, R"({"kueue.x-k8s.io/pod-group-name":"kueues"})"));
  Step();
  EXPECT_EQ(Find("kueues").reason().code(), v1::MEMBER_INVALID);
  EXPECT_THAT(Find("kueues").reason().message(), HasSubstr("pod-group-total-count of j-0 is \"\""));
}

// --- members that the API server refuses ---

kube::Event RefusedPod(const std::string& job, const std::string& why, absl::Time last) {
  kube::Event event;
  event.about = {"Job", "team", job, job + "-uid"};
  event.type = "Warning";
  event.reason = "FailedCreate";
  event.message = "Error creating: pods \"" + job + "-x\" is forbidden: " + why;
  event.last = last;
  return event;
}

TEST_F(DerivedGroups, AnEventReadBeforeItsJobAndItsPodsIsTold) {
  engine_.Upsert(RefusedPod("j", "exceeded quota: gpu, requested: pods=1", now_));
  engine_.Upsert(Pod("j", 0));
  engine_.Upsert(Job("j", 2));
  Step();
  EXPECT_EQ(Find("j").reason().code(), v1::PODS_REFUSED);
  EXPECT_EQ(Find("j").reason().message(),
            "1 of 2 members exist; pods of Job team/j are refused: exceeded quota: gpu, "
            "requested: pods=1");
  EXPECT_EQ(Find("j").reason().fix(),
            "raise ResourceQuota team/gpu, or end others that it counts; its controller tries "
            "again within 1 min");
}

TEST_F(DerivedGroups, ARepetitionInOtherPodsNamesChangesNothingShown) {
  engine_.Upsert(Job("j", 2));
  engine_.Upsert(Pod("j", 0));
  engine_.Upsert(RefusedPod("j", "no privileged pods", now_));
  MakeGroup();
  Step(absl::Seconds(10));
  const uint64_t shown = Find("j").revision();
  engine_.Upsert(RefusedPod("j", "no privileged pods", now_ + absl::Seconds(60)));
  Step(absl::Seconds(60));
  EXPECT_EQ(Find("j").revision(), shown);
  EXPECT_EQ(Find("j").reason().code(), v1::PODS_REFUSED);
}

TEST_F(DerivedGroups, ARefusalIsOverWhenPodsCameAfterIt) {
  engine_.Upsert(Job("j", 3));
  engine_.Upsert(Pod("j", 0));
  engine_.Upsert(RefusedPod("j", "no", now_));
  Step();
  ASSERT_EQ(Find("j").reason().code(), v1::PODS_REFUSED);
  kube::Pod later = Pod("j", 1);
  later.meta.creation_time = now_ + absl::Seconds(30);
  engine_.Upsert(later);
  Step(absl::Seconds(30));
  EXPECT_EQ(Find("j").reason().code(), v1::MEMBERS_MISSING);
}

TEST_F(DerivedGroups, ARefusalEndsByItselfAndWithItsJob) {
  engine_.Upsert(Job("j", 2));
  engine_.Upsert(Pod("j", 0));
  engine_.Upsert(RefusedPod("j", "no", now_));
  Step();
  EXPECT_LE(engine_.NextWake(), now_ + absl::Minutes(20));
  Step(absl::Minutes(20));
  EXPECT_EQ(Find("j").reason().code(), v1::MEMBERS_MISSING);

  engine_.Upsert(RefusedPod("j", "no", now_));
  EXPECT_EQ(engine_.TakeStats().pod_refusals, 1);
  engine_.Remove(Job("j", 2));
  EXPECT_EQ(engine_.TakeStats().pod_refusals, 0);
}

TEST_F(DerivedGroups, ASuspendedJobIsNotRefused) {
  engine_.Upsert(Decoded<kube::Job>(
      R"({"metadata":{"namespace":"team","name":"j","uid":"j-uid","resourceVersion":"1"},
          "spec":{"suspend":true,"parallelism":2,
                  "template":{"spec":{"schedulerName":"coscheduling"}}}})"));
  engine_.Upsert(Pod("j", 0));
  engine_.Upsert(RefusedPod("j", "no", now_));
  Step();
  EXPECT_THAT(Find("j").reason().message(), HasSubstr("it is suspended"));
}

TEST_F(DerivedGroups, APodGroupThatTheUserMadeNamesWhoIsRefusedToo) {
  kube::PodGroup group;
  group.meta.name_space = "team";
  group.meta.name = "g";
  group.meta.uid = "g-uid";
  group.min_member = 4;
  engine_.Upsert(group);
  const std::string label = R"({"scheduling.x-k8s.io/pod-group":"g"})";
  for (const char* job : {"a", "b"}) {
    engine_.Upsert(Job(job, 2));
    engine_.Upsert(Pod(job, 0, label));
    engine_.Upsert(RefusedPod(job, "failed quota: mem: must specify limits.memory", now_));
  }
  Step();
  EXPECT_EQ(Find("g").reason().message(),
            "2 of 4 members exist; pods of Job team/a, and of 1 more, are refused: failed quota: "
            "mem: must specify limits.memory");
  EXPECT_THAT(Find("g").reason().fix(),
              HasSubstr("let the pod template of Job say what ResourceQuota team/mem counts"));
}

}  // namespace
}  // namespace muster::coscheduling
