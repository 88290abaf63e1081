#include "kube/objects/topology_asked.h"

#include <array>

#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::kube {
namespace {

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

}  // namespace muster::kube
