#include "coscheduling/commit/commit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "coscheduling/labels.h"
#include "coscheduling/test_owners.h"

namespace muster::coscheduling {
namespace {

using cluster::test::BoundTo;
using cluster::test::MakeNode;
using cluster::test::MakePod;
using cluster::test::With;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kFirst = 1;
constexpr uint64_t kSecond = 2;

kube::Pod Trainer(const std::string& name) { return MakePod(name, {{"nvidia.com/gpu", 8}}); }

kube::Pod WithClaims(kube::Pod pod) {
  return With(std::move(pod), [](kube::PodSpec& spec) { spec.uses_resource_claims = true; });
}

kube::Pod Gated(kube::Pod pod) {
  pod.scheduling_gates = {std::string(kGate)};
  return pod;
}

// Two nodes, on which the gangs of two members have their places.
class CommitTest : public ::testing::Test {
 protected:
  CommitTest() {
    owners_.Add(MakeNode("a"));
    owners_.Add(MakeNode("b"));
  }

  const Gang& PlacedGang(std::vector<kube::Pod> members) {
    const Gang& gang = owners_.AddGang("train", std::move(members));
    owners_.Place(gang);
    return gang;
  }
  std::string PlaceOf(const Gang& gang, const std::string& uid) const {
    return owners_.placement.Of(gang).fixed.at(uid);
  }
  // The kube-scheduler's call for the member, with the node that was planned for it.
  void Call(uint64_t request, const Gang& gang, const std::string& uid) {
    owners_.commit.Request(request, gang, uid, PlaceOf(gang, uid));
  }
  std::vector<std::string> BoundNow() const {
    std::vector<std::string> bound;
    for (const BindPod& binding : owners_.Asked<BindPod>()) bound.push_back(binding.pod.name);
    return bound;
  }

