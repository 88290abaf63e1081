#include "lab/demo_job.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "kube/objects/well_known.h"

namespace muster::lab {
namespace {

using Json = nlohmann::json;

constexpr const char* kInstanceType = "g6.2xlarge";
constexpr const char* kZone = "us-east-1a";
constexpr const char* kGpu = "nvidia.com/gpu";
constexpr const char* kPods = "/api/v1/namespaces/default/pods";
constexpr const char* kPodGroups =
    "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups";
constexpr const char* kNodePools = "/apis/karpenter.sh/v1/nodepools";
constexpr const char* kImage =
    "public.ecr.aws/deep-learning-containers/"
    "pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-ec2-v1.0";

kube::Request Post(const char* path, const Json& body) {
  kube::Request request;
  request.method = kube::Method::kPost;
  request.path = path;
  request.content_type = kube::kJson;
  request.body = body.dump();
  return request;
}

Json GpuToleration() { return {{"key", kGpu}, {"operator", "Exists"}, {"effect", "NoSchedule"}}; }

Json Pod(const std::string& job, const std::string& replica_type, int index) {
  const Json gpus = {{kGpu, "1"}};
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata",
           {{"name", fmt::format("{}-{}-{}", job, replica_type, index)},
            {"labels",
             {{"training.kubeflow.org/job-name", job},
              {"training.kubeflow.org/replica-type", replica_type},
              {"training.kubeflow.org/replica-index", std::to_string(index)},
              {"scheduling.x-k8s.io/pod-group", job}}}}},
          {"spec",
           {{"schedulerName", "coscheduling"},
            {"restartPolicy", "OnFailure"},
            {"nodeSelector", {{kube::kNodePoolLabel, kDemoNodePool}}},
            {"tolerations", Json::array({GpuToleration()})},
            {"containers",
             Json::array({{{"name", "pytorch"},
                           {"image", kImage},
                           {"command", {"/bin/bash", "-c"}},
                           {"args", {"torchrun --nnodes 4 --nproc_per_node 1 t5-fsdp.py"}},
                           {"resources", {{"requests", gpus}, {"limits", gpus}}}}})}}}};
}

}  // namespace

std::vector<kube::Request> DemoClusterRequests() {
  const Json requirement = {
      {"key", kube::kInstanceTypeLabel}, {"operator", "In"}, {"values", {kInstanceType}}};
  const Json node_class = {
      {"group", "karpenter.k8s.aws"}, {"kind", "EC2NodeClass"}, {"name", kDemoNodePool}};
  const Json pool = {
      {"apiVersion", "karpenter.sh/v1"},
      {"kind", "NodePool"},
      {"metadata", {{"name", kDemoNodePool}}},
      {"spec",
       {{"template",
         {{"spec",
           {{"requirements", Json::array({requirement})},
            {"taints", Json::array({{{"key", kGpu}, {"effect", "NoSchedule"}}})},
            {"nodeClassRef", node_class}}}}},
        {"disruption", {{"consolidationPolicy", "WhenEmpty"}, {"consolidateAfter", "0s"}}}}}};
  return {Post(kNodePools, pool)};
}

std::vector<kube::Request> DemoJobRequests(const std::string& name,
                                           std::optional<int64_t> schedule_timeout_seconds) {
  Json group = {{"apiVersion", "scheduling.x-k8s.io/v1alpha1"},
                {"kind", "PodGroup"},
                {"metadata", {{"name", name}}},
                {"spec", {{"minMember", kDemoMembers}}}};
  if (schedule_timeout_seconds) {
    group["spec"]["scheduleTimeoutSeconds"] = *schedule_timeout_seconds;
  }
  std::vector<kube::Request> requests = {Post(kPodGroups, group),
                                         Post(kPods, Pod(name, "master", 0))};
  for (int i = 0; i + 1 < kDemoMembers; ++i) {
    requests.push_back(Post(kPods, Pod(name, "worker", i)));
  }
  return requests;
}

kube::simulators::InstanceType DemoInstanceType() {
  kube::simulators::InstanceType type;
  type.name = kInstanceType;
  type.capacity.Set("cpu", 8'000);
  type.capacity.Set("memory", int64_t{32} << 30);
  type.capacity.Set("pods", 58);
  type.capacity.Set(kGpu, 1);
  type.offerings.push_back({.zone = kZone, .price = 1});
  return type;
}

}  // namespace muster::lab
