#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cluster/test_objects.h"
#include "coscheduling/engine.h"
#include "muster/v1/admission.pb.h"

namespace muster::coscheduling {
namespace {

using namespace cluster::test;

// The one node's steps: "REQUESTED 100, LAUNCHED 103".
std::string Steps(const Engine& engine) {
  std::vector<v1::Node> nodes;
  engine.DescribeNodes(&nodes);
  if (nodes.size() != 1) return std::to_string(nodes.size()) + " nodes";
  std::string text;
  for (const v1::NodeStep& step : nodes[0].steps()) {
    if (!text.empty()) text += ", ";
    text += v1::NodeStage_Name(step.stage()) + " " + std::to_string(step.at().seconds());
  }
  return text;
}

// Karpenter's times are the claim's; a node is usable from when all of its devices are seen.
TEST(DescribeNodes, TellsWhenANodeCameToEachStage) {
  const auto at = [](int64_t seconds) { return absl::FromUnixSeconds(seconds); };
  Engine engine{EngineOptions()};
  engine.SetSynced();
  kube::NodeClaim claim = MakeClaim("c");
  claim.meta.creation_time = at(100);
  engine.Upsert(claim);
  engine.Step(at(101));
  EXPECT_EQ(Steps(engine), "REQUESTED 100");

  claim = Launched(std::move(claim), "aws:///i-1");
  claim.conditions["Launched"].last_transition = at(103);
  engine.Upsert(claim);
  engine.Step(at(104));
  EXPECT_EQ(Steps(engine), "REQUESTED 100, LAUNCHED 103");

  for (const char* condition : {"Registered", "Initialized"}) SetTrue(claim, condition);
  claim.conditions["Registered"].last_transition = at(140);
  claim.conditions["Initialized"].last_transition = at(150);
  engine.Upsert(claim);
  const kube::Node node = Initialized(MakeEarlyNode("n", "aws:///i-1"));
  engine.Upsert(WithGpus(node, 7, 8));
  engine.Step(at(151));
  const std::string before = "REQUESTED 100, LAUNCHED 103, REGISTERED 140, INITIALIZED 150";
  EXPECT_EQ(Steps(engine), before);
  engine.Upsert(WithGpus(node, 8, 8));
  engine.Step(at(160));
  EXPECT_EQ(Steps(engine), before + ", USABLE 160");
  engine.Step(at(170));
  EXPECT_EQ(Steps(engine), before + ", USABLE 160");
  engine.Upsert(WithGpus(node, 6, 8));
  engine.Step(at(180));
  EXPECT_EQ(Steps(engine), before);
}

}  // namespace
}  // namespace muster::coscheduling