  TestOwners owners_;
};

TEST_F(CommitTest, AllMembersAreBoundAtTheFirstCall) {
  const Gang& gang = PlacedGang({Trainer("m-0"), Trainer("m-1")});
  owners_.commit.Advance(gang);
  owners_.Take();
  EXPECT_THAT(BoundNow(), IsEmpty()) << "nobody has asked yet";
  Call(kFirst, gang, "pod-m-0");
  owners_.commit.Advance(gang);
  owners_.Take();
  EXPECT_THAT(BoundNow(), UnorderedElementsAre("m-0", "m-1"));
  EXPECT_TRUE(owners_.placement.IsPinned(gang, "pod-m-0"));
  EXPECT_TRUE(owners_.placement.IsPinned(gang, "pod-m-1"));
}

TEST_F(CommitTest, MembersWithClaimsAreBoundOnceAllOfThemWereCalled) {
  const Gang& gang = PlacedGang({WithClaims(Trainer("m-0")), WithClaims(Trainer("m-1"))});
  Call(kFirst, gang, "pod-m-0");
  owners_.commit.Advance(gang);
  owners_.Take();
  EXPECT_THAT(BoundNow(), IsEmpty());
  EXPECT_TRUE(owners_.commit.AwaitsPreBind(gang));
  Call(kSecond, gang, "pod-m-1");
  owners_.commit.Advance(gang);
  owners_.Take();
  EXPECT_THAT(BoundNow(), UnorderedElementsAre("m-0", "m-1"));
}

TEST_F(CommitTest, ARoundThatIsNotCompleteInTimeFailsAsAWhole) {
  const Gang& gang = PlacedGang({WithClaims(Trainer("m-0")), WithClaims(Trainer("m-1"))});
  Call(kFirst, gang, "pod-m-0");
  owners_.commit.Answer(gang, "waits");
  owners_.Pass(owners_.options.bind_wait);
  // Called a moment ago, and still too late: the round is over.
  Call(kSecond, gang, "pod-m-1");
  owners_.commit.Answer(gang, "waits");
  owners_.Take();
  const std::vector<AnswerBind> answers = owners_.Asked<AnswerBind>();
  ASSERT_THAT(answers, SizeIs(2));
  EXPECT_EQ(answers[0].request, kFirst);
  EXPECT_THAT(answers[0].error, HasSubstr("was not committed within 15s: waits"));
  EXPECT_EQ(answers[1].request, kSecond);
  EXPECT_THAT(answers[1].error, HasSubstr("all are to be called again"));
  EXPECT_EQ(owners_.commit.held_binds(), 0u);
}

TEST_F(CommitTest, ACallForAnotherNodeThanThePlannedOneFailsAtOnce) {
  const Gang& gang = PlacedGang({Trainer("m-0"), Trainer("m-1")});
  const std::string other = PlaceOf(gang, "pod-m-0") == "a" ? "b" : "a";
  owners_.commit.Request(kFirst, gang, "pod-m-0", other);
  owners_.commit.Answer(gang, "");
  owners_.Take();
  ASSERT_THAT(owners_.Asked<AnswerBind>(), SizeIs(1));
  EXPECT_EQ(owners_.Asked<AnswerBind>()[0].error,
            "m-0 is planned on " + PlaceOf(gang, "pod-m-0") + ", not " + other);
}

TEST_F(CommitTest, ASecondCallForAPodEndsTheFirst) {
  const Gang& gang = PlacedGang({Trainer("m-0"), Trainer("m-1")});
  Call(kFirst, gang, "pod-m-0");
  Call(kSecond, gang, "pod-m-0");
  owners_.Take();
  ASSERT_THAT(owners_.Asked<AnswerBind>(), SizeIs(1));
  EXPECT_EQ(owners_.Asked<AnswerBind>()[0].request, kFirst);
  EXPECT_EQ(owners_.commit.held_binds(), 1u);
}

TEST_F(CommitTest, ACallIsAnsweredOnceItsBindingWasAccepted) {
  const Gang& gang = PlacedGang({Trainer("m-0"), Trainer("m-1")});
  Call(kFirst, gang, "pod-m-0");
  owners_.commit.Advance(gang);
  owners_.Take();
  EXPECT_TRUE(owners_.commit.IsPosted(gang)) << "it may be accepted before the answer comes";
  owners_.FinishAll(absl::OkStatus());
  EXPECT_TRUE(owners_.commit.IsPosted(gang));
  owners_.commit.Answer(gang, "");
  owners_.Take();
  ASSERT_THAT(owners_.Asked<AnswerBind>(), SizeIs(1));
  EXPECT_EQ(owners_.Asked<AnswerBind>()[0].error, "");
}

// Its quota is given back in the step that finds the gang over; no other may follow.
TEST_F(CommitTest, AMemberThatEndedBeforeItWasSeenBoundIsPostedNoLonger) {
  const Gang& gang = PlacedGang({Trainer("m-0")});
  Call(kFirst, gang, "pod-m-0");
  owners_.commit.Advance(gang);
  owners_.Take();
  owners_.FinishAll(absl::OkStatus());
  ASSERT_TRUE(owners_.commit.IsPosted(gang));
  kube::Pod member = *owners_.snapshot.FindPod("pod-m-0");
  member.node_name = PlaceOf(gang, "pod-m-0");
  member.phase = kube::PodPhase::kSucceeded;
  owners_.Add(member);
  owners_.commit.Sync(gang);
  EXPECT_FALSE(owners_.commit.IsPosted(gang));
}

TEST_F(CommitTest, AnAcceptedBindingThatIsNotSeenIsAskedForAgain) {
  const Gang& gang = PlacedGang({Trainer("m-0"), Trainer("m-1")});
  Call(kFirst, gang, "pod-m-0");
  owners_.commit.Advance(gang);
  owners_.Take();
  owners_.FinishAll(absl::OkStatus());
  owners_.Pass(absl::Seconds(4));
  owners_.commit.Advance(gang);
  owners_.Take();
  EXPECT_THAT(BoundNow(), IsEmpty());
  owners_.Pass(absl::Seconds(1));
  owners_.commit.Advance(gang);
  owners_.Take();
  EXPECT_THAT(BoundNow(), UnorderedElementsAre("m-0", "m-1"));
}

TEST_F(CommitTest, AFailedBindingIsToldAndItsPlaceMayBeGivenUp) {
  const Gang& gang = PlacedGang({Trainer("m-0"), Trainer("m-1")});
  Call(kFirst, gang, "pod-m-0");
  owners_.commit.Advance(gang);
  owners_.Take();
  owners_.FinishAll(absl::UnavailableError("etcd has no leader"));
  EXPECT_EQ(owners_.commit.ErrorOf(gang), "etcd has no leader");
  EXPECT_FALSE(owners_.placement.IsPinned(gang, "pod-m-0"));
  EXPECT_FALSE(owners_.commit.IsPosted(gang));
}

TEST_F(CommitTest, NobodyIsBoundWhileAGateStands) {
  const Gang& gang = PlacedGang({Gated(Trainer("m-0")), Gated(Trainer("m-1"))});
  Call(kFirst, gang, "pod-m-0");
  owners_.commit.Advance(gang);
  owners_.Take();
  EXPECT_THAT(BoundNow(), IsEmpty());
  GangFacts facts = gang.facts;
  facts.planned = true;
  owners_.gangs.Settle(gang.id, facts);
  owners_.commit.LiftGates(gang);
  owners_.Take();
  EXPECT_THAT(owners_.Asked<LiftGate>(), SizeIs(2));
}

TEST_F(CommitTest, APlanThatHoldsNoLongerIsFoundOutBeforeTheFirstBinding) {
  const Gang& gang = PlacedGang({Trainer("m-0"), Trainer("m-1")});
  // Another scheduler's pod has taken the room meanwhile.
  owners_.snapshot.Upsert(BoundTo(MakePod("stranger", {{"nvidia.com/gpu", 1}}), "a"));
  Call(kFirst, gang, "pod-m-0");
  owners_.commit.Advance(gang);
  owners_.Take();
  EXPECT_THAT(BoundNow(), IsEmpty());
  ASSERT_THAT(owners_.Asked<AnswerBind>(), SizeIs(1));
  EXPECT_THAT(owners_.Asked<AnswerBind>()[0].error, HasSubstr("the plan no longer holds"));
  EXPECT_THAT(owners_.commit.ErrorOf(gang), HasSubstr("nvidia.com/gpu"));
}

TEST_F(CommitTest, AMemberThatIsBoundIsNotWaitedForAnyMore) {
  const Gang& gang = PlacedGang({Trainer("m-0"), Trainer("m-1")});
  Call(kFirst, gang, "pod-m-0");
  owners_.commit.Advance(gang);
  owners_.Take();
  owners_.FinishAll(absl::OkStatus());
  for (const char* name : {"m-0", "m-1"}) {
    kube::Pod pod = *owners_.snapshot.FindPod(std::string("pod-") + name);
    owners_.Add(BoundTo(std::move(pod), PlaceOf(gang, std::string("pod-") + name)));
  }
  owners_.gangs.Read(gang.id, std::nullopt);
  owners_.commit.Sync(gang);
  owners_.placement.Sync(gang);
  EXPECT_FALSE(owners_.commit.IsPosted(gang));
  EXPECT_EQ(gang.bound.size(), 2u);
}

TEST_F(CommitTest, AMemberThatEndsBeforeItIsSeenBoundIsNotWaitedForEither) {
  const Gang& gang = PlacedGang({Trainer("m-0"), Trainer("m-1")});
  Call(kFirst, gang, "pod-m-0");
  owners_.commit.Advance(gang);
  owners_.Take();
  owners_.FinishAll(absl::OkStatus());
  for (const char* name : {"m-0", "m-1"}) {
    kube::Pod pod = *owners_.snapshot.FindPod(std::string("pod-") + name);
    pod.phase = kube::PodPhase::kSucceeded;
    owners_.Add(BoundTo(std::move(pod), PlaceOf(gang, std::string("pod-") + name)));
  }
  owners_.gangs.Read(gang.id, std::nullopt);
  owners_.commit.Sync(gang);
  owners_.placement.Sync(gang);
  EXPECT_FALSE(owners_.commit.IsPosted(gang));
  EXPECT_THAT(owners_.placement.Of(gang).fixed, IsEmpty());
}

TEST_F(CommitTest, NobodyIsRefusedForItsSizeWithoutClaims) {
  std::vector<kube::Pod> members;
  for (int i = 0; i < 751; ++i) members.push_back(MakePod("m-" + std::to_string(i)));
  EXPECT_EQ(owners_.commit.Blocker(owners_.AddGang("plain", members)).code, v1::REASON_UNSPECIFIED);
}

TEST_F(CommitTest, AGangThatCanNotBeCalledWithinOneRoundIsRefusedWithTheLimit) {
  std::vector<kube::Pod> members;
  for (int i = 0; i < 751; ++i) members.push_back(WithClaims(MakePod("m-" + std::to_string(i))));
  const Reason reason = owners_.commit.Blocker(owners_.AddGang("large", members));
  EXPECT_EQ(reason.code, v1::BIND_ROUND_TOO_LARGE);
  EXPECT_THAT(reason.message, HasSubstr("751 members are to be bound together, and 750"));
}

TEST_F(CommitTest, EveryCallIsAnsweredWhenItEndsToLead) {
  const Gang& gang = PlacedGang({Trainer("m-0"), Trainer("m-1")});
  Call(kFirst, gang, "pod-m-0");
  Call(kSecond, gang, "pod-m-1");
  owners_.commit.AnswerAll("muster is not leading");
  owners_.Take();
  const std::vector<AnswerBind> answers = owners_.Asked<AnswerBind>();
  EXPECT_THAT(answers, SizeIs(2));
  EXPECT_TRUE(std::ranges::all_of(
      answers, [](const AnswerBind& answer) { return answer.error == "muster is not leading"; }));
}

}  // namespace
}  // namespace muster::coscheduling
