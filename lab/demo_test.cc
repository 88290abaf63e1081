#include "lab/demo.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <sstream>
#include <thread>

#include "absl/time/clock.h"
#include "extender/stop_signals.h"
#include "kube/embedded/api_server.h"
#include "lab/demo_claims.h"
#include "lab/demo_job.h"

namespace muster::lab {
namespace {

using extender::StopSignals;

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Demo, BindsFourAtOnceThenReleasesAtTheDeadline) {
  std::ostringstream out;
  EXPECT_EQ(RunDemo({.keep = false, .speed = 6, .out = &out}), 0) << out.str();
  EXPECT_THAT(out.str(), HasSubstr("ok     all four bound at once"));
  EXPECT_THAT(out.str(), HasSubstr("ok     the deadline released the nodes"));
  EXPECT_THAT(out.str(), HasSubstr("BACKING_OFF NODE_NOT_REGISTERED"));
  EXPECT_THAT(out.str(), Not(HasSubstr("WRONG")));
  EXPECT_THAT(out.str(), Not(HasSubstr("\x1b")));
}

TEST(Demo, EndsOnASignal) {
  // Blocks the signals in the other thread, too.
  StopSignals blocked;
  std::thread user([] {
    absl::SleepFor(absl::Seconds(1));
    kill(getpid(), SIGINT);
  });
  std::ostringstream out;
  const absl::Time begun = absl::Now();
  EXPECT_EQ(RunDemo({.keep = true, .speed = 1, .out = &out}), 1);
  EXPECT_LT(absl::Now() - begun, absl::Seconds(15));
  EXPECT_THAT(out.str(), HasSubstr("Interrupted."));
  user.join();
}

// A cluster in which the test does what Muster, Karpenter and the scheduler would.
class DemoClaims : public ::testing::Test {
 protected:
  void Post(const std::string& path, const std::string& body) {
    kube::Request request;
    request.method = kube::Method::kPost;
    request.path = path;
    request.content_type = kube::kJson;
    request.body = body;
    const kube::Response response = server_.Handle(request);
    ASSERT_TRUE(response.ok()) << path << ": " << response.body;
  }

  void CreateJob() {
    for (const kube::Request& request : DemoJobRequests("job", std::nullopt)) {
      const kube::Response response = server_.Handle(request);
      ASSERT_TRUE(response.ok()) << response.body;
    }
  }

  void CreateNode(int index, const std::string& annotation = "muster.dev/note") {
    Post("/api/v1/nodes", fmt::format(R"({{"metadata": {{"name": "node-{}",
      "labels": {{"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}},
      "annotations": {{"{}": "x"}}}},
      "status": {{"allocatable": {{"nvidia.com/gpu": "1"}},
      "conditions": [{{"type": "Ready", "status": "True"}}]}}}})",
                                      index, annotation));
    nodes_.emplace_back().name = fmt::format("node-{}", index);
    nodes_.back().was_held = true;
  }

  void Bind(int index) {
    const std::string pod = index == 0 ? "job-master-0" : fmt::format("job-worker-{}", index - 1);
    Post(fmt::format("/api/v1/namespaces/default/pods/{}/binding", pod),
         fmt::format(R"({{"metadata": {{"name": "{}"}}, "target": {{"name": "node-{}"}}}})", pod,
                     index));
  }

  std::vector<DemoClaim> Check() {
    const absl::Time until = absl::Now() + absl::Seconds(10);
    while (observer_.bound_pods().size() < 4 && absl::Now() < until) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return BoundAtOnce(server_, observer_, "job", nodes_);
  }

  kube::embedded::ApiServer server_;
  DemoObserver observer_{&server_, absl::Now};
  std::vector<NodeProgress> nodes_;
};

TEST_F(DemoClaims, HoldForAGangThatWaited) {
  CreateJob();
  for (int i = 0; i < 4; ++i) CreateNode(i);
  for (int i = 0; i < 4; ++i) Bind(i);
  EXPECT_THAT(Check(), Each(Field(&DemoClaim::holds, true)));
}

