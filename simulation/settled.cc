#include "simulation/settled.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "cluster/suspect_nodes.h"
#include "coscheduling/engine.h"
#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "kube/embedded/api_server.h"
#include "kube/objects/decode.h"
#include "kube/objects/node_holds.h"
#include "kube/objects/well_known.h"
#include "kube/simulators/scheduler_filters.h"
#include "muster/v1/admission.pb.h"
#include "simulation/line.h"
#include "simulation/observers.h"

namespace muster::simulation {
namespace {

using coscheduling::Engine;
using coscheduling::GangKey;

constexpr absl::Duration kLate = absl::Minutes(1);

std::vector<nlohmann::json> ItemsOf(kube::embedded::ApiServer& server, const char* path) {
  kube::Request request;
  request.path = path;
  const kube::Response response = server.Handle(request);
  if (!response.ok()) return {};
  return nlohmann::json::parse(response.body).at("items").get<std::vector<nlohmann::json>>();
}

template <typename T>
std::vector<T> Objects(kube::embedded::ApiServer& server, const char* path) {
  std::vector<T> objects;
  for (const nlohmann::json& item : ItemsOf(server, path)) {
    objects.push_back(kube::Decode<T>(item.dump()).value());
  }
  return objects;
}

class Settled {
 public:
  Settled(kube::embedded::ApiServer& server, const Engine& engine)
      : server_(server),
        engine_(engine),
        now_(server.now()),
        pods_(Objects<kube::Pod>(server, "/api/v1/pods")),
        nodes_(Objects<kube::Node>(server, "/api/v1/nodes")),
        makes_nodes_(!ItemsOf(server, "/apis/karpenter.sh/v1/nodepools").empty()) {
    for (kube::PodGroup& group :
         Objects<kube::PodGroup>(server, "/apis/scheduling.x-k8s.io/v1alpha1/podgroups")) {
      groups_.emplace(group.meta.FullName(), std::move(group));
    }
    for (const GangKey& key : engine.Gangs()) {
      v1::Gang gang;
      if (engine.Describe(key, &gang)) gangs_.emplace_back(key, std::move(gang));
    }
    for (const kube::Pod& pod : pods_) {
      if (!pod.IsBound() || pod.IsTerminal()) continue;
      used_[pod.node_name].Add(pod.spec->requests).IgnoreError();
    }
  }

  absl::Status Check() {
    CheckPhantoms();
    for (const auto& [key, gang] : gangs_) CheckGang(key, gang);
    CheckLeftovers();
    return wrong_.empty() ? absl::OkStatus() : absl::FailedPreconditionError(wrong_);
  }

 private:
  struct Members {
    int64_t live = 0, bound = 0, succeeded = 0;
    std::vector<const kube::Pod*> unbound;
  };

  // The first is told.
  void Say(std::string text) {
    if (wrong_.empty()) wrong_ = std::move(text);
  }

  Members MembersOf(const v1::Gang& gang) const {
    Members members;
    for (const v1::Member& member : gang.members()) {
      const auto pod =
          std::ranges::find(pods_, member.uid(), [](const kube::Pod& p) { return p.meta.uid; });
      if (pod == pods_.end()) continue;
      members.succeeded += pod->phase == kube::PodPhase::kSucceeded;
      if (pod->IsTerminal() || pod->IsDeleting()) continue;
      ++members.live;
      members.bound += pod->IsBound();
      if (!pod->IsBound()) members.unbound.push_back(&*pod);
    }
    return members;
  }

  void CheckPhantoms() {
    std::set<std::string> uids, shown;
    for (const kube::Pod& pod : pods_) uids.insert(pod.meta.uid);
    for (const auto& [key, gang] : gangs_) {
      const auto group = groups_.find(key.ToString());
      const bool has_group = group != groups_.end() && group->second.meta.uid == gang.uid();
      if (gang.kind() != "PodGroup" && gang.kind() != "Pod") continue;  // a suspended job
      if (!key.is_pod && !gang.uid().empty() && !has_group) {
        Say(fmt::format("phantom: gang {} is shown, and its PodGroup {} is gone", key.ToString(),
                        gang.uid()));
      }
      if (!has_group && gang.members().empty()) {
        Say(fmt::format("phantom: gang {} is shown, and nothing of it is there", key.ToString()));
      }
      for (const v1::Member& member : gang.members()) {
        shown.insert(member.uid());
        if (uids.contains(member.uid())) continue;
        Say(fmt::format("phantom: gang {} shows member {} ({}), which is gone", key.ToString(),
                        member.name(), member.uid()));
      }
    }
    for (const kube::Pod& pod : pods_) {
      if (pod.IsTerminal() || !pod.HasGate(coscheduling::kGate) || shown.contains(pod.meta.uid)) {
        continue;
      }
      Say(fmt::format("no gang shows pod {}", pod.meta.FullName()));
    }
    std::set<std::string> names, claims;
    for (const kube::Node& node : nodes_) names.insert(node.meta.name);
    for (const nlohmann::json& claim : ItemsOf(server_, "/apis/karpenter.sh/v1/nodeclaims")) {
      claims.insert(claim.at("metadata").at("name").get<std::string>());
    }
    std::vector<v1::Node> nodes;
    engine_.DescribeNodes(&nodes);
    for (const v1::Node& node : nodes) {
      if (!node.name().empty() && !names.contains(node.name())) {
        Say(fmt::format("phantom: node {} is shown, and is gone", node.name()));
      }
      if (!node.node_claim().empty() && !claims.contains(node.node_claim())) {
        Say(fmt::format("phantom: NodeClaim {} is shown, and is gone", node.node_claim()));
      }
      const auto& steps = node.steps();
      const bool in_order = std::ranges::is_sorted(steps, {}, &v1::NodeStep::stage);
      const bool ends = !steps.empty() && steps.rbegin()->stage() == v1::USABLE;
      if (!in_order || ends != (node.stage() == v1::USABLE)) {
        Say(fmt::format("node {} is {}, by these steps: {}", node.name(),
                        v1::NodeStage_Name(node.stage()), node.ShortDebugString()));
      }
    }
  }

