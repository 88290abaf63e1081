#include "extender/leadership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "fmt/format.h"
#include "kube/client/fake_transport.h"
#include "kube/client/manual_timer.h"

namespace muster::extender {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LeadershipTest : public ::testing::Test {
 protected:
  Leadership::Changed Note() {
    return [this](bool leading) { changes_.push_back(leading); };
  }
  void Follow() {
    leadership_ = Leadership::Follow(
        transport_, timer_,
        {.name_space = "muster-system", .name = "coscheduling", .holder_prefix = "a_"}, Note());
  }
  void Elect() {
    leadership_ = Leadership::Elect(
        transport_, timer_, {.name_space = "muster-system", .name = "muster", .identity = "me"},
        Note());
  }
  // Every request that waits is answered like this.
  void Answer(int status, const std::string& body) {
    for (; answered_ < transport_.sent.size(); ++answered_) {
      transport_.sent[answered_]->Answer(status, body);
    }
  }
  std::string LeaseOf(const std::string& holder) {
    return fmt::format(
        R"({{"metadata":{{"resourceVersion":"{0}"}},"spec":{{"holderIdentity":"{1}",)"
        R"("leaseDurationSeconds":15,"leaseTransitions":{0}}}}})",
        ++version_, holder);
  }

  kube::ManualTimer timer_{absl::FromUnixSeconds(1'800'000'000)};
  kube::FakeTransport transport_;
  std::vector<bool> changes_;
  std::unique_ptr<Leadership> leadership_;
  size_t answered_ = 0;
  int version_ = 0;
};

TEST_F(LeadershipTest, AlwaysLeadsUntilItStops) {
  leadership_ = Leadership::Always(Note());
  EXPECT_TRUE(leadership_->Leads());
  EXPECT_EQ(leadership_->WhyNoLeader(), "");
  EXPECT_THAT(changes_, ElementsAre(true));
  leadership_->Stop(absl::ZeroDuration());
  EXPECT_FALSE(leadership_->Leads());
}

TEST_F(LeadershipTest, FollowsTheHolderFromLookToLook) {
  Follow();
  Answer(200, LeaseOf("b_1"));
  EXPECT_FALSE(leadership_->Leads());
  EXPECT_EQ(leadership_->Holder(), "b_1");
  EXPECT_EQ(leadership_->WhyNoLeader(), "");
  timer_.Advance(absl::Seconds(1));
  Answer(200, LeaseOf("a_1"));
  EXPECT_TRUE(leadership_->Leads());
  timer_.Advance(absl::Seconds(1));
  Answer(200, LeaseOf("b_2"));
  EXPECT_FALSE(leadership_->Leads());
  timer_.Advance(absl::Seconds(1));
  Answer(200, LeaseOf("a_2"));
  EXPECT_THAT(changes_, ElementsAre(true, false, true));
  EXPECT_EQ(leadership_->transitions(), 4);
  EXPECT_EQ(transport_.sent.size(), 4u);
}

TEST_F(LeadershipTest, ALeadWithoutAnswersEndsByItself) {
  Follow();
  Answer(200, LeaseOf("a_1"));
  timer_.Advance(absl::Seconds(9.9));
  EXPECT_TRUE(leadership_->Leads());
  EXPECT_THAT(changes_, ElementsAre(true));
  timer_.Advance(absl::Seconds(0.2));
  EXPECT_FALSE(leadership_->Leads());
  EXPECT_THAT(changes_, ElementsAre(true, false));
  EXPECT_EQ(transport_.sent.size(), 2u);  // one look is under way, however long it takes
}

TEST_F(LeadershipTest, StoppingEndsTheLeadForGood) {
  Follow();
  Answer(200, LeaseOf("a_1"));
  leadership_->Stop(absl::ZeroDuration());
  EXPECT_FALSE(leadership_->Leads());
  timer_.Advance(absl::Seconds(1));
  Answer(200, LeaseOf("a_1"));
  EXPECT_FALSE(leadership_->Leads());
  EXPECT_THAT(changes_, ElementsAre(true, false));
}

TEST_F(LeadershipTest, AnAnswerAfterItsEndGoesNowhere) {
  Follow();
  leadership_.reset();
  Answer(200, LeaseOf("a_1"));
  timer_.Advance(absl::Minutes(1));
  EXPECT_THAT(changes_, ElementsAre());
  EXPECT_EQ(transport_.sent.size(), 1u);
}

TEST_F(LeadershipTest, ACandidateKnowsItsLeader) {
  Elect();
  EXPECT_THAT(leadership_->WhyNoLeader(), HasSubstr("Lease muster-system/muster is not held yet"));
  Answer(200, LeaseOf("other"));
  EXPECT_EQ(leadership_->WhyNoLeader(), "");
  EXPECT_EQ(leadership_->Holder(), "other");
  EXPECT_FALSE(leadership_->Leads());
}

TEST_F(LeadershipTest, ACandidateThatCannotReadItsLeaseForLongKnowsNoLeader) {
  Elect();
  EXPECT_EQ(leadership_->transitions(), std::nullopt);
  Answer(200, LeaseOf("other"));
  EXPECT_EQ(leadership_->transitions(), 1);
  timer_.Advance(absl::Seconds(5));
  Answer(403, R"({"message":"not for you"})");
  EXPECT_EQ(leadership_->WhyNoLeader(), "");
  timer_.Advance(absl::Seconds(15));
  Answer(403, R"({"message":"not for you"})");
  EXPECT_EQ(leadership_->WhyNoLeader(),
            "no muster is known to lead: Lease muster-system/muster: HTTP 403: not for you");
  EXPECT_EQ(leadership_->WhyOutOfTouch(), leadership_->WhyNoLeader());
}

TEST_F(LeadershipTest, WhileThereIsAReasonItDoesntLeadWhoeverHoldsTheLease) {
  auto restricted =
      Leadership::Restrict([](const Leadership::Changed& told) { return Leadership::Always(told); },
                           Note(), "not looked at yet");
  EXPECT_FALSE(restricted->Leads());
  EXPECT_TRUE(restricted->HoldsLead());
  EXPECT_EQ(restricted->Reason(), "not looked at yet");
  restricted->SetReason("");
  EXPECT_TRUE(restricted->Leads());
  restricted->SetReason("another install");
  restricted->SetReason("yet another one");
  EXPECT_FALSE(restricted->Leads());
  EXPECT_EQ(restricted->Reason(), "yet another one");
  restricted->SetReason("");
  restricted->Stop(absl::ZeroDuration());
  EXPECT_FALSE(restricted->Leads());
  EXPECT_THAT(changes_, ElementsAre(true, false, true));
}

}  // namespace
}  // namespace muster::extender
