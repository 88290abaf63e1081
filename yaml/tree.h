// YAML as a tree whose values know their lines, read as Kubernetes reads manifests and stricter
// where that guesses: a key that stands twice is an error here.
//
// What it refuses, always with a line: bytes that aren't UTF-8, control characters, tabs in the
// indentation, keys that aren't scalars, an alias inside its own anchor, and input that is too
// large: more bytes, deeper nesting, or more values, aliases written out, than the limits below.
// Nothing that it is given makes it use more than some hundred bytes per byte of input.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::yaml {

// A manifest in a cluster has 1.5 MiB at most; a rendered chart is a few.
inline constexpr size_t kMaxYamlBytes = size_t{8} << 20;
inline constexpr int kMaxYamlDepth = 100;
inline constexpr int64_t kMaxYamlValues = 1'000'000;

struct YamlNode;

struct YamlField {
  std::string key;
  int line = 0;  // of the key
  const YamlNode* value = nullptr;
};

struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMapping };
  Kind kind = Kind::kNull;
  int line = 0;  // from 1
  std::string text;
  bool quoted = false;   // or a block: never a number or a boolean
  bool literal = false;  // a block scalar "|": its lines follow this one, one by one
  std::vector<const YamlNode*> items;
  std::vector<YamlField> fields;
  int64_t values = 1;  // in all, aliases written out
};

// A node or nothing: what is absent reads as empty and has the line of what it is absent from.
class YamlValue {
 public:
  YamlValue() = default;
  YamlValue(const YamlNode* node, int line) : node_(node), line_(line) {}

  // Neither absent nor null, which Kubernetes treats alike.
  bool present() const { return node_ != nullptr && node_->kind != YamlNode::Kind::kNull; }
  bool is_scalar() const { return Is(YamlNode::Kind::kScalar); }
  bool is_mapping() const { return Is(YamlNode::Kind::kMapping); }
  bool is_sequence() const { return Is(YamlNode::Kind::kSequence); }
  // Of its key, if it has one.
  int line() const { return line_; }
  const YamlNode* node() const { return node_; }

  YamlValue Get(std::string_view key) const;
  // "spec.template.spec"
  YamlValue At(std::string_view path) const;
  // A scalar's text, or "".
  const std::string& Text() const;
  // Empty unless it is a sequence, a mapping.
  std::vector<YamlValue> Items() const;
  const std::vector<YamlField>& Fields() const;

 private:
  bool Is(YamlNode::Kind kind) const { return node_ != nullptr && node_->kind == kind; }

  const YamlNode* node_ = nullptr;
  int line_ = 0;
};

struct YamlError {
  int line = 0;
  std::string message;
};

// The documents of one text, those before an error included.
struct YamlFile {
  std::deque<YamlNode> nodes;  // owns
  std::vector<YamlValue> documents;
  std::optional<YamlError> error;
};

YamlFile ParseYaml(std::string_view text);

// The value as YAML text, each line indented by `indent`, with a newline at its end.
std::string EmitYaml(const YamlValue& value, int indent = 0);

}  // namespace muster::yaml
