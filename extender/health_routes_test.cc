#include "extender/health_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "extender/planes.h"
#include "http/testing/raw_client.h"

namespace muster::extender {
namespace {

using ::testing::HasSubstr;

class HealthTest : public ::testing::Test {
 protected:
  HealthTest() {
    HealthSources sources;
    sources.not_ready_reason = [this] { return not_ready_; };
    sources.no_leader_reason = [this] { return no_leader_; };
    sources.planes = {{"control", [this] { return control_; }},
                      {"query", [this] { return query_; }}};
    server_ = *http::Server::Start(HealthPlane("127.0.0.1:0"), HealthRoutes(std::move(sources)));
  }
  ~HealthTest() override { server_->Stop(absl::ZeroDuration()); }

  http::RawClient::Message Get(const std::string& path) {
    http::RawClient client(server_->port());
    client.Send(http::RawGet(path));
    return client.ReadMessage();
  }

  std::string not_ready_, no_leader_, control_, query_;
  std::unique_ptr<http::Server> server_;
};

TEST_F(HealthTest, TheProcessLivesAsLongAsItsControlPlane) {
  EXPECT_EQ(Get("/healthz").body, "ok");
  query_ = "the query server has done nothing for 61 s";
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/healthz/control").status, 200);
  EXPECT_EQ(Get("/healthz/query").status, 503);
  EXPECT_EQ(Get("/healthz/query").body, "query: the query server has done nothing for 61 s");
  control_ = "the engine has done nothing for 61 s";
  EXPECT_EQ(Get("/healthz").status, 503);
  EXPECT_EQ(Get("/healthz").body, "control: the engine has done nothing for 61 s");
  EXPECT_EQ(Get("/healthz/nothing").status, 404);
}

TEST_F(HealthTest, ReadinessSaysWhatIsMissing) {
  EXPECT_EQ(Get("/readyz").body, "ok");
  no_leader_ = "no scheduler leads";
  EXPECT_EQ(Get("/readyz").body, "ok; no scheduler leads");
  not_ready_ = "pods: not read yet";
  EXPECT_EQ(Get("/readyz").status, 503);
  EXPECT_EQ(Get("/readyz").body, "not ready: pods: not read yet");
}

TEST(Silence, IsAFaultOnceItIsLong) {
  EXPECT_EQ(SilenceOf("the engine", absl::Seconds(59)), "");
  EXPECT_EQ(SilenceOf("the engine", absl::Seconds(61)), "the engine has done nothing for 61 s");
}

// Who reaches the port all the same, and holds more connections than there is room for.
TEST_F(HealthTest, NobodyFillsThePort) {
  std::vector<std::unique_ptr<http::RawClient>> idle;
  for (int peer = 0; peer < 10; ++peer) {
    const std::string from = "127.0.1." + std::to_string(peer + 1);
    for (int i = 0; i < 50; ++i) {
      idle.push_back(std::make_unique<http::RawClient>(server_->port(), from.c_str()));
      if (i % 2 == 0) idle.back()->Send("GET /healthz HT");
    }
  }
  EXPECT_EQ(Get("/healthz").body, "ok");
  EXPECT_GE(server_->connection_counts().ended_idle, 400u);
  EXPECT_EQ(server_->connection_counts().turned_away, 0u);
}

}  // namespace
}  // namespace muster::extender
