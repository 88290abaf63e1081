// Who of the list has a reservation (cluster/reservations.h), and of what.

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/hash/hash.h"
#include "coscheduling/placement/placement.h"

namespace muster::coscheduling {
namespace {

using cluster::Reservation;

// A member that is given a place has started by then, and one that is evicted is gone.
constexpr absl::Duration kStart = absl::Seconds(30);
constexpr absl::Duration kEviction = absl::Minutes(1);

}  // namespace

// It waits for nothing but room, which nobody makes, and nobody is giving up for it.
bool Placement::LacksRoom(const Gang& gang, const Part& part) const {
  const Places& places = part.places;
  const GangFacts& facts = gang.facts;
  if (static_cast<int64_t>(places.fixed.size()) >= gang.required()) return false;
  if (part.listed) {
    const bool is_short = facts.backing_off ? facts.without_quota : places.short_of_nodes;
    return !places.min_resources_short && places.awaits.empty() &&
           (facts.waits_for_room || (is_short && !part.being_made));
  }
  // It stood in the list, and will again once its record is written anew: its pause is over, or
  // another process leads.
  const AdmissionRecord* record = records_.Of(gang);
  return record != nullptr && gang.ours && !facts.blocked && !facts.infeasible && !facts.evicting &&
         gang.bound.empty() && !gang.unbound.empty() &&
         (record->identity != options_.identity || records_.IsBeingWritten(gang));
}

void Placement::FollowLack(const Gang& gang, Part* part) {
  std::optional<Order> lacks;
  if (LacksRoom(gang, *part)) lacks = OrderOf(gang);
  reserve_again_ |= lacks || part->lacks;
  if (lacks == part->lacks) return;
  if (part->lacks) lacking_.erase(*part->lacks);
  if (lacks) lacking_.insert(*lacks);
  part->lacks = std::move(lacks);
}

void Placement::SetBeingMade(const Gang& gang, bool being_made) {
  Part& part = parts_[gang.id];
  if (std::exchange(part.being_made, being_made) == being_made || !part.listed) return;
  FollowLack(gang, &part);
  agenda_->WakeAt(agenda_->now());
}

absl::Time Placement::GoneBy(const Gang& gang) const {
  absl::Time gone = absl::InfinitePast();
  for (const std::string& uid : gang.unbound) {
    gone = std::max(gone, snapshot_.FindPod(uid)->GoneBy(agenda_->now() + kStart));
  }
  return std::min(gone, quota_->RunsUntil(gang) + kEviction);
}

std::set<uint64_t> Placement::KeepOff(const Gang& gang, PlanRequest* request) const {
  std::set<uint64_t> may_use;
  if (reservations_.in_force() == 0) return may_use;
  const absl::Time gone = GoneBy(gang);
  for (const Reservation* one : reservations_.Keeping(parts_.at(gang.id).order, Never())) {
    if (one->IsBefore(gone)) {
      may_use.insert(one->holder.id);
    } else {
      request->excluded_nodes.insert(one->room.nodes.begin(), one->room.nodes.end());
    }
  }
  return may_use;
}

std::vector<const Reservation*> Placement::KeptFrom(const Gang& gang) const {
  const Part& part = parts_.Of(gang.id);
  if (!part.listed || reservations_.in_force() == 0) return {};
  return reservations_.Keeping(part.order, GoneBy(gang));
}

// Those before `before` have had their turn: who of them is to have a reservation has it now.
void Placement::Reserve(const Order* before) {
  if (!reservations_.in_pass()) {
    reservations_.BeginPass(snapshot_.nodes().size(), IsSmall(), agenda_->now());
    considered_.reset();
  }
  auto it = considered_ ? lacking_.upper_bound(*considered_) : lacking_.begin();
  for (; it != lacking_.end() && (before == nullptr || *it < *before); ++it) {
    freeing_.Follow(snapshot_);
    if (reservations_.AllTaken(freeing_)) return;
    considered_ = *it;
    ReserveFor(*it);
  }
}

void Placement::ReserveFor(const Order& order) {
  const Gang& gang = *gangs_.Find(order.gang());
  Part& part = parts_.at(gang.id);
  const bool entitled = !quota_->IsUnderQuota(gang) || quota_->Holds(gang);
  const AdmissionRecord* record = records_.Of(gang);
  const bool waits = record != nullptr && options_.reserve_after > absl::ZeroDuration();
  const absl::Time now = agenda_->now();
  const absl::Time from = waits ? record->admitted_at + options_.reserve_after : now;
  if (now < from) agenda_->NoteAt(gang.id, from);
  // Some may not use every node that others with such members may.
  const bool special = !part.listed || quota_->Holds(gang) || !part.refused.left_out().empty() ||
                       !suspects_.nodes().empty();
  const size_t alike = absl::HashOf(part.demand, gang.topology.required, special ? order.id : 0);
  reservations_.Consider(
      {order, part.asked, {}, absl::InfinitePast(), entitled, entitled && now >= from}, alike,
      gang.required(), [&] { return FindRoom(gang, order, entitled); });
}

// Nothing if it isn't room that it lacks, or there never is any.
std::optional<cluster::SoonestRoom> Placement::FindRoom(const Gang& gang, const Order& place,
                                                        bool entitled) {
  const cluster::NominationsFor counted(room_, gang.priority);
  const PlanRequest request = RequestFor(gang, Unplaced(gang));
  const absl::Time now = agenda_->now();
  const cluster::Domains& tree = planner_.Follow(snapshot_, request.levels);
  cluster::RoomWanted wanted = {request.members, static_cast<int64_t>(request.required), &tree,
                                tree.LevelOf(request.required_topology_key)};
  for (const std::string& name : request.sibling_nodes) {
    const cluster::NodeInfo* info = snapshot_.FindNode(name);
    if (info != nullptr) wanted.beside = info->slot;
  }
  wanted.may_use_pool = [&](std::string_view pool) {
    return !reservations_.IsTaken(pool, entitled);
  };
  wanted.excluded = &request.excluded_nodes;
  wanted.leaves = [&](const kube::Pod& pod) -> std::optional<cluster::Departure> {
    if (cluster::StaysWithNode(pod)) return std::nullopt;
    const Gang* owner = gangs_.OfPod(pod.meta.uid);
    cluster::Departure leaves = {pod.GoneBy(now), absl::InfiniteFuture()};
    if (owner != nullptr) {
      // What it counts on itself, or who comes after it does, may be had. What stands of it stays.
      const Part& other = parts_.Of(owner->id);
      const bool counted_on = other.places.tentative_assumed && !(other.order < place);
      if (counted_on && other.places.tentative.contains(pod.meta.uid)) {
        return cluster::Departure{absl::InfinitePast(), absl::InfinitePast()};
      }
      if (owner == &gang) return std::nullopt;
      leaves.at = std::min(leaves.at, std::max(now, quota_->RunsUntil(*owner) + kEviction));
      const absl::Time forecast = std::min(now, pod.start_time) + owner->expected_runtime.time;
      if (forecast > now) leaves.expected = forecast;
    }
    leaves.expected = std::min(leaves.expected, leaves.at);
    return leaves;
  };
  std::optional<cluster::SoonestRoom> room = freeing_.FindSoonest(snapshot_, wanted);
  // Where there is room already something else keeps it from there, if it has been planned.
  const Part& part = parts_.at(gang.id);
  const bool is_planned = part.listed && !part.places.fits_now;
  if (room && room->free_by == absl::InfinitePast() && is_planned) room.reset();
  return room;
}

void Placement::FinishPass() {
  const absl::Time now = agenda_->now();
  const auto may_seek_from = [&] {
    return lacking_.empty() ? Never()
                            : reservations_.MaySeekFrom(now, snapshot_.nodes().size(), IsSmall());
  };
  const bool due = reserve_again_ || now >= std::min(may_seek_from(), next_change_);
  if (reservations_.in_pass() || due) {
    Reserve(nullptr);
    reserve_again_ = false;
    const cluster::Reservations::Changes changes = reservations_.EndPass();
    released_.insert(changes.freed.begin(), changes.freed.end());
    for (uint64_t holder : changes.holders) agenda_->Note(GangId{holder});
    reservations_changed_ |= !changes.holders.empty();
    next_change_ = std::min(reservations_.NextChange(), may_seek_from());
  }
  agenda_->WakeAt(next_change_);
  FollowHeads();
}

// The first of each pool may have quota without room, unless somebody of more claim waits for
// something else; and who isn't any more may not.
void Placement::FollowHeads() {
  std::set<GangId> heads;
  for (const Reservation& one : reservations_.all()) {
    const bool another = !come_later_.empty() && *come_later_.begin() < one.holder;
    if (!another) heads.insert(GangId{one.holder.id});
  }
  std::vector<GangId> changed;
  std::ranges::set_symmetric_difference(heads_, heads, std::back_inserter(changed));
  heads_ = std::move(heads);
  for (GangId id : changed) {
    const Gang* gang = gangs_.Find(id);
    const bool was = !heads_.contains(id);
    if (gang == nullptr || !(was || gang->facts.waits_for_room)) continue;
    quota_->Invalidate(*gang);
    if (was) agenda_->Note(id);
    if (!was) fitting_.push_back(id);
  }
}

}  // namespace muster::coscheduling
