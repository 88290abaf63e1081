#include "kube/simulators/volume_simulator.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "kube/objects/well_known.h"
#include "kube/simulators/api_client.h"

namespace muster::kube::simulators {
namespace {

using Json = nlohmann::json;

// Its zone, or itself where it has none.
Json TermsOf(const Node& node) {
  const std::string* zone = node.meta.Label(kZoneLabel);
  const Json reached = {{"key", zone == nullptr ? kHostnameLabel : kZoneLabel},
                        {"operator", "In"},
                        {"values", {zone == nullptr ? node.meta.name : *zone}}};
  return Json::array({{{"matchExpressions", Json::array({reached})}}});
}

}  // namespace

class VolumeSimulator::Impl {
 public:
  Impl(embedded::ApiServer* server, absl::Duration making)
      : making_(making),
        client_(server, "volume-provisioner"),
        claims_(server, "/api/v1/persistentvolumeclaims", /*forever=*/true),
        classes_(server, "/apis/storage.k8s.io/v1/storageclasses", /*forever=*/true),
        nodes_(server, "/api/v1/nodes", /*forever=*/true),
        volumes_(server, "/api/v1/persistentvolumes", /*forever=*/true) {}

  void Tick(absl::Time now) {
    classes_.Sync([](const auto&, const auto*, const auto*) {});
    nodes_.Sync([](const auto&, const auto*, const auto*) {});
    claims_.Sync([&](const std::string& key, const auto*, const auto* entry) {
      const bool wanted = entry != nullptr && IsWanted(entry->object);
      if (!wanted) due_.erase(key);
      if (wanted) due_.try_emplace(key, now + making_);
    });
    volumes_.Sync([&](const std::string&, const auto*, const auto* entry) {
      if (entry != nullptr) Keep(entry->object);
    });
    std::erase_if(due_,
                  [&](const auto& entry) { return entry.second <= now && Make(entry.first); });
  }

  absl::Time NextWake() const {
    absl::Time next = absl::InfiniteFuture();
    for (const auto& [key, time] : due_) next = std::min(next, time);
    return next;
  }

 private:
  bool IsWanted(const PersistentVolumeClaim& claim) const {
    const auto* storage_class = classes_.Find(claim.storage_class);
    return claim.volume_name.empty() && storage_class != nullptr &&
           storage_class->object.wait_for_first_consumer &&
           claim.meta.Annotation(kSelectedNodeAnnotation) != nullptr;
  }

  // One that nobody has is available; one that is kept for a claim which waits is bound to it.
  void Keep(const PersistentVolume& volume) {
    const std::string path = "/api/v1/persistentvolumes/" + volume.meta.name;
    if (volume.claim_ref.empty()) {
      if (volume.available) return;
      client_.Patch(path + "/status", {{"status", {{"phase", "Available"}}}}).IgnoreError();
      return;
    }
    const auto* claim = claims_.Find(volume.claim_ref);
    if (claim == nullptr || !claim->object.volume_name.empty()) return;
    if (!volume.claim_uid.empty() && volume.claim_uid != claim->object.meta.uid) return;
    const std::string of_claim = PathOf(claim->object);
    if (!client_.Patch(path + "/status", {{"status", {{"phase", "Bound"}}}}).ok()) return;
    if (!client_.Patch(of_claim, {{"spec", {{"volumeName", volume.meta.name}}}}).ok()) return;
    client_.Patch(of_claim + "/status", {{"status", {{"phase", "Bound"}}}}).IgnoreError();
  }

  // Whether it is done with the claim.
  bool Make(const std::string& key) {
    const auto* found = claims_.Find(key);
    if (found == nullptr) return true;
    const PersistentVolumeClaim& claim = found->object;
    const std::string& selected = *claim.meta.Annotation(kSelectedNodeAnnotation);
    const auto* node = nodes_.Find(selected);
    if (node == nullptr) {
      // As external-provisioner does, so that a scheduler selects another.
      return client_
          .Patch(PathOf(claim),
                 {{"metadata", {{"annotations", {{kSelectedNodeAnnotation, nullptr}}}}}})
          .ok();
    }
    const Json modes = Json::parse(found->stored->bytes()).at("spec").at("accessModes");
    Json volume = {
        {"apiVersion", "v1"},
        {"kind", "PersistentVolume"},
        {"metadata", {{"name", "pvc-" + claim.meta.uid}}},
        {"spec",
         {{"accessModes", modes},
          {"capacity", {{"storage", "1Gi"}}},
          {"storageClassName", claim.storage_class},
          {"claimRef", {{"namespace", claim.meta.name_space}, {"name", claim.meta.name}}}}}};
    if (std::ranges::find(modes, "ReadWriteMany") == modes.end()) {
      volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] = TermsOf(node->object);
    }
    if (!client_.Create("/api/v1/persistentvolumes", volume).ok()) return false;
    const std::string path = PathOf(claim);
    return client_.Patch(path, {{"spec", {{"volumeName", volume["metadata"]["name"]}}}}).ok() &&
           client_.Patch(path + "/status", {{"status", {{"phase", "Bound"}}}}).ok();
  }

  static std::string PathOf(const PersistentVolumeClaim& claim) {
    return fmt::format("/api/v1/namespaces/{}/persistentvolumeclaims/{}", claim.meta.name_space,
                       claim.meta.name);
  }

  const absl::Duration making_;
  ApiClient client_;
  ObjectCache<PersistentVolumeClaim> claims_;
  ObjectCache<StorageClass> classes_;
  ObjectCache<Node> nodes_;
  ObjectCache<PersistentVolume> volumes_;
  std::map<std::string, absl::Time> due_;  // "namespace/name" -> when its volume is made
};

VolumeSimulator::VolumeSimulator(embedded::ApiServer* server, absl::Duration making)
    : impl_(std::make_unique<Impl>(server, making)) {}
VolumeSimulator::~VolumeSimulator() = default;
void VolumeSimulator::Tick(absl::Time now) { impl_->Tick(now); }
absl::Time VolumeSimulator::NextWake() const { return impl_->NextWake(); }

}  // namespace muster::kube::simulators
