#include "kube/client/lease.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kube/client/fake_transport.h"
#include "kube/client/lease_runner.h"
#include "kube/client/manual_timer.h"

namespace muster::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

LeaseOptions OptionsFor(const std::string& identity) {
  LeaseOptions options;
  options.name_space = "muster";
  options.name = "lock";
  options.identity = identity;
  // client-go's own.
  options.duration = absl::Seconds(15);
  options.renew_deadline = absl::Seconds(10);
  options.retry_period = absl::Seconds(2);
  return options;
}

// The one Lease of an API server, with its compare-and-swap.
class LeaseServer {
 public:
  Response Answer(const Request& request) {
    ++requests;
    if (down) return {503, "", std::nullopt};
    const std::string folder = "/apis/coordination.k8s.io/v1/namespaces/muster/leases";
    if (request.method == Method::kPost) {
      EXPECT_EQ(request.path, folder);
      if (!lease.is_null()) return {409, R"({"reason":"AlreadyExists"})", std::nullopt};
      lease = nlohmann::json::parse(request.body);
      return Stored(201);
    }
    EXPECT_EQ(request.path, folder + "/lock");
    if (lease.is_null()) return {404, "", std::nullopt};
    if (request.method == Method::kGet) return {200, lease.dump(), std::nullopt};
    EXPECT_EQ(request.method, Method::kPatch);
    EXPECT_EQ(request.content_type, kMergePatch);
    const auto patch = nlohmann::json::parse(request.body);
    if (patch["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]) {
      return {409, R"({"reason":"Conflict"})", std::nullopt};
    }
    lease.merge_patch(patch);
    return Stored(200);
  }

  std::string holder() const {
    return lease.is_null() ? "" : lease["spec"].value("holderIdentity", "");
  }
  // A write by somebody else.
  void Touch() { Stored(200); }

  nlohmann::json lease;
  bool down = false;
  int requests = 0;

 private:
  Response Stored(int status) {
    lease["metadata"]["resourceVersion"] = std::to_string(++version_);
    return {status, lease.dump(), std::nullopt};
  }
  int version_ = 0;
};

// One candidate, ticked by hand.
struct Candidate {
  explicit Candidate(const std::string& identity) : election(OptionsFor(identity), 1) {}

  void Run(LeaseServer& server, absl::Time now) {
    while (const auto request = election.Tick(now)) election.OnAnswer(now, server.Answer(*request));
  }

