// The checks of preflight. Each looks at one thing and gives one row; none changes the machine, but
// for a file that CheckCheckpointFolder makes and removes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "worker/diagnose/cause.h"
#include "worker/preflight/machine.h"

namespace muster::worker {

// kWarning: training can start, but slower or less safely than it could. kFailed: it can't, or ends
// soon.
enum class Verdict : uint8_t { kOk, kWarning, kFailed };

// Of GPUs, users or ranks in one row: enough to look for what is wrong.
inline constexpr size_t kMaxNamed = 8;

struct Row {
  std::string check = {};
  Verdict verdict = Verdict::kOk;
  std::string numbers = {};  // what was found
  std::string fix = {};      // one sentence; empty if kOk
  // What training would fail with; decides the exit code of a failed row. kCount if kOk.
  CauseId cause = CauseId::kCount;
};

// A failed row with its cause's fix.
Row FailedRow(std::string check, CauseId cause, std::string numbers);

// What the job expects of this machine.
struct Expectations {
  int gpus = 0;
  int efa_devices = 0;
  int cuda_version = 0;    // that the program was built with: 13000; 0 leaves the check out
  int64_t host_bytes = 0;  // that the ranks of this node take of its memory
  std::string checkpoint_folder = {};               // empty: no checkpoints
  std::optional<absl::Duration> grace_period = {};  // of the pod
  int64_t checkpoint_bytes = 0;                     // that one node writes
  int64_t checkpoint_bytes_per_second = 0;          // that the volume takes from one node
};

struct EfaDevices {
  int on_node = 0;
  int given = 0;  // that this container may open
};
EfaDevices CountEfaDevices(Machine& machine);
// What NCCL_NET must be so that NCCL uses EFA or fails with the reason: by itself it goes on over
// TCP. Nothing where the container was given no EFA devices, or where it is set.
std::optional<std::string> NetworkForNccl(Machine& machine);
// The file that NCCL_NET_PLUGIN means to NCCL; empty: it isn't set.
std::string NetworkPluginFile(const std::string& variable);
// OK if NCCL would find aws-ofi-nccl, by the name that its environment gives; `name` becomes it.
absl::Status FindNetworkPlugin(Machine& machine, std::string* name = nullptr);

// What shows that this container's pod asks for GPUs, for a sentence: `expected` ones, those that
// NVML shows, its device files, or the device plugin's NVIDIA_VISIBLE_DEVICES; nothing if none
// does.
std::optional<std::string> GpusAskedFor(Machine& machine, int expected);

// Number, memory errors and failed row remappings of the GPUs that NVML shows.
Row CheckGpuHealth(const absl::StatusOr<GpuInventory>& inventory, const Expectations& expected);
// Free memory of each GPU, and who uses the rest; ranks must start on GPUs that are empty.
Row CheckGpuMemory(const absl::StatusOr<GpuInventory>& inventory);
Row CheckDriver(const absl::StatusOr<GpuInventory>& inventory, const Expectations& expected);
// What ranks that compute on the CPU take against what the node has free, and the container's
// limit.
Row CheckHostMemory(Machine& machine, const Expectations& expected);
Row CheckLockedMemory(Machine& machine, const Expectations& expected);
Row CheckSharedMemory(Machine& machine, const Expectations& expected);
Row CheckHugepages(Machine& machine, const Expectations& expected);
// The EFA devices in /sys/class/infiniband, and whether the container may open them.
Row CheckEfaDevices(Machine& machine, const Expectations& expected);
// Whether NCCL would find aws-ofi-nccl and, where there are GPUs, whether that starts and moves
// their memory over EFA.
Row CheckNetworkPlugin(Machine& machine, const Expectations& expected);
// Variables that old guides recommend and that do harm with today's libraries.
Row CheckEnvironment(Machine& machine);
// Writes, renames and reads a file in the folder.
Row CheckCheckpointFolder(const std::string& folder);
// Whether a checkpoint can be written between SIGTERM and SIGKILL, with half as much time to spare.
Row CheckGracePeriod(const Expectations& expected);

// All of the above that apply to what is expected, in this order: those of GPUs, and the others.
std::vector<Row> CheckGpus(Machine& machine, const Expectations& expected);
std::vector<Row> CheckHost(Machine& machine, const Expectations& expected);
// Both.
std::vector<Row> CheckMachine(Machine& machine, const Expectations& expected);

// A text that all who call this for the same folder get, and nobody else: the contents of the file
// .muster-folder-id in it, which the first one makes. Several may call it at once, from several
// machines.
absl::StatusOr<std::string> FolderId(const std::string& folder);

// 0 if no row failed, else the exit code of the cause of the first that did: below 128 where
// something must be changed first, from 128 on where another start may succeed.
int ExitCodeOf(const std::vector<Row>& rows);

}  // namespace muster::worker
