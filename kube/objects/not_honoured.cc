#include "kube/objects/not_honoured.h"

#include <array>

#include "fmt/format.h"

namespace muster::kube {
namespace {

constexpr std::string_view kPlace = "pods aren't placed in slices";
constexpr std::string_view kPlaceFix =
    "require one level for all pods (kueue.x-k8s.io/podset-required-topology), or make each slice "
    "a gang of its own";

// What must hold first.
constexpr std::array<NotHonoured, 5> kAll = {
    {{"kueue.x-k8s.io/podset-slice-required-topology", false, true, kPlace, kPlaceFix},
     {"kueue.x-k8s.io/podset-slice-required-topology-constraints", false, true, kPlace, kPlaceFix},
     {"kueue.x-k8s.io/podset-group-name", false, false,
      "all pod sets of a gang are placed together, whatever their groups", "remove it"},
     {"kueue.x-k8s.io/job-min-parallelism", true, false,
      "the job starts with all its pods, or waits", "remove it, or lower spec.parallelism"},
     {"kueue.x-k8s.io/elastic-job", true, false,
      "pods that are added to a job count as they come, and none is held back for the others",
      "remove it"}}};

bool Asks(const StringMap& annotations, const NotHonoured& for_it) {
  const auto asked = annotations.find(for_it.annotation);
  return asked != annotations.end() && for_it.IsAskedBy(asked->second);
}

}  // namespace

std::string NotHonoured::ToString() const {
  return fmt::format("annotation {} isn't obeyed: {}", annotation, meaning);
}

std::span<const NotHonoured> AllNotHonoured() { return kAll; }

const NotHonoured* FindNotHonoured(const std::vector<const Pod*>& pods, const AnyJob* job) {
  for (const NotHonoured& each : kAll) {
    if (each.of_job && job != nullptr && Asks(job->annotations, each)) return &each;
    if (each.of_job) continue;
    for (const Pod* pod : pods) {
      if (Asks(pod->meta.annotations, each)) return &each;
    }
  }
  return nullptr;
}

}  // namespace muster::kube
