#include "lab/demo_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ostream>

#include "absl/strings/str_split.h"
#include "printers/tables.h"

namespace muster::lab {
namespace {

constexpr std::array<v1::NodeStage, 5> kStages = {v1::REQUESTED, v1::LAUNCHED, v1::REGISTERED,
                                                  v1::INITIALIZED, v1::USABLE};

constexpr int kIndent = 9;
constexpr size_t kReasonLines = 3;
// Of a log: a reason that names every node is longer.
constexpr size_t kLineLength = 220;

std::string Seconds(absl::Duration duration) {
  return fmt::format("{:.1f} s", absl::ToDoubleSeconds(duration));
}

std::string ShortName(const std::string& node) { return node.substr(0, node.find('.')); }

std::string HoldOf(const NodeProgress& node) {
  if (node.held) return "held";
  return node.was_held ? "released" : "-";
}

std::string StateOf(const v1::Gang& gang) {
  if (gang.state() == v1::GANG_STATE_UNSPECIFIED) return "not seen yet";
  return fmt::format("{} {}", v1::GangState_Name(gang.state()),
                     v1::ReasonCode_Name(gang.reason().code()));
}

std::string NodeStates(const std::vector<NodeProgress>& nodes) {
  std::vector<std::vector<std::string>> rows = {
      {"NODE", "REQUESTED", "LAUNCHED", "REGISTERED", "INITIALIZED", "USABLE", "HOLD"}};
  for (const NodeProgress& node : nodes) {
    std::vector<std::string> row = {node.Title()};
    for (v1::NodeStage stage : kStages) {
      auto it = node.reached.find(stage);
      row.push_back(it == node.reached.end() ? "-" : Seconds(it->second));
    }
    row.push_back(node.gone ? "gone" : HoldOf(node));
    rows.push_back(std::move(row));
  }
  return printers::FormatTable(rows);
}

// At most `columns` characters, none of them split; what is cut off shows as dots.
std::string Cut(const std::string& line, size_t columns) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  if (static_cast<size_t>(std::ranges::count_if(line, begins)) <= columns) return line;
  const std::string dots = columns > 6 ? "..." : "";
  size_t kept = 0;
  size_t end = 0;
  for (; end < line.size(); ++end) {
    if (begins(line[end]) && ++kept > columns - dots.size()) break;
  }
  return line.substr(0, end) + dots;
}

// Words in lines of at most `columns` bytes, or of one word; the last line takes the rest.
std::vector<std::string> Wrap(const std::string& text, size_t columns, size_t max_lines) {
  std::vector<std::string> lines = {""};
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ' '))) {
    std::string& line = lines.back();
    if (line.empty()) {
      line = word;
    } else if (line.size() + 1 + word.size() <= columns || lines.size() == max_lines) {
      line += " " + word;
    } else {
      lines.push_back(word);
    }
  }
  return lines;
}

}  // namespace

NodeTracker::NodeTracker(const v1::ListNodesResponse& before) {
  for (const v1::Node& node : before.nodes()) others_.insert(node.node_claim());
}

void NodeTracker::Update(const v1::ListNodesResponse& nodes, absl::Duration elapsed) {
  std::set<std::string> present;
  for (const v1::Node& node : nodes.nodes()) {
    if (node.node_claim().empty() || others_.contains(node.node_claim())) continue;
    present.insert(node.node_claim());
    Note(node, elapsed);
  }
  for (NodeProgress& node : nodes_) {
    node.gone = !present.contains(node.claim);
    if (node.gone) node.held = false;
  }
}

void NodeTracker::Note(const v1::Node& node, absl::Duration elapsed) {
  auto it = std::ranges::find(nodes_, node.node_claim(), &NodeProgress::claim);
  if (it == nodes_.end()) {
    it = nodes_.insert(nodes_.end(), NodeProgress());
    it->claim = node.node_claim();
  }
  if (!node.name().empty()) it->name = node.name();
  it->stage = node.stage();
  it->held = !node.holds().empty();
  it->was_held |= it->held;
  // A stage that went by between two looks was reached by now.
  for (v1::NodeStage stage : kStages) {
    if (stage <= node.stage() && node.stage() != v1::GOING) it->reached.try_emplace(stage, elapsed);
  }
}

