#include "cluster/tombstones.h"

#include <gtest/gtest.h>

namespace muster::cluster {
namespace {

TEST(Tombstones, TellWhatIsGone) {
  Tombstones gone;
  EXPECT_FALSE(gone.Has("a"));
  gone.Add("a");
  EXPECT_TRUE(gone.Has("a"));
  EXPECT_FALSE(gone.Has("b"));
}

TEST(Tombstones, AnObjectWithoutAUidIsNotTakenForGone) {
  Tombstones gone;
  gone.Add("");
  EXPECT_FALSE(gone.Has(""));
}

TEST(Tombstones, TheOldestGoFirst) {
  Tombstones gone;
  gone.Add("first");
  for (size_t i = 1; i < Tombstones::kRemembered; ++i) {
    gone.Add("n" + std::to_string(i));
    gone.Add("n" + std::to_string(i));  // said twice, kept once
  }
  EXPECT_TRUE(gone.Has("first"));
  gone.Add("one more");
  EXPECT_FALSE(gone.Has("first"));
  EXPECT_TRUE(gone.Has("n1"));
  EXPECT_TRUE(gone.Has("one more"));
}

}  // namespace
}  // namespace muster::cluster
