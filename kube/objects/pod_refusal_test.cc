#include "kube/objects/pod_refusal.h"

#include <gtest/gtest.h>

namespace muster::kube {
namespace {

TEST(RefusalText, IsWhatTheApiServerSaidWithoutThePodsName) {
  const std::string quota =
      "exceeded quota: gpu, requested: requests.nvidia.com/gpu=8, used: "
      "requests.nvidia.com/gpu=16, limited: requests.nvidia.com/gpu=16";
  EXPECT_EQ(RefusalText("Error creating: pods \"train-2-x7k9z\" is forbidden: " + quota), quota);
  EXPECT_EQ(RefusalText("(combined from similar events): Error creating: pods \"train-3-b\" is "
                        "forbidden: " +
                        quota),
            quota);
  EXPECT_EQ(RefusalText("create Pod web-0 in StatefulSet web failed error: pods \"web-0\" is "
                        "forbidden: " +
                        quota),
            quota);
  EXPECT_EQ(RefusalText("Error creating: pods \"a\" is forbidden: violates PodSecurity "
                        "\"restricted:latest\": privileged (container \"c\" must not set ...)"),
            "violates PodSecurity \"restricted:latest\": privileged (container \"c\" must not set "
            "...)");
  EXPECT_EQ(RefusalText("Error creating: pods \"a\" is forbidden: maximum cpu usage per Container "
                        "is 1, but limit is 2"),
            "maximum cpu usage per Container is 1, but limit is 2");
  EXPECT_EQ(RefusalText("Error creating: Pod \"a-x\" is invalid: spec.containers[0].image: "
                        "Required value"),
            "spec.containers[0].image: Required value");
  EXPECT_EQ(RefusalText("Error creating: admission webhook \"policy.example.com\" denied the "
                        "request: no\nteam label"),
            "admission webhook \"policy.example.com\" denied the request: no team label");
}

TEST(RefusalText, KeepsWhatItDoesNotKnow) {
  EXPECT_EQ(RefusalText(""), "");
  EXPECT_EQ(RefusalText("pods \""), "pods \"");
  EXPECT_EQ(RefusalText("pods \"a\" not found"), "pods \"a\" not found");
  EXPECT_EQ(RefusalText("create Claim data-web-0 Pod web-0 in StatefulSet web failed error: "
                        "persistentvolumeclaims \"data-web-0\" is forbidden: exceeded quota: s"),
            "persistentvolumeclaims \"data-web-0\" is forbidden: exceeded quota: s");
}

TEST(RefusalText, IsBoundedAndNeverEndsWithinACharacter) {
  EXPECT_EQ(RefusalText(std::string(5'000, 'a')).size(), 1'024);
  std::string odd = "a";
  while (odd.size() < 5'000) odd += "\u00e4";
  EXPECT_EQ(RefusalText(odd).size(), 1'023);
  EXPECT_LE(RefusalText(std::string(5'000, '\x80')).size(), 1'024);
}

TEST(RefusingQuota, IsTheOneThatTheWordsName) {
  EXPECT_EQ(RefusingQuota("exceeded quota: compute, requested: cpu=2, used: cpu=8, limited: cpu=8"),
            "compute");
  EXPECT_EQ(RefusingQuota("failed quota: compute: must specify limits.cpu for: main"), "compute");
  EXPECT_EQ(RefusingQuota("violates PodSecurity \"restricted:latest\""), "");
}

}  // namespace
}  // namespace muster::kube
