#include "extender/scheduler_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "http/testing/raw_client.h"

namespace muster::extender {
namespace {

using coscheduling::FilterAnswer;
using ::testing::HasSubstr;

std::string FilterBody(const std::string& uid) {
  return fmt::format(
      R"({{"Pod":{{"metadata":{{"uid":"{}","name":"p","namespace":"s"}}}},"NodeNames":["n1"]}})",
      uid);
}
std::string BindBody(int i) {
  return fmt::format(R"({{"PodName":"p-{0}","PodNamespace":"s","PodUID":"u-{0}","Node":"n"}})", i);
}

class SchedulerRoutesTest : public ::testing::Test {
 protected:
  void Start(size_t max_held = 50'000) {
    table_.Apply({{"here", FilterAnswer{FilterAnswer::Kind::kPlanned, "n1", ""}},
                  {"elsewhere", FilterAnswer{FilterAnswer::Kind::kPlanned, "n2", ""}}});
    routes_ = std::make_unique<SchedulerRoutes>(
        table_, SchedulerRoutesOptions{
                    .max_held_binds = max_held,
                    .post_urgent = [this](const EngineTask&) { ++tasks_; },
                    .on_filter =
                        [this](FilterReply::Outcome, absl::Duration took) {
                          filter_seconds_ = absl::ToDoubleSeconds(took);
                          ++filters_;
                        },
                    .on_bind = [this](bool bound, absl::Duration) { bound ? ++bound_ : ++failed_; },
                    .clock = absl::Now,
                    .not_leading = [this] { return leads_ ? "" : "not leading; leader is b_1"; }});
    server_ = *http::Server::Start({.listen = "127.0.0.1:0"}, routes_->Routes());
  }
  bool AwaitHeld(size_t count) {
    for (int i = 0; i < 1000 && routes_->held_binds() != count; ++i) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    return routes_->held_binds() == count;
  }

  // A held bind keeps its connection, as a request that is answered to nobody would.
  void TearDown() override { routes_->Refuse("the test is over"); }

  FilterTable table_;
  std::atomic<bool> leads_ = true;
  std::atomic<int> tasks_ = 0, filters_ = 0, bound_ = 0, failed_ = 0;
  std::atomic<double> filter_seconds_ = 0;
  std::unique_ptr<SchedulerRoutes> routes_;
  std::unique_ptr<http::Server> server_;
};

TEST_F(SchedulerRoutesTest, OnlyARefusedPlanIsTheEnginesBusiness) {
  Start();
  http::RawClient client(server_->port());
  client.Send(http::RawPost("/filter", FilterBody("here")));
  EXPECT_THAT(client.ReadMessage().body, HasSubstr(R"("NodeNames":["n1"])"));
  EXPECT_EQ(tasks_, 0);
  client.Send(http::RawPost("/filter", FilterBody("elsewhere")));
  EXPECT_THAT(client.ReadMessage().body, HasSubstr("planned node n2 is not among the 1 offered"));
  EXPECT_EQ(tasks_, 1);
  client.Send(http::RawPost("/filter", "nonsense"));
  EXPECT_EQ(client.ReadMessage().status, 400);
  EXPECT_EQ(filters_, 2);
}

TEST_F(SchedulerRoutesTest, TheTimeOfAFilterCallBeginsWithItsFirstByte) {
  Start();
  http::RawClient client(server_->port());
  const std::string call = http::RawPost("/filter", FilterBody("here"));
  client.Send(call.substr(0, call.size() - 5));
  absl::SleepFor(absl::Milliseconds(100));
  client.Send(call.substr(call.size() - 5));
  client.ReadMessage();
  for (int i = 0; i < 1000 && filters_ == 0; ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_GE(filter_seconds_, 0.09);
}

TEST_F(SchedulerRoutesTest, AFollowerRefusesBothVerbsAndTellsWhoLeads) {
  Start();
  leads_ = false;
  http::RawClient client(server_->port());
  client.Send(http::RawPost("/filter", FilterBody("here")));
  const std::string filtered = client.ReadMessage().body;
  EXPECT_THAT(filtered, HasSubstr(R"("Error":"not leading; leader is b_1")"));
  EXPECT_THAT(filtered, HasSubstr(R"("NodeNames":null)"));
  client.Send(http::RawPost("/bind", BindBody(0)));
  EXPECT_EQ(client.ReadMessage().body, R"({"Error":"not leading; leader is b_1"})");
  EXPECT_EQ(tasks_, 0);
  EXPECT_EQ(routes_->held_binds(), 0u);
  leads_ = true;
  client.Send(http::RawPost("/filter", FilterBody("here")));
  EXPECT_THAT(client.ReadMessage().body, HasSubstr(R"("NodeNames":["n1"])"));
}

TEST_F(SchedulerRoutesTest, HundredsOfBindsAreHeldUntilTheEngineAnswers) {
  Start();
  std::vector<std::unique_ptr<http::RawClient>> clients;
  for (int i = 0; i < 300; ++i) {
    clients.push_back(std::make_unique<http::RawClient>(server_->port()));
    clients.back()->Send(http::RawPost("/bind", BindBody(i)));
  }
  ASSERT_TRUE(AwaitHeld(300));
  EXPECT_EQ(tasks_, 300);
  for (uint64_t id = 1; id <= 300; ++id) routes_->AnswerBind(id, id % 2 == 0 ? "" : "lost a node");
  int good = 0;
  for (auto& client : clients) good += client->ReadMessage().body == R"({"Error":""})";
  EXPECT_EQ(good, 150);
  EXPECT_EQ(bound_, 150);
  EXPECT_EQ(failed_, 150);
  routes_->AnswerBind(1, "");     // answered before
  routes_->AnswerBind(9999, "");  // never was
  EXPECT_EQ(bound_, 150);
}

TEST_F(SchedulerRoutesTest, BindsPastTheLimitAreRefused) {
  Start(1);
  http::RawClient first(server_->port());
  first.Send(http::RawPost("/bind", BindBody(0)));
  ASSERT_TRUE(AwaitHeld(1));
  http::RawClient second(server_->port());
  second.Send(http::RawPost("/bind", BindBody(1)));
  EXPECT_THAT(second.ReadMessage().body, HasSubstr("too many bind calls"));
}

TEST_F(SchedulerRoutesTest, StoppingRefusesNewBindsThenThoseThatAreHeld) {
  Start();
  http::RawClient held(server_->port());
  held.Send(http::RawPost("/bind", BindBody(0)));
  ASSERT_TRUE(AwaitHeld(1));
  routes_->RefuseNew("muster is stopping");
  http::RawClient late(server_->port());
  late.Send(http::RawPost("/bind", BindBody(1)));
  EXPECT_EQ(late.ReadMessage().body, R"({"Error":"muster is stopping"})");
  EXPECT_EQ(routes_->held_binds(), 1u);
  routes_->Refuse("muster is stopping");
  EXPECT_EQ(held.ReadMessage().body, R"({"Error":"muster is stopping"})");
}

}  // namespace
}  // namespace muster::extender
