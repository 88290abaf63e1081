#include "worker/diagnose/line_progress.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace muster::worker {
namespace {

TEST(LineProgress, StepsWithTheirLossOrSpeedAreProgress) {
  EXPECT_TRUE(IsProgress("{'loss': 8.99, 'epoch': 0.01}"));
  EXPECT_TRUE(IsProgress(" 12%|#         | 12/100 [00:12<01:12,  1.31it/s]"));
  EXPECT_TRUE(IsProgress("step 10 loss 9.31 tokens/s 47700"));
  EXPECT_FALSE(IsProgress("RuntimeError: the loss is wrong"));
  EXPECT_FALSE(IsProgress("Map: done"));
}

TEST(LineProgress, LastWordsAndExitCodes) {
  EXPECT_TRUE(IsLastWord("checkpoint saved; run complete"));
  EXPECT_TRUE(IsLastWord("OK (skipped=1)"));
  EXPECT_FALSE(IsLastWord("OK so far"));
  EXPECT_FALSE(IsLastWord("run completed 3 of 10 epochs"));
  EXPECT_EQ(ExitCodeIn("[n1] torchrun exit code 0"), 0);
  EXPECT_EQ(ExitCodeIn("done, exit 0"), 0);
  EXPECT_EQ(ExitCodeIn("exit code: 0"), 0);
  EXPECT_EQ(ExitCodeIn("mpirun finished with exit status 0."), 0);
  EXPECT_EQ(ExitCodeIn("worker exited with code -9"), -9);
  EXPECT_EQ(ExitCodeIn("torchrun exit code 10"), 10);
  EXPECT_EQ(ExitCodeIn("+ exit 0"), std::nullopt);
  EXPECT_EQ(ExitCodeIn("      Exit Code:    0"), std::nullopt);
  EXPECT_EQ(ExitCodeIn("epilog exit code 0"), std::nullopt);
  EXPECT_EQ(ExitCodeIn("exit code"), std::nullopt);
  EXPECT_EQ(ExitCodeIn("epoch 0"), std::nullopt);
  EXPECT_EQ(ExitCodeIn("0"), std::nullopt);
  EXPECT_EQ(ExitCodeIn(""), std::nullopt);
}

TEST(LineProgress, AProgramMaySayThatItGoesOn) {
  for (const char* word :
       {"retrying in 5 s (2/10)", "(retry 1/5)", "step 5: skipping batch",
        "Falling back to step 300", "+ true", "could not load step-400; using step-300 instead",
        "trying port 29501", "no checkpoint, starting from scratch"}) {
    EXPECT_TRUE(SaysThatItGoesOn(word)) << word;
  }
  for (const char* word :
       {"", "Max retries exceeded with url: /x", "An error came while trying to save",
        "expected 3 arguments, got 4", "retry 3/3 failed, giving up", "set x instead"}) {
    EXPECT_FALSE(SaysThatItGoesOn(word)) << word;
  }
}

TEST(LineProgress, AGoodEndIsNoTablesHeading) {
  EXPECT_TRUE(IsCompletion("====== 13 passed, 1 skipped in 91.33s (0:01:31) ======"));
  EXPECT_FALSE(IsCompletion("====== 1 failed, 13 passed in 91.33s ======"));
  EXPECT_TRUE(IsCompletion("======== Training complete ========"));
  EXPECT_TRUE(IsCompletion("[INFO] Tuning completed in 0:22:11."));
  EXPECT_TRUE(IsCompletion("  Job completed"));
  EXPECT_TRUE(IsCompletion("# Out of bounds values : 0 OK"));
  EXPECT_FALSE(IsCompletion("# Out of bounds values : 3 FAILED"));
  EXPECT_TRUE(IsCompletion("*** TRAINING COMPLETED ***"));
  EXPECT_TRUE(IsCompletion("551200       resnet     COMPLETED       0:0  00:44:12"));
  EXPECT_FALSE(IsCompletion("NAME   TERMINALSTATE   RESTARTS   COMPLETED   SUSPENDED   AGE"));
  EXPECT_TRUE(IsCompletion("[State Transition] RUNNING -> FINISHED."));
  EXPECT_FALSE(IsCompletion("[State Transition] RUNNING -> ERRORED."));
  EXPECT_TRUE(IsCompletion("  error=None,"));
  EXPECT_FALSE(IsCompletion("call(error=None, retries=3)"));
}

TEST(LineProgress, AScaleOfZero) {
  for (const char* zero : {"loss=nan, grad_scale: 0.0", "loss scale: 0.0E+00 |", "scale=0"}) {
    EXPECT_TRUE(ScaleIsZero(zero)) << zero;
  }
  for (const char* other : {"", "scale", "scale 0.5", "loss scale: 1.0", "scale: none", "scale0",
                            "grad_scale: 0.00390625", "scales are 0"}) {
    EXPECT_FALSE(ScaleIsZero(other)) << other;
  }
}

TEST(LineProgress, TheLossOfAStepIsANumberOrNot) {
  for (const char* lost : {"step 7 loss nan, 0.4 s/it", "{'loss': nan, 'epoch': 0.3}",
                           "lm loss: NAN | grad norm: nan", "3/9 1.2it/s, train_loss=nan.0]",
                           "loss: tensor(nan, device='cuda:0')", "loss_bbox: 0.2 loss: -inf"}) {
    EXPECT_EQ(LossIsFinite(lost), false) << lost;
  }
  for (const char* finite : {"loss 2.5", "loss: -0.1", "d_loss: nan g_loss: 1.0"}) {
    EXPECT_EQ(LossIsFinite(finite), true) << finite;
  }
  for (const char* untold : {"", "loss", "loss:", "lossless 3", "val_loss=nan", "val loss nan",
                             "eval_loss: nan", "loss none"}) {
    EXPECT_EQ(LossIsFinite(untold), std::nullopt) << untold;
  }
}

}  // namespace
}  // namespace muster::worker
