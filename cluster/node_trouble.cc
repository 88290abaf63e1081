#include "cluster/node_trouble.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "fmt/format.h"
#include "kube/objects/time_text.h"

namespace muster::cluster {
namespace {

using Kind = NodeTrouble::Kind;

constexpr std::array<std::string_view, 2> kOffTaints = {
    "node.kubernetes.io/out-of-service", "node.cloudprovider.kubernetes.io/shutdown"};
constexpr std::array<std::string_view, 2> kNotReadyTaints = {"node.kubernetes.io/not-ready",
                                                             "node.kubernetes.io/unreachable"};

template <typename Keys>
const kube::Taint* FindTaint(const kube::Node& node, const Keys& keys) {
  const auto it = std::ranges::find_if(node.taints, [&](const kube::Taint& taint) {
    return std::ranges::find(keys, taint.key) != keys.end();
  });
  return it == node.taints.end() ? nullptr : &*it;
}

// Since when: what is stated counts, unless it is in the future; else since it was first seen.
absl::Time Since(Kind kind, const std::optional<absl::Time>& stated,
                 const std::optional<NodeTrouble>& before, absl::Time now) {
  if (stated && *stated <= now) return *stated;
  return before && before->kind == kind ? before->since : now;
}

std::string NotReadyText(absl::Time since, const std::string& why) {
  return fmt::format("isn't Ready since {}{}{}", kube::ClockText(since), why.empty() ? "" : ": ",
                     why);
}

}  // namespace

std::optional<NodeTrouble> TroubleOf(const NodeInfo* info, const std::optional<NodeTrouble>& before,
                                     absl::Time now, absl::Duration grace) {
  if (info == nullptr || info->object == nullptr) {
    const absl::Time since = Since(Kind::kGone, std::nullopt, before, now);
    return NodeTrouble{Kind::kGone, fmt::format("is gone since {}", kube::ClockText(since)), since,
                       since};
  }
  if (info->is_virtual) return std::nullopt;
  const kube::Node& node = *info->object;
  if (const kube::Taint* off = FindTaint(node, kOffTaints)) {
    const absl::Time since = Since(Kind::kGone, std::nullopt, before, now);
    return NodeTrouble{
        Kind::kGone,
        fmt::format("is off since {}: taint {}", kube::ClockText(since), off->ToString()), since,
        since};
  }
  const bool going = info->readiness.stage == NodeStage::kGoing;
  const kube::Taint* ill = FindTaint(node, kNotReadyTaints);
  if (!node.ready || ill != nullptr) {
    const absl::Time since =
        Since(Kind::kNotReady, node.ready ? std::nullopt : node.ready_changed, before, now);
    const std::string why = node.ready ? "taint " + ill->ToString() : node.ready_message;
    return NodeTrouble{Kind::kNotReady, NotReadyText(since, why), since,
                       going ? since : since + grace};
  }
  if (!going) return std::nullopt;
  std::optional<absl::Time> stated = node.meta.deletion_time;
  if (!stated && info->claim != nullptr) stated = info->claim->meta.deletion_time;
  const absl::Time since = Since(Kind::kGoing, stated, before, now);
  return NodeTrouble{
      Kind::kGoing,
      fmt::format("is being removed since {}: {}", kube::ClockText(since), info->readiness.message),
      since, absl::InfiniteFuture()};
}

}  // namespace muster::cluster
