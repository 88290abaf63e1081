#include "coscheduling/placement/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coscheduling/test_owners.h"

namespace muster::coscheduling {
namespace {

using cluster::test::BoundTo;
using cluster::test::MakeNode;
using cluster::test::MakePod;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

kube::Pod WholeNode(const std::string& name, int32_t priority = 0) {
  kube::Pod pod = MakePod(name, {{"nvidia.com/gpu", 8}});
  pod.priority = priority;
  return pod;
}

class PlacementTest : public ::testing::Test {
 protected:
  const Gang& Gang2(const std::string& name, int32_t priority = 0) {
    return owners_.AddGang(name,
                           {WholeNode(name + "-0", priority), WholeNode(name + "-1", priority)});
  }
  // It waits in the list; nothing is planned yet.
  void Enter(const Gang& gang) { owners_.placement.Sync(gang); }
  void Plan() { owners_.placement.PlanWaiting(); }
  const PlaceMap& FixedOf(const Gang& gang) const { return owners_.placement.Of(gang).fixed; }
  // The plans that are made for what was observed since.
  template <typename Observe>
  uint64_t PlansFor(Observe observe) {
    const uint64_t before = owners_.placement.plans();
    observe();
    owners_.placement.Observe(owners_.snapshot.TakeJournal());
    Plan();
    return owners_.placement.plans() - before;
  }

