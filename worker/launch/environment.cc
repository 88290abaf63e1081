#include "worker/launch/environment.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace muster::worker {
namespace {

constexpr int kDefaultPort = 29500;

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

class Reader {
 public:
  Reader(const Environment& environment, const Host& host, const LaunchOverrides& overrides)
      : environment_(environment), host_(host), overrides_(overrides) {}

  absl::StatusOr<LaunchPlan> Read() {
    if (Has("LOCAL_RANK") && Has("RANK") && Has("WORLD_SIZE")) return ReadRank();
    ReadNodes();
    ReadProcesses();
    ReadMaster();
    Override();
    plan_.world_size = plan_.nodes * plan_.processes_per_node;
    plan_.first_rank = plan_.node_rank * plan_.processes_per_node;
    CompareWorldSize();
    Check();
    if (!error_.ok()) return error_;
    return std::move(plan_);
  }

 private:
  bool Has(const std::string& name) const {
    const auto found = environment_.find(name);
    return found != environment_.end() && !found->second.empty();
  }

  std::string Text(const std::string& name) const { return Has(name) ? environment_.at(name) : ""; }

  int Number(const std::string& name) {
    int value = 0;
    if (!absl::SimpleAtoi(Text(name), &value) || value < 0) {
      Fail(absl::StrCat(name, "=", Text(name), " isn't a number"));
    }
    return value;
  }

  void Fail(absl::string_view what) {
    if (error_.ok()) error_ = Bad(what);
  }

  // A process that torchrun, or the launcher of this program, has started.
  absl::StatusOr<LaunchPlan> ReadRank() {
    plan_.source = Has("TORCHELASTIC_RUN_ID") ? "torchrun" : "RANK and LOCAL_RANK";
    plan_.local_rank = Number("LOCAL_RANK");
    plan_.world_size = Number("WORLD_SIZE");
    plan_.processes_per_node = Has("LOCAL_WORLD_SIZE") ? Number("LOCAL_WORLD_SIZE") : 1;
    plan_.first_rank = Number("RANK") - *plan_.local_rank;
    plan_.nodes = plan_.world_size / std::max(1, plan_.processes_per_node);
    plan_.node_rank = Has("GROUP_RANK") ? Number("GROUP_RANK")
                                        : plan_.first_rank / std::max(1, plan_.processes_per_node);
    ReadMaster();
    if (Text("TORCHELASTIC_USE_AGENT_STORE") == "True") {
      plan_.notes.push_back(absl::StrCat("torchrun listens on MASTER_PORT ", plan_.store.port,
                                         ": the rendezvous uses the next one"));
      ++plan_.store.port;
    }
    if (Number("RANK") >= plan_.world_size) {
      Fail(
          absl::StrCat("RANK=", Text("RANK"), " doesn't exist in WORLD_SIZE=", Text("WORLD_SIZE")));
    }
    if (!error_.ok()) return error_;
    return std::move(plan_);
  }

  void ReadNodes() {
    if (Has("PET_RDZV_ENDPOINT") && !Has("PET_NODE_RANK")) return ReadElastic();
    if (Has("PET_NNODES")) return ReadPet();
    if (Has("JOB_COMPLETION_INDEX")) return ReadIndexedJob();
    if (Has("RANK")) return ReadPodRank();
    plan_.source = "this machine alone";
  }

  // TrainJob, and PyTorchJob with a Master.
  void ReadPet() {
    plan_.source = Has("RANK") ? "PyTorchJob" : "TrainJob";
    plan_.nodes = LargestNodeCount();
    if (Has("PET_NODE_RANK")) {
      plan_.node_rank = Number("PET_NODE_RANK");
    } else if (Has("JOB_COMPLETION_INDEX")) {
      plan_.node_rank = JobOfJobSet().value_or(Number("JOB_COMPLETION_INDEX"));
    } else if (Has("RANK")) {
      plan_.node_rank = Number("RANK");
    } else if (plan_.nodes > 1 && !overrides_.node_rank.has_value()) {
      Fail(absl::StrCat("PET_NNODES=", Text("PET_NNODES"),
                        " without PET_NODE_RANK: set it, or --node-rank"));
    }
  }

  // Elastic PyTorchJob tells a pod its peers' rendezvous, but not which one it is.
  void ReadElastic() {
    plan_.source = "elastic PyTorchJob";
    plan_.nodes = Has("PET_NNODES") ? LargestNodeCount() : 1;
    const std::optional<int> index = HostIndex();
    if (index.has_value()) {
      plan_.node_rank = *index;
      plan_.notes.push_back(
          absl::StrCat("node rank ", *index, " from the host name ", ShortName()));
    } else if (plan_.nodes > 1 && !overrides_.node_rank.has_value()) {
      Fail(absl::StrCat("the host name ", host_.name,
                        " doesn't end with the pod's number: set --node-rank"));
    }
  }

