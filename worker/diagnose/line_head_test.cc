#include "worker/diagnose/line_head.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace muster::worker {
namespace {

TEST(LineHead, WhatLaunchersAndCollectorsPutBeforeALineIsTakenOff) {
  struct Case {
    std::string_view line;
    std::string_view body;
    std::optional<int> rank;
  };
  for (const Case& item : std::vector<Case>{
           {"[rank3]: Traceback (most recent call last):", "Traceback (most recent call last):", 3},
           {"[rank3]:   File \"train.py\", line 1", "  File \"train.py\", line 1", 3},
           {"[default4]:KeyError: 'x'", "KeyError: 'x'", 4},
           {"[2]:KeyError: 'x'", "KeyError: 'x'", 2},
           {"[2]: [rank2]: KeyError: 'x'", "KeyError: 'x'", 2},
           {"[0]:", "[0]:", {}},
           {"[0] step", "[0] step", {}},
           {"[Rank 3] KeyError: 'x'", "KeyError: 'x'", 3},
           {"rank 3: KeyError: 'x'", "KeyError: 'x'", 3},
           {"rank 3 is late", "rank 3 is late", {}},
           {"train-1  | KeyError: 'x'", "KeyError: 'x'", {}},
           {"[train-1] KeyError: 'x'", "KeyError: 'x'", {}},
           {"(trainer) KeyError: 'x'", "KeyError: 'x'", {}},
           {"step 10 | loss 2", "step 10 | loss 2", {}},
           {"6: ZeroDivisionError: division by zero", "ZeroDivisionError: division by zero", 6},
           {" 12: step", "step", 12},
           {"[1,5]<stderr>:TypeError: x", "TypeError: x", 5},
           {"[pod/train-2/pytorch] step 1", "step 1", {}},
           {"(RayTrainWorker pid=4009, ip=10.0.5.89) ValueError: x", "ValueError: x", {}},
           {"10.0.87.143: 10.0.87.143: ValueError: x", "ValueError: x", {}},
           {"train-1: ValueError: x", "ValueError: x", {}},
           {"node2: ValueError: x", "ValueError: x", {}},
           {"node2:   File \"a.py\", line 1", "  File \"a.py\", line 1", {}},
           {"epoch3: loss 2", "epoch3: loss 2", {}},
           {"[5]<stderr>:TypeError: x", "TypeError: x", 5},
           {"Mon Jan  5 10:00:00 2026[5]<stderr>:TypeError: x", "TypeError: x", 5},
           {"2026-03-02T10:41:17.123456789Z stderr F [rank2]: ValueError: x", "ValueError: x", 2},
           {"2026-03-02T10:41:17.1Z ValueError: x", "ValueError: x", {}},
           {"18:11:06.680 [rank4]:[E205 18:11:06.3 a.cpp:1] x", "[E205 18:11:06.3 a.cpp:1] x", 4},
           {"May  7 15:02:40 gpu-7 train[880]: [rank4]: ValueError: x", "ValueError: x", 4},
           {"May  7 15:02:40 gpu-7 train:   File \"a.py\", line 1", "  File \"a.py\", line 1", {}},
           {"2026-05-07T15:02:40+00:00 gpu-7 train[880]: ValueError: x", "ValueError: x", {}},
           {"May  7 15:02:40 gpu-7 kernel: LustreError: x",
            "May  7 15:02:40 gpu-7 kernel: LustreError: x",
            {}},
           {"2026-05-07T15:02:40Z epoch 3: loss 2", "epoch 3: loss 2", {}},
           {"ValueError: 3: x", "ValueError: 3: x", {}},
           {"srun: error: task 6", "srun: error: task 6", {}},
           {"rank=4 Traceback", "Traceback", 4},
           {"(rank 5) ValueError: x", "ValueError: x", 5},
           {"<rank:5> ValueError: x", "ValueError: x", 5},
           {"[RANK 5/16] ValueError: x", "ValueError: x", 5},
           {"[global_rank=5][train] x", "[train] x", 5},
           {"rank3 |   File \"a.py\", line 1", "  File \"a.py\", line 1", 3},
           {"rank-3  | step 1", "step 1", 3},
           {"2026-07-02 13:00:00 rank3 | Traceback", "Traceback", 3},
           {"[13:00:00] [rank3] Traceback", "Traceback", 3},
           {"07-02 13:00:00.5 (rank 3) Traceback", "Traceback", 3},
           {"13:00:00 web.1    | step 1", "step 1", {}},
           {"trainer  | KeyError: 'x'", "KeyError: 'x'", {}},
           {"trainer  |", "", {}},
           {"0|trainer  | KeyError: 'x'", "KeyError: 'x'", {}},
           {"train_main.1.k3x9@gpu-7    | step 1", "step 1", {}},
           {"2026-07-02 13:00:00 log train-1 | step 1", "step 1", {}},
           {"[ml/train-3/pytorch] step 1", "step 1", {}},
           {"[train-3 pytorch] step 1", "step 1", {}},
           {"train-7f9c-x7k2p: step 1", "step 1", {}},
           {R"({app="train", pod="train-3"} step 1)", "step 1", {}},
           {"May 07 15:02:40.123456 gpu-7 train[880]: [rank4]: x", "x", 4},
           {"Thu 2026-05-07 15:02:40 UTC gpu-7 train[880]: step 1", "step 1", {}},
           {"2026-05-07T15:02:40.1+00:00 app[worker.1]: step 1", "step 1", {}},
           {"<14>1 2026-05-07T15:02:40Z gpu-7 train 880 - - step 1", "step 1", {}},
           {"INFO | launcher | step 1", "INFO | launcher | step 1", {}},
           {"0 | encoder | ResNet", "0 | encoder | ResNet", {}},
           {"iteration 5/ 10 | loss 2", "iteration 5/ 10 | loss 2", {}},
           {"2026-07-02 13:00:00 step 1", "2026-07-02 13:00:00 step 1", {}},
           {"2026-07-02 13:00:00 INFO [rank3] x", "2026-07-02 13:00:00 INFO [rank3] x", 3},
           {"time=13:00:00 level=error msg=\"x\" rank=3",
            "time=13:00:00 level=error msg=\"x\" rank=3", 3},
           {"rank=4, late", "rank=4, late", {}},
           {"[default1]:[rank9]: KeyError: 'x'", "KeyError: 'x'", 9},
           {"train-2 pytorch [rank9]: KeyError: 'x'", "KeyError: 'x'", 9},
           {"train-2 pytorch   File \"a.py\", line 1", "  File \"a.py\", line 1", {}},
           {"2026-03-02 10:41:17,123 ERROR [worker-1] [rank9]: KeyError: 'x'", "KeyError: 'x'", 9},
           {"2026-03-02 10:41:17,123 ERROR [trainer] KeyError: 'x'",
            "2026-03-02 10:41:17,123 ERROR [trainer] KeyError: 'x'",
            {}},
           {R"({"rank": 7, "msg": "x"})", R"({"rank": 7, "msg": "x"})", 7},
           {R"({"global_rank":7})", R"({"global_rank":7})", 7},
           {R"({"rank": "none"})", R"({"rank": "none"})", {}},
           {"[2026-03-02 10:41:19,879] [INFO] x", "[2026-03-02 10:41:19,879] [INFO] x", {}},
       }) {
    EXPECT_EQ(HeadOf(item.line).body, item.body) << item.line;
    EXPECT_EQ(HeadOf(item.line).rank, item.rank) << item.line;
  }
  EXPECT_EQ(HeadOf("[pod/train-2/pytorch] step 1").pod, "train-2");
  EXPECT_EQ(HeadOf("train-2  | step 1").pod, "train-2");
  EXPECT_EQ(HeadOf("[ml/train-3/pytorch] step 1").pod, "train-3");
  EXPECT_EQ(HeadOf(R"({app="train", pod="train-3"} step 1)").pod, "train-3");
  EXPECT_EQ(HeadOf("rank3 | step 1").pod, "");
  EXPECT_TRUE(HeadOf("r3  | step 1").rank_is_index);
  EXPECT_EQ(HeadOf("[pod/a-0/m] 2026-03-02T10:41:17.1Z [rank1]: x").source,
            "[pod/a-0/m] [rank1]: ");
  EXPECT_EQ(HeadOf("train-2 pytorch [rank9]: step 1").pod, "train-2");
  EXPECT_EQ(HeadOf("train-7f9c-x7k2p pytorch KeyError: 'x'").body, "KeyError: 'x'");
  EXPECT_EQ(HeadOf("fine-tuned model KeyError: 'x'").body, "fine-tuned model KeyError: 'x'");
  EXPECT_EQ(HeadOf("epoch-2 takes 3 s").pod, "");
  EXPECT_TRUE(HeadOf("3: step 1").rank_is_index);
  EXPECT_FALSE(HeadOf("1: [rank9]: step 1").rank_is_index);
  EXPECT_EQ(HeadOf("1: [rank9]: step 1").index, 1);
  EXPECT_EQ(HeadOf("2026-03-02T10:41:17.1Z [rank1]: x").source, "[rank1]: ");
  EXPECT_EQ(HeadOf("May  7 15:02:40 gpu-7 train: [rank4]: x").source, "gpu-7 train: [rank4]: ");
}

TEST(LineHead, PartsOfATextThatComeFromSeveralPlaces) {
  for (const char* head : {"$ kubectl logs a-0",
                           "==> a-0.log <==",
                           "--- vit-worker-0 ---",
                           "=== dmesg -T on p4 ===",
                           "--- other members ---",
                           "--- logs --previous ---",
                           "==> events of the namespace",
                           "# kubectl logs a-0",
                           "+ kubectl logs a-0",
                           "% cat a.log",
                           "root@login-1:~# kubectl logs a-0",
                           "---------- vit-worker-0 ----------",
                           "##### vit-worker-0",
                           "*** a-0.log ***",
                           "----- BEGIN vit-worker-0 -----",
                           ">>> vit-worker-0",
                           "======== rank 3 ========",
                           "::::::::::::::",
                           "File: logs/rank_3.err",
                           "logs/rank_3.err:",
                           "Logs of vit-worker-0:",
                           "[file: a-0.log]"}) {
    EXPECT_TRUE(BeginsPart(head)) << head;
  }
  for (const char* other :
       {"--- Logging error ---", "=== Epoch 3 on rank 0 ===", "$HOME", "---", "=== PyTorch ===",
        "==> done", "step 1", "# train the model", "+ torchrun train.py", "- cat and dog",
        ">>> [rank0]: Traceback", "======== train.py FAILED ========", "logs/rank_3.txt",
        "*** SIGTERM received ***", "----------------", "File: the one to load", "**********"}) {
    EXPECT_FALSE(BeginsPart(other)) << other;
  }
}

TEST(LineHead, HowBadALineSaysThatItIs) {
  for (const std::string_view line :
       {"[rank0]:[E302 10:44:12.7 ProcessGroupNCCL.cpp:685] [Rank 0] x",
        "[rank0]:[F ProcessGroupNCCL.cpp:1169] [PG 0 Rank 0] x", "E0302 10:41:18.8 7 api.py:874] x",
        "train-0:1:2 [0] misc/socket.cc:1 NCCL WARN x", "libfabric:1:2::efa:mr:f():5<warn> x",
        "[2026-03-02 10:41:19,885] [ERROR] [launch.py:325] x", "ERROR x",
        "time=10:41:19 level=error msg=x", "13:00:00 rank3 | ERROR x"}) {
    EXPECT_EQ(HeadOf(line).severity, Severity::kError) << line;
  }
  for (const std::string_view line :
       {"[W302 10:08:33.9 socket.cpp:464] [c10d] x", "W0302 10:00:01.12 7 run.py:793] x",
        "2026-03-02 10:00:00,123 - WARNING - x", "a.py:627: UserWarning: x",
        "ts=10:41:19 lvl=\"warn\" x", "WARN x"}) {
    EXPECT_EQ(HeadOf(line).severity, Severity::kWarning) << line;
  }
  EXPECT_EQ(HeadOf("train-0:1:2 [0] NCCL INFO x").severity, Severity::kInfo);
  EXPECT_EQ(HeadOf("RuntimeError: x").severity, Severity::kUnsaid);
}

TEST(LineHead, WhatALineOnlyQuotesIsTakenOut) {
  const auto without = [](std::string_view line) {
    std::string plain;
    return std::string(WithoutQuotes(line, line, &plain));
  };
  EXPECT_EQ(without("> prompt: explain exit code 137"), "");
  EXPECT_EQ(without("Assistant: the pod was OOMKilled"), "");
  EXPECT_EQ(without("--- sample 3: Segmentation fault"), "");
  EXPECT_EQ(without("It prints `exit code 137` and `Killed` here"), "It prints `` and `` here");
  EXPECT_EQ(without("train-0: exit code 137"), "train-0: exit code 137");
  EXPECT_EQ(without("User-made kernel: Segmentation fault"),
            "User-made kernel: Segmentation fault");
  EXPECT_EQ(without("expected ` but got Killed"), "expected ` but got Killed");
  EXPECT_EQ(without("epoch 2 loss=0.7 worst=\"Xid 79\" f1=0.5"),
            "epoch 2 loss=0.7 worst=\"\" f1=0.5");
  EXPECT_EQ(without("level=error msg=\"Xid 79\""), "level=error msg=\"Xid 79\"");
  EXPECT_EQ(without(R"({"loss": 2, "msg": "Xid 79"})"), R"({"loss": 2, "msg": "Xid 79"})");
  EXPECT_EQ(without("tests/a.py::test_b[GPU has fallen off the bus] PASSED [ 42%]"), "");
  EXPECT_EQ(without("FAILED tests/a.py::test_b - Killed"), "FAILED tests/a.py::test_b - Killed");
}

TEST(LineHead, Ranks) {
  EXPECT_EQ(RankOf("[rank3]: Traceback (most recent call last):"), 3);
  EXPECT_EQ(RankOf("[Rank 12] GPU Memory Flushed."), 12);
  EXPECT_EQ(RankOf("[E1206 ProcessGroupNCCL.cpp:1664] [PG ID 0 PG GUID 0(default_pg) Rank 4] x"),
            4);
  EXPECT_EQ(RankOf("the [rank of things] and Rank 3 of 4"), std::nullopt);
  EXPECT_EQ(RankOf("[rank99999999999999999999]: x"), std::nullopt);
}

TEST(LineHead, TheProcessThatNcclNames) {
  EXPECT_EQ(NcclProcessOf("llama-3-8b-node-0-0:194:712 [0] NCCL INFO Channel 00/0 : 3[0] -> 0[0]"),
            "llama-3-8b-node-0-0:194");
  EXPECT_EQ(
      NcclProcessOf("[2026-01-01 12:08:32] node-0:194:710 [0] int f(t*):46 NCCL WARN NET/OFI"),
      "node-0:194");
  EXPECT_EQ(NcclProcessOf("at 12:08:32 NCCL said nothing"), "");
}

}  // namespace
}  // namespace muster::worker
