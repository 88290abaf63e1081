#include "coscheduling/engine.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "coscheduling/engine_state.h"
#include "coscheduling/holds.h"
#include "coscheduling/pod_sets.h"

namespace muster::coscheduling {
namespace {

constexpr size_t kRememberedGonePods = 20'000;
constexpr std::string_view kMirrorAnnotation = "kubernetes.io/config.mirror";

std::string_view FlavorsOf(const kube::Pod& pod) {
  const std::string* flavors = pod.meta.Annotation(kFlavorsAnnotation);
  return flavors == nullptr ? std::string_view() : *flavors;
}

}  // namespace

std::string GangKey::ToString() const { return name_space + "/" + name; }

std::string Gang::uid() const {
  if (group != nullptr) return group->meta.uid;
  if (key.is_pod && !pods.empty()) return *pods.begin();
  return "";
}

int64_t Gang::required() const {
  return std::max<int64_t>(0, facts.min_member - facts.bound - facts.succeeded);
}

bool PlacedBefore(const Gang& a, const Gang& b) {
  const bool a_bound = !a.bound.empty();
  const bool b_bound = !b.bound.empty();
  if (a_bound != b_bound) return a_bound;
  if (a.priority != b.priority) return a.priority > b.priority;
  if (a.created != b.created) return a.created < b.created;
  return a.key < b.key;
}

// --- intake ---

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
  const bool grouped = pod.meta.Label(kPodGroupLabel) != nullptr;
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
  if (auto fault = NodeFault(pod);
      fault && (known == nullptr || known->phase != kube::PodPhase::kFailed)) {
    const auto it = gangs.find(key);
    suspects.Report(pod,
                    it == gangs.end() || it->second.uid().empty() ? pod.meta.uid : it->second.uid(),
                    *fault, clock);
    nodes_changed = true;
    NotePlace(pod.node_name);
  }
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
    ForgetOwner(*pod);
    snapshot.RemovePod(uid);
  }
  Leave(uid);
}

void Engine::State::NoteNode(const kube::Node& node, absl::Time now) {
  NodeMarks& marks = node_marks[node.meta.name];
  marks.resource_version = node.meta.resource_version;
  marks.made_by_karpenter = node.meta.Label("karpenter.sh/nodepool") != nullptr;
  marks.annotations.clear();
  for (std::string_view key : {kHoldsAnnotation, kHoldAddedAnnotation, kDoNotDisruptAnnotation}) {
    if (const std::string* value = node.meta.Annotation(key))
      marks.annotations.emplace(key, *value);
  }
  if (HasHoldMarks(marks.annotations)) hold_candidates.insert(node.meta.name);
  const cluster::NodeInfo* info = snapshot.FindNode(node.meta.name);
  if (info != nullptr && info->UsableNow()) {
    usable_since.try_emplace(node.meta.name, now);
  } else {
    usable_since.erase(node.meta.name);
  }
}

// Whether there is quota at all may have changed, or what a gang asks for.
void Engine::State::NoteQueues() {
  queues_changed = true;
  for (auto& [key, gang] : gangs) gang.dirty |= gang.state != v1::FINISHED;
}

// --- the step ---

// Nothing to do for it before something about it changes.
bool Engine::State::IsSettled(const Gang& gang) const {
  if (!gang.ours) return true;
  if (gang.quota.eviction || (gang.record && gang.record->eviction)) return false;
  if (gang.group_behind) return false;
  if (gang.at_rest) return true;
  if (gang.quota.idle_since != Never()) return false;  // it is to give its quota back
  if (gang.state == v1::FINISHED) return true;
  return gang.state == v1::BOUND && gang.unbound.empty() && gang.posted.empty() &&
         (!gang.record || gang.record->bound_at);
}

bool Engine::State::Act(const std::string& target, absl::Time now, Action action,
                        InFlight::OnFinish on_finish) {
  acted = true;
  if (!in_flight.MayStart(target, now)) return false;
  const uint64_t id = in_flight.Start(target, std::move(on_finish));
  (out != nullptr ? out->actions : pending).push_back({id, std::move(action)});
  return true;
}

void Engine::State::Tell(Action action) {
  (out != nullptr ? out->actions : pending).push_back({0, std::move(action)});
}

