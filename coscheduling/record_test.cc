#include "coscheduling/record.h"

#include <gtest/gtest.h>

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
  record.bound_at = absl::FromUnixSeconds(1'700'000'650);
  EXPECT_EQ(*DecodeRecord(EncodeRecord(record)), record);
}

TEST(AdmissionRecord, IgnoresFieldsOfALaterVersion) {
  std::string text = EncodeRecord(Sample());
  text.insert(1, R"("later":{"a":[1,2]},)");
  EXPECT_EQ(*DecodeRecord(text), Sample());
}

TEST(AdmissionRecord, NamesTheFieldItCannotRead) {
  struct Case {
    const char* text;
    const char* field;
  };
  for (const Case& c : {Case{"", "(all)"}, Case{"[]", "(all)"}, Case{"{", "(all)"},
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
