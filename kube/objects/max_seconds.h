// Label kueue.x-k8s.io/max-exec-time-seconds: for how long a job may run (sigs.k8s.io/kueue v0.19.2
// pkg/controller/jobframework/utils.go:192, and what its webhook refuses, validation.go:235).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster::kube {

inline constexpr std::string_view kMaxSecondsLabel = "kueue.x-k8s.io/max-exec-time-seconds";

// nullopt if the label's value says no time.
std::optional<int64_t> MaxSecondsOf(const std::string& value);
// What is wrong with such a value.
std::string BadMaxSeconds(const std::string& value);

}  // namespace muster::kube