std::string NodeProgress::Title() const { return name.empty() ? claim : ShortName(name); }

std::string DemoTable(const DemoFrame& frame, int columns) {
  std::string text = fmt::format("{:>7}  {}\n", Seconds(frame.elapsed), StateOf(frame.gang));
  const auto width = static_cast<size_t>(std::max(kIndent + 1, columns));
  for (const std::string& line :
       Wrap(frame.gang.reason().message(), width - kIndent, kReasonLines)) {
    text += std::string(kIndent, ' ') + line + "\n";
  }
  v1::Gang gang = frame.gang;
  for (v1::Member& member : *gang.mutable_members()) {
    member.set_node(ShortName(member.node()));
    member.set_planned_node(ShortName(member.planned_node()));
  }
  text += "\n" + printers::MemberTable(gang);
  if (!frame.nodes.empty()) text += "\n" + NodeStates(frame.nodes);
  return text;
}

void TableView::Show(const DemoFrame& frame) {
  std::vector<std::string> lines = absl::StrSplit(DemoTable(frame, columns_), '\n');
  lines.pop_back();
  // One row stays free for the cursor: a picture that scrolls can't be drawn over.
  const size_t room = static_cast<size_t>(std::max(2, rows_)) - 1;
  if (lines.size() > room) lines.resize(room);
  std::string text = drawn_ > 0 ? fmt::format("\x1b[{}A\r", drawn_) : "";
  for (const std::string& line : lines) {
    text += Cut(line, static_cast<size_t>(columns_)) + "\x1b[K\n";
  }
  text += "\x1b[J";
  drawn_ = static_cast<int>(lines.size());
  *out_ << text << std::flush;
}

void LineView::Line(const DemoFrame& frame, const std::string& text) {
  *out_ << fmt::format("{:>7}  {}\n", Seconds(frame.elapsed), Cut(text, kLineLength)) << std::flush;
}

void LineView::Show(const DemoFrame& frame) {
  ShowNodes(frame);
  ShowMembers(frame);
  ShowGang(frame);
}

void LineView::ShowGang(const DemoFrame& frame) {
  const v1::Gang& gang = frame.gang;
  if (gang.state() == v1::GANG_STATE_UNSPECIFIED) return;
  std::string text =
      fmt::format("gang {}: {}: {}", gang.name(), StateOf(gang), gang.reason().message());
  if (text == gang_) return;
  gang_ = text;
  Line(frame, text);
}

void LineView::ShowMembers(const DemoFrame& frame) {
  // Members that come to the same state at once share a line.
  std::map<std::string, std::vector<std::string>> changed;
  for (const v1::Member& member : frame.gang.members()) {
    const std::string state = v1::MemberState_Name(member.state());
    std::string& seen = members_[member.name()];
    if (seen == state) continue;
    seen = state;
    changed[state].push_back(
        member.node().empty() ? member.name() : member.name() + " on " + ShortName(member.node()));
  }
  for (const auto& [state, names] : changed) {
    Line(frame, fmt::format("{} member{} {}: {}", names.size(), names.size() == 1 ? "" : "s", state,
                            fmt::join(names, ", ")));
  }
}

void LineView::ShowNodes(const DemoFrame& frame) {
  for (const NodeProgress& node : frame.nodes) {
    std::string state = node.gone ? "gone" : v1::NodeStage_Name(node.stage);
    if (!node.gone && HoldOf(node) != "-") state += ", " + HoldOf(node);
    std::string& seen = nodes_[node.claim];
    if (seen == state) continue;
    seen = state;
    const std::string claim = node.name.empty() ? "" : " (" + node.claim + ")";
    Line(frame, fmt::format("node {}{}: {}", node.Title(), claim, state));
  }
}

}  // namespace muster::lab
