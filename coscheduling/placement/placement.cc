#include "coscheduling/placement/placement.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/hash/hash.h"
#include "cluster/predicates.h"
#include "coscheduling/gangs/pod_sets.h"
#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

// Reasons are made true again this often where there is more to plan than the budget allows at
// once.
constexpr absl::Duration kRefreshInterval = absl::Milliseconds(500);
// A gang that got quota and found its room taken doesn't ask again before this.
constexpr absl::Duration kRoomPause = absl::Seconds(5);
constexpr int64_t kMany = std::numeric_limits<int32_t>::max();

bool IsDevice(std::string_view resource) {
  return resource.find('/') != std::string_view::npos && !resource.starts_with("kubernetes.io/");
}

// Any change that a member's own pods or others' pods make elsewhere may decide about it.
bool HasAnyRelations(const kube::PodSpec& spec) {
  return cluster::HasRelations(spec) || cluster::HasPreferredRelations(spec);
}

// For how many pods like this one the node has room.
int64_t RoomFor(const kube::Pod& pod, const cluster::NodeInfo& info) {
  int64_t room = pod.spec->host_ports.empty() ? kMany : 1;
  const auto& allocatable = info.node->allocatable.entries();
  size_t at = 0;
  for (const auto& [resource, amount] : pod.spec->requests.entries()) {
    if (amount <= 0) continue;
    while (at < allocatable.size() && allocatable[at].first < resource) ++at;
    const bool has = at < allocatable.size() && allocatable[at].first == resource;
    room = has ? std::min(room, info.free[at] / amount) : 0;
    if (room == 0) break;
  }
  return room;
}

// It holds no quota and stays in the list all the same.
bool IsWithoutQuota(const Gang& gang) {
  return (gang.facts.backing_off || gang.facts.waits_for_room) && !gang.facts.blocked &&
         gang.ours && !gang.unbound.empty();
}

bool MayTake(const cluster::NodeInfo& info) { return info.UsableNow() || info.Coming(); }

}  // namespace

class Placement::KnownFailures {
 public:
  // Classes of members, and how many are of each where there are several. Those with relations to
  // other pods aren't compared: they have none.
  using Shape = std::map<std::string, size_t>;

  static Shape ShapeOf(const PlanRequest& request) {
    Shape shape;
    if (!request.excluded_nodes.empty()) return shape;
    for (const kube::Pod* pod : request.members) {
      if (cluster::HasRelations(*pod->spec)) return {};
      ++shape[cluster::ClassKey(*pod)];
    }
    if (shape.size() == 1) shape.begin()->second = 0;
    return shape;
  }
  const PlanShortfall* Find(const Shape& shape, size_t required) const {
    auto it = failures_.find(shape);
    return it == failures_.end() || required < it->second.required ? nullptr
                                                                   : &it->second.shortfall;
  }
  void Note(const Shape& shape, size_t required, const PlanShortfall& shortfall) {
    // What some of several classes found another gang might find, too.
    if (shape.empty() || (shape.size() > 1 && shortfall.placeable > 0)) return;
    auto it = failures_.find(shape);
    if (it == failures_.end() || required < it->second.required) {
      failures_[shape] = {required, shortfall};
    }
  }
  void Clear() { failures_.clear(); }

 private:
  struct Failure {
    size_t required;
    PlanShortfall shortfall;
  };
  std::map<Shape, Failure> failures_;
};

Placement::Placement(const EngineOptions& options, cluster::Snapshot* snapshot, const Gangs& gangs,
                     const Records& records, QuotaAdmission* quota, const SuspectNodes& suspects,
                     CapacityOf capacity_of, Agenda* agenda)
    : options_(options),
      snapshot_(snapshot),
      gangs_(gangs),
      records_(records),
      quota_(quota),
      suspects_(suspects),
      capacity_of_(std::move(capacity_of)),
      agenda_(agenda) {}

// --- questions ---

const Placement::Part& Placement::PartOf(const Gang& gang) const {
  static const Part kNone;
  const auto it = parts_.find(gang.id);
  return it == parts_.end() ? kNone : it->second;
}

const Places& Placement::Of(const Gang& gang) const { return PartOf(gang).places; }

const RefusedNodes& Placement::RefusedBy(const Gang& gang) const { return PartOf(gang).refused; }

bool Placement::IsPinned(const Gang& gang, const std::string& pod) const {
  return PartOf(gang).pins.contains(pod);
}

std::vector<std::string> Placement::Unplaced(const Gang& gang) const {
  const PlaceMap& fixed = Of(gang).fixed;
  std::vector<std::string> uids;
  for (const std::string& uid : gang.unbound) {
    if (!fixed.contains(uid) && quota_->MayBePlaced(gang, uid)) uids.push_back(uid);
  }
  return uids;
}

bool Placement::Waits(const Gang& gang) const {
  if (!gang.ours || !gang.facts.admitted || gang.facts.blocked || gang.facts.infeasible ||
      gang.unbound.empty()) {
    return false;
  }
  const size_t unplaced = Unplaced(gang).size();
  return unplaced > 0 && static_cast<int64_t>(unplaced + Of(gang).fixed.size()) >= gang.required();
}

