#include "coscheduling/admission/record.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "absl/strings/str_cat.h"

namespace muster::coscheduling {
namespace {

AdmissionRecord Sample() {
  AdmissionRecord record;
  record.uid = "u-1";
  record.identity = "host-1";
  record.epoch = 3;
  record.attempt = 2;
  record.admitted_at = absl::FromUnixMillis(1'700'000'000'123);
  record.deadline = absl::FromUnixSeconds(1'700'000'600);
  return record;
}

TEST(AdmissionRecord, ReadsBackWhatItWrote) {
  AdmissionRecord record = Sample();
  EXPECT_EQ(*DecodeRecord(EncodeRecord(record)), record);
  record.retry_after = absl::FromUnixSeconds(1'700'000'700);
  record.given_up = Reason{v1::INSUFFICIENT_CAPACITY, "refused \"twice\"", "wait"};
  record.bound_at = absl::FromUnixSeconds(1'700'000'650);
  record.repairing_since = absl::FromUnixSeconds(1'700'000'660);
  EXPECT_EQ(*DecodeRecord(EncodeRecord(record)), record);
  record.preempted = "gang a/b needs its room";
  EXPECT_EQ(*DecodeRecord(EncodeRecord(record)), record);
  record.flavors_tried = {{"spot", absl::FromUnixSeconds(1'700'000'800)}};
  EXPECT_EQ(*DecodeRecord(EncodeRecord(record)), record);
}

TEST(AdmissionRecord, NamesWhatIsWrong) {
  const std::string good = EncodeRecord(Sample());
  for (const auto& [field, quota] : std::map<std::string, std::string>{
           {"flavorsTried", R"("flavorsTried":7)"},
           {"givenUp", R"("givenUp":{"code":"DEADLINE_EXCEEDED"})"}}) {
    std::string text = good;
    text.insert(1, quota + ",");
    const absl::StatusOr<AdmissionRecord> record = DecodeRecord(text);
    ASSERT_FALSE(record.ok()) << text;
    EXPECT_NE(std::string(record.status().message()).find(field), std::string::npos)
        << record.status();
  }
}

TEST(AdmissionRecord, ReadsAReasonOfALaterVersionAsTheDeadline) {
  AdmissionRecord record = Sample();
  record.given_up = Reason{v1::INSUFFICIENT_CAPACITY, "m", "f"};
  std::string text = EncodeRecord(record);
  text.replace(text.find("INSUFFICIENT_CAPACITY"), 21, "MOON_PHASE");
  record.given_up->code = v1::DEADLINE_EXCEEDED;
  EXPECT_EQ(*DecodeRecord(text), record);
}

TEST(AdmissionRecord, IgnoresFieldsOfALaterVersion) {
  std::string text = EncodeRecord(Sample());
  text.insert(1, R"("later":{"a":[1,2]},)");
  EXPECT_EQ(*DecodeRecord(text), Sample());
}

TEST(AdmissionRecord, CountsEndBeforeAddingToThemOverflows) {
  for (const char* count : {"2147483648", "9223372036854775807", "18446744073709551615"}) {
    std::string text = EncodeRecord(Sample());
    text.replace(text.find("\"epoch\":3"), 9, std::string("\"epoch\":") + count);
    EXPECT_EQ(std::string(DecodeRecord(text).status().message()),
              std::string("muster.dev/admission: epoch: want an integer from 1 to 2147483647, "
                          "got ") +
                  count);
  }
}

std::string With(const std::string& fields) {
  std::string text = EncodeRecord(Sample());
  text.insert(1, fields + ",");
  return text;
}

// Annotations are anybody's who may write the object, and have 256 KiB.
TEST(AdmissionRecord, IsRefusedWhereItIsNestedWithoutEnd) {
  const std::string deep(100'000, '[');
  const std::string end(100'000, ']');
  for (const char* field : {"\"flavorsTried\":", "\"other\":"}) {
    EXPECT_FALSE(DecodeRecord(With(absl::StrCat(field, deep, end))).ok());
  }
}

TEST(AdmissionRecord, ReadsManyFieldsInTime) {
  std::string tried;
  for (int i = 20'000; i-- > 0;) {
    tried += "\"r" + std::to_string(i) + "\":\"2023-11-14T22:13:20Z\",";
  }
  tried.pop_back();
  timespec begin{};
  timespec end{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  EXPECT_TRUE(DecodeRecord(With("\"flavorsTried\":{" + tried + "}")).ok());
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  EXPECT_LT(end.tv_sec - begin.tv_sec, 3);
}

TEST(AdmissionRecord, NamesTheFieldItCannotRead) {
  struct Case {
    const char* text;
    const char* field;
  };
  for (const Case& c : {Case{"", "JSON"}, Case{"[]", "JSON"}, Case{"{", "JSON"},
                        Case{R"({"uid":7})", "uid"}, Case{R"({"uid":"u"})", "identity"},
                        Case{R"({"uid":"u","identity":"i","epoch":0})", "epoch"},
                        Case{R"({"uid":"u","identity":"i","epoch":1,"attempt":1.5})", "attempt"},
                        Case{R"({"uid":"u","identity":"i","epoch":1,"attempt":1,
                               "admittedAt":"noon"})",
                             "admittedAt"}}) {
    absl::StatusOr<AdmissionRecord> record = DecodeRecord(c.text);
    ASSERT_FALSE(record.ok()) << c.text;
    EXPECT_NE(std::string(record.status().message()).find(c.field), std::string::npos)
        << record.status();
  }
}

}  // namespace
}  // namespace muster::coscheduling
