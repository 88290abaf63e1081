#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kube/objects/decode.h"

namespace muster::kube {
namespace {

using ::testing::HasSubstr;

absl::Time At(const std::string& text) {
  absl::Time time;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, nullptr));
  return time;
}

TEST(DecodeEvent, ReadsWhatItSaysOfWhich) {
  const auto event = Decode<Event>(R"({
    "metadata":{"name":"train.18","namespace":"team","creationTimestamp":"2026-01-01T10:00:00Z"},
    "involvedObject":{"kind":"Job","namespace":"team","name":"train","uid":"u","apiVersion":"batch/v1",
                      "resourceVersion":"7"},
    "type":"Warning","reason":"FailedCreate","message":"Error creating: no",
    "source":{"component":"job-controller"},"count":3,
    "firstTimestamp":"2026-01-01T10:00:00Z","lastTimestamp":"2026-01-01T10:05:00Z",
    "eventTime":null,"reportingComponent":"job-controller","reportingInstance":""})");
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->about, (ObjectReference{"Job", "team", "train", "u"}));
  EXPECT_EQ(event->type, "Warning");
  EXPECT_EQ(event->reason, "FailedCreate");
  EXPECT_EQ(event->message, "Error creating: no");
  EXPECT_EQ(event->count, 3);
  EXPECT_EQ(event->last, At("2026-01-01T10:05:00Z"));
}

// As core/v1 shows what was written through events.k8s.io.
TEST(DecodeEvent, ReadsTheFormOfEventsK8sIo) {
  const auto once = Decode<Event>(R"({"metadata":{"creationTimestamp":"2026-01-01T10:00:01Z"},
    "eventTime":"2026-01-01T10:00:00.654321Z","series":null,"count":null,
    "firstTimestamp":null,"lastTimestamp":null})");
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_EQ(once->count, 1);
  EXPECT_EQ(once->last, At("2026-01-01T10:00:01Z"));

  const auto often = Decode<Event>(R"({"metadata":{"creationTimestamp":"2026-01-01T10:00:01Z"},
    "eventTime":"2026-01-01T10:00:00.654321Z",
    "series":{"count":12,"lastObservedTime":"2026-01-01T10:30:00.5Z"}})");
  ASSERT_TRUE(often.ok()) << often.status();
  EXPECT_EQ(often->count, 12);
  EXPECT_EQ(often->last, At("2026-01-01T10:30:00.5Z"));
}

TEST(DecodeEvent, WithoutAnyTimeItWasSeenLongAgo) {
  const auto event = Decode<Event>("{}");
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->last, absl::InfinitePast());
  EXPECT_EQ(event->count, 1);
}

TEST(DecodeEvent, NamesTheFieldOfAWrongType) {
  const auto event = Decode<Event>(R"({"involvedObject":{"uid":7}})");
  EXPECT_THAT(std::string(event.status().message()), HasSubstr("involvedObject.uid"));
  const auto time = Decode<Event>(R"({"lastTimestamp":"yesterday"})");
  EXPECT_THAT(std::string(time.status().message()), HasSubstr("lastTimestamp"));
}

}  // namespace
}  // namespace muster::kube
