// Who is which rank where a log names a process, a device or a Slurm task instead.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace muster::worker {

// Learns from NCCL's line on each communicator ("node-0:202:390 [1] ... rank 9 nranks 16 ... busId
// 63000"), Ray's list of its workers ("pid=4471) world_rank=0") and torchrun's summary. What two
// ranks could be meant by is nobody. Bounded.
class RankDirectory {
 public:
  static constexpr size_t kMaxKept = 4096;  // of each kind

  void Read(std::string_view line);

  void Learn(int64_t pid, int rank);

  // The rank that a line is of or about: NCCL's process, or its device beside one of the same host
  // whose rank is known; the PCI address or the process of a kernel line; a process that Ray or
  // torchrun names; the task of srun, the process rank of mpirun.
  std::optional<int> Find(std::string_view line) const;

  std::optional<int> OfProcess(int64_t pid) const;

  // Whether NCCL has told the rank of any process.
  bool KnowsProcesses() const { return !processes_.empty(); }

 private:
  std::optional<int> OfNccl(std::string_view line, std::string_view process) const;
  static std::optional<int> OfDevice(const std::map<int64_t, int>& host, int64_t index);
  std::optional<int> OfBus(int64_t bus, std::string_view line) const;

  std::map<std::string, int> processes_;                   // "HOST:PID"
  std::map<std::string, std::map<int64_t, int>> devices_;  // of a host, by NCCL's index
  std::map<int64_t, std::map<std::string, int>> buses_;    // by host
  std::map<int64_t, int> pids_;
  std::map<int64_t, int64_t> users_;  // the process on a PCI address
};

}  // namespace muster::worker
