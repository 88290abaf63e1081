#include "printers/tables.h"

#include <gtest/gtest.h>

namespace muster::printers {
namespace {

v1::Gang Sample() {
  v1::Gang gang;
  gang.set_namespace_("default");
  gang.set_name("job");
  gang.set_kind("PodGroup");
  gang.set_min_member(2);
  gang.set_attempt(1);
  gang.set_state(v1::PROVISIONING);
  gang.mutable_state_since()->set_seconds(1'700'000'000);
  gang.mutable_deadline()->set_seconds(1'700'000'600);
  gang.mutable_reason()->set_code(v1::NODES_COMING);
  gang.mutable_reason()->set_message("1 of 2 nodes usable; waiting for nodeclaim/b (launched)");
  v1::Member* first = gang.add_members();
  first->set_name("job-0");
  first->set_state(v1::MEMBER_BOUND);
  first->set_node("ip-10-0-0-1");
  v1::Member* second = gang.add_members();
  second->set_name("job-1");
  second->set_state(v1::SIGNALLED);
  second->set_planned_node("nodeclaim/b");
  v1::Node* node = gang.add_nodes();
  node->set_name("ip-10-0-0-1");
  node->set_node_claim("a");
  node->set_node_pool("gpu");
  node->set_instance_type("g6.2xlarge");
  node->set_stage(v1::USABLE);
  (*node->mutable_holds())["uid"].set_seconds(1'700'000'660);
  v1::Node* coming = gang.add_nodes();
  coming->set_node_claim("b");
  coming->set_stage(v1::LAUNCHED);
  coming->set_message("launched");
  return gang;
}

TEST(Tables, WhatEachNodePoolCouldDoIsTold) {
  v1::Feasibility feasibility;
  feasibility.set_asked(4);
  v1::NodePoolFinding* cpu = feasibility.add_node_pools();
  cpu->set_node_pool("cpu");
  cpu->set_code(v1::EFA_NOT_SUPPORTED);
  cpu->set_message("no type has EFA");
  cpu->set_fix("allow types with it");
  v1::NodePoolFinding* gpu = feasibility.add_node_pools();
  gpu->set_node_pool("gpu-efa");
  gpu->set_pods(4);
  EXPECT_EQ(NodePoolTable(feasibility),
            "NODEPOOL  PODS    RULED OUT BY       WHY              WHAT WOULD CHANGE IT\n"
            "cpu       0 of 4  EFA_NOT_SUPPORTED  no type has EFA  allow types with it\n"
            "gpu-efa   4 of 4  -                  -                -\n");
}

TEST(Tables, WhatWentWrongWithAGangsNodesIsTold) {
  v1::Gang gang;
  v1::Setback* refused = gang.add_setbacks();
  refused->set_code(v1::INSUFFICIENT_CAPACITY);
  refused->set_node_claim("gpu-x7k2p");
  refused->set_node_pool("gpu");
  refused->set_instance_type("p4d.24xlarge");
  refused->set_zone("us-west-2a");
  refused->set_times(5);
  refused->mutable_last()->set_seconds(1'700'000'000);
  refused->set_message("sold out");
  v1::Setback* tainted = gang.add_setbacks();
  tainted->set_code(v1::STARTUP_TAINT_STAYS);
  tainted->set_node("ip-1");
  tainted->set_node_pool("gpu");
  tainted->set_times(1);
  tainted->mutable_last()->set_seconds(1'700'000'000);
  tainted->set_stands(true);
  EXPECT_EQ(SetbackTable(gang),
            "SETBACK                       TIMES  LAST                  NODEPOOL  TYPE          "
            "ZONE        NODE                 WHY\n"
            "INSUFFICIENT_CAPACITY         5      2023-11-14T22:13:20Z  gpu       p4d.24xlarge  "
            "us-west-2a  nodeclaim/gpu-x7k2p  sold out\n"
            "STARTUP_TAINT_STAYS (stands)  1      2023-11-14T22:13:20Z  gpu       -             "
            "-           ip-1                 -\n");
  EXPECT_NE(ExplainGang(gang).find(SetbackTable(gang)), std::string::npos);
}

TEST(Tables, WhereNodesCanBeMadeForAGangIsListedInTheOrderOfTrying) {
  v1::Gang gang;
  gang.add_node_sources()->set_zone("us-west-2b");
  gang.add_node_sources()->set_flavor("spot");
  v1::NodeSource* last = gang.add_node_sources();
  last->set_zone("us-west-2a");
  last->set_lacking("failed, not before 10:00:00Z");
  EXPECT_EQ(NodeSourceTable(gang),
            "FLAVOR  ZONE        LACKS\n"
            "-       us-west-2b  -\n"
            "spot    -           -\n"
            "-       us-west-2a  failed, not before 10:00:00Z\n");
  EXPECT_NE(ExplainGang(gang).find(NodeSourceTable(gang)), std::string::npos);
}

TEST(Tables, AGangIsExplainedWithItsMembersAndNodes) {
  EXPECT_EQ(ExplainGang(Sample()),
            "Gang:      default/job (PodGroup, minMember 2, attempt 1)\n"
            "State:     PROVISIONING since 2023-11-14T22:13:20Z\n"
            "Reason:    NODES_COMING: 1 of 2 nodes usable; waiting for nodeclaim/b (launched)\n"
            "Deadline:  2023-11-14T22:23:20Z\n"
            "\n"
            "MEMBER  STATE         NODE\n"
            "job-0   MEMBER_BOUND  ip-10-0-0-1\n"
            "job-1   SIGNALLED     expected on nodeclaim/b\n"
            "\n"
            "NODE         CLAIM  POOL  TYPE        STAGE     HELD  NOTE\n"
            "ip-10-0-0-1  a      gpu   g6.2xlarge  USABLE    held  \n"
            "-            b      -     -           LAUNCHED  -     launched\n");
}

TEST(Tables, GangsAreOneLineEach) {
  v1::ListGangsResponse gangs;
  *gangs.add_gangs() = Sample();
  EXPECT_EQ(GangTable(gangs),
            "NAMESPACE  NAME  STATE         BOUND  REASON        MESSAGE\n"
            "default    job   PROVISIONING  1/2    NODES_COMING  1 of 2 nodes usable; waiting for "
            "nodeclaim/b (launched)\n");
}

TEST(Tables, AnEmptyListHasItsHeading) {
  EXPECT_EQ(GangTable({}), "NAMESPACE  NAME  STATE  BOUND  REASON  MESSAGE\n");
}

TEST(QueueTable, ShowsUsageAndWhoWaits) {
  v1::ListQueuesResponse list;
  v1::Queue* queue = list.add_queues();
  queue->set_name("gpus");
  queue->set_pending(1);
  queue->set_admitted(2);
  for (const char* resource : {"nvidia.com/gpu", "memory"}) {
    v1::FlavorUsage* usage = queue->add_usage();
    usage->set_flavor("spot");
    usage->set_resource(resource);
    const int64_t unit = std::string(resource) == "memory" ? int64_t{1} << 30 : 1;
    usage->set_nominal(8 * unit);
    usage->set_reserved(6 * unit);
  }
  v1::PendingGang* pending = queue->add_pending_gangs();
  pending->set_namespace_("team");
  pending->set_name("job");
  pending->mutable_reason()->set_code(v1::QUOTA_IN_USE);
  pending->mutable_reason()->set_message("spot has 2 unused of the 4 asked for");
  list.add_queues()->set_namespace_("team");  // LocalQueues aren't shown
  EXPECT_EQ(QueueTable(list),
            "QUEUE  COHORT  PENDING  ADMITTED  FLAVOR  RESOURCE        USED  NOMINAL  BORROWED\n"
            "gpus   -       1        2         spot    nvidia.com/gpu  6     8        0\n"
            "                                  spot    memory          6Gi   8Gi      0\n"
            "\n"
            "QUEUE  PLACE  GANG      REASON        MESSAGE\n"
            "gpus   1      team/job  QUOTA_IN_USE  spot has 2 unused of the 4 asked for\n");
}

}  // namespace
}  // namespace muster::printers
