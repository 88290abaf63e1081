#include "worker/program/launch_verdict.h"

#include <string>

#include "worker/diagnose/gpu_memory.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

std::optional<int> RankOf(const LaunchEnd& end) {
  if (end.starts_ranks && end.result.first_failure.has_value()) {
    return end.result.first_failure->rank;
  }
  return end.told.has_value() ? end.told->rank : std::nullopt;
}

std::string AboutMemory(const MemoryEvents& events) {
  if (events.limit_reached == 0) {
    return "the node had no memory left, while this container was below its limit";
  }
  return events.limit.has_value() ? Concat("its memory limit is ", FormatBytes(*events.limit))
                                  : std::string("a limit above this container was reached");
}

}  // namespace

std::optional<Failure> VerdictOn(const LaunchEnd& end) {
  if (end.mismatch.has_value()) {
    return Failure{.cause = CauseId::kWorldSizeMismatch,
                   .detail = end.mismatch->detail,
                   .rank = end.mismatch->rank};
  }
  if (end.standstill.has_value()) {
    return Failure{.cause = CauseId::kCollectiveTimeout,
                   .detail = end.standstill->detail,
                   .rank = end.standstill->rank};
  }
  const SupervisorResult& result = end.result;
  if (result.stopped || !result.first_failure.has_value()) {
    if (result.exit_code == 0) return std::nullopt;
    // What a stop makes of a rank doesn't change that the pod was stopped.
    return Failure{.cause = CauseId::kTerminated,
                   .detail = !result.first_failure.has_value()
                                 ? "all ranks of this pod have ended in order"
                                 : Concat("rank ", result.first_failure->rank, " then ",
                                          result.first_failure->how)};
  }
  if (!end.memory_kill.has_value()) return end.told;
  return Failure{.cause = CauseId::kHostOutOfMemory,
                 .detail = Concat(result.first_failure->how, "; ", AboutMemory(*end.memory_kill)),
                 .rank = RankOf(end)};
}

}  // namespace muster::worker
