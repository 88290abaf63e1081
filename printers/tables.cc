#include "printers/tables.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace muster::printers {
namespace {

using google::protobuf::Timestamp;

constexpr std::string_view kGreen = "\033[32m";
constexpr std::string_view kYellow = "\033[33m";
constexpr std::string_view kRed = "\033[31m";
constexpr std::string_view kPlain = "\033[0m";

// By the names of states alone, which nothing else in a table is called.
std::string_view ColourOf(const std::string& cell) {
  static const auto* const colours =
      new std::map<std::string, std::string_view>{{"BOUND", kGreen},
                                                  {"FINISHED", kGreen},
                                                  {"READY", kGreen},
                                                  {"BINDING", kGreen},
                                                  {"WAITING_FOR_MEMBERS", kYellow},
                                                  {"WAITING_FOR_QUOTA", kYellow},
                                                  {"PROVISIONING", kYellow},
                                                  {"REPAIRING", kRed},
                                                  {"BACKING_OFF", kRed},
                                                  {"INFEASIBLE", kRed},
                                                  // Members.
                                                  {"RUNNING", kGreen},
                                                  {"SUCCEEDED", kGreen},
                                                  {"MEMBER_BOUND", kGreen},
                                                  {"GATED", kYellow},
                                                  {"SIGNALLED", kYellow},
                                                  {"UNGATED", kYellow},
                                                  {"FAILED", kRed},
                                                  {"TERMINATING", kRed},
                                                  // Nodes.
                                                  {"USABLE", kGreen},
                                                  {"REQUESTED", kYellow},
                                                  {"LAUNCHED", kYellow},
                                                  {"REGISTERED", kYellow},
                                                  {"INITIALIZED", kYellow},
                                                  {"GOING", kRed},
                                                  // Queues.
                                                  {"INACTIVE", kRed},
                                                  // Steps.
                                                  {"done", kGreen},
                                                  {"now", kYellow}};
  const auto found = colours->find(cell);
  return found == colours->end() ? std::string_view() : found->second;
}

std::string Coloured(const std::string& cell, bool colours) {
  const std::string_view colour = colours ? ColourOf(cell) : std::string_view();
  return colour.empty() ? cell : fmt::format("{}{}{}", colour, cell, kPlain);
}

absl::Time TimeOf(const Timestamp& time) { return absl::FromUnixSeconds(time.seconds()); }

std::string TimeText(const Timestamp& time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", TimeOf(time), absl::UTCTimeZone());
}

bool IsBound(const v1::Member& member) { return !member.node().empty(); }

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string BoundOf(const v1::Gang& gang) {
  const auto bound = std::ranges::count_if(gang.members(), IsBound);
  return fmt::format("{}/{}", bound, gang.min_member());
}

std::string PlaceOf(const v1::Member& member) {
  if (IsBound(member)) return member.node();
  if (member.planned_node().empty()) return "-";
  return "expected on " + member.planned_node();
}

// Cpu in whole cores where it is, memory in Gi where it is, else as it is counted.
std::string AmountText(const std::string& resource, int64_t amount) {
  constexpr int64_t kGi = int64_t{1} << 30;
  if (resource == "cpu") {
    return amount % 1000 == 0 ? fmt::format("{}", amount / 1000) : fmt::format("{}m", amount);
  }
  if (amount >= kGi && amount % kGi == 0) return fmt::format("{}Gi", amount / kGi);
  return fmt::format("{}", amount);
}

std::string NoteOf(const v1::Node& node) {
  std::string note = node.message();
  if (node.suspect()) {
    note += fmt::format("{}suspect until {}: {}", note.empty() ? "" : "; ",
                        TimeText(node.suspect_until()), node.suspect_reason());
  }
  return note;
}

std::string ReasonName(const v1::Reason& reason) {
  return reason.code() == v1::REASON_UNSPECIFIED ? "-" : v1::ReasonCode_Name(reason.code());
}

const std::string& NameOf(const v1::Node& node) {
  return node.name().empty() ? node.node_claim() : node.name();
}

// "default/job 14m"
std::string HoldsOf(const v1::Node& node, const std::map<std::string, std::string>& gangs,
                    const View& view) {
  std::vector<std::string> holds;
  for (const auto& [uid, until] : node.holds()) {
    const auto gang = gangs.find(uid);
    holds.push_back(fmt::format("{} {}", gang == gangs.end() ? uid : gang->second,
                                AgeText(TimeOf(until) - view.now)));
  }
  std::ranges::sort(holds);
  return OrDash(fmt::format("{}", fmt::join(holds, ", ")));
}

std::string WantedBy(const v1::Node& node) {
  std::vector<std::string> gangs(node.expected_for().begin(), node.expected_for().end());
  if (!node.reserved_for().empty()) gangs.push_back(node.reserved_for() + " (reserved)");
  return OrDash(fmt::format("{}", fmt::join(gangs, ", ")));
}

std::string GpusOf(const v1::Node& node) {
  std::vector<std::string> gpus;
  for (const auto& [resource, all] : node.allocatable()) {
    if (!resource.ends_with("/gpu") || all == 0) continue;
    const auto free = node.free().find(resource);
    gpus.push_back(fmt::format("{} of {} free", free == node.free().end() ? 0 : free->second, all));
  }
  return OrDash(fmt::format("{}", fmt::join(gpus, ", ")));
}

// Who waits in these queues; `place` tells the place of the gang at an index.
template <typename Place>
std::string LineTable(const std::vector<const v1::Queue*>& queues, const View& view,
                      const Place& place) {
  std::vector<TableRow> rows = {{"QUEUE", "PLACE", "GANG", "PRIORITY", "REASON", "MESSAGE"}};
  for (const v1::Queue* queue : queues) {
    const std::string& name = queue->name();
    if (!queue->error().empty()) {
      rows.push_back({name, "-", "-", "-", "INACTIVE", queue->error()});
    }
    for (int i = 0; i < queue->pending_gangs_size(); ++i) {
      const v1::PendingGang& gang = queue->pending_gangs(i);
      rows.push_back({name, place(gang, i), gang.namespace_() + "/" + gang.name(),
                      fmt::format("{}", gang.priority()), ReasonName(gang.reason()),
                      gang.reason().message()});
    }
  }
  TableForm form{.colours = view.colours};
  return rows.size() > 1 ? "\n" + FormatTable(rows, &form) : "";
}

struct Step {
  const char* name;
  std::string detail;
};

std::string PlaceText(const PlaceInLine& line) {
  const std::string queue = "ClusterQueue " + line.cluster_queue;
  if (line.place == 0) return fmt::format("behind the first hundred in {}", queue);
  if (line.place == 1) return fmt::format("first in line in {}", queue);
  return fmt::format("place {} in line in {}", line.place, queue);
}

std::string NodeStep(const v1::Gang& gang) {
  if (gang.nodes().empty()) return "none chosen yet";
  std::map<v1::NodeStage, int> stages;
  for (const v1::Node& node : gang.nodes()) ++stages[node.stage()];
  std::string text = fmt::format("{} of {} usable", stages[v1::USABLE], gang.nodes_size());
  for (const auto& [stage, nodes] : stages) {
    if (stage != v1::USABLE) text += fmt::format(", {} {}", nodes, v1::NodeStage_Name(stage));
  }
  if (gang.has_deadline() && gang.state() == v1::PROVISIONING) {
    text += "; given up at " + TimeText(gang.deadline());
  }
  if (gang.state() == v1::BACKING_OFF) {
    text += "; tried again at " + TimeText(gang.retry_at());
  }
  return text;
}

// Which of the steps is the present one, and as many as there are once it is through.
size_t PresentStep(v1::GangState state) {
  switch (state) {
    case v1::WAITING_FOR_MEMBERS:
      return 0;
    case v1::WAITING_FOR_QUOTA:
      return 1;
    case v1::PROVISIONING:
    case v1::BACKING_OFF:
    case v1::INFEASIBLE:
      return 2;
    case v1::READY:
    case v1::BINDING:
    case v1::REPAIRING:
      return 3;
    default:
      return 4;
  }
}

// What it waits for, in order.
std::string StepTable(const v1::Gang& gang, const std::optional<PlaceInLine>& line,
                      const View& view) {
  const auto members = std::ranges::count_if(
      gang.members(), [](const v1::Member& member) { return !member.surplus(); });
  std::string quota;
  if (gang.state() == v1::WAITING_FOR_QUOTA) {
    if (line) quota = PlaceText(*line);
  } else if (gang.has_admitted_at()) {
    quota = "given at " + TimeText(gang.admitted_at());
    if (!gang.flavors().empty()) quota += fmt::format(" in {}", fmt::join(gang.flavors(), ", "));
  }
  const std::array<Step, 4> steps = {
      {{"members", fmt::format("{} of {} exist", members, gang.min_member())},
       {"quota", gang.queue().empty() ? "not asked for: it names no queue" : std::move(quota)},
       {"nodes", NodeStep(gang)},
       {"start", BoundOf(gang) + " bound"}}};
  const size_t present = PresentStep(gang.state());
  std::vector<TableRow> rows = {{"STEP", "IS", "DETAIL"}};
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool later = i > present;
    rows.push_back({steps[i].name,
                    later          ? "later"
                    : i == present ? "now"
                                   : "done",
                    later ? "-" : OrDash(steps[i].detail)});
  }
  TableForm form{.colours = view.colours};
  return FormatTable(rows, &form);
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // In UTF-8 the control characters beyond ASCII are two bytes.
    const bool wide_control =
        byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (wide_control) ++i;
    shown += wide_control || byte < 0x20 || byte == 0x7F ? ' ' : text[i];
  }
  return shown;
}

