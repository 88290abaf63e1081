// One log, read line by line: what it shows, and what it tells of the ranks that wrote it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/diagnose/cause.h"
#include "worker/diagnose/log_line.h"
#include "worker/diagnose/patterns.h"

namespace muster::worker {

// A cause that lines of a log show. Lines of one rank that show the same are one observation.
struct Observation {
  CauseId cause = CauseId::kCount;
  std::string detail = {};  // the numbers, half a sentence; may be empty
  std::string remedy = {};  // a sentence to add to the cause's fix; may be empty
  int64_t line = 0;         // the first such line
  std::string text = {};    // of that line, printable
  int64_t count = 1;
  std::optional<int> rank = {};
  std::string host = {};  // or pod
  std::optional<LineTime> time = {};
  bool time_is_near = false;  // the line has none; this is that of the nearest line that has
  bool is_event = false;      // of Kubernetes; these have an age and no time
  bool is_result = false;     // LineKind::kResult
  // Of a request that the EFA provider failed; 0 otherwise.
  int efa_error = 0;
  std::string peer_address = {};
};

// How far a rank had come with the collectives of a process group when PyTorch's watchdog spoke.
struct CollectiveProgress {
  std::string group = {};
  int rank = 0;
  int64_t enqueued = 0;
  int64_t completed = 0;
};

struct LogFacts {
  std::string file;
  std::vector<Observation> observations;  // by line
  std::vector<CollectiveProgress> progress;
  std::set<std::string> addresses;  // the EFA addresses of those who wrote this log
  int64_t left_out = 0;             // observations beyond LogReader::kMaxObservations
};

class LogReader {
 public:
  // Bounds what is kept of a log of any size.
  static constexpr size_t kMaxObservations = 256;

  explicit LogReader(std::string file);

  // Takes the next line; `number` counts from 1.
  void Read(int64_t number, std::string_view line);

  // What the log shows; the reader is of no use after that.
  LogFacts Finish();

 private:
  void ReadTime(std::string_view line);
  void ReadSection(std::string_view line);
  bool ReadSummary(std::string_view line);
  void ReadWriter(std::string_view line);
  void ReadProgress(std::string_view line);
  void ReadRecovery(std::string_view line);
  std::optional<Observation> Observe(std::string_view line) const;
  void Add(Observation observation);
  void FillTimes(const LineTime& time);
  void FillWriters();
  void DropResults();

  LogFacts facts_;
  std::string section_;  // the object that kubectl describes
  size_t section_start_ = 0;
  std::vector<const Recovery*> recovered_;  // anywhere in this section
  std::map<std::string, int> ranks_of_processes_;
  std::set<int> ranks_;
  std::set<std::string> hosts_;
  std::optional<int> rank_;  // of the line that is being read
  std::string host_;
  bool in_summary_ = false;  // torchrun's, of who failed
  std::optional<LineTime> last_time_;
  size_t untimed_ = 0;  // observations from here on wait for the next time
};

}  // namespace muster::worker
