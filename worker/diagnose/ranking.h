// Which of all that several logs show came first, and what only followed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/diagnose/log_reader.h"

namespace muster::worker {

enum class Relation : uint8_t {
  kFirst,        // what went wrong first
  kAlso,         // went wrong by itself, later or at an unknown time
  kConsequence,  // what other ranks saw of it
  kWarning,      // ended nothing
};

std::string_view RelationName(Relation relation);  // "first", "also", "consequence", "warning"

struct Finding {
  std::string file = {};
  Observation observation = {};
  Relation relation = Relation::kAlso;
  // Of observation.time, with the year that the logs say; no value if the line's time is unknown.
  std::optional<absl::Time> time = {};
  bool has_year = false;
};

// What an answer holds: findings, what went wrong first at the front, then by time, warnings last.
struct Explanation {
  std::vector<Finding> findings;
  int64_t left_out = 0;  // more of the kind, beyond the bounds
};

// Puts the logs together. What failed first is the earliest, but what a rank saw of others yields
// to a cause in itself that is told within seconds of it (clocks differ, and lines without a time
// take their neighbour's), or at a time that isn't known. How something ended, and warnings of what
// is tried again, yield to whatever says why; but what other ranks saw yields to the end that a
// launcher saw first, if that rank says nothing. A peer's own log says whether it was alive when an
// EFA request to it failed. Where watchdogs on several ranks spoke, the rank that had come less far
// than the others is the one that failed.
Explanation Rank(std::vector<LogFacts> logs);

}  // namespace muster::worker
