#include "worker/rendezvous/round_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "worker/communicator/communicator.h"

namespace muster::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Type = StoreMessage::Type;

// A book for three ranks with beats every second and 5 s of patience, in a time that tests advance.
// Rank r speaks on connection 10 + r.
class RoundBookTest : public ::testing::Test {
 protected:
  static MemberMessage JoinOf(int rank, uint64_t incarnation, int64_t generation = 0) {
    MemberMessage message;
    message.type = MemberMessage::Type::kJoin;
    message.member.rank = rank;
    message.member.world_size = 3;
    message.member.host = absl::StrCat("pod-", rank);
    message.member.pid = static_cast<int64_t>(incarnation);
    message.generation = generation;
    message.incarnation = incarnation;
    return message;
  }

  RoundBook::Answers Join(int rank) { return book_.OnMessage(10 + rank, JoinOf(rank, rank), now_); }

  RoundBook::Answers Beat(int rank, const std::string& position = "") {
    MemberMessage message;
    message.position = position;
    return book_.OnMessage(10 + rank, message, now_);
  }

  RoundBook::Answers JoinAll() {
    Join(0);
    Join(1);
    return Join(2);
  }

  void Advance(absl::Duration time) { now_ += absl::ToChronoNanoseconds(time); }

  static std::vector<RoundBook::Connection> ToldOf(Type type, const RoundBook::Answers& answers) {
    std::vector<RoundBook::Connection> told;
    for (const RoundBook::Answer& answer : answers) {
      if (answer.message.type == type) told.push_back(answer.connection);
    }
    return told;
  }

  Deadline now_ = Deadline(std::chrono::hours(1));
  RoundBook book_{3, HeartbeatOptions{}, 1};
};

TEST_F(RoundBookTest, ARoundBeginsWhenAllHaveJoined) {
  EXPECT_THAT(Join(1), IsEmpty());
  EXPECT_THAT(Join(0), IsEmpty());
  const auto answers = Join(2);
  ASSERT_THAT(ToldOf(Type::kRound, answers), ElementsAre(10, 11, 12));
  const Round& round = answers[0].message.round;
  EXPECT_EQ(round.generation, 1);
  ASSERT_EQ(round.members.size(), 3);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(round.members[rank].rank, rank);
}

TEST_F(RoundBookTest, ThoseWhoWaitAreToldWhoIsMissing) {
  Join(1);
  const auto answers = book_.OnTick(now_);
  ASSERT_THAT(ToldOf(Type::kWaiting, answers), ElementsAre(11));
  EXPECT_THAT(answers[0].message.ranks, ElementsAre(0, 2));
}

TEST_F(RoundBookTest, ABrokenConnectionEndsTheRoundForAllOthers) {
  JoinAll();
  Beat(1, "all-reduce 42 (8 bytes)");
  const auto answers = book_.OnClosed(11, now_);
  ASSERT_THAT(ToldOf(Type::kLost, answers), ElementsAre(10, 12));
  EXPECT_EQ(answers[0].message.status.message(),
            "rank 1 (pod-1, process 1) is lost: its connection ended; it was in all-reduce 42 (8 "
            "bytes)");
  EXPECT_THAT(RanksAtFault(answers[0].message.status), ElementsAre(1));
}

TEST_F(RoundBookTest, SilenceEndsTheRoundToo) {
  JoinAll();
  Advance(absl::Seconds(3));
  Beat(0);
  Beat(2);
  EXPECT_THAT(ToldOf(Type::kLost, book_.OnTick(now_)), IsEmpty());
  Advance(absl::Milliseconds(2200));
  const auto answers = book_.OnTick(now_);
  ASSERT_THAT(ToldOf(Type::kLost, answers), ElementsAre(10, 12));
  EXPECT_EQ(answers[0].connection, 11);
  EXPECT_TRUE(answers[0].hang_up);
  EXPECT_EQ(answers[1].message.status.message(),
            "rank 1 (pod-1, process 1) is lost: not heard from for 5.2s");
}

TEST_F(RoundBookTest, AReplacementMeetsTheSurvivorsInANewGeneration) {
  JoinAll();
  book_.OnClosed(11, now_);
  // Nobody joins the old round.
  EXPECT_THAT(book_.OnMessage(21, JoinOf(1, 99), now_), IsEmpty());
  EXPECT_THAT(book_.OnMessage(10, JoinOf(0, 0, 1), now_), IsEmpty());
  const auto answers = book_.OnMessage(12, JoinOf(2, 2, 1), now_);
  ASSERT_THAT(ToldOf(Type::kRound, answers), ElementsAre(10, 21, 12));
  EXPECT_EQ(answers[0].message.round.generation, 2);
  EXPECT_EQ(answers[0].message.round.members[1].pid, 99);
}

TEST_F(RoundBookTest, AStoreThatStartsOverGoesOnFromTheSurvivorsGeneration) {
  book_.OnMessage(10, JoinOf(0, 7), now_);
  book_.OnMessage(11, JoinOf(1, 1, 41), now_);
  const auto answers = book_.OnMessage(12, JoinOf(2, 2, 40), now_);
  EXPECT_EQ(answers[0].message.round.generation, 42);
}

TEST_F(RoundBookTest, OneThatWantsToMeetAgainEndsTheRound) {
  JoinAll();
  const auto answers = Join(2);
  ASSERT_THAT(ToldOf(Type::kLost, answers), ElementsAre(10, 11));
  EXPECT_THAT(answers[0].message.status.message(), HasSubstr("rank 2 wants to meet again"));
}

