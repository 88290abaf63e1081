// Members that gangs have lost, or are about to lose: what is noticed of them and their nodes, and
// what is done once a gang isn't whole again in time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "cluster/journal.h"
#include "cluster/node_trouble.h"
#include "coscheduling/admission/owner.h"
#include "coscheduling/commit/restarts.h"

namespace muster::coscheduling {

// A member that its gang has lost since it was last whole.
struct Loss {
  std::string text;      // "job-2 on node-a, which isn't Ready since 10:00:40Z: ..."
  bool by_node = false;  // its node was lost, not only the pod
  // The gang has been whole since; its pod is still there.
  bool over = false;
};

// By the member's UID.
using Losses = std::map<std::string, Loss>;

// The first few of those that aren't over, one after the other; "" if there is none.
std::string LossesText(const Losses& losses);

class Repair : Owner {
 public:
  // `restarts` outlives it.
  Repair(const Owner& owner, Restarts* restarts) : Owner(owner), restarts_(restarts) {}

  // --- observations ---
  void Observe(const cluster::Journal& journal);
  // Before the snapshot forgets the pod.
  void NoteRemoved(const Gang& gang, const kube::Pod& pod);

  // --- steps of a gang ---
  // Counts its losses again; returns its live members whose nodes are lost.
  std::set<std::string> Find(const Gang& gang);
  // The gang has gone from one state to another, or stays.
  void Follow(const Gang& gang, v1::GangState before);
  // Restarts it whole once it wasn't whole again in time.
  void Decide(const Gang& gang);
  // The record in which is to be written when it was whole first, and since when it isn't any
  // more; nullopt if it says so.
  std::optional<AdmissionRecord> Remember(const Gang& gang) const;
  void Forget(GangId gang) { parts_.Forget(gang); }

  // --- questions ---
  const Losses& LossesOf(const Gang& gang) const { return parts_.Of(gang.id).losses; }
  // Null if nothing is known to be wrong with it.
  const cluster::NodeTrouble* TroubleOn(const std::string& node) const;
  // When a gang that isn't whole by then is restarted.
  absl::Time DueOf(const Gang& gang) const {
    return parts_.Of(gang.id).repairing_since + options_.repair_deadline;
  }
  uint64_t evicted() const { return evicted_; }

 private:
  struct Part {
    Losses losses;  // since it was last whole
    absl::Time repairing_since = Never();
  };

  void NoteTrouble(const std::string& node);
  const cluster::NodeTrouble* FindTrouble(const std::string& node);

  Restarts* restarts_;
  PerGang<Part> parts_;
  // By node; of nodes that are gone only while members stand there.
  std::map<std::string, cluster::NodeTrouble, std::less<>> troubles_;
  uint64_t evicted_ = 0;  // gangs
};

}  // namespace muster::coscheduling