  LeaderElection election;
};

TEST(Lease, OptionsMustFitTogether) {
  EXPECT_TRUE(Validate(OptionsFor("a")).ok());
  LeaseOptions options = OptionsFor("");
  EXPECT_THAT(std::string(Validate(options).message()), HasSubstr("identity"));
  options = OptionsFor("a");
  options.renew_deadline = absl::Seconds(15);
  EXPECT_THAT(std::string(Validate(options).message()), HasSubstr("duration is 15s"));
  options.renew_deadline = absl::Seconds(2);
  EXPECT_THAT(std::string(Validate(options).message()), HasSubstr("retry period is 2s"));
}

TEST(Lease, TheFirstCandidateMakesTheLeaseAndKeepsIt) {
  LeaseServer server;
  Candidate a("a");
  a.Run(server, kStart);
  EXPECT_TRUE(a.election.IsLeader(kStart));
  EXPECT_EQ(a.election.term(), 1u);
  EXPECT_EQ(server.holder(), "a");
  EXPECT_EQ(server.lease["spec"]["leaseDurationSeconds"], 15);
  EXPECT_EQ(server.lease["spec"]["renewTime"], "2023-11-14T22:13:20.000000Z");
  server.lease["metadata"]["annotations"] = {{"kept", "yes"}};
  for (int i = 1; i <= 60; ++i) a.Run(server, kStart + absl::Seconds(i));
  EXPECT_TRUE(a.election.IsLeader(kStart + absl::Seconds(60)));
  EXPECT_EQ(server.lease["spec"]["renewTime"], "2023-11-14T22:14:20.000000Z");
  EXPECT_EQ(server.lease["spec"]["acquireTime"], "2023-11-14T22:13:20.000000Z");
  EXPECT_EQ(server.lease["spec"]["leaseTransitions"], 0);
  EXPECT_EQ(server.lease["metadata"]["annotations"]["kept"], "yes");
  // One look, one creation, one renewal each two seconds.
  EXPECT_EQ(server.requests, 32);
  EXPECT_EQ(a.election.term(), 1u);
}

TEST(Lease, AnotherTakesItOnlyAfterSeeingItUnchangedForItsDuration) {
  LeaseServer server;
  Candidate a("a");
  Candidate b("b");
  a.Run(server, kStart);
  absl::Time now = kStart + absl::Seconds(1);
  const absl::Time b_first_saw_it = now;
  while (!b.election.IsLeader(now)) {
    b.Run(server, now);
    now += absl::Milliseconds(100);
    ASSERT_LT(now, kStart + absl::Minutes(1));
  }
  EXPECT_GE(now - b_first_saw_it, absl::Seconds(15));
  EXPECT_LT(now - b_first_saw_it, absl::Seconds(20));
  EXPECT_EQ(server.holder(), "b");
  EXPECT_EQ(server.lease["spec"]["leaseTransitions"], 1);
  EXPECT_FALSE(a.election.IsLeader(now));
  a.Run(server, now);
  EXPECT_EQ(a.election.holder(), "b");
}

TEST(Lease, TheHoldersClockDoesNotMatter) {
  LeaseServer server;
  Candidate a("a");
  Candidate b("b");
  // b's clock is an hour ahead: renewTime looks long past to it.
  for (int i = 0; i < 120; ++i) {
    a.Run(server, kStart + absl::Seconds(i));
    b.Run(server, kStart + absl::Hours(1) + absl::Seconds(i));
    EXPECT_FALSE(b.election.IsLeader(kStart + absl::Hours(1) + absl::Seconds(i)));
  }
  EXPECT_EQ(server.holder(), "a");
}

TEST(Lease, ALeaderThatCannotRenewStopsAtTheDeadlineByItself) {
  LeaseServer server;
  Candidate a("a");
  a.Run(server, kStart);
  server.down = true;
  absl::Time now = kStart;
  for (; now < kStart + absl::Milliseconds(9900); now += absl::Milliseconds(100)) {
    a.Run(server, now);
    EXPECT_TRUE(a.election.IsLeader(now));
  }
  EXPECT_FALSE(a.election.IsLeader(kStart + absl::Seconds(10)));
  EXPECT_EQ(a.election.last_error().code(), absl::StatusCode::kUnavailable);
  // Nobody took it: it goes on in a new term.
  server.down = false;
  for (int i = 0; i < 60; ++i) a.Run(server, now += absl::Milliseconds(100));
  EXPECT_TRUE(a.election.IsLeader(now));
  EXPECT_EQ(a.election.term(), 2u);
}

TEST(Lease, TheTimeOfARenewalCountsFromWhenItWasSent) {
  LeaseServer server;
  Candidate a("a");
  a.Run(server, kStart);
  const absl::Time sent = kStart + absl::Seconds(2);
  const auto renewal = a.election.Tick(sent);
  ASSERT_TRUE(renewal);
  EXPECT_EQ(renewal->timeout, absl::Seconds(5));
  a.election.OnAnswer(sent + absl::Seconds(4), server.Answer(*renewal));
  EXPECT_TRUE(a.election.IsLeader(sent + absl::Milliseconds(9999)));
  EXPECT_FALSE(a.election.IsLeader(sent + absl::Seconds(10)));
}

TEST(Lease, ALeaderThatFindsAnotherHolderStopsAtOnce) {
  LeaseServer server;
  Candidate a("a");
  a.Run(server, kStart);
  server.lease["spec"]["holderIdentity"] = "thief";
  server.Touch();
  a.Run(server, kStart + absl::Seconds(2));
  EXPECT_FALSE(a.election.IsLeader(kStart + absl::Seconds(2)));
  EXPECT_EQ(a.election.holder(), "thief");
}

TEST(Lease, AForeignWriteThatKeepsTheHolderCostsALookOnly) {
  LeaseServer server;
  Candidate a("a");
  a.Run(server, kStart);
  server.Touch();
  const int before = server.requests;
  a.Run(server, kStart + absl::Seconds(2));
  EXPECT_EQ(server.requests, before + 3);  // 409, a look, the renewal
  EXPECT_EQ(a.election.leading_until(), kStart + absl::Seconds(12));
  EXPECT_EQ(a.election.term(), 1u);
}

TEST(Lease, ADeletedLeaseIsMadeAnew) {
  LeaseServer server;
  Candidate a("a");
  a.Run(server, kStart);
  server.lease = nullptr;
  a.Run(server, kStart + absl::Seconds(2));
  EXPECT_EQ(server.holder(), "a");
  EXPECT_TRUE(a.election.IsLeader(kStart + absl::Seconds(2)));
}

TEST(Lease, OfTwoThatRaceOneWins) {
  LeaseServer server;
  Candidate a("a");
  Candidate b("b");
  // Both find no lease before either has made one.
  a.election.OnAnswer(kStart, server.Answer(*a.election.Tick(kStart)));
  b.election.OnAnswer(kStart, server.Answer(*b.election.Tick(kStart)));
  a.Run(server, kStart);
  b.Run(server, kStart);
  EXPECT_TRUE(a.election.IsLeader(kStart));
  EXPECT_FALSE(b.election.IsLeader(kStart));
}

TEST(Lease, AReleasedLeaseIsTakenAtTheNextLook) {
  LeaseServer server;
  Candidate a("a");
  Candidate b("b");
  a.Run(server, kStart);
  b.Run(server, kStart);
  a.election.Stop(kStart + absl::Seconds(1));
  EXPECT_FALSE(a.election.IsLeader(kStart + absl::Seconds(1)));
  EXPECT_FALSE(a.election.stopped());
  a.Run(server, kStart + absl::Seconds(1));
  EXPECT_TRUE(a.election.stopped());
  EXPECT_EQ(server.holder(), "");
  EXPECT_FALSE(a.election.Tick(kStart + absl::Hours(1)));
  b.Run(server, kStart + absl::Seconds(6));
  EXPECT_TRUE(b.election.IsLeader(kStart + absl::Seconds(6)));
}

TEST(Lease, WhatItsOwnFormerLifeHeldIsTakenAtOnce) {
  LeaseServer server;
  Candidate former("muster-7d9-x_1a");
  former.Run(server, kStart);
  LeaseOptions options = OptionsFor("muster-7d9-x_2b");
  options.former = "muster-7d9-x_";
  LeaderElection again(options, 1);
  Candidate other("muster-7d9-y_3c");
  other.Run(server, kStart + absl::Seconds(1));
  while (const auto request = again.Tick(kStart + absl::Seconds(1))) {
    again.OnAnswer(kStart + absl::Seconds(1), server.Answer(*request));
  }
  EXPECT_TRUE(again.IsLeader(kStart + absl::Seconds(1)));
  EXPECT_FALSE(other.election.IsLeader(kStart + absl::Seconds(1)));
  EXPECT_EQ(server.holder(), "muster-7d9-x_2b");
}

TEST(Lease, StoppingWaitsForAnAnswerUnderWay) {
  LeaseServer server;
  Candidate a("a");
  a.election.OnAnswer(kStart, server.Answer(*a.election.Tick(kStart)));
  const auto creation = a.election.Tick(kStart);
  ASSERT_TRUE(creation);
  a.election.Stop(kStart);
  EXPECT_FALSE(a.election.stopped());
  EXPECT_FALSE(a.election.Tick(kStart));
  a.election.OnAnswer(kStart, server.Answer(*creation));
  EXPECT_FALSE(a.election.IsLeader(kStart));
  a.Run(server, kStart);
  EXPECT_TRUE(a.election.stopped());
  EXPECT_EQ(server.holder(), "");
}

TEST(Lease, MalformedAnswersAreErrors) {
  for (const char* body : {"", "{}", R"({"metadata":{"resourceVersion":"1"},"spec":7})"}) {
    Candidate a("a");
    ASSERT_TRUE(a.election.Tick(kStart));
    a.election.OnAnswer(kStart, Response{200, body, std::nullopt});
    EXPECT_FALSE(a.election.last_error().ok());
    EXPECT_FALSE(a.election.Tick(kStart));
    EXPECT_GE(a.election.NextTick(), kStart + absl::Seconds(2));
  }
}

class LeaseRunnerTest : public ::testing::Test {
 protected:
  // Lets virtual time pass while the server answers everything at once.
  void Pass(absl::Duration time) {
    const absl::Time until = timer_.Now() + time;
    while (timer_.Now() < until) {
      Serve();
      timer_.Advance(absl::Milliseconds(100));
    }
    Serve();
  }
  void Serve() {
    while (served_ < transport_.sent.size()) {
      const auto sent = transport_.sent[served_++];
      sent->Answer(server_.Answer(sent->request));
    }
  }

