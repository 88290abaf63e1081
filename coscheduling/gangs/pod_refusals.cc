#include "coscheduling/gangs/pod_refusals.h"

#include <algorithm>
#include <array>

namespace muster::coscheduling {
namespace {

// What an event's message may hold if it comes through events.k8s.io. The API server limits those
// of core/v1 by nothing but the size of an object.
constexpr size_t kMaxText = 1'024;
constexpr std::string_view kCombined = "(combined from similar events): ";
constexpr std::array<std::string_view, 2> kPrefixes = {"Error creating: ", " failed error: "};
// pods "NAME" is forbidden: ..., Pod "NAME" is invalid: ...
constexpr std::array<std::string_view, 2> kPodNames = {"pods \"", "Pod \""};
constexpr std::array<std::string_view, 2> kVerdicts = {"\" is forbidden: ", "\" is invalid: "};

// What follows the marker, or all of it where the marker isn't.
std::string_view After(std::string_view text, std::string_view marker) {
  const size_t at = text.find(marker);
  return at == std::string_view::npos ? text : text.substr(at + marker.size());
}

std::string_view WithoutPodName(std::string_view text) {
  for (std::string_view before : kPodNames) {
    if (!text.starts_with(before)) continue;
    const size_t quote = text.find('"', before.size());
    if (quote == std::string_view::npos) continue;
    for (std::string_view verdict : kVerdicts) {
      if (text.substr(quote).starts_with(verdict)) return text.substr(quote + verdict.size());
    }
  }
  return text;
}

// Never within a character.
std::string_view Limited(std::string_view text) {
  if (text.size() <= kMaxText) return text;
  size_t end = kMaxText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

bool IsPodRefusal(const kube::Event& event) {
  return event.type == "Warning" &&
         (event.reason == "FailedCreate" || event.reason == "FailedCreatePod") &&
         !event.about.uid.empty();
}

}  // namespace

std::string RefusalText(std::string_view message) {
  if (message.starts_with(kCombined)) message.remove_prefix(kCombined.size());
  if (message.starts_with(kPrefixes[0])) {
    message.remove_prefix(kPrefixes[0].size());
  } else if (message.starts_with("create ")) {
    message = After(message, kPrefixes[1]);
  }
  std::string text(Limited(WithoutPodName(message)));
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::vector<std::string> PodRefusals::Note(const kube::Event& event) {
  if (!IsPodRefusal(event)) return {};
  const std::string& uid = event.about.uid;
  auto [it, added] = refusals_.try_emplace(uid);
  PodRefusal& refusal = it->second;
  if (!added) {
    if (event.last < refusal.last) return {};
    by_last_told_.erase({refusal.last, uid});
  }
  std::string why = RefusalText(event.message);
  std::vector<std::string> changed;
  if (added || refusal.why != why || refusal.last != event.last) changed.push_back(uid);
  refusal = {event.about, std::move(why), event.last};
  by_last_told_.emplace(event.last, uid);
  while (refusals_.size() > capacity_) {
    std::string dropped = by_last_told_.begin()->second;
    by_last_told_.erase(by_last_told_.begin());
    refusals_.erase(dropped);
    ++dropped_;
    changed.push_back(std::move(dropped));
  }
  return changed;
}

void PodRefusals::Forget(const std::string& owner_uid) {
  const auto it = refusals_.find(owner_uid);
  if (it == refusals_.end()) return;
  by_last_told_.erase({it->second.last, owner_uid});
  refusals_.erase(it);
}

std::vector<std::string> PodRefusals::Expire(absl::Time now) {
  while (!by_last_told_.empty() && by_last_told_.rbegin()->first > now) {
    auto ahead = by_last_told_.extract(std::prev(by_last_told_.end()));
    refusals_.at(ahead.value().second).last = ahead.value().first = now;
    by_last_told_.insert(std::move(ahead));
  }
  std::vector<std::string> over;
  while (!by_last_told_.empty() && by_last_told_.begin()->first + time_ <= now) {
    auto oldest = by_last_told_.extract(by_last_told_.begin());
    refusals_.erase(oldest.value().second);
    over.push_back(std::move(oldest.value().second));
  }
  return over;
}

absl::Time PodRefusals::NextExpiry() const {
  return by_last_told_.empty() ? absl::InfiniteFuture() : by_last_told_.begin()->first + time_;
}

const PodRefusal* PodRefusals::Find(const std::string& owner_uid) const {
  const auto it = refusals_.find(owner_uid);
  return it == refusals_.end() ? nullptr : &it->second;
}

}  // namespace muster::coscheduling
