#include "simulation/kueue_simulator.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "kube/embedded/api_server.h"
#include "kube/objects/well_known.h"
#include "quota/pod_sets.h"
#include "simulation/observers.h"
#include "writes/action_requests.h"

namespace muster::simulation {
namespace {

using nlohmann::json;

constexpr const char* kGate = "kueue.x-k8s.io/admission";
constexpr const char* kManagedLabel = "kueue.x-k8s.io/managed";
constexpr const char* kDefaultQueue = "default";

const std::string& QueueOf(const kube::Pod& pod) {
  static const auto* none = new std::string();
  const std::string* queue = pod.meta.Label(kube::kQueueLabel);
  return queue == nullptr ? *none : *queue;
}

}  // namespace

KueueSimulator::KueueSimulator(kube::embedded::ApiServer* server, bool fair_sharing)
    : client_(server, "kueue"),
      namespaces_(server, "/api/v1/namespaces"),
      flavors_(server, "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"),
      cohorts_(server, "/apis/kueue.x-k8s.io/v1beta2/cohorts"),
      cluster_queues_(server, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"),
      local_queues_(server, "/apis/kueue.x-k8s.io/v1beta2/localqueues"),
      pod_groups_(server, "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"),
      pods_(server, "/api/v1/pods"),
      quotas_({.fair_sharing = fair_sharing}) {}

KueueSimulator::~KueueSimulator() = default;

void KueueSimulator::AdmitPod(json* pod) {
  Sync();
  json& metadata = (*pod)["metadata"];
  json& labels = metadata["labels"];
  if (labels.is_null()) labels = json::object();
  const std::string default_queue = metadata.value("namespace", "default") + "/" + kDefaultQueue;
  if (!labels.contains(kube::kQueueLabel) && local_queues_.Find(default_queue) != nullptr) {
    labels[kube::kQueueLabel] = kDefaultQueue;
  }
  if (!labels.contains(kube::kQueueLabel)) return;
  labels[kManagedLabel] = "true";
  (*pod)["spec"]["schedulingGates"].push_back({{"name", kGate}});
}

bool KueueSimulator::Sync() {
  const auto follow = [this](auto& cache) {
    return cache.Sync([&](const std::string&, const auto* before, const auto* now) {
      if (now == nullptr) {
        quotas_.Remove(before->object);
      } else {
        quotas_.Upsert(now->object);
      }
    });
  };
  bool any = follow(namespaces_);
  any |= follow(flavors_);
  any |= follow(cohorts_);
  any |= follow(cluster_queues_);
  any |= follow(local_queues_);
  any |= pod_groups_.Sync(
      [this](const std::string& key, const auto*, const auto*) { changed_.insert(key); });
  any |= pods_.Sync([this](const std::string& key, const auto* before, const auto* now) {
    OnPod(key, before == nullptr ? nullptr : &before->object,
          now == nullptr ? nullptr : &now->object);
  });
  return any;
}

void KueueSimulator::OnPod(const std::string& key, const kube::Pod* before, const kube::Pod* now) {
  const kube::Pod& either = now == nullptr ? *before : *now;
  if (either.meta.Label(kManagedLabel) == nullptr) return;
  const std::string name = GangOf(either);
  if (now == nullptr) {
    groups_[name].pods.erase(key);
  } else {
    groups_[name].pods.insert(key);
  }
  changed_.insert(name);
}

bool KueueSimulator::Tick(absl::Time now) {
  bool any = Sync();
  for (const std::string& name : std::exchange(changed_, {})) Refresh(name, now);
  if (!quotas_.NeedsSchedule()) return any;
  for (const quota::Decision& decision : quotas_.Schedule(now, nullptr)) {
    Carry(decision, now);
    any = true;
  }
  return any;
}

std::vector<const kube::Pod*> KueueSimulator::Live(const Group& group) const {
  std::vector<const kube::Pod*> live;
  for (const std::string& key : group.pods) {
    const kube::Pod& pod = pods_.Find(key)->object;
    if (!pod.IsTerminal() && !pod.IsDeleting()) live.push_back(&pod);
  }
  return live;
}

// How many pods are expected; more than there can be if nobody says.
int64_t KueueSimulator::Size(const std::string& name, const kube::Pod& member) const {
  if (member.meta.Label(kube::kPodGroupLabel) == nullptr) return 1;
  const auto* group = pod_groups_.Find(name);
  return group == nullptr ? std::numeric_limits<int64_t>::max() : group->object.min_member;
}

void KueueSimulator::Refresh(const std::string& name, absl::Time now) {
  const auto it = groups_.find(name);
  if (it == groups_.end()) return;
  Group& group = it->second;
  const std::vector<const kube::Pod*> live = Live(group);
  if (group.admission != nullptr && !live.empty()) return LetGo(group, now);
  const bool complete =
      !live.empty() && static_cast<int64_t>(live.size()) >= Size(name, *live.front());
  if (complete) {
    group.complete_since = std::min(group.complete_since, now);
    if (!std::exchange(group.waits, true)) Enqueue(name, group, live);
    return;
  }
  if (group.waits || group.admission != nullptr) quotas_.Withdraw(name);
  group = {.pods = std::move(group.pods)};
  if (group.pods.empty()) groups_.erase(it);
}

void KueueSimulator::Enqueue(const std::string& name, const Group& group,
                             const std::vector<const kube::Pod*>& live) {
  const kube::Pod& first = *live.front();
  quota::PodSets sets = quota::GroupByPodSet(live, static_cast<int64_t>(live.size()));
  quotas_.Enqueue({.id = name,
                   .name_space = first.meta.name_space,
                   .name = name.substr(name.find('/') + 1),
                   .queue = QueueOf(first),
                   .priority = first.priority,
                   .queued_at = group.complete_since,
                   .pod_sets = std::move(sets.required),
                   .surplus = {}});
}

void KueueSimulator::Carry(const quota::Decision& decision, absl::Time now) {
  for (const quota::Victim& victim : decision.victims) Evict(victim.id);
  if (decision.admission == nullptr) return;
  Group& group = groups_.at(decision.id);
  group.waits = false;
  group.admission = decision.admission;
  LetGo(group, now);
}

void KueueSimulator::LetGo(const Group& group, absl::Time now) {
  for (const kube::Pod* pod : Live(group)) {
    if (pod->HasGate(kGate)) LetGo(*pod, *group.admission, now);
  }
}

void KueueSimulator::LetGo(const kube::Pod& pod, const quota::Admission& admission,
                           absl::Time now) {
  const std::string set = quota::PodSetOf(pod);
  const auto given = std::ranges::find(admission.pod_sets, set, &quota::PodSetAssignment::name);
  if (given == admission.pod_sets.end()) return;  // no pod of this group's: it stays gated
  std::vector<const kube::ResourceFlavor*> flavors;
  for (const std::string& flavor : quota::FlavorNames(*given)) {
    if (const auto* object = quotas_.FindFlavor(flavor)) flavors.push_back(object);
  }
  const auto assign = writes::ToRequest(
      quota::AssignFlavorsTo(pod, quota::FlavorsFor(pod, *given, QueueOf(pod), flavors)), now);
  client_.server()->Handle(assign->request);
  json gates = json::array();
  for (const std::string& gate : pod.scheduling_gates) {
    if (gate != kGate) gates.push_back({{"name", gate}});
  }
  client_
      .Patch(kube::simulators::PodPath(pod.meta.name_space, pod.meta.name),
             {{"metadata", {{"uid", pod.meta.uid}}}, {"spec", {{"schedulingGates", gates}}}})
      .IgnoreError();  // the pod is gone: its group is looked at again
}

void KueueSimulator::Evict(const std::string& name) {
  const auto it = groups_.find(name);
  if (it == groups_.end()) return;
  for (const kube::Pod* pod : Live(it->second)) {
    client_.Delete(kube::simulators::PodPath(pod->meta.name_space, pod->meta.name), pod->meta.uid)
        .IgnoreError();  // gone already
  }
}

}  // namespace muster::simulation
