// Members meet over real sockets, each in a thread of this process.
#include "worker/rendezvous/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker/communicator/communicator.h"
#include "worker/rendezvous/messages.h"
#include "worker/rendezvous/store.h"

namespace muster::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);
constexpr HeartbeatOptions kFast = {.interval = absl::Milliseconds(50),
                                    .silence_limit = absl::Seconds(1)};

// One rank and what it hears.
class TestMember {
 public:
  TestMember(int rank, int world_size, uint16_t port, const std::string& host = "127.0.0.1",
             const JobSecret& secret = {})
      : rank_(rank), world_size_(world_size) {
    auto started = Rendezvous::Start({.store = {host, port},
                                      .serve = rank == 0,
                                      .world_size = world_size,
                                      .heartbeat = kFast,
                                      .secret = secret,
                                      .position = [rank] { return absl::StrCat("step ", rank); }});
    EXPECT_TRUE(started.ok()) << started.status();
    rendezvous_ = *std::move(started);
  }

  uint16_t port() const { return rendezvous_->served_port(); }
  Rendezvous& rendezvous() { return *rendezvous_; }

  std::future<absl::StatusOr<Round>> Join(absl::Duration timeout = kLong) {
    // Each round's own: the end of the one before may be told once this one has begun.
    loss_ = std::make_shared<std::promise<absl::Status>>();
    heard_ = loss_->get_future();
    return std::async(std::launch::async, [this, timeout, loss = loss_] {
      const Member member = {.rank = rank_,
                             .world_size = world_size_,
                             .host = absl::StrCat("pod-", rank_),
                             .pid = 1,
                             .endpoint = {"", static_cast<uint16_t>(9000 + rank_)},
                             .gpu_uuids = {},
                             .versions = {},
                             .blob = std::string("\0\xff", 2) + static_cast<char>('0' + rank_)};
      return rendezvous_->Join(member, timeout,
                               [loss](absl::Status status) { loss->set_value(std::move(status)); });
    });
  }

  // What it was told of a lost rank; OK if it wasn't, within `patience`.
  absl::Status Loss(absl::Duration patience = absl::Seconds(5)) {
    if (heard_.wait_for(absl::ToChronoMilliseconds(patience)) != std::future_status::ready) {
      return absl::OkStatus();
    }
    return heard_.get();
  }

 private:
  const int rank_;
  const int world_size_;
  std::shared_ptr<std::promise<absl::Status>> loss_;
  std::future<absl::Status> heard_;
  std::unique_ptr<Rendezvous> rendezvous_;
};

std::vector<std::unique_ptr<TestMember>> MakeMembers(int world_size) {
  std::vector<std::unique_ptr<TestMember>> members;
  uint16_t port = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    members.push_back(std::make_unique<TestMember>(rank, world_size, port));
    if (rank == 0) port = members[0]->port();
  }
  return members;
}

std::vector<absl::StatusOr<Round>> JoinAll(std::vector<std::unique_ptr<TestMember>>& members) {
  std::vector<std::future<absl::StatusOr<Round>>> joins;
  for (auto& member : members) joins.push_back(member->Join());
  std::vector<absl::StatusOr<Round>> rounds;
  for (auto& join : joins) rounds.push_back(join.get());
  return rounds;
}

TEST(Rendezvous, EveryoneLearnsTheSameRound) {
  auto members = MakeMembers(4);
  const auto rounds = JoinAll(members);
  for (const auto& round : rounds) {
    ASSERT_TRUE(round.ok()) << round.status();
    EXPECT_EQ(round->generation, 1);
    EXPECT_EQ(round->token, rounds[0]->token);
    ASSERT_EQ(round->members.size(), 4);
    EXPECT_EQ(round->members[3].endpoint.host, "127.0.0.1");
    EXPECT_EQ(round->members[3].endpoint.port, 9003);
    EXPECT_EQ(round->members[0].blob, std::string("\0\xff"
                                                  "0",
                                                  3));
  }
}

