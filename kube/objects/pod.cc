#include "kube/objects/pod.h"

#include <algorithm>

#include "fmt/format.h"

namespace muster::kube {
namespace {

std::string_view NameOf(TaintEffect effect) {
  switch (effect) {
    case TaintEffect::kNoSchedule:
      return "NoSchedule";
    case TaintEffect::kPreferNoSchedule:
      return "PreferNoSchedule";
    case TaintEffect::kNoExecute:
      return "NoExecute";
  }
  return "";
}

}  // namespace

std::string Taint::ToString() const {
  return value.empty() ? fmt::format("{}:{}", key, NameOf(effect))
                       : fmt::format("{}={}:{}", key, value, NameOf(effect));
}

bool Toleration::Tolerates(const Taint& taint) const {
  if (effect && *effect != taint.effect) return false;
  if (!key.empty() && key != taint.key) return false;
  return exists || value == taint.value;
}

bool Pod::HasGate(std::string_view gate) const {
  return std::find(scheduling_gates.begin(), scheduling_gates.end(), gate) !=
         scheduling_gates.end();
}

absl::Time Pod::GoneBy(absl::Time now) const {
  absl::Time gone = absl::InfiniteFuture();
  if (longest_seconds > 0) gone = std::min(start_time, now) + absl::Seconds(longest_seconds);
  return std::max(now, std::min(gone, meta.deletion_time.value_or(gone)));
}

}  // namespace muster::kube
