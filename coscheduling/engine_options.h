// How the engine decides: what the configuration sets.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "cluster/instance_types.h"
#include "cluster/profile.h"
#include "cluster/reservations.h"
#include "kube/objects/meta.h"
#include "quota/resource_rules.h"

namespace muster::coscheduling {

enum class QuotaMode { kOff, kInternal, kKueue };

struct EngineOptions {
  std::string scheduler_name = "coscheduling";
  // Identity of this process, written to records; a new one bumps their epoch.
  std::string identity = "muster";
  // From admission until the gang gives up its nodes, where scheduleTimeoutSeconds doesn't say.
  // Above Karpenter's own 15 min registration limit plus launch.
  absl::Duration provisioning_deadline = absl::Minutes(20);
  // Within it, how long each of its nodes may take to be launched, then registered, then usable. A
  // node that is made in place of one that failed goes on with its time. provisioning/README.md has
  // the reasons.
  absl::Duration launch_deadline = absl::Minutes(4);
  // How long after a launch was refused for insufficient capacity others are tried in its place:
  // where nodes may be withdrawn, and in the attempts after one that ended so. Else, and at most,
  // launch_deadline.
  absl::Duration refusal_deadline = absl::Seconds(40);
  absl::Duration registration_deadline = absl::Minutes(10);
  absl::Duration initialization_deadline = absl::Minutes(10);
  // Backoff after the n-th failed attempt: base * 2^(n-1), at most max, with up to 10 % jitter.
  absl::Duration backoff_base = absl::Seconds(30);
  absl::Duration backoff_max = absl::Minutes(10);
  // At least, after insufficient capacity: so long AWS's provider doesn't ask for it again.
  absl::Duration capacity_backoff = absl::Minutes(3);
  // A gang with bound members that can't be completed is restarted whole after this.
  absl::Duration repair_deadline = absl::Minutes(5);
  // A member whose node isn't Ready counts as lost after this: three of the kubelet's heartbeats
  // (every 10 s), beyond the 50 s in which the node controller had waited for one.
  absl::Duration node_grace = absl::Seconds(30);
  // After a signal, the nodes that a gang already counts on are kept from others for this long,
  // until the claims that complete it exist.
  absl::Duration signal_grace = absl::Seconds(30);
  cluster::Profile profile;  // as that of kube-scheduler, where there is one beside
  // What may be kept for the first in line, and how long it must have waited for that.
  cluster::Reservations::Bounds reservations;
  absl::Duration reserve_after;
  // NodeClaims that were made for gangs are deleted while their nodes come up, if they are late or
  // no gang needs them any more (provisioning/README.md). Takes a right that the manifests don't
  // give.
  bool withdraw_nodes = false;
  // A gang that asks for EFA is put into one zone, or waits; else it is only put there where it can
  // be.
  bool efa_requires_one_zone = true;
  // How long a node is left out after the kubelet failed a member there, or its devices did.
  absl::Duration suspect_time = absl::Minutes(10);
  // Suspect nodes get taint muster.dev/suspect:NoSchedule for that time, which keeps everybody's
  // pods away, and tells Karpenter that there is no room.
  bool taint_suspects = false;
  // How long a node is left out at most for a gang after kube-scheduler refused it
  // (cluster/refused_nodes.h).
  absl::Duration refusal_time = absl::Seconds(30);
  // No kube-scheduler stands beside: who has a place is bound, and its volumes' nodes are selected
  // here (commit/README.md). Else kube-scheduler asks for each binding, and sees to volumes.
  bool standalone = false;
  // Held bind calls are answered with an error after this (half of the extender's httpTimeout).
  absl::Duration bind_wait = absl::Seconds(15);
  // An ungated member that kube-scheduler has tried and doesn't bring back is touched after this.
  absl::Duration wake_interval = absl::Seconds(5);
  // Who decides about quota: nobody, we ourselves by Kueue's objects, or the real Kueue, whose
  // gates and suspension are respected in any case.
  QuotaMode quota = QuotaMode::kInternal;
  // With kKueue: a gang whose flavor's nodes don't come is given back to Kueue through its Workload
  // for another flavor (commit/README.md). Takes rights that the manifests don't give.
  bool kueue_fallback = false;
  // With kInternal: gangs that name no queue are under quota too, and so wait, in the namespaces
  // that the selector matches (Kueue's manageJobsWithoutQueueName, managedJobsNamespaceSelector).
  bool manage_jobs_without_queue_name = false;
  kube::LabelSelector managed_namespaces;
  // Within a cohort, shares decide order and victims (Kueue's fairSharing.enable).
  bool fair_sharing = false;
  quota::ResourceRules resources;  // what requests count as in quota
  // Quota that is held for nodes that neither exist nor can be made by any NodePool is given back
  // after this.
  absl::Duration unplaceable_grace = absl::Seconds(30);
  // What EC2's types have, to tell which gangs no NodePool can ever make nodes for.
  cluster::InstanceTypes instance_types = cluster::InstanceTypes::BuiltIn();
  // Another autoscaler than Karpenter makes nodes too: no gang is held back for what NodePools say.
  bool assume_feasible = false;
  // As long as nodes times waiting gangs are no more than this, all of them are planned again after
  // any change, so that each tells what it lacks now; beyond, one in half a second (placement.h).
  size_t explanation_budget = 20'000;
  uint64_t seed = 1;
};

}  // namespace muster::coscheduling
