#include "cluster/reservations.h"

#include <utility>

#include "cluster/free_devices.h"
#include "fmt/format.h"
#include "kube/objects/excerpt.h"
#include "kube/objects/time_text.h"

namespace muster::cluster {
namespace {

constexpr size_t kShown = 3;  // nodes that a text names

// Where looking at every node at every change would be too much, sets are sought anew this often,
// as far as there aren't too many nodes even for that, and no more than these at a time.
constexpr absl::Duration kSeekInterval = absl::Milliseconds(500);
constexpr absl::Duration kSeekPerNode = absl::Microseconds(50);
constexpr size_t kMostSets = 4;

const Reservation* FindOf(const std::vector<Reservation>& all, uint64_t holder) {
  const auto it =
      std::ranges::find(all, holder, [](const Reservation& one) { return one.holder.id; });
  return it == all.end() ? nullptr : &*it;
}

}  // namespace

std::string Reservation::ToString() const {
  std::string when = "it isn't known when all of them are free";
  if (room.expected != absl::InfiniteFuture()) {
    when = fmt::format("all of them are {}free by {}",
                       room.expected < room.free_by ? "expected to be " : "",
                       kube::ClockText(std::max(since, room.expected)));
  }
  const std::vector<std::string> nodes(room.nodes.begin(), room.nodes.end());
  return fmt::format("{} node(s) are kept for it until it starts, {}: {}", nodes.size(), when,
                     kube::FirstFew(nodes, kShown));
}

std::string Reservation::ToStringForOthers() const {
  return fmt::format("{} node(s) are kept for {}, which comes first", room.nodes.size(),
                     holder.name);
}

bool Reservations::MayMatter(const NodeInfo& info) const {
  if (!FreeDevices::AllTaken(info)) return true;
  const Reservation* one = KeepsOn(info.name());
  return one != nullptr && one->room.idle_gpus > 0;
}

// --- a pass ---

absl::Time Reservations::MaySeekFrom(absl::Time now, size_t nodes, bool at_every_change) const {
  if (!freed_) return absl::InfiniteFuture();
  if (at_every_change) return now;
  return std::max(now,
                  sought_ + std::max(kSeekInterval, static_cast<int64_t>(nodes) * kSeekPerNode));
}

void Reservations::Book() {
  for (const Reservation& one : all_) {
    if (!one.in_force || booked_ == absl::InfinitePast()) continue;
    const double idle =
        static_cast<double>(one.room.idle_gpus) * absl::ToDoubleSeconds(now_ - booked_);
    accounts_[one.holder.id].idle += idle;
    idle_ += idle;
  }
  booked_ = now_;
}

bool Reservations::IsUsedUp(const Account& account) const {
  return account.idle >= bounds_.idle || now_ - account.since >= bounds_.time;
}

void Reservations::BeginPass(size_t nodes, bool at_every_change, absl::Time now) {
  in_pass_ = true;
  now_ = now;
  Book();
  before_ = std::exchange(all_, {});
  pools_.clear();
  asked_pools_.clear();
  no_set_.clear();
  sets_left_ = at_every_change ? std::numeric_limits<size_t>::max() : kMostSets;
  seeks_ = now >= MaySeekFrom(now, nodes, at_every_change);
  if (!seeks_) return;
  freed_ = false;
  sought_ = now;
}

void Reservations::Consider(Reservation reservation, size_t alike, int64_t required,
                            const Find& find) {
  const auto known = no_set_.find(alike);
  if (known != no_set_.end() && required >= known->second) return;
  const Reservation* before = FindOf(before_, reservation.holder.id);
  const bool holds = before != nullptr && before->asked == reservation.asked &&
                     before->room.free_by != absl::InfinitePast() &&
                     std::ranges::none_of(before->room.pools, [&](const std::string& pool) {
                       return IsTaken(pool, reservation.entitled);
                     });
  if (holds && (!seeks_ || sets_left_ == 0)) {
    reservation.room = before->room;
  } else {
    if (sets_left_ == 0) return;
    --sets_left_;
    std::optional<SoonestRoom> room = find();
    if (!room) {
      if (reservation.entitled) no_set_[alike] = required;
      return;
    }
    reservation.room = *std::move(room);
  }
  Keep(std::move(reservation));
}

void Reservations::Keep(Reservation reservation) {
  Account& account = accounts_[reservation.holder.id];
  const bool paused = account.paused_until != absl::InfinitePast();
  if (paused && now_ >= account.paused_until) account = {};
  if (reservation.in_force && account.since == absl::InfinitePast()) account.since = now_;
  if (account.since != absl::InfinitePast() && account.paused_until == absl::InfinitePast() &&
      IsUsedUp(account)) {
    const bool periodic = bounds_.period != absl::InfiniteDuration();
    account.paused_until =
        std::max(now_ + absl::Seconds(1),
                 periodic ? account.since + bounds_.period : now_ + (now_ - account.since));
  }
  reservation.in_force &= now_ >= account.paused_until;
  reservation.since = account.since;
  (reservation.entitled ? pools_ : asked_pools_)
      .insert(reservation.room.pools.begin(), reservation.room.pools.end());
  all_.push_back(std::move(reservation));
}

Reservations::Changes Reservations::EndPass() {
  std::ranges::sort(all_, {}, &Reservation::holder);
  Changes changes;
  for (const Reservation& one : before_) {
    const Reservation* now = FindOf(all_, one.holder.id);
    if (now != nullptr && *now == one) continue;
    changes.holders.insert(one.holder.id);
    if (now == nullptr) accounts_.erase(one.holder.id);
    if (!one.in_force) continue;
    for (const std::string& node : one.room.nodes) {
      const bool kept = now != nullptr && now->in_force && now->room.nodes.contains(node) &&
                        now->holder == one.holder && now->room.free_by <= one.room.free_by;
      if (!kept) changes.freed.insert(node);
    }
  }
  for (const Reservation& one : all_) {
    if (FindOf(before_, one.holder.id) == nullptr) changes.holders.insert(one.holder.id);
  }
  before_.clear();
  in_pass_ = false;
  return changes;
}

absl::Time Reservations::NextChange() const {
  absl::Time next = absl::InfiniteFuture();
  for (const Reservation& one : all_) {
    const Account& account = accounts_.at(one.holder.id);
    if (now_ < account.paused_until) {
      next = std::min(next, account.paused_until);
    } else if (one.in_force) {
      next = std::min(next, account.since + bounds_.time);
      if (one.room.idle_gpus == 0) continue;
      const double left = (bounds_.idle - account.idle) / static_cast<double>(one.room.idle_gpus);
      next = std::min(next, booked_ + std::max(absl::Milliseconds(1), absl::Seconds(left)));
    }
  }
  return next;
}

// --- questions ---

const Reservation* Reservations::Of(uint64_t holder) const {
  const Reservation* one = FindOf(all_, holder);
  return one == nullptr || !one->in_force ? nullptr : one;
}

std::vector<const Reservation*> Reservations::Keeping(const PlaceInLine& place,
                                                      absl::Time gone) const {
  std::vector<const Reservation*> keeping;
  for (const Reservation& one : all_) {
    if (one.in_force && one.holder < place && !one.IsBefore(gone)) keeping.push_back(&one);
  }
  return keeping;
}

bool Reservations::IsKept(std::string_view node, const PlaceInLine& place, absl::Time gone) const {
  return std::ranges::any_of(all_, [&](const Reservation& one) {
    return one.in_force && one.holder < place && !one.IsBefore(gone) &&
           one.room.nodes.contains(node);
  });
}

const Reservation* Reservations::KeepsOn(std::string_view node) const {
  const auto it = std::ranges::find_if(
      all_, [&](const Reservation& one) { return one.in_force && one.room.nodes.contains(node); });
  return it == all_.end() ? nullptr : &*it;
}

double Reservations::idle_gpu_seconds(absl::Time now) const {
  double idle = idle_;
  for (const Reservation& one : all_) {
    if (one.in_force) {
      idle += static_cast<double>(one.room.idle_gpus) * absl::ToDoubleSeconds(now - booked_);
    }
  }
  return idle;
}

}  // namespace muster::cluster
