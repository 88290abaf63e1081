// Scenario files: what `muster simulate` and the tests of decisions read.
#include "simulation/scenario.h"

#include <nlohmann/json.hpp>
#include <variant>

#include "simulation/workload.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

void RequireJson(const std::string& text) {
  Require(nlohmann::json::accept(text), "what a step carries is JSON");
}

void CheckStep(const simulation::Step& step) {
  if (const auto* gang = std::get_if<simulation::GangSpec>(&step.action)) {
    Require(gang->members >= 0 && gang->first >= 0, "counts aren't negative");
    if (!gang->spec_json.empty()) RequireJson(gang->spec_json);
  }
  if (const auto* patch = std::get_if<simulation::PatchStep>(&step.action)) {
    RequireJson(patch->merge_patch_json);
  }
  if (const auto* apply = std::get_if<simulation::ApplyStep>(&step.action)) {
    RequireJson(apply->manifest_json);
  }
}

}  // namespace
}  // namespace muster::fuzz

MUSTER_FUZZ_TARGET(std::string_view input) {
  using namespace muster::fuzz;
  const auto scenario = muster::simulation::ParseScenario(input, "f.yaml");
  if (!scenario.ok()) {
    RequireSayable(MessageOf(scenario.status()));
    RequirePlace(MessageOf(scenario.status()), "f.yaml", input);
    return;
  }
  absl::Duration last = absl::ZeroDuration();
  for (const muster::simulation::Step& step : muster::simulation::Drawn(*scenario, 1).steps) {
    Require(step.at >= last, "steps come in the order of time");
    last = step.at;
    CheckStep(step);
  }
}
