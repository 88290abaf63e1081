#include "kube/objects/meta.h"

#include <gtest/gtest.h>

#include <vector>

namespace muster::kube {
namespace {

struct MatchCase {
  const char* name;
  Requirement requirement;
  std::optional<std::string> value;  // of the label; absent label without
  bool want;
};

TEST(Requirement, MatchesAsKubernetesDoes) {
  using enum SelectorOperator;
  const std::vector<MatchCase> cases = {
      {"In with the value", {"zone", kIn, {"a", "b"}}, "b", true},
      {"In with another value", {"zone", kIn, {"a", "b"}}, "c", false},
      {"In without the label", {"zone", kIn, {"a"}}, {}, false},
      {"In of the empty value", {"zone", kIn, {""}}, "", true},
      {"NotIn with the value", {"zone", kNotIn, {"a"}}, "a", false},
      {"NotIn with another value", {"zone", kNotIn, {"a"}}, "b", true},
      {"NotIn without the label matches", {"zone", kNotIn, {"a"}}, {}, true},
      {"Exists with an empty value", {"zone", kExists, {}}, "", true},
      {"Exists without the label", {"zone", kExists, {}}, {}, false},
      {"DoesNotExist without the label", {"zone", kDoesNotExist, {}}, {}, true},
      {"DoesNotExist with the label", {"zone", kDoesNotExist, {}}, "a", false},
      {"Gt above", {"gpus", kGt, {"4"}}, "8", true},
      {"Gt equal", {"gpus", kGt, {"8"}}, "8", false},
      {"Gt compares numbers, not text", {"gpus", kGt, {"9"}}, "10", true},
      {"Gt of a label that isn't a number", {"gpus", kGt, {"4"}}, "many", false},
      {"Gt of a label with a space", {"gpus", kGt, {"4"}}, " 8", false},
      {"Gt with a sign", {"gpus", kGt, {"+4"}}, "+8", true},
      {"Gt with two signs", {"gpus", kGt, {"4"}}, "+-8", false},
      {"Gt without the label", {"gpus", kGt, {"4"}}, {}, false},
      {"Gt with a bound past int64", {"gpus", kGt, {"9223372036854775808"}}, "8", false},
      {"Gt with two bounds", {"gpus", kGt, {"1", "2"}}, "8", false},
      {"Lt below", {"gpus", kLt, {"8"}}, "-1", true},
      {"Lt equal", {"gpus", kLt, {"8"}}, "8", false},
  };
  for (const MatchCase& c : cases) {
    EXPECT_EQ(c.requirement.Matches(c.value ? &*c.value : nullptr), c.want) << c.name;
  }
}

TEST(Requirement, PrintsLikeALabelSelector) {
  using enum SelectorOperator;
  EXPECT_EQ((Requirement{"zone", kIn, {"a"}}.ToString()), "zone=a");
  EXPECT_EQ((Requirement{"zone", kIn, {"a", "b"}}.ToString()), "zone in (a,b)");
  EXPECT_EQ((Requirement{"zone", kNotIn, {"a", "b"}}.ToString()), "zone notin (a,b)");
  EXPECT_EQ((Requirement{"zone", kExists, {}}.ToString()), "zone");
  EXPECT_EQ((Requirement{"zone", kDoesNotExist, {}}.ToString()), "!zone");
  EXPECT_EQ((Requirement{"gpus", kGt, {"4"}}.ToString()), "gpus>4");
}

TEST(LabelSelector, NeedsEveryRequirementAndIfEmptyMatchesEverything) {
  LabelSelector selector{
      {{"app", SelectorOperator::kIn, {"train"}}, {"old", SelectorOperator::kDoesNotExist, {}}}};
  EXPECT_TRUE(selector.Matches({{"app", "train"}}));
  EXPECT_FALSE(selector.Matches({{"app", "train"}, {"old", ""}}));
  EXPECT_FALSE(selector.Matches({}));
  EXPECT_TRUE(LabelSelector{}.Matches({}));
}

TEST(IsOlderVersion, ComparesDecimalVersionsByValue) {
  EXPECT_TRUE(IsOlderVersion("9", "10"));
  EXPECT_FALSE(IsOlderVersion("10", "9"));
  EXPECT_FALSE(IsOlderVersion("10", "10"));
  EXPECT_TRUE(IsOlderVersion("99999999999999999998", "99999999999999999999"));
}

TEST(IsOlderVersion, NeverCallsAnUnorderedVersionOlder) {
  for (const char* odd : {"", "0", "01", "1a", "-1", "opaque"}) {
    EXPECT_FALSE(IsOlderVersion(odd, "100")) << odd;
    EXPECT_FALSE(IsOlderVersion("100", odd)) << odd;
  }
}

TEST(ObjectMeta, FindsItsControllerLabelsAndName) {
  ObjectMeta meta;
  meta.name = "worker-0";
  EXPECT_EQ(meta.FullName(), "worker-0");
  meta.name_space = "ml";
  EXPECT_EQ(meta.FullName(), "ml/worker-0");
  EXPECT_EQ(meta.Controller(), nullptr);
  meta.owners = {{"v1", "Node", "a", "u1", false}, {"batch/v1", "Job", "b", "u2", true}};
  ASSERT_NE(meta.Controller(), nullptr);
  EXPECT_EQ(meta.Controller()->kind, "Job");
  meta.labels["app"] = "train";
  ASSERT_NE(meta.Label("app"), nullptr);
  EXPECT_EQ(*meta.Label("app"), "train");
  EXPECT_EQ(meta.Annotation("app"), nullptr);
}

}  // namespace
}  // namespace muster::kube
