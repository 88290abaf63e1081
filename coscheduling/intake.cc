// What is observed comes in: one function per kind, each changes what it touches and notes who must
// be looked at again.

#include <algorithm>
#include <memory>
#include <utility>

#include "coscheduling/engine_state.h"
#include "coscheduling/gangs/pod_sets.h"
#include "coscheduling/provisioning/holds.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

constexpr size_t kRememberedGonePods = 20'000;
constexpr std::string_view kMirrorAnnotation = "kubernetes.io/config.mirror";

std::string_view FlavorsOf(const kube::Pod& pod) {
  const std::string* flavors = pod.meta.Annotation(kFlavorsAnnotation);
  return flavors == nullptr ? std::string_view() : *flavors;
}

// The nodes that could be made of them are the same; how many there are already may differ.
bool MakeTheSame(const kube::NodePool& a, const kube::NodePool& b) {
  return a.labels == b.labels && a.requirements == b.requirements && a.taints == b.taints &&
         a.limits == b.limits && a.node_class_group == b.node_class_group && a.ready == b.ready &&
         a.error == b.error && a.meta.deletion_time == b.meta.deletion_time;
}

}  // namespace

void Engine::State::Upsert(kube::Pod pod) {
  const std::string uid = pod.meta.uid;
  if (gone_pods.contains(uid)) return;
  const kube::Pod* known = snapshot.FindPod(uid);
  if (known != nullptr &&
      kube::IsOlderVersion(pod.meta.resource_version, known->meta.resource_version)) {
    return;
  }
  const bool ours = pod.scheduler_name == options.scheduler_name &&
                    !pod.meta.annotations.contains(kMirrorAnnotation);
  const bool grouped = pod.meta.Label(kube::kPodGroupLabel) != nullptr;
  if (!ours && !grouped) {
    // Of the others only those that take room matter.
    if (!pod.IsBound() || pod.IsTerminal()) {
      if (known == nullptr) return;
      if (pod.IsTerminal()) {
        needs_pass = true;
        snapshot.RemovePod(uid);
        return;
      }
    }
    needs_pass |= known == nullptr || known->node_name != pod.node_name;
    snapshot.Upsert(std::move(pod));
    return;
  }
  const Membership membership = MembershipOf(pod);
  const GangKey& key = membership.key;
  // A pod without a group that another scheduler owns is nobody's gang; one that names a group is
  // looked at as a member even so, because it may be a mistake worth telling.
  const bool ended_before =
      known != nullptr && NodeFault(*known) && known->ended_at == pod.ended_at;
  if (faults_read && !ended_before && NodeFault(pod)) failed_pods.emplace_back(pod, key);
  needs_pass |= known == nullptr || known->node_name != pod.node_name ||
                known->IsTerminal() != pod.IsTerminal() ||
                known->IsDeleting() != pod.IsDeleting() || *known->spec != *pod.spec ||
                FlavorsOf(*known) != FlavorsOf(pod);
  JoinAs(pod, membership);
  ShareSpec(gangs.at(key), &pod);
  snapshot.Upsert(std::move(pod));
  MarkDirty(key);
}

// Members are mostly alike: equal specs are kept once.
void Engine::State::ShareSpec(const Gang& gang, kube::Pod* pod) const {
  for (const std::string& uid : gang.pods) {
    const kube::Pod* sibling = snapshot.FindPod(uid);
    if (sibling == nullptr) continue;
    if (*sibling->spec == *pod->spec) pod->spec = sibling->spec;
    return;
  }
}

void Engine::State::RemovePod(const std::string& uid) {
  if (gone_pods.insert(uid).second) {
    gone_order.push_back(uid);
    if (gone_order.size() > kRememberedGonePods) {
      gone_pods.erase(gone_order.front());
      gone_order.pop_front();
    }
  }
  if (const kube::Pod* pod = snapshot.FindPod(uid); pod != nullptr) {
    needs_pass = true;
    NoteRemovedMember(*pod);
    ForgetOwner(*pod);
    snapshot.RemovePod(uid);
  }
  AnswerHeld(uid, "the pod is gone");
  Leave(uid);
}

void Engine::State::NoteNode(const kube::Node& node, absl::Time now) {
  NodeMarks& marks = node_marks[node.meta.name];
  marks.resource_version = node.meta.resource_version;
  marks.made_by_karpenter = node.meta.Label(kube::kNodePoolLabel) != nullptr;
  const bool was_suspect = marks.annotations.contains(kSuspectAnnotation);
  marks.annotations.clear();
  for (std::string_view key :
       {kHoldsAnnotation, kHoldAddedAnnotation, std::string_view(kube::kDoNotDisruptAnnotation),
        kSuspectAnnotation}) {
    if (const std::string* value = node.meta.Annotation(key))
      marks.annotations.emplace(key, *value);
  }
  NoteSuspectMarks(node, was_suspect);
  changed_nodes.insert(node.meta.name);
  if (HasHoldMarks(marks.annotations)) hold_candidates.insert(node.meta.name);
  const cluster::NodeInfo* info = snapshot.FindNode(node.meta.name);
  if (info != nullptr && info->UsableNow()) {
    usable_since.try_emplace(node.meta.name, now);
  } else {
    usable_since.erase(node.meta.name);
  }
}

