#include "extender/kubectl/follower.h"

#include <chrono>
#include <utility>

namespace muster::extender {
namespace {

// A person who watches is told sooner than a controller would have to be.
constexpr absl::Duration kStaleAfter = absl::Seconds(3);

kube::ReflectorOptions OptionsFor(const Visible& asked) {
  kube::ReflectorOptions options;
  options.path = Visible{asked.resource, asked.name_space, ""}.Path();
  if (!asked.name.empty()) options.field_selector = "metadata.name=" + asked.name;
  options.use_watch_list = false;
  options.stale_after = kStaleAfter;
  return options;
}

std::string KeyOf(const kube::ObjectHeader& header) {
  return header.name_space + "/" + header.name;
}

}  // namespace

Follower::Follower(kube::Transport& transport, Visible asked)
    : asked_(std::move(asked)), reflector_(transport, timer_, OptionsFor(asked_), *this) {
  reflector_.Start();
}

absl::StatusOr<Follower::News> Follower::Next(absl::Duration patience) {
  std::map<std::string, std::optional<std::string>> taken;
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, absl::ToChronoMilliseconds(patience),
                      [this] { return !failure_.ok() || (synced_ && !news_.empty()); });
    if (!failure_.ok()) return failure_;
    if (synced_) taken.swap(news_);
  }
  News news;
  for (auto& [key, object] : taken) {
    std::optional<nlohmann::json>& told = news[key];
    if (object) told = nlohmann::json::parse(*object, nullptr, /*allow_exceptions=*/false);
  }
  return news;
}

std::string Follower::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

void Follower::Upsert(const kube::ObjectHeader& header, std::string_view object) {
  const std::lock_guard lock(mutex_);
  news_[KeyOf(header)] = std::string(object);
  changed_.notify_one();
}

void Follower::Remove(const kube::ObjectHeader& header) {
  const std::lock_guard lock(mutex_);
  news_[KeyOf(header)] = std::nullopt;
  changed_.notify_one();
}

void Follower::StateChanged(kube::ReflectorState state, const absl::Status& why) {
  const std::lock_guard lock(mutex_);
  synced_ |= state == kube::ReflectorState::kSynced;
  trouble_ = state == kube::ReflectorState::kStale ? std::string(why.message()) : "";
  // What no patience mends.
  if (absl::IsPermissionDenied(why) || absl::IsUnauthenticated(why)) failure_ = WhyNot(asked_, why);
  changed_.notify_one();
}

}  // namespace muster::extender