  void ReadIndexedJob() {
    plan_.source = "JobSet or Indexed Job";
    plan_.node_rank = Number("JOB_COMPLETION_INDEX");
    if (const std::optional<int> job = JobOfJobSet()) {
      plan_.source = "JobSet of single-pod Jobs";
      plan_.node_rank = *job;
      plan_.notes.push_back(absl::StrCat("node rank ", *job, " from the host name ", ShortName()));
    }
    if (overrides_.nodes.has_value()) return;
    if (Has("NNODES")) {
      plan_.nodes = Number("NNODES");
    } else if (Has("WORLD_SIZE")) {
      plan_.nodes = Number("WORLD_SIZE");
      plan_.notes.push_back(absl::StrCat("WORLD_SIZE=", plan_.nodes, " counts pods"));
    } else {
      Fail(
          "JOB_COMPLETION_INDEX is set, but not how many pods there are: set NNODES to the job's "
          "completions, or --nodes");
    }
  }

  // PyTorchJob without nprocPerNode, or a manifest in its manner: RANK is the pod's number.
  void ReadPodRank() {
    plan_.source = "RANK and WORLD_SIZE";
    plan_.node_rank = Number("RANK");
    plan_.nodes = Has("WORLD_SIZE") ? Number("WORLD_SIZE") : 1;
  }

  // "2" or "2:4": a gang starts whole, so the upper bound.
  int LargestNodeCount() {
    const std::string text = Text("PET_NNODES");
    const std::vector<std::string> bounds = absl::StrSplit(text, ':');
    int nodes = 0;
    if (bounds.size() > 2 || !absl::SimpleAtoi(bounds.back(), &nodes) || nodes < 1) {
      Fail(absl::StrCat("PET_NNODES=", text, " is neither a number nor min:max"));
    }
    if (bounds.size() == 2 && bounds[0] != bounds[1]) {
      plan_.notes.push_back(absl::StrCat("PET_NNODES=", text, ": waiting for all ", nodes));
    }
    return nodes;
  }

  void ReadProcesses() {
    const std::string asked = Text("PET_NPROC_PER_NODE");
    plan_.processes_per_node = std::max(1, host_.devices);
    if (asked.empty() || asked == "auto" || asked == "gpu") return;
    if (asked == "cpu") {
      plan_.processes_per_node = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
      return;
    }
    const int count = Number("PET_NPROC_PER_NODE");
    if (host_.devices > 0 && count > host_.devices) {
      plan_.notes.push_back(absl::StrCat("PET_NPROC_PER_NODE=", count, ", but ", host_.devices,
                                         " devices are visible: one process for each of these"));
      return;
    }
    if (count < host_.devices) {
      plan_.notes.push_back(absl::StrCat(host_.devices,
                                         " devices are visible, and "
                                         "PET_NPROC_PER_NODE=",
                                         count, " uses fewer"));
    }
    plan_.processes_per_node = count;
  }

  void ReadMaster() {
    plan_.store.port = kDefaultPort;
    for (const char* name : {"PET_MASTER_PORT", "MASTER_PORT"}) {
      if (Has(name)) SetPort(name, Number(name));
    }
    for (const char* name : {"PET_MASTER_ADDR", "MASTER_ADDR"}) {
      if (Has(name)) plan_.store.host = Text(name);
    }
    if (plan_.store.host.empty() && Has("PET_RDZV_ENDPOINT")) ReadRendezvousEndpoint();
    if (plan_.store.host.empty() && Has("JOB_COMPLETION_INDEX") && plan_.nodes > 1) {
      plan_.store.host = FirstPodsName();
    }
    if (plan_.store.host.empty() && plan_.nodes == 1) plan_.store.host = "127.0.0.1";
  }

  void ReadRendezvousEndpoint() {
    const std::string text = Text("PET_RDZV_ENDPOINT");
    const size_t colon = text.rfind(':');
    const bool has_port = colon != std::string::npos &&
                          text.find(']', colon) == std::string::npos &&
                          (text.find(':') == colon || text[0] == '[');
    std::string host = has_port ? text.substr(0, colon) : text;
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    plan_.store.host = host;
    int port = 0;
    if (!has_port) return;
    if (!absl::SimpleAtoi(text.substr(colon + 1), &port)) port = -1;
    SetPort("PET_RDZV_ENDPOINT", port);
  }

  void SetPort(absl::string_view name, int port) {
    // The next one may be needed too.
    if (port < 1 || port > 65534) {
      return Fail(absl::StrCat(name, ": ", port, " isn't a port"));
    }
    plan_.store.port = static_cast<uint16_t>(port);
  }

  std::string ShortName() const { return host_.name.substr(0, host_.name.find('.')); }

