#include <algorithm>
#include <array>
#include <iterator>

#include "worker/diagnose/failure.h"
#include "worker/diagnose/gpu_memory.h"
#include "worker/diagnose/text.h"
#include "worker/preflight/checks.h"

namespace muster::worker {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// What libfabric registers for the connections of one EFA device is more than the 64 KiB, or 8 MiB,
// that container runtimes without a setting give.
constexpr int64_t kLeastLockedMemory = 64 * kMiB;
// NCCL takes tens of MiB per pair of ranks on a node, data loaders more.
constexpr int64_t kLeastSharedMemory = 512 * kMiB;
constexpr int64_t kHugepages = 2560;  // 5120Mi in pages of 2 MiB
constexpr char kAmazon[] = "0x1d0f";  // PCI vendor

Row Bad(Verdict verdict, std::string check, CauseId cause, std::string numbers) {
  return {.check = std::move(check),
          .verdict = verdict,
          .numbers = std::move(numbers),
          .fix = std::string(CauseOf(cause).fix),
          .cause = cause};
}

}  // namespace

Row CheckHostMemory(Machine& machine, const Expectations& expected) {
  constexpr char kCheck[] = "host memory";
  if (expected.host_bytes == 0) return {.check = kCheck, .numbers = "no model to plan for"};
  constexpr int64_t kKiB = 1024;
  const std::string meminfo = machine.ReadFile("/proc/meminfo").value_or("");
  const std::optional<int64_t> available = NumberAfter(meminfo, "MemAvailable:");
  if (!available) return {.check = kCheck, .numbers = "not known how much is free"};
  int64_t free = *available * kKiB;
  // "max" without a limit.
  const auto limit = LeadingNumber(machine.ReadFile("/sys/fs/cgroup/memory.max").value_or("max"));
  const auto used = LeadingNumber(machine.ReadFile("/sys/fs/cgroup/memory.current").value_or(""));
  // Files that were read once; the kernel lets go of them first.
  const std::string stat = machine.ReadFile("/sys/fs/cgroup/memory.stat").value_or("");
  const int64_t cached = NumberAfter(stat, "inactive_file ").value_or(0);
  if (limit && used) free = std::min(free, std::max<int64_t>(0, *limit - *used + cached));
  const int64_t room = free - free / 10;
  const std::string numbers = Concat(FormatBytes(expected.host_bytes), " planned on this node, ",
                                     FormatBytes(room), " free without the tenth for activations");
  if (expected.host_bytes <= room) return {.check = kCheck, .numbers = numbers};
  return Bad(Verdict::kFailed, kCheck, CauseId::kModelTooLarge, numbers);
}

Row CheckLockedMemory(Machine& machine, const Expectations& expected) {
  constexpr char kCheck[] = "locked memory";
  const std::optional<int64_t> limit = machine.LockedMemoryLimit();
  if (!limit) return {.check = kCheck, .numbers = "no limit"};
  const std::string numbers = Concat("limited to ", FormatBytes(*limit));
  if (expected.efa_devices == 0 || *limit >= kLeastLockedMemory) {
    return {.check = kCheck, .numbers = numbers};
  }
  return Bad(Verdict::kFailed, kCheck, CauseId::kLockedMemoryLow, numbers);
}

Row CheckSharedMemory(Machine& machine, const Expectations& expected) {
  constexpr char kCheck[] = "/dev/shm";
  const absl::StatusOr<FilesystemSize> size = machine.Filesystem("/dev/shm");
  if (!size.ok()) {
    return Bad(Verdict::kFailed, kCheck, CauseId::kSharedMemorySmall,
               std::string(size.status().message()));
  }
  const std::string numbers =
      Concat(FormatBytes(size->free_bytes), " of ", FormatBytes(size->total_bytes), " free");
  if (size->free_bytes >= kLeastSharedMemory) return {.check = kCheck, .numbers = numbers};
  return Bad(expected.gpus > 1 ? Verdict::kFailed : Verdict::kWarning, kCheck,
             CauseId::kSharedMemorySmall, numbers);
}

