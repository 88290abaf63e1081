// In which order a pass handles the heads of queues (Kueue v0.19.2, pkg/scheduler/scheduler.go and
// fair_sharing_iterator.go).
#pragma once

#include <vector>

#include "quota/ledger.h"
#include "quota/waiting_line.h"

namespace muster::quota {

// Who borrows from the nearest subtree first (or not at all), then by rank.
void SortClassically(std::vector<Entry*>& entries);

// Takes out the one to be handled next: at every cohort the child wins whose share would be the
// smallest with what its own winner asks for; equal shares go by rank. To be asked again after
// each, because what was given changes the shares.
Entry* TakeFairest(Ledger& ledger, int root, std::vector<Entry*>& entries);

}  // namespace muster::quota
