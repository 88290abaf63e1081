#include "extender/kubectl/visibility_client.h"

#include <algorithm>
#include <future>
#include <memory>
#include <utility>

#include "fmt/format.h"

namespace muster::extender {
namespace {

using nlohmann::json;

constexpr const char* kGroup = "visibility.muster.dev";
constexpr const char* kBase = "/apis/visibility.muster.dev/v1beta1";
constexpr absl::Duration kFirstPause = absl::Milliseconds(500);
constexpr absl::Duration kLongestPause = absl::Seconds(5);
constexpr absl::Duration kLeaderPatience = absl::Seconds(10);

absl::StatusOr<kube::Response> CallOnce(kube::Transport& transport, const std::string& path) {
  const auto promise = std::make_shared<std::promise<absl::StatusOr<kube::Response>>>();
  std::future<absl::StatusOr<kube::Response>> answer = promise->get_future();
  kube::Request request;
  request.path = path;
  transport.Send(std::move(request), [promise](absl::StatusOr<kube::Response> response) {
    promise->set_value(std::move(response));
  });
  return answer.get();
}

// Whether a 404 is about the object, not about its kind.
bool NamesAnObject(const kube::Response& response) {
  const json status = json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  if (!status.is_object() || !status.contains("details")) return false;
  const json& details = status["details"];
  return details.is_object() && details.contains("name") && details.contains("group") &&
         details["group"] == kGroup;
}

// "gang" of "gangs".
std::string Singular(const Visible& asked) {
  return asked.resource.substr(0, asked.resource.size() - 1);
}

std::string In(const Visible& asked) {
  return asked.name_space.empty() ? "" : fmt::format(" in namespace {}", asked.name_space);
}

}  // namespace

std::string Visible::Path() const {
  std::string path = kBase;
  if (!name_space.empty()) path += "/namespaces/" + name_space;
  path += "/" + resource;
  if (!name.empty()) path += "/" + name;
  return path;
}

absl::Status WhyNot(const Visible& asked, const absl::StatusOr<kube::Response>& answer) {
  if (!answer.ok()) {
    return absl::UnavailableError(
        fmt::format("can't reach the API server: {}; look at the context's server (kubectl config "
                    "view --minify) and the way there",
                    std::string(answer.status().message())));
  }
  if (answer->status == 404 && NamesAnObject(*answer)) {
    return absl::NotFoundError(
        fmt::format("there is no {} {}{}; those that are there: kubectl get "
                    "{}.{}{}",
                    Singular(asked), asked.name, In(asked), asked.resource, kGroup,
                    asked.name_space.empty() ? "" : " -n " + asked.name_space));
  }
  return WhyNot(asked, kube::ToStatus(*answer));
}

absl::Status WhyNot(const Visible& asked, const absl::Status& status) {
  const std::string said(status.message());
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return status;
    case absl::StatusCode::kNotFound:
      return absl::FailedPreconditionError(
          fmt::format("this cluster has no API group {}: install Muster, or its APIService with it "
                      "(aggregatedAPI.enabled of the chart)",
                      kGroup));
    case absl::StatusCode::kPermissionDenied:
      return absl::PermissionDeniedError(
          asked.name_space.empty()
              ? fmt::format("{}; that takes ClusterRole view, or muster-view, by a "
                            "ClusterRoleBinding{}",
                            said,
                            asked.resource == "gangs" || asked.resource == "clusterqueues"
                                ? "; without it look into one namespace, by -n"
                                : "")
              : fmt::format("{}; ClusterRole view, bound in namespace {}, has that right", said,
                            asked.name_space));
    case absl::StatusCode::kUnauthenticated:
      return absl::UnauthenticatedError(fmt::format(
          "the API server doesn't know who asks ({}): log in again, or mend the context's user",
          said));
    case absl::StatusCode::kUnavailable:
      return absl::UnavailableError(fmt::format(
          "Muster doesn't answer ({}): no replica of it leads at the moment, or the API "
          "server can't reach it; look at kubectl -n muster-system get pods, and kubectl "
          "get apiservice v1beta1.{}",
          said, kGroup));
    default:
      return status;
  }
}

absl::StatusOr<json> VisibilityClient::Get(const Visible& asked) const {
  absl::Duration waited;
  absl::Duration pause = kFirstPause;
  for (;;) {
    const absl::StatusOr<kube::Response> answer = CallOnce(transport_, asked.Path());
    if (answer.ok() && answer->ok()) {
      json object = json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
      if (object.is_object()) return object;
      return absl::DataLossError(fmt::format("{}: the answer is no object", asked.Path()));
    }
    const bool busy = answer.ok() && (answer->status == 429 || answer->status == 503);
    if (!busy || waited >= kLeaderPatience) return WhyNot(asked, answer);
    if (answer->retry_after) pause = std::max(pause, *answer->retry_after);
    pause = std::min(pause, kLongestPause);
    sleep_(pause);
    waited += pause;
    pause *= 2;
  }
}

}  // namespace muster::extender
