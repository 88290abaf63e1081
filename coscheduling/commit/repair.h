// Members that gangs have lost, or are about to lose: what is noticed of them and their nodes, and
// what is done once a gang isn't whole again in time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "cluster/journal.h"
#include "cluster/node_trouble.h"
#include "cluster/snapshot.h"
#include "coscheduling/admission/records.h"
#include "coscheduling/agenda.h"
#include "coscheduling/commit/restarts.h"
#include "coscheduling/engine_options.h"
#include "coscheduling/gangs/gangs.h"
#include "coscheduling/outbox.h"

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

class Repair {
 public:
  // All of them outlive it.
  Repair(const EngineOptions& options, const cluster::Snapshot& snapshot, const Gangs& gangs,
         Records* records, Restarts* restarts, Agenda* agenda, Outbox* outbox)
      : options_(options),
        snapshot_(snapshot),
        gangs_(gangs),
        records_(records),
        restarts_(restarts),
        agenda_(agenda),
        outbox_(outbox) {}

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
  // Writes down when it was whole first, and since when it isn't any more.
  void Remember(const Gang& gang);
  void Forget(GangId gang) { parts_.erase(gang); }

  // --- questions ---
  const Losses& LossesOf(const Gang& gang) const;
  // Null if nothing is known to be wrong with it.
  const cluster::NodeTrouble* TroubleOn(const std::string& node) const;
  // When a gang that isn't whole by then is restarted.
  absl::Time DueOf(const Gang& gang) const;
  uint64_t evicted() const { return evicted_; }

 private:
  struct Part {
    Losses losses;  // since it was last whole
    absl::Time repairing_since = Never();
  };

  void NoteTrouble(const std::string& node);
  const cluster::NodeTrouble* FindTrouble(const std::string& node);

  const EngineOptions& options_;
  const cluster::Snapshot& snapshot_;
  const Gangs& gangs_;
  Records* records_;
  Restarts* restarts_;
  Agenda* agenda_;
  Outbox* outbox_;

  absl::node_hash_map<GangId, Part> parts_;
  // By node; of nodes that are gone only while members stand there.
  std::map<std::string, cluster::NodeTrouble, std::less<>> troubles_;
  uint64_t evicted_ = 0;  // gangs
};

}  // namespace muster::coscheduling
