#include "kube/simulators/scheduler_simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "kube/objects/time_text.h"
#include "kube/simulators/api_client.h"
#include "kube/simulators/scheduler_filters.h"
#include "kube/simulators/scheduling_queue.h"

namespace muster::kube::simulators {
namespace {

using Json = nlohmann::json;

constexpr int kMaxTriesPerTick = 20;

// Answers of binds, which may come on any thread and after the simulator is gone.
struct BindAnswers {
  struct Answer {
    uint64_t bind = 0;
    std::string error;
  };
  std::mutex mutex;
  std::vector<Answer> arrived;
};

// What makes a waiting pod worth another try (framework.NodeSchedulingPropertiesChange).
std::optional<ClusterEvent> EventOf(const Node* before, const Node* now) {
  if (before == nullptr) return ClusterEvent::kRoom;
  if (now == nullptr) return ClusterEvent::kOther;
  if (before->unschedulable != now->unschedulable || before->allocatable != now->allocatable ||
      before->taints != now->taints || before->meta.labels != now->meta.labels) {
    return ClusterEvent::kRoom;
  }
  if (before->ready != now->ready || before->ready_message != now->ready_message ||
      before->meta.annotations != now->meta.annotations) {
    return ClusterEvent::kOther;
  }
  return std::nullopt;
}

// Where and what a bound, not yet ended pod takes.
bool TakesRoom(const Pod* pod) { return pod != nullptr && pod->IsBound() && !pod->IsTerminal(); }

}  // namespace

class SchedulerSimulator::Impl : public SchedulerHandle {
 public:
  Impl(embedded::ApiServer* server, ExtenderClient* extender, SchedulerConfig config,
       SchedulerPlugin* plugin)
      : config_(std::move(config)),
        extender_(extender),
        plugin_(plugin),
        client_(server, config_.scheduler_name),
        nodes_(server, "/api/v1/nodes"),
        pods_(server, "/api/v1/pods"),
        queue_({config_.initial_backoff, config_.max_backoff, config_.max_unschedulable,
                config_.pop_from_backoff}),
        answers_(std::make_shared<BindAnswers>()) {}

  void Tick(absl::Time now) {
    now_ = now;
    std::map<std::string, int> tries;
    for (bool moved = true; moved;) {
      moved = Sync();
      moved |= TakeAnswers();
      moved |= ExpireBinds();
      moved |= BindAllowed();
      std::optional<std::string> next = queue_.Pop(now);
      if (!next) {
        moved |= EndRejected();
        continue;
      }
      Schedule(*next);
      moved = true;
      // A reason that changes with every try wakes its own pod without end; the rest of the
      // cluster goes on.
      if (++tries[*next] == kMaxTriesPerTick) return;
    }
  }

  absl::Time NextWake() const {
    {
      std::lock_guard lock(answers_->mutex);
      if (!answers_->arrived.empty()) return now_;
    }
    absl::Time next = queue_.NextWake(now_);
    for (const auto& [id, bind] : binds_) next = std::min(next, bind.deadline);
    for (const auto& [pod, waiting] : waiting_) next = std::min(next, waiting.deadline);
    return next;
  }

  // --- SchedulerHandle ---
  void Allow(const std::string& pod) override {
    auto it = waiting_.find(pod);
    if (it != waiting_.end() && !it->second.rejection) it->second.allowed = true;
  }

  bool Reject(const std::string& pod, const std::string& message) override {
    auto it = waiting_.find(pod);
    if (it == waiting_.end() || it->second.allowed || it->second.rejection) return false;
    it->second.rejection = message;
    return true;
  }

  void Activate(const std::string& pod) override { queue_.Activate(pod); }

