// What a reservation for the first in line comes to, beside none and beside the guard that keeps
// freed room for a minute in five: how long large gangs wait, and what of the GPUs is used. A day
// of 2,000 gangs of 1 to 256 GPUs, with heavy-tailed sizes and run times, on a cluster of which the
// largest takes all, or a quarter. A gang that hasn't started counts with its wait so far.
//
// With MUSTER_FULL=1 all of it, five seeds of each of three loads; else a tenth of a day at one.
// MUSTER_ORDER_LOAD and MUSTER_ORDER_SEED choose a whole day of one load, or of one seed.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <future>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "simulation/draw.h"
#include "simulation/scenario.h"
#include "simulation/simulate.h"
#include "tests/full.h"

namespace muster::simulation {
namespace {

constexpr int64_t kGpusOfNode = 8;
constexpr int64_t kLargest = 256;
// From here on a gang counts as large.
constexpr int64_t kLarge = kLargest / 4;
// In thousands, of 1, 2, 4, ... 256 GPUs.
constexpr std::array<int64_t, 9> kShares = {350, 150, 120, 150, 100, 70, 40, 15, 5};

struct Day {
  const char* name;
  int nodes;
  bool ends_known;
};

struct Size {
  int gangs;
  absl::Duration length;
  std::vector<int> loads;  // in percent
  std::vector<int> seeds;
};

int FromEnvironment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

Size SizeOf() {
  Size whole = {2'000, absl::Hours(24), {70, 85, 95}, {1, 2, 3, 4, 5}};
  const int load = FromEnvironment("MUSTER_ORDER_LOAD");
  const int seed = FromEnvironment("MUSTER_ORDER_SEED");
  if (load > 0) whole.loads = {load};
  if (seed > 0) whole.seeds = {seed};
  if (load > 0 || seed > 0 || muster::testing::IsFull()) return whole;
  return {200, absl::Minutes(144), {85}, {1}};
}

int64_t DrawGpus(Draw* draw) {
  int64_t ticket = draw->Between(1, 1'000);
  int64_t gpus = 1;
  for (const int64_t share : kShares) {
    ticket -= share;
    if (ticket <= 0) break;
    gpus *= 2;
  }
  return gpus;
}

// Pareto's, of shape 1.1, cut off at a hundred times its least.
double DrawTail(Draw* draw) {
  constexpr double kShape = 1.1;
  const double u = static_cast<double>(draw->Between(0, 999'999)) / 1e6;
  return std::pow(1 - u * (1 - std::pow(100, -kShape)), -1 / kShape);
}

// All that the gangs ask for is `load` percent of what the cluster has.
Scenario DayOf(const Day& day, const Size& size, int load, uint64_t seed) {
  struct Drawn {
    absl::Duration at;
    int64_t gpus;
    double length;
  };
  Draw draw(seed, 0);
  std::vector<Drawn> gangs;
  double asked = 0;
  for (int i = 0; i < size.gangs; ++i) {
    const absl::Duration at = draw.In({absl::Seconds(1), size.length});
    const int64_t gpus = DrawGpus(&draw);
    const double length = DrawTail(&draw);
    gangs.push_back({at, gpus, length});
    asked += static_cast<double>(gpus) * length;
  }
  const double there = static_cast<double>(day.nodes * kGpusOfNode) *
                       absl::ToDoubleSeconds(size.length) * load / 100;
  std::ranges::sort(gangs, {}, &Drawn::at);
  Scenario scenario;
  scenario.name = day.name;
  scenario.file = day.name;
  NodeSpec node;
  node.name = "n";
  node.count = day.nodes;
  node.resources = {{"cpu", "192"},
                    {"memory", "2Ti"},
                    {"nvidia.com/gpu", std::to_string(kGpusOfNode)},
                    {"pods", "58"}};
  scenario.nodes.push_back(std::move(node));
  for (size_t i = 0; i < gangs.size(); ++i) {
    const Drawn& drawn = gangs[i];
    const auto seconds = std::max<int64_t>(10, std::llround(drawn.length * there / asked));
    GangSpec gang;
    gang.name = fmt::format("g{}-{}", drawn.gpus, i);
    gang.members = static_cast<int>(std::max<int64_t>(1, drawn.gpus / kGpusOfNode));
    gang.min_member = gang.members;
    gang.requests = {{"nvidia.com/gpu", std::to_string(std::min(drawn.gpus, kGpusOfNode))}};
    gang.run_time = absl::Seconds(seconds);
    if (day.ends_known) {
      gang.spec_json = fmt::format(
          R"({{"activeDeadlineSeconds":{},"terminationGracePeriodSeconds":1}})", seconds);
    }
    scenario.steps.push_back({.at = drawn.at, .action = std::move(gang)});
  }
  return scenario;
}

struct Result {
  std::vector<double> large, all;  // waits, seconds
  double used = 0, there = 0;      // GPU-seconds
  double kept_idle = 0;
};

void Add(const Outcome& outcome, Result* result) {
  for (const GangOutcome& gang : outcome.gangs) {
    const Millis until = gang.account.started.value_or(outcome.end);
    const double wait = static_cast<double>(until - gang.account.created) / 1000;
    const std::string size = gang.account.name.substr(gang.account.name.find('/') + 2);
    result->all.push_back(wait);
    if (std::stoll(size) >= kLarge) result->large.push_back(wait);
  }
  result->used += static_cast<double>(outcome.from_the_start.used) / 1000;
  result->there += static_cast<double>(outcome.from_the_start.bought) / 1000;
  result->kept_idle += outcome.kept_idle_gpu_seconds;
}

double Percentile(std::vector<double> values, double percent) {
  std::ranges::sort(values);
  const auto at =
      static_cast<size_t>(std::ceil(static_cast<double>(values.size()) * percent / 100));
  return values.at(std::max<size_t>(at, 1) - 1);
}

void Tell(const std::string& what, int load, Policy policy, const Result& result) {
  std::cout << fmt::format(
                   "{:<28} load {} %  {:<14} large: median {:>6.0f} s, p95 {:>6.0f} s   all: "
                   "median {:>5.0f} s, p95 {:>6.0f} s   used {:.1f} %  kept idle {:.1f} %\n",
                   what, load, PolicyName(policy), Percentile(result.large, 50),
                   Percentile(result.large, 95), Percentile(result.all, 50),
                   Percentile(result.all, 95), 100 * result.used / result.there,
                   100 * result.kept_idle / result.there)
            << std::flush;
}

class Order : public ::testing::TestWithParam<Day> {};

TEST_P(Order, LargeGangsGetInWithoutIdlingTheCluster) {
  const Day& day = GetParam();
  const Size size = SizeOf();
  for (const int load : size.loads) {
    const std::array<Policy, 3> policies = {Policy::kMuster, Policy::kNoReservation,
                                            Policy::kGuard};
    std::array<Result, 3> results;
    // A whole day takes a while, and none depends on another.
    const size_t runs = size.seeds.size() * policies.size();
    std::vector<Outcome> outcomes(runs);
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t run = next++; run < runs; run = next++) {
        const int seed = size.seeds[run / policies.size()];
        outcomes[run] = Simulate(DayOf(day, size, load, seed), seed, size.length,
                                 policies[run % policies.size()]);
      }
    };
    std::vector<std::future<void>> workers;
    for (unsigned i = 0; i < std::max(2U, std::thread::hardware_concurrency()); ++i) {
      workers.push_back(std::async(std::launch::async, work));
    }
    for (std::future<void>& worker : workers) worker.get();
    for (size_t run = 0; run < runs; ++run) {
      const Outcome& outcome = outcomes[run];
      ASSERT_TRUE(outcome.failures.empty()) << outcome.failures.front();
      ASSERT_FALSE(outcome.refused) << *outcome.refused;
      const size_t p = run % policies.size();
      Add(outcome, &results[p]);
      Result alone;
      Add(outcome, &alone);
      Tell(fmt::format("{} seed {}", day.name, size.seeds[run / policies.size()]), load,
           policies[p], alone);
    }
    for (size_t p = 0; p < policies.size(); ++p) Tell(day.name, load, policies[p], results[p]);
    // A tenth of a day has too few large gangs to be held to anything.
    if (!day.ends_known || !muster::testing::IsFull()) continue;
    const auto& [kept, none, guard] = results;
    const double p95 = Percentile(kept.large, 95);
    if (day.nodes * kGpusOfNode == kLargest) {
      EXPECT_LE(p95, 0.5 * Percentile(guard.large, 95)) << load;
      EXPECT_GE(kept.used, none.used) << load;
    } else {
      EXPECT_LE(p95, 1.25 * Percentile(none.large, 95)) << load;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Days, Order,
                         ::testing::Values(Day{"all_of_it_ends_known", 32, true},
                                           Day{"a_quarter_ends_known", 128, true},
                                           Day{"all_of_it", 32, false},
                                           Day{"a_quarter", 128, false}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace muster::simulation
