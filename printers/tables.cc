#include "printers/tables.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace muster::printers {
namespace {

using google::protobuf::util::TimeUtil;

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
                        TimeUtil::ToString(node.suspect_until()), node.suspect_reason());
  }
  return note;
}

}  // namespace

std::string FormatTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += i + 1 == row.size() ? row[i] : fmt::format("{:<{}}", row[i], widths[i] + 2);
    }
    text += "\n";
  }
  return text;
}

std::string GangTable(const v1::ListGangsResponse& gangs) {
  std::vector<std::vector<std::string>> rows = {
      {"NAMESPACE", "NAME", "STATE", "BOUND", "REASON", "MESSAGE"}};
  for (const v1::Gang& gang : gangs.gangs()) {
    rows.push_back({gang.namespace_(), gang.name(), v1::GangState_Name(gang.state()), BoundOf(gang),
                    v1::ReasonCode_Name(gang.reason().code()), gang.reason().message()});
  }
  return FormatTable(rows);
}

std::string MemberTable(const v1::Gang& gang) {
  std::vector<std::vector<std::string>> rows = {{"MEMBER", "STATE", "NODE"}};
  for (const v1::Member& member : gang.members()) {
    rows.push_back({member.name() + (member.surplus() ? " (surplus)" : ""),
                    v1::MemberState_Name(member.state()), PlaceOf(member)});
  }
  return FormatTable(rows);
}

std::string NodeTable(const google::protobuf::RepeatedPtrField<v1::Node>& nodes) {
  std::vector<std::vector<std::string>> rows = {
      {"NODE", "CLAIM", "POOL", "TYPE", "STAGE", "HELD", "NOTE"}};
  for (const v1::Node& node : nodes) {
    rows.push_back({OrDash(node.name()), OrDash(node.node_claim()), OrDash(node.node_pool()),
                    OrDash(node.instance_type()), v1::NodeStage_Name(node.stage()),
                    node.holds().empty() ? "-" : "held", NoteOf(node)});
  }
  return FormatTable(rows);
}

std::string NodePoolTable(const v1::Feasibility& feasibility) {
  std::vector<std::vector<std::string>> rows = {
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
  std::vector<std::vector<std::string>> rows = {
      {"SETBACK", "TIMES", "LAST", "NODEPOOL", "TYPE", "ZONE", "NODE", "WHY"}};
  for (const v1::Setback& setback : gang.setbacks()) {
    const std::string node =
        setback.node().empty() ? "nodeclaim/" + setback.node_claim() : setback.node();
    const char* now = setback.overcome() ? " (overcome)" : setback.stands() ? " (stands)" : "";
    rows.push_back({v1::ReasonCode_Name(setback.code()) + now, fmt::format("{}", setback.times()),
                    TimeUtil::ToString(setback.last()), OrDash(setback.node_pool()),
                    OrDash(setback.instance_type()), OrDash(setback.zone()), node,
                    OrDash(setback.message())});
  }
  return FormatTable(rows);
}

std::string NodeSourceTable(const v1::Gang& gang) {
  std::vector<std::vector<std::string>> rows = {{"FLAVOR", "ZONE", "LACKS"}};
  for (const v1::NodeSource& source : gang.node_sources()) {
    rows.push_back({OrDash(source.flavor()), OrDash(source.zone()), OrDash(source.lacking())});
  }
  return FormatTable(rows);
}

std::string QueueTable(const v1::ListQueuesResponse& queues) {
  std::vector<std::vector<std::string>> rows = {{"QUEUE", "COHORT", "PENDING", "ADMITTED", "FLAVOR",
                                                 "RESOURCE", "USED", "NOMINAL", "BORROWED"}};
  std::vector<std::vector<std::string>> line = {{"QUEUE", "PLACE", "GANG", "REASON", "MESSAGE"}};
  for (const v1::Queue& queue : queues.queues()) {
    if (!queue.namespace_().empty()) continue;
    std::vector<std::string> head = {queue.name(), OrDash(queue.cohort()),
                                     fmt::format("{}", queue.pending()),
                                     fmt::format("{}", queue.admitted())};
    for (const v1::FlavorUsage& usage : queue.usage()) {
      std::vector<std::string> row = head;
      for (std::string cell :
           {usage.flavor(), usage.resource(), AmountText(usage.resource(), usage.reserved()),
            AmountText(usage.resource(), usage.nominal()),
            AmountText(usage.resource(), usage.borrowed())}) {
        row.push_back(std::move(cell));
      }
      rows.push_back(std::move(row));
      head.assign(head.size(), "");
    }
    if (queue.usage().empty()) rows.push_back(head);
    if (!queue.error().empty()) line.push_back({queue.name(), "-", "-", "INACTIVE", queue.error()});
    for (int i = 0; i < queue.pending_gangs_size(); ++i) {
      const v1::PendingGang& gang = queue.pending_gangs(i);
      line.push_back({queue.name(), fmt::format("{}", i + 1), gang.namespace_() + "/" + gang.name(),
                      v1::ReasonCode_Name(gang.reason().code()), gang.reason().message()});
    }
  }
  std::string text = FormatTable(rows);
  if (line.size() > 1) text += "\n" + FormatTable(line);
  return text;
}

std::string ExplainGang(const v1::Gang& gang) {
  std::string text = fmt::format(
      "Gang:      {}/{} ({}, minMember {}, attempt {})\nState:     {} since {}\nReason:    {}: "
      "{}\n",
      gang.namespace_(), gang.name(), gang.kind(), gang.min_member(), gang.attempt(),
      v1::GangState_Name(gang.state()), TimeUtil::ToString(gang.state_since()),
      v1::ReasonCode_Name(gang.reason().code()), gang.reason().message());
  if (!gang.queue().empty()) {
    text += fmt::format("Queue:     {}{}\n", gang.queue(),
                        gang.cluster_queue().empty() ? "" : " of " + gang.cluster_queue());
  }
  if (!gang.flavors().empty()) {
    text += fmt::format("Flavors:   {}\n", fmt::join(gang.flavors(), ", "));
  }
  if (!gang.reason().fix().empty()) text += fmt::format("Fix:       {}\n", gang.reason().fix());
  if (gang.has_deadline() && gang.state() == v1::PROVISIONING) {
    text += fmt::format("Deadline:  {}\n", TimeUtil::ToString(gang.deadline()));
  }
  if (gang.state() == v1::BACKING_OFF) {
    text += fmt::format("Retry at:  {}\n", TimeUtil::ToString(gang.retry_at()));
  }
  if (gang.has_reservation()) {
    const v1::Reservation& kept = gang.reservation();
    text += fmt::format("Reserved:  {}\n", fmt::join(kept.nodes(), ", "));
    text += fmt::format("Expected:  {}\n",
                        kept.has_expected() ? TimeUtil::ToString(kept.expected()) : "unknown");
  }
  text += "\n" + MemberTable(gang);
  if (!gang.nodes().empty()) text += "\n" + NodeTable(gang.nodes());
  if (!gang.setbacks().empty()) text += "\n" + SetbackTable(gang);
  if (!gang.node_sources().empty()) text += "\n" + NodeSourceTable(gang);
  if (!gang.feasibility().node_pools().empty()) {
    text += "\n" + NodePoolTable(gang.feasibility());
  }
  return text;
}

}  // namespace muster::printers
