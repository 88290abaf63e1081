#include "cluster/soonest_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cluster/test_objects.h"

namespace muster::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr absl::Time kNotKnown = absl::InfiniteFuture();
constexpr int64_t kMany = std::numeric_limits<int32_t>::max();

absl::Time Second(int64_t seconds) { return absl::FromUnixSeconds(seconds); }

// A node of 8 GPUs on which these pods stand: their GPUs, and when they end.
FreeingNode NodeWith(std::string_view name,
                     const std::vector<std::pair<int64_t, absl::Time>>& pods) {
  FreeingNode node = {.name = name, .free = {8}, .takes = {true}, .endings = {}};
  for (const auto& [gpus, ends] : pods) {
    node.free[0] -= gpus;
    node.endings.push_back({{ends, ends}, {gpus}});
  }
  return node;
}

std::vector<WaitingClass> MembersOf(int64_t count, int64_t gpus) {
  return {{count, {gpus}, kMany}};
}

TEST(FindSoonest, TakesTheNodesThatFreeFirst) {
  const std::vector<FreeingNode> nodes = {NodeWith("a", {{8, Second(30)}}),
                                          NodeWith("b", {{8, Second(10)}}),
                                          NodeWith("c", {{8, Second(20)}})};
  const auto set = FindSoonest(nodes, MembersOf(2, 8), 2);
  ASSERT_TRUE(set);
  EXPECT_EQ(set->free_by, Second(20));
  EXPECT_THAT(set->nodes, UnorderedElementsAre(1, 2));
}

TEST(FindSoonest, WhatIsFreeNowIsFreeInThePast) {
  const auto set = FindSoonest({NodeWith("a", {{4, kNotKnown}}), NodeWith("b", {{8, Second(9)}})},
                               MembersOf(2, 2), 2);
  ASSERT_TRUE(set);
  EXPECT_EQ(set->free_by, absl::InfinitePast());
  EXPECT_THAT(set->nodes, ElementsAre(0));
}

TEST(FindSoonest, WhereEndsAreNotKnownItTakesFromWhichLeastHasToGo) {
  const std::vector<FreeingNode> nodes = {NodeWith("a", {{8, kNotKnown}}),
                                          NodeWith("b", {{2, kNotKnown}}),
                                          NodeWith("c", {{8, Second(50)}})};
  const auto set = FindSoonest(nodes, MembersOf(2, 8), 2);
  ASSERT_TRUE(set);
  EXPECT_EQ(set->free_by, kNotKnown);
  EXPECT_THAT(set->nodes, UnorderedElementsAre(1, 2));
}

TEST(FindSoonest, WhatIsExpectedChoosesNothingButTellsWhen) {
  std::vector<FreeingNode> nodes = {NodeWith("a", {{8, Second(90)}}),
                                    NodeWith("b", {{8, kNotKnown}})};
  nodes[1].endings[0].leaves.expected = Second(5);
  auto set = FindSoonest(nodes, MembersOf(1, 8), 1);
  ASSERT_TRUE(set);
  EXPECT_THAT(set->nodes, ElementsAre(0));
  EXPECT_EQ(set->expected, Second(90));
  set = FindSoonest(nodes, MembersOf(2, 8), 2);
  ASSERT_TRUE(set);
  EXPECT_EQ(set->free_by, kNotKnown);
  EXPECT_EQ(set->expected, Second(90));
}

TEST(FindSoonest, ASetLiesInOneDomain) {
  std::vector<FreeingNode> nodes = {NodeWith("a", {}), NodeWith("b", {{8, Second(9)}}),
                                    NodeWith("c", {{8, Second(3)}})};
  nodes[0].domain = nodes[1].domain = 1;
  nodes[2].domain = 2;
  const auto set = FindSoonest(nodes, MembersOf(2, 8), 2);
  ASSERT_TRUE(set);
  EXPECT_THAT(set->nodes, UnorderedElementsAre(0, 1));
  EXPECT_FALSE(FindSoonest(nodes, MembersOf(3, 8), 3));
}

