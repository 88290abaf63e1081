// Objects as large as the API server takes them, made to be as expensive as they can be: what they
// cost is bounded by their size.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <iterator>
#include <string>

#include "kube/objects/decode.h"
#include "kube/objects/excerpt.h"

namespace muster::kube {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Linear work takes a tenth of this, even under a sanitizer; quadratic work several times this.
constexpr double kMostSeconds = 5;

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// `format` with each number from `count` - 1 down to 0, joined by commas.
std::string Repeated(int count, fmt::string_view format) {
  std::string text;
  for (int i = count; i-- > 0;) {
    fmt::format_to(std::back_inserter(text), fmt::runtime(format), i);
    if (i > 0) text += ',';
  }
  return text;
}

std::string PodJson(const std::string& metadata, const std::string& spec,
                    const std::string& status = "") {
  return fmt::format(R"({{"metadata":{{"name":"p"{}}},"spec":{{{}}},"status":{{{}}}}})", metadata,
                     spec, status);
}

Pod DecodeInTime(const std::string& json) {
  const double begin = ThreadSeconds();
  const auto pod = Decode<Pod>(json);
  EXPECT_LT(ThreadSeconds() - begin, kMostSeconds) << json.size() << " bytes";
  EXPECT_TRUE(pod.ok()) << pod.status();
  return pod.ok() ? *pod : Pod{};
}

TEST(DecodeLimits, LabelsMayComeInAnyOrder) {
  const Pod pod =
      DecodeInTime(PodJson(",\"labels\":{" + Repeated(100'000, R"("l{0:06}":"v{0}")") + "}", ""));
  EXPECT_THAT(pod.meta.labels, SizeIs(100'000));
  EXPECT_EQ(pod.meta.labels.at("l000007"), "v7");
}

TEST(DecodeLimits, ResourcesMayComeInAnyOrder) {
  const Pod pod = DecodeInTime(PodJson("", R"("containers":[{"resources":{"requests":{)" +
                                               Repeated(100'000, R"("r{0:06}":"{0}")") + "}}}]"));
  EXPECT_EQ(pod.spec->requests.Get("r000007"), 7);
}

TEST(DecodeLimits, ContainersMayBeMany) {
  const Pod pod = DecodeInTime(PodJson(
      "", "\"containers\":[" + Repeated(20'000, R"({{"name":"c{}"}})") + "]",
      "\"containerStatuses\":[" +
          Repeated(20'000, R"({{"name":"c{}","resources":{{"requests":{{"cpu":"1"}}}}}})") + "]"));
  EXPECT_EQ(pod.spec->requests.Get("cpu"), 20'000'000);
}

TEST(DecodeLimits, LabelKeysOfSelectorsMayBeMany) {
  const Pod pod = DecodeInTime(
      PodJson(R"(,"labels":{"a":"b"})",
              R"("affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{)"
              R"("topologyKey":"h","labelSelector":{"matchLabels":{)" +
                  Repeated(30'000, R"("k{}":"v")") + R"(}},"matchLabelKeys":[)" +
                  Repeated(100'000, R"("a")") + "]}]}}"));
  EXPECT_THAT(pod.spec->affinity.required_pod_affinity.at(0).selector->requirements,
              SizeIs(30'001));
}

TEST(DecodeLimits, WhatIsWrongIsSaidInBrief) {
  const std::string huge(1'000'000, 'x');
  const auto pool = Decode<NodePool>(R"({"spec":{"limits":{"cpu":")" + huge + "\"}}}");
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_THAT(pool->error, HasSubstr("spec.limits.cpu: \"xxx"));
  EXPECT_LE(pool->error.size(), kMaxMessageBytes + 3);
  const auto node = Decode<Node>(R"({"metadata":{"labels":{")" + huge + "\":7}}}");
  EXPECT_LE(node.status().message().size(), kMaxMessageBytes + 3);
}

TEST(DecodeLimits, AnExcerptEndsBetweenTwoCharacters) {
  EXPECT_EQ(Excerpt("abc", 3), "abc");
  EXPECT_EQ(Excerpt("abcd", 3), "abc...");
  EXPECT_EQ(Excerpt("ab\xC3\xA9z", 3), "ab...");
  EXPECT_EQ(Excerpt("\xF0\x9F\x98\x80z", 3), "...");
  EXPECT_EQ(Excerpt("what is \xE9?"), "what is ??");
}

}  // namespace
}  // namespace muster::kube
