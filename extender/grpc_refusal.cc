#include "extender/grpc_refusal.h"

#include <google/protobuf/any.pb.h>
#include <google/protobuf/duration.pb.h>

#include <string>
#include <string_view>

#include "extender/access/guard.h"

namespace muster::extender {
namespace {

// The messages of google/rpc/status.proto and error_details.proto, which no library here has, in
// their wire form. All fields are short of 16,384 bytes.
void AppendField(int number, std::string_view bytes, std::string* out) {
  constexpr int kLengthDelimited = 2;
  size_t size = bytes.size();
  out->push_back(static_cast<char>(number << 3 | kLengthDelimited));
  for (; size >= 0x80; size >>= 7) out->push_back(static_cast<char>(size | 0x80));
  out->push_back(static_cast<char>(size));
  *out += bytes;
}

void AppendNumber(int number, int value, std::string* out) {
  out->push_back(static_cast<char>(number << 3));
  out->push_back(static_cast<char>(value));
}

std::string AnyOf(const char* type, std::string value) {
  google::protobuf::Any any;
  any.set_type_url(std::string("type.googleapis.com/google.rpc.") + type);
  any.set_value(std::move(value));
  return any.SerializeAsString();
}

const char* ReasonOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnauthenticated:
      return "UNAUTHENTICATED";
    case absl::StatusCode::kPermissionDenied:
      return "FORBIDDEN";
    case absl::StatusCode::kResourceExhausted:
      return "TOO_MANY_REVIEWS";
    default:
      return "API_SERVER_UNREACHABLE";
  }
}

std::string ErrorInfo(absl::StatusCode code) {
  std::string info;
  AppendField(1, ReasonOf(code), &info);
  AppendField(2, "muster.dev", &info);
  return info;
}

std::string RetryInfo() {
  google::protobuf::Duration delay;
  delay.set_seconds(absl::ToInt64Seconds(kRetryAfter));
  std::string info;
  AppendField(1, delay.SerializeAsString(), &info);
  return info;
}

}  // namespace

grpc::Status GrpcRefusal(const absl::Status& refusal) {
  // Codes of Abseil are gRPC's.
  const auto code = static_cast<grpc::StatusCode>(refusal.code());
  const std::string message(refusal.message());
  std::string details;
  AppendNumber(1, code, &details);
  AppendField(2, message, &details);
  AppendField(3, AnyOf("ErrorInfo", ErrorInfo(refusal.code())), &details);
  if (absl::IsUnavailable(refusal) || absl::IsResourceExhausted(refusal)) {
    AppendField(3, AnyOf("RetryInfo", RetryInfo()), &details);
  }
  return grpc::Status(code, message, details);
}

}  // namespace muster::extender
