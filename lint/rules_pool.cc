// NodePools that take nodes away too early, or name types that there aren't.
#include <algorithm>
#include <string>

#include "absl/time/time.h"
#include "kube/objects/well_known.h"
#include "lint/pool_fit.h"
#include "lint/rules.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

bool IsDevice(std::string_view resource) { return resource == kGpu || resource == kNeuron; }

// Made for jobs with devices, as far as can be told without one.
bool IsForDevices(const NodePool& pool, const Surroundings& around) {
  if (std::ranges::any_of(pool.taints, IsDevice) ||
      std::ranges::any_of(pool.limits, [](const auto& limit) { return IsDevice(limit.first); })) {
    return true;
  }
  const TypeSet types = TypesOf(&pool, {}, around.types);
  return !types.known.empty() && !types.unknown && !types.others;
}

void CheckConsolidation(const NodePool& pool, const std::vector<const LintGang*>& gangs,
                        Findings* findings) {
  if (pool.never_disrupted) return;
  if (pool.consolidation_policy.value != "WhenEmpty") {
    const bool said = pool.consolidation_policy.present();
    findings->Add(
        "consolidation-underutilized", pool.file,
        said ? pool.consolidation_policy.line : pool.disruption_line,
        fmt::format("NodePool {} consolidates WhenEmptyOrUnderutilized{}: Karpenter may replace a "
                    "node on which a rank runs, and one lost rank ends the job",
                    pool.name, said ? "" : ", which is the default"),
        "consolidate empty nodes only",
        "disruption:\n  consolidationPolicy: WhenEmpty\n  consolidateAfter: 20m\n");
  }
  LocatedCount longest;
  const LintGang* of = nullptr;
  for (const LintGang* gang : gangs) {
    const LocatedCount timeout = gang->TimeoutSeconds();
    if (timeout.present() && (of == nullptr || timeout.value > longest.value)) {
      longest = timeout;
      of = gang;
    }
  }
  const absl::Duration needed = absl::Seconds(of == nullptr ? kNodeStartSeconds : longest.value);
  if (pool.consolidate_after_value >= needed) return;
  const std::string why =
      of == nullptr ? Concat("a node with GPUs takes up to ", kNodeStartSeconds,
                             " s to start, and the first of a gang waits for the last")
                    : fmt::format("{} waits up to {} s for its nodes (scheduleTimeoutSeconds)",
                                  of->Name(), longest.value);
  const int64_t minutes = (absl::ToInt64Seconds(needed) + 59) / 60;
  findings->Add(
      "consolidate-after-short", pool.file,
      pool.consolidate_after.present() ? pool.consolidate_after.line : pool.disruption_line,
      fmt::format("NodePool {} removes empty nodes after {}, but {}", pool.name,
                  pool.consolidate_after.present() ? pool.consolidate_after.value
                                                   : std::string("0s, the default"),
                  why),
      "keep empty nodes at least as long", Concat("consolidateAfter: ", minutes, "m\n"));
}

void CheckTypeNames(const NodePool& pool, const Surroundings& around, Findings* findings) {
  for (const Requirement& requirement : pool.requirements) {
    if (requirement.key != kube::kInstanceTypeLabel ||
        requirement.op != Requirement::Operator::kIn) {
      continue;
    }
    for (const std::string& name : requirement.values) {
      const std::string family = name.substr(0, name.find('.'));
      if (around.types.Find(name) != nullptr || !around.types.KnowsFamily(family)) continue;
      std::string known;
      for (const auto& [other, type] : around.types.all()) {
        if (type.Family() == family) Append(&known, known.empty() ? "" : ", ", other);
      }
      findings->Add(
          "instance-type-unknown", pool.file, requirement.line,
          fmt::format("NodePool {} allows {}, which isn't known; of family {} there is {}",
                      pool.name, name, family, known),
          "correct the name, or add the type with --instance-types");
    }
  }
}

}  // namespace

void CheckNodePool(const NodePool& pool, const std::vector<LintGang>& gangs,
                   const Surroundings& around, Findings* findings) {
  CheckTypeNames(pool, around, findings);
  std::vector<const LintGang*> users;
  for (const LintGang& gang : gangs) {
    if (!gang.IsGang() || !gang.WantsDevices()) continue;
    const bool uses = std::ranges::any_of(gang.templates, [&](const PodTemplate* pods) {
      const std::vector<const NodePool*>& pools = around.pools.For(*pods);
      return pods->WantsDevices() && std::ranges::find(pools, &pool) != pools.end();
    });
    if (!uses) continue;
    users.push_back(&gang);
  }
  if (!users.empty() || IsForDevices(pool, around)) CheckConsolidation(pool, users, findings);
}

}  // namespace muster::lint