TEST(FindSoonest, OfSeveralClassesEachMemberHasItsRoom) {
  std::vector<FreeingNode> nodes = {NodeWith("a", {{6, Second(7)}}),
                                    NodeWith("b", {{8, kNotKnown}})};
  for (FreeingNode& node : nodes) node.takes = {true, true};
  const auto set = FindSoonest(nodes, {{1, {6}, kMany}, {2, {1}, kMany}}, 3);
  ASSERT_TRUE(set);
  EXPECT_EQ(set->free_by, Second(7));
  EXPECT_THAT(set->nodes, ElementsAre(0));
}

// What is exact for one class agrees with the search that several take.
TEST(FindSoonest, OneClassIsFoundAsSeveralAre) {
  for (uint32_t seed = 0; seed < 2'000; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    std::vector<FreeingNode> nodes;
    std::vector<std::string> names;
    for (int64_t i = draw(1, 6); i > 0; --i) names.push_back("n" + std::to_string(i));
    for (const std::string& name : names) {
      FreeingNode& node = nodes.emplace_back(FreeingNode{
          .name = name, .free = {draw(0, 4), draw(0, 9)}, .takes = {true, true}, .endings = {}});
      for (int64_t i = draw(0, 4); i > 0; --i) {
        const absl::Time at = draw(0, 3) == 0 ? kNotKnown : Second(draw(1, 9));
        node.endings.push_back({{at, at}, {draw(0, 4), draw(0, 4)}});
      }
    }
    const WaitingClass members = {draw(1, 8), {draw(1, 4), draw(0, 3)}, draw(1, 3)};
    const auto one = FindSoonest(nodes, {members}, members.members);
    const auto several = FindSoonest(nodes, {members, {0, members.asks, 1}}, members.members);
    ASSERT_EQ(one.has_value(), several.has_value()) << seed;
    if (!one) continue;
    EXPECT_EQ(one->free_by, several->free_by) << seed;
    EXPECT_EQ(one->nodes, several->nodes) << seed;
  }
}

// --- on a snapshot ---

class SoonestRoomTest : public ::testing::Test {
 protected:
  // A pod that takes 8 GPUs of the node; `ends` says when it is gone.
  void Fill(const std::string& node, absl::Time ends) {
    const kube::Pod pod = test::MakePod("on-" + node, {{"nvidia.com/gpu", 8}});
    ends_[pod.meta.uid] = ends;
    snapshot_.Upsert(test::BoundTo(pod, node));
  }
  // For so many members of 8 GPUs.
  RoomWanted Wanted(int members) {
    domains_.Follow(snapshot_);
    RoomWanted wanted;
    for (int i = 0; i < members; ++i) {
      pods_.push_back(std::make_unique<kube::Pod>(
          test::MakePod("m" + std::to_string(pods_.size()), {{"nvidia.com/gpu", 8}})));
      wanted.members.push_back(pods_.back().get());
    }
    wanted.required = members;
    wanted.tree = &domains_;
    wanted.may_use_pool = [](std::string_view) { return true; };
    wanted.leaves = [this](const kube::Pod& pod) -> std::optional<Departure> {
      if (StaysWithNode(pod)) return std::nullopt;
      return Departure{ends_[pod.meta.uid], ends_[pod.meta.uid]};
    };
    return wanted;
  }

  Snapshot snapshot_;
  Domains domains_;
  FreeingNodes freeing_{[this](const kube::Pod& pod) { return ends_.contains(pod.meta.uid); }};
  std::map<std::string, absl::Time> ends_;
  std::vector<std::unique_ptr<kube::Pod>> pods_;
};

TEST_F(SoonestRoomTest, NamesTheNodesThatFreeSoonestAndWhatIdlesOnThem) {
  for (const char* node : {"a", "b", "c"}) snapshot_.Upsert(test::MakeNode(node));
  Fill("a", Second(90));
  Fill("b", Second(20));
  const auto room = freeing_.FindSoonest(snapshot_, Wanted(2));
  ASSERT_TRUE(room);
  EXPECT_THAT(room->nodes, UnorderedElementsAre("b", "c"));
  EXPECT_EQ(room->free_by, Second(20));
  EXPECT_EQ(room->idle_gpus, 8);
  EXPECT_THAT(room->pools, ElementsAre("any,nvidia.com/gpu"));
}

