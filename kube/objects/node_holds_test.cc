#include "kube/objects/node_holds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::kube {
namespace {

const absl::Time kNoon = absl::FromUnixSeconds(1'700'000'000);

// The node after the change.
StringMap Apply(StringMap annotations, const Holds& want) {
  for (const auto& [key, value] : ChangeHolds(annotations, want)) {
    if (value) {
      annotations[key] = *value;
    } else {
      annotations.erase(key);
    }
  }
  return annotations;
}

TEST(Holds, AFirstHoldProtectsTheNodeAndTheLastReleaseUndoesIt) {
  StringMap node = Apply({}, {{"gang-a", kNoon}});
  EXPECT_EQ(node.at("karpenter.sh/do-not-disrupt"), "true");
  EXPECT_EQ(ReadHolds(node), (Holds{{"gang-a", kNoon}}));
  node = Apply(node, {{"gang-a", kNoon}, {"gang-b", kNoon}});
  node = Apply(node, {{"gang-b", kNoon}});
  EXPECT_EQ(node.at("karpenter.sh/do-not-disrupt"), "true");
  EXPECT_TRUE(Apply(node, {}).empty());
}

TEST(Holds, AProtectionThatWasThereBeforeIsNeverTouched) {
  for (const char* value : {"true", "false", ""}) {
    const StringMap before = {{"karpenter.sh/do-not-disrupt", value}};
    StringMap node = Apply(before, {{"gang-a", kNoon}});
    EXPECT_EQ(node.at("karpenter.sh/do-not-disrupt"), value);
    EXPECT_EQ(Apply(node, {}), before);
  }
}

TEST(Holds, NothingIsWrittenWhileNothingChanges) {
  const StringMap node = Apply({}, {{"gang-a", kNoon}});
  EXPECT_TRUE(ChangeHolds(node, {{"gang-a", kNoon}}).empty());
  EXPECT_TRUE(ChangeHolds({}, {}).empty());
  EXPECT_TRUE(ChangeHolds({{"other", "x"}}, {}).empty());
}

TEST(Holds, AProtectionThatSomebodyRemovedComesBack) {
  StringMap node = Apply({}, {{"gang-a", kNoon}});
  node.erase("karpenter.sh/do-not-disrupt");
  EXPECT_EQ(Apply(node, {{"gang-a", kNoon}}).at("karpenter.sh/do-not-disrupt"), "true");
}

TEST(Holds, UnreadableEntriesAreDroppedAndTheRestKept) {
  const std::string good = R"("a":"2026-01-01T00:00:00Z")";
  EXPECT_EQ(ReadHolds({{"muster.dev/holds", "{" + good + R"(,"b":7,"c":"soon"})"}}).size(), 1u);
  EXPECT_TRUE(ReadHolds({{"muster.dev/holds", "not json"}}).empty());
  // And a later release cleans them away.
  EXPECT_TRUE(Apply({{"muster.dev/holds", "not json"}}, {}).empty());
}

}  // namespace
}  // namespace muster::kube
