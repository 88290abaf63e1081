// Could the nodes exist at all: those of a gang, and those of a flavor before quota of it is given?
// Owns the NodePools, and what was found out about them (cluster/feasibility.h), which is kept
// until NodePools or nodes change in what it depends on.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cluster/feasibility.h"
#include "cluster/journal.h"
#include "coscheduling/admission/owner.h"
#include "coscheduling/admission/quota_admission.h"

namespace muster::coscheduling {

// On a PodGroup or a member, "true": its nodes can be made, whatever is known of NodePools.
inline constexpr std::string_view kAssumeFeasibleAnnotation = "muster.dev/assume-feasible";

using cluster::Feasibility;

Reason ReasonFor(const cluster::PoolRefusal& refusal);

class Placeability : Owner {
 public:
  // Until when the gang prefers other flavors to this one; in the past if it doesn't.
  using TriedUntil = std::function<absl::Time(const Gang&, const kube::ResourceFlavor&)>;

  // `quota` outlives it.
  Placeability(const Owner& owner, const QuotaAdmission& quota, TriedUntil tried_until)
      : Owner(owner), quota_(quota), tried_until_(std::move(tried_until)) {}

  // --- observations ---
  // NodePools and what they refer to.
  template <typename Object>
  void Upsert(Object object) {
    makeable_changed_ = true;
    pools_changed_ |= pools_.Upsert(std::move(object));
  }
  template <typename Object>
  void Remove(const Object& object) {
    makeable_changed_ = true;
    pools_changed_ |= pools_.Remove(object);
  }
  void Observe(const cluster::Journal& journal);
  // Flavors changed.
  void Invalidate() { flavors_changed_ = true; }

  // --- steps ---
  // Before gangs are looked at: notes those whose answer may have changed.
  struct Changes {
    bool pools = false;         // what NodePools make
    bool flavors = false;       // WhyNoNodesOf may answer otherwise
    std::vector<GangId> gangs;  // prefer no other flavor any more
  };
  Changes Refresh();
  // Whether the nodes that the gang asks for can exist, unless something of it stands or is being
  // carried out (`under_way`). True if they certainly can't.
  bool Judge(const Gang& gang, bool under_way);
  void Forget(GangId gang);

  // --- questions ---
  // Of what it asks for first of all; null: it wasn't asked.
  const Feasibility* Of(const Gang& gang) const;
  bool IsAssumedFeasible(const Gang& gang) const;
  // "" if quota of this flavor can be used: nodes exist or can be made, as far as that is known,
  // and there is no other such flavor that is preferred, because an attempt on this one failed.
  std::string WhyNotPlaceable(const Gang& gang, const quota::Workload& workload,
                              const quota::PodSet& set, const kube::ResourceFlavor& flavor);
  // "" unless no node of this flavor could take such pods, and none can be made.
  const std::string& WhyNoNodesOf(const quota::PodSet& set, const kube::ResourceFlavor& flavor);
  const cluster::NodePools& pools() const { return pools_.all(); }
  // Of these pods, for how many NodePools can make nodes.
  int64_t MakeableOf(const quota::PodSet& set, cluster::PoolLimits limits) const;

 private:
  std::shared_ptr<const Feasibility> Judged(const cluster::Demand& demand);
  std::string JudgeFlavor(const cluster::Demand& demand) const;

  const QuotaAdmission& quota_;
  const TriedUntil tried_until_;

  cluster::KnownNodePools pools_;
  // By spec and count; emptied when NodePools change, and now and then when nodes do.
  std::map<std::pair<std::shared_ptr<const kube::PodSpec>, int64_t>,
           std::shared_ptr<const Feasibility>>
      judged_;
  absl::flat_hash_map<GangId, std::shared_ptr<const Feasibility>> of_gang_;
  absl::flat_hash_set<GangId> infeasible_;
  struct FlavorVerdict {
    std::shared_ptr<const kube::PodSpec> asked;  // as its user wrote it
    cluster::Demand demand;
    std::string why;
  };
  // By pod set, count and flavor; judged again when nodes or NodePools change. A pod set's name
  // doesn't say all that matters here, so several may have one.
  std::multimap<std::string, FlavorVerdict> why_no_nodes_;
  bool flavors_changed_ = false;  // the objects
  bool makeable_changed_ = false;
  bool pools_changed_ = false;
  bool nodes_changed_ = false;
  absl::Time judged_at_ = absl::InfinitePast();
  std::set<std::pair<absl::Time, GangId>> flavor_retries_;
};

}  // namespace muster::coscheduling
