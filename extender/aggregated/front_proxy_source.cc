#include "extender/aggregated/front_proxy_source.h"

#include <spdlog/spdlog.h>

#include <mutex>
#include <utility>

namespace muster::extender {
namespace {

constexpr const char* kPath =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
constexpr absl::Duration kReadInterval = absl::Minutes(1);
constexpr absl::Duration kReadAfterFailure = absl::Seconds(5);

}  // namespace

struct FrontProxySource::Inbox {
  std::mutex mutex;
  std::optional<absl::StatusOr<kube::Response>> answer;
};

FrontProxySource::FrontProxySource(kube::Transport& transport, FrontProxy& proxy)
    : transport_(transport), proxy_(proxy), inbox_(std::make_shared<Inbox>()) {}

FrontProxySource::~FrontProxySource() = default;

void FrontProxySource::Tick(absl::Time now) {
  std::optional<absl::StatusOr<kube::Response>> answer;
  {
    const std::lock_guard lock(inbox_->mutex);
    answer.swap(inbox_->answer);
  }
  if (answer) {
    asked_ = false;
    OnAnswer(now, *answer);
  }
  if (asked_ || now < next_) return;
  asked_ = true;
  kube::Request request;
  request.path = kPath;
  transport_.Send(std::move(request), [inbox = inbox_](absl::StatusOr<kube::Response> got) {
    const std::lock_guard lock(inbox->mutex);
    inbox->answer = std::move(got);
  });
}

void FrontProxySource::OnAnswer(absl::Time now, const absl::StatusOr<kube::Response>& answer) {
  absl::Status status = answer.ok() ? kube::ToStatus(*answer) : answer.status();
  if (status.ok()) {
    absl::StatusOr<FrontProxyConfig> config = ReadFrontProxyConfig(answer->body);
    status = config.status();
    if (config.ok()) proxy_.Trust(*std::move(config));
  }
  next_ = now + (status.ok() ? kReadInterval : kReadAfterFailure);
  const std::string failure(status.message());
  if (failure == std::exchange(last_failure_, failure)) return;
  if (failure.empty()) {
    spdlog::info("aggregated API: the API server's certificate is known");
  } else {
    spdlog::warn(
        "aggregated API: ConfigMap kube-system/extension-apiserver-authentication can't be used: "
        "{}",
        failure);
  }
}

}  // namespace muster::extender
