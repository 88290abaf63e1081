#include "cluster/daemon_reservation.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "cluster/node_affinity.h"
#include "fmt/format.h"

namespace muster::cluster {
namespace {

// Tolerated by every DaemonSet pod (pkg/controller/daemon/util AddOrUpdateDaemonPodTolerations),
// next to the lifecycle taints.
bool IsToleratedByAllDaemons(const kube::Taint& taint) {
  constexpr std::array<std::string_view, 4> kKeys = {
      "node.kubernetes.io/disk-pressure",
      "node.kubernetes.io/memory-pressure",
      "node.kubernetes.io/pid-pressure",
      "node.kubernetes.io/unschedulable",
  };
  return taint.effect == kube::TaintEffect::kNoSchedule &&
         std::find(kKeys.begin(), kKeys.end(), taint.key) != kKeys.end();
}

bool KeepsAway(const kube::Taint& taint, const kube::PodSpec& spec) {
  if (taint.effect == kube::TaintEffect::kPreferNoSchedule) return false;
  if (IsLifecycleTaint(taint) || IsToleratedByAllDaemons(taint)) return false;
  return std::none_of(
      spec.tolerations.begin(), spec.tolerations.end(),
      [&](const kube::Toleration& toleration) { return toleration.Tolerates(taint); });
}

}  // namespace

bool WillComeTo(const kube::DaemonSet& daemon_set, const NodeInfo& info) {
  if (daemon_set.meta.deletion_time || !daemon_set.error.empty()) return false;
  const kube::PodSpec& spec = *daemon_set.pod_spec;
  return std::none_of(info.node->taints.begin(), info.node->taints.end(),
                      [&](const kube::Taint& taint) { return KeepsAway(taint, spec); }) &&
         CouldMatchNodeAffinity(spec, info);
}

bool HasPodOf(const NodeInfo& info, const std::string& daemon_set_uid) {
  return std::any_of(info.pods.begin(), info.pods.end(), [&](const PlacedPod& placed) {
    const kube::OwnerReference* owner = placed.pod->meta.Controller();
    return owner != nullptr && owner->uid == daemon_set_uid;
  });
}

absl::Status SumAwaitedDaemons(const DaemonSets& daemon_sets, const NodeInfo& info,
                               kube::ResourceList* reserved) {
  absl::Status status;
  for (const auto& [uid, daemon_set] : daemon_sets) {
    if (!WillComeTo(*daemon_set, info) || HasPodOf(info, uid)) continue;
    if (absl::Status sum = reserved->Add(daemon_set->pod_spec->requests); !sum.ok()) {
      status = absl::OutOfRangeError(
          fmt::format("DaemonSet {}: {}", daemon_set->meta.FullName(), std::string(sum.message())));
    }
  }
  return status;
}

}  // namespace muster::cluster
