#include "extender/cluster_watch.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "absl/strings/str_split.h"
#include "coscheduling/engine.h"
#include "fmt/format.h"
#include "kube/objects/decode.h"
#include "kube/objects/occupants.h"

namespace muster::extender {
namespace {

using coscheduling::Engine;
using kube::ObjectHeader;

std::string FullName(const ObjectHeader& header) {
  return header.name_space.empty() ? header.name : header.name_space + "/" + header.name;
}

// Pods that aren't ours, made small on their way.
struct Occupants {
  std::string scheduler_name;
  kube::OccupantPool pool;
};

template <typename T>
EngineTask UpsertTask(std::string_view json, Occupants& occupants, absl::Status* error) {
  absl::StatusOr<T> object = kube::Decode<T>(json);
  if (!object.ok()) {
    *error = object.status();
    return nullptr;
  }
  if constexpr (std::is_same_v<T, kube::Pod>) {
    if (kube::IsOccupant(*object, occupants.scheduler_name)) occupants.pool.Reduce(&*object);
  }
  return [object = *std::move(object)](Engine& engine, absl::Time) mutable {
    engine.Upsert(std::move(object));
  };
}

template <typename T>
void Remove(Engine& engine, const ObjectHeader& header) {
  T gone;
  gone.meta.name_space = header.name_space;
  gone.meta.name = header.name;
  gone.meta.uid = header.uid;
  engine.Remove(gone);
}

// That an event is gone says nothing of what it told.
template <>
void Remove<kube::Event>(Engine&, const ObjectHeader&) {}

enum Trait : unsigned {
  // Nobody waits for it: decisions don't depend on it, or do without it.
  kExplainsOnly = 1,
  kWorkloads = 2,  // ClusterWatchOptions::workloads says whether
  // kube-apiserver reads it from etcd directly and sends no bookmarks for it.
  kNoBookmarks = 4,
  kCustom = 8,  // of a CRD, which may not be installed; every API server has the others
  // That the first one is there puts gangs under quota that name no queue (LocalQueue `default`):
  // until it is seen they start without.
  kSoonSeen = 16,
};

struct Kind {
  const char* name;
  const char* path;
  EngineTask (*upsert)(std::string_view json, Occupants& occupants, absl::Status* error);
  void (*remove)(Engine& engine, const ObjectHeader& header);
  const char* alternative_path = "";
  const char* field_selector = "";
  unsigned traits = 0;
};

// The server's own end of the watch comes first, after 10 min at most.
constexpr absl::Duration kLongestSilenceWithoutBookmarks = absl::Minutes(15);

constexpr Kind kKinds[] = {
    {"pods", "/api/v1/pods", UpsertTask<kube::Pod>, Remove<kube::Pod>},
    {"nodes", "/api/v1/nodes", UpsertTask<kube::Node>, Remove<kube::Node>},
    {"resourceslices", "/apis/resource.k8s.io/v1/resourceslices", UpsertTask<kube::ResourceSlice>,
     Remove<kube::ResourceSlice>, "/apis/resource.k8s.io/v1beta1/resourceslices", "",
     kExplainsOnly | kCustom},
    {"podgroups", "/apis/scheduling.x-k8s.io/v1alpha1/podgroups", UpsertTask<kube::PodGroup>,
     Remove<kube::PodGroup>, "", "", kCustom},
    {"nodeclaims", "/apis/karpenter.sh/v1/nodeclaims", UpsertTask<kube::NodeClaim>,
     Remove<kube::NodeClaim>, "", "", kCustom},
    {"nodepools", "/apis/karpenter.sh/v1/nodepools", UpsertTask<kube::NodePool>,
     Remove<kube::NodePool>, "", "", kCustom},
    {"ec2nodeclasses", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses", UpsertTask<kube::NodeClass>,
     Remove<kube::NodeClass>, "", "", kExplainsOnly | kCustom},
    {"resourceflavors", "/apis/kueue.x-k8s.io/v1beta2/resourceflavors",
     UpsertTask<kube::ResourceFlavor>, Remove<kube::ResourceFlavor>,
     "/apis/kueue.x-k8s.io/v1beta1/resourceflavors", "", kCustom},
    {"topologies", "/apis/kueue.x-k8s.io/v1beta2/topologies", UpsertTask<kube::Topology>,
     Remove<kube::Topology>, "/apis/kueue.x-k8s.io/v1beta1/topologies", "", kCustom},
    {"clusterqueues", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues", UpsertTask<kube::ClusterQueue>,
     Remove<kube::ClusterQueue>, "/apis/kueue.x-k8s.io/v1beta1/clusterqueues", "", kCustom},
    {"localqueues", "/apis/kueue.x-k8s.io/v1beta2/localqueues", UpsertTask<kube::LocalQueue>,
     Remove<kube::LocalQueue>, "/apis/kueue.x-k8s.io/v1beta1/localqueues", "", kCustom | kSoonSeen},
    {"cohorts", "/apis/kueue.x-k8s.io/v1beta2/cohorts", UpsertTask<kube::Cohort>,
     Remove<kube::Cohort>, "/apis/kueue.x-k8s.io/v1beta1/cohorts", "", kCustom},
    {"workloadpriorityclasses", "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses",
     UpsertTask<kube::WorkloadPriorityClass>, Remove<kube::WorkloadPriorityClass>,
     "/apis/kueue.x-k8s.io/v1beta1/workloadpriorityclasses", "", kCustom},
    {"priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses",
     UpsertTask<kube::PriorityClass>, Remove<kube::PriorityClass>},
    {"workloads", "/apis/kueue.x-k8s.io/v1beta2/workloads", UpsertTask<kube::Workload>,
     Remove<kube::Workload>, "/apis/kueue.x-k8s.io/v1beta1/workloads", "", kWorkloads | kCustom},
    {"poddisruptionbudgets", "/apis/policy/v1/poddisruptionbudgets",
     UpsertTask<kube::PodDisruptionBudget>, Remove<kube::PodDisruptionBudget>},
    {"daemonsets", "/apis/apps/v1/daemonsets", UpsertTask<kube::DaemonSet>,
     Remove<kube::DaemonSet>},
    {"namespaces", "/api/v1/namespaces", UpsertTask<kube::Namespace>, Remove<kube::Namespace>},
    {"persistentvolumeclaims", "/api/v1/persistentvolumeclaims",
     UpsertTask<kube::PersistentVolumeClaim>, Remove<kube::PersistentVolumeClaim>},
    {"persistentvolumes", "/api/v1/persistentvolumes", UpsertTask<kube::PersistentVolume>,
     Remove<kube::PersistentVolume>},
    {"storageclasses", "/apis/storage.k8s.io/v1/storageclasses", UpsertTask<kube::StorageClass>,
     Remove<kube::StorageClass>},
    // How many volumes nodes can attach, and have attached, and how large ones can be made.
    {"csinodes", "/apis/storage.k8s.io/v1/csinodes", UpsertTask<kube::CsiNode>,
     Remove<kube::CsiNode>},
    {"csidrivers", "/apis/storage.k8s.io/v1/csidrivers", UpsertTask<kube::CsiDriver>,
     Remove<kube::CsiDriver>},
    {"csistoragecapacities", "/apis/storage.k8s.io/v1/csistoragecapacities",
     UpsertTask<kube::CsiStorageCapacity>, Remove<kube::CsiStorageCapacity>},
    {"volumeattachments", "/apis/storage.k8s.io/v1/volumeattachments",
     UpsertTask<kube::VolumeAttachment>, Remove<kube::VolumeAttachment>},
    // What owns pods. Most clusters have some of these kinds only.
    {"jobs", "/apis/batch/v1/jobs", UpsertTask<kube::Job>, Remove<kube::Job>},
    {"statefulsets", "/apis/apps/v1/statefulsets", UpsertTask<kube::StatefulSet>,
     Remove<kube::StatefulSet>},
    {"jobsets", "/apis/jobset.x-k8s.io/v1alpha2/jobsets", UpsertTask<kube::JobSet>,
     Remove<kube::JobSet>, "", "", kCustom},
    {"pytorchjobs", "/apis/kubeflow.org/v1/pytorchjobs", UpsertTask<kube::PyTorchJob>,
     Remove<kube::PyTorchJob>, "", "", kCustom},
    {"trainjobs", "/apis/trainer.kubeflow.org/v1alpha1/trainjobs", UpsertTask<kube::TrainJob>,
     Remove<kube::TrainJob>, "", "", kCustom},
    {"mpijobs", "/apis/kubeflow.org/v2beta1/mpijobs", UpsertTask<kube::MPIJob>,
     Remove<kube::MPIJob>, "", "", kCustom},
    {"rayclusters", "/apis/ray.io/v1/rayclusters", UpsertTask<kube::RayCluster>,
     Remove<kube::RayCluster>, "", "", kCustom},
    {"rayjobs", "/apis/ray.io/v1/rayjobs", UpsertTask<kube::RayJob>, Remove<kube::RayJob>, "", "",
     kCustom},
    // Why owners of pods could make no more. A field selector knows no "or", and what passes these
    // is little: of each object one event in 5 min after the first few. CronJobs make no pods, and
    // those of a DaemonSet are no gang.
    {"events/FailedCreate", "/api/v1/events", UpsertTask<kube::Event>, Remove<kube::Event>, "",
     "type=Warning,reason=FailedCreate,involvedObject.kind!=DaemonSet,involvedObject.kind!=CronJob",
     kExplainsOnly | kNoBookmarks},
    {"events/FailedCreatePod", "/api/v1/events", UpsertTask<kube::Event>, Remove<kube::Event>, "",
     "type=Warning,reason=FailedCreatePod", kExplainsOnly | kNoBookmarks},
    // Why Karpenter deleted a NodeClaim unlaunched: one event per claim.
    {"events/InsufficientCapacityError", "/api/v1/events", UpsertTask<kube::Event>,
     Remove<kube::Event>, "",
     "type=Warning,reason=InsufficientCapacityError,involvedObject.kind=NodeClaim",
     kExplainsOnly | kNoBookmarks},
};

}  // namespace

struct ClusterWatch::State {
  class Sink;

