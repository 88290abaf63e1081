// Cases for comparison with Kueue: JSON in the format of tests/kueue/README.md, asked of a
// QuotaScheduler.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "quota/judgement.h"
#include "quota/quota_scheduler.h"

namespace muster::quota::testing {

// Of all workloads and LocalQueues.
inline constexpr char kNamespace[] = "default";

// An object of queues as a case has it: `field` is "flavor", "cohort", "clusterQueue" or
// "localQueue" (whose namespace is left out).
void UpsertObject(QuotaScheduler& scheduler, const std::string& field,
                  const nlohmann::json& object);

// A gang with the pod sets of the case, in the namespace of all of them; its clusterQueue is taken
// for its LocalQueue's name.
Workload MakeWorkload(const nlohmann::json& from);

struct LoadedCase {
  std::unique_ptr<QuotaScheduler> scheduler;  // with what is admitted
  std::vector<Workload> pending;              // not enqueued
};

// Aborts with the reason where the case isn't well-formed: it was made by a test.
LoadedCase LoadCase(const nlohmann::json& quota_case);

// Each pending workload judged alone, in the form of the oracle's answer; without "reasons".
nlohmann::json AnswerCase(const nlohmann::json& quota_case, const OwnRules& rules = {});

// What we decide about one workload is what the oracle does, or one of its alternatives.
bool Agrees(const nlohmann::json& our_result, const nlohmann::json& their_result);

}  // namespace muster::quota::testing
