#include "simulation/scenario.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "kube/objects/excerpt.h"
#include "yaml/engine_options.h"
#include "yaml/fields.h"
#include "yaml/source_text.h"
#include "yaml/tree.h"

namespace muster::simulation {
namespace {

using nlohmann::json;
using yaml::Fields;

json ToJson(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Map: {
      json object = json::object();
      for (const auto& entry : node) object[entry.first.as<std::string>()] = ToJson(entry.second);
      return object;
    }
    case YAML::NodeType::Sequence: {
      json array = json::array();
      for (const auto& item : node) array.push_back(ToJson(item));
      return array;
    }
    case YAML::NodeType::Scalar: {
      // Tag "!" marks a quoted scalar: always a string.
      if (node.Tag() == "!") return node.Scalar();
      const json parsed = json::parse(node.Scalar(), nullptr, false);
      return parsed.is_number() || parsed.is_boolean() ? parsed : json(node.Scalar());
    }
    default:
      return nullptr;
  }
}

Mode ReadMode(const YAML::Node& node) {
  const auto mode = node.as<std::string>("");
  if (mode == "extender") return Mode::kExtender;
  if (mode == "standalone") return Mode::kStandalone;
  yaml::FailAt(node, fmt::format("scenario.mode: {}, want extender or standalone", mode));
}

// What one file may ask for; more would only take memory.
constexpr int kMostOfOne = 10'000;
constexpr absl::Duration kLatestStep = absl::Hours(24 * 31);

// `value` of the field within its bounds.
void CheckCount(Fields* fields, const YAML::Node& node, const char* name, const char* key,
                int value, int least) {
  if (value >= least && value <= kMostOfOne) return;
  const YAML::Node field = fields->Take(key);
  yaml::FailAt(field ? field : node,
               fmt::format("{}.{}: {}, want {} to {}", name, key, value, least, kMostOfOne));
}

// The items of a list; none if it is absent.
YAML::Node ListOf(Fields* fields, const std::string& name, const char* key) {
  const YAML::Node list = fields->Take(key);
  if (list && !list.IsNull() && !list.IsSequence()) {
    yaml::FailAt(list, fmt::format("{}.{}: want a list", name, key));
  }
  return list;
}

InstanceTypeSpec ReadInstanceType(const YAML::Node& node) {
  Fields fields(node, "instanceTypes");
  InstanceTypeSpec type;
  fields.Require("name");
  fields.Read("name", &type.name);
  fields.Read("resources", &type.resources);
  fields.Read("zones", &type.zones);
  fields.Finish();
  return type;
}

NodeDelays ReadDelays(const YAML::Node& node) {
  Fields fields(node, "delays");
  NodeDelays delays;
  fields.ReadDuration("launch", &delays.launch);
  fields.ReadDuration("registration", &delays.registration);
  fields.ReadDuration("initialization", &delays.initialization);
  fields.Read("neverRegisters", &delays.never_registers);
  fields.Read("insufficientCapacity", &delays.insufficient_capacity);
  fields.ReadDuration("devices", &delays.devices);
  fields.Read("devicesBefore", &delays.devices_before);
  fields.Finish();
  return delays;
}

// A duration, or two: [low, high].
DurationRange ReadRange(Fields* fields, const std::string& name, const char* key) {
  DurationRange range;
  const YAML::Node node = fields->Take(key);
  if (!node) return range;
  std::vector<std::string> texts;
  if (node.IsSequence()) {
    fields->Read(key, &texts);
  } else {
    texts.assign(2, node.IsScalar() ? node.Scalar() : "");
  }
  const bool good = texts.size() == 2 && absl::ParseDuration(texts[0], &range.low) &&
                    absl::ParseDuration(texts[1], &range.high) &&
                    range.low >= absl::ZeroDuration() && range.low <= range.high &&
                    range.high <= kLatestStep;
  if (!good) {
    yaml::FailAt(node, fmt::format("{}.{}: want a duration, or [low, high]", name, key));
  }
  return range;
}

DrawnLaunches ReadLaunches(const YAML::Node& node) {
  Fields fields(node, "launches");
  DrawnLaunches launches;
  launches.launch = ReadRange(&fields, "launches", "launch");
  launches.registration = ReadRange(&fields, "launches", "registration");
  launches.initialization = ReadRange(&fields, "launches", "initialization");
  fields.Read("neverRegisters", &launches.never_registers);
  fields.Read("insufficientCapacity", &launches.insufficient_capacity);
  fields.Read("incomplete", &launches.incomplete);
  launches.devices = ReadRange(&fields, "launches", "devices");
  fields.Read("devicesBefore", &launches.devices_before);
  for (const char* key : {"neverRegisters", "insufficientCapacity", "incomplete"}) {
    int percent = 0;
    fields.Read(key, &percent);
    if (percent < 0 || percent > 100) {
      yaml::FailAt(fields.Take(key), fmt::format("launches.{}: want 0 to 100 percent", key));
    }
  }
  fields.Finish();
  return launches;
}

OutageSpec ReadOutage(const YAML::Node& node) {
  Fields fields(node, "outages");
  OutageSpec outage;
  fields.Read("instanceType", &outage.instance_type);
  fields.Read("zone", &outage.zone);
  fields.ReadDuration("from", &outage.from);
  fields.ReadDuration("until", &outage.until);
  fields.Finish();
  return outage;
}

StockSpec ReadStock(const YAML::Node& node) {
  Fields fields(node, "stocks");
  StockSpec stock;
  fields.Require("instanceType");
  fields.Require("most");
  fields.Read("instanceType", &stock.instance_type);
  fields.Read("zone", &stock.zone);
  fields.Read("most", &stock.most);
  CheckCount(&fields, node, "stocks", "most", stock.most, 0);
  fields.Finish();
  return stock;
}

NodePoolSpec ReadNodePool(const YAML::Node& node) {
  Fields fields(node, "nodePools");
  NodePoolSpec pool;
  fields.Require("name");
  fields.Read("name", &pool.name);
  fields.Read("instanceTypes", &pool.instance_types);
  fields.Read("zones", &pool.zones);
  fields.Read("labels", &pool.labels);
  fields.Read("taints", &pool.taints);
  fields.Read("startupTaints", &pool.startup_taints);
  fields.Read("limits", &pool.limits);
  fields.ReadDuration("consolidateAfter", &pool.consolidate_after);
  for (const YAML::Node& delays : ListOf(&fields, "nodePools", "delays")) {
    pool.delays.push_back(ReadDelays(delays));
  }
  if (const YAML::Node launches = fields.Take("launches")) {
    pool.launches = ReadLaunches(launches);
    if (!pool.delays.empty()) {
      yaml::FailAt(launches, "nodePools.launches: there are delays as well");
    }
  }
  fields.Finish();
  return pool;
}

NodeSpec ReadNode(const YAML::Node& node) {
  Fields fields(node, "nodes");
  NodeSpec spec;
  fields.Require("name");
  fields.Read("name", &spec.name);
  fields.Read("count", &spec.count);
  CheckCount(&fields, node, "nodes", "count", spec.count, 1);
  fields.Read("resources", &spec.resources);
  fields.Read("allocatable", &spec.allocatable);
  fields.Read("labels", &spec.labels);
  fields.Read("taints", &spec.taints);
  fields.Finish();
  return spec;
}

GangSpec ReadGang(const YAML::Node& node) {
  Fields fields(node, "gang");
  GangSpec gang;
  fields.Require("name");
  fields.Read("name", &gang.name);
  fields.Read("namespace", &gang.name_space);
  fields.Read("minMember", &gang.min_member);
  fields.Read("first", &gang.first);
  CheckCount(&fields, node, "gang", "first", gang.first, 0);
  fields.Read("members", &gang.members);
  CheckCount(&fields, node, "gang", "members", gang.members, 0);
  fields.Read("requests", &gang.requests);
  fields.Read("annotations", &gang.annotations);
  fields.Read("nodeSelector", &gang.node_selector);
  fields.Read("tolerations", &gang.tolerations);
  fields.Read("schedulerName", &gang.scheduler_name);
  fields.Read("priority", &gang.priority);
  fields.Read("scheduleTimeoutSeconds", &gang.schedule_timeout_seconds);
  fields.Read("minResources", &gang.min_resources);
  fields.ReadDuration("runTime", &gang.run_time);
  fields.ReadDuration("termination", &gang.termination);
  fields.Read("createGroup", &gang.create_group);
  if (const YAML::Node spec = fields.Take("spec")) gang.spec_json = ToJson(spec).dump();
  fields.Finish();
  return gang;
}

GangShape ReadShape(const YAML::Node& node) {
  Fields fields(node, "shapes");
  GangShape shape;
  fields.Require("gang");
  fields.Require("runTime");
  fields.Read("weight", &shape.weight);
  CheckCount(&fields, node, "shapes", "weight", shape.weight, 1);
  std::vector<int> members = {1, 1};
  fields.Read("members", &members);
  if (members.size() != 2 || members[0] < 1 || members[0] > members[1] || members[1] > kMostOfOne) {
    yaml::FailAt(fields.Take("members"),
                 fmt::format("shapes.members: want [fewest, most], 1 to {}", kMostOfOne));
  }
  shape.fewest_members = members[0];
  shape.most_members = members[1];
  shape.run_time = ReadRange(&fields, "shapes", "runTime");
  fields.ReadDuration("patience", &shape.patience);
  if (shape.patience <= absl::ZeroDuration()) {
    yaml::FailAt(fields.Take("patience"), "shapes.patience: want more than 0");
  }
  shape.gang = ReadGang(fields.Take("gang"));
  fields.Read("masterRequests", &shape.master_requests);
  fields.Finish();
  return shape;
}

GangMix ReadMix(const YAML::Node& node) {
  Fields fields(node, "mix");
  GangMix mix;
  mix.line = node.Mark().line + 1;
  fields.Require("gangs");
  fields.Require("shapes");
  fields.Read("gangs", &mix.gangs);
  CheckCount(&fields, node, "mix", "gangs", mix.gangs, 1);
  fields.ReadDuration("from", &mix.from);
  fields.ReadDuration("every", &mix.every);
  if (mix.from < absl::ZeroDuration() || mix.every < absl::ZeroDuration() ||
      mix.from + 2 * mix.gangs * mix.every > kLatestStep) {
    yaml::FailAt(node, "mix: want from and every such that the last gang comes within " +
                           absl::FormatDuration(kLatestStep));
  }
  for (const YAML::Node& shape : ListOf(&fields, "mix", "shapes")) {
    mix.shapes.push_back(ReadShape(shape));
  }
  if (mix.shapes.empty()) yaml::FailAt(node, "mix.shapes: there is none");
  fields.Finish();
  return mix;
}

Expectation ReadExpectation(const YAML::Node& node) {
  Fields fields(node, "expect");
  Expectation want;
  if (fields.Take("within")) {
    absl::Duration within;
    fields.ReadDuration("within", &within);
    want.within = within;
  }
  fields.Read("gang", &want.gang);
  fields.ReadEnum<v1::GangState>(
      "state",
      [](const std::string& text, v1::GangState* out) { return v1::GangState_Parse(text, out); },
      &want.state);
  fields.ReadEnum<v1::ReasonCode>(
      "reason",
      [](const std::string& text, v1::ReasonCode* out) { return v1::ReasonCode_Parse(text, out); },
      &want.reason);
  fields.Read("message", &want.message);
  fields.Read("bound", &want.bound);
  fields.Read("gated", &want.gated);
  fields.Read("signalled", &want.signalled);
  fields.Read("nodeClaims", &want.node_claims);
  fields.Read("nodes", &want.nodes);
  fields.Read("nodePool", &want.node_pool);
  fields.Read("heldNodes", &want.held_nodes);
  fields.Read("phase", &want.phase);
  fields.Read("minMember", &want.min_member);
  fields.Read("owner", &want.owner);
  fields.Read("reservedIn", &want.reserved_in);
  fields.Read("reservedPods", &want.reserved_pods);
  fields.Read("workloadSays", &want.workload_says);
  fields.Read("pod", &want.pod);
  fields.Read("node", &want.node);
  fields.Read("nodeSources", &want.node_sources);
  fields.Read("distinctNodes", &want.distinct_nodes);
  fields.Read("job", &want.job);
  fields.Read("suspended", &want.suspended);
  fields.Read("restarting", &want.restarting);
  fields.Read("contains", &want.contains);
  fields.Read("writes", &want.writes);
  fields.Read("settled", &want.settled);
  fields.Finish();
  return want;
}

PatchStep ReadPatch(const YAML::Node& node, bool status) {
  Fields fields(node, "patch");
  PatchStep patch;
  patch.status = status;
  fields.Require("object");
  fields.Require("merge");
  fields.Read("object", &patch.object);
  patch.merge_patch_json = ToJson(fields.Take("merge")).dump();
  fields.Finish();
  return patch;
}

ReconcileStep ReadReconcile(const YAML::Node& node) {
  Fields fields(node, "reconcile");
  ReconcileStep step;
  fields.Require("object");
  fields.Read("object", &step.object);
  fields.Read("replicatedJob", &step.replicated_job);
  fields.Read("only", &step.only);
  fields.Read("refused", &step.refused);
  fields.Read("gang", &step.gang);
  fields.Finish();
  return step;
}

LoseWritesStep ReadLoseWrites(const YAML::Node& node) {
  Fields fields(node, "loseWrites");
  LoseWritesStep step;
  fields.Require("kind");
  fields.Read("kind", &step.kind);
  fields.Read("after", &step.after);
  fields.ReadDuration("for", &step.duration);
  fields.Finish();
  return step;
}

HideNodeStep ReadHideNode(const YAML::Node& node) {
  Fields fields(node, "hideNode");
  HideNodeStep step;
  fields.Require("node");
  fields.Read("node", &step.node);
  fields.ReadDuration("for", &step.duration);
  fields.Finish();
  return step;
}

DelayBindsStep ReadDelayBinds(const YAML::Node& node) {
  Fields fields(node, "delayBinds");
  DelayBindsStep step;
  fields.Require("pod");
  fields.Read("pod", &step.pod);
  fields.ReadDuration("for", &step.duration);
  fields.Finish();
  return step;
}

Step ReadStep(const YAML::Node& node, absl::Duration previous) {
  Fields fields(node, "steps");
  Step step;
  step.line = node.Mark().line + 1;
  step.at = previous;
  fields.ReadDuration("at", &step.at);
  fields.Read("mayBeRefused", &step.may_be_refused);
  if (step.at < previous) yaml::FailAt(node, "steps.at: before the step above");
  if (step.at > kLatestStep) {
    yaml::FailAt(node, "steps.at: later than " + absl::FormatDuration(kLatestStep));
  }
  int actions = 0;
  auto on = [&](const char* key, const std::function<void(const YAML::Node&)>& read) {
    const YAML::Node field = fields.Take(key);
    if (!field) return;
    ++actions;
    read(field);
  };
  on("gang", [&](const YAML::Node& n) { step.action = ReadGang(n); });
  on("delete", [&](const YAML::Node& n) { step.action = DeleteStep{n.as<std::string>()}; });
  on("patch", [&](const YAML::Node& n) { step.action = ReadPatch(n, false); });
  on("patchStatus", [&](const YAML::Node& n) { step.action = ReadPatch(n, true); });
  on("apply", [&](const YAML::Node& n) { step.action = ApplyStep{ToJson(n).dump()}; });
  on("reconcile", [&](const YAML::Node& n) { step.action = ReadReconcile(n); });
  on("restart", [&](const YAML::Node&) { step.action = RestartStep{}; });
  on("loseWrites", [&](const YAML::Node& n) { step.action = ReadLoseWrites(n); });
  on("hideNode", [&](const YAML::Node& n) { step.action = ReadHideNode(n); });
  on("delayBinds", [&](const YAML::Node& n) { step.action = ReadDelayBinds(n); });
  on("expect", [&](const YAML::Node& n) { step.action = ReadExpectation(n); });
  fields.Finish();
  if (actions != 1) {
    yaml::FailAt(
        node,
        "steps: want exactly one of gang, delete, patch, patchStatus, apply, reconcile, restart, "
        "loseWrites, hideNode, delayBinds, expect");
  }
  return step;
}

// Shares in percent.
void ReadShares(Fields* fields, const std::string& name,
                std::initializer_list<std::pair<const char*, double*>> shares) {
  for (const auto& [key, share] : shares) {
    fields->Read(key, share);
    if (*share >= 0 && *share <= 100) continue;  // false for a NaN
    yaml::FailAt(fields->Take(key), fmt::format("{}.{}: want 0 to 100 percent", name, key));
  }
}

WriteFaults ReadWriteFaults(const YAML::Node& node) {
  Fields fields(node, "writes");
  WriteFaults faults;
  faults.request = ReadRange(&fields, "writes", "request");
  faults.answer = ReadRange(&fields, "writes", "answer");
  ReadShares(
      &fields, "writes",
      {{"lost", &faults.lost}, {"refused", &faults.refused}, {"unanswered", &faults.unanswered}});
  fields.Finish();
  return faults;
}

WatchFaults ReadWatchFaults(const YAML::Node& node) {
  Fields fields(node, "watches");
  WatchFaults faults;
  faults.latency = ReadRange(&fields, "watches", "latency");
  faults.stall = ReadRange(&fields, "watches", "stall");
  ReadShares(
      &fields, "watches",
      {{"stalls", &faults.stalls}, {"breaks", &faults.breaks}, {"repeats", &faults.repeats}});
  fields.Finish();
  return faults;
}

CallFaults ReadCallFaults(const YAML::Node& node) {
  Fields fields(node, "calls");
  CallFaults faults;
  faults.latency = ReadRange(&fields, "calls", "latency");
  ReadShares(&fields, "calls",
             {{"lost", &faults.lost},
              {"unanswered", &faults.unanswered},
              {"repeated", &faults.repeated},
              {"filterFails", &faults.filter_fails}});
  fields.Finish();
  return faults;
}

// The entries of a map; none if it is absent.
template <typename T>
void ReadByKind(Fields* fields, const char* key, T (*read)(const YAML::Node&),
                std::map<std::string, T, std::less<>>* out) {
  const YAML::Node map = fields->Take(key);
  if (!map) return;
  if (!map.IsMap()) yaml::FailAt(map, fmt::format("faults.{}: want a map", key));
  for (const auto& entry : map) (*out)[entry.first.as<std::string>()] = read(entry.second);
}

FaultSpec ReadFaults(const YAML::Node& node) {
  Fields fields(node, "faults");
  FaultSpec faults;
  fields.Read("seed", &faults.seed);
  fields.ReadDuration("until", &faults.until);
  ReadByKind(&fields, "writes", ReadWriteFaults, &faults.writes);
  ReadByKind(&fields, "watches", ReadWatchFaults, &faults.watches);
  if (const YAML::Node calls = fields.Take("calls")) faults.calls = ReadCallFaults(calls);
  fields.Finish();
  return faults;
}

Scenario ReadAll(const YAML::Node& root) {
  Fields fields(root, "scenario");
  Scenario scenario;
  fields.Require("name");
  fields.Read("name", &scenario.name);
  yaml::ReadQuotaOptions(&fields, &scenario.options);
  if (const YAML::Node mode = fields.Take("mode")) scenario.mode = ReadMode(mode);
  if (const YAML::Node options = fields.Take("options"))
    yaml::ReadEngineOptions(options, &scenario.options);
  for (const YAML::Node& n : ListOf(&fields, "scenario", "instanceTypes")) {
    scenario.instance_types.push_back(ReadInstanceType(n));
  }
  for (const YAML::Node& n : ListOf(&fields, "scenario", "nodePools")) {
    scenario.node_pools.push_back(ReadNodePool(n));
  }
  for (const YAML::Node& n : ListOf(&fields, "scenario", "nodes"))
    scenario.nodes.push_back(ReadNode(n));
  for (const YAML::Node& n : ListOf(&fields, "scenario", "outages")) {
    scenario.outages.push_back(ReadOutage(n));
  }
  for (const YAML::Node& n : ListOf(&fields, "scenario", "stocks")) {
    scenario.stocks.push_back(ReadStock(n));
  }
  if (const YAML::Node mix = fields.Take("mix")) scenario.mix = ReadMix(mix);
  if (const YAML::Node faults = fields.Take("faults")) scenario.faults = ReadFaults(faults);
  absl::Duration previous;
  for (const YAML::Node& n : ListOf(&fields, "scenario", "steps")) {
    scenario.steps.push_back(ReadStep(n, previous));
    previous = scenario.steps.back().at;
  }
  fields.Finish();
  return scenario;
}

}  // namespace

