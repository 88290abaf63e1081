// What is observed comes in: one function per kind tells the owner of that fact. What follows for
// nodes is in the snapshot's journal.

#include <utility>

#include "coscheduling/owners.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

constexpr std::string_view kMirrorAnnotation = "kubernetes.io/config.mirror";

template <typename Object>
concept IsJob = requires(const Object& object) { kube::ToAnyJob(object); };
template <typename Object>
concept IsOfQuota = requires(QuotaAdmission& quota, Object object) { quota.Upsert(object); };
template <typename Object>
concept IsOfSnapshot = requires(cluster::Snapshot& all, Object object) { all.Upsert(object); };
template <typename Object>
concept IsOfPools = requires(cluster::KnownNodePools& all, Object object) { all.Upsert(object); };

}  // namespace

void Engine::Owners::Depart() {
  const Gangs::Departures departures = gangs.TakeDepartures();
  for (const auto& [gang, pod] : departures.pods) {
    placement.Leave(gang, pod);
    commit.Leave(gang, pod);
    if (gangs.OfPod(pod) == nullptr) report.Leave(pod);
  }
  for (const auto& [gang, key] : departures.gangs) {
    quota.Forget(gang, key);
    workloads.ForgetGang(gang, key);
    placement.Forget(gang);
    provisioning.Forget(gang, key);
    placeability.Forget(gang);
    holds.Forget(gang);
    commit.Forget(gang);
    restarts.Forget(gang);
    job_starts.Forget(gang);
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
      workloads.NoteEnd(pod);
      if (known != nullptr) snapshot.RemovePod(uid);
      return;
    }
    if (!pod.IsBound() && pod.nominated_node_name.empty() && known == nullptr) return;
    pod.meta.annotations = {};
    snapshot.Upsert(std::move(pod));
    return;
  }
  if (ours) pod.told_node_name = std::exchange(pod.nominated_node_name, {});
  if (ours) options.profile.added_affinity.ApplyTo(&pod);
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
}

void Engine::Owners::RemovePod(const std::string& uid) {
  commit.EndCallsOf(uid);
  workloads.ForgetEnd(uid);
  const kube::Pod* pod = snapshot.FindPod(uid);
  if (pod == nullptr) return;
  suspect_marks.NoteRemoved(*pod);
  workloads.LoseOwner({pod->meta.name_space, uid});
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
  void operator()(kube::PodGroup group) const {
    to.gangs.Adopt(std::make_shared<const kube::PodGroup>(std::move(group)));
  }
  void operator()(IsJob auto job) const {
    to.workloads.LoseOwner({job.meta.name_space, job.meta.uid});
    to.gangs.ObserveJob(kube::ToAnyJob(job));
  }
  void operator()(kube::Workload workload) const {
    const kube::NamespacedUid owner = workload.meta.ControllerUid();
    to.workloads.Upsert(std::move(workload));
    to.gangs.Await(owner, to.workloads.HasQuota(owner));
  }
  void operator()(IsOfPools auto object) const { to.placeability.Upsert(std::move(object)); }
  void operator()(kube::NodeClaim claim) const {
    const std::string name = claim.meta.name;
    to.snapshot.Upsert(std::move(claim));
    to.provisioning.NoteClaim(name);
  }
  void operator()(kube::ResourceFlavor flavor) const {
    to.quota.Upsert(std::move(flavor));
    to.placeability.Invalidate();
  }
  void operator()(kube::Namespace name_space) const {
    to.quota.Upsert(name_space);
    to.snapshot.Upsert(std::move(name_space));
  }
  void operator()(IsOfQuota auto object) const { to.quota.Upsert(std::move(object)); }
  void operator()(IsOfSnapshot auto object) const { to.snapshot.Upsert(std::move(object)); }
};

// And that one is gone.
struct Engine::Owners::Going {
  Owners& from;

  void operator()(const kube::Pod& pod) const { from.RemovePod(pod.meta.uid); }
  void operator()(const kube::PodGroup& group) const { from.gangs.DropGroup(group); }
  void operator()(const IsJob auto& job) const {
    from.restarts.RemoveJob(job.meta.uid);
    from.gangs.RemoveJob(job.meta.uid);
    from.workloads.LoseOwner({job.meta.name_space, job.meta.uid});
  }
  void operator()(const kube::Workload& workload) const {
    from.workloads.Remove(workload.meta.uid);
    const kube::NamespacedUid owner = workload.meta.ControllerUid();
    from.gangs.Await(owner, from.workloads.HasQuota(owner));
  }
  void operator()(const IsOfPools auto& object) const { from.placeability.Remove(object); }
  void operator()(const kube::NodeClaim& claim) const {
    from.snapshot.RemoveNodeClaim(claim.meta.name);
    from.provisioning.NoteClaim(claim.meta.name);
  }
  void operator()(const kube::ResourceFlavor& flavor) const {
    from.quota.Remove(flavor);
    from.placeability.Invalidate();
  }
  void operator()(const kube::Namespace& n) const {
    from.quota.Remove(n);
    from.snapshot.RemoveNamespace(n.meta.name);
  }
  void operator()(const IsOfQuota auto& object) const { from.quota.Remove(object); }
  void operator()(const IsOfSnapshot auto& object) const { from.snapshot.Remove(object); }
};

void Engine::Upsert(Observed object) {
  const auto uid_of = [](const auto& any) -> const std::string& { return any.meta.uid; };
  if (owners_->gone.Has(std::visit(uid_of, object))) return;
  // The answer to the write that took the last finalizer away. Where they are watched for a moment
  // only, as when they were just defined, nothing else may tell of the end.
  const auto* workload = std::get_if<kube::Workload>(&object);
  if (workload != nullptr && workload->meta.deletion_time && workload->meta.finalizers.empty()) {
    return Remove(object);
  }
  std::visit(Owners::Coming{*owners_}, std::move(object));
  owners_->Depart();
}

void Engine::Upsert(const kube::Event& event) {
  owners_->gangs.Observe(event);
  owners_->provisioning.Observe(event);
}

void Engine::Remove(const Observed& object) {
  std::visit([this](const auto& any) { owners_->gone.Add(any.meta.uid); }, object);
  std::visit(Owners::Going{*owners_}, object);
  owners_->Depart();
}

}  // namespace muster::coscheduling
