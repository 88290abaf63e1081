// Preflight as pods of a job: real processes, over TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/program/test_job.h"

namespace muster::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const Flags kPreflight = {MUSTER_WORKER,
                          "preflight",
                          "--all-reduce",
                          "--all-reduce-time=100ms",
                          "--heartbeat-interval=100ms",
                          "--silence-limit=2s"};

// What the ranks and the program wrote to standard output: the report.
std::string ReportIn(const std::string& printed) {
  std::string report;
  for (absl::string_view line : absl::StrSplit(printed, '\n')) {
    if (line.substr(0, 6) == "[rank " || line.substr(0, 14) == "muster-worker:") continue;
    absl::StrAppend(&report, line, "\n");
  }
  return report;
}

// Two pods with two ranks each, and their termination messages.
class PreflightJob : public testing::Test {
 protected:
  void Start(const Flags& flags, const Environment& environment = {}) {
    const std::string port = FreePort();
    for (int pod = 0; pod < 2; ++pod) {
      logs_[pod] = MakeTerminationLog(directory_, absl::StrCat(pod));
      Environment whole = PodEnvironment(pod, 2, port);
      for (const auto& [name, value] : environment) whole[name] = value;
      pods_[pod] = std::make_unique<Pod>(
          kPreflight + Flags{"--termination-log=" + logs_[pod]} + flags, whole);
    }
  }

  // Of a rank in the midst of all-reduces.
  void SignalRank(int pod, int rank, int signal) {
    for (const auto& each : pods_) ASSERT_TRUE(each->Prints("all 4 ranks are here"));
    const pid_t process = RankProcessOf(pods_[pod]->pid(), rank);
    ASSERT_GT(process, 0);
    kill(process, signal);
  }

  const TestDirectory directory_;
  std::array<std::string, 2> logs_;
  std::array<std::unique_ptr<Pod>, 2> pods_;
};

TEST_F(PreflightJob, ShowsTheRatesOfATypeThatNobodyKnowsAndPasses) {
  Start({}, {{"MUSTER_INSTANCE_TYPE", "mine"}});
  for (const auto& pod : pods_) {
    EXPECT_EQ(pod->ExitCode(), 0) << pod->printed();
    EXPECT_THAT(pod->printed(),
                AllOf(HasSubstr("\nok       all-reduce result      exact on 4 ranks of 2 nodes\n"),
                      HasSubstr("\nwarning  all-reduce in nodes    node "),
                      HasSubstr("\nwarning  all-reduce across      "),
                      HasSubstr("not judged: nothing is known of mine\n"),
                      HasSubstr("\nok       locked memory")));
  }
}

TEST_F(PreflightJob, AFileSaysWhatIsExpectedAndJsonIsOneDocument) {
  std::ofstream(directory_ / "bandwidths") << "mine 2 0.001 0.001\n";
  Start({"--bandwidths=" + directory_ / "bandwidths", "--instance-type=mine", "--output=json"});
  for (const auto& pod : pods_) {
    EXPECT_EQ(pod->ExitCode(), 0) << pod->printed();
    const auto report = nlohmann::json::parse(ReportIn(pod->printed()), nullptr, false);
    ASSERT_TRUE(report.is_object()) << pod->printed();
    EXPECT_EQ(report.at("exitCode"), 0);
    const auto& rows = report.at("rows");
    ASSERT_GT(rows.size(), 3);
    EXPECT_EQ(rows[rows.size() - 1].at("check"), "all-reduce across");
    EXPECT_EQ(rows[rows.size() - 1].at("verdict"), "ok");
    EXPECT_EQ(rows[rows.size() - 2].at("check"), "all-reduce in nodes");
    EXPECT_EQ(rows[rows.size() - 2].at("verdict"), "ok");
  }
}

TEST_F(PreflightJob, TooSlowIsAFailureOfEveryPodWithItsTerminationMessage) {
  Start({"--node-bandwidth=1e6"});
  for (int pod = 0; pod < 2; ++pod) {
    EXPECT_EQ(pods_[pod]->ExitCode(), 78) << pods_[pod]->printed();
    EXPECT_THAT(pods_[pod]->printed(), AllOf(HasSubstr("\nfailed   all-reduce in nodes    node "),
                                             HasSubstr("; 1000000.0 GB/s is expected of "),
                                             HasSubstr("\n         fix: ")));
    const nlohmann::json message = TerminationOf(logs_[pod]);
    ASSERT_TRUE(message.is_object());
    EXPECT_EQ(message.at("cause"), "all-reduce-slow");
    EXPECT_EQ(message.at("exitCode"), 78);
    EXPECT_THAT(message.at("detail").get<std::string>(), HasSubstr("all-reduce in nodes: node "));
  }
}

