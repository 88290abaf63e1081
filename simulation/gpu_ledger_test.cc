// Small worlds whose sums were done by hand.

#include "simulation/gpu_ledger.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace muster::simulation {
namespace {

NodeFacts Coming(int64_t gpus) {
  return {.pool = "gpu", .bought = true, .paid = true, .gpus = gpus};
}

NodeFacts Usable(const std::string& name, int64_t gpus) {
  return {.name = name, .pool = "gpu", .bought = true, .paid = true, .usable = true, .gpus = gpus};
}

MemberFacts Asking(const std::string& gang) { return {.gang = gang, .gpus = 1, .asks = true}; }
MemberFacts Gated(const std::string& gang) { return {.gang = gang, .gpus = 1}; }
MemberFacts On(const std::string& node, const std::string& gang) {
  return {.gang = gang, .node = node, .gpus = 1};
}
MemberFacts Ended(const std::string& node, const std::string& gang) {
  return {.gang = gang, .node = node, .gpus = 1, .live = false, .succeeded = true};
}

class GpuLedgerTest : public testing::Test {
 protected:
  void At(Millis now, const std::function<void()>& changes) {
    ledger_.MoveTo(now);
    changes();
    ledger_.EndMoment();
  }
  GpuAccount Gpu(size_t node) { return ledger_.Nodes().at(node).gpu; }