  ResourceList FreeWithout(const std::set<std::string>& pods) const override {
    ResourceList free;
    const auto add = [&free](const ResourceList& amounts, int64_t sign) {
      for (const auto& [name, amount] : amounts.entries()) {
        free.Set(name, free.Get(name) + sign * amount);
      }
    };
    for (const auto& [name, node] : nodes_.entries()) add(node->object.allocatable, 1);
    for (const auto& [name, used] : used_) {
      if (nodes_.Find(name) != nullptr) add(used, -1);
    }
    for (const std::string& pod : pods) {
      const PodEntry* entry = pods_.Find(pod);
      if (entry == nullptr) continue;
      const auto assumed = assumed_.find(pod);
      std::string node = TakesRoom(&entry->object) ? entry->object.node_name : "";
      if (assumed != assumed_.end()) node = assumed->second.node;
      if (nodes_.Find(node) != nullptr) add(entry->object.spec->requests, 1);
    }
    return free;
  }

 private:
  // A pod that counts on a node though the API server doesn't say so yet.
  struct Assumed {
    std::string uid;
    std::string node;
    std::shared_ptr<const PodSpec> spec;
  };
  struct Binding {
    std::string pod;
    std::string uid;
    absl::Time deadline;
  };
  // An assumed pod at Permit.
  struct Waiting {
    std::string node;
    absl::Time since;
    absl::Time deadline;
    bool allowed = false;
    std::optional<std::string> rejection{};
  };
  using PodEntry = ObjectCache<Pod>::Entry;

  bool Sync() {
    bool moved = false;
    if (plugin_ != nullptr && plugin_->Sync()) {
      queue_.OnClusterEvent(ClusterEvent::kOther, now_);
      moved = true;
    }
    moved |= nodes_.Sync([this](const std::string& name, const auto* before, const auto* now) {
      std::optional<ClusterEvent> event = EventOf(before == nullptr ? nullptr : &before->object,
                                                  now == nullptr ? nullptr : &now->object);
      if (event) queue_.OnClusterEvent(*event, now_);
      RejectWaitingOn(name, now == nullptr ? nullptr : &now->object);
    });
    moved |= pods_.Sync([this](const std::string& key, const auto* before, const auto* now) {
      OnPod(key, before == nullptr ? nullptr : &before->object,
            now == nullptr ? nullptr : &now->object);
    });
    return moved;
  }

  void OnPod(const std::string& key, const Pod* before, const Pod* now) {
    if (before != nullptr && now != nullptr && before->meta.uid != now->meta.uid) {
      OnPod(key, before, nullptr);
      before = nullptr;
    }
    if (now == nullptr || now->IsBound() || now->IsTerminal()) {
      if (waiting_.erase(key) > 0 && before != nullptr) plugin_->Unreserve(*before, this);
      // Bound as assumed, bound elsewhere, or gone: the assumption has served.
      if (Forget(key) && now == nullptr) queue_.OnClusterEvent(ClusterEvent::kRoom, now_);
      queue_.Remove(key);
    }
    if (plugin_ != nullptr) plugin_->OnPod(key, before, now);
    bool took = TakesRoom(before);
    bool takes = TakesRoom(now);
    if (took) Release(before->node_name, *before->spec);
    if (takes) Occupy(now->node_name, *now->spec);
    if (took && !takes) queue_.OnClusterEvent(ClusterEvent::kRoom, now_);
    if (takes) queue_.OnClusterEvent(ClusterEvent::kOther, now_);
    if (now != nullptr && !now->IsBound()) OnWaitingPod(key, before, *now);
  }

  void OnWaitingPod(const std::string& key, const Pod* before, const Pod& pod) {
    bool ours = pod.scheduler_name == config_.scheduler_name;
    if (!ours || pod.IsTerminal() || !pod.scheduling_gates.empty()) return;
    if (assumed_.contains(key)) return;
    if (!queue_.Has(key)) {
      if (plugin_ == nullptr) return queue_.Add(key, pod.priority, now_);
      return queue_.Add(key, pod.priority, now_, plugin_->QueueTime(pod, now_));
    }
    bool fits_more = before != nullptr && (before->spec->tolerations != pod.spec->tolerations ||
                                           before->meta.labels != pod.meta.labels);
    queue_.OnUpdate(key, fits_more ? ClusterEvent::kRoom : ClusterEvent::kOther, now_);
  }

