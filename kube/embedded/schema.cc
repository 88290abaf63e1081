#include "kube/embedded/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/time/time.h"
#include "kube/embedded/json_fields.h"
#include "kube/objects/quantity.h"
#include "kube/objects/time_text.h"

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;
using Type = Schema::Type;

constexpr size_t kMaxFindings = 16;
constexpr int kMaxDepth = 64;

const char* Wanted(Type type) {
  switch (type) {
    case Type::kAny:
      return "any value";
    case Type::kString:
      return "a string";
    case Type::kInt32:
    case Type::kInt64:
      return "an integer";
    case Type::kNumber:
      return "a number";
    case Type::kBoolean:
      return "a boolean";
    case Type::kObject:
    case Type::kMap:
      return "an object";
    case Type::kList:
      return "an array";
    case Type::kQuantity:
      return "a quantity";
    case Type::kTime:
    case Type::kMicroTime:
      return "an RFC 3339 time";
    case Type::kBytes:
      return "a base64 string";
    case Type::kIntOrString:
      return "an integer or a string";
  }
  return "";
}

bool IsInteger(const Json& value, int64_t low, int64_t high) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= static_cast<uint64_t>(high);
  if (!value.is_number_integer()) return false;
  return value.get<int64_t>() >= low && value.get<int64_t>() <= high;
}

bool IsTime(const Json& value) {
  return value.is_string() && ReadTimeText(value.get_ref<const std::string&>()).has_value();
}

// A JSON number is a quantity too. Values past int64 are the real server's business to accept, so
// they pass here: whoever counts them says what is wrong.
bool IsQuantity(const Json& value) {
  if (value.is_number()) return true;
  if (!value.is_string()) return false;
  absl::StatusOr<int64_t> parsed =
      ParseQuantity(value.get_ref<const std::string&>(), QuantityUnit::kMilli);
  return parsed.ok() || absl::IsOutOfRange(parsed.status());
}

bool HasType(const Json& value, Type type) {
  switch (type) {
    case Type::kAny:
      return true;
    case Type::kString:
    case Type::kBytes:
      return value.is_string();
    case Type::kInt32:
      return IsInteger(value, std::numeric_limits<int32_t>::min(),
                       std::numeric_limits<int32_t>::max());
    case Type::kInt64:
      return IsInteger(value, std::numeric_limits<int64_t>::min(),
                       std::numeric_limits<int64_t>::max());
    case Type::kNumber:
      return value.is_number();
    case Type::kBoolean:
      return value.is_boolean();
    case Type::kObject:
    case Type::kMap:
      return value.is_object();
    case Type::kList:
      return value.is_array();
    case Type::kQuantity:
      return IsQuantity(value);
    case Type::kTime:
    case Type::kMicroTime:
      return IsTime(value);
    case Type::kIntOrString:
      return value.is_string() || value.is_number_integer();
  }
  return false;
}

class Walker {
 public:
  Walker(bool keep_unknown, SchemaFindings* findings)
      : keep_unknown_(keep_unknown), findings_(findings) {}

  void Walk(const Schema& schema, Json* value) {
    if (!HasType(*value, schema.type)) {
      ReportType(schema, *value);
      return;
    }
    // The API writes quantities as strings, whatever it read.
    if (schema.type == Type::kQuantity && value->is_number()) *value = value->dump();
    CheckBounds(schema, *value);
    if (schema.type == Type::kObject) WalkFields(schema, value);
    if (schema.type == Type::kMap) WalkMap(schema, value);
    if (schema.type == Type::kList) WalkList(schema, value);
  }

 private:
  void ReportType(const Schema& schema, const Json& value) {
    if (findings_->type_errors.size() >= kMaxFindings) return;
    std::string shown = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (shown.size() > 80) shown = shown.substr(0, 77) + "...";
    std::string bits = schema.type == Type::kInt32 && value.is_number() ? " of 32 bits" : "";
    findings_->type_errors.push_back(fmt::format(
        "{}: want {}{}, got {}", path_.empty() ? "body" : path_, Wanted(schema.type), bits, shown));
  }

