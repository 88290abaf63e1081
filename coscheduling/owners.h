// The engine's owners, each with its own state, and what only they together can say of a gang. The
// engine's two sources (engine.cc: steps, observations.cc: what is observed) are alone in knowing
// it.
#pragma once

#include <optional>
#include <string>

#include "cluster/snapshot.h"
#include "cluster/suspect_nodes.h"
#include "cluster/tombstones.h"
#include "coscheduling/admission/owner.h"
#include "coscheduling/admission/quota_admission.h"
#include "coscheduling/admission/records.h"
#include "coscheduling/admission/workloads.h"
#include "coscheduling/agenda.h"
#include "coscheduling/commit/commit.h"
#include "coscheduling/commit/job_starts.h"
#include "coscheduling/commit/repair.h"
#include "coscheduling/commit/restarts.h"
#include "coscheduling/commit/suspect_marks.h"
#include "coscheduling/engine.h"
#include "coscheduling/gangs/gangs.h"
#include "coscheduling/outbox.h"
#include "coscheduling/placement/placement.h"
#include "coscheduling/provisioning/holds.h"
#include "coscheduling/provisioning/placeability.h"
#include "coscheduling/provisioning/provisioning.h"
#include "coscheduling/report/queue_report.h"
#include "coscheduling/report/report.h"

namespace muster::coscheduling {

struct Engine::Owners {
  explicit Owners(EngineOptions engine_options);

  // --- observations.cc ---
  void Observe(kube::Pod pod);
  void RemovePod(const std::string& uid);
  struct Coming;
  struct Going;
  // Has each owner forget the pods and gangs that are gone.
  void Depart();

  // --- engine.cc ---
  // In an earlier term another process may have decided.
  void BeginTerm();
  void Step(StepOutput* out);
  void ObserveJournal();
  // Everything about the gang once more, before anything is decided.
  void Refresh(const Gang& gang);
  // Ends the attempt.
  void GiveUp(const Gang& gang, absl::Time retry_after, std::optional<Reason> why);
  // Its admission record is being written, or taken over from another process: what was asked for
  // and held on its behalf stays as it is until then.
  bool IsUndecided(const Gang& gang) const;
  void Decide(const Gang& gang);
  void Enter(const Gang& gang);

  const EngineOptions options;
  Agenda agenda;
  cluster::Snapshot snapshot;
  Outbox outbox;
  coscheduling::Gangs gangs;
  Records records;
  Attempts attempts;
  Workloads workloads;
  const Owner common;
  QuotaAdmission quota;
  cluster::SuspectNodes suspects;
  Placeability placeability;
  Placement placement;
  Provisioning provisioning;
  NodeHolds holds;
  Commit commit;
  Restarts restarts;
  JobStarts job_starts;
  Repair repair;
  SuspectMarks suspect_marks;
  Report report;
  QueueReport queue_report;

  cluster::Tombstones gone;
  bool synced = false;
  bool leading = true;
  uint64_t gave_up = 0;
};

}  // namespace muster::coscheduling
