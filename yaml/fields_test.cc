#include "yaml/fields.h"

#include <gtest/gtest.h>

namespace muster::yaml {
namespace {

// "LINE: MESSAGE" of the mistake that `read` finds in `text`, or "".
template <typename F>
std::string MistakeIn(const std::string& text, F read) {
  try {
    Fields fields(YAML::Load(text), "thing");
    read(&fields);
    fields.Finish();
  } catch (const FieldError& error) {
    return std::to_string(error.line) + ": " + error.message;
  }
  return "";
}

TEST(Fields, LeaveWhatIsAbsentAsItIs) {
  int count = 3;
  std::optional<int> other;
  absl::Duration wait = absl::Seconds(5);
  EXPECT_EQ(MistakeIn("{wait: 2m}",
                      [&](Fields* fields) {
                        fields->Read("count", &count);
                        fields->Read("other", &other);
                        fields->ReadDuration("wait", &wait);
                      }),
            "");
  EXPECT_EQ(count, 3);
  EXPECT_EQ(other, std::nullopt);
  EXPECT_EQ(wait, absl::Minutes(2));
}

TEST(Fields, TellEachMistakeWithItsLineAndName) {
  const auto count = [](Fields* fields) {
    int count = 0;
    fields->Read("count", &count);
  };
  EXPECT_EQ(MistakeIn("[1]", count), "1: thing: want a mapping");
  EXPECT_EQ(MistakeIn("count: 1\nmore: 2\n", count), "2: thing.more: unknown field");
  EXPECT_EQ(MistakeIn("\ncount: many\n", count), "2: thing.count: wrong type");
  EXPECT_EQ(MistakeIn("a: 1\n", [](Fields* fields) { fields->Require("b"); }),
            "1: thing.b: missing");
  absl::Duration wait;
  EXPECT_EQ(
      MistakeIn("a: 1\nwait: soon\n", [&](Fields* fields) { fields->ReadDuration("wait", &wait); }),
      "2: thing.wait: \"soon\" is no duration");
}

}  // namespace
}  // namespace muster::yaml
