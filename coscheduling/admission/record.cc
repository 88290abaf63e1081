#include "coscheduling/admission/record.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "kube/objects/time_text.h"

namespace muster::coscheduling {
namespace {

// Written in the order in which it is read best. Read into sorted objects: annotations are
// anybody's, and finding a key among those of an ordered object takes time in their number.
using Written = nlohmann::ordered_json;
using Json = nlohmann::json;

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

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
  // Past int64 it is unsigned, and would become negative. Counts are added to: they end well
  // before.
  if (it == json.end() || !it->is_number_integer() || it->get<int64_t>() < 1 ||
      it->get<int64_t>() > kMaxCount) {
    return Bad(field, "an integer from 1 to 2147483647");
  }
  *out = it->get<int64_t>();
  return absl::OkStatus();
}

absl::Status ReadTime(const Json& json, const char* field, absl::Time* out) {
  std::string text;
  const absl::Status read = ReadString(json, field, &text);
  const auto time = read.ok() ? kube::ReadTimeText(text) : std::nullopt;
  if (!time) return Bad(field, "an RFC 3339 time");
  *out = *time;
  return absl::OkStatus();
}

absl::Status ReadOptionalTime(const Json& json, const char* field, std::optional<absl::Time>* out) {
  if (!json.contains(field)) return absl::OkStatus();
  return ReadTime(json, field, &out->emplace());
}

Written ToJson(const quota::PodSetAssignment& given) {
  Written usage = Written::object();
  for (const auto& [resource, amount] : given.usage.entries()) usage[resource] = amount;
  return {{"name", given.name},
          {"count", given.count},
          {"flavors", given.flavors},
          {"usage", std::move(usage)}};
}

Written ToJson(const std::vector<quota::PodSetAssignment>& list) {
  Written out = Written::array();
  for (const quota::PodSetAssignment& given : list) out.push_back(ToJson(given));
  return out;
}

constexpr std::string_view kPodSets = "quota.podSets[]";

// Never copied: a copy of what is nested a hundred thousand levels deep would end the stack.
absl::Status ReadFlavors(const Json& pod_set, quota::PodSetAssignment* out) {
  auto it = pod_set.find("flavors");
  if (it == pod_set.end()) return absl::OkStatus();
  if (!it->is_object()) return Bad(kPodSets, "flavors in an object");
  for (const auto& [resource, flavor] : it->items()) {
    if (!flavor.is_string()) return Bad(kPodSets, "flavors that are strings");
    out->flavors[resource] = flavor.get<std::string>();
  }
  return absl::OkStatus();
}

absl::Status ReadUsage(const Json& pod_set, quota::PodSetAssignment* out) {
  auto it = pod_set.find("usage");
  if (it == pod_set.end()) return absl::OkStatus();
  if (!it->is_object()) return Bad(kPodSets, "usage in an object");
  for (const auto& [resource, amount] : it->items()) {
    if (!amount.is_number_integer() || amount.get<int64_t>() < 0) {
      return Bad(kPodSets, "usage in integers of at least 0");
    }
    out->usage.Set(resource, amount.get<int64_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadPodSet(const Json& json, quota::PodSetAssignment* out) {
  if (!json.is_object() || !ReadString(json, "name", &out->name).ok()) {
    return Bad(kPodSets, "objects with a name");
  }
  if (absl::Status status = ReadCount(json, "count", &out->count); !status.ok()) return status;
  if (absl::Status status = ReadFlavors(json, out); !status.ok()) return status;
  return ReadUsage(json, out);
}

absl::Status ReadPodSets(const Json& json, const char* field,
                         std::vector<quota::PodSetAssignment>* out) {
  auto it = json.find(field);
  if (it == json.end() || !it->is_array()) return Bad(field, "a list");
  for (const Json& item : *it) {
    if (absl::Status status = ReadPodSet(item, &out->emplace_back()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ReadQuota(const Json& record, std::optional<quota::Admission>* out) {
  auto it = record.find("quota");
  if (it == record.end()) return absl::OkStatus();
  if (!it->is_object()) return Bad("quota", "an object");
  quota::Admission admission;
  for (absl::Status status : {ReadString(*it, "clusterQueue", &admission.cluster_queue),
                              ReadTime(*it, "reservedAt", &admission.reserved_at),
                              ReadPodSets(*it, "podSets", &admission.pod_sets),
                              ReadPodSets(*it, "surplus", &admission.surplus)}) {
    if (!status.ok()) return status;
  }
  *out = std::move(admission);
  return absl::OkStatus();
}

absl::Status ReadEviction(const Json& record, std::optional<Eviction>* out) {
  auto it = record.find("eviction");
  if (it == record.end()) return absl::OkStatus();
  Eviction eviction;
  if (!it->is_object() || !ReadString(*it, "why", &eviction.why).ok()) {
    return Bad("eviction", "an object with the reason in `why`");
  }
  auto surplus = it->find("surplusOnly");
  eviction.surplus_only = surplus != it->end() && surplus->is_boolean() && surplus->get<bool>();
  *out = std::move(eviction);
  return absl::OkStatus();
}

absl::Status ReadGivenUp(const Json& record, std::optional<Reason>* out) {
  auto it = record.find("givenUp");
  if (it == record.end()) return absl::OkStatus();
  Reason why;
  std::string code;
  if (!it->is_object() || !ReadString(*it, "code", &code).ok() ||
      !ReadString(*it, "message", &why.message).ok() || !ReadString(*it, "fix", &why.fix).ok()) {
    return Bad("givenUp", "an object with code, message and fix");
  }
  // A later version may have codes that this one hasn't.
  if (!v1::ReasonCode_Parse(code, &why.code)) why.code = v1::DEADLINE_EXCEEDED;
  *out = std::move(why);
  return absl::OkStatus();
}

absl::Status ReadTried(const Json& record, std::map<std::string, absl::Time>* out) {
  auto it = record.find("flavorsTried");
  if (it == record.end()) return absl::OkStatus();
  if (!it->is_object()) return Bad("flavorsTried", "an object");
  for (const auto& [flavor, until] : it->items()) {
    if (absl::Status status = ReadTime(*it, flavor.c_str(), &(*out)[flavor]); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
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
  if (!record.queue.empty()) json["queue"] = record.queue;
  if (record.quota) {
    json["quota"] = {{"clusterQueue", record.quota->cluster_queue},
                     {"reservedAt", kube::MilliTimeText(record.quota->reserved_at)},
                     {"podSets", ToJson(record.quota->pod_sets)},
                     {"surplus", ToJson(record.quota->surplus)}};
  }
  if (record.eviction) {
    json["eviction"] = {{"why", record.eviction->why},
                        {"surplusOnly", record.eviction->surplus_only}};
  }
  for (const auto& [flavor, until] : record.flavors_tried) {
    json["flavorsTried"][flavor] = kube::MilliTimeText(until);
  }
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
        ReadOptionalTime(json, "boundAt", &record.bound_at),
        ReadOptionalTime(json, "repairingSince", &record.repairing_since),
        ReadQuota(json, &record.quota), ReadEviction(json, &record.eviction),
        ReadTried(json, &record.flavors_tried), ReadGivenUp(json, &record.given_up)}) {
    if (!status.ok()) return status;
  }
  if (json.contains("wholeWith")) {
    absl::Status status = ReadCount(json, "wholeWith", &record.whole_with.emplace());
    if (!status.ok()) return status;
  }
  if (json.contains("queue")) {
    if (absl::Status status = ReadString(json, "queue", &record.queue); !status.ok()) return status;
  }
  return record;
}

}  // namespace muster::coscheduling
