// Who gets which nodes: the list of gangs that wait for a place, and the places they have.
//
// All waiting gangs stand in one list, first claim first: those that already have members bound,
// then priority, then age, then name. What a gang was refused is
// kept with it: how many of its members had no room, and which kinds of members it has. A node that
// gains something is offered to the kinds that it could take, once for all gangs that have the same
// kinds; a gang is planned again once what was gained since could hold the members that it lacked,
// and not before. That bound is exact for a
// plan that places as many members as can be placed; because larger gangs of several kinds are
// packed greedily, and because reasons are to tell the numbers of now, those about whom something
// has changed are planned again in turn too, as EngineOptions::explanation_budget says.
//
// Places in force ("fixed") are on usable nodes and assumed in the snapshot. Places that are
// counted on while nodes come, or while others go ("tentative"), are assumed if they are all that
// the gang needs; who stands further down in the list loses them to a gang that they would
// complete, unless that is of lower priority.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cluster/free_devices.h"
#include "cluster/journal.h"
#include "cluster/known_failures.h"
#include "cluster/refused_nodes.h"
#include "cluster/reservations.h"
#include "cluster/soonest_room.h"
#include "cluster/suspect_nodes.h"
#include "coscheduling/admission/owner.h"
#include "coscheduling/admission/quota_admission.h"
#include "coscheduling/placement/planner/planner.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {

using cluster::PlaceMap;

struct Places {
  PlaceMap fixed;      // being carried out, on usable nodes
  PlaceMap tentative;  // counted on while nodes come; for show if not assumed
  bool tentative_assumed = false;
  bool coming_suffices = false;  // `tentative` is complete
  bool short_of_nodes = false;   // not even what is coming suffices
  bool min_resources_short = false;
  // It backs off, or gave its quota back until there is room, and what is free suffices, or may
  // with new capacity.
  bool fits_now = false;
  bool committing = false;
  // Who goes from the tentative places, a few of them by name; empty: nobody has to.
  std::string awaits;
  PlanShortfall shortfall;  // of the last plan that wasn't complete
};

class Placement : Owner {
 public:
  // Of a gang that backs off because capacity was refused: for how many nodes there is capacity
  // again, and from when on the provider is asked again.
  struct Capacity {
    int64_t room = 0;
    absl::Time asked_again;
  };
  using CapacityOf = std::function<Capacity(const Gang&)>;
  // Nodes for what it lacks can be made, as far as is known: nobody has to go for it.
  using MayBuy = std::function<bool(const Gang&)>;

  // All of them outlive it. `room` is the owner's snapshot, in which places are assumed.
  Placement(const Owner& owner, cluster::Snapshot* room, QuotaAdmission* quota,
            const cluster::SuspectNodes& suspects, CapacityOf capacity_of, MayBuy may_buy)
      : Owner(owner),
        room_(room),
        quota_(quota),
        suspects_(suspects),
        capacity_of_(std::move(capacity_of)),
        may_buy_(std::move(may_buy)),
        reservations_(options_.reservations) {}

  // --- observations ---
  void Observe(const cluster::Journal& journal);
  // A node came into question, or no longer does, for a reason that the snapshot doesn't know.
  void Reconsider(std::string_view node);
  // kube-scheduler left the planned node out of a filter call, and offered these. False if that
  // wasn't about the plan in force.
  bool Refuse(const Gang& gang, const std::string& pod, const std::string& node,
              const std::vector<std::string>& offered);
  // Binding a member there failed again and again.
  void LeaveOut(const Gang& gang, const std::string& node);

  // --- steps of a gang ---
  // Takes or leaves its place in the list as its standing asks. False if places that were in force
  // no longer hold; they are given up then.
  bool Sync(const Gang& gang);
  void Leave(GangId gang, const std::string& pod);
  void Forget(GangId gang);
  // The plan once more, on one fresh snapshot, as if nothing of it were assumed, unless nothing has
  // changed since it was made. "" if it holds; else why not, and the places are given up.
  std::string Recheck(const Gang& gang);
  // Its commit has begun (or is over): from now on only what breaks is planned anew.
  void SetCommitting(GangId gang, bool committing) { parts_[gang].places.committing = committing; }
  // Nodes were asked for it: until then even an incomplete plan keeps what it counts on.
  void KeepPartialUntil(GangId gang, absl::Time until) { parts_[gang].keeps_partial_until = until; }
  // Nodes for what it lacks are or can be made, so that it needs none of those that others leave.
  void SetBeingMade(const Gang& gang, bool being_made);
  // The member's binding is asked for: its place can only be seen, not be given up.
  void Pin(GangId gang, const std::string& pod) { parts_[gang].pins.insert(pod); }
  void Unpin(GangId gang, const std::string& pod);

