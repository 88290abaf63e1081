// One log, read line by line: what it shows, and what it tells of the ranks that wrote it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/diagnose/line_head.h"
#include "worker/diagnose/line_prefix.h"
#include "worker/diagnose/log_time.h"
#include "worker/diagnose/observation.h"
#include "worker/diagnose/rank_directory.h"
#include "worker/diagnose/stragglers.h"
#include "worker/diagnose/traceback.h"

namespace muster::worker {

// What a process said of its NCCL as it began.
struct NcclVersionLine {
  std::string version;
  std::string process;  // HOST:PID
  int64_t line = 0;
  std::string text = {};
};

struct LogFacts {
  std::string file;
  std::vector<Observation> observations;  // by line
  CollectiveProgress progress;
  std::vector<NcclVersionLine> nccl_versions;  // the first of each; none once training went on
  std::set<std::string> addresses;             // the EFA addresses of those who wrote this log
  int64_t parts = 1;                           // as in Observation::part
  int64_t left_out = 0;                        // observations beyond LogReader::kMaxObservations
};

class LogReader {
 public:
  // Bounds what is kept of a log of any size.
  static constexpr size_t kMaxObservations = 256;
  // In which a program says that it goes on after an error, that of the error included.
  static constexpr int64_t kLinesOfRecovery = 4;
  // After an error, which show that it ended nothing.
  static constexpr int64_t kStepsOfSurvivors = 5;

  explicit LogReader(std::string file);

  // Takes the next line; `number` counts from 1. `came` is when it was written, where that is known
  // by other means than the line itself.
  void Read(int64_t number, std::string_view line, std::optional<absl::Time> came = std::nullopt);

  // What the log shows so far.
  LogFacts Facts() const;

 private:
  struct Line;  // the one that is being read

  // One that waits until it is known what all lines begin with.
  struct Pending {
    int64_t number = 0;
    std::string text = {};
  };

  // One whose lines begin alike.
  struct Process {
    TracebackReader reader = {};
    std::optional<int> rank = {};
    bool rank_is_index = false;
    std::string host = {};
    std::optional<LineTime> time_after = {};  // the exception that is being read
    std::optional<LineTime> time_before = {};
    std::optional<LineTime> last_time = {};
    int64_t steps_before = 0;  // the same
    bool is_quiet = false;     // it is told in a warning, or less
    bool is_root = false;      // of the process that a launcher says failed first
  };

  // Steps in a row, up to the last one, whose loss isn't a number.
  struct LossRun {
    int64_t steps = 0;
    Observation first = {};
  };

  void ReadLine(int64_t number, std::string_view text);
  void ReadPending();
  LineHead HeadOfLine(std::string_view text);
  void Finish();
  void FinishTracebacks();
  void EndPart();
  void SettleTime(LineTime* time) const;
  void ReadTime(const Line& line);
  void ReadSection(std::string_view line);
  std::string ReadInvolved(std::string_view line);
  bool ReadSummary(const LineHead& head);
  void ReadEnd(std::string_view line);
  bool IsToldByLauncher(const Observation& seen) const;
  bool IsSaidToBeOver(const Observation& seen) const;
  void ReadCourse(const Line& line);
  void ReadLastWord(const Line& line);
  void ReadLoss(const Line& line);
  void AddLosses();
  void ReadNcclVersion(const Line& line);
  void ReadRank(Line* line);
  void DistrustIndices();
  void ReadWriter(const Line& line);
  void ReadRecovery(const Line& line);
  bool ReadTraceback(const Line& line);
  bool ReadQuotedTraceback(const Line& line);
  void AddRaised(const Raised& raised, const Process& process);
  void AddLine(const Line& line);
  int64_t ProgressOf(std::optional<int> rank) const;
  int64_t ProgressAround(const Observation& seen) const;
  void Add(Observation observation);
  void FillTimes(const LineTime& time);
  void FillEndOfContainer(const LineTime& time);
  void DropStrangers();
  void MarkSurvivors();
  void MarkWordsBeforeLast();
  void NameBusyRank();
  void FillWriters();
  std::optional<int> WriterOf(const Observation& observation) const;
  std::optional<int> RootFor(const Observation& observation) const;
  bool RootIsBeyondRanks() const;
  std::optional<int> RankHitBy(const Observation& observation) const;
  bool IsToldOfPod(const Observation& observation) const;
  const std::string& PlaceOf(const Line& line) const;
  int64_t Steps() const;
  // How many ranks write of their steps, at least 1.
  int64_t Writers() const { return std::max<int64_t>(std::ssize(progress_), 1); }
  int64_t StepsAfter(const Observation& seen) const;

