#include "kube/simulators/kubelet_simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "kube/objects/time_text.h"
#include "kube/simulators/api_client.h"
#include "kube/simulators/pod_script.h"
#include "kube/simulators/timer_queue.h"

namespace muster::kube::simulators {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kUnhealthyAnnotation = "muster.dev/simulated-unhealthy";

// Why a pod is turned away.
struct Rejection {
  std::string reason;
  std::string message;
};

bool IsExtended(const std::string& resource) { return resource.find('/') != std::string::npos; }

// The order in which NodeResourcesFit looks at resources.
std::vector<std::string> CheckOrder(const ResourceList& requests) {
  std::vector<std::string> order = {std::string(kPods), std::string(kCpu), std::string(kMemory),
                                    std::string(kEphemeralStorage)};
  for (const auto& [name, amount] : requests.entries()) {
    if (std::find(order.begin(), order.end(), name) == order.end()) order.push_back(name);
  }
  return order;
}

std::optional<Rejection> CheckDevices(const Pod& pod, const Node& node) {
  const std::string* unhealthy = node.meta.Annotation(kUnhealthyAnnotation);
  if (unhealthy == nullptr) return std::nullopt;
  const std::vector<std::string> devices = absl::StrSplit(*unhealthy, ',');
  for (const std::string& device : devices) {
    if (pod.spec->requests.Get(device) == 0) continue;
    return Rejection{"UnexpectedAdmissionError",
                     fmt::format("Allocate failed due to no healthy devices present; cannot "
                                 "allocate unhealthy devices {}, which is unexpected",
                                 device)};
  }
  return std::nullopt;
}

std::optional<Rejection> CheckRoom(const Pod& pod, const Node& node, const ResourceList& used) {
  for (const std::string& name : CheckOrder(pod.spec->requests)) {
    int64_t requested = pod.spec->requests.Get(name);
    // What the node has never heard of is taken for a resource of the whole cluster.
    if (requested == 0 || (IsExtended(name) && !node.allocatable.Has(name))) continue;
    int64_t capacity = node.allocatable.Get(name);
    if (requested <= capacity - used.Get(name)) continue;
    return Rejection{"OutOf" + name,
                     fmt::format("Node didn't have enough resource: {}, requested: {}, used: {}, "
                                 "capacity: {}",
                                 name, requested, used.Get(name), capacity)};
  }
  return std::nullopt;
}

Json Condition(const char* type, bool holds, const char* reason, absl::Time now) {
  Json condition = {
      {"type", type}, {"status", holds ? "True" : "False"}, {"lastTransitionTime", TimeText(now)}};
  if (reason != nullptr) condition["reason"] = reason;
  return condition;
}

Json ContainerStatuses(const Json& pod, bool running, const Json& state) {
  Json statuses = Json::array();
  for (const Json& container : pod.at("spec").at("containers")) {
    statuses.push_back({{"name", container.at("name")},
                        {"image", container.value("image", "")},
                        {"imageID", ""},
                        {"ready", running},
                        {"started", running},
                        {"restartCount", 0},
                        {"state", state}});
  }
  return statuses;
}

}  // namespace

class KubeletSimulator::Impl {
 public:
  Impl(embedded::ApiServer* server, KubeletConfig config)
      : config_(config),
        client_(server, "kubelet"),
        pods_(server, "/api/v1/pods"),
        nodes_(server, "/api/v1/nodes") {}

  void Tick(absl::Time now) {
    for (bool moved = true; moved;) {
      moved = nodes_.Sync([this](const std::string& name, auto*, auto*) { OnNode(name); });
      moved |= pods_.Sync([this](const std::string& key, const auto*, const auto* entry) {
        OnPod(key, entry == nullptr ? nullptr : &entry->object);
      });
      while (std::optional<std::string> key = timers_.PopDue(now)) dirty_.insert(*key);
      moved |= !dirty_.empty();
      for (const std::string& key : InOrderOfBinding(std::exchange(dirty_, {}))) {
        Reconcile(key, now);
      }
    }
  }

  absl::Time NextWake() const { return timers_.Next(); }

 private:
  enum class Stage { kWaiting, kStarting, kRunning, kEnded };

  // What the kubelet of its node knows of a bound pod.
  struct Record {
    std::string uid;
    std::string node;
    uint64_t order = 0;  // of binding
    Stage stage = Stage::kWaiting;
    absl::Time starts_at = absl::InfiniteFuture();
    absl::Time started_at = absl::InfinitePast();
    std::optional<absl::Time> orphaned_at;
    std::optional<absl::Time> deleted_at;
    std::string reported;  // the last complaint about its annotations
  };
  using PodEntry = ObjectCache<Pod>::Entry;

  void OnNode(const std::string& name) {
    auto it = pods_on_.find(name);
    if (it != pods_on_.end()) dirty_.insert(it->second.begin(), it->second.end());
  }

