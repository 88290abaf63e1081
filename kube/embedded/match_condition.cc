#include "kube/embedded/match_condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;
using Value = absl::StatusOr<Json>;

constexpr int kMaxNesting = 32;

absl::Status NoSuchKey(const std::string& path) {
  return absl::FailedPreconditionError("no such key: " + path);
}

class Evaluator {
 public:
  Evaluator(std::string_view text, const Json& variables) : text_(text), variables_(variables) {}

  absl::StatusOr<bool> Run() {
    Value value = Or();
    if (!broken_.ok()) return broken_;
    SkipBlanks();
    if (at_ != text_.size()) return Malformed("unexpected text");
    if (!value.ok()) return value.status();
    if (!value->is_boolean()) return absl::FailedPreconditionError("must evaluate to bool");
    return value->get<bool>();
  }

 private:
  // An error of the text itself ends the evaluation; one of evaluation is a value.
  absl::Status Malformed(std::string_view what) {
    if (broken_.ok()) {
      broken_ = absl::InvalidArgumentError(
          fmt::format("{} at \"{}\": only comparisons of fields with literals, has(), in, &&, || "
                      "and ! are supported",
                      what, text_.substr(std::min(at_, text_.size()))));
    }
    return broken_;
  }

  Value Or() {
    Value left = And();
    while (broken_.ok() && Take("||")) {
      Value right = And();
      left = Join(std::move(left), std::move(right), true);
    }
    return left;
  }

  Value And() {
    Value left = Comparison();
    while (broken_.ok() && Take("&&")) {
      Value right = Comparison();
      left = Join(std::move(left), std::move(right), false);
    }
    return left;
  }

  // && and || are decided by either side, whatever the other's error.
  static Value Join(Value left, Value right, bool decisive) {
    for (const Value* side : {&left, &right}) {
      if (side->ok() && (*side)->is_boolean() && (*side)->get<bool>() == decisive) {
        return Json(decisive);
      }
    }
    if (!left.ok()) return left;
    if (!right.ok()) return right;
    if (!left->is_boolean() || !right->is_boolean()) {
      return absl::FailedPreconditionError("no such overload: && and || want booleans");
    }
    return Json(!decisive);
  }

  Value Comparison() {
    Value left = Unary();
    if (!broken_.ok()) return left;
    if (Take("==")) return Compare(std::move(left), Unary(), true);
    if (Take("!=")) return Compare(std::move(left), Unary(), false);
    if (TakeWord("in")) return In(std::move(left));
    return left;
  }

  static Value Compare(Value left, Value right, bool equal) {
    if (!left.ok()) return left;
    if (!right.ok()) return right;
    return Json((*left == *right) == equal);
  }

  // In a list that is written there, or among the keys of a map.
  Value In(Value needle) {
    if (!Take("[")) {
      Value map = Path();
      if (!broken_.ok()) return broken_;
      if (!needle.ok()) return needle;
      if (!map.ok()) return map;
      if (!map->is_object() || !needle->is_string()) {
        return absl::FailedPreconditionError("no such overload: in wants a list, or a map's key");
      }
      return Json(map->contains(needle->get<std::string>()));
    }
    bool found = false;
    if (!Take("]")) {
      do {
        Value item = Unary();
        if (!broken_.ok()) return broken_;
        found |= needle.ok() && item.ok() && *needle == *item;
      } while (Take(","));
      if (!Take("]")) return Malformed("expected ]");
    }
    if (!needle.ok()) return needle;
    return Json(found);
  }

  Value Unary() {
    SkipBlanks();
    if (at_ < text_.size() && text_[at_] == '!' && !text_.substr(at_).starts_with("!=")) {
      ++at_;
      if (++nesting_ > kMaxNesting) return Malformed("nested too deeply");
      Value value = Unary();
      --nesting_;
      if (!value.ok()) return value;
      if (!value->is_boolean()) {
        return absl::FailedPreconditionError("no such overload: ! wants a boolean");
      }
      return Json(!value->get<bool>());
    }
    return Primary();
  }