  LogFacts facts_;
  LinePrefix prefix_;  // of the part that is being read
  std::vector<Pending> pending_;
  std::string section_;  // the object that kubectl describes
  // The one that an event in YAML or JSON is about, its message, and whether its name comes next.
  std::string involved_;
  std::string message_;
  bool is_involved_next_ = false;
  size_t section_start_ = 0;
  // Anywhere in this section, and of which object.
  std::vector<std::pair<const Recovery*, std::string>> recovered_;
  RankDirectory directory_;
  std::map<std::string, int64_t> families_;  // lines on objects whose names begin alike
  std::set<std::string> nodes_;              // that pods were assigned to
  std::set<int> ranks_;
  std::set<int> indices_;        // those that only a launcher's count says
  bool indices_differ_ = false;  // that count is of something else
  std::set<std::string> hosts_;
  std::set<int64_t> closed_;             // processes that their launcher told to end
  int64_t interrupt_ = 0;                // the last line in which a terminal shows Ctrl-C
  std::optional<int> rank_;              // of the line that is being read
  std::optional<LineTime> source_time_;  // the last one before it, of those that begin like it
  std::string host_;
  bool in_summary_ = false;         // torchrun's, of who failed
  bool in_root_ = false;            // of that, the part on who failed first
  bool in_told_traceback_ = false;  // that the summary repeats of a process
  std::optional<int> root_rank_;    // the one that a launcher says failed first
  std::string root_host_;           // where
  bool root_is_local_ = false;      // that is its number on its node
  // The same by where its launcher's summary stands, of which there may be one for each node: the
  // part of the text, and the host.
  std::map<std::pair<int64_t, std::string>, int> roots_;
  std::string summary_time_;             // of the process that the summary speaks of
  std::set<std::string> failure_times_;  // of the others that weren't stopped
  bool root_is_guess_ = false;           // others failed in the same second
  std::optional<LineTime> last_time_;
  std::optional<LineTime> latest_;  // of all, while launchers tell of the past in the end
  bool ended_ = false;              // the log
  int64_t last_timed_ = 0;          // the last line with a time
  std::optional<absl::Time> came_;
  size_t untimed_ = 0;                        // observations from here on wait for the next time
  std::map<std::string, Process> processes_;  // by what their lines begin with
  std::set<std::string> undated_;             // those that raised what no time came after
  std::deque<LineTime> step_times_;           // of the last ones
  std::map<int, int64_t> progress_;  // lines that tell of it, by rank; -1 where none is said
  std::map<int, int64_t> at_work_;   // the last line of a rank that tells of no failure
  int64_t restart_ = 0;              // the last line that tells that all were started anew
  int64_t restart_steps_ = 0;        // lines of progress before it
  int64_t completion_ = 0;           // the last line that tells of a good end
  int64_t steps_at_completion_ = 0;  // lines of progress before it
  std::map<int, LossRun> losses_;    // by rank; none while the loss is a number
  int64_t watched_until_ = 0;        // the last line that may say that an error was survived
  std::map<int64_t, std::optional<int>> goes_on_;  // lines that say so, and whose
  int64_t last_word_ = 0;   // the last one that says that all is done, and no step after
  bool ended_ill_ = false;  // an exit code that isn't 0
};

}  // namespace muster::worker
