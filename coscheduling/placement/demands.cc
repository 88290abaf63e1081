// What nodes gain, and which gangs in the list that could help: those with members of the same
// classes are one demand.

#include <algorithm>
#include <iterator>
#include <limits>
#include <ranges>
#include <utility>

#include "cluster/node_stage.h"
#include "cluster/predicates.h"
#include "coscheduling/placement/placement.h"

namespace muster::coscheduling {
namespace {

// Any change that a member's own pods or others' pods make elsewhere may decide about it.
bool HasAnyRelations(const kube::PodSpec& spec) {
  return cluster::HasRelations(spec) || cluster::HasPreferredRelations(spec);
}

bool MayTake(const cluster::NodeInfo& info) { return info.UsableNow() || info.Coming(); }

}  // namespace

void Placement::Classify(const Gang& gang, Part* part) {
  Declassify(gang.id, part);
  std::map<std::string, std::shared_ptr<const kube::Pod>> examples;
  const kube::Pod* previous = nullptr;
  for (const std::string& uid : gang.unbound) {
    std::shared_ptr<const kube::Pod> pod = snapshot_.SharePod(uid);
    if (previous != nullptr && cluster::ShareClass(*previous, *pod)) continue;
    previous = pod.get();
    if (HasAnyRelations(*pod->spec)) see_relations_.insert(gang.id);
    if (!pod->spec->persistent_volume_claims.empty()) see_volumes_.insert(gang.id);
    std::string key = cluster::ClassKey(*pod);
    examples.try_emplace(std::move(key), std::move(pod));
  }
  std::vector<Class> classes;
  for (auto& [key, example] : examples) {
    const auto [entry, is_new] = classes_.try_emplace(key);
    classes.push_back(&*entry);
    if (!is_new) continue;
    MemberClass& members = entry->second;
    members.example = std::move(example);
    for (const auto& [resource, amount] : members.example->spec->requests.entries()) {
      if (amount <= 0 || !cluster::IsDevice(resource)) continue;
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

void Placement::Offer(const cluster::NodeInfo* offered) {
  if (offered == nullptr || !MayTake(*offered)) return;
  const cluster::NodeInfo& info = *offered;
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
  return cluster::RoomNow(snapshot_, *members.example, info);
}

// At most so many of a gang's members the node can hold beside each other.
int64_t Placement::MembersOn(const cluster::NodeInfo& info, const Demand& demand,
                             const Rooms& rooms) const {
  std::vector<cluster::ClassRoom> classes;
  for (Class one : demand.classes) {
    const auto room = rooms.find(one);
    if (room == rooms.end()) continue;
    classes.push_back({room->second, one->second.device, one->second.amount});
  }
  return cluster::RoomBeside(info, classes);
}

// 0 if it isn't there.
int64_t Placement::MembersOn(const cluster::NodeInfo* info, const Demand& demand) const {
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
  while (order != nullptr && !CouldComplete(parts_.at(order->gang()))) order = first_behind(order);
  if (order == nullptr) return;
  demand->next = *order;
  next_.emplace(*order, demand);
}

// What only those behind it count on is still to be had. What nobody counts on is as it is for all
// gangs of the demand.
bool Placement::StillCouldComplete(const Part& part) {
  int64_t gained = 0;
  int64_t usable = 0;
  const absl::Time gone =
      reservations_.in_force() == 0 ? Never() : GoneBy(*gangs_.Find(part.order.gang()));
  std::map<std::string, Gain, std::less<>>& gains = part.demand->gains;
  for (auto it = gains.begin(); it != gains.end();) {
    Gain& gain = it->second;
    if (gain.offer <= part.offers_known || reservations_.IsKept(it->first, part.order, gone)) {
      ++it;
      continue;
    }
    const cluster::NodeInfo* info = snapshot_.FindNode(it->first);
    // More is to be had by more important gangs.
    bool counted_on = info != nullptr && !info->nominated.empty();
    bool behind = false;
    for (GangId id : GangsOn(it->first)) {
      const Part& other = parts_.at(id);
      counted_on |= other.places.tentative_assumed;
      behind |= other.places.tentative_assumed && part.order < other.order;
    }
    Gain now = gain;
    if (!behind) {
      now.members = MembersOn(info, *part.demand);
      now.usable = info != nullptr && info->UsableNow();
    }
    gained += now.members;
    if (now.usable) usable += now.members;
    if (!counted_on) gain = now;
    it = gain.members == 0 ? gains.erase(it) : std::next(it);
  }
  return WouldComplete(part, gained, usable);
}

void Placement::OfferReleased() {
  for (const std::string& node : std::exchange(released_, {})) Offer(snapshot_.FindNode(node));
}

std::vector<Placement::Order> Placement::FirstUninformed(size_t most) const {
  std::vector<Order> firsts;
  for (const Demand* demand : uninformed_) {
    for (const auto& [least, gangs] : demand->uninformed) {
      std::ranges::copy(gangs | std::views::take(most), std::back_inserter(firsts));
    }
  }
  std::ranges::sort(firsts);
  if (firsts.size() > most) firsts.resize(most);
  return firsts;
}

}  // namespace muster::coscheduling
