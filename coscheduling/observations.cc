// What is observed comes in: one function per kind tells the owner of that fact. What follows for
// nodes is in the snapshot's journal.

#include <utility>

#include "coscheduling/owners.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

constexpr std::string_view kMirrorAnnotation = "kubernetes.io/config.mirror";

}  // namespace

void Engine::Owners::Depart() {
  const Gangs::Departures departures = gangs.TakeDepartures();
  for (const auto& [gang, pod] : departures.pods) {
    placement.Leave(gang, pod);
    commit.Leave(gang, pod);
    if (gangs.OfPod(pod) == nullptr) report.Leave(pod);
  }
  for (const auto& [gang, key] : departures.gangs) {
    quota.Withdraw(gang);
    placement.Forget(gang);
    provisioning.Forget(gang, key);
    placeability.Forget(gang);
    holds.Forget(gang);
    commit.Forget(gang);
    restarts.Forget(gang);
    repair.Forget(gang);
    records.Forget(gang);
    report.Forget(gang, key);
  }
}

void Engine::Owners::Observe(kube::Pod pod) {
  const std::string uid = pod.meta.uid;
  if (gone.Has(uid)) return;
  const kube::Pod* known = snapshot.FindPod(uid);
  if (known != nullptr &&
      kube::IsOlderVersion(pod.meta.resource_version, known->meta.resource_version)) {
    return;
  }
  const bool ours = pod.scheduler_name == options.scheduler_name &&
                    !pod.meta.annotations.contains(kMirrorAnnotation);
  // A pod without a group that another scheduler owns is nobody's gang; one that names a group is
  // looked at as a member even so, because it may be a mistake worth telling.
  if (!ours && pod.meta.Label(kube::kPodGroupLabel) == nullptr) {
    // Of the others only those that take room matter.
    if (pod.IsTerminal()) {
      if (known != nullptr) snapshot.RemovePod(uid);
      return;
    }
    if (!pod.IsBound() && known == nullptr) return;
    pod.meta.annotations = {};
    snapshot.Upsert(std::move(pod));
    return;
  }
  const Gang& gang = gangs.Join(pod);
  suspect_marks.Observe(pod, gang.key);
  // Members are mostly alike: equal specs are kept once.
  for (const std::string& sibling : gang.pods) {
    const kube::Pod* other = snapshot.FindPod(sibling);
    if (other == nullptr) continue;
    if (*other->spec == *pod.spec) pod.spec = other->spec;
    break;
  }
  snapshot.Upsert(std::move(pod));
  Depart();
}

void Engine::Owners::RemovePod(const std::string& uid) {
  gone.Add(uid);
  commit.EndCallsOf(uid);
  const kube::Pod* pod = snapshot.FindPod(uid);
  if (pod == nullptr) return;
  if (const Gang* gang = gangs.OfPod(uid)) {
    repair.NoteRemoved(*gang, *pod);
    gangs.Leave(*pod);
  }
  Depart();
  snapshot.RemovePod(uid);
}

void Engine::Upsert(kube::Pod pod) { owners_->Observe(std::move(pod)); }
void Engine::RemovePod(std::string_view uid) { owners_->RemovePod(std::string(uid)); }

void Engine::Upsert(kube::Node node) {
  Owners& owners = *owners_;
  if (owners.gone.Has(node.meta.uid)) return;
  owners.snapshot.Upsert(std::move(node));
}

void Engine::RemoveNode(std::string_view name) {
  Owners& owners = *owners_;
  const cluster::NodeInfo* info = owners.snapshot.FindNode(name);
  if (info != nullptr && info->object != nullptr) owners.gone.Add(info->object->meta.uid);
  owners.snapshot.RemoveNode(name);
}

void Engine::Upsert(kube::NodeClaim claim) {
  Owners& owners = *owners_;
  if (owners.gone.Has(claim.meta.uid)) return;
  const std::string name = claim.meta.name;
  owners.snapshot.Upsert(std::move(claim));
  owners.provisioning.NoteClaim(name);
}

void Engine::RemoveNodeClaim(std::string_view name) {
  Owners& owners = *owners_;
  if (const kube::NodeClaim* claim = owners.snapshot.FindNodeClaim(name)) {
    owners.gone.Add(claim->meta.uid);
  }
  owners.snapshot.RemoveNodeClaim(name);
  owners.provisioning.NoteClaim(std::string(name));
}

void Engine::Upsert(kube::PodGroup group) {
  Owners& owners = *owners_;
  if (owners.gone.Has(group.meta.uid)) return;
  owners.gangs.Adopt(std::make_shared<const kube::PodGroup>(std::move(group)));
  owners.Depart();
}

void Engine::RemovePodGroup(std::string_view uid) {
  Owners& owners = *owners_;
  owners.gone.Add(std::string(uid));
  owners.gangs.DropGroup(std::string(uid));
  owners.Depart();
}

// --- jobs ---

template <typename JobKind>
void Engine::Owners::ObserveJob(const JobKind& job) {
  if (gone.Has(job.meta.uid)) return;
  gangs.ObserveJob(kube::ToAnyJob(job));
  Depart();
}

