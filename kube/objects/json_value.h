// Parsed JSON whose values know their path, for decoders that name the field they reject.
//
// Getters never fail in place: a missing or null value reads as its default, and the first value
// of a wrong type is kept by the reader, so that a decoder reads straight through and asks once.
// What is kept is never longer than a message may be (excerpt.h), whatever the document says.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace muster::kube {

class JsonReader;

// A value inside the reader's document, or an absent one. Small, copied freely; lives no longer
// than its reader.
class JsonValue {
 public:
  // False for a missing field and for null, which Kubernetes treats alike.
  bool present() const { return present_; }

  // An absent value at the same path.
  JsonValue Absent() const { return JsonValue(reader_, node_); }
  // The field of an object. `key` must outlive the reader (a literal does).
  JsonValue Get(std::string_view key) const;
  // Calls visit(JsonValue) for each element of an array.
  template <typename Visit>
  void ForEach(Visit visit) const;
  // Calls visit(std::string_view key, JsonValue) for each field of an object.
  template <typename Visit>
  void ForEachField(Visit visit) const;

  std::string String() const;
  // Valid while the reader lives.
  std::string_view View() const;
  bool Bool(bool fallback = false) const;
  int64_t Int(int64_t fallback = 0) const;
  int32_t Int32(int32_t fallback = 0) const;
  // RFC 3339.
  std::optional<absl::Time> Time() const;

  bool IsString() const;
  bool IsInteger() const;
  bool IsNumber() const;
  // The value as JSON; "null" if it is absent.
  std::string Json() const;
  // The value as JSON, cut off after 64 bytes, for messages.
  std::string Excerpt() const;

  // "spec.containers[0].name"
  std::string Path() const;
  // Keeps "path: want WANT, got EXCERPT" as the document's type error unless one is kept already.
  void RejectType(std::string_view want) const;
  // Keeps "path: MESSAGE" as what makes the object unusable unless something is kept already.
  void RejectValue(std::string_view message) const;

 private:
  friend class JsonReader;
  JsonValue(JsonReader* reader, uint32_t node) : reader_(reader), node_(node) {}
  JsonValue(JsonReader* reader, uint32_t node, simdjson::dom::element element)
      : reader_(reader), node_(node), present_(!element.is_null()), element_(element) {}

  bool Open(simdjson::dom::object* object) const;
  bool Open(simdjson::dom::array* array) const;
  JsonValue Child(std::string_view key, simdjson::dom::element element) const;
  JsonValue Child(uint32_t index, simdjson::dom::element element) const;

  JsonReader* reader_;
  uint32_t node_;
  bool present_ = false;
  simdjson::dom::element element_;
};

// One document, parsed by the thread's own parser: at most one reader per thread at a time.
class JsonReader {
 public:
  explicit JsonReader(std::string_view json);
  ~JsonReader();
  JsonReader(const JsonReader&) = delete;
  JsonReader& operator=(const JsonReader&) = delete;

  // Absent if the document isn't a JSON object.
  JsonValue root();
  // InvalidArgument if the document isn't a JSON object or a value had a wrong type.
  const absl::Status& status() const { return status_; }
  // What makes the object unusable, naming the field; empty normally.
  const std::string& unusable() const { return unusable_; }
  // Keeps `message` as what makes the object unusable unless something is kept already.
  void RejectObject(std::string_view message);

 private:
  friend class JsonValue;
  // One step of a path: a key, or an index if key.data() is null. Step 0 is the root.
  struct Step {
    uint32_t parent;
    uint32_t index;
    std::string_view key;
  };
  struct ThreadState;
  static ThreadState& ThisThread();

  ThreadState& state_;
  absl::Status status_;
  std::string unusable_;
  simdjson::dom::element root_;
};

template <typename Visit>
void JsonValue::ForEach(Visit visit) const {
  simdjson::dom::array array;
  if (!Open(&array)) return;
  uint32_t index = 0;
  for (simdjson::dom::element element : array) visit(Child(index++, element));
}

template <typename Visit>
void JsonValue::ForEachField(Visit visit) const {
  simdjson::dom::object object;
  if (!Open(&object)) return;
  for (const simdjson::dom::key_value_pair field : object) {
    visit(field.key, Child(field.key, field.value));
  }
}

}  // namespace muster::kube
