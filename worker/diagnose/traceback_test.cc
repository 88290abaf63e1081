#include "worker/diagnose/traceback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<Raised> Read(std::string_view text) {
  TracebackReader reader;
  std::vector<Raised> all;
  int64_t number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    reader.Read(++number, line, line.starts_with("step"));
    while (std::optional<Raised> raised = reader.Take()) all.push_back(*std::move(raised));
  }
  while (std::optional<Raised> raised = reader.Finish()) all.push_back(*std::move(raised));
  return all;
}

TEST(Traceback, KnowsWhatPythonRunsAsItEnds) {
  const auto raised = Read(R"(Traceback (most recent call last):
  File "/usr/lib/python3.10/multiprocessing/util.py", line 300, in _run_finalizers
    finalizer()
FileNotFoundError: [Errno 2] No such file or directory: 'pymp-1'
Traceback (most recent call last):
  File "/a/t.py", line 5, in run
    finalize()
ValueError: x)");
  ASSERT_THAT(raised, SizeIs(2));
  EXPECT_TRUE(raised[0].in_teardown);
  EXPECT_FALSE(raised[1].in_teardown);
}

TEST(Traceback, AnIndentedOneAfterOneThatWasIgnoredIsReadToItsEnd) {
  const auto raised = Read(R"( Exception ignored in: <function It.__del__ at 0x7f6a4b1e11b0>
 Traceback (most recent call last):
   File "/usr/lib/python3.10/multiprocessing/connection.py", line 936, in wait
 ConnectionResetError: [Errno 104] Connection reset by peer
 Traceback (most recent call last):
   File "/a/t.py", line 5, in run
     x()
 ValueError: x)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].Headline(), "ValueError: x");
}

TEST(Traceback, OneThatStandsUnderTheWordsThatAnnounceItIsQuoted) {
  const auto raised = Read(R"(sample 7 failed, its stderr was:
    Traceback (most recent call last):
      File "/tmp/s/7.py", line 2, in <module>
        x()
    ValueError: x
sample 8 passed
Traceback (most recent call last):
  File "/a/t.py", line 5, in run
    for name in names:
Traceback (most recent call last):
  File "/a/t.py", line 5, in run
KeyError: 'x'
sample 9
    Traceback (most recent call last):
      File "/tmp/s/9.py", line 2, in <module>
    IndexError: x)");
  ASSERT_THAT(raised, SizeIs(3));
  EXPECT_TRUE(raised[0].is_quoted);
  EXPECT_EQ(raised[0].text, "ValueError: x");
  EXPECT_EQ(raised[1].Headline(), "KeyError: 'x'");
  EXPECT_FALSE(raised[1].is_quoted);
  EXPECT_FALSE(raised[2].is_quoted);
}

TEST(Traceback, AnExceptionWhoseMessageIsAWorkersTracebackIsOne) {
  const auto raised = Read(R"(Traceback (most recent call last):
  File "/lib/torch/utils/data/dataloader.py", line 658, in _process_next_batch
    raise batch.exc_type(batch.exc_msg)
IndexError: Traceback (most recent call last):
  File "/a/boxes.py", line 48, in pick
IndexError: list index out of range)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].text, "IndexError: list index out of range");
  EXPECT_EQ(raised[0].where, "/a/boxes.py:48 in pick");
  EXPECT_TRUE(raised[0].in_data_loading);
}

TEST(Traceback, TheSummaryOfTestsTellsWhatTheyRaised) {
  const auto raised = Read(R"(FAILED tests/test_a.py::TestA::test_b[fp8] - OSError: no such thing
look there
ERROR tests/test_a.py::test_c - ValueError: x
FAILED tests/test_a.py::test_d - assert 1 == 2
FAILED: OSError: x)");
  ASSERT_THAT(raised, SizeIs(2));
  EXPECT_EQ(raised[0].text, "OSError: no such thing\nlook there");
  EXPECT_EQ(raised[1].Headline(), "ValueError: x");
}

