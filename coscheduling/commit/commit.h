// The commit: gates are lifted, bind calls held, the plan checked once more, and all bindings
// posted at once and read back.
//
// Standalone, it begins as soon as no member that has a place is gated; where members have volumes
// that aren't made yet, their nodes are selected first, and the volumes awaited.
//
// Beside a kube-scheduler, a gang without volumes and claims commits on its first bind call.
// kube-scheduler binds volumes and claims before it calls the extender's bind verb, so where a
// member has some every member's call is awaited: for EngineOptions::bind_wait at most, then all
// that are there fail together and another round begins. A gang of more members than can be called
// within that time can't be committed so, and is refused.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "coscheduling/admission/owner.h"
#include "coscheduling/placement/placement.h"

namespace muster::coscheduling {

class Commit : Owner {
 public:
  // `placement` outlives it.
  Commit(const Owner& owner, Placement* placement) : Owner(owner), placement_(placement) {}

  // --- bind calls ---
  // Answered by an AnswerBind action within options.bind_wait, or once the pod is called again.
  void Request(uint64_t request, const Gang& gang, const std::string& pod, std::string node);
  void AnswerAll(const std::string& error);
  void EndCallsOf(const std::string& pod) { AnswerHeld(pod, "the pod is gone"); }
  // The calls of all its members that aren't committed fail.
  void Fail(const Gang& gang, const std::string& error);

  // --- steps of a gang ---
  // Who waits for volumes is looked at again once something became of one.
  void Observe(const cluster::Journal& journal);
  // Takes notice of members that are bound or gone.
  void Sync(const Gang& gang);
  void Leave(GangId gang, const std::string& pod);
  void Forget(GangId gang) {
    parts_.Forget(gang);
    await_volumes_.erase(gang);
  }
  // Tells kube-scheduler the place of each member whose gate is lifted next, and takes it back
  // where the plan has come to another one.
  void Nominate(const Gang& gang);
  // Not while kube-scheduler is being told.
  void LiftGates(const Gang& gang);
  // Answers calls that have come to an end; `why` tells why the gang isn't bound yet.
  void Answer(const Gang& gang, const std::string& why);
  // Begins the commit, or goes on with it.
  void Advance(const Gang& gang);

  // --- questions ---
  // Some binding was asked for, and maybe accepted, that isn't seen yet.
  bool IsPosted(const Gang& gang) const {
    return !parts_.Of(gang.id).posted.empty() || placement_->HasPins(gang);
  }
  bool IsUnderWay(const Gang& gang) const;
  // Some members' volumes or claims are to be bound first.
  bool AwaitsPreBind(const Gang& gang) const;
  // Every member's bind call is awaited.
  bool NeedsEveryCall(const Gang& gang) const;
  // Why the gang can never be committed; no code if nothing is known.
  Reason Blocker(const Gang& gang);
  // The last failed binding, until the gang is bound.
  const std::string& ErrorOf(const Gang& gang) const { return parts_.Of(gang.id).error; }
  size_t held_binds() const { return held_.size(); }

 private:
  // A bind call that waits for its member.
  struct HeldBind {
    uint64_t request = 0;
    std::string node;
    absl::Time until;
  };
  struct Part {
    std::map<std::string, absl::Time> posted;  // member UID -> binding accepted, not seen yet
    absl::Time woken_at = absl::InfinitePast();
    absl::Time broken_at = absl::InfinitePast();  // its plan, when it was to be committed
    std::string error;
  };

  void AnswerHeld(const std::string& pod, const std::string& error);
  bool StandsInEpoch(const Gang& gang, const kube::Pod& pod) const;
  void WakeMembers(const Gang& gang);
  void SelectNodes(const Gang& gang);
  bool Begin(const Gang& gang);
  void PostBinding(const Gang& gang, const kube::Pod& pod, const std::string& node);

  Placement* placement_;
  PerGang<Part> parts_;
  absl::flat_hash_map<std::string, HeldBind> held_;  // by pod UID
  std::set<GangId> await_volumes_;                   // news of claims matter
};

}  // namespace muster::coscheduling
