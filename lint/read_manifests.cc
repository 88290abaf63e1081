// NodePools, queues and PodGroups, and the files that all objects come from.
#include <algorithm>
#include <utility>

#include "coscheduling/labels.h"
#include "kube/objects/max_seconds.h"
#include "kube/objects/quantity.h"
#include "kube/objects/quota.h"
#include "kube/objects/well_known.h"
#include "lint/field_reader.h"
#include "lint/text.h"
#include "yaml/engine_options.h"

namespace muster::lint {
namespace {

constexpr const char* kKueue = "kueue.x-k8s.io";
constexpr const char* kTrainer = "trainer.kubeflow.org";

void ReadDisruption(const yaml::YamlValue& disruption, FieldReader* reader, NodePool* pool) {
  pool->disruption_line = disruption.line();
  pool->consolidation_policy = reader->Text(disruption.Get("consolidationPolicy"));
  pool->consolidate_after = reader->Text(disruption.Get("consolidateAfter"));
  const LocatedText& after = pool->consolidate_after;
  if (after.value == "Never") {
    pool->consolidate_after_value = absl::InfiniteDuration();
  } else if (after.present() &&
             (!absl::ParseDuration(after.value, &pool->consolidate_after_value) ||
              pool->consolidate_after_value < absl::ZeroDuration())) {
    reader->Fail(after.line, Concat("consolidateAfter: must be Never or a duration such as "
                                    "10m, is ",
                                    after.value));
    pool->consolidate_after_value = absl::InfiniteDuration();
  }
  for (const yaml::YamlValue& budget : disruption.Get("budgets").Items()) {
    const std::string& nodes = budget.Get("nodes").Text();
    if ((nodes == "0" || nodes == "0%") && !budget.Get("schedule").present() &&
        !budget.Get("reasons").present()) {
      pool->never_disrupted = true;
    }
  }
}

void AddObjects(const yaml::YamlValue& value, const std::string& file,
                std::vector<ManifestObject>* objects, std::vector<FileError>* errors) {
  if (!value.is_mapping()) {
    errors->push_back({file, value.line(), "a manifest must be a mapping"});
    return;
  }
  const std::string& kind = value.Get("kind").Text();
  if (kind.ends_with("List") && value.Get("items").is_sequence()) {
    for (const yaml::YamlValue& item : value.Get("items").Items()) {
      // One level: a list in a list is no Kubernetes object.
      if (item.is_mapping()) objects->push_back({file, item});
    }
    return;
  }
  objects->push_back({file, value});
}

// Pods of one PodGroup are one workload, in the order of their files.
void JoinPods(std::vector<Workload>* workloads) {
  std::map<std::string, size_t> groups;  // "NAMESPACE/NAME" -> its first pod
  std::vector<Workload> joined;
  for (Workload& workload : *workloads) {
    if (workload.kind == "Pod") {
      const PodTemplate& pod = workload.templates.front();
      std::string name = pod.group.value;
      if (const auto label = pod.labels.find(kube::kKueueGroupLabel);
          name.empty() && label != pod.labels.end()) {
        name = label->second;
      }
      if (!name.empty()) {
        const auto [group, is_new] =
            groups.emplace(workload.name_space + "/" + name, joined.size());
        if (!is_new) {
          joined[group->second].templates.push_back(std::move(workload.templates.front()));
          continue;
        }
        workload.kind = "Pods of group";
        workload.name = name;
      }
    }
    joined.push_back(std::move(workload));
  }
  *workloads = std::move(joined);
}

}  // namespace

PodGroup ReadPodGroup(const yaml::YamlValue& object, FieldReader* reader) {
  const yaml::YamlValue spec = object.Get("spec");
  return {
      NamespaceOf(object),
      object.At("metadata.name").Text(),
      reader->file(),
      object.line(),
      reader->Count(spec.Get("minMember"), "spec.minMember"),
      reader->Count(spec.Get("scheduleTimeoutSeconds"), "spec.scheduleTimeoutSeconds"),
      reader->Text(object.At("metadata.labels").Get(kube::kMaxSecondsLabel)),
      reader->Text(object.At("metadata.annotations").Get(coscheduling::kPreemptibleAnnotation))};
}

NodePool ReadNodePool(const yaml::YamlValue& object, FieldReader* reader) {
  NodePool pool;
  pool.name = object.At("metadata.name").Text();
  pool.file = reader->file();
  pool.line = object.line();
  pool.yaml = object;
  const yaml::YamlValue spec = object.Get("spec");
  const yaml::YamlValue node = spec.At("template.spec");
  const std::string& group = node.At("nodeClassRef.group").Text();
  pool.ec2 = group.empty() || group == "karpenter.k8s.aws" || group == "eks.amazonaws.com";
  pool.labels =
      reader->Labels(spec.At("template.metadata.labels"), "spec.template.metadata.labels");
  pool.requirements = reader->Requirements(node.Get("requirements"));
  for (const yaml::YamlValue& taint : node.Get("taints").Items()) {
    pool.taints.push_back(taint.Get("key").Text());
  }
  pool.limits = reader->Amounts(spec.Get("limits"));
  ReadDisruption(spec.Get("disruption"), reader, &pool);
  return pool;
}

ResourceFlavor ReadFlavor(const yaml::YamlValue& object, FieldReader* reader) {
  const yaml::YamlValue spec = object.Get("spec");
  return {object.At("metadata.name").Text(), reader->file(), object.line(),
          spec.Get("nodeSelector"), reader->Selector(spec.Get("nodeLabels"))};
}

ClusterQueue ReadClusterQueue(const yaml::YamlValue& object, FieldReader* reader) {
  return {object.At("metadata.name").Text(), reader->file(),
          reader->Text(object.At("spec.admissionScope.admissionMode"))};
}

// Muster's configuration, not another one beside it, kube-scheduler's for example, which says its
// kind.
void ReadConfigMap(const yaml::YamlValue& object, FieldReader* reader, Manifests* out) {
  const yaml::YamlValue configuration = object.Get("data").Get("config.yaml");
  if (!object.At("metadata.name").Text().starts_with("muster")) return;
  const yaml::YamlFile file = yaml::ParseYaml(configuration.Text());
  absl::Status read;
  if (file.error) {
    read = absl::InvalidArgumentError(Concat("line ", file.error->line, ": ", file.error->message));
  } else if (!file.documents.empty() && !file.documents.front().Get("kind").present()) {
    coscheduling::EngineOptions options;
    read = yaml::ReadQuotaOptions(configuration.Text(), &options);
    out->quota_mode = options.quota;
    out->resources = std::move(options.resources);
  }
  if (!read.ok()) {
    reader->Fail(configuration.line(), Concat("config.yaml: ", std::string(read.message())));
  }
}

void ReadPolicy(const yaml::YamlValue& object, FieldReader* reader, Manifests* out) {
  if (IsKind(object, "karpenter.sh", "NodePool")) {
    out->pools.push_back(ReadNodePool(object, reader));
  } else if (IsKind(object, "scheduling.x-k8s.io", "PodGroup")) {
    out->groups.push_back(ReadPodGroup(object, reader));
  } else if (IsKind(object, kKueue, "ResourceFlavor")) {
    out->flavors.push_back(ReadFlavor(object, reader));
  } else if (IsKind(object, kKueue, "ClusterQueue")) {
    out->cluster_queues.push_back(ReadClusterQueue(object, reader));
  } else if (IsKind(object, "scheduling.k8s.io", "PriorityClass")) {
    out->priority_classes.push_back(
        {object.At("metadata.name").Text(), reader->file(),
         reader->Text(object.At("metadata.annotations").Get(kube::kMayOptOutAnnotation))});
  } else if (IsKind(object, "", "ConfigMap")) {
    ReadConfigMap(object, reader, out);
  }
}

Manifests ReadManifests(const std::vector<SourceText>& sources,
                        const coscheduling::EngineOptions& options) {
  Manifests manifests;
  manifests.quota_mode = options.quota;
  manifests.resources = options.resources;
  std::vector<ManifestObject> objects;
  for (const SourceText& source : sources) {
    manifests.files.push_back(std::make_unique<yaml::YamlFile>(yaml::ParseYaml(source.text)));
    const yaml::YamlFile& file = *manifests.files.back();
    for (const yaml::YamlValue& document : file.documents) {
      AddObjects(document, source.file, &objects, &manifests.errors);
    }
    if (file.error) {
      manifests.errors.push_back({source.file, file.error->line, file.error->message});
    }
  }
  Runtimes runtimes;
  for (const ManifestObject& object : objects) {
    const bool shared = IsKind(object.yaml, kTrainer, "ClusterTrainingRuntime");
    if (shared || IsKind(object.yaml, kTrainer, "TrainingRuntime")) {
      runtimes[Concat(shared ? "" : NamespaceOf(object.yaml), "/",
                      object.yaml.At("metadata.name").Text())] = object;
    }
  }
  for (const ManifestObject& object : objects) {
    FieldReader reader(object.file, &manifests.errors);
    if (!ReadWorkload(object.yaml, runtimes, &reader, &manifests.workloads)) {
      manifests.others.push_back({object.file, object.yaml});
      ReadPolicy(object.yaml, &reader, &manifests);
      ReadGiven(object.yaml, object.file, &manifests);
    }
  }
  JoinPods(&manifests.workloads);
  return manifests;
}

}  // namespace muster::lint
