// What nodes of tests have and their pods ask for.
#pragma once

#include <nlohmann/json.hpp>

namespace muster::kube::simulators {

inline const nlohmann::json kNode = {
    {"cpu", "8"}, {"memory", "32Gi"}, {"pods", "58"}, {"nvidia.com/gpu", "1"}};
inline const nlohmann::json kOneGpu = {{"nvidia.com/gpu", "1"}};

}  // namespace muster::kube::simulators
