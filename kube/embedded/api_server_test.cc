#include "kube/embedded/api_server.h"

#include <gtest/gtest.h>

#include "kube/embedded/test_client.h"

namespace muster::kube::embedded {
namespace {

TEST(ApiServerTest, CreatesAPodWithDefaultsAndStatus) {
  TestServer server;
  TestAnswer answer = server.Post(kPods, MakePod("a"));
  ASSERT_EQ(answer.status, 201) << answer.body;
  EXPECT_EQ(answer.body["metadata"]["namespace"], "default");
  EXPECT_EQ(answer.body["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
  EXPECT_EQ(answer.body["metadata"]["generation"], 1);
  EXPECT_EQ(answer.body["metadata"]["uid"].get<std::string>().size(), 36u);
  EXPECT_EQ(answer.body["spec"]["schedulerName"], "default-scheduler");
  EXPECT_EQ(answer.body["spec"]["restartPolicy"], "Always");
  EXPECT_EQ(answer.body["status"]["phase"], "Pending");
  EXPECT_EQ(answer.body["status"]["qosClass"], "BestEffort");
  EXPECT_EQ(server.Get(std::string(kPods) + "/a").body, answer.body);
  EXPECT_EQ(server.Post(kPods, MakePod("a")).reason(), "AlreadyExists");
}

}  // namespace
}  // namespace muster::kube::embedded
