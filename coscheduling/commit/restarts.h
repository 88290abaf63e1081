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

#include "coscheduling/admission/owner.h"
#include "coscheduling/admission/quota_admission.h"
#include "coscheduling/placement/placement.h"
#include "coscheduling/provisioning/placeability.h"
#include "coscheduling/provisioning/provisioning.h"
#include "kube/objects/job_restart.h"
#include "kube/objects/workload.h"

namespace muster::coscheduling {

// Another zone or flavor of its queue for a gang that gave up on those that its members carry.
struct Fallback {
  std::string other;    // "flavor b", "zone b"
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

class Restarts : Owner {
 public:
  // All of them outlive it.
  Restarts(const Owner& owner, const Workloads& workloads, QuotaAdmission* quota,
           const Placement& placement, Placeability* placeability, const Provisioning& provisioning)
      : Owner(owner),
        workloads_(workloads),
        quota_(quota),
        placement_(placement),
        placeability_(placeability),
        provisioning_(provisioning) {}

  // --- observations ---
  void RemoveJob(const std::string& uid) { left_alone_.erase(uid); }

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
  // Ends members as the record says that they are to be evicted: all of them, through the job where
  // it can do it, or those beyond minMember; and has quota given back once nothing of them stands.
  // `posted`: some binding of the gang was accepted and isn't seen yet.
  void Evict(const Gang& gang, bool posted);
  // False if its job can't do it.
  bool RestartWhole(const Gang& gang, const std::string& why);
  void Forget(GangId gang) { parts_.Forget(gang); }

  // --- questions ---
  Restarter RestarterOf(const Gang& gang) const;
  // Its job was being restarted a moment ago: members may not be there yet.
  bool WasRemade(const Gang& gang) const;
  kube::TriedFlavors TriedBefore(const Gang& gang) const;
  // Its members can be made anew for a flavor that wasn't tried, whose nodes exist or can come.
  bool MayUseAnotherFlavor(const Gang& gang);
  // What quota, ours or Kueue's, gave the members of the gang; empty if that isn't known.
  std::set<std::string> FlavorsOf(const Gang& gang) const;
  // What an attempt that is given up tried: its zone, if there is another; else its flavors, too.
  std::set<std::string> FailedWith(const Gang& gang) const;
  // Where its nodes are made, and then what is tried, as it is tried; none if there is no choice.
  std::vector<cluster::NodeSource> NodeSourcesOf(const Gang& gang) const;
  // A reason, with what can be said of other flavors.
  Reason WithFallback(const Gang& gang, Reason reason) const;
  uint64_t restarted() const { return restarted_; }

 private:
  struct Part {
    std::optional<Fallback> fallback;
    std::vector<cluster::NodeSource> other_flavors;
    absl::Time remade_until = absl::InfinitePast();
  };
  struct LeftAlone {
    std::string why, fix;
    absl::Time until;
  };
  using Annotations = std::map<std::string, std::optional<std::string>>;

  const std::optional<Fallback>& FallbackOf(const Gang& gang) const {
    return parts_.Of(gang.id).fallback;
  }
  // Admission resumed it with flavors in its templates, and does so again: it waits as its spec.
  bool IsStartedByQuota(const kube::AnyJob& job) const;
  bool WasTried(const kube::TriedFlavors::Until& tried, const std::string& flavor) const;
  int64_t PodsLeft(const kube::AnyJob& job) const;
  void NoteGangsOf(const kube::AnyJob* job);
  std::string RunningBeside(const Gang& gang, const kube::AnyJob& job) const;
  Restarter RestarterThroughItself(const kube::AnyJob& job) const;
  static bool HasBegun(const Restarter& restarter);
  bool Begin(const Gang& gang, const Restarter& restarter, const std::string& why,
             const std::optional<kube::TriedFlavors>& tried);
  // Those that members made anew could use, in its queue's order.
  std::vector<cluster::NodeSource> OtherFlavors(const Gang& gang,
                                                const kube::TriedFlavors::Until& tried);
  std::set<std::string> CarriedBy(const Gang& gang) const;
  std::string WhyNoFallback(const Gang& gang, std::string* fix) const;
  std::optional<Fallback> SeekFallback(const Gang& gang, const AdmissionRecord& record);
  // --- kueue_fallback.cc ---
  bool GivesBackToKueue() const {
    return options_.quota == QuotaMode::kKueue && options_.kueue_fallback;
  }
  static constexpr std::string_view kWorkloadRights =
      "let muster read and patch workloads (deploy/kueue-fallback)";
  static bool IsGivenBack(const kube::Workload& workload);
  bool IsKueues(const Gang& gang, const kube::AnyJob& job) const;
  const kube::Workload* WorkloadOf(const kube::AnyJob& job) const {
    return workloads_.OfJob(job.Key());
  }
  // That of its job.
  const kube::Workload* WorkloadOf(const Gang& gang) const;
  Restarter RestarterThroughKueue(const kube::AnyJob& job) const;
  quota::OtherChoice ChoiceWithout(const kube::Workload& workload,
                                   const kube::TriedFlavors::Until& tried);
  std::set<std::string> FailedInKueue(const Gang& gang, const AdmissionRecord& record) const;
  void KeepWorkload(const kube::Workload& workload);
  Reason KueueBlocker(const Gang& gang, const kube::AnyJob& job) const;
  // What Kueue does for a gang that gave up and isn't given back to it.
  std::string KueueNote(const Gang& gang) const;

  const Workloads& workloads_;
  QuotaAdmission* quota_;
  const Placement& placement_;
  Placeability* placeability_;
  const Provisioning& provisioning_;

  PerGang<Part> parts_;
  // Jobs that carried the mark in the last step, and those that aren't restarted for a time.
  std::set<std::string> restarting_seen_;
  std::map<std::string, LeftAlone> left_alone_;
  absl::Time began_ = absl::InfiniteFuture();  // when all but they had been observed once
  uint64_t restarted_ = 0;                     // gangs
};

}  // namespace muster::coscheduling
