#include "simulation/history.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "coscheduling/engine.h"
#include "fmt/format.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/watch_session.h"
#include "kube/objects/decode.h"
#include "kube/objects/node_holds.h"
#include "kube/objects/well_known.h"
#include "kube/simulators/api_client.h"
#include "muster/v1/admission.pb.h"
#include "simulation/observers.h"

namespace muster::simulation {
namespace {

using kube::embedded::WatchItem;
using kube::simulators::ObjectCache;

constexpr const char* kRunTime = "muster.dev/simulated-run-time";

std::string LabelOf(const kube::ObjectMeta& meta, const char* key) {
  const std::string* value = meta.Label(key);
  return value == nullptr ? "" : *value;
}

bool IsSignalled(const kube::Pod* pod) {
  return pod != nullptr && !pod->IsBound() && pod->scheduled_reason == "Unschedulable";
}

bool IsHeld(const kube::Node& node) {
  return node.meta.Annotation(kube::kHoldsAnnotation) != nullptr;
}

MemberFacts FactsOf(const kube::Pod& pod) {
  MemberFacts facts;
  facts.gang = GangOf(pod);
  facts.node = pod.node_name;
  facts.gpus = pod.spec->requests.Get(kube::kNvidiaGpu);
  const auto pool = pod.spec->node_selector.find(kube::kNodePoolLabel);
  if (pool != pod.spec->node_selector.end()) facts.pool = pool->second;
  facts.asks = !pod.IsBound() && (IsSignalled(&pod) || pod.scheduling_gates.empty());
  facts.live = !pod.IsTerminal() && !pod.IsDeleting();
  facts.succeeded = pod.phase == kube::PodPhase::kSucceeded;
  facts.endless = pod.meta.Annotation(kRunTime) == nullptr;
  return facts;
}

// "nvidia.com/gpu=4 of nvidia"
std::string QuotaText(const kube::Workload& workload) {
  std::map<std::string, kube::ResourceList> by_flavor;
  for (const kube::Workload::Reserved& set : workload.reserved_sets) {
    for (const auto& [resource, flavor] : set.flavors) {
      kube::ResourceList& sum = by_flavor[flavor];
      sum.Set(resource, sum.Get(resource) + set.usage.Get(resource));
    }
  }
  std::string text;
  for (const auto& [flavor, sum] : by_flavor) {
    text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", sum.ToString(), flavor);
  }
  return text;
}

}  // namespace

class History::Impl {
 public:
  void Start(kube::embedded::ApiServer* server, absl::Time start) {
    start_ = start;
    groups_.emplace(server, "/apis/scheduling.x-k8s.io/v1alpha1/podgroups");
    pods_.emplace(server, "/api/v1/pods");
    workloads_.emplace(server, "/apis/kueue.x-k8s.io/v1beta2/workloads", /*forever=*/true);
    claims_.emplace(server, "/apis/karpenter.sh/v1/nodeclaims");
    nodes_.emplace(server, "/api/v1/nodes");
    refusals_ = OpenWatch(server, "/api/v1/events", "reason=InsufficientCapacityError");
  }

  // Takes in what the API server shows by now.
  void Sync(absl::Time now) {
    now_ = (now - start_) / absl::Milliseconds(1);
    ledger_.MoveTo(now_);
    groups_->Sync([this](auto&, const auto*, const auto* group) {
      OnGroup(group == nullptr ? nullptr : &group->object);
    });
    pods_->Sync([this](auto&, const auto* before, const auto* pod) {
      OnPod(before == nullptr ? nullptr : &before->object, pod == nullptr ? nullptr : &pod->object);
    });
    workloads_->Sync([this](auto&, const auto* before, const auto* workload) {
      OnWorkload(before == nullptr ? nullptr : &before->object,
                 workload == nullptr ? nullptr : &workload->object);
    });
    ReadRefusals();
    claims_->Sync([this](auto&, const auto* before, const auto* claim) {
      OnClaim(before == nullptr ? nullptr : &before->object,
              claim == nullptr ? nullptr : &claim->object);
    });
    nodes_->Sync([this](auto&, const auto* before, const auto* node) {
      OnNode(before == nullptr ? nullptr : &before->object,
             node == nullptr ? nullptr : &node->object);
    });
  }

  void End() {
    groups_.reset();
    pods_.reset();
    workloads_.reset();
    claims_.reset();
    nodes_.reset();
    refusals_.reset();
  }

  void Add(TimelineEntry entry) {
    entry.at = now_;
    // The same, at the same moment, of somebody else: one line for all, as long as nothing was
    // decided in between.
    for (auto other = timeline_.rbegin(); other != timeline_.rend(); ++other) {
      if (entry.names.empty() || other->at != now_ || other->what == "gang") break;
      if (other->what != entry.what || other->subject != entry.subject ||
          other->text != entry.text) {
        continue;
      }
      other->names.push_back(entry.names.front());
      return;
    }
    timeline_.push_back(std::move(entry));
  }