  bool IsUsable(const kube::Node& node) const {
    const bool made = node.meta.Label(kube::kNodePoolLabel) != nullptr;
    const std::string* initialized = node.meta.Label("karpenter.sh/initialized");
    return node.ready && node.ill.empty() && !node.meta.deletion_time &&
           (!made || (initialized != nullptr && *initialized == "true")) &&
           node.allocatable == node.capacity &&
           node.meta.Annotation(cluster::kSuspectAnnotation) == nullptr;
  }

  // Each of as many members as are needed has a place on what is free: first fit, so it may miss
  // one, and never finds one that isn't there.
  bool Fits(const v1::Gang& gang, const Members& members) const {
    int64_t needed = gang.min_member() - members.bound - members.succeeded;
    if (needed <= 0) return false;
    std::map<std::string, kube::ResourceList> used = used_;
    for (const kube::Pod* pod : members.unbound) {
      const auto node = std::ranges::find_if(nodes_, [&](const kube::Node& candidate) {
        return IsUsable(candidate) && !IsKept(gang, members, candidate.meta.name) &&
               kube::simulators::WhyNotOn(*pod, candidate, used[candidate.meta.name]).empty();
      });
      if (node == nodes_.end()) continue;
      used[node->meta.name].Add(pod->spec->requests).IgnoreError();
      if (--needed == 0) return true;
    }
    return false;
  }

  // For somebody who comes first, and whom it might be in the way of.
  bool IsKept(const v1::Gang& gang, const Members& members, const std::string& node) const {
    return std::ranges::any_of(gangs_, [&](const auto& other) {
      return other.second.has_reservation() &&
             IsKeptFrom(gang, members.unbound, other.second, node, now_);
    });
  }