  LeaseServer server_;
  FakeTransport transport_;
  size_t served_ = 0;
  ManualTimer timer_{kStart};
  std::vector<bool> heard_;
  std::unique_ptr<LeaseRunner> runner_ = std::make_unique<LeaseRunner>(
      transport_, timer_, OptionsFor("a"), [this](bool leading) { heard_.push_back(leading); });
};

TEST_F(LeaseRunnerTest, TellsGainAndLoss) {
  Pass(absl::Seconds(30));
  EXPECT_THAT(heard_, ElementsAre(true));
  EXPECT_TRUE(runner_->IsLeader());
  EXPECT_TRUE(runner_->Status().leading);
  EXPECT_EQ(runner_->Status().holder, "a");
  server_.down = true;
  const absl::Time down = timer_.Now();
  while (runner_->IsLeader()) Pass(absl::Milliseconds(100));
  EXPECT_LE(timer_.Now() - down, absl::Seconds(10));
  EXPECT_THAT(heard_, ElementsAre(true, false));
  server_.down = false;
  Pass(absl::Seconds(10));
  EXPECT_THAT(heard_, ElementsAre(true, false, true));
}

TEST_F(LeaseRunnerTest, LosesTheLeadWithoutAnyAnswer) {
  Pass(absl::Seconds(5));
  timer_.Advance(absl::Seconds(12));  // nothing is served
  EXPECT_FALSE(runner_->IsLeader());
  EXPECT_THAT(heard_, ElementsAre(true, false));
}

TEST_F(LeaseRunnerTest, StopReleases) {
  Pass(absl::Seconds(5));
  runner_->Stop();
  EXPECT_FALSE(runner_->IsLeader());
  EXPECT_THAT(heard_, ElementsAre(true, false));
  EXPECT_FALSE(runner_->AwaitStopped(absl::ZeroDuration()));
  Serve();
  EXPECT_TRUE(runner_->AwaitStopped(absl::ZeroDuration()));
  EXPECT_EQ(server_.holder(), "");
}

TEST_F(LeaseRunnerTest, DestructionLeavesNothingSet) {
  Pass(absl::Seconds(5));
  runner_.reset();
  EXPECT_EQ(timer_.NextAlarm(), absl::InfiniteFuture());
  EXPECT_EQ(server_.holder(), "a");
}

}  // namespace
}  // namespace muster::kube
