// Looks at the ranks of a pod while they run: whether they are the ranks that were meant, and
// whether they still get anywhere. Works for processes that this program has started as ranks and
// for those that a launcher below it (torchrun) has.
//
// When nobody has done anything for longer than this job's pace allows (pace.h), it asks in turn:
// the kernel, NCCL's RAS, NVML, and at last each rank itself, by a signal (SIGABRT) that ends it
// and makes a Python say where it was. Then the pod's other processes are to be ended.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "worker/launch/environment.h"
#include "worker/launch/pace.h"
#include "worker/launch/processes.h"
#include "worker/launch/python_stack.h"
#include "worker/launch/standstill.h"
#include "worker/launch/supervisor.h"

namespace muster::worker {

struct WatchOptions {
  // Whether the processes that are started are ranks; if not, they start them.
  bool starts_ranks = true;
  int world_size = 1;
  // Ranks that wait for a GPU spin: what their main process computes says nothing then.
  bool uses_gpus = false;
  PaceOptions pace = {};
  bool end_standstill = true;  // or only tell it, once for each
  Endpoint ras = {};
  // Asked of whoever knows how far ranks have come: PyTorch's flight recorders. May be null.
  std::function<Standstill()> recorded = nullptr;
  // By GPU, per cent; empty where it isn't known. May be null.
  std::function<std::vector<int>()> gpu_use = nullptr;
  std::function<void(const std::string&)> say = nullptr;
};

class RankWatch {
 public:
  explicit RankWatch(WatchOptions options);

  // For SupervisorOptions.
  NextLook Look(absl::Span<const StartedRank> running);
  void Read(int rank, absl::string_view line);

  // Why it ended the job, if it did; asked when all have ended, because the last lines count.
  std::optional<Standstill> standstill() const;
  // A rank that was given another number of ranks, by what its command line says.
  const std::optional<Standstill>& mismatch() const { return mismatch_; }

 private:
  struct Process {
    ProcessSample sample;
    int rank = 0;
  };

  void FindRanks(absl::Span<const StartedRank> running);
  std::optional<int> RankOf(const ProcessSample& process);
  void CompareWorldSize(pid_t pid, int rank);
  std::set<int> Sample(absl::Duration passed);
  bool Worked(const ProcessSample& before, const ProcessSample& now, bool is_main,
              absl::Duration passed) const;
  std::map<int, pid_t> MainProcesses() const;
  NextLook BeginQuestions(absl::Span<const StartedRank> running);
  NextLook AskNext();
  std::optional<int> RankOfPid(int64_t pid) const;

  const WatchOptions options_;
  Pace pace_;
  absl::Duration last_look_ = absl::ZeroDuration();
  int looks_ = 0;
  std::map<pid_t, Process> processes_;  // all that belong to ranks
  bool told_ = false;                   // of this standstill
  std::vector<RankPicture> pictures_;   // once all stand still
  Standstill told_by_libraries_;        // NCCL's RAS, PyTorch's flight recorders
  std::vector<pid_t> answering_;        // who was asked last
  absl::Duration asked_at_ = absl::ZeroDuration();
  size_t asked_ = 0;  // of pictures_
  std::map<int, PythonStack> stacks_;
  std::optional<Standstill> mismatch_;
};

}  // namespace muster::worker
