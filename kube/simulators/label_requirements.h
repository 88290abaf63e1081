// Which label values are allowed, per key: the algebra that Karpenter calculates with
// (sigs.k8s.io/karpenter v1.8 pkg/scheduling/requirement.go and requirements.go).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kube/objects/meta.h"

namespace muster::kube::simulators {

// A set of label values: the listed ones, or all but the listed ones; within bounds if given.
// An empty set of listed values means that the label must be absent.
class ValueSet {
 public:
  static ValueSet In(std::vector<std::string> values);
  static ValueSet From(const Requirement& requirement);

  ValueSet Intersection(const ValueSet& other) const;
  bool Intersects(const ValueSet& other) const;
  bool Has(const std::string& value) const;

  // kIn, kNotIn, kExists or kDoesNotExist; bounds don't show.
  SelectorOperator op() const;
  // True if a node without the label meets it.
  bool AllowsAbsence() const;
  // The value if there is exactly one.
  std::optional<std::string> Single() const;
  // In the form that NodeClaim.spec.requirements has.
  Requirement ToRequirement(const std::string& key) const;
  // "key In [a b]"
  std::string ToString(const std::string& key) const;

 private:
  bool WithinBounds(const std::string& value) const;

  bool complement_ = false;
  std::set<std::string> values_;
  std::optional<int64_t> above_;
  std::optional<int64_t> below_;
};

class LabelRequirements {
 public:
  static LabelRequirements FromLabels(const StringMap& labels);

  // Narrows the key's values.
  void Add(const std::string& key, const ValueSet& values);
  void Add(const std::vector<Requirement>& requirements);
  void Add(const LabelRequirements& other);

  const ValueSet* Find(std::string_view key) const;
  // All values are allowed for a key that isn't mentioned.
  bool Allows(std::string_view key, const std::string& value) const;

  // Why a node with these labels can't be one with `wanted`; empty if it can. A key that is
  // missing here rules out every wanted value, except for well-known keys if so asked.
  std::string WhyIncompatible(const LabelRequirements& wanted, bool allow_unknown_well_known) const;
  // The same without regard to missing keys.
  std::string WhyDisjoint(const LabelRequirements& wanted) const;

  const std::map<std::string, ValueSet, std::less<>>& keys() const { return keys_; }
  // "a In [x], b Exists"
  std::string ToString() const;

 private:
  std::map<std::string, ValueSet, std::less<>> keys_;
};

// Labels whose values come from the instance type, so that a NodePool needn't mention them: those
// of pkg/apis/v1/labels.go and of the AWS provider.
bool IsWellKnownLabel(std::string_view key);

}  // namespace muster::kube::simulators