  // Of its members beyond minMember, those whose room another gang gets.
  void EvictSurplus(const Gang& gang);

  // --- the step of all ---
  // Plans those that what was observed could help, first claim first.
  void PlanWaiting();
  // Gangs that were planned since the last call, first claim first; backing off ones apart.
  std::vector<GangId> TakePlanned() { return std::exchange(planned_, {}); }
  // Reservations have changed since the last call.
  bool TakeReservationsChanged() { return std::exchange(reservations_changed_, false); }
  // Gangs without quota that may be given some since the last call, because they have begun to fit
  // or are the head.
  std::vector<GangId> TakeFitting() { return std::exchange(fitting_, {}); }

  // --- questions ---
  const Places& Of(const Gang& gang) const { return parts_.Of(gang.id).places; }
  const cluster::RefusedNodes& RefusedBy(const Gang& gang) const {
    return parts_.Of(gang.id).refused;
  }
  bool IsPinned(const Gang& gang, const std::string& pod) const {
    return parts_.Of(gang.id).pins.contains(pod);
  }
  bool HasPins(const Gang& gang) const { return !parts_.Of(gang.id).pins.empty(); }
  // Unbound members without a place that may be given one.
  std::vector<const kube::Pod*> Unplaced(const Gang& gang) const;
  // The next room that suffices is its: it is the first in the list of those that lack some of a
  // pool of like nodes, and of no less claim than who isn't in the list because something else
  // comes first, quota for example.
  // It, or another stage of its job, which then may have places already.
  bool IsHead(const Gang& gang) const;
  // Why quota would be kept in vain by a gang that gave it back for lack of room; "" if it may have
  // it. A change of the answer invalidates what quota was told.
  std::string WhyNoRoom(const Gang& gang) const;
  // It is to be planned as a whole: all that it needs may be placed.
  bool Waits(const Gang& gang) const;
  // What is being kept for it; null if nothing.
  const cluster::Reservation* ReservedFor(const Gang& gang) const {
    return reservations_.Of(static_cast<uint64_t>(gang.id));
  }
  // Those in force that keep it from some nodes.
  std::vector<const cluster::Reservation*> KeptFrom(const Gang& gang) const;
  const cluster::Reservations& reservations() const { return reservations_; }
  // Gangs with places on the node, by either of its names.
  std::vector<GangId> GangsOn(std::string_view node) const;
  // Gangs that were evicted for others, and members of gangs that stayed.
  uint64_t preempted_gangs() const { return preempted_gangs_; }
  uint64_t preempted_surplus() const { return preempted_surplus_; }
  uint64_t plans() const { return plans_; }
  uint64_t passes() const { return passes_; }
  size_t waiting() const { return list_.size(); }

