#include "extender/gpu_time.h"

#include <gtest/gtest.h>

#include <string>

namespace muster::extender {
namespace {

v1::Node* Add(v1::ListNodesResponse* nodes, int64_t gpus, int64_t free) {
  v1::Node* node = nodes->add_nodes();
  (*node->mutable_allocatable())["nvidia.com/gpu"] = gpus;
  (*node->mutable_free())["nvidia.com/gpu"] = free;
  return node;
}

TEST(GpuTime, WhatKarpenterLaunchedIsBoughtUntilItIsGone) {
  v1::ListNodesResponse nodes;
  Add(&nodes, 8, 8)->set_stage(v1::USABLE);  // nobody's
  v1::Node* node = Add(&nodes, 8, 0);
  node->set_node_claim("a");
  node->set_stage(v1::REQUESTED);
  const absl::Time begin = absl::FromUnixSeconds(1000);
  GpuTime time;
  time.Tell(begin, &nodes);
  node->set_stage(v1::LAUNCHED);
  time.Tell(begin + absl::Seconds(10), &nodes);
  EXPECT_EQ(time.bought(), 0);
  node->set_stage(v1::GOING);
  time.Tell(begin + absl::Seconds(11), &nodes);
  EXPECT_EQ(time.bought(), 8);
  nodes.mutable_nodes()->RemoveLast();
  time.Tell(begin + absl::Seconds(13), &nodes);
  time.Tell(begin + absl::Seconds(99), &nodes);
  EXPECT_EQ(time.bought(), 24);
  EXPECT_EQ(time.held_idle(), 0);
}

TEST(GpuTime, WhatIsFreeOnNodesThatAreHeldIsIdle) {
  v1::ListNodesResponse nodes;
  (*Add(&nodes, 8, 6)->mutable_holds())["uid"];
  Add(&nodes, 8, 8);
  const absl::Time begin = absl::FromUnixSeconds(1000);
  GpuTime time;
  time.Tell(begin, &nodes);
  time.Tell(begin + absl::Seconds(2), &nodes);
  EXPECT_EQ(time.held_idle(), 12);
  EXPECT_EQ(time.bought(), 0);
}

TEST(GpuTime, WhileNobodyHereKnowsNothingCounts) {
  v1::ListNodesResponse nodes;
  (*Add(&nodes, 8, 8)->mutable_holds())["uid"];
  const absl::Time begin = absl::FromUnixSeconds(1000);
  GpuTime time;
  time.Tell(begin, nullptr);
  time.Tell(begin + absl::Seconds(1), &nodes);
  time.Tell(begin + absl::Seconds(2), nullptr);
  time.Tell(begin + absl::Seconds(90), &nodes);
  time.Tell(begin + absl::Seconds(91), &nodes);
  EXPECT_EQ(time.held_idle(), 16);
}

}  // namespace
}  // namespace muster::extender
