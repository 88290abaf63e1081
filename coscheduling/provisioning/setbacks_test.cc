#include "coscheduling/provisioning/setbacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

using cluster::BringUp;
using cluster::ClaimSight;

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const GangKey kJob{"default", "job"};
const GangKey kOther{"default", "other"};
const BringUpLimits kLimits = {.stages = {absl::Minutes(4), absl::Minutes(10), absl::Minutes(10)},
                               .refused = absl::Minutes(4)};

absl::Time At(int64_t seconds) { return absl::FromUnixSeconds(1'767'225'600 + seconds); }

ClaimSight Claim(const std::string& name, BringUp stage, absl::Time since) {
  ClaimSight sight;
  sight.name = name;
  sight.node_pool = "gpu";
  sight.instance_type = "p4d.24xlarge";
  sight.zone = "us-west-2a";
  sight.stage = stage;
  sight.since = since;
  return sight;
}

kube::Event Refusal(const std::string& claim, absl::Time at,
                    const std::string& words = "sold out") {
  kube::Event event;
  event.about.kind = "NodeClaim";
  event.about.name = claim;
  event.type = "Warning";
  event.reason = "InsufficientCapacityError";
  event.message = fmt::format("NodeClaim {} event: {}", claim, words);
  event.last = at;
  return event;
}

class SetbacksTest : public ::testing::Test {
 protected:
  void Make(const std::string& name, absl::Time at) {
    table_.MadeFor(name, {kJob});
    table_.See(Claim(name, BringUp::kLaunch, at), at);
  }
  std::vector<Setback> Of(absl::Time now, bool all = false) const {
    return table_.Of(kJob, kLimits, now, all);
  }

  Setbacks table_;
};

TEST_F(SetbacksTest, RefusedClaimsOfOneKindAreCountedTogether) {
  table_.CountOn(kJob, At(0), {}, false);
  for (int i = 0; i < 3; ++i) {
    Make(fmt::format("gpu-{}", i), At(10 * i));
    EXPECT_THAT(table_.Note(Refusal(fmt::format("gpu-{}", i), At(10 * i)), At(10 * i)),
                ElementsAre(kJob));
    table_.Gone(fmt::format("gpu-{}", i), At(10 * i + 1));
  }
  const std::vector<Setback> list = Of(At(30));
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].code, v1::INSUFFICIENT_CAPACITY);
  EXPECT_EQ(list[0].times, 3);
  EXPECT_EQ(list[0].first, At(0));
  EXPECT_EQ(list[0].last, At(20));
  EXPECT_EQ(list[0].claim.name, "gpu-2");
  EXPECT_EQ(list[0].claim.words, "sold out");
}

TEST_F(SetbacksTest, TheRefusalMayBeToldBeforeTheClaimIsSeenOrAfterItHasGone) {
  table_.CountOn(kJob, At(0), {}, false);
  EXPECT_THAT(table_.Note(Refusal("early", At(1)), At(1)), IsEmpty());
  Make("early", At(1));
  table_.Gone("early", At(2));

  Make("late", At(3));
  table_.Gone("late", At(4));
  EXPECT_EQ(Of(At(4)).back().code, v1::LAUNCH_FAILED) << "nothing else is known yet";
  table_.Note(Refusal("late", At(4)), At(5));

  const std::vector<Setback> list = Of(At(5));
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].code, v1::INSUFFICIENT_CAPACITY);
  EXPECT_EQ(list[0].times, 2);
}

TEST_F(SetbacksTest, ToldTwiceCountsOnce) {
  table_.CountOn(kJob, At(0), {}, false);
  Make("a", At(1));
  table_.Note(Refusal("a", At(1)), At(1));
  EXPECT_THAT(table_.Note(Refusal("a", At(2)), At(2)), IsEmpty());
  EXPECT_THAT(table_.Gone("a", At(2)), IsEmpty());
  EXPECT_EQ(Of(At(2)).at(0).times, 1);
}

TEST_F(SetbacksTest, WhoWasRefusedTheSameLearnsThatAnotherWasRefusedIt) {
  table_.CountOn(kJob, At(0), {}, false);
  table_.CountOn(kOther, At(0), {}, false);
  EXPECT_EQ(table_.LastRefusal(kJob), absl::InfinitePast());
  Make("a", At(1));
  table_.Note(Refusal("a", At(1)), At(1));
  table_.Stop(kJob, kLimits, At(40));
  EXPECT_EQ(table_.LastRefusal(kJob), At(1));

  table_.MadeFor("b", {kOther});
  table_.See(Claim("b", BringUp::kLaunch, At(50)), At(50));
  EXPECT_THAT(table_.Note(Refusal("b", At(50)), At(50)), UnorderedElementsAre(kJob, kOther));
  EXPECT_EQ(table_.LastRefusal(kJob), At(50));

  ClaimSight elsewhere = Claim("c", BringUp::kLaunch, At(60));
  elsewhere.zone = "us-west-2b";
  table_.MadeFor("c", {kOther});
  table_.See(elsewhere, At(60));
  EXPECT_THAT(table_.Note(Refusal("c", At(60)), At(60)), ElementsAre(kOther));
  EXPECT_EQ(table_.LastRefusal(kJob), At(50));
}

