#include "worker/preflight/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <thread>

#include "worker/preflight/made_up_machine.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int64_t kMiB = int64_t{1} << 20;

Expectations WholeP4d() { return {.gpus = 8, .efa_devices = 4, .cuda_version = 13000}; }

// "failed no-efa-provider", "ok".
std::string Judged(const Row& row) {
  if (row.verdict == Verdict::kOk) return "ok";
  EXPECT_THAT(row.fix, Not(IsEmpty())) << row.check;
  return Concat(row.verdict == Verdict::kFailed ? "failed " : "warning ", CauseOf(row.cause).name);
}

TEST(Checks, NothingIsWrongWithAHealthyMachine) {
  MadeUpMachine machine;
  const std::vector<Row> rows = CheckMachine(machine, WholeP4d());
  for (const Row& row : rows) {
    EXPECT_EQ(Judged(row), "ok") << row.check << ": " << row.numbers;
    EXPECT_THAT(row.numbers, Not(IsEmpty())) << row.check;
  }
  EXPECT_EQ(ExitCodeOf(rows), 0);
}

TEST(Checks, AMachineWithoutGpusServesAJobThatWantsNone) {
  MadeUpMachine machine;
  machine.inventory = absl::NotFoundError("no GPU driver here");
  EXPECT_EQ(ExitCodeOf(CheckMachine(machine, {})), 0);
  EXPECT_EQ(Judged(CheckGpuHealth(machine.inventory, {.gpus = 8})), "failed driver-missing");
}

TEST(Checks, APodThatAsksForGpusShowsIt) {
  MadeUpMachine machine;
  EXPECT_EQ(GpusAskedFor(machine, 0), "NVML shows 8 GPUs");
  EXPECT_EQ(GpusAskedFor(machine, 4), "4 GPUs are expected");
  machine.inventory = absl::NotFoundError("no GPU driver here");
  EXPECT_EQ(GpusAskedFor(machine, 0), std::nullopt);
  machine.environment["NVIDIA_VISIBLE_DEVICES"] = "GPU-8f4d";
  EXPECT_EQ(GpusAskedFor(machine, 0), "NVIDIA_VISIBLE_DEVICES=GPU-8f4d");
  for (const char* none : {"", "none", "void", "all"}) {
    machine.environment["NVIDIA_VISIBLE_DEVICES"] = none;
    EXPECT_EQ(GpusAskedFor(machine, 0), std::nullopt) << none;
  }
  machine.folders["/dev"] = {"null", "nvidia-uvm", "nvidiactl"};
  EXPECT_EQ(GpusAskedFor(machine, 0), std::nullopt);
  machine.folders["/dev"].emplace_back("nvidia3");
  EXPECT_EQ(GpusAskedFor(machine, 0), "/dev/nvidia3 is there");
}

TEST(Checks, AGpuWithUncorrectedErrorsOrFailedRemappingIsNamed) {
  MadeUpMachine machine;
  machine.inventory->gpus[2].uncorrected_ecc_errors = 3;
  machine.inventory->gpus[5].row_remapping_failed = true;
  machine.inventory->gpus[6].row_remapping_pending = true;
  const Row row = CheckGpuHealth(machine.inventory, WholeP4d());
  EXPECT_EQ(Judged(row), "failed gpu-fault");
  EXPECT_EQ(row.numbers,
            "GPU 2 (GPU-2): 3 uncorrected ECC errors; GPU 5 (GPU-5): row remapping failed; "
            "GPU 6 (GPU-6): a broken row is remapped only once the GPU is reset");
}

TEST(Checks, AMissingGpuIsCounted) {
  MadeUpMachine machine;
  machine.inventory->gpus.pop_back();
  const Row row = CheckGpuHealth(machine.inventory, WholeP4d());
  EXPECT_EQ(Judged(row), "failed no-healthy-devices");
  EXPECT_EQ(row.numbers, "7 of 8 expected GPUs");
}

