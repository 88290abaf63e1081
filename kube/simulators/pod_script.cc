#include "kube/simulators/pod_script.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "absl/status/status.h"

namespace muster::kube::simulators {
namespace {

constexpr std::string_view kRunTime = "muster.dev/simulated-run-time";
constexpr std::string_view kTermination = "muster.dev/simulated-termination";
constexpr std::string_view kExit = "muster.dev/simulated-exit";
constexpr int kMaxExitCode = 255;

absl::Status Invalid(std::string_view annotation, const std::string& value, std::string_view want) {
  return absl::InvalidArgumentError(
      fmt::format("annotation {} is \"{}\", want {}", annotation, value, want));
}

}  // namespace

absl::StatusOr<PodScript> PodScriptOf(const ObjectMeta& pod) {
  PodScript script;
  const std::string* run_time = pod.Annotation(kRunTime);
  if (run_time != nullptr) {
    if (!absl::ParseDuration(*run_time, &script.run_time) ||
        script.run_time < absl::ZeroDuration()) {
      return Invalid(kRunTime, *run_time, "a duration such as 1m30s");
    }
  }
  if (const std::string* termination = pod.Annotation(kTermination)) {
    absl::Duration takes;
    if (!absl::ParseDuration(*termination, &takes) || takes < absl::ZeroDuration()) {
      return Invalid(kTermination, *termination, "a duration such as 30s");
    }
    script.termination = takes;
  }
  const std::string* exit = pod.Annotation(kExit);
  if (exit == nullptr) return script;
  const char* end = exit->data() + exit->size();
  auto [rest, error] = std::from_chars(exit->data(), end, script.exit_code);
  bool valid = error == std::errc() && script.exit_code >= 0 && script.exit_code <= kMaxExitCode &&
               (rest == end || *rest == ':');
  if (!valid) return Invalid(kExit, *exit, "an exit code of 0 to 255, or CODE: MESSAGE");
  std::string_view message(rest, static_cast<size_t>(end - rest));
  message.remove_prefix(std::min(message.find_first_not_of(": "), message.size()));
  script.termination_message = message;
  if (run_time == nullptr) script.run_time = absl::ZeroDuration();
  return script;
}

}  // namespace muster::kube::simulators
