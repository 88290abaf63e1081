#include "quota/job_start.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "kube/objects/decode.h"
#include "kube/objects/well_known.h"

namespace muster::quota {
namespace {

// That of a job that isn't suspended is read when it is needed, which is seldom. One that can't be
// read makes no pods.
kube::Pod PodOf(const kube::AnyJob::PodSet& set) {
  if (set.pod != nullptr) return *set.pod;
  kube::Pod pod = kube::Decode<kube::Pod>(set.pod_template).value_or(kube::Pod());
  if (pod.spec == nullptr) pod.spec = std::make_shared<const kube::PodSpec>();
  return pod;
}

}  // namespace

std::vector<kube::Pod> PodsOf(const kube::AnyJob& job) {
  std::vector<kube::Pod> pods;
  for (const kube::AnyJob::PodSet& set : job.pod_sets) {
    pods.push_back(PodOf(set));
    pods.back().meta.labels.insert_or_assign(kube::kPodSetLabel, set.name);
  }
  return pods;
}

std::string PriorityClassOf(const kube::AnyJob& job) {
  if (!job.priority_class.empty()) return job.priority_class;
  for (const kube::AnyJob::PodSet& set : job.pod_sets) {
    std::string named = PodOf(set).priority_class_name;
    if (!named.empty()) return named;
  }
  return "";
}

std::vector<PodSet> PodSetsOf(const kube::AnyJob& job) {
  const std::vector<kube::Pod> pods = PodsOf(job);
  std::vector<PodSet> sets;
  for (size_t i = 0; i < pods.size(); ++i) {
    sets.push_back({PodSetOf(pods[i]), job.pod_sets[i].count, pods[i].spec});
  }
  return sets;
}

std::vector<PodSet> WithOthersOf(const kube::AnyJob& job, std::vector<PodSet> asked) {
  const std::vector<PodSet> all = PodSetsOf(job);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto is_same = [&](const PodSet& set) {
      return IsOfRole(set.name, job.pod_sets[i].name);
    };
    if (std::ranges::none_of(asked, is_same)) asked.push_back(all[i]);
  }
  return asked;
}

std::vector<TemplateChange> WithFlavors(
    const kube::AnyJob& job, const kube::Workload& workload, const Admission& held,
    const std::function<const kube::ResourceFlavor*(std::string_view)>& find_flavor) {
  std::vector<TemplateChange> changes;
  const std::vector<kube::Pod> pods = PodsOf(job);
  for (size_t i = 0; i < pods.size(); ++i) {
    const kube::AnyJob::PodSet& set = job.pod_sets[i];
    const PodSetAssignment* given = held.Find(PodSetOf(pods[i]));
    if (given == nullptr) continue;
    std::vector<const kube::ResourceFlavor*> flavors;
    for (const std::string& name : FlavorNames(*given)) {
      if (const kube::ResourceFlavor* flavor = find_flavor(name)) flavors.push_back(flavor);
    }
    TemplateChange& change = changes.emplace_back();
    change.path = set.path;
    change.now = set.pod_template;
    change.added = FlavorsFor(pods[i], *given, workload.queue, flavors);
    change.added.annotations = {{kube::kWorkloadAnnotation, workload.meta.name}};
    change.added.labels = {{kube::kPodSetLabel, set.name}};
  }
  return changes;
}

std::vector<TemplateChange> WithoutFlavors(const kube::AnyJob& job,
                                           const kube::Workload& workload) {
  const bool tells = std::ranges::equal(workload.pod_sets, job.pod_sets, {},
                                        &kube::Workload::PodSet::name, &kube::AnyJob::PodSet::name);
  // Nor if it was written when they had been added.
  const bool marked = std::ranges::any_of(workload.pod_sets, [](const auto& set) {
    return absl::StrContains(set.original, kube::kWorkloadAnnotation);
  });
  if (!tells || marked || !job.HasFlavors()) return {};
  std::vector<TemplateChange> changes;
  for (size_t i = 0; i < job.pod_sets.size(); ++i) {
    changes.push_back(
        {job.pod_sets[i].path, job.pod_sets[i].pod_template, {}, workload.pod_sets[i].original});
  }
  return changes;
}

}  // namespace muster::quota