void Engine::State::Step(absl::Time now, StepOutput* output) {
  clock = now;
  out = output;
  out->actions.swap(pending);
  next_wake = Never();
  if (!synced || !leading) {
    for (const auto& [uid, binds] : held_binds) {
      for (const HeldBind& bind : binds) {
        Tell(AnswerBind{bind.request,
                        synced ? "muster is not leading" : "muster's caches have not synced"});
      }
    }
    held_binds.clear();
    for (const auto& [uid, answer] : answers) out->filter_answers.emplace_back(uid, std::nullopt);
    answers.clear();
    out = nullptr;
    return;
  }
  if (suspects.Expire(now)) {
    needs_pass = nodes_changed = true;
    for (auto& [key, gang] : gangs) gang.stale = true;
  }
  WakeAt(suspects.NextExpiry());

  std::vector<Gang*> active;
  for (auto& [key, gang] : gangs) {
    if (gang.dirty) Refresh(gang, now);
    gang.stale |= gang.dirty;
    if (!gang.dirty && IsSettled(gang)) continue;
    active.push_back(&gang);
    if (gang.dirty || gang.quota.idle_since != Never()) SyncQuota(gang, now);
    KeepGroup(gang, now);
    Admit(gang, now);
  }
  ScheduleQuota(now);
  WriteQueueStatus(now);
  if (needs_pass) {
    Place(now);
    for (Gang* gang : active) gang->stale = true;
  }
  for (Gang* gang : active) Decide(*gang, now);
  ReconcileHolds(now);
  for (auto& [key, gang] : gangs) {
    if (gang.stale) Show(gang);
  }
  for (const GangKey& key : removed_gangs) out->changed_gangs.push_back(key);
  removed_gangs.clear();
  for (const std::string& uid : answers_to_remove) {
    if (answers.erase(uid) > 0) out->filter_answers.emplace_back(uid, std::nullopt);
  }
  answers_to_remove.clear();
  out->nodes_changed = std::exchange(nodes_changed, false);
  out->queues_changed = std::exchange(queues_changed, false);
  in_flight.Prune(now);
  WakeAt(in_flight.NextRetry(now));
  out = nullptr;
}

// --- the public face ---

