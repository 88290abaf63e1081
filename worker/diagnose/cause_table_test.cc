#include "worker/diagnose/cause_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;

constexpr std::string_view kCause =
    "[disk-full]\nrole: origin\nfault: config\nexit: 78\nsays: a disk is full\nfix: Make room.\n";

TEST(CauseTable, CausesTextIsRight) {
  const auto table = ParseCauses(CausesText());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->causes.size(), static_cast<size_t>(CauseId::kCount));
}

TEST(CauseTable, ACauseIsReadWithWhatShowsIt) {
  const std::string text =
      Concat("# about\n\n", kCause, "shows: No space left\nxid: 79 fallen off the bus\n");
  const auto table = ParseCauses(text);
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(table->causes.size(), 1U);
  const Cause& cause = table->causes[0];
  EXPECT_EQ(cause.name, "disk-full");
  EXPECT_EQ(cause.role, Role::kOrigin);
  EXPECT_EQ(cause.fault, Fault::kConfig);
  EXPECT_EQ(cause.exit_code, 78);
  EXPECT_EQ(cause.sentence, "a disk is full");
  EXPECT_EQ(cause.fix, "Make room.");
  ASSERT_EQ(table->rows.size(), 2U);
  EXPECT_EQ(table->rows[0].kind, RowKind::kShows);
  EXPECT_EQ(table->rows[0].text, "No space left");
  EXPECT_EQ(table->rows[1].kind, RowKind::kXid);
  EXPECT_EQ(table->rows[1].line, 10);
}

TEST(CauseTable, AnErrorNamesItsLine) {
  const auto error = [](std::string_view text) {
    return std::string(ParseCauses(text).status().message());
  };
  EXPECT_THAT(error("shows: x\n"), HasSubstr("line 1"));
  EXPECT_THAT(error(Concat(kCause, "smells: x\n")), HasSubstr("line 7: no such key"));
  EXPECT_THAT(error(Concat(kCause, "role: bystander\n")), HasSubstr("line 7"));
  EXPECT_THAT(error(Concat(kCause, "exit: 0\n")), HasSubstr("line 7"));
  EXPECT_THAT(error(Concat(kCause, "says: It ends with a stop.\n")), HasSubstr("line 7"));
  EXPECT_THAT(error(Concat(kCause, "shows: \n")), HasSubstr("line 7"));
  EXPECT_THAT(error(Concat(kCause, kCause)), HasSubstr("line 7: this cause is there already"));
  EXPECT_THAT(error("[a]\nexit: 78\n"), HasSubstr("no exit code, sentence or fix"));
  EXPECT_THAT(error(Concat(kCause, "refines: nothing\n")), HasSubstr("which is no cause"));
  EXPECT_THAT(error(""), HasSubstr("no exit code, sentence or fix"));
}

}  // namespace
}  // namespace muster::worker
