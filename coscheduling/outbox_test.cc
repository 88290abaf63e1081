#include "coscheduling/outbox.h"

#include <gtest/gtest.h>

namespace muster::coscheduling {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000);
const absl::Status kFailure = absl::UnavailableError("no");
constexpr GangId kGang = GangId(1);

class OutboxTest : public ::testing::Test {
 protected:
  OutboxTest() { agenda_.AdvanceTo(kNow); }

  // The id of the action that was started, or 0.
  uint64_t Ask(const std::string& target, Outbox::OnFinish on_finish = nullptr) {
    if (!outbox_.Act(target, LiftGate{}, std::move(on_finish))) return 0;
    return outbox_.Take().at(0).id;
  }

  Agenda agenda_;
  Outbox outbox_{&agenda_};
};

TEST_F(OutboxTest, ATargetIsAskedOnceAtATime) {
  const uint64_t id = Ask("bind/a");
  EXPECT_NE(id, 0u);
  EXPECT_TRUE(outbox_.IsUnderWay("bind/a"));
  EXPECT_EQ(Ask("bind/a"), 0u);
  EXPECT_NE(Ask("bind/b"), 0u);
  EXPECT_EQ(outbox_.in_flight(), 2u);
  outbox_.Finish(id, absl::OkStatus());
  EXPECT_NE(Ask("bind/a"), 0u);
}

TEST_F(OutboxTest, AFailureIsFollowedByAPauseThatDoublesUpToTenSeconds) {
  absl::Duration pause = absl::Milliseconds(100);
  for (int i = 0; i < 12; ++i) {
    outbox_.Finish(Ask("x"), kFailure);
    agenda_.BeginStep();
    outbox_.EndStep();
    EXPECT_EQ(agenda_.NextWake(), agenda_.now() + pause);
    agenda_.AdvanceTo(agenda_.now() + pause - absl::Milliseconds(1));
    EXPECT_EQ(Ask("x"), 0u);
    agenda_.AdvanceTo(agenda_.now() + absl::Milliseconds(1));
    pause = std::min(pause * 2, absl::Seconds(10));
  }
  EXPECT_EQ(outbox_.Failures("x"), 12);
  outbox_.Finish(Ask("x"), absl::OkStatus());
  EXPECT_EQ(outbox_.Failures("x"), 0);
}

TEST_F(OutboxTest, AnEvictionWhoseEffectIsSeenLateIsAskedForEverLessOften) {
  int asked = 0;
  for (int i = 0; i < 1000; ++i) {
    if (outbox_.Act("evict/a", EvictPod{})) {
      ++asked;
      outbox_.Finish(outbox_.Take().at(0).id, absl::OkStatus());
    }
    agenda_.AdvanceTo(agenda_.now() + absl::Milliseconds(10));
  }
  EXPECT_EQ(asked, 7) << "after 0, 0.1, 0.3, 0.7, 1.5, 3.1 and 6.3 of 10 s";
  EXPECT_EQ(outbox_.Failures("evict/a"), 0);
}

TEST_F(OutboxTest, TheOutcomeIsHandedOnAndAnUnknownIdIsIgnored) {
  absl::Status seen;
  const uint64_t id = Ask("x", [&](const absl::Status& status, absl::Time) { seen = status; });
  outbox_.Finish(id + 7, absl::OkStatus());
  outbox_.Finish(id, kFailure);
  EXPECT_EQ(seen, kFailure);
  outbox_.Finish(id, absl::OkStatus());
  EXPECT_EQ(seen, kFailure);
}

TEST_F(OutboxTest, AGangIsLookedAtAgainWhenItsActionHasEndedOrItsPauseHas) {
  EXPECT_TRUE(outbox_.Act(kGang, "x", LiftGate{}));
  EXPECT_FALSE(outbox_.MayAct(kGang, "x"));
  EXPECT_TRUE(agenda_.Take().empty());
  outbox_.Finish(outbox_.Take().at(0).id, kFailure);
  EXPECT_EQ(agenda_.Take(), absl::flat_hash_set<GangId>{kGang});
  EXPECT_FALSE(outbox_.MayAct(kGang, "x"));
  agenda_.AdvanceTo(kNow + absl::Milliseconds(100));
  EXPECT_EQ(agenda_.Take(), absl::flat_hash_set<GangId>{kGang});
  EXPECT_TRUE(outbox_.MayAct(kGang, "x"));
}

// Whoever asked for that action: its job is being patched, say.
TEST_F(OutboxTest, AGangIsLookedAtAgainWhenWhatIsInItsWayHasEnded) {
  const uint64_t id = Ask("restart/job");
  EXPECT_FALSE(outbox_.Act(kGang, "restart/job", LiftGate{}));
  EXPECT_TRUE(agenda_.Take().empty());
  outbox_.Finish(id, absl::OkStatus());
  EXPECT_EQ(agenda_.Take(), absl::flat_hash_set<GangId>{kGang});
}

TEST_F(OutboxTest, OldPausesAreForgotten) {
  outbox_.Finish(Ask("x"), kFailure);
  agenda_.AdvanceTo(kNow + absl::Seconds(30));
  outbox_.EndStep();
  EXPECT_EQ(outbox_.Failures("x"), 1);
  agenda_.AdvanceTo(kNow + absl::Minutes(2));
  outbox_.EndStep();
  EXPECT_EQ(outbox_.Failures("x"), 0);
}

}  // namespace
}  // namespace muster::coscheduling
