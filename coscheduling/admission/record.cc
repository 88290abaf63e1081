#include "coscheduling/admission/record.h"

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "kube/objects/json_value.h"
#include "kube/objects/time_text.h"

namespace muster::coscheduling {
namespace {

// In the order in which it is read best.
using Written = nlohmann::ordered_json;
using kube::JsonValue;

// Counts are added to: they end well before an int64 does.
constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

// What must be there, of its type, or is kept as wrong by the value's reader.

std::string ReadText(JsonValue json) {
  if (!json.present()) json.RejectType("a string");
  return json.String();
}

int64_t ReadCount(JsonValue json) {
  const int64_t count = json.IsInteger() ? json.Int() : 0;
  if (count < 1 || count > kMaxCount) json.RejectType("an integer from 1 to 2147483647");
  return count;
}

absl::Time ReadTime(JsonValue json) {
  if (!json.present()) json.RejectType("an RFC 3339 time");
  return json.Time().value_or(absl::InfinitePast());
}

Reason ReadGivenUp(JsonValue json) {
  Reason why = {v1::REASON_UNSPECIFIED, ReadText(json.Get("message")), ReadText(json.Get("fix"))};
  // A later version may have codes that this one hasn't.
  if (!v1::ReasonCode_Parse(ReadText(json.Get("code")), &why.code)) {
    why.code = v1::DEADLINE_EXCEEDED;
  }
  return why;
}

// Reads a field that need not be there.
template <typename Read, typename Out>
void ReadOptional(JsonValue json, Read read, std::optional<Out>* out) {
  if (json.present()) *out = read(json);
}

}  // namespace

std::string EncodeRecord(const AdmissionRecord& record) {
  Written json = {{"uid", record.uid},
                  {"identity", record.identity},
                  {"epoch", record.epoch},
                  {"attempt", record.attempt},
                  {"admittedAt", kube::MilliTimeText(record.admitted_at)},
                  {"deadline", kube::MilliTimeText(record.deadline)}};
  if (record.retry_after) json["retryAfter"] = kube::MilliTimeText(*record.retry_after);
  if (record.given_up) {
    json["givenUp"] = {{"code", v1::ReasonCode_Name(record.given_up->code)},
                       {"message", record.given_up->message},
                       {"fix", record.given_up->fix}};
  }
  if (record.bound_at) json["boundAt"] = kube::MilliTimeText(*record.bound_at);
  if (record.whole_with) json["wholeWith"] = *record.whole_with;
  if (record.repairing_since) json["repairingSince"] = kube::MilliTimeText(*record.repairing_since);
  if (record.preempted) json["preempted"] = *record.preempted;
  for (const auto& [flavor, until] : record.flavors_tried) {
    json["flavorsTried"][flavor] = kube::MilliTimeText(until);
  }
  return json.dump();
}

absl::StatusOr<AdmissionRecord> DecodeRecord(std::string_view text) {
  kube::JsonReader reader(text);
  const JsonValue json = reader.root();
  AdmissionRecord record;
  record.uid = ReadText(json.Get("uid"));
  record.identity = ReadText(json.Get("identity"));
  record.epoch = ReadCount(json.Get("epoch"));
  record.attempt = ReadCount(json.Get("attempt"));
  record.admitted_at = ReadTime(json.Get("admittedAt"));
  record.deadline = ReadTime(json.Get("deadline"));
  ReadOptional(json.Get("retryAfter"), ReadTime, &record.retry_after);
  ReadOptional(json.Get("givenUp"), ReadGivenUp, &record.given_up);
  ReadOptional(json.Get("boundAt"), ReadTime, &record.bound_at);
  ReadOptional(json.Get("wholeWith"), ReadCount, &record.whole_with);
  ReadOptional(json.Get("repairingSince"), ReadTime, &record.repairing_since);
  ReadOptional(json.Get("preempted"), ReadText, &record.preempted);
  json.Get("flavorsTried").ForEachField([&](std::string_view flavor, JsonValue until) {
    record.flavors_tried[std::string(flavor)] = ReadTime(until);
  });
  if (reader.status().ok()) return record;
  return absl::InvalidArgumentError(
      fmt::format("{}: {}", kRecordAnnotation, std::string(reader.status().message())));
}

}  // namespace muster::coscheduling
