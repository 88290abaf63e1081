#include "cluster/reservations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace muster::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsNull;
using ::testing::NotNull;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr absl::Time kUnknown = absl::InfiniteFuture();

absl::Time AtSecond(int64_t seconds) { return absl::FromUnixSeconds(seconds); }

PlaceInLine PlaceOf(int number) {
  PlaceInLine place;
  place.created = number;
  place.id = static_cast<uint64_t>(number);
  return place;
}

Reservation ReservationOf(int number, std::set<std::string, std::less<>> nodes,
                          absl::Time free_by = kUnknown, int64_t idle = 0) {
  Reservation one;
  one.holder = PlaceOf(number);
  one.room.nodes = std::move(nodes);
  one.room.pools = {"p"};
  one.room.free_by = one.room.expected = free_by;
  one.in_force = true;
  one.room.idle_gpus = idle;
  return one;
}

// At which all sets are sought anew.
void BeginPass(Reservations* all, absl::Time now) {
  all->NoteFreed();
  all->BeginPass(0, /*at_every_change=*/true, now);
}

// What is sought is found as it says.
void Consider(Reservations* all, const Reservation& one) {
  all->Consider(one, one.holder.id, 1, [&] { return one.room; });
}

Reservations::Changes PassOver(Reservations* all, const std::vector<Reservation>& kept,
                               absl::Time now) {
  BeginPass(all, now);
  for (const Reservation& one : kept) Consider(all, one);
  return all->EndPass();
}

TEST(Reservations, KeepWhoStandsFurtherDownAndWouldBeLate) {
  Reservations all({});
  PassOver(&all, {ReservationOf(5, {"a", "b"}, AtSecond(100))}, AtSecond(1));
  EXPECT_TRUE(all.IsKept("a", PlaceOf(9), kUnknown));
  EXPECT_TRUE(all.IsKept("a", PlaceOf(9), AtSecond(101)));
  EXPECT_FALSE(all.IsKept("a", PlaceOf(9), AtSecond(100)));
  EXPECT_FALSE(all.IsKept("a", PlaceOf(3), kUnknown));
  EXPECT_FALSE(all.IsKept("c", PlaceOf(9), kUnknown));
  EXPECT_TRUE(all.IsTaken("p", true));
}

TEST(Reservations, NobodyIsInTimeForWhatEndsAtNoKnownTime) {
  Reservations all({});
  PassOver(&all, {ReservationOf(5, {"a"})}, AtSecond(1));
  EXPECT_TRUE(all.IsKept("a", PlaceOf(9), AtSecond(2)));
  EXPECT_TRUE(all.IsKept("a", PlaceOf(9), kUnknown));
}

TEST(Reservations, APassTellsWhatOthersMayUseNow) {
  Reservations all({});
  EXPECT_THAT(PassOver(&all, {ReservationOf(5, {"a", "b"})}, AtSecond(1)).freed, IsEmpty());
  EXPECT_THAT(PassOver(&all, {ReservationOf(5, {"b", "c"})}, AtSecond(2)).freed, ElementsAre("a"));
  EXPECT_THAT(PassOver(&all, {}, AtSecond(3)).freed, ElementsAre("b", "c"));
}

TEST(Reservations, AfterSoManyIdleGpuSecondsOnePausesAsLongAsItStood) {
  Reservations all({.idle = 100});
  const std::vector<Reservation> same = {ReservationOf(5, {"a"}, kUnknown, 10)};
  PassOver(&all, same, AtSecond(0));
  EXPECT_EQ(all.NextChange(), AtSecond(10));
  EXPECT_DOUBLE_EQ(all.idle_gpu_seconds(AtSecond(4)), 40);
  EXPECT_THAT(PassOver(&all, same, AtSecond(10)).freed, ElementsAre("a"));
  EXPECT_THAT(all.Of(5), IsNull());
  EXPECT_THAT(all.all(), SizeIs(1));
  EXPECT_EQ(all.NextChange(), AtSecond(20));
  PassOver(&all, same, AtSecond(20));
  EXPECT_THAT(all.Of(5), NotNull());
  EXPECT_DOUBLE_EQ(all.idle_gpu_seconds(AtSecond(22)), 120);
}

TEST(Reservations, OneMayStandForSoLongInEachPeriod) {
  Reservations all({.time = absl::Seconds(10), .period = absl::Seconds(60)});
  const std::vector<Reservation> same = {ReservationOf(5, {"a"}, kUnknown, 8)};
  PassOver(&all, same, AtSecond(0));
  EXPECT_EQ(all.NextChange(), AtSecond(10));
  EXPECT_THAT(PassOver(&all, same, AtSecond(10)).freed, ElementsAre("a"));
  EXPECT_THAT(all.Of(5), IsNull());
  EXPECT_EQ(all.NextChange(), AtSecond(60));
  PassOver(&all, same, AtSecond(60));
  EXPECT_THAT(all.Of(5), NotNull());
}

