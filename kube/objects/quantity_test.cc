#include "kube/objects/quantity.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace muster::kube {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr QuantityUnit kWhole = QuantityUnit::kWhole;
constexpr QuantityUnit kMilli = QuantityUnit::kMilli;
constexpr QuantityUnit kNano = QuantityUnit::kNano;

struct ParseCase {
  std::string text;
  QuantityUnit unit;
  int64_t want;
};

TEST(ParseQuantity, GivesWhatApimachineryGives) {
  const std::vector<ParseCase> cases = {
      {"0", kWhole, 0},
      {"0", kMilli, 0},
      {"1", kWhole, 1},
      {"1", kMilli, 1000},
      {"+1", kWhole, 1},
      {"-1", kWhole, -1},
      {"-1", kMilli, -1000},
      {"007", kWhole, 7},
      {"0.5", kMilli, 500},
      {"0.5", kWhole, 1},
      {".5", kMilli, 500},
      {"5.", kWhole, 5},
      {"1.G", kWhole, 1'000'000'000},
      {"-0.5", kWhole, -1},
      {"-1.5", kWhole, -2},
      {"100m", kMilli, 100},
      {"100m", kWhole, 1},
      {"1001m", kWhole, 2},
      {"0.1m", kMilli, 1},
      {"1n", kMilli, 1},
      {"1n", kWhole, 1},
      {"1000001n", kMilli, 2},
      {"1u", kMilli, 1},
      {"2000u", kMilli, 2},
      {"0n", kWhole, 0},
      {"0.000", kWhole, 0},
      {"0Ki", kWhole, 0},
      {"1k", kWhole, 1000},
      {"1M", kWhole, 1'000'000},
      {"1G", kWhole, 1'000'000'000},
      {"1T", kWhole, 1'000'000'000'000},
      {"1P", kWhole, 1'000'000'000'000'000},
      {"1E", kWhole, 1'000'000'000'000'000'000},
      {"9.2E", kWhole, 9'200'000'000'000'000'000},
      {"1Ki", kWhole, 1024},
      {"1Ki", kMilli, 1'024'000},
      {"1Mi", kWhole, int64_t{1} << 20},
      {"1Gi", kWhole, int64_t{1} << 30},
      {"1.5Gi", kWhole, 1'610'612'736},
      {"0.1Ki", kWhole, 103},
      {"0.0001Ki", kMilli, 103},
      {"1Ti", kWhole, int64_t{1} << 40},
      {"1Pi", kWhole, int64_t{1} << 50},
      {"7Ei", kWhole, int64_t{7} << 60},
      {"1e3", kWhole, 1000},
      {"1E3", kWhole, 1000},
      {"1e+3", kWhole, 1000},
      {"1e-3", kMilli, 1},
      {"1e-3", kWhole, 1},
      {"1.25e2", kWhole, 125},
      {"1e0", kWhole, 1},
      {"0e999999999999999", kWhole, 0},
      {"1e-999999", kWhole, 1},
      {"9223372036854775807", kWhole, kMax},
      {"-9223372036854775807", kWhole, -kMax},
      {"9223372036854775.807", kMilli, kMax},
      {"9223372036854775.8061", kMilli, kMax},
      {"0.0000000000000000000000000000001", kWhole, 1},
      {"1", kNano, 1'000'000'000},
      {"1n", kNano, 1},
      {"0.1n", kNano, 1},
      {"1.0005", kNano, 1'000'500'000},
      {"0.5Ki", kNano, 512'000'000'000},
      {"0.0001Ki", kNano, 102'400'000},
      {"1000000000000000000000000n", kMilli, 1'000'000'000'000'000'000},
  };
  for (const ParseCase& c : cases) {
    absl::StatusOr<int64_t> got = ParseQuantity(c.text, c.unit);
    ASSERT_TRUE(got.ok()) << c.text << ": " << got.status();
    EXPECT_EQ(*got, c.want) << c.text;
  }
}

TEST(ParseQuantity, CapsBinaryAmountsPastInt64AsApimachineryDoes) {
  for (const char* text : {"8Ei", "9Ei", "9223372036854775807Ki", "99999999999999999999Ki",
                           "7.99999999999999999999999Ei"}) {
    EXPECT_EQ(ParseQuantity(text, kWhole).value(), kMax) << text;
    EXPECT_EQ(ParseQuantity(text, kMilli).status().code(), absl::StatusCode::kOutOfRange) << text;
  }
  EXPECT_EQ(ParseQuantity("-9Ei", kWhole).value(), -kMax);
}

TEST(ParseQuantity, RefusesDecimalAmountsPastInt64) {
  const std::vector<std::pair<std::string, QuantityUnit>> cases = {
      {"1e30", kWhole},
      {"1e19", kWhole},
      {"10E", kWhole},
      {"1E", kMilli},
      {"9223372036854775808", kWhole},
      {"9223372036854775807.1", kWhole},
      {"-9223372036854775808", kWhole},
      {"9223372036854775.8071", kMilli},
      {"9Pi", kMilli},
      {"100000000000000000000000", kWhole},
      {"1e999999999999999999999", kWhole},
  };
  for (const auto& [text, unit] : cases) {
    absl::StatusOr<int64_t> got = ParseQuantity(text, unit);
    EXPECT_EQ(got.status().code(), absl::StatusCode::kOutOfRange) << text;
  }
  EXPECT_EQ(ParseQuantity("1e30", kWhole).status().message(),
            "\"1e30\" is out of range: the largest amount is 9223372036854775807");
}

TEST(ParseQuantity, RefusesWhatIsNotAQuantity) {
  for (const char* text :
       {"",       " ",     "1 ",     " 1",      ".",    "-",   "+",     "Ki",
        "1ki",    "1KI",   "1K",     "1mi",     "1Kii", "1i",  "aoeu",  "1.1.M",
        "1+1.0M", "0.1am", "-3.01i", "-3.01e-", "1e",   "1e+", "1e1.5", "1ee5",
        "1e5Ki",  "--1",   "+-1",    "0x10",    "1,5",  "NaN", "inf",   "1_000"}) {
    EXPECT_EQ(ParseQuantity(text, kWhole).status().code(), absl::StatusCode::kInvalidArgument)
        << "'" << text << "'";
  }
  EXPECT_EQ(ParseQuantity("12 GPUs", kWhole).status().message(), "\"12 GPUs\" is not a quantity");
}

TEST(FormatQuantity, PrintsTheShortestForm) {
  const std::vector<ParseCase> cases = {
      {"0", kWhole, 0},
      {"0", kMilli, 0},
      {"8", kWhole, 8},
      {"1500m", kMilli, 1500},
      {"2", kMilli, 2000},
      {"96", kMilli, 96'000},
      {"1k", kMilli, 1'000'000},
      {"1024", kMilli, 1'024'000},
      {"1Ki", kWhole, 1024},
      {"1536Mi", kWhole, 1'610'612'736},
      {"16Gi", kWhole, int64_t{16} << 30},
      {"1G", kWhole, 1'000'000'000},
      {"1025", kWhole, 1025},
      {"-2k", kWhole, -2000},
      {"-1500m", kMilli, -1500},
      {"9223372036854775807", kWhole, kMax},
      {"0", kNano, 0},
      {"1", kNano, 1'000'000'000},
      {"1500m", kNano, 1'500'000'000},
      {"1500u", kNano, 1'500'000},
      {"1n", kNano, 1},
  };
  for (const ParseCase& c : cases) EXPECT_EQ(FormatQuantity(c.want, c.unit), c.text);
}

TEST(FormatQuantity, ParsesBackToTheSameNumber) {
  std::mt19937_64 random(20240817);
  for (int i = 0; i < 20'000; ++i) {
    int64_t value = static_cast<int64_t>(random()) >> (random() % 63);
    if (random() % 2) value = value / 1024 * 1024;
    if (random() % 3 == 0) value = value / 1'000'000 * 1'000'000;
    if (value == std::numeric_limits<int64_t>::min()) continue;
    for (QuantityUnit unit : {kWhole, kMilli, kNano}) {
      std::string text = FormatQuantity(value, unit);
      absl::StatusOr<int64_t> back = ParseQuantity(text, unit);
      ASSERT_TRUE(back.ok()) << text;
      ASSERT_EQ(*back, value) << text;
    }
  }
}

TEST(UnitOf, CountsOnlyCpuInThousandths) {
  EXPECT_EQ(UnitOf("cpu"), kMilli);
  EXPECT_EQ(UnitOf("memory"), kWhole);
  EXPECT_EQ(UnitOf("nvidia.com/gpu"), kWhole);
}

}  // namespace
}  // namespace muster::kube
