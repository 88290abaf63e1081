// Members that don't exist because the API server refuses them (kube/objects/pod_refusal.h): whose
// they would be, why, and what can be done.

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "coscheduling/gangs/gangs.h"
#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

// Both are told in whole seconds.
constexpr absl::Duration kClockStep = absl::Seconds(1);

std::string FixFor(const kube::PodRefusal& refusal) {
  const kube::ObjectReference& owner = refusal.owner;
  const std::string retry =
      fmt::format("its controller tries again within {} min", owner.kind == "Job" ? 1 : 17);
  const std::string_view quota = kube::RefusingQuota(refusal.why);
  if (quota.empty()) {
    return fmt::format("correct the pod template of {}, or what refuses its pods; {}", owner.kind,
                       retry);
  }
  if (absl::StartsWith(refusal.why, "failed")) {
    return fmt::format("let the pod template of {} say what ResourceQuota {}/{} counts; {}",
                       owner.kind, owner.name_space, quota, retry);
  }
  return fmt::format("raise ResourceQuota {}/{}, or end others that it counts; {}",
                     owner.name_space, quota, retry);
}

}  // namespace

void Gangs::RefusalsChanged(const std::vector<std::string>& owner_uids) {
  for (const std::string& owner : owner_uids) {
    for (const std::string& uid : jobs_.WholeFamily(owner)) {
      const auto pods = pods_of_owner_.find(uid);
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
  std::map<std::string, absl::Time> last_made;  // by the UID of the owner
  for (const std::string& uid : gang.pods) {
    const kube::Pod* pod = snapshot_.FindPod(uid);
    const kube::OwnerReference* owner = pod == nullptr ? nullptr : pod->meta.Controller();
    if (owner == nullptr) continue;
    pods.push_back(pod);
    absl::Time& last = last_made.try_emplace(owner->uid, absl::InfinitePast()).first->second;
    last = std::max(last, pod->meta.creation_time);
  }
  std::vector<const kube::PodRefusal*> refused;
  for (const std::string& maker : jobs_.MakersOf(pods)) {
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
          FixFor(first)};
}

}  // namespace muster::coscheduling
