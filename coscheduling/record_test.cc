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
  quota::PodSetAssignment workers{"w", 3, {{"cpu", "any"}, {"nvidia.com/gpu", "spot"}}, {}};
  workers.usage.Set("cpu", 3000);
  workers.usage.Set("nvidia.com/gpu", 24);
  record.queue = "default";
  record.quota = quota::Admission{"gpus", {workers}, {workers}, record.admitted_at};
  record.eviction = Eviction{"gang a/b reclaims quota", true};
  record.flavors_tried = {{"spot", absl::FromUnixSeconds(1'700'000'800)}};
  EXPECT_EQ(*DecodeRecord(EncodeRecord(record)), record);
}

TEST(AdmissionRecord, NamesWhatIsWrongAboutItsQuota) {
  const std::string good = EncodeRecord(Sample());
  for (const auto& [field, quota] : std::map<std::string, std::string>{
           {"clusterQueue", R"("quota":{})"},
           {"podSets", R"("quota":{"clusterQueue":"c","reservedAt":"2023-11-14T22:13:20Z"})"},
           {"count", R"("quota":{"clusterQueue":"c","reservedAt":"2023-11-14T22:13:20Z",
                        "podSets":[{"name":"a","count":0}],"surplus":[]})"},
           {"usage", R"("quota":{"clusterQueue":"c","reservedAt":"2023-11-14T22:13:20Z",
                        "podSets":[{"name":"a","count":1,"usage":{"cpu":-1}}],"surplus":[]})"},
           {"eviction", R"("eviction":true)"},
           {"flavorsTried", R"("flavorsTried":7)"}}) {
    std::string text = good;
    text.insert(1, quota + ",");
    const absl::StatusOr<AdmissionRecord> record = DecodeRecord(text);
    ASSERT_FALSE(record.ok()) << text;
    EXPECT_NE(std::string(record.status().message()).find(field), std::string::npos)
        << record.status();
  }
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