  TestOwners owners_;
};

TEST_F(PlacementTest, AGangGetsAllItsPlacesOrNone) {
  owners_.Add(MakeNode("a"));
  const Gang& gang = Gang2("train");
  EXPECT_THAT(owners_.Place(gang).fixed, IsEmpty());
  EXPECT_TRUE(owners_.placement.Of(gang).short_of_nodes);
  owners_.Add(MakeNode("b"));
  Plan();
  EXPECT_THAT(FixedOf(gang), SizeIs(2));
}

TEST_F(PlacementTest, TheMoreImportantGangGoesFirst) {
  const Gang& low = Gang2("low");
  owners_.Pass(absl::Seconds(1));
  const Gang& high = Gang2("high", 1000);
  Enter(low);
  Enter(high);
  owners_.Add(MakeNode("a"));
  owners_.Add(MakeNode("b"));
  Plan();
  EXPECT_THAT(FixedOf(low), IsEmpty());
  EXPECT_THAT(FixedOf(high), SizeIs(2));
  Enter(high);  // it has its places, and leaves the list
  EXPECT_TRUE(owners_.placement.IsHead(low));
}

TEST_F(PlacementTest, OfEquallyImportantOnesTheOlderGoesFirst) {
  const Gang& older = Gang2("z-older");
  owners_.Pass(absl::Seconds(1));
  const Gang& younger = Gang2("a-younger");
  Enter(younger);
  Enter(older);
  owners_.Add(MakeNode("a"));
  owners_.Add(MakeNode("b"));
  Plan();
  EXPECT_THAT(FixedOf(older), SizeIs(2));
  EXPECT_THAT(FixedOf(younger), IsEmpty());
}

TEST_F(PlacementTest, APlaceTakesItsRoomAndGivesItBackWithTheGang) {
  owners_.Add(MakeNode("a"));
  owners_.Add(MakeNode("b"));
  const Gang& first = Gang2("first");
  owners_.Place(first);
  owners_.Pass(absl::Seconds(1));
  const Gang& second = Gang2("second");
  EXPECT_THAT(owners_.Place(second).fixed, IsEmpty());
  owners_.placement.Forget(first.id);
  Plan();
  EXPECT_THAT(FixedOf(second), SizeIs(2));
}

TEST_F(PlacementTest, ANodeThatIsLostBreaksThePlan) {
  owners_.Add(MakeNode("a"));
  owners_.Add(MakeNode("b"));
  const Gang& gang = Gang2("train");
  owners_.Place(gang);
  kube::Node node = MakeNode("b");
  node.ready = false;
  owners_.Add(node);
  EXPECT_FALSE(owners_.placement.Sync(gang));
  EXPECT_THAT(FixedOf(gang), IsEmpty()) << "before its commit it is planned anew as a whole";
}

TEST_F(PlacementTest, AfterItsCommitBeganOnlyWhatBrokeIsPlannedAnew) {
  for (const char* name : {"a", "b"}) owners_.Add(MakeNode(name));
  const Gang& gang = Gang2("train");
  owners_.Place(gang);
  owners_.placement.SetCommitting(gang.id, true);
  const std::string kept = FixedOf(gang).at("pod-train-0");
  const std::string lost = FixedOf(gang).at("pod-train-1");
  kube::Node node = MakeNode(lost);
  node.ready = false;
  owners_.Add(node);
  owners_.placement.Sync(gang);
  EXPECT_THAT(FixedOf(gang), ElementsAre(Pair("pod-train-0", kept)));
}

TEST_F(PlacementTest, AHeartbeatPlansNobody) {
  owners_.Add(MakeNode("a"));
  const Gang& gang = Gang2("train");
  owners_.Place(gang);
  EXPECT_EQ(PlansFor([&] { owners_.snapshot.Upsert(MakeNode("a")); }), 0u);
}

TEST_F(PlacementTest, AFullNodeThatLosesEvenMoreRoomPlansNobody) {
  // Large enough that what is shown isn't made true again at once.
  for (int i = 0; i < 20'001; ++i) {
    kube::Node full = MakeNode("full-" + std::to_string(i));
    full.allocatable.Set("nvidia.com/gpu", 7);
    owners_.snapshot.Upsert(std::move(full));
  }
  owners_.placement.Observe(owners_.snapshot.TakeJournal());
  owners_.Place(Gang2("train"));
  EXPECT_EQ(
      PlansFor([&] {
        owners_.snapshot.Upsert(BoundTo(MakePod("stranger", {{"nvidia.com/gpu", 1}}), "full-7"));
      }),
      0u);
  EXPECT_EQ(PlansFor([&] { owners_.snapshot.RemovePod("pod-stranger"); }), 0u)
      << "7 GPUs are free again, and members ask for 8";
  EXPECT_EQ(PlansFor([&] { owners_.snapshot.Upsert(MakeNode("one")); }), 0u)
      << "one of the two members has room now";
  EXPECT_GE(PlansFor([&] { owners_.snapshot.Upsert(MakeNode("two")); }), 1u);
}

TEST_F(PlacementTest, MembersThatAskForNoDeviceAreOfferedANodeToo) {
  for (int i = 0; i < 20'001; ++i) {
    kube::Node full = MakeNode("full-" + std::to_string(i));
    full.allocatable.Set("pods", 0);
    owners_.snapshot.Upsert(std::move(full));
  }
  owners_.placement.Observe(owners_.snapshot.TakeJournal());
  const Gang& gang = owners_.AddGang("plain", {MakePod("plain-0"), MakePod("plain-1")});
  EXPECT_THAT(owners_.Place(gang).fixed, IsEmpty());
  owners_.Add(MakeNode("one"));
  Plan();
  EXPECT_THAT(FixedOf(gang), SizeIs(2));
}

TEST_F(PlacementTest, ARefusedNodeIsLeftOutForAWhile) {
  for (const char* name : {"a", "b", "c"}) owners_.Add(MakeNode(name));
  const Gang& gang = Gang2("train");
  owners_.Place(gang);
  const std::string refused = FixedOf(gang).at("pod-train-0");
  EXPECT_FALSE(owners_.placement.Refuse(gang, "pod-train-0", "elsewhere", {}))
      << "an answer to an older plan";
  EXPECT_TRUE(owners_.placement.Refuse(gang, "pod-train-0", refused, {}));
  owners_.Place(gang);
  ASSERT_THAT(FixedOf(gang), SizeIs(2));
  for (const auto& [uid, node] : FixedOf(gang)) EXPECT_NE(node, refused);
}

TEST_F(PlacementTest, APlaceWhoseBindingIsAskedForIsKept) {
  for (const char* name : {"a", "b"}) owners_.Add(MakeNode(name));
  const Gang& gang = Gang2("train");
  owners_.Place(gang);
  const std::string pinned = FixedOf(gang).at("pod-train-0");
  owners_.placement.Pin(gang.id, "pod-train-0");
  kube::Node node = MakeNode(FixedOf(gang).at("pod-train-1"));
  node.ready = false;
  owners_.Add(node);
  owners_.placement.Sync(gang);
  EXPECT_THAT(FixedOf(gang), ElementsAre(Pair("pod-train-0", pinned)));
}

// Too many gangs and nodes for all to be planned again after any change.
class PreemptionTest : public PlacementTest {
 protected:
  static EngineOptions Large() {
    EngineOptions options;
    options.explanation_budget = 0;
    return options;
  }
  // Two of its members stand on nodes a and b.
  const Gang& Standing(const std::string& name) {
    return large_.AddGang(
        name, {BoundTo(WholeNode(name + "-0"), "a"), BoundTo(WholeNode(name + "-1"), "b")});
  }
  const Gang& Waiting(const std::string& name, int32_t priority) {
    return large_.AddGang(name,
                          {WholeNode(name + "-0", priority), WholeNode(name + "-1", priority)});
  }
  void Remove(const std::string& uid) {
    large_.gangs.Leave(*large_.snapshot.FindPod(uid));
    large_.snapshot.RemovePod(uid);
    large_.placement.Observe(large_.snapshot.TakeJournal());
    large_.placement.PlanWaiting();
  }

