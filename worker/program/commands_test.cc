// The program's command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/program/test_job.h"
#include "worker/program/test_scrape.h"

namespace muster::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Commands, SayWhatTheyAre) {
  EXPECT_EQ(RunWorker({}).exit_code, 2);
  const Ran unknown = RunWorker({"trian"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.printed, HasSubstr("unknown command trian"));
  const Ran help = RunWorker({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command : {"launch", "train", "preflight", "fabric", "all-reduce", "diagnose",
                              "convert", "eval", "version"}) {
    EXPECT_THAT(help.printed, HasSubstr(absl::StrCat("\n  ", command)));
  }
  EXPECT_THAT(RunWorker({"version"}).printed, StartsWith("muster-worker 0."));
  EXPECT_THAT(RunWorker({"train", "--help"}).printed,
              AllOf(HasSubstr("--learning-rate: at its highest (0.0003)"),
                    HasSubstr("--nodes: how many pods")));
}

TEST(Commands, PreflightAndDiagnoseAreThere) {
  const Ran preflight = RunWorker({"preflight", "--output=json"});
  EXPECT_TRUE(nlohmann::json::parse(preflight.printed).contains("rows"));
  const Ran diagnose = RunWorker({"diagnose", "worker/diagnose/logs/pod_no_healthy_devices.txt"});
  EXPECT_EQ(diagnose.exit_code, 0);
  EXPECT_THAT(diagnose.printed, HasSubstr("no-healthy-devices"));
}

TEST(Commands, TheConfigurationIsPrintedAsItCanBeReadAgainAndFlagsWin) {
  const TestDirectory directory;
  std::ofstream(directory / "config.yaml") << "steps: 5\nmodel: gpt2-xl\ndata: a,b\n";
  const Ran first =
      RunWorker({"train", "--config=" + directory / "config.yaml", "--steps=7", "--print-config"});
  EXPECT_EQ(first.exit_code, 0);
  EXPECT_THAT(first.printed, AllOf(HasSubstr("steps: 7\n"), HasSubstr("model: gpt2-xl\n"),
                                   HasSubstr("data: a,b\n"), HasSubstr("# weights: not set\n")));
  std::ofstream(directory / "printed.yaml") << first.printed;
  const Ran second =
      RunWorker({"train", "--config=" + directory / "printed.yaml", "--print-config"});
  EXPECT_EQ(second.printed, first.printed);
}

TEST(Commands, TheConfigurationSaysWhichShardingIsTakenUnlessOneIsSet) {
  EXPECT_THAT(RunWorker({"train", "--engine=cpu", "--print-config"}).printed,
              HasSubstr("\n# sharding: ddp, on CPUs\n"));
  EXPECT_THAT(RunWorker({"train", "--print-config"}, {{"CUDA_VISIBLE_DEVICES", ""}}).printed,
              HasSubstr("\n# sharding: the first of ddp, zero1 and zero3 that fits the GPUs"));
  const std::string set = RunWorker({"train", "--sharding=zero3", "--print-config"}).printed;
  EXPECT_THAT(set, AllOf(HasSubstr("\nsharding: zero3\n"), Not(HasSubstr("# sharding:"))));
}

TEST(Commands, ConvertTakesTextAndIds) {
  const TestDirectory directory;
  std::ofstream(directory / "text") << "abc";
  std::ofstream(directory / "ids", std::ios::binary) << std::string("\1\0\2\0", 4);
  EXPECT_THAT(RunWorker({"convert", "--output=" + directory / "a", directory / "text"}).printed,
              HasSubstr("4 tokens"));
  EXPECT_THAT(RunWorker({"convert", "--from=uint16", "--token-vocabulary=3",
                         "--output=" + directory / "b", directory / "ids"})
                  .printed,
              HasSubstr("2 tokens"));
  const Ran outside = RunWorker({"convert", "--from=uint16", "--token-vocabulary=2",
                                 "--output=" + directory / "b", directory / "ids"});
  EXPECT_EQ(outside.exit_code, 78);
  EXPECT_EQ(RunWorker({"convert", "--from=uint16", "--output=" + directory / "b"}).exit_code, 78);
  EXPECT_EQ(RunWorker({"convert", "--form=text"}).exit_code, 78);
}

TEST(Commands, ARunIsToldToPeopleAndToPrograms) {
  const JobDirectory directory;
  const std::string port = FreePort();
  Pod pod(Flags{MUSTER_WORKER} + directory.TrainFlags() +
              Flags{"--steps=1000000", "--events=" + directory / "events", "--metrics-port=" + port,
                    "--validation-data=" + directory.tokens(), "--validate-every=2",
                    "--validation-sequences=4", "--micro-batch=2", "--peak-flops=1e12"},
          {{"CUDA_VISIBLE_DEVICES", ""}});
  ASSERT_TRUE(pod.Prints("step 4  validation loss ")) << pod.printed();
  EXPECT_THAT(
      Ask(static_cast<uint16_t>(std::stoi(port)), "GET /metrics HTTP/1.1\r\n\r\n"),
      AllOf(HasSubstr("\nmuster_worker_loss "), HasSubstr("\nmuster_worker_validation_loss ")));
  pod.Signal(SIGTERM);
  EXPECT_EQ(pod.ExitCode(), 143);
  EXPECT_THAT(pod.printed(), AllOf(HasSubstr("[rank 0] training from the start\n"),
                                   HasSubstr(" tokens/s  MFU "), HasSubstr(" left\n")));
  EXPECT_GE(Losses(directory / "events").size(), 4);
}

}  // namespace
}  // namespace muster::worker
