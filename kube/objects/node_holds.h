// What stands on a Node of who keeps it from being removed by Karpenter, and until when.
//
// Two annotations, always written together by compare-and-swap: muster.dev/holds, a JSON object of
// gang UID to RFC 3339 time, and karpenter.sh/do-not-disrupt: "true" while it has entries. A
// do-not-disrupt that was there before the first hold is left alone, then and for ever:
// muster.dev/hold-added marks the one that is ours to remove.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "kube/objects/string_map.h"

namespace muster::kube {

inline constexpr std::string_view kHoldsAnnotation = "muster.dev/holds";
inline constexpr std::string_view kHoldAddedAnnotation = "muster.dev/hold-added";

// Gang UID -> until.
using Holds = std::map<std::string, absl::Time>;

// The holds a node carries; entries that can't be read are left out (and so removed by the next
// write).
Holds ReadHolds(const StringMap& annotations);

// True if the node says anything of holds, readable or not.
bool HasHoldMarks(const StringMap& annotations);

// The annotations to set (or, with nullopt, remove) so that the node carries exactly `want`; empty
// if it does already.
std::map<std::string, std::optional<std::string>> ChangeHolds(const StringMap& annotations,
                                                              const Holds& want);

}  // namespace muster::kube
