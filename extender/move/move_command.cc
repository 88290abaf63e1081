#include "extender/move/move_command.h"

#include <future>
#include <memory>
#include <ostream>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "kube/client/client_config.h"
#include "kube/client/curl_transport.h"

namespace muster::extender {
namespace {

using nlohmann::json;

constexpr int kDone = 0;
constexpr int kLeft = 1;
constexpr int kFailed = 2;
constexpr const char* kPage = "500";

absl::StatusOr<kube::Response> Call(kube::Transport& transport, kube::Request request) {
  const auto promise = std::make_shared<std::promise<absl::StatusOr<kube::Response>>>();
  std::future<absl::StatusOr<kube::Response>> answer = promise->get_future();
  transport.Send(std::move(request), [promise](absl::StatusOr<kube::Response> response) {
    promise->set_value(std::move(response));
  });
  return answer.get();
}

// All pages; nothing where the kind isn't served.
absl::StatusOr<std::vector<json>> List(kube::Transport& transport, const std::string& path) {
  std::vector<json> all;
  std::string next;
  do {
    kube::Request request;
    request.path = path;
    request.query = {{"limit", kPage}};
    if (!next.empty()) request.query.emplace_back("continue", next);
    absl::StatusOr<kube::Response> answer = Call(transport, std::move(request));
    if (!answer.ok()) return answer.status();
    if (answer->status == 404) return all;
    if (absl::Status status = kube::ToStatus(*answer); !status.ok()) {
      return absl::Status(status.code(),
                          fmt::format("list {}: {}", path, std::string(status.message())));
    }
    json page = json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
    if (!page.is_object() || !page["items"].is_array()) {
      return absl::DataLossError(fmt::format("list {}: the answer is no list", path));
    }
    for (json& item : page["items"]) all.push_back(std::move(item));
    const json& token = page["metadata"]["continue"];
    next = token.is_string() ? token.get<std::string>() : "";
  } while (!next.empty());
  return all;
}

absl::StatusOr<MovePlan> Plan(const MoveOptions& options, kube::Transport& transport) {
  MoveObjects objects;
  for (const auto& [name, path] : ListsToMove(options.settings)) {
    absl::StatusOr<std::vector<json>> list = List(transport, path);
    if (!list.ok()) return list.status();
    objects.lists[name] = *std::move(list);
  }
  const absl::Time now = absl::Now();
  return options.out ? PlanMoveOut(objects, options.settings, now)
                     : PlanMoveIn(objects, options.settings, now);
}

// A step that was done by an earlier run is done.
absl::Status Apply(const MovePlan::Fix& fix, kube::Transport& transport) {
  for (const kube::Request& request : fix.requests) {
    const absl::StatusOr<kube::Response> answer = Call(transport, request);
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
  absl::StatusOr<MovePlan> plan = Plan(options, transport);
  if (!plan.ok()) {
    err << "muster: " << std::string(plan.status().message()) << "\n";
    return kFailed;
  }
  // Not under the hands of who still runs.
  if (options.apply && plan->by_hand.empty()) {
    for (const MovePlan::Fix& fix : plan->fixes) {
      if (absl::Status done = Apply(fix, transport); !done.ok()) {
        err << "muster: " << fix.what << ": " << std::string(done.message()) << "\n";
        return kFailed;
      }
      out << "done: " << fix.what << "\n";
    }
    plan->fixes.clear();
  }
  out << MoveText(*plan, options.out ? "muster move out" : "muster move in");
  return plan->by_hand.empty() && plan->fixes.empty() ? kDone : kLeft;
}

int RunMove(const MoveOptions& options, std::ostream& out, std::ostream& err) {
  absl::StatusOr<kube::ClientConfig> cluster = kube::LoadClientConfig(options.kubeconfig);
  if (!cluster.ok()) {
    err << "muster: " << std::string(cluster.status().message()) << "\n";
    return kFailed;
  }
  auto transport = kube::CurlTransport::Create(*std::move(cluster));
  if (!transport.ok()) {
    err << "muster: " << std::string(transport.status().message()) << "\n";
    return kFailed;
  }
  const int code = RunMove(options, **transport, out, err);
  (*transport)->Stop();
  return code;
}

}  // namespace muster::extender
