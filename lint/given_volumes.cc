#include "lint/given_volumes.h"

#include <utility>
#include <variant>

#include "kube/objects/well_known.h"
#include "kube/objects/workload.h"
#include "lint/text.h"

namespace muster::lint {

bool GiveVolumes(const Manifests& manifests, coscheduling::Engine* engine,
                 std::set<std::string>* untold) {
  std::set<std::string> volumes, waiting_classes, classes_of_made;
  for (const Given& given : manifests.given) {
    if (const auto* volume = std::get_if<kube::PersistentVolume>(given.object.get())) {
      volumes.insert(volume->meta.name);
      engine->Upsert(*given.object);
    } else if (const auto* its = std::get_if<kube::StorageClass>(given.object.get())) {
      if (its->wait_for_first_consumer) waiting_classes.insert(its->meta.name);
      if (its->provisioner == kube::kNoProvisioner) classes_of_made.insert(its->meta.name);
      engine->Upsert(*given.object);
    }
  }
  bool claims = false;
  for (const Given& given : manifests.given) {
    const auto* claim = std::get_if<kube::PersistentVolumeClaim>(given.object.get());
    if (claim == nullptr) continue;
    if (claim->volume_name.empty() && classes_of_made.contains(claim->storage_class)) {
      untold->insert(claim->meta.FullName());
      continue;
    }
    claims = true;
    kube::PersistentVolumeClaim bound = *claim;
    bound.bound = true;
    const bool waits = bound.volume_name.empty() && waiting_classes.contains(bound.storage_class);
    if (!waits && !volumes.contains(bound.volume_name)) {
      kube::PersistentVolume volume;
      volume.meta.name = volume.meta.uid = Concat("made-for-", bound.meta.FullName());
      volume.meta.resource_version = "1";
      volume.storage_class = bound.storage_class;
      volume.claim_ref = bound.meta.FullName();
      bound.volume_name = volume.meta.name;
      engine->Upsert(std::move(volume));
    }
    engine->Upsert(std::move(bound));
  }
  return claims;
}

}  // namespace muster::lint
