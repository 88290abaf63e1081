// Explains a job while it runs: the output of a node's processes as it comes, how each of them
// ended, and what is known by other means.
//
//   LiveDiagnosis diagnosis("train-3");
//   diagnosis.Read({.rank = 24}, absl::Now(), line);
//   diagnosis.Observe({.cause = CauseId::kHostOutOfMemory, .rank = 24}, absl::Now());
//   diagnosis.Ended(24, {.signal = SIGKILL}, absl::Now());
//   const std::optional<Failure> failure = diagnosis.Verdict();
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "worker/diagnose/failure.h"
#include "worker/diagnose/line_splitter.h"
#include "worker/diagnose/log_reader.h"
#include "worker/diagnose/ranking.h"

namespace muster::worker {

// Not safe for use by several threads at once. Bounded: LogReader::kMaxObservations for each
// output, and what comes from more than kMaxOutputs of them is not read.
class LiveDiagnosis {
 public:
  static constexpr size_t kMaxOutputs = 256;

  // What a line was written to. Each is read for itself, so that tracebacks of two processes, or
  // what one prints and the error that it writes, don't run into each other.
  struct Output {
    // Of the process; none for a launcher such as torchrun, whose lines say by themselves whose
    // they are.
    std::optional<int> rank = {};
    bool is_error = true;  // stderr

    auto operator<=>(const Output&) const = default;
  };

  struct End {
    int exit_code = 0;
    int signal = 0;  // not 0: the exit code means nothing
  };

  // `host` is this node's or pod's name, for the failures of its processes.
  explicit LiveDiagnosis(std::string host);

  // Takes a line, without its end, at the time it came; of a long one LineSplitter::kMaxLine bytes
  // count. Bytes may be anything.
  void Read(const Output& output, absl::Time time, std::string_view line);

  // A process ended; the one that ended first is to be told first. An end explains only what the
  // process itself doesn't, and is told with its last line; but what others saw of the first yields
  // to it. A process that ended with 0, or that the caller stopped, need not be told.
  void Ended(std::optional<int> rank, End end, absl::Time time);

  // What the caller knows by other means: the cgroup's count of kills, a rank that makes no
  // progress. It counts like a line that says so.
  void Observe(const Failure& failure, absl::Time time);

  // What failed first as of now, or nothing if nothing did; warnings aren't failures. May be asked
  // at any time, and again.
  std::optional<Failure> Verdict() const;

  // All of it, as `muster-worker diagnose` prints it.
  Explanation Explain() const;

 private:
  struct OutputSoFar {
    LogReader reader;
    LineSplitter lines = {};
    std::string last = {};  // that isn't blank; its beginning
  };

  std::string_view LastLine(std::optional<int> rank) const;
  void Know(Observation observation);

  std::string host_;
  std::map<Output, OutputSoFar> outputs_;
  LogFacts known_;  // by Ended and Observe
};

}  // namespace muster::worker
