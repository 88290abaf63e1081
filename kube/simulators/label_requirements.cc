#include "kube/simulators/label_requirements.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

namespace muster::kube::simulators {
namespace {

constexpr size_t kShownValues = 5;

std::optional<int64_t> ToInteger(const std::string& text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> Larger(std::optional<int64_t> a, std::optional<int64_t> b) {
  if (!a || !b) return a ? a : b;
  return std::max(*a, *b);
}

std::optional<int64_t> Smaller(std::optional<int64_t> a, std::optional<int64_t> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::string_view NameOf(SelectorOperator op) {
  switch (op) {
    case SelectorOperator::kIn:
      return "In";
    case SelectorOperator::kNotIn:
      return "NotIn";
    case SelectorOperator::kDoesNotExist:
      return "DoesNotExist";
    default:
      return "Exists";
  }
}

}  // namespace

ValueSet ValueSet::In(std::vector<std::string> values) {
  ValueSet set;
  set.values_.insert(std::make_move_iterator(values.begin()),
                     std::make_move_iterator(values.end()));
  return set;
}

ValueSet ValueSet::From(const Requirement& requirement) {
  ValueSet set;
  switch (requirement.op) {
    case SelectorOperator::kIn:
      return In(requirement.values);
    case SelectorOperator::kNotIn:
      set = In(requirement.values);
      set.complement_ = true;
      return set;
    case SelectorOperator::kDoesNotExist:
      return set;
    case SelectorOperator::kExists:
      set.complement_ = true;
      return set;
    case SelectorOperator::kGt:
    case SelectorOperator::kLt:
      break;
  }
  set.complement_ = true;
  std::optional<int64_t> bound =
      requirement.values.empty() ? std::nullopt : ToInteger(requirement.values.front());
  // A bound that isn't a number is met by no value.
  if (!bound) return ValueSet();
  (requirement.op == SelectorOperator::kGt ? set.above_ : set.below_) = bound;
  return set;
}

bool ValueSet::WithinBounds(const std::string& value) const {
  if (!above_ && !below_) return true;
  std::optional<int64_t> number = ToInteger(value);
  if (!number) return false;
  return (!above_ || *number > *above_) && (!below_ || *number < *below_);
}

ValueSet ValueSet::Intersection(const ValueSet& other) const {
  ValueSet result;
  result.above_ = Larger(above_, other.above_);
  result.below_ = Smaller(below_, other.below_);
  if (result.above_ && result.below_ && *result.above_ >= *result.below_) return ValueSet();
  result.complement_ = complement_ && other.complement_;
  auto into = std::inserter(result.values_, result.values_.end());
  if (result.complement_) {
    std::set_union(values_.begin(), values_.end(), other.values_.begin(), other.values_.end(),
                   into);
    return result;
  }
  const ValueSet& listed = complement_ ? other : *this;
  const ValueSet& filter = complement_ ? *this : other;
  for (const std::string& value : listed.values_) {
    bool kept = filter.values_.contains(value) != filter.complement_;
    if (kept && result.WithinBounds(value)) result.values_.insert(value);
  }
  result.above_.reset();
  result.below_.reset();
  return result;
}

bool ValueSet::Intersects(const ValueSet& other) const {
  ValueSet both = Intersection(other);
  return both.complement_ || !both.values_.empty();
}

bool ValueSet::Has(const std::string& value) const {
  return values_.contains(value) != complement_ && WithinBounds(value);
}

SelectorOperator ValueSet::op() const {
  if (complement_) return values_.empty() ? SelectorOperator::kExists : SelectorOperator::kNotIn;
  return values_.empty() ? SelectorOperator::kDoesNotExist : SelectorOperator::kIn;
}

bool ValueSet::AllowsAbsence() const {
  return op() == SelectorOperator::kNotIn || op() == SelectorOperator::kDoesNotExist;
}

std::optional<std::string> ValueSet::Single() const {
  if (complement_ || values_.size() != 1) return std::nullopt;
  return *values_.begin();
}

Requirement ValueSet::ToRequirement(const std::string& key) const {
  if (above_) return {key, SelectorOperator::kGt, {std::to_string(*above_)}};
  if (below_) return {key, SelectorOperator::kLt, {std::to_string(*below_)}};
  return {key, op(), {values_.begin(), values_.end()}};
}

std::string ValueSet::ToString(const std::string& key) const {
  std::string text = fmt::format("{} {}", key, NameOf(op()));
  if (!values_.empty()) {
    std::vector<std::string> shown(values_.begin(), values_.end());
    if (shown.size() > kShownValues) {
      size_t others = shown.size() - kShownValues;
      shown.resize(kShownValues);
      shown.push_back(fmt::format("and {} others", others));
    }
    text += fmt::format(" [{}]", fmt::join(shown, " "));
  }
  if (above_) text += fmt::format(" >{}", *above_);
  if (below_) text += fmt::format(" <{}", *below_);
  return text;
}

LabelRequirements LabelRequirements::FromLabels(const StringMap& labels) {
  LabelRequirements requirements;
  for (const auto& [key, value] : labels) requirements.Add(key, ValueSet::In({value}));
  return requirements;
}

void LabelRequirements::Add(const std::string& key, const ValueSet& values) {
  auto [it, added] = keys_.emplace(key, values);
  if (!added) it->second = values.Intersection(it->second);
}

void LabelRequirements::Add(const std::vector<Requirement>& requirements) {
  for (const Requirement& requirement : requirements) {
    Add(requirement.key, ValueSet::From(requirement));
  }
}

void LabelRequirements::Add(const LabelRequirements& other) {
  for (const auto& [key, values] : other.keys_) Add(key, values);
}

const ValueSet* LabelRequirements::Find(std::string_view key) const {
  auto it = keys_.find(key);
  return it == keys_.end() ? nullptr : &it->second;
}

bool LabelRequirements::Allows(std::string_view key, const std::string& value) const {
  const ValueSet* values = Find(key);
  return values == nullptr || values->Has(value);
}

std::string LabelRequirements::WhyIncompatible(const LabelRequirements& wanted,
                                               bool allow_unknown_well_known) const {
  for (const auto& [key, values] : wanted.keys_) {
    if (allow_unknown_well_known && IsWellKnownLabel(key)) continue;
    if (keys_.contains(key) || values.AllowsAbsence()) continue;
    return fmt::format("label \"{}\" does not have known values", key);
  }
  return WhyDisjoint(wanted);
}

std::string LabelRequirements::WhyDisjoint(const LabelRequirements& wanted) const {
  std::vector<std::string> reasons;
  for (const auto& [key, values] : wanted.keys_) {
    const ValueSet* mine = Find(key);
    if (mine == nullptr || mine->Intersects(values)) continue;
    if (values.AllowsAbsence() && mine->AllowsAbsence()) continue;
    reasons.push_back(
        fmt::format("key {}, {} not in {}", key, values.ToString(key), mine->ToString(key)));
  }
  return fmt::format("{}", fmt::join(reasons, "; "));
}

std::string LabelRequirements::ToString() const {
  std::vector<std::string> texts;
  for (const auto& [key, values] : keys_) texts.push_back(values.ToString(key));
  std::sort(texts.begin(), texts.end());
  return fmt::format("{}", fmt::join(texts, ", "));
}

bool IsWellKnownLabel(std::string_view key) {
  static constexpr std::array<std::string_view, 8> kKeys = {"karpenter.sh/nodepool",
                                                            "topology.kubernetes.io/zone",
                                                            "topology.kubernetes.io/region",
                                                            "node.kubernetes.io/instance-type",
                                                            "kubernetes.io/arch",
                                                            "kubernetes.io/os",
                                                            "karpenter.sh/capacity-type",
                                                            "node.kubernetes.io/windows-build"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end() ||
         key.starts_with("karpenter.k8s.aws/") || key == "topology.k8s.aws/zone-id";
}

}  // namespace muster::kube::simulators
