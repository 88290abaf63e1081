// Members made anew through their job: to use another flavor than the one that they carry, or
// because the gang must be restarted whole.
//
// Nothing is remembered here that matters. That a gang is to fall back follows from its record (it
// gave up, on these flavors), from what its members carry, and from its queue; that a job is to be
// resumed from its mark (job_restart.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "cluster/snapshot.h"
#include "coscheduling/admission/quota_admission.h"
#include "coscheduling/admission/records.h"
#include "coscheduling/agenda.h"
#include "coscheduling/engine_options.h"
#include "coscheduling/gangs/gangs.h"
#include "coscheduling/gangs/job_restart.h"
#include "coscheduling/outbox.h"
#include "coscheduling/placement/placement.h"
#include "coscheduling/provisioning/placeability.h"
#include "coscheduling/provisioning/provisioning.h"
#include "kube/objects/workload.h"

namespace muster::coscheduling {

// Another flavor that its queue has, for a gang that gave up on those that its members carry.
struct Fallback {
  std::string flavor;
  std::string why;      // a sentence: what was tried, what can be used instead
  std::string why_not;  // its members can't be made anew, or mustn't; empty: its job is restarted
  std::string fix;      // of why_not
};

// The job whose suspension ends all members of a gang, and of no other one that has started.
struct Restarter {
  const kube::AnyJob* job = nullptr;
  std::string why_not, fix;                  // while there is none
  const kube::Workload* workload = nullptr;  // Kueue suspends the job, and resumes it
};

// The beginning of a fallback's sentence.
std::string WhatFailed(const Gang& gang, const AdmissionRecord& record,
                       const std::set<std::string>& flavors);

class Restarts {
 public:
  // All of them outlive it.
  Restarts(const EngineOptions& options, const cluster::Snapshot& snapshot, const Gangs& gangs,
           const Records& records, QuotaAdmission* quota, const Placement& placement,
           Placeability* placeability, const Provisioning& provisioning, Agenda* agenda,
           Outbox* outbox)
      : options_(options),
        snapshot_(snapshot),
        gangs_(gangs),
        records_(records),
        quota_(quota),
        placement_(placement),
        placeability_(placeability),
        provisioning_(provisioning),
        agenda_(agenda),
        outbox_(outbox) {}

  // --- observations ---
  void RemoveJob(const std::string& uid) { left_alone_.erase(uid); }
  // Kueue's (kueue_fallback.cc).
  void Upsert(kube::Workload workload);
  void RemoveWorkload(const std::string& uid);

  // --- the step of all ---
  // Goes on with jobs and Workloads that carry the mark, whoever suspended them.
  void KeepGoing();

  // --- steps of a gang ---
  // Whether another flavor is to be tried; after its members were counted.
  void FindFallback(const Gang& gang);
  // Why it waits for its job; no code if it doesn't.
  Reason Blocker(const Gang& gang);
  // Its Workload is still to be observed, without which it can't be said whether it may go on.
  bool AwaitsWorkload(const Gang& gang);
  // What giving up means for the next attempt.
  void NoteFallback(const Gang& gang, AdmissionRecord* record);
  void Decide(const Gang& gang);
  // False if its job can't do it.
  bool RestartWhole(const Gang& gang, const std::string& why);
  void Forget(GangId gang) { parts_.erase(gang); }

  // --- questions ---
  Restarter RestarterOf(const Gang& gang) const;
  // Its job was being restarted a moment ago: members may not be there yet.
  bool WasRemade(const Gang& gang) const;
  TriedFlavors TriedBefore(const Gang& gang) const;
  // Its members can be made anew for a flavor that wasn't tried, and whose nodes exist or can be
  // made.
  bool MayUseAnotherFlavor(const Gang& gang);
  // What Kueue gave the members of the gang now; empty if that isn't known.
  std::set<std::string> FlavorsOfKueue(const Gang& gang) const;
  // A reason, with what can be said of other flavors.
  Reason WithFallback(const Gang& gang, Reason reason) const;
  uint64_t restarted() const { return restarted_; }

 private:
  struct Part {
    std::optional<Fallback> fallback;
    absl::Time remade_until = absl::InfinitePast();
  };
  struct LeftAlone {
    std::string why, fix;
    absl::Time until;
  };
  // A Workload as Kueue may assign it once some flavors are left out: the first other flavor, "" if
  // there is none, and what is to be written.
  struct OtherChoice {
    std::string flavor;
    std::vector<PatchWorkload::NodeTerms> pod_sets;
  };

  const std::optional<Fallback>& FallbackOf(const Gang& gang) const;
  int64_t PodsLeft(const kube::AnyJob& job) const;
  std::string RunningBeside(const Gang& gang, const kube::AnyJob& job) const;
  bool Restart(const kube::AnyJob& job, const std::string& why,
               const std::optional<TriedFlavors>& tried);
  Outbox::OnFinish NoteRefusal(const kube::AnyJob& job, const std::string& what,
                               const std::string& fix);
  std::string NextFlavor(const Gang& gang, const std::map<std::string, absl::Time>& tried);
  std::string WhyNoFallback(const Gang& gang, std::string* fix) const;
  std::optional<Fallback> SeekFallback(const Gang& gang, const AdmissionRecord& record);
  // --- kueue_fallback.cc ---
  bool GivesBackToKueue() const {
    return options_.quota == QuotaMode::kKueue && options_.kueue_fallback;
  }
  void WorkloadChanged(const std::string& job_uid);
  bool IsKueues(const Gang& gang, const kube::AnyJob& job) const;
  const kube::Workload* WorkloadOf(const kube::AnyJob& job) const;
  Restarter RestarterThroughKueue(const Gang& gang, const kube::AnyJob& job) const;
  OtherChoice ChoiceWithout(const kube::Workload& workload,
                            const std::map<std::string, absl::Time>& tried);
  std::optional<Fallback> FallbackInKueue(const Gang& gang, const AdmissionRecord& record);
  bool GiveBack(const kube::AnyJob& job, const kube::Workload& workload, const std::string& why,
                const TriedFlavors& tried);
  void KeepWorkloads();
  void KeepWorkload(const kube::Workload& workload);
  Reason KueueBlocker(const Gang& gang, const kube::AnyJob& job) const;
  // What Kueue does for a gang that gave up and isn't given back to it.
  std::string KueueNote(const Gang& gang) const;

  const EngineOptions& options_;
  const cluster::Snapshot& snapshot_;
  const Gangs& gangs_;
  const Records& records_;
  QuotaAdmission* quota_;
  const Placement& placement_;
  Placeability* placeability_;
  const Provisioning& provisioning_;
  Agenda* agenda_;
  Outbox* outbox_;

  absl::node_hash_map<GangId, Part> parts_;
  // Jobs that carried the mark in the last step, and those that aren't restarted for a time.
  std::set<std::string> restarting_seen_;
  std::map<std::string, LeftAlone> left_alone_;
  // By UID, and by that of the job.
  std::map<std::string, kube::Workload> workloads_;
  std::map<std::string, std::set<std::string>> workloads_of_;
  std::set<std::string> marked_workloads_;     // UIDs of those that have annotations of ours
  absl::Time began_ = absl::InfiniteFuture();  // when all but they had been observed once
  uint64_t restarted_ = 0;                     // gangs
};

}  // namespace muster::coscheduling
