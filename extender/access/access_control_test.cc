#include "extender/access/access_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "extender/access/query_rights.h"
#include "kube/client/fake_transport.h"

namespace muster::extender {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTokenReviews = "/apis/authentication.k8s.io/v1/tokenreviews";
constexpr const char* kAccessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

class AccessControlTest : public ::testing::Test {
 protected:
  // What one caller has been told.
  struct Told {
    std::optional<absl::Status> answer;
    int times = 0;
  };
  std::shared_ptr<Told> Ask(const std::string& authorization, Wanted wanted = ToListGangs("team"),
                            const std::string& source = "10.0.0.1") {
    auto told = std::make_shared<Told>();
    access_->Check(authorization, source, std::move(wanted), [told](absl::Status answer) {
      told->answer = std::move(answer);
      ++told->times;
    });
    return told;
  }
  void Restart(AccessOptions options) {
    access_ =
        std::make_unique<AccessControl>(transport_, [this] { return now_; }, std::move(options));
  }
  // The API server's answer to the oldest question that has none.
  void Answer(int status, const json& of) { Next().Answer(status, json{{"status", of}}.dump()); }
  kube::FakeTransport::Sent& Next() {
    while (!transport_.sent[answered_]->done) ++answered_;
    return *transport_.sent[answered_];
  }
  void AnswerWho(const std::string& user) {
    ASSERT_EQ(Next().request.path, kTokenReviews);
    Answer(
        201,
        {{"authenticated", true}, {"audiences", {"muster.dev"}}, {"user", {{"username", user}}}});
  }
  void AnswerNobody() {
    ASSERT_EQ(Next().request.path, kTokenReviews);
    Answer(201, {{"authenticated", false}});
  }
  void AnswerMay(bool allowed) {
    ASSERT_EQ(Next().request.path, kAccessReviews);
    Answer(201, {{"allowed", allowed}});
  }
  size_t asked() const { return transport_.sent.size(); }

  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  kube::FakeTransport transport_;
  size_t answered_ = 0;
  std::unique_ptr<AccessControl> access_ =
      std::make_unique<AccessControl>(transport_, [this] { return now_; }, AccessOptions{});
};

TEST_F(AccessControlTest, WhoIsKnownAndMayIsLetIn) {
  const auto told = Ask("Bearer abc");
  EXPECT_FALSE(told->answer);
  AnswerWho("anna");
  EXPECT_FALSE(told->answer);
  EXPECT_EQ(json::parse(transport_.sent[1]->request.body)["spec"]["user"], "anna");
  AnswerMay(true);
  ASSERT_TRUE(told->answer);
  EXPECT_TRUE(told->answer->ok());
  EXPECT_EQ(told->times, 1);
}

TEST_F(AccessControlTest, WithoutATokenNobodyIsAsked) {
  for (const char* authorization :
       {"", "Bearer", "Bearer ", "Basic YTpi", "Bearer a b", "Bearer a\"b", "abc",
        "Bearer a\r\nX-Remote-User: root", "Bearer \x80"}) {
    const auto told = Ask(authorization);
    ASSERT_TRUE(told->answer) << authorization;
    EXPECT_TRUE(absl::IsUnauthenticated(*told->answer)) << authorization;
  }
  EXPECT_EQ(asked(), 0u);
  EXPECT_EQ(access_->stats().refusals[AccessControl::kUnauthenticated], 9u);
}

TEST_F(AccessControlTest, SchemesAreWordsInAnyCase) {
  Ask("bearer abc");
  Ask("BEARER  abc");
  ASSERT_EQ(asked(), 1u);
  EXPECT_EQ(json::parse(transport_.sent[0]->request.body)["spec"]["token"], "abc");
}

TEST_F(AccessControlTest, AnswersAreKeptForTheirTime) {
  Ask("Bearer abc");
  AnswerWho("anna");
  AnswerMay(true);
  now_ += absl::Seconds(59);
  auto told = Ask("Bearer abc");
  ASSERT_TRUE(told->answer);
  EXPECT_TRUE(told->answer->ok());
  EXPECT_EQ(asked(), 2u);
  now_ += absl::Seconds(1);
  told = Ask("Bearer abc");
  EXPECT_FALSE(told->answer);
  EXPECT_EQ(asked(), 3u);
  EXPECT_EQ(access_->stats().caches[AccessControl::kTokens].hits, 1u);
  EXPECT_EQ(access_->stats().caches[AccessControl::kTokens].misses, 2u);
}

TEST_F(AccessControlTest, RefusalsAreKeptForLess) {
  Ask("Bearer bad");
  AnswerNobody();
  Ask("Bearer abc");
  AnswerWho("anna");
  AnswerMay(false);
  EXPECT_TRUE(absl::IsUnauthenticated(*Ask("Bearer bad")->answer));
  EXPECT_TRUE(absl::IsPermissionDenied(*Ask("Bearer abc")->answer));
  EXPECT_EQ(asked(), 3u);
  now_ += absl::Seconds(10);
  EXPECT_FALSE(Ask("Bearer bad")->answer);
  // Whose it is stays known; what he may is asked anew.
  EXPECT_FALSE(Ask("Bearer abc")->answer);
  EXPECT_EQ(transport_.sent.back()->request.path, kAccessReviews);
}

TEST_F(AccessControlTest, EachRightIsAskedAboutOnItsOwn) {
  Ask("Bearer abc", ToListGangs("team"));
  AnswerWho("anna");
  AnswerMay(true);
  for (const Wanted& other : {ToListGangs("other"), ToListGangs(), ToWatchGangs("team"),
                              ToGetGang("team", "train"), ToWatchGangs("team", "train")}) {
    EXPECT_FALSE(Ask("Bearer abc", other)->answer) << other.verb << other.name_space << other.name;
    AnswerMay(false);
  }
  EXPECT_TRUE(Ask("Bearer abc", ToListGangs("team"))->answer->ok());
}

// Two callers are one only if the API server can't tell them apart.
TEST_F(AccessControlTest, CallersAreToldApartByAllThatTheyAre) {
  const std::vector<Caller> callers = {
      {.user = "a"},
      {.user = "a", .uid = "1"},
      {.user = "a", .groups = {"g"}},
      {.user = "a", .groups = {"g", "h"}},
      {.user = "a", .groups = {"gh"}},
      {.user = "a", .extra = {{"k", {"v"}}}},
      {.user = "a", .extra = {{"k", {"v", "w"}}}},
      {.user = "a", .groups = {"k", "v"}},
      {.user = "ag"},
  };
  for (size_t i = 0; i < callers.size(); ++i) {
    access_->CheckCaller(callers[i], "10.0.0.1", ToListGangs("team"), [](absl::Status) {});
    EXPECT_EQ(asked(), i + 1);
    AnswerMay(true);
  }
}

TEST_F(AccessControlTest, QuestionsThatAreAlikeWaitForOneReview) {
  std::vector<std::shared_ptr<Told>> told;
  for (int i = 0; i < 10; ++i) told.push_back(Ask("Bearer abc"));
  EXPECT_EQ(asked(), 1u);
  AnswerWho("anna");
  EXPECT_EQ(asked(), 2u);
  AnswerMay(true);
  for (const auto& one : told) {
    ASSERT_TRUE(one->answer);
    EXPECT_TRUE(one->answer->ok());
    EXPECT_EQ(one->times, 1);
  }
}

TEST_F(AccessControlTest, WhileTheApiServerIsAwayWhatIsKnownServes) {
  Ask("Bearer abc");
  AnswerWho("anna");
  AnswerMay(true);
  const auto stranger = Ask("Bearer new");
  Next().Answer(absl::UnavailableError("no connection"));
  ASSERT_TRUE(stranger->answer);
  EXPECT_TRUE(absl::IsUnavailable(*stranger->answer));
  EXPECT_THAT(std::string(stranger->answer->message()), HasSubstr("no connection"));
  EXPECT_TRUE(Ask("Bearer abc")->answer->ok());
  // That it was away isn't kept.
  EXPECT_FALSE(Ask("Bearer new")->answer);
  EXPECT_EQ(access_->stats().refusals[AccessControl::kUnavailable], 1u);
}

TEST_F(AccessControlTest, AFewAreAskedAboutAtATimeAndPastABoundNone) {
  Restart({.queue = {.in_flight = 2, .waiting = 3, .waiting_of_one = 2}});
  std::vector<std::shared_ptr<Told>> told;
  const auto ask = [&](const char* token, const char* source) {
    told.push_back(Ask(std::string("Bearer ") + token, ToListGangs("team"), source));
  };
  ask("a", "10.0.0.1");
  ask("b", "10.0.0.1");
  ask("c", "10.0.0.1");  // these wait
  ask("d", "10.0.0.1");
  EXPECT_EQ(asked(), 2u);
  EXPECT_EQ(access_->stats().reviews.waiting, 2u);
  // No more of this one, but another has room.
  ask("e", "10.0.0.1");
  ASSERT_TRUE(told.back()->answer);
  EXPECT_TRUE(absl::IsResourceExhausted(*told.back()->answer));
  ask("f", "10.0.0.2");
  EXPECT_FALSE(told.back()->answer);
  ask("g", "10.0.0.3");
  ASSERT_TRUE(told.back()->answer);
  EXPECT_TRUE(absl::IsResourceExhausted(*told.back()->answer));
  EXPECT_EQ(access_->stats().refusals[AccessControl::kOverloaded], 2u);
  // Each answer lets the next one go.
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(asked(), std::min<size_t>(2 + i, 5));
    AnswerNobody();
  }
  for (const auto& one : told) EXPECT_TRUE(one->answer);
  EXPECT_EQ(access_->stats().reviews.in_flight, 0u);
  // There is room again.
  ask("g", "10.0.0.3");
  EXPECT_FALSE(told.back()->answer);
}