  // The amounts are those of objects that the server holds; a sum past int64 means a node that no
  // pod fits on, which the unchanged amount says as well.
  void Occupy(const std::string& node, const PodSpec& spec) {
    used_[node].Add(spec.requests).IgnoreError();
  }
  void Release(const std::string& node, const PodSpec& spec) {
    ResourceList& used = used_[node];
    used.Subtract(spec.requests).IgnoreError();
    if (used.Get(kPods) == 0) used_.erase(node);
  }

  bool Forget(const std::string& key) {
    auto it = assumed_.find(key);
    if (it == assumed_.end()) return false;
    Release(it->second.node, *it->second.spec);
    assumed_.erase(it);
    return true;
  }

  void Schedule(const std::string& key) {
    const PodEntry* entry = pods_.Find(key);
    if (entry == nullptr || entry->object.IsDeleting()) return queue_.Remove(key);
    const Pod& pod = entry->object;
    if (plugin_ != nullptr) {
      if (const auto objection = plugin_->PreFilter(pod, this, now_)) {
        plugin_->PostFilter(pod, this, now_);
        queue_.Reject(key, RejectedBy::kGang, now_);
        return Report(
            pod, "Unschedulable",
            fmt::format("0/{} nodes are available: {}.", nodes_.entries().size(), *objection));
      }
    }
    std::map<std::string, int> reasons;
    std::string error;
    bool asked = false;
    std::vector<std::string> nodes;
    if (!pod.nominated_node_name.empty() && nodes_.Find(pod.nominated_node_name) != nullptr) {
      std::map<std::string, int> unused;
      std::string unused_error;
      nodes = Filter(*entry, {pod.nominated_node_name}, &unused, &asked, &unused_error);
    }
    if (nodes.empty()) {
      std::vector<std::string> all;
      for (const auto& [name, node] : nodes_.entries()) all.push_back(name);
      nodes = Filter(*entry, all, &reasons, &asked, &error);
    }
    if (!error.empty()) return Fail(*entry, key, "SchedulerError", error);
    if (nodes_.entries().empty()) {
      return Fail(*entry, key, "Unschedulable", "no nodes available to schedule pods");
    }
    if (nodes.empty()) {
      if (plugin_ != nullptr) plugin_->PostFilter(pod, this, now_);
      queue_.Reject(key, asked ? RejectedBy::kExtender : RejectedBy::kPlugins, now_);
      return Report(pod, "Unschedulable", FitErrorText(nodes_.entries().size(), reasons));
    }
    Assume(pod, key, Choose(nodes));
  }

  // Those of `candidates` that may take the pod. `asked`: the extender was asked.
  std::vector<std::string> Filter(const PodEntry& entry, const std::vector<std::string>& candidates,
                                  std::map<std::string, int>* reasons, bool* asked,
                                  std::string* error) {
    const Pod& pod = entry.object;
    FilterCall call{pod.meta.uid, pod.meta.name_space, pod.meta.name, entry.stored->bytes(), {}};
    for (const std::string& name : candidates) {
      std::vector<std::string> objections = WhyNotOn(pod, nodes_.Find(name)->object, used_[name]);
      for (const std::string& objection : objections) ++(*reasons)[objection];
      if (objections.empty()) call.node_names.push_back(name);
    }
    if (call.node_names.empty()) return {};
    if (extender_ == nullptr) return std::move(call.node_names);
    *asked = true;
    FilterResult result = extender_->Filter(call);
    if (!result.error.empty()) {
      *error = std::move(result.error);
      return {};
    }
    for (const auto& [name, reason] : result.failed) ++(*reasons)[reason];
    for (const std::string& name : result.node_names) {
      if (std::find(call.node_names.begin(), call.node_names.end(), name) !=
          call.node_names.end()) {
        continue;
      }
      *error = "extender claims a filtered node \"" + name +
               "\" which is not found in the input node list";
      return {};
    }
    return std::move(result.node_names);
  }

  std::string Choose(const std::vector<std::string>& nodes) {
    return *std::min_element(nodes.begin(), nodes.end(),
                             [&](const std::string& a, const std::string& b) {
                               int64_t a_pods = used_[a].Get(kPods), b_pods = used_[b].Get(kPods);
                               return a_pods != b_pods ? a_pods < b_pods : a < b;
                             });
  }

