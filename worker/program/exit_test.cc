#include "worker/program/exit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/communicator/communicator.h"

namespace muster::worker {
namespace {

TEST(ExitCodeFor, TellsWhatARetryCuresFromWhatItDoesNot) {
  EXPECT_EQ(ExitCodeFor(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeFor(absl::CancelledError("SIGTERM")), 143);
  EXPECT_GE(ExitCodeFor(WithRanksAtFault(absl::UnavailableError("it went"), {3})), 128);
  EXPECT_GE(ExitCodeFor(WithRanksAtFault(absl::DeadlineExceededError("late"), {3})), 128);
  EXPECT_GE(ExitCodeFor(absl::UnavailableError("/checkpoints: can't write: I/O error")), 128);
  EXPECT_LT(ExitCodeFor(absl::ResourceExhaustedError("full")), 128);
  EXPECT_LT(ExitCodeFor(absl::FailedPreconditionError("mixed versions")), 128);
  EXPECT_LT(ExitCodeFor(absl::InvalidArgumentError("--nodes=0")), 128);
}

TEST(FailureFor, AFailureThatTravelledAsAnErrorIsTheSame) {
  const Failure failure = {.cause = CauseId::kGpuLinksSlow,
                           .detail = "node 1 (train-1) 20.0 GB/s",
                           .rank = 8,
                           .host = "train-1"};
  const absl::Status status = StatusOf(failure);
  // As AgreeOnResult passes it on.
  const absl::Status passed_on(status.code(), "rank 3: " + std::string(status.message()));
  for (const absl::Status& each : {status, passed_on}) {
    const Failure read = FailureFor(each, 5, "train-0");
    EXPECT_EQ(read.cause, failure.cause);
    EXPECT_EQ(read.detail, failure.detail);
    EXPECT_EQ(read.rank, failure.rank);
    EXPECT_EQ(read.host, failure.host);
  }
}

TEST(FailureFor, AVolumeThatFailsIsNoLostPeer) {
  EXPECT_EQ(FailureFor(absl::UnavailableError("can't write: Input/output error")).cause,
            CauseId::kStorageFailed);
  EXPECT_EQ(FailureFor(WithRanksAtFault(absl::UnavailableError("no answer"), {3})).cause,
            CauseId::kPeerLost);
}

TEST(FailureFor, AttentionThatCannotBeHadIsForSomebodyToMend) {
  EXPECT_EQ(ExitCodeFor(absl::InvalidArgumentError(
                "attention=cudnn can't be had: libcudnn.so.9: cannot open shared object file: No "
                "such file or directory; mend that, or set attention to plain, which is many times "
                "slower")),
            78);
}

TEST(FailureFor, TheTextSaysMoreThanTheCode) {
  EXPECT_EQ(
      FailureFor(absl::UnavailableError("resolving train-0: Name or service not known")).cause,
      CauseId::kNameNotFound);
  EXPECT_EQ(FailureFor(absl::DataLossError("tokens.bin: cut short")).cause, CauseId::kDataCorrupt);
  EXPECT_EQ(FailureFor(absl::DataLossError("shard-00000-of-00002.safetensors: damaged")).cause,
            CauseId::kCheckpointCorrupt);
  EXPECT_EQ(FailureFor(absl::ResourceExhaustedError("can't write /GPU/x: No space left")).cause,
            CauseId::kDiskFull);
  EXPECT_EQ(FailureFor(absl::ResourceExhaustedError(
                           "the model needs 171.92 GiB; of the GPU's 139.80 GiB 130.26 are free"))
                .cause,
            CauseId::kModelTooLarge);
  EXPECT_EQ(FailureFor(absl::CancelledError("rank 3 is lost: ")).cause, CauseId::kTerminated);
}

TEST(FailureFor, TheRankIsTheOneAtFault) {
  EXPECT_EQ(FailureFor(absl::DataLossError("cut short"), 2, "train-2").rank, 2);
  EXPECT_EQ(FailureFor(absl::DataLossError("cut short"), 2, "train-2").host, "train-2");
  const Failure other = FailureFor(absl::DataLossError("rank 5: cut short"), 2, "train-2");
  EXPECT_EQ(other.rank, 5);
  EXPECT_EQ(other.host, "");
  EXPECT_EQ(other.detail, "cut short");
  EXPECT_EQ(FailureFor(WithRanksAtFault(absl::UnavailableError("gone"), {7}), 2, "train-2").rank,
            7);
  EXPECT_EQ(FailureFor(absl::InvalidArgumentError("--nodes=0")).rank, std::nullopt);
}

}  // namespace
}  // namespace muster::worker
