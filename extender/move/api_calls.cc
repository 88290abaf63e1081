#include "extender/move/api_calls.h"

#include <algorithm>
#include <future>
#include <memory>
#include <ostream>

#include "fmt/format.h"
#include "kube/client/client_config.h"
#include "kube/client/curl_transport.h"

namespace muster::extender {
namespace {

using nlohmann::json;

constexpr const char* kPage = "500";
constexpr int kTries = 5;
constexpr absl::Duration kFirstPause = absl::Milliseconds(200);
constexpr absl::Duration kLongestPause = absl::Seconds(5);
constexpr int kLists = 3;

absl::StatusOr<kube::Response> CallOnce(kube::Transport& transport, kube::Request request) {
  const auto promise = std::make_shared<std::promise<absl::StatusOr<kube::Response>>>();
  std::future<absl::StatusOr<kube::Response>> answer = promise->get_future();
  transport.Send(std::move(request), [promise](absl::StatusOr<kube::Response> response) {
    promise->set_value(std::move(response));
  });
  return answer.get();
}

// Every request here may be repeated: what was carried out without an answer is found done.
bool IsWorthAnotherTry(const absl::StatusOr<kube::Response>& answer) {
  return !answer.ok() || answer->status == 429 || answer->status >= 500;
}

}  // namespace

absl::StatusOr<kube::Response> ApiCalls::Call(const kube::Request& request) const {
  absl::Duration pause = kFirstPause;
  for (int attempt = 1;; ++attempt) {
    absl::StatusOr<kube::Response> answer = CallOnce(transport_, request);
    if (attempt == kTries || !IsWorthAnotherTry(answer)) return answer;
    const bool said = answer.ok() && answer->retry_after;
    sleep_(std::min(said ? std::max(pause, *answer->retry_after) : pause, kLongestPause));
    pause *= 2;
  }
}

absl::StatusOr<std::vector<json>> ApiCalls::List(const std::string& path, const Query& query,
                                                 const Keep& keep) const {
  for (int attempt = 1;; ++attempt) {
    absl::StatusOr<std::vector<json>> all = ListOnce(path, query, keep);
    if (attempt == kLists || !absl::IsOutOfRange(all.status())) return all;
  }
}

absl::StatusOr<std::vector<json>> ApiCalls::ListOnce(const std::string& path, const Query& query,
                                                     const Keep& keep) const {
  std::vector<json> all;
  std::string next;
  do {
    kube::Request request;
    request.path = path;
    request.query = query;
    request.query.emplace_back("limit", kPage);
    if (!next.empty()) request.query.emplace_back("continue", next);
    absl::StatusOr<kube::Response> answer = Call(request);
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
    for (json& item : page["items"]) {
      if (keep == nullptr || keep(item)) all.push_back(std::move(item));
    }
    const json& token = page["metadata"]["continue"];
    next = token.is_string() ? token.get<std::string>() : "";
  } while (!next.empty());
  return all;
}

int OnCluster(const std::string& kubeconfig, std::ostream& err,
              const std::function<int(kube::Transport& transport)>& command) {
  absl::StatusOr<kube::ClientConfig> cluster =
      kube::LoadClientConfig(kubeconfig, {.by_person = true});
  if (!cluster.ok()) {
    err << "muster: " << std::string(cluster.status().message()) << "\n";
    return CommandEnd::kFailed;
  }
  auto transport = kube::CurlTransport::Create(*std::move(cluster));
  if (!transport.ok()) {
    err << "muster: " << std::string(transport.status().message()) << "\n";
    return CommandEnd::kFailed;
  }
  const int code = command(**transport);
  (*transport)->Stop();
  return code;
}

}  // namespace muster::extender
