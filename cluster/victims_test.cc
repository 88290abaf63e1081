#include "cluster/victims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "cluster/test_objects.h"
#include "fmt/format.h"

namespace muster::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kGpu[] = "nvidia.com/gpu";

kube::PodDisruptionBudget Budget(const std::string& name, int64_t allowed) {
  kube::PodDisruptionBudget budget;
  budget.meta.name = name;
  budget.meta.name_space = "default";
  budget.selector = kube::LabelSelector{{test::In(name, {"yes"})}};
  budget.disruptions_allowed = allowed;
  return budget;
}

// Nodes of so many free GPUs, groups that stand there, and how many members of how many GPUs are to
// find room.
struct Case {
  std::map<std::string, int64_t> free;
  std::vector<EvictableGroup> groups;
  std::vector<std::unique_ptr<kube::Pod>> pods;
  std::vector<int64_t> asked;
  DisruptionBudgets budgets;
  std::vector<const kube::Pod*> leaving;
  mutable int asked_fits = 0;

  EvictableGroup& Add(const std::string& name, int64_t priority, int created, size_t needed) {
    groups.push_back({.name = name,
                      .priority = priority,
                      .created = absl::FromUnixSeconds(created),
                      .members = {},
                      .needed = needed});
    return groups.back();
  }
  kube::Pod& Member(EvictableGroup& group, const std::string& node, int64_t gpus) {
    pods.push_back(std::make_unique<kube::Pod>(test::BoundTo(
        test::MakePod(fmt::format("{}-{}", group.name, group.members.size()), {{kGpu, gpus}}),
        node)));
    group.members.push_back(pods.back().get());
    return *pods.back();
  }

  static bool Pack(std::map<std::string, int64_t>& room, const std::vector<int64_t>& asked,
                   size_t at) {
    if (at == asked.size()) return true;
    std::set<int64_t> tried;
    for (auto& [node, gpus] : room) {
      if (gpus < asked[at] || !tried.insert(gpus).second) continue;
      gpus -= asked[at];
      const bool packed = Pack(room, asked, at + 1);
      gpus += asked[at];
      if (packed) return true;
    }
    return false;
  }
  bool Fits(const std::vector<const kube::Pod*>& gone) const {
    ++asked_fits;
    std::map<std::string, int64_t> room = free;
    for (const kube::Pod* pod : gone) room[pod->node_name] += pod->spec->requests.Get(kGpu);
    return Pack(room, asked, 0);
  }
  std::optional<Victims> Choose() const {
    return ChooseVictims(groups, budgets, leaving, [this](const auto& gone) { return Fits(gone); });
  }
  std::vector<std::string> Names() const {
    const std::optional<Victims> victims = Choose();
    if (!victims) return {"nobody helps"};
    std::vector<std::string> names;
    for (const kube::Pod* pod : victims->surplus) names.push_back(pod->meta.name);
    for (size_t group : victims->whole) names.push_back(groups[group].name);
    return names;
  }
};

TEST(Victims, NobodyGoesWhereAllFit) {
  Case c;
  c.free = {{"a", 2}};
  c.Member(c.Add("g", 0, 1, 1), "a", 1);
  c.asked = {1, 1};
  EXPECT_THAT(c.Names(), IsEmpty());
}

TEST(Victims, NobodyGoesForWhatStillWouldNotFit) {
  Case c;
  c.Member(c.Add("g", 0, 1, 1), "a", 4);
  c.asked = {4, 1};
  EXPECT_THAT(c.Names(), ElementsAre("nobody helps"));
}

TEST(Victims, AreOfTheLowestPriorityThenTheYoungestThenOfTheFewestDevices) {
  Case c;
  c.Member(c.Add("high", 2, 9, 1), "a", 1);
  c.Member(c.Add("old", 1, 1, 1), "a", 1);
  c.Member(c.Add("young", 1, 3, 1), "a", 1);
  EvictableGroup& large = c.Add("large", 1, 5, 2);
  c.Member(large, "a", 1);
  c.Member(large, "b", 1);
  c.Member(c.Add("small", 1, 5, 1), "a", 1);
  c.asked = {1};
  EXPECT_THAT(c.Names(), ElementsAre("small"));
  c.asked = {2};
  EXPECT_THAT(c.Names(), ElementsAre("small", "large"));
  c.asked = {3};
  EXPECT_THAT(c.Names(), ElementsAre("small", "large", "young"));
  c.asked = {5};
  EXPECT_THAT(c.Names(), ElementsAre("small", "large", "young", "old", "high"));
}

