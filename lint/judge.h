// What the scheduler's own judges say of a job: its engine (members, PodGroups, queues), and what
// NodePools can make (cluster/feasibility.h). The sentences are those of the reasons that it shows.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/node_pools.h"
#include "coscheduling/reason.h"
#include "lint/gangs.h"
#include "lint/made_pods.h"
#include "lint/manifests.h"

namespace muster::lint {

struct Judgement {
  coscheduling::Reason reason;
  const PodTemplate* pods = nullptr;  // of which it is, if of one
  std::string at;                     // the field of their spec that it is about; empty: not known
  int line = 0;                       // in the job's file, if it is known
};

// Why a queue that was given admits nobody.
struct QueueFault {
  coscheduling::Reason reason;
  const Given* queue = nullptr;
};

// What was given, put in order once for all jobs. What isn't given counts as being as it should be:
// a queue's other ClusterQueues lend without end, a namespace is selected, a class exists.
class Judge {
 public:
  // Both outlive it.
  Judge(const Manifests& known, const cluster::InstanceTypes& types, std::string scheduler_name);
  ~Judge();

  const std::string& scheduler_name() const { return scheduler_name_; }

  // Of the whole job: what its gangs can't start for, as the engine says it, quota included. What
  // QueueFaults says isn't said again.
  std::vector<Judgement> Membership(const Workload& workload, const MadePods& made) const;
  // Whether nodes can exist for the gang's pods. Nothing is said of pods that need none of the
  // NodePools that are given.
  std::vector<Judgement> Place(const LintGang& gang, const MadePods& made) const;
  // Whether all of the gang's pods have places by their affinities, spreading and volumes, if
  // NodePools make all the nodes that they can. Asked only of pods that have such.
  std::vector<Judgement> Room(const LintGang& gang, const MadePods& made) const;
  // Whether pods must be on one node that can't have them: for a volume that one node at a time can
  // have, or for a JobSet's exclusive topology.
  std::vector<Judgement> OneNode(const Workload& workload, const MadePods& made) const;
  // Of those whose text is there.
  std::vector<QueueFault> QueueFaults() const;

 private:
  struct Known;
  bool IsTold(const coscheduling::Reason& reason) const;
  // PodGroups, owners and pods, to an engine. The PodGroups, by "NAMESPACE/NAME".
  std::map<std::string, kube::PodGroup> TellGang(const Workload& workload, const MadePods& made,
                                                 coscheduling::Engine* engine) const;
  // Why not all of the gang's pods have places, if none had a tie of that kind (judge.cc). Adds the
  // zones that nodes may be in.
  std::optional<coscheduling::Reason> ShortOfRoom(const LintGang& gang, const MadePods& made,
                                                  int without,
                                                  std::set<std::string>* all_zones) const;
  std::string FixOfTie(int tie, const kube::PodSpec& spec, const std::string& zones) const;
  std::vector<Judgement> SizesOfTypes(const LintGang& gang, const MadePods& made) const;
  std::string NamesThereAre(const coscheduling::Reason& reason) const;

  std::unique_ptr<const Known> known_;
  const Manifests& manifests_;
  const cluster::InstanceTypes& types_;
  const std::string scheduler_name_;
};

// "zone-not-offered" of ZONE_NOT_OFFERED: the rule that finds it.
std::string RuleOf(v1::ReasonCode code);

}  // namespace muster::lint
