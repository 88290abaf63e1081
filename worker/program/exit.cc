#include "worker/program/exit.h"

#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "worker/communicator/communicator.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

CauseId CauseOfCode(const absl::Status& status) {
  const bool names_ranks = !RanksAtFault(status).empty();
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
      return CauseId::kTerminated;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
      return names_ranks ? CauseId::kPeerLost : CauseId::kStorageFailed;
    case absl::StatusCode::kDeadlineExceeded:
      return CauseId::kCollectiveTimeout;
    case absl::StatusCode::kFailedPrecondition:
      // Ranks that are at different operations.
      return names_ranks ? CauseId::kCollectiveTimeout : CauseId::kConfigurationInvalid;
    case absl::StatusCode::kAlreadyExists:
      return CauseId::kAddressInUse;
    case absl::StatusCode::kPermissionDenied:
      return CauseId::kCheckpointUnwritable;
    case absl::StatusCode::kResourceExhausted:
      return absl::StrContains(status.message(), "the GPU's ") ? CauseId::kModelTooLarge
                                                               : CauseId::kDiskFull;
    case absl::StatusCode::kDataLoss:
      // Weights and checkpoints are of this form, and nothing else is.
      return status.message().find(".safetensors") == absl::string_view::npos
                 ? CauseId::kDataCorrupt
                 : CauseId::kCheckpointCorrupt;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return CauseId::kProgramCrash;
    default:
      return CauseId::kConfigurationInvalid;
  }
}

}  // namespace

Failure FailureFor(const absl::Status& status, std::optional<int> rank, const std::string& host) {
  std::string_view text(status.message().data(), status.message().size());
  if (std::optional<Failure> told = ReadTerminationMessage(text)) return *std::move(told);
  Failure failure;
  const std::optional<Failure> shown =
      absl::IsCancelled(status) ? std::nullopt : FailureOf(text, PeerState::kUnknown);
  failure.cause = shown.has_value() ? shown->cause : CauseOfCode(status);
  const std::vector<int> at_fault = RanksAtFault(status);
  const std::optional<int64_t> named =
      text.starts_with("rank ") ? NumberAfter(text, "rank ") : std::nullopt;
  if (!at_fault.empty()) {
    failure.rank = at_fault.front();
  } else if (named.has_value() && ConsumePrefix(&text, Concat("rank ", *named, ": "))) {
    failure.rank = static_cast<int>(*named);
  } else {
    failure.rank = rank;
  }
  if (failure.rank == rank) failure.host = host;
  failure.detail = std::string(text);
  return failure;
}

absl::Status StatusOf(const Failure& failure) {
  return absl::FailedPreconditionError(TerminationMessage(failure));
}

int ExitCodeFor(const absl::Status& status) {
  return status.ok() ? 0 : CauseOf(FailureFor(status).cause).exit_code;
}

}  // namespace muster::worker