TEST(Checks, WhoHoldsAGpusMemoryIsNamedBeforeTrainingStarts) {
  MadeUpMachine machine;
  Gpu& gpu = machine.inventory->gpus[1];
  gpu.free_bytes = 9 * kGiB;
  gpu.processes = {{.pid = 4242, .bytes = 31 * kGiB}};
  const Row row = CheckGpuMemory(machine.inventory);
  EXPECT_EQ(Judged(row), "failed memory-held-by-others");
  EXPECT_EQ(
      row.numbers,
      "GPU 1: 31.00 GiB of 40.00 GiB are in use before training starts: process 4242 has 31.00 "
      "GiB");
}

TEST(Checks, ADriverOfTheSameMajorVersionIsEnough) {
  MadeUpMachine machine;
  Expectations expected = WholeP4d();
  expected.cuda_version = 13010;
  EXPECT_EQ(Judged(CheckDriver(machine.inventory, expected)), "ok");
  machine.inventory->cuda_version = 12080;
  EXPECT_EQ(Judged(CheckDriver(machine.inventory, expected)), "failed driver-too-old");
}

TEST(Checks, LockedMemoryMattersToEfaOnly) {
  MadeUpMachine machine;
  machine.locked_memory = 64 * 1024;
  EXPECT_EQ(Judged(CheckLockedMemory(machine, WholeP4d())), "failed locked-memory-low");
  EXPECT_EQ(Judged(CheckLockedMemory(machine, {.gpus = 8})), "ok");
}

TEST(Checks, TheContainerRuntimesOwnSharedMemoryIsTooSmallForSeveralRanks) {
  MadeUpMachine machine;
  machine.shared_memory = FilesystemSize{.total_bytes = 64 * kMiB, .free_bytes = 64 * kMiB};
  EXPECT_EQ(Judged(CheckSharedMemory(machine, WholeP4d())), "failed shared-memory-small");
  EXPECT_EQ(Judged(CheckSharedMemory(machine, {.gpus = 1})), "warning shared-memory-small");
}

TEST(Checks, HugePagesForEfa) {
  MadeUpMachine machine;
  machine.files.clear();
  EXPECT_EQ(Judged(CheckHugepages(machine, WholeP4d())), "warning fabric-memory");
  EXPECT_EQ(Judged(CheckHugepages(machine, {.gpus = 8})), "ok");
}

TEST(Checks, EfaDevicesOfTheNodeThatThePodDidNotAskForDontCount) {
  MadeUpMachine machine;
  machine.folders["/dev/infiniband"] = {"rdma_cm"};
  const Row row = CheckEfaDevices(machine, WholeP4d());
  EXPECT_EQ(Judged(row), "failed no-efa-provider");
  EXPECT_EQ(row.numbers, "4 on the node, 0 in this container, 4 expected");
  machine.folders.clear();
  EXPECT_EQ(Judged(CheckEfaDevices(machine, {.gpus = 1})), "ok");
}

TEST(Checks, AnotherVendorsDevicesAreNotEfa) {
  MadeUpMachine machine;
  for (auto& [path, text] : machine.files) {
    if (path.ends_with("vendor")) text = "0x15b3\n";
  }
  EXPECT_EQ(Judged(CheckEfaDevices(machine, WholeP4d())), "failed no-efa-provider");
}

TEST(Checks, ThePluginIsLookedForByTheNameThatNcclUses) {
  MadeUpMachine machine;
  machine.environment["NCCL_NET_PLUGIN"] = "ofi";
  const Row row = CheckNetworkPlugin(machine, WholeP4d());
  EXPECT_EQ(Judged(row), "failed network-is-socket");
  EXPECT_THAT(row.numbers, HasSubstr("libnccl-net-ofi.so"));
  machine.libraries = {"libnccl-net-ofi.so"};
  EXPECT_EQ(Judged(CheckNetworkPlugin(machine, WholeP4d())), "ok");
}