Engine::Engine(EngineOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Engine::~Engine() = default;

void Engine::Upsert(kube::Pod pod) { state_->Upsert(std::move(pod)); }

void Engine::Upsert(kube::Node node) {
  State& s = *state_;
  auto it = s.node_marks.find(node.meta.name);
  if (it != s.node_marks.end() &&
      kube::IsOlderVersion(node.meta.resource_version, it->second.resource_version)) {
    return;
  }
  s.needs_pass = s.nodes_changed = s.places_changed = true;
  const std::string name = node.meta.name;
  s.NotePlace(name);
  s.snapshot.Upsert(std::move(node));
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
  const std::string place = cluster::VirtualName(claim.meta.name);
  state_->NotePlace(place);
  state_->snapshot.Upsert(std::move(claim));
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
  state_->places_changed = true;
  std::string name = pool.meta.name;
  state_->node_pools.insert_or_assign(std::move(name), std::move(pool));
}

void Engine::Upsert(kube::ResourceFlavor flavor) {
  state_->places_changed = state_->queues_changed = true;
  state_->quotas.Upsert(std::move(flavor));
}

void Engine::Upsert(kube::ClusterQueue queue) {
  state_->NoteQueues();
  state_->quotas.Upsert(std::move(queue));
}

void Engine::Upsert(kube::LocalQueue queue) {
  state_->NoteQueues();
  state_->quotas.Upsert(std::move(queue));
}

void Engine::Upsert(kube::Cohort cohort) {
  state_->queues_changed = true;
  state_->quotas.Upsert(std::move(cohort));
}

void Engine::Upsert(kube::WorkloadPriorityClass priority_class) {
  state_->NoteQueues();
  state_->priority_classes.insert_or_assign(priority_class.meta.name, priority_class.value);
}

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
  state_->queues_changed = true;
  state_->quotas.Upsert(name_space);
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
void Engine::RemoveJob(std::string_view uid) {
  state_->OwnersChanged(state_->jobs.Remove(std::string(uid)));
}

void Engine::RemovePod(std::string_view uid) { state_->RemovePod(std::string(uid)); }
void Engine::RemovePodGroup(std::string_view uid) { state_->DropGroup(std::string(uid)); }

void Engine::RemoveNode(std::string_view name) {
  State& s = *state_;
  s.needs_pass = s.nodes_changed = true;
  s.NotePlace(std::string(name));
  s.snapshot.RemoveNode(name);
  s.node_marks.erase(std::string(name));
  s.usable_since.erase(std::string(name));
  s.hold_candidates.erase(std::string(name));
  s.suspects.Forget(name);
}

void Engine::RemoveNodeClaim(std::string_view name) {
  state_->needs_pass = state_->nodes_changed = true;
  state_->NotePlace(cluster::VirtualName(std::string(name)));
  state_->snapshot.RemoveNodeClaim(name);
}

void Engine::RemoveNodePool(std::string_view name) {
  state_->places_changed = true;
  state_->node_pools.erase(std::string(name));
}

void Engine::RemoveResourceFlavor(std::string_view name) {
  state_->places_changed = state_->queues_changed = true;
  state_->quotas.RemoveResourceFlavor(name);
}

void Engine::RemoveClusterQueue(std::string_view name) {
  state_->NoteQueues();
  state_->quotas.RemoveClusterQueue(name);
}

void Engine::RemoveLocalQueue(std::string_view full_name) {
  state_->NoteQueues();
  state_->quotas.RemoveLocalQueue(full_name);
}

void Engine::RemoveCohort(std::string_view name) {
  state_->queues_changed = true;
  state_->quotas.RemoveCohort(name);
}

void Engine::RemoveWorkloadPriorityClass(std::string_view name) {
  state_->NoteQueues();
  state_->priority_classes.erase(std::string(name));
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

void Engine::SetSynced() { state_->synced = true; }

void Engine::SetLeading(bool leading) {
  State& s = *state_;
  if (s.leading == leading) return;
  s.leading = leading;
  for (auto& [key, gang] : s.gangs) {
    // What was decided in an earlier term and didn't reach a record is void.
    s.WithdrawQuota(gang);
    gang.dirty = true;
  }
}

void Engine::SetGatingActive(bool active) {
  State& s = *state_;
  if (s.gating_active == active) return;
  s.gating_active = active;
  for (auto& [key, gang] : s.gangs) gang.dirty = true;
}

void Engine::RequestBind(uint64_t request, std::string_view pod_uid, std::string_view node,
                         absl::Time now) {
  State& s = *state_;
  s.clock = now;
  const std::string uid(pod_uid);
  auto it = s.gang_of_pod.find(uid);
  if (it == s.gang_of_pod.end()) {
    s.Tell(AnswerBind{request, "pod " + uid + " is not known to muster yet"});
    return;
  }
  s.held_binds[uid].push_back({request, std::string(node), now + s.options.bind_wait});
  it->second->dirty = true;
}

void Engine::RefusePlannedNode(std::string_view pod_uid, std::string_view node, absl::Time now) {
  State& s = *state_;
  s.clock = now;
  auto it = s.gang_of_pod.find(std::string(pod_uid));
  if (it == s.gang_of_pod.end()) return;
  Gang& gang = *it->second;
  // Only the plan that is in force can be refused: the answer to an older one is old news.
  auto place = gang.fixed.find(std::string(pod_uid));
  if (place == gang.fixed.end() || place->second != node) return;
  gang.refused_nodes[std::string(node)] = now + s.options.refusal_time;
  s.needs_pass = true;
  gang.dirty = true;
}

void Engine::Finish(uint64_t action_id, const absl::Status& status, absl::Time now) {
  state_->clock = now;
  state_->in_flight.Finish(action_id, status, now);
}

StepOutput Engine::Step(absl::Time now) {
  StepOutput output;
  state_->Step(now, &output);
  return output;
}

absl::Time Engine::NextWake() const { return state_->next_wake; }

bool Engine::Describe(const GangKey& key, v1::Gang* gang) const {
  auto it = state_->gangs.find(key);
  if (it == state_->gangs.end() || !it->second.ours) return false;
  state_->Describe(it->second, gang);
  return true;
}

std::vector<GangKey> Engine::Gangs() const {
  std::vector<GangKey> keys;
  keys.reserve(state_->gangs.size());
  for (const auto& [key, gang] : state_->gangs) {
    if (gang.ours) keys.push_back(key);
  }
  return keys;
}

const cluster::Snapshot& Engine::snapshot() const { return state_->snapshot; }

EngineStats Engine::TakeStats() {
  State& s = *state_;
  s.stats.gangs = s.gangs.size();
  s.stats.in_flight = s.in_flight.size();
  s.stats.held_binds = 0;
  for (const auto& [uid, binds] : s.held_binds) s.stats.held_binds += binds.size();
  EngineStats stats = s.stats;
  s.stats.bind_latencies.clear();
  s.stats.state_times.clear();
  return stats;
}

}  // namespace muster::coscheduling
