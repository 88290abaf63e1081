#include "kube/objects/pod_refusal.h"

#include <algorithm>
#include <array>

#include "fmt/format.h"

namespace muster::kube {
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

std::optional<PodRefusal> PodRefusalIn(const Event& event) {
  const bool refused = event.type == "Warning" && !event.about.uid.empty() &&
                       (event.reason == "FailedCreate" || event.reason == "FailedCreatePod");
  if (!refused) return std::nullopt;
  return PodRefusal{event.about, RefusalText(event.message), event.last};
}

// "exceeded quota: NAME, ..." and "failed quota: NAME: ...".
std::string_view RefusingQuota(std::string_view why) {
  for (std::string_view words : {"exceeded quota: ", "failed quota: "}) {
    if (!why.starts_with(words)) continue;
    why.remove_prefix(words.size());
    return why.substr(0, why.find_first_of(",:"));
  }
  return "";
}

std::string FixFor(const PodRefusal& refusal) {
  const ObjectReference& owner = refusal.owner;
  const std::string retry =
      fmt::format("its controller tries again within {} min", owner.kind == "Job" ? 1 : 17);
  const std::string_view quota = RefusingQuota(refusal.why);
  if (quota.empty()) {
    return fmt::format("correct the pod template of {}, or what refuses its pods; {}", owner.kind,
                       retry);
  }
  if (refusal.why.starts_with("failed")) {
    return fmt::format("let the pod template of {} say what ResourceQuota {}/{} counts; {}",
                       owner.kind, owner.name_space, quota, retry);
  }
  return fmt::format("raise ResourceQuota {}/{}, or end others that it counts; {}",
                     owner.name_space, quota, retry);
}

}  // namespace muster::kube
