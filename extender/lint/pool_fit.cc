#include "extender/lint/pool_fit.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "extender/lint/text.h"

namespace muster::lint {
namespace {

using cluster::InstanceType;
using cluster::InstanceTypes;
using Operator = Requirement::Operator;

// Of which the table has at least the usual types.
constexpr std::array<std::string_view, 5> kKnownCategories = {"g", "gr", "p", "inf", "trn"};
// With devices that the table doesn't have: FPGAs, Gaudi, video.
constexpr std::array<std::string_view, 3> kUnknownCategories = {"dl", "f", "vt"};

// Karpenter sets these on every node, whatever the NodePool says about them.
constexpr std::array<std::string_view, 6> kPrefixesOfEveryNode = {
    "karpenter.k8s.aws/", "eks.amazonaws.com/", "topology.kubernetes.io/",
    "topology.k8s.aws/",  "kubernetes.io/",     "node.kubernetes.io/"};

constexpr std::array<std::string_view, 3> kNodeGroupLabels = {"eks.amazonaws.com/nodegroup",
                                                              "alpha.eksctl.io/nodegroup-name",
                                                              "eks.amazonaws.com/nodegroup-image"};

bool IsOnEveryNode(std::string_view key) {
  return key == kCapacityTypeLabel ||
         std::ranges::any_of(kPrefixesOfEveryNode,
                             [&](std::string_view prefix) { return key.starts_with(prefix); });
}

template <typename Range>
bool Contains(const Range& range, std::string_view value) {
  return std::ranges::find(range, value) != std::ranges::end(range);
}

std::string_view CategoryOf(std::string_view name) {
  return name.substr(0, name.find_first_of("0123456789."));
}

// A type, or a family, that the table doesn't have.
void AddUnknown(std::string_view name, TypeSet* out) {
  const std::string_view category = CategoryOf(name);
  const bool devices =
      Contains(kKnownCategories, category) || Contains(kUnknownCategories, category);
  (devices ? out->unknown : out->others) = true;
}

bool Accepts(const Requirements& requirements, const InstanceType& type) {
  return std::ranges::all_of(requirements, [&](const Requirement& requirement) {
    if (!cluster::IsInstanceTypeLabel(requirement.key)) return true;
    const std::string value = cluster::InstanceTypeLabel(type, requirement.key);
    return value.empty() ? requirement.AcceptsAbsence() : requirement.Accepts(value);
  });
}

// What the requirements leave of the types that the table doesn't have.
void AddOutsideTable(const Requirements& requirements, const InstanceTypes& types, TypeSet* out) {
  bool others = true;
  bool unknown = false;
  for (const Requirement& requirement : requirements) {
    if (!cluster::IsInstanceTypeLabel(requirement.key)) continue;
    const std::string_view label =
        std::string_view(requirement.key).substr(requirement.key.find('/') + 1);
    // No other type has these labels.
    if ((label.starts_with("instance-gpu-") || label.starts_with("instance-accelerator-")) &&
        !requirement.AcceptsAbsence()) {
      others = false;
    }
    if (requirement.op != Operator::kIn) continue;
    if (label == "instance-category") {
      others = others && std::ranges::any_of(requirement.values, [](const std::string& category) {
                 return !Contains(kKnownCategories, category);
               });
    }
    if (label == "instance-family") {
      TypeSet families;
      for (const std::string& family : requirement.values) {
        if (!types.KnowsFamily(family)) AddUnknown(family, &families);
      }
      others = others && families.others;
      unknown = unknown || families.unknown;
    }
  }
  out->others = out->others || others;
  out->unknown = out->unknown || unknown;
}

// The values that a label may have on the pool's nodes, for messages.
std::string OfferedValues(const NodePool& pool, const std::string& key) {
  if (key == kPoolLabel) return pool.name;
  if (const auto label = pool.labels.find(key); label != pool.labels.end()) return label->second;
  for (const Requirement& requirement : pool.requirements) {
    if (requirement.key == key) return requirement.ToString();
  }
  return "";
}

}  // namespace

void TypeSet::Add(const TypeSet& other) {
  for (const InstanceType* type : other.known) {
    if (std::ranges::find(known, type) == known.end()) known.push_back(type);
  }
  unknown = unknown || other.unknown;
  others = others || other.others;
}

std::vector<Requirements> AlternativesOf(const PodTemplate& pods) {
  if (pods.node_affinity.empty()) return {pods.node_selector};
  std::vector<Requirements> alternatives;
  for (const Requirements& term : pods.node_affinity) {
    Requirements& alternative = alternatives.emplace_back(pods.node_selector);
    alternative.insert(alternative.end(), term.begin(), term.end());
  }
  return alternatives;
}

TypeSet TypesOf(const NodePool* pool, const Requirements& needs, const InstanceTypes& types) {
  Requirements all = needs;
  if (pool != nullptr) {
    all.insert(all.end(), pool->requirements.begin(), pool->requirements.end());
    for (const auto& [key, value] : pool->labels) all.push_back({key, Operator::kIn, {value}, 0});
  }
  TypeSet set;
  const auto names = std::ranges::find_if(all, [](const Requirement& requirement) {
    return requirement.key == kInstanceTypeLabel && requirement.op == Operator::kIn;
  });
  if (names != all.end()) {
    for (const std::string& name : names->values) {
      const bool allowed = std::ranges::all_of(all, [&](const Requirement& requirement) {
        return requirement.key != kInstanceTypeLabel || requirement.Accepts(name);
      });
      if (!allowed) continue;
      if (const InstanceType* type = types.Find(name); type == nullptr) {
        AddUnknown(name, &set);
      } else if (Accepts(all, *type)) {
        set.known.push_back(type);
      }
    }
    return set;
  }
  if (pool != nullptr && !pool->ec2) {
    set.unknown = true;
    return set;
  }
  for (const auto& [name, type] : types.all()) {
    if (Accepts(all, type)) set.known.push_back(&type);
  }
  AddOutsideTable(all, types, &set);
  return set;
}

bool Offers(const NodePool& pool, const Requirement& need, const InstanceTypes& types) {
  if (need.key == kPoolLabel) return need.Accepts(pool.name);
  if (const auto label = pool.labels.find(need.key); label != pool.labels.end()) {
    return need.Accepts(label->second);
  }
  bool stated = false;
  for (const Requirement& requirement : pool.requirements) {
    if (requirement.key != need.key) continue;
    stated = true;
    if (!requirement.MeetsWith(need)) return false;
  }
  if (cluster::IsInstanceTypeLabel(need.key)) return !TypesOf(&pool, {need}, types).empty();
  return stated || need.AcceptsAbsence() || IsOnEveryNode(need.key);
}

bool OffersAll(const NodePool& pool, const Requirements& needs, const InstanceTypes& types) {
  size_t about_types = 0;
  for (const Requirement& need : needs) {
    if (!Offers(pool, need, types)) return false;
    if (cluster::IsInstanceTypeLabel(need.key)) ++about_types;
  }
  // Each by itself was just looked at.
  return about_types <= 1 || !TypesOf(&pool, needs, types).empty();
}

bool SelectsNodeGroup(const PodTemplate& pods) {
  return std::ranges::any_of(AlternativesOf(pods), [](const Requirements& needs) {
    return std::ranges::any_of(needs, [](const Requirement& need) {
      return Contains(kNodeGroupLabels, need.key) && !need.AcceptsAbsence();
    });
  });
}

const std::vector<const NodePool*>& PoolIndex::For(const PodTemplate& pods) const {
  const auto [entry, is_new] = found_.try_emplace(&pods);
  if (!is_new || SelectsNodeGroup(pods)) return entry->second;
  const std::vector<Requirements> alternatives = AlternativesOf(pods);
  for (const NodePool& pool : pools_) {
    if (std::ranges::any_of(alternatives, [&](const Requirements& needs) {
          return OffersAll(pool, needs, types_);
        })) {
      entry->second.push_back(&pool);
    }
  }
  return entry->second;
}

std::string PoolNames(const std::vector<const NodePool*>& pools) {
  std::string text = pools.size() == 1 ? "NodePool " : "NodePools ";
  for (size_t i = 0; i < pools.size(); ++i) {
    const std::string_view before = i == 0 ? "" : i + 1 == pools.size() ? " and " : ", ";
    Append(&text, before, pools[i]->name);
  }
  return text;
}

std::string WhatIsOffered(const std::vector<const NodePool*>& pools, const std::string& key) {
  std::string text;
  for (const NodePool* pool : pools) {
    const std::string values = OfferedValues(*pool, key);
    Append(&text, text.empty() ? "" : "; ", "NodePool ", pool->name, " has ",
           values.empty() ? "no such label" : values);
  }
  return text;
}

}  // namespace muster::lint
