// What the scheduler says, at the lines that it speaks of.
#include <algorithm>

#include "fmt/format.h"
#include "lint/locate.h"
#include "lint/rules.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

void Tell(const Judgement& judgement, const std::string& who, const Workload& workload,
          const LintGang* gang, const Surroundings& around, Findings* findings) {
  const Place place = PlaceOf(judgement, workload, gang, around.manifests);
  findings->Add(RuleOf(judgement.reason.code), place.file, place.line,
                Concat(who, ": ", judgement.reason.message), judgement.reason.fix);
}

}  // namespace

void CheckByJudge(const Workload& workload, const std::vector<const LintGang*>& gangs,
                  const Surroundings& around, Findings* findings) {
  // What is wrong with it is told already.
  if (workload.unreadable) return;
  const MadePods made = MakePods(workload, around.judge.scheduler_name());
  const std::vector<Judgement> blockers = around.judge.Membership(workload, made);
  for (const Judgement& each : blockers) {
    Tell(each, workload.ToString(), workload, gangs.empty() ? nullptr : gangs.front(), around,
         findings);
  }
  bool placeable = blockers.empty();
  // Told by the scheduler of jobs whose queue is known.
  if (placeable) {
    CheckMaxSeconds(workload.ToString(), workload.file, workload.max_seconds, findings);
  }
  for (const LintGang* gang : gangs) {
    for (const Judgement& each : around.judge.Place(*gang, made)) {
      Tell(each, gang->Name(), workload, gang, around, findings);
      placeable = false;
    }
  }
  if (!placeable || gangs.empty()) return;
  for (const Judgement& each : around.judge.SharedVolumes(made)) {
    Tell(each, workload.ToString(), workload, gangs.front(), around, findings);
    return;
  }
  for (const Judgement& each : around.judge.Room(*gangs.front(), made)) {
    Tell(each, workload.ToString(), workload, gangs.front(), around, findings);
  }
}

void CheckQueues(const Surroundings& around, Findings* findings) {
  for (const QueueFault& fault : around.judge.QueueFaults()) {
    const Place place = PlaceOf(fault);
    findings->Add(RuleOf(fault.reason.code), place.file, place.line, fault.reason.message,
                  fault.reason.fix);
  }
}

}  // namespace muster::lint