// Who waits may wait for something else now. If there is quota at all or isn't any more, that
// concerns every gang.
void Engine::State::NoteQueues() {
  queues_changed = reasons_stale = true;
  const bool in_use = UsesQuota();
  if (std::exchange(quota_in_use, in_use) != in_use) DirtyAll();
}

// What gangs ask for may have changed.
void Engine::State::DirtyAll() {
  for (auto& [key, gang] : gangs) gang.dirty |= gang.state != v1::FINISHED;
}

void Engine::AdvanceTo(absl::Time now) { state_->clock = std::max(state_->clock, now); }

void Engine::Upsert(kube::Pod pod) { state_->Upsert(std::move(pod)); }

void Engine::Upsert(kube::Node node) {
  State& s = *state_;
  auto it = s.node_marks.find(node.meta.name);
  if (it != s.node_marks.end() &&
      kube::IsOlderVersion(node.meta.resource_version, it->second.resource_version)) {
    return;
  }
  s.needs_pass = s.nodes_changed = s.places_changed = s.nodes_to_judge = true;
  const std::string name = node.meta.name;
  s.NotePlace(name);
  s.snapshot.Upsert(std::move(node));
  if (const auto& claim = s.snapshot.FindNode(name)->claim) s.NoteClaim(claim->meta.name);
  const std::shared_ptr<const kube::Node> object = s.snapshot.FindNode(name)->object;
  s.NoteNode(*object, s.clock);
  s.NotePlace(name);
}

void Engine::Upsert(kube::PodGroup group) {
  State& s = *state_;
  const auto it = s.gangs.find({group.meta.name_space, group.meta.name, false});
  if (it != s.gangs.end() && it->second.group != nullptr &&
      it->second.group->meta.uid == group.meta.uid &&
      kube::IsOlderVersion(group.meta.resource_version, it->second.group->meta.resource_version)) {
    return;
  }
  s.AdoptGroup(std::make_shared<const kube::PodGroup>(std::move(group)));
}

void Engine::Upsert(kube::NodeClaim claim) {
  state_->needs_pass = state_->nodes_changed = true;
  const std::string node_name = claim.node_name;
  const std::string name = claim.meta.name;
  const std::string place = cluster::VirtualName(name);
  state_->NotePlace(place);
  state_->snapshot.Upsert(std::move(claim));
  state_->NoteClaim(name);
  state_->NotePlace(place);
  // The claim may be what the node's readiness was waiting for.
  const cluster::NodeInfo* info =
      node_name.empty() ? nullptr : state_->snapshot.FindNode(node_name);
  if (info != nullptr && info->object != nullptr) {
    const std::shared_ptr<const kube::Node> node = info->object;
    state_->NoteNode(*node, state_->clock);
  }
}

void Engine::Upsert(kube::NodePool pool) {
  State& s = *state_;
  s.places_changed = true;
  std::string name = pool.meta.name;
  auto it = s.node_pools.find(name);
  s.pools_changed |= it == s.node_pools.end() || !MakeTheSame(it->second, pool);
  s.node_pools.insert_or_assign(std::move(name), std::move(pool));
}

void Engine::Upsert(kube::ResourceFlavor flavor) {
  if (!state_->quotas.Upsert(std::move(flavor))) return;
  state_->places_changed = state_->queues_changed = true;
}

void Engine::Upsert(kube::ClusterQueue queue) {
  if (state_->quotas.Upsert(std::move(queue))) state_->NoteQueues();
}

void Engine::Upsert(kube::LocalQueue queue) {
  if (state_->quotas.Upsert(std::move(queue))) state_->NoteQueues();
}

void Engine::Upsert(kube::Cohort cohort) {
  state_->queues_changed |= state_->quotas.Upsert(std::move(cohort));
}

void Engine::Upsert(kube::WorkloadPriorityClass priority_class) {
  state_->priority_classes.insert_or_assign(priority_class.meta.name, priority_class.value);
  state_->DirtyAll();
}

void Engine::Upsert(kube::Workload workload) { state_->NoteWorkload(std::move(workload)); }

void Engine::Upsert(kube::PodDisruptionBudget budget) {
  State& s = *state_;
  std::string name = budget.meta.FullName();
  auto it = s.budgets.find(name);
  s.places_changed |= it == s.budgets.end() ||
                      it->second.disruptions_allowed != budget.disruptions_allowed ||
                      it->second.selector != budget.selector;
  s.budgets.insert_or_assign(std::move(name), std::move(budget));
}

void Engine::Upsert(kube::DaemonSet daemon_set) {
  state_->needs_pass = true;
  state_->snapshot.Upsert(std::move(daemon_set));
}

