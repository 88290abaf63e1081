#include "extender/aggregated/api_watch.h"

#include <utility>

#include "absl/time/clock.h"
#include "extender/state_store.h"
#include "fmt/format.h"

namespace muster::extender {
namespace {

const char* NameOf(ApiChange::Type type) {
  switch (type) {
    case ApiChange::Type::kAdded:
      return "ADDED";
    case ApiChange::Type::kModified:
      return "MODIFIED";
    case ApiChange::Type::kDeleted:
      break;
  }
  return "DELETED";
}

class ApiStream : public http::StreamSource {
 public:
  explicit ApiStream(ApiWatch watch) : watch_(std::move(watch)) {}

  void Start(std::function<void()> wake) override {
    auto changes = watch_.objects->Watch(watch_.filter, watch_.since, std::move(wake));
    if (changes.ok()) changes_ = *std::move(changes);
  }

  Piece Next() override {
    const absl::Duration left = watch_.until - absl::Now();
    Piece piece{.end = left <= absl::ZeroDuration(), .look_again = left};
    if (piece.end) return piece;
    while (piece.data.size() < kWatchPieceBytes) {
      // Without changes it came too late, though the request had been checked.
      const std::optional<ApiChange> change = changes_ ? changes_->Next() : std::nullopt;
      if (!change) {
        piece.end = !changes_ || changes_->lost();
        if (piece.end) piece.data += Event("ERROR", watch_.expired);
        if (!piece.data.empty()) piece.rest = kWatchRest;
        return piece;
      }
      piece.data += Event(NameOf(change->type), watch_.object(change->item));
    }
    piece.more = true;
    return piece;
  }

 private:
  static std::string Event(const char* type, const std::string& object) {
    return fmt::format("{{\"type\":\"{}\",\"object\":{}}}\n", type, object);
  }

  const ApiWatch watch_;
  std::unique_ptr<ApiChanges> changes_;
};

}  // namespace

std::unique_ptr<http::StreamSource> WatchOf(ApiWatch watch) {
  return std::make_unique<ApiStream>(std::move(watch));
}

}  // namespace muster::extender