  // All that all live pods ask for is less than every flavor that has a quota for it gives.
  bool QuotaSuffices() const {
    kube::ResourceList asked;
    for (const kube::Pod& pod : pods_) {
      if (!pod.IsTerminal()) asked.Add(pod.spec->requests).IgnoreError();
    }
    bool any = false;
    for (const kube::ClusterQueue& queue :
         Objects<kube::ClusterQueue>(server_, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues")) {
      for (const kube::ResourceGroup& group : queue.resource_groups) {
        for (const kube::FlavorQuotas& flavor : group.flavors) {
          for (const kube::ResourceQuota& quota : flavor.resources) {
            any = true;
            if (asked.Get(quota.resource) > quota.nominal) return false;
          }
        }
      }
    }
    return any;
  }

  void CheckGang(const GangKey& key, const v1::Gang& gang) {
    const Members members = MembersOf(gang);
    const auto wrong = [&](std::string_view why) {
      Say(fmt::format("gang {} is {} {}: {} ({} live, {} bound of {}): {}", key.ToString(),
                      v1::GangState_Name(gang.state()), v1::ReasonCode_Name(gang.reason().code()),
                      why, members.live, members.bound, gang.min_member(),
                      gang.reason().message()));
    };
    const bool whole = members.bound + members.succeeded >= gang.min_member();
    const auto group = groups_.find(key.ToString());
    const bool edited = group != groups_.end() && group->second.meta.generation > 1;
    switch (gang.state()) {
      case v1::BOUND:
        if (!whole && !edited) wrong("it isn't whole");
        return;
      case v1::FINISHED:
        return;
      case v1::BACKING_OFF:
        if (TimeOf(gang.retry_at()) < now_) wrong("its time is over");
        break;
      case v1::INFEASIBLE:
      case v1::WAITING_FOR_MEMBERS:
      case v1::WAITING_FOR_QUOTA:
      case v1::PROVISIONING:
        break;
      case v1::REPAIRING:
        if (!edited) return wrong("it is still being repaired");
        break;
      default:
        return wrong("it doesn't come to rest");
    }
    if (members.bound > 0 && !edited && !whole) wrong("it is bound in part");
    // It runs while nodes are being made, and not where NodePools' limits let none be.
    if (gang.state() == v1::PROVISIONING && gang.has_deadline() && makes_nodes_ &&
        gang.reason().code() != v1::POOL_LIMIT_REACHED && TimeOf(gang.deadline()) + kLate < now_) {
      wrong("its deadline is over");
    }
    switch (gang.reason().code()) {
      case v1::MEMBERS_MISSING:
        if (members.live + members.succeeded >= gang.min_member()) wrong("they are there");
        return;
      case v1::RECORD_PENDING:
      case v1::RECORD_FAILED:
      case v1::FLAVORS_PENDING:
      case v1::PREEMPTED:
      case v1::JOB_RESTARTING:
      case v1::PLAN_REFUSED:
        return wrong("it doesn't come to rest");
      case v1::QUOTA_IN_USE:
      case v1::PREEMPTING:
      case v1::BEHIND_OTHERS:
        if (QuotaSuffices()) wrong("there is quota for all");
        return;
      case v1::CAPACITY_SHORT:
      case v1::NODES_RESERVED:
      case v1::NOT_PLACEABLE:
        if (Fits(gang, members)) wrong("there is room");
        return;
      default:
        if (gang.state() == v1::INFEASIBLE && Fits(gang, members)) wrong("there is room");
        return;
    }
  }

  void CheckLeftovers() {
    std::map<std::string, v1::GangState> states, of_pod;
    for (const auto& [key, gang] : gangs_) {
      states[gang.uid()] = gang.state();
      for (const v1::Member& member : gang.members()) of_pod[member.uid()] = gang.state();
    }
    const auto asks = [](v1::GangState state) {
      return state == v1::PROVISIONING || state == v1::READY || state == v1::BINDING ||
             state == v1::REPAIRING;
    };
    for (const kube::Node& node : nodes_) {
      for (const auto& [uid, until] : kube::ReadHolds(node.meta.annotations)) {
        if (states.contains(uid) && asks(states[uid])) continue;
        Say(fmt::format("left over: node {} is held for {}, which doesn't need it", node.meta.name,
                        uid));
      }
      const bool tainted = std::ranges::any_of(node.taints, [](const kube::Taint& taint) {
        return taint.key == cluster::kSuspectTaint;
      });
      if (tainted && node.meta.Annotation(cluster::kSuspectAnnotation) == nullptr) {
        Say(fmt::format("left over: node {} has the taint of a suspect, and isn't one",
                        node.meta.name));
      }
    }
    for (const nlohmann::json& pod : ItemsOf(server_, "/api/v1/pods")) {
      const std::string uid = pod.at("metadata").at("uid").get<std::string>();
      const std::string phase = pod.value("/status/phase"_json_pointer, "");
      const bool gated =
          pod.at("spec").contains("schedulingGates") && phase != "Failed" && phase != "Succeeded";
      const bool gang_asks = !of_pod.contains(uid) || asks(of_pod[uid]) || of_pod[uid] == v1::BOUND;
      if (!gated || gang_asks) continue;
      for (const nlohmann::json& condition :
           pod.value("/status/conditions"_json_pointer, nlohmann::json::array())) {
        if (condition.value("type", "") != "PodScheduled") continue;
        if (condition.value("reason", "") != "Unschedulable") continue;
        Say(fmt::format("left over: pod {} asks for a node, and its gang is {}",
                        pod.at("metadata").at("name").get<std::string>(),
                        v1::GangState_Name(of_pod[uid])));
      }
    }
    for (const char* path :
         {"/apis/batch/v1/jobs", "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
          "/apis/kubeflow.org/v1/pytorchjobs", "/apis/trainer.kubeflow.org/v1alpha1/trainjobs",
          "/apis/kubeflow.org/v2beta1/mpijobs", "/apis/ray.io/v1/rayclusters",
          "/apis/ray.io/v1/rayjobs"}) {
      for (const nlohmann::json& job : ItemsOf(server_, path)) {
        const nlohmann::json& meta = job.at("metadata");
        if (!meta.value("annotations", nlohmann::json::object()).contains("muster.dev/restart")) {
          continue;
        }
        Say(fmt::format("left over: job {} is marked as being restarted",
                        meta.at("name").get<std::string>()));
      }
    }
  }

  kube::embedded::ApiServer& server_;
  const Engine& engine_;
  const absl::Time now_;
  const std::vector<kube::Pod> pods_;
  const std::vector<kube::Node> nodes_;
  const bool makes_nodes_;                        // there are NodePools
  std::map<std::string, kube::PodGroup> groups_;  // by "namespace/name"
  std::vector<std::pair<GangKey, v1::Gang>> gangs_;
  std::map<std::string, kube::ResourceList> used_;  // by node
  std::string wrong_;
};

}  // namespace

absl::Status CheckSettled(kube::embedded::ApiServer& server, const Engine& engine) {
  return Settled(server, engine).Check();
}

}  // namespace muster::simulation