std::string FormatTable(const std::vector<TableRow>& rows, TableForm* form) {
  TableForm own;
  if (form == nullptr) form = &own;
  std::vector<TableRow> shown = rows;
  for (TableRow& row : shown) {
    form->widths.resize(std::max(form->widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = Printable(row[i]);
      form->widths[i] = std::max(form->widths[i], row[i].size());
    }
  }
  std::string text;
  for (const TableRow& row : shown) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += Coloured(row[i], form->colours);
      if (i + 1 < row.size()) text.append(form->widths[i] + 2 - row[i].size(), ' ');
    }
    text += "\n";
  }
  return text;
}

std::string AgeText(absl::Duration age) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(age));
  if (seconds < 120) return fmt::format("{}s", seconds);
  if (seconds < 2 * 3600) return fmt::format("{}m", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{}h", seconds / 3600);
  return fmt::format("{}d", seconds / 86400);
}

TableRow GangHeads(const View& view) {
  TableRow row;
  if (view.namespaces) row.push_back("NAMESPACE");
  row.insert(row.end(), {"NAME", "STATE", "REASON", "BOUND", "QUEUE", "AGE"});
  if (view.wide) row.insert(row.end(), {"FLAVORS", "MESSAGE"});
  return row;
}

TableRow GangCells(const v1::Gang& gang, const View& view) {
  TableRow row;
  if (view.namespaces) row.push_back(gang.namespace_());
  row.insert(row.end(),
             {gang.name(), v1::GangState_Name(gang.state()), ReasonName(gang.reason()),
              BoundOf(gang), OrDash(gang.queue()),
              gang.has_created_at() ? AgeText(view.now - TimeOf(gang.created_at())) : "-"});
  if (view.wide) {
    row.push_back(OrDash(fmt::format("{}", fmt::join(gang.flavors(), ","))));
    row.push_back(OrDash(gang.reason().message()));
  }
  return row;
}

