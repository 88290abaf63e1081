#include "quota/workload.h"

#include <algorithm>

#include "quota/amount.h"

namespace muster::quota {
namespace {

const PodSetAssignment* FindIn(const std::vector<PodSetAssignment>& sets, std::string_view name) {
  const auto it = std::ranges::find(sets, name, &PodSetAssignment::name);
  return it == sets.end() ? nullptr : &*it;
}

int64_t CountIn(const std::vector<PodSetAssignment>& sets, std::string_view name) {
  const PodSetAssignment* given = FindIn(sets, name);
  return given == nullptr ? 0 : given->count;
}

}  // namespace

PodSetAssignment PodSetAssignment::ReducedTo(int64_t fewer) const {
  PodSetAssignment reduced = {name, fewer, flavors, {}};
  for (const auto& [resource, amount] : usage.entries()) {
    reduced.usage.Set(resource, amount / count * fewer);
  }
  return reduced;
}

kube::ResourceList PodSetAssignment::LackingFor(const kube::ResourceList& counted) const {
  kube::ResourceList lacking;
  for (const auto& [resource, amount] : counted.entries()) {
    if (resource == kube::kPods && !flavors.contains(resource)) continue;
    const int64_t less = count <= 0 ? amount : amount - usage.Get(resource) / count;
    if (less > 0) lacking.Set(resource, less);
  }
  return lacking;
}

bool PodSetAssignment::PaysFor(const kube::PodSpec& pod, const ResourceRules& rules) const {
  const auto pays = [this](const auto& request) {
    const auto& [resource, amount] = request;
    return usage.Get(resource) / count >= amount ||
           (resource == kube::kPods && !flavors.contains(resource));
  };
  if (count <= 0) return false;
  if (rules.empty()) return std::ranges::all_of(pod.requests.entries(), pays);
  const kube::ResourceList counted = rules.Count(pod.requests);
  return std::ranges::all_of(counted.entries(), pays);
}

const PodSetAssignment* Admission::Find(std::string_view pod_set) const {
  const PodSetAssignment* given = FindIn(pod_sets, pod_set);
  if (given != nullptr && given->count > 0) return given;
  const PodSetAssignment* more = FindIn(surplus, pod_set);
  return more != nullptr ? more : given;
}

void AddSurplus(std::vector<PodSetAssignment>& surplus,
                const std::vector<PodSetAssignment>& granted) {
  for (const PodSetAssignment& more : granted) {
    auto it = std::find_if(surplus.begin(), surplus.end(), [&](const PodSetAssignment& each) {
      return each.name == more.name && each.flavors == more.flavors;
    });
    if (it == surplus.end()) {
      surplus.insert(std::ranges::upper_bound(surplus, more.name, {}, &PodSetAssignment::name),
                     more);
      continue;
    }
    it->count += more.count;
    for (const auto& [resource, amount] : more.usage.entries()) {
      it->usage.Set(resource, Saturate(Amount(it->usage.Get(resource)) + Amount(amount)));
    }
  }
}

int64_t Admission::CountedAsNeeded(std::string_view pod_set) const {
  return CountIn(pod_sets, pod_set);
}

int64_t Admission::Counted(std::string_view pod_set) const {
  return CountIn(pod_sets, pod_set) + CountIn(surplus, pod_set);
}

bool Admission::Covers(const Workload& workload, const ResourceRules& rules) const {
  return std::ranges::all_of(workload.pod_sets, [&](const PodSet& set) {
    return set.count <= Counted(set.name) && Find(set.name)->PaysFor(*set.spec, rules);
  });
}

}  // namespace muster::quota
