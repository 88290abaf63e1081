#include "extender/tables.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>

#include "fmt/format.h"

namespace muster::extender {
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

std::string NoteOf(const v1::Node& node) {
  std::string note = node.message();
  if (node.suspect()) note += (note.empty() ? "" : "; ") + ("suspect: " + node.suspect_reason());
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

std::string ExplainGang(const v1::Gang& gang) {
  std::string text = fmt::format(
      "Gang:      {}/{} ({}, minMember {}, attempt {})\nState:     {} since {}\nReason:    {}: "
      "{}\n",
      gang.namespace_(), gang.name(), gang.kind(), gang.min_member(), gang.attempt(),
      v1::GangState_Name(gang.state()), TimeUtil::ToString(gang.state_since()),
      v1::ReasonCode_Name(gang.reason().code()), gang.reason().message());
  if (!gang.reason().fix().empty()) text += fmt::format("Fix:       {}\n", gang.reason().fix());
  if (gang.has_deadline() && gang.state() == v1::PROVISIONING) {
    text += fmt::format("Deadline:  {}\n", TimeUtil::ToString(gang.deadline()));
  }
  if (gang.state() == v1::BACKING_OFF) {
    text += fmt::format("Retry at:  {}\n", TimeUtil::ToString(gang.retry_at()));
  }
  text += "\n" + MemberTable(gang);
  if (!gang.nodes().empty()) text += "\n" + NodeTable(gang.nodes());
  return text;
}

}  // namespace muster::extender
