// Making all members of a gang anew through the job that makes them: it is suspended, waited for
// until none of its pods is left, and resumed. No controller counts a pod that goes this way as
// failed.
//
// The patch that suspends carries annotation muster.dev/restart, and the one that resumes takes it
// off, so whoever leads knows from the job alone what is to be done with it, whatever crashed or
// was deleted meanwhile. A job that is suspended without the annotation is its user's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "kube/objects/any_job.h"
#include "kube/objects/pod.h"

namespace muster::kube {

// On a job that Muster has suspended and will resume.
inline constexpr std::string_view kRestartAnnotation = "muster.dev/restart";
// On a PodGroup, a job or a member: "restart" (as if it were absent), or "never".
inline constexpr std::string_view kFallbackAnnotation = "muster.dev/fallback";
// On a job that was restarted for another flavor: what its gang had tried, for where the admission
// record went with the pods or with the PodGroup.
inline constexpr std::string_view kTriedAnnotation = "muster.dev/flavors-tried";

// Annotation muster.dev/restart, JSON.
struct RestartMark {
  absl::Time at;
  std::string why;
  int64_t generation = 0;  // of the job once it was suspended
};
std::string EncodeMark(const RestartMark& mark);
// One that can't be read says nothing, but is there.
RestartMark DecodeMark(std::string_view text);

// Annotation muster.dev/flavors-tried, JSON.
struct TriedFlavors {
  using Until = std::map<std::string, absl::Time>;
  int64_t attempt = 1;  // the last one that failed
  Until flavors;        // as AdmissionRecord::flavors_tried
};
std::string EncodeTried(const TriedFlavors& tried);
std::optional<TriedFlavors> DecodeTried(std::string_view text);

enum class RestartStep {
  kWait,    // some of its pods are left
  kResume,  // and take the mark off
  kLeave,   // only take the mark off: its user decides
};

// A pod of the job keeps it from being resumed. What a PyTorchJob, an MPIJob or a RayCluster makes
// itself must all be gone, because it is made again under the same names; a Job keeps those that
// have ended.
bool IsLeftOf(const AnyJob& job, const Pod& pod);

// What is to be done next with a job that carries the mark. It is its user's again once it isn't
// suspended any more, and also if it is suspended although its spec has changed at least twice
// since: resumed and suspended again, as nobody else does it. A user who suspends what is suspended
// already changes nothing that could be seen, and takes the annotation off instead.
RestartStep NextRestartStep(const AnyJob& job, int64_t pods_left);

// "" if the value lets a gang fall back to another flavor, else why not. Empty: it isn't set.
std::string WhyFallbackIsOff(std::string_view annotation);

}  // namespace muster::kube
