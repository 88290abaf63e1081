#include "lint/json_tree.h"

#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::lint {
namespace {

namespace dom = simdjson::dom;

constexpr int kLine = 1;

class JsonTree {
 public:
  JsonTree(int64_t max_values, yaml::YamlFile* file) : max_values_(max_values), file_(file) {}

  // Null after an error.
  const yaml::YamlNode* Add(const dom::element& element, int depth) {
    if (depth > yaml::kMaxYamlDepth) {
      return Fail(absl::StrCat("nested deeper than ", yaml::kMaxYamlDepth, " levels"));
    }
    if (++values_ > max_values_) return Fail(absl::StrCat("more than ", max_values_, " values"));
    yaml::YamlNode& node = file_->nodes.emplace_back();
    node.line = kLine;
    switch (element.type()) {
      case dom::element_type::ARRAY:
        return AddItems(element.get_array().value_unsafe(), depth, &node);
      case dom::element_type::OBJECT:
        return AddFields(element.get_object().value_unsafe(), depth, &node);
      case dom::element_type::NULL_VALUE:
        return &node;
      case dom::element_type::STRING:
        node.text = element.get_string().value_unsafe();
        node.quoted = true;
        break;
      default:
        node.text = simdjson::minify(element);
    }
    node.kind = yaml::YamlNode::Kind::kScalar;
    return &node;
  }

 private:
  const yaml::YamlNode* AddItems(const dom::array& items, int depth, yaml::YamlNode* node) {
    node->kind = yaml::YamlNode::Kind::kSequence;
    for (const dom::element item : items) {
      const yaml::YamlNode* added = Add(item, depth + 1);
      if (added == nullptr) return nullptr;
      node->items.push_back(added);
    }
    return node;
  }

  const yaml::YamlNode* AddFields(const dom::object& fields, int depth, yaml::YamlNode* node) {
    node->kind = yaml::YamlNode::Kind::kMapping;
    for (const auto field : fields) {
      const yaml::YamlNode* added = Add(field.value, depth + 1);
      if (added == nullptr) return nullptr;
      node->fields.push_back({std::string(field.key), kLine, added});
    }
    return node;
  }

  const yaml::YamlNode* Fail(std::string message) {
    file_->error = {kLine, std::move(message)};
    return nullptr;
  }

  const int64_t max_values_;
  yaml::YamlFile* const file_;
  int64_t values_ = 0;
};

nlohmann::json ScalarOf(const yaml::YamlNode& node) {
  const std::string& text = node.text;
  if (node.quoted) return text;
  if (text == "true") return true;
  if (text == "false") return false;
  const char* const end = text.data() + text.size();
  int64_t whole = 0;
  if (const auto [at, error] = std::from_chars(text.data(), end, whole);
      error == std::errc() && at == end) {
    return whole;
  }
  double number = 0;
  if (const auto [at, error] = std::from_chars(text.data(), end, number);
      error == std::errc() && at == end && std::isfinite(number)) {
    return number;
  }
  return text;
}

}  // namespace

nlohmann::json JsonOf(const yaml::YamlValue& value) {
  if (value.is_mapping()) {
    nlohmann::json object = nlohmann::json::object();
    for (const yaml::YamlField& field : value.Fields()) {
      object[field.key] = JsonOf({field.value, field.line});
    }
    return object;
  }
  if (value.is_sequence()) {
    nlohmann::json list = nlohmann::json::array();
    for (const yaml::YamlValue& item : value.Items()) list.push_back(JsonOf(item));
    return list;
  }
  return value.is_scalar() ? ScalarOf(*value.node()) : nlohmann::json();
}

yaml::YamlFile ParseJson(std::string_view json, int64_t max_values) {
  yaml::YamlFile file;
  dom::parser parser;
  dom::element root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root);
      error != simdjson::SUCCESS) {
    file.error = {kLine, absl::StrCat("not JSON: ", simdjson::error_message(error))};
    return file;
  }
  const yaml::YamlNode* node = JsonTree(max_values, &file).Add(root, 1);
  if (node != nullptr) file.documents.emplace_back(node, kLine);
  return file;
}

}  // namespace muster::lint