Row CheckHugepages(Machine& machine, const Expectations& expected) {
  constexpr char kCheck[] = "huge pages";
  if (expected.efa_devices == 0) return {.check = kCheck, .numbers = "no EFA is expected"};
  const absl::StatusOr<std::string> text =
      machine.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  const int64_t free = text.ok() ? LeadingNumber(*text).value_or(0) : 0;
  const std::string numbers = Concat(free, " of 2 MiB free on the node");
  if (free >= kHugepages) return {.check = kCheck, .numbers = numbers};
  return Bad(Verdict::kWarning, kCheck, CauseId::kFabricMemory, numbers);
}

EfaDevices CountEfaDevices(Machine& machine) {
  constexpr char kFolder[] = "/sys/class/infiniband";
  EfaDevices devices;
  for (const std::string& name : machine.ListFolder(kFolder).value_or(std::vector<std::string>())) {
    const auto vendor = machine.ReadFile(Concat(kFolder, "/", name, "/device/vendor"));
    if (vendor.ok() && StripBlanks(*vendor) == kAmazon) ++devices.on_node;
  }
  // /sys shows the node's devices to every container; /dev only those that the pod was given.
  const auto nodes = machine.ListFolder("/dev/infiniband").value_or(std::vector<std::string>());
  devices.given = static_cast<int>(std::ranges::count_if(
      nodes, [](const std::string& name) { return name.starts_with("uverbs"); }));
  return devices;
}

std::optional<std::string> NetworkForNccl(Machine& machine) {
  const EfaDevices devices = CountEfaDevices(machine);
  if (std::min(devices.on_node, devices.given) == 0 || machine.Environment("NCCL_NET")) {
    return std::nullopt;
  }
  // aws-ofi-nccl answers to this name in every version.
  return "AWS Libfabric";
}

std::string NetworkPluginFile(const std::string& variable) {
  if (variable.empty()) return "libnccl-net.so";
  return variable.ends_with(".so") ? variable : Concat("libnccl-net-", variable, ".so");
}

absl::Status FindNetworkPlugin(Machine& machine, std::string* name) {
  const std::string library =
      NetworkPluginFile(machine.Environment("NCCL_NET_PLUGIN").value_or(""));
  if (name != nullptr) *name = library;
  return machine.LoadLibrary(library);
}

Row CheckEfaDevices(Machine& machine, const Expectations& expected) {
  constexpr char kCheck[] = "EFA devices";
  const EfaDevices devices = CountEfaDevices(machine);
  const std::string numbers = Concat(devices.on_node, " on the node, ", devices.given,
                                     " in this container, ", expected.efa_devices, " expected");
  if (std::min(devices.on_node, devices.given) >= expected.efa_devices) {
    return {.check = kCheck, .numbers = numbers};
  }
  return Bad(Verdict::kFailed, kCheck, CauseId::kNoEfaProvider, numbers);
}

Row CheckNetworkPlugin(Machine& machine, const Expectations& expected) {
  constexpr char kCheck[] = "NCCL network plugin";
  if (expected.efa_devices == 0) return {.check = kCheck, .numbers = "no EFA is expected"};
  const auto failed = [&](CauseId cause, std::string why) {
    return Bad(Verdict::kFailed, kCheck, cause, std::move(why));
  };
  std::string name;
  const absl::Status status = FindNetworkPlugin(machine, &name);
  if (!status.ok()) return failed(CauseId::kNetworkIsSocket, std::string(status.message()));
  if (!GpusAskedFor(machine, expected.gpus).has_value()) {
    return {.check = kCheck, .numbers = Concat(name, " loads")};
  }
  const absl::StatusOr<Fabric> fabric = machine.AskFabric();
  if (!fabric.ok()) {
    return failed(CauseId::kFabricSoftware, std::string(fabric.status().message()));
  }
  if (fabric->protocol.empty()) {
    const std::string why =
        Concat(name, " doesn't start: ", fabric->plugin_error,
               fabric->libfabric_error.empty() ? "" : "; libfabric: ", fabric->libfabric_error);
    const std::optional<Failure> shown = FailureOf(fabric->plugin_error, PeerState::kUnknown);
    return failed(shown.has_value() ? shown->cause : CauseId::kNoEfaProvider, why);
  }
  const std::string numbers =
      Concat("libfabric ", fabric->libfabric, ", protocol ", fabric->protocol, " on ",
             fabric->devices, " devices of provider ", fabric->provider);
  if (fabric->provider != "efa") return failed(CauseId::kNoEfaProvider, numbers);
  if (!fabric->gpu_memory) {
    return failed(CauseId::kMemoryRegistration,
                  Concat(numbers, ", without GPU memory; ", fabric->libfabric_error));
  }
  return {.check = kCheck, .numbers = Concat(numbers, ", with GPU memory")};
}

