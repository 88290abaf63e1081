#include "kube/objects/topology_asked.h"

#include <algorithm>
#include <array>

#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::kube {
namespace {

// Where an EC2 instance hangs in the network, from 1, the top, down to 3 or 4, depending on its
// type.
constexpr char kNetworkLayerPrefix[] = "topology.k8s.aws/network-node-layer-";
constexpr int kMostNetworkLayers = 8;
// Nodes whose GPUs one NVLink fabric joins.
constexpr char kGpuCliqueLabel[] = "nvidia.com/gpu.clique";

constexpr std::array kTopologies = {kRequiredTopology, kPreferredTopology, kUnconstrainedTopology};

struct Said {
  std::string_view annotation;
  std::string value;
  std::string by;
};

}  // namespace

TopologyAsked TopologyOf(const std::vector<TopologyAsker>& askers) {
  TopologyAsked asked;
  Said said;
  bool efa = false;
  for (const TopologyAsker& asker : askers) {
    efa |= asker.requests != nullptr && asker.requests->Get(kEfa) > 0;
    for (std::string_view annotation : kTopologies) {
      const auto found = asker.annotations->find(annotation);
      if (found == asker.annotations->end()) continue;
      const std::string& value = found->second;
      if (annotation == kUnconstrainedTopology && value == "false") continue;
      if (value.empty() || (annotation == kUnconstrainedTopology && value != "true")) {
        asked.error = fmt::format("annotation {} of {} is \"{}\", and must be {}", annotation,
                                  asker.name, value,
                                  annotation == kUnconstrainedTopology ? "\"true\" or \"false\""
                                                                       : "the label of a level");
        return asked;
      }
      if (said.annotation.empty()) {
        said = {annotation, value, std::string(asker.name)};
      } else if (said.annotation != annotation) {
        asked.error = fmt::format("annotations {} of {} and {} of {} exclude each other",
                                  said.annotation, said.by, annotation, asker.name);
        return asked;
      } else if (said.value != value) {
        asked.error = fmt::format(
            "annotation {} of {} is {}, of {} {}, though they start as one "
            "gang, which has one place",
            annotation, said.by, said.value, asker.name, value);
        return asked;
      }
    }
  }
  asked.annotation = said.annotation;
  if (said.annotation == kRequiredTopology) {
    asked.required = said.value;
    asked.because = fmt::format("annotation {}", kRequiredTopology);
    return asked;
  }
  if (said.annotation == kPreferredTopology) asked.preferred = said.value;
  if (efa && said.annotation != kUnconstrainedTopology) {
    asked.required = kZoneLabel;
    asked.because = kEfa;
  }
  return asked;
}

const std::string& LevelOf(const TopologyAsked& asked) {
  static const std::string kNone;
  if (asked.annotation == kRequiredTopology) return asked.required;
  return asked.annotation == kPreferredTopology ? asked.preferred : kNone;
}

const std::vector<std::string>& UsualLevels() {
  static const auto* const kLevels = [] {
    auto* levels = new std::vector<std::string>{kRegionLabel, kZoneLabel};
    for (int layer = 1; layer <= kMostNetworkLayers; ++layer) {
      levels->push_back(fmt::format("{}{}", kNetworkLayerPrefix, layer));
    }
    levels->push_back(kGpuCliqueLabel);
    return levels;
  }();
  return *kLevels;
}

std::string WhyNoLevelOf(const TopologyAsked& asked) {
  const std::string& label = LevelOf(asked);
  if (label.empty() || label == kHostnameLabel || std::ranges::count(UsualLevels(), label) > 0) {
    return "";
  }
  return fmt::format(
      "annotation {} names {}, which is no level that is known: those are {}, {}, "
      "{}1 to {}, {} and {}",
      asked.annotation, label, kRegionLabel, kZoneLabel, kNetworkLayerPrefix, kMostNetworkLayers,
      kGpuCliqueLabel, kHostnameLabel);
}

}  // namespace muster::kube
