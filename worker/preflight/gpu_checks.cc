#include <algorithm>
#include <array>
#include <cctype>

#include "fmt/format.h"
#include "worker/diagnose/gpu_memory.h"
#include "worker/diagnose/text.h"
#include "worker/preflight/checks.h"

namespace muster::worker {
namespace {

// Of memory that others hold, or of a driver that isn't there.
std::string Said(const absl::Status& status) { return std::string(status.message()); }

std::string Version(int cuda_version) {
  return fmt::format("{}.{}", cuda_version / 1000, cuda_version % 1000 / 10);
}

std::string Users(const Gpu& gpu) {
  std::string text;
  for (const GpuProcess& process : gpu.processes) {
    Append(&text, text.empty() ? "" : ", ", "process ", process.pid, " has ",
           FormatBytes(process.bytes));
  }
  return text.empty() ? "by processes that NVML doesn't show" : text;
}

// "nvidia0", and not "nvidiactl".
bool IsGpu(const std::string& device_file) {
  std::string_view number = device_file;
  return ConsumePrefix(&number, "nvidia") && !number.empty() &&
         std::ranges::all_of(number, [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

std::optional<std::string> GpusAskedFor(Machine& machine, int expected) {
  if (expected > 0) return Concat(expected, " GPUs are expected");
  const absl::StatusOr<GpuInventory> inventory = machine.Gpus();
  if (inventory.ok() && !inventory->gpus.empty()) {
    return Concat("NVML shows ", inventory->gpus.size(), " GPUs");
  }
  const auto files = machine.ListFolder("/dev").value_or(std::vector<std::string>());
  if (const auto found = std::ranges::find_if(files, IsGpu); found != files.end()) {
    return Concat("/dev/", *found, " is there");
  }
  // "all" is what images set, wherever they run; "void" is CDI's, which gives device files.
  constexpr std::array<std::string_view, 4> kNone = {"", "none", "void", "all"};
  const std::string given = machine.Environment("NVIDIA_VISIBLE_DEVICES").value_or("");
  if (std::ranges::count(kNone, given) > 0) return std::nullopt;
  return Concat("NVIDIA_VISIBLE_DEVICES=", given);
}

Row CheckGpuHealth(const absl::StatusOr<GpuInventory>& inventory, const Expectations& expected) {
  constexpr char kCheck[] = "GPU health";
  if (!inventory.ok()) {
    if (expected.gpus == 0) return {.check = kCheck, .numbers = "no GPU, and none is expected"};
    return FailedRow(kCheck, CauseId::kDriverMissing, Said(inventory.status()));
  }
  std::string ill;
  for (const Gpu& gpu : inventory->gpus) {
    if (gpu.row_remapping_failed) {
      Append(&ill, ill.empty() ? "" : "; ", "GPU ", gpu.index, " (", gpu.uuid,
             "): row remapping failed");
    } else if (gpu.row_remapping_pending) {
      Append(&ill, ill.empty() ? "" : "; ", "GPU ", gpu.index, " (", gpu.uuid,
             "): a broken row is remapped only once the GPU is reset");
    } else if (gpu.uncorrected_ecc_errors.value_or(0) > 0) {
      Append(&ill, ill.empty() ? "" : "; ", "GPU ", gpu.index, " (", gpu.uuid,
             "): ", *gpu.uncorrected_ecc_errors, " uncorrected ECC errors");
    }
  }
  if (!ill.empty()) return FailedRow(kCheck, CauseId::kGpuFault, ill);
  const auto found = static_cast<int>(inventory->gpus.size());
  const std::string numbers = Concat(found, " of ", expected.gpus, " expected GPUs");
  if (found < expected.gpus) return FailedRow(kCheck, CauseId::kNoHealthyDevices, numbers);
  return {.check = kCheck, .numbers = numbers};
}

Row CheckGpuMemory(const absl::StatusOr<GpuInventory>& inventory) {
  constexpr char kCheck[] = "GPU memory";
  if (!inventory.ok()) return {.check = kCheck, .numbers = "no GPU"};
  std::string held;
  int64_t least = 0;
  size_t named = 0;
  for (const Gpu& gpu : inventory->gpus) {
    least = least == 0 ? gpu.free_bytes : std::min(least, gpu.free_bytes);
    const int64_t used = gpu.total_bytes - gpu.free_bytes;
    if (used <= gpu.total_bytes / 10 || named == kMaxNamed) continue;
    ++named;
    Append(&held, held.empty() ? "" : "; ", "GPU ", gpu.index, ": ", FormatBytes(used), " of ",
           FormatBytes(gpu.total_bytes), " are in use before training starts: ", Users(gpu));
  }
  if (!held.empty()) return FailedRow(kCheck, CauseId::kMemoryHeldByOthers, held);
  return {.check = kCheck, .numbers = Concat("at least ", FormatBytes(least), " free on each")};
}

Row CheckDriver(const absl::StatusOr<GpuInventory>& inventory, const Expectations& expected) {
  constexpr char kCheck[] = "driver";
  if (!inventory.ok() || expected.cuda_version == 0) {
    return {.check = kCheck, .numbers = "no GPU, or no CUDA, in use"};
  }
  const std::string numbers = Concat("driver ", inventory->driver_version, " runs CUDA up to ",
                                     Version(inventory->cuda_version), ", the program needs ",
                                     Version(expected.cuda_version));
  // Within a major version every driver runs every program.
  if (inventory->cuda_version / 1000 < expected.cuda_version / 1000) {
    return FailedRow(kCheck, CauseId::kDriverTooOld, numbers);
  }
  return {.check = kCheck, .numbers = numbers};
}

std::vector<Row> CheckGpus(Machine& machine, const Expectations& expected) {
  const absl::StatusOr<GpuInventory> inventory = machine.Gpus();
  return {CheckGpuHealth(inventory, expected), CheckGpuMemory(inventory),
          CheckDriver(inventory, expected)};
}

}  // namespace muster::worker
