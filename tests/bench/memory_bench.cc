// Resident memory of `muster serve` with 5,000 nodes and 20,000 pods in the cluster.
//
// The embedded API server plays the cluster in this process; muster is a process of its own, as it
// is in production, and is measured from outside once it is ready and has come to rest.

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "extender/rest_client.h"
#include "fmt/format.h"
#include "kube/api.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/http_front.h"

extern char** environ;

namespace muster {
namespace {

using nlohmann::json;

constexpr int kNodes = 5'000;
constexpr int kPods = 20'000;
constexpr int kMembersPerGang = 4;
constexpr int64_t kLimitMiB = 200;
constexpr const char* kRest = "127.0.0.1:18080";

void Create(kube::embedded::ApiServer& server, std::string path, const json& object) {
  kube::Request request;
  request.method = kube::Method::kPost;
  request.path = std::move(path);
  request.content_type = kube::kJson;
  request.body = object.dump();
  const kube::Response response = server.Handle(request);
  if (response.ok()) return;
  std::cerr << response.body << "\n";
  std::exit(2);
}

// As large as an EKS node is without its images.
json NodeObject(int i) {
  const std::string name =
      fmt::format("ip-10-{}-{}-{}.us-west-2.compute.internal", i / 60'000, i / 250 % 250, i % 250);
  const json resources = {
      {"cpu", "192"},          {"memory", "2097152Mi"}, {"ephemeral-storage", "3Ti"},
      {"pods", "110"},         {"nvidia.com/gpu", "8"}, {"vpc.amazonaws.com/efa", "32"},
      {"hugepages-2Mi", "5Gi"}};
  json conditions = json::array();
  for (const char* type : {"MemoryPressure", "DiskPressure", "PIDPressure"}) {
    conditions.push_back({{"type", type}, {"status", "False"}, {"reason", "KubeletHasSufficient"}});
  }
  conditions.push_back({{"type", "Ready"}, {"status", "True"}, {"reason", "KubeletReady"}});
  return {{"apiVersion", "v1"},
          {"kind", "Node"},
          {"metadata",
           {{"name", name},
            {"labels",
             {{"kubernetes.io/hostname", name},
              {"kubernetes.io/arch", "amd64"},
              {"kubernetes.io/os", "linux"},
              {"karpenter.sh/nodepool", "gpu"},
              {"karpenter.sh/registered", "true"},
              {"karpenter.sh/initialized", "true"},
              {"karpenter.sh/capacity-type", "on-demand"},
              {"node.kubernetes.io/instance-type", "p5.48xlarge"},
              {"topology.kubernetes.io/region", "us-west-2"},
              {"topology.kubernetes.io/zone", fmt::format("us-west-2{}", "abc"[i % 3])}}},
            {"annotations", {{"karpenter.sh/nodepool-hash", "1234567890123456789"}}}}},
          {"spec", {{"providerID", fmt::format("aws:///us-west-2a/i-{:017x}", i)}}},
          {"status",
           {{"capacity", resources}, {"allocatable", resources}, {"conditions", conditions}}}};
}

json PodObject(int i, const std::string& node) {
  const int gang = i / kMembersPerGang;
  const json resources = {{"nvidia.com/gpu", "1"}, {"cpu", "8"}, {"memory", "64Gi"}};
  json pod = {
      {"apiVersion", "v1"},
      {"kind", "Pod"},
      {"metadata",
       {{"name", fmt::format("training-{}-worker-{}", gang, i % kMembersPerGang)},
        {"namespace", "default"},
        {"labels",
         {{"scheduling.x-k8s.io/pod-group", fmt::format("training-{}", gang)},
          {"training.kubeflow.org/job-name", fmt::format("training-{}", gang)},
          {"training.kubeflow.org/replica-index", std::to_string(i % kMembersPerGang)},
          {"training.kubeflow.org/replica-type", "worker"}}}}},
      {"spec",
       {{"schedulerName", "coscheduling"},
        {"nodeSelector", {{"karpenter.sh/nodepool", "gpu"}}},
        {"tolerations", json::array({{{"key", "nvidia.com/gpu"}, {"operator", "Exists"}}})},
        {"containers",
         json::array({{{"name", "pytorch"},
                       {"image", "registry.example/pytorch-training:2.8.0"},
                       {"command", {"torchrun", "--nnodes", "4", "train.py"}},
                       {"resources", {{"requests", resources}, {"limits", resources}}}}})}}}};
  if (node.empty()) {
    pod["spec"]["schedulingGates"] = json::array({{{"name", "muster.dev/admission"}}});
  } else {
    pod["spec"]["nodeName"] = node;
  }
  return pod;
}

// Nine pods in ten stand on a node; the others are gangs that wait behind their gates for a node
// that no NodePool makes.
void Fill(kube::embedded::ApiServer& server) {
  std::vector<std::string> names;
  for (int i = 0; i < kNodes; ++i) {
    const json node = NodeObject(i);
    names.push_back(node["metadata"]["name"]);
    Create(server, "/api/v1/nodes", node);
  }
  for (int gang = 0; gang < kPods / kMembersPerGang; ++gang) {
    Create(server, "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups",
           {{"apiVersion", "scheduling.x-k8s.io/v1alpha1"},
            {"kind", "PodGroup"},
            {"metadata", {{"name", fmt::format("training-{}", gang)}, {"namespace", "default"}}},
            {"spec", {{"minMember", kMembersPerGang}}}});
  }
  for (int i = 0; i < kPods; ++i) {
    const bool waits = i / kMembersPerGang % 10 == 0;
    json pod = PodObject(i, waits ? "" : names[i % kNodes]);
    if (waits) pod["spec"]["nodeSelector"]["example.com/nowhere"] = "true";
    Create(server, "/api/v1/namespaces/default/pods", pod);
  }
}

pid_t StartMuster(const std::string& program, const std::string& kubeconfig) {
  std::vector<std::string> words = {program,
                                    "serve",
                                    "--mode=extender",
                                    "--kubeconfig=" + kubeconfig,
                                    "--extender-listen=127.0.0.1:0",
                                    std::string("--listen=") + kRest,
                                    "--grpc-listen=127.0.0.1:0",
                                    "--webhook-listen=127.0.0.1:0",
                                    "--health-listen=127.0.0.1:0",
                                    "--leader-elect=false",
                                    "--log-level=err"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  if (posix_spawn(&pid, program.c_str(), nullptr, nullptr, arguments.data(), environ) != 0) {
    std::cerr << "can't start " << program << "\n";
    std::exit(2);
  }
  return pid;
}

// "VmRSS" or "VmHWM" of the process, in MiB.
int64_t MemoryMiB(pid_t pid, const std::string& field) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) / 1024;
  }
  return -1;
}

bool AwaitReady() {
  const extender::RestClient rest(kRest);
  for (int i = 0; i < 600; ++i) {
    if (rest.Get("/readyz").ok()) return true;
    absl::SleepFor(absl::Milliseconds(100));
  }
  return false;
}

int Main(const std::string& program) {
  kube::embedded::ApiServer server;
  auto front = kube::embedded::HttpFront::Start(&server);
  if (!front.ok()) return 2;
  Fill(server);
  const std::string kubeconfig =
      (std::filesystem::temp_directory_path() / fmt::format("memory-bench-{}", getpid())).string();
  std::ofstream(kubeconfig) << (*front)->Kubeconfig();
  const absl::Time started = absl::Now();
  const pid_t muster = StartMuster(program, kubeconfig);
  const bool ready = AwaitReady();
  const absl::Duration took = absl::Now() - started;
  // Long enough for all signals of the waiting gangs to be written and seen.
  absl::SleepFor(absl::Seconds(20));
  const int64_t resident = MemoryMiB(muster, "VmRSS");
  const int64_t peak = MemoryMiB(muster, "VmHWM");
  kill(muster, SIGTERM);
  int status = 0;
  waitpid(muster, &status, 0);
  std::filesystem::remove(kubeconfig);
  if (!ready) {
    std::cerr << "muster did not become ready\n";
    return 2;
  }
  std::cout << fmt::format(
      "muster with {} nodes and {} pods: ready after {}, resident {} MiB, peak {} MiB, {:.2f} of "
      "the limit of {} MiB\n",
      kNodes, kPods, absl::FormatDuration(absl::Trunc(took, absl::Milliseconds(1))), resident, peak,
      static_cast<double>(resident) / kLimitMiB, kLimitMiB);
  return resident > 0 && resident <= kLimitMiB ? 0 : 1;
}

}  // namespace
}  // namespace muster

// Usage: memory_bench [PROGRAM], by default muster in the folder above this program's.
int main(int argc, char** argv) {
  const std::string beside =
      (std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() / "muster")
          .string();
  return muster::Main(argc > 1 ? argv[1] : beside);
}
