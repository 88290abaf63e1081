#include "kube/objects/json_value.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>

#include "kube/objects/excerpt.h"
#include "kube/objects/time_text.h"

namespace muster::kube {
namespace {

constexpr size_t kExcerptBytes = 64;
// A parser keeps the memory of its largest document. Objects are at most 1.5 MiB in etcd by
// default; a parser that has grown past that is thrown away after use.
constexpr size_t kKeptParserBytes = 2 << 20;

}  // namespace

struct JsonReader::ThreadState {
  simdjson::dom::parser parser;
  std::vector<Step> steps;
  bool busy = false;
};

JsonReader::ThreadState& JsonReader::ThisThread() {
  thread_local ThreadState state;
  return state;
}

JsonReader::JsonReader(std::string_view json) : state_(ThisThread()) {
  if (state_.busy) std::abort();
  state_.busy = true;
  state_.steps.clear();
  state_.steps.push_back({0, 0, {}});
  const auto error = state_.parser.parse(json.data(), json.size()).get(root_);
  if (error) {
    status_ = absl::InvalidArgumentError(
        fmt::format("not valid JSON ({} bytes): {}", json.size(), simdjson::error_message(error)));
  } else if (!root_.is_object()) {
    status_ = absl::InvalidArgumentError("want a JSON object");
  }
}

JsonReader::~JsonReader() {
  if (state_.parser.capacity() > kKeptParserBytes) {
    state_.parser = simdjson::dom::parser();
    state_.steps = {};
  }
  state_.busy = false;
}

JsonValue JsonReader::root() {
  return status_.ok() ? JsonValue(this, 0, root_) : JsonValue(this, 0);
}

void JsonReader::RejectObject(std::string_view message) {
  if (unusable_.empty()) unusable_ = Excerpt(message);
}

JsonValue JsonValue::Child(std::string_view key, simdjson::dom::element element) const {
  auto& steps = reader_->state_.steps;
  steps.push_back({node_, 0, key});
  return JsonValue(reader_, static_cast<uint32_t>(steps.size() - 1), element);
}

JsonValue JsonValue::Child(uint32_t index, simdjson::dom::element element) const {
  auto& steps = reader_->state_.steps;
  steps.push_back({node_, index, {}});
  return JsonValue(reader_, static_cast<uint32_t>(steps.size() - 1), element);
}

bool JsonValue::Open(simdjson::dom::object* object) const {
  if (!present_) return false;
  if (!element_.get(*object)) return true;
  RejectType("an object");
  return false;
}

bool JsonValue::Open(simdjson::dom::array* array) const {
  if (!present_) return false;
  if (!element_.get(*array)) return true;
  RejectType("an array");
  return false;
}

JsonValue JsonValue::Get(std::string_view key) const {
  simdjson::dom::object object;
  simdjson::dom::element element;
  if (Open(&object) && !object.at_key(key).get(element)) return Child(key, element);
  auto& steps = reader_->state_.steps;
  steps.push_back({node_, 0, key});
  return JsonValue(reader_, static_cast<uint32_t>(steps.size() - 1));
}

std::string_view JsonValue::View() const {
  std::string_view text;
  if (present_ && element_.get(text)) RejectType("string");
  return text;
}

std::string JsonValue::String() const { return std::string(View()); }

bool JsonValue::Bool(bool fallback) const {
  bool value = fallback;
  if (present_ && element_.get(value)) RejectType("true or false");
  return value;
}

int64_t JsonValue::Int(int64_t fallback) const {
  int64_t value = fallback;
  if (present_ && element_.get(value)) RejectType("an integer");
  return value;
}

int32_t JsonValue::Int32(int32_t fallback) const {
  const int64_t value = Int(fallback);
  if (value >= std::numeric_limits<int32_t>::min() &&
      value <= std::numeric_limits<int32_t>::max()) {
    return static_cast<int32_t>(value);
  }
  RejectType("a 32-bit integer");
  return fallback;
}

std::optional<absl::Time> JsonValue::Time() const {
  if (!present_) return std::nullopt;
  std::string_view text;
  if (!element_.get(text)) {
    if (const auto time = ReadTimeText(text)) return time;
  }
  RejectType("an RFC 3339 time");
  return std::nullopt;
}

bool JsonValue::IsString() const { return present_ && element_.is_string(); }
bool JsonValue::IsInteger() const { return present_ && element_.is_int64(); }
bool JsonValue::IsNumber() const { return present_ && element_.is_number(); }

std::string JsonValue::Json() const {
  return present_ ? simdjson::minify(element_) : std::string("null");
}

std::string JsonValue::Excerpt() const {
  if (!present_) return "nothing";
  if (element_.is_object()) return "an object";
  if (element_.is_array()) return "an array";
  return muster::kube::Excerpt(simdjson::minify(element_), kExcerptBytes);
}

std::string JsonValue::Path() const {
  const auto& steps = reader_->state_.steps;
  std::vector<uint32_t> chain;
  for (uint32_t at = node_; at != 0; at = steps[at].parent) chain.push_back(at);
  std::string path;
  for (auto at = chain.rbegin(); at != chain.rend(); ++at) {
    const auto& step = steps[*at];
    if (step.key.data() == nullptr) {
      path += fmt::format("[{}]", step.index);
    } else if (step.key.find_first_of("./") != std::string_view::npos) {
      path += fmt::format("[{}]", step.key);
    } else {
      if (!path.empty()) path += '.';
      path += step.key;
    }
  }
  return path.empty() ? "the object" : path;
}

void JsonValue::RejectType(std::string_view want) const {
  if (!reader_->status_.ok()) return;
  reader_->status_ = absl::InvalidArgumentError(
      muster::kube::Excerpt(fmt::format("{}: want {}, got {}", Path(), want, Excerpt())));
}

void JsonValue::RejectValue(std::string_view message) const {
  if (reader_->unusable_.empty()) reader_->RejectObject(fmt::format("{}: {}", Path(), message));
}

}  // namespace muster::kube
