#include "quota/workload_status.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace muster::quota {
namespace {

const absl::Time kThen = absl::FromUnixSeconds(1'700'000'000);
const absl::Time kNow = kThen + absl::Minutes(1);

Admission Given() {
  Admission admission;
  admission.cluster_queue = "gpus";
  admission.reserved_at = kThen;
  return admission;
}

// As it is read once these conditions were written.
kube::Workload With(Conditions conditions) {
  kube::Workload workload;
  const auto is = [&](const char* type) { return conditions[type].status == "True"; };
  workload.reserved = is("QuotaReserved");
  workload.evicted = is("Evicted");
  workload.finished = is("Finished");
  workload.conditions = std::move(conditions);
  return workload;
}

const kube::Condition& Of(const kube::Workload& workload, const char* type) {
  return workload.conditions.at(type);
}

TEST(WorkloadStatus, GoesFromWaitingToAdmittedToEvictingAndBack) {
  const kube::Workload waiting;
  EXPECT_EQ(StateOf(waiting), WorkloadState::kWaiting);
  const kube::Workload admitted = With(Admitted(waiting, Given(), kNow));
  EXPECT_EQ(StateOf(admitted), WorkloadState::kAdmitted);
  EXPECT_EQ(Of(admitted, "QuotaReserved").reason, "QuotaReserved");
  EXPECT_EQ(Of(admitted, "QuotaReserved").last_transition, kThen);
  const kube::Workload evicting =
      With(Evicted(admitted, {"gang a/b needs it", "Preempted", "InClusterQueue"}, kNow));
  EXPECT_EQ(StateOf(evicting), WorkloadState::kEvicting);
  EXPECT_EQ(Of(evicting, "Evicted").reason, "Preempted");
  EXPECT_EQ(Of(evicting, "Preempted").reason, "InClusterQueue");
  EXPECT_EQ(Of(evicting, "QuotaReserved").status, "True");
  const kube::Workload out = With(Released(evicting, "", kNow));
  EXPECT_EQ(StateOf(out), WorkloadState::kWaiting);
  EXPECT_EQ(Of(out, "QuotaReserved").reason, "Pending");
  EXPECT_EQ(Of(out, "Admitted").reason, "NoReservation");
  EXPECT_EQ(Of(out, "Requeued").status, "True");
  const kube::Workload again = With(Admitted(out, Given(), kNow));
  EXPECT_EQ(StateOf(again), WorkloadState::kAdmitted);
  EXPECT_EQ(Of(again, "Evicted").status, "False");
  EXPECT_EQ(Of(again, "Evicted").message, "Previously: gang a/b needs it");
  EXPECT_EQ(Of(again, "Preempted").status, "False");
  EXPECT_EQ(Of(again, "Requeued").reason, "Preempted");
}

TEST(WorkloadStatus, WhatWasDeactivatedIsNotQueuedAgain) {
  const kube::Workload admitted = With(Admitted({}, Given(), kNow));
  const kube::Workload evicting =
      With(Evicted(admitted, {"spec.active is false", "Deactivated", ""}, kNow));
  EXPECT_FALSE(evicting.conditions.contains("Preempted"));
  EXPECT_EQ(Of(With(Released(evicting, "", kNow)), "Requeued").status, "False");
}

// As Kueue does: once it is in line again, which a queue that is stopped still isn't.
TEST(WorkloadStatus, IsQueuedAgainOnceWhatStoppedItIsOver) {
  const Wait in_line = {WaitCode::kQuotaInUse, "8 GPUs are used", ""};
  const Wait stopped = {WaitCode::kQueueStopped, "8 GPUs are used", ""};
  for (const auto& [reason, stays, again] : std::vector<std::tuple<std::string, bool, std::string>>{
           {"Deactivated", false, "Reactivated"},
           {"DeactivatedDueToMaximumExecutionTimeExceeded", false, "Reactivated"},
           {"ClusterQueueStopped", true, "ClusterQueueRestarted"},
           {"LocalQueueStopped", true, "LocalQueueRestarted"},
           {"Unknown", true, "Unknown"}}) {
    const kube::Workload admitted = With(Admitted({}, Given(), kNow));
    const kube::Workload evicting = With(Evicted(admitted, {"8 GPUs are used", reason, ""}, kNow));
    const kube::Workload out = With(Released(evicting, "", kNow));
    EXPECT_EQ(Of(out, "Requeued").status, "False");
    EXPECT_EQ(SaysWhy(out, in_line), reason == again) << reason;
    EXPECT_EQ(SaysWhy(out, stopped), stays) << reason;
    EXPECT_EQ(Of(With(Admitted(out, Given(), kNow)), "Requeued").reason, again);
    const kube::Condition waits = Of(With(Waiting(out, in_line, kNow)), "Requeued");
    EXPECT_EQ(waits.reason, again);
    EXPECT_EQ(waits.status, reason == again ? "False" : "True") << reason;
    EXPECT_EQ(Of(With(Waiting(out, stopped, kNow)), "Requeued").status, stays ? "False" : "True");
  }
}

TEST(WorkloadStatus, SaysWhyItWaits) {
  const kube::Workload waits =
      With(Waiting({}, {WaitCode::kQuotaInUse, "8 GPUs are used", ""}, kNow));
  EXPECT_EQ(StateOf(waits), WorkloadState::kWaiting);
  EXPECT_EQ(Of(waits, "QuotaReserved").status, "False");
  EXPECT_EQ(Of(waits, "QuotaReserved").reason, "Pending");
  EXPECT_EQ(Of(waits, "QuotaReserved").message, "8 GPUs are used");
  const kube::Workload stopped = With(Waiting(waits, {WaitCode::kQueueStopped, "Hold", ""}, kNow));
  EXPECT_EQ(Of(stopped, "QuotaReserved").reason, "Inadmissible");
}

TEST(WorkloadStatus, IsReleasedForGoodOnceItHasFinished) {
  const kube::Workload admitted = With(Admitted({}, Given(), kNow));
  const kube::Workload over = With(Released(admitted, "Succeeded", kNow));
  EXPECT_EQ(StateOf(over), WorkloadState::kReleased);
  EXPECT_FALSE(HasQuota(over));
  EXPECT_EQ(Of(over, "Finished").reason, "Succeeded");
  EXPECT_FALSE(Released(over, "", kNow).contains("Finished"));
  // Members made anew are another run.
  EXPECT_FALSE(Admitted(over, Given(), kNow).contains("Finished"));
}

TEST(WorkloadStatus, ATimeChangesWithItsStatusAlone) {
  const kube::Workload admitted = With(Admitted({}, Given(), kThen));
  EXPECT_EQ(Of(With(Admitted(admitted, Given(), kNow)), "Admitted").last_transition, kThen);
  EXPECT_EQ(Of(With(Released(admitted, "", kNow)), "Admitted").last_transition, kNow);
}

}  // namespace
}  // namespace muster::quota
