#include "extender/move/move_command.h"

#include <ostream>
#include <utility>

#include "absl/time/clock.h"
#include "extender/move/api_calls.h"
#include "fmt/format.h"

namespace muster::extender {
namespace {

absl::StatusOr<MovePlan> Plan(const MoveOptions& options, const ApiCalls& api) {
  MoveObjects objects;
  for (const auto& [name, path] : ListsToMove(options.settings)) {
    absl::StatusOr<std::vector<nlohmann::json>> list = api.List(path);
    if (!list.ok()) return list.status();
    objects.lists[name] = *std::move(list);
  }
  const absl::Time now = absl::Now();
  return options.out ? PlanMoveOut(objects, options.settings, now)
                     : PlanMoveIn(objects, options.settings, now);
}

// A step that was done by an earlier run is done.
absl::Status Apply(const MovePlan::Fix& fix, const ApiCalls& api) {
  for (const kube::Request& request : fix.requests) {
    const absl::StatusOr<kube::Response> answer = api.Call(request);
    const absl::Status status = answer.ok() ? kube::ToStatus(*answer) : answer.status();
    if (status.ok() || absl::IsNotFound(status)) continue;
    if (request.method == kube::Method::kPost && absl::IsAlreadyExists(status)) continue;
    return absl::Status(status.code(),
                        fmt::format("{}: {}", request.path, std::string(status.message())));
  }
  return absl::OkStatus();
}

}  // namespace

int RunMove(const MoveOptions& options, kube::Transport& transport, std::ostream& out,
            std::ostream& err) {
  const ApiCalls api(transport, absl::SleepFor);
  absl::StatusOr<MovePlan> plan = Plan(options, api);
  if (!plan.ok()) {
    err << "muster: " << std::string(plan.status().message()) << "\n";
    return CommandEnd::kFailed;
  }
  // Not under the hands of who still runs.
  if (options.apply && plan->by_hand.empty()) {
    for (const MovePlan::Fix& fix : plan->fixes) {
      if (absl::Status done = Apply(fix, api); !done.ok()) {
        err << "muster: " << fix.what << ": " << std::string(done.message()) << "\n";
        return CommandEnd::kFailed;
      }
      out << "done: " << fix.what << "\n";
    }
    plan->fixes.clear();
  }
  out << PlanText(*plan, options.out ? "muster move out --apply" : "muster move in --apply");
  return plan->by_hand.empty() && plan->fixes.empty() ? CommandEnd::kDone : CommandEnd::kLeft;
}

int RunMove(const MoveOptions& options, std::ostream& out, std::ostream& err) {
  return OnCluster(options.kubeconfig, err, [&](kube::Transport& transport) {
    return RunMove(options, transport, out, err);
  });
}

}  // namespace muster::extender
