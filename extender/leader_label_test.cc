#include "extender/leader_label.h"

#include <gtest/gtest.h>

#include "kube/client/fake_transport.h"

namespace muster::extender {
namespace {

constexpr const char* kSet = R"({"metadata":{"labels":{"muster.dev/leading":"true"}}})";
constexpr const char* kRemoved = R"({"metadata":{"labels":{"muster.dev/leading":null}}})";

class LeaderLabelTest : public ::testing::Test {
 protected:
  void Pass(absl::Duration time, bool leading) {
    now_ += time;
    label_.Tick(now_, leading);
  }
  const kube::Request& Last() { return transport_.sent.back()->request; }
  void Answer(int status) { transport_.sent.back()->Answer(status); }

  kube::FakeTransport transport_;
  LeaderLabel label_{transport_, "muster-system", "muster-x", 1};
  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
};

TEST_F(LeaderLabelTest, FollowsTheLead) {
  // Left by a process before, perhaps.
  Pass(absl::ZeroDuration(), false);
  ASSERT_EQ(transport_.sent.size(), 1u);
  EXPECT_EQ(Last().method, kube::Method::kPatch);
  EXPECT_EQ(Last().path, "/api/v1/namespaces/muster-system/pods/muster-x");
  EXPECT_EQ(Last().content_type, kube::kMergePatch);
  EXPECT_EQ(Last().body, kRemoved);
  // One request at a time; what was decided meanwhile comes next.
  Pass(absl::Seconds(1), true);
  EXPECT_EQ(transport_.sent.size(), 1u);
  Answer(200);
  Pass(absl::Seconds(1), true);
  ASSERT_EQ(transport_.sent.size(), 2u);
  EXPECT_EQ(Last().body, kSet);
  Answer(200);
  Pass(absl::Seconds(1), true);
  EXPECT_EQ(transport_.sent.size(), 2u);
  Pass(absl::Seconds(1), false);
  EXPECT_EQ(Last().body, kRemoved);
}

TEST_F(LeaderLabelTest, IsWrittenAgainEveryMinute) {
  Pass(absl::ZeroDuration(), true);
  Answer(200);
  Pass(absl::ZeroDuration(), true);
  Pass(absl::Seconds(59), true);
  EXPECT_EQ(transport_.sent.size(), 1u);
  Pass(absl::Seconds(1), true);
  EXPECT_EQ(transport_.sent.size(), 2u);
  EXPECT_EQ(Last().body, kSet);
}

TEST_F(LeaderLabelTest, FailuresAreTriedAgainAfterGrowingPauses) {
  size_t sent = 0;
  for (int i = 0; i < 3000; ++i) {
    Pass(absl::Milliseconds(100), true);
    if (transport_.sent.size() == sent) continue;
    ++sent;
    Answer(403);
  }
  // 5 min: once a second at first, twice a minute in the end.
  EXPECT_GE(sent, 10u);
  EXPECT_LE(sent, 40u);
  Pass(absl::Minutes(1), true);
  Answer(200);
  Pass(absl::Seconds(1), true);
  EXPECT_EQ(transport_.sent.size(), sent + 1);
}

}  // namespace
}  // namespace muster::extender
