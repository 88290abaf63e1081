#include "kube/embedded/field_set.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;

constexpr const char* kSelf = ".";

void KeepElement(const std::string& element, FieldSet set, FieldSet* into) {
  if (!set.empty()) into->children[element] = std::move(set);
}

// An element as paths write it.
std::string ShownElement(const std::string& element) {
  const std::string text = element.substr(2);
  if (element[0] == 'f') return "." + text;
  if (element[0] == 'v') return "[=" + text + "]";
  const Json keys = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> shown;
  if (keys.is_object()) {
    for (const auto& [name, value] : keys.items()) shown.push_back(name + "=" + value.dump());
  }
  return fmt::format("[{}]", fmt::join(shown, ","));
}

void Visit(const FieldSet& set, const std::string& path,
           const std::function<void(const std::string&)>& visit) {
  for (const auto& [element, below] : set.children) {
    if (below.member) visit(path + ShownElement(element));
  }
  for (const auto& [element, below] : set.children)
    Visit(below, path + ShownElement(element), visit);
}

}  // namespace

FieldSet FieldSetFromJson(const Json& fields) {
  FieldSet set;
  if (!fields.is_object()) return set;
  for (const auto& [element, below] : fields.items()) {
    if (element.size() < 2 || element[1] != ':') continue;
    FieldSet child = FieldSetFromJson(below);
    // A field with nothing beneath it is written without the dot.
    child.member = child.children.empty() || below.contains(kSelf);
    set.children[element] = std::move(child);
  }
  return set;
}

Json FieldSetJson(const FieldSet& set) {
  Json fields = Json::object();
  for (const auto& [element, below] : set.children) {
    Json& written = fields[element] = FieldSetJson(below);
    if (below.member && !below.children.empty()) written[kSelf] = Json::object();
  }
  return fields;
}

FieldSet Union(const FieldSet& a, const FieldSet& b) {
  FieldSet both = a;
  both.member |= b.member;
  for (const auto& [element, below] : b.children) {
    FieldSet& mine = both.children[element];
    mine = Union(mine, below);
  }
  return both;
}

FieldSet Intersection(const FieldSet& a, const FieldSet& b) {
  FieldSet both{.member = a.member && b.member};
  for (const auto& [element, below] : a.children) {
    auto other = b.children.find(element);
    if (other != b.children.end()) KeepElement(element, Intersection(below, other->second), &both);
  }
  return both;
}

FieldSet Difference(const FieldSet& a, const FieldSet& b) {
  FieldSet left{.member = a.member && !b.member};
  for (const auto& [element, below] : a.children) {
    auto other = b.children.find(element);
    KeepElement(element, other == b.children.end() ? below : Difference(below, other->second),
                &left);
  }
  return left;
}

void ForEachField(const FieldSet& set, const std::function<void(const std::string&)>& visit) {
  Visit(set, "", visit);
}

}  // namespace muster::kube::embedded
