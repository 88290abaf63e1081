#include "kube/client/concurrency_limit.h"

#include <algorithm>

namespace muster::kube {
namespace {

bool IsOverload(const absl::StatusOr<Response>& answer) {
  if (!answer.ok()) return absl::IsDeadlineExceeded(answer.status());
  return answer->status == 429 || answer->status == 503 || answer->status == 504;
}

ConcurrencyOptions Bounded(ConcurrencyOptions options) {
  options.least = std::min(options.least, options.most);
  options.first = std::clamp(options.first, options.least, options.most);
  return options;
}

}  // namespace

ConcurrencyLimit::ConcurrencyLimit(const ConcurrencyOptions& options)
    : options_(Bounded(options)), limit_(options_.first) {}

void ConcurrencyLimit::OnAnswer(absl::Time sent, absl::Time now,
                                const absl::StatusOr<Response>& answer, size_t under_way) {
  if (sent < began_) return;
  if (IsOverload(answer)) return Lower(now);
  if (!answer.ok()) return;  // no server has seen it, or nobody knows
  reached_ |= under_way >= limit_;
  took_ += now - sent;
  if (++answers_ < limit_) return;
  if (took_ > options_.patience * static_cast<double>(answers_)) return Lower(now);
  if (reached_) return Raise(now);
  BeginRound(now);
}

void ConcurrencyLimit::BeginRound(absl::Time now) {
  began_ = now;
  answers_ = 0;
  took_ = absl::ZeroDuration();
  reached_ = false;
}

void ConcurrencyLimit::Lower(absl::Time now) {
  had_sign_ = true;
  limit_ = std::max(options_.least, limit_ / 2);
  BeginRound(now);
}

void ConcurrencyLimit::Raise(absl::Time now) {
  limit_ = std::min(options_.most, had_sign_ ? limit_ + options_.step : limit_ * 2);
  BeginRound(now);
}

}  // namespace muster::kube
