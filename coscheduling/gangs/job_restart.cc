#include "coscheduling/gangs/job_restart.h"

#include <nlohmann/json.hpp>

#include "fmt/format.h"
#include "kube/objects/time_text.h"

namespace muster::coscheduling {
namespace {

using OrderedJson = nlohmann::ordered_json;

absl::Time TimeOf(const OrderedJson& json) {
  const auto time = json.is_string() ? kube::ReadTimeText(json.get<std::string>()) : std::nullopt;
  return time.value_or(absl::InfinitePast());
}

// By a user who resumed the job and suspended it again.
constexpr int64_t kChangesOfAUser = 2;

}  // namespace

std::string EncodeMark(const RestartMark& mark) {
  return OrderedJson{
      {"at", kube::MilliTimeText(mark.at)}, {"why", mark.why}, {"generation", mark.generation}}
      .dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

RestartMark DecodeMark(std::string_view text) {
  RestartMark mark = {absl::InfinitePast(), "", 0};
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return mark;
  if (auto at = json.find("at"); at != json.end()) mark.at = TimeOf(*at);
  if (auto why = json.find("why"); why != json.end() && why->is_string()) {
    mark.why = why->get<std::string>();
  }
  if (auto it = json.find("generation"); it != json.end() && it->is_number_integer()) {
    mark.generation = it->get<int64_t>();
  }
  return mark;
}

std::string EncodeTried(const TriedFlavors& tried) {
  OrderedJson json = {{"attempt", tried.attempt}, {"flavors", OrderedJson::object()}};
  for (const auto& [name, until] : tried.flavors)
    json["flavors"][name] = kube::MilliTimeText(until);
  return json.dump();
}

std::optional<TriedFlavors> DecodeTried(std::string_view text) {
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto attempt = json.find("attempt");
  const auto flavors = json.find("flavors");
  if (attempt == json.end() || !attempt->is_number_integer() || attempt->get<int64_t>() < 1 ||
      flavors == json.end() || !flavors->is_object()) {
    return std::nullopt;
  }
  TriedFlavors tried = {attempt->get<int64_t>(), {}};
  for (const auto& [name, until] : flavors->items()) tried.flavors[name] = TimeOf(until);
  return tried;
}

RestartStep NextRestartStep(const kube::AnyJob& job, int64_t pods_left) {
  if (!job.suspended) return RestartStep::kLeave;
  const std::string* text = job.Annotation(kRestartAnnotation);
  const RestartMark mark = DecodeMark(text == nullptr ? "" : *text);
  if (mark.generation > 0 && job.generation >= mark.generation + kChangesOfAUser) {
    return RestartStep::kLeave;
  }
  return pods_left > 0 ? RestartStep::kWait : RestartStep::kResume;
}

std::string WhyFallbackIsOff(std::string_view annotation) {
  if (annotation.empty() || annotation == "restart") return "";
  if (annotation == "never") return fmt::format("annotation {} is \"never\"", kFallbackAnnotation);
  return fmt::format("annotation {} is \"{}\", want \"restart\" or \"never\"", kFallbackAnnotation,
                     annotation);
}

}  // namespace muster::coscheduling
