// Reads causes.txt, whose head says what its lines mean.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/diagnose/cause.h"

namespace muster::worker {

// What a row of a cause says of a line.
enum class RowKind : uint8_t {
  kShows,
  kRaised,
  kWraps,
  kData,
  kCheckpoint,
  kSharing,
  kWarned,
  kInfo,
  kEvent,
  kResult,
  kXid,
  kUntil,
  kDespite
};

struct CauseRow {
  CauseId cause = CauseId::kCount;
  RowKind kind = RowKind::kShows;
  std::string_view text;  // what follows the key; never empty
  int line = 0;           // of the table
};

struct CauseTable {
  std::vector<Cause> causes;
  std::vector<CauseRow> rows;
};

// The views of the result are into `text`. An error names the line and what is wrong with it.
absl::StatusOr<CauseTable> ParseCauses(std::string_view text);

// causes.txt as it was built in.
std::string_view CausesText();

// The same, read; once, when it is first asked for.
const CauseTable& BuiltInCauses();

}  // namespace muster::worker
