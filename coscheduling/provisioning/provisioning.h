// The agreement with Karpenter: who asks for nodes, what befalls the NodeClaims that gangs count on
// (setbacks.h), how long a gang waits for them, and which of them are given back.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cluster/journal.h"
#include "cluster/zones.h"
#include "coscheduling/admission/owner.h"
#include "coscheduling/admission/quota_admission.h"
#include "coscheduling/placement/placement.h"
#include "coscheduling/provisioning/placeability.h"
#include "coscheduling/provisioning/setbacks.h"
#include "kube/objects/event.h"

namespace muster::coscheduling {

// What stands for a zone among the flavors that a gang tried.
std::string ZoneTried(std::string_view zone);

// A reason of setback_reasons.cc: something must be put right, or waited out.
bool IsSetback(v1::ReasonCode code);

class Provisioning : Owner {
 public:
  // Its members can be made anew for another flavor, which may have room.
  using MayUseAnotherFlavor = std::function<bool(const Gang&)>;

  // All of them outlive it.
  Provisioning(const Owner& owner, const QuotaAdmission& quota, const Placeability& placeability,
               Placement* placement, MayUseAnotherFlavor may_use_another_flavor);

  // --- observations ---
  void Observe(const kube::Event& event);
  void Observe(const cluster::Journal& journal);
  // This NodeClaim, or its absence, was seen.
  void NoteClaim(const std::string& name);
  // Gangs that were planned, first claim first: their plans say which claims they count on.
  void CountOn(const std::vector<GangId>& planned);

  // --- steps of a gang ---
  // It isn't waiting for nodes: nothing new befalls it.
  void Stop(const Gang& gang);
  // It got all that it asked for.
  void Succeed(const Gang& gang) { setbacks_.Forget(gang.key); }
  // Where all members must be in one zone, gives them that in which their nodes are to be made
  // (zones.cc). False until all carry it: nothing is asked for before.
  bool GiveZone(const Gang& gang);
  // Asks for nodes for the members that lack them, or takes that back.
  void Signal(const Gang& gang, bool undecided);
  // The gang has waited for long enough, and gives back its quota. Why, and for how long it is to
  // pause; no pause: nobody makes room for it, so it waits in the list until there is some.
  struct Verdict {
    Reason why;
    std::optional<absl::Duration> pause;
  };
  std::optional<Verdict> DecideDeadline(const Gang& gang, bool posted);
  void Forget(GangId gang, const GangKey& key);

  // --- the step of all ---
  // Deletes NodeClaims that are late or of no use to any gang (withdrawals.cc).
  void WithdrawNodes();

  // --- questions ---
  bool IsSignalled(const Gang& gang) const { return parts_.Of(gang.id).signalled; }
  bool IsBeyondLimits(const Gang& gang) const {
    return parts_.Of(gang.id).limits_reached_since != Never();
  }
  bool BacksOff(const Gang& gang) const;
  // The zone that its members were given; "" if they weren't.
  std::string CarriedZone(const Gang& gang) const;
  // That in which its nodes are made, then the others in order; none if it is in no such.
  std::vector<cluster::NodeSource> ZoneSourcesOf(const Gang& gang) const;
  // When a gang that backs off tries again.
  absl::Time RetryAt(const Gang& gang) const;
  // What an attempt of the gang has to get its nodes.
  absl::Duration DeadlineOf(const Gang& gang) const;
  Placement::Capacity CapacityOf(const Gang& gang) const;
  // NodePools can make what it lacks, as far as they can be judged, and its attempts to get that
  // haven't failed.
  bool MayBuy(const Gang& gang) const;
  // The worst setback that isn't overcome; nullopt if there is none. Of what only takes its time,
  // what is late, or all of it.
  std::optional<Reason> SetbackReason(const Gang& gang, bool all) const;
  Reason LimitReason(const Gang& gang) const;
  std::vector<Setback> SetbacksOf(const Gang& gang) const;

 private:
  struct Part {
    bool signalled = false;  // stays until the gang leaves PROVISIONING
    // Since when nodes are being made for it; of the past if that isn't known to have begun later
    // than the attempt.
    absl::Time making_since = absl::InfinitePast();
    // Since when NodePools can't make the nodes that it is short of within their limits, and how
    // many of them they can.
    absl::Time limits_reached_since = Never();
    int64_t missing = 0;
    int64_t makeable = 0;
    std::string zone;                // chosen, and not seen on all members yet
    absl::Time next_late = Never();  // when a node that only takes its time becomes a setback
  };

  StageLimits LimitsOfStages() const;
  BringUpLimits LimitsOf(const Gang& gang) const;
  bool CapacityFailedBefore(const Gang& gang) const;
  void Note(const std::vector<GangKey>& keys);
  std::set<GangKey> GangsAskingFor(const cluster::NodeInfo& info) const;
  std::string UsableText(const Gang& gang) const;
  void ReadLimits(const Gang& gang);
  bool HoldsNodes(const Gang& gang) const;
  bool NobodyMakesNodes(const Gang& gang) const;
  bool CanBeMade(const Gang& gang, int64_t members) const;
  bool HoldsUselessly(const Gang& gang) const;
  bool IsBeingMade(const Gang& gang) const;
  absl::Time DeadlineNow(const Gang& gang);
  Reason WhyGivenUp(const Gang& gang, const Setbacks::Limit& limit, absl::Time deadline) const;
  absl::Duration PauseAfter(const Gang& gang, const Reason& why);
  // --- zones.cc ---
  // Best first.
  std::vector<cluster::Zone> ZonesFor(const Gang& gang,
                                      const std::map<std::string, absl::Time>& tried) const;
  std::string ZoneFor(const Gang& gang);
  // --- withdrawals.cc ---
  static bool MayGo(const cluster::NodeInfo& info);
  bool NeedsNoNodes(const GangKey& key) const;
  bool IsNeeded(const std::string& claim, const cluster::NodeInfo& info) const;

  const QuotaAdmission& quota_;
  const Placeability& placeability_;
  Placement* placement_;
  const MayUseAnotherFlavor may_use_another_flavor_;

  PerGang<Part> parts_;
  Setbacks setbacks_;
  // NodeClaims that aren't initialized, and since when no gang needs them.
  std::map<std::string, absl::Time> coming_claims_;
  std::mt19937_64 random_;
};

// Of a plan that lacks places: why nodes were turned down.
std::string ShortfallText(const PlanShortfall& shortfall);

}  // namespace muster::coscheduling
