#include "coscheduling/pod_sets.h"

#include <algorithm>
#include <array>

#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

// Which part of its job a member is.
constexpr std::array<std::string_view, 2> kRoleLabels = {"training.kubeflow.org/replica-type",
                                                         "jobset.sigs.k8s.io/replicatedjob-name"};

// FNV-1a: the same digest wherever it is computed.
uint64_t Digest(std::string_view text) {
  uint64_t hash = 14695981039346656037ULL;
  for (unsigned char c : text) hash = (hash ^ c) * 1099511628211ULL;
  return hash;
}

void Append(const std::vector<kube::Requirement>& requirements, std::string* text) {
  for (const kube::Requirement& requirement : requirements) *text += requirement.ToString() + "&";
}

std::string WhatQuotaSees(const kube::PodSpec& spec) {
  std::string text;
  for (const auto& [resource, amount] : spec.requests.entries()) {
    text += fmt::format("{}={};", resource, amount);
  }
  for (const auto& [key, value] : spec.node_selector) text += fmt::format("s{}={};", key, value);
  if (spec.affinity.required_node_terms) {
    for (const kube::NodeSelectorTerm& term : *spec.affinity.required_node_terms) {
      text += "|";
      Append(term.match_expressions, &text);
      text += "/";
      Append(term.match_fields, &text);
    }
  }
  for (const kube::Toleration& toleration : spec.tolerations) {
    text += fmt::format("t{},{},{},{};", toleration.key, toleration.exists, toleration.value,
                        toleration.effect ? static_cast<int>(*toleration.effect) : -1);
  }
  return text;
}

void CountIn(const std::string& name, const kube::Pod& pod, std::vector<quota::PodSet>* sets) {
  auto it = std::ranges::find(*sets, name, &quota::PodSet::name);
  if (it == sets->end()) it = sets->insert(it, {name, 0, pod.spec});
  ++it->count;
}

}  // namespace

std::string PodSetOf(const kube::Pod& pod) {
  const std::string* name = pod.meta.Annotation(kPodSetAnnotation);
  if (name != nullptr) return *name;
  std::string digest = fmt::format("{:016x}", Digest(WhatQuotaSees(*pod.spec)));
  for (std::string_view label : kRoleLabels) {
    if (const std::string* role = pod.meta.Label(label)) return *role + "-" + digest;
  }
  return digest;
}

PodSets GroupByPodSet(const std::vector<const kube::Pod*>& members, int64_t required) {
  PodSets sets;
  for (const kube::Pod* pod : members) {
    CountIn(PodSetOf(*pod), *pod, required-- > 0 ? &sets.required : &sets.surplus);
  }
  return sets;
}

std::string FlavorsText(const quota::PodSetAssignment& given) {
  std::string text;
  for (const auto& [resource, flavor] : given.flavors) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", resource, flavor);
  }
  return text;
}

std::set<std::string> FlavorNames(const quota::PodSetAssignment& given) {
  std::set<std::string> names;
  for (const auto& [resource, flavor] : given.flavors) names.insert(flavor);
  return names;
}

bool HasFlavors(const kube::Pod& pod, const quota::PodSetAssignment& given) {
  const std::string* name = pod.meta.Annotation(kPodSetAnnotation);
  const std::string* flavors = pod.meta.Annotation(kFlavorsAnnotation);
  return name != nullptr && *name == given.name && flavors != nullptr &&
         *flavors == FlavorsText(given);
}

AssignFlavors FlavorsFor(const kube::Pod& pod, const quota::PodSetAssignment& given,
                         const std::string& queue,
                         const std::vector<const kube::ResourceFlavor*>& flavors) {
  AssignFlavors assign;
  assign.pod = {pod.meta.name_space, pod.meta.name, pod.meta.uid, pod.meta.resource_version};
  assign.has_node_selector = !pod.spec->node_selector.empty();
  assign.has_tolerations = !pod.spec->tolerations.empty();
  assign.has_annotations = !pod.meta.annotations.empty();
  for (const kube::ResourceFlavor* flavor : flavors) {
    for (const auto& [key, value] : flavor->node_labels) {
      if (!pod.spec->node_selector.contains(key)) assign.node_selector.emplace(key, value);
    }
    for (size_t i = 0; i < flavor->tolerations.size(); ++i) {
      const kube::Toleration& toleration = flavor->tolerations[i];
      const auto same = [&](const AssignFlavors::Tolerate& added) {
        return added.toleration == toleration;
      };
      if (std::ranges::find(pod.spec->tolerations, toleration) == pod.spec->tolerations.end() &&
          std::ranges::none_of(assign.tolerations, same)) {
        assign.tolerations.push_back({toleration, flavor->toleration_seconds[i]});
      }
    }
  }
  assign.annotations = {{std::string(kPodSetAnnotation), given.name},
                        {std::string(kFlavorsAnnotation), FlavorsText(given)},
                        {std::string(kQueueAnnotation), queue}};
  return assign;
}

}  // namespace muster::coscheduling