  GpuLedger& ledger() { return ledger_; }
  const std::vector<TimelineEntry>& timeline() const { return timeline_; }

 private:
  void OnGroup(const kube::PodGroup* group) {
    if (group == nullptr) return;
    const std::string name = group->meta.FullName();
    ledger_.SetGroup(name, group->min_member, group->status.condition_status == "True");
  }

  void OnWorkload(const kube::Workload* before, const kube::Workload* workload) {
    const bool had = before != nullptr && before->reserved;
    const bool has = workload != nullptr && workload->reserved;
    if (had == has) return;
    const kube::Workload& either = has ? *workload : *before;
    const kube::OwnerReference* owner = either.meta.Controller();
    if (owner == nullptr) return;
    const std::string name = either.meta.name_space + "/" + owner->name;
    const auto* pod = pods_->Find(name);
    Add({.what = "quota",
         .subject = pod == nullptr ? name : GangOf(pod->object),
         .text = has ? fmt::format("takes {} (queue {})", QuotaText(either), either.queue)
                     : "gives its quota back"});
  }

  void OnPod(const kube::Pod* before, const kube::Pod* pod) {
    // A successor of the same name that came before anybody looked.
    if (before != nullptr && pod != nullptr && before->meta.uid != pod->meta.uid) {
      OnPod(before, nullptr);
      before = nullptr;
    }
    const kube::Pod& either = pod == nullptr ? *before : *pod;
    const auto tell = [&](std::string text, const std::string& name) {
      Add({.what = "members", .subject = GangOf(either), .text = std::move(text), .names = {name}});
    };
    const std::string& name = either.meta.name;
    if (pod == nullptr) {
      ledger_.RemoveMember(before->meta.uid);
      return tell("deleted", name);
    }
    ledger_.SetMember(pod->meta.uid, FactsOf(*pod));
    if (IsSignalled(pod) && !IsSignalled(before)) tell("ask for nodes", name);
    if (IsSignalled(before) && !IsSignalled(pod) && !pod->IsBound()) {
      tell("no longer ask for nodes", name);
    }
    if (pod->IsBound() && (before == nullptr || !before->IsBound())) {
      tell("bound", fmt::format("{} on {}", name, pod->node_name));
    }
    if (pod->IsTerminal() && (before == nullptr || !before->IsTerminal())) {
      const bool failed = pod->phase == kube::PodPhase::kFailed;
      tell(failed ? fmt::format("failed {}", pod->status_reason) : "succeeded", name);
    }
  }

  void ReadRefusals() {
    std::vector<WatchItem> items;
    refusals_->Read(256, &items);
    for (const WatchItem& item : items) {
      if (item.object == nullptr || item.type == WatchItem::Type::kDeleted) continue;
      const absl::StatusOr<kube::Event> event = kube::Decode<kube::Event>(item.object->bytes());
      if (event.ok()) Add({.what = "node", .text = event->message});
    }
  }

  void OnClaim(const kube::NodeClaim* before, const kube::NodeClaim* claim) {
    const kube::NodeClaim& either = claim == nullptr ? *before : *claim;
    const std::string& name = either.meta.name;
    if (claim == nullptr) {
      claim_of_provider_.erase(before->provider_id);
      ledger_.RemoveNode(name);
      return TellOfNode(either, before->IsTrue("Launched") ? "removed" : "given up unlaunched",
                        name);
    }
    if (!claim->provider_id.empty()) claim_of_provider_[claim->provider_id] = name;
    BookClaim(*claim);
    const auto became = [&](const char* condition) {
      return claim->IsTrue(condition) && (before == nullptr || !before->IsTrue(condition));
    };
    if (before == nullptr) TellOfNode(either, "requested", name);
    if (became("Launched")) {
      TellOfNode(either,
                 fmt::format("launched as {} in {}", LabelOf(claim->meta, kube::kInstanceTypeLabel),
                             LabelOf(claim->meta, kube::kZoneLabel)),
                 name);
    }
    if (became("Registered")) {
      TellOfNode(either, "registered", fmt::format("{} as {}", name, claim->node_name));
    }
    if (claim->meta.deletion_time && (before == nullptr || !before->meta.deletion_time)) {
      TellOfNode(either, "being removed", name);
    }
  }

  void TellOfNode(const kube::NodeClaim& claim, std::string text, std::string name) {
    Add({.what = "node",
         .subject = claim.node_pool,
         .text = std::move(text),
         .names = {std::move(name)}});
  }