TableRow NodeHeads(const View& view) {
  TableRow row = {"NAME", "STAGE", "NODEPOOL", "TYPE", "ZONE", "FOR", "HELD"};
  if (view.wide) row.insert(row.end(), {"GPUS", "NOTE"});
  return row;
}

TableRow NodeCells(const v1::Node& node, const std::map<std::string, std::string>& gangs,
                   const View& view) {
  TableRow row = {node.name().empty() ? "nodeclaim/" + node.node_claim() : node.name(),
                  v1::NodeStage_Name(node.stage()),
                  OrDash(node.node_pool()),
                  OrDash(node.instance_type()),
                  OrDash(node.zone()),
                  WantedBy(node),
                  HoldsOf(node, gangs, view)};
  if (view.wide) row.insert(row.end(), {GpusOf(node), OrDash(NoteOf(node))});
  return row;
}

bool ComesBefore(const v1::Node& left, const v1::Node& right) {
  const auto rank = [](const v1::Node& node) {
    return std::tuple(node.stage() == v1::USABLE, node.stage() == v1::GOING, NameOf(node));
  };
  return rank(left) < rank(right);
}

std::string MemberTable(const v1::Gang& gang, bool colours) {
  std::vector<TableRow> rows = {{"MEMBER", "STATE", "NODE"}};
  for (const v1::Member& member : gang.members()) {
    rows.push_back({member.name() + (member.surplus() ? " (surplus)" : ""),
                    v1::MemberState_Name(member.state()), PlaceOf(member)});
  }
  TableForm form{.colours = colours};
  return FormatTable(rows, &form);
}

