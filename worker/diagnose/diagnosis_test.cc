#include "worker/diagnose/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "worker/diagnose/failure.h"
#include "worker/diagnose/report.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr char kLogs[] = "worker/diagnose/logs/";

Explanation Explain(const std::vector<std::string>& files) {
  Diagnosis diagnosis;
  for (const std::string& file : files) {
    const absl::Status status = diagnosis.ReadFile(kLogs + file);
    EXPECT_TRUE(status.ok()) << status;
  }
  return diagnosis.Explain();
}

// The same of texts: the first is file "0", and so on.
Explanation ExplainTexts(const std::vector<std::string>& texts) {
  Diagnosis diagnosis;
  for (size_t i = 0; i < texts.size(); ++i) diagnosis.ReadText(Concat(i), texts[i]);
  return diagnosis.Explain();
}

// "first security-group-egress rank 0 handshake_node_0.log:5", for each finding.
std::vector<std::string> Summary(const Explanation& explanation) {
  std::vector<std::string> lines;
  for (const Finding& finding : explanation.findings) {
    const Observation& seen = finding.observation;
    const std::string file = finding.file.substr(finding.file.rfind('/') + 1);
    const std::string rank = seen.rank ? Concat(" rank ", *seen.rank) : "";
    lines.push_back(Concat(RelationName(finding.relation), " ", CauseOf(seen.cause).name, rank, " ",
                           file, ":", seen.line));
  }
  return lines;
}

TEST(Diagnosis, AHealthyLogShowsNothing) {
  EXPECT_THAT(Summary(Explain({"healthy.log"})), IsEmpty());
}

