#include "yaml/fields.h"

#include <utility>

#include "fmt/format.h"

namespace muster::yaml {

void FailAt(const YAML::Node& node, const std::string& message) {
  throw FieldError{node.Mark().line + 1, message};
}

Fields::Fields(const YAML::Node& node, std::string what) : node_(node), what_(std::move(what)) {
  if (!node.IsMap()) FailAt(node, what_ + ": want a mapping");
}

YAML::Node Fields::Take(const std::string& key) {
  known_.insert(key);
  return node_[key];
}

void Fields::Require(const std::string& key) const {
  if (!node_[key]) FailAt(node_, Name(key) + ": missing");
}

void Fields::ReadDuration(const std::string& key, absl::Duration* out) {
  std::string text;
  Read(key, &text);
  if (!text.empty() && !absl::ParseDuration(text, out)) {
    FailAt(node_[key], fmt::format("{}: \"{}\" is no duration", Name(key), text));
  }
}

void Fields::Finish() const {
  for (const auto& entry : node_) {
    const auto key = entry.first.as<std::string>();
    if (!known_.contains(key)) FailAt(entry.first, Name(key) + ": unknown field");
  }
}

}  // namespace muster::yaml