  void Assume(const Pod& pod, const std::string& key, const std::string& node) {
    assumed_[key] = {pod.meta.uid, node, pod.spec};
    Occupy(node, *pod.spec);
    if (plugin_ == nullptr) return Bind(pod, key, node);
    const PermitVerdict verdict = plugin_->Permit(pod, this);
    switch (verdict.kind) {
      case PermitVerdict::Kind::kBind:
        return Bind(pod, key, node);
      case PermitVerdict::Kind::kWait:
        waiting_[key] = {.node = node, .since = now_, .deadline = now_ + verdict.wait};
        return;
      case PermitVerdict::Kind::kReject:
        return GiveUp(pod, key, verdict.message);
    }
  }

  // The plugin's pod loses its node and goes back to the queue.
  void GiveUp(const Pod& pod, const std::string& key, const std::string& message) {
    plugin_->Unreserve(pod, this);
    Forget(key);
    queue_.Reject(key, RejectedBy::kGang, now_);
    queue_.OnClusterEvent(ClusterEvent::kGivenUp, now_);
    Report(pod, "Unschedulable", message);
  }

  // Those that wait for a node that is going.
  void RejectWaitingOn(const std::string& name, const Node* node) {
    EndWaits([&](const std::string& key, const Waiting& waiting) {
      if (waiting.node != name || waiting.allowed) return false;
      const PodEntry* entry = pods_.Find(key);
      const bool going = node == nullptr || node->meta.deletion_time ||
                         (entry != nullptr && !WhyNotOn(entry->object, *node, {}).empty());
      if (going) Reject(key, fmt::format("node {} is going", name));
      return going;
    });
  }

  bool BindAllowed() {
    return EndWaits([](const std::string&, const Waiting& waiting) { return waiting.allowed; });
  }

  // Room is given back once every active pod has had its try, as the binding cycles of
  // kube-scheduler, which do it, run beside its scheduling cycles.
  bool EndRejected() {
    return EndWaits([this](const std::string& key, const Waiting& waiting) {
      if (waiting.deadline <= now_) {
        Reject(key, fmt::format("rejected due to timeout after waiting {} at plugin Coscheduling",
                                absl::FormatDuration(now_ - waiting.since)));
      }
      return waiting.rejection.has_value();
    });
  }

