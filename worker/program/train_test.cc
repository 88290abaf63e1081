// Whole jobs of sixteen processes of the program, undisturbed and disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <charconv>
#include <numeric>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "worker/communicator/communicator.h"
#include "worker/program/test_job.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;
using testing::Not;

#ifdef MUSTER_SANITIZED
constexpr int kRanks = 4;
#else
constexpr int kRanks = 16;
#endif
constexpr int kVictim = kRanks / 2 + 1;

// Sums over ranks are added up in another order than those of one process, and AdamW makes more of
// that with each step.
constexpr double kTolerance = 1e-4;
// From 5.55 (257 tokens) at the start.
constexpr double kReached = 1.2;

// A job whose pods have `processes` ranks each.
class TrainingJob {
 public:
  TrainingJob(const JobDirectory& directory, const std::string& name, Flags flags, int processes)
      : directory_(directory), name_(name), flags_(std::move(flags)), processes_(processes) {
    flags_ = directory.TrainFlags() +
             Flags{"--events=" + events(), "--meet-timeout=60s", "--replace-timeout=60s"} + flags_;
  }

  std::string events() const { return directory_ / (name_ + "-events"); }
  std::string termination_log(int pod) const {
    return directory_ / absl::StrCat("termination-", name_, pod);
  }
  int pods() const { return kRanks / processes_; }
  Pod& pod(int number) { return *running_[number]; }
  Pod& pod_of(int rank) { return pod(rank / processes_); }
  void SignalRank(int rank, int signal) {
    const pid_t process = RankProcessOf(pod_of(rank).pid(), rank);
    ASSERT_GT(process, 0) << "rank " << rank << " doesn't run";
    ASSERT_EQ(kill(process, signal), 0);
  }

  void set_master(const std::string& master) { master_ = master; }

  // `prefix` are words before the program's.
  void StartPod(int number, const Flags& prefix = {}) {
    MakeTerminationLog(directory_, absl::StrCat(name_, number));
    running_[number] = nullptr;
    running_[number] = std::make_unique<Pod>(
        prefix + Flags{MUSTER_WORKER} + flags_ +
            Flags{absl::StrCat("--termination-log=", termination_log(number))},
        PodEnvironment(number, pods(), port_, processes_, master_));
  }

  void Start() {
    for (int number = 0; number < pods(); ++number) StartPod(number);
  }

  // Every rank but those of pod `but` sees that generation end in time, and its word contains
  // `named`.
  void ExpectAllNotice(absl::Time since, absl::Duration limit, const std::string& generation,
                       int but, const std::string& named) {
    for (auto& [number, each] : running_) {
      if (number == but) continue;
      for (int rank = number * processes_; rank < (number + 1) * processes_; ++rank) {
        const std::string text =
            absl::StrCat("[rank ", rank, "] muster-worker: generation ", generation, " is over: ");
        const absl::Duration left = limit - (absl::Now() - since);
        ASSERT_TRUE(each->Prints(text, std::max(left, absl::ZeroDuration())))
            << "rank " << rank << " noticed nothing within " << limit << ":\n"
            << each->printed();
        const std::string printed = each->printed();
        const size_t at = printed.find(text) + text.size();
        EXPECT_THAT(printed.substr(at, printed.find('\n', at) - at), HasSubstr(named));
      }
    }
  }

  void ExpectAllEndWith(int exit_code) {
    for (auto& [number, each] : running_) {
      EXPECT_EQ(each->ExitCode(), exit_code) << "pod " << number << ":\n" << each->printed();
    }
  }

  // Where the generation after the disturbed one went on.
  int64_t ResumedAfter() {
    const std::string printed = pod(0).printed();
    constexpr std::string_view kText = "resuming after step ";
    const size_t at = printed.rfind(kText);
    int64_t step = -1;
    if (at == std::string::npos) return step;
    std::from_chars(printed.data() + at + kText.size(), printed.data() + printed.size(), step);
    return step;
  }

 private:
  const JobDirectory& directory_;
  const std::string name_;
  Flags flags_;
  const int processes_;
  const std::string port_ = FreePort();
  std::string master_ = "127.0.0.1";
  std::map<int, std::unique_ptr<Pod>> running_;
};

class Training : public testing::Test {
 protected:
  static void SetUpTestSuite() { directory_ = new JobDirectory(); }
  static void TearDownTestSuite() { delete directory_; }

  // What an undisturbed run of all ranks tells.
  static const std::map<int64_t, double>& Undisturbed(const std::string& sharding) {
    static std::map<std::string, std::map<int64_t, double>> known;
    if (!known.contains(sharding)) {
      TrainingJob job(*directory_, "undisturbed-" + sharding, {"--sharding=" + sharding},
                      kRanks / 2);
      job.Start();
      job.ExpectAllEndWith(0);
      known[sharding] = Losses(job.events());
    }
    return known[sharding];
  }