absl::StatusOr<Scenario> ParseScenario(std::string_view yaml, std::string file) {
  auto error = [&file](int line, std::string_view message) {
    // Some of the reader's errors don't know their place.
    return absl::InvalidArgumentError(
        fmt::format("{}:{}: {}", file, std::max(line, 1), kube::Excerpt(message)));
  };
  // The stricter reader goes first: what it takes, the other one takes in bounded memory.
  const yaml::YamlFile strict = yaml::ParseYaml(yaml);
  if (strict.error) return error(strict.error->line, strict.error->message);
  if (strict.documents.empty()) return error(1, "there is no scenario in it");
  if (strict.documents.size() > 1) {
    return error(strict.documents[1].line(), "a second document; a file is one scenario");
  }
  try {
    Scenario scenario = ReadAll(YAML::Load(std::string(yaml)));
    scenario.file = std::move(file);
    return scenario;
  } catch (const yaml::FieldError& field) {
    return error(field.line, field.message);
  } catch (const YAML::Exception& yaml_error) {
    return error(yaml_error.mark.line + 1, yaml_error.msg);
  }
}

absl::StatusOr<Scenario> ReadScenario(const std::string& path, std::istream& in) {
  const absl::StatusOr<std::string> text = yaml::ReadSource(path, in);
  if (!text.ok()) {
    return absl::NotFoundError(fmt::format("{}:1: {}", path, std::string(text.status().message())));
  }
  return ParseScenario(*text, path);
}

absl::StatusOr<Scenario> ReadScenario(const std::string& path) {
  std::istringstream nothing;
  return ReadScenario(path, nothing);
}

}  // namespace muster::simulation
