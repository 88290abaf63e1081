#include "coscheduling/record.h"

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

using Json = nlohmann::ordered_json;

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

absl::Status Bad(std::string_view field, std::string_view want) {
  return absl::InvalidArgumentError(fmt::format("{}: {}: want {}", kRecordAnnotation, field, want));
}

absl::Status ReadString(const Json& json, const char* field, std::string* out) {
  auto it = json.find(field);
  if (it == json.end() || !it->is_string()) return Bad(field, "a string");
  *out = it->get<std::string>();
  return absl::OkStatus();
}

absl::Status ReadCount(const Json& json, const char* field, int64_t* out) {
  auto it = json.find(field);
  if (it == json.end() || !it->is_number_integer() || it->get<int64_t>() < 1) {
    return Bad(field, "an integer of at least 1");
  }
  *out = it->get<int64_t>();
  return absl::OkStatus();
}

absl::Status ReadTime(const Json& json, const char* field, absl::Time* out) {
  std::string text;
  std::string error;
  if (!ReadString(json, field, &text).ok() ||
      !absl::ParseTime(absl::RFC3339_full, text, out, &error)) {
    return Bad(field, "an RFC 3339 time");
  }
  return absl::OkStatus();
}

absl::Status ReadOptionalTime(const Json& json, const char* field, std::optional<absl::Time>* out) {
  if (!json.contains(field)) return absl::OkStatus();
  return ReadTime(json, field, &out->emplace());
}

}  // namespace

std::string EncodeRecord(const AdmissionRecord& record) {
  Json json = {{"uid", record.uid},
               {"identity", record.identity},
               {"epoch", record.epoch},
               {"attempt", record.attempt},
               {"admittedAt", TimeText(record.admitted_at)},
               {"deadline", TimeText(record.deadline)}};
  if (record.retry_after) json["retryAfter"] = TimeText(*record.retry_after);
  if (record.bound_at) json["boundAt"] = TimeText(*record.bound_at);
  return json.dump();
}

absl::StatusOr<AdmissionRecord> DecodeRecord(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Bad("(all)", "a JSON object");
  AdmissionRecord record;
  for (absl::Status status :
       {ReadString(json, "uid", &record.uid), ReadString(json, "identity", &record.identity),
        ReadCount(json, "epoch", &record.epoch), ReadCount(json, "attempt", &record.attempt),
        ReadTime(json, "admittedAt", &record.admitted_at),
        ReadTime(json, "deadline", &record.deadline),
        ReadOptionalTime(json, "retryAfter", &record.retry_after),
        ReadOptionalTime(json, "boundAt", &record.bound_at)}) {
    if (!status.ok()) return status;
  }
  return record;
}

}  // namespace muster::coscheduling
