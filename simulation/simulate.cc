#include "simulation/simulate.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <span>
#include <utility>

#include "coscheduling/engine.h"
#include "fmt/format.h"
#include "muster/v1/admission.pb.h"
#include "simulation/comparison.h"
#include "simulation/report.h"
#include "simulation/workload.h"
#include "simulation/world.h"

namespace muster::simulation {
namespace {

constexpr int kUnreadable = 2;  // exit code

absl::Duration EndOfSteps(const Scenario& scenario) {
  absl::Duration end;
  for (const Step& step : scenario.steps) {
    const auto* want = std::get_if<Expectation>(&step.action);
    const absl::Duration none;
    end = std::max(end, step.at + (want == nullptr ? none : want->within.value_or(none)));
  }
  return end;
}

// Lets the world go on after the last step. Returns why it stopped there.
std::string RunOn(World* world, const GpuLedger& ledger, absl::Duration last) {
  const absl::Time limit = world->start() + last + kRunOn;
  const auto quiet = [&] {
    return ledger.AtRest() || world->next_event() == absl::InfiniteFuture();
  };
  if (world->RunUntil(limit, quiet)) {
    return ledger.AtRest() ? "nothing waits, will end or idles any more"
                           : "nothing will happen any more, though some still wait, or idle";
  }
  if (!world->broken_invariant().ok()) return "an invariant doesn't hold";
  return fmt::format("that is {} after the last step; some still wait, or idle",
                     absl::FormatDuration(kRunOn));
}

std::vector<GangOutcome> Gangs(const World& world, const GpuLedger& ledger) {
  std::map<std::string, v1::Gang> shown;
  for (const coscheduling::GangKey& key : world.engine().Gangs()) {
    world.engine().Describe(key, &shown[key.ToString()]);
  }
  std::vector<GangOutcome> outcomes;
  for (GangAccount& account : ledger.Gangs()) {
    GangOutcome& outcome = outcomes.emplace_back();
    if (const auto gang = shown.find(account.name); gang != shown.end()) {
      outcome.state = v1::GangState_Name(gang->second.state());
      outcome.reason = v1::ReasonCode_Name(gang->second.reason().code());
      outcome.message = gang->second.reason().message();
    }
    outcome.account = std::move(account);
  }
  return outcomes;
}

}  // namespace

Outcome Simulate(const Scenario& written, uint64_t seed, std::optional<absl::Duration> until,
                 Policy policy) {
  Scenario scenario = Drawn(written, seed);
  const absl::Duration last = EndOfSteps(scenario);
  if (policy != Policy::kMuster) {
    std::erase_if(scenario.steps, [](const Step& step) {
      return std::holds_alternative<Expectation>(step.action);
    });
  }
  Outcome outcome{.file = scenario.file, .name = scenario.name, .seed = seed, .policy = policy};
  History history;
  World world(scenario, {.seed = seed, .policy = policy, .observer = &history});
  bool stopped = false;
  RunSteps(&world, scenario, until.value_or(absl::InfiniteDuration()),
           [&](const StepFailure& failure) {
             std::string text = fmt::format("{}:{}: {}", scenario.file, failure.step->line,
                                            std::string(failure.status.message()));
             if (failure.kind == StepFailure::Kind::kRefused) {
               outcome.refused = std::move(text);
             } else {
               outcome.failures.push_back(std::move(text));
             }
             stopped = failure.kind != StepFailure::Kind::kUnexpected;
             return !stopped;
           });
  if (stopped) {
    outcome.why_ended = outcome.refused ? "a step can't be carried out" : "an invariant is broken";
  } else if (until) {
    world.RunUntil(world.start() + *until);
    outcome.why_ended = "as asked";
  } else {
    outcome.why_ended = RunOn(&world, history.ledger(), last);
  }
  if (!stopped && !world.broken_invariant().ok()) {
    outcome.failures.push_back(fmt::format("{}:{}: {}", scenario.file,
                                           scenario.steps.empty() ? 1 : scenario.steps.back().line,
                                           std::string(world.broken_invariant().message())));
  }
  outcome.end = (world.now() - world.start()) / absl::Milliseconds(1);
  outcome.timeline = history.timeline();
  outcome.nodes = history.ledger().Nodes();
  outcome.gangs = Gangs(world, history.ledger());
  outcome.kept_idle_gpu_seconds = world.kept_idle_gpu_seconds();
  outcome.bought = history.ledger().Total(true);
  outcome.from_the_start = history.ledger().Total(false);
  return outcome;
}

namespace {

std::optional<std::vector<Policy>> PoliciesOf(const std::string& name) {
  std::vector<Policy> both = {Policy::kMuster, Policy::kCoscheduling};
  if (name == "both") return both;
  for (const Policy policy :
       {Policy::kMuster, Policy::kCoscheduling, Policy::kNoReservation, Policy::kGuard}) {
    if (name == PolicyName(policy)) return std::vector<Policy>{policy};
  }
  return std::nullopt;
}

// Runs the scenario under each policy. Returns the exit code.
int RunEach(const Scenario& scenario, const std::vector<Policy>& policies,
            std::optional<absl::Duration> until, const SimulateOptions& options,
            std::vector<Outcome>* outcomes, std::ostream& out, std::ostream& err) {
  int exit_code = 0;
  const size_t first = outcomes->size();
  for (const Policy policy : policies) {
    const Outcome& outcome =
        outcomes->emplace_back(Simulate(scenario, options.seed, until, policy));
    for (const std::string& failure : outcome.failures) err << failure << "\n";
    if (outcome.refused) err << *outcome.refused << "\n";
    exit_code = std::max(exit_code, outcome.refused            ? kUnreadable
                                    : outcome.failures.empty() ? 0
                                                               : 1);
    if (options.output == "text") out << TextReport(outcome, options.brief) << std::flush;
  }
  if (options.output == "text" && policies.size() > 1) {
    out << Comparison(std::span(*outcomes).subspan(first)) << std::flush;
  }
  return exit_code;
}

}  // namespace

int RunSimulate(const SimulateOptions& options, std::istream& in, std::ostream& out,
                std::ostream& err) {
  const std::optional<std::vector<Policy>> policies = PoliciesOf(options.policy);
  if (!policies) {
    err << "muster: --policy=" << options.policy
        << ": want muster, coscheduling, both, no-reservation or guard\n";
    return kUnreadable;
  }
  std::optional<absl::Duration> until;
  if (!options.until.empty()) {
    until.emplace();
    if (!absl::ParseDuration(options.until, &*until) || *until < absl::ZeroDuration() ||
        *until > kLongestRun) {
      err << "muster: --until=" << options.until << ": want a duration such as 90m, at most "
          << absl::FormatDuration(kLongestRun) << "\n";
      return kUnreadable;
    }
  }
  int exit_code = 0;
  std::vector<Outcome> outcomes;
  for (const std::string& file : options.files) {
    const absl::StatusOr<Scenario> scenario = ReadScenario(file, in);
    if (!scenario.ok()) {
      err << std::string(scenario.status().message()) << "\n";
      exit_code = kUnreadable;
      continue;
    }
    exit_code =
        std::max(exit_code, RunEach(*scenario, *policies, until, options, &outcomes, out, err));
  }
  if (options.output == "json") out << JsonReport(outcomes);
  return exit_code;
}

}  // namespace muster::simulation
