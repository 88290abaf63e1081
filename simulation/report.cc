#include "simulation/report.h"

#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "fmt/format.h"
#include "printers/tables.h"
#include "simulation/comparison.h"

namespace muster::simulation {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

constexpr GpuTime kPerThousandthHour = 3'600;  // milliseconds
constexpr size_t kNamesShown = 4;

constexpr const char* kLegend =
    "GPU-time is bought from a node's launch (if it was there from the start: from then) until it\n"
    "is gone, and used while a bound member of a whole gang has the GPU. The rest is wasted: "
    "before\n"
    "the start of a gang that waits for the node, after such a gang gave up, or otherwise.\n";

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string SecondsOrDash(const std::optional<Millis>& time) { return time ? Seconds(*time) : "-"; }

// Rounded to thousandths.
std::string Hours(GpuTime time) {
  const GpuTime thousandths = (time + kPerThousandthHour / 2) / kPerThousandthHour;
  return fmt::format("{}.{:03}", thousandths / 1'000, thousandths % 1'000);
}

std::string Share(GpuTime part, GpuTime whole) {
  if (whole == 0) return "";
  const int64_t thousandths = (part * 1'000 + whole / 2) / whole;
  return fmt::format("{}.{} %", thousandths / 10, thousandths % 10);
}

// The first few, without the domain of nodes.
std::string Names(const std::vector<std::string>& names) {
  const size_t shown = names.size() <= kNamesShown + 1 ? names.size() : kNamesShown;
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", names[i].substr(0, names[i].find('.')));
  }
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

std::string Line(const TimelineEntry& entry) {
  std::string line = fmt::format("{:>11}  {:<8}", Seconds(entry.at), entry.what);
  if (!entry.subject.empty()) line += entry.subject + ": ";
  if (!entry.names.empty()) line += fmt::format("{} ", entry.names.size());
  if (!entry.state.empty()) line += fmt::format("{} {}: ", entry.state, entry.reason);
  line += entry.text;
  if (!entry.names.empty()) line += ": " + Names(entry.names);
  return line + "\n";
}

// "coming up 0.008, waiting for a start 0.120"
std::string WhyIdle(const GpuAccount& gpu) {
  std::string text;
  for (size_t i = 0; i < kIdleReasons; ++i) {
    if (gpu.idle[i] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", IdleName(static_cast<Idle>(i)),
                        Hours(gpu.idle[i]));
  }
  return OrDash(text);
}

std::string NodeTable(const Outcome& outcome) {
  Rows rows = {
      {"NODE", "TYPE", "POOL", "FROM", "UNTIL", "GPUS", "GPU-H", "USED", "IDLE", "WHY IDLE"}};
  for (const NodeAccount& node : outcome.nodes) {
    rows.push_back({node.id, OrDash(node.facts.type), OrDash(node.facts.pool),
                    SecondsOrDash(node.from), node.until ? Seconds(*node.until) : "(there)",
                    fmt::format("{}", node.facts.gpus), Hours(node.gpu.bought),
                    Hours(node.gpu.used), Hours(node.gpu.Wasted()), WhyIdle(node.gpu)});
  }
  return printers::FormatTable(rows);
}

std::string GangTable(const Outcome& outcome) {
  Rows rows = {{"GANG", "MEMBERS", "CREATED", "WAITED", "STARTED", "ENDED", "RESTARTS", "GAVE UP",
                "STATE", "REASON"}};
  for (const GangOutcome& gang : outcome.gangs) {
    const GangAccount& account = gang.account;
    const Millis waited = account.started.value_or(account.ended.value_or(outcome.end));
    rows.push_back({account.name, fmt::format("{}/{}", account.members, account.min_member),
                    Seconds(account.created), Seconds(waited - account.created),
                    SecondsOrDash(account.started), SecondsOrDash(account.ended),
                    fmt::format("{}", account.restarts), fmt::format("{}", account.give_ups),
                    OrDash(gang.state), OrDash(gang.reason)});
  }
  return printers::FormatTable(rows);
}

void AddSum(const std::string& what, GpuTime time, GpuTime bought, Rows* rows) {
  rows->push_back({what, fmt::format("{:>12}", Hours(time)), fmt::format("{:>16}", Seconds(time)),
                   fmt::format("{:>7}", Share(time, bought))});
}

std::string Sums(const std::string& what, const GpuAccount& gpu) {
  Rows rows = {
      {what, fmt::format("{:>12}", "GPU-hours"), fmt::format("{:>16}", "GPU-seconds"), "  share"}};
  const auto add = [&](const std::string& name, GpuTime time) {
    AddSum(name, time, gpu.bought, &rows);
  };
  const auto add_reason = [&](Idle reason) {
    if (gpu.Of(reason) > 0) add(fmt::format("      {}", IdleName(reason)), gpu.Of(reason));
  };
  add("bought", gpu.bought);
  add("  used", gpu.used);
  add("  wasted", gpu.Wasted());
  add("    before a gang's start", gpu.BeforeStart());
  for (const Idle reason : kBeforeStart) add_reason(reason);
  add("    after a give-up", gpu.Of(Idle::kGaveUp));
  add("    otherwise", gpu.Otherwise());
  for (const Idle reason : kOtherwise) add_reason(reason);
  return printers::FormatTable(rows);
}

Json AccountJson(const GpuAccount& gpu) {
  Json idle = Json::object();
  const std::pair<const char*, Idle> reasons[] = {
      {"comingUp", Idle::kComingUp},       {"neverUsable", Idle::kNeverUsable},
      {"waitingForStart", Idle::kWaiting}, {"waitingInVain", Idle::kInVain},
      {"afterGiveUp", Idle::kGaveUp},      {"gangNotWhole", Idle::kInPart},
      {"besideGang", Idle::kBeside},       {"afterGangsEnd", Idle::kEnded},
      {"unwanted", Idle::kUnwanted}};
  for (const auto& [name, reason] : reasons) idle[name] = gpu.Of(reason);
  return {{"bought", gpu.bought},
          {"used", gpu.used},
          {"wasted", gpu.Wasted()},
          {"beforeStart", gpu.BeforeStart()},
          {"afterGiveUp", gpu.Of(Idle::kGaveUp)},
          {"otherwise", gpu.Otherwise()},
          {"idle", idle}};
}

Json OrNull(const std::optional<Millis>& time) { return time ? Json(*time) : Json(nullptr); }

Json FiguresJson(const Figures& figures) {
  return {{"idleBeforeStartGpuMs", figures.bought.BeforeStart()},
          {"idleAfterGiveUpGpuMs", figures.bought.Of(Idle::kGaveUp)},
          {"usedGpuMs", figures.bought.used},
          {"gangs", figures.gangs},
          {"completed", figures.completed},
          {"timeToStartMedianMs", OrNull(figures.median_start)},
          {"timeToStart95thMs", OrNull(figures.late_start)}};
}

Json TimelineJson(const Outcome& outcome) {
  Json lines = Json::array();
  for (const TimelineEntry& entry : outcome.timeline) {
    Json line = {{"atMs", entry.at}, {"what", entry.what}};
    if (!entry.subject.empty()) line["subject"] = entry.subject;
    if (!entry.state.empty()) line["state"] = entry.state;
    if (!entry.reason.empty()) line["reason"] = entry.reason;
    line["text"] = entry.text;
    if (!entry.names.empty()) line["names"] = entry.names;
    lines.push_back(std::move(line));
  }
  return lines;
}

Json OutcomeJson(const Outcome& outcome) {
  Json nodes = Json::array();
  for (const NodeAccount& node : outcome.nodes) {
    nodes.push_back({{"id", node.id},
                     {"node", node.facts.name},
                     {"type", node.facts.type},
                     {"pool", node.facts.pool},
                     {"bought", node.facts.bought},
                     {"gpus", node.facts.gpus},
                     {"fromMs", OrNull(node.from)},
                     {"untilMs", OrNull(node.until)},
                     {"gpuMs", AccountJson(node.gpu)}});
  }
  Json gangs = Json::array();
  for (const GangOutcome& gang : outcome.gangs) {
    const GangAccount& account = gang.account;
    gangs.push_back({{"name", account.name},
                     {"minMember", account.min_member},
                     {"members", account.members},
                     {"createdMs", account.created},
                     {"startedMs", OrNull(account.started)},
                     {"endedMs", OrNull(account.ended)},
                     {"restarts", account.restarts},
                     {"gaveUp", account.give_ups},
                     {"state", gang.state},
                     {"reason", gang.reason},
                     {"message", gang.message}});
  }
  Json failures = outcome.failures;
  if (outcome.refused) failures.push_back(*outcome.refused);
  return {{"file", outcome.file},
          {"name", outcome.name},
          {"seed", outcome.seed},
          {"policy", PolicyName(outcome.policy)},
          {"figures", FiguresJson(FiguresOf(outcome))},
          {"endMs", outcome.end},
          {"whyEnded", outcome.why_ended},
          {"failures", failures},
          {"gpuMs",
           {{"bought", AccountJson(outcome.bought)},
            {"fromTheStart", AccountJson(outcome.from_the_start)}}},
          {"gangs", gangs},
          {"nodes", nodes},
          {"timeline", TimelineJson(outcome)}};
}

}  // namespace

std::string TextReport(const Outcome& outcome, bool brief) {
  std::string text = fmt::format(
      "{}\n{} (seed {}{})\n\n", outcome.name, outcome.file, outcome.seed,
      outcome.policy == Policy::kMuster ? "" : fmt::format(", {}", PolicyName(outcome.policy)));
  if (!brief) {
    for (const TimelineEntry& entry : outcome.timeline) text += Line(entry);
  }
  text += fmt::format("{:>11}  end: {}\n\n", Seconds(outcome.end), outcome.why_ended);
  if (!brief) {
    if (!outcome.nodes.empty()) text += NodeTable(outcome) + "\n";
    if (!outcome.gangs.empty()) text += GangTable(outcome) + "\n";
  }
  text += kLegend;
  text += "\n" + Sums("NODES BOUGHT", outcome.bought);
  if (outcome.from_the_start.bought > 0) {
    text += "\n" + Sums("NODES THERE FROM THE START", outcome.from_the_start);
  }
  text += "\n" + Comparison(std::span(&outcome, 1)) + "\n";
  for (const std::string& failure : outcome.failures) text += "FAILED  " + failure + "\n";
  if (outcome.refused) text += "REFUSED " + *outcome.refused + "\n";
  if (outcome.failures.empty() && !outcome.refused) {
    text += outcome.policy == Policy::kMuster ? "All expectations and invariants hold.\n"
                                              : "All invariants hold; expectations are Muster's.\n";
  }
  return text;
}

std::string JsonReport(const std::vector<Outcome>& outcomes) {
  Json all = Json::array();
  for (const Outcome& outcome : outcomes) all.push_back(OutcomeJson(outcome));
  return Json{{"scenarios", all}}.dump(2) + "\n";
}

}  // namespace muster::simulation