TEST(Traceback, CodeThatAProgramWasGivenIsToldFromItsOwn) {
  const auto raised = Read(R"(Traceback (most recent call last):
  File "<completion>", line 3, in <module>
IndexError: list index out of range
Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/a/t.py", line 5, in run
ValueError: x)");
  ASSERT_THAT(raised, SizeIs(2));
  EXPECT_TRUE(raised[0].in_given_code);
  EXPECT_FALSE(raised[0].in_own_code);
  EXPECT_FALSE(raised[1].in_given_code);
  EXPECT_TRUE(raised[1].in_own_code);
}

TEST(Traceback, WhatLoggingPrintsEndsNothing) {
  const auto raised = Read(R"(Traceback (most recent call last):
  File "/usr/lib/python3.10/logging/__init__.py", line 1103, in emit
    stream.write(msg + self.terminator)
BlockingIOError: [Errno 11] write could not complete without blocking)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_TRUE(raised[0].in_teardown);
}

TEST(Traceback, OthersWordsAreNoExceptionOfOneThatPrintsNone) {
  EXPECT_THAT(Read(R"(Traceback (most recent call last):
  File "/opt/launch/guard.py", line 21, in check
    raise SystemExit("refusing to train on CPU")
refusing to train on CPU
wandb: View run trim-snow-9)"),
              testing::IsEmpty());
}

TEST(Traceback, KnowsWhatIsRaisedWhileABatchIsFetched) {
  const auto raised = Read(R"(Traceback (most recent call last):
  File "/a/train.py", line 5, in run
    batch = next(batches)
  File "/opt/venv/lib/python3.9/site-packages/torch/utils/data/dataloader.py", line 1516, in _next_data
    return self._process_data(data, worker_id)
soundfile.LibsndfileError: <exception str() failed>
Traceback (most recent call last):
  File "/a/train.py", line 5, in run
    batch = next(batches)
ValueError: x)");
  ASSERT_THAT(raised, SizeIs(2));
  EXPECT_TRUE(raised[0].in_data_loading);
  EXPECT_FALSE(raised[1].in_data_loading);
}

TEST(Traceback, NamesTheExceptionAndTheInnermostFrameOfUserCode) {
  const auto raised = Read(R"(step 1
Traceback (most recent call last):
  File "/workspace/train.py", line 163, in <module>
    main()
  File "/workspace/train.py", line 98, in train_step
    raise ValueError("CUDA out of memory")
  File "/usr/local/lib/python3.12/site-packages/torch/nn/modules/module.py", line 1773, in _call
    return self._call_impl(*args, **kwargs)
           ^^^^^^^^^^^^^^^
ValueError: not the
size that was expected
step 2)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].text, "ValueError: not the\nsize that was expected");
  EXPECT_EQ(raised[0].Headline(), "ValueError: not the");
  EXPECT_EQ(raised[0].where, "/workspace/train.py:98 in train_step");
  EXPECT_EQ(raised[0].line, 10);
}

TEST(Traceback, WhatLedToAnExceptionIsKept) {
  const auto raised = Read(R"(Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 2, in g
config.ConfigError: no x)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].text, "config.ConfigError: no x");
  EXPECT_EQ(raised[0].where, "b.py:2 in g");
  EXPECT_THAT(raised[0].before, ElementsAre("KeyError: 'x'"));
}

TEST(Traceback, AChainWhoseHeadersWereLostIsOne) {
  const auto raised = Read(R"(Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'x'

During handling of the above exception, another exception occurred:

config.ConfigError: no x

The above exception was the direct cause of the following exception:

  File "b.py", line 2, in g
OSError: no such model)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].text, "OSError: no such model");
  EXPECT_EQ(raised[0].where, "b.py:2 in g");
  EXPECT_THAT(raised[0].before, ElementsAre("KeyError: 'x'", "config.ConfigError: no x"));
}

