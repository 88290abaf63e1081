// Objects as large as the API server takes them, made to be as expensive as they can be: what they
// cost is bounded by their size.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <string>
#include <utility>

#include "kube/objects/decode.h"
#include "kube/objects/excerpt.h"

namespace muster::kube {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// An object of eight times the parts takes eight times as long, and somewhat more where caches are
// left; by quadratic work it would take 64 times as long.
constexpr int kLarger = 8;
constexpr double kMostGrowth = 30;

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

// The pod that `json` makes of `count` parts, after making sure that decoding it is linear work.
template <typename MakeJson>
Pod DecodeLinearly(int count, MakeJson json) {
  const auto least_seconds = [](const std::string& text) {
    double least = 1e9;
    for (int i = 0; i < 3; ++i) {
      const double begin = ThreadSeconds();
      EXPECT_TRUE(Decode<Pod>(text).ok());
      least = std::min(least, ThreadSeconds() - begin);
    }
    return least;
  };
  const std::string text = json(count);
  EXPECT_LT(least_seconds(text), kMostGrowth * least_seconds(json(count / kLarger)))
      << text.size() << " bytes";
  auto pod = Decode<Pod>(text);
  EXPECT_TRUE(pod.ok()) << pod.status();
  return pod.ok() ? *std::move(pod) : Pod{};
}

TEST(DecodeLimits, LabelsMayComeInAnyOrder) {
  const Pod pod = DecodeLinearly(100'000, [](int count) {
    return PodJson(",\"labels\":{" + Repeated(count, R"("l{0:06}":"v{0}")") + "}", "");
  });
  EXPECT_THAT(pod.meta.labels, SizeIs(100'000));
  EXPECT_EQ(pod.meta.labels.at("l000007"), "v7");
}

TEST(DecodeLimits, ResourcesMayComeInAnyOrder) {
  const Pod pod = DecodeLinearly(100'000, [](int count) {
    return PodJson("", R"("containers":[{"resources":{"requests":{)" +
                           Repeated(count, R"("r{0:06}":"{0}")") + "}}}]");
  });
  EXPECT_EQ(pod.spec->requests.Get("r000007"), 7);
}

TEST(DecodeLimits, ContainersMayBeMany) {
  const Pod pod = DecodeLinearly(20'000, [](int count) {
    return PodJson(
        "", "\"containers\":[" + Repeated(count, R"({{"name":"c{}"}})") + "]",
        "\"containerStatuses\":[" +
            Repeated(count, R"({{"name":"c{}","resources":{{"requests":{{"cpu":"1"}}}}}})") + "]");
  });
  EXPECT_EQ(pod.spec->requests.Get("cpu"), 20'000'000);
}

TEST(DecodeLimits, LabelKeysOfSelectorsMayBeMany) {
  const Pod pod = DecodeLinearly(30'000, [](int count) {
    return PodJson(
        R"(,"labels":{"a":"b"})",
        R"("affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{)"
        R"("topologyKey":"h","labelSelector":{"matchLabels":{)" +
            Repeated(count, R"("k{}":"v")") + R"(}},"matchLabelKeys":[)" +
            Repeated(3 * count, R"("a")") + "]}]}}");
  });
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

TEST(DecodeLimits, OfSeveralTheFirstFewAreTold) {
  EXPECT_EQ(FirstFew({}, 2), "");
  EXPECT_EQ(FirstFew({"a", "b"}, 2), "a; b");
  EXPECT_EQ(FirstFew({"a", "b", "c", "d"}, 2), "a; b; and 2 more");
}

}  // namespace
}  // namespace muster::kube
