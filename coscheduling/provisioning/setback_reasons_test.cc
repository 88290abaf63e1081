#include <gtest/gtest.h>

#include "coscheduling/provisioning/setbacks.h"

namespace muster::coscheduling {
namespace {

Setback Sample(v1::ReasonCode code, int64_t times, bool stands, const std::string& words) {
  Setback setback;
  setback.code = code;
  setback.claim.name = "gpu-efa-x7k2p";
  setback.claim.node_pool = "gpu-efa";
  setback.claim.instance_type = "p4d.24xlarge";
  setback.claim.zone = "us-west-2a";
  setback.claim.words = words;
  setback.times = times;
  setback.last = absl::FromUnixSeconds(1'767'225'871);
  setback.stands = stands;
  return setback;
}

TEST(SetbackReasons, EachIsOneSentenceWithItsNumbers) {
  Setback incomplete = Sample(v1::NODES_INCOMPLETE, 1, true, "nvidia.com/gpu: 7 of 8 allocatable");
  incomplete.claim.node = "ip-10-0-1-7";
  Setback tainted = Sample(v1::STARTUP_TAINT_STAYS, 1, true, "taint example.com/agent:NoSchedule");
  tainted.claim.node = "ip-10-0-1-7";
  Setback bare = Sample(v1::INSUFFICIENT_CAPACITY, 1, false, "");
  bare.claim.instance_type = bare.claim.zone = "";
  struct Case {
    Setback setback;
    const char* sentence;
  };
  for (const Case& c : {
           Case{Sample(v1::INSUFFICIENT_CAPACITY, 5, false, "all were unavailable"),
                "p4d.24xlarge in us-west-2a (NodePool gpu-efa) was refused for insufficient "
                "capacity 5 times, last at 00:04:31Z: all were unavailable"},
           Case{bare,
                "a node (NodePool gpu-efa) was refused for insufficient capacity at "
                "00:04:31Z"},
           Case{Sample(v1::LAUNCH_FAILED, 1, true, "LaunchFailed: no such image"),
                "nodeclaim/gpu-efa-x7k2p (p4d.24xlarge in us-west-2a, NodePool gpu-efa) was made "
                "at 00:04:31Z and isn't launched: LaunchFailed: no such image"},
           Case{Sample(v1::LAUNCH_FAILED, 3, false, ""),
                "3 NodeClaims were deleted unlaunched, the last of them nodeclaim/gpu-efa-x7k2p "
                "(p4d.24xlarge in us-west-2a, NodePool gpu-efa), at 00:04:31Z"},
           Case{Sample(v1::NODE_NOT_REGISTERED, 1, true, "launched, its Node hasn't appeared"),
                "nodeclaim/gpu-efa-x7k2p (p4d.24xlarge in us-west-2a, NodePool gpu-efa) was "
                "launched at 00:04:31Z and isn't registered: launched, its Node hasn't appeared"},
           Case{incomplete,
                "node ip-10-0-1-7 (p4d.24xlarge in us-west-2a, NodePool gpu-efa) was registered "
                "at 00:04:31Z and lacks devices: nvidia.com/gpu: 7 of 8 allocatable"},
           Case{tainted,
                "node ip-10-0-1-7 (p4d.24xlarge in us-west-2a, NodePool gpu-efa) was registered "
                "at 00:04:31Z and keeps taint example.com/agent:NoSchedule"},
           Case{Sample(v1::NODE_TAKEN_BACK, 1, false, ""),
                "nodeclaim/gpu-efa-x7k2p (p4d.24xlarge in us-west-2a, NodePool gpu-efa) was taken "
                "back at 00:04:31Z"},
       }) {
    EXPECT_EQ(SentenceOf(c.setback), c.sentence);
  }
}

TEST(SetbackReasons, AReasonHasTheCodeAndWhatToDo) {
  const Reason reason =
      ReasonOf(Sample(v1::INSUFFICIENT_CAPACITY, 1, false, ""), "3 of 4 members have nodes; ");
  EXPECT_EQ(reason.code, v1::INSUFFICIENT_CAPACITY);
  EXPECT_EQ(reason.message,
            "3 of 4 members have nodes; p4d.24xlarge in us-west-2a (NodePool gpu-efa) was refused "
            "for insufficient capacity at 00:04:31Z");
  EXPECT_EQ(reason.fix,
            "wait for capacity, or let NodePool gpu-efa take more instance types, zones or "
            "capacity types");
}

TEST(SetbackReasons, LongWordsAreCutBetweenCharacters) {
  std::string words;
  while (words.size() < 400) words += "\xc3\xa9";
  words.insert(0, "x");
  const std::string sentence = SentenceOf(Sample(v1::NODE_TAKEN_BACK, 1, false, words));
  EXPECT_TRUE(sentence.ends_with("\xc3\xa9...")) << sentence;
}

}  // namespace
}  // namespace muster::coscheduling