TEST(Victims, AreMembersBeyondThoseThatTheirGroupNeedsFirst) {
  Case c;
  EvictableGroup& elastic = c.Add("elastic", 5, 1, 1);
  for (int i = 0; i < 3; ++i) c.Member(elastic, "a", 1);
  c.Member(c.Add("low", 0, 2, 1), "a", 1);
  c.asked = {1};
  EXPECT_THAT(c.Names(), ElementsAre("elastic-2"));
  c.asked = {2};
  EXPECT_THAT(c.Names(), ElementsAre("elastic-2", "elastic-1"));
  c.asked = {3};
  EXPECT_THAT(c.Names(), ElementsAre("elastic-2", "elastic-1", "low"));
  c.asked = {4};
  EXPECT_THAT(c.Names(), ElementsAre("low", "elastic"));
  EXPECT_EQ(c.Choose()->pods.size(), 4);
}

TEST(Victims, WhomTheBudgetsProtectStay) {
  Case c;
  for (const char* name : {"x", "y"}) {
    EvictableGroup& group = c.Add(name, 0, name[0], 2);
    for (const char* node : {"a", "b"}) c.Member(group, node, 1).meta.labels[name] = "yes";
  }
  c.asked = {1, 1};
  EXPECT_THAT(c.Names(), ElementsAre("y"));
  c.budgets.Upsert(Budget("y", 1));
  EXPECT_THAT(c.Names(), ElementsAre("x"));
  c.budgets.Upsert(Budget("x", 1));
  EXPECT_THAT(c.Names(), ElementsAre("nobody helps"));
  c.budgets.Upsert(Budget("x", 2));
  EXPECT_THAT(c.Names(), ElementsAre("x"));
  c.leaving = {c.groups[0].members[0]};
  EXPECT_THAT(c.Names(), ElementsAre("nobody helps"));
}

TEST(Victims, WithoutSharedBudgetsAreFoundInAFewSteps) {
  Case c;
  for (int i = 0; i < 1000; ++i) c.Member(c.Add(fmt::format("g{:04}", i), 0, i, 1), "a", 1);
  c.asked = {3};
  EXPECT_THAT(c.Names(), ElementsAre("g0999", "g0998", "g0997"));
  EXPECT_LE(c.asked_fits, 50);
}

// A budget that many share is given out in the order of the rule once the trials are used up.
TEST(Victims, OfManyThatShareABudgetAreFoundAllTheSame) {
  Case c;
  for (int i = 0; i < 400; ++i) {
    c.Member(c.Add(fmt::format("g{:04}", i), 0, i, 1), i < 200 ? "a" : "b", 1).meta.labels["kept"] =
        "yes";
  }
  c.budgets.Upsert(Budget("kept", 1));
  c.asked = {1};
  EXPECT_THAT(c.Names(), ElementsAre("g0399"));
  c.asked = {2};
  EXPECT_THAT(c.Names(), ElementsAre("nobody helps"));
}

// --- against all sets there are ---

struct Ranked {
  bool whole;
  int64_t priority;
  int64_t age;
  int64_t gpus;
  std::string name;
  int rank;
  auto operator<=>(const Ranked&) const = default;
};

