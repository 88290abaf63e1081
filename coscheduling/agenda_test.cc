#include "coscheduling/agenda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::coscheduling {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr GangId kA{1};
constexpr GangId kB{2};
const absl::Time kNoon = absl::FromUnixSeconds(1'700'000'000);

Agenda AtNoon() {
  Agenda agenda;
  agenda.AdvanceTo(kNoon);
  agenda.BeginStep();
  return agenda;
}

TEST(Agenda, TimeNeverGoesBack) {
  Agenda agenda = AtNoon();
  agenda.AdvanceTo(kNoon - absl::Hours(1));
  EXPECT_EQ(agenda.now(), kNoon);
}

TEST(Agenda, AGangThatIsNotedOftenIsTakenOnce) {
  Agenda agenda = AtNoon();
  agenda.Note(kA);
  agenda.Note(kA);
  EXPECT_EQ(agenda.NextWake(), kNoon);
  EXPECT_THAT(agenda.Take(), ElementsAre(kA));
  EXPECT_THAT(agenda.Take(), IsEmpty());
  EXPECT_EQ(agenda.NextWake(), absl::InfiniteFuture());
}

TEST(Agenda, OfSeveralTimesTheEarliestCounts) {
  Agenda agenda = AtNoon();
  agenda.NoteAt(kA, kNoon + absl::Seconds(9));
  agenda.NoteAt(kA, kNoon + absl::Seconds(3));
  agenda.NoteAt(kA, kNoon + absl::Seconds(6));
  agenda.NoteAt(kB, kNoon + absl::Seconds(4));
  EXPECT_EQ(agenda.NextWake(), kNoon + absl::Seconds(3));
  EXPECT_THAT(agenda.Take(), IsEmpty());
  agenda.AdvanceTo(kNoon + absl::Seconds(4));
  EXPECT_THAT(agenda.Take(), UnorderedElementsAre(kA, kB));
}

TEST(Agenda, WhatWasArrangedForAGangIsOverOnceItIsTaken) {
  Agenda agenda = AtNoon();
  agenda.NoteAt(kA, kNoon + absl::Seconds(3));
  agenda.Note(kA);
  agenda.Take();
  agenda.AdvanceTo(kNoon + absl::Seconds(5));
  EXPECT_THAT(agenda.Take(), IsEmpty());
}

TEST(Agenda, WhatWasArrangedWhileItIsLookedAtStays) {
  Agenda agenda = AtNoon();
  agenda.Note(kA);
  agenda.Take();
  agenda.NoteAt(kA, kNoon + absl::Seconds(3));
  agenda.Note(kA);
  EXPECT_THAT(agenda.TakeNoted(), ElementsAre(kA));
  agenda.AdvanceTo(kNoon + absl::Seconds(3));
  EXPECT_THAT(agenda.Take(), ElementsAre(kA));
}

TEST(Agenda, ThatAGangIsShownDoesNotMakeItBeLookedAt) {
  Agenda agenda = AtNoon();
  agenda.Show(kA);
  EXPECT_THAT(agenda.Take(), IsEmpty());
  EXPECT_THAT(agenda.TakeShown(), ElementsAre(kA));
  EXPECT_THAT(agenda.TakeShown(), IsEmpty());
}

TEST(Agenda, AStepEndsTheWakesOfTheOneBefore) {
  Agenda agenda = AtNoon();
  agenda.WakeAt(kNoon + absl::Seconds(1));
  EXPECT_EQ(agenda.NextWake(), kNoon + absl::Seconds(1));
  agenda.BeginStep();
  EXPECT_EQ(agenda.NextWake(), absl::InfiniteFuture());
}

TEST(Agenda, NothingIsLeftOfAGangThatIsForgotten) {
  Agenda agenda = AtNoon();
  agenda.Note(kA);
  agenda.NoteAt(kA, kNoon + absl::Seconds(1));
  agenda.Show(kA);
  agenda.Forget(kA);
  agenda.AdvanceTo(kNoon + absl::Seconds(1));
  EXPECT_THAT(agenda.Take(), IsEmpty());
  EXPECT_THAT(agenda.TakeShown(), IsEmpty());
  EXPECT_EQ(agenda.NextWake(), absl::InfiniteFuture());
}

}  // namespace
}  // namespace muster::coscheduling
