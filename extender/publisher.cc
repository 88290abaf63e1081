#include "extender/publisher.h"

#include "muster/v1/admission.pb.h"

namespace muster::extender {

void Publisher::OnStep(const coscheduling::StepOutput& output, const coscheduling::Engine& engine,
                       absl::Time now) {
  if (!output.changed_gangs.empty()) PublishGangs(output.changed_gangs, engine);
  nodes_changed_ |= output.nodes_changed;
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
  std::vector<v1::Node> nodes;
  engine.DescribeNodes(&nodes);
  auto list = std::make_unique<v1::ListNodesResponse>();
  list->mutable_nodes()->Reserve(static_cast<int>(nodes.size()));
  for (v1::Node& node : nodes) *list->add_nodes() = std::move(node);
  store_->Publish(std::move(list));
  nodes_changed_ = false;
  nodes_published_ = now;
}

absl::Time Publisher::NextFlush() const {
  return nodes_changed_ ? nodes_published_ + node_interval_ : absl::InfiniteFuture();
}

}  // namespace muster::extender
