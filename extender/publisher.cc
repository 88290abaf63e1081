#include "extender/publisher.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "extender/cpu_time.h"
#include "muster/v1/admission.pb.h"

namespace muster::extender {
namespace {

// Between two times that lists are made; times what the last one took.
constexpr int kRestPerLists = 50;
constexpr absl::Duration kShortestListRest = absl::Milliseconds(250);
constexpr absl::Duration kLongestListRest = absl::Seconds(5);

}  // namespace

Distributor::Distributor(StateStore* store, int niceness)
    : store_(store), thread_([this, niceness] { Run(niceness); }) {}

Distributor::~Distributor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Distributor::Publish(const std::vector<std::pair<coscheduling::GangKey, GangMessage>>& gangs) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, gang] : gangs) gangs_[key] = gang;
  has_some_ = true;
  changed_.notify_one();
}

void Distributor::Publish(Listed kind, std::unique_ptr<const google::protobuf::Message> message) {
  const std::lock_guard lock(mutex_);
  lists_[static_cast<size_t>(kind)].swap(message);
  has_some_ = true;
  changed_.notify_one();
}

void Distributor::Run(int niceness) {
  // Of this thread alone, on Linux.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), niceness);
  for (;;) {
    std::map<coscheduling::GangKey, GangMessage> gangs;
    std::array<std::unique_ptr<const google::protobuf::Message>, kListedKinds> lists;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return has_some_ || stopping_; });
      if (!std::exchange(has_some_, false)) return;
      gangs.swap(gangs_);
      lists.swap(lists_);
    }
    store_->Publish({std::make_move_iterator(gangs.begin()), std::make_move_iterator(gangs.end())});
    for (size_t kind = 0; kind < kListedKinds; ++kind) {
      if (lists[kind]) store_->Publish(static_cast<Listed>(kind), std::move(lists[kind]));
    }
  }
}

void Publisher::OnStep(const coscheduling::StepOutput& output, const coscheduling::Engine& engine,
                       absl::Time now) {
  if (!output.changed_gangs.empty()) distributor_->Publish(output.changed_gangs);
  nodes_changed_ |= output.nodes_changed;
  queues_changed_ |= output.queues_changed;
  Flush(engine, now);
}

void Publisher::Flush(const coscheduling::Engine& engine, absl::Time now) {
  if (now < NextFlush()) return;
  const absl::Duration before = ThreadCpuTime();
  if (std::exchange(nodes_changed_, false)) PublishNodes(engine);
  if (std::exchange(queues_changed_, false)) PublishQueues(engine);
  const absl::Duration rest = (ThreadCpuTime() - before) * kRestPerLists;
  next_lists_ = now + std::clamp(rest, kShortestListRest, kLongestListRest);
}

void Publisher::PublishNodes(const coscheduling::Engine& engine) {
  std::vector<v1::Node> nodes;
  engine.DescribeNodes(&nodes);
  auto list = std::make_unique<v1::ListNodesResponse>();
  list->mutable_nodes()->Reserve(static_cast<int>(nodes.size()));
  for (v1::Node& node : nodes) *list->add_nodes() = std::move(node);
  distributor_->Publish(Listed::kNodes, std::move(list));
}

void Publisher::PublishQueues(const coscheduling::Engine& engine) {
  std::vector<v1::Queue> queues;
  engine.DescribeQueues(&queues);
  auto queue_list = std::make_unique<v1::ListQueuesResponse>();
  for (v1::Queue& queue : queues) *queue_list->add_queues() = std::move(queue);
  distributor_->Publish(Listed::kQueues, std::move(queue_list));
  std::vector<v1::Flavor> flavors;
  engine.DescribeFlavors(&flavors);
  auto flavor_list = std::make_unique<v1::ListFlavorsResponse>();
  for (v1::Flavor& flavor : flavors) *flavor_list->add_flavors() = std::move(flavor);
  distributor_->Publish(Listed::kFlavors, std::move(flavor_list));
}

absl::Time Publisher::NextFlush() const {
  return nodes_changed_ || queues_changed_ ? next_lists_ : absl::InfiniteFuture();
}

}  // namespace muster::extender