  // Until none is left: one may bring others along. True if there was any.
  bool EndWaits(const std::function<bool(const std::string&, const Waiting&)>& is_over) {
    bool any = false;
    for (;;) {
      const auto it = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& entry) {
        return is_over(entry.first, entry.second);
      });
      if (it == waiting_.end()) return any;
      any = true;
      const std::string key = it->first;
      EndWait(key);
    }
  }

  void EndWait(const std::string& key) {
    const Waiting waiting = std::move(waiting_.extract(key).mapped());
    const PodEntry* entry = pods_.Find(key);
    if (entry == nullptr) return;  // OnPod has seen to it
    if (waiting.allowed) return Bind(entry->object, key, waiting.node);
    GiveUp(entry->object, key, *waiting.rejection);
  }

  void Bind(const Pod& pod, const std::string& key, const std::string& node) {
    uint64_t id = ++bind_count_;
    binds_[id] = {key, pod.meta.uid, now_ + config_.bind_timeout};
    auto done = [answers = answers_, id](std::string error) {
      std::lock_guard lock(answers->mutex);
      answers->arrived.push_back({id, std::move(error)});
    };
    if (extender_ == nullptr) return done(PostBinding(pod, node));
    extender_->Bind({pod.meta.uid, pod.meta.name_space, pod.meta.name, node}, std::move(done));
  }

  // Empty if the API server took it.
  std::string PostBinding(const Pod& pod, const std::string& node) {
    return std::string(client_
                           .Create(PodPath(pod.meta.name_space, pod.meta.name) + "/binding",
                                   {{"apiVersion", "v1"},
                                    {"kind", "Binding"},
                                    {"metadata", {{"name", pod.meta.name}, {"uid", pod.meta.uid}}},
                                    {"target", {{"kind", "Node"}, {"name", node}}}})
                           .status()
                           .message());
  }

  bool TakeAnswers() {
    std::vector<BindAnswers::Answer> arrived;
    {
      std::lock_guard lock(answers_->mutex);
      arrived.swap(answers_->arrived);
    }
    for (const BindAnswers::Answer& answer : arrived) FinishBind(answer.bind, answer.error);
    return !arrived.empty();
  }

  bool ExpireBinds() {
    std::vector<uint64_t> expired;
    for (const auto& [id, bind] : binds_) {
      if (bind.deadline <= now_) expired.push_back(id);
    }
    for (uint64_t id : expired) {
      FinishBind(id, "context deadline exceeded (Client.Timeout exceeded while awaiting headers)");
    }
    return !expired.empty();
  }

  void FinishBind(uint64_t id, const std::string& error) {
    auto it = binds_.find(id);
    if (it == binds_.end()) return;  // it had timed out
    Binding bind = std::move(it->second);
    binds_.erase(it);
    const PodEntry* entry = pods_.Find(bind.pod);
    bool current = entry != nullptr && entry->object.meta.uid == bind.uid;
    if (!current || entry->object.IsBound()) return;
    // Until the watch shows the binding the pod stays assumed.
    if (error.empty()) return queue_.Remove(bind.pod);
    if (plugin_ != nullptr) plugin_->Unreserve(entry->object, this);
    Forget(bind.pod);
    queue_.OnClusterEvent(ClusterEvent::kRoom, now_);
    Fail(*entry, bind.pod, "SchedulerError", error);
  }

  // Tried again after its backoff, whatever happens.
  void Fail(const PodEntry& entry, const std::string& key, const std::string& reason,
            const std::string& message) {
    queue_.Fail(key, now_);
    Report(entry.object, reason, message);
  }

  void Report(const Pod& pod, const std::string& reason, const std::string& message) {
    if (pod.scheduled_status == "False" && pod.scheduled_reason == reason &&
        pod.scheduled_message == message) {
      return;
    }
    client_.RecordEvent({"v1", "Pod", pod.meta.name_space, pod.meta.name, pod.meta.uid},
                        /*warning=*/true, "FailedScheduling", message);
    Json condition = {
        {"type", "PodScheduled"}, {"status", "False"}, {"reason", reason}, {"message", message}};
    if (pod.scheduled_status != "False") condition["lastTransitionTime"] = TimeText(now_);
    client_
        .Patch(PodPath(pod.meta.name_space, pod.meta.name) + "/status",
               {{"metadata", {{"uid", pod.meta.uid}}},
                {"status", {{"conditions", Json::array({std::move(condition)})}}}},
               kStrategicMergePatch)
        .IgnoreError();  // as kube-scheduler, which logs it
  }

  const SchedulerConfig config_;
  ExtenderClient* const extender_;
  SchedulerPlugin* const plugin_;
  ApiClient client_;
  ObjectCache<Node> nodes_;
  ObjectCache<Pod> pods_;
  SchedulingQueue queue_;
  const std::shared_ptr<BindAnswers> answers_;
  std::map<std::string, ResourceList> used_;  // by node, assumed pods included
  std::map<std::string, Assumed> assumed_;    // by pod
  std::map<std::string, Waiting> waiting_;    // by pod
  std::map<uint64_t, Binding> binds_;         // under way
  uint64_t bind_count_ = 0;
  absl::Time now_ = absl::InfinitePast();
};

SchedulerSimulator::SchedulerSimulator(embedded::ApiServer* server, ExtenderClient* extender,
                                       SchedulerConfig config, SchedulerPlugin* plugin)
    : impl_(std::make_unique<Impl>(server, extender, std::move(config), plugin)) {}

SchedulerSimulator::~SchedulerSimulator() = default;

void SchedulerSimulator::Tick(absl::Time now) { impl_->Tick(now); }

absl::Time SchedulerSimulator::NextWake() const { return impl_->NextWake(); }

}  // namespace muster::kube::simulators
