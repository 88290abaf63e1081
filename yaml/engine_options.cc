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

// Of nodes there are two more.
kube::SelectorOperator NodeOperatorOf(const YAML::Node& node) {
  const auto text = node.as<std::string>("");
  if (text == "Gt") return kube::SelectorOperator::kGt;
  if (text == "Lt") return kube::SelectorOperator::kLt;
  return OperatorOf(node);
}

std::vector<kube::Requirement> ReadNodeRequirements(const YAML::Node& list,
                                                    const std::string& what) {
  std::vector<kube::Requirement> requirements;
  for (const YAML::Node& item : list) {
    Fields expression(item, what);
    kube::Requirement& requirement = requirements.emplace_back();
    expression.Require("key");
    expression.Read("key", &requirement.key);
    expression.Require("operator");
    requirement.op = NodeOperatorOf(expression.Take("operator"));
    expression.Read("values", &requirement.values);
    expression.Finish();
  }
  return requirements;
}

kube::NodeSelectorTerm ReadNodeTerm(const YAML::Node& node, const std::string& what) {
  Fields fields(node, what);
  kube::NodeSelectorTerm term;
  term.match_expressions =
      ReadNodeRequirements(fields.Take("matchExpressions"), what + ".matchExpressions");
  term.match_fields = ReadNodeRequirements(fields.Take("matchFields"), what + ".matchFields");
  fields.Finish();
  return term;
}

// A whole number within bounds, or an error at the node.
int64_t ReadWithin(Fields* fields, const char* key, const std::string& what, int64_t least,
                   int64_t most) {
  fields->Require(key);
  int64_t number = 0;
  fields->Read(key, &number);
  if (number >= least && number <= most) return number;
  FailAt(fields->Take(key), fmt::format("{}.{}: want {} to {}", what, key, least, most));
}

// NodeAffinityArgs.addedAffinity, a pod's nodeAffinity.
cluster::AddedAffinity ReadAddedAffinity(const YAML::Node& node) {
  const std::string what = "engine.addedAffinity";
  cluster::AddedAffinity added;
  Fields fields(node, what);
  const char* const required = "requiredDuringSchedulingIgnoredDuringExecution";
  const char* const preferred = "preferredDuringSchedulingIgnoredDuringExecution";
  if (const YAML::Node selector = fields.Take(required)) {
    Fields terms(selector, what + "." + required);
    added.required.emplace();
    for (const YAML::Node& item : terms.Take("nodeSelectorTerms")) {
      added.required->push_back(ReadNodeTerm(item, what + ".nodeSelectorTerms"));
    }
    terms.Finish();
  }
  for (const YAML::Node& item : fields.Take(preferred)) {
    Fields term(item, what + "." + preferred);
    kube::PreferredNodeTerm& one = added.preferred.emplace_back();
    one.weight = static_cast<int32_t>(ReadWithin(&term, "weight", what + "." + preferred, 1, 100));
    term.Require("preference");
    one.term = ReadNodeTerm(term.Take("preference"), what + ".preference");
    term.Finish();
  }
  fields.Finish();
  return added;
}

// NodeResourcesFitArgs.scoringStrategy.
cluster::ScoringStrategy ReadScoringStrategy(const YAML::Node& node) {
  using Type = cluster::ScoringStrategy::Type;
  const std::string what = "engine.scoringStrategy";
  cluster::ScoringStrategy strategy;
  Fields fields(node, what);
  fields.Require("type");
  std::optional<Type> type;
  fields.ReadEnum<Type>(
      "type",
      [](const std::string& text, Type* out) {
        if (text == "LeastAllocated") *out = Type::kLeastAllocated;
        if (text == "MostAllocated") *out = Type::kMostAllocated;
        if (text == "RequestedToCapacityRatio") *out = Type::kRequestedToCapacityRatio;
        return text == "LeastAllocated" || text == "MostAllocated" ||
               text == "RequestedToCapacityRatio";
      },
      &type);
  if (type) strategy.type = *type;
  if (const YAML::Node resources = fields.Take("resources")) {
    strategy.resources.clear();
    for (const YAML::Node& item : resources) {
      Fields resource(item, what + ".resources");
      resource.Require("name");
      auto& [name, weight] = strategy.resources.emplace_back("", 1);
      resource.Read("name", &name);
      if (resource.Take("weight")) {
        weight = ReadWithin(&resource, "weight", what + ".resources", 1, 100);
      }
      resource.Finish();
    }
    if (strategy.resources.empty()) FailAt(resources, what + ".resources: want at least one");
  }
  const YAML::Node ratio = fields.Take("requestedToCapacityRatio");
  const bool wants_ratio = strategy.type == Type::kRequestedToCapacityRatio;
  if (static_cast<bool>(ratio) != wants_ratio) {
    FailAt(
        wants_ratio ? node : ratio,
        what + ".requestedToCapacityRatio goes with type RequestedToCapacityRatio, and no other");
  }
  if (ratio) {
    const std::string where = what + ".requestedToCapacityRatio";
    Fields ratio_fields(ratio, where);
    ratio_fields.Require("shape");
    const YAML::Node shape = ratio_fields.Take("shape");
    for (const YAML::Node& item : shape) {
      Fields point(item, where + ".shape");
      const int64_t utilization = ReadWithin(&point, "utilization", where + ".shape", 0, 100);
      const int64_t score = ReadWithin(&point, "score", where + ".shape", 0, 10);
      point.Finish();
      if (!strategy.shape.empty() && strategy.shape.back().first >= utilization) {
        FailAt(item, where + ".shape: utilization must rise from point to point");
      }
      strategy.shape.emplace_back(utilization, score);
    }
    if (strategy.shape.empty()) FailAt(shape, where + ".shape: want at least one point");
    ratio_fields.Finish();
  }
  fields.Finish();
  return strategy;
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
  if (const YAML::Node added = fields.Take("addedAffinity")) {
    options->profile.added_affinity = ReadAddedAffinity(added);
  }
  if (const YAML::Node strategy = fields.Take("scoringStrategy")) {
    options->profile.scoring = ReadScoringStrategy(strategy);
  }
  fields.Finish();
}

}  // namespace muster::yaml
