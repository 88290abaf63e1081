#include "kube/simulators/virtual_cluster.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kube/simulators/api_client.h"

namespace muster::kube::simulators {
namespace {

constexpr int kMaxRounds = 1000;
constexpr int64_t kFirstSecond = 1'767'225'600;  // 2026-01-01

}  // namespace

VirtualCluster::VirtualCluster()
    : start_(absl::FromUnixSeconds(kFirstSecond)),
      now_(start_),
      server_({.clock = [this] { return now_; }}) {}

void VirtualCluster::Settle() {
  for (int round = 0; round < kMaxRounds; ++round) {
    uint64_t revision = server_.revision();
    for (const Driven& one : driven_) one.tick(now_);
    if (server_.revision() == revision) return;
  }
  FAIL() << "nothing comes to rest at " << absl::FormatDuration(elapsed());
}

absl::Duration VirtualCluster::RunUntil(const std::function<bool()>& holds, absl::Duration limit) {
  for (;;) {
    Settle();
    if (::testing::Test::HasFatalFailure()) return absl::InfiniteDuration();
    if (holds()) return elapsed();
    if (elapsed() >= limit) return absl::InfiniteDuration();
    absl::Time next = start_ + limit;
    for (const Driven& one : driven_) next = std::min(next, one.next_wake());
    if (next <= now_) {
      ADD_FAILURE() << "a wake at " << absl::FormatDuration(next - start_) << " was left undone";
      return absl::InfiniteDuration();
    }
    now_ = next;
  }
}

void VirtualCluster::RunTo(absl::Duration since_start) {
  RunUntil([] { return false; }, since_start);
}

Response VirtualCluster::Try(Method method, const std::string& path, const Json& body) {
  Request request;
  request.method = method;
  request.path = path;
  request.content_type = method == Method::kPatch ? kMergePatch : kJson;
  if (!body.is_null()) request.body = body.dump();
  return server_.Handle(request);
}

VirtualCluster::Json VirtualCluster::Create(const std::string& collection, const Json& object) {
  Response response = Try(Method::kPost, collection, object);
  EXPECT_TRUE(response.ok()) << collection << ": " << response.body;
  return Json::parse(response.body);
}

void VirtualCluster::Patch(const std::string& path, const Json& merge_patch) {
  Response response = Try(Method::kPatch, path, merge_patch);
  EXPECT_TRUE(response.ok()) << path << ": " << response.body;
}

void VirtualCluster::Delete(const std::string& path) {
  Response response = Try(Method::kDelete, path, nullptr);
  EXPECT_TRUE(response.ok()) << path << ": " << response.body;
}

VirtualCluster::Json VirtualCluster::Get(const std::string& path) {
  Response response = Try(Method::kGet, path, nullptr);
  return response.ok() ? Json::parse(response.body) : Json();
}

std::vector<VirtualCluster::Json> VirtualCluster::List(const std::string& collection) {
  return Get(collection).at("items");
}

void VirtualCluster::CreatePod(const std::string& name, const Json& requests,
                               const Json& more_spec) {
  Json spec = {{"schedulerName", "coscheduling"},
               {"containers",
                Json::array({{{"name", "main"},
                              {"image", "train"},
                              {"resources", {{"requests", requests}, {"limits", requests}}}}})}};
  if (!more_spec.is_null()) spec.merge_patch(more_spec);
  Create("/api/v1/namespaces/default/pods",
         {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", {{"name", name}}}, {"spec", spec}});
}

void VirtualCluster::CreateNode(const std::string& name, const Json& amounts) {
  Json ready = {{"type", "Ready"}, {"status", "True"}, {"reason", "KubeletReady"}};
  Create(
      "/api/v1/nodes",
      {{"apiVersion", "v1"},
       {"kind", "Node"},
       {"metadata", {{"name", name}}},
       {"status",
        {{"capacity", amounts}, {"allocatable", amounts}, {"conditions", Json::array({ready})}}}});
}

void VirtualCluster::CreatePool(const std::string& name,
                                const std::vector<std::string>& instance_types, const Json& more) {
  Json spec = {
      {"template",
       {{"spec",
         {{"requirements", Json::array({{{"key", "node.kubernetes.io/instance-type"},
                                         {"operator", "In"},
                                         {"values", instance_types}}})},
          {"nodeClassRef",
           {{"group", "karpenter.k8s.aws"}, {"kind", "EC2NodeClass"}, {"name", "gpu"}}}}}}},
      {"disruption", {{"consolidateAfter", "0s"}, {"consolidationPolicy", "WhenEmpty"}}}};
  spec.merge_patch(more);
  Create("/apis/karpenter.sh/v1/nodepools", {{"apiVersion", "karpenter.sh/v1"},
                                             {"kind", "NodePool"},
                                             {"metadata", {{"name", name}}},
                                             {"spec", spec}});
}

void VirtualCluster::Signal(const std::string& pod, const std::string& reason) {
  Json condition = {{"type", "PodScheduled"}, {"status", "False"}, {"reason", reason}};
  Patch(PodPath("default", pod) + "/status",
        {{"status", {{"conditions", Json::array({condition})}}}});
}

Response VirtualCluster::Bind(const std::string& pod, const std::string& node) {
  return Try(Method::kPost, PodPath("default", pod) + "/binding",
             {{"apiVersion", "v1"},
              {"kind", "Binding"},
              {"metadata", {{"name", pod}}},
              {"target", {{"kind", "Node"}, {"name", node}}}});
}

VirtualCluster::Json VirtualCluster::Pod(const std::string& name) {
  return Get(PodPath("default", name));
}

std::string VirtualCluster::Phase(const std::string& pod) {
  Json object = Pod(pod);
  return object.is_null() ? "(gone)" : object.at("status").value("phase", "");
}

std::vector<VirtualCluster::Json> VirtualCluster::Claims() {
  return List("/apis/karpenter.sh/v1/nodeclaims");
}

std::vector<VirtualCluster::Json> VirtualCluster::Nodes() { return List("/api/v1/nodes"); }

std::string VirtualCluster::Condition(const Json& object, const std::string& type) {
  const Json conditions = object.value("/status/conditions"_json_pointer, Json::array());
  for (const Json& condition : conditions) {
    if (condition["type"] != type) continue;
    return fmt::format("{}/{}", condition["status"].get<std::string>(),
                       condition.value("reason", ""));
  }
  return "";
}

bool VirtualCluster::HasTaint(const Json& node, const std::string& key) {
  const Json taints = node.value("/spec/taints"_json_pointer, Json::array());
  return std::any_of(taints.begin(), taints.end(),
                     [&](const Json& taint) { return taint["key"] == key; });
}

std::vector<std::string> VirtualCluster::Events(const std::string& reason) {
  std::vector<std::string> messages;
  for (const Json& event : List("/api/v1/events")) {
    if (event["reason"] == reason) messages.push_back(event["message"]);
  }
  return messages;
}

}  // namespace muster::kube::simulators
