#include "extender/leader_label.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "fmt/format.h"

namespace muster::extender {
namespace {

constexpr absl::Duration kRefresh = absl::Minutes(1);
constexpr absl::Duration kRequestTimeout = absl::Seconds(10);

}  // namespace

// What the transport's thread leaves for the owner.
struct LeaderLabel::Inbox {
  std::mutex mutex;
  std::optional<absl::StatusOr<kube::Response>> answer;
};

LeaderLabel::LeaderLabel(kube::Transport& transport, std::string name_space, std::string pod,
                         uint64_t seed)
    : transport_(transport),
      path_(fmt::format("/api/v1/namespaces/{}/pods/{}", name_space, pod)),
      inbox_(std::make_shared<Inbox>()),
      failures_({absl::Seconds(1), absl::Seconds(30), 2}, seed) {}

LeaderLabel::~LeaderLabel() = default;

void LeaderLabel::Tick(absl::Time now, bool leading) {
  std::optional<absl::StatusOr<kube::Response>> answer;
  {
    const std::lock_guard lock(inbox_->mutex);
    answer.swap(inbox_->answer);
  }
  if (answer) OnAnswer(now, *answer);
  if (sent_ || now < not_before_ || (shown_ == leading && now < next_refresh_)) return;
  sent_ = leading;
  kube::Request request;
  request.method = kube::Method::kPatch;
  request.path = path_;
  request.content_type = kube::kMergePatch;
  request.timeout = kRequestTimeout;
  request.body = fmt::format(R"({{"metadata":{{"labels":{{"{}":{}}}}}}})", kLeadingLabel,
                             leading ? "\"true\"" : "null");
  transport_.Send(std::move(request), [inbox = inbox_](absl::StatusOr<kube::Response> response) {
    const std::lock_guard lock(inbox->mutex);
    inbox->answer = std::move(response);
  });
}

void LeaderLabel::OnAnswer(absl::Time now, const absl::StatusOr<kube::Response>& answer) {
  const bool wrote = *std::exchange(sent_, std::nullopt);
  const absl::Status status = answer.ok() ? kube::ToStatus(*answer) : answer.status();
  if (status.ok()) {
    shown_ = wrote;
    next_refresh_ = now + kRefresh;
    failures_.Reset();
    last_failure_.clear();
    return;
  }
  shown_ = std::nullopt;
  absl::Duration pause = failures_.Next();
  if (answer.ok() && answer->retry_after) pause = std::max(pause, *answer->retry_after);
  not_before_ = now + pause;
  std::string failure(status.message());
  if (failure != last_failure_)
    spdlog::warn("label {}: patch {}: {}", kLeadingLabel, path_, failure);
  last_failure_ = std::move(failure);
}

}  // namespace muster::extender
