// What a container with EFA devices needs beside them.
#include <algorithm>
#include <string>

#include "lint/rules.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

void CheckEfaSetup(const LintGang& gang, const PodTemplate& pods, Findings* findings) {
  // KubeRay mounts a memory volume there by itself.
  const bool made_by_ray = gang.workload->kind.starts_with("Ray");
  for (const Container& container : pods.containers) {
    const LocatedCount efa = container.Asks(kEfa);
    if (!efa.present() || pods.incomplete) continue;
    // Neuron's collectives don't go through /dev/shm.
    const bool of_neuron = std::ranges::any_of(
        container.limits, [](const auto& each) { return each.first.starts_with(kNeuron); });
    if (made_by_ray || of_neuron) continue;
    if (container.shm_volume.empty() ||
        std::ranges::find(pods.memory_volumes, container.shm_volume) == pods.memory_volumes.end()) {
      findings->Add("efa-without-shm", pods.file, efa.line,
                    fmt::format("container {} of {} has {}, but {} at /dev/shm: what the runtime "
                                "gives is 64 MiB, too small for NCCL",
                                container.name, gang.Name(), Counted(efa.value, "EFA device"),
                                container.shm_volume.empty() ? "no volume" : "no memory volume"),
                    "mount a memory volume there",
                    "volumeMounts:\n  - name: shm\n    mountPath: /dev/shm\n"
                    "volumes:\n  - name: shm\n    emptyDir:\n      medium: Memory\n");
    }
  }
}

}  // namespace

void CheckEfaSetup(const LintGang& gang, Findings* findings) {
  for (const PodTemplate* pods : gang.templates) CheckEfaSetup(gang, *pods, findings);
}

}  // namespace muster::lint
