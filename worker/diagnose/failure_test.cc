#include "worker/diagnose/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "nlohmann/json.hpp"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

constexpr std::string_view kHandshakeLine =
    "NET/OFI Request 0x7f45 completed with error. RC: 103. Error: 4126 (Unresponsive receiver "
    "(reachable by EFA device but handshake failed)";

TEST(Cause, EveryCauseIsCompleteAndInItsPlace) {
  for (size_t i = 0; i < Causes().size(); ++i) {
    const Cause& cause = Causes()[i];
    EXPECT_EQ(static_cast<size_t>(cause.id), i) << cause.name;
    EXPECT_EQ(FindCause(cause.name), &cause) << "two causes are called " << cause.name;
  }
}

TEST(Cause, ExitCodesTellKubernetesWhetherToStartAgain) {
  EXPECT_EQ(OutcomeOf(CauseOf(CauseId::kSecurityGroupEgress)), Outcome::kConfiguration);
  EXPECT_LT(CauseOf(CauseId::kSecurityGroupEgress).exit_code, 128);
  EXPECT_EQ(OutcomeOf(CauseOf(CauseId::kGpuFault)), Outcome::kRetry);
  EXPECT_GE(CauseOf(CauseId::kGpuFault).exit_code, 128);
  EXPECT_EQ(CauseOf(CauseId::kTerminated).exit_code, 143);
}

TEST(Cause, ExactlyTheFaultsOfTheNodesOwnDevicesAccuseItByName) {
  for (const Cause& cause : Causes()) {
    const bool accuses = cause.name.starts_with("gpu") || cause.name.starts_with("efa");
    EXPECT_EQ(accuses, cause.id == CauseId::kGpuFault || cause.id == CauseId::kGpuLinksSlow ||
                           cause.id == CauseId::kGpuFabricDown ||
                           cause.id == CauseId::kEfaDeviceFault)
        << cause.name;
  }
}

TEST(Failure, TheHeartbeatTellsASecurityGroupFromADeadPeer) {
  EXPECT_EQ(FailureOf(kHandshakeLine, PeerState::kAlive)->cause, CauseId::kSecurityGroupEgress);
  EXPECT_EQ(FailureOf(kHandshakeLine, PeerState::kSilent)->cause, CauseId::kPeerLost);
  EXPECT_EQ(FailureOf(kHandshakeLine, PeerState::kUnknown)->cause, CauseId::kHandshakeFailed);
}

TEST(Failure, AResultCodeCountsOnlyWhereNothingSaysMore) {
  const std::string error = Concat("ncclRemoteError: A call failed\nLast error:\n", kHandshakeLine);
  EXPECT_EQ(FailureOf(error, PeerState::kAlive)->cause, CauseId::kSecurityGroupEgress);
  EXPECT_EQ(FailureOf("ncclRemoteError: A call failed", PeerState::kAlive)->cause,
            CauseId::kPeerLost);
  EXPECT_FALSE(FailureOf("all is well", PeerState::kAlive));
}

TEST(Failure, OneSentenceNamesRankCauseNumbersAndFix) {
  EXPECT_EQ(Sentence({.cause = CauseId::kRendezvousTimeout,
                      .detail = "2 of 16 ranks are missing after 600 s: 7, 12",
                      .rank = 0,
                      .host = "train-0"}),
            "rank 0 on train-0: not all ranks came to the rendezvous in time: 2 of 16 ranks are "
            "missing after 600 s: 7, 12. Look at the pods of the missing ranks (kubectl describe "
            "pod): pending, pulling their image, or failed; a gang scheduler starts all of them or "
            "none.");
  EXPECT_THAT(Sentence({.cause = CauseId::kDiskFull}),
              StartsWith("a disk is full, or a quota on it is used up. Make room"));
}

TEST(TerminationMessage, SaysCauseRankAndFix) {
  const auto message = nlohmann::json::parse(TerminationMessage(
      {.cause = CauseId::kGpuFault, .detail = "Xid 79", .rank = 3, .host = "train-3"}));
  EXPECT_EQ(message.at("cause"), "gpu-fault");
  EXPECT_EQ(message.at("rank"), 3);
  EXPECT_EQ(message.at("host"), "train-3");
  EXPECT_EQ(message.at("fault"), "node");
  EXPECT_EQ(message.at("outcome"), "retry");
  EXPECT_EQ(message.at("exitCode"), CauseOf(CauseId::kGpuFault).exit_code);
  EXPECT_EQ(message.at("detail"), "Xid 79");
  EXPECT_THAT(message.at("fix").get<std::string>(), HasSubstr("drain"));
}

TEST(TerminationMessage, FitsWhateverTheDetail) {
  for (const std::string& detail : {std::string(100'000, 'x'), std::string(100'000, '"'),
                                    std::string(100'000, '\xFF'), std::string(100'000, '\0')}) {
    const Failure failure{.cause = CauseId::kPeerLost, .detail = detail, .host = detail};
    const std::string message = TerminationMessage(failure);
    EXPECT_LE(message.size(), kMaxTerminationMessage);
    EXPECT_EQ(nlohmann::json::parse(message).at("cause"), "peer-lost");
  }
}

TEST(TerminationMessage, IsReadBackFromAPodsDescription) {
  const Failure failure{.cause = CauseId::kGpuFault, .detail = "Xid 79", .rank = 3, .host = "h"};
  const auto read =
      ReadTerminationMessage(Concat("      Message:      ", TerminationMessage(failure)));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->cause, failure.cause);
  EXPECT_EQ(read->detail, failure.detail);
  EXPECT_EQ(read->rank, failure.rank);
  EXPECT_EQ(read->host, failure.host);
}

TEST(TerminationMessage, OthersJsonIsNotOurs) {
  EXPECT_FALSE(ReadTerminationMessage(R"({"cause":"bad luck"})"));
  EXPECT_FALSE(ReadTerminationMessage(R"("cause":"gpu-fault")"));
  EXPECT_TRUE(ReadTerminationMessage(R"({"cause":"gpu-fault","rank":-1,"detail":)"));
}

TEST(TerminationMessage, ReplacesWhatWasThere) {
  const std::string path = testing::TempDir() + "/termination-log";
  std::ofstream(path) << std::string(10'000, 'x');
  const Failure failure{.cause = CauseId::kDiskFull};
  ASSERT_TRUE(WriteTerminationMessage(failure, path).ok());
  EXPECT_EQ(Contents(path), TerminationMessage(failure));
}

TEST(TerminationMessage, AFolderThatIsMissingIsNamed) {
  const absl::Status status =
      WriteTerminationMessage({.cause = CauseId::kDiskFull}, "/nonexistent/termination-log");
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/termination-log"));
}

}  // namespace
}  // namespace muster::worker