TEST(Rendezvous, MissingRanksAreNamedAtTheDeadline) {
  TestMember member(0, 4, 0);
  const auto round = member.Join(absl::Milliseconds(300)).get();
  EXPECT_TRUE(absl::IsDeadlineExceeded(round.status()));
  EXPECT_THAT(round.status().message(),
              HasSubstr("1 of 4 ranks came in time; missing: ranks 1 to 3"));
  EXPECT_THAT(RanksAtFault(round.status()), ElementsAre(1, 2, 3));
}

TEST(Rendezvous, MissingRanksAreNamedThoughTheStoreGoesFirst) {
  auto store = std::make_unique<TestMember>(0, 4, 0);
  TestMember member(1, 4, store->port());
  auto first = store->Join(absl::Seconds(2));
  auto second = member.Join(absl::Seconds(5));
  EXPECT_TRUE(absl::IsDeadlineExceeded(first.get().status()));
  store.reset();
  const auto round = second.get();
  EXPECT_TRUE(absl::IsDeadlineExceeded(round.status()));
  EXPECT_THAT(round.status().message(),
              AllOf(HasSubstr("2 of 4 ranks came in time; missing: ranks 2 and 3"),
                    HasSubstr("; then the store of rank 0 was lost: ")));
  EXPECT_THAT(RanksAtFault(round.status()), ElementsAre(2, 3));
}