TEST_F(SoonestRoomTest, LeavesOutNodesThatAreNotTheirs) {
  snapshot_.Upsert(test::MakeNode("a"));
  kube::Node cordoned = test::MakeNode("b");
  cordoned.unschedulable = true;
  snapshot_.Upsert(cordoned);
  snapshot_.Upsert(test::WithGpus(test::MakeNode("c"), 7, 8));
  snapshot_.Upsert(test::MakeNode("d"));
  RoomWanted wanted = Wanted(1);
  const std::set<std::string, std::less<>> excluded = {"a"};
  wanted.excluded = &excluded;
  const auto room = freeing_.FindSoonest(snapshot_, wanted);
  ASSERT_TRUE(room);
  EXPECT_THAT(room->nodes, ElementsAre("d"));
  wanted.required = 2;
  EXPECT_FALSE(freeing_.FindSoonest(snapshot_, wanted));
}

// One that preempts is counted where others still stand.
TEST_F(SoonestRoomTest, WhoIsToStandWhereAnotherOneStillDoesFreesNoMoreThanThereIs) {
  snapshot_.Upsert(test::MakeNode("a"));
  Fill("a", kNotKnown);
  const kube::Pod next = test::MakePod("next", {{"nvidia.com/gpu", 8}});
  ends_[next.meta.uid] = kNotKnown;
  snapshot_.Upsert(next);
  ASSERT_TRUE(snapshot_.Assume(next.meta.uid, "a").ok());
  RoomWanted wanted = Wanted(1);
  EXPECT_EQ(freeing_.FindSoonest(snapshot_, wanted)->free_by, kNotKnown);
  const kube::Pod large = test::MakePod("large", {{"nvidia.com/gpu", 9}});
  wanted.members = {&large};
  EXPECT_FALSE(freeing_.FindSoonest(snapshot_, wanted));
}

TEST_F(SoonestRoomTest, WhatStaysWithItsNodeNeverMakesRoom) {
  snapshot_.Upsert(test::MakeNode("a"));
  const kube::DaemonSet agent = test::MakeDaemonSet("agent", {{"nvidia.com/gpu", 1}});
  snapshot_.Upsert(test::PodOf(agent, "a"));
  EXPECT_FALSE(freeing_.FindSoonest(snapshot_, Wanted(1)));
}

TEST_F(SoonestRoomTest, ARequiredLevelIsOneDomainAndThatOfWhoStandsThere) {
  for (const auto& [name, zone] :
       {std::pair("a", "west"), std::pair("b", "west"), std::pair("c", "east")}) {
    snapshot_.Upsert(test::MakeNode(name, zone));
  }
  Fill("b", Second(50));
  RoomWanted wanted = Wanted(2);
  EXPECT_EQ(freeing_.FindSoonest(snapshot_, wanted)->free_by, absl::InfinitePast());
  wanted.level = domains_.LevelOf(kube::kZoneLabel);
  const auto room = freeing_.FindSoonest(snapshot_, wanted);
  ASSERT_TRUE(room);
  EXPECT_THAT(room->nodes, UnorderedElementsAre("a", "b"));
  EXPECT_EQ(room->free_by, Second(50));
  wanted.beside = snapshot_.FindNode("c")->slot;
  EXPECT_FALSE(freeing_.FindSoonest(snapshot_, wanted));
  wanted.level = domains_.LevelOf(kube::kHostnameLabel);
  EXPECT_FALSE(freeing_.FindSoonest(snapshot_, wanted));
}

