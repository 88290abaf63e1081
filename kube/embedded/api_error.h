// Failures as the API server words them: a code, a reason and a metav1.Status body.
//
// Messages follow k8s.io/apimachinery/pkg/api/errors and pkg/util/validation/field v0.34, so that
// clients that match on reason, code or text behave as with a real server.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"

namespace muster::kube::embedded {

struct ResourceType;

struct ErrorCause {
  std::string reason;  // "FieldValueInvalid"
  std::string message;
  std::string field;  // "spec.containers[0].name"
};

struct ApiError {
  int code = 500;
  std::string reason;  // "NotFound"; empty: the answer has none
  std::string message;
  // metav1.StatusDetails
  std::string name;
  std::string group;
  std::string kind;
  std::string uid;
  std::vector<ErrorCause> causes;
  std::optional<absl::Duration> retry_after;
  bool empty_details = false;  // the answer has details though there are none

  // The metav1.Status as JSON.
  std::string ToJson() const;
};

// Field errors of one object, gathered before one answer is given.
class FieldErrors {
 public:
  void Required(const std::string& field, const std::string& detail = "");
  // `value` is printed quoted for strings, as JSON otherwise: pass it already formatted.
  void Invalid(const std::string& field, const std::string& value, const std::string& detail);
  void NotSupported(const std::string& field, const std::string& value,
                    const std::vector<std::string>& supported);
  void Forbidden(const std::string& field, const std::string& detail);
  void Duplicate(const std::string& field, const std::string& value);
  void TooLong(const std::string& field, size_t max_bytes);

  bool empty() const { return causes_.empty(); }
  const std::vector<ErrorCause>& causes() const { return causes_; }

 private:
  std::vector<ErrorCause> causes_;
};

// `text` in double quotes with Go's escapes.
std::string Quoted(const std::string& text);

ApiError BadRequest(std::string message);
ApiError NotFound(const ResourceType& type, const std::string& name);
// The path leads nowhere, or to a kind this server doesn't serve.
ApiError NoSuchPath();
ApiError AlreadyExists(const ResourceType& type, const std::string& name);
ApiError Conflict(const ResourceType& type, const std::string& name, const std::string& why);
// Why a write that names the object's uid or version is refused: what etcd3's store says
// (k8s.io/apiserver v0.34 pkg/storage). `what`: "UID" or "ResourceVersion"; `key` as in the store.
std::string FailedPrecondition(const ResourceType& type, const std::string& key, const char* what,
                               const std::string& wanted, const std::string& found);
ApiError ModifiedConflict(const ResourceType& type, const std::string& name);
ApiError InvalidObject(const ResourceType& type, const std::string& name,
                       const FieldErrors& errors);
ApiError Forbidden(const ResourceType& type, const std::string& name, const std::string& why);
ApiError MethodNotAllowed();
ApiError Unprocessable(std::string message);
ApiError UnsupportedMediaType(std::string message);
ApiError TooLarge(const std::string& message);
ApiError Expired(std::string message);
ApiError TooLargeResourceVersion(uint64_t asked, uint64_t current);
ApiError TooManyRequests(std::string message, absl::Duration retry_after);
ApiError Internal(const std::string& message);

// A value or the error to answer with.
template <typename T>
class ApiResult {
 public:
  ApiResult(T value) : content_(std::move(value)) {}         // NOLINT: implicit by design
  ApiResult(ApiError error) : content_(std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return std::holds_alternative<T>(content_); }
  const ApiError& error() const { return std::get<ApiError>(content_); }
  T& operator*() { return std::get<T>(content_); }
  const T& operator*() const { return std::get<T>(content_); }
  T* operator->() { return &std::get<T>(content_); }
  const T* operator->() const { return &std::get<T>(content_); }

 private:
  std::variant<ApiError, T> content_;
};

// nullopt: fine.
using MaybeError = std::optional<ApiError>;

}  // namespace muster::kube::embedded
