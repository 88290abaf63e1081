#include "kube/embedded/api_error.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kube/embedded/resource_types.h"

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;

ApiError About(const ResourceType& type, const std::string& name, int code, std::string reason,
               std::string message) {
  ApiError error;
  error.code = code;
  error.reason = std::move(reason);
  error.message = std::move(message);
  error.name = name;
  error.group = type.group;
  error.kind = type.plural;
  return error;
}

ApiError Plain(int code, std::string reason, std::string message) {
  ApiError error;
  error.code = code;
  error.reason = std::move(reason);
  error.message = std::move(message);
  return error;
}

}  // namespace

std::string ApiError::ToJson() const {
  Json details = Json::object();
  if (!name.empty()) details["name"] = name;
  if (!group.empty()) details["group"] = group;
  if (!kind.empty()) details["kind"] = kind;
  if (!uid.empty()) details["uid"] = uid;
  if (retry_after) {
    details["retryAfterSeconds"] = absl::ToInt64Seconds(absl::Ceil(*retry_after, absl::Seconds(1)));
  }
  for (const ErrorCause& cause : causes) {
    Json entry = {{"reason", cause.reason}, {"message", cause.message}};
    if (!cause.field.empty()) entry["field"] = cause.field;
    details["causes"].push_back(std::move(entry));
  }
  Json status = {{"kind", "Status"},    {"apiVersion", "v1"}, {"metadata", Json::object()},
                 {"status", "Failure"}, {"message", message}, {"code", code}};
  if (!reason.empty()) status["reason"] = reason;
  if (!details.empty() || empty_details) status["details"] = std::move(details);
  return status.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void FieldErrors::Required(const std::string& field, const std::string& detail) {
  causes_.push_back({"FieldValueRequired",
                     detail.empty() ? "Required value" : "Required value: " + detail, field});
}

void FieldErrors::Invalid(const std::string& field, const std::string& value,
                          const std::string& detail) {
  causes_.push_back(
      {"FieldValueInvalid", fmt::format("Invalid value: {}: {}", value, detail), field});
}

void FieldErrors::NotSupported(const std::string& field, const std::string& value,
                               const std::vector<std::string>& supported) {
  std::vector<std::string> quoted;
  for (const std::string& choice : supported) quoted.push_back(Quoted(choice));
  causes_.push_back(
      {"FieldValueNotSupported",
       fmt::format("Unsupported value: {}: supported values: {}", value, fmt::join(quoted, ", ")),
       field});
}

void FieldErrors::Forbidden(const std::string& field, const std::string& detail) {
  causes_.push_back({"FieldValueForbidden", "Forbidden: " + detail, field});
}

void FieldErrors::Duplicate(const std::string& field, const std::string& value) {
  causes_.push_back({"FieldValueDuplicate", "Duplicate value: " + value, field});
}

void FieldErrors::TooLong(const std::string& field, size_t max_bytes) {
  causes_.push_back({"FieldValueTooLong",
                     fmt::format("Too long: may not be more than {} bytes", max_bytes), field});
}

ApiError BadRequest(std::string message) { return Plain(400, "BadRequest", std::move(message)); }

ApiError NotFound(const ResourceType& type, const std::string& name) {
  return About(type, name, 404, "NotFound",
               fmt::format("{} {} not found", type.GroupResource(), Quoted(name)));
}

ApiError NoSuchPath() {
  ApiError error = Plain(404, "NotFound", "the server could not find the requested resource");
  error.empty_details = true;
  return error;
}

ApiError AlreadyExists(const ResourceType& type, const std::string& name) {
  return About(type, name, 409, "AlreadyExists",
               fmt::format("{} {} already exists", type.GroupResource(), Quoted(name)));
}

ApiError Conflict(const ResourceType& type, const std::string& name, const std::string& why) {
  return About(type, name, 409, "Conflict",
               fmt::format("Operation cannot be fulfilled on {} {}: {}", type.GroupResource(),
                           Quoted(name), why));
}

std::string FailedPrecondition(const ResourceType& type, const std::string& key, const char* what,
                               const std::string& wanted, const std::string& found) {
  return fmt::format(
      "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, "
      "AdditionalErrorMsg: Precondition failed: {} in precondition: {}, {} in object meta: {}",
      type.GroupResource(), key, what, wanted, what, found);
}

ApiError ModifiedConflict(const ResourceType& type, const std::string& name) {
  return Conflict(type, name,
                  "the object has been modified; please apply your changes to the latest version "
                  "and try again");
}

ApiError InvalidObject(const ResourceType& type, const std::string& name,
                       const FieldErrors& errors) {
  std::vector<std::string> texts;
  for (const ErrorCause& cause : errors.causes()) {
    texts.push_back(fmt::format("{}: {}", cause.field, cause.message));
  }
  std::string joined = texts.size() == 1 ? texts[0] : fmt::format("[{}]", fmt::join(texts, ", "));
  std::string kind = type.group.empty() ? type.kind : type.kind + "." + type.group;
  ApiError error = About(type, name, 422, "Invalid",
                         fmt::format("{} {} is invalid: {}", kind, Quoted(name), joined));
  error.kind = type.kind;
  error.causes = errors.causes();
  return error;
}

ApiError Forbidden(const ResourceType& type, const std::string& name, const std::string& why) {
  return About(type, name, 403, "Forbidden",
               fmt::format("{} {} is forbidden: {}", type.GroupResource(), Quoted(name), why));
}

ApiError MethodNotAllowed() {
  ApiError error = Plain(405, "MethodNotAllowed",
                         "the server does not allow this method on the requested resource");
  error.empty_details = true;
  return error;
}

ApiError Unprocessable(std::string message) { return Plain(422, "Invalid", std::move(message)); }

ApiError UnsupportedMediaType(std::string message) {
  return Plain(415, "UnsupportedMediaType", std::move(message));
}

ApiError TooLarge(const std::string& message) {
  return Plain(413, "RequestEntityTooLarge", "Request entity too large: " + message);
}

ApiError Expired(std::string message) { return Plain(410, "Expired", std::move(message)); }

ApiError TooLargeResourceVersion(uint64_t asked, uint64_t current) {
  ApiError error =
      Plain(504, "Timeout",
            fmt::format("Timeout: Too large resource version: {}, current: {}", asked, current));
  error.causes.push_back({"ResourceVersionTooLarge", "Too large resource version", ""});
  error.retry_after = absl::Seconds(1);
  return error;
}

ApiError TooManyRequests(std::string message, absl::Duration retry_after) {
  ApiError error = Plain(429, "TooManyRequests", std::move(message));
  error.retry_after = retry_after;
  return error;
}

ApiError Internal(const std::string& message) {
  return Plain(500, "InternalError", "Internal error occurred: " + message);
}

}  // namespace muster::kube::embedded
