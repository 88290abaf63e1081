#include "cluster/known_failures.h"

#include <gtest/gtest.h>

#include "cluster/test_objects.h"

namespace muster::cluster {
namespace {

using Failures = KnownFailures<std::string>;

WantedShape ShapeOf(std::initializer_list<int64_t> gpus) {
  std::vector<kube::Pod> pods;
  for (int64_t each : gpus) pods.push_back(test::MakePod("p", {{"nvidia.com/gpu", each}}));
  std::vector<const kube::Pod*> pointers;
  for (const kube::Pod& pod : pods) pointers.push_back(&pod);
  return WantedShapeOf(pointers, "");
}

TEST(KnownFailures, HoldForNoFewerOfTheSame) {
  Failures failures;
  EXPECT_EQ(ShapeOf({8}), ShapeOf({8, 8}));
  failures.Note(ShapeOf({8}), 4, /*found_some=*/true, "four");
  EXPECT_EQ(failures.Find(ShapeOf({8}), 3), nullptr);
  ASSERT_NE(failures.Find(ShapeOf({8, 8}), 5), nullptr);
  EXPECT_EQ(failures.Find(ShapeOf({4}), 9), nullptr);
  failures.Note(ShapeOf({8}), 6, true, "six");
  EXPECT_EQ(*failures.Find(ShapeOf({8}), 6), "four");
  failures.Note(ShapeOf({8}), 2, true, "two");
  EXPECT_EQ(*failures.Find(ShapeOf({8}), 6), "two");
  failures.Clear();
  EXPECT_EQ(failures.Find(ShapeOf({8}), 6), nullptr);
}

TEST(KnownFailures, OfSeveralClassesOnlyWhereNoneHadRoom) {
  Failures failures;
  EXPECT_NE(ShapeOf({8, 4}), ShapeOf({8, 4, 4}));
  failures.Note(ShapeOf({8, 4}), 2, /*found_some=*/true, "");
  EXPECT_EQ(failures.Find(ShapeOf({8, 4}), 2), nullptr);
  failures.Note(ShapeOf({8, 4}), 2, /*found_some=*/false, "");
  EXPECT_NE(failures.Find(ShapeOf({8, 4}), 2), nullptr);
}

TEST(KnownFailures, WhoMayUseOtherNodesIsAnother) {
  Failures failures;
  WantedShape shape = ShapeOf({8});
  failures.Note(shape, 1, false, "");
  shape.may_use = {7};
  EXPECT_EQ(failures.Find(shape, 1), nullptr);
}

TEST(KnownFailures, WhatRelationsDecideIsNotCompared) {
  kube::Pod pod = test::MakePod("p", {{"nvidia.com/gpu", 8}});
  pod = test::With(pod, [](auto& spec) {
    spec.affinity.required_pod_affinity = {test::TermFor("app", "x", kube::kHostnameLabel)};
  });
  const WantedShape shape = WantedShapeOf({&pod}, "");
  Failures failures;
  failures.Note(shape, 1, false, "");
  EXPECT_EQ(failures.Find(shape, 1), nullptr);
}

TEST(KnownFailures, InVainForNoHigherPriorityAndNoFewer) {
  Failures failures;
  failures.NoteInVain(ShapeOf({8}), 4, 100);
  EXPECT_TRUE(failures.IsInVain(ShapeOf({8}), 4, 100));
  EXPECT_TRUE(failures.IsInVain(ShapeOf({8}), 5, 50));
  EXPECT_FALSE(failures.IsInVain(ShapeOf({8}), 3, 50));
  EXPECT_FALSE(failures.IsInVain(ShapeOf({8}), 4, 101));
}

}  // namespace
}  // namespace muster::cluster