  void OnPod(const std::string& key, const Pod* pod) {
    auto it = records_.find(key);
    bool same = it != records_.end() && pod != nullptr && it->second.uid == pod->meta.uid;
    if (it != records_.end() && !same) {
      Forget(it->second.node, key);
      records_.erase(it);
    }
    if (pod == nullptr || !pod->IsBound()) return;
    if (!same) Remember(key, *pod);
    dirty_.insert(key);
  }

  void Remember(const std::string& key, const Pod& pod) {
    Record record;
    record.uid = pod.meta.uid;
    record.node = pod.node_name;
    record.order = ++bindings_;
    if (pod.phase == PodPhase::kRunning) {
      record.stage = Stage::kRunning;
      record.started_at = client_.server()->now();
    }
    records_[key] = std::move(record);
    pods_on_[pod.node_name].insert(key);
  }

  void Forget(const std::string& node, const std::string& key) {
    timers_.Cancel(key);
    auto it = pods_on_.find(node);
    it->second.erase(key);
    if (it->second.empty()) pods_on_.erase(it);
  }

  std::vector<std::string> InOrderOfBinding(const std::set<std::string>& keys) const {
    std::vector<std::pair<uint64_t, std::string>> order;
    for (const std::string& key : keys) {
      auto it = records_.find(key);
      if (it != records_.end()) order.emplace_back(it->second.order, key);
    }
    std::sort(order.begin(), order.end());
    std::vector<std::string> result;
    for (auto& [number, key] : order) result.push_back(std::move(key));
    return result;
  }

  void Reconcile(const std::string& key, absl::Time now) {
    auto it = records_.find(key);
    const PodEntry* entry = pods_.Find(key);
    if (it == records_.end() || entry == nullptr) return;
    timers_.Cancel(key);
    absl::Status done = Advance(key, *entry, &it->second, now);
    // After a conflict the newer object's event is on its way; what isn't there needs nothing.
    if (!done.ok() && !absl::IsAborted(done) && !absl::IsNotFound(done)) {
      timers_.SetIfEarlier(key, now + kWriteRetry);
    }
  }

