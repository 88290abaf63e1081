#include "lint/field_reader.h"

#include <limits>
#include <utility>

#include "kube/objects/excerpt.h"
#include "kube/objects/quantity.h"
#include "lint/text.h"

namespace muster::lint {

void FieldReader::Fail(int line, std::string_view message) {
  errors_->push_back({file_, line, kube::Excerpt(message)});
}

LocatedText FieldReader::Text(const yaml::YamlValue& value) {
  if (!value.is_scalar()) return {};
  return {value.Text(), value.line(), value.node()->quoted};
}

LocatedCount FieldReader::Count(const yaml::YamlValue& value, std::string_view name) {
  if (!value.present()) return {};
  int64_t count = 0;
  if (!ParseInt(value.Text(), &count) || count < 0 || count > std::numeric_limits<int32_t>::max()) {
    Fail(value.line(), Concat(name, ": must be an integer from 0, is ",
                              value.is_scalar() ? value.Text() : "a structure"));
    return {};
  }
  return {count, value.line()};
}

LocatedTexts FieldReader::Texts(const yaml::YamlValue& value, std::string_view name) {
  LocatedTexts texts;
  if (value.present() && !value.is_mapping()) {
    Fail(value.line(), Concat(name, ": must be a mapping"));
  }
  for (const yaml::YamlField& field : value.Fields()) {
    texts[field.key] = {field.value->text, field.line, field.value->quoted};
  }
  return texts;
}

std::map<std::string, std::string> FieldReader::Labels(const yaml::YamlValue& value,
                                                       std::string_view name) {
  std::map<std::string, std::string> labels;
  for (auto& [key, text] : Texts(value, name)) labels[key] = std::move(text.value);
  return labels;
}

LocatedAmounts FieldReader::Amounts(const yaml::YamlValue& value) {
  LocatedAmounts amounts;
  for (const yaml::YamlField& field : value.Fields()) {
    const absl::StatusOr<int64_t> amount =
        kube::ParseQuantity(field.value->text, kube::UnitOf(field.key));
    if (!amount.ok() || *amount < 0) {
      Fail(field.line, Concat(field.key, ": must be a quantity from 0, is ",
                              field.value->text.empty() ? "empty" : field.value->text));
      continue;
    }
    amounts[field.key] = {*amount, field.line};
  }
  return amounts;
}

std::vector<Requirement> FieldReader::Selector(const yaml::YamlValue& value) {
  std::vector<Requirement> requirements;
  for (const yaml::YamlField& field : value.Fields()) {
    requirements.push_back(
        {field.key, Requirement::Operator::kIn, {field.value->text}, field.line});
  }
  return requirements;
}

std::vector<Requirement> FieldReader::Requirements(const yaml::YamlValue& value) {
  std::vector<Requirement> requirements;
  for (const yaml::YamlValue& item : value.Items()) {
    Requirement requirement;
    requirement.key = item.Get("key").Text();
    requirement.line = item.line();
    const std::string& op = item.Get("operator").Text();
    if (!ParseOperator(op, &requirement.op)) {
      Fail(item.Get("operator").line(),
           Concat(requirement.key, ": unknown operator ", op.empty() ? "\"\"" : op,
                  ", must be In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte"));
      continue;
    }
    for (const yaml::YamlValue& v : item.Get("values").Items())
      requirement.values.push_back(v.Text());
    requirements.push_back(std::move(requirement));
  }
  return requirements;
}

}  // namespace muster::lint