std::string NodeTable(const google::protobuf::RepeatedPtrField<v1::Node>& nodes, bool colours) {
  std::vector<TableRow> rows = {{"NODE", "CLAIM", "POOL", "TYPE", "STAGE", "HELD", "NOTE"}};
  for (const v1::Node& node : nodes) {
    rows.push_back({OrDash(node.name()), OrDash(node.node_claim()), OrDash(node.node_pool()),
                    OrDash(node.instance_type()), v1::NodeStage_Name(node.stage()),
                    node.holds().empty() ? "-" : "held", NoteOf(node)});
  }
  TableForm form{.colours = colours};
  return FormatTable(rows, &form);
}

std::string NodePoolTable(const v1::Feasibility& feasibility) {
  std::vector<TableRow> rows = {
      {"NODEPOOL", "PODS", "RULED OUT BY", "WHY", "WHAT WOULD CHANGE IT"}};
  for (const v1::NodePoolFinding& pool : feasibility.node_pools()) {
    const bool out = pool.code() != v1::REASON_UNSPECIFIED;
    rows.push_back({pool.node_pool(), fmt::format("{} of {}", pool.pods(), feasibility.asked()),
                    out ? v1::ReasonCode_Name(pool.code()) : "-", OrDash(pool.message()),
                    OrDash(pool.fix())});
  }
  return FormatTable(rows);
}

std::string SetbackTable(const v1::Gang& gang) {
  std::vector<TableRow> rows = {
      {"SETBACK", "TIMES", "LAST", "NODEPOOL", "TYPE", "ZONE", "NODE", "WHY"}};
  for (const v1::Setback& setback : gang.setbacks()) {
    const std::string node =
        setback.node().empty() ? "nodeclaim/" + setback.node_claim() : setback.node();
    const char* now = setback.overcome() ? " (overcome)" : setback.stands() ? " (stands)" : "";
    rows.push_back({v1::ReasonCode_Name(setback.code()) + now, fmt::format("{}", setback.times()),
                    TimeText(setback.last()), OrDash(setback.node_pool()),
                    OrDash(setback.instance_type()), OrDash(setback.zone()), node,
                    OrDash(setback.message())});
  }
  return FormatTable(rows);
}

std::string NodeSourceTable(const v1::Gang& gang) {
  std::vector<TableRow> rows = {{"FLAVOR", "ZONE", "LACKS"}};
  for (const v1::NodeSource& source : gang.node_sources()) {
    rows.push_back({OrDash(source.flavor()), OrDash(source.zone()), OrDash(source.lacking())});
  }
  return FormatTable(rows);
}

