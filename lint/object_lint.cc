#include "lint/object_lint.h"

#include <algorithm>
#include <functional>

#include "lint/field_reader.h"
#include "lint/gangs.h"
#include "lint/json_tree.h"
#include "lint/rules.h"

namespace muster::lint {
namespace {

// Requirements of the pods times NodePools, each of which is held against the table of types.
constexpr size_t kMaxComparisons = 500;

bool IsOurs(const Workload& workload, std::string_view scheduler_name) {
  return std::ranges::any_of(workload.templates, [&](const PodTemplate& pods) {
    return pods.incomplete || pods.scheduler_name.value == scheduler_name;
  });
}

// False if nothing is known of the others.
bool CountMembers(const MinMemberOf& min_member_of, Workload* workload) {
  if (workload->kind != "Pod" || min_member_of == nullptr) return false;
  PodTemplate& pod = workload->templates.front();
  if (!pod.group.present()) return false;
  const int64_t members = min_member_of(workload->name_space, pod.group.value);
  if (members <= 1) return false;
  pod.pods = pod.pods_per_job = members;
  workload->kind = "Pods of group";
  workload->name = pod.group.value;
  return true;
}

size_t Comparisons(const Manifests& object, const Manifests& known) {
  size_t requirements = 0;
  for (const Workload& workload : object.workloads) {
    for (const PodTemplate& pods : workload.templates) {
      requirements += 1 + pods.node_selector.size();
      for (const std::vector<Requirement>& term : pods.node_affinity) {
        requirements += 1 + pods.node_selector.size() + term.size();
      }
    }
  }
  for (const ResourceFlavor& flavor : object.flavors) requirements += 1 + flavor.node_labels.size();
  return requirements * (1 + known.pools.size());
}

// What the judges go by: the object in the place of its former version.
Manifests With(const Manifests& object, const Manifests& known) {
  Manifests all;
  all.quota_mode = known.quota_mode;
  all.resources = known.resources;
  all.given = object.given;
  const auto name_of = [](const Given& given) {
    return std::visit(
        [&](const auto& each) {
          if constexpr (requires { each.meta; }) return each.meta.FullName();
          return std::string();
        },
        *given.object);
  };
  for (const Given& given : known.given) {
    const bool replaced = std::ranges::any_of(object.given, [&](const Given& each) {
      return each.object->index() == given.object->index() && name_of(each) == name_of(given);
    });
    if (!replaced) all.given.push_back(given);
  }
  return all;
}

void CheckAll(const Manifests& object, const Surroundings& around, Findings* findings) {
  const std::vector<LintGang> gangs = FindGangs(object);
  for (const LintGang& gang : gangs) CheckGang(gang, around, findings);
  for (const Workload& workload : object.workloads) {
    std::vector<const LintGang*> its;
    for (const LintGang& gang : gangs) {
      if (gang.workload == &workload) its.push_back(&gang);
    }
    CheckRefused(workload, findings);
    CheckByJudge(workload, its, around, findings);
  }
  CheckAllNames(object, around.judge.scheduler_name(), findings);
  CheckAllValues(object, findings);
  for (const ClusterQueue& queue : object.cluster_queues) CheckClusterQueue(queue, findings);
  CheckQueues(around, findings);
  for (const PodGroup& group : object.groups) CheckPodGroup(group, findings);
  for (const ResourceFlavor& flavor : object.flavors) CheckFlavor(flavor, around, findings);
}

}  // namespace

ObjectLint LintObject(std::string_view json, std::string_view scheduler_name,
                      const Manifests& known, const cluster::InstanceTypes& types,
                      const MinMemberOf& min_member_of) {
  ObjectLint result;
  result.skipped = true;
  if (json.size() > kMaxObjectBytes) return result;
  const yaml::YamlFile file = ParseJson(json, kMaxObjectValues);
  if (file.documents.empty()) return result;
  const yaml::YamlValue& root = file.documents.front();
  Manifests object;
  FieldReader reader("", &object.errors);
  if (!ReadWorkload(root, {}, &reader, &object.workloads)) {
    ReadPolicy(root, &reader, &object);
    ReadGiven(root, "", &object);
  }
  if (Comparisons(object, known) > kMaxComparisons) return result;
  result.skipped = false;
  // The API server is the one to say what is wrong with a field that can't be read.
  if (!object.errors.empty()) return result;
  std::erase_if(object.workloads, [&](const Workload& w) { return !IsOurs(w, scheduler_name); });
  bool counted = false;
  for (Workload& workload : object.workloads) counted |= CountMembers(min_member_of, &workload);
  const PoolIndex pools(known.pools, types);
  const Manifests all = With(object, known);
  const Judge judge(all, types, std::string(scheduler_name));
  Findings findings;
  CheckAll(object, {known, types, pools, judge}, &findings);
  result.findings = findings.Take();
  // The API server is about to say it itself.
  std::erase_if(result.findings, [](const Finding& f) { return f.rule == "api-refused"; });
  // minMember counts pods that are no node of the training too, and not those beyond the least.
  if (counted)
    std::erase_if(result.findings, [](const Finding& f) { return f.rule == "nnodes-mismatch"; });
  std::ranges::stable_sort(result.findings, std::greater<>(), &Finding::severity);
  return result;
}

}  // namespace muster::lint
