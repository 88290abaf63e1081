// Counts that torchrun is given against those that the job makes.
#include <algorithm>
#include <optional>
#include <string>

#include "lint/launch_command.h"
#include "lint/rules.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

struct Processes {
  std::optional<int64_t> count;  // none: as many as there are GPUs, or a variable
  int line = 0;
  std::string said;  // where it says so
};

// What the container's torchrun goes by: its option, then the environment, then its default.
Processes ProcessesOf(const TorchrunCall* call, const Container& container,
                      const PodTemplate& pods) {
  if (call != nullptr && call->processes_line > 0) {
    return {call->processes, call->processes_line, std::string(call->processes_said)};
  }
  for (const LocatedText& text : {pods.processes, [&]() -> LocatedText {
                                    const auto variable = container.env.find("PET_NPROC_PER_NODE");
                                    return variable == container.env.end() ? LocatedText()
                                                                           : variable->second;
                                  }()}) {
    int64_t count = 0;
    if (text.present()) {
      return {ParseInt(text.value, &count) ? std::optional(count) : std::nullopt, text.line,
              "the job sets the number of processes per pod to"};
    }
  }
  if (call == nullptr || pods.launcher_is_told) return {};
  return {1, call->line, "torchrun without --nproc_per_node starts"};
}

void CheckProcesses(const TorchrunCall* call, const Container& container, const PodTemplate& pods,
                    Findings* findings) {
  const int64_t gpus = container.Asks(kGpu).value;
  if (gpus == 0) return;
  const Processes processes = ProcessesOf(call, container, pods);
  if (!processes.count || *processes.count == gpus) return;
  findings->Add(
      "nproc-per-node-mismatch", pods.file, processes.line,
      fmt::format("{} {}, but the pod has {}: {}", processes.said, *processes.count,
                  Counted(gpus, "GPU"),
                  *processes.count > gpus ? "ranks would share a GPU" : "the others stay idle"),
      "start one process per GPU", Concat("--nproc_per_node=", gpus, "\n"));
}

void CheckNodes(const TorchrunCall& call, const PodTemplate& pods, const LintGang& gang,
                Findings* findings) {
  if (call.nodes_line == 0 || !call.min_nodes || !call.max_nodes) return;
  if (pods.incomplete && pods.pods_line == 0) return;
  // One pod of a plain Job may be one node of several Jobs' training.
  if (gang.pods == 1 && !pods.launcher_is_told) return;
  const auto fits = [&](int64_t count) {
    return *call.min_nodes <= count && count <= *call.max_nodes;
  };
  if (fits(gang.pods)) return;
  // Each replicated job of a JobSet, and each Job of it, may be a training of its own.
  if (gang.workload->kind == "JobSet" && (fits(pods.pods) || fits(pods.pods_per_job))) return;
  if (gang.least <= *call.max_nodes && *call.min_nodes <= gang.pods && gang.workload->elastic) {
    return;
  }
  findings->Add(
      "nnodes-mismatch", pods.file, call.nodes_line,
      fmt::format("{} is {}, but {} makes {}: {}", call.nodes_said,
                  *call.min_nodes == *call.max_nodes
                      ? Concat(*call.min_nodes)
                      : Concat(*call.min_nodes, ":", *call.max_nodes),
                  gang.Name(), Counted(gang.pods, "pod"),
                  *call.min_nodes > gang.pods ? "the rendezvous waits for nodes that never come"
                                              : "the rendezvous has no place for the others"),
      "give torchrun as many nodes as the job has pods", Concat("--nnodes=", gang.pods, "\n"));
}

}  // namespace

void CheckLaunch(const LintGang& gang, Findings* findings) {
  for (const PodTemplate* pods : gang.templates) {
    for (const Container& container : pods->containers) {
      const std::vector<TorchrunCall> calls = FindTorchrun(container);
      if (calls.empty()) CheckProcesses(nullptr, container, *pods, findings);
      for (const TorchrunCall& call : calls) {
        CheckProcesses(&call, container, *pods, findings);
        CheckNodes(call, *pods, gang, findings);
      }
    }
  }
}

}  // namespace muster::lint
