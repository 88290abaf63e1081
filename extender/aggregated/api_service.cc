#include "extender/aggregated/api_service.h"

#include <spdlog/spdlog.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "extender/admission/ca_bundle.h"
#include "extender/aggregated/api_resources.h"
#include "fmt/format.h"

namespace muster::extender {
namespace {

using nlohmann::json;

constexpr absl::Duration kLookInterval = absl::Seconds(30);
constexpr absl::Duration kLookAfterFailure = absl::Seconds(5);
constexpr size_t kMaxAuthorities = 16;

std::string ServiceName() { return fmt::format("{}.{}", kApiVersion, kApiGroup); }
std::string ServicePath() {
  return fmt::format("/apis/apiregistration.k8s.io/v1/apiservices/{}", ServiceName());
}

std::string TextIn(const json& object, const char* part, const char* field) {
  const auto at = object.find(part);
  if (at == object.end() || !at->is_object()) return "";
  const auto value = at->find(field);
  return value != at->end() && value->is_string() ? value->get<std::string>() : "";
}

}  // namespace

struct ApiService::Inbox {
  std::mutex mutex;
  std::optional<absl::StatusOr<kube::Response>> answer;
};

ApiService::ApiService(kube::Transport& transport)
    : transport_(transport), inbox_(std::make_shared<Inbox>()) {}

ApiService::~ApiService() = default;

void ApiService::SetCaBundle(const std::string& bundle) {
  if (bundle == bundle_) return;
  bundle_ = bundle;
  next_ = absl::InfinitePast();
}

void ApiService::Tick(absl::Time now) {
  std::optional<absl::StatusOr<kube::Response>> answer;
  {
    const std::lock_guard lock(inbox_->mutex);
    answer.swap(inbox_->answer);
  }
  if (answer) {
    asked_ = false;
    OnAnswer(now, *answer);
  }
  if (asked_ || now < next_ || bundle_.empty()) return;
  next_ = now + kLookInterval;
  Send({.path = ServicePath()});
}

void ApiService::Send(kube::Request request) {
  asked_ = true;
  transport_.Send(std::move(request), [inbox = inbox_](absl::StatusOr<kube::Response> got) {
    const std::lock_guard lock(inbox->mutex);
    inbox->answer = std::move(got);
  });
}

void ApiService::OnAnswer(absl::Time now, const absl::StatusOr<kube::Response>& answer) {
  absl::Status status = answer.ok() ? kube::ToStatus(*answer) : answer.status();
  // Somebody else was faster: what it is now is seen at the next look.
  if (answer.ok() && answer->status == 409) {
    next_ = absl::InfinitePast();
    return;
  }
  if (status.ok()) status = OnObject(now, answer->body);
  if (!status.ok()) next_ = now + kLookAfterFailure;
  // Where there is none it isn't wanted.
  if (absl::IsNotFound(status)) {
    next_ = now + kLookInterval;
    status = absl::OkStatus();
  }
  const std::string failure(status.message());
  if (failure != last_failure_ && !failure.empty()) {
    spdlog::warn("aggregated API: APIService {}: {}", ServiceName(), failure);
  }
  last_failure_ = failure;
}

absl::Status ApiService::OnObject(absl::Time now, const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  const std::string version =
      object.is_object() ? TextIn(object, "metadata", "resourceVersion") : "";
  if (version.empty()) return absl::UnavailableError("the answer has no metadata.resourceVersion");
  std::string found;
  // What is no base64 the API server itself doesn't take.
  absl::Base64Unescape(TextIn(object, "spec", "caBundle"), &found);
  if (BundleContains(found, bundle_)) return absl::OkStatus();
  spdlog::info("aggregated API: APIService {} gets this process's authority", ServiceName());
  const json patch = {
      {"metadata", {{"resourceVersion", version}}},
      {"spec",
       {{"caBundle", absl::Base64Escape(JoinBundles(found, bundle_, now, kMaxAuthorities))}}}};
  Send({.method = kube::Method::kPatch,
        .path = ServicePath(),
        .content_type = std::string(kube::kMergePatch),
        .body = patch.dump()});
  return absl::OkStatus();
}

}  // namespace muster::extender