  TestOwners large_{Large()};
};

TEST_F(PreemptionTest, RoomIsKeptUntilAllHaveGoneAndTakenThen) {
  large_.Add(MakeNode("a"));
  large_.Add(MakeNode("b"));
  const Gang& low = Standing("low");
  large_.placement.Sync(low);
  const Gang& high = Waiting("high", 5);
  EXPECT_THAT(large_.Place(high).tentative, SizeIs(2));
  EXPECT_EQ(large_.placement.Of(high).awaits, "2 of gang default/low");
  EXPECT_FALSE(large_.placement.Of(high).short_of_nodes);
  EXPECT_EQ(large_.placement.preempted_gangs(), 1);
  EXPECT_TRUE(large_.quota.IsLeaving(low));
  Remove("pod-low-0");
  const Gang& small = large_.AddGang("small", {WholeNode("small-0")});
  EXPECT_THAT(large_.Place(small).fixed, IsEmpty()) << "what is free is kept";
  EXPECT_EQ(large_.placement.Of(high).awaits, "1 of gang default/low");
  Remove("pod-low-1");
  EXPECT_THAT(large_.placement.Of(high).fixed, SizeIs(2));
  EXPECT_EQ(large_.placement.Of(high).awaits, "");
  EXPECT_EQ(large_.placement.preempted_gangs(), 1);
}

TEST_F(PreemptionTest, WhoBeginsToStandLaterGoesToo) {
  large_.Add(MakeNode("a"));
  large_.Add(MakeNode("b"));
  const Gang& low = Standing("low");
  const Gang& high = Waiting("high", 5);
  EXPECT_TRUE(large_.Place(high).short_of_nodes) << "it isn't known yet who stands there";
  large_.placement.Sync(low);
  large_.placement.PlanWaiting();
  EXPECT_EQ(large_.placement.Of(high).awaits, "2 of gang default/low");
}

TEST_F(PreemptionTest, NobodyGoesForThoseOfEqualPriorityOrTooManyMembers) {
  large_.Add(MakeNode("a"));
  large_.Add(MakeNode("b"));
  large_.placement.Sync(Standing("low"));
  EXPECT_TRUE(large_.Place(Waiting("equal", 0)).short_of_nodes);
  EXPECT_TRUE(large_
                  .Place(large_.AddGang("large", {WholeNode("large-0", 5), WholeNode("large-1", 5),
                                                  WholeNode("large-2", 5)}))
                  .short_of_nodes);
  EXPECT_EQ(large_.placement.preempted_gangs(), 0);
}

TEST_F(PlacementTest, TheGangsOnANodeAreFound) {
  owners_.Add(MakeNode("a"));
  owners_.Add(MakeNode("b"));
  const Gang& gang = Gang2("train");
  owners_.Place(gang);
  EXPECT_THAT(owners_.placement.GangsOn("a"), ElementsAre(gang.id));
  owners_.placement.Forget(gang.id);
  EXPECT_THAT(owners_.placement.GangsOn("a"), IsEmpty());
}

}  // namespace
}  // namespace muster::coscheduling
