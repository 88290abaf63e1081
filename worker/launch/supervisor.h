// Starts the ranks of one pod and stands above them until all have ended; fit to be process 1.
//
//  - Their lines come out whole and prefixed with the rank; what they print last without a line's
//    end is not lost.
//  - SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 go on to every rank.
//  - A rank that exits with 143 or 130 was stopped in order, and leaves the others their time.
//  - The first rank that fails ends the others: SIGTERM, and SIGKILL `grace` later. Only that first
//    failure is reported; what follows from it isn't.
//  - Processes that ranks leave behind are inherited, reaped, and killed when all ranks have ended.
//    If the supervisor dies, the ranks are killed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/launch/environment.h"

namespace muster::worker {

struct RankProcess {
  int rank = 0;
  std::vector<std::string> command;  // the program, looked up in PATH, and its arguments
  Environment environment;           // on top of this process's own
};

struct StartedRank {
  int rank = 0;
  pid_t pid = 0;
};

// What somebody who looks at the ranks from time to time wants next.
struct NextLook {
  enum class Verdict : uint8_t {
    kGoOn,
    kHold,  // what ends from now on ends because of the looks: no failure
    kEnd,   // likewise, and all that still run are ended
  };
  Verdict verdict = Verdict::kGoOn;
  absl::Duration after = absl::Seconds(1);
};

struct SupervisorOptions {
  absl::Duration grace = absl::Seconds(30);
  // Whether lines of standard output, and of standard error, begin with the rank.
  bool prefix_output = true;
  bool prefix_errors = true;
  // Where whole lines go, with their end; default: this process's own standard output and error.
  std::function<void(absl::string_view line, bool is_error)> write_line = nullptr;
  // Told of each line besides, without prefix and end.
  std::function<void(int rank, absl::string_view line, bool is_error)> on_line = nullptr;
  // Told of a SIGTERM or SIGINT that came before any failure, once. The time that is left then
  // isn't this program's to choose.
  std::function<void()> on_stop = nullptr;
  // Called between lines, first when all have been started, with those that still run.
  std::function<NextLook(absl::Span<const StartedRank> running)> look = nullptr;
};

struct RankFailure {
  int rank = 0;
  int exit_code = 0;                     // 128 + the signal that ended it
  std::string how;                       // "exited with code 1", "was killed by signal 9 (Killed)"
  int signal = 0;                        // that ended it; 0 if none did
  absl::Time at = absl::InfinitePast();  // when it was seen
};

struct SupervisorResult {
  // 0 if all ranks ended well; that of the first failure; or 143 (130) if SIGTERM (SIGINT) came
  // before any failure, or ranks were stopped in order.
  int exit_code = 0;
  std::optional<RankFailure> first_failure = {};
  bool ended_by_look = false;  // then neither of the above says anything
  bool stopped = false;        // SIGTERM or SIGINT came before any failure
};

// Blocks until every rank has ended. InvalidArgument if one can't be started; the others have ended
// then too. Call it from a process's only thread: it blocks the signals above and SIGCHLD while it
// runs, and reaps every child of the process.
absl::StatusOr<SupervisorResult> Supervise(const std::vector<RankProcess>& processes,
                                           const SupervisorOptions& options);

}  // namespace muster::worker
