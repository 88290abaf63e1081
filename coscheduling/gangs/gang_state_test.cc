#include "coscheduling/gangs/gang_state.h"

#include <gtest/gtest.h>

namespace muster::coscheduling {
namespace {

struct Case {
  const char* name;
  GangFacts facts;
  v1::GangState want;
};

class GangStateTest : public testing::TestWithParam<Case> {};

TEST_P(GangStateTest, Is) { EXPECT_EQ(NextState(GetParam().facts), GetParam().want); }

const Case kCases[] = {
    {"NoPodsYet", {.min_member = 4, .blocked = true}, v1::WAITING_FOR_MEMBERS},
    {"ThreeOfFour", {.min_member = 4, .live = 3, .blocked = true}, v1::WAITING_FOR_MEMBERS},
    {"CompleteButNotRecorded", {.min_member = 4, .live = 4}, v1::WAITING_FOR_MEMBERS},
    {"CompleteWithoutQuota",
     {.min_member = 4, .live = 4, .waits_for_quota = true},
     v1::WAITING_FOR_QUOTA},
    {"IncompleteWithoutQuota",
     {.min_member = 4, .live = 3, .blocked = true, .waits_for_quota = true},
     v1::WAITING_FOR_MEMBERS},
    {"BoundButItsQuotaIsTakenBack",
     {.min_member = 4, .live = 4, .bound = 4, .evicting = true},
     v1::WAITING_FOR_QUOTA},
    {"BoundButItsRoomIsTaken",
     {.min_member = 4, .live = 4, .bound = 4, .evicting = true, .without_quota = true},
     v1::WAITING_FOR_MEMBERS},
    {"AdmittedWithoutRoom", {.min_member = 4, .live = 4, .admitted = true}, v1::PROVISIONING},
    {"RecordedButAMemberWasDeleted",
     {.min_member = 4, .live = 3, .blocked = true, .admitted = true},
     v1::WAITING_FOR_MEMBERS},
    {"EveryMemberHasAPlace",
     {.min_member = 4, .live = 4, .admitted = true, .planned = true},
     v1::READY},
    {"CommitBegan",
     {.min_member = 4, .live = 4, .admitted = true, .planned = true, .committing = true},
     v1::BINDING},
    {"HalfBoundWithPlacesForTheRest",
     {.min_member = 4, .live = 4, .bound = 2, .admitted = true, .planned = true},
     v1::BINDING},
    {"HalfBoundWithoutPlacesForTheRest",
     {.min_member = 4, .live = 4, .bound = 2, .admitted = true},
     v1::REPAIRING},
    {"AllBound", {.min_member = 4, .live = 4, .bound = 4, .admitted = true}, v1::BOUND},
    {"BoundWithASurplusThatWaits", {.min_member = 4, .live = 6, .bound = 4}, v1::BOUND},
    {"LostOneAfterItsCommit",
     {.min_member = 4, .live = 3, .bound = 3, .blocked = true, .bound_before = true},
     v1::REPAIRING},
    {"LostOneAndTheReplacementHasAPlace",
     {.min_member = 4,
      .live = 4,
      .bound = 3,
      .admitted = true,
      .bound_before = true,
      .planned = true},
     v1::REPAIRING},
    {"ANodeWithOneOfThemIsLost",
     {.min_member = 4, .live = 4, .bound = 3, .lost = 1, .admitted = true, .bound_before = true},
     v1::REPAIRING},
    {"AllNodesAreLost",
     {.min_member = 4, .live = 4, .lost = 4, .admitted = true, .bound_before = true},
     v1::REPAIRING},
    {"ANodeIsLostWhileTheRestIsBeingBound",
     {.min_member = 4, .live = 4, .bound = 2, .lost = 1, .admitted = true, .planned = true},
     v1::BINDING},
    {"ANodeWithASurplusMemberIsLost",
     {.min_member = 4, .live = 5, .bound = 4, .lost = 1, .bound_before = true},
     v1::BOUND},
    {"OneSucceededEarly",
     {.min_member = 4, .live = 3, .bound = 3, .succeeded = 1, .bound_before = true},
     v1::BOUND},
    {"AllSucceeded", {.min_member = 4, .succeeded = 4}, v1::FINISHED},
    {"AllFailed", {.min_member = 4, .failed = 4, .blocked = true}, v1::FINISHED},
    {"TheLastOneIsStillGoing",
     {.min_member = 4, .failed = 3, .terminating = true, .blocked = true},
     v1::WAITING_FOR_MEMBERS},
    {"GaveUp", {.min_member = 4, .live = 4, .backing_off = true}, v1::BACKING_OFF},
    {"GaveUpAndLostAMember",
     {.min_member = 4, .live = 3, .blocked = true, .backing_off = true},
     v1::WAITING_FOR_MEMBERS},
};

INSTANTIATE_TEST_SUITE_P(Gang, GangStateTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace muster::coscheduling
