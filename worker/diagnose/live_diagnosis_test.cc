#include "worker/diagnose/live_diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;

absl::Time At(int seconds) { return absl::FromUnixSeconds(1'770'000'000 + seconds); }

std::string CauseOfVerdict(const LiveDiagnosis& diagnosis) {
  const std::optional<Failure> verdict = diagnosis.Verdict();
  return verdict ? std::string(CauseOf(verdict->cause).name) : "";
}

TEST(LiveDiagnosis, NothingFailedYet) {
  LiveDiagnosis diagnosis("train-0");
  diagnosis.Read({.rank = 0, .is_error = false}, At(0), "step 1 loss 9.3");
  EXPECT_FALSE(diagnosis.Verdict());
}

TEST(LiveDiagnosis, TheRankThatRaisedFirstFailedAndTheOthersOnlyNoticed) {
  LiveDiagnosis diagnosis("train-0");
  diagnosis.Read({.rank = 3}, At(10), "Traceback (most recent call last):");
  diagnosis.Read({.rank = 1}, At(11),
                 "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection "
                 "closed by peer [10.0.5.90]:41234");
  diagnosis.Read({.rank = 3}, At(12), "  File \"/workspace/train.py\", line 7, in step");
  diagnosis.Read({.rank = 3}, At(12), "KeyError: 'labels'");
  diagnosis.Ended(1, {.exit_code = 1}, At(13));
  diagnosis.Ended(3, {.exit_code = 1}, At(14));
  const std::optional<Failure> verdict = diagnosis.Verdict();
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, CauseId::kPythonException);
  EXPECT_EQ(verdict->rank, 3);
  EXPECT_EQ(verdict->host, "train-0");
  EXPECT_EQ(verdict->detail, "KeyError: 'labels' (at /workspace/train.py:7 in step)");
  EXPECT_THAT(Sentence(*verdict), HasSubstr("rank 3 on train-0: the program raised an exception"));
}

TEST(LiveDiagnosis, AnEndExplainsWhatNothingElseExplains) {
  LiveDiagnosis diagnosis("train-0");
  diagnosis.Ended(2, {.signal = SIGKILL}, At(1));
  diagnosis.Ended(0, {.signal = SIGABRT}, At(2));
  EXPECT_EQ(CauseOfVerdict(diagnosis), "killed");
  EXPECT_EQ(diagnosis.Verdict()->rank, 2);
  diagnosis.Observe({.cause = CauseId::kHostOutOfMemory, .detail = "1 kill", .rank = 2}, At(3));
  EXPECT_EQ(CauseOfVerdict(diagnosis), "host-out-of-memory");
  EXPECT_EQ(diagnosis.Verdict()->rank, 2);
}

// Launchers look at their processes every few seconds.
TEST(LiveDiagnosis, ALauncherTellsOfTheKilledRankLaterThanOthersMissIt) {
  for (const int seconds : {1, 8, 30}) {
    LiveDiagnosis diagnosis("train-0");
    const LiveDiagnosis::Output launcher = {};
    for (const char* line :
         {"Traceback (most recent call last):", "  File \"/workspace/train.py\", line 89, in main",
          "RuntimeError: [./gloo/transport/tcp/pair.cc:589] Read error "
          "[127.0.0.1]:43915: Connection reset by peer"}) {
      diagnosis.Read(launcher, At(10), line);
    }
    for (const char* line :
         {"WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 31193 closing "
          "signal SIGTERM",
          "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 3 "
          "(pid: 31189) of binary: /usr/bin/python3",
          "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
          "======================================================", "train.py FAILED",
          "------------------------------------------------------", "Failures:",
          "  <NO_OTHER_FAILURES>", "------------------------------------------------------",
          "Root Cause (first observed failure):", "[0]:", "  time      : 2026-02-02_02:40:18",
          "  host      : localhost", "  rank      : 3 (local_rank: 3)",
          "  exitcode  : -9 (pid: 31189)", "  error_file: <N/A>",
          "  traceback : Signal 9 (SIGKILL) received by PID 31189",
          "======================================================"}) {
      diagnosis.Read(launcher, At(10 + seconds), line);
    }
    diagnosis.Ended(std::nullopt, {.exit_code = 1}, At(11 + seconds));
    EXPECT_EQ(CauseOfVerdict(diagnosis), "killed") << seconds;
    EXPECT_EQ(diagnosis.Verdict()->rank, 3) << seconds;
  }
}

TEST(LiveDiagnosis, AnEndWithoutAWordIsToldWithTheLastLine) {
  LiveDiagnosis diagnosis("train-0");
  diagnosis.Read({.rank = 5, .is_error = false}, At(1), "loading shard 7");
  diagnosis.Read({.rank = 5, .is_error = false}, At(1), "  ");
  diagnosis.Ended(5, {.exit_code = 3}, At(2));
  EXPECT_EQ(CauseOfVerdict(diagnosis), "process-ended");
  EXPECT_EQ(diagnosis.Verdict()->detail, "exit code 3; its last line: loading shard 7");
}

TEST(LiveDiagnosis, WhatOthersSawOfTheFirstToEndYieldsToItsEnd) {
  for (const int signal : {SIGKILL, SIGABRT, SIGTERM, SIGSEGV}) {
    for (const int noticed : {4, 6}) {
      LiveDiagnosis diagnosis("train-0");
      diagnosis.Read({.rank = 0}, At(noticed),
                     "train-0:7:9 [0] NCCL WARN Connection closed by remote peer 10.0.0.3<4242>");
      diagnosis.Ended(3, {.signal = signal}, At(5));
      EXPECT_EQ(diagnosis.Verdict()->rank, 3) << signal << " " << noticed;
    }
  }
}

TEST(LiveDiagnosis, WhatTheFirstToEndSawOfOthersIsTold) {
  LiveDiagnosis diagnosis("train-0");
  diagnosis.Read({.rank = 0}, At(4),
                 "train-0:7:9 [0] NCCL WARN Connection closed by remote peer 10.0.0.3<4242>");
  diagnosis.Ended(0, {.signal = SIGABRT}, At(5));
  EXPECT_EQ(CauseOfVerdict(diagnosis), "connection-closed");
}

TEST(LiveDiagnosis, AProgressBarDoesNotHideWhatIsPrintedAfterIt) {
  LiveDiagnosis diagnosis("train-0");
  diagnosis.Read({.rank = 1}, At(1), " 50%|##  |\r 75%|### |\rTraceback (most recent call last):");
  diagnosis.Read({.rank = 1}, At(1), "  File \"/workspace/train.py\", line 7, in step");
  diagnosis.Read({.rank = 1}, At(1), "KeyError: 'labels'");
  EXPECT_EQ(CauseOfVerdict(diagnosis), "python-exception");
}

TEST(LiveDiagnosis, AnEndOfTheLauncherCountsWhereItsRanksOnlyWarn) {
  LiveDiagnosis diagnosis("train-0");
  for (int i = 1; i < 9; ++i) {
    diagnosis.Read(
        {}, At(i),
        i == 1 ? "OSError: [Errno 5] Input/output error" : Concat("step ", i, " loss 9.3"));
  }
  ASSERT_FALSE(diagnosis.Verdict());
  diagnosis.Ended(std::nullopt, {.exit_code = 1}, At(9));
  EXPECT_EQ(CauseOfVerdict(diagnosis), "process-ended");
  EXPECT_FALSE(diagnosis.Verdict()->rank);
}

TEST(LiveDiagnosis, WhatTheLauncherAroundTheRanksPrintsIsReadByItsPrefixes) {
  LiveDiagnosis diagnosis("train-0");
  const LiveDiagnosis::Output torchrun = {};
  for (const std::string_view line :
       {"[rank5]: Traceback (most recent call last):", "[rank5]: ValueError: x",
        "E0302 10:41:18.8 7 api.py:874] failed (exitcode: 1) local_rank: 5 (pid: 192)"}) {
    diagnosis.Read(torchrun, At(1), line);
  }
  diagnosis.Ended(std::nullopt, {.exit_code = 1}, At(2));
  EXPECT_EQ(CauseOfVerdict(diagnosis), "python-exception");
  EXPECT_EQ(diagnosis.Verdict()->rank, 5);
  EXPECT_EQ(diagnosis.Explain().findings.size(), 1U);
}

// As torchrun 1.13 tells it, whose ranks don't say who they are: of those that it finds ended, it
// calls the lowest the first.
void ReadTorchrun(std::string_view raised, int exit_of_rank_3, LiveDiagnosis* diagnosis) {
  const auto read = [&](std::string_view line) { diagnosis->Read({}, At(1), line); };
  for (const std::string_view exception :
       {raised, std::string_view("RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection "
                                 "closed by peer [127.0.0.1]:22164")}) {
    if (exception.empty()) continue;
    read("Traceback (most recent call last):");
    read("  File \"/workspace/train.py\", line 99, in <module>");
    read(exception);
  }
  read(
      "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 "
      "(pid: 24411) of binary: /usr/bin/python3");
  read("============================================================");
  read("Failures:");
  for (const int rank : {1, 2, 3, 0}) {
    if (rank == 0) read("Root Cause (first observed failure):");
    read(Concat("[", rank, "]:"));
    read("  time      : 2026-11-24_20:22:44");
    read("  host      : train-0");
    read(Concat("  rank      : ", rank, " (local_rank: ", rank, ")"));
    read(Concat("  exitcode  : ", rank == 3 ? exit_of_rank_3 : 1, " (pid: ", 24411 + rank, ")"));
    if (rank == 3 && exit_of_rank_3 == -SIGKILL) {
      read("  traceback : Signal 9 (SIGKILL) received by PID 24414");
    }
  }
  read("============================================================");
  diagnosis->Ended(std::nullopt, {.exit_code = 1}, At(2));
}

TEST(LiveDiagnosis, OfEndsThatTorchrunSawAtOnceTheOneThatSaysMoreCounts) {
  LiveDiagnosis diagnosis("train-0");
  ReadTorchrun("", -SIGKILL, &diagnosis);
  EXPECT_EQ(CauseOfVerdict(diagnosis), "killed");
  EXPECT_EQ(diagnosis.Verdict()->rank, 3);
}

// Of what a killed rank left behind some saw its end before torchrun looked, and torchrun called
// the lowest of these the first. How long it took to look is no matter.
TEST(LiveDiagnosis, WhoTorchrunFoundKilledComesBeforeWhoOnlyLostHim) {
  absl::Time time;
  ASSERT_TRUE(absl::ParseTime(absl::RFC3339_full, "2026-11-27T18:14:48.2Z", &time, nullptr));
  for (const absl::Duration pause : {absl::ZeroDuration(), absl::Seconds(1), absl::Seconds(12)}) {
    LiveDiagnosis diagnosis("train-0");
    const auto read = [&](std::string_view line) { diagnosis.Read({}, time, line); };
    for (const std::string_view exception :
         {"RuntimeError: [./gloo/transport/tcp/pair.cc:589] Read error [127.0.0.1]:12694: "
          "Connection reset by peer",
          "RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer "
          "[127.0.0.1]:39342"}) {
      read("Traceback (most recent call last):");
      read("  File \"/workspace/train.py\", line 89, in main");
      read("    loss.backward()");
      read(exception);
    }
    time += pause;
    read(
        "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 1776 closing signal "
        "SIGTERM");
    read(
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 1 "
        "(pid: 1778) of binary: /usr/bin/python3");
    read("Traceback (most recent call last):");
    read("  File \"/usr/lib/python3/dist-packages/torch/distributed/run.py\", line 762, in main");
    read("    raise ChildFailedError(");
    read("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ");
    read("============================================================");
    read("/workspace/train.py FAILED");
    read("Failures:");
    for (const int rank : {2, 3, 4, 1}) {
      if (rank == 1) read("Root Cause (first observed failure):");
      read(Concat("[", rank, "]:"));
      read("  time      : 2026-11-27_18:14:50");
      read("  host      : localhost");
      read(Concat("  rank      : ", rank, " (local_rank: ", rank, ")"));
      read(Concat("  exitcode  : ", rank == 3 ? -SIGKILL : 1, " (pid: ", 1777 + rank, ")"));
      read("  error_file: <N/A>");
      read(rank == 3 ? "  traceback : Signal 9 (SIGKILL) received by PID 1780"
                     : "  traceback : To enable traceback see: "
                       "https://pytorch.org/docs/stable/elastic/errors.html");
    }
    read("============================================================");
    diagnosis.Ended(std::nullopt, {.exit_code = 1}, time);
    EXPECT_EQ(CauseOfVerdict(diagnosis), "killed") << pause;
    EXPECT_EQ(diagnosis.Verdict()->rank, 3) << pause;
  }
}

TEST(LiveDiagnosis, WhoRaisedIsNotGuessedWhereSeveralFailedAtOnce) {
  LiveDiagnosis diagnosis("train-0");
  ReadTorchrun("KeyError: 'labels'", 1, &diagnosis);
  EXPECT_EQ(CauseOfVerdict(diagnosis), "python-exception");
  EXPECT_FALSE(diagnosis.Verdict()->rank);
}

TEST(LiveDiagnosis, AHangIsOfTheRankThatTheLauncherFoundBehind) {
  LiveDiagnosis diagnosis("train-0");
  diagnosis.Observe({.cause = CauseId::kProcessHung, .detail = "no progress for 40 s", .rank = 6},
                    At(50));
  EXPECT_EQ(diagnosis.Verdict()->rank, 6);
}

TEST(LiveDiagnosis, WhatTrainingWentOnAfterIsNoFailure) {
  LiveDiagnosis diagnosis("train-0");
  diagnosis.Read({.rank = 0}, At(1), "OSError: [Errno 5] Input/output error");
  EXPECT_EQ(CauseOfVerdict(diagnosis), "storage-failed");
  for (int i = 2; i < 9; ++i) diagnosis.Read({.rank = 0}, At(i), Concat("step ", i, " loss 9.3"));
  EXPECT_FALSE(diagnosis.Verdict());
}

TEST(LiveDiagnosis, AnyNumberOfOutputsAndEndsIsBounded) {
  LiveDiagnosis diagnosis("train-0");
  for (int rank = 0; rank < 1000; ++rank) {
    diagnosis.Read({.rank = rank}, At(rank), "RuntimeError: CUDA out of memory.");
    diagnosis.Ended(rank, {.exit_code = 1}, At(rank));
  }
  const Explanation explanation = diagnosis.Explain();
  EXPECT_LE(explanation.findings.size(), LiveDiagnosis::kMaxOutputs + LogReader::kMaxObservations);
  EXPECT_EQ(explanation.left_out, 1000 - static_cast<int64_t>(LogReader::kMaxObservations));
}

}  // namespace
}  // namespace muster::worker