TEST(Traceback, ADataWorkersOwnTracebackIsInsideOfItsMessage) {
  const auto raised = Read(R"(Traceback (most recent call last):
  File "/workspace/train.py", line 92, in main
ValueError: Caught ValueError in DataLoader worker process 2.
Original Traceback (most recent call last):
  File "/workspace/data.py", line 41, in __getitem__
ValueError: could not convert string to float: 'N/A'
)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].text, "ValueError: could not convert string to float: 'N/A'");
  EXPECT_EQ(raised[0].where, "/workspace/data.py:41 in __getitem__");
  EXPECT_THAT(raised[0].before, ElementsAre(HasSubstr("in DataLoader worker process 2")));
}

TEST(Traceback, RichsBoxes) {
  const auto raised = Read(R"(╭──────── Traceback (most recent call last) ────────╮
│ /workspace/train.py:136 in main                   │
│ ❱ 136 │   trainer.train()                         │
│ /usr/lib/python3.12/site-packages/x.py:3 in f     │
╰───────────────────────────────────────────────────╯
TypeError: unexpected)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].text, "TypeError: unexpected");
  EXPECT_EQ(raised[0].where, "/workspace/train.py:136 in main");
}

TEST(Traceback, ASpawnedProcessIsNamed) {
  const auto raised = Read(R"(Traceback (most recent call last):
torch.multiprocessing.spawn.ProcessRaisedException: 

-- Process 3 terminated with the following error:
Traceback (most recent call last):
  File "/workspace/train.py", line 77, in worker
NameError: name 'x' is not defined)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].text, "NameError: name 'x' is not defined");
  EXPECT_EQ(raised[0].process, 3);
}

TEST(Traceback, LinesOfOthersInBetweenAreNotItsOwn) {
  TracebackReader reader;
  EXPECT_TRUE(reader.Read(1, "Traceback (most recent call last):", false));
  EXPECT_FALSE(reader.Read(2, "step 7 of another rank", true));
  EXPECT_TRUE(reader.Read(3, "  File \"a.py\", line 1, in f", false));
  EXPECT_TRUE(reader.Read(4, "OSError: x", false));
  EXPECT_TRUE(reader.HasRaised());
  EXPECT_EQ(reader.Finish()->text, "OSError: x");
}

TEST(Traceback, AnExceptionWithoutFramesCountsAndOtherWordsDoNot) {
  EXPECT_THAT(Read("torch.cuda.OutOfMemoryError: CUDA out of memory."), SizeIs(1));
  EXPECT_THAT(Read("KeyboardInterrupt"), SizeIs(1));
  EXPECT_THAT(Read("Error: x\nINFO: y\nloss: 3\nRuntimeErrorClassifier(1)\nERROR: z\n"), IsEmpty());
}

TEST(Traceback, OneThatIsQuotedIsIndentedAsAWhole) {
  const auto raised = Read(R"(   Traceback (most recent call last):
     File "a.py", line 1, in f
   OSError: x
     y)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].text, "OSError: x\n  y");
  EXPECT_EQ(raised[0].where, "a.py:1 in f");
  EXPECT_THAT(Read(" OSError: x"), SizeIs(1));
}

TEST(Traceback, AfterLinesOfOthersOnlyWhatLooksLikeAnExceptionIsOne) {
  const std::string cut = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n";
  EXPECT_THAT(Read(cut + "OutOfResources: x"), SizeIs(1));
  EXPECT_THAT(Read(cut + "User defined signal 2\nSender: LSF System"), IsEmpty());
  EXPECT_THAT(Read(cut + "step 1\nKeyError: 'x'"), SizeIs(1));
}