  static Flags Checkpoints(const std::string& name) {
    return {"--checkpoints=" + *directory_ / ("checkpoints-" + name), "--checkpoint-every=5"};
  }

  static JobDirectory* directory_;
};

JobDirectory* Training::directory_ = nullptr;

class Sharded : public Training, public testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Sharded, testing::Values("ddp", "zero1", "zero3"),
                         [](const auto& info) { return info.param; });

TEST_P(Sharded, SixteenProcessesTrainAsOneDoesAndReachItsLoss) {
  const std::string events = *directory_ / "alone-events";
  if (!std::filesystem::exists(events)) {
    const Ran ran = RunWorker(directory_->TrainFlags() + Flags{"--events=" + events});
    ASSERT_EQ(ran.exit_code, 0) << ran.printed;
  }
  const std::map<int64_t, double> alone = Losses(events);
  const std::map<int64_t, double>& together = Undisturbed(GetParam());
  ASSERT_EQ(alone.size(), 40);
  ASSERT_EQ(together.size(), 40);
  for (const auto& [step, loss] : alone) EXPECT_NEAR(together.at(step), loss, kTolerance) << step;
  EXPECT_GT(together.at(1), 5);
  EXPECT_LT(together.at(40), kReached);
}

TEST_F(Training, AKilledRankIsNoticedByAllWithinTwoSecondsAndReplaced) {
  TrainingJob job(*directory_, "killed", Checkpoints("killed"), 1);
  job.Start();
  ASSERT_TRUE(job.pod(0).Prints("checkpoint of step 10 is committed")) << job.pod(0).printed();
  const absl::Time killed = absl::Now();
  job.SignalRank(kVictim, SIGKILL);
  job.ExpectAllNotice(killed, absl::Seconds(2), "1", kVictim, absl::StrCat("rank ", kVictim, " "));
  EXPECT_EQ(job.pod(kVictim).ExitCode(), 137);
  const auto message = TerminationOf(job.termination_log(kVictim));
  EXPECT_EQ(message.at("cause"), "killed");
  EXPECT_EQ(message.at("rank"), kVictim);
  job.StartPod(kVictim);
  job.ExpectAllEndWith(0);
  EXPECT_GE(job.ResumedAfter(), 10);
  EXPECT_EQ(job.ResumedAfter() % 5, 0);
  EXPECT_EQ(Losses(job.events()).at(40), Undisturbed("ddp").at(40)) << "to the last bit";
}

TEST_F(Training, AStoppedRankIsNoticedByAllWithinTenSecondsAndReplaced) {
  TrainingJob job(*directory_, "stopped", Checkpoints("stopped") + Flags{"--sharding=zero3"}, 1);
  job.Start();
  ASSERT_TRUE(job.pod(0).Prints("checkpoint of step 10 is committed")) << job.pod(0).printed();
  const absl::Time stopped = absl::Now();
  job.SignalRank(kVictim, SIGSTOP);
  job.ExpectAllNotice(stopped, absl::Seconds(10), "1", kVictim,
                      absl::StrCat("rank ", kVictim, " "));
  // As the kubelet ends a container.
  job.pod(kVictim).Signal(SIGKILL);
  EXPECT_EQ(job.pod(kVictim).ExitCode(), 137);
  job.StartPod(kVictim);
  job.ExpectAllEndWith(0);
  EXPECT_GE(job.ResumedAfter(), 10);
  EXPECT_EQ(Losses(job.events()).at(40), Undisturbed("zero3").at(40)) << "to the last bit";
}

TEST_F(Training, ASlowRankIsWaitedFor) {
  TrainingJob job(*directory_, "slow", {}, kRanks / 2);
  job.Start();
  ASSERT_TRUE(job.pod(0).Prints("step 2/40")) << job.pod(0).printed();
  for (int i = 0; i < 3; ++i) {
    job.SignalRank(kVictim, SIGSTOP);
    absl::SleepFor(absl::Seconds(1));
    job.SignalRank(kVictim, SIGCONT);
    absl::SleepFor(absl::Milliseconds(100));
  }
  job.ExpectAllEndWith(0);
  EXPECT_THAT(job.pod(0).printed(), Not(HasSubstr(" is over")));
  EXPECT_EQ(Losses(job.events()).at(40), Undisturbed("ddp").at(40));
}

