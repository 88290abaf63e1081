#include "coscheduling/commit/repair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "coscheduling/test_owners.h"

namespace muster::coscheduling {
namespace {

using cluster::test::BoundTo;
using cluster::test::MakeNode;
using cluster::test::MakePod;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(LossesText, TellsTheFirstFewInOrderAndNotThoseThatAreOver) {
  EXPECT_EQ(LossesText({}), "");
  const Losses losses = {{"3", {.text = "c on n3 was deleted"}},
                         {"1", {.text = "b on n1 failed: OutOfcpu"}},
                         {"2", {.text = "a on n2, which isn't Ready", .by_node = true}},
                         {"4", {.text = "0 on n4 was deleted", .over = true}}};
  EXPECT_EQ(LossesText(losses),
            "a on n2, which isn't Ready; b on n1 failed: OutOfcpu; c on n3 was deleted");
}

// A gang of two that is bound to the nodes a and b, as the engine takes it through a step.
class RepairTest : public ::testing::Test {
 protected:
  RepairTest()
      : gang_(owners_.AddGang("train",
                              {BoundTo(MakePod("m-0"), "a"), BoundTo(MakePod("m-1"), "b")})) {
    owners_.Add(MakeNode("a"));
    owners_.Add(MakeNode("b"));
    Step();
  }

  void Step() {
    const v1::GangState before = gang_.state;
    owners_.Admit(gang_);
    owners_.gangs.Lose(gang_.id, owners_.repair.Find(gang_));
    GangFacts facts = gang_.facts;
    facts.bound_before = true;
    owners_.gangs.Settle(gang_.id, facts);
    owners_.gangs.Enter(gang_.id, NextState(facts));
    owners_.repair.Follow(gang_, before);
    owners_.repair.Decide(gang_);
    owners_.Take();
  }
  void Pass(absl::Duration time) {
    owners_.Pass(time);
    Step();
  }
  void Lose(const std::string& node) {
    kube::Node lost = MakeNode(node);
    lost.ready = false;
    lost.ready_changed = owners_.agenda.now();
    owners_.Add(std::move(lost));
    Step();
  }

  TestOwners owners_;
  const Gang& gang_;
};

TEST_F(RepairTest, AGangWhoseNodesAreThereHasLostNobody) {
  EXPECT_EQ(gang_.state, v1::BOUND);
  EXPECT_THAT(owners_.repair.LossesOf(gang_), IsEmpty());
  EXPECT_EQ(owners_.repair.TroubleOn("a"), nullptr);
}

TEST_F(RepairTest, AMemberIsLostOnceItsNodeHasNotBeenReadyForTheGrace) {
  Lose("b");
  EXPECT_NE(owners_.repair.TroubleOn("b"), nullptr);
  EXPECT_EQ(gang_.state, v1::BOUND) << "it may come back";
  Pass(owners_.options.node_grace);
  EXPECT_EQ(gang_.state, v1::REPAIRING);
  EXPECT_THAT(gang_.lost, ElementsAre("pod-m-1"));
  EXPECT_THAT(LossesText(owners_.repair.LossesOf(gang_)), HasSubstr("m-1 on b, which"));
}

TEST_F(RepairTest, ANodeThatComesBackInTimeLosesNobody) {
  Lose("b");
  Pass(owners_.options.node_grace - absl::Seconds(1));
  owners_.Add(MakeNode("b"));
  Pass(absl::Hours(1));
  EXPECT_EQ(gang_.state, v1::BOUND);
  EXPECT_THAT(owners_.repair.LossesOf(gang_), IsEmpty());
}

TEST_F(RepairTest, WhatIsLeftIsEvictedOnceTheGangWasNotWholeAgainInTime) {
  Lose("b");
  Pass(owners_.options.node_grace);
  Pass(owners_.options.repair_deadline - absl::Seconds(1));
  EXPECT_THAT(owners_.Asked<EvictPod>(), IsEmpty());
  Pass(absl::Seconds(1));
  EXPECT_EQ(owners_.Asked<EvictPod>().size(), 2u);
  EXPECT_EQ(owners_.repair.evicted(), 1u);
}

TEST_F(RepairTest, ADeletedMemberIsToldByName) {
  owners_.repair.NoteRemoved(gang_, *owners_.snapshot.FindPod("pod-m-0"));
  owners_.gangs.Leave(*owners_.snapshot.FindPod("pod-m-0"));
  owners_.snapshot.RemovePod("pod-m-0");
  Step();
  EXPECT_EQ(gang_.state, v1::REPAIRING);
  EXPECT_EQ(LossesText(owners_.repair.LossesOf(gang_)), "m-0 on a was deleted");
}

}  // namespace
}  // namespace muster::coscheduling
