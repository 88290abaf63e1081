#include "worker/training/unit_slots.h"

namespace muster::worker {

int UnitSlots::SlotOf(int unit) const {
  if (unit == 0) {
    return turns_;
  }
  return unit == units_ - 1 ? turns_ + 1 : unit % turns_;
}

std::optional<int> UnitSlots::Next(int unit) {
  const int last = units_ - 1;
  if (unit == last) {
    backward_ = true;
  } else if (unit == 0) {
    backward_ = backward_ && tied_ && last_used_ == last;
  }
  last_used_ = unit;
  const int next = !backward_ ? unit + 1 : unit == 0 ? last - 1 : unit - 1;
  // The backward ends at the first block: it needs no weights of the embeddings.
  const bool ends = backward_ && next == 0;
  return ends || Holds(next) ? std::nullopt : std::optional<int>(next);
}

}  // namespace muster::worker
