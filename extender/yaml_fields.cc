#include "extender/yaml_fields.h"

#include <utility>

#include "fmt/format.h"

namespace muster::extender {

void FailAt(const YAML::Node& node, const std::string& message) {
  throw FieldError{node.Mark().line + 1, message};
}

Fields::Fields(const YAML::Node& node, std::string what) : node_(node), what_(std::move(what)) {
  if (!node.IsMap()) FailAt(node, what_ + ": want a mapping");
}

YAML::Node Fields::Take(const std::string& key) {
  known_.insert(key);
  return node_[key];
}

void Fields::Require(const std::string& key) const {
  if (!node_[key]) FailAt(node_, Name(key) + ": missing");
}

void Fields::ReadDuration(const std::string& key, absl::Duration* out) {
  std::string text;
  Read(key, &text);
  if (!text.empty() && !absl::ParseDuration(text, out)) {
    FailAt(node_[key], fmt::format("{}: \"{}\" is no duration", Name(key), text));
  }
}

void Fields::Finish() const {
  for (const auto& entry : node_) {
    const auto key = entry.first.as<std::string>();
    if (!known_.contains(key)) FailAt(entry.first, Name(key) + ": unknown field");
  }
}

void ReadQuotaOptions(Fields* fields, coscheduling::EngineOptions* options) {
  using coscheduling::QuotaMode;
  std::optional<QuotaMode> mode;
  fields->ReadEnum<QuotaMode>(
      "quota",
      [](const std::string& text, QuotaMode* out) {
        if (text == "internal") *out = QuotaMode::kInternal;
        if (text == "kueue") *out = QuotaMode::kKueue;
        if (text == "off") *out = QuotaMode::kOff;
        return text == "internal" || text == "kueue" || text == "off";
      },
      &mode);
  if (mode) options->quota = *mode;
  fields->Read("fairSharing", &options->fair_sharing);
}

void ReadEngineOptions(const YAML::Node& node, coscheduling::EngineOptions* options) {
  Fields fields(node, "engine");
  fields.ReadDuration("provisioningDeadline", &options->provisioning_deadline);
  const std::pair<const char*, absl::Duration*> stages[] = {
      {"launchDeadline", &options->launch_deadline},
      {"refusalDeadline", &options->refusal_deadline},
      {"registrationDeadline", &options->registration_deadline},
      {"initializationDeadline", &options->initialization_deadline},
  };
  for (const auto& [key, limit] : stages) {
    fields.ReadDuration(key, limit);
    if (*limit <= absl::ZeroDuration()) {
      FailAt(fields.Take(key), fmt::format("engine.{}: want more than 0; inf for none", key));
    }
  }
  fields.ReadDuration("capacityBackoff", &options->capacity_backoff);
  fields.Read("withdrawNodes", &options->withdraw_nodes);
  fields.Read("kueueFallback", &options->kueue_fallback);
  fields.ReadDuration("backoffBase", &options->backoff_base);
  fields.ReadDuration("backoffMax", &options->backoff_max);
  fields.ReadDuration("repairDeadline", &options->repair_deadline);
  fields.ReadDuration("nodeGrace", &options->node_grace);
  fields.ReadDuration("signalGrace", &options->signal_grace);
  fields.ReadDuration("starvationAfter", &options->starvation_after);
  fields.ReadDuration("starvationHold", &options->starvation_hold);
  fields.ReadDuration("suspectTime", &options->suspect_time);
  fields.Read("taintSuspects", &options->taint_suspects);
  fields.ReadDuration("refusalTime", &options->refusal_time);
  if (const YAML::Node wait = fields.Take("bindWait")) {
    FailAt(wait, "engine.bindWait: half of extender.httpTimeout; set that one");
  }
  fields.ReadDuration("wakeInterval", &options->wake_interval);
  fields.ReadDuration("unplaceableGrace", &options->unplaceable_grace);
  fields.ReadDuration("ownerWait", &options->owner_wait);
  fields.Read("assumeFeasible", &options->assume_feasible);
  fields.Finish();
  if (options->starvation_hold >= options->starvation_after) {
    FailAt(node, fmt::format("engine.starvationHold: {} isn't below starvationAfter {}: room would "
                             "be kept without end",
                             absl::FormatDuration(options->starvation_hold),
                             absl::FormatDuration(options->starvation_after)));
  }
}

}  // namespace muster::extender
