#include "kube/embedded/selectors.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/embedded/json_fields.h"
#include "kube/embedded/resource_types.h"

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;

class LabelSelectorParser {
 public:
  explicit LabelSelectorParser(std::string_view text) : text_(text), rest_(text) {}

  ApiResult<LabelSelector> Parse() {
    LabelSelector selector;
    SkipBlanks();
    while (!rest_.empty()) {
      Requirement requirement;
      if (!ParseRequirement(&requirement)) return Malformed();
      selector.requirements.push_back(std::move(requirement));
      SkipBlanks();
      if (rest_.empty()) break;
      if (!Take(",")) return Malformed();
      SkipBlanks();
      if (rest_.empty()) return Malformed();
    }
    return selector;
  }

 private:
  ApiError Malformed() const {
    return BadRequest(fmt::format("unable to parse requirement: labelSelector {} at {}",
                                  Quoted(std::string(text_)),
                                  rest_.empty() ? "the end" : Quoted(std::string(rest_))));
  }

  bool ParseRequirement(Requirement* out) {
    if (Take("!")) {
      out->op = SelectorOperator::kDoesNotExist;
      out->key = Word();
      return !out->key.empty();
    }
    out->key = Word();
    if (out->key.empty()) return false;
    if (Take("!=")) return Value(SelectorOperator::kNotIn, out);
    if (Take("==") || Take("=")) return Value(SelectorOperator::kIn, out);
    if (Take(">")) return Value(SelectorOperator::kGt, out);
    if (Take("<")) return Value(SelectorOperator::kLt, out);
    std::string_view before = rest_;
    std::string word = Word();
    if (word == "in") return Values(SelectorOperator::kIn, out);
    if (word == "notin") return Values(SelectorOperator::kNotIn, out);
    rest_ = before;
    out->op = SelectorOperator::kExists;
    return word.empty();
  }

  bool Value(SelectorOperator op, Requirement* out) {
    out->op = op;
    out->values = {Word()};
    return true;
  }

  bool Values(SelectorOperator op, Requirement* out) {
    out->op = op;
    if (!Take("(")) return false;
    do {
      out->values.push_back(Word());
    } while (Take(","));
    return Take(")");
  }

  void SkipBlanks() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
  }

  bool Take(std::string_view token) {
    SkipBlanks();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  std::string Word() {
    SkipBlanks();
    size_t end = rest_.find_first_of(" ,()=!<>");
    std::string word(rest_.substr(0, end));
    rest_.remove_prefix(word.size());
    return word;
  }

  const std::string_view text_;
  std::string_view rest_;
};

std::optional<SelectorOperator> OperatorNamed(const std::string& name) {
  if (name == "In") return SelectorOperator::kIn;
  if (name == "NotIn") return SelectorOperator::kNotIn;
  if (name == "Exists") return SelectorOperator::kExists;
  if (name == "DoesNotExist") return SelectorOperator::kDoesNotExist;
  return std::nullopt;
}

std::string FieldText(const Json& object, const std::string& field) {
  const Json* at = &object;
  size_t start = 0;
  while (at != nullptr && start <= field.size()) {
    size_t end = std::min(field.find('.', start), field.size());
    auto it = at->is_object() ? at->find(field.substr(start, end - start)) : at->end();
    at = it == at->end() ? nullptr : &*it;
    start = end + 1;
  }
  if (field == "source" && at != nullptr) return StringAt(*at, {"component"});
  if (at == nullptr) {
    return field == "spec.unschedulable" || field == "spec.hostNetwork" ? "false" : "";
  }
  return at->is_string() ? at->get<std::string>() : at->dump();
}

}  // namespace

ApiResult<LabelSelector> ParseLabelSelector(std::string_view text) {
  return LabelSelectorParser(text).Parse();
}

ApiResult<LabelSelector> LabelSelectorFromJson(const Json& selector) {
  LabelSelector parsed;
  for (const auto& [key, value] : MapAt(selector, {"matchLabels"}).items()) {
    if (!value.is_string()) return BadRequest("matchLabels." + key + ": want a string");
    parsed.requirements.push_back({key, SelectorOperator::kIn, {value.get<std::string>()}});
  }
  for (const Json& expression : ListAt(selector, {"matchExpressions"})) {
    std::optional<SelectorOperator> op = OperatorNamed(StringAt(expression, {"operator"}));
    if (!op) {
      return BadRequest(fmt::format("matchExpressions: {} is not a valid label selector operator",
                                    Quoted(StringAt(expression, {"operator"}))));
    }
    Requirement requirement{StringAt(expression, {"key"}), *op, {}};
    for (const Json& value : ListAt(expression, {"values"})) {
      if (value.is_string()) requirement.values.push_back(value.get<std::string>());
    }
    parsed.requirements.push_back(std::move(requirement));
  }
  return parsed;
}

bool MatchesLabels(const LabelSelector& selector, const Json& object) {
  if (selector.requirements.empty()) return true;
  const Json& labels = MapAt(object, {"metadata", "labels"});
  for (const Requirement& requirement : selector.requirements) {
    auto it = labels.find(requirement.key);
    bool there = it != labels.end() && it->is_string();
    if (!requirement.Matches(there ? &it->get_ref<const std::string&>() : nullptr)) return false;
  }
  return true;
}

ApiResult<std::vector<FieldRequirement>> ParseFieldSelector(const ResourceType& type,
                                                            std::string_view text) {
  std::vector<FieldRequirement> requirements;
  while (!text.empty()) {
    size_t comma = std::min(text.find(','), text.size());
    std::string term(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (term.empty()) continue;
    size_t at = term.find('=');
    if (at == std::string::npos || at == 0) {
      return BadRequest(fmt::format("invalid field selector {}: want field=value", Quoted(term)));
    }
    FieldRequirement requirement;
    requirement.equal = term[at - 1] != '!';
    requirement.field = term.substr(0, requirement.equal ? at : at - 1);
    if (at + 1 < term.size() && term[at + 1] == '=') ++at;
    requirement.value = term.substr(at + 1);
    bool known = requirement.field == "metadata.name" || requirement.field == "metadata.namespace";
    for (const std::string& field : type.selectable_fields) known |= field == requirement.field;
    if (!known) {
      return BadRequest(fmt::format("field label not supported: {}", requirement.field));
    }
    requirements.push_back(std::move(requirement));
  }
  return requirements;
}

bool MatchesFields(const std::vector<FieldRequirement>& requirements, const Json& object) {
  for (const FieldRequirement& requirement : requirements) {
    if ((FieldText(object, requirement.field) == requirement.value) != requirement.equal) {
      return false;
    }
  }
  return true;
}

}  // namespace muster::kube::embedded
