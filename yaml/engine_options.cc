#include "yaml/engine_options.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "fmt/format.h"

namespace muster::yaml {

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
  fields.Read("assumeFeasible", &options->assume_feasible);
  fields.Finish();
  if (options->starvation_hold >= options->starvation_after) {
    FailAt(node, fmt::format("engine.starvationHold: {} isn't below starvationAfter {}: room would "
                             "be kept without end",
                             absl::FormatDuration(options->starvation_hold),
                             absl::FormatDuration(options->starvation_after)));
  }
}

}  // namespace muster::yaml