GangId Placement::Head() const {
  const auto head = std::ranges::find_if(list_, [this](const Order& order) {
    const Gang& gang = *gangs_.Find(order.id);
    return !gang.facts.backing_off && gang.required() > 0 &&
           !parts_.at(order.id).places.coming_suffices;
  });
  if (head == list_.end()) return GangId::kNone;
  const bool another = !come_later_.empty() && *come_later_.begin() < *head;
  return another ? GangId::kNone : head->id;
}

std::string Placement::WhyNoRoom(const Gang& gang) const {
  const Part& part = PartOf(gang);
  const bool asks = part.places.fits_now && part.asks_from == absl::InfinitePast();
  if (!gang.facts.waits_for_room || asks || IsHead(gang)) return "";
  return "there is no room for it";
}

std::vector<GangId> Placement::GangsOn(std::string_view node) const {
  const auto it = on_node_.find(std::string(node));
  if (it == on_node_.end()) return {};
  return {it->second.begin(), it->second.end()};
}

// --- the list ---

Placement::Order Placement::OrderOf(const Gang& gang) {
  return {gang.bound.empty(), -int64_t{gang.priority}, absl::ToUnixNanos(gang.created), gang.key,
          gang.id};
}

bool Placement::ComesLater(const Gang& gang, const Part& part) const {
  const GangFacts& facts = gang.facts;
  const bool starts = gang.ours && !facts.blocked && !facts.infeasible && !facts.evicting &&
                      !facts.backing_off && !gang.unbound.empty();
  return starts && !part.listed && quota_->InUse() &&
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

void Placement::Classify(const Gang& gang, Part* part) {
  Declassify(gang.id, part);
  part->sees_relations = false;
  std::map<std::string, std::shared_ptr<const kube::Pod>> examples;
  for (const std::string& uid : gang.unbound) {
    std::shared_ptr<const kube::Pod> pod = snapshot_->SharePod(uid);
    part->sees_relations |= HasAnyRelations(*pod->spec);
    if (!pod->spec->persistent_volume_claims.empty()) see_volumes_.insert(gang.id);
    std::string key = cluster::ClassKey(*pod);
    examples.try_emplace(std::move(key), std::move(pod));
  }
  if (part->sees_relations) see_relations_.insert(gang.id);
  std::vector<Class> classes;
  for (auto& [key, example] : examples) {
    const auto [entry, is_new] = classes_.try_emplace(key);
    classes.push_back(&*entry);
    if (!is_new) continue;
    MemberClass& members = entry->second;
    members.example = std::move(example);
    for (const auto& [resource, amount] : members.example->spec->requests.entries()) {
      if (amount <= 0 || !IsDevice(resource)) continue;
      members.device = resource;
      members.amount = amount;
      break;
    }
    by_device_[members.device].emplace(members.amount, &*entry);
  }
  Demand& demand = demands_[classes];
  if (++demand.gangs == 1) {
    for (Class one : classes) classes_.at(one->first).demands.insert(&demand);
    demand.classes = std::move(classes);
  }
  part->demand = &demand;
}

void Placement::Declassify(GangId gang, Part* part) {
  see_relations_.erase(gang);
  see_volumes_.erase(gang);
  Demand* demand = std::exchange(part->demand, nullptr);
  if (demand == nullptr || --demand->gangs > 0) return;
  const std::vector<Class> classes = demand->classes;
  for (Class one : classes) {
    const auto it = classes_.find(one->first);
    MemberClass& members = it->second;
    members.demands.erase(demand);
    if (!members.demands.empty()) continue;
    const auto device = by_device_.find(members.device);
    device->second.erase({members.amount, one});
    if (device->second.empty()) by_device_.erase(device);
    classes_.erase(it);
  }
  demands_.erase(classes);
}

void Placement::EnterDemand(Part* part) {
  Demand& demand = *part->demand;
  part->least = LeastToComplete(*part);
  if (part->offers_known >= demand.last_offer) {
    demand.informed[part->least].insert(part->order);
    return;
  }
  demand.uninformed[part->least].insert(part->order);
  uninformed_.insert(&demand);
  FindNext(&demand, nullptr);
}

void Placement::LeaveDemand(Part* part) {
  Demand& demand = *part->demand;
  for (auto* gangs : {&demand.informed, &demand.uninformed}) {
    const auto it = gangs->find(part->least);
    if (it == gangs->end()) continue;
    it->second.erase(part->order);
    if (it->second.empty()) gangs->erase(it);
  }
  if (demand.uninformed.empty()) {
    demand.gains.clear();
    uninformed_.erase(&demand);
  }
  if (demand.next == part->order) FindNext(&demand, &part->order);
}

// Of all that a plan of the gang is made from, nodes apart.
size_t Placement::Digest(const Gang& gang, const std::vector<std::string>& uids) const {
  size_t digest = absl::HashOf(gang.required(), IsWithoutQuota(gang), Of(gang).fixed.size());
  for (const std::string& uid : uids) {
    const kube::Pod& pod = *snapshot_->FindPod(uid);
    digest = absl::HashOf(digest, uid, pod.spec.get());
    for (const auto& [key, value] : pod.meta.labels) digest = absl::HashOf(digest, key, value);
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
  const Part& part = PartOf(gang);
  std::map<std::string, absl::Time> left_out = part.refused.left_out();
  if (part.demand == nullptr) return left_out;
  for (Class one : part.demand->classes) {
    const auto not_offered = not_offered_.find(one->first);
    if (not_offered == not_offered_.end()) continue;
    for (const auto& [node, until] : not_offered->second.left_out()) {
      if (agenda_->now() < until) left_out.emplace(node, until);
    }
  }
  return left_out;
}

void Placement::IndexPlaces(GangId gang, Part* part) {
  std::set<std::string> nodes;
  std::set<std::string> taken;
  for (const auto& [uid, node] : part->places.fixed) taken.insert(node);
  for (const auto& [uid, node] : part->places.tentative) {
    (part->places.tentative_assumed ? taken : nodes).insert(node);
  }
  nodes.insert(taken.begin(), taken.end());
  std::ranges::set_difference(part->takes_room_on, taken,
                              std::inserter(released_, released_.end()));
  part->takes_room_on = std::move(taken);
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
  Part& part = PartOf(gang);
  Places& places = part.places;
  for (const std::string& uid : gang.bound) {
    places.fixed.erase(uid);
    part.pins.erase(uid);
    if (places.tentative.erase(uid) > 0) snapshot_->Forget(uid);
  }
  part.refused.Expire(agenda_->now());
  if (gang.facts.blocked || !gang.facts.admitted) DropFixed(gang.id, &part);
  bool held = true;
  if (std::vector<std::string> broken = BrokenPlaces(gang, part); !broken.empty()) {
    // Before its commit a gang is solved anew as a whole; after, only what broke is.
    const bool is_free = !places.committing && gang.bound.empty() && part.pins.empty();
    if (is_free) {
      DropFixed(gang.id, &part);
    } else {
      DropFixed(gang.id, &part, broken);
    }
    held = false;
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
    return held;
  }
  if (!without_quota) places.fits_now = false;
  const size_t asked = Digest(gang, Unplaced(gang));
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
  const bool kept_for_long =
      keeps_partial && gang.id != guard_ && agenda_->now() >= part.keeps_partial_until;
  if (part.asked != asked || kept_for_long || gang.facts.backing_off) PlanSoon(&part);
  if (gang.facts.waits_for_room) SyncWithoutQuota(gang, &part);
  part.asked = asked;
  IndexPlaces(gang.id, &part);
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
}

void Placement::Leave(GangId gang, const std::string& pod) {
  const auto it = parts_.find(gang);
  if (it == parts_.end()) return;
  Places& places = it->second.places;
  it->second.pins.erase(pod);
  if (places.fixed.erase(pod) + places.tentative.erase(pod) == 0) return;
  snapshot_->Forget(pod);
  IndexPlaces(gang, &it->second);
}

void Placement::Forget(GangId gang) {
  const auto it = parts_.find(gang);
  if (it == parts_.end()) return;
  Part& part = it->second;
  part.pins.clear();
  DropTentative(gang, &part);
  DropFixed(gang, &part);
  IndexPlaces(gang, &part);
  LeaveList(&part);
  if (part.comes_later) come_later_.erase(*part.comes_later);
  Declassify(gang, &part);
  if (guard_ == gang) guard_ = GangId::kNone;
  parts_.erase(it);
}

void Placement::SetCommitting(GangId gang, bool committing) {
  parts_[gang].places.committing = committing;
}

void Placement::Pin(GangId gang, const std::string& pod) { parts_[gang].pins.insert(pod); }

void Placement::Unpin(GangId gang, const std::string& pod) {
  const auto it = parts_.find(gang);
  if (it != parts_.end()) it->second.pins.erase(pod);
}

// --- observations ---

void Placement::ShowAgain(std::string_view node) {
  for (GangId gang : GangsOn(node)) agenda_->Note(gang);
}

void Placement::Observe(const cluster::Journal& journal) {
  using cluster::NodeChange;
  for (const auto& [name, entry] : journal.nodes) {
    if (entry.observed.empty()) continue;  // what was assumed and forgotten here
    if (entry.observed == cluster::NodeChanges(NodeChange::kMarks)) {
      ShowAgain(name);
      continue;
    }
    if (IsSmall() ||
        entry.observed.HasAny({NodeChange::kCame, NodeChange::kWent, NodeChange::kClass})) {
      ++epoch_;
    }
    ShowAgain(name);
    if (!entry.formerly.empty()) ShowAgain(entry.formerly);
    for (auto it = not_offered_.begin(); it != not_offered_.end();) {
      it->second.Forget(name);
      it = it->second.empty() ? not_offered_.erase(it) : std::next(it);
    }
    const cluster::NodeInfo* info = snapshot_->FindNode(name);
    // That pods came or went where no room did helps those alone who see relations.
    if (info != nullptr &&
        entry.observed.HasAny({NodeChange::kCame, NodeChange::kRoomGrew, NodeChange::kClass})) {
      Offer(*info);
    }
    if (entry.observed.HasAny({NodeChange::kPods, NodeChange::kClass, NodeChange::kCame})) {
      for (GangId gang : see_relations_) PlanSoon(&parts_.at(gang));
    }
  }
  const bool volumes = !journal.volume_claims.empty() || !journal.volumes.empty() ||
                       !journal.storage_classes.empty();
  if (volumes) {
    for (GangId gang : see_volumes_) PlanSoon(&parts_.at(gang));
  }
  if (!journal.namespaces.empty()) {
    for (GangId gang : see_relations_) PlanSoon(&parts_.at(gang));
  }
  if (volumes || !journal.namespaces.empty()) ++epoch_;
}

void Placement::Reconsider(std::string_view node) {
  ++epoch_;
  ShowAgain(node);
  const cluster::NodeInfo* info = snapshot_->FindNode(node);
  if (info != nullptr) Offer(*info);
}

void Placement::Offer(const cluster::NodeInfo& info) {
  if (!MayTake(info)) return;
  ++offers_;
  Rooms rooms;
  std::vector<Demand*> demands;
  for (const auto& [device, by_amount] : by_device_) {
    const int64_t free = device.empty() ? std::numeric_limits<int64_t>::max() : info.Free(device);
    for (const auto& [amount, one] : by_amount) {
      if (amount > free) break;
      const int64_t room = RoomOn(info, one->second);
      if (room == 0) continue;
      rooms[one] = room;
      for (Demand* demand : one->second.demands) {
        if (std::exchange(demand->last_offer, offers_) != offers_) demands.push_back(demand);
      }
    }
  }
  for (Demand* demand : demands) {
    demand->gains[info.name()] = {MembersOn(info, *demand, rooms), info.UsableNow(), offers_};
    for (auto& [least, gangs] : demand->informed) {
      std::set<Order>& uninformed = demand->uninformed[least];
      if (uninformed.empty()) {
        uninformed.swap(gangs);
      } else {
        uninformed.merge(gangs);
      }
    }
    demand->informed.clear();
    if (!demand->uninformed.empty()) uninformed_.insert(demand);
    FindNext(demand, nullptr);
  }
}

int64_t Placement::RoomOn(const cluster::NodeInfo& info, const MemberClass& members) const {
  // What is lacked most often first.
  if (!members.device.empty() && info.Free(members.device) < members.amount) return 0;
  const kube::Pod& example = *members.example;
  const int64_t room = RoomFor(example, info);
  if (room == 0 || cluster::CheckClass(*snapshot_, example, info)) return 0;
  return example.spec->host_ports.empty() || !cluster::CheckRoom(example, info) ? room : 0;
}

// At most so many of a gang's members the node can hold beside each other.
int64_t Placement::MembersOn(const cluster::NodeInfo& info, const Demand& demand,
                             const Rooms& rooms) const {
  struct Sum {
    std::string_view device;
    int64_t members = 0;
    int64_t least = kMany;  // that one of them asks of the device
  };
  absl::InlinedVector<Sum, 2> by_device;
  for (Class one : demand.classes) {
    const auto room = rooms.find(one);
    if (room == rooms.end() || room->second == 0) continue;
    const MemberClass& members = one->second;
    auto sum = std::ranges::find(by_device, members.device, &Sum::device);
    if (sum == by_device.end()) sum = by_device.insert(sum, Sum{.device = members.device});
    sum->members = std::min(kMany, sum->members + room->second);
    sum->least = std::min(sum->least, members.amount);
  }
  int64_t all = 0;
  for (const Sum& sum : by_device) {
    const int64_t at_most = sum.device.empty() ? kMany : info.Free(sum.device) / sum.least;
    all = std::min(kMany, all + std::min(sum.members, at_most));
  }
  return all;
}

// 0 if it isn't there.
int64_t Placement::MembersOn(std::string_view node, const Demand& demand) const {
  const cluster::NodeInfo* info = snapshot_->FindNode(node);
  if (info == nullptr || !MayTake(*info)) return 0;
  Rooms rooms;
  for (Class one : demand.classes) rooms[one] = RoomOn(*info, one->second);
  return MembersOn(*info, demand, rooms);
}

int64_t Placement::LeastToComplete(const Part& part) {
  if (part.places.min_resources_short) return 0;
  return std::max<int64_t>(1, part.places.coming_suffices
                                  ? part.missing
                                  : std::min(part.missing, part.missing_with_coming));
}

bool Placement::WouldComplete(const Part& part, int64_t gained, int64_t usable) {
  if (part.places.min_resources_short) return true;
  return usable >= std::max<int64_t>(1, part.missing) ||
         (!part.places.coming_suffices && gained >= std::max<int64_t>(1, part.missing_with_coming));
}

bool Placement::CouldComplete(const Part& part) const {
  int64_t gained = 0;
  int64_t usable = 0;
  for (const auto& [node, gain] : part.demand->gains) {
    if (gain.offer <= part.offers_known) continue;
    gained += gain.members;
    if (gain.usable) usable += gain.members;
  }
  return WouldComplete(part, gained, usable);
}

void Placement::FindNext(Demand* demand, const Order* after) {
  const std::optional<Order> before = std::exchange(demand->next, std::nullopt);
  if (before) next_.erase({*before, demand});
  int64_t gained = 0;
  for (const auto& [node, gain] : demand->gains) gained += gain.members;
  const auto first_behind = [&](const Order* order) {
    const Order* first = nullptr;
    for (const auto& [least, gangs] : demand->uninformed) {
      if (least > gained) break;
      const auto it = order == nullptr ? gangs.begin() : gangs.upper_bound(*order);
      if (it != gangs.end() && (first == nullptr || *it < *first)) first = &*it;
    }
    return first;
  };
  const Order* order = first_behind(after);
  while (order != nullptr && !CouldComplete(parts_.at(order->id))) order = first_behind(order);
  if (order == nullptr) return;
  demand->next = *order;
  next_.emplace(*order, demand);
}

// What only those behind it count on is still to be had. What nobody counts on is as it is for all
// gangs of the demand.
bool Placement::StillCouldComplete(const Part& part) {
  int64_t gained = 0;
  int64_t usable = 0;
  std::map<std::string, Gain, std::less<>>& gains = part.demand->gains;
  for (auto it = gains.begin(); it != gains.end();) {
    Gain& gain = it->second;
    if (gain.offer <= part.offers_known) {
      ++it;
      continue;
    }
    bool counted_on = false;
    bool behind = false;
    for (GangId id : GangsOn(it->first)) {
      const Part& other = parts_.at(id);
      counted_on |= other.places.tentative_assumed;
      behind |= other.places.tentative_assumed && part.order < other.order;
    }
    Gain now = gain;
    if (!behind) {
      const cluster::NodeInfo* info = snapshot_->FindNode(it->first);
      now.members = MembersOn(it->first, *part.demand);
      now.usable = info != nullptr && info->UsableNow();
    }
    gained += now.members;
    if (now.usable) usable += now.members;
    if (!counted_on) gain = now;
    it = gain.members == 0 ? gains.erase(it) : std::next(it);
  }
  return WouldComplete(part, gained, usable);
}

bool Placement::Refuse(const Gang& gang, const std::string& pod, const std::string& node,
                       const std::vector<std::string>& offered) {
  Part& part = PartOf(gang);
  // Only the plan that is in force can be refused: the answer to an older one is old news.
  const auto place = part.places.fixed.find(pod);
  if (place == part.places.fixed.end() || place->second != node) return false;
  part.refused.Refuse(node, agenda_->now(), options_.refusal_time);
  agenda_->Note(gang.id);
  const kube::Pod* member = snapshot_->FindPod(pod);
  if (offered.empty() || member == nullptr) return true;
  RefusedNodes& not_offered = not_offered_[cluster::ClassKey(*member)];
  not_offered.Expire(agenda_->now());
  const std::set<std::string_view> names(offered.begin(), offered.end());
  for (const auto& [name, info] : snapshot_->nodes()) {
    // Where others of ours have their places kube-scheduler may have found that, too.
    if (info.UsableNow() && !names.contains(name) &&
        (name == node || !cluster::CheckRoom(*member, info))) {
      not_offered.Refuse(name, agenda_->now(), options_.refusal_time);
    }
  }
  return true;
}

void Placement::LeaveOut(const Gang& gang, const std::string& node) {
  PartOf(gang).refused.Refuse(node, agenda_->now(), options_.refusal_time);
  agenda_->Note(gang.id);
}

// --- plans ---

Plan Placement::Solve(const PlanRequest& request) {
  ++plans_;
  return muster::coscheduling::MakePlan(*snapshot_, request);
}

PlanRequest Placement::RequestFor(const Gang& gang, const std::vector<std::string>& uids) const {
  const Part& part = PartOf(gang);
  PlanRequest request;
  for (const std::string& uid : uids) request.members.push_back(snapshot_->FindPod(uid));
  const auto placed = static_cast<int64_t>(part.places.fixed.size());
  request.required = static_cast<size_t>(std::max<int64_t>(0, gang.required() - placed));
  request.required = std::min(request.required, request.members.size());
  for (const std::string& uid : gang.bound) {
    if (gang.lost.contains(uid)) continue;
    request.sibling_nodes.push_back(snapshot_->FindPod(uid)->node_name);
  }
  for (const auto& [uid, node] : part.places.fixed) request.sibling_nodes.push_back(node);
  for (const auto& [node, until] : LeftOut(gang)) request.excluded_nodes.insert(node);
  const std::string name = gang.key.ToString();
  for (const auto& [node, entry] : suspects_.nodes()) {
    if (suspects_.IsSuspectFor(node, name)) request.excluded_nodes.insert(node);
  }
  ExcludeOtherFlavors(gang, uids, &request);
  return request;
}

// A member whose gate was lifted by somebody else can't be given its flavor's nodeSelector any
// more. The plan keeps it to the flavor's nodes all the same.
void Placement::ExcludeOtherFlavors(const Gang& gang, const std::vector<std::string>& uids,
                                    PlanRequest* request) const {
  if (!quota_->Holds(gang)) return;
  for (const std::string& uid : uids) {
    const kube::Pod& pod = *snapshot_->FindPod(uid);
    const quota::PodSetAssignment* given = quota_->GivenTo(gang, pod);
    if (given == nullptr) continue;
    for (const std::string& name : FlavorNames(*given)) {
      const kube::ResourceFlavor* flavor = quota_->scheduler().FindFlavor(name);
      if (flavor == nullptr) continue;
      for (const auto& [key, value] : flavor->node_labels) {
        if (pod.spec->node_selector.contains(key)) continue;
        for (const auto& [node, info] : snapshot_->nodes()) {
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
    for (const auto& [uid, node] : places.tentative) snapshot_->Forget(uid);
  }
  if (!places.tentative.empty()) agenda_->Note(gang);
  places.tentative.clear();
  places.tentative_assumed = false;
  tentative_.erase(part->order);
}

// A place whose binding is asked for can't be given up, only seen.
void Placement::DropFixed(GangId gang, Part* part) {
  std::vector<std::string> uids;
  uids.reserve(part->places.fixed.size());
  for (const auto& [uid, node] : part->places.fixed) uids.push_back(uid);
  DropFixed(gang, part, uids);
}

void Placement::DropFixed(GangId gang, Part* part, const std::vector<std::string>& uids) {
  for (const std::string& uid : uids) {
    if (part->pins.contains(uid) || part->places.fixed.erase(uid) == 0) continue;
    snapshot_->Forget(uid);
    agenda_->Show(gang);
  }
}

// Places in force that no longer hold: the node is gone, unusable, refused, suspect, or taken by
// somebody who didn't ask.
std::vector<std::string> Placement::BrokenPlaces(const Gang& gang, const Part& part) const {
  std::vector<std::string> broken;
  const std::string name = gang.key.ToString();
  for (const auto& [uid, node] : part.places.fixed) {
    if (part.pins.contains(uid)) continue;
    const cluster::NodeInfo* info = snapshot_->FindNode(node);
    const kube::Pod* pod = snapshot_->FindPod(uid);
    const bool good = info != nullptr && pod != nullptr && IsLive(*pod) && info->UsableNow() &&
                      quota_->MayBePlaced(gang, uid) && !part.refused.left_out().contains(node) &&
                      !suspects_.IsSuspectFor(node, name) &&
                      !cluster::CheckClass(*snapshot_, *pod, *info) &&
                      info->node->allocatable.Covers(info->requested);
    if (!good) broken.push_back(uid);
  }
  return broken;
}

std::string Placement::Recheck(const Gang& gang) {
  Part& part = PartOf(gang);
  std::vector<std::string> uids;
  PlaceMap places;
  for (const auto& [uid, node] : part.places.fixed) {
    if (part.pins.contains(uid)) continue;
    uids.push_back(uid);
    places.emplace(uid, node);
    snapshot_->Forget(uid);
  }
  const PlanRequest request = RequestFor(gang, uids);
  auto broken = FirstBroken(*snapshot_, request, places);
  if (!broken) {
    for (const auto& [uid, node] : places) {
      if (!snapshot_->Assume(uid, node).ok()) broken.emplace(uid, cluster::Rejection{});
    }
  }
  if (!broken) return "";
  for (const std::string& uid : uids) {
    snapshot_->Forget(uid);
    part.places.fixed.erase(uid);
  }
  agenda_->Note(gang.id);
  return fmt::format("{} on {}: {}", snapshot_->FindPod(broken->first)->meta.name,
                     places[broken->first], broken->second.detail);
}

// scheduler-plugins' reading of minResources: that much must be free in the cluster. Below the
// members' own sum the plan itself is the stricter test.
bool Placement::MinResourcesFree(const Gang& gang) const {
  if (gang.group == nullptr || !gang.group->min_resources || !gang.bound.empty()) return true;
  kube::ResourceList asked;
  for (const std::string& uid : gang.unbound) {
    if (!asked.Add(snapshot_->FindPod(uid)->spec->requests).ok()) return false;
  }
  if (asked.Covers(*gang.group->min_resources)) return true;
  kube::ResourceList free;
  for (const auto& [name, info] : snapshot_->nodes()) {
    if (!info.UsableNow()) continue;
    if (!free.Add(info.FreeResources()).ok()) return true;  // more than int64 holds
  }
  return free.Covers(*gang.group->min_resources);
}

// Those behind it in the list that hold places which they only count on.
bool Placement::DropTentativesAfter(const Order& order) {
  bool any = false;
  const std::vector<Order> behind(tentative_.upper_bound(order), tentative_.end());
  for (const Order& other : behind) {
    Part& part = parts_.at(other.id);
    DropTentative(other.id, &part);
    PlanSoon(&part);
    any = true;
  }
  return any;
}

// Returns true if all members have places now.
bool Placement::Place(const Gang& gang, Part* part, const std::vector<std::string>& uids,
                      bool keeps_partial) {
  Places& places = part->places;
  PlanRequest request = RequestFor(gang, uids);
  Plan plan = Solve(request);
  const bool whole = plan.complete && plan.placements.size() == uids.size();
  places.min_resources_short = plan.complete && !MinResourcesFree(gang);
  part->missing = plan.complete ? 1
                                : static_cast<int64_t>(request.required) -
                                      static_cast<int64_t>(plan.shortfall.placeable);
  part->missing_with_coming = part->missing;
  if (places.min_resources_short) {
    places.short_of_nodes = true;
    return false;
  }
  if (plan.complete) {
    for (const auto& [uid, node] : plan.placements) {
      if (snapshot_->Assume(uid, node).ok()) places.fixed.emplace(uid, node);
    }
    places.short_of_nodes = places.coming_suffices = false;
    if (whole) return true;
    // The surplus may still get nodes of its own.
    request = RequestFor(gang, Unplaced(gang));
    request.required = request.members.size();
  }
  // While nothing is coming the plan would be the same.
  if (plan.complete || snapshot_->virtual_count() > 0) {
    request.include_virtual = true;
    plan = Solve(request);
  }
  places.tentative = std::move(plan.placements);
  places.coming_suffices = plan.complete;
  places.short_of_nodes = !plan.complete;
  places.shortfall = std::move(plan.shortfall);
  if (!plan.complete) {
    part->missing_with_coming =
        static_cast<int64_t>(request.required) - static_cast<int64_t>(places.shortfall.placeable);
  }
  if (!plan.complete && !keeps_partial) return false;
  for (const auto& [uid, node] : places.tentative) snapshot_->Assume(uid, node).IgnoreError();
  places.tentative_assumed = !places.tentative.empty();
  return false;
}

// What is free now, and what the provider had before nodes went, suffice together, once the
// provider is asked again.
bool Placement::CapacityMaySuffice(const Gang& gang, const Plan& plan, int64_t required) {
  const Capacity capacity = capacity_of_(gang);
  if (capacity.room == 0 ||
      static_cast<int64_t>(plan.shortfall.placeable) + capacity.room < required) {
    return false;
  }
  if (agenda_->now() >= capacity.asked_again) return true;
  agenda_->NoteAt(gang.id, capacity.asked_again);
  return false;
}

GangId Placement::Guard() {
  const absl::Time now = agenda_->now();
  for (const Order& order : list_) {
    const Gang& gang = *gangs_.Find(order.id);
    if (IsWithoutQuota(gang) || gang.required() == 0) continue;
    Part& part = parts_.at(order.id);
    const absl::Time waited = records_.Of(gang)->admitted_at + options_.starvation_after;
    if (now < waited) {
      guard_changes_ = waited;
      return GangId::kNone;
    }
    const absl::Time ends = part.guard_since + options_.starvation_hold;
    const absl::Time again = part.guard_since + options_.starvation_after;
    if (now < ends) {
      guard_changes_ = ends;
      return order.id;
    }
    guard_changes_ = now < again ? again : absl::InfiniteFuture();
    return now < again ? GangId::kNone : order.id;
  }
  guard_changes_ = absl::InfiniteFuture();
  return GangId::kNone;
}

// Whether it would fit, without taking the room.
void Placement::TryWithoutQuota(const Gang& gang, Part* part, const std::vector<std::string>& uids,
                                KnownFailures* failures) {
  Places& places = part->places;
  const bool fitted = std::exchange(places.fits_now, false);
  const PlanRequest request = RequestFor(gang, uids);
  const auto required = static_cast<int64_t>(request.required);
  Plan plan = Solve(request);
  if (!plan.complete && DropTentativesAfter(part->order)) {
    failures->Clear();
    plan = Solve(request);
  }
  part->missing = part->missing_with_coming =
      required - static_cast<int64_t>(plan.shortfall.placeable);
  if (gang.facts.waits_for_room) {
    places.fits_now = plan.complete && MinResourcesFree(gang);
    places.shortfall = std::move(plan.shortfall);
  } else {
    places.fits_now = plan.complete || CapacityMaySuffice(gang, plan, required);
  }
  if (places.fits_now) quota_->Invalidate();
  if (places.fits_now && !fitted) fitting_.push_back(gang.id);
}

void Placement::PlanGang(const Gang& gang, KnownFailures* failures) {
  Part& part = PartOf(gang);
  Places& places = part.places;
  agenda_->Note(gang.id);
  by_age_.erase({part.planned_at, part.order});
  part.planned_at = epoch_;
  by_age_.emplace(part.planned_at, part.order);
  part.offers_known = offers_;
  part.must_plan = false;
  DropTentative(gang.id, &part);
  places.coming_suffices = places.short_of_nodes = false;
  const std::vector<std::string> uids = Unplaced(gang);
  if (uids.empty()) {
    IndexPlaces(gang.id, &part);
    return;
  }
  if (IsWithoutQuota(gang)) {
    TryWithoutQuota(gang, &part, uids, failures);
    IndexPlaces(gang.id, &part);
    return;
  }
  planned_.push_back(gang.id);
  const PlanRequest request = RequestFor(gang, uids);
  const KnownFailures::Shape shape = KnownFailures::ShapeOf(request);
  if (const PlanShortfall* known = failures->Find(shape, request.required)) {
    places.short_of_nodes = true;
    places.shortfall = *known;
    part.missing = part.missing_with_coming =
        static_cast<int64_t>(request.required) - static_cast<int64_t>(known->placeable);
    IndexPlaces(gang.id, &part);
    return;
  }
  const bool in_grace = agenda_->now() < part.keeps_partial_until;
  const bool keeps_partial = in_grace || guard_ == gang.id;
  bool whole = Place(gang, &part, uids, keeps_partial);
  const bool lacks = !whole && (places.fixed.empty() || places.short_of_nodes);
  if (lacks && DropTentativesAfter(part.order)) {
    failures->Clear();
    DropTentative(gang.id, &part);
    whole = Place(gang, &part, Unplaced(gang), keeps_partial);
  }
  if (in_grace && places.short_of_nodes) agenda_->NoteAt(gang.id, part.keeps_partial_until);
  if (places.tentative_assumed) tentative_.insert(part.order);
  // Its time begins with the first room that it keeps.
  if (guard_ == gang.id && places.tentative_assumed && places.short_of_nodes &&
      !places.tentative.empty() && agenda_->now() >= part.guard_since + options_.starvation_after) {
    part.guard_since = agenda_->now();
    agenda_->WakeAt(part.guard_since + options_.starvation_hold);
  }
  if (places.short_of_nodes && !places.min_resources_short && request.required > 0) {
    failures->Note(shape, request.required, places.shortfall);
  }
  IndexPlaces(gang.id, &part);
}

bool Placement::IsSmall() const {
  return snapshot_->nodes().size() * list_.size() <= options_.explanation_budget;
}

std::vector<Placement::Order> Placement::FirstUninformed(size_t most) const {
  std::vector<const Order*> firsts;
  for (const Demand* demand : uninformed_) {
    for (const auto& [least, gangs] : demand->uninformed) {
      size_t taken = 0;
      for (auto it = gangs.begin(); it != gangs.end() && taken < most; ++it, ++taken) {
        firsts.push_back(&*it);
      }
    }
  }
  const size_t count = std::min(most, firsts.size());
  const auto by_order = [](const Order* a, const Order* b) { return *a < *b; };
  std::ranges::partial_sort(firsts, firsts.begin() + static_cast<ptrdiff_t>(count), by_order);
  std::vector<Order> first;
  for (size_t i = 0; i < count; ++i) first.push_back(*firsts[i]);
  return first;
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
    PlanSoon(&parts_.at(order.id));
  }
  for (const auto& [planned_at, order] : by_age_) {
    if (planned_at >= epoch_ || plans == 0) return;
    --plans;
    PlanSoon(&parts_.at(order.id));
  }
}

void Placement::OfferReleased() {
  for (const std::string& node : std::exchange(released_, {})) {
    const cluster::NodeInfo* info = snapshot_->FindNode(node);
    if (info != nullptr) Offer(*info);
  }
}

void Placement::PlanWaiting() {
  OfferReleased();
  RefreshOldest();
  const GangId guard = Guard();
  if (guard != guard_) {
    for (GangId gang : {guard_, guard}) {
      const auto it = parts_.find(gang);
      if (it != parts_.end() && it->second.listed) PlanSoon(&it->second);
    }
    guard_ = guard;
  }
  agenda_->WakeAt(guard_changes_);
  if (due_.empty() && next_.empty()) {
    FollowHead();
    return;
  }
  ++passes_;
  KnownFailures failures;
  while (!due_.empty() || !next_.empty()) {
    const bool is_due = next_.empty() || (!due_.empty() && *due_.begin() <= next_.begin()->first);
    const Order order = is_due ? *due_.begin() : next_.begin()->first;
    Part& part = parts_.at(order.id);
    if (!is_due && !StillCouldComplete(part)) {
      FindNext(part.demand, &order);
      continue;
    }
    due_.erase(order);
    LeaveDemand(&part);
    PlanGang(*gangs_.Find(order.id), &failures);
    EnterDemand(&part);
  }
  // Those that are helped by what was given up meanwhile come next.
  OfferReleased();
  if (!due_.empty() || !next_.empty()) agenda_->WakeAt(agenda_->now());
  FollowHead();
}

// The head may have quota without room, and who isn't the head any more may not.
void Placement::FollowHead() {
  const GangId head = Head();
  const GangId before = std::exchange(head_, head);
  if (before == head) return;
  if (before != GangId::kNone) agenda_->Note(before);
  const Gang* gang = gangs_.Find(head);
  if (gang == nullptr || !gang->facts.waits_for_room) return;
  quota_->Invalidate();
  fitting_.push_back(head);
}

}  // namespace muster::coscheduling