TEST(Diagnosis, WhoWaitsIsNamedNeitherForThoseBehindNorForWhatWentWrongMeanwhile) {
  const std::string hang =
      "[rank0]:[E302 10:42:31.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective "
      "operation timeout: WorkNCCL(SeqNum=92, OpType=ALLREDUCE) ran for 600031 milliseconds before "
      "timing out.\n";
  EXPECT_THAT(Summary(ExplainTexts({hang + "\t [3, 5] finished collective #91, but didn't join "
                                           "collective #92 (count from 1)\n"})),
              ElementsAre("first collective-timeout 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({hang + "torch.OutOfMemoryError: CUDA out of memory.\n\n\n"})),
              ElementsAre("first out-of-memory 0:2", "consequence collective-timeout rank 0 0:1"));
}

TEST(Diagnosis, AFailedHandshakeAloneNamesTheUsualCause) {
  const Explanation explanation = Explain({"handshake_node_0.log"});
  EXPECT_THAT(Summary(explanation),
              ElementsAre("first handshake-failed rank 0 handshake_node_0.log:5"));
  const Observation& seen = explanation.findings.at(0).observation;
  EXPECT_EQ(seen.host, "train-node-0-0");
  EXPECT_EQ(seen.count, 3);
  EXPECT_THAT(CauseOf(seen.cause).fix, HasSubstr("egress rule"));
}

TEST(Diagnosis, AFailedHandshakeWithAPeerThatIsAliveIsTheSecurityGroups) {
  EXPECT_THAT(Summary(Explain({"handshake_node_0.log", "handshake_node_1_alive.log"})),
              ElementsAre("first security-group-egress rank 0 handshake_node_0.log:5",
                          "also security-group-egress rank 1 handshake_node_1_alive.log:2"));
}

TEST(Diagnosis, AFailedHandshakeWithAPeerThatCrashedIsItsConsequence) {
  const Explanation explanation = Explain({"handshake_node_0.log", "handshake_node_1_crashed.log"});
  EXPECT_THAT(Summary(explanation),
              ElementsAre("first program-fault rank 1 handshake_node_1_crashed.log:4",
                          "consequence peer-lost rank 0 handshake_node_0.log:5"));
}

TEST(Diagnosis, OutOfMemoryOnAGpuThatOthersFillNamesBothCauses) {
  const Explanation explanation = Explain({"out_of_memory_shared.log"});
  EXPECT_THAT(Summary(explanation),
              ElementsAre("first memory-held-by-others rank 3 out_of_memory_shared.log:8"));
  const std::string text = ExplanationText(explanation);
  EXPECT_THAT(text, HasSubstr("30.99 GiB of the GPU's 39.49 GiB belong to other processes"));
  EXPECT_THAT(text, HasSubstr("one whole weight, 4096 x 14336 in bf16"));
  EXPECT_THAT(text, HasSubstr("Start one process per GPU"));
  EXPECT_THAT(text, HasSubstr("partition the weights"));
  EXPECT_THAT(text, HasSubstr("(node; retry, exit code 138)"));
}

TEST(Diagnosis, APodTurnedAwayByItsNodeIsNotBlamedOnItsScheduling) {
  EXPECT_THAT(Summary(Explain({"pod_no_healthy_devices.txt"})),
              ElementsAre("first no-healthy-devices pod_no_healthy_devices.txt:19",
                          "consequence volume-not-mounted pod_no_healthy_devices.txt:20",
                          "warning grace-period-short pod_no_healthy_devices.txt:14"));
}

TEST(Diagnosis, WhatAJobWentThroughBeforeItSucceededIsNoFailure) {
  EXPECT_THAT(Summary(Explain({"job_that_succeeded.txt"})), IsEmpty());
}

TEST(Diagnosis, AnOutOfMemoryKillIsDatedByItsEndAndWhatTheKubeletGotOverIsLeftOut) {
  const Explanation explanation = Explain({"pod_oom_killed.txt"});
  EXPECT_THAT(Summary(explanation), ElementsAre("first host-out-of-memory pod_oom_killed.txt:8"));
  EXPECT_EQ(explanation.findings.at(0).observation.host, "train-2");
  EXPECT_EQ(absl::FormatTime("%H:%M:%S", *explanation.findings.at(0).time, absl::UTCTimeZone()),
            "11:10:02");
}

TEST(Diagnosis, TheSummaryOfTorchrunNamesRankAndHost) {
  const Explanation explanation = Explain({"torchrun_summary.log"});
  EXPECT_THAT(Summary(explanation), ElementsAre("first killed rank 5 torchrun_summary.log:16"));
  EXPECT_EQ(explanation.findings.at(0).observation.host, "train-node-0-5");
  EXPECT_EQ(absl::FormatTime("%H:%M:%S", *explanation.findings.at(0).time, absl::UTCTimeZone()),
            "11:59:58");
}

TEST(Diagnosis, TheRankThatIsBehindFailed) {
  const Explanation explanation = Explain({"watchdog.log"});
  EXPECT_THAT(Summary(explanation),
              ElementsAre("first collective-timeout rank 2 watchdog.log:1",
                          "consequence collective-timeout rank 2 watchdog.log:3"));
  EXPECT_THAT(
      explanation.findings.at(0).observation.detail,
      HasSubstr("rank 2 is behind: it had enqueued 7752 collectives of its group when others "
                "had enqueued 7755"));
}

TEST(Diagnosis, TheEarliestOfSeveralRanksFailedFirst) {
  const std::string closed =
      "[2026-01-14 09:20:43] train-0:194:710 [0] misc/socket.cc:538 NCCL WARN Net : Connection "
      "closed "
      "by remote peer train-2<47861>\n";
  const std::string asserted =
      "[2026-01-14 09:20:40] [rank2]: RuntimeError: CUDA error: device-side assert triggered\n";
  const std::string later =
      "[2026-01-14 09:21:40] [rank1]: OSError: [Errno 28] No space left on device\n";
  EXPECT_THAT(Summary(ExplainTexts({closed, later, asserted})),
              ElementsAre("first program-fault rank 2 2:1", "consequence connection-closed 0:1",
                          "also disk-full rank 1 1:1"));
}

TEST(Diagnosis, WhatARankSawOfOthersYieldsToACauseWithinSeconds) {
  const auto closed = [](std::string_view clock) {
    return Concat("[2026-01-14 ", clock, "] [rank0]: NCCL WARN Connection reset by peer\n");
  };
  const std::string full = "[2026-01-14 09:20:40] [rank1]: No space left on device\n";
  EXPECT_THAT(
      Summary(ExplainTexts({closed("09:20:37"), full})),
      ElementsAre("first disk-full rank 1 1:1", "consequence connection-closed rank 0 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({closed("09:20:10"), full})),
              ElementsAre("first connection-closed rank 0 0:1", "also disk-full rank 1 1:1"));
}

TEST(Diagnosis, WhatWasSeenLongAfterIsAnotherStory) {
  EXPECT_THAT(Summary(ExplainTexts({"[2026-01-14 09:00:00] [rank1]: No space left on device\n",
                                    "[2026-01-14 10:00:00] [rank0]: NCCL WARN Broken pipe\n"})),
              ElementsAre("first disk-full rank 1 0:1", "also connection-closed rank 0 1:1"));
}

TEST(Diagnosis, TimesWithoutAYearAreComparedAcrossTheTurnOfTheYear) {
  EXPECT_THAT(
      Summary(ExplainTexts({"[2026-01-01 00:00:01] [rank0]: NCCL WARN Broken pipe\n",
                            "[rank1]:E1231 23:59:58.5 7 x] No space left on device\n"})),
      ElementsAre("first disk-full rank 1 1:1", "consequence connection-closed rank 0 0:1"));
}

TEST(Diagnosis, AWarningNeverExplainsAFailure) {
  EXPECT_THAT(
      Summary(ExplainTexts({"train-0:1:2 [0] NCCL INFO Using network Socket\n"
                            "[rank0]: CUDA error: device-side assert triggered\n"})),
      ElementsAre("first program-fault rank 0 0:2", "warning network-is-socket rank 0 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({"train-0:1:2 [0] NCCL INFO Using network Socket\n"})),
              ElementsAre("warning network-is-socket 0:1"));
}

TEST(Diagnosis, TheWorkersOwnTerminationMessageCounts) {
  const Failure failure{
      .cause = CauseId::kGpuFault, .detail = "Xid 79", .rank = 3, .host = "train-3"};
  const Explanation explanation =
      ExplainTexts({Concat("      Message:      ", TerminationMessage(failure), "\n")});
  EXPECT_THAT(Summary(explanation), ElementsAre("first gpu-fault rank 3 0:1"));
  EXPECT_EQ(explanation.findings.at(0).observation.host, "train-3");
}

TEST(Diagnosis, EventsOfOnePodSayNothingOfAnother) {
  const std::string pods =
      "Name:  train-0\nEvents:\n"
      "  Warning  FailedScheduling  9m  default-scheduler  0/5 nodes are available: 5 Insufficient "
      "nvidia.com/gpu.\n"
      "Name:  train-1\nEvents:\n"
      "  Warning  FailedScheduling  9m  default-scheduler  0/5 nodes are available: 5 Insufficient "
      "nvidia.com/gpu.\n"
      "  Normal   Scheduled  8m  default-scheduler  Successfully assigned default/train-1 to "
      "node-1\n";
  const Explanation explanation = ExplainTexts({pods});
  EXPECT_THAT(Summary(explanation), ElementsAre("first unschedulable-capacity 0:3"));
  EXPECT_EQ(explanation.findings.at(0).observation.host, "train-0");
}

TEST(Diagnosis, WhatTrainingWentOnAfterIsAWarningUnlessItsProcessThenEnded) {
  std::string text = "OSError: [Errno 5] Input/output error\n";
  for (int step = 0; step < 8; ++step) Append(&text, "step ", step, " loss 9.3\n");
  EXPECT_THAT(Summary(ExplainTexts({text})), ElementsAre("warning storage-failed 0:1"));
  text += "E0302 10:41:18.8 7 api.py:874] failed (exitcode: 1) local_rank: 2 (pid: 192)\n";
  EXPECT_THAT(Summary(ExplainTexts({text})), ElementsAre("first storage-failed rank 2 0:1"));
}

TEST(Diagnosis, WhatWasCaughtLongBeforeAnEndSaysNothingOfIt) {
  std::string text = "OSError: [Errno 5] Input/output error\n";
  for (int step = 0; step < 8; ++step) Append(&text, "step ", step, " loss 9.3\n");
  EXPECT_THAT(Summary(ExplainTexts({text + "torch.OutOfMemoryError: CUDA out of memory.\n\n\n"
                                           "api.py:874] failed (exitcode: 1) local_rank: 2\n"})),
              ElementsAre("first out-of-memory rank 2 0:10", "warning storage-failed rank 2 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({text + "[ERROR] [launch.py:325] exits with return code = -9"})),
              ElementsAre("first killed 0:10", "warning storage-failed 0:1"));
}

TEST(Diagnosis, AnInterruptIsWhyALauncherEndsItsRanks) {
  const std::string end =
      "W0211 14:21:33.4 8 torch/distributed/elastic/agent/server/api.py:719] Received "
      "Signals.SIGTERM death signal, shutting down workers\n";
  const std::string interrupt = "[rank1]: KeyboardInterrupt\n\n\n";
  EXPECT_THAT(Summary(ExplainTexts({end})), ElementsAre("first terminated 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({"^C\n" + end})), ElementsAre("first interrupted 0:2"));
  EXPECT_THAT(Summary(ExplainTexts({end + interrupt})).front(), "first interrupted rank 1 0:2");
  EXPECT_THAT(Summary(ExplainTexts({interrupt + "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT "
                                                "2025-01-01T20:00:00 DUE TO TIME LIMIT ***\n"}))
                  .front(),
              "first time-limit rank 1 0:4");
  EXPECT_THAT(Summary(ExplainTexts({interrupt + "FileNotFoundError: pymp-1\n"})).front(),
              "first interrupted rank 1 0:1");
  EXPECT_THAT(Summary(ExplainTexts({"Traceback (most recent call last):\n"
                                    "  File \"/a/t.py\", line 5, in <module>\n"
                                    "KeyboardInterrupt\n\n"
                                    "During handling of the above exception, another exception "
                                    "occurred:\n\n"
                                    "Traceback (most recent call last):\n"
                                    "  File \"/a/t.py\", line 9, in <module>\n"
                                    "SignalException: Process 40 got signal: 15\n"})),
              ElementsAre("first interrupted 0:9"));
}

TEST(Diagnosis, WhatTheLauncherToldARankIsNotWhyItEnded) {
  EXPECT_THAT(Summary(ExplainTexts({"W0302 10:43:09.1 40 api.py:900] Sending process 77 closing "
                                    "signal SIGTERM\n"
                                    "[rank0]: SignalException: Process 77 got signal: 15\n"
                                    "[rank1]: ZeroDivisionError: division by zero\n\n\n"
                                    "E0302 10:43:09.4 40 api.py:869] failed (exitcode: 1) "
                                    "local_rank: 1 (pid: 78)\n"}))
                  .front(),
              "first python-exception rank 1 0:3");
}

TEST(Diagnosis, WhatAProgramRaisesAsItIsToldToEndIsNoCause) {
  EXPECT_THAT(Summary(ExplainTexts({"W0302 10:43:09.1 1 api.py:719] Received Signals.SIGTERM death "
                                    "signal, shutting down workers\n"
                                    "FileNotFoundError: [Errno 2] No such file or directory\n"}))
                  .front(),
              "first terminated 0:1");
}

TEST(Diagnosis, AShellsWordIsALineOfItsOwn) {
  EXPECT_THAT(Summary(ExplainTexts({"step 1\nKilled\n"})), ElementsAre("first killed 0:2"));
  EXPECT_THAT(Summary(ExplainTexts({"Killed two birds\n"})), IsEmpty());
}

TEST(Diagnosis, AnEndThatCameBeforeASignalIsntExplainedByIt) {
  EXPECT_THAT(Summary(ExplainTexts({"[launch.py:325] exits with return code = -11\n"
                                    "Received 15 death signal, shutting down workers\n"}))
                  .front(),
              "first program-crash 0:1");
}

TEST(Diagnosis, RecordsOfAContainerRuntimeAreTheLinesThatTheyHold) {
  const auto record = [](std::string_view line) {
    return Concat(R"({"log":")", line, R"(\n","stream":"stderr","time":"2026-01-01T12:08:32.5Z"})",
                  "\n");
  };
  EXPECT_THAT(Summary(ExplainTexts({record("[rank1]: Traceback (most recent call last):") +
                                    record(R"([rank1]:   File \"/a/t.py\", line 5, in <module>)") +
                                    record("[rank1]: KeyError: 'lr'") + record("bye")})),
              ElementsAre("first python-exception rank 1 0:3"));
}

TEST(Diagnosis, AnExceptionWithoutFramesIsSurvivedOnceItTrains) {
  const std::string shell =
      "CommandNotFoundError: Your shell has not been properly configured\n\n\n";
  EXPECT_THAT(Summary(ExplainTexts({shell})), ElementsAre("first python-exception 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({shell + "step 1 loss 2.3\nslurmstepd: error: *** JOB 7 ON a "
                                            "CANCELLED AT 2022-04-14T16:20:46 DUE TO TIME LIMIT "
                                            "***\n"}))
                  .front(),
              "first time-limit 0:5");
}

TEST(Diagnosis, ADeviceThatFailedIsWhyAProgramWithoutTimesFailedOnIt) {
  EXPECT_THAT(
      Summary(ExplainTexts({"[rank6]: RuntimeError: CUDA error: unspecified launch failure\n\n"
                            "[Sat Oct 11 01:14:02 2025] perf: interrupt took too long\n"
                            "[Sat Oct 11 02:51:36 2025] NVRM: Xid (PCI:0000:bb:00): 79, "
                            "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"}))
          .front(),
      testing::StartsWith("first gpu-fault"));
}

std::string FirstCause(const std::string& text) {
  const Explanation explanation = ExplainTexts({text});
  const bool told =
      !explanation.findings.empty() && explanation.findings[0].relation == Relation::kFirst;
  return told ? std::string(CauseOf(explanation.findings[0].observation.cause).name) : "nothing";
}

TEST(Diagnosis, WhatAServersClientRaisesSaysNothingOfRanks) {
  EXPECT_EQ(FirstCause("ConnectionResetError: [Errno 104] Connection reset by peer"),
            "connection-closed");
  EXPECT_EQ(FirstCause("torch.distributed.DistNetworkError: Connection reset by peer"),
            "store-lost");
  EXPECT_EQ(FirstCause("redis.exceptions.ConnectionError: Error while reading from socket: (104, "
                       "'Connection reset by peer')"),
            "python-exception");
  EXPECT_EQ(FirstCause("OSError: GET https://metrics.example/x: Broken pipe"), "python-exception");
}

TEST(Diagnosis, WhatPassesOnAnErrorYieldsToTheChainBeforeIt) {
  const std::string frame = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n";
  const std::string link =
      "\nThe above exception was the direct cause of the following exception:\n\n";
  const std::string outer = frame + "datasets.exceptions.DatasetGenerationError: An error occurred";
  EXPECT_EQ(FirstCause(frame + "OSError: [Errno 28] No space left on device\n" + link + outer),
            "disk-full");
  EXPECT_EQ(FirstCause(frame + "ValueError: x\n" + link + outer), "data-loading-failed");
  EXPECT_EQ(FirstCause(frame + "pyarrow.lib.ArrowInvalid: JSON parse error: x\n" + link + outer),
            "data-corrupt");
}

TEST(Diagnosis, WhatAProgramOnlyQuotesIsNoEvidence) {
  EXPECT_EQ(FirstCause("> prompt: explain exit code 137\n"), "nothing");
  EXPECT_EQ(FirstCause("the answer is `Segmentation fault`\n"), "nothing");
  EXPECT_EQ(FirstCause("command terminated with exit code 137\n"), "killed");
}

TEST(Diagnosis, WordsBeforeALastWordThatAllIsDoneAreNoFailure) {
  const std::string words = "monitor: Xid 79 seen\n";
  EXPECT_THAT(Summary(ExplainTexts({words})), ElementsAre("first gpu-fault 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({words + "[n1] torchrun exit code 0\n"})),
              ElementsAre("warning gpu-fault 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({words + "exit code 1\n[n1] torchrun exit code 0\n"})).front(),
              HasSubstr("first"));
  EXPECT_THAT(Summary(ExplainTexts({words + "KeyError: 'x'\n\n\nexit code 0\n"})).front(),
              testing::StartsWith("first gpu-fault"));
  EXPECT_THAT(Summary(ExplainTexts({words + "warm-up run complete\nstep 1 loss 2\n"})),
              ElementsAre("first gpu-fault 0:1"));
  EXPECT_THAT(
      Summary(ExplainTexts({"Traceback (most recent call last):\n  File \"/a/t.py\", line 5, "
                            "in run\nValueError: x\n\n\nexit code 0\n"})),
      ElementsAre("first python-exception 0:3"));
}

TEST(Diagnosis, WhatAProgramSaysThatItGotOverIsSurvivedByOneStep) {
  const std::string raised =
      "Traceback (most recent call last):\n  File \"/a/probe.py\", line 5, in probe\n"
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
  const std::string said = "64 does not fit, trying 32\n";
  EXPECT_THAT(Summary(ExplainTexts({raised + said + "step 1 loss 2.1\n"})),
              ElementsAre("warning out-of-memory 0:3"));
  EXPECT_THAT(Summary(ExplainTexts({raised + "step 1 loss 2.1\n"})),
              ElementsAre("first out-of-memory 0:3"));
  EXPECT_THAT(Summary(ExplainTexts({raised + said})), ElementsAre("first out-of-memory 0:3"));
  EXPECT_THAT(Summary(ExplainTexts({raised + said + "done, exit code 0\n"})),
              ElementsAre("warning out-of-memory 0:3"));
  // Another rank's word says nothing of this one.
  EXPECT_THAT(Summary(ExplainTexts({"[rank1]: ValueError: x\n[rank0]: retrying\n"
                                    "[rank1]: step 1 loss 2.1\n"})),
              ElementsAre("first python-exception rank 1 0:1"));
}

TEST(Diagnosis, ErrorsThatARunEndsWellAfterAreNoFailure) {
  const std::string record = "2026-01-01 10:00:00 ERROR probe: CUDA out of memory. Tried 9 GiB\n";
  EXPECT_THAT(Summary(ExplainTexts({record})), ElementsAre("first out-of-memory 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({record + "process exited with code 0\n"})),
              ElementsAre("warning out-of-memory 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({record + "process exited with code 1\n"})).front(),
              testing::StartsWith("first out-of-memory"));
  const std::string refused = "ssh: connect to host n-1 port 22: Connection refused\n";
  EXPECT_THAT(Summary(ExplainTexts({refused + "# Out of bounds values : 0 OK\n"})),
              ElementsAre("warning launcher-unreachable 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({refused + "==== 3 passed in 2.1s ====\n"})),
              ElementsAre("warning launcher-unreachable 0:1"));
}

TEST(Diagnosis, OfRanksThatFailedAlikeTheLaunchersRootIsNamed) {
  const auto raised = [](int rank) {
    return Concat("[rank", rank, "]: Traceback (most recent call last):\n[rank", rank,
                  "]:   File \"/a/t.py\", line 5, in f\n[rank", rank, "]: TypeError: f\n");
  };
  const auto of = [](int rank) {
    return Concat("  time      : 2026-02-02_10:00:05\n  host      : n-0\n  rank      : ", rank,
                  " (local_rank: ", rank, ")\n  exitcode  : 1 (pid: ", 100 + rank, ")\n");
  };
  const std::string root = "Root Cause (first observed failure):\n[0]:\n";
  EXPECT_THAT(
      Summary(ExplainTexts({raised(2) + raised(1) + "Failures:\n[1]:\n" + of(2) + root + of(1)}))
          .front(),
      testing::StartsWith("first python-exception rank 1 "));
}

TEST(Diagnosis, OfEndsAtOneTimeTheLaunchersRootIsNamedWheneverItSaidSo) {
  EXPECT_THAT(
      Summary(ExplainTexts(
                  {"E0202 10:00:06.0 7 api.py:874] failed (exitcode: -9) local_rank: 0 (pid: 100)\n"
                   "Failures:\n[1]:\n  time      : 2026-02-02_10:00:05\n  host      : n-0\n"
                   "  rank      : 4 (local_rank: 4)\n  exitcode  : -9 (pid: 104)\n"
                   "Root Cause (first observed failure):\n[0]:\n  time      : 2026-02-02_10:00:05\n"
                   "  host      : n-0\n  rank      : 0 (local_rank: 0)\n  exitcode  : -9 (pid: "
                   "100)\n"}))
          .front(),
      testing::StartsWith("first killed rank 0 "));
}

TEST(Diagnosis, ACheckpointsExceptionNamesTheRankThatFailed) {
  const std::string raised =
      "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/a/t.py\", line 5, in f\n"
      "[rank0]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException "
      "ranks:dict_keys([";
  EXPECT_THAT(Summary(ExplainTexts({raised + "3])\n"})).front(), HasSubstr(" rank 3 "));
  EXPECT_THAT(Summary(ExplainTexts({raised + "1, 3])\n"})).front(), HasSubstr(" rank 0 "));
}

TEST(Diagnosis, WhatAProgramRaisesAsItChecksItsArgumentsIsOfItsConfiguration) {
  const auto raised_in = [](std::string_view file, std::string_view function,
                            std::string_view what) {
    return Summary(ExplainTexts({Concat("Traceback (most recent call last):\n  File \"/a/", file,
                                        "\", line 5, in ", function, "\n", what, "\n")}))
        .front();
  };
  EXPECT_EQ(raised_in("arguments.py", "validate_args", "AssertionError: layers"),
            "first configuration-invalid 0:3");
  EXPECT_EQ(raised_in("training_args.py", "__post_init__", "ValueError: fp16 and bf16"),
            "first configuration-invalid 0:3");
  EXPECT_EQ(raised_in("arguments.py", "validate_args", "RuntimeError: x"),
            "first python-exception 0:3");
  EXPECT_EQ(raised_in("training_args.py", "__post_init__", "ValueError: bf16 needs an Ampere GPU"),
            "first python-exception 0:3");
  EXPECT_EQ(raised_in("batch.py", "__post_init__", "ValueError: x"), "first python-exception 0:3");
}

TEST(Diagnosis, WhatTheNextCommandSaysIsNoPartOfAnException) {
  EXPECT_THAT(
      Summary(ExplainTexts({"Traceback (most recent call last):\n  File \"/a/t.py\", line "
                            "5, in f\ntorch.OutOfMemoryError: CUDA out of memory.\n"
                            "usage: post.py [-h]\npost.py: error: argument --x: invalid\n"}))
          .front(),
      testing::StartsWith("first out-of-memory"));
}

TEST(Diagnosis, WhatACommandSaysOfItsArgumentsIsWhyItEnded) {
  const std::string end = "srun: error: n1: tasks 0-7: Exited with exit code 2\n";
  for (const char* line :
       {"train.py: error: argument --bf16: not allowed with argument --fp16",
        "Could not override 'model.batchsize'.", "Key 'batchsize' is not in struct",
        "In 'config': Could not find 'model/llama9'",
        "You must specify 'model', e.g, model=<OPTION>", "│ No such option: --lrr        │",
        "ERROR: Could not consume arg: --lrr"}) {
    EXPECT_THAT(Summary(ExplainTexts({Concat(line, "\n", end)})).front(),
                testing::StartsWith("first configuration-invalid"))
        << line;
  }
}

TEST(Diagnosis, WhoLosesItsPeersAfterAGoodEndFailedNothing) {
  const std::string lost =
      "[rank5]:[W703 20:12:01.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=64)\n";
  EXPECT_THAT(Summary(ExplainTexts({lost})), ElementsAre("first store-lost rank 0 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({"Training completed successfully\n" + lost})),
              ElementsAre("warning store-lost rank 5 0:2"));
}

TEST(Diagnosis, WhatAThreadRaisesAfterAGoodEndIsNoFailure) {
  const std::string raised =
      "Exception in thread Thread-5 (_pin_memory_loop):\nTraceback (most recent call last):\n"
      "  File \"/a/pin.py\", line 5, in loop\nEOFError\n";
  const std::string end = "step 9 loss 2.1\nTraining complete\n";
  EXPECT_THAT(Summary(ExplainTexts({raised})), ElementsAre("first python-exception 0:4"));
  EXPECT_THAT(Summary(ExplainTexts({end + raised})), IsEmpty());
  EXPECT_THAT(Summary(ExplainTexts({end + "step 1 loss 2.1\n" + raised})),
              ElementsAre("first python-exception 0:7"));
  EXPECT_THAT(Summary(ExplainTexts({end + "Traceback (most recent call last):\n  File \"/a/t.py\", "
                                          "line 5, in f\nEOFError\n"})),
              ElementsAre("first python-exception 0:5"));
}

TEST(Diagnosis, WhoOnlyNoticedThatAnotherRankIsGoneIsntTheOneToLookAt) {
  const auto first = [](const std::string& text) {
    const Explanation explanation = ExplainTexts({text});
    return explanation.findings.empty() ? Observation{} : explanation.findings.front().observation;
  };
  const Observation store = first(
      "[rank5]:[W703 20:12:01.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=64, "
      "addr=[train-1]:41212, remote=[train-0.train]:29500): Failed to recv, got 0 bytes\n");
  EXPECT_EQ(store.rank, 0);
  EXPECT_EQ(store.host, "train-0.train");
  EXPECT_EQ(store.detail, "seen by rank 5");
  const auto waited = [&](std::string_view rank, std::string_view of_group) {
    return first(Concat("[rank", rank, "]: torch.distributed.DistBackendError: [", of_group,
                        "] is setting up NCCL communicator and retrieving ncclUniqueId from [0] "
                        "via c10d key-value store by key '0', but store->get('0') got error: "
                        "Socket Timeout\n\n\n"))
        .rank;
  };
  EXPECT_EQ(waited("5", "5"), 0);
  EXPECT_EQ(waited("5", "1"), 5);  // a group's rank 0 may be any
  const Observation lost = first("[rank1]: UNAVAILABLE: rank 3 is gone, during all-reduce 7\n");
  EXPECT_EQ(lost.rank, 3);
  EXPECT_EQ(lost.detail, "seen by rank 1");
  EXPECT_EQ(first("rank 2 (pod-2, process 1) is lost: its connection ended\n").rank, 2);
  EXPECT_EQ(first("Task /job:jax_worker/replica:0/task:6 heartbeat timeout\n").rank, 6);
}

TEST(Diagnosis, AnImageThatIsThereSaysNothingOfAnother) {
  const std::string pod = "Name:  train-0\nEvents:\n";
  const std::string missed =
      "  Warning  Failed  9m  kubelet  Failed to pull image \"r.example/a:1\": rpc error: code = "
      "NotFound desc = r.example/a:1: not found\n";
  const auto pulled = [](std::string_view image) {
    return Concat("  Normal  Pulled  8m  kubelet  Successfully pulled image \"", image,
                  "\" in 2s\n");
  };
  EXPECT_THAT(Summary(ExplainTexts({pod + missed + pulled("r.example/a:1")})), IsEmpty());
  EXPECT_THAT(Summary(ExplainTexts({pod + missed + pulled("r.example/b:1")})),
              ElementsAre("first image-not-found 0:3"));
}

TEST(Diagnosis, ATracebackThatIsQuotedIsSurvivedByOneStep) {
  const std::string quoted =
      "sample 7 failed, its stderr was:\n    Traceback (most recent call last):\n      File "
      "\"/tmp/s/7.py\", line 2, in <module>\n    TypeError: x\n";
  EXPECT_THAT(Summary(ExplainTexts({quoted})), ElementsAre("first python-exception 0:4"));
  EXPECT_THAT(Summary(ExplainTexts({quoted + "[rank1]: step 8 loss 2.5\n"})),
              ElementsAre("warning python-exception rank 1 0:4"));
  EXPECT_THAT(
      Summary(ExplainTexts({quoted + "step 8 loss 2.5\nTraceback (most recent call last):\n"
                                     "  File \"/a/t.py\", line 5, in run\nKeyError: 'x'\n"})),
      ElementsAre("first python-exception 0:8", "warning python-exception 0:4"));
}

TEST(Diagnosis, AnExceptionThatSaysThatALossIsNoNumber) {
  EXPECT_EQ(FirstCause("AssertionError: Rank 3: found NaN in local forward loss calculation"),
            "loss-not-finite");
  EXPECT_EQ(FirstCause("RuntimeError: gradients of head.weight are not finite"), "loss-not-finite");
  EXPECT_EQ(FirstCause("ValueError: unknown loss 'nan'"), "python-exception");
  EXPECT_EQ(FirstCause("ValueError: norm_type inf is not supported for sharded gradients"),
            "python-exception");
  EXPECT_EQ(FirstCause("ValueError: Input contains NaN"), "python-exception");
  EXPECT_EQ(FirstCause("KeyError: loss nan"), "python-exception");
}

TEST(Diagnosis, WhatNcclGaveBackIsHowItEnded) {
  EXPECT_EQ(FirstCause("n:1:2 [0] NCCL INFO init.cc:870 -> 3\n"), "nccl-internal-error");
  EXPECT_EQ(FirstCause("n:1:2 [0] NCCL INFO group.cc:64 -> 2 [Async thread]\n"),
            "nccl-system-error");
  EXPECT_EQ(FirstCause("n:1:2 [0] NCCL INFO graph/topo.cc:870 -> 3\n"), "nothing");
  EXPECT_EQ(FirstCause("n:1:2 [0] NCCL INFO Ring 00 : 3 -> 0 -> 1\n"), "nothing");
  EXPECT_EQ(FirstCause("n:1:2 [0] NCCL INFO init.cc:870 -> 0\n"), "nothing");
}

TEST(Diagnosis, AVolumeIsWhyAPodsNameIsntKnown) {
  const std::string unknown =
      "[W socket.cpp:697] [c10d] The IPv4 network addresses of (train-0.train, 29500) cannot be "
      "retrieved (gai error: -2 - Name or service not known).\n";
  const std::string mount =
      "  Warning  FailedMount  12m   kubelet   MountVolume.SetUp failed for volume \"pv\" : x\n";
  EXPECT_THAT(Summary(ExplainTexts({unknown + mount})).front(),
              testing::StartsWith("first volume-not-mounted"));
}

TEST(Diagnosis, RanksOfSeveralNcclsThatNeverTrainedDontUnderstandEachOther) {
  const auto said = [](std::string_view process, std::string_view version) {
    return Concat(process, ":7 [0] NCCL INFO NCCL version ", version, "+cuda12.4\n");
  };
  const std::string closed =
      "b:2:7 [0] misc/socket.cc:60 NCCL WARN socketProgress: Connection closed by remote peer "
      "a<1>\n";
  const auto explanation = ExplainTexts({said("a:1", "2.18.6"), said("b:2", "2.25.1") + closed});
  EXPECT_THAT(Summary(explanation).front(), testing::StartsWith("first versions-differ"));
  EXPECT_THAT(explanation.findings.at(0).observation.detail,
              testing::StrEq("NCCL 2.18.6 in a:1, NCCL 2.25.1 in b:2"));
  for (const std::string& other :
       {said("a:1", "2.25.1") + said("b:2", "2.25.1") + closed,
        said("b:2", "2.18.6") + said("b:2", "2.25.1") + closed,
        said("a:1", "2.18.6") + said("b:2", "2.25.1") + "step 1 loss 2\n" + closed}) {
    EXPECT_THAT(Summary(ExplainTexts({other})).front(),
                testing::StartsWith("first connection-closed"))
        << other;
  }
  EXPECT_THAT(Summary(ExplainTexts({said("a:1", "2.18.6") + said("b:2", "2.25.1")})), IsEmpty());
}

TEST(Diagnosis, AnEndThatTrainingWentOnLongAfterIsAnothers) {
  std::string text = "run.sh: line 4:  77 Killed                  python preprocess.py\n";
  EXPECT_EQ(FirstCause(text), "killed");
  for (int step = 0; step < 10; ++step) text += Concat("step ", step, " loss 2.5\n");
  EXPECT_EQ(FirstCause(text), "nothing");
  text +=
      "DistBackendError: NCCL error in: x.cpp:3, remote process exited or there was a network "
      "error\n";
  EXPECT_EQ(FirstCause(text), "killed");
}

TEST(Diagnosis, EachLaunchersSummarySpeaksOfItsOwnNode) {
  const auto node = [](int rank) {
    const std::string line = Concat("[pod/t-", rank, "/m] ");
    return Concat(line, "Traceback (most recent call last):\n", line,
                  "  File \"a.py\", line 1, in <module>\n", line,
                  "ModuleNotFoundError: No module named 'apex'\n", line,
                  "E1209 10:00:12.8 1 api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 22) of "
                  "binary: python\n",
                  line, "Root Cause (first observed failure):\n", line, "[0]:\n", line,
                  "  time      : 2026-12-09_10:00:12\n", line, "  host      : t\n", line,
                  "  rank      : ", rank, " (local_rank: 0)\n", line,
                  "  exitcode  : 1 (pid: 22)\n");
  };
  EXPECT_EQ(Summary(ExplainTexts({node(0) + node(1)})).front(), "first module-missing rank 0 0:3");
}

TEST(Diagnosis, WhatRefusesAClientOfServersIsNoRank) {
  const std::string traceback =
      "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n";
  EXPECT_EQ(Summary(ExplainTexts({Concat(
                        traceback, "  File \"/usr/lib/python3.11/http/client.py\", line 1, in c\n",
                        "ConnectionRefusedError: [Errno 111] Connection refused\n")}))
                .front(),
            "first python-exception 0:4");
  EXPECT_EQ(Summary(ExplainTexts({Concat(traceback,
                                         "requests.exceptions.ReadTimeout: "
                                         "HTTPConnectionPool(host='vllm-0', port=8000): "
                                         "Read timed out.\n")}))
                .front(),
            "first python-exception 0:3");
  EXPECT_EQ(Summary(ExplainTexts({Concat(traceback,
                                         "requests.exceptions.ReadTimeout: "
                                         "HTTPSConnectionPool(host='pypi.org', port=443): "
                                         "Read timed out.\n")}))
                .front(),
            "first download-failed 0:3");
}

TEST(Diagnosis, AnExceptionThatARecordTellsOfCountsWhereNothingFollows) {
  const std::string record =
      "10:00:00 ERROR train: FileNotFoundError: [Errno 2] No such file or directory: 'a'\n";
  EXPECT_EQ(Summary(ExplainTexts({record + "giving up\n"})).front(), "first file-missing 0:1");
  EXPECT_THAT(Summary(ExplainTexts({record + "step 1 loss 2\n"})),
              ElementsAre("warning file-missing 0:1"));
}

TEST(Diagnosis, AnExceptionThatIsToldByItsReprIsTheSame) {
  const std::string line =
      "loader gave up: FileNotFoundError(2, 'No such file or directory') in shard 7\n";
  EXPECT_THAT(Summary(ExplainTexts({line})), ElementsAre("first file-missing 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({line + "step 1 loss 2\n"})),
              ElementsAre("warning file-missing 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({"retrying after PermissionError(13, 'Permission denied')\n"})),
              IsEmpty());
  // Nor does one say anything that no row knows.
  EXPECT_THAT(Summary(ExplainTexts({"it was KeyError('x')\n"})), IsEmpty());
}

TEST(Diagnosis, WhatMakesAnObjectOfTheConfigurationPassesOnWhatThatRaised) {
  const auto first = [](std::string_view raised) {
    return Summary(ExplainTexts({Concat("Traceback (most recent call last):\n  File \"/app/t.py\", "
                                        "line 3, in main\nhydra.errors.InstantiationException: "
                                        "Error in call to target 'net.Net':\n",
                                        raised, "\nfull_key: model\n")}))
        .front();
  };
  EXPECT_EQ(first("PermissionError(13, 'Permission denied')"), "first permission-denied 0:3");
  EXPECT_EQ(first("ValueError('hidden isn\\'t a multiple of heads')"),
            "first configuration-invalid 0:3");
  EXPECT_EQ(first("RuntimeError('mat1 and mat2 differ')"), "first python-exception 0:3");
}

TEST(Diagnosis, TheKernelRaisesNoExceptions) {
  const std::string lost =
      "[512.100211] LustreError: 11-0: ost-osc: operation ost_read to node 10.0.8.2@tcp failed: "
      "rc = -107\n";
  EXPECT_EQ(Summary(ExplainTexts({lost + "[512.200211] LustreError: 167-0: ost-osc: This client "
                                         "was evicted by ost; in progress operations using this "
                                         "service will fail.\n"}))
                .front(),
            "first storage-failed 0:2");
}

TEST(Diagnosis, TheRankThatHorovodMissesIsNamedAndItsShutdownIsNoCause) {
  const std::string warned =
      "[1,0]<stderr>:[2026-11-08 03:11:11.4: W /h/stall_inspector.cc:107] One or more tensors were "
      "submitted to be reduced by subset of ranks and are waiting for remainder of ranks for more "
      "than 60 seconds.\n[1,0]<stderr>:Missing ranks:\n[1,0]<stderr>:";
  const std::string ended =
      "[1,0]<stderr>:[2026-11-08 03:21:12.0: E /h/stall_inspector.cc:98] One or more rank (marked "
      "by \"Missing ranks\") is/are stalled for more than 600 seconds. Will shutdown.\n";
  const std::string shutdown =
      "[1,1]<stderr>:Traceback (most recent call last):\n"
      "[1,1]<stderr>:  File \"t.py\", line 3, in step\n"
      "[1,1]<stderr>:horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. "
      "This was caused by an exception on one of the ranks or an attempt to allreduce.\n";
  EXPECT_EQ(Summary(ExplainTexts({warned + "2: [grad.0]\n" + warned + "3: [grad.7 ...]\n" + ended +
                                  shutdown}))
                .front(),
            "first collective-timeout rank 3 0:1");
  EXPECT_EQ(Summary(ExplainTexts({warned + "2: [grad.0]\n" + shutdown})).front(),
            "first collective-timeout rank 2 0:1");
  EXPECT_THAT(Summary(ExplainTexts({warned + "2: [grad.0]\n[1,0]<stdout>:step 4 loss 2\n"})),
              ElementsAre("warning collective-timeout rank 2 0:1"));
  const std::string raised =
      "[1,2]<stderr>:Traceback (most recent call last):\n"
      "[1,2]<stderr>:  File \"t.py\", line 30, in step\n"
      "[1,2]<stderr>:KeyError: 'labels'\n";
  EXPECT_EQ(Summary(ExplainTexts({shutdown + raised})).front(),
            "first python-exception rank 2 0:6");
}

TEST(Diagnosis, WhatRayTriesAgainIsSurvivedByOneStep) {
  const std::string died =
      "(raylet) A worker died or was killed while executing a task by an unexpected system error. "
      "Worker exit type: SYSTEM_ERROR. The task will be retried.\n";
  EXPECT_THAT(Summary(ExplainTexts({died + "(W pid=7) step 1 loss 2\n"})),
              ElementsAre("warning process-ended 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({died})), ElementsAre("first process-ended 0:1"));
}

TEST(Diagnosis, EventsInYamlAreOfTheirObjects) {
  const auto event = [](std::string_view name, std::string_view reason, std::string_view message) {
    return Concat("- apiVersion: v1\n  involvedObject:\n    kind: Pod\n    name: ", name,
                  "\n  kind: Event\n  message: ", message, "\n  reason: ", reason, "\n");
  };
  const std::string waits =
      event("t-1", "FailedScheduling", "0/9 nodes are available: 9 Insufficient nvidia.com/gpu.");
  EXPECT_THAT(Summary(ExplainTexts(
                          {waits + event("t-0", "Scheduled", "Successfully assigned ml/t-0 to n")}))
                  .front(),
              "first unschedulable-capacity 0:6");
  EXPECT_THAT(Summary(ExplainTexts(
                  {waits + event("t-1", "Scheduled", "Successfully assigned ml/t-1 to n")})),
              IsEmpty());
}

TEST(Diagnosis, AFabricThatIsDownIsWhyTheProgramSeesNoGpu) {
  EXPECT_THAT(Summary(ExplainTexts({"a.py:174: UserWarning: CUDA initialization: Unexpected error "
                                    "from cudaGetDeviceCount(). Error 802: system not yet "
                                    "initialized\n"
                                    "ValueError: Your setup doesn't support bf16/gpu.\n"}))
                  .front(),
              "first gpu-fabric-down 0:1");
}

TEST(Diagnosis, AnEndWithoutAWordComesOfWhatWasSaidBefore) {
  const std::string failed =
      "E0611 08:03:45.771000 311 torch/distributed/elastic/multiprocessing/api.py:874] failed "
      "(exitcode: 1) local_rank: 0 (pid: 402)\n";
  EXPECT_THAT(Summary(ExplainTexts({Concat("2025-06-11 08:03:41 libfabric:402:1749629021::efa:cq:"
                                           "efa_rdm_cq_handle_error():81<warn> err: 103 (4126)\n",
                                           failed)}))
                  .front(),
              "first handshake-failed rank 0 0:1");
}

TEST(Diagnosis, AProbeThatFailedOnceEndedNothing) {
  const std::string probe =
      "  Warning  Unhealthy  9m  kubelet  Liveness probe failed: context deadline exceeded\n";
  EXPECT_THAT(Summary(ExplainTexts({probe + "      Reason:       OOMKilled\n"})).front(),
              "first host-out-of-memory 0:2");
  EXPECT_THAT(Summary(ExplainTexts({probe + "      Exit Code:    143\n"})).front(),
              "first probe-failed 0:1");
}

TEST(Diagnosis, WhoeverTrainedTogetherCouldLogIn) {
  const std::string gone = "pdsh@launcher: worker-1: ssh exited with exit code 255\n";
  EXPECT_THAT(Summary(ExplainTexts({gone})), ElementsAre("first launcher-unreachable 0:1"));
  EXPECT_THAT(Summary(ExplainTexts({"worker-0: step 1 loss 2.2\n" + gone})),
              ElementsAre("first peer-lost 0:2"));
}

TEST(Diagnosis, HowARankEndedSaysNothingBesideWhatItSaidOfWhy) {
  EXPECT_THAT(Summary(ExplainTexts({"[rank1]: ValueError: x\n"
                                    "  rank      : 1 (local_rank: 1)\n  exitcode  : -6 (pid: 7)\n"
                                    "  traceback : Signal 6 (SIGABRT) received by PID 7\n"
                                    "  rank      : 2 (local_rank: 2)\n  exitcode  : -9 (pid: 8)\n"
                                    "  traceback : Signal 9 (SIGKILL) received by PID 8\n"})),
              ElementsAre("first python-exception rank 1 0:1", "also killed rank 2 0:7"));
}

TEST(Diagnosis, BytesThatAreNoTextDoNoHarm) {
  std::string text = "\xFF\xFE";
  text += '\0';
  text += "\x1B[31m[rank1]: CUDA out of memory.\xC3\x1B[0m\n";
  text.resize(text.size() + 100, '\0');
  const Explanation explanation = ExplainTexts({text});
  ASSERT_EQ(explanation.findings.size(), 1);
  EXPECT_EQ(explanation.findings[0].observation.text,
            "\uFFFD\uFFFD[rank1]: CUDA out of memory.\uFFFD");
  EXPECT_THAT(ExplanationJson(explanation), HasSubstr("out-of-memory"));
}

TEST(Diagnosis, AnyNumberOfFailuresIsBounded) {
  std::string text;
  for (int rank = 0; rank < 1000; ++rank) {
    Append(&text, "[rank", rank, "]: CUDA out of memory.\n");
  }
  const Explanation explanation = ExplainTexts({text});
  EXPECT_EQ(explanation.findings.size(), LogReader::kMaxObservations);
  EXPECT_EQ(explanation.left_out, 1000 - static_cast<int64_t>(LogReader::kMaxObservations));
}

// Pieces of lines that are read, put together at random: nothing may crash, and time must stay
// linear even where every line nearly matches.
TEST(Diagnosis, ScrambledLogsAreReadInBoundedTime) {
  const std::vector<std::string> pieces = {
      "[rank",
      "[Rank ",
      " Rank ",
      "]",
      "]:",
      "NCCL WARN",
      " NCCL INFO ",
      " rank ",
      " nranks ",
      "Xid ",
      "(PCI",
      "): ",
      "79",
      "99999999999999999999",
      "completed with error. RC: ",
      "Error: ",
      "4126",
      "My EFA addr: ",
      "Peer EFA addr: ",
      "{\"cause\":\"",
      "gpu-fault",
      "\"}",
      "{",
      "[",
      "Name:",
      "Tried to allocate ",
      "GiB",
      "total capacity of ",
      "of which ",
      "this process has ",
      "E0101 ",
      "11:10:18",
      "2026-01-01",
      "T",
      "-",
      "+09:00",
      "libfabric:",
      ":",
      "nodes are available:",
      "Insufficient ",
      "last enqueued ",
      "work: ",
      "last completed ",
      "[PG ",
      "  host      : ",
      "  rank      : ",
      "\xF0\x9F",
      "\xED\xA0\x80",
      "\x1B[",
      std::string(1, '\0'),
      " ",
      "\n",
      "\r",
  };
  std::mt19937 random(7);
  std::string text;
  while (text.size() < 4'000'000) {
    text += pieces[std::uniform_int_distribution<size_t>(0, pieces.size() - 1)(random)];
  }
  text += std::string(1'000'000, '[') + "\n";
  for (int i = 0; i < 100'000; ++i) text += "[rank";
  text += "\n";
  const auto start = std::chrono::steady_clock::now();
  const Explanation explanation = ExplainTexts({text, text.substr(1'000'000)});
  EXPECT_THAT(ExplanationText(explanation), Not(IsEmpty()));
  EXPECT_THAT(ExplanationJson(explanation), Not(IsEmpty()));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace muster::worker
