#include "cluster/node_trouble.h"

#include <gtest/gtest.h>

namespace muster::cluster {
namespace {

using Kind = NodeTrouble::Kind;

// 10:00:00Z.
const absl::Time kSeen = absl::FromUnixSeconds(36'000);
constexpr absl::Duration kGrace = absl::Seconds(30);

struct TestNode {
  kube::Node node;
  std::optional<kube::NodeClaim> claim;

  TestNode() {
    node.meta.name = "n1";
    node.ready = true;
  }
  TestNode& NotReadySince(absl::Time time) {
    node.ready = false;
    node.ready_message = "Kubelet stopped posting node status.";
    node.ready_changed = time;
    return *this;
  }
  TestNode& Tainted(const char* key, kube::TaintEffect effect = kube::TaintEffect::kNoSchedule) {
    node.taints.push_back({key, "", effect});
    return *this;
  }
  std::optional<NodeTrouble> Judge(const std::optional<NodeTrouble>& before = std::nullopt,
                                   absl::Time now = kSeen) const {
    NodeInfo info;
    info.object = std::make_shared<const kube::Node>(node);
    info.node = info.object;
    if (claim) info.claim = std::make_shared<const kube::NodeClaim>(*claim);
    info.readiness = ReadinessOf(&node, info.claim.get());
    return TroubleOf(&info, before, now, kGrace);
  }
};

TEST(NodeTrouble, AReadyNodeHasNone) { EXPECT_EQ(TestNode().Judge(), std::nullopt); }

TEST(NodeTrouble, MembersOnANodeThatIsNotReadyAreLostAfterTheGrace) {
  const auto trouble = TestNode().NotReadySince(kSeen - absl::Seconds(20)).Judge();
  ASSERT_TRUE(trouble);
  EXPECT_EQ(trouble->kind, Kind::kNotReady);
  EXPECT_EQ(trouble->what, "isn't Ready since 09:59:40Z: Kubelet stopped posting node status.");
  EXPECT_EQ(trouble->lost_at, kSeen + absl::Seconds(10));
}

TEST(NodeTrouble, ATimeInTheFutureOrNoneIsReplacedByWhenItWasFirstSeen) {
  const auto first = TestNode().NotReadySince(kSeen + absl::Hours(1)).Judge();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->since, kSeen);
  TestNode silent;
  silent.node.ready = false;
  EXPECT_EQ(silent.Judge(first, kSeen + absl::Seconds(5))->since, kSeen);
}

TEST(NodeTrouble, TheTaintsOfTheNodeControllerCountAsWell) {
  for (const char* key : {"node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"}) {
    const auto trouble = TestNode().Tainted(key, kube::TaintEffect::kNoExecute).Judge();
    ASSERT_TRUE(trouble) << key;
    EXPECT_EQ(trouble->kind, Kind::kNotReady);
    EXPECT_EQ(trouble->lost_at, kSeen + kGrace);
  }
}

TEST(NodeTrouble, AMachineThatIsOffOrANodeThatIsGoneIsLostAtOnce) {
  for (const char* key :
       {"node.kubernetes.io/out-of-service", "node.cloudprovider.kubernetes.io/shutdown"}) {
    const auto off = TestNode().Tainted(key).Judge();
    ASSERT_TRUE(off) << key;
    EXPECT_EQ(off->kind, Kind::kGone);
    EXPECT_EQ(off->lost_at, kSeen);
  }
  const auto gone = TroubleOf(nullptr, std::nullopt, kSeen, kGrace);
  ASSERT_TRUE(gone);
  EXPECT_EQ(gone->what, "is gone since 10:00:00Z");
  EXPECT_EQ(gone->lost_at, kSeen);
}

TEST(NodeTrouble, MembersOnANodeThatIsBeingRemovedRunOn) {
  TestNode node;
  node.claim.emplace();
  node.claim->meta.deletion_time = kSeen - absl::Seconds(60);
  const auto going = node.Judge();
  ASSERT_TRUE(going);
  EXPECT_EQ(going->kind, Kind::kGoing);
  EXPECT_EQ(going->what, "is being removed since 09:59:00Z: the NodeClaim is being deleted");
  EXPECT_EQ(going->lost_at, absl::InfiniteFuture());

  const auto disrupted = TestNode().Tainted("karpenter.sh/disrupted").Judge();
  ASSERT_TRUE(disrupted);
  EXPECT_EQ(disrupted->kind, Kind::kGoing);
}

TEST(NodeTrouble, ANodeThatIsBeingRemovedAndNotReadyDoesNotComeBack) {
  TestNode node;
  node.NotReadySince(kSeen - absl::Seconds(5)).node.meta.deletion_time = kSeen;
  EXPECT_EQ(node.Judge()->lost_at, kSeen - absl::Seconds(5));
}

TEST(NodeTrouble, ANodeThatComesUpIsNotIll) {
  TestNode node;
  node.NotReadySince(kSeen - absl::Hours(1));
  NodeInfo info;
  info.object = info.node = std::make_shared<const kube::Node>(node.node);
  info.is_virtual = true;
  EXPECT_EQ(TroubleOf(&info, std::nullopt, kSeen, kGrace), std::nullopt);
}

}  // namespace
}  // namespace muster::cluster