// What is summed up, and followed change by change, gives what asking about each pod anew does.
TEST(FreeingNodes, FindWhatOnesThatHaveJustReadAllNodesFind) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t from, int64_t to) {
      return from + static_cast<int64_t>(random() % static_cast<uint64_t>(to - from + 1));
    };
    Snapshot snapshot;
    const auto is_told = [](const kube::Pod& pod) { return pod.meta.name.starts_with("told"); };
    const kube::DaemonSet agent = test::MakeDaemonSet("agent", {{"cpu", 500}});
    FreeingNodes followed(is_told);
    std::vector<kube::Pod> pods;
    std::vector<std::unique_ptr<kube::Pod>> members;
    for (int i = 0; i < 4; ++i) {
      members.push_back(std::make_unique<kube::Pod>(test::MakePod(
          "m" + std::to_string(i), {{"nvidia.com/gpu", draw(1, 8)}, {"cpu", draw(0, 9) * 1000}})));
    }
    RoomWanted wanted;
    for (const auto& member : members) wanted.members.push_back(member.get());
    wanted.may_use_pool = [](std::string_view) { return true; };
    wanted.leaves = [&](const kube::Pod& pod) -> std::optional<Departure> {
      if (StaysWithNode(pod)) return std::nullopt;
      const absl::Time ends =
          is_told(pod) ? Second(1'000 + pod.meta.name.size() % 7) : pod.GoneBy(Second(1));
      return Departure{ends, ends};
    };
    for (int step = 0; step < 60; ++step) {
      const std::string node = "n" + std::to_string(draw(0, 5));
      const int64_t kind = draw(0, 9);
      if (kind == 0) {
        snapshot.RemoveNode(node);
      } else if (kind <= 2) {
        kube::Node made = test::MakeNode(node);
        if (draw(0, 3) == 0) made.taints = {{"t", "", kube::TaintEffect::kNoSchedule}};
        made.unschedulable = draw(0, 4) == 0;
        snapshot.Upsert(made);
      } else if (kind == 3) {
        snapshot.Upsert(test::PodOf(agent, node));
      } else if (kind <= 6 || pods.empty()) {
        const std::string name = (draw(0, 1) == 1 ? "told" : "other") + std::to_string(step);
        pods.push_back(test::BoundTo(
            test::MakePod(name, {{"nvidia.com/gpu", draw(0, 4)}, {"cpu", draw(0, 3) * 1000}}),
            node));
        snapshot.Upsert(pods.back());
      } else {
        kube::Pod& pod = pods[static_cast<size_t>(draw(0, static_cast<int64_t>(pods.size()) - 1))];
        if (kind == 7) pod.longest_seconds = draw(0, 90);
        if (kind == 8) pod.meta.deletion_time = Second(draw(1, 60));
        if (kind == 9) {
          snapshot.RemovePod(pod.meta.uid);
        } else {
          snapshot.Upsert(pod);
        }
      }
      if (draw(0, 2) > 0) continue;  // several changes at once
      wanted.required = draw(1, 4);
      FreeingNodes fresh([](const kube::Pod&) { return true; });
      EXPECT_EQ(followed.FindSoonest(snapshot, wanted), fresh.FindSoonest(snapshot, wanted));
      for (const auto& [pool, counts] : followed.pools()) {
        EXPECT_EQ(counts.nodes, fresh.pools().at(pool).nodes);
        EXPECT_EQ(counts.usable, fresh.pools().at(pool).usable);
      }
      EXPECT_EQ(followed.pools().size(), fresh.pools().size());
    }
  }
}

TEST(PoolOf, TellsTypesDevicesAndTaintsApart) {
  kube::Node node = test::MakeNode("a");
  EXPECT_EQ(PoolOf(node), PoolOf(test::MakeNode("b", "west")));
  const std::string plain = PoolOf(node);
  node.taints = {{"soft", "", kube::TaintEffect::kPreferNoSchedule}};
  EXPECT_EQ(PoolOf(node), plain);
  node.taints = {{"team", "a", kube::TaintEffect::kNoSchedule}};
  EXPECT_NE(PoolOf(node), plain);
  node = test::MakeNode("a");
  node.meta.labels[kube::kInstanceTypeLabel] = "p5.48xlarge";
  EXPECT_NE(PoolOf(node), plain);
  EXPECT_NE(PoolOf(test::WithGpus(test::MakeNode("a"), 0, 0)), plain);
}

}  // namespace
}  // namespace muster::cluster
