#include "lint/one_node.h"

#include <algorithm>
#include <string_view>

#include "kube/objects/well_known.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

constexpr std::string_view kExclusive = "alpha.jobset.sigs.k8s.io/exclusive-topology";

}  // namespace

std::vector<Together> PodsOfOneNode(const std::vector<Given>& given, const Workload& workload,
                                    const MadePods& made) {
  std::vector<Together> all;
  for (const Given& each : given) {
    const auto* claim = std::get_if<kube::PersistentVolumeClaim>(each.object.get());
    const std::vector<yaml::YamlValue> modes = each.yaml.At("spec.accessModes").Items();
    if (claim == nullptr || modes.size() != 1 || modes.front().Text() != "ReadWriteOnce") continue;
    Together set;
    for (size_t i = 0; i < made.pods.size(); ++i) {
      const kube::Pod& pod = made.pods[i];
      if (pod.meta.name_space == claim->meta.name_space &&
          std::ranges::count(pod.spec->persistent_volume_claims, claim->meta.name) > 0) {
        set.pods.push_back(i);
      }
    }
    set.why = Concat("PersistentVolumeClaim ", claim->meta.FullName(), " of ", set.pods.size(),
                     " pods is ReadWriteOnce, for pods of one node");
    set.fix = "use a volume that is ReadWriteMany, or one for each pod";
    set.at = "volumes";
    all.push_back(std::move(set));
  }
  // Each Job of such a JobSet has a domain of the topology for itself.
  const std::vector<yaml::YamlValue> jobs = workload.yaml.At("spec.replicatedJobs").Items();
  for (size_t i = 0; i < jobs.size() && i < workload.templates.size(); ++i) {
    yaml::YamlValue level = jobs[i].At("template.metadata.annotations").Get(kExclusive);
    if (!level.present()) level = workload.yaml.At("metadata.annotations").Get(kExclusive);
    if (level.Text() != kube::kHostnameLabel) continue;
    Together set;
    const auto of_job =
        static_cast<size_t>(std::max<int64_t>(workload.templates[i].pods_per_job, 0));
    for (size_t k = 0; k < made.pods.size() && set.pods.size() < of_job; ++k) {
      if (made.templates[k] == &workload.templates[i]) set.pods.push_back(k);
    }
    set.why = Concat("exclusive-topology ", level.Text(), " wants the ", set.pods.size(),
                     " pods of a Job of ", workload.templates[i].role, " on one node");
    set.fix = Concat("leave ", kExclusive, " out, let it name a wider level, or set parallelism 1");
    set.line = level.line();
    all.push_back(std::move(set));
  }
  return all;
}

}  // namespace muster::lint
