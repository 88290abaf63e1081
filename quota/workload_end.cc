#include "quota/workload_end.h"

#include <vector>

namespace muster::quota {
namespace {

// Reasons of Kueue v0.19.2, apis/kueue/v1beta2/workload_types.go.
constexpr std::string_view kSucceeded = "Succeeded";
constexpr std::string_view kFailed = "Failed";
constexpr std::string_view kOwnerNotFound = "OwnerNotFound";

}  // namespace

void WorkloadEnds::Note(const kube::Pod& pod) {
  ended_[pod.meta.uid] = {pod.meta.name_space, pod.phase == kube::PodPhase::kSucceeded};
}

std::optional<std::string_view> WorkloadEnds::EndOf(
    const kube::Workload& workload, const kube::AnyJob* job,
    const std::function<bool(const std::string& uid)>& stands) const {
  if (job != nullptr && job->name_space == workload.meta.name_space) {
    if (!job->finished) return std::nullopt;
    return job->failed ? kFailed : kSucceeded;
  }
  const bool going = workload.meta.deletion_time.has_value();
  const kube::OwnerReference* owner = workload.meta.Controller();
  std::vector<std::string> pods = workload.members;
  if (owner != nullptr && owner->kind == "Pod") pods = {owner->uid};
  if (pods.empty()) {
    // Of a kind that isn't read only the garbage collector tells that it is gone.
    const bool is_read = owner != nullptr && kube::IsAnyJob(*owner);
    return is_read || going ? std::optional(kOwnerNotFound) : std::nullopt;
  }
  std::string_view end = kSucceeded;
  for (const std::string& uid : pods) {
    const auto ended = ended_.find(uid);
    if (ended != ended_.end() && ended->second.name_space == workload.meta.name_space) {
      if (!ended->second.succeeded && end == kSucceeded) end = kFailed;
      continue;
    }
    // One that nobody has placed yet isn't known; what is gone takes its Workload with it.
    if (!going || stands(uid)) return std::nullopt;
    end = kOwnerNotFound;
  }
  return end;
}

}  // namespace muster::quota