 private:
  struct Demand;
  // What is gained on a node, in members.
  struct Gain {
    int64_t members = 0;
    bool usable = false;
    uint64_t offer = 0;  // its number
  };
  // In the list: by priority; of one priority half bound gangs first, and those last that lack
  // nothing that they need; then by age.
  struct Order : cluster::PlaceInLine {
    GangId gang() const { return GangId{id}; }
    auto operator<=>(const Order&) const = default;
  };
  struct Part {
    Places places;
    cluster::RefusedNodes refused;
    std::set<std::string> pins;
    bool listed = false;
    Order order;
    std::optional<Order> comes_later;  // as entered in come_later_
    size_t asked = 0;                  // digest of what the last plan was made for
    // What the last plan lacked: on usable nodes, and with those that are coming.
    int64_t missing = 0;
    int64_t missing_with_coming = 0;
    // It is due whatever was gained.
    bool must_plan = false;
    Demand* demand = nullptr;   // set while it is in the list
    int64_t least = 1;          // LeastToComplete, as entered in its demand
    uint64_t planned_at = 0;    // epoch_ then
    uint64_t offers_known = 0;  // offers_ then
    bool being_made = false;
    std::optional<Order> lacks;                                  // as entered in lacking_
    absl::Duration expected_runtime = absl::InfiniteDuration();  // as it was read last
    absl::Time keeps_partial_until = absl::InfinitePast();
    // When somebody who was to go is late.
    absl::Time awaits_until = Never();
    std::optional<int64_t> evictable;  // as entered in evictable_
    size_t surplus = 0;                // bound members beyond minMember then
    bool awaits_room = false;          // gave back its quota
    // Until then it doesn't ask for it again: others may have seen the same room.
    absl::Time asks_from = absl::InfinitePast();
    absl::btree_set<std::string> places_on;      // nodes, as entered in on_node_
    absl::btree_set<std::string> takes_room_on;  // of these, where places are assumed
    // The step in which the fixed places were planned, and the end of the snapshot's log then.
    std::pair<uint64_t, uint64_t> placed_at;
  };
  struct MemberClass {
    std::shared_ptr<const kube::Pod> example;
    // The device of which it asks, and how much; of several the first by name.
    std::string device;
    int64_t amount = 0;
    absl::flat_hash_set<Demand*> demands;
  };
  using Classes = std::map<std::string, MemberClass>;  // by cluster::ClassKey
  using Class = const Classes::value_type*;
  // Gangs in the list with members of the same classes: what a node gains is gained by all of them.
  struct Demand {
    std::vector<Class> classes;  // in order of their keys
    // By node: what was gained since all of them were planned.
    std::map<std::string, Gain, std::less<>> gains;
    // By Part::least: those that were planned after the last gain, and those that weren't.
    std::map<int64_t, std::set<Order>> informed;
    std::map<int64_t, std::set<Order>> uninformed;
    // The first whom the gains could complete, of those whose turn hasn't been in this pass.
    std::optional<Order> next;
    size_t gangs = 0;
    uint64_t last_offer = 0;
  };
  using KnownFailures = cluster::KnownFailures<PlanShortfall>;

  static Order OrderOf(const Gang& gang);
  bool ComesLater(const Gang& gang, const Part& part) const;
  void NoteClaim(const Gang& gang, Part* part);
  void EnterList(const Gang& gang, Part* part);
  void LeaveList(Part* part);
  // Of one that isn't in the list.
  void Classify(const Gang& gang, Part* part);
  void Declassify(GangId gang, Part* part);
  void EnterDemand(Part* part);
  void LeaveDemand(Part* part);
  size_t Digest(const Gang& gang) const;
  void IndexPlaces(GangId gang, Part* part);
  std::map<std::string, absl::Time> LeftOut(const Gang& gang) const;

  void Offer(const cluster::NodeInfo* offered);  // null: it is gone
  // For how many of the class's members the node has room now; those without any may be left out.
  using Rooms = absl::flat_hash_map<Class, int64_t>;
  int64_t RoomOn(const cluster::NodeInfo& info, const MemberClass& members) const;
  int64_t MembersOn(const cluster::NodeInfo& info, const Demand& demand, const Rooms& rooms) const;
  int64_t MembersOn(const cluster::NodeInfo* info, const Demand& demand) const;
  // Finds Demand::next behind `after`, if that is given.
  void FindNext(Demand* demand, const Order* after);
  // Once it is its turn: room may have been taken by those before it.
  bool StillCouldComplete(const Part& part);
  void ShowAgain(std::string_view node);
  void PlanSoon(Part* part) {
    part->must_plan = true;
    due_.insert(part->order);
  }
  // Few enough nodes and gangs that all may be planned again after any change.
  bool IsSmall() const;
  // With fewer members gained it can't be completed.
  static int64_t LeastToComplete(const Part& part);
  static bool WouldComplete(const Part& part, int64_t gained, int64_t usable);
  bool CouldComplete(const Part& part) const;