TEST(Checks, APluginThatDoesNotMoveGpuMemoryOverEfaIsNamedWithItsReason) {
  MadeUpMachine machine;
  EXPECT_EQ(CheckNetworkPlugin(machine, WholeP4d()).numbers,
            "libfabric 2.1, protocol SENDRECV on 4 devices of provider efa, with GPU memory");
  machine.fabric->gpu_memory = false;
  EXPECT_EQ(Judged(CheckNetworkPlugin(machine, WholeP4d())), "failed memory-registration");
  machine.fabric->provider = "tcp";
  EXPECT_EQ(Judged(CheckNetworkPlugin(machine, WholeP4d())), "failed no-efa-provider");
  *machine.fabric = {.libfabric = "2.1",
                     .libfabric_error = "No data available",
                     .plugin = "libnccl-net.so",
                     .plugin_error = "NET/OFI Unable to find a protocol that worked."};
  const Row row = CheckNetworkPlugin(machine, WholeP4d());
  EXPECT_EQ(Judged(row), "failed no-efa-provider");
  EXPECT_THAT(row.numbers, HasSubstr("Unable to find a protocol"));
  EXPECT_THAT(row.numbers, HasSubstr("libfabric: No data available"));
  machine.fabric = absl::UnavailableError("libfabric or NCCL's plugin ends the process");
  EXPECT_EQ(Judged(CheckNetworkPlugin(machine, WholeP4d())), "failed fabric-software");
  // Where no GPU is, neither is asked.
  machine.inventory = absl::NotFoundError("no GPU driver here");
  EXPECT_EQ(Judged(CheckNetworkPlugin(machine, {.efa_devices = 4})), "ok");
}

TEST(Checks, NcclIsHeldToEfaWhereThePodHasSome) {
  MadeUpMachine machine;
  EXPECT_EQ(NetworkForNccl(machine), "AWS Libfabric");
  machine.environment["NCCL_NET"] = "Socket";
  EXPECT_EQ(NetworkForNccl(machine), std::nullopt);
  machine.environment.clear();
  machine.folders["/dev/infiniband"].clear();
  EXPECT_EQ(NetworkForNccl(machine), std::nullopt);
}

