// Devices that a container sets itself up for, and what it needs beside those that it asks for.
#include <algorithm>
#include <string>

#include "fmt/format.h"
#include "lint/pool_fit.h"
#include "lint/rules.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

using yaml::YamlValue;

void CheckSharedMemory(const LintGang& gang, const PodTemplate& pods, Findings* findings) {
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

std::string EnvironmentOf(const LintGang& gang, const Container& container,
                          const LocatedText& value, std::string_view name) {
  return fmt::format("container {} of {} has {}={}", container.name, gang.Name(), name,
                     value.value);
}

// The runtime gives what the variable names, without asking who else has it.
void CheckVisibleGpus(const LintGang& gang, const PodTemplate& pods, const Container& container,
                      Findings* findings) {
  constexpr std::string_view kName = "NVIDIA_VISIBLE_DEVICES";
  const auto visible = container.env.find(kName);
  if (visible == container.env.end() || pods.WantsDevices() || pods.incomplete) return;
  for (const std::string_view none : {"", "void", "none"}) {
    if (visible->second.value == none) return;
  }
  const auto shares = [](const auto& each) { return each.first.starts_with("nvidia.com/"); };
  const auto claims = [](const YamlValue& layer) { return layer.Get("resourceClaims").present(); };
  if (std::ranges::any_of(container.limits, shares) || std::ranges::any_of(pods.layers, claims)) {
    return;
  }
  findings->Add("device-not-asked", pods.file, visible->second.line,
                fmt::format("{} and asks for no GPU: it is counted nowhere, and whoever else is on "
                            "its node has the same GPUs",
                            EnvironmentOf(gang, container, visible->second, kName)),
                fmt::format("ask for {} in limits, and remove {}", kGpu, kName),
                "limits:\n  nvidia.com/gpu: 1\n");
}

void CheckProvider(const LintGang& gang, const PodTemplate& pods, const Container& container,
                   const Surroundings& around, Findings* findings) {
  constexpr std::string_view kName = "FI_PROVIDER";
  const auto provider = container.env.find(kName);
  if (provider == container.env.end() || provider->second.value != "efa" || pods.incomplete ||
      !container.Asks(kGpu).present() || pods.Asks(kEfa).present()) {
    return;
  }
  int64_t devices = 0;
  for (const NodePool* pool : around.pools.For(pods)) {
    for (const cluster::InstanceType* type :
         TypesOf(pool, pods.node_selector, around.types).known) {
      devices = std::max(devices, cluster::AmountOf(*type, kEfa));
    }
  }
  findings->Add("device-not-asked", pods.file, provider->second.line,
                fmt::format("{} and asks for no {}: there is no EFA device in it",
                            EnvironmentOf(gang, container, provider->second, kName), kEfa),
                devices > 0 ? fmt::format("ask for {}: {} in limits", kEfa, devices)
                            : fmt::format("ask for {} in limits, or remove {}", kEfa, kName),
                devices > 0 ? fmt::format("limits:\n  {}: {}\n", kEfa, devices) : "");
}

}  // namespace

void CheckDeviceSetup(const LintGang& gang, const Surroundings& around, Findings* findings) {
  for (const PodTemplate* pods : gang.templates) {
    CheckSharedMemory(gang, *pods, findings);
    for (const Container& container : pods->containers) {
      CheckVisibleGpus(gang, *pods, container, findings);
      CheckProvider(gang, *pods, container, around, findings);
    }
  }
}

}  // namespace muster::lint