  void KindChanged() {
    const std::lock_guard lock(mutex);
    if (synced) return;
    for (const std::unique_ptr<Sink>& sink : sinks) {
      if (!Settled(*sink)) return;
    }
    synced = true;
    intake.post([](Engine& engine, absl::Time) { engine.SetSynced(); });
  }
  static bool Settled(const Sink& sink);

  EngineIntake intake;
  ObjectObserver* observer = nullptr;
  std::mutex mutex;
  bool synced = false;
  std::vector<std::unique_ptr<Sink>> sinks;
  // After the sinks, so that they end first.
  std::vector<std::unique_ptr<kube::Reflector>> reflectors;
};

class ClusterWatch::State::Sink : public kube::ReflectorSink {
 public:
  Sink(State* state, const Kind& kind, const std::string& scheduler_name, bool awaited)
      : state_(state), kind_(kind), awaited_(awaited), occupants_{scheduler_name, {}} {}

  void Upsert(const ObjectHeader& header, std::string_view json) override {
    if (state_->observer != nullptr) state_->observer->Upsert(kind_.name, header, json);
    absl::Status error;
    EngineTask task = kind_.upsert(json, occupants_, &error);
    if (task != nullptr) {
      state_->intake.post_latest(KeyOf(header), std::move(task));
      return;
    }
    undecodable_.fetch_add(1, std::memory_order_relaxed);
    spdlog::warn("kind={} object={} left out: {}", kind_.name, FullName(header),
                 std::string(error.message()));
  }

