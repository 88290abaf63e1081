#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <utility>

#include "kube/objects/decode.h"
#include "kube/objects/decode_parts.h"
#include "kube/objects/decode_resource_groups.h"
#include "kube/objects/names.h"
#include "kube/objects/well_known.h"

namespace muster::kube {
namespace {

constexpr size_t kMaxFlavorEntries = 8;
constexpr size_t kMaxTopologyLevels = 16;
constexpr int64_t kNanosPerMilli = 1'000'000;

// One of an enumeration's names; the fallback when absent.
template <typename E>
E ReadEnum(const JsonValue& value, std::initializer_list<std::pair<std::string_view, E>> names,
           E fallback) {
  const std::string_view text = value.View();
  if (text.empty()) return fallback;
  std::string known;
  for (const auto& [name, meaning] : names) {
    if (name == text) return meaning;
    known += known.empty() ? "" : ", ";
    known += name;
  }
  value.RejectValue(fmt::format("unknown value \"{}\", known are {}", text, known));
  return fallback;
}

StopPolicy ReadStopPolicy(const JsonValue& value) {
  return ReadEnum<StopPolicy>(value,
                              {{"None", StopPolicy::kNone},
                               {"Hold", StopPolicy::kHold},
                               {"HoldAndDrain", StopPolicy::kHoldAndDrain}},
                              StopPolicy::kNone);
}

// Kueue counts with a double here; thousandths are as fine as it gets without one.
int64_t ReadFairWeight(const JsonValue& fair_sharing) {
  const JsonValue weight = fair_sharing.Get("weight");
  if (!weight.present()) return 1000;
  const int64_t nanos = ReadAmount(weight, QuantityUnit::kNano);
  if (nanos % kNanosPerMilli != 0) {
    weight.RejectValue(
        fmt::format("{} is finer than a thousandth", FormatQuantity(nanos, QuantityUnit::kNano)));
  }
  return nanos / kNanosPerMilli;
}

// A name of another object; empty when absent.
std::string ReadReference(const JsonValue& value) {
  if (!value.View().empty() && !IsDnsSubdomain(value.View())) {
    value.RejectValue(fmt::format("\"{}\" can't be a name", value.View()));
  }
  return value.String();
}

// cohortName, or v1beta1's cohort.
std::string ReadCohort(const JsonValue& spec) {
  const JsonValue newer = spec.Get("cohortName");
  const JsonValue older = spec.Get("cohort");
  std::string name = ReadReference(newer);
  const std::string other = ReadReference(older);
  if (!name.empty() && !other.empty() && name != other) {
    older.RejectValue(fmt::format("{} contradicts {}: {}", other, newer.Path(), name));
  }
  return name.empty() ? other : name;
}

void CheckLabelKey(const JsonValue& where, std::string_view key) {
  if (!IsQualifiedName(key)) where.RejectValue(fmt::format("\"{}\" is not a label's key", key));
}

void CheckLabelValue(const JsonValue& value) {
  if (!IsLabelValue(value.View())) {
    value.RejectValue(fmt::format("\"{}\" is not a label's value", value.View()));
  }
}

void CheckLabels(const JsonValue& labels) {
  labels.ForEachField([](std::string_view key, const JsonValue& value) {
    CheckLabelKey(value, key);
    CheckLabelValue(value);
  });
}

// ValidateLabelSelector of apimachinery v0.34.
void CheckSelector(const JsonValue& selector) {
  CheckLabels(selector.Get("matchLabels"));
  selector.Get("matchExpressions").ForEach([](const JsonValue& requirement) {
    CheckLabelKey(requirement.Get("key"), requirement.Get("key").View());
    const std::string_view op = requirement.Get("operator").View();
    const JsonValue values = requirement.Get("values");
    size_t count = 0;
    values.ForEach([&](const JsonValue& value) {
      ++count;
      CheckLabelValue(value);
    });
    const bool wants_values = op == "In" || op == "NotIn";
    if (wants_values && count == 0) values.RejectValue(fmt::format("{} needs values", op));
    if (!wants_values && count > 0) values.RejectValue(fmt::format("{} takes no values", op));
  });
}

// pkg/webhooks/resourceflavor_webhook.go v0.15.2.
void CheckTaints(const JsonValue& taints) {
  CheckCount(taints, kMaxFlavorEntries);
  std::set<std::pair<std::string_view, std::string_view>> seen;
  taints.ForEach([&](const JsonValue& taint) {
    const std::string_view key = taint.Get("key").View();
    CheckLabelKey(taint.Get("key"), key);
    CheckLabelValue(taint.Get("value"));
    if (!seen.emplace(key, taint.Get("effect").View()).second) {
      taint.RejectValue(
          fmt::format("{} with effect {} is listed already", key, taint.Get("effect").View()));
    }
  });
}

// The rules of the same file and of the CRD.
void CheckToleration(const JsonValue& value, const Toleration& toleration) {
  if (!toleration.key.empty()) {
    CheckLabelKey(value.Get("key"), toleration.key);
  } else if (!toleration.exists) {
    value.Get("operator").RejectValue("must be Exists where key is empty");
  }
  if (toleration.exists && !toleration.value.empty()) {
    value.Get("value").RejectValue(
        fmt::format("\"{}\" must be empty with operator Exists", toleration.value));
  }
  if (!toleration.exists) CheckLabelValue(value.Get("value"));
  if (value.Get("tolerationSeconds").present() && toleration.effect != TaintEffect::kNoExecute) {
    value.Get("tolerationSeconds").RejectValue("needs effect NoExecute");
  }
}

void ReadTolerations(const JsonValue& tolerations, ResourceFlavor& flavor) {
  CheckCount(tolerations, kMaxFlavorEntries);
  tolerations.ForEach([&](const JsonValue& value) {
    flavor.tolerations.push_back(ReadToleration(value));
    CheckToleration(value, flavor.tolerations.back());
    const JsonValue seconds = value.Get("tolerationSeconds");
    flavor.toleration_seconds.push_back(seconds.present() ? std::optional<int64_t>(seconds.Int())
                                                          : std::nullopt);
  });
}

// "Borrow" and "Preempt" are v1beta1's older names for MayStopSearch.
FlavorFungibility ReadFungibility(const JsonValue& value) {
  FlavorFungibility result;
  result.when_can_borrow =
      ReadEnum<FungibilityPolicy>(value.Get("whenCanBorrow"),
                                  {{"MayStopSearch", FungibilityPolicy::kMayStopSearch},
                                   {"TryNextFlavor", FungibilityPolicy::kTryNextFlavor},
                                   {"Borrow", FungibilityPolicy::kMayStopSearch}},
                                  FungibilityPolicy::kMayStopSearch);
  result.when_can_preempt =
      ReadEnum<FungibilityPolicy>(value.Get("whenCanPreempt"),
                                  {{"MayStopSearch", FungibilityPolicy::kMayStopSearch},
                                   {"TryNextFlavor", FungibilityPolicy::kTryNextFlavor},
                                   {"Preempt", FungibilityPolicy::kMayStopSearch}},
                                  FungibilityPolicy::kTryNextFlavor);
  const JsonValue preference = value.Get("preference");
  if (!preference.present()) return result;
  result.preference = ReadEnum<FungibilityPreference>(
      preference,
      {{"BorrowingOverPreemption", FungibilityPreference::kBorrowingOverPreemption},
       {"PreemptionOverBorrowing", FungibilityPreference::kPreemptionOverBorrowing}},
      FungibilityPreference::kBorrowingOverPreemption);
  if (result.when_can_borrow != FungibilityPolicy::kTryNextFlavor ||
      result.when_can_preempt != FungibilityPolicy::kTryNextFlavor) {
    preference.RejectValue(
        fmt::format("{} needs whenCanBorrow and whenCanPreempt TryNextFlavor", preference.View()));
  }
  return result;
}

PreemptionPolicy ReadPreemption(const JsonValue& value) {
  PreemptionPolicy result;
  result.reclaim_within_cohort =
      ReadEnum<ReclaimPolicy>(value.Get("reclaimWithinCohort"),
                              {{"Never", ReclaimPolicy::kNever},
                               {"LowerPriority", ReclaimPolicy::kLowerPriority},
                               {"Any", ReclaimPolicy::kAny}},
                              ReclaimPolicy::kNever);
  result.within_cluster_queue = ReadEnum<WithinQueuePolicy>(
      value.Get("withinClusterQueue"),
      {{"Never", WithinQueuePolicy::kNever},
       {"LowerPriority", WithinQueuePolicy::kLowerPriority},
       {"LowerOrNewerEqualPriority", WithinQueuePolicy::kLowerOrNewerEqualPriority}},
      WithinQueuePolicy::kNever);
  const JsonValue borrow = value.Get("borrowWithinCohort");
  const JsonValue policy = borrow.Get("policy");
  result.borrow_from_lower_priority =
      ReadEnum<bool>(policy, {{"Never", false}, {"LowerPriority", true}}, false);
  const JsonValue threshold = borrow.Get("maxPriorityThreshold");
  if (threshold.present()) result.borrow_max_priority_threshold = threshold.Int32();
  if (result.borrow_from_lower_priority && result.reclaim_within_cohort == ReclaimPolicy::kNever) {
    policy.RejectValue("LowerPriority needs a reclaimWithinCohort other than Never");
  }
  return result;
}

std::vector<std::string> ReadAdmissionChecks(const JsonValue& spec) {
  std::vector<std::string> checks = ReadStrings(spec.Get("admissionChecks"));
  spec.Get("admissionChecksStrategy").Get("admissionChecks").ForEach([&](const JsonValue& check) {
    checks.push_back(check.Get("name").String());
  });
  return checks;
}

// A value of a wrong type comes before what its absence led to.
std::string FirstError(const JsonReader& reader) {
  return reader.status().ok() ? reader.unusable() : std::string(reader.status().message());
}

}  // namespace

template <>
absl::StatusOr<ResourceFlavor> Decode<ResourceFlavor>(std::string_view json) {
  JsonReader reader(json);
  if (!reader.status().ok()) return reader.status();
  const JsonValue root = reader.root();
  ResourceFlavor flavor;
  flavor.meta = ReadMeta(root.Get("metadata"));
  const JsonValue spec = root.Get("spec");
  const JsonValue labels = spec.Get("nodeLabels");
  flavor.node_labels = ReadStringMap(labels);
  CheckLabels(labels);
  if (flavor.node_labels.size() > kMaxFlavorEntries) {
    labels.RejectValue(
        fmt::format("{} entries, at most {}", flavor.node_labels.size(), kMaxFlavorEntries));
  }
  const JsonValue taints = spec.Get("nodeTaints");
  flavor.node_taints = ReadTaints(taints);
  CheckTaints(taints);
  ReadTolerations(spec.Get("tolerations"), flavor);
  const JsonValue topology = spec.Get("topologyName");
  flavor.topology_name = ReadReference(topology);
  if (topology.present() && flavor.node_labels.empty()) {
    topology.RejectValue(fmt::format("{} needs nodeLabels", flavor.topology_name));
  }
  flavor.error = FirstError(reader);
  return flavor;
}

// By the rules of its CRD.
template <>
absl::StatusOr<Topology> Decode<Topology>(std::string_view json) {
  JsonReader reader(json);
  if (!reader.status().ok()) return reader.status();
  const JsonValue root = reader.root();
  Topology topology;
  topology.meta = ReadMeta(root.Get("metadata"));
  const JsonValue levels = root.Get("spec").Get("levels");
  CheckCount(levels, kMaxTopologyLevels);
  levels.ForEach([&](const JsonValue& level) {
    const JsonValue label = level.Get("nodeLabel");
    CheckLabelKey(label, label.View());
    if (std::ranges::count(topology.levels, label.View()) > 0) {
      label.RejectValue(fmt::format("{} is listed already", label.View()));
    } else if (!topology.levels.empty() && topology.levels.back() == kHostnameLabel) {
      label.RejectValue(fmt::format("below {} there is nothing", kHostnameLabel));
    }
    topology.levels.push_back(label.String());
  });
  if (topology.levels.empty()) levels.RejectValue("missing");
  topology.error = FirstError(reader);
  return topology;
}

template <>
absl::StatusOr<ClusterQueue> Decode<ClusterQueue>(std::string_view json) {
  JsonReader reader(json);
  if (!reader.status().ok()) return reader.status();
  const JsonValue root = reader.root();
  ClusterQueue queue;
  queue.meta = ReadMeta(root.Get("metadata"));
  const JsonValue spec = root.Get("spec");
  queue.cohort = ReadCohort(spec);
  ResourceGroupRules rules;
  rules.has_parent = !queue.cohort.empty();
  queue.resource_groups = ReadResourceGroups(spec.Get("resourceGroups"), rules);
  queue.strategy =
      ReadEnum<QueueingStrategy>(spec.Get("queueingStrategy"),
                                 {{"BestEffortFIFO", QueueingStrategy::kBestEffortFifo},
                                  {"StrictFIFO", QueueingStrategy::kStrictFifo}},
                                 QueueingStrategy::kBestEffortFifo);
  const JsonValue selector = spec.Get("namespaceSelector");
  queue.namespace_selector = ReadLabelSelector(selector);
  CheckSelector(selector);
  queue.fungibility = ReadFungibility(spec.Get("flavorFungibility"));
  queue.preemption = ReadPreemption(spec.Get("preemption"));
  queue.stop_policy = ReadStopPolicy(spec.Get("stopPolicy"));
  queue.fair_weight_milli = ReadFairWeight(spec.Get("fairSharing"));
  queue.admission_checks = ReadAdmissionChecks(spec);
  queue.usage_based_admission = ReadEnum<bool>(
      spec.Get("admissionScope").Get("admissionMode"),
      {{"UsageBasedAdmissionFairSharing", true}, {"NoAdmissionFairSharing", false}}, false);
  queue.error = FirstError(reader);
  return queue;
}

template <>
absl::StatusOr<LocalQueue> Decode<LocalQueue>(std::string_view json) {
  JsonReader reader(json);
  if (!reader.status().ok()) return reader.status();
  const JsonValue root = reader.root();
  LocalQueue queue;
  queue.meta = ReadMeta(root.Get("metadata"));
  const JsonValue spec = root.Get("spec");
  const JsonValue cluster_queue = spec.Get("clusterQueue");
  queue.cluster_queue = ReadReference(cluster_queue);
  if (queue.cluster_queue.empty()) cluster_queue.RejectValue("missing");
  queue.stop_policy = ReadStopPolicy(spec.Get("stopPolicy"));
  queue.fair_weight_milli = ReadFairWeight(spec.Get("fairSharing"));
  queue.error = FirstError(reader);
  return queue;
}

template <>
absl::StatusOr<Cohort> Decode<Cohort>(std::string_view json) {
  JsonReader reader(json);
  if (!reader.status().ok()) return reader.status();
  const JsonValue root = reader.root();
  Cohort cohort;
  cohort.meta = ReadMeta(root.Get("metadata"));
  const JsonValue spec = root.Get("spec");
  cohort.parent = ReadReference(spec.Get("parentName"));
  ResourceGroupRules rules;
  rules.has_parent = !cohort.parent.empty();
  rules.lending_within_nominal = false;
  rules.bounded_totals = false;
  cohort.resource_groups = ReadResourceGroups(spec.Get("resourceGroups"), rules);
  cohort.fair_weight_milli = ReadFairWeight(spec.Get("fairSharing"));
  cohort.error = FirstError(reader);
  return cohort;
}

template <>
absl::StatusOr<WorkloadPriorityClass> Decode<WorkloadPriorityClass>(std::string_view json) {
  JsonReader reader(json);
  if (!reader.status().ok()) return reader.status();
  const JsonValue root = reader.root();
  WorkloadPriorityClass result;
  result.meta = ReadMeta(root.Get("metadata"));
  const JsonValue value = root.Get("value");
  if (!value.present()) value.RejectValue("missing");
  result.value = value.Int32();
  result.error = FirstError(reader);
  return result;
}

template <>
absl::StatusOr<PriorityClass> Decode<PriorityClass>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  PriorityClass result;
  result.meta = ReadMeta(root.Get("metadata"));
  result.value = root.Get("value").Int32();
  result.global_default = root.Get("globalDefault").Bool();
  if (!reader.status().ok()) return reader.status();
  return result;
}

}  // namespace muster::kube
