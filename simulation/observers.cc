#include "simulation/observers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "coscheduling/engine.h"
#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/watch_session.h"
#include "kube/objects/decode.h"
#include "kube/objects/node_holds.h"
#include "kube/objects/well_known.h"
#include "muster/v1/admission.pb.h"
#include "simulation/manifests.h"
#include "simulation/settled.h"

namespace muster::simulation {
namespace {

using coscheduling::Engine;
using coscheduling::GangKey;
using nlohmann::json;

constexpr const char* kForever = "315360000";  // ten years

// What the embedded API server has accepted decodes; anything else is a defect of ours.
template <typename T>
void DeliverAs(Engine* engine, bool deleted, const std::string& text) {
  T object = kube::Decode<T>(text).value();
  if (!deleted) {
    engine->Upsert(std::move(object));
  } else if constexpr (!std::is_same_v<T, kube::Event>) {
    engine->Remove(object);
  }
}

constexpr WatchedKind kWatched[] = {
    {"namespace", "/api/v1/namespaces", DeliverAs<kube::Namespace>},
    {"node", "/api/v1/nodes", DeliverAs<kube::Node>},
    {"nodeclaim", "/apis/karpenter.sh/v1/nodeclaims", DeliverAs<kube::NodeClaim>},
    {"nodepool", "/apis/karpenter.sh/v1/nodepools", DeliverAs<kube::NodePool>},
    {"ec2nodeclass", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses", DeliverAs<kube::NodeClass>},
    {"workloadpriorityclass", "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses",
     DeliverAs<kube::WorkloadPriorityClass>},
    {"priorityclass", "/apis/scheduling.k8s.io/v1/priorityclasses", DeliverAs<kube::PriorityClass>},
    {"resourceflavor", "/apis/kueue.x-k8s.io/v1beta2/resourceflavors",
     DeliverAs<kube::ResourceFlavor>},
    {"topology", "/apis/kueue.x-k8s.io/v1beta2/topologies", DeliverAs<kube::Topology>},
    {"cohort", "/apis/kueue.x-k8s.io/v1beta2/cohorts", DeliverAs<kube::Cohort>},
    {"clusterqueue", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues", DeliverAs<kube::ClusterQueue>},
    {"localqueue", "/apis/kueue.x-k8s.io/v1beta2/localqueues", DeliverAs<kube::LocalQueue>},
    {"workload", "/apis/kueue.x-k8s.io/v1beta2/workloads", DeliverAs<kube::Workload>},
    {"poddisruptionbudget", "/apis/policy/v1/poddisruptionbudgets",
     DeliverAs<kube::PodDisruptionBudget>},
    {"daemonset", "/apis/apps/v1/daemonsets", DeliverAs<kube::DaemonSet>},
    {"persistentvolumeclaim", "/api/v1/persistentvolumeclaims",
     DeliverAs<kube::PersistentVolumeClaim>},
    {"persistentvolume", "/api/v1/persistentvolumes", DeliverAs<kube::PersistentVolume>},
    {"storageclass", "/apis/storage.k8s.io/v1/storageclasses", DeliverAs<kube::StorageClass>},
    {"csinode", "/apis/storage.k8s.io/v1/csinodes", DeliverAs<kube::CsiNode>},
    {"csidriver", "/apis/storage.k8s.io/v1/csidrivers", DeliverAs<kube::CsiDriver>},
    {"csistoragecapacity", "/apis/storage.k8s.io/v1/csistoragecapacities",
     DeliverAs<kube::CsiStorageCapacity>},
    {"volumeattachment", "/apis/storage.k8s.io/v1/volumeattachments",
     DeliverAs<kube::VolumeAttachment>},
    {"podgroup", "/apis/scheduling.x-k8s.io/v1alpha1/podgroups", DeliverAs<kube::PodGroup>},
    {"pod", "/api/v1/pods", DeliverAs<kube::Pod>},
    {"trainjob", "/apis/trainer.kubeflow.org/v1alpha1/trainjobs", DeliverAs<kube::TrainJob>},
    {"pytorchjob", "/apis/kubeflow.org/v1/pytorchjobs", DeliverAs<kube::PyTorchJob>},
    {"mpijob", "/apis/kubeflow.org/v2beta1/mpijobs", DeliverAs<kube::MPIJob>},
    {"rayjob", "/apis/ray.io/v1/rayjobs", DeliverAs<kube::RayJob>},
    {"raycluster", "/apis/ray.io/v1/rayclusters", DeliverAs<kube::RayCluster>},
    {"jobset", "/apis/jobset.x-k8s.io/v1alpha2/jobsets", DeliverAs<kube::JobSet>},
    {"statefulset", "/apis/apps/v1/statefulsets", DeliverAs<kube::StatefulSet>},
    {"job", "/apis/batch/v1/jobs", DeliverAs<kube::Job>},
    {"event", "/api/v1/events", DeliverAs<kube::Event>, "type=Warning,reason=FailedCreate"},
    {"event", "/api/v1/events", DeliverAs<kube::Event>, "type=Warning,reason=FailedCreatePod"},
    {"event", "/api/v1/events", DeliverAs<kube::Event>,
     "type=Warning,reason=InsufficientCapacityError,involvedObject.kind=NodeClaim"},
};

std::vector<json> List(kube::embedded::ApiServer& server, const char* path) {
  kube::Request request;
  request.path = path;
  return json::parse(server.Handle(request).body).at("items").get<std::vector<json>>();
}

std::string FullName(const json& object) {
  const json& meta = object.at("metadata");
  return meta.value("namespace", "") + "/" + meta.at("name").get<std::string>();
}

std::string UidOf(const kube::embedded::StoredObject& object) {
  return object.value().at("metadata").value("uid", "");
}

std::vector<kube::embedded::WatchItem> ReadBatch(kube::embedded::WatchSession& session) {
  constexpr size_t kBatch = 256;
  std::vector<kube::embedded::WatchItem> items;
  session.Read(kBatch, &items);
  return items;
}

std::string GangOf(const json& pod) {
  const json& meta = pod.at("metadata");
  const json labels = meta.value("labels", json::object());
  const std::string name_space = meta.value("namespace", "") + "/";
  if (labels.contains(kube::kPodGroupLabel))
    return name_space + labels.at(kube::kPodGroupLabel).get<std::string>();
  const json annotations = meta.value("annotations", json::object());
  return annotations.contains(kGangForObservers)
             ? name_space + annotations.at(kGangForObservers).get<std::string>()
             : FullName(pod);
}

bool IsLive(const json& pod) {
  const std::string phase = pod.value("/status/phase"_json_pointer, "");
  return !pod.at("metadata").contains("deletionTimestamp") && phase != "Succeeded" &&
         phase != "Failed";
}

std::string NodeOf(const json& pod) { return pod.value("/spec/nodeName"_json_pointer, ""); }

bool IsGated(const json& pod) {
  const json gates = pod.at("spec").value("schedulingGates", json::array());
  return std::ranges::any_of(
      gates, [](const json& gate) { return gate.at("name") == coscheduling::kGate; });
}

bool IsSignalled(const json& pod) {
  const json conditions = pod.value("/status/conditions"_json_pointer, json::array());
  return std::ranges::any_of(conditions, [](const json& condition) {
    return condition.at("type") == "PodScheduled" &&
           condition.value("reason", "") == "Unschedulable";
  });
}

// Finds the first thing that isn't as wanted.
class Comparison {
 public:
  template <typename T>
  void Equal(const char* what, const std::optional<T>& want, const T& found) {
    if (!want || *want == found) return;
    Differ(fmt::format("want {} {}, found {}", what, *want, found));
  }
  void Differ(const std::string& text) { difference_ += (difference_.empty() ? "" : "; ") + text; }
  absl::Status Result() const {
    return difference_.empty() ? absl::OkStatus() : absl::FailedPreconditionError(difference_);
  }

 private:
  std::string difference_;
};

struct PodCounts {
  int bound = 0;
  int gated = 0;
  int signalled = 0;
  std::set<std::string> nodes;
};

PodCounts CountPods(kube::embedded::ApiServer& server, const std::string& gang) {
  PodCounts counts;
  for (const json& pod : List(server, "/api/v1/pods")) {
    if (GangOf(pod) != gang || !IsLive(pod)) continue;
    if (const std::string node = NodeOf(pod); !node.empty()) {
      ++counts.bound;
      counts.nodes.insert(node);
    }
    counts.gated += IsGated(pod);
    counts.signalled += NodeOf(pod).empty() && IsSignalled(pod);
  }
  return counts;
}

bool Find(const Engine& engine, const std::string& gang, v1::Gang* out) {
  const size_t slash = gang.find('/');
  for (const bool is_pod : {false, true}) {
    if (engine.Describe(GangKey{gang.substr(0, slash), gang.substr(slash + 1), is_pod}, out)) {
      return true;
    }
  }
  return false;
}

void CompareJob(const Expectation& want, kube::embedded::ApiServer& server, Comparison* result) {
  kube::Request request;
  request.path = ObjectPath(want.job).value_or("");
  const kube::Response response = server.Handle(request);
  if (!response.ok()) {
    result->Differ(fmt::format("there is no {}", want.job));
    return;
  }
  const json job = json::parse(response.body);
  result->Equal("suspended", want.suspended,
                job.value("/spec/suspend"_json_pointer, false) ||
                    job.value("/spec/runPolicy/suspend"_json_pointer, false) ||
                    !job.value("/spec/active"_json_pointer, true));
  if (!absl::StrContains(response.body, want.contains)) {
    result->Differ(fmt::format("want a {} with {}, found {}", want.job, want.contains,
                               job.value("spec", json()).dump()));
  }
  result->Equal(
      "restarting", want.restarting,
      job.at("metadata").value("annotations", json::object()).contains("muster.dev/restart"));
}

// Of a PodGroup or a pod of this name, or of a pod of the gang.
void CompareWorkloads(const Expectation& want, const std::string& gang,
                      kube::embedded::ApiServer& server, Comparison* result) {
  std::set<std::string> owners = {gang};
  for (const json& pod : List(server, "/api/v1/pods")) {
    if (GangOf(pod) == gang) owners.insert(FullName(pod));
  }
  std::set<std::string> queues;
  std::string text;
  int pods = 0;
  for (const json& workload : List(server, "/apis/kueue.x-k8s.io/v1beta2/workloads")) {
    const json& metadata = workload.at("metadata");
    const std::string owner = metadata.at("namespace").get<std::string>() + "/" +
                              metadata.at("ownerReferences").at(0).at("name").get<std::string>();
    const json status = workload.value("status", json::object());
    const json conditions = status.value("conditions", json::array());
    const bool reserved = std::ranges::any_of(conditions, [](const json& condition) {
      return condition.at("type") == "QuotaReserved" && condition.at("status") == "True";
    });
    if (!owners.contains(owner)) continue;
    text += workload.dump();
    if (!reserved) continue;
    const json& admission = status.at("admission");
    queues.insert(admission.at("clusterQueue").get<std::string>());
    for (const json& given : admission.at("podSetAssignments")) pods += given.value("count", 0);
  }
  result->Equal("reservedIn", want.reserved_in, fmt::format("{}", fmt::join(queues, " and ")));
  result->Equal("reservedPods", want.reserved_pods, pods);
  if (!absl::StrContains(text, want.workload_says)) {
    result->Differ(fmt::format("want a Workload with {}, found {}", want.workload_says, text));
  }
}

void CompareGang(const Expectation& want, const std::string& gang,
                 kube::embedded::ApiServer& server, const Engine& engine, Comparison* result) {
  v1::Gang found;
  const bool asks_engine = want.state || want.reason || !want.message.empty() || want.node_sources;
  if (asks_engine && !Find(engine, gang, &found)) {
    result->Differ(fmt::format("there is no gang {}", gang));
    return;
  }
  if (want.state) {
    result->Equal("state", std::optional(v1::GangState_Name(*want.state)),
                  v1::GangState_Name(found.state()));
  }
  if (want.reason) {
    result->Equal("reason", std::optional(v1::ReasonCode_Name(*want.reason)),
                  v1::ReasonCode_Name(found.reason().code()));
  }
  if (!absl::StrContains(found.reason().message(), want.message)) {
    result->Differ(fmt::format("want a message with \"{}\", found \"{}\"", want.message,
                               found.reason().message()));
  }
  std::vector<std::string> sources;
  for (const v1::NodeSource& source : found.node_sources()) {
    sources.push_back(fmt::format("{}{}{}{}", source.flavor(),
                                  source.flavor().empty() || source.zone().empty() ? "" : " in ",
                                  source.zone(), source.lacking().empty() ? "" : " (lacks)"));
  }
  result->Equal("nodeSources", want.node_sources, fmt::format("{}", fmt::join(sources, ", ")));
  const PodCounts counts = CountPods(server, gang);
  result->Equal("bound", want.bound, counts.bound);
  result->Equal("gated", want.gated, counts.gated);
  result->Equal("signalled", want.signalled, counts.signalled);
  result->Equal("distinctNodes", want.distinct_nodes, static_cast<int>(counts.nodes.size()));
  if (want.reserved_in || want.reserved_pods || !want.workload_says.empty())
    CompareWorkloads(want, gang, server, result);
  if (!want.phase && !want.min_member && !want.owner) return;
  kube::Request request;
  const size_t slash = gang.find('/');
  request.path = fmt::format("/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups/{}",
                             gang.substr(0, slash), gang.substr(slash + 1));
  const json group = json::parse(server.Handle(request).body);
  result->Equal("phase", want.phase, group.value("/status/phase"_json_pointer, std::string()));
  result->Equal("minMember", want.min_member, group.value("/spec/minMember"_json_pointer, 0));
  std::string owner;
  for (const json& reference :
       group.value("/metadata/ownerReferences"_json_pointer, json::array())) {
    if (!reference.value("controller", false)) continue;
    owner = reference.value("kind", "") + "/" + reference.value("name", "");
  }
  result->Equal("owner", want.owner, owner);
}

}  // namespace

Feed::Feed(kube::embedded::ApiServer* server, const WatchedKind& kind, Engine* engine,
           Faults* faults, absl::Time now)
    : server_(server), kind_(kind), engine_(engine), faults_(faults) {
  Open();
  if (session_ != nullptr) ReadAnew(now);
}
Feed::~Feed() = default;
Feed::Feed(Feed&&) noexcept = default;
Feed& Feed::operator=(Feed&&) noexcept = default;

void Feed::Open() { session_ = OpenWatch(server_, kind_.path, kind_.field_selector); }

absl::Time Feed::NextArrival() const {
  return coming_.empty() ? reopens_ : std::min(reopens_, coming_.front().arrival);
}

bool Feed::Read(absl::Time now) {
  bool any = false;
  if (session_ == nullptr) {
    if (now < reopens_) return false;
    reopens_ = absl::InfiniteFuture();
    Open();
    any |= ReadAnew(now);
  }
  any |= Receive(now);
  while (!coming_.empty() && coming_.front().arrival <= now) {
    const Item item = std::move(coming_.front());
    coming_.pop_front();
    Deliver(item);
    any = true;
  }
  return any;
}

bool Feed::Receive(absl::Time now) {
  bool any = false;
  while (session_ != nullptr) {
    const std::vector<kube::embedded::WatchItem> items = ReadBatch(*session_);
    if (items.empty()) return any;
    for (const kube::embedded::WatchItem& item : items) {
      if (item.object == nullptr) continue;
      any = true;
      Faults::Delivery delivery;
      if (faults_->Active(now)) delivery = faults_->OfEvent(kind_.name);
      if (delivery.breaks) {
        // What is under way is lost with the connection.
        coming_.clear();
        session_.reset();
        reopens_ = now + delivery.delay;
        break;
      }
      Item next{.arrival = std::max(last_arrival_, now + delivery.delay),
                .key = FullName(item.object->value()),
                .deleted = item.type == kube::embedded::WatchItem::Type::kDeleted,
                .repeats_older = delivery.repeats_older,
                .object = item.object};
      last_arrival_ = next.arrival;
      coming_.push_back(std::move(next));
    }
  }
  return any;
}

void Feed::Deliver(const Item& item) {
  kube::embedded::ObjectPtr before;
  if (const auto known = known_.find(item.key); known != known_.end()) before = known->second;
  if (item.deleted) {
    known_.erase(item.key);
  } else {
    known_[item.key] = item.object;
  }
  kind_.deliver(engine_, item.deleted, item.object->bytes());
  const bool repeats = item.repeats_older && before != nullptr && !item.deleted &&
                       UidOf(*before) == UidOf(*item.object);
  if (repeats) kind_.deliver(engine_, false, before->bytes());
}

// As kube/client/reflector.cc: what is the same isn't delivered, what vanished is removed, and a
// successor of the same name comes after the removal.
bool Feed::ReadAnew(absl::Time now) {
  std::map<std::string, kube::embedded::ObjectPtr> there;
  for (;;) {
    const std::vector<kube::embedded::WatchItem> items = ReadBatch(*session_);
    if (items.empty()) break;
    for (const kube::embedded::WatchItem& item : items) {
      if (item.object != nullptr) there[FullName(item.object->value())] = item.object;
    }
  }
  last_arrival_ = now;
  for (const auto& [key, object] : std::map(known_)) {
    const auto now_there = there.find(key);
    if (now_there == there.end() || UidOf(*now_there->second) != UidOf(*object)) {
      Deliver({.arrival = now, .key = key, .deleted = true, .object = object});
    }
  }
  for (const auto& [key, object] : there) {
    const auto known = known_.find(key);
    if (known != known_.end() && known->second->revision() == object->revision()) continue;
    Deliver({.arrival = now, .key = key, .object = object});
  }
  return true;
}

std::string GangOf(const kube::Pod& pod) {
  const std::string* group = pod.meta.Label(kube::kPodGroupLabel);
  if (group == nullptr) group = pod.meta.Annotation(kGangForObservers);
  return pod.meta.name_space + "/" + (group == nullptr ? pod.meta.name : *group);
}

std::unique_ptr<kube::embedded::WatchSession> OpenWatch(kube::embedded::ApiServer* server,
                                                        const char* path,
                                                        const char* field_selector) {
  kube::Request request;
  request.path = path;
  request.query = {{"watch", "1"},
                   {"sendInitialEvents", "true"},
                   {"resourceVersionMatch", "NotOlderThan"},
                   {"allowWatchBookmarks", "true"},
                   // By itself the server ends a watch within the hour.
                   {"timeoutSeconds", kForever}};
  if (*field_selector != '\0') request.query.emplace_back("fieldSelector", field_selector);
  request.timeout = absl::InfiniteDuration();
  return std::move(server->Watch(request).session);
}

std::vector<Feed> WatchEverything(kube::embedded::ApiServer* server, Engine* engine, Faults* faults,
                                  absl::Time now) {
  std::vector<Feed> feeds;
  for (const WatchedKind& kind : kWatched) {
    Feed feed(server, kind, engine, faults, now);
    if (feed.is_open()) feeds.push_back(std::move(feed));
  }
  return feeds;
}

absl::Status Compare(const Expectation& want, const std::string& gang,
                     kube::embedded::ApiServer& server, const Engine& engine) {
  Comparison result;
  if (!want.gang.empty()) CompareGang(want, gang, server, engine, &result);
  if (want.node_claims) {
    result.Equal("nodeClaims", want.node_claims,
                 static_cast<int>(List(server, "/apis/karpenter.sh/v1/nodeclaims").size()));
  }
  if (want.nodes || want.held_nodes) {
    std::vector<json> nodes = List(server, "/api/v1/nodes");
    if (!want.node_pool.empty()) {
      std::erase_if(nodes, [&](const json& node) {
        return node.at("metadata")
                   .value("labels", json::object())
                   .value(kube::kNodePoolLabel, "") != want.node_pool;
      });
    }
    result.Equal("nodes", want.nodes, static_cast<int>(nodes.size()));
    const auto held = std::ranges::count_if(nodes, [](const json& node) {
      return node.at("metadata")
          .value("annotations", json::object())
          .contains(std::string(kube::kHoldsAnnotation));
    });
    result.Equal("heldNodes", want.held_nodes, static_cast<int>(held));
  }
  if (!want.pod.empty()) {
    const std::string name = absl::StrContains(want.pod, "/") ? want.pod : "default/" + want.pod;
    std::optional<std::string> found;
    for (const json& pod : List(server, "/api/v1/pods")) {
      if (FullName(pod) == name) found = NodeOf(pod);
    }
    result.Equal("node", want.node, found.value_or("(no such pod)"));
  }
  if (!want.job.empty()) CompareJob(want, server, &result);
  if (want.settled) {
    if (absl::Status status = CheckSettled(server, engine); !status.ok()) {
      result.Differ(std::string(status.message()));
    }
  }
  return result.Result();
}

}  // namespace muster::simulation