TEST(Traceback, FramesAndMessagesTellWhatAProgramDid) {
  const auto did = [](std::string_view file, std::string_view function, std::string_view message) {
    const auto raised = Read(Concat("Traceback (most recent call last):\n  File \"", file,
                                    "\", line 1, in ", function, "\n", message, "\n"));
    return raised.empty() ? Doing::kUnsaid : raised[0].WhatItDid();
  };
  EXPECT_EQ(did("/w/data/train.py", "main", "EOFError: x"), Doing::kUnsaid);
  EXPECT_EQ(did("/w/train.py", "load_dataset", "EOFError: x"), Doing::kData);
  EXPECT_EQ(did("/usr/lib/python3/dist-packages/datasets/a.py", "f", "EOFError: x"), Doing::kData);
  EXPECT_EQ(did("/w/train.py", "load_tokenizer", "EOFError: x"), Doing::kUnsaid);
  EXPECT_EQ(did("/w/dataclasses.py", "f", "EOFError: x"), Doing::kUnsaid);
  EXPECT_EQ(did("/w/train.py", "save_checkpoint", "OSError: x"), Doing::kCheckpoint);
  EXPECT_EQ(did("/w/train.py", "main", "OSError: x: '/runs/ckpt/3'"), Doing::kCheckpoint);
  EXPECT_EQ(did("/w/train.py", "main", "EOFError: x: '/tokens/3.jsonl'"), Doing::kData);
  EXPECT_EQ(did("/p/torch/serialization.py", "load", "EOFError: x"), Doing::kCheckpoint);
  EXPECT_EQ(did("/usr/lib/python3.11/multiprocessing/heap.py", "__init__", "OSError: x"),
            Doing::kSharing);
  EXPECT_EQ(did("/p/torch/utils/checkpoint.py", "checkpoint", "OSError: x"), Doing::kUnsaid);
}

TEST(Traceback, LinesMayBeginWithWhatAProgramsLoggingWrites) {
  const auto raised =
      Read(R"(2023-02-17 22:40:24,367 (worker_7) : Traceback (most recent call last):
2023-02-17 22:40:24,367 (worker_7) :   File "/app/run.py", line 34, in run
2023-02-17 22:40:24,368 (worker_7) :     go()
2023-02-17 22:40:24,368 (worker_7) : KeyError: 'x'
2023-02-17 22:40:25,001 (worker_7) : bye)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].Headline(), "KeyError: 'x'");
  EXPECT_EQ(raised[0].where, "/app/run.py:34 in run");
}

TEST(Traceback, AnExceptionThatPassesOnAnotherHoldsIt) {
  const auto raised = Read("a.BackendError: backend='x' raised:\nOutOfMemoryError: y\n\nbye\n");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].text, "a.BackendError: backend='x' raised:\nOutOfMemoryError: y\nbye");
}

TEST(Traceback, AnExceptionsTextMayBeATraceback) {
  const auto raised = Read(R"(Traceback (most recent call last):
  File "a.py", line 1, in f
OSError: Traceback (most recent call last):
  File "b.py", line 2, in __getitem__
OSError: [Errno 5] Input/output error)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].Headline(), "OSError: [Errno 5] Input/output error");
}

TEST(Traceback, FramesTellWhereAlsoIfTheHeaderWasCutOff) {
  const auto raised = Read(R"(  File "/app/run.py", line 3, in load_checkpoint
    return torch.load(path)
EOFError: Ran out of input)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].where, "/app/run.py:3 in load_checkpoint");
  EXPECT_EQ(raised[0].WhatItDid(), Doing::kCheckpoint);
  const auto later = Read(R"(  File "/app/run.py", line 3, in load_checkpoint
step 1
EOFError: Ran out of input)");
  ASSERT_THAT(later, SizeIs(1));
  EXPECT_EQ(later[0].where, "");
}

TEST(Traceback, WhatPythonIgnoresIsNone) {
  EXPECT_THAT(Read(R"(Exception ignored in: <function f at 0x7f>
Traceback (most recent call last):
  File "a.py", line 1, in __del__
AttributeError: x
step 1)"),
              IsEmpty());
}

TEST(Traceback, OneThatIsCutOffSaysNothing) {
  EXPECT_THAT(Read("Traceback (most recent call last):\n  File \"a.py\", line 1, in f"), IsEmpty());
}