TEST_F(AccessControlTest, InventedTokensDriveOutNoGoodOne) {
  Restart({.capacity = 8});
  Ask("Bearer good");
  AnswerWho("anna");
  AnswerMay(true);
  for (int i = 0; i < 100; ++i) {
    Ask("Bearer bad" + std::to_string(i));
    AnswerNobody();
  }
  EXPECT_TRUE(Ask("Bearer good")->answer->ok());
  EXPECT_EQ(access_->stats().caches[AccessControl::kTokens].entries, 9u);
}

TEST_F(AccessControlTest, StopTellsWhoeverWaits) {
  Ask("Bearer abc");
  AnswerWho("anna");
  AnswerMay(true);
  const auto token = Ask("Bearer new");
  const auto right = Ask("Bearer abc", ToListGangs("other"));
  access_->Stop();
  for (const auto& one : {token, right, Ask("Bearer newer")}) {
    ASSERT_TRUE(one->answer);
    EXPECT_TRUE(absl::IsUnavailable(*one->answer));
  }
  EXPECT_TRUE(Ask("Bearer abc")->answer->ok());
  // Late answers find nobody.
  AnswerWho("anna");
  AnswerMay(true);
  EXPECT_EQ(token->times, 1);
  EXPECT_EQ(right->times, 1);
}

TEST_F(AccessControlTest, AfterStopNothingIsAskedAnyMore) {
  Restart({.queue = {.in_flight = 1}});
  Ask("Bearer a");
  const auto waits = Ask("Bearer b");
  access_->Stop();
  EXPECT_TRUE(waits->answer);
  Next().Answer(absl::CancelledError("stopped"));
  Ask("Bearer c");
  EXPECT_EQ(asked(), 1u);
  EXPECT_EQ(access_->stats().reviews.in_flight, 0u);
}

TEST_F(AccessControlTest, NoRefusalNamesAToken) {
  const auto bad = Ask("Bearer secret-token");
  AnswerNobody();
  EXPECT_THAT(std::string(bad->answer->message()), Not(HasSubstr("secret-token")));
}

}  // namespace
}  // namespace muster::extender