  void CheckBounds(const Schema& schema, const Json& value) {
    if (findings_->constraints.causes().size() >= kMaxFindings) return;
    FieldErrors& out = findings_->constraints;
    if (value.is_number()) {
      double number = value.get<double>();
      if (schema.minimum && number < *schema.minimum) {
        out.Invalid(path_, value.dump(),
                    fmt::format("{} in body should be greater than or equal to {}", path_,
                                *schema.minimum));
      }
      if (schema.maximum && number > *schema.maximum) {
        out.Invalid(
            path_, value.dump(),
            fmt::format("{} in body should be less than or equal to {}", path_, *schema.maximum));
      }
    }
    if (value.is_string()) CheckString(schema, value.get_ref<const std::string&>());
    if (value.is_array()) {
      if (schema.min_items && value.size() < *schema.min_items) {
        out.Invalid(
            path_, std::to_string(value.size()),
            fmt::format("{} in body should have at least {} items", path_, *schema.min_items));
      }
      if (schema.max_items && value.size() > *schema.max_items) {
        out.Invalid(
            path_, std::to_string(value.size()),
            fmt::format("{} in body should have at most {} items", path_, *schema.max_items));
      }
    }
  }

  void CheckString(const Schema& schema, const std::string& text) {
    FieldErrors& out = findings_->constraints;
    if (!schema.choices.empty() &&
        std::find(schema.choices.begin(), schema.choices.end(), text) == schema.choices.end()) {
      out.NotSupported(path_, Quoted(text), schema.choices);
    }
    if (schema.min_length && text.size() < *schema.min_length) {
      out.Invalid(
          path_, Quoted(text),
          fmt::format("{} in body should be at least {} chars long", path_, *schema.min_length));
    }
    if (schema.max_length && text.size() > *schema.max_length) {
      out.Invalid(
          path_, Quoted(text.substr(0, 80)),
          fmt::format("{} in body should be at most {} chars long", path_, *schema.max_length));
    }
  }

  void WalkFields(const Schema& schema, Json* object) {
    for (auto it = object->begin(); it != object->end();) {
      const Schema* field = schema.Field(it.key());
      if (field == nullptr && !schema.preserves_unknown) {
        Descend(it.key(), [&] { ReportUnknown(); });
        it = keep_unknown_ ? std::next(it) : object->erase(it);
        continue;
      }
      if (field == nullptr || (it->is_null() && field->nullable)) {
        ++it;
        continue;
      }
      if (it->is_null()) {
        it = object->erase(it);
        continue;
      }
      Descend(it.key(), [&] { Walk(*field, &*it); });
      ++it;
    }
    for (const auto& [name, field] : schema.fields) {
      if (!field->default_json.empty() && !object->contains(name)) {
        (*object)[name] = Json::parse(field->default_json);
        Descend(name, [&] { Walk(*field, &(*object)[name]); });
      }
    }
    for (const std::string& name : schema.required) {
      if (object->contains(name)) continue;
      Descend(name, [&] { findings_->constraints.Required(path_); });
    }
  }

  void WalkMap(const Schema& schema, Json* object) {
    if (!schema.element) return;
    for (auto it = object->begin(); it != object->end();) {
      if (it->is_null() && !schema.element->nullable) {
        it = object->erase(it);
        continue;
      }
      Descend(it.key(), [&] { Walk(*schema.element, &*it); });
      ++it;
    }
  }

  void WalkList(const Schema& schema, Json* list) {
    if (!schema.element) return;
    for (size_t i = 0; i < list->size(); ++i) {
      size_t length = path_.size();
      path_ += fmt::format("[{}]", i);
      Walk(*schema.element, &(*list)[i]);
      path_.resize(length);
    }
  }

  template <typename Function>
  void Descend(const std::string& name, Function function) {
    size_t length = path_.size();
    if (!path_.empty()) path_ += '.';
    path_ += name;
    function();
    path_.resize(length);
  }

  void ReportUnknown() {
    if (findings_->unknown_fields.size() < kMaxFindings) findings_->unknown_fields.push_back(path_);
  }

  const bool keep_unknown_;
  SchemaFindings* const findings_;
  std::string path_;
};

// Reads a CRD's schema; the first error wins.
class OpenApiReader {
 public:
  std::shared_ptr<const Schema> Read(const Json& in, const std::string& path, int depth) {
    auto schema = std::make_shared<Schema>();
    if (!in.is_object()) return Fail(path + ": want an object");
    if (depth > kMaxDepth) return Fail(path + ": nested too deeply");
    schema->nullable = Flag(in, "nullable");
    schema->preserves_unknown = Flag(in, "x-kubernetes-preserve-unknown-fields");
    if (in.contains("default")) schema->default_json = in["default"].dump();
    if (Flag(in, "x-kubernetes-int-or-string")) {
      schema->type = Type::kIntOrString;
      return schema;
    }
    std::string type = Text(in, "type");
    if (type == "object" || (type.empty() && in.contains("properties"))) {
      ReadObject(in, path, depth, schema.get());
    } else if (type == "array") {
      ReadList(in, path, depth, schema.get());
    } else if (type == "string") {
      ReadString(in, schema.get());
    } else if (type == "integer" || type == "number") {
      schema->type = type == "number"                ? Type::kNumber
                     : Text(in, "format") == "int32" ? Type::kInt32
                                                     : Type::kInt64;
      if (in.contains("minimum") && in["minimum"].is_number()) schema->minimum = in["minimum"];
      if (in.contains("maximum") && in["maximum"].is_number()) schema->maximum = in["maximum"];
    } else if (type == "boolean") {
      schema->type = Type::kBoolean;
    } else if (!type.empty()) {
      return Fail(fmt::format("{}.type: unknown type {}", path, Quoted(type)));
    }
    return schema;
  }