  void Remove(const ObjectHeader& header) override {
    if (state_->observer != nullptr) state_->observer->Remove(kind_.name, header);
    state_->intake.post_latest(
        KeyOf(header),
        [remove = kind_.remove, header](Engine& engine, absl::Time) { remove(engine, header); });
  }

  void StateChanged(kube::ReflectorState reflector_state, const absl::Status& why) override {
    now_.store(reflector_state);
    if (!why.ok()) {
      spdlog::warn("kind={} watch: {}", kind_.name, std::string(why.message()));
    }
    state_->KindChanged();
  }

  kube::ReflectorState now() const { return now_.load(); }
  const char* name() const { return kind_.name; }
  const char* path() const { return kind_.path; }
  bool awaited() const { return awaited_; }
  uint64_t undecodable() const { return undecodable_.load(std::memory_order_relaxed); }

 private:
  // By UID: a successor of the same name is another object, whose coming takes no removal back.
  std::string KeyOf(const ObjectHeader& header) const {
    return fmt::format("{}/{}", kind_.name, header.uid);
  }

  State* const state_;
  const Kind& kind_;
  const bool awaited_;
  Occupants occupants_;  // the reflector calls one at a time
  std::atomic<kube::ReflectorState> now_ = kube::ReflectorState::kSyncing;
  std::atomic<uint64_t> undecodable_ = 0;
};

bool ClusterWatch::State::Settled(const Sink& sink) {
  return !sink.awaited() || sink.now() == kube::ReflectorState::kSynced ||
         sink.now() == kube::ReflectorState::kAbsent;
}

ClusterWatch::ClusterWatch(kube::Transport& transport, kube::Timer& timer,
                           const ClusterWatchOptions& watch_options, EngineIntake intake,
                           ObjectObserver* observer)
    : state_(std::make_unique<State>()) {
  state_->intake = std::move(intake);
  state_->observer = observer;
  for (const Kind& kind : kKinds) {
    using Use = ClusterWatchOptions::WorkloadUse;
    const bool workloads = (kind.traits & kWorkloads) != 0;
    if (workloads && watch_options.workloads == Use::kNone) continue;
    const bool awaited =
        workloads ? watch_options.workloads == Use::kQuota : (kind.traits & kExplainsOnly) == 0;
    state_->sinks.push_back(
        std::make_unique<State::Sink>(state_.get(), kind, watch_options.scheduler_name, awaited));
    kube::ReflectorOptions options;
    options.path = kind.path;
    options.alternative_path = kind.alternative_path;
    options.field_selector = kind.field_selector;
    options.may_be_absent = (kind.traits & kCustom) != 0;
    if ((kind.traits & kSoonSeen) != 0) options.absent_retry = absl::Seconds(1);
    options.before_line = state_->intake.await_room;
    if ((kind.traits & kNoBookmarks) != 0) {
      options.longest_silence = kLongestSilenceWithoutBookmarks;
    }
    state_->reflectors.push_back(std::make_unique<kube::Reflector>(
        transport, timer, std::move(options), *state_->sinks.back()));
  }
}

ClusterWatch::~ClusterWatch() { state_->reflectors.clear(); }

void ClusterWatch::Start() {
  for (const std::unique_ptr<kube::Reflector>& reflector : state_->reflectors) reflector->Start();
}

std::string ClusterWatch::NotReadyReason() const {
  std::string reason;
  for (size_t i = 0; i < state_->sinks.size(); ++i) {
    const State::Sink& sink = *state_->sinks[i];
    if (State::Settled(sink)) continue;
    const kube::ReflectorStats stats = state_->reflectors[i]->Stats();
    reason += fmt::format("{}{} are {}{}{}", reason.empty() ? "" : "; ", sink.name(),
                          sink.now() == kube::ReflectorState::kStale ? "stale" : "not synced",
                          stats.last_error.empty() ? "" : ": ", stats.last_error);
  }
  return reason;
}

writes::QueueVersions ClusterWatch::VersionsOfQueues() const {
  writes::QueueVersions versions;
  for (size_t i = 0; i < state_->sinks.size(); ++i) {
    const std::string_view name = state_->sinks[i]->name();
    std::string* version = nullptr;
    if (name == "localqueues") version = &versions.local_queues;
    if (name == "clusterqueues") version = &versions.cluster_queues;
    if (name == "cohorts") version = &versions.cohorts;
    if (name == "workloads") version = &versions.workloads;
    if (version == nullptr) continue;
    // /apis/GROUP/VERSION/KIND
    const std::vector<std::string> path = absl::StrSplit(state_->reflectors[i]->Stats().path, '/');
    if (path.size() == 5) *version = path[3];
  }
  return versions;
}

std::vector<ClusterWatch::KindStats> ClusterWatch::Stats() const {
  std::vector<KindStats> all;
  for (size_t i = 0; i < state_->sinks.size(); ++i) {
    all.push_back({state_->sinks[i]->name(), state_->reflectors[i]->Stats(),
                   state_->sinks[i]->undecodable()});
  }
  return all;
}

}  // namespace muster::extender