  absl::Status Advance(const std::string& key, const PodEntry& entry, Record* record,
                       absl::Time now) {
    const Pod& pod = entry.object;
    const auto* node = nodes_.Find(pod.node_name);
    if (node == nullptr) return CollectOrphan(key, entry, record, now);
    record->orphaned_at.reset();
    if (pod.IsDeleting()) return EndDeleted(key, entry, record, now);
    if (pod.IsTerminal()) {
      record->stage = Stage::kEnded;
      return absl::OkStatus();
    }
    switch (record->stage) {
      case Stage::kWaiting:
        return node->object.ready ? Admit(key, entry, node->object, record, now) : absl::OkStatus();
      case Stage::kStarting:
        if (now >= record->starts_at) return Start(entry, record, now);
        timers_.SetIfEarlier(key, record->starts_at);
        return absl::OkStatus();
      case Stage::kRunning:
        return Run(key, entry, record, now);
      case Stage::kEnded:
        return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  // Requests of what the node's kubelet has admitted and what still runs there.
  ResourceList Used(const std::string& node) const {
    ResourceList used;
    for (const std::string& key : pods_on_.at(node)) {
      const Record& record = records_.at(key);
      const PodEntry* entry = pods_.Find(key);
      bool admitted = record.stage == Stage::kStarting || record.stage == Stage::kRunning;
      if (!admitted || entry == nullptr || entry->object.IsTerminal()) continue;
      // What was admitted fits the node's int64 amounts.
      used.Add(entry->object.spec->requests).IgnoreError();
    }
    return used;
  }

  absl::Status Admit(const std::string& key, const PodEntry& entry, const Node& node,
                     Record* record, absl::Time now) {
    const Pod& pod = entry.object;
    std::optional<Rejection> rejection = CheckDevices(pod, node);
    if (!rejection) rejection = CheckRoom(pod, node, Used(record->node));
    if (rejection) {
      absl::Status patched =
          PatchStatus(pod, {{"phase", "Failed"},
                            {"reason", rejection->reason},
                            {"message", "Pod was rejected: " + rejection->message},
                            {"startTime", TimeText(now)}});
      if (!patched.ok()) return patched;
      record->stage = Stage::kEnded;
      client_.RecordEvent(Reference(pod), /*warning=*/true, rejection->reason, rejection->message);
      return absl::OkStatus();
    }
    record->stage = Stage::kStarting;
    record->starts_at = now + config_.start;
    timers_.SetIfEarlier(key, record->starts_at);
    if (config_.start == absl::ZeroDuration()) return Start(entry, record, now);
    return absl::OkStatus();
  }

  absl::Status Start(const PodEntry& entry, Record* record, absl::Time now) {
    Json status = {
        {"phase", "Running"},
        {"startTime", TimeText(now)},
        {"conditions", Json::array({Condition("PodReadyToStartContainers", true, nullptr, now),
                                    Condition("Initialized", true, nullptr, now),
                                    Condition("Ready", true, nullptr, now),
                                    Condition("ContainersReady", true, nullptr, now)})},
        {"containerStatuses", ContainerStatuses(entry.stored->value(), true,
                                                {{"running", {{"startedAt", TimeText(now)}}}})}};
    absl::Status patched = PatchStatus(entry.object, status);
    if (!patched.ok()) return patched;
    record->stage = Stage::kRunning;
    record->started_at = now;
    return absl::OkStatus();
  }

  absl::Status Run(const std::string& key, const PodEntry& entry, Record* record, absl::Time now) {
    absl::StatusOr<PodScript> script = PodScriptOf(entry.object.meta);
    if (!script.ok()) {
      std::string complaint(script.status().message());
      if (std::exchange(record->reported, complaint) != complaint) {
        client_.RecordEvent(Reference(entry.object), /*warning=*/true, "InvalidAnnotation",
                            complaint);
      }
      return absl::OkStatus();
    }
    absl::Time ends_at = record->started_at + script->run_time;
    if (now < ends_at) {
      timers_.SetIfEarlier(key, ends_at);
      return absl::OkStatus();
    }
    bool failed = script->exit_code != 0;
    Json terminated = {{"exitCode", script->exit_code},
                       {"reason", failed ? "Error" : "Completed"},
                       {"startedAt", TimeText(record->started_at)},
                       {"finishedAt", TimeText(now)}};
    if (!script->termination_message.empty()) terminated["message"] = script->termination_message;
    const char* reason = failed ? "PodFailed" : "PodCompleted";
    return PatchStatus(
        entry.object,
        {{"phase", failed ? "Failed" : "Succeeded"},
         {"conditions", Json::array({Condition("Ready", false, reason, now),
                                     Condition("ContainersReady", false, reason, now)})},
         {"containerStatuses",
          ContainerStatuses(entry.stored->value(), false, {{"terminated", terminated}})}});
  }

  absl::Status EndDeleted(const std::string& key, const PodEntry& entry, Record* record,
                          absl::Time now) {
    const Pod& pod = entry.object;
    if (!record->deleted_at) record->deleted_at = now;
    const absl::StatusOr<PodScript> script = PodScriptOf(pod.meta);
    const absl::Duration takes =
        script.ok() ? script->termination.value_or(config_.termination) : config_.termination;
    absl::Time gone_at = std::min(*record->deleted_at + takes, *pod.meta.deletion_time);
    if (now < gone_at) {
      timers_.SetIfEarlier(key, gone_at);
      return absl::OkStatus();
    }
    return RemoveFromServer(entry);
  }

  absl::Status CollectOrphan(const std::string& key, const PodEntry& entry, Record* record,
                             absl::Time now) {
    const Pod& pod = entry.object;
    if (!record->orphaned_at) record->orphaned_at = now;
    absl::Time gone_at = *record->orphaned_at + config_.orphan_quarantine;
    if (now < gone_at) {
      timers_.SetIfEarlier(key, gone_at);
      return absl::OkStatus();
    }
    if (!pod.IsTerminal()) {
      Json condition = Condition("DisruptionTarget", true, "DeletionByPodGC", now);
      condition["message"] = "PodGC: node no longer exists";
      absl::Status failed = PatchStatus(
          pod, {{"phase", "Failed"}, {"conditions", Json::array({std::move(condition)})}});
      if (!failed.ok()) return failed;
    }
    return RemoveFromServer(entry);
  }

  absl::Status RemoveFromServer(const PodEntry& entry) {
    const ObjectMeta& meta = entry.object.meta;
    // One that only waits for somebody's finalizer.
    if (entry.stored->value()["metadata"].value("deletionGracePeriodSeconds", -1) == 0) {
      return absl::OkStatus();
    }
    return client_.Delete(PodPath(meta.name_space, meta.name), meta.uid,
                          /*grace_period_seconds=*/0);
  }

  absl::Status PatchStatus(const Pod& pod, const Json& status) {
    // The uid makes it a conflict for a successor of the same name.
    return client_.Patch(PodPath(pod.meta.name_space, pod.meta.name) + "/status",
                         {{"metadata", {{"uid", pod.meta.uid}}}, {"status", status}},
                         kStrategicMergePatch);
  }

  static ObjectReference Reference(const Pod& pod) {
    return {"v1", "Pod", pod.meta.name_space, pod.meta.name, pod.meta.uid};
  }

  const KubeletConfig config_;
  ApiClient client_;
  ObjectCache<Pod> pods_;
  ObjectCache<Node> nodes_;
  std::map<std::string, Record> records_;                 // by pod
  std::map<std::string, std::set<std::string>> pods_on_;  // by node
  std::set<std::string> dirty_;
  TimerQueue timers_;  // by pod
  uint64_t bindings_ = 0;
};

KubeletSimulator::KubeletSimulator(embedded::ApiServer* server, KubeletConfig config)
    : impl_(std::make_unique<Impl>(server, config)) {}

KubeletSimulator::~KubeletSimulator() = default;

void KubeletSimulator::Tick(absl::Time now) { impl_->Tick(now); }

absl::Time KubeletSimulator::NextWake() const { return impl_->NextWake(); }

}  // namespace muster::kube::simulators