TEST_F(DemoClaims, FailIfAPodIsBoundBeforeTheLastNodeCame) {
  CreateJob();
  for (int i = 0; i < 3; ++i) CreateNode(i);
  Bind(0);
  CreateNode(3);
  for (int i = 1; i < 4; ++i) Bind(i);
  const std::vector<DemoClaim> claims = Check();
  ASSERT_EQ(claims.size(), 5u);
  EXPECT_TRUE(claims[0].holds);
  EXPECT_FALSE(claims[1].holds);
}

TEST_F(DemoClaims, FailIfAHoldIsLeft) {
  CreateJob();
  for (int i = 0; i < 4; ++i) CreateNode(i, i == 2 ? "muster.dev/holds" : "muster.dev/note");
  for (int i = 0; i < 4; ++i) Bind(i);
  const std::vector<DemoClaim> claims = Check();
  ASSERT_EQ(claims.size(), 5u);
  EXPECT_FALSE(claims[4].holds);
  EXPECT_EQ(claims[4].text, "holds left on nodes: 1");
}

DemoFrame Frame(v1::NodeStage stage, bool held) {
  v1::ListNodesResponse nodes;
  v1::Node* node = nodes.add_nodes();
  node->set_node_claim("gpu-x");
  node->set_stage(stage);
  if (stage >= v1::REGISTERED) node->set_name("ip-10-0-0-1.internal");
  if (held) (*node->mutable_holds())["uid"];
  NodeTracker tracker({});
  tracker.Update(nodes, absl::Seconds(2));
  DemoFrame frame;
  frame.elapsed = absl::Seconds(2);
  frame.gang.set_name("job");
  frame.gang.set_state(v1::PROVISIONING);
  frame.gang.mutable_reason()->set_code(v1::NODES_COMING);
  frame.gang.mutable_reason()->set_message("waiting for one more node");
  v1::Member* member = frame.gang.add_members();
  member->set_name("job-master-0");
  member->set_state(v1::SIGNALLED);
  frame.nodes = tracker.nodes();
  return frame;
}

TEST(LineView, PrintsALinePerChange) {
  std::ostringstream out;
  LineView view(&out);
  view.Show(Frame(v1::LAUNCHED, false));
  view.Show(Frame(v1::LAUNCHED, false));
  view.Show(Frame(v1::USABLE, true));
  EXPECT_EQ(out.str(),
            "  2.0 s  node gpu-x: LAUNCHED\n"
            "  2.0 s  1 member SIGNALLED: job-master-0\n"
            "  2.0 s  gang job: PROVISIONING NODES_COMING: waiting for one more node\n"
            "  2.0 s  node ip-10-0-0-1 (gpu-x): USABLE, held\n");
}

TEST(TableView, DrawsOverThePictureBefore) {
  std::ostringstream out;
  TableView view(&out, 30, 24);
  view.Show(Frame(v1::LAUNCHED, false));
  const std::string first = out.str();
  EXPECT_THAT(first, Not(HasSubstr("A\r")));
  const auto lines = std::ranges::count(first, '\n');
  view.Show(Frame(v1::LAUNCHED, false));
  EXPECT_EQ(out.str(), first + fmt::format("\x1b[{}A\r", lines) + first);
  // Wrapped and cut at 30 columns.
  EXPECT_THAT(first, HasSubstr("         waiting for one more\x1b[K\n         node\x1b[K\n"));
  EXPECT_THAT(first, HasSubstr("NODE   REQUESTED  LAUNCHED ...\x1b[K\n"));
}

TEST(TableView, StaysWithinTheRows) {
  std::ostringstream out;
  TableView view(&out, 80, 5);
  view.Show(Frame(v1::USABLE, true));
  EXPECT_EQ(std::ranges::count(out.str(), '\n'), 4);
}

TEST(NodeTracker, LeavesOutNodesThatWereThere) {
  v1::ListNodesResponse before;
  before.add_nodes()->set_node_claim("old");
  NodeTracker tracker(before);
  v1::ListNodesResponse now = before;
  now.add_nodes()->set_node_claim("new");
  tracker.Update(now, absl::Seconds(1));
  ASSERT_EQ(tracker.nodes().size(), 1u);
  EXPECT_EQ(tracker.nodes()[0].claim, "new");
  tracker.Update(before, absl::Seconds(2));
  EXPECT_TRUE(tracker.nodes()[0].gone);
}

}  // namespace
}  // namespace muster::lab