TEST(Traceback, AMessageOfAnyLengthIsBounded) {
  std::string text = "RuntimeError: x";
  for (int i = 0; i < 1000; ++i) text += "\n\tkey " + std::string(200, 'k');
  const auto raised = Read(text);
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_LE(raised[0].text.size(), TracebackReader::kMaxText);
}

TEST(Traceback, OfSeveralProcessesBehindOnesOwnPrefixEachIsRead) {
  const auto raised = Read(R"(2026-01-01 10:00:00 w1> Traceback (most recent call last):
2026-01-01 10:00:00 w1>   File "a.py", line 1, in f
2026-01-01 10:00:01 w2> ValueError: of another
2026-01-01 10:00:01 w1> KeyError: 'x'
2026-01-01 10:00:02 w2> RuntimeError: of another)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].Headline(), "KeyError: 'x'");
}

TEST(Traceback, WhatRanksRaisedStandsInWhatCollectsIt) {
  const auto raised = Read(R"(Traceback (most recent call last):
  File "a.py", line 1, in save
torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([3])
Traceback (most recent call last): (RANK 3)
  File "b.py", line 1, in write
OSError: [Errno 28] No space left on device)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_THAT(raised[0].text, HasSubstr("No space left"));
}

TEST(Traceback, WhoTalksToServersIsTold) {
  EXPECT_TRUE(Read(R"(Traceback (most recent call last):
  File "/usr/lib/python3.11/http/client.py", line 1, in connect
ConnectionRefusedError: [Errno 111] Connection refused)")[0]
                  .asked_server);
  EXPECT_FALSE(Read(R"(Traceback (most recent call last):
  File "/usr/lib/python3.11/socket.py", line 1, in connect
ConnectionRefusedError: [Errno 111] Connection refused)")[0]
                   .asked_server);
}

TEST(Traceback, ARecordMayTellOfAnException) {
  EXPECT_EQ(ExceptionIn("10:00:00 ERROR train: OSError: [Errno 5] x"), "OSError: [Errno 5] x");
  EXPECT_EQ(ExceptionIn(R"({"level":"error","msg":"a.b.ReadError: x","rank":3})"),
            "a.b.ReadError: x");
  EXPECT_EQ(ExceptionIn("ERROR: the Error: x"), "");
  EXPECT_EQ(ExceptionIn("ERROR train: it failed"), "");
}

TEST(Traceback, WhatPythonsReprMakesOfAnExceptionIsPrinted) {
  EXPECT_EQ(WithReprsPrinted("it failed: FileNotFoundError(2, 'No such file or directory')"),
            "it failed: FileNotFoundError: [Errno 2] No such file or directory");
  EXPECT_EQ(WithReprsPrinted(R"(a.b.ReadError("it's gone"), KeyError('x') and more)"),
            "a.b.ReadError: it's gone, KeyError: x and more");
  EXPECT_EQ(WithReprsPrinted("OSError(5, 'Input/output error', '/data/a')"),
            "OSError: [Errno 5] Input/output error, '/data/a'");
  EXPECT_EQ(WithReprsPrinted(R"(ValueError('it\'s (odd)') x)"), R"(ValueError: it\'s (odd) x)");
  for (const char* other :
       {"", "(", "OSError(", "OSError()", "OSError(5", "OSError(5, ", "OSError(5, x)", "OSError('x",
        "OSError('x'", "OSError('x\\'", "RayTaskError(ValueError): x", "load('x')", "Error('x')",
        "OSError(5x, 'y')"}) {
    EXPECT_EQ(WithReprsPrinted(other), "") << other;
  }
}

TEST(Traceback, BlanksMayHaveBeenLost) {
  const auto raised = Read(R"(Traceback (most recent call last):
File "/app/run.py", line 3, in save_checkpoint
os.mkdir(path)
OSError: x)");
  ASSERT_THAT(raised, SizeIs(1));
  EXPECT_EQ(raised[0].where, "/app/run.py:3 in save_checkpoint");
  EXPECT_EQ(raised[0].doing, Doing::kCheckpoint);
}

}  // namespace
}  // namespace muster::worker
