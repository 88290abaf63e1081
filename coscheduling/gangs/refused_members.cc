// Members that don't exist because the API server refuses them (kube/objects/pod_refusal.h): whose
// they would be, why, and what can be done.

#include <algorithm>
#include <tuple>
#include <utility>

#include "coscheduling/gangs/gangs.h"
#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

// Both are told in whole seconds.
constexpr absl::Duration kClockStep = absl::Seconds(1);

}  // namespace

void Gangs::RefusalsChanged(const std::vector<kube::NamespacedUid>& owners) {
  for (const kube::NamespacedUid& owner : owners) {
    for (const kube::NamespacedUid& each : jobs_.known().WholeFamily(owner)) {
      const auto pods = pods_of_owner_.find(each);
      if (pods == pods_of_owner_.end()) continue;
      for (const std::string& pod : pods->second) {
        const auto gang = gang_of_pod_.find(pod);
        if (gang != gang_of_pod_.end()) agenda_->Note(gang->second->id);
      }
    }
  }
}

Reason Gangs::WithRefusals(const Gang& gang, const std::string& exist, Reason missing) const {
  if (refusals_.size() == 0) return missing;
  std::vector<const kube::Pod*> pods;
  std::map<kube::NamespacedUid, absl::Time> last_made;  // by the owner
  for (const kube::Pod* pod : PodsOf(gang)) {
    if (pod->meta.Controller() == nullptr) continue;
    pods.push_back(pod);
    absl::Time& last =
        last_made.try_emplace(pod->meta.ControllerUid(), absl::InfinitePast()).first->second;
    last = std::max(last, pod->meta.creation_time);
  }
  std::vector<const kube::PodRefusal*> refused;
  for (const kube::NamespacedUid& maker : jobs_.MakersOf(pods)) {
    const kube::PodRefusal* refusal = refusals_.Find(maker);
    if (refusal == nullptr) continue;
    // It is over once pods were made after it.
    const auto made = last_made.find(maker);
    if (made != last_made.end() && made->second > refusal->last + kClockStep) continue;
    refused.push_back(refusal);
  }
  if (refused.empty()) return missing;
  const kube::PodRefusal& first =
      **std::ranges::min_element(refused, {}, [](const kube::PodRefusal* refusal) {
        return std::tie(refusal->owner.kind, refusal->owner.name);
      });
  const std::string others =
      refused.size() == 1 ? "" : fmt::format(", and of {} more,", refused.size() - 1);
  return {v1::PODS_REFUSED,
          fmt::format("{}; pods of {} {}/{}{} are refused: {}", exist, first.owner.kind,
                      first.owner.name_space, first.owner.name, others, first.why),
          kube::FixFor(first)};
}

}  // namespace muster::coscheduling