TEST_F(SetbacksTest, NodesThatWentSinceARefusalAreRoomWhereItWasRefused) {
  for (const char* name : {"x", "y"}) {
    table_.See(Claim(name, BringUp::kRegistration, At(0)), At(0));
  }
  ClaimSight elsewhere = Claim("z", BringUp::kRegistration, At(0));
  elsewhere.zone = "us-west-2b";
  table_.See(elsewhere, At(0));
  table_.CountOn(kJob, At(0), {}, false);
  table_.CountOn(kOther, At(0), {}, false);
  Make("a", At(1));
  table_.Note(Refusal("a", At(1)), At(1));
  ClaimSight anywhere = Claim("b", BringUp::kLaunch, At(1));
  anywhere.zone = "us-west-2a or 1 other";
  table_.MadeFor("b", {kOther});
  table_.See(anywhere, At(1));
  table_.Note(Refusal("b", At(1)), At(1));
  EXPECT_EQ(table_.RoomSinceRefusal(kJob), 0);

  table_.Gone("x", At(2));
  EXPECT_EQ(table_.RoomSinceRefusal(kJob), 1);
  EXPECT_EQ(table_.RoomSinceRefusal(kOther), 1);
  table_.Gone("z", At(2));
  EXPECT_EQ(table_.RoomSinceRefusal(kJob), 1);
  EXPECT_EQ(table_.RoomSinceRefusal(kOther), 2);
  table_.See(Claim("new", BringUp::kRegistration, At(3)), At(3));
  EXPECT_EQ(table_.RoomSinceRefusal(kJob), 0) << "somebody else took it";
}

TEST_F(SetbacksTest, TheTimeForRefusalsEndsWithTheLastLaunchAndBeginsWithAnAttemptAfterOne) {
  const BringUpLimits limits = {.stages = kLimits.stages, .refused = absl::Seconds(40)};
  table_.CountOn(kJob, At(0), {}, false);
  Make("a", At(1));
  EXPECT_EQ(table_.NextLimit(kJob, limits).at, absl::InfiniteFuture());
  table_.Note(Refusal("a", At(10)), At(10));
  EXPECT_EQ(table_.NextLimit(kJob, limits).at, At(50));
  EXPECT_EQ(table_.NextLimit(kJob, limits).length, absl::Seconds(40));
  Make("b", At(15));
  table_.See(Claim("b", BringUp::kRegistration, At(20)), At(20));
  table_.CountOn(kJob, At(0), {"b"}, true);
  EXPECT_EQ(table_.NextLimit(kJob, limits).stage, BringUp::kRegistration);

  table_.CountOn(kJob, At(100), {}, false, /*failed_before=*/true);
  EXPECT_EQ(table_.NextLimit(kJob, limits).at, At(140));
}

