#include "extender/uninstall/uninstall_command.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "extender/move/api_calls.h"
#include "fmt/format.h"

namespace muster::extender {
namespace {

// What somebody changed meanwhile is looked at again and done then.
constexpr int kRounds = 5;
// Until every API server calls a webhook no more that was deleted.
constexpr absl::Duration kSettleTime = absl::Seconds(2);

class Uninstall {
 public:
  Uninstall(const UninstallOptions& options, kube::Transport& transport, std::ostream& out)
      : options_(options), api_(transport, options.sleep), out_(out) {}

  // All rounds; what is left after them.
  absl::StatusOr<ChangePlan> Run() {
    absl::StatusOr<ChangePlan> plan = Look();
    if (!plan.ok() || !options_.apply) return plan;
    if (std::ranges::any_of(plan->fixes, &ChangePlan::Fix::at_once)) {
      if (absl::Status done = Apply(*plan, /*at_once=*/true); !done.ok()) return done;
      options_.sleep(kSettleTime);
    }
    for (int round = 1; round <= kRounds; ++round) {
      plan = Look();
      if (!plan.ok() || !plan->by_hand.empty() || plan->fixes.empty()) return plan;
      absl::StatusOr<bool> alive = round > 1 ? false : IsAlive();
      if (!alive.ok()) return alive.status();
      if (*alive) {
        plan->by_hand.push_back(
            "A Muster is alive: it renews its Lease, whose times this machine's clock doesn't fit; "
            "stop it, and wait until it has ended");
        return plan;
      }
      if (absl::Status done = Apply(*plan, /*at_once=*/false); !done.ok()) return done;
    }
    return Look();
  }

 private:
  absl::StatusOr<ChangePlan> Look() {
    objects_ = {};
    for (const ListToRead& list : ListsToUninstall(options_.settings)) {
      absl::StatusOr<std::vector<nlohmann::json>> read = api_.List(
          list.path, list.query,
          [&](const nlohmann::json& object) { return ConcernsUninstall(list.name, object); });
      if (!read.ok()) return read.status();
      objects_.lists[list.name] = *std::move(read);
    }
    return PlanUninstall(objects_, options_.settings, options_.clock());
  }

  // A Lease that wasn't given back has run out by this machine's clock. It is waited out by its
  // duration alone: who lives renews it meanwhile.
  absl::StatusOr<bool> IsAlive() {
    const HeldLeases before = LeasesHeld(objects_, options_.settings);
    if (before.renewals.empty()) return false;
    options_.sleep(before.longest + absl::Seconds(1));
    for (const ListToRead& list : ListsToUninstall(options_.settings)) {
      if (list.name != "leases") continue;
      absl::StatusOr<std::vector<nlohmann::json>> leases = api_.List(list.path);
      if (!leases.ok()) return leases.status();
      objects_.lists["leases"] = *std::move(leases);
    }
    const HeldLeases now = LeasesHeld(objects_, options_.settings);
    return std::ranges::any_of(now.renewals, [&](const std::string& each) {
      return std::ranges::find(before.renewals, each) == before.renewals.end();
    });
  }

  absl::Status Apply(const ChangePlan& plan, bool at_once) {
    for (const ChangePlan::Fix& fix : plan.fixes) {
      if (at_once && !fix.at_once) continue;
      size_t later = 0;
      for (const kube::Request& request : fix.requests) {
        const absl::StatusOr<kube::Response> answer = api_.Call(request);
        const absl::Status status = answer.ok() ? kube::ToStatus(*answer) : answer.status();
        if (status.ok() || absl::IsNotFound(status)) continue;
        // It isn't any more as it was looked at.
        if (absl::IsAborted(status) || absl::IsInvalidArgument(status)) {
          ++later;
          continue;
        }
        return absl::Status(status.code(), fmt::format("{}: {}: {}", fix.what, request.path,
                                                       std::string(status.message())));
      }
      out_ << "done: " << fix.what
           << (later == 0 ? ""
                          : fmt::format(" ({} have changed meanwhile: looked at again)", later))
           << "\n";
    }
    return absl::OkStatus();
  }

  const UninstallOptions& options_;
  const ApiCalls api_;
  std::ostream& out_;
  ClusterObjects objects_;
};

}  // namespace

int RunUninstall(const UninstallOptions& options, kube::Transport& transport, std::ostream& out,
                 std::ostream& err) {
  const absl::StatusOr<ChangePlan> plan = Uninstall(options, transport, out).Run();
  if (!plan.ok()) {
    err << "muster: " << std::string(plan.status().message()) << "\n";
    return CommandEnd::kFailed;
  }
  out << PlanText(*plan, "muster uninstall --yes");
  return plan->by_hand.empty() && plan->fixes.empty() ? CommandEnd::kDone : CommandEnd::kLeft;
}

int RunUninstall(const UninstallOptions& options, std::ostream& out, std::ostream& err) {
  return OnCluster(options.kubeconfig, err, [&](kube::Transport& transport) {
    return RunUninstall(options, transport, out, err);
  });
}

}  // namespace muster::extender
