#include "lint/pool_fit.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "kube/objects/well_known.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

using cluster::InstanceTypes;
using Operator = Requirement::Operator;

// Karpenter sets these on every node, whatever the NodePool says about them.
constexpr std::array<std::string_view, 6> kPrefixesOfEveryNode = {
    "karpenter.k8s.aws/", "eks.amazonaws.com/", "topology.kubernetes.io/",
    "topology.k8s.aws/",  "kubernetes.io/",     "node.kubernetes.io/"};

constexpr std::array<std::string_view, 3> kNodeGroupLabels = {"eks.amazonaws.com/nodegroup",
                                                              "alpha.eksctl.io/nodegroup-name",
                                                              "eks.amazonaws.com/nodegroup-image"};

bool IsOnEveryNode(std::string_view key) {
  return key == kube::kCapacityTypeLabel ||
         std::ranges::any_of(kPrefixesOfEveryNode,
                             [&](std::string_view prefix) { return key.starts_with(prefix); });
}

template <typename Range>
bool Contains(const Range& range, std::string_view value) {
  return std::ranges::find(range, value) != std::ranges::end(range);
}

// What a requirement says, as the API has it: "at least 5" is "more than 4".
kube::Requirement Plain(const Requirement& requirement) {
  kube::Requirement plain{requirement.key, kube::SelectorOperator::kIn, requirement.values};
  auto bound = [&](kube::SelectorOperator op, int64_t shift) {
    int64_t value = 0;
    plain.values.clear();  // nothing meets a bound that is no number
    if (requirement.values.size() != 1 || !ParseInt(requirement.values.front(), &value)) return;
    if (__builtin_add_overflow(value, shift, &value)) return;
    plain.op = op;
    plain.values = {std::to_string(value)};
  };
  switch (requirement.op) {
    case Operator::kIn:
      break;
    case Operator::kNotIn:
      plain.op = kube::SelectorOperator::kNotIn;
      break;
    case Operator::kExists:
      plain.op = kube::SelectorOperator::kExists;
      break;
    case Operator::kDoesNotExist:
      plain.op = kube::SelectorOperator::kDoesNotExist;
      break;
    case Operator::kGt:
      bound(kube::SelectorOperator::kGt, 0);
      break;
    case Operator::kGte:
      bound(kube::SelectorOperator::kGt, -1);
      break;
    case Operator::kLt:
      bound(kube::SelectorOperator::kLt, 0);
      break;
    case Operator::kLte:
      bound(kube::SelectorOperator::kLt, 1);
      break;
  }
  return plain;
}

// The values that a label may have on the pool's nodes, for messages.
std::string OfferedValues(const NodePool& pool, const std::string& key) {
  if (key == kube::kNodePoolLabel) return pool.name;
  if (const auto label = pool.labels.find(key); label != pool.labels.end()) return label->second;
  for (const Requirement& requirement : pool.requirements) {
    if (requirement.key == key) return requirement.ToString();
  }
  return "";
}

}  // namespace

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
  std::vector<kube::Requirement> all;
  std::ranges::transform(needs, std::back_inserter(all), Plain);
  if (pool != nullptr) {
    std::ranges::transform(pool->requirements, std::back_inserter(all), Plain);
    for (const auto& [key, value] : pool->labels) {
      all.push_back({key, kube::SelectorOperator::kIn, {value}});
    }
  }
  return cluster::TypesOf(all, /*names_are_ec2=*/pool == nullptr || pool->ec2, types);
}

bool Offers(const NodePool& pool, const Requirement& need, const InstanceTypes& types) {
  if (need.key == kube::kNodePoolLabel) return need.Accepts(pool.name);
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