void Engine::Upsert(kube::Namespace name_space) {
  state_->queues_changed |= state_->quotas.Upsert(name_space);
  state_->snapshot.Upsert(std::move(name_space));
}

void Engine::Upsert(kube::PersistentVolumeClaim claim) {
  state_->needs_pass = true;
  state_->snapshot.Upsert(std::move(claim));
}

void Engine::Upsert(kube::PersistentVolume volume) {
  state_->needs_pass = true;
  state_->snapshot.Upsert(std::move(volume));
}

void Engine::Upsert(kube::StorageClass storage_class) {
  state_->snapshot.Upsert(std::move(storage_class));
}

void Engine::Upsert(const kube::Job& job) { state_->OwnersChanged(state_->jobs.Upsert(job)); }
void Engine::Upsert(const kube::StatefulSet& set) {
  state_->OwnersChanged(state_->jobs.Upsert(set));
}
void Engine::Upsert(const kube::JobSet& set) { state_->OwnersChanged(state_->jobs.Upsert(set)); }
void Engine::Upsert(const kube::PyTorchJob& job) {
  state_->OwnersChanged(state_->jobs.Upsert(job));
}
void Engine::Upsert(const kube::TrainJob& job) { state_->OwnersChanged(state_->jobs.Upsert(job)); }
void Engine::Upsert(const kube::Event& event) {
  state_->RefusalsChanged(state_->refusals.Note(event));
  state_->SetbacksChanged(state_->setbacks.Note(event, state_->clock));
}
void Engine::RemoveJob(std::string_view uid) {
  state_->refusals.Forget(std::string(uid));
  state_->left_alone.erase(std::string(uid));
  state_->OwnersChanged(state_->jobs.Remove(std::string(uid)));
}

void Engine::RemoveWorkload(std::string_view uid) { state_->RemoveWorkload(std::string(uid)); }

void Engine::RemovePod(std::string_view uid) { state_->RemovePod(std::string(uid)); }
void Engine::RemovePodGroup(std::string_view uid) { state_->DropGroup(std::string(uid)); }

void Engine::RemoveNode(std::string_view name) {
  State& s = *state_;
  s.needs_pass = s.nodes_changed = s.nodes_to_judge = true;
  s.NotePlace(std::string(name));
  const cluster::NodeInfo* info = s.snapshot.FindNode(name);
  const auto claim = info == nullptr ? nullptr : info->claim;
  s.snapshot.RemoveNode(name);
  if (claim != nullptr) s.NoteClaim(claim->meta.name);
  s.node_marks.erase(std::string(name));
  s.usable_since.erase(std::string(name));
  s.hold_candidates.erase(std::string(name));
  s.suspects.Forget(name);
  s.changed_nodes.insert(std::string(name));
}

void Engine::RemoveNodeClaim(std::string_view name) {
  state_->needs_pass = state_->nodes_changed = true;
  state_->NotePlace(cluster::VirtualName(std::string(name)));
  state_->snapshot.RemoveNodeClaim(name);
  state_->NoteClaim(std::string(name));
}

void Engine::RemoveNodePool(std::string_view name) {
  state_->places_changed = state_->pools_changed = true;
  state_->node_pools.erase(std::string(name));
}

void Engine::RemoveResourceFlavor(std::string_view name) {
  state_->places_changed = state_->queues_changed = true;
  state_->quotas.RemoveResourceFlavor(name);
}

void Engine::RemoveClusterQueue(std::string_view name) {
  state_->quotas.RemoveClusterQueue(name);
  state_->NoteQueues();
}

void Engine::RemoveLocalQueue(std::string_view full_name) {
  state_->quotas.RemoveLocalQueue(full_name);
  state_->NoteQueues();
}

void Engine::RemoveCohort(std::string_view name) {
  state_->queues_changed = true;
  state_->quotas.RemoveCohort(name);
}

void Engine::RemoveWorkloadPriorityClass(std::string_view name) {
  state_->priority_classes.erase(std::string(name));
  state_->DirtyAll();
}

void Engine::RemovePodDisruptionBudget(std::string_view full_name) {
  state_->places_changed = true;
  state_->budgets.erase(std::string(full_name));
}

void Engine::RemoveDaemonSet(std::string_view uid) {
  state_->needs_pass = true;
  state_->snapshot.RemoveDaemonSet(uid);
}

void Engine::RemoveNamespace(std::string_view name) {
  state_->quotas.RemoveNamespace(name);
  state_->snapshot.RemoveNamespace(name);
}

void Engine::RemovePersistentVolumeClaim(std::string_view full_name) {
  state_->snapshot.RemovePersistentVolumeClaim(full_name);
}

void Engine::RemovePersistentVolume(std::string_view name) {
  state_->snapshot.RemovePersistentVolume(name);
}

void Engine::RemoveStorageClass(std::string_view name) {
  state_->snapshot.RemoveStorageClass(name);
}

}  // namespace muster::coscheduling
