// Why a training job fails: causes, each with its sentence, its fix, and whether starting again
// helps. Saved logs, live failures and preflight all speak of causes by it. The causes themselves
// are in causes.txt.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "worker/diagnose/cause_id.h"

namespace muster::worker {

// Whether the same job, started again, may succeed.
enum class Outcome : uint8_t {
  kRetry,          // exit code >= 128, which restartPolicy ExitCode starts again
  kConfiguration,  // exit code < 128: somebody has to change something first
};

// How a cause relates to others that are seen at about the same time.
enum class Role : uint8_t {
  kOrigin,    // something that goes wrong by itself
  kReaction,  // what ranks see when another rank, the network or the cluster ended first
  kEcho,      // no more than that another rank is gone
  kResult,    // how something ended; says nothing beside a cause
  kWarning,   // slows a job down or endangers it, but doesn't end it
};

// What has to be looked at: a node, what is between nodes, or one of the things that the job's
// owner made.
enum class Fault : uint8_t { kNode, kNetwork, kProgram, kConfig, kData };

struct Cause {
  CauseId id = CauseId::kCount;
  std::string_view name;  // stable; see causes.txt
  Role role = Role::kOrigin;
  Fault fault = Fault::kConfig;
  // The exit code says whether to start again; see OutcomeOf.
  int exit_code = 0;
  std::string_view sentence;  // without a full stop, so that details can follow
  std::string_view fix;       // whole sentences
  // The cause of which this one is a kind, or empty: where both are seen, this one says more.
  std::string_view refines = {};
};

// All causes, in the order of CauseId.
std::span<const Cause> Causes();

// `id` must not be kCount.
const Cause& CauseOf(CauseId id);

// By its name, or null.
const Cause* FindCause(std::string_view name);

Outcome OutcomeOf(const Cause& cause);
std::string_view OutcomeName(Outcome outcome);  // "retry", "configuration"
std::string_view FaultName(Fault fault);        // "node", "network", "program", "config", "data"

}  // namespace muster::worker
