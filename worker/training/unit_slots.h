// Which units of a model (worker/model/parameter_layout.h) are in memory when each rank keeps only
// a chunk of them, and which to fetch next.
//
// The first unit, the embeddings, and the last one, the final norm and perhaps the head, have slots
// of their own. The blocks between them take turns in `turns` slots, so that with two of them one
// block is fetched while the one before it in time is computed. No I/O: whoever uses this fetches.
#pragma once

#include <optional>
#include <vector>

namespace muster::worker {

class UnitSlots {
 public:
  // At least two units and one turn. With a `tied` head the first unit is used again right after
  // the last one.
  UnitSlots(int units, int turns, bool tied)
      : units_(units), turns_(turns), tied_(tied), held_(turns + 2, kNone) {}

  int slots() const { return static_cast<int>(held_.size()); }
  int SlotOf(int unit) const;

  bool Holds(int unit) const { return held_[SlotOf(unit)] == unit; }
  // `unit` is there now, and whatever was in its slot is not.
  void Put(int unit) { held_[SlotOf(unit)] = unit; }
  void Clear() { held_.assign(held_.size(), kNone); }

  // What to fetch while `unit` is used: the next in the direction of the pass, which turns around
  // at the last unit; nothing if that is there, or the pass ends. Called in the order of use.
  std::optional<int> Next(int unit);

 private:
  static constexpr int kNone = -1;

  int units_;
  int turns_;
  bool tied_;
  std::vector<int> held_;
  int last_used_ = kNone;
  bool backward_ = false;
};

}  // namespace muster::worker