TEST_F(RoundBookTest, OneThatKnowsWhyItMeetsAgainIsNotBlamedItself) {
  JoinAll();
  MemberMessage join = JoinOf(2, 2, 1);
  join.cause = WithRanksAtFault(absl::UnavailableError("rank 1 is gone"), {1});
  const auto answers = book_.OnMessage(12, *DecodeMemberMessage(Encode(join)), now_);
  ASSERT_THAT(ToldOf(Type::kLost, answers), ElementsAre(10, 11));
  EXPECT_EQ(answers[0].message.status.message(), "rank 1 is gone");
  EXPECT_THAT(RanksAtFault(answers[0].message.status), ElementsAre(1));
}

TEST_F(RoundBookTest, TwoProcessesWithOneRankAreFoundOut) {
  JoinAll();
  EXPECT_THAT(book_.OnMessage(31, JoinOf(1, 99), now_), IsEmpty());
  EXPECT_THAT(Beat(1), IsEmpty()) << "it may have been on its way";
  Advance(absl::Seconds(1));
  const auto answers = Beat(1);
  ASSERT_THAT(ToldOf(Type::kRefused, answers), ElementsAre(31));
  EXPECT_TRUE(answers[0].hang_up);
  EXPECT_TRUE(absl::IsFailedPrecondition(answers[0].message.status));
  EXPECT_EQ(answers[0].message.status.message(),
            "two processes have one rank: rank 1 (pod-1, process 1) and rank 1 (pod-1, process "
            "99); check RANK of the pods");
}

TEST_F(RoundBookTest, AReplacementGetsTheRankOfOneWhoseMachineVanished) {
  JoinAll();
  book_.OnMessage(31, JoinOf(1, 99), now_);
  Advance(absl::Seconds(6));
  Beat(0);
  Beat(2);
  EXPECT_THAT(ToldOf(Type::kLost, book_.OnTick(now_)), ElementsAre(10, 12));
  Join(0);
  EXPECT_THAT(ToldOf(Type::kRound, Join(2)), ElementsAre(10, 31, 12));
}

TEST_F(RoundBookTest, AMemberThatReconnectsKeepsItsRank) {
  Join(0);
  Join(1);
  EXPECT_THAT(book_.OnMessage(31, JoinOf(1, 1), now_), IsEmpty());
  EXPECT_THAT(book_.OnClosed(11, now_), IsEmpty());
  EXPECT_THAT(ToldOf(Type::kRound, Join(2)), ElementsAre(10, 31, 12));
}

TEST_F(RoundBookTest, LeavingEndsNobodyElsesRound) {
  JoinAll();
  MemberMessage leave;
  leave.type = MemberMessage::Type::kLeave;
  EXPECT_THAT(ToldOf(Type::kLeft, book_.OnMessage(11, leave, now_)), ElementsAre(11));
  EXPECT_THAT(book_.OnClosed(11, now_), IsEmpty());
  EXPECT_FALSE(book_.empty());
  book_.OnMessage(10, leave, now_);
  book_.OnMessage(12, leave, now_);
  EXPECT_TRUE(book_.empty());
}

TEST_F(RoundBookTest, AnotherWorldSizeIsRefused) {
  MemberMessage join = JoinOf(1, 1);
  join.member.world_size = 8;
  const auto answers = book_.OnMessage(11, join, now_);
  ASSERT_THAT(ToldOf(Type::kRefused, answers), ElementsAre(11));
  EXPECT_EQ(answers[0].message.status.message(),
            "rank 1 (pod-1, process 1) was started for 8 ranks, rank 0 for 3: give all pods of the "
            "job the same replicas and processes per node");
}

TEST_F(RoundBookTest, ARankThatDoesNotExistIsRefused) {
  EXPECT_THAT(ToldOf(Type::kRefused, book_.OnMessage(10, JoinOf(3, 1), now_)), ElementsAre(10));
  EXPECT_THAT(ToldOf(Type::kRefused, book_.OnMessage(10, JoinOf(-1, 1), now_)), ElementsAre(10));
}

TEST_F(RoundBookTest, RanksThatShareAGpuAreRefusedTogether) {
  MemberMessage one = JoinOf(1, 1);
  MemberMessage two = JoinOf(2, 2);
  one.member.gpu_uuids = {"GPU-1", "GPU-2"};
  two.member.gpu_uuids = {"GPU-2"};
  Join(0);
  book_.OnMessage(11, one, now_);
  const auto answers = book_.OnMessage(12, two, now_);
  ASSERT_THAT(ToldOf(Type::kRefused, answers), ElementsAre(10, 11, 12));
  EXPECT_THAT(answers[0].message.status.message(), HasSubstr("duplicate GPU UUID GPU-2"));
  EXPECT_THAT(RanksAtFault(answers[0].message.status), ElementsAre(1, 2));
}

TEST_F(RoundBookTest, DifferentVersionsAreRefused) {
  for (int rank = 0; rank < 2; ++rank) {
    MemberMessage join = JoinOf(rank, rank);
    join.member.versions = {{"nccl", "2.28.9"}};
    book_.OnMessage(10 + rank, join, now_);
  }
  MemberMessage join = JoinOf(2, 2);
  join.member.versions = {{"nccl", "2.27.3"}};
  const auto answers = book_.OnMessage(12, join, now_);
  ASSERT_FALSE(answers.empty());
  EXPECT_THAT(answers[0].message.status.message(),
              HasSubstr("Mismatched nccl version: rank 0 (pod-0, process 0) has 2.28.9, rank 2 "
                        "(pod-2, process 2) has 2.27.3"));
}

}  // namespace
}  // namespace muster::worker
