// The kinds of difference that README.md of quota/ lists, told from each other in single decisions
// (cases) and in whole histories.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace muster::quota::testing {

// Asks the oracle.
using Ask = std::function<nlohmann::json(const nlohmann::json& question)>;

// The case with this pending workload alone.
nlohmann::json Alone(nlohmann::json quota_case, size_t pending);
// Why Kueue decides otherwise than we do about the only pending workload of a case; empty if that
// is of no listed kind.
std::string_view WhyDecidedOtherwise(const nlohmann::json& alone, const nlohmann::json& theirs,
                                     const Ask& ask);

// Where a history goes two ways for the first time.
struct Fork {
  nlohmann::json history;          // its last event is the one after which it does
  nlohmann::json before;           // states by id, before that event
  nlohmann::json ours;             // ... and after it
  nlohmann::json theirs;           // ... by Kueue; null where it got no further
  std::set<std::string> circled;   // "circling" of tests/kueue/README.md, before that event
  std::set<std::string> circling;  // ... and after it
};

// After this event, by the courses of the whole history.
Fork ForkAfter(const nlohmann::json& history, int64_t event, const nlohmann::json& ours,
               const nlohmann::json& theirs);

// What differs between two states.
nlohmann::json Changes(const nlohmann::json& ours, const nlohmann::json& theirs);

nlohmann::json Until(nlohmann::json history, int64_t event);
// The event writes an object again with what it said before, or ends or deactivates somebody who
// only waited.
bool FreesNothing(const nlohmann::json& history, int64_t event);
// Why Kueue tries nobody again after this event, or not whom it brings; empty if that is of no
// listed kind.
std::string_view WhyAsleep(const nlohmann::json& history, int64_t event);
// The event has everybody who waits tried again.
nlohmann::json Woken(nlohmann::json history, int64_t event);

// Why Kueue goes another way; empty if that is of no listed kind. `goes_alike` says whether a
// history goes as by Kueue up to its end.
std::string_view KnownDifference(const Fork& fork,
                                 const std::function<bool(const nlohmann::json&)>& goes_alike);

}  // namespace muster::quota::testing
