// The engine's options as people write them: the one reading for the service's configuration and
// for scenarios.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "absl/status/status.h"
#include "coscheduling/engine_options.h"
#include "yaml/fields.h"

namespace muster::yaml {

// `quota` (internal, kueue, off) and what else concerns it, beside the engine's tunables.
void ReadQuotaOptions(Fields* fields, coscheduling::EngineOptions* options);

// The same of a whole configuration of the service, whatever else it says; "line N: ...".
absl::Status ReadQuotaOptions(const std::string& configuration,
                              coscheduling::EngineOptions* options);

// The engine's tunables: mapping `options` of a scenario, `engine` of the service's configuration.
void ReadEngineOptions(const YAML::Node& node, coscheduling::EngineOptions* options);

}  // namespace muster::yaml
