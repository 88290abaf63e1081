// The sizes that the server is made for; without MUSTER_FULL=1 a tenth of them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kube/embedded/test_client.h"
#include "tests/full.h"

namespace muster::kube::embedded {
namespace {

const int kShrink = muster::testing::IsFull() ? 1 : 10;

TEST(ScaleTest, ThousandsOfNodesAndPods) {
  const int kNodeCount = 5000 / kShrink, kPodCount = 20000 / kShrink;
  TestServer server;
  Request watch;
  watch.path = "/api/v1/pods";
  watch.query = {{"watch", "1"}};
  auto session = server.server().Watch(watch).session;
  for (int i = 0; i < kNodeCount; ++i) {
    ASSERT_EQ(server.Post(kNodes, MakeNode("node-" + std::to_string(i))).status, 201);
  }
  std::vector<WatchItem> items;
  size_t seen = 0;
  std::string line;
  for (int i = 0; i < kPodCount; ++i) {
    std::string name = "pod-" + std::to_string(i);
    TestJson pod = MakePod(name);
    pod["spec"]["containers"][0]["resources"]["limits"] = {{"nvidia.com/gpu", "1"}};
    ASSERT_EQ(server.Post(kPods, pod).status, 201);
    ASSERT_EQ(server
                  .Post(std::string(kPods) + "/" + name + "/binding",
                        MakeBinding(name, "node-" + std::to_string(i % kNodeCount)))
                  .status,
              201);
    items.clear();
    session->Read(100, &items);
    for (const WatchItem& item : items) {
      line.clear();
      item.AppendLine(&line);
    }
    seen += items.size();
  }
  EXPECT_EQ(seen, 2u * kPodCount);
  Request list;
  list.path = "/api/v1/pods";
  EXPECT_GT(server.server().Handle(list).body.size(), kPodCount * 500u);
}

// The shape of a scenario round: a server of its own, a few nodes and pods, some changes.
TEST(ScaleTest, ManySmallServers) {
  const int kRounds = 1000 / kShrink;
  for (int round = 0; round < kRounds; ++round) {
    ApiServerOptions options;
    options.seed = static_cast<uint64_t>(round);
    TestServer server(options);
    for (int i = 0; i < 8; ++i) server.Post(kNodes, MakeNode("n" + std::to_string(i)));
    for (int i = 0; i < 16; ++i) {
      std::string name = "p" + std::to_string(i);
      server.Post(kPods, MakeGatedPod(name));
      server.Call(Method::kPatch, std::string(kPods) + "/" + name,
                  {{"spec", {{"schedulingGates", nullptr}}}}, {}, kMergePatch);
      server.Post(std::string(kPods) + "/" + name + "/binding", MakeBinding(name, "n1"));
      ASSERT_EQ(server.Delete(std::string(kPods) + "/" + name, {{"gracePeriodSeconds", 0}}).status,
                200);
    }
  }
}

}  // namespace
}  // namespace muster::kube::embedded
