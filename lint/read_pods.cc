#include <algorithm>
#include <array>
#include <utility>

#include "kube/objects/well_known.h"
#include "lint/field_reader.h"

namespace muster::lint {
namespace {

void ReadAffinity(const yaml::YamlValue& affinity, FieldReader* reader, PodTemplate* out) {
  const yaml::YamlValue nodes =
      affinity.At("nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution");
  if (nodes.present()) {
    out->node_affinity.clear();
    for (const yaml::YamlValue& term : nodes.Get("nodeSelectorTerms").Items()) {
      // matchFields name single nodes; such a term can't be judged and so holds.
      out->node_affinity.push_back(term.Get("matchFields").present()
                                       ? std::vector<Requirement>()
                                       : reader->Requirements(term.Get("matchExpressions")));
    }
  }
  const yaml::YamlValue pods =
      affinity.At("podAffinity.requiredDuringSchedulingIgnoredDuringExecution");
  if (pods.present()) out->pod_affinity_line = pods.line();
}

Container ReadContainer(const yaml::YamlValue& value, FieldReader* reader) {
  Container container;
  container.line = value.line();
  container.name = value.Get("name").Text();
  for (const char* field : {"command", "args"}) {
    for (const yaml::YamlValue& word : value.Get(field).Items()) container.words.push_back(word);
  }
  for (const yaml::YamlValue& variable : value.Get("env").Items()) {
    const yaml::YamlValue text = variable.Get("value");
    if (text.present()) {
      container.env[variable.Get("name").Text()] = {text.Text(), text.line(), true};
    }
  }
  const yaml::YamlValue resources = value.Get("resources");
  container.requests = reader->Amounts(resources.Get("requests"));
  container.limits = reader->Amounts(resources.Get("limits"));
  for (const yaml::YamlValue& mount : value.Get("volumeMounts").Items()) {
    const std::string& path = mount.Get("mountPath").Text();
    if (path == "/dev/shm" || path == "/dev/shm/") container.shm_volume = mount.Get("name").Text();
  }
  return container;
}

// Lays what a container of the same name says over what is there.
void Override(Container container, Container* out) {
  if (!container.words.empty()) {
    out->words = std::move(container.words);
    out->words_line = 0;
  }
  for (auto& [name, value] : container.env) out->env[name] = std::move(value);
  for (auto& [resource, amount] : container.requests) out->requests[resource] = amount;
  for (auto& [resource, amount] : container.limits) out->limits[resource] = amount;
  if (!container.shm_volume.empty()) out->shm_volume = std::move(container.shm_volume);
}

}  // namespace

LocatedCount Container::Asks(std::string_view resource) const {
  for (const LocatedAmounts* amounts : {&requests, &limits}) {
    const auto amount = amounts->find(resource);
    if (amount != amounts->end() && amount->second.value > 0) return amount->second;
  }
  return {};
}

LocatedCount PodTemplate::Asks(std::string_view resource) const {
  LocatedCount sum;
  for (const Container& container : containers) {
    const LocatedCount asks = container.Asks(resource);
    if (__builtin_add_overflow(sum.value, asks.value, &sum.value)) sum.value = INT64_MAX;
    if (!sum.present()) sum.line = asks.line;
  }
  return sum;
}

bool PodTemplate::WantsDevices() const {
  return std::ranges::any_of(std::array{kGpu, kNeuron, kEfa},
                             [&](std::string_view resource) { return Asks(resource).present(); });
}

void ReadPodTemplate(const yaml::YamlValue& pod, FieldReader* reader, PodTemplate* out) {
  out->file = reader->file();
  if (out->line == 0) out->line = pod.line();
  if (!out->whole.present()) out->whole = pod;
  const yaml::YamlValue metadata = pod.Get("metadata");
  out->metadata_line = metadata.line();
  if (!out->metadata.present()) out->metadata = metadata;
  for (auto& [key, value] : reader->Labels(metadata.Get("labels"), "metadata.labels")) {
    out->labels[key] = value;
  }
  const yaml::YamlValue group = metadata.Get("labels").Get(kube::kPodGroupLabel);
  if (group.present()) out->group = reader->Text(group);
  for (auto& [key, value] : reader->Texts(metadata.Get("annotations"), "metadata.annotations")) {
    out->annotations[key] = value;
  }
  ReadPodSpec(pod.Get("spec"), reader, out);
}

void ReadPodSpec(const yaml::YamlValue& spec, FieldReader* reader, PodTemplate* out) {
  if (out->spec_line == 0 || spec.present()) out->spec_line = spec.line();
  if (spec.present()) out->layers.push_back(spec);
  if (spec.Get("schedulerName").present()) {
    out->scheduler_name = reader->Text(spec.Get("schedulerName"));
  }
  if (spec.Get("priorityClassName").present()) {
    out->priority_class = reader->Text(spec.Get("priorityClassName"));
  }
  for (Requirement& entry : reader->Selector(spec.Get("nodeSelector"))) {
    std::erase_if(out->node_selector, [&](const Requirement& r) { return r.key == entry.key; });
    out->node_selector.push_back(std::move(entry));
  }
  ReadAffinity(spec.Get("affinity"), reader, out);
  for (const yaml::YamlValue& value : spec.Get("containers").Items()) {
    Container container = ReadContainer(value, reader);
    const auto same = std::ranges::find(out->containers, container.name, &Container::name);
    if (same == out->containers.end()) {
      out->containers.push_back(std::move(container));
    } else {
      Override(std::move(container), &*same);
    }
  }
  for (const yaml::YamlValue& volume : spec.Get("volumes").Items()) {
    // The node's /dev/shm among them.
    if (volume.At("emptyDir.medium").Text() == "Memory" || volume.Get("hostPath").present()) {
      out->memory_volumes.push_back(volume.Get("name").Text());
    }
  }
}

}  // namespace muster::lint
