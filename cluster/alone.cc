#include "cluster/alone.h"

#include <map>

#include "absl/container/flat_hash_map.h"
#include "cluster/attached_volumes.h"
#include "cluster/made_volumes.h"
#include "cluster/volumes.h"
#include "fmt/format.h"

namespace muster::cluster {
namespace {

constexpr const char* kFix = "have Muster run with --mode=extender, beside a kube-scheduler";

// What claims of a storage class of made volumes ask for, by the first of them.
using Wants = std::map<std::string, const kube::PersistentVolumeClaim*, std::less<>>;

// Sizes apart.
bool AskAlike(kube::VolumeTraits a, const kube::VolumeTraits& b) {
  a.bytes = b.bytes;
  return a == b;
}

std::optional<Unstartable> WhyNotAlone(const Snapshot& snapshot, const kube::Pod& pod,
                                       Wants* wants) {
  if (pod.spec->uses_resource_claims) {
    return Unstartable{
        fmt::format("{} has resource claims (spec.resourceClaims), and a Muster without "
                    "a kube-scheduler allocates none",
                    pod.meta.name),
        kFix};
  }
  if (!pod.spec->inline_volume.empty()) {
    return Unstartable{fmt::format("{} has a volume without a claim (spec.volumes[].{}), and a "
                                   "Muster without a kube-scheduler knows nothing of those",
                                   pod.meta.name, pod.spec->inline_volume),
                       fmt::format("give it a PersistentVolumeClaim, or {}", kFix)};
  }
  for (const kube::PersistentVolumeClaim* claim : UnboundClaims(snapshot, pod)) {
    if (!IsOfMadeVolumes(snapshot, *claim)) continue;
    std::string why = WhyNotCounted(snapshot, *claim);
    const auto [first, is_first] = wants->try_emplace(claim->storage_class, claim);
    if (why.empty() && !is_first && !AskAlike(first->second->wants, claim->wants)) {
      why = fmt::format("and {} asks for others of them", first->second->meta.FullName());
    }
    if (why.empty()) continue;
    return Unstartable{
        fmt::format(
            "PersistentVolumeClaim {} of {} is to be bound to one of the volumes of storage "
            "class {}, {}, and a Muster without a kube-scheduler chooses none so",
            claim->meta.FullName(), pod.meta.name, claim->storage_class, why),
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
    if (is_first || owner->second == &pod) continue;
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
  Wants wants;
  for (const std::string& uid : pods) {
    const kube::Pod& pod = *snapshot.FindPod(uid);
    if (alone) {
      if (auto why = WhyNotAlone(snapshot, pod, &wants)) return why;
    }
    if (auto why = WhyNotItsOwn(snapshot, pod, &owners)) return why;
  }
  return std::nullopt;
}

}  // namespace muster::cluster
