#include "extender/aggregated/api_watch.h"

#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "muster/v1/admission.pb.h"

namespace muster::extender {
namespace {

class ApiStream : public http::StreamSource {
 public:
  explicit ApiStream(ApiWatch watch) : watch_(std::move(watch)) {}

  void Start(std::function<void()> wake) override {
    auto subscription = watch_.store->WatchGangs(watch_.filter, std::move(wake), watch_.since);
    if (subscription.ok()) subscription_ = *std::move(subscription);
  }

  Piece Next() override {
    const absl::Duration left = watch_.until - absl::Now();
    Piece piece{.end = left <= absl::ZeroDuration(), .look_again = left};
    if (piece.end) return piece;
    // Without a subscription it came too late, though the request had been checked.
    if (!subscription_ || subscription_->lost()) {
      piece.data = Event("ERROR", watch_.expired);
      piece.end = true;
      return piece;
    }
    while (piece.data.size() < kWatchPieceBytes) {
      const std::optional<GangChange> change = subscription_->Next();
      if (!change) {
        if (!piece.data.empty()) piece.rest = kWatchRest;
        return piece;
      }
      piece.data += EventOf(*change);
    }
    piece.more = true;
    return piece;
  }

 private:
  static std::string Event(const char* type, const std::string& object) {
    return fmt::format("{{\"type\":\"{}\",\"object\":{}}}\n", type, object);
  }

  // A PodGroup's gang hides a pod's of the same name, as in lists: one object has a name.
  std::string EventOf(const GangChange& change) const {
    const v1::Gang& gang = change.gang->gang();
    const SharedGang shown = watch_.store->FindGang(gang.namespace_(), gang.name());
    if (change.deleted && shown != nullptr) {
      return Event("MODIFIED", watch_.object(shown, change.version));
    }
    const bool hidden = shown != nullptr && shown->gang().kind() != gang.kind();
    if (hidden) return "";
    const char* type = change.deleted ? "DELETED" : change.is_new ? "ADDED" : "MODIFIED";
    return Event(type, watch_.object(change.gang, change.version));
  }

  const ApiWatch watch_;
  std::unique_ptr<GangSubscription> subscription_;
};

}  // namespace

std::unique_ptr<http::StreamSource> WatchOf(ApiWatch watch) {
  return std::make_unique<ApiStream>(std::move(watch));
}

}  // namespace muster::extender
