#include "kube/objects/meta.h"

#include <algorithm>
#include <charconv>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace muster::kube {
namespace {

const std::string* Find(const StringMap& map, std::string_view key) {
  auto it = map.find(key);
  return it == map.end() ? nullptr : &it->second;
}

// As Go's strconv.ParseInt(text, 10, 64): a sign, then digits only.
std::optional<int64_t> ParseInteger(std::string_view text) {
  if (text.starts_with("+")) {
    text.remove_prefix(1);
    if (text.starts_with("-")) return std::nullopt;
  }
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool MatchesInteger(const Requirement& requirement, const std::string& value) {
  if (requirement.values.size() != 1) return false;
  std::optional<int64_t> have = ParseInteger(value);
  std::optional<int64_t> bound = ParseInteger(requirement.values[0]);
  if (!have || !bound) return false;
  return requirement.op == SelectorOperator::kGt ? *have > *bound : *have < *bound;
}

bool IsDecimal(std::string_view version) {
  return !version.empty() && version[0] != '0' &&
         std::all_of(version.begin(), version.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string ObjectMeta::FullName() const {
  return name_space.empty() ? name : fmt::format("{}/{}", name_space, name);
}

const OwnerReference* ObjectMeta::Controller() const {
  auto it = std::find_if(owners.begin(), owners.end(),
                         [](const OwnerReference& owner) { return owner.controller; });
  return it == owners.end() ? nullptr : &*it;
}

NamespacedUid ObjectMeta::ControllerUid() const {
  const OwnerReference* controller = Controller();
  return {name_space, controller == nullptr ? "" : controller->uid};
}

const std::string* ObjectMeta::Label(std::string_view key) const { return Find(labels, key); }

std::string ObjectMeta::LabelText(std::string_view key) const {
  const std::string* value = Label(key);
  return value == nullptr ? "" : *value;
}

const std::string* ObjectMeta::Annotation(std::string_view key) const {
  return Find(annotations, key);
}

bool IsOlderVersion(std::string_view candidate, std::string_view current) {
  if (!IsDecimal(candidate) || !IsDecimal(current)) return false;
  if (candidate.size() != current.size()) return candidate.size() < current.size();
  return candidate < current;
}

bool Requirement::Matches(const std::string* value) const {
  switch (op) {
    case SelectorOperator::kIn:
      return value && std::find(values.begin(), values.end(), *value) != values.end();
    case SelectorOperator::kNotIn:
      return !value || std::find(values.begin(), values.end(), *value) == values.end();
    case SelectorOperator::kExists:
      return value != nullptr;
    case SelectorOperator::kDoesNotExist:
      return value == nullptr;
    case SelectorOperator::kGt:
    case SelectorOperator::kLt:
      return value && MatchesInteger(*this, *value);
  }
  return false;
}

std::string Requirement::ToString() const {
  switch (op) {
    case SelectorOperator::kIn:
      return values.size() == 1 ? fmt::format("{}={}", key, values[0])
                                : fmt::format("{} in ({})", key, fmt::join(values, ","));
    case SelectorOperator::kNotIn:
      return values.size() == 1 ? fmt::format("{}!={}", key, values[0])
                                : fmt::format("{} notin ({})", key, fmt::join(values, ","));
    case SelectorOperator::kExists:
      return key;
    case SelectorOperator::kDoesNotExist:
      return "!" + key;
    case SelectorOperator::kGt:
      return fmt::format("{}>{}", key, fmt::join(values, ","));
    case SelectorOperator::kLt:
      return fmt::format("{}<{}", key, fmt::join(values, ","));
  }
  return key;
}

bool LabelSelector::Matches(const StringMap& labels) const {
  return std::all_of(requirements.begin(), requirements.end(), [&](const Requirement& requirement) {
    return requirement.Matches(Find(labels, requirement.key));
  });
}

}  // namespace muster::kube
