#include "kube/embedded/compact_schema.h"

#include <algorithm>
#include <cstdlib>

namespace muster::kube::embedded {
namespace {

using Type = Schema::Type;

// The next word, past blanks and line ends; empty at the end.
std::string_view NextWord(std::string_view* text) {
  size_t start = text->find_first_not_of(" \n");
  if (start == std::string_view::npos) return {};
  size_t end = text->find_first_of(" \n", start);
  std::string_view word = text->substr(start, end - start);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end);
  return word;
}

Type LeafType(std::string_view letter) {
  switch (letter[0]) {
    case 's':
      return Type::kString;
    case 'i':
      return Type::kInt32;
    case 'l':
      return Type::kInt64;
    case 'n':
      return Type::kNumber;
    case 'b':
      return Type::kBoolean;
    case 'q':
      return Type::kQuantity;
    case 't':
      return Type::kTime;
    case 'T':
      return Type::kMicroTime;
    case 'y':
      return Type::kBytes;
    case 'x':
      return Type::kIntOrString;
    case '?':
      return Type::kAny;
    default:
      std::abort();
  }
}

// What follows the mark; without data if there is none.
std::string_view AfterMark(std::string_view type, char mark) {
  size_t at = type.find(mark);
  return at == std::string_view::npos ? std::string_view() : type.substr(at + 1);
}

// "" atomic, "*" a set, else keys: "containerPort,protocol=TCP".
void ReadListType(std::string_view text, Schema* schema) {
  if (text.empty()) return;
  schema->list_type = text == "*" ? Schema::ListType::kSet : Schema::ListType::kMap;
  if (text == "*") return;
  while (!text.empty()) {
    std::string_view key = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), key.size() + 1));
    size_t equals = key.find('=');
    std::string_view value = equals == std::string_view::npos ? "" : key.substr(equals + 1);
    schema->list_keys.push_back({std::string(key.substr(0, equals)), std::string(value)});
  }
}

}  // namespace

CompactSchemas::CompactSchemas(std::string_view text, Others others) : others_(others) {
  // A type starts at a line that isn't indented.
  size_t start = text.find_first_not_of('\n');
  while (start < text.size()) {
    size_t end = start;
    do {
      end = text.find('\n', end);
      if (end == std::string_view::npos) end = text.size();
    } while (end + 1 < text.size() && text[++end] == ' ');
    std::string_view body = text.substr(start, end - start);
    std::string_view name = NextWord(&body);
    bodies_[name] = body;
    start = end;
    while (start < text.size() && text[start] == '\n') ++start;
  }
  for (const auto& [name, body] : bodies_) TypeNamed(name);
}

std::shared_ptr<const Schema> CompactSchemas::Find(std::string_view name) const {
  auto it = types_.find(name);
  return it == types_.end() ? nullptr : it->second;
}

std::shared_ptr<const Schema> CompactSchemas::TypeNamed(std::string_view name) {
  auto known = types_.find(name);
  if (known != types_.end()) return known->second;
  auto body = bodies_.find(name);
  if (body == bodies_.end()) {
    std::shared_ptr<const Schema> other = others_ == nullptr ? nullptr : others_(name);
    if (other == nullptr) std::abort();
    return other;
  }
  auto schema = std::make_shared<Schema>();
  schema->type = Type::kObject;
  std::string_view rest = body->second;
  for (std::string_view word = NextWord(&rest); !word.empty(); word = NextWord(&rest)) {
    if (word == "!") {
      schema->atomic = true;
      continue;
    }
    size_t colon = word.find(':');
    std::string field(word.substr(0, colon));
    if (field.ends_with('+')) {
      field.pop_back();
      schema->required.push_back(field);
    }
    schema->fields[field] = Parse(word.substr(colon + 1));
  }
  types_[name] = schema;
  return schema;
}

std::shared_ptr<const Schema> CompactSchemas::Parse(std::string_view type) {
  const bool atomic = type[0] == '!';
  if (atomic) type.remove_prefix(1);
  const bool one_of = type.starts_with("s=");
  if (type[0] != '*' && type[0] != '%' && type.size() > 1 && !one_of) return TypeNamed(type);
  auto schema = std::make_shared<Schema>();
  if (type[0] == '%') {
    schema->type = Type::kMap;
    schema->atomic = atomic;
    schema->element = Parse(type.substr(1));
    return schema;
  }
  if (type[0] == '*') {
    schema->type = Type::kList;
    schema->element = Parse(type.substr(1, type.find_first_of("@~") - 1));
    std::string_view apply = AfterMark(type, '~');
    std::string_view merge = AfterMark(type.substr(0, type.find('~')), '@');
    schema->merges = merge.data() != nullptr;
    schema->merge_key = merge;
    if (apply.data() == nullptr && schema->merges) apply = merge.empty() ? "*" : merge;
    ReadListType(apply, schema.get());
    return schema;
  }
  schema->type = LeafType(type);
  for (std::string_view rest = one_of ? type.substr(1) : ""; !rest.empty();) {
    rest.remove_prefix(1);
    schema->choices.emplace_back(rest.substr(0, rest.find('|')));
    rest.remove_prefix(schema->choices.back().size());
  }
  return schema;
}

}  // namespace muster::kube::embedded
