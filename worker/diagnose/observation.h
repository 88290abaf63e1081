// What a line, or an exception, shows of why a job failed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "worker/diagnose/cause.h"
#include "worker/diagnose/log_time.h"
#include "worker/diagnose/patterns.h"
#include "worker/diagnose/traceback.h"

namespace muster::worker {

// A cause that lines of a log show. Lines of one rank that show the same are one observation.
struct Observation {
  CauseId cause = CauseId::kCount;
  std::string detail = {};  // the numbers, half a sentence; may be empty
  std::string remedy = {};  // a sentence to add to the cause's fix; may be empty
  int64_t line = 0;         // the first such line
  int64_t part = 0;         // of the log, of which parts stand in any order
  std::string text = {};    // of that line, printable
  int64_t count = 1;
  std::optional<int> rank = {};
  bool rank_is_index = false;  // LineHead::rank_is_index
  std::string host = {};       // or pod
  std::optional<LineTime> time = {};
  // The line has no time, or its container's end is all that is known: it was written at `time` at
  // the latest, and at `since` at the earliest, if that is known.
  bool time_is_near = false;
  std::optional<LineTime> since = {};
  bool is_event = false;   // of Kubernetes; these have an age and no time
  bool is_state = false;   // of an object as kubectl shows it: in no order with a log's lines
  bool is_listed = false;  // by kubectl, among those of other objects, which `host` names
  bool is_result = false;  // RowKind::kResult
  bool is_weak = false;    // a warning, or words that may be one: it may have been survived
  bool is_bare = false;    // an exception that no row knows, without frames: of a shell, perhaps
  bool is_quoted = false;  // Raised::is_quoted
  bool is_root = false;    // a launcher says that this end came first
  bool is_beside_root = false;  // torchrun found it at the look at which it found the first
  bool is_of_root = false;      // of the rank that its launcher says failed first
  bool is_plain = false;        // words in a line that doesn't say how bad it is
  bool is_record = false;       // words in one that says that it is an error
  bool is_passed_on = false;    // RowKind::kWraps
  bool survived = false;        // training went on after it
  int64_t xid = 0;              // the driver's number; 0 where none is said
  // Of a request that the EFA provider failed; 0 otherwise.
  int efa_error = 0;
  std::string peer_address = {};
  int64_t last_line = 0;                    // the last such line
  int64_t progress_before = 0;              // lines of progress before that
  int64_t all_before = 0;                   // the same, of all ranks
  int64_t all_before_first = 0;             // the same, before the first such line
  std::optional<int64_t> steps_after = {};  // in its part of the log, once that has ended
};

// The least time that lies between, negative if `b` is the earlier one; none where either may be.
absl::Duration Between(const Observation& a, const Observation& b);

// Whether `a` surely came first: by time, or as lines of one part of a log do. What Kubernetes
// tells of its objects stands in no order with them.
bool IsBefore(const Observation& a, const Observation& b);

// Whether `seen` is what another rank than the one that came to `end` tells of that: who loses its
// peers, or waits for them, raises or aborts; it isn't killed.
bool IsNoticedByOther(const Observation& end, const Observation& seen);

// Whether both may be of one rank: they are unless they say otherwise.
bool MayBeSameRank(const Observation& a, const Observation& b);

// Whether somebody waited in vain.
bool IsHang(CauseId cause);

// Whether only another rank's end, or its place, is told by it.
bool IsOfPeers(const Cause& cause);

// What a text shows, without who, where and when.
std::optional<Observation> ShownBy(std::string_view text, TextKind kind,
                                   Doing doing = Doing::kUnsaid);

// What an exception shows: the last of its chain, or else the earliest that says why. What is
// raised while a signal is handled came of it.
std::optional<Observation> ShownBy(const Raised& raised);

}  // namespace muster::worker
