#include "cluster/disruption_budgets.h"

#include <gtest/gtest.h>

#include "cluster/test_objects.h"

namespace muster::cluster {
namespace {

kube::PodDisruptionBudget Budget(const std::string& name, int64_t allowed,
                                 const std::string& label) {
  kube::PodDisruptionBudget budget;
  budget.meta.name = name;
  budget.meta.name_space = "default";
  budget.selector = kube::LabelSelector{{test::In(label, {"yes"})}};
  budget.disruptions_allowed = allowed;
  return budget;
}

kube::Pod Running(const std::string& name, const std::string& label) {
  return test::BoundTo(test::Labelled(test::MakePod(name), label, "yes"), "node");
}

TEST(DisruptionBudgets, AllowAsManyAsTheySayTogether) {
  const kube::Pod a = Running("a", "kept");
  const kube::Pod b = Running("b", "kept");
  DisruptionBudgets budgets;
  EXPECT_TRUE(budgets.Allow({&a, &b}));
  EXPECT_TRUE(budgets.Upsert(Budget("kept", 1, "kept")));
  EXPECT_FALSE(budgets.Upsert(Budget("kept", 1, "kept")));
  EXPECT_TRUE(budgets.Allow({&a}));
  EXPECT_FALSE(budgets.Allow({&a, &b}));
  kube::Pod pending = b;
  pending.phase = kube::PodPhase::kPending;
  EXPECT_TRUE(budgets.Allow({&a, &pending}));
  kube::Pod elsewhere = b;
  elsewhere.meta.name_space = "other";
  EXPECT_TRUE(budgets.Allow({&a, &elsewhere}));
  EXPECT_TRUE(budgets.Remove(Budget("kept", 1, "kept")));
  EXPECT_FALSE(budgets.Remove(Budget("kept", 1, "kept")));
  EXPECT_TRUE(budgets.Allow({&a, &b}));
}

TEST(DisruptionBudgets, LetNoPodOfTwoBudgetsGo) {
  const kube::Pod pod = test::Labelled(Running("a", "kept"), "held", "yes");
  DisruptionBudgets budgets;
  budgets.Upsert(Budget("kept", 5, "kept"));
  EXPECT_TRUE(budgets.Allow({&pod}));
  budgets.Upsert(Budget("held", 5, "held"));
  EXPECT_FALSE(budgets.Allow({&pod}));
}

}  // namespace
}  // namespace muster::cluster