  PlanRequest RequestFor(const Gang& gang, std::vector<const kube::Pod*> members);
  void ExcludeOtherFlavors(const Gang& gang, PlanRequest* request) const;
  PlaceMap LiftAwaiting(const PlaceMap& places) const;
  void PutBack(const PlaceMap& lifted) const;
  std::set<std::string> BrokenPlaces(const Gang& gang, const Part& part) const;
  bool MinResourcesFree(const Gang& gang) const;
  bool CapacityMaySuffice(const Gang& gang, int64_t missing);
  void DropTentative(GangId gang, Part* part);
  void DropFixed(GangId gang, Part* part, const std::set<std::string>* only = nullptr);
  bool DropTentativesAfter(const Order& order);
  Plan Solve(const PlanRequest& request);
  void PlanGang(const Gang& gang, KnownFailures* failures);
  void PlanAdmitted(const Gang& gang, Part* part, const PlanRequest& request,
                    const cluster::WantedShape& shape, KnownFailures* failures);
  bool Place(const Gang& gang, Part* part, PlanRequest request, bool keeps_partial);
  void SyncWithoutQuota(const Gang& gang, Part* part);
  void TryWithoutQuota(const Gang& gang, Part* part, const PlanRequest& request,
                       KnownFailures* failures);
  // The first of the list, at most `most`, that were offered something since they were planned.
  std::vector<Order> FirstUninformed(size_t most) const;
  void RefreshOldest();
  void OfferReleased();
  // --- preemption.cc ---
  void FollowStanding(const Gang& gang, Part* part);
  void RetryPreemption();
  std::vector<std::string> GoingFor(const Gang& gang, Part* part) const;
  bool TakesInVain(const Gang& gang, Part* part);
  // --- reserve.cc ---
  bool LacksRoom(const Gang& gang, const Part& part) const;
  void FollowLack(const Gang& gang, Part* part);
  void Reserve(const Order* before);
  void ReserveFor(const Order& order);
  std::optional<cluster::SoonestRoom> FindRoom(const Gang& gang, const Order& place, bool entitled);
  void FinishPass();
  void FollowHeads();
  // When the gang is gone at the latest if it starts now.
  absl::Time GoneBy(const Gang& gang) const;
  // Leaves out what is kept from the gang. Returns for whom nodes are kept that it may use.
  std::set<uint64_t> KeepOff(const Gang& gang, PlanRequest* request) const;

  cluster::Snapshot* room_;
  QuotaAdmission* quota_;
  const cluster::SuspectNodes& suspects_;
  const CapacityOf capacity_of_;
  const MayBuy may_buy_;

  Planner planner_;

  PerGang<Part> parts_;
  std::set<Order> list_;
  // Those that will be in the list once they have quota and their flavors.
  std::set<Order> come_later_;
  std::set<Order> due_;                          // of the list, with Part::must_plan
  std::set<std::pair<Order, Demand*>> next_;     // by Demand::next
  std::set<std::pair<uint64_t, Order>> by_age_;  // of the list, by Part::planned_at
  std::set<Order> tentative_;                    // of the list, with assumed tentative places
  Classes classes_;                              // of gangs in the list
  std::map<std::vector<Class>, Demand> demands_;
  // With gangs of whom what they were told may not be so any more, though nothing could help them.
  absl::flat_hash_set<Demand*> uninformed_;
  uint64_t offers_ = 0;
  // Of classes_ by device, then by amount.
  std::map<std::string, std::set<std::pair<int64_t, Class>>> by_device_;
  std::set<GangId> see_relations_;
  std::set<GangId> see_volumes_;
  absl::flat_hash_map<std::string, absl::flat_hash_set<GangId>> on_node_;
  // Nodes that kube-scheduler didn't offer to a class, until they change.
  cluster::NodesNotOffered not_offered_;
  uint64_t step_ = 0;
  uint64_t epoch_ = 1;  // grows with everything that a reason may tell
  absl::Time refreshed_ = absl::InfinitePast();
  std::set<std::string> released_;  // nodes on which places were given up, not offered yet
  // Whole gangs that stand, by what they come by, and those with members that are going away.
  std::set<std::pair<int64_t, GangId>> evictable_;
  std::set<GangId> leaving_;
  std::set<std::string> surplus_leaving_;  // members that are to go, by UID
  bool evictable_changed_ = false;
  uint64_t eviction_rules_ = 0;  // of quota, as known last
  uint64_t preempted_gangs_ = 0;
  uint64_t preempted_surplus_ = 0;
  cluster::Reservations reservations_;
  cluster::FreeingNodes freeing_{[this](const kube::Pod& pod) {
    return pod.scheduler_name == options_.scheduler_name ||
           pod.meta.Label(kube::kPodGroupLabel) != nullptr;
  }};
  std::set<Order> lacking_;           // those that wait for room alone
  bool reserve_again_ = false;        // something of these has changed
  std::optional<Order> considered_;   // in this pass, up to it
  absl::Time next_change_ = Never();  // of reservations, by time alone
  bool reservations_changed_ = false;
  std::set<GangId> heads_;
  std::vector<GangId> planned_;
  std::vector<GangId> fitting_;
  uint64_t plans_ = 0;
  uint64_t passes_ = 0;
};

}  // namespace muster::coscheduling
