#include "kube/simulators/karpenter_simulator.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "kube/objects/time_text.h"
#include "kube/simulators/api_client.h"
#include "kube/simulators/karpenter_emptiness.h"
#include "kube/simulators/karpenter_lifecycle.h"
#include "kube/simulators/karpenter_provisioner.h"
#include "kube/simulators/karpenter_state.h"

namespace muster::kube::simulators {

using Json = nlohmann::json;

class KarpenterSimulator::Impl {
 public:
  Impl(embedded::ApiServer* server, KarpenterConfig config)
      : client_(server, "karpenter"),
        cloud_(std::move(config.instance_types), std::move(config.launches),
               std::move(config.default_launch), config.seed),
        state_(server, MakeListener()),
        provisioner_(&state_, &cloud_, &client_, config.batch_idle, config.batch_max),
        lifecycle_(&state_, &cloud_, &client_, config.termination),
        emptiness_(&state_, &client_) {
    for (CapacityOutage& outage : config.outages) cloud_.AddOutage(std::move(outage));
    for (CapacityStock& stock : config.stocks) cloud_.AddStock(std::move(stock));
  }

  void Tick(absl::Time now) {
    now_ = now;
    emptiness_.Look(now);
    for (bool moved = true; moved;) {
      moved = state_.Sync();
      moved |= lifecycle_.Run(now);
      moved |= provisioner_.Run(now);
      moved |= emptiness_.Validate(now);
      if (!moved) moved = UpdatePools();
    }
  }

  absl::Time NextWake() const {
    return std::min({lifecycle_.NextWake(), provisioner_.NextWake(), emptiness_.NextWake()});
  }

  void AddOutage(CapacityOutage outage) { cloud_.AddOutage(std::move(outage)); }

 private:
  KarpenterState::Listener MakeListener() {
    KarpenterState::Listener listener;
    listener.on_pod = [this](const std::string& key, const Pod* before, const Pod* pod) {
      provisioner_.OnPod(key, pod, now_);
      lifecycle_.OnPod(before, pod);
    };
    listener.on_node = [this](const std::string& name, const Node* before, const Node* node) {
      provisioner_.OnNode(name, node, now_);
      lifecycle_.OnNode(before, node);
      usage_changed_ = true;
    };
    listener.on_claim = [this](const std::string& name) {
      lifecycle_.OnClaim(name);
      usage_changed_ = true;
    };
    listener.on_pool = [this] {
      lifecycle_.OnPool();
      usage_changed_ = true;
    };
    return listener;
  }

  // Keeps NodePool.status (pkg/controllers/nodepool: counter, readiness). True if it changed one.
  bool UpdatePools() {
    if (!std::exchange(usage_changed_, false)) return false;
    bool changed = false;
    for (const auto& [name, pool] : state_.pools().entries()) changed |= UpdatePool(*pool);
    return changed;
  }

  bool UpdatePool(const KarpenterState::PoolEntry& entry) {
    ResourceList usage;
    for (std::string_view name : {kCpu, kMemory, kPods, kEphemeralStorage}) usage.Set(name, 0);
    int64_t nodes = 0;
    for (const auto& [name, claim] : state_.claims().entries()) {
      if (claim->object.node_pool != entry.object.meta.name) continue;
      const auto* node = state_.NodeOf(claim->object);
      ++nodes;
      // Past int64 the sum says nothing; what was there before stands.
      if (!usage
               .Add(KarpenterState::Capacity(claim->object,
                                             node == nullptr ? nullptr : &node->object))
               .ok()) {
        return false;
      }
    }
    usage.Set("nodes", nodes);
    const Json& stored = entry.stored->value();
    auto status = stored.find("status");
    bool has_conditions = status != stored.end() && status->contains("conditions");
    if (usage == entry.object.usage && has_conditions) return false;
    Json patch = {{"resources", AmountsJson(usage)}, {"nodes", nodes}};
    // A resource that no node has any more goes.
    for (const auto& [name, amount] : entry.object.usage.entries()) {
      if (!usage.Has(name)) patch["resources"][name] = nullptr;
    }
    if (!has_conditions) {
      patch["conditions"] = Json::array();
      for (const char* type : {"ValidationSucceeded", "NodeClassReady", "Ready"}) {
        patch["conditions"].push_back({{"type", type},
                                       {"status", "True"},
                                       {"reason", type},
                                       {"message", ""},
                                       {"lastTransitionTime", TimeText(now_)}});
      }
    }
    return client_
        .Patch(NodePoolPath(entry.object.meta.name) + "/status", {{"status", std::move(patch)}})
        .ok();
  }

  absl::Time now_ = absl::InfinitePast();
  bool usage_changed_ = false;
  ApiClient client_;
  SimulatedCloud cloud_;
  KarpenterState state_;
  KarpenterProvisioner provisioner_;
  KarpenterLifecycle lifecycle_;
  KarpenterEmptiness emptiness_;
};

KarpenterSimulator::KarpenterSimulator(embedded::ApiServer* server, KarpenterConfig config)
    : impl_(std::make_unique<Impl>(server, std::move(config))) {}

KarpenterSimulator::~KarpenterSimulator() = default;

void KarpenterSimulator::Tick(absl::Time now) { impl_->Tick(now); }

absl::Time KarpenterSimulator::NextWake() const { return impl_->NextWake(); }

void KarpenterSimulator::AddOutage(CapacityOutage outage) { impl_->AddOutage(std::move(outage)); }

}  // namespace muster::kube::simulators