  void OnNode(const kube::Node* before, const kube::Node* node) {
    const kube::Node& either = node == nullptr ? *before : *node;
    const auto tell = [&](std::string text) {
      Add({.what = "node",
           .subject = LabelOf(either.meta, kube::kNodePoolLabel),
           .text = std::move(text),
           .names = {either.meta.name}});
    };
    const auto claim_name = claim_of_provider_.find(either.provider_id);
    const auto* claim = either.provider_id.empty() || claim_name == claim_of_provider_.end()
                            ? nullptr
                            : claims_->Find(claim_name->second);
    if (claim != nullptr) {
      BookClaim(claim->object);
    } else if (node == nullptr) {
      if (ledger_.RemoveNode(either.meta.name)) tell("removed");
    } else {
      BookNode(*node);
    }
    if (node == nullptr) return;
    const kube::NodeClaim* object = claim == nullptr ? nullptr : &claim->object;
    if (IsUsable(*node, object) && usable_.insert(node->meta.uid).second && claim != nullptr) {
      tell("usable");
    }
    const bool was_held = before != nullptr && IsHeld(*before);
    if (IsHeld(*node) != was_held) tell(was_held ? "no longer held" : "held");
  }

  // With all the GPUs that were bought: allocatable may come in steps.
  static bool IsUsable(const kube::Node& node, const kube::NodeClaim* claim) {
    const kube::ResourceList& paid = claim == nullptr ? node.capacity : claim->capacity;
    return node.ready && !node.meta.deletion_time &&
           node.allocatable.Get(kube::kNvidiaGpu) >= paid.Get(kube::kNvidiaGpu) &&
           (claim == nullptr || LabelOf(node.meta, kube::kInitializedLabel) == "true");
  }

  void BookNode(const kube::Node& node) {
    NodeFacts facts;
    facts.name = node.meta.name;
    facts.type = LabelOf(node.meta, kube::kInstanceTypeLabel);
    facts.pool = LabelOf(node.meta, kube::kNodePoolLabel);
    facts.paid = true;
    facts.usable = IsUsable(node, nullptr);
    facts.held = IsHeld(node);
    facts.gpus = node.capacity.Get(kube::kNvidiaGpu);
    ledger_.SetNode(node.meta.name, std::move(facts));
  }

  void BookClaim(const kube::NodeClaim& claim) {
    NodeFacts facts;
    facts.name = claim.node_name;
    facts.type = LabelOf(claim.meta, kube::kInstanceTypeLabel);
    facts.pool = claim.node_pool;
    facts.bought = true;
    facts.paid = claim.IsTrue("Launched");
    facts.gpus = claim.capacity.Get(kube::kNvidiaGpu);
    if (const auto* node = nodes_->Find(claim.node_name); node != nullptr) {
      facts.usable = IsUsable(node->object, &claim);
      facts.held = IsHeld(node->object);
    }
    ledger_.SetNode(claim.meta.name, std::move(facts));
  }

  absl::Time start_;
  Millis now_ = 0;
  std::optional<ObjectCache<kube::PodGroup>> groups_;
  std::optional<ObjectCache<kube::Pod>> pods_;
  std::optional<ObjectCache<kube::Workload>> workloads_;
  std::optional<ObjectCache<kube::NodeClaim>> claims_;
  std::optional<ObjectCache<kube::Node>> nodes_;
  std::unique_ptr<kube::embedded::WatchSession> refusals_;
  std::map<std::string, std::string> claim_of_provider_;
  std::set<std::string> usable_;  // UIDs of nodes that were usable once
  std::vector<TimelineEntry> timeline_;
  GpuLedger ledger_;
};

History::History() : impl_(std::make_unique<Impl>()) {}
History::~History() = default;

void History::OnStart(kube::embedded::ApiServer* server, absl::Time start) {
  impl_->Start(server, start);
}

void History::OnDecision(const coscheduling::DecisionNote& note, absl::Time now) {
  impl_->Sync(now);
  impl_->Add({.what = "gang",
              .subject = note.gang.ToString(),
              .text = note.message,
              .state = v1::GangState_Name(note.state),
              .reason = v1::ReasonCode_Name(note.reason)});
}

void History::OnRestart(absl::Time now) {
  impl_->Sync(now);
  impl_->Add({.what = "muster", .text = "is killed and started again"});
}

void History::OnMoment(absl::Time now) {
  impl_->Sync(now);
  impl_->ledger().EndMoment();
}

void History::OnEnd() { impl_->End(); }

const std::vector<TimelineEntry>& History::timeline() const { return impl_->timeline(); }
const GpuLedger& History::ledger() const { return impl_->ledger(); }

}  // namespace muster::simulation
