#include "extender/publisher.h"

#include <utility>

#include "muster/v1/admission.pb.h"

namespace muster::extender {

void Publisher::OnStep(const coscheduling::StepOutput& output, const coscheduling::Engine& engine,
                       absl::Time now) {
  if (!output.changed_gangs.empty()) PublishGangs(output.changed_gangs, engine);
  nodes_changed_ |= output.nodes_changed;
  queues_changed_ |= output.queues_changed;
  Flush(engine, now);
}

void Publisher::PublishGangs(const std::vector<coscheduling::GangKey>& keys,
                             const coscheduling::Engine& engine) {
  std::vector<std::pair<coscheduling::GangKey, GangMessage>> gangs;
  gangs.reserve(keys.size());
  for (const coscheduling::GangKey& key : keys) {
    auto gang = std::make_shared<v1::Gang>();
    if (!engine.Describe(key, gang.get())) gang = nullptr;
    gangs.emplace_back(key, std::move(gang));
  }
  store_->Publish(gangs);
}

void Publisher::Flush(const coscheduling::Engine& engine, absl::Time now) {
  if (now < NextFlush()) return;
  published_ = now;
  if (std::exchange(nodes_changed_, false)) PublishNodes(engine);
  if (std::exchange(queues_changed_, false)) PublishQueues(engine);
}

void Publisher::PublishNodes(const coscheduling::Engine& engine) {
  std::vector<v1::Node> nodes;
  engine.DescribeNodes(&nodes);
  auto list = std::make_unique<v1::ListNodesResponse>();
  list->mutable_nodes()->Reserve(static_cast<int>(nodes.size()));
  for (v1::Node& node : nodes) *list->add_nodes() = std::move(node);
  store_->Publish(Listed::kNodes, std::move(list));
}

void Publisher::PublishQueues(const coscheduling::Engine& engine) {
  std::vector<v1::Queue> queues;
  engine.DescribeQueues(&queues);
  auto queue_list = std::make_unique<v1::ListQueuesResponse>();
  for (v1::Queue& queue : queues) *queue_list->add_queues() = std::move(queue);
  store_->Publish(Listed::kQueues, std::move(queue_list));
  std::vector<v1::Flavor> flavors;
  engine.DescribeFlavors(&flavors);
  auto flavor_list = std::make_unique<v1::ListFlavorsResponse>();
  for (v1::Flavor& flavor : flavors) *flavor_list->add_flavors() = std::move(flavor);
  store_->Publish(Listed::kFlavors, std::move(flavor_list));
}

absl::Time Publisher::NextFlush() const {
  return nodes_changed_ || queues_changed_ ? published_ + list_interval_ : absl::InfiniteFuture();
}

}  // namespace muster::extender
