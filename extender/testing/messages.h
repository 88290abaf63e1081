// Messages of the admission API for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "muster/v1/admission.pb.h"

namespace muster::extender {

inline std::shared_ptr<const v1::Gang> MakeGang(const std::string& name_space,
                                                const std::string& name, uint64_t revision) {
  auto gang = std::make_shared<v1::Gang>();
  gang->set_namespace_(name_space);
  gang->set_name(name);
  gang->set_uid("uid-of-" + name);
  gang->set_kind("PodGroup");
  gang->set_state(v1::PROVISIONING);
  gang->mutable_reason()->set_code(v1::NODES_COMING);
  gang->mutable_reason()->set_message("3 of 4 nodes are usable; \"n4\" is LAUNCHED");
  gang->set_min_member(4);
  gang->set_revision(revision);
  gang->mutable_state_since()->set_seconds(1767225600);
  gang->mutable_state_since()->set_nanos(500000000);
  for (int i = 0; i < 4; ++i) {
    v1::Member* member = gang->add_members();
    member->set_name(name + "-" + std::to_string(i));
    member->set_state(v1::SIGNALLED);
    member->set_planned_node("n" + std::to_string(i + 1));
  }
  v1::Node* node = gang->add_nodes();
  node->set_node_claim("gpu-x7");
  node->set_stage(v1::LAUNCHED);
  (*node->mutable_allocatable())["nvidia.com/gpu"] = 8;
  (*node->mutable_holds())["uid-of-" + name].set_seconds(1767226600);
  return gang;
}

// A ClusterQueue gpus and a LocalQueue team/default.
inline std::unique_ptr<const v1::ListQueuesResponse> MakeQueues() {
  auto list = std::make_unique<v1::ListQueuesResponse>();
  v1::Queue* queue = list->add_queues();
  queue->set_name("gpus");
  queue->set_pending(1);
  v1::FlavorUsage* usage = queue->add_usage();
  usage->set_flavor("spot");
  usage->set_resource("nvidia.com/gpu");
  usage->set_reserved(8);
  v1::PendingGang* pending = queue->add_pending_gangs();
  pending->set_name("job");
  pending->mutable_reason()->set_code(v1::QUOTA_IN_USE);
  v1::Queue* local = list->add_queues();
  local->set_namespace_("team");
  local->set_name("default");
  local->set_cluster_queue("gpus");
  return list;
}

inline std::unique_ptr<const v1::ListNodesResponse> MakeNodes(
    const std::vector<std::string>& names) {
  auto list = std::make_unique<v1::ListNodesResponse>();
  for (const std::string& name : names) {
    v1::Node* node = list->add_nodes();
    node->set_name(name);
    node->set_stage(v1::USABLE);
    (*node->mutable_allocatable())["cpu"] = 96'000;
    (*node->mutable_free())["cpu"] = 4'000;
  }
  return list;
}

}  // namespace muster::extender
