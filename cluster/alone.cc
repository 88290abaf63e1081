#include "cluster/alone.h"

#include "cluster/volumes.h"
#include "fmt/format.h"

namespace muster::cluster {
namespace {

constexpr const char* kFix = "have Muster run with --mode=extender, beside a kube-scheduler";

}  // namespace

std::optional<NotAlone> WhyNotAlone(const Snapshot& snapshot, const kube::Pod& pod) {
  if (pod.spec->uses_resource_claims) {
    return NotAlone{
        fmt::format("{} has resource claims (spec.resourceClaims), and a Muster without "
                    "a kube-scheduler allocates none",
                    pod.meta.name),
        kFix};
  }
  for (const kube::PersistentVolumeClaim* claim : UnboundClaims(snapshot, pod)) {
    if (!IsOfMadeVolumes(snapshot, *claim)) continue;
    return NotAlone{
        fmt::format(
            "PersistentVolumeClaim {} of {} is to be bound to one of the volumes of storage "
            "class {}, and a Muster without a kube-scheduler chooses none",
            claim->meta.FullName(), pod.meta.name, claim->storage_class),
        fmt::format("bind the claim (spec.volumeName), or {}", kFix), true};
  }
  return std::nullopt;
}

}  // namespace muster::cluster