// It would have nothing of it, and who comes after it would stand behind nobody.
TEST(Reservations, WhoMayNotHaveOneKeepsNobodyFromHavingIt) {
  Reservations all({});
  Reservation waits = ReservationOf(5, {"a"});
  waits.entitled = waits.in_force = false;
  BeginPass(&all, AtSecond(1));
  Consider(&all, waits);
  EXPECT_FALSE(all.IsTaken("p", /*entitled=*/true));
  EXPECT_TRUE(all.IsTaken("p", /*entitled=*/false));
  Consider(&all, ReservationOf(7, {"a", "b"}));
  EXPECT_TRUE(all.IsTaken("p", true));
  EXPECT_THAT(all.EndPass().holders, UnorderedElementsAre(5, 7));
  EXPECT_FALSE(all.IsKept("a", PlaceOf(6), kUnknown));
  EXPECT_TRUE(all.IsKept("a", PlaceOf(9), kUnknown));
  EXPECT_EQ(all.in_force(), 1);
}

TEST(Reservations, SetsAreSoughtAnewOnceSomethingHasFreed) {
  Reservations all({});
  int sought = 0;
  const auto pass = [&](bool at_every_change, int second) {
    all.BeginPass(0, at_every_change, AtSecond(second));
    all.Consider(ReservationOf(5, {}), 0, 1, [&] {
      ++sought;
      return ReservationOf(5, {"a"}).room;
    });
    all.EndPass();
  };
  pass(true, 1);
  EXPECT_EQ(sought, 1);
  pass(true, 2);
  EXPECT_EQ(sought, 1);
  EXPECT_EQ(all.MaySeekFrom(AtSecond(2), 1, true), kUnknown);
  all.NoteFreed();
  EXPECT_EQ(all.MaySeekFrom(AtSecond(2), 1, true), AtSecond(2));
  // By so many nodes that it takes a while.
  EXPECT_EQ(all.MaySeekFrom(AtSecond(2), 100'000, false), AtSecond(6));
  pass(false, 1);
  EXPECT_EQ(sought, 1);
  pass(false, 2);
  EXPECT_EQ(sought, 2);
  EXPECT_TRUE(all.IsKept("a", PlaceOf(9), kUnknown));
}

TEST(Reservations, WhoIsAlikeAndNeedsNoLessFindsNoneEither) {
  Reservations all({});
  BeginPass(&all, AtSecond(1));
  int sought = 0;
  const auto none = [&]() -> std::optional<SoonestRoom> {
    ++sought;
    return std::nullopt;
  };
  all.Consider(ReservationOf(1, {}), /*alike=*/7, 4, none);
  all.Consider(ReservationOf(2, {}), 7, 4, none);
  EXPECT_EQ(sought, 1);
  all.Consider(ReservationOf(3, {}), 7, 3, none);
  all.Consider(ReservationOf(4, {}), 8, 4, none);
  EXPECT_EQ(sought, 3);
  EXPECT_THAT(all.EndPass().holders, IsEmpty());
}

TEST(Reservations, HigherPriorityComesFirstWhateverStandsOfTheOther) {
  PlaceInLine high = PlaceOf(9);
  high.less_important = -1000;
  PlaceInLine half_bound = PlaceOf(1);
  half_bound.need = PlaceInLine::Need::kRest;
  PlaceInLine surplus = PlaceOf(1);
  surplus.need = PlaceInLine::Need::kSurplus;
  EXPECT_LT(high, half_bound);
  EXPECT_LT(half_bound, PlaceOf(0));
  EXPECT_LT(PlaceOf(9), surplus);
}

TEST(Reservations, TellWhatIsKeptAndForWhom) {
  Reservation one = ReservationOf(5, {"a", "b", "c", "d"});
  one.holder.name = "default/big";
  EXPECT_EQ(one.ToString(),
            "4 node(s) are kept for it until it starts, it isn't known when all of them are free: "
            "a; b; c; and 1 more");
  EXPECT_EQ(one.ToStringForOthers(), "4 node(s) are kept for default/big, which comes first");
  one.room.nodes = {"a"};
  one.room.expected = AtSecond(65);
  EXPECT_EQ(one.ToString(),
            "1 node(s) are kept for it until it starts, all of them are expected to be free by "
            "00:01:05Z: a");
  one.room.free_by = AtSecond(65);
  EXPECT_EQ(one.ToString(),
            "1 node(s) are kept for it until it starts, all of them are free by 00:01:05Z: a");
}

// One pool, gangs of all sizes, those that go by the rule alone: nobody further down ever takes
// what is kept unless he is gone in time, and the first starts no later than all of the set that he
// had first is free.
TEST(Reservations, TheFirstStartsOnceTheWholeSetIsFree) {
  struct Gang {
    int id;
    int64_t members, gpus, length;
    bool is_bound;  // its end is certain
  };
  for (uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const int64_t count = draw(2, 6);
    std::vector<std::string> names;
    for (int64_t i = 0; i < count; ++i) names.push_back("n" + std::to_string(i));
    struct Pod {
      size_t node;
      int64_t gpus, ends;
      bool is_bound;
    };
    std::vector<Pod> pods;
    std::vector<Gang> waiting;
    Reservations all({});
    int holder = 0;
    int next_id = 1;
    std::set<std::string, std::less<>> first_set;  // that the holder had
    absl::Time free_by = kUnknown;                 // of its last one
    const bool all_bound = draw(0, 1) == 1;
    for (int64_t now = 0; now < 200 || (now < 9000 && !waiting.empty()); ++now) {
      std::erase_if(pods, [&](const Pod& pod) { return pod.ends <= now; });
      if (now < 200 && draw(0, 9) == 0) {
        const int64_t gpus = int64_t{1} << draw(0, 3);
        waiting.push_back({next_id++, draw(1, count * 8 / gpus), gpus, draw(1, 40),
                           all_bound || draw(0, 1) == 1});
      }
      BeginPass(&all, AtSecond(now));
      bool reserved = false;
      for (size_t g = 0; g < waiting.size();) {
        const Gang gang = waiting[g];
        const auto nodes_for = [&](bool kept) {
          std::vector<FreeingNode> nodes;
          for (size_t n = 0; n < names.size(); ++n) {
            const absl::Time gone = gang.is_bound ? AtSecond(now + gang.length) : kUnknown;
            if (kept && all.IsKept(names[n], PlaceOf(gang.id), gone)) continue;
            FreeingNode& node = nodes.emplace_back(
                FreeingNode{.name = names[n], .free = {8}, .takes = {true}, .endings = {}});
            for (const Pod& pod : pods) {
              if (pod.node != n) continue;
              const absl::Time ends = pod.is_bound ? AtSecond(pod.ends) : kUnknown;
              node.free[0] -= pod.gpus;
              node.endings.push_back({{ends, ends}, {pod.gpus}});
            }
          }
          return nodes;
        };
        const std::vector<FreeingNode> nodes = nodes_for(true);
        const std::vector<WaitingClass> members = {
            {gang.members, {gang.gpus}, std::numeric_limits<int32_t>::max()}};
        const auto set = FindSoonest(nodes, members, gang.members);
        if (set && set->free_by == absl::InfinitePast()) {
          int64_t left = gang.members;
          for (const size_t node : set->nodes) {
            const size_t n = std::ranges::find(names, nodes[node].name) - names.begin();
            const bool is_kept = all.IsKept(names[n], PlaceOf(gang.id), kUnknown);
            const absl::Time gone = AtSecond(now + gang.length);
            ASSERT_TRUE(!is_kept || (gang.is_bound && gone <= all.all().front().room.free_by));
            for (int64_t free = nodes[node].free[0]; free >= gang.gpus && left > 0; --left) {
              free -= gang.gpus;
              pods.push_back({n, gang.gpus, now + gang.length, gang.is_bound});
            }
          }
          ASSERT_EQ(left, 0);
          waiting.erase(waiting.begin() + static_cast<ptrdiff_t>(g));
          continue;
        }
        if (!reserved) {
          const auto own = FindSoonest(nodes_for(false), members, gang.members);
          ASSERT_TRUE(own) << seed;
          std::set<std::string, std::less<>> kept;
          for (const size_t node : own->nodes) kept.insert(names[node]);
          if (holder != gang.id) {
            first_set = kept;
            free_by = kUnknown;
          }
          holder = gang.id;
          // Of all of it being free, it would have started.
          ASSERT_TRUE(std::ranges::any_of(first_set, [&](const std::string& name) {
            const size_t n = std::ranges::find(names, name) - names.begin();
            return std::ranges::any_of(pods, [&](const Pod& pod) { return pod.node == n; });
          })) << seed;
          Reservation one = ReservationOf(gang.id, kept, own->free_by);
          ASSERT_LE(one.room.free_by, free_by) << seed;
          free_by = one.room.free_by;
          Consider(&all, one);
          reserved = true;
        }
        ++g;
      }
      all.EndPass();
    }
    EXPECT_TRUE(waiting.empty()) << seed;
  }
}

}  // namespace
}  // namespace muster::cluster
