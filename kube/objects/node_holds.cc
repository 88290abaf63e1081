#include "kube/objects/node_holds.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "kube/objects/time_text.h"
#include "kube/objects/well_known.h"

namespace muster::kube {
namespace {

std::string FormatHolds(const Holds& holds) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [uid, until] : holds) {
    json[uid] = TimeText(until);
  }
  return json.dump();
}

bool SameToTheSecond(const Holds& a, const Holds& b) { return FormatHolds(a) == FormatHolds(b); }

}  // namespace

Holds ReadHolds(const StringMap& annotations) {
  Holds holds;
  auto it = annotations.find(kHoldsAnnotation);
  if (it == annotations.end()) return holds;
  nlohmann::json json = nlohmann::json::parse(it->second, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return holds;
  for (const auto& [uid, until] : json.items()) {
    if (!until.is_string()) continue;
    if (const auto time = ReadTimeText(until.get<std::string>())) holds.emplace(uid, *time);
  }
  return holds;
}

bool HasHoldMarks(const StringMap& annotations) {
  return annotations.contains(kHoldsAnnotation) || annotations.contains(kHoldAddedAnnotation);
}

std::map<std::string, std::optional<std::string>> ChangeHolds(const StringMap& annotations,
                                                              const Holds& want) {
  std::map<std::string, std::optional<std::string>> change;
  const bool marked = HasHoldMarks(annotations);
  if (want.empty()) {
    if (!marked) return change;
    change.emplace(kHoldsAnnotation, std::nullopt);
    change.emplace(kHoldAddedAnnotation, std::nullopt);
    if (annotations.contains(kHoldAddedAnnotation)) {
      change.emplace(kDoNotDisruptAnnotation, std::nullopt);
    }
    return change;
  }
  const bool protected_already = annotations.contains(kDoNotDisruptAnnotation);
  if (marked && protected_already && SameToTheSecond(ReadHolds(annotations), want)) return change;
  change.emplace(kHoldsAnnotation, FormatHolds(want));
  if (!protected_already) {
    change.emplace(kDoNotDisruptAnnotation, "true");
    change.emplace(kHoldAddedAnnotation, "true");
  }
  return change;
}

}  // namespace muster::kube