std::string ClusterQueueTable(const Queues& queues, const View& view) {
  std::vector<TableRow> rows = {{"QUEUE", "COHORT", "PENDING", "ADMITTED", "FLAVOR", "RESOURCE",
                                 "USED", "NOMINAL", "BORROWED"}};
  std::vector<const v1::Queue*> shown;
  for (const v1::Queue& queue : queues) {
    if (!queue.namespace_().empty()) continue;
    shown.push_back(&queue);
    TableRow head = {queue.name(), OrDash(queue.cohort()), fmt::format("{}", queue.pending()),
                     fmt::format("{}", queue.admitted())};
    for (const v1::FlavorUsage& usage : queue.usage()) {
      TableRow row = head;
      row.insert(row.end(),
                 {usage.flavor(), usage.resource(), AmountText(usage.resource(), usage.reserved()),
                  AmountText(usage.resource(), usage.nominal()),
                  AmountText(usage.resource(), usage.borrowed())});
      rows.push_back(std::move(row));
      head.assign(head.size(), "");
    }
    if (queue.usage().empty()) rows.push_back(head);
  }
  return FormatTable(rows) + LineTable(shown, view, [](const v1::PendingGang&, int index) {
           return fmt::format("{}", index + 1);
         });
}

std::string LocalQueueTable(const Queues& queues, const View& view) {
  std::vector<TableRow> rows = {
      {"QUEUE", "CLUSTERQUEUE", "PENDING", "ADMITTED", "FLAVOR", "RESOURCE", "USED"}};
  std::vector<const v1::Queue*> shown;
  for (const v1::Queue& queue : queues) {
    if (queue.namespace_().empty()) continue;
    shown.push_back(&queue);
    TableRow head = {queue.name(), OrDash(queue.cluster_queue()),
                     fmt::format("{}", queue.pending()), fmt::format("{}", queue.admitted())};
    for (const v1::FlavorUsage& usage : queue.usage()) {
      TableRow row = head;
      row.insert(row.end(), {usage.flavor(), usage.resource(),
                             AmountText(usage.resource(), usage.reserved())});
      rows.push_back(std::move(row));
      head.assign(head.size(), "");
    }
    if (queue.usage().empty()) rows.push_back(head);
  }
  return FormatTable(rows) + LineTable(shown, view, [](const v1::PendingGang& gang, int) {
           return gang.place() == 0 ? std::string("100+") : fmt::format("{}", gang.place());
         });
}

std::string ExplainGang(const v1::Gang& gang, const std::optional<PlaceInLine>& line,
                        const View& view) {
  std::string text = fmt::format(
      "Gang:      {}/{} ({}, minMember {}, attempt {}, priority {})\n"
      "State:     {} for {}, since {}\n"
      "Reason:    {}: {}\n",
      gang.namespace_(), gang.name(), gang.kind(), gang.min_member(), gang.attempt(),
      gang.priority(), Coloured(v1::GangState_Name(gang.state()), view.colours),
      AgeText(view.now - TimeOf(gang.state_since())), TimeText(gang.state_since()),
      ReasonName(gang.reason()), Printable(gang.reason().message()));
  if (!gang.reason().fix().empty()) {
    text += fmt::format("Fix:       {}\n", Printable(gang.reason().fix()));
  }
  if (!gang.queue().empty()) {
    const std::string& cluster_queue = line ? line->cluster_queue : gang.cluster_queue();
    text += fmt::format("Queue:     {}{}\n", gang.queue(),
                        cluster_queue.empty() ? "" : " of " + cluster_queue);
  }
  if (gang.has_reservation()) {
    const v1::Reservation& kept = gang.reservation();
    text += fmt::format("Reserved:  {}\n", fmt::join(kept.nodes(), ", "));
    text +=
        fmt::format("Expected:  {}\n", kept.has_expected() ? TimeText(kept.expected()) : "unknown");
  }
  text += "\n" + StepTable(gang, line, view);
  if (!gang.members().empty()) text += "\n" + MemberTable(gang, view.colours);
  if (!gang.nodes().empty()) text += "\n" + NodeTable(gang.nodes(), view.colours);
  if (!gang.setbacks().empty()) text += "\n" + SetbackTable(gang);
  if (!gang.node_sources().empty()) text += "\n" + NodeSourceTable(gang);
  if (!gang.feasibility().node_pools().empty()) {
    text += "\n" + NodePoolTable(gang.feasibility());
  }
  return text;
}

}  // namespace muster::printers
