// What the output of running programs says, line by line as it comes: the one place where launch
// meets diagnose.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/diagnose/failure.h"
#include "worker/diagnose/log_reader.h"

namespace muster::worker {

class OutputDiagnosis {
 public:
  // `streams_are_ranks`: each stream is one rank's, and says so where its lines don't; if not, it
  // is a launcher's with all its ranks in it.
  explicit OutputDiagnosis(bool streams_are_ranks) : streams_are_ranks_(streams_are_ranks) {}

  // In bounded memory, whatever comes. Standard output and error are read apart, so that a progress
  // bar doesn't run into a traceback.
  void Read(int stream, bool is_error, std::string_view line);

  // What explains best that `first` ended before all others: what its own output says went wrong by
  // itself; or what another's says so; or what it saw of others. Nothing if no line says why. To be
  // asked once, at the end.
  std::optional<Failure> Explain(int first);

  // The last line of standard error that isn't blank, shortened; of standard output if there is
  // none.
  std::string LastLine(int stream) const;

 private:
  struct Stream {
    LogReader reader;
    int64_t lines = 0;
    std::string last = {};
  };

  std::optional<Failure> FirstOf(std::vector<LogFacts> logs) const;

  const bool streams_are_ranks_;
  std::map<std::pair<int, bool>, Stream> streams_;  // by number and is_error
};

}  // namespace muster::worker
