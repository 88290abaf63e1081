// The sizes the server is made for, with time limits that a tenfold slower machine still meets.
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "kube/embedded/test_client.h"

namespace muster::kube::embedded {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kShrink = 10;
#else
constexpr int kShrink = 1;
#endif

class Stopwatch {
 public:
  explicit Stopwatch(std::string what) : what_(std::move(what)) {}
  ~Stopwatch() { std::cout << what_ << ": " << Elapsed() << "\n"; }
  absl::Duration Elapsed() const { return absl::Now() - start_; }

 private:
  const std::string what_;
  const absl::Time start_ = absl::Now();
};

TEST(ScaleTest, ThousandsOfNodesAndPods) {
  constexpr int kNodeCount = 5000 / kShrink, kPodCount = 20000 / kShrink;
  TestServer server;
  Request watch;
  watch.path = "/api/v1/pods";
  watch.query = {{"watch", "1"}};
  auto session = server.server().Watch(watch).session;
  Stopwatch all("all");
  {
    Stopwatch watch_nodes("create nodes");
    for (int i = 0; i < kNodeCount; ++i) {
      ASSERT_EQ(server.Post(kNodes, MakeNode("node-" + std::to_string(i))).status, 201);
    }
  }
  std::vector<WatchItem> items;
  size_t seen = 0;
  std::string line;
  {
    Stopwatch watch_pods("create, bind and watch pods");
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
  }
  EXPECT_EQ(seen, 2u * kPodCount);
  {
    Stopwatch list("list pods");
    Request request;
    request.path = "/api/v1/pods";
    EXPECT_GT(server.server().Handle(request).body.size(), kPodCount * 500u);
  }
  EXPECT_LT(all.Elapsed(), absl::Seconds(60));
}

// The shape of a scenario round: a server of its own, a few nodes and pods, some changes.
TEST(ScaleTest, ManySmallServers) {
  constexpr int kRounds = 1000 / kShrink;
  Stopwatch all("small servers");
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
  EXPECT_LT(all.Elapsed(), absl::Seconds(60));
}

}  // namespace
}  // namespace muster::kube::embedded