TEST(Fabric, IsTheSameAfterItsWayBetweenProcesses) {
  const Fabric fabric = {.libfabric = "2.1",
                         .gpu_devices = 32,
                         .plugin = "libnccl-net.so",
                         .protocol = "RDMA",
                         .provider = "efa",
                         .devices = 8,
                         .gpu_memory = true,
                         .plugin_error = "a \"quoted\" line\n"};
  const absl::StatusOr<Fabric> read = ParseFabric("a library's words\n" + FabricJson(fabric));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, fabric);
  for (const char* text : {"", "{", "{\n}", "[1]", "{\n\"libfabric\": 3}"}) {
    EXPECT_EQ(ParseFabric(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(Checks, VariablesThatOldGuidesRecommendAreNamed) {
  MadeUpMachine machine;
  machine.environment = {{"FI_PROVIDER", "efa"}, {"NCCL_DEBUG", "INFO"}};
  const Row row = CheckEnvironment(machine);
  EXPECT_EQ(row.verdict, Verdict::kWarning);
  EXPECT_EQ(row.numbers, "FI_PROVIDER=efa");
}

TEST(Checks, AGracePeriodShorterThanACheckpointIsToldWithTheOneThatIsNeeded) {
  Expectations expected{.grace_period = absl::Seconds(30),
                        .checkpoint_bytes = 96 * kGiB,
                        .checkpoint_bytes_per_second = 2 * kGiB};
  const Row row = CheckGracePeriod(expected);
  EXPECT_EQ(Judged(row), "warning grace-period-short");
  EXPECT_THAT(row.fix, HasSubstr("terminationGracePeriodSeconds to 72"));
  expected.grace_period = absl::Seconds(72);
  EXPECT_EQ(Judged(CheckGracePeriod(expected)), "ok");
}

TEST(Checks, AModelOnTheCpuMustFitIntoWhatTheNodeAndTheContainerHaveFree) {
  MadeUpMachine machine;
  machine.files["/proc/meminfo"] = "MemTotal: 33554432 kB\nMemAvailable:   20971520 kB\n";
  EXPECT_EQ(Judged(CheckHostMemory(machine, {.host_bytes = 18 * kGiB})), "ok");
  const Row row = CheckHostMemory(machine, {.host_bytes = 19 * kGiB});
  EXPECT_EQ(Judged(row), "failed model-too-large");
  EXPECT_EQ(row.numbers,
            "19.00 GiB planned on this node, 18.00 GiB free without the tenth for activations");
  machine.files["/sys/fs/cgroup/memory.max"] = "max\n";
  machine.files["/sys/fs/cgroup/memory.current"] = "1073741824\n";
  EXPECT_EQ(Judged(CheckHostMemory(machine, {.host_bytes = 18 * kGiB})), "ok");
  machine.files["/sys/fs/cgroup/memory.max"] = "11811160064\n";
  EXPECT_EQ(Judged(CheckHostMemory(machine, {.host_bytes = 9 * kGiB})), "ok");
  EXPECT_EQ(Judged(CheckHostMemory(machine, {.host_bytes = 10 * kGiB})), "failed model-too-large");
  machine.files["/sys/fs/cgroup/memory.current"] = "11811160064\n";
  machine.files["/sys/fs/cgroup/memory.stat"] =
      "anon 1\ninactive_file 11811160064\nactive_file 0\n";
  EXPECT_EQ(Judged(CheckHostMemory(machine, {.host_bytes = 9 * kGiB})), "ok");
}

class CheckpointFolder : public testing::Test {
 protected:
  CheckpointFolder() { std::filesystem::create_directories(folder_); }
  ~CheckpointFolder() override { std::filesystem::remove_all(folder_); }

  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.insert(entry.path().filename());
    }
    return names;
  }

  const std::string folder_ = testing::TempDir() + "/preflight-checkpoints";
};

TEST_F(CheckpointFolder, TakesARenameAndIsLeftAsItWas) {
  EXPECT_EQ(Judged(CheckCheckpointFolder(folder_)), "ok");
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(CheckpointFolder, OneThatIsMissingIsNamed) {
  const Row row = CheckCheckpointFolder(folder_ + "/missing");
  EXPECT_EQ(Judged(row), "failed checkpoint-unwritable");
  EXPECT_THAT(row.numbers, HasSubstr(folder_ + "/missing"));
  EXPECT_FALSE(FolderId(folder_ + "/missing").ok());
}

TEST_F(CheckpointFolder, AllWhoSeeItAgreeOnItsIdHoweverManyComeAtOnce) {
  std::vector<std::string> ids(16);
  std::vector<std::thread> ranks;
  for (std::string& id : ids) {
    ranks.emplace_back([this, &id] { id = FolderId(folder_).value_or("none"); });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 1);
  EXPECT_NE(ids[0], "none");
  EXPECT_EQ(Names(), std::set<std::string>{".muster-folder-id"});
}

TEST(ExitCode, IsThatOfTheFirstFailure) {
  const Row ok{.check = "a"};
  const Row warning{
      .check = "b", .verdict = Verdict::kWarning, .cause = CauseId::kSharedMemorySmall};
  const Row fault{.check = "c", .verdict = Verdict::kFailed, .cause = CauseId::kGpuFault};
  const Row full{.check = "d", .verdict = Verdict::kFailed, .cause = CauseId::kDiskFull};
  EXPECT_EQ(ExitCodeOf({ok, warning}), 0);
  EXPECT_GE(ExitCodeOf({ok, warning, fault, full}), 128);
  EXPECT_LT(ExitCodeOf({full, fault}), 128);
}

}  // namespace
}  // namespace muster::worker
