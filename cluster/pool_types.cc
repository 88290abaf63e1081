#include "cluster/pool_types.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "kube/objects/resource_list.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using kube::Requirement;
using kube::SelectorOperator;

// Of which the table has at least the usual types.
constexpr std::array<std::string_view, 5> kTabledCategories = {"g", "gr", "inf", "p", "trn"};
// EC2's without any device that pods could ask for.
constexpr std::array<std::string_view, 15> kPlainCategories = {
    "a", "c", "d", "h", "hpc", "i", "im", "is", "m", "mac", "r", "t", "u", "x", "z"};

template <typename Range, typename Value>
bool Contains(const Range& range, const Value& value) {
  return std::ranges::find(range, value) != std::ranges::end(range);
}

std::string_view CategoryOf(std::string_view name) {
  return name.substr(0, name.find_first_of("0123456789"));
}

// A type, family or category that the table doesn't have. What isn't EC2's may be anything.
void AddUntabled(std::string_view name, TypeSet* out) {
  (Contains(kPlainCategories, CategoryOf(name)) ? out->others : out->unknown) = true;
}

bool Accept(const std::vector<Requirement>& requirements, const InstanceType& type) {
  return std::ranges::all_of(requirements, [&](const Requirement& requirement) {
    if (!IsInstanceTypeLabel(requirement.key)) return true;
    const std::string value = InstanceTypeLabel(type, requirement.key);
    return requirement.Matches(value.empty() ? nullptr : &value);
  });
}

TypeSet Named(const Requirement& names, const std::vector<Requirement>& requirements,
              const InstanceTypes& types) {
  TypeSet set;
  for (const std::string& name : names.values) {
    const bool allowed = std::ranges::all_of(requirements, [&](const Requirement& requirement) {
      return requirement.key != kube::kInstanceTypeLabel || requirement.Matches(&name);
    });
    if (!allowed) continue;
    if (const InstanceType* type = types.Find(name); type == nullptr) {
      AddUntabled(name, &set);
    } else if (Accept(requirements, *type) && !Contains(set.known, type)) {
      set.known.push_back(type);
    }
  }
  return set;
}

// What the requirements leave of the types that the table doesn't have.
void AddUntabled(const std::vector<Requirement>& requirements, const InstanceTypes& types,
                 TypeSet* out) {
  bool others = true;
  for (const Requirement& requirement : requirements) {
    if (!IsInstanceTypeLabel(requirement.key)) continue;
    const std::string_view key = requirement.key;
    const std::string_view label = key.substr(key.find('/') + 1);
    // No other type has these labels.
    if ((label.starts_with("instance-gpu-") || label.starts_with("instance-accelerator-")) &&
        !requirement.Matches(nullptr)) {
      others = false;
    }
    if (requirement.op != SelectorOperator::kIn) continue;
    if (label == "instance-category") {
      TypeSet categories;
      for (const std::string& category : requirement.values) {
        if (!Contains(kTabledCategories, category)) AddUntabled(category, &categories);
      }
      others = others && categories.others;
      out->unknown |= categories.unknown;
    }
    if (label == "instance-family") {
      TypeSet families;
      for (const std::string& family : requirement.values) {
        if (!types.KnowsFamily(family)) AddUntabled(family, &families);
      }
      others = others && families.others;
      out->unknown |= families.unknown;
    }
  }
  out->others |= others;
}

bool MakesEc2Instances(const kube::NodePool& pool) {
  const std::string& group = pool.node_class_group;
  return group.empty() || group == "karpenter.k8s.aws" || group == "eks.amazonaws.com";
}

}  // namespace

void TypeSet::Add(const TypeSet& other) {
  for (const InstanceType* type : other.known) {
    if (!Contains(known, type)) known.push_back(type);
  }
  unknown |= other.unknown;
  others |= other.others;
}

TypeSet TypesOf(const std::vector<Requirement>& requirements, bool names_are_ec2,
                const InstanceTypes& types) {
  const auto names = std::ranges::find_if(requirements, [](const Requirement& requirement) {
    return requirement.key == kube::kInstanceTypeLabel && requirement.op == SelectorOperator::kIn;
  });
  if (names != requirements.end()) return Named(*names, requirements, types);
  TypeSet set;
  if (!names_are_ec2) {
    set.unknown = true;
    return set;
  }
  for (const auto& [name, type] : types.all()) {
    if (type.IsEc2() && Accept(requirements, type)) set.known.push_back(&type);
  }
  AddUntabled(requirements, types, &set);
  return set;
}

TypeSet TypesOf(const kube::NodePool& pool, const kube::PodSpec& spec, const InstanceTypes& types) {
  std::vector<Requirement> all = pool.requirements;
  for (const auto& [key, value] : pool.labels) {
    all.push_back({key, SelectorOperator::kIn, {value}});
  }
  for (const auto& [key, value] : spec.node_selector) {
    all.push_back({key, SelectorOperator::kIn, {value}});
  }
  const auto& terms = spec.affinity.required_node_terms;
  if (!terms) return TypesOf(all, MakesEc2Instances(pool), types);
  TypeSet set;
  for (const kube::NodeSelectorTerm& term : *terms) {
    std::vector<Requirement> with_term = all;
    with_term.insert(with_term.end(), term.match_expressions.begin(), term.match_expressions.end());
    set.Add(TypesOf(with_term, MakesEc2Instances(pool), types));
  }
  return set;
}

bool WantsDevices(const kube::PodSpec& spec) {
  return std::ranges::any_of(
      kDevices, [&](std::string_view device) { return spec.requests.Get(device) > 0; });
}

int64_t AmountOf(const InstanceType& type, std::string_view resource) {
  if (resource == kube::kNvidiaGpu) return type.gpu;
  if (resource == kube::kEfa) return type.efa;
  if (resource == kube::kNeuron) return type.neuron;
  if (resource == kube::kCpu) return type.cpu * 1000;
  if (resource == kube::kMemory) return type.memory;
  return 0;
}

int64_t TimesOf(const InstanceType& type, std::string_view resource, int64_t each) {
  const bool shared = resource == kube::kCpu || resource == kube::kMemory;
  const int64_t amount = AmountOf(type, resource) - (shared ? 1 : 0);
  return each > 0 ? amount / each : INT64_MAX;
}

}  // namespace muster::cluster
