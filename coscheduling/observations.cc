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

// What it means that an object of each kind came, or another version of it.
struct Engine::Owners::Coming {
  Owners& to;

  void operator()(kube::Pod pod) const { to.Observe(std::move(pod)); }
  void operator()(kube::Node node) const { to.snapshot.Upsert(std::move(node)); }
  void operator()(kube::NodeClaim claim) const {
    const std::string name = claim.meta.name;
    to.snapshot.Upsert(std::move(claim));
    to.provisioning.NoteClaim(name);
  }
  void operator()(kube::PodGroup group) const {
    to.gangs.Adopt(std::make_shared<const kube::PodGroup>(std::move(group)));
    to.Depart();
  }
  template <typename Job>
    requires requires(const Job& job) { kube::ToAnyJob(job); }
  void operator()(const Job& job) const {
    to.gangs.ObserveJob(kube::ToAnyJob(job));
    to.Depart();
  }
  void operator()(kube::Workload workload) const { to.restarts.Upsert(std::move(workload)); }
  void operator()(kube::NodePool pool) const { to.placeability.Upsert(std::move(pool)); }

  void operator()(kube::ResourceFlavor flavor) const {
    to.quota.Upsert(std::move(flavor));
    to.placeability.Invalidate();
  }
  void operator()(kube::ClusterQueue queue) const { to.quota.Upsert(std::move(queue)); }
  void operator()(kube::LocalQueue queue) const { to.quota.Upsert(std::move(queue)); }
  void operator()(kube::Cohort cohort) const { to.quota.Upsert(std::move(cohort)); }
  void operator()(kube::WorkloadPriorityClass c) const { to.quota.Upsert(std::move(c)); }
  void operator()(kube::PodDisruptionBudget budget) const { to.quota.Upsert(std::move(budget)); }
  void operator()(kube::Namespace name_space) const {
    to.quota.Upsert(name_space);
    to.snapshot.Upsert(std::move(name_space));
  }

  void operator()(kube::DaemonSet set) const { to.snapshot.Upsert(std::move(set)); }
  void operator()(kube::PersistentVolumeClaim c) const { to.snapshot.Upsert(std::move(c)); }
  void operator()(kube::PersistentVolume volume) const { to.snapshot.Upsert(std::move(volume)); }
  void operator()(kube::StorageClass c) const { to.snapshot.Upsert(std::move(c)); }
};

// And that one is gone.
struct Engine::Owners::Going {
  Owners& from;

  void operator()(const kube::Pod& pod) const { from.RemovePod(pod.meta.uid); }
  void operator()(const kube::Node& node) const { from.snapshot.RemoveNode(node.meta.name); }
  void operator()(const kube::NodeClaim& claim) const {
    from.snapshot.RemoveNodeClaim(claim.meta.name);
    from.provisioning.NoteClaim(claim.meta.name);
  }
  void operator()(const kube::PodGroup& group) const {
    from.gangs.DropGroup(group.meta.uid);
    from.Depart();
  }
  template <typename Job>
    requires requires(const Job& job) { kube::ToAnyJob(job); }
  void operator()(const Job& job) const {
    from.restarts.RemoveJob(job.meta.uid);
    from.gangs.RemoveJob(job.meta.uid);
    from.Depart();
  }
  void operator()(const kube::Workload& w) const { from.restarts.RemoveWorkload(w.meta.uid); }
  void operator()(const kube::NodePool& p) const { from.placeability.RemoveNodePool(p.meta.name); }

  void operator()(const kube::ResourceFlavor& flavor) const {
    from.quota.RemoveResourceFlavor(flavor.meta.name);
    from.placeability.Invalidate();
  }
  void operator()(const kube::ClusterQueue& q) const { from.quota.RemoveClusterQueue(q.meta.name); }
  void operator()(const kube::LocalQueue& q) const {
    from.quota.RemoveLocalQueue(q.meta.FullName());
  }
  void operator()(const kube::Cohort& c) const { from.quota.RemoveCohort(c.meta.name); }
  void operator()(const kube::WorkloadPriorityClass& c) const {
    from.quota.RemoveWorkloadPriorityClass(c.meta.name);
  }
  void operator()(const kube::PodDisruptionBudget& b) const {
    from.quota.RemovePodDisruptionBudget(b.meta.FullName());
  }
  void operator()(const kube::Namespace& n) const {
    from.quota.RemoveNamespace(n.meta.name);
    from.snapshot.RemoveNamespace(n.meta.name);
  }

  void operator()(const kube::DaemonSet& set) const { from.snapshot.RemoveDaemonSet(set.meta.uid); }
  void operator()(const kube::PersistentVolumeClaim& c) const {
    from.snapshot.RemovePersistentVolumeClaim(c.meta.FullName());
  }
  void operator()(const kube::PersistentVolume& v) const {
    from.snapshot.RemovePersistentVolume(v.meta.name);
  }
  void operator()(const kube::StorageClass& c) const {
    from.snapshot.RemoveStorageClass(c.meta.name);
  }
};

void Engine::Upsert(Observed object) {
  const auto uid_of = [](const auto& any) -> const std::string& { return any.meta.uid; };
  if (owners_->gone.Has(std::visit(uid_of, object))) return;
  std::visit(Owners::Coming{*owners_}, std::move(object));
}

void Engine::Upsert(const kube::Event& event) {
  owners_->gangs.Observe(event);
  owners_->provisioning.Observe(event);
}

void Engine::Remove(const Observed& object) {
  std::visit([this](const auto& any) { owners_->gone.Add(any.meta.uid); }, object);
  std::visit(Owners::Going{*owners_}, object);
}

}  // namespace muster::coscheduling