TEST_F(Training, SigtermOfOnePodSavesAndAnotherStartGoesOnAtHalfTheSize) {
  const Flags flags = Checkpoints("sigterm") + Flags{"--sharding=zero1", "--checkpoint-every=0"};
  TrainingJob job(*directory_, "sigterm", flags, kRanks / 2);
  job.Start();
  ASSERT_TRUE(job.pod(0).Prints("step 5/40")) << job.pod(0).printed();
  job.pod(1).Signal(SIGTERM);
  job.ExpectAllEndWith(143);
  for (const int pod : {0, 1}) {
    const auto message = TerminationOf(job.termination_log(pod));
    EXPECT_EQ(message.at("cause"), "terminated");
    EXPECT_THAT(message.at("detail").get<std::string>(), HasSubstr("checkpoint is committed"));
  }
  const std::string events = *directory_ / "half-events";
  Pod half(Flags{MUSTER_WORKER} + directory_->TrainFlags() + flags + Flags{"--events=" + events},
           PodEnvironment(0, 1, FreePort(), kRanks / 2));
  EXPECT_EQ(half.ExitCode(), 0) << half.printed();
  EXPECT_THAT(half.printed(), HasSubstr("resuming after step "));
  EXPECT_NEAR(Losses(events).at(40), Undisturbed("zero1").at(40), kTolerance);
}

TEST_F(Training, MissingRanksAreNamed) {
  TrainingJob job(*directory_, "missing", {"--meet-timeout=10s"}, kRanks / 2);
  job.StartPod(0);
  EXPECT_EQ(job.pod(0).ExitCode(), 138) << job.pod(0).printed();
  const auto message = TerminationOf(job.termination_log(0));
  EXPECT_EQ(message.at("cause"), "rendezvous-timeout");
  std::vector<int> missing(kRanks / 2);
  std::iota(missing.begin(), missing.end(), kRanks / 2);
  EXPECT_THAT(message.at("detail").get<std::string>(),
              HasSubstr(absl::StrCat("missing: ", RankList(missing))));
}

// Two network namespaces and the cable between them. Needs root.
class Cable {
 public:
  Cable()
      : names_{absl::StrCat("muster-", getpid(), "-a"), absl::StrCat("muster-", getpid(), "-b")} {
    for (const std::string& name : names_) Ip({"netns", "add", name});
    Ip({"link", "add", "muster0", "netns", names_[0], "type", "veth", "peer", "name", "muster0",
        "netns", names_[1]});
    for (int end : {0, 1}) {
      Ip({"-n", names_[end], "link", "set", "lo", "up"});
      Ip({"-n", names_[end], "address", "add", address(end) + "/24", "dev", "muster0"});
      Ip({"-n", names_[end], "link", "set", "muster0", "up"});
    }
  }
  ~Cable() {
    for (const std::string& name : names_) RunIp({"netns", "delete", name});
  }

  bool works() const { return works_; }
  const std::string& why() const { return why_; }
  static std::string address(int end) { return absl::StrCat("10.213.7.", end + 1); }
  Flags Inside(int end) const { return {"ip", "netns", "exec", names_[end]}; }
  void Cut() { Ip({"-n", names_[0], "link", "set", "muster0", "down"}); }
  void Mend() { Ip({"-n", names_[0], "link", "set", "muster0", "up"}); }

 private:
  static Ran RunIp(const Flags& words) {
    Pod ip(Flags{"ip"} + words, {});
    const int exit_code = ip.ExitCode();
    return {exit_code, ip.printed()};
  }
  void Ip(const Flags& words) {
    const Ran ran = RunIp(words);
    if (ran.exit_code == 0) return;
    works_ = false;
    absl::StrAppend(&why_, "ip ", absl::StrJoin(words, " "), ": ", ran.printed);
  }

  const std::array<std::string, 2> names_;
  bool works_ = true;
  std::string why_;
};

TEST_F(Training, ACutNetworkIsNoticedByAllWithinTenSecondsAndMended) {
  Cable cable;
  ASSERT_TRUE(cable.works()) << "this test needs root, iproute2 and network namespaces:\n"
                             << cable.why();
  TrainingJob job(*directory_, "cut", Checkpoints("cut") + Flags{"--sharding=zero1"}, kRanks / 2);
  job.set_master(Cable::address(0));
  for (const int pod : {0, 1}) job.StartPod(pod, cable.Inside(pod));
  ASSERT_TRUE(job.pod(0).Prints("checkpoint of step 10 is committed")) << job.pod(0).printed();
  const absl::Time cut = absl::Now();
  cable.Cut();
  job.ExpectAllNotice(cut, absl::Seconds(10), "1", -1, "rank");
  cable.Mend();
  ASSERT_TRUE(cable.works()) << cable.why();
  job.ExpectAllEndWith(0);
  EXPECT_GE(job.ResumedAfter(), 10);
  EXPECT_EQ(Losses(job.events()).at(40), Undisturbed("zero1").at(40)) << "to the last bit";
}

}  // namespace
}  // namespace muster::worker
