// The texts in a table's cells, as kubectl shows them (k8s.io/kubernetes/pkg/printers v1.34).
#pragma once

#include <string>

#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

// "45s", "5m12s", "3h", "2d4h"; "<unknown>" for what isn't a time.
std::string AgeText(const std::string& timestamp, absl::Time now);

std::string PodStatusText(const nlohmann::json& pod);    // "Running", "SchedulingGated", ...
std::string ReadyContainers(const nlohmann::json& pod);  // "1/2"
int64_t Restarts(const nlohmann::json& pod);
std::string NodeStatusText(const nlohmann::json& node);  // "Ready,SchedulingDisabled"
std::string DeviceText(const nlohmann::json& node);      // GPUs: "7/8" of allocatable and capacity
std::string EventTime(const nlohmann::json& event);      // when it was last seen

// The first value at a CRD column's path: ".status.conditions[?(@.type==\"Ready\")].status",
// ".metadata.labels.karpenter\.sh/nodepool", ".spec.list[0]". null if there is none.
nlohmann::json JsonPathValue(const nlohmann::json& object, const std::string& path);

}  // namespace muster::kube::embedded
