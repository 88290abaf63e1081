#include "simulation/workload.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "simulation/draw.h"

namespace muster::simulation {
namespace {

const GangShape& DrawShape(const GangMix& mix, Draw* draw) {
  int64_t weights = 0;
  for (const GangShape& shape : mix.shapes) weights += shape.weight;
  int64_t ticket = draw->Between(1, weights);
  for (const GangShape& shape : mix.shapes) {
    ticket -= shape.weight;
    if (ticket <= 0) return shape;
  }
  return mix.shapes.back();
}

std::vector<Step> DrawGangs(const GangMix& mix, Draw* draw) {
  std::vector<Step> steps;
  absl::Duration at = mix.from;
  for (int i = 0; i < mix.gangs; ++i) {
    const GangShape& shape = DrawShape(mix, draw);
    GangSpec gang = shape.gang;
    gang.name = fmt::format("{}-{:03}", gang.name, i);
    gang.members = static_cast<int>(draw->Between(shape.fewest_members, shape.most_members));
    gang.min_member = gang.members;
    gang.run_time = draw->In(shape.run_time);
    if (shape.patience != absl::InfiniteDuration()) {
      steps.push_back({.at = at + shape.patience,
                       .action = AbandonStep{gang.name_space, gang.name, gang.members},
                       .line = mix.line});
    }
    if (!shape.master_requests.empty()) {
      GangSpec master = gang;
      master.members = 1;
      master.requests = shape.master_requests;
      steps.push_back({.at = at, .action = std::move(master), .line = mix.line});
      gang.create_group = false;
      gang.first = 1;
      --gang.members;
    }
    steps.push_back({.at = at, .action = std::move(gang), .line = mix.line});
    at += draw->In({absl::ZeroDuration(), 2 * mix.every});
  }
  return steps;
}

NodeDelays DrawLaunch(const DrawnLaunches& launches, Draw* draw) {
  NodeDelays delays;
  delays.launch = draw->In(launches.launch);
  delays.registration = draw->In(launches.registration);
  delays.initialization = draw->In(launches.initialization);
  delays.never_registers = draw->Chance(launches.never_registers);
  delays.insufficient_capacity = draw->Chance(launches.insufficient_capacity);
  if (launches.incomplete > 0 && draw->Chance(launches.incomplete)) {
    delays.devices = draw->In(launches.devices);
    delays.devices_before = launches.devices_before;
  }
  return delays;
}

}  // namespace

Scenario Drawn(Scenario scenario, uint64_t seed) {
  uint32_t stream = 0;
  if (scenario.mix) {
    Draw draw(seed, stream);
    std::ranges::move(DrawGangs(*scenario.mix, &draw), std::back_inserter(scenario.steps));
    std::ranges::stable_sort(scenario.steps, {}, &Step::at);
    scenario.mix.reset();
  }
  for (NodePoolSpec& pool : scenario.node_pools) {
    ++stream;
    if (!pool.launches) continue;
    Draw draw(seed, stream);
    for (int i = 0; i < kDrawnLaunches; ++i) {
      pool.delays.push_back(DrawLaunch(*pool.launches, &draw));
    }
    pool.launches.reset();
  }
  return scenario;
}

}  // namespace muster::simulation
