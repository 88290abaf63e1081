#include "writes/answers.h"

#include <gtest/gtest.h>

#include "cluster/snapshot.h"

namespace muster::writes {
namespace {

TEST(Answers, AreObservedAsTheirKind) {
  const Observation node =
      ObservationOf(AnswerKind::kNode, R"({"metadata": {"name": "a", "uid": "n-1"}})");
  ASSERT_NE(node, nullptr);
  coscheduling::Engine engine{coscheduling::EngineOptions()};
  node(engine);
  EXPECT_NE(engine.snapshot().FindNode("a"), nullptr);
  for (const AnswerKind kind :
       {AnswerKind::kPod, AnswerKind::kPodGroup, AnswerKind::kJob, AnswerKind::kJobSet,
        AnswerKind::kPyTorchJob, AnswerKind::kTrainJob, AnswerKind::kWorkload}) {
    const Observation other =
        ObservationOf(kind, R"({"metadata": {"namespace": "team", "name": "a", "uid": "o-1"}})");
    EXPECT_NE(other, nullptr) << static_cast<int>(kind);
  }
}

TEST(Answers, WithoutAnObjectTellNothing) {
  EXPECT_EQ(ObservationOf(AnswerKind::kNone, R"({"metadata": {"name": "a"}})"), nullptr);
  EXPECT_EQ(ObservationOf(AnswerKind::kPod, ""), nullptr);
  EXPECT_EQ(ObservationOf(AnswerKind::kNode, "not JSON"), nullptr);
}

}  // namespace
}  // namespace muster::writes