Row CheckEnvironment(Machine& machine) {
  constexpr char kCheck[] = "environment";
  constexpr std::array kHarmful = {"FI_EFA_USE_DEVICE_RDMA", "FI_PROVIDER", "FI_EFA_FORK_SAFE",
                                   "NCCL_PROTO"};
  std::string set;
  for (const char* name : kHarmful) {
    if (const auto value = machine.Environment(name)) {
      Append(&set, set.empty() ? "" : ", ", name, "=", *value);
    }
  }
  if (set.empty()) return {.check = kCheck, .numbers = "nothing that does harm"};
  return {
      .check = kCheck,
      .verdict = Verdict::kWarning,
      .numbers = set,
      .fix = "Remove them; today's libfabric, aws-ofi-nccl and NCCL choose better by themselves.",
      .cause = CauseId::kConfigurationInvalid};
}

Row CheckGracePeriod(const Expectations& expected) {
  constexpr char kCheck[] = "grace period";
  if (!expected.grace_period || expected.checkpoint_bytes_per_second <= 0) {
    return {.check = kCheck, .numbers = "not known"};
  }
  const double seconds = static_cast<double>(expected.checkpoint_bytes) /
                         static_cast<double>(expected.checkpoint_bytes_per_second);
  const absl::Duration needed = absl::Ceil(1.5 * absl::Seconds(seconds), absl::Seconds(1));
  const std::string numbers =
      Concat(FormatBytes(expected.checkpoint_bytes), " take ", absl::ToInt64Seconds(needed),
             " s with half as much again, the grace period is ",
             absl::ToInt64Seconds(*expected.grace_period), " s");
  if (needed <= *expected.grace_period) return {.check = kCheck, .numbers = numbers};
  Row row = Bad(Verdict::kWarning, kCheck, CauseId::kGracePeriodShort, numbers);
  row.fix = Concat("Set terminationGracePeriodSeconds to ", absl::ToInt64Seconds(needed),
                   " or more; until then an eviction falls back to the last periodic checkpoint.");
  return row;
}

std::vector<Row> CheckHost(Machine& machine, const Expectations& expected) {
  std::vector<Row> rows = {CheckHostMemory(machine, expected),
                           CheckLockedMemory(machine, expected),
                           CheckSharedMemory(machine, expected),
                           CheckHugepages(machine, expected),
                           CheckEfaDevices(machine, expected),
                           CheckNetworkPlugin(machine, expected),
                           CheckEnvironment(machine)};
  if (!expected.checkpoint_folder.empty()) {
    rows.push_back(CheckCheckpointFolder(expected.checkpoint_folder));
  }
  rows.push_back(CheckGracePeriod(expected));
  return rows;
}

std::vector<Row> CheckMachine(Machine& machine, const Expectations& expected) {
  std::vector<Row> rows = CheckGpus(machine, expected);
  std::ranges::move(CheckHost(machine, expected), std::back_inserter(rows));
  return rows;
}

Row FailedRow(std::string check, CauseId cause, std::string numbers) {
  return Bad(Verdict::kFailed, std::move(check), cause, std::move(numbers));
}

int ExitCodeOf(const std::vector<Row>& rows) {
  const auto failed = std::ranges::find(rows, Verdict::kFailed, &Row::verdict);
  return failed == rows.end() ? 0 : CauseOf(failed->cause).exit_code;
}

}  // namespace muster::worker