  GpuLedger ledger_;
};

TEST_F(GpuLedgerTest, ANodeWaitsFromItsLaunchUntilTheGangIsWhole) {
  At(0, [&] {
    ledger_.SetGroup("g", 2, /*admitted=*/false);
    ledger_.SetMember("a", Asking("g"));
    ledger_.SetMember("b", Asking("g"));
  });
  At(1'000, [&] {
    ledger_.SetNode("claim-1", {.pool = "gpu", .bought = true, .gpus = 1});
    ledger_.SetNode("claim-2", {.pool = "gpu", .bought = true, .gpus = 1});
  });
  At(3'000, [&] { ledger_.SetNode("claim-1", Coming(1)); });  // launched
  At(10'000, [&] { ledger_.SetNode("claim-1", Usable("n1", 1)); });
  At(20'000, [&] { ledger_.SetNode("claim-2", Usable("n2", 1)); });
  At(20'000, [&] {
    ledger_.SetMember("a", On("n1", "g"));
    ledger_.SetMember("b", On("n2", "g"));
  });
  At(50'000, [&] {
    ledger_.SetMember("a", Ended("n1", "g"));
    ledger_.SetMember("b", Ended("n2", "g"));
  });
  At(65'000, [&] { ledger_.RemoveNode("claim-1"); });

  EXPECT_EQ(Gpu(0).bought, 62'000);
  EXPECT_EQ(Gpu(0).used, 30'000);
  EXPECT_EQ(Gpu(0).Of(Idle::kComingUp), 7'000);
  EXPECT_EQ(Gpu(0).Of(Idle::kWaiting), 10'000);
  EXPECT_EQ(Gpu(0).Of(Idle::kEnded), 15'000);
  EXPECT_EQ(Gpu(0).BeforeStart(), 17'000);
  EXPECT_EQ(Gpu(1).bought, 45'000) << "from its launch on, which was when it became usable";
  const GangAccount gang = ledger_.Gangs().at(0);
  EXPECT_EQ(gang.started, 20'000);
  EXPECT_EQ(gang.ended, 50'000);
  EXPECT_EQ(gang.members, 2);
  EXPECT_EQ(gang.restarts, 0);
}

TEST_F(GpuLedgerTest, AfterAGiveUpNodesIdleForNobodyUntilTheGangAsksAgain) {
  At(0, [&] { ledger_.SetMember("a", Asking("g")); });
  At(1'000, [&] { ledger_.SetNode("c", Usable("n", 8)); });
  At(11'000, [&] { ledger_.SetMember("a", Gated("g")); });
  At(16'000, [&] { ledger_.SetMember("a", Asking("g")); });
  At(18'000, [&] { ledger_.RemoveMember("a"); });
  At(20'000, [&] { ledger_.RemoveNode("c"); });

  EXPECT_EQ(Gpu(0).Of(Idle::kInVain), 8 * (10'000 + 2'000));
  EXPECT_EQ(Gpu(0).Of(Idle::kWaiting), 0) << "it never started";
  EXPECT_EQ(Gpu(0).Of(Idle::kGaveUp), 8 * (5'000 + 2'000)) << "a gang that is gone gave up too";
  EXPECT_EQ(Gpu(0).used, 0);
  EXPECT_EQ(ledger_.Gangs().at(0).give_ups, 1) << "what its user deletes didn't give up";
}

TEST_F(GpuLedgerTest, AnAdmittedGangWaitsThoughItAsksForNothing) {
  At(0, [&] {
    ledger_.SetMember("a", Gated("g"));
    ledger_.SetGroup("g", 1, /*admitted=*/true);
    ledger_.SetNode("c", Coming(2));
  });
  At(3'000, [&] { ledger_.SetGroup("g", 1, /*admitted=*/false); });
  At(4'000, [] {});

  EXPECT_EQ(Gpu(0).Of(Idle::kComingUp), 2 * 3'000);
  EXPECT_EQ(Gpu(0).Of(Idle::kGaveUp), 2 * 1'000);
  EXPECT_EQ(ledger_.Gangs().at(0).give_ups, 1);
}

TEST_F(GpuLedgerTest, AHeldNodeWaitsEvenIfThoseWhoOrderedItGaveUp) {
  At(0, [&] { ledger_.SetMember("a", Asking("first")); });
  At(0, [&] { ledger_.SetNode("c", Usable("n", 1)); });
  NodeFacts held = Usable("n", 1);
  held.held = true;
  At(1'000, [&] {
    ledger_.SetMember("a", Gated("first"));
    ledger_.SetNode("c", held);
  });
  At(5'000, [&] { ledger_.SetNode("c", Usable("n", 1)); });
  At(7'000, [] {});

  EXPECT_EQ(Gpu(0).Of(Idle::kInVain), 1'000);
  EXPECT_EQ(Gpu(0).Of(Idle::kWaiting), 4'000);
  EXPECT_EQ(Gpu(0).Of(Idle::kGaveUp), 2'000);
}

TEST_F(GpuLedgerTest, ANodeThatWasUsedWaitsForTheNextGangThatCouldUseIt) {
  MemberFacts next = Asking("next");
  next.pool = "gpu";
  At(0, [&] { ledger_.SetNode("c", Usable("n", 2)); });
  At(0, [&] { ledger_.SetMember("a", On("n", "first")); });
  At(10'000, [&] { ledger_.SetMember("a", Ended("n", "first")); });
  At(20'000, [&] { ledger_.SetMember("b", next); });
  At(25'000, [&] {
    next.pool = "other";
    ledger_.SetMember("b", next);
  });
  At(26'000, [] {});

  EXPECT_EQ(Gpu(0).Of(Idle::kEnded), 2 * 10'000 + 1 * 5'000 + 2 * 1'000);
  EXPECT_EQ(Gpu(0).Of(Idle::kWaiting), 1 * 5'000) << "as many GPUs as it asks for, of its NodePool";
}

TEST_F(GpuLedgerTest, IdleGpusWaitOnceHoweverManyGangsCouldUseThem) {
  At(0, [&] { ledger_.SetNode("c", Usable("n", 1)); });
  At(0, [&] { ledger_.SetMember("a", Asking("first")); });
  At(0, [&] { ledger_.SetMember("b", Asking("second")); });
  At(4'000, [&] { ledger_.SetMember("a", Gated("first")); });
  At(6'000, [&] { ledger_.SetMember("b", Gated("second")); });

  EXPECT_EQ(Gpu(0).bought, 6'000);
  EXPECT_EQ(Gpu(0).Of(Idle::kInVain), 6'000) << "4 s for the first, then 2 s for the second";
}

TEST_F(GpuLedgerTest, WhatCameUpInVainIsKnownWhenTheNodeIsGone) {
  At(0, [&] { ledger_.SetMember("a", Asking("g")); });
  At(0, [&] { ledger_.SetNode("c", Coming(8)); });
  At(9'000, [&] { ledger_.RemoveNode("c"); });

  EXPECT_EQ(Gpu(0).Of(Idle::kNeverUsable), 8 * 9'000);
  EXPECT_EQ(Gpu(0).Of(Idle::kComingUp), 0);
  EXPECT_EQ(Gpu(0).BeforeStart(), 8 * 9'000);
}

TEST_F(GpuLedgerTest, MembersOfAGangThatIsNotWholeWasteTheirGpus) {
  At(0, [&] {
    ledger_.SetGroup("g", 2, /*admitted=*/false);
    ledger_.SetNode("n", {.name = "n", .paid = true, .usable = true, .gpus = 4});
    ledger_.SetMember("a", On("n", "g"));
    ledger_.SetMember("b", Asking("g"));
  });
  At(10'000, [&] { ledger_.SetMember("b", On("n", "g")); });
  At(30'000, [&] { ledger_.RemoveMember("b"); });
  At(35'000, [&] { ledger_.SetMember("b2", On("n", "g")); });
  At(40'000, [] {});

  const GpuAccount gpu = Gpu(0);
  EXPECT_EQ(gpu.bought, 4 * 40'000);
  EXPECT_EQ(gpu.used, 2 * 20'000 + 2 * 5'000);
  EXPECT_EQ(gpu.Of(Idle::kWaiting), 2 * 10'000) << "bound, or asked for, before it was whole";
  EXPECT_EQ(gpu.Of(Idle::kInPart), 5'000) << "bound while the gang was broken";
  EXPECT_EQ(gpu.Of(Idle::kBeside), 2 * 25'000);
  EXPECT_EQ(gpu.Of(Idle::kUnwanted), 2 * 10'000) << "there from the start: nobody ordered it";
  EXPECT_EQ(gpu.Of(Idle::kEnded), 3 * 5'000);
  EXPECT_EQ(ledger_.Gangs().at(0).restarts, 1);
}

TEST_F(GpuLedgerTest, ANodeWhoseGangStartedElsewhereIsUnwanted) {
  At(0, [&] {
    ledger_.SetMember("a", Asking("g"));
    ledger_.SetNode("n", {.name = "n", .paid = true, .usable = true, .gpus = 1});
  });
  At(1'000, [&] { ledger_.SetNode("c", Coming(1)); });
  At(2'000, [&] { ledger_.SetMember("a", On("n", "g")); });
  At(9'000, [] {});

  EXPECT_EQ(ledger_.Total(true).Of(Idle::kComingUp), 1'000);
  EXPECT_EQ(ledger_.Total(true).Of(Idle::kUnwanted), 7'000);
  EXPECT_EQ(ledger_.Total(false).used, 7'000);
}

TEST_F(GpuLedgerTest, RestsOnceNothingBoughtIdlesAndNoGangWaitsOrWillEnd) {
  At(0, [&] { ledger_.SetMember("a", Asking("g")); });
  EXPECT_FALSE(ledger_.AtRest()) << "it waits";
  At(1, [&] {
    ledger_.SetNode("c", Usable("n", 1));
    ledger_.SetMember("a", On("n", "g"));
  });
  EXPECT_FALSE(ledger_.AtRest()) << "it will end";
  MemberFacts endless = On("n", "g");
  endless.endless = true;
  At(2, [&] { ledger_.SetMember("a", endless); });
  EXPECT_TRUE(ledger_.AtRest());
  At(3, [&] { ledger_.SetMember("a", Ended("n", "g")); });
  EXPECT_FALSE(ledger_.AtRest()) << "its node is there still";
  At(4, [&] { ledger_.RemoveNode("c"); });
  EXPECT_TRUE(ledger_.AtRest());
}

}  // namespace
}  // namespace muster::simulation
