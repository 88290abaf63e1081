// A gang's members and nodes as they come to be, for someone who watches: a table that is redrawn
// in place on a terminal, and elsewhere a line per change.
#pragma once

#include <iosfwd>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "muster/v1/admission.pb.h"

namespace muster::lab {

// One node that the gang caused, and when it was first seen at each stage, counted from the gang's
// submission.
struct NodeProgress {
  std::string claim;
  std::string name;  // empty until it registers
  v1::NodeStage stage = v1::NODE_STAGE_UNSPECIFIED;
  std::map<v1::NodeStage, absl::Duration> reached;
  bool held = false;
  bool was_held = false;
  bool gone = false;

  // Its host name without the domain, or the NodeClaim's name until there is one.
  std::string Title() const;
};

// Follows the nodes whose NodeClaims weren't there yet when it was made, in the order in which they
// were first seen.
class NodeTracker {
 public:
  explicit NodeTracker(const v1::ListNodesResponse& before);

  void Update(const v1::ListNodesResponse& nodes, absl::Duration elapsed);
  const std::vector<NodeProgress>& nodes() const { return nodes_; }

 private:
  void Note(const v1::Node& node, absl::Duration elapsed);

  std::set<std::string> others_;
  std::vector<NodeProgress> nodes_;
};

struct DemoFrame {
  absl::Duration elapsed;
  v1::Gang gang;
  std::vector<NodeProgress> nodes;
};

class DemoView {
 public:
  virtual ~DemoView() = default;
  virtual void Show(const DemoFrame& frame) = 0;
};

// Redraws with ANSI sequences. The reason is wrapped at `columns` and other lines are cut there,
// and the picture at `rows`; both above 0.
class TableView : public DemoView {
 public:
  TableView(std::ostream* out, int columns, int rows) : out_(out), columns_(columns), rows_(rows) {}
  void Show(const DemoFrame& frame) override;

 private:
  std::ostream* const out_;
  const int columns_;
  const int rows_;
  int drawn_ = 0;  // lines of the picture above the cursor
};

// "  3.2 s  node gpu-x7k2p: REGISTERED, held"
class LineView : public DemoView {
 public:
  explicit LineView(std::ostream* out) : out_(out) {}
  void Show(const DemoFrame& frame) override;

 private:
  void ShowGang(const DemoFrame& frame);
  void ShowMembers(const DemoFrame& frame);
  void ShowNodes(const DemoFrame& frame);
  void Line(const DemoFrame& frame, const std::string& text);

  std::ostream* const out_;
  std::string gang_;
  std::map<std::string, std::string> members_;  // by name: state and node
  std::map<std::string, std::string> nodes_;    // by claim: stage and hold
};

// The table's text, without regard to the rows there are.
std::string DemoTable(const DemoFrame& frame, int columns);

}  // namespace muster::lab