TEST_F(SetbacksTest, OldEventsAndThoseOfOthersSayNothing) {
  table_.CountOn(kJob, At(0), {}, false);
  Make("a", At(1'000));
  kube::Event pod = Refusal("a", At(1'000));
  pod.about.kind = "Pod";
  kube::Event other = Refusal("a", At(1'000));
  other.reason = "Unconsolidatable";
  for (const kube::Event& event : {pod, other, Refusal("a", At(300))}) {
    EXPECT_THAT(table_.Note(event, At(1'000)), IsEmpty());
  }
  EXPECT_THAT(Of(At(1'000)), IsEmpty());
}

TEST_F(SetbacksTest, WhatIsSlowIsASetbackFromHalfItsLimitOn) {
  table_.See(Claim("a", BringUp::kRegistration, At(0)), At(0));
  table_.CountOn(kJob, At(0), {"a"}, true);
  EXPECT_THAT(Of(At(299)), IsEmpty());
  EXPECT_EQ(table_.NextLate(kJob, kLimits, At(299)), At(300));
  ASSERT_EQ(Of(At(300)).size(), 1u);
  EXPECT_TRUE(Of(At(300))[0].stands);
  EXPECT_EQ(Of(At(300))[0].last, At(0)) << "since when, so that it doesn't change";
  EXPECT_EQ(Of(At(1), /*all=*/true).size(), 1u);
}

TEST_F(SetbacksTest, WhatFailsIsASetbackAtOnce) {
  ClaimSight sight = Claim("a", BringUp::kInitialization, At(0));
  sight.incomplete = true;
  sight.failing = true;
  table_.See(sight, At(0));
  table_.CountOn(kJob, At(0), {"a"}, true);
  ASSERT_EQ(Of(At(0)).size(), 1u);
  EXPECT_EQ(Of(At(0))[0].code, v1::NODES_INCOMPLETE);
}

TEST_F(SetbacksTest, TheWorstComesFirst) {
  ClaimSight taint = Claim("a", BringUp::kInitialization, At(0));
  taint.startup_taint = true;
  table_.See(taint, At(0));
  table_.See(Claim("b", BringUp::kRegistration, At(0)), At(0));
  table_.CountOn(kJob, At(0), {"a", "b"}, false);
  Make("c", At(1));
  table_.Note(Refusal("c", At(1)), At(1));
  std::vector<v1::ReasonCode> codes;
  for (const Setback& setback : Of(At(600))) codes.push_back(setback.code);
  EXPECT_THAT(codes, ElementsAre(v1::INSUFFICIENT_CAPACITY, v1::STARTUP_TAINT_STAYS,
                                 v1::NODE_NOT_REGISTERED));
}

// Karpenter makes a claim in place of one that was of no use just when the gang gives up.
TEST_F(SetbacksTest, AClaimThatHasJustBegunIsNotToBlame) {
  ClaimSight incomplete = Claim("a", BringUp::kInitialization, At(0));
  incomplete.incomplete = true;
  incomplete.failing = true;
  table_.See(incomplete, At(0));
  table_.See(Claim("slow", BringUp::kRegistration, At(5)), At(5));
  table_.CountOn(kJob, At(0), {"a", "slow"}, false);
  Make("new", At(39));
  table_.CountOn(kJob, At(0), {"a", "slow", "new"}, false);
  const auto codes = [&] {
    std::vector<v1::ReasonCode> list;
    for (const Setback& setback : Of(At(40), true)) list.push_back(setback.code);
    return list;
  };
  const auto expected =
      ElementsAre(v1::NODES_INCOMPLETE, v1::NODE_NOT_REGISTERED, v1::LAUNCH_FAILED);
  EXPECT_THAT(codes(), expected);
  table_.Stop(kJob, kLimits, At(40));
  EXPECT_THAT(codes(), expected);
}

// The end of a claim says by itself only how far it had come.
TEST_F(SetbacksTest, AClaimThatGoesIsToldByWhatItHadBeforeIt) {
  struct Case {
    const char* name;
    BringUp stage;
    bool incomplete;
    v1::ReasonCode code;
  };
  for (const Case& c : {
           Case{"unlaunched", BringUp::kLaunch, false, v1::LAUNCH_FAILED},
           Case{"unregistered", BringUp::kRegistration, false, v1::NODE_NOT_REGISTERED},
           Case{"not ready", BringUp::kInitialization, false, v1::NODE_TAKEN_BACK},
           Case{"7 of 8", BringUp::kInitialization, true, v1::NODES_INCOMPLETE},
           Case{"usable", BringUp::kDone, false, v1::NODE_TAKEN_BACK},
       }) {
    Setbacks table;
    ClaimSight sight = Claim(c.name, c.stage, At(0));
    sight.incomplete = c.incomplete;
    table.See(sight, At(0));
    table.CountOn(kJob, At(0), {c.name}, false);
    sight.going = true;
    table.See(sight, At(5));
    table.Gone(c.name, At(6));
    const std::vector<Setback> list = table.Of(kJob, kLimits, At(6));
    ASSERT_EQ(list.size(), 1u) << c.name;
    EXPECT_EQ(list[0].code, c.code) << c.name;
    EXPECT_FALSE(list[0].stands) << c.name;
  }
}

// Karpenter takes a node with 7 of 8 GPUs for one that is empty. Its condition that says so may be
// seen before the node's taint.
TEST_F(SetbacksTest, WhatANodeLackedIsSaidRatherThanWhyItIsRemoved) {
  const auto words_at_end = [&](const std::string& name, BringUp stage, const std::string& lack) {
    Setbacks table;
    ClaimSight sight = Claim(name, stage, At(0));
    sight.incomplete = !lack.empty();
    sight.words = lack;
    table.See(sight, At(0));
    table.CountOn(kJob, At(0), {name}, false);
    sight.going = true;
    sight.words = "Empty";
    table.See(sight, At(5));
    return table.Of(kJob, kLimits, At(6)).at(0).claim.words;
  };
  EXPECT_EQ(words_at_end("a", BringUp::kInitialization, "nvidia.com/gpu: 7 of 8 allocatable"),
            "nvidia.com/gpu: 7 of 8 allocatable");
  EXPECT_EQ(words_at_end("b", BringUp::kDone, ""), "Empty");
}

TEST_F(SetbacksTest, OnlyWhoseClaimItIsIsTold) {
  table_.CountOn(kOther, At(0), {}, false);
  table_.See(Claim("a", BringUp::kLaunch, At(1)), At(1));
  table_.CountOn(kOther, At(0), {"a"}, false);
  table_.CountOn(kJob, At(0), {"a"}, true);
  EXPECT_THAT(table_.Note(Refusal("a", At(2)), At(2)), ElementsAre(kJob));
  EXPECT_THAT(table_.Of(kOther, kLimits, At(2), true), IsEmpty());
}

TEST_F(SetbacksTest, ItIsOvercomeOnceAllNodesAreThatFar) {
  table_.CountOn(kJob, At(0), {}, false);
  Make("a", At(1));
  table_.Note(Refusal("a", At(1)), At(1));
  Make("b", At(5));
  table_.CountOn(kJob, At(0), {"b"}, true);
  EXPECT_FALSE(Of(At(5)).at(0).overcome) << "b may be refused as well";
  table_.See(Claim("b", BringUp::kRegistration, At(6)), At(6));
  table_.CountOn(kJob, At(0), {"b"}, true);
  EXPECT_TRUE(Of(At(6)).at(0).overcome);
}

TEST_F(SetbacksTest, OnePlaceHasOneTimeHoweverOftenItsClaimIsMadeAnew) {
  table_.CountOn(kJob, At(0), {}, false);
  EXPECT_EQ(table_.NextLimit(kJob, kLimits).at, absl::InfiniteFuture());
  for (int64_t made : {1, 100, 200}) {
    const std::string name = fmt::format("gpu-{}", made);
    Make(name, At(made));
    table_.CountOn(kJob, At(0), {name}, true);
    EXPECT_EQ(table_.NextLimit(kJob, kLimits).at, At(241)) << made;
    table_.Note(Refusal(name, At(made + 1)), At(made + 1));
    table_.Gone(name, At(made + 2));
    table_.CountOn(kJob, At(0), {}, false);
    EXPECT_EQ(table_.NextLimit(kJob, kLimits).at, At(241)) << made;
  }
  Make("good", At(220));
  table_.See(Claim("good", BringUp::kRegistration, At(221)), At(221));
  table_.CountOn(kJob, At(0), {"good"}, true);
  EXPECT_EQ(table_.NextLimit(kJob, kLimits).at, At(821));
  EXPECT_EQ(table_.NextLimit(kJob, kLimits).stage, BringUp::kRegistration);
}

TEST_F(SetbacksTest, ANodeThatWasThereBeforeTheAttemptHasItsTimeAnew) {
  table_.See(Claim("a", BringUp::kRegistration, At(0)), At(0));
  table_.CountOn(kJob, At(500), {"a"}, true);
  EXPECT_EQ(table_.NextLimit(kJob, kLimits).at, At(1'100));
}

TEST_F(SetbacksTest, AGangThatGaveUpKeepsWhatItKnewAndLearnsNothingMore) {
  table_.See(Claim("a", BringUp::kRegistration, At(0)), At(0));
  table_.CountOn(kJob, At(0), {"a"}, true);
  table_.Stop(kJob, kLimits, At(0));
  EXPECT_THAT(table_.Gone("a", At(50)), IsEmpty());
  ASSERT_EQ(Of(At(60)).size(), 1u);
  EXPECT_EQ(Of(At(60))[0].code, v1::NODE_NOT_REGISTERED);
  EXPECT_EQ(table_.NextLimit(kJob, kLimits).at, absl::InfiniteFuture());

  table_.CountOn(kJob, At(100), {}, false);
  EXPECT_THAT(Of(At(100)), IsEmpty()) << "another attempt begins with nothing";
}

TEST_F(SetbacksTest, ItsMemoryIsBounded) {
  table_.CountOn(kJob, At(0), {}, false);
  for (int i = 0; i < 5'000; ++i) {
    const absl::Time at = At(i);
    const std::string name = fmt::format("gpu-{}", i);
    table_.Note(Refusal(fmt::format("unknown-{}", i), at), at);
    ClaimSight sight = Claim(name, BringUp::kLaunch, at);
    sight.zone = fmt::format("zone-{}", i);
    table_.MadeFor(name, {kJob});
    table_.See(sight, at);
    table_.Gone(name, at);
  }
  EXPECT_LE(table_.size(), 2 * Setbacks::kRemembered + 1);
  const std::vector<Setback> list = Of(At(5'000));
  EXPECT_EQ(list.size(), Setbacks::kKinds);
  EXPECT_EQ(list.front().claim.zone, "zone-4999") << "the newest stay";
}

}  // namespace
}  // namespace muster::coscheduling
