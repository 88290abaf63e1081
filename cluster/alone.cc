#include "cluster/alone.h"

#include "absl/container/flat_hash_map.h"
#include "cluster/attached_volumes.h"
#include "cluster/volumes.h"
#include "fmt/format.h"

namespace muster::cluster {
namespace {

constexpr const char* kFix = "have Muster run with --mode=extender, beside a kube-scheduler";

std::optional<Unstartable> WhyNotAlone(const Snapshot& snapshot, const kube::Pod& pod) {
  if (pod.spec->uses_resource_claims) {
    return Unstartable{
        fmt::format("{} has resource claims (spec.resourceClaims), and a Muster without "
                    "a kube-scheduler allocates none",
                    pod.meta.name),
        kFix};
  }
  for (const kube::PersistentVolumeClaim* claim : UnboundClaims(snapshot, pod)) {
    if (!IsOfMadeVolumes(snapshot, *claim)) continue;
    return Unstartable{
        fmt::format(
            "PersistentVolumeClaim {} of {} is to be bound to one of the volumes of storage "
            "class {}, and a Muster without a kube-scheduler chooses none",
            claim->meta.FullName(), pod.meta.name, claim->storage_class),
        fmt::format("bind the claim (spec.volumeName), or {}", kFix), /*of_claim=*/true};
  }
  return std::nullopt;
}

// Who of the pods have which ReadWriteOncePod claim.
using Owners = absl::flat_hash_map<const kube::PersistentVolumeClaim*, const kube::Pod*>;

std::optional<Unstartable> WhyNotItsOwn(const Snapshot& snapshot, const kube::Pod& pod,
                                        Owners* owners) {
  for (const kube::PersistentVolumeClaim* claim : ClaimsOfOnePod(snapshot, pod)) {
    const auto [owner, is_first] = owners->try_emplace(claim, &pod);
    if (is_first) continue;
    return Unstartable{
        fmt::format("PersistentVolumeClaim {} is ReadWriteOncePod, and both {} and {} name it",
                    claim->meta.FullName(), owner->second->meta.name, pod.meta.name),
        "give each member a claim of its own, or the claim another access mode", /*of_claim=*/true};
  }
  const auto held = HeldByAnother(snapshot, pod);
  if (!held || !held->second->IsBound()) return std::nullopt;
  return Unstartable{
      fmt::format(
          "PersistentVolumeClaim {} of {} is ReadWriteOncePod, and pod {} on node {} has it",
          held->first->meta.FullName(), pod.meta.name, held->second->meta.FullName(),
          held->second->node_name),
      "await the end of that pod, or delete it", /*of_claim=*/true, /*in_use=*/true};
}

}  // namespace

std::optional<Unstartable> WhyUnstartable(const Snapshot& snapshot,
                                          const std::vector<std::string>& pods, bool alone) {
  Owners owners;
  for (const std::string& uid : pods) {
    const kube::Pod& pod = *snapshot.FindPod(uid);
    if (pod.spec->persistent_volume_claims.empty() && !pod.spec->uses_resource_claims) continue;
    if (alone) {
      if (auto why = WhyNotAlone(snapshot, pod)) return why;
    }
    if (auto why = WhyNotItsOwn(snapshot, pod, &owners)) return why;
  }
  return std::nullopt;
}

}  // namespace muster::cluster