TEST(Rendezvous, WhoGivesUpAMomentBeforeIsNotMissing) {
  TestMember store(0, 4, 0);
  auto impatient = std::make_unique<TestMember>(1, 4, store.port());
  auto first = impatient->Join(absl::Milliseconds(1'850));
  auto second = store.Join(absl::Seconds(2));
  EXPECT_TRUE(absl::IsDeadlineExceeded(first.get().status()));
  impatient.reset();
  const auto round = second.get();
  EXPECT_THAT(round.status().message(),
              HasSubstr("2 of 4 ranks came in time; missing: ranks 2 and 3"));
  EXPECT_THAT(RanksAtFault(round.status()), ElementsAre(2, 3));
}

TEST(Rendezvous, WhoGoesBeforeIs) {
  TestMember store(0, 3, 0);
  auto lost = std::make_unique<TestMember>(1, 3, store.port());
  auto first = lost->Join(absl::Milliseconds(500));
  auto second = store.Join(absl::Seconds(2));
  EXPECT_TRUE(absl::IsDeadlineExceeded(first.get().status()));
  lost.reset();
  EXPECT_THAT(second.get().status().message(), HasSubstr("missing: ranks 1 and 2"));
}

TEST(Rendezvous, ANameThatIsNotKnownIsTriedUntilTheDeadline) {
  TestMember member(1, 2, 29500, "no-such-pod.invalid");
  const auto round = member.Join(absl::Milliseconds(300)).get();
  EXPECT_TRUE(absl::IsDeadlineExceeded(round.status()));
  EXPECT_THAT(round.status().message(),
              HasSubstr("the rendezvous store of rank 0 at no-such-pod.invalid:29500 was not "
                        "reached within 300ms: the name no-such-pod.invalid is not known"));
  EXPECT_THAT(RanksAtFault(round.status()), ElementsAre(0));
}

TEST(Rendezvous, AStoreThatComesLateIsFound) {
  uint16_t port = 15'000 + getpid() % 10'000;
  while (!Listen(port).ok()) ++port;
  TestMember early(1, 2, port);
  auto early_round = early.Join();
  absl::SleepFor(absl::Milliseconds(200));
  TestMember late(0, 2, port);
  EXPECT_TRUE(late.Join().get().ok());
  EXPECT_TRUE(early_round.get().ok());
}

TEST(Rendezvous, ALostMemberIsReplacedInANewGeneration) {
  auto members = MakeMembers(3);
  const auto first = JoinAll(members);
  absl::SleepFor(10 * kFast.interval);
  members[2].reset();
  for (const int rank : {0, 1}) {
    const absl::Status loss = members[rank]->Loss();
    EXPECT_THAT(loss.message(), HasSubstr("rank 2 (pod-2, process 1) is lost: its connection ended;"
                                          " it was in step 2"));
    EXPECT_THAT(RanksAtFault(loss), ElementsAre(2));
  }
  members[2] = std::make_unique<TestMember>(2, 3, members[0]->port());
  for (const auto& round : JoinAll(members)) {
    ASSERT_TRUE(round.ok()) << round.status();
    EXPECT_EQ(round->generation, 2);
    EXPECT_NE(round->token, first[0]->token);
  }
}

TEST(Rendezvous, TheRankWithTheStoreIsReplacedToo) {
  auto members = MakeMembers(3);
  JoinAll(members);
  const uint16_t port = members[0]->port();
  members[0].reset();
  for (const int rank : {1, 2}) {
    const absl::Status loss = members[rank]->Loss();
    // From the dying store, or by the end of the connection to it.
    EXPECT_THAT(loss.message(), HasSubstr("rank 0 ("));
    EXPECT_THAT(RanksAtFault(loss), ElementsAre(0));
  }
  members[0] = std::make_unique<TestMember>(0, 3, port);
  for (const auto& round : JoinAll(members)) {
    ASSERT_TRUE(round.ok()) << round.status();
    EXPECT_EQ(round->generation, 2) << "the new store knows no earlier round, its members do";
  }
}

TEST(Rendezvous, WaitingEndsWhenAStopIsRequested) {
  std::atomic<bool> stop = false;
  auto rendezvous = Rendezvous::Start({.store = {"127.0.0.1", 0},
                                       .serve = true,
                                       .world_size = 2,
                                       .heartbeat = kFast,
                                       .position = nullptr,
                                       .stop_requested = [&] { return stop.load(); }});
  ASSERT_TRUE(rendezvous.ok()) << rendezvous.status();
  std::thread stopper([&] { stop = true; });
  Member member;
  member.world_size = 2;
  const auto round = (*rendezvous)->Join(member, kLong, [](absl::Status) {});
  stopper.join();
  EXPECT_TRUE(absl::IsCancelled(round.status())) << round.status();
}

TEST(Rendezvous, AMemberThatLeavesDisturbsNobody) {
  auto members = MakeMembers(3);
  JoinAll(members);
  members[1]->rendezvous().Leave(kLong);
  members[1].reset();
  EXPECT_TRUE(members[2]->Loss(absl::Milliseconds(200)).ok());
  std::thread last([&] { members[2]->rendezvous().Leave(kLong); });
  // Waits for the last one, since the store goes with it.
  members[0]->rendezvous().Leave(kLong);
  last.join();
  EXPECT_TRUE(members[2]->Loss(absl::ZeroDuration()).ok());
}

TEST(Rendezvous, AQuietRoundLastsLongerThanTheSilenceLimit) {
  auto members = MakeMembers(2);
  JoinAll(members);
  EXPECT_TRUE(members[0]->Loss(2 * kFast.silence_limit).ok());
  EXPECT_TRUE(members[1]->Loss(absl::ZeroDuration()).ok());
}

// A connection to the store that accepts, and then is as silent as a cut network.
TEST(Rendezvous, AStoreThatFallsSilentIsALoss) {
  const Socket listener = *Listen(0);
  TestMember member(1, 2, LocalEnd(listener).port);
  const auto round = member.Join(absl::Seconds(2)).get();
  EXPECT_THAT(round.status().message(), HasSubstr("was not reached within 2s: not heard from"));
}

TEST(Rendezvous, AnotherWorldSizeFailsAtOnce) {
  TestMember zero(0, 2, 0);
  auto waiting = zero.Join();
  TestMember other(1, 4, zero.port());
  const auto refused = other.Join().get();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  EXPECT_THAT(refused.status().message(), HasSubstr("was started for 4 ranks, rank 0 for 2"));
  TestMember one(1, 2, zero.port());
  EXPECT_TRUE(one.Join().get().ok());
  EXPECT_TRUE(waiting.get().ok());
}

constexpr char kHere[] = "127.0.0.1";

JobSecret Secret(const std::string& text = "the secret of this job") {
  return *JobSecret::Create(text);
}

TEST(RendezvousWithASecret, WhoKnowsItMeetsAndMeetsAgain) {
  TestMember zero(0, 2, 0, kHere, Secret());
  auto one = std::make_unique<TestMember>(1, 2, zero.port(), kHere, Secret());
  for (int64_t generation = 1; generation <= 2; ++generation) {
    auto waiting = zero.Join();
    EXPECT_EQ(one->Join().get()->generation, generation);
    EXPECT_EQ(waiting.get()->generation, generation);
  }
  one.reset();
  EXPECT_THAT(zero.Loss().message(), HasSubstr("rank 1 (pod-1"));
  one = std::make_unique<TestMember>(1, 2, zero.port(), kHere, Secret());
  auto waiting = zero.Join();
  EXPECT_TRUE(one->Join().get().ok());
  EXPECT_EQ(waiting.get()->generation, 3);
}

TEST(RendezvousWithASecret, AStrangerTakesNoRankAndEndsNoRound) {
  TestMember zero(0, 2, 0, kHere, Secret());
  auto waiting = zero.Join();
  TestMember without(1, 2, zero.port());
  const auto refused = without.Join().get();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  EXPECT_THAT(refused.status().message(), HasSubstr("rank 1 has no secret"));
  EXPECT_THAT(refused.status().message(), HasSubstr("MUSTER_JOB_SECRET"));
  // Who asks to be proved to learns nothing that helps.
  TestMember wrong(1, 2, zero.port(), kHere, Secret("what a stranger has guessed"));
  EXPECT_THAT(wrong.Join().get().status().message(), HasSubstr("doesn't know the job's secret"));
  TestMember one(1, 2, zero.port(), kHere, Secret());
  EXPECT_TRUE(one.Join().get().ok());
  EXPECT_TRUE(waiting.get().ok());
  TestMember late(1, 2, zero.port());
  EXPECT_FALSE(late.Join().get().ok());
  EXPECT_TRUE(zero.Loss(4 * kFast.interval).ok());
  EXPECT_TRUE(one.Loss(absl::ZeroDuration()).ok());
}

// One frame of the rendezvous' protocol.
void SendFrame(const Socket& socket, const MemberMessage& message) {
  const std::string text = Encode(message);
  const std::string frame = std::string("\0\0", 2) + static_cast<char>(text.size() >> 8) +
                            static_cast<char>(text.size() & 0xff) + text;
  ASSERT_TRUE(SendAll(socket, std::as_bytes(std::span(frame)), DeadlineAfter(kLong)).ok());
}

TEST(RendezvousWithASecret, AStrangersProofOfNothingIsRefused) {
  TestMember zero(0, 2, 0, kHere, Secret());
  auto waiting = zero.Join();
  for (const bool asks : {false, true}) {
    FrameStream stranger(*Connect(*Resolve({kHere, zero.port()}), DeadlineAfter(kLong)));
    MemberMessage message;
    message.type = MemberMessage::Type::kJoin;
    message.member.rank = 1;
    message.member.world_size = 2;
    message.nonce = NewNonce();
    if (asks) SendFrame(stranger.socket(), message);
    // Leaves on behalf of nobody, then proves nothing.
    message.type = MemberMessage::Type::kLeave;
    SendFrame(stranger.socket(), message);
    message.type = MemberMessage::Type::kProve;
    message.proof =
        Secret("what a stranger has guessed").Proof(JobSecret::Side::kMember, message.nonce, "");
    SendFrame(stranger.socket(), message);
    std::string last;
    absl::StatusOr<std::vector<std::string>> frames = stranger.Receive();
    for (; frames.ok(); frames = stranger.Receive()) {
      for (std::string& frame : *frames) last = std::move(frame);
      WaitFor(stranger.socket(), POLLIN, DeadlineAfter(kLong));
    }
    const absl::StatusOr<StoreMessage> said = DecodeStoreMessage(last);
    ASSERT_TRUE(said.ok()) << last;
    EXPECT_EQ(said->type, StoreMessage::Type::kRefused);
  }
  TestMember one(1, 2, zero.port(), kHere, Secret());
  EXPECT_TRUE(one.Join().get().ok());
  EXPECT_TRUE(waiting.get().ok());
}

TEST(RendezvousWithASecret, AStoreThatHasNoneGetsNoMembers) {
  TestMember zero(0, 2, 0);
  auto waiting = zero.Join();
  TestMember one(1, 2, zero.port(), kHere, Secret());
  const auto round = one.Join().get();
  EXPECT_TRUE(absl::IsFailedPrecondition(round.status())) << round.status();
  EXPECT_THAT(round.status().message(), HasSubstr("rank 1 has a secret, and rank 0 has none"));
  TestMember honest(1, 2, zero.port());
  EXPECT_TRUE(honest.Join().get().ok());
  EXPECT_TRUE(waiting.get().ok());
}

TEST(RendezvousWithASecret, WhoListensInTheStoresPlaceAndProvesNothingGetsNoMembers) {
  const Socket listener = *Listen(0);
  TestMember one(1, 2, LocalEnd(listener).port, kHere, Secret());
  auto joining = one.Join();
  ASSERT_TRUE(WaitFor(listener, POLLIN, DeadlineAfter(kLong)));
  FrameStream impostor(*std::move(*Accept(listener)));
  StoreMessage message;
  message.type = StoreMessage::Type::kRound;
  ASSERT_TRUE(impostor.Send(Encode(message)).ok());
  const auto round = joining.get();
  EXPECT_TRUE(absl::IsFailedPrecondition(round.status())) << round.status();
  EXPECT_THAT(round.status().message(), HasSubstr("doesn't know the job's secret"));
}

TEST(RendezvousWithASecret, IdleConnectionsKeepNobodyOut) {
  TestMember zero(0, 2, 0, kHere, Secret());
  auto waiting = zero.Join();
  std::vector<Socket> idle;
  // More than the store keeps. Each is a descriptor here and one there.
  for (int i = 0; i < 300; ++i) {
    idle.push_back(*Connect(*Resolve({kHere, zero.port()}), DeadlineAfter(kLong)));
  }
  TestMember one(1, 2, zero.port(), kHere, Secret());
  EXPECT_TRUE(one.Join().get().ok());
  EXPECT_TRUE(waiting.get().ok());
  std::array<std::byte, 16> none;
  ASSERT_TRUE(WaitFor(idle[0], POLLIN, DeadlineAfter(kLong))) << "hung up on, being the oldest";
  EXPECT_FALSE(ReceiveSome(idle[0], none).ok());
}

TEST(RendezvousStore, SurvivesGarbageAndHugeFrames) {
  auto members = MakeMembers(2);
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\0\0\0\4null", 8),
        std::string("\0\0\0\2[]", 6), std::string("\xff\xff\xff\xff", 4)}) {
    const auto stranger =
        Connect(*Resolve({"127.0.0.1", members[0]->port()}), DeadlineAfter(kLong));
    ASSERT_TRUE(stranger.ok());
    ASSERT_TRUE(SendAll(*stranger, std::as_bytes(std::span(garbage)), DeadlineAfter(kLong)).ok());
    std::array<std::byte, 16> none;
    ASSERT_TRUE(WaitFor(*stranger, POLLIN, DeadlineAfter(kLong))) << "hung up on";
    EXPECT_FALSE(ReceiveSome(*stranger, none).ok());
  }
  for (const auto& round : JoinAll(members)) EXPECT_TRUE(round.ok());
}

TEST(RendezvousStore, ATakenPortIsSaid) {
  const Socket taken = *Listen(0);
  const auto store = RendezvousStore::Start(LocalEnd(taken).port, 1, {});
  EXPECT_TRUE(absl::IsAlreadyExists(store.status())) << store.status();
}

}  // namespace
}  // namespace muster::worker
