#include "worker/preflight/preflight_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "nlohmann/json.hpp"
#include "worker/preflight/made_up_machine.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;

struct Ran {
  int exit_code = 0;
  std::string out;
  std::string err;
};

Ran Preflight(const std::vector<std::string>& arguments, Machine& machine) {
  std::ostringstream out;
  std::ostringstream err;
  const int exit_code = RunPreflight(arguments, machine, out, err);
  return {.exit_code = exit_code, .out = out.str(), .err = err.str()};
}

TEST(PreflightCommand, PrintsARowPerCheckWithItsFix) {
  MadeUpMachine machine;
  machine.inventory->gpus.pop_back();
  const Ran ran = Preflight({"--gpus=8", "--efa-devices=4", "--cuda-version=13000"}, machine);
  EXPECT_EQ(ran.exit_code, CauseOf(CauseId::kNoHealthyDevices).exit_code);
  EXPECT_THAT(ran.out, HasSubstr("failed   GPU health             7 of 8 expected GPUs\n"
                                 "         fix: Let the pod be made anew on another node"));
  EXPECT_THAT(ran.out, HasSubstr("ok       locked memory          no limit\n"));
}

TEST(PreflightCommand, JsonSaysTheSame) {
  MadeUpMachine machine;
  machine.locked_memory = 65536;
  const Ran ran = Preflight({"--gpus=8", "--efa-devices=4", "--output=json"}, machine);
  const auto report = nlohmann::json::parse(ran.out);
  EXPECT_EQ(report.at("exitCode"), 78);
  EXPECT_EQ(ran.exit_code, 78);
  int failed = 0;
  for (const auto& row : report.at("rows")) {
    if (row.at("verdict") == "ok") continue;
    ++failed;
    EXPECT_EQ(row.at("check"), "locked memory");
    EXPECT_EQ(row.at("verdict"), "failed");
    EXPECT_EQ(row.at("cause"), "locked-memory-low");
    EXPECT_EQ(row.at("numbers"), "limited to 0.06 MiB");
  }
  EXPECT_EQ(failed, 1);
}

TEST(PreflightCommand, TheGracePeriodIsAnOption) {
  MadeUpMachine machine;
  const Ran ran = Preflight(
      {"--checkpoint-bytes=107374182400", "--checkpoint-speed=1073741824", "--grace-period=30"},
      machine);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("warning  grace period"));
}

TEST(PreflightCommand, WrongArgumentsAreTwo) {
  MadeUpMachine machine;
  EXPECT_EQ(Preflight({"--gpu=8"}, machine).exit_code, 2);
  EXPECT_THAT(Preflight({"--gpu=8"}, machine).err, HasSubstr("unknown argument --gpu=8"));
  EXPECT_THAT(Preflight({"--gpus=4000"}, machine).err, HasSubstr("from 0 to 1024"));
  EXPECT_THAT(Preflight({"--gpus=2x"}, machine).err, HasSubstr("--gpus must be a whole number"));
  EXPECT_THAT(Preflight({"--gpus=99999999999999999999"}, machine).err, HasSubstr("whole number"));
  EXPECT_THAT(Preflight({"--output=yaml"}, machine).err, HasSubstr("text or json"));
  EXPECT_EQ(Preflight({"--help"}, machine).exit_code, 0);
}

TEST(PreflightCommand, ThisMachineIsReadWithoutHarm) {
  std::ostringstream out;
  std::ostringstream err;
  RunPreflight({}, *ThisMachine(), out, err);
  EXPECT_THAT(out.str(), HasSubstr("/dev/shm"));
  EXPECT_EQ(err.str(), "");
}

}  // namespace
}  // namespace muster::worker
