#include "worker/program/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/program/test_scrape.h"

namespace muster::worker {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(MetricsServer, ServesTheTextAsItIsAtEachScrape) {
  int scrapes = 0;
  const auto server = *MetricsServer::Start(0, [&] { return std::to_string(++scrapes) + "\n"; });
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: train-0\r\n\r\n";
  const std::string answer = Ask(server->port(), request);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 2\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n1\n"));
  EXPECT_THAT(Ask(server->port(), request), EndsWith("\r\n\r\n2\n"));
}

TEST(MetricsServer, AnythingElseIsNotFoundAndTheNextOneIsServed) {
  const auto server = *MetricsServer::Start(0, [] { return "1\n"; });
  EXPECT_THAT(Ask(server->port(), "GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask(server->port(), std::string(20'000, 'x')), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask(server->port(), "GET /metrics HTTP/1.1\r\n\r\n"), EndsWith("\r\n\r\n1\n"));
}

TEST(MetricsServer, ATakenPortIsAnError) {
  const auto server = *MetricsServer::Start(0, [] { return ""; });
  EXPECT_TRUE(
      absl::IsAlreadyExists(MetricsServer::Start(server->port(), [] { return ""; }).status()));
}

}  // namespace
}  // namespace muster::worker
