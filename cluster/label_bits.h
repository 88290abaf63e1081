// Labels and selectors as bit sets that can be held against each other without reading a string:
// the first look at tens of thousands of pods of which a selector selects few.
#pragma once

#include <cstdint>

#include "kube/objects/meta.h"

namespace muster::cluster {

// Which labels there are, by key and by key and value, hashed. Different labels may share a bit.
// Comparable within one process only.
uint64_t LabelBits(const kube::StringMap& labels);

// The bits that labels have if the selector matches them. So where one of these is missing from
// LabelBits the selector doesn't match; otherwise it may.
uint64_t NeededBits(const kube::LabelSelector& selector);

}  // namespace muster::cluster