// The best of all sets, least dispensable first; nullopt if none makes room.
std::optional<std::vector<Ranked>> BestByTrying(const Case& c, const std::vector<int>& budgets,
                                                const std::map<std::string, int>& budget_of) {
  struct Unit {
    size_t group;
    Ranked ranked;
    std::vector<const kube::Pod*> pods;
  };
  std::vector<Unit> units;
  for (size_t i = 0; i < c.groups.size(); ++i) {
    const EvictableGroup& group = c.groups[i];
    int64_t all = 0;
    for (size_t m = 0; m < group.members.size(); ++m) {
      const int64_t gpus = group.members[m]->spec->requests.Get(kGpu);
      all += gpus;
      if (m < group.needed) continue;
      units.push_back({i,
                       {false, group.priority, -absl::ToUnixSeconds(group.created), gpus,
                        group.name, -static_cast<int>(m)},
                       {group.members[m]}});
    }
    units.push_back(
        {i,
         {true, group.priority, -absl::ToUnixSeconds(group.created), all, group.name, 0},
         group.members});
  }
  std::optional<std::vector<Ranked>> best;
  for (uint64_t set = 0; set < (uint64_t{1} << units.size()); ++set) {
    std::set<size_t> whole;
    for (size_t i = 0; i < units.size(); ++i) {
      if ((set >> i & 1) != 0 && units[i].ranked.whole) whole.insert(units[i].group);
    }
    std::vector<Ranked> ranked;
    std::vector<const kube::Pod*> gone;
    std::vector<int> left = budgets;
    bool good = true;
    for (size_t i = 0; i < units.size() && good; ++i) {
      if ((set >> i & 1) == 0) continue;
      good = units[i].ranked.whole || !whole.contains(units[i].group);
      ranked.push_back(units[i].ranked);
      for (const kube::Pod* pod : units[i].pods) {
        gone.push_back(pod);
        const auto budget = budget_of.find(pod->meta.name);
        good &= budget == budget_of.end() || --left[budget->second] >= 0;
      }
    }
    if (!good || !c.Fits(gone)) continue;
    std::ranges::sort(ranked, std::greater<>());
    if (!best || ranked < *best) best = ranked;
  }
  return best;
}

TEST(Victims, AreThoseOfTheRuleInRandomClusters) {
  std::mt19937_64 random(20);
  const auto pick = [&](int n) { return static_cast<int>(random() % n); };
  int chosen = 0;
  int refused = 0;
  int limited = 0;
  for (int round = 0; round < 1500; ++round) {
    Case c;
    const int nodes = 1 + pick(4);
    for (int i = 0; i < nodes; ++i) c.free[fmt::format("n{}", i)] = pick(3);
    const std::vector<int> budgets = {pick(3), pick(3)};
    for (int i = 0; i < 2; ++i) c.budgets.Upsert(Budget(fmt::format("b{}", i), budgets[i]));
    std::map<std::string, int> budget_of;
    int units = 0;
    for (int i = 0; units < 9 && i < 6; ++i) {
      const size_t members = 1 + pick(3);
      const size_t needed = 1 + pick(static_cast<int>(members));
      units += static_cast<int>(1 + members - needed);
      EvictableGroup& group = c.Add(fmt::format("g{}", i), pick(3), pick(3), needed);
      for (size_t m = 0; m < members; ++m) {
        kube::Pod& pod = c.Member(group, fmt::format("n{}", pick(nodes)), 1 + pick(3));
        if (pick(3) > 0) continue;
        const int budget = pick(2);
        budget_of[pod.meta.name] = budget;
        pod.meta.labels[fmt::format("b{}", budget)] = "yes";
      }
    }
    const int asked = 1 + pick(4);
    const int gpus = 1 + pick(4);
    for (int i = 0; i < asked; ++i) c.asked.push_back(pick(4) == 0 ? 1 + pick(4) : gpus);
    const auto best = BestByTrying(c, budgets, budget_of);
    const std::optional<Victims> found = c.Choose();
    ASSERT_EQ(best.has_value(), found.has_value()) << "round " << round;
    if (!found) {
      ++refused;
      continue;
    }
    std::vector<std::string> want;
    std::vector<std::string> names;
    for (const Ranked& ranked : *best) {
      want.push_back(ranked.whole ? ranked.name : fmt::format("{}-{}", ranked.name, -ranked.rank));
    }
    std::ranges::reverse(want);
    for (const kube::Pod* pod : found->surplus) names.push_back(pod->meta.name);
    for (size_t group : found->whole) names.push_back(c.groups[group].name);
    ASSERT_EQ(names, want) << "round " << round;
    std::set<const kube::Pod*> pods(found->pods.begin(), found->pods.end());
    EXPECT_EQ(pods.size(), found->pods.size());
    size_t expected = found->surplus.size();
    for (size_t group : found->whole) expected += c.groups[group].members.size();
    EXPECT_EQ(pods.size(), expected);
    if (!names.empty()) ++chosen;
    for (const kube::Pod* pod : found->pods) limited += budget_of.contains(pod->meta.name) ? 1 : 0;
  }
  EXPECT_GT(chosen, 300);
  EXPECT_GT(refused, 30);
  EXPECT_GT(limited, 100);
}

}  // namespace
}  // namespace muster::cluster
