#include "simulation/scenario_text.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "fmt/format.h"

namespace muster::simulation {
namespace {

// JSON is YAML as well, and keeps the order in which it is written.
using Json = nlohmann::ordered_json;

std::string Text(absl::Duration duration) { return absl::FormatDuration(duration); }

void Put(Json* out, const char* key, absl::Duration duration) {
  if (duration != absl::ZeroDuration() && duration != absl::InfiniteDuration()) {
    (*out)[key] = Text(duration);
  }
}
void Put(Json* out, const char* key, const DurationRange& range) {
  if (range.high == absl::ZeroDuration()) return;
  (*out)[key] = Json::array({Text(range.low), Text(range.high)});
}
void Put(Json* out, const char* key, double share) {
  if (share != 0) (*out)[key] = share;
}
void Put(Json* out, const char* key, bool is) {
  if (is) (*out)[key] = true;
}
void Put(Json* out, const char* key, const std::string& text) {
  if (!text.empty()) (*out)[key] = text;
}
void Put(Json* out, const char* key, const std::vector<std::string>& texts) {
  if (!texts.empty()) (*out)[key] = texts;
}
void Put(Json* out, const char* key, const Strings& map) {
  if (!map.empty()) (*out)[key] = map;
}
template <typename T>
void Put(Json* out, const char* key, const std::optional<T>& value) {
  if (value) (*out)[key] = *value;
}

Json OptionsJson(const coscheduling::EngineOptions& options) {
  const coscheduling::EngineOptions usual;
  Json out = Json::object();
  using Options = coscheduling::EngineOptions;
  constexpr std::pair<const char*, absl::Duration Options::*> kDurations[] = {
      {"provisioningDeadline", &Options::provisioning_deadline},
      {"launchDeadline", &Options::launch_deadline},
      {"refusalDeadline", &Options::refusal_deadline},
      {"registrationDeadline", &Options::registration_deadline},
      {"initializationDeadline", &Options::initialization_deadline},
      {"capacityBackoff", &Options::capacity_backoff},
      {"backoffBase", &Options::backoff_base},
      {"backoffMax", &Options::backoff_max},
      {"repairDeadline", &Options::repair_deadline},
      {"nodeGrace", &Options::node_grace},
      {"signalGrace", &Options::signal_grace},
      {"suspectTime", &Options::suspect_time},
      {"refusalTime", &Options::refusal_time},
      {"wakeInterval", &Options::wake_interval},
      {"unplaceableGrace", &Options::unplaceable_grace},
  };
  for (const auto& [key, member] : kDurations) {
    if (options.*member != usual.*member) out[key] = Text(options.*member);
  }
  if (options.reservations.idle != usual.reservations.idle) {
    out["reservedIdleGPUSeconds"] = static_cast<int64_t>(options.reservations.idle);
  }
  Put(&out, "withdrawNodes", options.withdraw_nodes);
  Put(&out, "kueueFallback", options.kueue_fallback);
  Put(&out, "taintSuspects", options.taint_suspects);
  Put(&out, "assumeFeasible", options.assume_feasible);
  return out;
}

Json InstanceTypeJson(const InstanceTypeSpec& type) {
  Json out = {{"name", type.name}};
  Put(&out, "resources", type.resources);
  Put(&out, "zones", type.zones);
  return out;
}

Json DelaysJson(const NodeDelays& delays) {
  Json out = Json::object();
  Put(&out, "launch", delays.launch);
  Put(&out, "registration", delays.registration);
  Put(&out, "initialization", delays.initialization);
  Put(&out, "neverRegisters", delays.never_registers);
  Put(&out, "insufficientCapacity", delays.insufficient_capacity);
  Put(&out, "devices", delays.devices);
  Put(&out, "devicesBefore", delays.devices_before);
  return out;
}

Json NodePoolJson(const NodePoolSpec& pool) {
  Json out = {{"name", pool.name}};
  Put(&out, "instanceTypes", pool.instance_types);
  Put(&out, "zones", pool.zones);
  Put(&out, "labels", pool.labels);
  Put(&out, "taints", pool.taints);
  Put(&out, "startupTaints", pool.startup_taints);
  Put(&out, "limits", pool.limits);
  Put(&out, "consolidateAfter", pool.consolidate_after);
  for (const NodeDelays& delays : pool.delays) out["delays"].push_back(DelaysJson(delays));
  return out;
}

Json NodeJson(const NodeSpec& node) {
  Json out = {{"name", node.name}};
  if (node.count != 1) out["count"] = node.count;
  Put(&out, "resources", node.resources);
  Put(&out, "allocatable", node.allocatable);
  Put(&out, "labels", node.labels);
  Put(&out, "taints", node.taints);
  return out;
}

Json OutageJson(const OutageSpec& outage) {
  Json out = Json::object();
  Put(&out, "instanceType", outage.instance_type);
  Put(&out, "zone", outage.zone);
  Put(&out, "from", outage.from);
  Put(&out, "until", outage.until);
  return out;
}

Json StockJson(const StockSpec& stock) {
  Json out = {{"instanceType", stock.instance_type}, {"most", stock.most}};
  Put(&out, "zone", stock.zone);
  return out;
}

Json FaultsJson(const FaultSpec& faults) {
  Json out = {{"seed", faults.seed}};
  Put(&out, "until", faults.until);
  for (const auto& [kind, of] : faults.writes) {
    Json& write = out["writes"][kind] = Json::object();
    Put(&write, "request", of.request);
    Put(&write, "answer", of.answer);
    Put(&write, "lost", of.lost);
    Put(&write, "refused", of.refused);
    Put(&write, "unanswered", of.unanswered);
  }
  for (const auto& [kind, of] : faults.watches) {
    Json& watch = out["watches"][kind] = Json::object();
    Put(&watch, "latency", of.latency);
    Put(&watch, "stalls", of.stalls);
    Put(&watch, "breaks", of.breaks);
    Put(&watch, "repeats", of.repeats);
    Put(&watch, "stall", of.stall);
  }
  Json calls = Json::object();
  Put(&calls, "latency", faults.calls.latency);
  Put(&calls, "lost", faults.calls.lost);
  Put(&calls, "unanswered", faults.calls.unanswered);
  Put(&calls, "repeated", faults.calls.repeated);
  Put(&calls, "filterFails", faults.calls.filter_fails);
  if (!calls.empty()) out["calls"] = std::move(calls);
  return out;
}

Json ExpectationJson(const Expectation& want) {
  Json out = Json::object();
  if (want.within) out["within"] = Text(*want.within);
  Put(&out, "gang", want.gang);
  if (want.state) out["state"] = v1::GangState_Name(*want.state);
  if (want.reason) out["reason"] = v1::ReasonCode_Name(*want.reason);
  Put(&out, "message", want.message);
  Put(&out, "bound", want.bound);
  Put(&out, "gated", want.gated);
  Put(&out, "signalled", want.signalled);
  Put(&out, "nodeClaims", want.node_claims);
  Put(&out, "nodes", want.nodes);
  Put(&out, "nodePool", want.node_pool);
  Put(&out, "heldNodes", want.held_nodes);
  Put(&out, "phase", want.phase);
  Put(&out, "minMember", want.min_member);
  Put(&out, "owner", want.owner);
  Put(&out, "reservedIn", want.reserved_in);
  Put(&out, "reservedPods", want.reserved_pods);
  Put(&out, "workloadSays", want.workload_says);
  Put(&out, "pod", want.pod);
  Put(&out, "node", want.node);
  Put(&out, "nodeSources", want.node_sources);
  Put(&out, "distinctNodes", want.distinct_nodes);
  Put(&out, "job", want.job);
  Put(&out, "suspended", want.suspended);
  Put(&out, "restarting", want.restarting);
  Put(&out, "contains", want.contains);
  Put(&out, "writes", want.writes);
  Put(&out, "settled", want.settled);
  return out;
}

// What a step does, under its key.
struct ActionJson {
  Json operator()(const GangSpec& gang) const {
    Json out = {{"name", gang.name}};
    if (gang.name_space != "default") out["namespace"] = gang.name_space;
    Put(&out, "minMember", gang.min_member);
    if (gang.first != 0) out["first"] = gang.first;
    out["members"] = gang.members;
    Put(&out, "requests", gang.requests);
    Put(&out, "annotations", gang.annotations);
    Put(&out, "nodeSelector", gang.node_selector);
    Put(&out, "tolerations", gang.tolerations);
    Put(&out, "schedulerName", gang.scheduler_name);
    if (gang.priority != 0) out["priority"] = gang.priority;
    Put(&out, "scheduleTimeoutSeconds", gang.schedule_timeout_seconds);
    Put(&out, "minResources", gang.min_resources);
    Put(&out, "runTime", gang.run_time);
    Put(&out, "termination", gang.termination);
    if (!gang.create_group) out["createGroup"] = false;
    if (!gang.spec_json.empty()) out["spec"] = Json(nlohmann::json::parse(gang.spec_json));
    return {{"gang", std::move(out)}};
  }
  Json operator()(const DeleteStep& step) const { return {{"delete", step.object}}; }
  Json operator()(const PatchStep& step) const {
    return {
        {step.status ? "patchStatus" : "patch",
         {{"object", step.object}, {"merge", Json(nlohmann::json::parse(step.merge_patch_json))}}}};
  }
  Json operator()(const ApplyStep& step) const {
    return {{"apply", Json(nlohmann::json::parse(step.manifest_json))}};
  }
  // Made only from a mix.
  Json operator()(const AbandonStep& step) const {
    return {{"delete", "podgroup/" + step.name_space + "/" + step.name}};
  }
  Json operator()(const ReconcileStep& step) const {
    Json out = {{"object", step.object}};
    Put(&out, "replicatedJob", step.replicated_job);
    Put(&out, "only", step.only);
    Put(&out, "refused", step.refused);
    Put(&out, "gang", step.gang);
    return {{"reconcile", std::move(out)}};
  }
  Json operator()(const RestartStep&) const { return {{"restart", Json::object()}}; }
  Json operator()(const LoseWritesStep& step) const {
    Json out = {{"kind", step.kind}};
    if (step.after != 0) out["after"] = step.after;
    Put(&out, "for", step.duration);
    return {{"loseWrites", std::move(out)}};
  }
  Json operator()(const HideNodeStep& step) const {
    Json out = {{"node", step.node}};
    Put(&out, "for", step.duration);
    return {{"hideNode", std::move(out)}};
  }
  Json operator()(const DelayBindsStep& step) const {
    Json out = {{"pod", step.pod}};
    Put(&out, "for", step.duration);
    return {{"delayBinds", std::move(out)}};
  }
  Json operator()(const Expectation& want) const { return {{"expect", ExpectationJson(want)}}; }
};

template <typename T>
std::string ListText(const char* key, const std::vector<T>& items, Json (*json)(const T&)) {
  if (items.empty()) return "";
  std::string text = fmt::format("{}:\n", key);
  for (const T& item : items) text += fmt::format("- {}\n", json(item).dump());
  return text;
}

}  // namespace

std::string ScenarioText(const Scenario& scenario) {
  std::string text = fmt::format("name: {}\n", Json(scenario.name).dump());
  if (scenario.options.fair_sharing) text += "fairSharing: true\n";
  if (scenario.mode == Mode::kExtender) text += "mode: extender\n";
  if (scenario.mode == Mode::kStandalone) text += "mode: standalone\n";
  if (const Json options = OptionsJson(scenario.options); !options.empty()) {
    text += fmt::format("options: {}\n", options.dump());
  }
  text += ListText("instanceTypes", scenario.instance_types, InstanceTypeJson);
  text += ListText("nodePools", scenario.node_pools, NodePoolJson);
  text += ListText("nodes", scenario.nodes, NodeJson);
  text += ListText("outages", scenario.outages, OutageJson);
  text += ListText("stocks", scenario.stocks, StockJson);
  if (scenario.faults) text += fmt::format("faults: {}\n", FaultsJson(*scenario.faults).dump());
  text += "steps:\n";
  for (const Step& step : scenario.steps) {
    Json line = {{"at", Text(step.at)}};
    Put(&line, "mayBeRefused", step.may_be_refused);
    line.update(std::visit(ActionJson{}, step.action));
    text += fmt::format("- {}\n", line.dump());
  }
  return text;
}

}  // namespace muster::simulation