TEST_F(PreflightJob, AMachinesOwnFailureIsItsPodsAlone) {
  const std::string port = FreePort();
  Pod poor(kPreflight + Flags{"--efa-devices=4", "--node-bandwidth=0.001"},
           PodEnvironment(0, 2, port));
  Pod well(kPreflight + Flags{"--node-bandwidth=0.001"}, PodEnvironment(1, 2, port));
  EXPECT_EQ(poor.ExitCode(), 78) << poor.printed();
  EXPECT_EQ(well.ExitCode(), 0) << well.printed();
  EXPECT_THAT(poor.printed(), AllOf(HasSubstr("\nfailed   EFA devices "),
                                    HasSubstr("\nok       all-reduce result ")));
}

TEST_F(PreflightJob, AKilledRankIsNamedByTheOtherPod) {
  Start({"--all-reduce-time=60s"});
  SignalRank(1, 3, SIGKILL);
  EXPECT_EQ(pods_[0]->ExitCode(), 138) << pods_[0]->printed();
  EXPECT_THAT(pods_[0]->printed(),
              AllOf(HasSubstr("\nfailed   all-reduce             rank 3 "), HasSubstr("fix: ")));
  EXPECT_EQ(TerminationOf(logs_[0]).at("rank"), 3);
  EXPECT_GE(pods_[1]->ExitCode(), 128);
}

TEST_F(PreflightJob, AStoppedRankIsNamedAndNotWaitedFor) {
  Start({"--all-reduce-time=60s", "--grace=1s"});
  SignalRank(1, 2, SIGSTOP);
  EXPECT_EQ(pods_[0]->ExitCode(), 138) << pods_[0]->printed();
  EXPECT_THAT(pods_[0]->printed(), HasSubstr("\nfailed   all-reduce             rank 2 "));
  EXPECT_EQ(TerminationOf(logs_[0]).at("rank"), 2);
  EXPECT_GE(pods_[1]->ExitCode(), 128);
}

TEST_F(PreflightJob, APodThatDoesNotComeIsNamed) {
  Pod alone(kPreflight + Flags{"--meet-timeout=1s"}, PodEnvironment(0, 2, FreePort()));
  EXPECT_EQ(alone.ExitCode(), 138);
  EXPECT_THAT(alone.printed(),
              AllOf(HasSubstr("\nfailed   all-reduce             rendezvous at "),
                    HasSubstr("2 of 4 ranks came in time; missing: ranks 2 and 3\n         fix: "),
                    HasSubstr("\nok       locked memory")));
}

TEST_F(PreflightJob, AFileThatMakesNoSenseIsNamed) {
  std::ofstream(directory_ / "bandwidths") << "p5.48xlarge fast\n";
  Start({"--bandwidths=" + directory_ / "bandwidths"});
  for (const auto& pod : pods_) {
    EXPECT_EQ(pod->ExitCode(), 78) << pod->printed();
    EXPECT_THAT(pod->printed(), HasSubstr("/bandwidths: line 1 isn't an instance type"));
  }
}

TEST_F(PreflightJob, WithoutGpusAndUnaskedItLooksAtTheMachineAlone) {
  const Ran ran = RunWorker({"preflight"}, PodEnvironment(0, 2, FreePort()));
  EXPECT_THAT(ran.printed, AllOf(HasSubstr("locked memory"), Not(HasSubstr("all-reduce"))));
}

TEST_F(PreflightJob, AsksForArgumentsThatAreThere) {
  EXPECT_EQ(RunWorker({"preflight", "--all-reduces"}).exit_code, 2);
  EXPECT_THAT(RunWorker({"preflight", "--all-reduces"}).printed, HasSubstr("all-reduce"));
  EXPECT_EQ(RunWorker({"preflight", "now"}).exit_code, 2);
  const Ran help = RunWorker({"preflight", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.printed, AllOf(HasSubstr("--efa-devices=N"), HasSubstr("--fabric-bandwidth")));
}

}  // namespace
}  // namespace muster::worker
