#include "cluster/pod_refusals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const absl::Time kRefused = absl::FromUnixSeconds(1'700'000'000);
constexpr absl::Duration kTime = absl::Minutes(20);

kube::NamespacedUid Of(const std::string& owner) { return {"team", owner + "-uid"}; }

kube::Event Refused(const std::string& owner, const std::string& message,
                    absl::Time last = kRefused) {
  kube::Event event;
  event.about = {"Job", "team", owner, owner + "-uid"};
  event.type = "Warning";
  event.reason = "FailedCreate";
  event.message = message;
  event.last = last;
  return event;
}

TEST(PodRefusals, KnowsTheLatestOfEachOwner) {
  PodRefusals refusals(kTime);
  EXPECT_THAT(refusals.Note(Refused("a", "Error creating: first")), ElementsAre(Of("a")));
  EXPECT_THAT(refusals.Note(Refused("a", "Error creating: later", kRefused + absl::Seconds(9))),
              ElementsAre(Of("a")));
  EXPECT_THAT(refusals.Note(Refused("a", "Error creating: first")), IsEmpty());
  ASSERT_NE(refusals.Find(Of("a")), nullptr);
  EXPECT_EQ(refusals.Find(Of("a"))->why, "later");
  EXPECT_EQ(refusals.Find(Of("a"))->owner.name, "a");
  EXPECT_EQ(refusals.Find(Of("b")), nullptr);
}

TEST(PodRefusals, AnEventOfAnotherNamespaceTellsNothingOfItsOwner) {
  PodRefusals refusals(kTime);
  kube::Event forged = Refused("a", "no");
  forged.about.name_space = "others";
  refusals.Note(forged);
  EXPECT_EQ(refusals.Find(Of("a")), nullptr);
}

TEST(PodRefusals, TheSameEventReadAgainTellsNothingNew) {
  PodRefusals refusals(kTime);
  refusals.Note(Refused("a", "no"));
  EXPECT_THAT(refusals.Note(Refused("a", "no")), IsEmpty());
  EXPECT_EQ(refusals.size(), 1);
}

TEST(PodRefusals, TrainingOperatorHasAReasonOfItsOwn) {
  PodRefusals refusals(kTime);
  kube::Event event = Refused("a", "no");
  event.reason = "FailedCreatePod";
  EXPECT_THAT(refusals.Note(event), ElementsAre(Of("a")));
}

TEST(PodRefusals, OtherEventsAreNone) {
  PodRefusals refusals(kTime);
  kube::Event normal = Refused("a", "no");
  normal.type = "Normal";
  kube::Event scheduling = Refused("a", "no");
  scheduling.reason = "FailedScheduling";
  kube::Event nobodys = Refused("a", "no");
  nobodys.about.uid.clear();
  for (const kube::Event& event : {normal, scheduling, nobodys}) {
    EXPECT_THAT(refusals.Note(event), IsEmpty());
  }
  EXPECT_EQ(refusals.size(), 0);
}

TEST(PodRefusals, OneThatIsNotRepeatedIsOver) {
  PodRefusals refusals(kTime);
  refusals.Note(Refused("a", "no"));
  refusals.Note(Refused("b", "no"));
  refusals.Note(Refused("b", "no", kRefused + absl::Minutes(15)));
  EXPECT_EQ(refusals.NextExpiry(), kRefused + kTime);
  EXPECT_THAT(refusals.Expire(kRefused + kTime - absl::Seconds(1)), IsEmpty());
  EXPECT_THAT(refusals.Expire(kRefused + kTime), ElementsAre(Of("a")));
  EXPECT_EQ(refusals.Find(Of("a")), nullptr);
  EXPECT_EQ(refusals.NextExpiry(), kRefused + absl::Minutes(35));
}

TEST(PodRefusals, AClockThatIsAheadProlongsNone) {
  PodRefusals refusals(kTime);
  refusals.Note(Refused("a", "no", kRefused + absl::Hours(24'000)));
  EXPECT_THAT(refusals.Expire(kRefused), IsEmpty());
  EXPECT_EQ(refusals.NextExpiry(), kRefused + kTime);
  EXPECT_THAT(refusals.Expire(kRefused + kTime), ElementsAre(Of("a")));
}

TEST(PodRefusals, TheLongestSilentGoWhenThereAreTooMany) {
  PodRefusals refusals(kTime, 2);
  refusals.Note(Refused("a", "no", kRefused + absl::Seconds(5)));
  refusals.Note(Refused("b", "no", kRefused));
  EXPECT_THAT(refusals.Note(Refused("c", "no", kRefused + absl::Seconds(7))),
              ElementsAre(Of("c"), Of("b")));
  EXPECT_EQ(refusals.size(), 2);
  EXPECT_EQ(refusals.dropped(), 1);
  EXPECT_EQ(refusals.Find(Of("b")), nullptr);
}

TEST(PodRefusals, AnOwnerThatIsGoneIsForgotten) {
  PodRefusals refusals(kTime);
  refusals.Note(Refused("a", "no"));
  refusals.Forget(Of("a"));
  refusals.Forget(Of("b"));
  EXPECT_EQ(refusals.Find(Of("a")), nullptr);
  EXPECT_EQ(refusals.NextExpiry(), absl::InfiniteFuture());
}

}  // namespace
}  // namespace muster::cluster