  const std::string& failure() const { return failure_; }

 private:
  std::shared_ptr<const Schema> Fail(std::string why) {
    if (failure_.empty()) failure_ = std::move(why);
    return std::make_shared<Schema>();
  }

  void ReadList(const Json& in, const std::string& path, int depth, Schema* schema) {
    schema->type = Type::kList;
    if (in.contains("items")) schema->element = Read(in["items"], path + ".items", depth + 1);
    schema->min_items = Size(in, "minItems");
    schema->max_items = Size(in, "maxItems");
    const std::string list_type = Text(in, "x-kubernetes-list-type");
    if (list_type == "set") schema->list_type = Schema::ListType::kSet;
    if (list_type != "map") return;
    schema->list_type = Schema::ListType::kMap;
    const Json& keys = ListAt(in, {"x-kubernetes-list-map-keys"});
    for (const Json& key : keys) {
      if (!key.is_string()) continue;
      const Json* fallback = FieldAt(in, {"items", "properties"});
      if (fallback != nullptr) fallback = FieldAt(*fallback, {key.get<std::string>().c_str()});
      schema->list_keys.push_back(
          {key, fallback == nullptr ? "" : StringAt(*fallback, {"default"})});
    }
    if (schema->list_keys.empty()) Fail(path + ".x-kubernetes-list-map-keys: missing");
  }

  void ReadObject(const Json& in, const std::string& path, int depth, Schema* schema) {
    schema->atomic = Text(in, "x-kubernetes-map-type") == "atomic";
    if (in.contains("required") && in["required"].is_array()) {
      for (const Json& name : in["required"]) {
        if (name.is_string()) schema->required.push_back(name);
      }
    }
    if (in.contains("additionalProperties") && in["additionalProperties"].is_object()) {
      schema->type = Type::kMap;
      schema->element = Read(in["additionalProperties"], path + ".additionalProperties", depth + 1);
      return;
    }
    schema->type = Type::kObject;
    if (!in.contains("properties")) schema->preserves_unknown = true;
    if (!in.contains("properties") || !in["properties"].is_object()) return;
    for (const auto& [name, field] : in["properties"].items()) {
      schema->fields[name] = Read(field, fmt::format("{}.{}", path, name), depth + 1);
    }
  }

  void ReadString(const Json& in, Schema* schema) {
    schema->type = Text(in, "format") == "date-time" ? Type::kTime : Type::kString;
    schema->min_length = Size(in, "minLength");
    schema->max_length = Size(in, "maxLength");
    if (!in.contains("enum") || !in["enum"].is_array()) return;
    for (const Json& choice : in["enum"]) {
      if (choice.is_string()) schema->choices.push_back(choice);
    }
  }

  static bool Flag(const Json& in, const char* name) {
    return in.contains(name) && in[name].is_boolean() && in[name].get<bool>();
  }
  static std::string Text(const Json& in, const char* name) {
    return in.contains(name) && in[name].is_string() ? in[name].get<std::string>() : "";
  }
  static std::optional<size_t> Size(const Json& in, const char* name) {
    if (!in.contains(name) || !in[name].is_number_unsigned()) return std::nullopt;
    return in[name].get<size_t>();
  }

  std::string failure_;
};

}  // namespace

const Schema* Schema::Field(std::string_view name) const {
  if (type == Type::kMap) return element.get();
  auto it = fields.find(name);
  return it == fields.end() ? nullptr : it->second.get();
}

ApiResult<std::shared_ptr<const Schema>> SchemaFromOpenApi(const Json& open_api) {
  OpenApiReader reader;
  std::shared_ptr<const Schema> schema = reader.Read(open_api, "openAPIV3Schema", 0);
  if (!reader.failure().empty()) return BadRequest(reader.failure());
  return schema;
}

SchemaFindings ApplySchema(const Schema& schema, bool keep_unknown, Json* object) {
  SchemaFindings findings;
  Walker(keep_unknown, &findings).Walk(schema, object);
  return findings;
}

}  // namespace muster::kube::embedded
