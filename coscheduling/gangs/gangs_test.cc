#include "coscheduling/gangs/gangs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "coscheduling/test_owners.h"

namespace muster::coscheduling {
namespace {

using cluster::test::BoundTo;
using cluster::test::Labelled;
using cluster::test::MakePod;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::shared_ptr<const kube::PodGroup> Group(const std::string& version, int64_t min_member,
                                            const std::string& uid = "group") {
  auto group = std::make_shared<kube::PodGroup>();
  group->meta.name = "train";
  group->meta.name_space = "default";
  group->meta.uid = uid;
  group->meta.resource_version = version;
  group->min_member = min_member;
  return group;
}

kube::Pod MemberOf(const std::string& name, const std::string& gang = "train") {
  return Labelled(MakePod(name), kube::kPodGroupLabel, gang);
}

class GangsTest : public ::testing::Test {
 protected:
  const Gang* Find(const std::string& name) const {
    return owners_.gangs.Find(GangKey{"default", name});
  }

  TestOwners owners_;
};

TEST_F(GangsTest, AnOlderVersionOfAPodGroupIsIgnored) {
  owners_.gangs.Adopt(Group("7", 3));
  owners_.gangs.Adopt(Group("6", 2));
  EXPECT_EQ(Find("train")->group->min_member, 3);
  owners_.gangs.Adopt(Group("1", 2, "another of its name"));
  EXPECT_EQ(Find("train")->group->min_member, 2);
}

TEST_F(GangsTest, ThatAPredecessorIsGoneSaysNothingOfTheGroup) {
  owners_.gangs.Adopt(Group("7", 3));
  owners_.gangs.DropGroup(*Group("9", 3, "another of its name"));
  ASSERT_NE(Find("train"), nullptr);
  EXPECT_NE(Find("train")->group, nullptr);
  owners_.gangs.DropGroup(*Group("9", 3));
  EXPECT_EQ(Find("train"), nullptr) << "nothing is left of it";
}

TEST_F(GangsTest, AGangLivesAsLongAsAPodOrItsGroup) {
  owners_.Add(MemberOf("m-0"));
  owners_.gangs.Adopt(Group("1", 1));
  const GangId id = Find("train")->id;
  owners_.gangs.DropGroup(*Group("1", 1));
  ASSERT_NE(Find("train"), nullptr);
  EXPECT_THAT(owners_.gangs.TakeDepartures().gangs, IsEmpty());
  owners_.gangs.Leave(*owners_.snapshot.FindPod("pod-m-0"));
  EXPECT_EQ(owners_.gangs.Find(id), nullptr);
  EXPECT_THAT(owners_.gangs.TakeDepartures().gangs,
              ElementsAre(Pair(id, GangKey{"default", "train"})));
}

TEST_F(GangsTest, APodWithoutAGroupIsAGangOfOne) {
  owners_.Add(MakePod("alone"));
  const Gang* gang = owners_.gangs.OfPod("pod-alone");
  ASSERT_NE(gang, nullptr);
  EXPECT_TRUE(gang->key.is_pod);
  owners_.gangs.Read(gang->id, std::nullopt);
  EXPECT_EQ(gang->required(), 1);
}

TEST_F(GangsTest, APodWhoseLabelChangesLeavesOneGangForTheOther) {
  owners_.Add(MemberOf("m-0", "first"));
  const GangId first = Find("first")->id;
  owners_.Add(MemberOf("m-0", "second"));
  EXPECT_EQ(Find("first"), nullptr);
  EXPECT_THAT(Find("second")->pods, ElementsAre("pod-m-0"));
  EXPECT_THAT(owners_.gangs.TakeDepartures().pods, ElementsAre(Pair(first, "pod-m-0")));
}

TEST_F(GangsTest, AMemberThatIsBeingDeletedIsNoMember) {
  kube::Pod going = MemberOf("m-1");
  going.meta.deletion_time = owners_.agenda.now();
  const Gang& gang = owners_.AddGang("train", {MemberOf("m-0"), going});
  EXPECT_THAT(gang.unbound, ElementsAre("pod-m-0"));
  EXPECT_EQ(gang.facts.live, 1);
  EXPECT_EQ(owners_.gangs.Blocker(gang, false, "").code, v1::MEMBERS_MISSING);
}

TEST_F(GangsTest, TheGangsOnANodeAreThoseWithMembersThere) {
  const Gang& gang = owners_.AddGang("train", {BoundTo(MemberOf("m-0"), "a"), MemberOf("m-1")});
  EXPECT_THAT(owners_.gangs.StandingOn("a"), ElementsAre(gang.id));
  EXPECT_THAT(owners_.gangs.StandingOn("b"), IsEmpty());
}

TEST_F(GangsTest, AMinMemberThatIsRaisedDoesNotBreakAGangThatWasWhole) {
  const Gang& gang =
      owners_.AddGang("train", {BoundTo(MemberOf("m-0"), "a"), BoundTo(MemberOf("m-1"), "b")});
  auto raised = std::make_shared<kube::PodGroup>(*gang.group);
  raised->min_member = 5;
  owners_.gangs.Adopt(std::move(raised));
  owners_.gangs.Read(gang.id, 2);
  EXPECT_EQ(gang.facts.min_member, 2);
  owners_.gangs.Read(gang.id, std::nullopt);
  EXPECT_EQ(gang.facts.min_member, 5);
}

TEST_F(GangsTest, MembersOfAnotherSchedulerAreNamed) {
  const Gang& gang = owners_.AddGang("train", {MemberOf("m-0")});
  kube::Pod stranger = MemberOf("m-1");
  stranger.scheduler_name = "default-scheduler";
  owners_.gangs.Join(stranger);
  owners_.snapshot.Upsert(std::move(stranger));
  owners_.gangs.Read(gang.id, std::nullopt);
  const Reason blocker = owners_.gangs.Blocker(gang, false, "");
  EXPECT_EQ(blocker.code, v1::MEMBERS_DISAGREE);
  EXPECT_EQ(blocker.message,
            "spec.schedulerName of m-1 is \"default-scheduler\", of the gang \"coscheduling\"");
}

}  // namespace
}  // namespace muster::coscheduling
