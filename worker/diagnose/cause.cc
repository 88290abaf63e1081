#include "worker/diagnose/cause.h"

#include <algorithm>
#include <cstddef>

#include "worker/diagnose/cause_table.h"

namespace muster::worker {

std::span<const Cause> Causes() { return BuiltInCauses().causes; }

const Cause& CauseOf(CauseId id) { return BuiltInCauses().causes.at(static_cast<size_t>(id)); }

const Cause* FindCause(std::string_view name) {
  const std::span<const Cause> causes = Causes();
  const auto found = std::ranges::find(causes, name, &Cause::name);
  return found == causes.end() ? nullptr : &*found;
}

Outcome OutcomeOf(const Cause& cause) {
  return cause.exit_code < 128 ? Outcome::kConfiguration : Outcome::kRetry;
}

std::string_view OutcomeName(Outcome outcome) {
  return outcome == Outcome::kRetry ? "retry" : "configuration";
}

std::string_view FaultName(Fault fault) {
  switch (fault) {
    case Fault::kNode:
      return "node";
    case Fault::kNetwork:
      return "network";
    case Fault::kProgram:
      return "program";
    case Fault::kData:
      return "data";
    case Fault::kConfig:
      break;
  }
  return "config";
}

}  // namespace muster::worker
