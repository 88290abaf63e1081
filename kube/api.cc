#include "kube/api.h"

#include <fmt/format.h>

#include "kube/objects/json_value.h"

namespace muster::kube {
namespace {

constexpr size_t kExcerptBytes = 256;

struct Reason {
  std::string reason;
  std::string message;
};

// A metav1.Status, or whatever text a proxy in between has put there.
Reason ReadReason(const Response& response) {
  Reason result;
  {
    JsonReader reader(response.body);
    result.reason = reader.root().Get("reason").String();
    result.message = reader.root().Get("message").String();
    if (!reader.status().ok()) result = {};
  }
  if (result.message.empty()) {
    result.message = response.body.substr(0, kExcerptBytes);
    while (!result.message.empty() && result.message.back() <= ' ') result.message.pop_back();
  }
  return result;
}

absl::StatusCode CodeOf(int status, const std::string& reason) {
  switch (status) {
    case 400:
    case 413:
    case 422:
      return absl::StatusCode::kInvalidArgument;
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 409:
      return reason == "AlreadyExists" ? absl::StatusCode::kAlreadyExists
                                       : absl::StatusCode::kAborted;
    case 410:
      return absl::StatusCode::kOutOfRange;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    default:
      return status >= 500 && status < 600 ? absl::StatusCode::kUnavailable
                                           : absl::StatusCode::kUnknown;
  }
}

}  // namespace

absl::Status ToStatus(const Response& response) {
  if (response.ok()) return absl::OkStatus();
  const Reason reason = ReadReason(response);
  const std::string message = reason.message.empty()
                                  ? fmt::format("HTTP {}", response.status)
                                  : fmt::format("HTTP {}: {}", response.status, reason.message);
  return absl::Status(CodeOf(response.status, reason.reason), message);
}

}  // namespace muster::kube
