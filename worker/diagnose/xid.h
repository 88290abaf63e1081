// The errors that NVIDIA's driver writes into the kernel log ("NVRM: Xid (PCI:0000:53:00): 79,
// ...").
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "worker/diagnose/cause.h"

namespace muster::worker {

struct Xid {
  int64_t number = 0;
  std::string_view meaning;
  CauseId cause = CauseId::kCount;
};

// Those of causes.txt, by the resolution buckets of NVIDIA's Xid catalog: those whose remedy is a
// reset or another machine are the GPU's; those whose remedy is in the program are the program's.
// Others tell of what was put right, or only follow (45, 63).
std::span<const Xid> Xids();

// The first of Xids() that `line` names, or null.
const Xid* FindXid(std::string_view line);

}  // namespace muster::worker
