#include "yaml/engine_options.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "fmt/format.h"

namespace muster::yaml {

namespace {

kube::SelectorOperator OperatorOf(const YAML::Node& node) {
  const auto text = node.as<std::string>("");
  if (text == "In") return kube::SelectorOperator::kIn;
  if (text == "NotIn") return kube::SelectorOperator::kNotIn;
  if (text == "Exists") return kube::SelectorOperator::kExists;
  if (text == "DoesNotExist") return kube::SelectorOperator::kDoesNotExist;
  FailAt(node, "operator: want In, NotIn, Exists or DoesNotExist");
}

// As in a manifest.
kube::LabelSelector ReadSelector(const YAML::Node& node, const std::string& what) {
  kube::LabelSelector selector;
  Fields fields(node, what);
  std::map<std::string, std::string> labels;
  fields.Read("matchLabels", &labels);
  for (const auto& [key, value] : labels) {
    selector.requirements.push_back({key, kube::SelectorOperator::kIn, {value}});
  }
  for (const YAML::Node& item : fields.Take("matchExpressions")) {
    Fields expression(item, what + ".matchExpressions");
    kube::Requirement requirement;
    expression.Read("key", &requirement.key);
    expression.Require("operator");
    requirement.op = OperatorOf(expression.Take("operator"));
    expression.Read("values", &requirement.values);
    expression.Finish();
    selector.requirements.push_back(std::move(requirement));
  }
  fields.Finish();
  return selector;
}

}  // namespace

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
  fields->Read("manageJobsWithoutQueueName", &options->manage_jobs_without_queue_name);
  if (const YAML::Node selector = fields->Take("managedJobsNamespaceSelector")) {
    options->managed_namespaces = ReadSelector(selector, "managedJobsNamespaceSelector");
  }
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
