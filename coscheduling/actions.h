// What the engine decides to do. Plain data: a shell turns each into one API request (or one answer
// to a waiting bind call), carries it out, and reports the outcome by the action's id.
//
// Every action is safe to repeat and safe to lose: the engine compares what it wants with what it
// has observed and decides again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "cluster/object_writes.h"
#include "kube/objects/meta.h"
#include "quota/admission_writes.h"

namespace muster::coscheduling {

using kube::ObjectRef;
using kube::RefOf;

// Sets annotation muster.dev/admission on the PodGroup by compare-and-swap on resource_version.
// An empty `record` removes it.
struct WriteRecord {
  ObjectRef group;
  std::string record;  // JSON, record.h
};

// Ends a bind call that is being held. An empty error means bound.
struct AnswerBind {
  uint64_t request = 0;
  std::string error;
};

using cluster::AnnotateNode;
using cluster::AnnotatePod;
using cluster::BindPod;
using cluster::CreatePodGroup;
using cluster::DeleteNodeClaim;
using cluster::EmitEvent;
using cluster::EvictPod;
using cluster::LiftGate;
using cluster::NominatePod;
using cluster::SelectNode;
using cluster::SignalPod;
using cluster::TaintNode;
using cluster::UpdateMinMember;
using cluster::UpdatePodGroupStatus;
using quota::ApplyReclaimablePods;
using quota::ApplyWorkloadStatus;
using quota::AssignFlavors;
using quota::ChangeTemplates;
using quota::PatchWorkload;
using quota::ResetStartTime;
using quota::SetFinalizers;
using quota::SuspendJob;
using quota::UpdateQueueStatus;
using quota::WriteWorkload;

using Action =
    std::variant<WriteRecord, SignalPod, LiftGate, NominatePod, BindPod, AnnotateNode, TaintNode,
                 DeleteNodeClaim, AnnotatePod, SelectNode, AssignFlavors, EvictPod,
                 UpdatePodGroupStatus, UpdateQueueStatus, SetFinalizers, EmitEvent, AnswerBind,
                 CreatePodGroup, UpdateMinMember, SuspendJob, ChangeTemplates, ResetStartTime,
                 PatchWorkload, WriteWorkload, ApplyWorkloadStatus, ApplyReclaimablePods>;

struct NumberedAction {
  uint64_t id = 0;
  Action action;
};

}  // namespace muster::coscheduling
