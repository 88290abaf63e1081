// Kueue's Workload: the fields that both of its versions have alike.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "kube/objects/decode.h"
#include "kube/objects/decode_parts.h"
#include "kube/objects/decode_pod_spec.h"

namespace muster::kube {
namespace {

Workload::PodSet ReadPodSet(const JsonValue& value, JsonReader& reader) {
  Workload::PodSet set;
  set.name = value.Get("name").String();
  set.count = value.Get("count").Int();
  if (set.count < 0) value.Get("count").RejectValue("below zero");
  const JsonValue pod = value.Get("template");
  const JsonValue spec = pod.Get("spec");
  const JsonValue metadata = pod.Get("metadata");
  set.original =
      fmt::format(R"({{"labels":{},"annotations":{},"nodeSelector":{},"tolerations":{}}})",
                  metadata.Get("labels").Json(), metadata.Get("annotations").Json(),
                  spec.Get("nodeSelector").Json(), spec.Get("tolerations").Json());
  const JsonValue affinity = spec.Get("affinity");
  set.has_affinity = affinity.present();
  set.has_node_affinity = affinity.Get("nodeAffinity").present();
  set.spec =
      std::make_shared<const PodSpec>(ReadPodSpec(spec, spec.Absent(), ReadMeta(metadata), reader));
  return set;
}

bool IsTrue(const Workload& workload, std::string_view type) {
  const auto it = workload.conditions.find(std::string(type));
  return it != workload.conditions.end() && it->second.status == "True";
}

constexpr size_t kMaxAssignedDomains = 100'000;

// The values of one level in one slice: the same of all its domains, or one each.
std::string ValueAt(const JsonValue& values, const std::vector<std::string>& roots, size_t domain) {
  const JsonValue universal = values.Get("universal");
  if (universal.present()) return universal.String();
  const JsonValue individual = values.Get("individual");
  return individual.Get("prefix").String() + roots[domain] + individual.Get("suffix").String();
}

// False if its parts don't agree with each other.
bool ReadAssignmentSlice(const JsonValue& slice, TopologyAssignment* assignment) {
  const int64_t domains = slice.Get("domainCount").Int();
  const JsonValue counts = slice.Get("podCounts");
  std::vector<int64_t> pods;
  counts.Get("individual").ForEach([&](const JsonValue& count) { pods.push_back(count.Int()); });
  const JsonValue of_each = counts.Get("universal");
  const auto fits = [&](size_t size) { return static_cast<int64_t>(size) == domains; };
  bool good = domains > 0 &&
              domains <= static_cast<int64_t>(kMaxAssignedDomains - assignment->pods.size()) &&
              (of_each.present() || fits(pods.size()));
  std::vector<JsonValue> levels;
  std::vector<std::vector<std::string>> roots;
  slice.Get("valuesPerLevel").ForEach([&](const JsonValue& values) {
    levels.push_back(values);
    std::vector<std::string>& of_level = roots.emplace_back();
    values.Get("individual").Get("roots").ForEach([&](const JsonValue& root) {
      of_level.push_back(root.String());
    });
    good &= values.Get("universal").present() || fits(of_level.size());
  });
  if (!good || levels.size() != assignment->levels.size()) return false;
  for (size_t domain = 0; domain < static_cast<size_t>(domains); ++domain) {
    std::vector<std::string> values;
    for (size_t level = 0; level < levels.size(); ++level) {
      values.push_back(ValueAt(levels[level], roots[level], domain));
    }
    assignment->pods[std::move(values)] = of_each.present() ? of_each.Int() : pods[domain];
  }
  return true;
}

// In the form of v1beta2 (sigs.k8s.io/kueue v0.19.2 pkg/util/tas/tas_assignment.go), or in
// v1beta1's, domain by domain. Nothing is read of one that contradicts itself.
TopologyAssignment ReadTopologyAssignment(const JsonValue& value) {
  TopologyAssignment assignment;
  value.Get("levels").ForEach(
      [&](const JsonValue& level) { assignment.levels.push_back(level.String()); });
  bool good = true;
  value.Get("slices").ForEach(
      [&](const JsonValue& slice) { good = good && ReadAssignmentSlice(slice, &assignment); });
  value.Get("domains").ForEach([&](const JsonValue& domain) {
    std::vector<std::string> values;
    domain.Get("values").ForEach([&](const JsonValue& each) { values.push_back(each.String()); });
    if (assignment.pods.size() < kMaxAssignedDomains) {
      assignment.pods[std::move(values)] = domain.Get("count").Int();
    }
  });
  return good ? assignment : TopologyAssignment();
}

}  // namespace

template <>
absl::StatusOr<Workload> Decode<Workload>(std::string_view json) {
  JsonReader reader(json);
  if (!reader.status().ok()) return reader.status();
  const JsonValue root = reader.root();
  Workload workload;
  workload.meta = ReadMeta(root.Get("metadata"));
  const JsonValue annotations = root.Get("metadata").Get("annotations");
  workload.has_annotations = annotations.present();
  if (annotations.Get("kueue.x-k8s.io/is-group-workload").View() == "true" &&
      workload.meta.Controller() == nullptr) {
    for (const OwnerReference& owner : workload.meta.owners) workload.members.push_back(owner.uid);
    workload.meta.owners.push_back(
        {"scheduling.x-k8s.io/v1alpha1", "PodGroup", workload.meta.name, "", true});
  }
  const JsonValue spec = root.Get("spec");
  const JsonValue active = spec.Get("active");
  workload.active = !active.present() || active.Bool();
  workload.queue = spec.Get("queueName").String();
  workload.priority = spec.Get("priority").Int();
  const auto seconds = [](const JsonValue& value) {
    return value.present() ? std::optional(value.Int()) : std::nullopt;
  };
  workload.max_seconds = seconds(spec.Get("maximumExecutionTimeSeconds"));
  workload.past_seconds = seconds(root.Get("status").Get("accumulatedPastExecutionTimeSeconds"));
  spec.Get("podSets").ForEach(
      [&](const JsonValue& value) { workload.pod_sets.push_back(ReadPodSet(value, reader)); });
  const JsonValue status = root.Get("status");
  const JsonValue admission = status.Get("admission");
  workload.cluster_queue = admission.Get("clusterQueue").String();
  admission.Get("podSetAssignments").ForEach([&](const JsonValue& given) {
    Workload::Reserved& reserved = workload.reserved_sets.emplace_back();
    reserved.name = given.Get("name").String();
    const auto set = std::ranges::find(workload.pod_sets, reserved.name, &Workload::PodSet::name);
    reserved.count = given.Get("count").Int(set == workload.pod_sets.end() ? 0 : set->count);
    reserved.usage = ReadResourceList(given.Get("resourceUsage"));
    reserved.topology = ReadTopologyAssignment(given.Get("topologyAssignment"));
    for (const auto& [resource, flavor] : ReadStringMap(given.Get("flavors"))) {
      reserved.flavors.emplace(resource, flavor);
    }
  });
  status.Get("reclaimablePods").ForEach([&](const JsonValue& pods) {
    workload.reclaimable[pods.Get("name").String()] = pods.Get("count").Int();
  });
  status.Get("conditions").ForEach([&](const JsonValue& condition) {
    workload.conditions[condition.Get("type").String()] = ReadCondition(condition);
  });
  workload.reserved = IsTrue(workload, "QuotaReserved");
  workload.evicted = IsTrue(workload, "Evicted");
  workload.finished = IsTrue(workload, "Finished");
  workload.error =
      reader.status().ok() ? reader.unusable() : std::string(reader.status().message());
  return workload;
}

}  // namespace muster::kube