  // Of "job-worker-3": 3.
  std::optional<int> HostIndex() const {
    const std::string name = ShortName();
    int index = 0;
    const size_t dash = name.rfind('-');
    if (dash == std::string::npos || !absl::SimpleAtoi(name.substr(dash + 1), &index)) {
      return std::nullopt;
    }
    return index;
  }

  // Every pod of a JobSet whose Jobs have one pod each has the index 0 in its Job; which Job it is
  // stands in its host name, JOBSET-NAME-JOB-0.JOBSET. Nothing for other pods, and for the first
  // Job's, whose rank is its index.
  std::optional<int> JobOfJobSet() {
    const std::vector<std::string> labels = absl::StrSplit(host_.name, '.');
    if (labels.size() < 2 || Number("JOB_COMPLETION_INDEX") != 0 || HostIndex() != 0) {
      return std::nullopt;
    }
    std::vector<std::string> words = absl::StrSplit(labels[0], '-');
    const std::vector<std::string> set = absl::StrSplit(labels[1], '-');
    int job = 0;
    if (words.size() < set.size() + 3 || !std::equal(set.begin(), set.end(), words.begin()) ||
        !absl::SimpleAtoi(words[words.size() - 2], &job) || job == 0) {
      return std::nullopt;
    }
    return job;
  }

  // Pods of an Indexed Job are named job-0, job-1, ...; those of a JobSet js-workers-0-0, ...
  std::string FirstPodsName() {
    if (!HostIndex().has_value() || host_.name.find('.') == std::string::npos) {
      Fail(absl::StrCat("the host name ", host_.name,
                        " doesn't tell the first pod's: set MASTER_ADDR to it"));
      return "";
    }
    const std::string name = ShortName();
    std::string pod = name.substr(0, name.rfind('-'));
    if (JobOfJobSet().has_value()) pod = absl::StrCat(pod.substr(0, pod.rfind('-')), "-0");
    const std::string first = absl::StrCat(pod, "-0", host_.name.substr(name.size()));
    plan_.notes.push_back(absl::StrCat("rank 0 is expected at ", first));
    return first;
  }

  void Override() {
    if (overrides_.nodes.has_value()) plan_.nodes = *overrides_.nodes;
    if (overrides_.node_rank.has_value()) plan_.node_rank = *overrides_.node_rank;
    if (overrides_.processes_per_node.has_value()) {
      plan_.processes_per_node = *overrides_.processes_per_node;
    }
    if (overrides_.master_address.has_value()) plan_.store.host = *overrides_.master_address;
    if (overrides_.master_port.has_value()) SetPort("--master-port", *overrides_.master_port);
  }

  void CompareWorldSize() {
    if (!Has("WORLD_SIZE")) return;
    const int said = Number("WORLD_SIZE");
    if (said == plan_.world_size) return;
    plan_.notes.push_back(absl::StrCat(
        "WORLD_SIZE=", said, ", but ", plan_.nodes, " nodes with ", plan_.processes_per_node,
        " processes each are ", plan_.world_size, " ranks: going on with ", plan_.world_size));
  }

  void Check() {
    if (plan_.nodes < 1 || plan_.processes_per_node < 1) {
      Fail(absl::StrCat(plan_.nodes, " nodes with ", plan_.processes_per_node,
                        " processes each are no job"));
    }
    if (plan_.node_rank < 0 || plan_.node_rank >= plan_.nodes) {
      Fail(absl::StrCat("node rank ", plan_.node_rank, " doesn't exist among ", plan_.nodes,
                        " nodes (", plan_.source, ")"));
    }
    if (plan_.store.host.empty()) {
      Fail(absl::StrCat(plan_.nodes,
                        " nodes and no MASTER_ADDR: set it to rank 0's pod, or "
                        "--master-address"));
    }
  }

  const Environment& environment_;
  const Host& host_;
  const LaunchOverrides& overrides_;
  LaunchPlan plan_;
  absl::Status error_;
};

}  // namespace

absl::StatusOr<LaunchPlan> ReadLaunch(const Environment& environment, const Host& host,
                                      const LaunchOverrides& overrides) {
  return Reader(environment, host, overrides).Read();
}

Environment RankEnvironment(const LaunchPlan& plan, int local_rank) {
  return {{"LOCAL_RANK", absl::StrCat(local_rank)},
          {"RANK", absl::StrCat(plan.first_rank + local_rank)},
          {"LOCAL_WORLD_SIZE", absl::StrCat(plan.processes_per_node)},
          {"WORLD_SIZE", absl::StrCat(plan.world_size)},
          {"GROUP_RANK", absl::StrCat(plan.node_rank)},
          {"MASTER_ADDR", plan.store.host},
          {"MASTER_PORT", absl::StrCat(plan.store.port)}};
}

Environment CurrentEnvironment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::pair<std::string, std::string> variable =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    environment.insert(variable);
  }
  return environment;
}

}  // namespace muster::worker
