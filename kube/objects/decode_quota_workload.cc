// Kueue's Workload: the fields that both of its versions have alike.

#include <algorithm>
#include <utility>

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
