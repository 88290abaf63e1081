#include "coscheduling/placement/placement.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "cluster/predicates.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"
#include "quota/pod_sets.h"
#include "quota/topology_levels.h"

namespace muster::coscheduling {
namespace {

// Reasons are made true again this often where there is more to plan than a step's budget.
constexpr absl::Duration kRefreshInterval = absl::Milliseconds(500);
// A gang that got quota and found its room taken doesn't ask again before this.
constexpr absl::Duration kRoomPause = absl::Seconds(5);

// It holds no quota and stays in the list all the same.
bool IsWithoutQuota(const Gang& gang) {
  return (gang.facts.backing_off || gang.facts.waits_for_room) && !gang.facts.blocked &&
         gang.ours && !gang.unbound.empty();
}

// How many of the members required had no room.
int64_t MissingFrom(const PlanRequest& request, const PlanShortfall& shortfall) {
  return static_cast<int64_t>(request.required) - static_cast<int64_t>(shortfall.placeable);
}

}  // namespace

std::vector<const kube::Pod*> Placement::Unplaced(const Gang& gang) const {
  const PlaceMap& fixed = Of(gang).fixed;
  std::vector<const kube::Pod*> members;
  for (const std::string& uid : gang.unbound) {
    if (fixed.contains(uid) || !quota_->MayBePlaced(gang, uid)) continue;
    members.push_back(snapshot_.FindPod(uid));
  }
  return members;
}

bool Placement::Waits(const Gang& gang) const {
  if (!gang.ours || !gang.facts.admitted || gang.facts.blocked || gang.facts.infeasible ||
      gang.unbound.empty()) {
    return false;
  }
  const size_t unplaced = Unplaced(gang).size();
  return unplaced > 0 && static_cast<int64_t>(unplaced + Of(gang).fixed.size()) >= gang.required();
}

std::string Placement::WhyNoRoom(const Gang& gang) const {
  const bool waits = std::ranges::any_of(quota_->StagesOf(gang), [&](const Gang* stage) {
    const Part& part = parts_.Of(stage->id);
    const bool may_ask = part.places.fits_now || IsHead(gang);
    return stage->facts.waits_for_room && !(may_ask && part.asks_from == absl::InfinitePast());
  });
  return waits ? "there is no room for it" : "";
}

bool Placement::IsHead(const Gang& gang) const {
  return std::ranges::any_of(quota_->StagesOf(gang), [&](const Gang* stage) {
    return heads_.contains(stage->id) || (stage != &gang && !Of(*stage).fixed.empty());
  });
}

std::vector<GangId> Placement::GangsOn(std::string_view node) const {
  const auto it = on_node_.find(std::string(node));
  if (it == on_node_.end()) return {};
  return {it->second.begin(), it->second.end()};
}

Placement::Order Placement::OrderOf(const Gang& gang) {
  using Need = cluster::PlaceInLine::Need;
  const Need need = gang.required() == 0 ? Need::kSurplus
                    : gang.bound.empty() ? Need::kAll
                                         : Need::kRest;
  return {{-int64_t{gang.priority}, need, absl::ToUnixNanos(gang.created), gang.key.ToString(),
           static_cast<uint64_t>(gang.id)}};
}

bool Placement::ComesLater(const Gang& gang, const Part& part) const {
  const GangFacts& facts = gang.facts;
  const bool starts = gang.ours && !facts.blocked && !facts.infeasible && !facts.evicting &&
                      !facts.backing_off && !gang.unbound.empty();
  return starts && !part.listed && quota_->IsUnderQuota(gang) &&
         static_cast<int64_t>(part.places.fixed.size()) < gang.required();
}

void Placement::NoteClaim(const Gang& gang, Part* part) {
  std::optional<Order> now;
  if (ComesLater(gang, *part)) now = OrderOf(gang);
  if (now == part->comes_later) return;
  if (part->comes_later) come_later_.erase(*part->comes_later);
  if (now) come_later_.insert(*now);
  part->comes_later = std::move(now);
}

void Placement::EnterList(const Gang& gang, Part* part) {
  const Order order = OrderOf(gang);
  if (part->listed && part->order == order) return;
  LeaveList(part);
  part->order = order;
  part->listed = true;
  list_.insert(order);
  by_age_.emplace(part->planned_at, order);
  if (part->places.tentative_assumed) tentative_.insert(order);
  if (part->must_plan) due_.insert(order);
  EnterDemand(part);
}

void Placement::LeaveList(Part* part) {
  if (!part->listed) return;
  part->listed = false;
  LeaveDemand(part);
  list_.erase(part->order);
  due_.erase(part->order);
  by_age_.erase({part->planned_at, part->order});
  tentative_.erase(part->order);
}

// Of all that a plan of the gang is made from, nodes apart.
size_t Placement::Digest(const Gang& gang) const {
  size_t digest = absl::HashOf(gang.required(), IsWithoutQuota(gang), Of(gang).fixed.size());
  for (const kube::Pod* pod : Unplaced(gang)) {
    digest = absl::HashOf(digest, pod->meta.uid, pod->spec.get());
    for (const auto& [key, value] : pod->meta.labels) digest = absl::HashOf(digest, key, value);
  }
  if (gang.group != nullptr && gang.group->min_resources) {
    digest = absl::HashOf(digest, gang.group->min_resources->ToString());
  }
  for (const std::string& uid : gang.bound) digest = absl::HashOf(digest, uid);
  for (const std::string& uid : gang.lost) digest = absl::HashOf(digest, uid);
  for (const auto& [node, until] : LeftOut(gang)) {
    digest = absl::HashOf(digest, node);
    agenda_->NoteAt(gang.id, until);
  }
  return digest;
}

// Nodes that kube-scheduler, or the API server, refuses for the gang: until when.
std::map<std::string, absl::Time> Placement::LeftOut(const Gang& gang) const {
  const Part& part = parts_.Of(gang.id);
  std::map<std::string, absl::Time> left_out = part.refused.left_out();
  if (part.demand == nullptr) return left_out;
  for (Class one : part.demand->classes) {
    not_offered_.AddTo(one->first, agenda_->now(), &left_out);
  }
  return left_out;
}

void Placement::IndexPlaces(GangId gang, Part* part) {
  absl::btree_set<std::string> nodes;
  absl::btree_set<std::string> taken;
  for (const auto& [uid, node] : part->places.fixed) taken.insert(node);
  for (const auto& [uid, node] : part->places.tentative) {
    (part->places.tentative_assumed ? taken : nodes).insert(node);
  }
  nodes.insert(taken.begin(), taken.end());
  std::vector<std::string> released;
  std::ranges::set_difference(part->takes_room_on, taken, std::back_inserter(released));
  if (!released.empty()) reservations_.NoteFreed();
  released_.insert(released.begin(), released.end());
  part->takes_room_on = std::move(taken);
  if (nodes == part->places_on) return;
  for (const std::string& node : part->places_on) {
    if (nodes.contains(node)) continue;
    const auto it = on_node_.find(node);
    it->second.erase(gang);
    if (it->second.empty()) on_node_.erase(it);
  }
  for (const std::string& node : nodes) on_node_[node].insert(gang);
  part->places_on = std::move(nodes);
}

bool Placement::Sync(const Gang& gang) {
  Part& part = parts_[gang.id];
  Places& places = part.places;
  for (const std::string& uid : gang.bound) {
    places.fixed.erase(uid);
    if (places.tentative.erase(uid) > 0) room_->Forget(uid);
  }
  // One may have ended before it was seen bound.
  for (const std::string& uid : gang.pods) {
    if (gang.facts.succeeded + gang.facts.failed == 0) break;
    if (snapshot_.FindPod(uid)->IsTerminal()) Leave(gang.id, uid);
  }
  part.refused.Expire(agenda_->now());
  FollowStanding(gang, &part);
  const absl::Duration expected = gang.expected_runtime.time;
  if (std::exchange(part.expected_runtime, expected) != expected) reservations_.NoteFreed();
  if (gang.facts.blocked || !gang.facts.admitted) DropFixed(gang.id, &part);
  const std::set<std::string> broken = BrokenPlaces(gang, part);
  const bool held = broken.empty();
  if (!held) {
    // Before its commit a gang is solved anew as a whole; after, only what broke is.
    const bool is_free = !places.committing && gang.bound.empty() && part.pins.empty();
    DropFixed(gang.id, &part, is_free ? nullptr : &broken);
  }
  const bool without_quota = IsWithoutQuota(gang);
  if (!gang.facts.waits_for_room) part.awaits_room = false;
  if (!without_quota && !Waits(gang)) {
    DropTentative(gang.id, &part);
    LeaveList(&part);
    Declassify(gang.id, &part);
    places.coming_suffices = places.short_of_nodes = places.fits_now = false;
    part.asked = 0;
    IndexPlaces(gang.id, &part);
    NoteClaim(gang, &part);
    FollowLack(gang, &part);
    return held;
  }
  if (!without_quota) places.fits_now = false;
  const size_t asked = Digest(gang);
  if (part.asked != asked) {
    LeaveList(&part);
    Classify(gang, &part);
  }
  EnterList(gang, &part);
  NoteClaim(gang, &part);
  // An incomplete plan keeps what it counts on for a time only; and whether capacity may suffice
  // again isn't said by nodes.
  const bool keeps_partial = places.tentative_assumed && places.short_of_nodes;
  if (keeps_partial && agenda_->now() < part.keeps_partial_until) {
    agenda_->NoteAt(gang.id, part.keeps_partial_until);
  }
  const bool kept_for_long = keeps_partial && agenda_->now() >= part.keeps_partial_until;
  if (part.asked != asked || kept_for_long || gang.facts.backing_off) PlanSoon(&part);
  if (agenda_->now() >= part.awaits_until) PlanSoon(&part);
  if (gang.facts.waits_for_room) SyncWithoutQuota(gang, &part);
  part.asked = asked;
  IndexPlaces(gang.id, &part);
  FollowLack(gang, &part);
  return held;
}

void Placement::SyncWithoutQuota(const Gang& gang, Part* part) {
  const absl::Time now = agenda_->now();
  if (!std::exchange(part->awaits_room, true)) part->asks_from = now + kRoomPause;
  if (part->asks_from == absl::InfinitePast()) return;
  if (now < part->asks_from) {
    agenda_->NoteAt(gang.id, part->asks_from);
    return;
  }
  part->asks_from = absl::InfinitePast();
  PlanSoon(part);
  if (!IsHead(gang)) return;
  quota_->Invalidate(gang);
  fitting_.push_back(gang.id);
}

void Placement::Leave(GangId gang, const std::string& pod) {
  Part* part = parts_.Find(gang);
  surplus_leaving_.erase(pod);
  if (part == nullptr) return;
  part->pins.erase(pod);
  if (part->places.fixed.erase(pod) + part->places.tentative.erase(pod) == 0) return;
  room_->Forget(pod);
  IndexPlaces(gang, part);
}

void Placement::Forget(GangId gang) {
  Part* part = parts_.Find(gang);
  if (part == nullptr) return;
  part->pins.clear();
  DropTentative(gang, part);
  DropFixed(gang, part);
  IndexPlaces(gang, part);
  LeaveList(part);
  if (part->comes_later) come_later_.erase(*part->comes_later);
  if (part->evictable) evictable_.erase({*part->evictable, gang});
  leaving_.erase(gang);
  Declassify(gang, part);
  if (part->lacks) lacking_.erase(*part->lacks);
  reserve_again_ |= part->lacks.has_value();
  parts_.Forget(gang);
}

void Placement::Unpin(GangId gang, const std::string& pod) {
  if (Part* part = parts_.Find(gang)) part->pins.erase(pod);
}

void Placement::ShowAgain(std::string_view node) {
  for (GangId gang : GangsOn(node)) agenda_->Note(gang);
}

void Placement::Observe(const cluster::Journal& journal) {
  using cluster::NodeChange;
  planner_.Follow(snapshot_);
  bool relations = !journal.namespaces.empty();
  for (const auto& [name, entry] : journal.nodes) {
    ShowAgain(name);
    if (entry.observed == cluster::NodeChanges(NodeChange::kMarks)) continue;
    const bool is_another =
        entry.observed.HasAny({NodeChange::kCame, NodeChange::kWent, NodeChange::kClass});
    if (IsSmall() || is_another) ++epoch_;
    const cluster::NodeInfo* info = snapshot_.FindNode(name);
    if (is_another || IsSmall() || info == nullptr || reservations_.MayMatter(*info)) {
      reservations_.NoteFreed();
    }
    if (!entry.formerly.empty()) ShowAgain(entry.formerly);
    not_offered_.Forget(name);
    for (GangId gang : GangsOn(name)) {
      Part& part = parts_.at(gang);
      if (part.listed && !part.places.awaits.empty()) PlanSoon(&part);
    }
    // That pods came or went where no room did helps those alone who see relations.
    if (entry.observed.HasAny({NodeChange::kCame, NodeChange::kRoomGrew, NodeChange::kClass})) {
      Offer(info);
    }
    relations |= entry.observed.HasAny({NodeChange::kPods, NodeChange::kClass, NodeChange::kCame});
  }
  const bool volumes = !journal.volume_claims.empty() || !journal.volumes.empty() ||
                       !journal.storage_classes.empty() || !journal.csi_drivers.empty();
  if (volumes) {
    for (GangId gang : see_volumes_) PlanSoon(&parts_.at(gang));
  }
  if (relations) {
    for (GangId gang : see_relations_) PlanSoon(&parts_.at(gang));
  }
  if (volumes || !journal.namespaces.empty()) ++epoch_;
}

void Placement::Reconsider(std::string_view node) {
  ++epoch_;
  ShowAgain(node);
  Offer(snapshot_.FindNode(node));
}

bool Placement::Refuse(const Gang& gang, const std::string& pod, const std::string& node,
                       const std::vector<std::string>& offered) {
  Part& part = parts_[gang.id];
  // Only the plan that is in force can be refused: the answer to an older one is old news.
  const auto place = part.places.fixed.find(pod);
  if (place == part.places.fixed.end() || place->second != node) return false;
  part.refused.Refuse(node, agenda_->now(), options_.refusal_time);
  agenda_->Note(gang.id);
  const kube::Pod* member = snapshot_.FindPod(pod);
  if (offered.empty() || member == nullptr) return true;
  not_offered_.Refuse(snapshot_, *member, node, offered, agenda_->now(), options_.refusal_time);
  return true;
}

void Placement::LeaveOut(const Gang& gang, const std::string& node) {
  parts_[gang.id].refused.Refuse(node, agenda_->now(), options_.refusal_time);
  agenda_->Note(gang.id);
}

Plan Placement::Solve(const PlanRequest& request) {
  ++plans_;
  return planner_.MakePlan(snapshot_, request);
}

PlanRequest Placement::RequestFor(const Gang& gang, std::vector<const kube::Pod*> members) {
  const Part& part = parts_.Of(gang.id);
  PlanRequest request;
  request.members = std::move(members);
  const auto placed = static_cast<int64_t>(part.places.fixed.size());
  request.required = static_cast<size_t>(std::max<int64_t>(0, gang.required() - placed));
  request.required = std::min(request.required, request.members.size());
  for (const std::string& uid : gang.bound) {
    if (gang.lost.contains(uid)) continue;
    request.sibling_nodes.push_back(snapshot_.FindPod(uid)->node_name);
  }
  for (const auto& [uid, node] : part.places.fixed) request.sibling_nodes.push_back(node);
  for (const auto& [node, until] : LeftOut(gang)) request.excluded_nodes.insert(node);
  const std::string name = gang.key.ToString();
  for (const auto& [node, entry] : suspects_.nodes()) {
    if (suspects_.WhyLeftOut(node, name) != nullptr) request.excluded_nodes.insert(node);
  }
  ExcludeOtherFlavors(gang, &request);
  request.required_topology_key = gang.topology.required;
  request.levels = quota::LevelsFor(quota_->scheduler(), quota_->HeldBy(gang), gang.topology);
  // Where nodes have no zones they are all in one.
  const cluster::Domains& domains = planner_.Follow(snapshot_, request.levels);
  const bool is_default = gang.topology.annotation != kube::kRequiredTopology;
  if (is_default && domains.CountAt(domains.LevelOf(kube::kZoneLabel)) == 0) {
    request.required_topology_key.clear();
  }
  return request;
}

// A member whose gate was lifted by somebody else can't be given its flavor's nodeSelector any
// more. The plan keeps it to the flavor's nodes all the same.
void Placement::ExcludeOtherFlavors(const Gang& gang, PlanRequest* request) const {
  if (!quota_->Holds(gang)) return;
  for (const kube::Pod* pod : request->members) {
    const quota::PodSetAssignment* given = quota_->GivenTo(gang, *pod);
    if (given == nullptr) continue;
    for (const kube::ResourceFlavor* flavor : quota_->scheduler().FlavorsOf(*given)) {
      for (const auto& [key, value] : flavor->node_labels) {
        if (pod->spec->node_selector.contains(key)) continue;
        for (const auto& [node, info] : snapshot_.nodes()) {
          const std::string* label = info.node->meta.Label(key);
          if (label == nullptr || *label != value) request->excluded_nodes.insert(node);
        }
      }
    }
  }
}

void Placement::DropTentative(GangId gang, Part* part) {
  Places& places = part->places;
  if (places.tentative_assumed) {
    for (const auto& [uid, node] : places.tentative) room_->Forget(uid);
  }
  if (!places.tentative.empty()) agenda_->Note(gang);
  places.tentative.clear();
  places.tentative_assumed = false;
  places.awaits.clear();
  part->awaits_until = Never();
  tentative_.erase(part->order);
}

// A place whose binding is asked for can't be given up, only seen.
void Placement::DropFixed(GangId gang, Part* part, const std::set<std::string>* only) {
  const size_t dropped = absl::erase_if(part->places.fixed, [&](const auto& place) {
    if (part->pins.contains(place.first) || (only != nullptr && !only->contains(place.first))) {
      return false;
    }
    room_->Forget(place.first);
    return true;
  });
  if (dropped > 0) agenda_->Show(gang);
}

// On the nodes of these places. They keep room from who comes later, but while others still stand
// there they break no place in force.
PlaceMap Placement::LiftAwaiting(const PlaceMap& places) const {
  PlaceMap lifted;
  if (tentative_.empty()) return lifted;
  absl::flat_hash_set<std::string> nodes;
  for (const auto& [uid, node] : places) nodes.insert(node);
  for (const Order& order : tentative_) {
    const Places& other = parts_.at(order.gang()).places;
    if (other.awaits.empty()) continue;
    for (const auto& [uid, node] : other.tentative) {
      if (!nodes.contains(node)) continue;
      room_->Forget(uid);
      lifted.emplace(uid, node);
    }
  }
  return lifted;
}

void Placement::PutBack(const PlaceMap& lifted) const {
  for (const auto& [uid, node] : lifted) room_->Assume(uid, node).IgnoreError();
}

// Places in force that no longer hold: the node is gone, unusable, refused, suspect, or taken by
// somebody who didn't ask.
std::set<std::string> Placement::BrokenPlaces(const Gang& gang, const Part& part) const {
  std::set<std::string> broken;
  if (part.places.fixed.empty()) return broken;
  const cluster::NominationsFor counted(room_, gang.priority);
  const std::string name = gang.key.ToString();
  const PlaceMap lifted = LiftAwaiting(part.places.fixed);
  for (const auto& [uid, node] : part.places.fixed) {
    if (part.pins.contains(uid)) continue;
    const cluster::NodeInfo* info = snapshot_.FindNode(node);
    const kube::Pod* pod = snapshot_.FindPod(uid);
    const bool good = info != nullptr && pod != nullptr && IsLive(*pod) && info->UsableNow() &&
                      quota_->MayBePlaced(gang, uid) && !part.refused.left_out().contains(node) &&
                      suspects_.WhyLeftOut(node, name) == nullptr &&
                      !cluster::CheckClass(snapshot_, *pod, *info) &&
                      info->node->allocatable.Covers(info->requested);
    if (!good) broken.insert(uid);
  }
  PutBack(lifted);
  return broken;
}

std::string Placement::Recheck(const Gang& gang) {
  const cluster::NominationsFor counted(room_, gang.priority);
  Part& part = parts_[gang.id];
  if (part.placed_at == std::pair(step_, snapshot_.log().end())) return "";
  std::vector<const kube::Pod*> members;
  PlaceMap places;
  for (const auto& [uid, node] : part.places.fixed) {
    if (part.pins.contains(uid)) continue;
    members.push_back(snapshot_.FindPod(uid));
    places.emplace(uid, node);
    room_->Forget(uid);
  }
  const PlanRequest request = RequestFor(gang, std::move(members));
  const PlaceMap lifted = LiftAwaiting(places);
  const auto broken = planner_.FirstBroken(room_, request, places);
  PutBack(lifted);
  if (!broken) return "";
  for (const auto& [uid, node] : places) part.places.fixed.erase(uid);
  agenda_->Note(gang.id);
  return fmt::format("{} on {}: {}", snapshot_.FindPod(broken->first)->meta.name,
                     places[broken->first], broken->second.detail);
}

// scheduler-plugins' reading of minResources: that much must be free in the cluster. Below the
// members' own sum the plan itself is the stricter test.
bool Placement::MinResourcesFree(const Gang& gang) const {
  if (gang.group == nullptr || !gang.group->min_resources || !gang.bound.empty()) return true;
  kube::ResourceList asked;
  for (const std::string& uid : gang.unbound) {
    if (!asked.Add(snapshot_.FindPod(uid)->spec->requests).ok()) return false;
  }
  if (asked.Covers(*gang.group->min_resources)) return true;
  const std::optional<kube::ResourceList> free = cluster::FreeInAll(snapshot_);
  return !free || free->Covers(*gang.group->min_resources);
}

// Those behind it in the list that hold places which they only count on.
bool Placement::DropTentativesAfter(const Order& order) {
  bool any = false;
  const std::vector<Order> behind(tentative_.upper_bound(order), tentative_.end());
  for (const Order& other : behind) {
    Part& part = parts_.at(other.gang());
    DropTentative(other.gang(), &part);
    PlanSoon(&part);
    any = true;
  }
  return any;
}

// Returns true if all members have places now.
bool Placement::Place(const Gang& gang, Part* part, PlanRequest request, bool keeps_partial) {
  Places& places = part->places;
  Plan plan = Solve(request);
  const bool whole = plan.complete && plan.placements.size() == request.members.size();
  places.min_resources_short = plan.complete && !MinResourcesFree(gang);
  part->missing = part->missing_with_coming =
      plan.complete ? 1 : MissingFrom(request, plan.shortfall);
  if (places.min_resources_short) {
    places.short_of_nodes = true;
    return false;
  }
  if (plan.complete) {
    for (const auto& [uid, node] : plan.placements) {
      if (room_->Assume(uid, node).ok()) places.fixed.emplace(uid, node);
    }
    part->placed_at = {step_, snapshot_.log().end()};
    places.short_of_nodes = places.coming_suffices = false;
    if (whole) return true;
    // The surplus may still get nodes of its own.
    request = RequestFor(gang, Unplaced(gang));
    KeepOff(gang, &request);
    request.required = request.members.size();
  }
  // While nothing is coming the plan would be the same.
  if (plan.complete || snapshot_.virtual_count() > 0) {
    request.include_virtual = true;
    plan = Solve(request);
  }
  places.tentative = std::move(plan.placements);
  places.coming_suffices = plan.complete;
  places.short_of_nodes = !plan.complete;
  places.shortfall = std::move(plan.shortfall);
  if (!plan.complete) part->missing_with_coming = MissingFrom(request, places.shortfall);
  if (!plan.complete && !keeps_partial) return false;
  for (const auto& [uid, node] : places.tentative) room_->Assume(uid, node).IgnoreError();
  places.tentative_assumed = !places.tentative.empty();
  return false;
}

// What is free now, and what the provider had before nodes went, suffice together, once the
// provider is asked again.
bool Placement::CapacityMaySuffice(const Gang& gang, int64_t missing) {
  const Capacity capacity = capacity_of_(gang);
  if (capacity.room == 0 || capacity.room < missing) return false;
  if (agenda_->now() >= capacity.asked_again) return true;
  agenda_->NoteAt(gang.id, capacity.asked_again);
  return false;
}

// Whether it would fit, without taking the room.
void Placement::TryWithoutQuota(const Gang& gang, Part* part, const PlanRequest& request,
                                KnownFailures* failures) {
  Places& places = part->places;
  const bool fitted = std::exchange(places.fits_now, false);
  Plan plan = Solve(request);
  if (!plan.complete && DropTentativesAfter(part->order)) {
    failures->Clear();
    plan = Solve(request);
  }
  part->missing = part->missing_with_coming = MissingFrom(request, plan.shortfall);
  if (gang.facts.waits_for_room) {
    places.fits_now = plan.complete && MinResourcesFree(gang);
    places.shortfall = std::move(plan.shortfall);
  } else {
    places.fits_now = plan.complete || CapacityMaySuffice(gang, part->missing);
  }
  if (places.fits_now) quota_->Invalidate(gang);
  if (places.fits_now && !fitted) fitting_.push_back(gang.id);
}

void Placement::PlanGang(const Gang& gang, KnownFailures* failures) {
  Part& part = parts_[gang.id];
  agenda_->Note(gang.id);
  by_age_.erase({part.planned_at, part.order});
  part.planned_at = epoch_;
  by_age_.emplace(part.planned_at, part.order);
  part.offers_known = offers_;
  part.must_plan = false;
  DropTentative(gang.id, &part);
  part.places.coming_suffices = part.places.short_of_nodes = false;
  if (std::vector<const kube::Pod*> members = Unplaced(gang); !members.empty()) {
    PlanRequest request = RequestFor(gang, std::move(members));
    cluster::WantedShape shape;
    if (request.excluded_nodes.empty()) {
      shape = cluster::WantedShapeOf(
          request.members,
          fmt::format("{}\n{}", request.required_topology_key, fmt::join(request.levels, "\n")));
    }
    shape.may_use = KeepOff(gang, &request);
    if (IsWithoutQuota(gang)) {
      TryWithoutQuota(gang, &part, request, failures);
    } else {
      PlanAdmitted(gang, &part, request, shape, failures);
    }
  }
  IndexPlaces(gang.id, &part);
  if (part.places.short_of_nodes || IsWithoutQuota(gang)) part.being_made = may_buy_(gang);
  FollowLack(gang, &part);
}

void Placement::PlanAdmitted(const Gang& gang, Part* part, const PlanRequest& request,
                             const cluster::WantedShape& shape, KnownFailures* failures) {
  Places& places = part->places;
  planned_.push_back(gang.id);
  if (const PlanShortfall* known = failures->Find(shape, request.required)) {
    places.short_of_nodes = true;
    places.shortfall = *known;
    part->missing = part->missing_with_coming = MissingFrom(request, *known);
    const bool in_vain =
        gang.facts.without_quota && failures->IsInVain(shape, request.required, gang.priority);
    if (!in_vain) TakesInVain(gang, part);
    return;
  }
  const bool in_grace = agenda_->now() < part->keeps_partial_until;
  const bool whole = Place(gang, part, request, in_grace);
  const bool lacks = !whole && (places.fixed.empty() || places.short_of_nodes);
  if (lacks && DropTentativesAfter(part->order)) {
    failures->Clear();
    DropTentative(gang.id, part);
    PlanRequest again = RequestFor(gang, Unplaced(gang));
    KeepOff(gang, &again);
    Place(gang, part, std::move(again), in_grace);
  }
  if (in_grace && places.short_of_nodes) agenda_->NoteAt(gang.id, part->keeps_partial_until);
  if (places.tentative_assumed) tentative_.insert(part->order);
  if (places.short_of_nodes && !places.min_resources_short && request.required > 0) {
    failures->Note(shape, request.required, places.shortfall.placeable > 0, places.shortfall);
    if (TakesInVain(gang, part) && gang.facts.without_quota) {
      failures->NoteInVain(shape, request.required, gang.priority);
    }
  }
}

bool Placement::IsSmall() const {
  return snapshot_.nodes().size() * list_.size() <= options_.explanation_budget;
}

// So that each tells the numbers of now, and because the bound on what could help is only as good
// as the plan that it was read from.
void Placement::RefreshOldest() {
  const bool aged = !by_age_.empty() && by_age_.begin()->first < epoch_;
  if (!aged && uninformed_.empty()) return;
  size_t plans = list_.size();
  if (!IsSmall()) {
    const absl::Time due = refreshed_ + kRefreshInterval;
    if (agenda_->now() < due) {
      agenda_->WakeAt(due);
      return;
    }
    plans = 1;
    agenda_->WakeAt(agenda_->now() + kRefreshInterval);
  }
  refreshed_ = agenda_->now();
  for (const Order& order : FirstUninformed(plans)) {
    --plans;
    PlanSoon(&parts_.at(order.gang()));
  }
  for (const auto& [planned_at, order] : by_age_) {
    if (planned_at >= epoch_ || plans == 0) return;
    --plans;
    PlanSoon(&parts_.at(order.gang()));
  }
}

void Placement::PlanWaiting() {
  cluster::NominationsFor counted(room_, cluster::NominationsFor::kNone);
  ++step_;
  OfferReleased();
  RetryPreemption();
  RefreshOldest();
  if (!due_.empty() || !next_.empty()) ++passes_;
  KnownFailures failures;
  while (!due_.empty() || !next_.empty()) {
    const bool is_due = next_.empty() || (!due_.empty() && *due_.begin() <= next_.begin()->first);
    const Order order = is_due ? *due_.begin() : next_.begin()->first;
    Part& part = parts_.at(order.gang());
    Reserve(&order);
    counted.Set(-order.less_important);
    if (!is_due && !StillCouldComplete(part)) {
      FindNext(part.demand, &order);
      continue;
    }
    due_.erase(order);
    LeaveDemand(&part);
    PlanGang(*gangs_.Find(order.gang()), &failures);
    EnterDemand(&part);
  }
  FinishPass();
  // Those that are helped by what was given up meanwhile come next.
  counted.Set(cluster::NominationsFor::kNone);
  OfferReleased();
  if (!due_.empty() || !next_.empty()) agenda_->WakeAt(agenda_->now());
}

}  // namespace muster::coscheduling