void Engine::Upsert(const kube::Job& job) { owners_->ObserveJob(job); }
void Engine::Upsert(const kube::StatefulSet& set) { owners_->ObserveJob(set); }
void Engine::Upsert(const kube::JobSet& set) { owners_->ObserveJob(set); }
void Engine::Upsert(const kube::PyTorchJob& job) { owners_->ObserveJob(job); }
void Engine::Upsert(const kube::TrainJob& job) { owners_->ObserveJob(job); }

void Engine::RemoveJob(std::string_view uid) {
  Owners& owners = *owners_;
  owners.gone.Add(std::string(uid));
  owners.restarts.RemoveJob(std::string(uid));
  owners.gangs.RemoveJob(std::string(uid));
  owners.Depart();
}

void Engine::Upsert(kube::Workload workload) {
  if (owners_->gone.Has(workload.meta.uid)) return;
  owners_->restarts.Upsert(std::move(workload));
}

void Engine::RemoveWorkload(std::string_view uid) {
  owners_->gone.Add(std::string(uid));
  owners_->restarts.RemoveWorkload(std::string(uid));
}

void Engine::Upsert(const kube::Event& event) {
  owners_->gangs.Observe(event);
  owners_->provisioning.Observe(event);
}

// --- pools and quota ---

void Engine::Upsert(kube::NodePool pool) { owners_->placeability.Upsert(std::move(pool)); }
void Engine::RemoveNodePool(std::string_view name) { owners_->placeability.RemoveNodePool(name); }

void Engine::Upsert(kube::ResourceFlavor flavor) {
  owners_->quota.Upsert(std::move(flavor));
  owners_->placeability.Invalidate();
}

void Engine::RemoveResourceFlavor(std::string_view name) {
  owners_->quota.RemoveResourceFlavor(name);
  owners_->placeability.Invalidate();
}

void Engine::Upsert(kube::ClusterQueue queue) {
  if (!owners_->IsNews("ClusterQueue/", queue.meta)) return;
  owners_->quota.Upsert(std::move(queue));
}

void Engine::RemoveClusterQueue(std::string_view name) {
  owners_->Bury("ClusterQueue/", name);
  owners_->quota.RemoveClusterQueue(name);
}

void Engine::Upsert(kube::LocalQueue queue) {
  if (!owners_->IsNews("LocalQueue/", queue.meta)) return;
  owners_->quota.Upsert(std::move(queue));
}

void Engine::RemoveLocalQueue(std::string_view full_name) {
  owners_->Bury("LocalQueue/", full_name);
  owners_->quota.RemoveLocalQueue(full_name);
}

void Engine::Upsert(kube::Cohort cohort) { owners_->quota.Upsert(std::move(cohort)); }
void Engine::RemoveCohort(std::string_view name) { owners_->quota.RemoveCohort(name); }

void Engine::Upsert(kube::WorkloadPriorityClass priority_class) {
  owners_->quota.Upsert(std::move(priority_class));
}

void Engine::RemoveWorkloadPriorityClass(std::string_view name) {
  owners_->quota.RemoveWorkloadPriorityClass(name);
}

void Engine::Upsert(kube::PodDisruptionBudget budget) { owners_->quota.Upsert(std::move(budget)); }

void Engine::RemovePodDisruptionBudget(std::string_view full_name) {
  owners_->quota.RemovePodDisruptionBudget(full_name);
}

// True unless the object is gone; its UID is known from now on.
bool Engine::Owners::IsNews(std::string_view kind, const kube::ObjectMeta& meta) {
  if (gone.Has(meta.uid)) return false;
  uid_of.insert_or_assign(std::string(kind) + meta.FullName(), meta.uid);
  return true;
}

void Engine::Owners::Bury(std::string_view kind, std::string_view full_name) {
  const auto known = uid_of.find(std::string(kind) + std::string(full_name));
  if (known == uid_of.end()) return;
  gone.Add(known->second);
  uid_of.erase(known);
}

// --- what nodes, pods and volumes mean ---

void Engine::Upsert(kube::DaemonSet daemon_set) { owners_->snapshot.Upsert(std::move(daemon_set)); }
void Engine::RemoveDaemonSet(std::string_view uid) { owners_->snapshot.RemoveDaemonSet(uid); }

void Engine::Upsert(kube::Namespace name_space) {
  owners_->quota.Upsert(name_space);
  owners_->snapshot.Upsert(std::move(name_space));
}

void Engine::RemoveNamespace(std::string_view name) {
  owners_->quota.RemoveNamespace(name);
  owners_->snapshot.RemoveNamespace(name);
}

void Engine::Upsert(kube::PersistentVolumeClaim claim) {
  owners_->snapshot.Upsert(std::move(claim));
}

void Engine::RemovePersistentVolumeClaim(std::string_view full_name) {
  owners_->snapshot.RemovePersistentVolumeClaim(full_name);
}

void Engine::Upsert(kube::PersistentVolume volume) { owners_->snapshot.Upsert(std::move(volume)); }

void Engine::RemovePersistentVolume(std::string_view name) {
  owners_->snapshot.RemovePersistentVolume(name);
}

void Engine::Upsert(kube::StorageClass storage_class) {
  owners_->snapshot.Upsert(std::move(storage_class));
}

void Engine::RemoveStorageClass(std::string_view name) {
  owners_->snapshot.RemoveStorageClass(name);
}

}  // namespace muster::coscheduling
