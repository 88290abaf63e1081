#include "kube/simulators/label_requirements.h"

#include <gtest/gtest.h>

namespace muster::kube::simulators {
namespace {

using Op = SelectorOperator;

ValueSet Set(Op op, std::vector<std::string> values = {}) {
  return ValueSet::From({"key", op, std::move(values)});
}

TEST(ValueSetTest, IntersectionsFollowTheOperators) {
  EXPECT_EQ(Set(Op::kIn, {"a", "b"}).Intersection(Set(Op::kIn, {"b", "c"})).ToString("k"),
            "k In [b]");
  EXPECT_EQ(Set(Op::kIn, {"a", "b"}).Intersection(Set(Op::kNotIn, {"b"})).ToString("k"),
            "k In [a]");
  EXPECT_EQ(Set(Op::kNotIn, {"a"}).Intersection(Set(Op::kNotIn, {"b"})).ToString("k"),
            "k NotIn [a b]");
  EXPECT_EQ(Set(Op::kExists).Intersection(Set(Op::kIn, {"a"})).ToString("k"), "k In [a]");
  EXPECT_EQ(Set(Op::kDoesNotExist).Intersection(Set(Op::kExists)).ToString("k"), "k DoesNotExist");
  EXPECT_EQ(Set(Op::kIn, {"1", "5", "9", "x"})
                .Intersection(Set(Op::kGt, {"1"}).Intersection(Set(Op::kLt, {"9"})))
                .ToString("k"),
            "k In [5]");
  EXPECT_FALSE(Set(Op::kGt, {"5"}).Intersects(Set(Op::kLt, {"5"})));
  EXPECT_FALSE(Set(Op::kIn, {"a"}).Intersects(Set(Op::kDoesNotExist)));
}

TEST(LabelRequirementsTest, MissingKeysRuleOutWantedValuesUnlessTheCloudSetsThem) {
  LabelRequirements pool = LabelRequirements::FromLabels({{"team", "ml"}});
  LabelRequirements wanted;
  wanted.Add("topology.kubernetes.io/zone", Set(Op::kIn, {"a"}));
  EXPECT_EQ(pool.WhyIncompatible(wanted, true), "");
  EXPECT_EQ(pool.WhyIncompatible(wanted, false),
            "label \"topology.kubernetes.io/zone\" does not have known values");
  wanted.Add("absent", Set(Op::kNotIn, {"x"}));
  EXPECT_EQ(pool.WhyIncompatible(wanted, true), "") << "absence meets NotIn";
  wanted.Add("team", Set(Op::kIn, {"web"}));
  EXPECT_EQ(pool.WhyIncompatible(wanted, true), "key team, team In [web] not in team In [ml]");
}

}  // namespace
}  // namespace muster::kube::simulators
