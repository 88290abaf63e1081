#include "kube/objects/job_restart.h"

#include <nlohmann/json.hpp>

#include "fmt/format.h"
#include "kube/objects/json_value.h"
#include "kube/objects/time_text.h"

namespace muster::kube {
namespace {

using OrderedJson = nlohmann::ordered_json;

// One that can't be read is long over.
absl::Time TimeOf(JsonValue json) { return json.Time().value_or(absl::InfinitePast()); }

// By a user who resumed the job and suspended it again.
constexpr int64_t kChangesOfAUser = 2;

}  // namespace

std::string EncodeMark(const RestartMark& mark) {
  return OrderedJson{
      {"at", MilliTimeText(mark.at)}, {"why", mark.why}, {"generation", mark.generation}}
      .dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

RestartMark DecodeMark(std::string_view text) {
  JsonReader reader(text);
  const JsonValue json = reader.root();
  return {TimeOf(json.Get("at")), json.Get("why").String(), json.Get("generation").Int()};
}

std::string EncodeTried(const TriedFlavors& tried) {
  OrderedJson json = {{"attempt", tried.attempt}, {"flavors", OrderedJson::object()}};
  for (const auto& [name, until] : tried.flavors) json["flavors"][name] = MilliTimeText(until);
  return json.dump();
}

std::optional<TriedFlavors> DecodeTried(std::string_view text) {
  JsonReader reader(text);
  const JsonValue flavors = reader.root().Get("flavors");
  TriedFlavors tried = {reader.root().Get("attempt").Int(), {}};
  flavors.ForEachField([&](std::string_view name, JsonValue until) {
    tried.flavors[std::string(name)] = TimeOf(until);
  });
  if (!flavors.present() || tried.attempt < 1 || !reader.status().ok()) return std::nullopt;
  return tried;
}

bool IsLeftOf(const AnyJob& job, const Pod& pod) {
  const bool itself = job.kind != "Job" && pod.meta.ControllerUid() == job.Key();
  return itself || !pod.IsTerminal() || pod.IsDeleting();
}

RestartStep NextRestartStep(const AnyJob& job, int64_t pods_left) {
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

}  // namespace muster::kube
