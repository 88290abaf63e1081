// Nodes that are being kept for those who are first in line and don't fit.
//
// Of each pool of like nodes there is at most one reservation: the set of nodes that frees soonest
// (soonest_room.h) for the first of those who wait for nodes of it. Who stands further down may use
// a node of it only if he is certain to be gone before the whole set is free, by what ends him
// whether he likes it or not.
//
// The set is chosen anew when something has freed, never for a later one: what was free in it still
// is, and nobody without such an end has come to the rest. Where it isn't known when the rest frees
// each node that does takes the place of one that doesn't, so the first in line starts as soon as
// anything of his size is free.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "cluster/soonest_room.h"

namespace muster::cluster {

// A place among those who wait, first claim first.
struct PlaceInLine {
  // Of one priority: what stands of it is of no use without the rest; nothing of it stands; it does
  // without what it waits for.
  enum class Need : uint8_t { kRest, kAll, kSurplus };

  int64_t less_important = 0;  // -priority
  Need need = Need::kAll;
  int64_t created = 0;  // nanoseconds
  std::string name;
  uint64_t id = 0;
  auto operator<=>(const PlaceInLine&) const = default;
};

struct Reservation {
  PlaceInLine holder;
  size_t asked = 0;  // digest of what the set was sought for
  SoonestRoom room;
  absl::Time since = absl::InfinitePast();  // it is in force, or was last
  // Its holder may have it. One who may not as yet keeps nobody off, nor from having one himself.
  bool entitled = true;
  // Others are kept off it. Not while it pauses.
  bool in_force = false;

  // Who is gone by then is gone before the whole set is free.
  bool IsBefore(absl::Time gone) const {
    return gone <= room.free_by && room.free_by != absl::InfiniteFuture();
  }
  // What its holder is told, "2 node(s) are kept for it until it starts, ...", and others.
  std::string ToString() const;
  std::string ToStringForOthers() const;
  bool operator==(const Reservation&) const = default;
};

class Reservations {
 public:
  // How many GPU-seconds one may keep idle; then it pauses for as long as it stood. And how long it
  // may stand within each period.
  struct Bounds {
    double idle = std::numeric_limits<double>::infinity();
    absl::Duration time = absl::InfiniteDuration();
    absl::Duration period = absl::InfiniteDuration();
  };
  explicit Reservations(const Bounds& bounds) : bounds_(bounds) {}

  // What is free has changed, so that sets are to be sought anew.
  void NoteFreed() { freed_ = true; }
  // Whether what changed on a node that is there might give anybody another set: it has something
  // free that is worth waiting for, or had and is in one.
  bool MayMatter(const NodeInfo& info) const;
  // When they may be: at once, or where looking at so many nodes at every change would be too much
  // after a while. InfiniteFuture if nothing has changed.
  absl::Time MaySeekFrom(absl::Time now, size_t nodes, bool at_every_change) const;

  // --- a pass over those who wait, first claim first ---
  void BeginPass(size_t nodes, bool at_every_change, absl::Time now);
  bool in_pass() const { return in_pass_; }
  // By somebody whose reservation comes before one of whoever asks next, be he entitled or not.
  bool IsTaken(std::string_view pool, bool entitled) const {
    return pools_.contains(pool) || (!entitled && asked_pools_.contains(pool));
  }
  bool AllTaken(const FreeingNodes& nodes) const {
    return std::ranges::all_of(nodes.pools(), [this](const auto& one) {
      return one.second.usable == 0 || IsTaken(one.first, true);
    });
  }
  // It is the turn of its holder, who needs room for so many; `since`, and whether it pauses, are
  // filled in here. `find` seeks a set among the pools that aren't taken from him. Who has
  // the same digest `alike` and needs no less finds none where he finds none.
  using Find = std::function<std::optional<SoonestRoom>()>;
  void Consider(Reservation reservation, size_t alike, int64_t required, const Find& find);
  // What the pass changed: nodes that others may use now, and holders whose reservation isn't what
  // it was.
  struct Changes {
    std::set<std::string, std::less<>> freed;
    std::set<uint64_t> holders;
  };
  Changes EndPass();
  // When a bound is reached or a pause is over.
  absl::Time NextChange() const;

  // --- questions ---
  // Null if there is none, or it isn't in force.
  const Reservation* Of(uint64_t holder) const;
  // Those in force that keep who has this place, and is certain to be gone by `gone`, off their
  // nodes; or off this one.
  std::vector<const Reservation*> Keeping(const PlaceInLine& place, absl::Time gone) const;
  bool IsKept(std::string_view node, const PlaceInLine& place, absl::Time gone) const;
  // In force, the first in line of several; null if there is none.
  const Reservation* KeepsOn(std::string_view node) const;
  // In the order of their holders, once a pass is over.
  const std::vector<Reservation>& all() const { return all_; }
  size_t in_force() const {
    return static_cast<size_t>(std::ranges::count(all_, true, &Reservation::in_force));
  }
  double idle_gpu_seconds(absl::Time now) const;

 private:
  // What one has cost since it began, or began anew after a pause.
  struct Account {
    absl::Time since = absl::InfinitePast();
    absl::Time paused_until = absl::InfinitePast();
    double idle = 0;  // GPU-seconds until `booked_`
  };
  void Book();
  void Keep(Reservation reservation);
  bool IsUsedUp(const Account& account) const;

  const Bounds bounds_;
  std::vector<Reservation> all_;
  bool freed_ = true;
  absl::Time sought_ = absl::InfinitePast();
  absl::Time now_ = absl::InfinitePast();  // of the pass, or the last one
  // --- of the pass ---
  bool in_pass_ = false;
  bool seeks_ = false;
  size_t sets_left_ = 0;             // to seek
  std::vector<Reservation> before_;  // it
  std::map<size_t, int64_t> no_set_;
  std::set<std::string, std::less<>> pools_;        // of those who are entitled
  std::set<std::string, std::less<>> asked_pools_;  // of the others
  absl::flat_hash_map<uint64_t, Account> accounts_;
  absl::Time booked_ = absl::InfinitePast();
  double idle_ = 0;
};

}  // namespace muster::cluster
