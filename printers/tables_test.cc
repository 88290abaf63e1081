#include "printers/tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

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
  gang.mutable_state_since()->set_nanos(500'000'000);
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
  EXPECT_NE(ExplainGang(gang, std::nullopt, {}).find(SetbackTable(gang)), std::string::npos);
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
  EXPECT_NE(ExplainGang(gang, std::nullopt, {}).find(NodeSourceTable(gang)), std::string::npos);
}

// Ten minutes after what Sample tells of.
View Later() { return {.now = absl::FromUnixSeconds(1'700'000'600)}; }

TEST(Tables, AGangIsExplainedWithWhatItWaitsForInOrder) {
  EXPECT_EQ(ExplainGang(Sample(), std::nullopt, Later()),
            "Gang:      default/job (PodGroup, minMember 2, attempt 1, priority 0)\n"
            "State:     PROVISIONING for 10m, since 2023-11-14T22:13:20Z\n"
            "Reason:    NODES_COMING: 1 of 2 nodes usable; waiting for nodeclaim/b (launched)\n"
            "\n"
            "STEP     IS     DETAIL\n"
            "members  done   2 of 2 exist\n"
            "quota    done   not asked for: it names no queue\n"
            "nodes    now    1 of 2 usable, 1 LAUNCHED; given up at 2023-11-14T22:23:20Z\n"
            "start    later  -\n"
            "\n"
            "MEMBER  STATE         NODE\n"
            "job-0   MEMBER_BOUND  ip-10-0-0-1\n"
            "job-1   SIGNALLED     expected on nodeclaim/b\n"
            "\n"
            "NODE         CLAIM  POOL  TYPE        STAGE     HELD  NOTE\n"
            "ip-10-0-0-1  a      gpu   g6.2xlarge  USABLE    held  \n"
            "-            b      -     -           LAUNCHED  -     launched\n");
}

TEST(Tables, WhoWaitsForQuotaIsToldHisPlace) {
  v1::Gang gang = Sample();
  gang.set_state(v1::WAITING_FOR_QUOTA);
  gang.set_queue("team");
  gang.clear_nodes();
  gang.mutable_reason()->set_code(v1::QUOTA_IN_USE);
  gang.mutable_reason()->set_message("spot has 2 unused of the 4 asked for");
  gang.mutable_reason()->set_fix("wait, or ask for less");
  const auto quota = [&](int64_t place) {
    const std::string text = ExplainGang(gang, PlaceInLine{"gpus", place}, Later());
    const size_t at = text.find("quota ");
    return text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(quota(1), "quota    now    first in line in ClusterQueue gpus");
  EXPECT_EQ(quota(7), "quota    now    place 7 in line in ClusterQueue gpus");
  EXPECT_EQ(quota(0), "quota    now    behind the first hundred in ClusterQueue gpus");
  const std::string text = ExplainGang(gang, PlaceInLine{"gpus", 1}, Later());
  EXPECT_NE(text.find("Fix:       wait, or ask for less\nQueue:     team of gpus\n"),
            std::string::npos)
      << text;
  // Who may not see the queue is told the rest.
  EXPECT_NE(ExplainGang(gang, std::nullopt, Later()).find("quota    now    -\n"),
            std::string::npos);
  gang.set_state(v1::PROVISIONING);
  gang.mutable_admitted_at()->set_seconds(1'700'000'000);
  gang.add_flavors("spot");
  EXPECT_EQ(quota(0), "quota    done   given at 2023-11-14T22:13:20Z in spot");
}

std::string GangTable(const v1::Gang& gang, const View& view) {
  return FormatTable({GangHeads(view), GangCells(gang, view)});
}

TEST(Tables, GangsAreOneLineEach) {
  v1::Gang gang = Sample();
  gang.mutable_created_at()->set_seconds(1'700'000'000);
  gang.set_queue("team");
  EXPECT_EQ(GangTable(gang, Later()),
            "NAME  STATE         REASON        BOUND  QUEUE  AGE\n"
            "job   PROVISIONING  NODES_COMING  1/2    team   10m\n");
  View all = Later();
  all.namespaces = all.wide = true;
  gang.clear_created_at();
  EXPECT_EQ(GangTable(gang, all),
            "NAMESPACE  NAME  STATE         REASON        BOUND  QUEUE  AGE  FLAVORS  MESSAGE\n"
            "default    job   PROVISIONING  NODES_COMING  1/2    team   -    -        "
            "1 of 2 nodes usable; waiting for nodeclaim/b (launched)\n");
}

TEST(Tables, RowsThatAreAddedStandBelowTheOthers) {
  TableForm form;
  EXPECT_EQ(FormatTable({{"NAME", "STATE"}, {"a-long-name", "READY"}}, &form),
            "NAME         STATE\na-long-name  READY\n");
  EXPECT_EQ(FormatTable({{"job", "BOUND"}}, &form), "job          BOUND\n");
}

TEST(Tables, StatesAreColouredWhereColoursAreWanted) {
  TableForm form{.colours = true};
  EXPECT_EQ(FormatTable({{"NAME", "STATE", "AGE"}, {"job", "BOUND", "2m"}}, &form),
            "NAME  STATE  AGE\njob   \033[32mBOUND\033[0m  2m\n");
  View view = Later();
  view.colours = true;
  EXPECT_NE(ExplainGang(Sample(), std::nullopt, view).find("\033[33mPROVISIONING\033[0m for"),
            std::string::npos);
  EXPECT_EQ(ExplainGang(Sample(), std::nullopt, Later()).find('\033'), std::string::npos);
}

// A message may be in the words of whoever made a pod.
TEST(Tables, NothingInATextCommandsTheTerminal) {
  EXPECT_EQ(Printable("a\033[2Jb\nc\td\x7f\u009b1m"), "a [2Jb c d  1m");
  EXPECT_EQ(Printable("größer \u00a0"), "größer \u00a0");
  EXPECT_EQ(FormatTable({{"a\rb", "c"}}), "a b  c\n");
  v1::Gang gang = Sample();
  gang.mutable_reason()->set_message("\033]0;mine\a");
  gang.mutable_reason()->set_fix("one\ntwo");
  const std::string text = ExplainGang(gang, std::nullopt, Later());
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_NE(text.find("Fix:       one two\n"), std::string::npos);
}

TEST(NodeTable, TellsForWhomNodesComeAndWhoHoldsThem) {
  std::vector<v1::Node> nodes(4);
  nodes[0].set_name("n1");
  nodes[0].set_stage(v1::USABLE);
  nodes[0].set_node_pool("gpu");
  nodes[0].set_instance_type("p5.48xlarge");
  nodes[0].set_zone("us-west-2a");
  nodes[0].add_expected_for("team/job");
  (*nodes[0].mutable_holds())["uid-1"].set_seconds(1'700'000'600 + 840);
  (*nodes[0].mutable_holds())["uid-2"].set_seconds(1'700'000'600 + 60);
  (*nodes[0].mutable_allocatable())["nvidia.com/gpu"] = 8;
  (*nodes[0].mutable_free())["nvidia.com/gpu"] = 2;
  nodes[1].set_name("n0");
  nodes[1].set_stage(v1::USABLE);
  nodes[1].set_reserved_for("team/next");
  nodes[2].set_name("n2");
  nodes[2].set_stage(v1::GOING);
  nodes[2].set_message("is being removed");
  nodes[3].set_node_claim("gpu-x7");
  nodes[3].set_stage(v1::LAUNCHED);
  nodes[3].add_expected_for("team/job");
  std::ranges::sort(nodes, ComesBefore);
  View view = Later();
  view.wide = true;
  std::vector<TableRow> rows = {NodeHeads(view)};
  for (const v1::Node& node : nodes) rows.push_back(NodeCells(node, {{"uid-1", "team/job"}}, view));
  EXPECT_EQ(FormatTable(rows),
            "NAME              STAGE     NODEPOOL  TYPE         ZONE        FOR                   "
            "HELD                     GPUS         NOTE\n"
            "nodeclaim/gpu-x7  LAUNCHED  -         -            -           team/job              "
            "-                        -            -\n"
            "n2                GOING     -         -            -           -                     "
            "-                        -            is being removed\n"
            "n0                USABLE    -         -            -           team/next (reserved)  "
            "-                        -            -\n"
            "n1                USABLE    gpu       p5.48xlarge  us-west-2a  team/job              "
            "team/job 14m, uid-2 60s  2 of 8 free  -\n");
}

// A ClusterQueue gpus, and the LocalQueue team/train that leads there.
Queues SampleQueues() {
  Queues queues;
  v1::Queue* queue = queues.Add();
  queue->set_name("gpus");
  queue->set_cohort("all");
  queue->set_pending(2);
  queue->set_admitted(2);
  for (const char* resource : {"nvidia.com/gpu", "memory"}) {
    v1::FlavorUsage* usage = queue->add_usage();
    usage->set_flavor("spot");
    usage->set_resource(resource);
    const int64_t unit = std::string(resource) == "memory" ? int64_t{1} << 30 : 1;
    usage->set_nominal(8 * unit);
    usage->set_reserved(10 * unit);
    usage->set_borrowed(2 * unit);
  }
  for (const char* name_space : {"other", "team"}) {
    v1::PendingGang* pending = queue->add_pending_gangs();
    pending->set_namespace_(name_space);
    pending->set_name("job");
    pending->set_place(queue->pending_gangs_size());
    pending->mutable_reason()->set_code(v1::QUOTA_IN_USE);
    pending->mutable_reason()->set_message("spot has 2 unused of the 4 asked for");
  }
  v1::Queue* local = queues.Add();
  local->set_namespace_("team");
  local->set_name("train");
  local->set_cluster_queue("gpus");
  local->set_pending(1);
  *local->add_usage() = queues[0].usage(0);
  *local->add_pending_gangs() = queues[0].pending_gangs(1);
  return queues;
}

TEST(QueueTable, ShowsUsageWhatIsBorrowedAndWhoWaits) {
  EXPECT_EQ(
      ClusterQueueTable(SampleQueues(), Later()),
      "QUEUE  COHORT  PENDING  ADMITTED  FLAVOR  RESOURCE        USED  NOMINAL  BORROWED\n"
      "gpus   all     2        2         spot    nvidia.com/gpu  10    8        2\n"
      "                                  spot    memory          10Gi  8Gi      2Gi\n"
      "\n"
      "QUEUE  PLACE  GANG       PRIORITY  REASON        MESSAGE\n"
      "gpus   1      other/job  0         QUOTA_IN_USE  spot has 2 unused of the 4 asked for\n"
      "gpus   2      team/job   0         QUOTA_IN_USE  spot has 2 unused of the 4 asked for\n");
}

TEST(QueueTable, OfANamespaceTellsThePlaceBehindOthers) {
  Queues queues = SampleQueues();
  *queues[1].add_pending_gangs() = queues[1].pending_gangs(0);
  queues[1].mutable_pending_gangs(1)->set_place(0);
  queues[1].set_error("ClusterQueue gpus doesn't exist");
  EXPECT_EQ(
      LocalQueueTable(queues, Later()),
      "QUEUE  CLUSTERQUEUE  PENDING  ADMITTED  FLAVOR  RESOURCE        USED\n"
      "train  gpus          1        0         spot    nvidia.com/gpu  10\n"
      "\n"
      "QUEUE  PLACE  GANG      PRIORITY  REASON        MESSAGE\n"
      "train  -      -         -         INACTIVE      ClusterQueue gpus doesn't exist\n"
      "train  2      team/job  0         QUOTA_IN_USE  spot has 2 unused of the 4 asked for\n"
      "train  100+   team/job  0         QUOTA_IN_USE  spot has 2 unused of the 4 asked for\n");
}

}  // namespace
}  // namespace muster::printers
