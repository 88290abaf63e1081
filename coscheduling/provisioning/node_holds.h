// Holds (holds.h): every early node of a gang that waits is kept, and no other.
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "cluster/journal.h"
#include "cluster/snapshot.h"
#include "coscheduling/admission/records.h"
#include "coscheduling/agenda.h"
#include "coscheduling/gangs/gangs.h"
#include "coscheduling/outbox.h"
#include "coscheduling/placement/placement.h"
#include "coscheduling/provisioning/holds.h"

namespace muster::coscheduling {

class NodeHolds {
 public:
  // All of them outlive it.
  NodeHolds(const cluster::Snapshot& snapshot, const Records& records, const Placement& placement,
            Agenda* agenda, Outbox* outbox)
      : snapshot_(snapshot),
        records_(records),
        placement_(placement),
        agenda_(agenda),
        outbox_(outbox) {}

  void Observe(const cluster::Journal& journal);
  // The nodes that the gang wants kept now. While it is `undecided`, because its record is being
  // written or taken over, what was held for it stays so.
  void Want(const Gang& gang, bool undecided);
  void Forget(GangId gang);
  // Writes what differs.
  void Reconcile();
  // What the node says; empty if it isn't known.
  Holds On(const std::string& node) const;

 private:
  struct Wanted {
    std::string uid;
    std::map<std::string, absl::Time> nodes;
  };
  void Replace(GangId gang, Wanted wanted);

  const cluster::Snapshot& snapshot_;
  const Records& records_;
  const Placement& placement_;
  Agenda* agenda_;
  Outbox* outbox_;

  absl::flat_hash_map<GangId, Wanted> of_gang_;
  std::map<std::string, Holds> wanted_;  // by node
  // What nodes say, and which nodes name a gang.
  std::map<std::string, Holds> seen_;
  absl::flat_hash_map<std::string, std::set<std::string>> naming_;
  std::set<std::string> touched_;  // nodes that may differ from what is wanted
};

}  // namespace muster::coscheduling
