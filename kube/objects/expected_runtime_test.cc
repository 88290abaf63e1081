#include "kube/objects/expected_runtime.h"

#include <gtest/gtest.h>

namespace muster::kube {
namespace {

ObjectMeta Saying(const std::string& name, const std::string& runtime) {
  ObjectMeta meta;
  meta.name = name;
  meta.annotations[std::string(kExpectedRuntimeAnnotation)] = runtime;
  return meta;
}

TEST(ExpectedRuntime, IsThatOfTheFirstWhoSaysAnything) {
  const ObjectMeta silent;
  const ObjectMeta pod = Saying("pod", "2h30m");
  const ObjectMeta group = Saying("group", "5m");
  EXPECT_EQ(ExpectedRuntimeOf({}), ExpectedRuntime());
  EXPECT_EQ(ExpectedRuntimeOf({&silent}), ExpectedRuntime());
  EXPECT_EQ(ExpectedRuntimeOf({&silent, &pod, &group}).time, absl::Minutes(150));
  EXPECT_EQ(ExpectedRuntimeOf({&silent, &group}).time, absl::Minutes(5));
}

TEST(ExpectedRuntime, WhatIsNoLengthOfTimeIsNamed) {
  for (const char* wrong : {"", "soon", "5", "-1m", "0s", "inf"}) {
    const ObjectMeta meta = Saying("train", wrong);
    const ExpectedRuntime runtime = ExpectedRuntimeOf({&meta});
    EXPECT_EQ(runtime.time, absl::InfiniteDuration()) << wrong;
    EXPECT_EQ(runtime.error, std::string("annotation muster.dev/expected-runtime of train is \"") +
                                 wrong + "\", must be a duration such as 2h30m");
  }
}

}  // namespace
}  // namespace muster::kube
