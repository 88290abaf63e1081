// The zone in which nodes are made for a gang that must be in one.
//
// It is decided before anybody is asked for nodes, and reaches the members as a nodeSelector while
// they are gated, so that Karpenter buys there alone. A gate's pod can't be given another one:
// where capacity fails, the members are made anew through their job (commit/restarts.h), as for
// another flavor, and what failed is kept where that keeps its flavors.
#include <algorithm>
#include <utility>

#include "coscheduling/labels.h"
#include "coscheduling/provisioning/provisioning.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"
#include "quota/admission_writes.h"
#include "quota/pod_sets.h"

namespace muster::coscheduling {

std::string ZoneTried(std::string_view zone) {
  return fmt::format("{}={}", kube::kZoneLabel, zone);
}

std::string Provisioning::CarriedZone(const Gang& gang) const {
  for (const kube::Pod* pod : gangs_.UnboundOf(gang)) {
    const std::string* chosen = pod->meta.Annotation(kZoneAnnotation);
    const auto selected = pod->spec->node_selector.find(kube::kZoneLabel);
    if (chosen == nullptr || selected == pod->spec->node_selector.end()) continue;
    if (selected->second == *chosen) return *chosen;
  }
  return "";
}

std::vector<cluster::Zone> Provisioning::ZonesFor(
    const Gang& gang, const std::map<std::string, absl::Time>& tried) const {
  const absl::Time now = agenda_->now();
  const PlanShortfall& shortfall = placement_->Of(gang).shortfall;
  const quota::PodSets sets = quota::GroupByPodSet(placement_->Unplaced(gang), gang.required());
  std::vector<cluster::Zone> zones;
  for (const std::string& name : cluster::ZonesOf(placeability_.pools(), snapshot_.node_list())) {
    cluster::Zone zone{.name = name};
    const auto there = std::ranges::find(shortfall.domains, name, &PlanShortfall::Domain::value);
    if (shortfall.required == kube::kZoneLabel && there != shortfall.domains.end()) {
      zone.room = there->room;
    }
    zone.needed = gang.required();
    for (quota::PodSet set : sets.required) {
      kube::PodSpec spec = *set.spec;
      spec.node_selector[kube::kZoneLabel] = name;
      set.spec = std::make_shared<const kube::PodSpec>(std::move(spec));
      zone.makeable += placeability_.MakeableOf(set, cluster::PoolLimits::kRemaining);
    }
    zone.suffices = zone.room + zone.makeable >= zone.needed;
    const auto failed = tried.find(ZoneTried(name));
    if (failed != tried.end() && failed->second > now) zone.failed_until = failed->second;
    const absl::Time refused = setbacks_.LastRefusalIn(name);
    if (refused + options_.capacity_backoff > now) zone.refused_at = refused;
    zones.push_back(std::move(zone));
  }
  cluster::Order(&zones);
  return zones;
}

std::string Provisioning::ZoneFor(const Gang& gang) {
  const std::string& required = gang.topology.required;
  const bool asks = !required.empty() && required != kube::kRegionLabel && gang.facts.admitted &&
                    !gang.facts.blocked && options_.quota != QuotaMode::kKueue;
  if (!asks) return "";
  if (std::string carried = CarriedZone(gang); !carried.empty()) return carried;
  const Places& places = placement_->Of(gang);
  if (!places.short_of_nodes || places.min_resources_short || NobodyMakesNodes(gang)) return "";
  for (const std::string& uid : gang.bound) {
    std::string zone = cluster::ZoneOf(snapshot_.FindNode(snapshot_.FindPod(uid)->node_name));
    if (!zone.empty() && !gang.lost.contains(uid)) return zone;
  }
  for (const auto& [uid, node] : places.fixed) {
    if (std::string zone = cluster::ZoneOf(snapshot_.FindNode(node)); !zone.empty()) return zone;
  }
  Part& part = parts_[gang.id];
  if (!part.zone.empty() || IsBeyondLimits(gang)) return part.zone;
  const std::vector<cluster::Zone> zones = ZonesFor(gang, records_.Of(gang)->flavors_tried);
  if (!zones.empty()) part.zone = zones.front().name;
  return part.zone;
}

bool Provisioning::GiveZone(const Gang& gang) {
  const std::string zone = ZoneFor(gang);
  if (zone.empty()) return true;
  bool all = true;
  for (const std::string& uid : gang.unbound) {
    const kube::Pod& pod = *snapshot_.FindPod(uid);
    if (!IsGatedByUs(pod) || pod.spec->node_selector.contains(kube::kZoneLabel)) continue;
    all = false;
    // One patch after the other: each is of the version that it was decided on.
    const quota::PodSetAssignment* given = quota_.Holds(gang) ? quota_.GivenTo(gang, pod) : nullptr;
    const std::string target = "zone/" + uid;
    if (given != nullptr && !quota::HasFlavors(pod, *given)) continue;
    if (!outbox_->MayAct(gang.id, target)) continue;
    quota::FlavorAdditions added;
    added.node_selector = {{kube::kZoneLabel, zone}};
    added.annotations = {{std::string(kZoneAnnotation), zone}};
    outbox_->Act(gang.id, target, quota::AssignFlavorsTo(pod, std::move(added)));
  }
  if (all) parts_[gang.id].zone.clear();
  return all;
}

std::vector<cluster::NodeSource> Provisioning::ZoneSourcesOf(const Gang& gang) const {
  const std::string carried = CarriedZone(gang);
  const AdmissionRecord* record = records_.Of(gang);
  if (carried.empty() || record == nullptr) return {};
  return cluster::SourcesIn(ZonesFor(gang, record->flavors_tried), carried);
}

}  // namespace muster::coscheduling
