// Where gangs are too many to be planned again after every change, only what nodes gained wakes
// them: nobody may be overlooked.

#include "tests/bench/engine_world.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"

namespace muster::bench {
namespace {

constexpr int kNodes = 60;
constexpr int kGangs = 80;
constexpr int kSteps = 400;

class Changes {
 public:
  explicit Changes(uint64_t seed)
      : random_(seed),
        world_({.gangs = kGangs, .nodes = kNodes, .services = kNodes, .explanation_budget = 0}) {
    for (int node = 0; node < kNodes; ++node) let_.insert(node);
    world_.Settle();
  }

  EngineWorld& world() { return world_; }

  // Returns what happened.
  std::string Next() {
    // Not long enough for many to be planned in turn.
    world_.Pass(absl::Milliseconds(20));
    const std::string text = Happen();
    world_.Settle();
    for (EngineWorld::Bound& bound : world_.TakeBound()) {
      ++bound_;
      running_.emplace(bound.gang, std::move(bound.nodes));
    }
    return text;
  }
  int bound() const { return bound_; }

 private:
  int Draw(size_t below) { return static_cast<int>(random_() % below); }

  bool IsEmpty(int node) const {
    if (let_.contains(node)) return false;
    for (const auto& [gang, nodes] : running_) {
      if (nodes.contains(NodeName(node))) return false;
    }
    return true;
  }

  std::string Happen() {
    const int node = Draw(kNodes);
    switch (Draw(8)) {
      case 0:
      case 1:
      case 2:
        if (let_.erase(node) == 0) return "nothing";
        world_.TenantGoes(node);
        return fmt::format("the tenant of node {} goes", node);
      case 3:
      case 4:
        if (!IsEmpty(node)) return "nothing";
        let_.insert(node);
        world_.TenantComes(node);
        return fmt::format("a tenant comes to node {}", node);
      case 5: {
        if (running_.empty()) return "nothing";
        const auto gang = std::next(running_.begin(), Draw(running_.size()));
        const std::string name = gang->first;
        const int shape = world_.ShapeOf(name);
        running_.erase(gang);
        world_.GangGoes(name);
        return fmt::format("{} is over, and {} comes", name, world_.GangComes(shape));
      }
      case 6: {
        const std::string name = world_.AnyWaitingGang(random_());
        const int shape = world_.ShapeOf(name);
        world_.GangGoes(name);
        return fmt::format("{} is deleted, and {} comes", name, world_.GangComes(shape + 1));
      }
      default:
        world_.ServiceGoes(world_.services()[Draw(world_.services().size())]);
        return world_.ServiceComes(node) + " comes, another one goes";
    }
  }

  std::mt19937_64 random_;
  EngineWorld world_;
  std::set<int> let_;
  std::map<std::string, std::set<std::string>> running_;
  int bound_ = 0;
};

TEST(EngineWorld, NobodyWaitsWhoWouldFit) {
  for (int seed = 1; seed <= 4; ++seed) {
    Changes changes(seed);
    std::string history;
    for (int i = 0; i < kSteps; ++i) {
      history += changes.Next() + "\n";
      ASSERT_EQ(changes.world().FitsButWaits(), "") << "seed " << seed << ", after\n" << history;
    }
    EXPECT_GT(changes.bound(), kSteps / 20) << "seed " << seed;
  }
}

}  // namespace
}  // namespace muster::bench
