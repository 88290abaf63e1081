#include "yaml/engine_options.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "fmt/format.h"
#include "kube/objects/quantity.h"

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

// As exact as it can be written: the finest unit in which it fits.
absl::int128 BillionthsOf(const YAML::Node& node, const std::string& what) {
  const auto text = node.as<std::string>("");
  const std::pair<kube::QuantityUnit, int64_t> units[] = {
      {kube::QuantityUnit::kNano, 1},
      {kube::QuantityUnit::kMilli, 1'000'000},
      {kube::QuantityUnit::kWhole, 1'000'000'000}};
  for (const auto& [unit, billionths] : units) {
    const absl::StatusOr<int64_t> amount = kube::ParseQuantity(text, unit);
    if (amount.ok()) return absl::int128(*amount) * billionths;
    if (!absl::IsOutOfRange(amount.status())) break;
  }
  FailAt(node, fmt::format("{}: \"{}\" is no quantity", what, text));
}

quota::ResourceTransformation ReadTransformation(const YAML::Node& node) {
  const std::string what = "resources.transformations";
  quota::ResourceTransformation rule;
  Fields fields(node, what);
  fields.Require("input");
  fields.Read("input", &rule.input);
  if (rule.input.empty()) FailAt(node, what + ".input: want the name of a resource");
  std::string strategy = "Retain";
  fields.Read("strategy", &strategy);
  rule.retain = strategy == "Retain";
  if (!rule.retain && strategy != "Replace") {
    FailAt(fields.Take("strategy"), what + ".strategy: want Retain or Replace, is " + strategy);
  }
  fields.Read("multiplyBy", &rule.multiply_by);
  if (const YAML::Node outputs = fields.Take("outputs")) {
    if (!outputs.IsMap()) FailAt(outputs, what + ".outputs: want a mapping");
    for (const auto& output : outputs) {
      const auto name = output.first.as<std::string>();
      rule.outputs[name] = BillionthsOf(output.second, fmt::format("{}.outputs.{}", what, name));
    }
  }
  fields.Finish();
  return rule;
}

// Kueue's `resources`.
quota::ResourceRules ReadResourceRules(const YAML::Node& node) {
  Fields fields(node, "resources");
  std::vector<std::string> prefixes;
  fields.Read("excludeResourcePrefixes", &prefixes);
  if (std::ranges::count(prefixes, "") > 0) {
    FailAt(fields.Take("excludeResourcePrefixes"),
           "resources.excludeResourcePrefixes: \"\" would leave nothing that counts");
  }
  std::vector<quota::ResourceTransformation> rules;
  for (const YAML::Node& item : fields.Take("transformations")) {
    rules.push_back(ReadTransformation(item));
    const std::string& input = rules.back().input;
    if (std::ranges::count(rules, input, &quota::ResourceTransformation::input) > 1) {
      FailAt(item, fmt::format("resources.transformations.input: {} stands twice", input));
    }
  }
  fields.Finish();
  return {std::move(prefixes), std::move(rules)};
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
  if (const YAML::Node resources = fields->Take("resources")) {
    options->resources = ReadResourceRules(resources);
  }
  if (const YAML::Node selector = fields->Take("managedJobsNamespaceSelector")) {
    options->managed_namespaces = ReadSelector(selector, "managedJobsNamespaceSelector");
  }
}

absl::Status ReadQuotaOptions(const std::string& configuration,
                              coscheduling::EngineOptions* options) {
  try {
    const YAML::Node root = YAML::Load(configuration);
    if (root.IsNull()) return absl::OkStatus();
    Fields fields(root, "config");
    ReadQuotaOptions(&fields, options);
    return absl::OkStatus();
  } catch (const FieldError& error) {
    return absl::InvalidArgumentError(fmt::format("line {}: {}", error.line, error.message));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(fmt::format("line {}: {}", error.mark.line + 1, error.msg));
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
  if (const YAML::Node most = fields.Take("reservedIdleGPUSeconds")) {
    int64_t seconds = 0;
    fields.Read("reservedIdleGPUSeconds", &seconds);
    if (seconds <= 0) FailAt(most, "engine.reservedIdleGPUSeconds: want more than 0");
    options->reservations.idle = static_cast<double>(seconds);
  }
  fields.ReadDuration("suspectTime", &options->suspect_time);
  fields.Read("taintSuspects", &options->taint_suspects);
  fields.Read("efaRequiresOneZone", &options->efa_requires_one_zone);
  fields.ReadDuration("refusalTime", &options->refusal_time);
  if (const YAML::Node wait = fields.Take("bindWait")) {
    FailAt(wait, "engine.bindWait: half of extender.httpTimeout; set that one");
  }
  fields.ReadDuration("wakeInterval", &options->wake_interval);
  fields.ReadDuration("unplaceableGrace", &options->unplaceable_grace);
  fields.Read("assumeFeasible", &options->assume_feasible);
  fields.Finish();
}

}  // namespace muster::yaml