  Value Primary() {
    SkipBlanks();
    if (at_ >= text_.size()) return Malformed("unexpected end");
    const char c = text_[at_];
    if (c == '(') {
      ++at_;
      if (++nesting_ > kMaxNesting) return Malformed("nested too deeply");
      Value value = Or();
      --nesting_;
      if (broken_.ok() && !Take(")")) return Malformed("expected )");
      return value;
    }
    if (c == '"' || c == '\'') return StringLiteral(c);
    if (c == '-' || std::isdigit(static_cast<unsigned char>(c))) return IntegerLiteral();
    if (TakeWord("true")) return Json(true);
    if (TakeWord("false")) return Json(false);
    if (TakeWord("has")) return Has();
    return Path();
  }

  Value StringLiteral(char quote) {
    std::string text;
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] == '\\') {
        ++at_;
        if (at_ == text_.size() || (text_[at_] != '\\' && text_[at_] != quote)) {
          return Malformed("unsupported escape");
        }
      }
      text += text_[at_];
    }
    if (at_ == text_.size()) return Malformed("unterminated string");
    ++at_;
    return Json(text);
  }

  Value IntegerLiteral() {
    int64_t number = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
    if (error != std::errc()) return Malformed("bad number");
    at_ = static_cast<size_t>(end - text_.data());
    return Json(number);
  }

  Value Has() {
    if (!Take("(")) return Malformed("expected (");
    Value value = Path();
    if (broken_.ok() && !Take(")")) return Malformed("expected )");
    if (!broken_.ok()) return broken_;
    return Json(value.ok());
  }

  // object.spec.nodeName, object.metadata.labels["x/y"]
  Value Path() {
    std::string path = Identifier();
    if (path.empty() || !variables_.contains(path)) return Malformed("unknown identifier");
    const Json* value = &variables_[path];
    absl::Status missing;
    while (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == '[')) {
      std::string key;
      if (text_[at_++] == '.') {
        key = Identifier();
        if (key.empty()) return Malformed("expected a field name");
      } else {
        SkipBlanks();
        if (at_ >= text_.size() || (text_[at_] != '"' && text_[at_] != '\'')) {
          return Malformed("expected a string");
        }
        Value literal = StringLiteral(text_[at_]);
        if (!literal.ok()) return literal;
        key = literal->get<std::string>();
        if (!Take("]")) return Malformed("expected ]");
      }
      path += "." + key;
      auto it = value->is_object() ? value->find(key) : value->end();
      if (it == value->end()) {
        if (missing.ok()) missing = NoSuchKey(path);
      } else if (missing.ok()) {
        value = &*it;
      }
    }
    if (at_ < text_.size() && text_[at_] == '(') return Malformed("unsupported function");
    if (!missing.ok()) return missing;
    return *value;
  }

  std::string Identifier() {
    SkipBlanks();
    size_t start = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) {
      ++at_;
    }
    return std::string(text_.substr(start, at_ - start));
  }

  void SkipBlanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  bool Take(std::string_view token) {
    SkipBlanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  bool TakeWord(std::string_view word) {
    SkipBlanks();
    if (!text_.substr(at_).starts_with(word)) return false;
    size_t end = at_ + word.size();
    if (end < text_.size() &&
        (std::isalnum(static_cast<unsigned char>(text_[end])) || text_[end] == '_')) {
      return false;
    }
    at_ = end;
    return true;
  }

  const std::string_view text_;
  const Json& variables_;
  size_t at_ = 0;
  int nesting_ = 0;
  absl::Status broken_;
};

}  // namespace

absl::StatusOr<bool> EvaluateCondition(const std::string& expression, const Json& variables) {
  return Evaluator(expression, variables).Run();
}

}  // namespace muster::kube::embedded
