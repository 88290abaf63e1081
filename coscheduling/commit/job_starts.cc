#include "coscheduling/commit/job_starts.h"

#include <utility>
#include <vector>

namespace muster::coscheduling {

void JobStarts::Decide(const Gang& gang) {
  if (!quota_.AsksBySpec(gang) || gang.facts.blocked) return;
  const bool starts = IsStarting(gang) && !quota_.IsDeactivated(gang);
  if (!starts && workloads_.HasQuota({gang.key.name_space, gang.derived->owner.uid})) return;
  const kube::AnyJob& job = *gangs_.JobOf(gang);
  ChangeTemplates change = {std::string(job.api_version),
                            std::string(job.kind),
                            {job.name_space, job.name, job.uid, job.resource_version},
                            starts,
                            {}};
  // What another one makes for it, a TrainJob's JobSet, isn't changed under its hands: its pods are
  // given their flavors one by one.
  if (job.uid == gang.spec_of) change.templates = quota_.TemplatesFor(gang);
  if (!starts && change.templates.empty()) return;
  Action action = change;
  if (job.has_start_time && !change.templates.empty()) action = ResetStartTime{change.job};
  outbox_->Act(gang.id, "restart/" + job.uid, std::move(action),
               KeepRefusal(gangs_, gang.id, &errors_));
}

}  // namespace muster::coscheduling
