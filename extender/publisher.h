// From the engine to those who ask: turns what changed in a step into published messages.
//
// Runs on the engine's thread. Gangs are published at once, each that changed; lists (one message
// of all nodes, queues or flavors) only so often that they cost a fiftieth of the thread, because
// thousands of nodes change often.
#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coscheduling/engine.h"
#include "extender/state_store.h"

namespace muster::extender {

// Takes what is published to the store, and wakes its readers, on a thread of its own: so the
// engine pays nothing for readers, however many there are. Of each gang, and of each list, only the
// newest waits.
class Distributor {
 public:
  // `store` must outlive it. `niceness` as http::ServerOptions has it.
  explicit Distributor(StateStore* store, int niceness = 0);
  // Publishes what it was given.
  ~Distributor();
  Distributor(const Distributor&) = delete;
  Distributor& operator=(const Distributor&) = delete;

  // As StateStore::Publish, a little later. Thread-safe.
  void Publish(const std::vector<std::pair<coscheduling::GangKey, GangMessage>>& gangs);
  void Publish(Listed kind, std::unique_ptr<const google::protobuf::Message> message);

 private:
  void Run(int niceness);

  StateStore* const store_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<coscheduling::GangKey, GangMessage> gangs_;
  std::array<std::unique_ptr<const google::protobuf::Message>, kListedKinds> lists_;
  bool has_some_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

class Publisher {
 public:
  explicit Publisher(Distributor* distributor) : distributor_(distributor) {}

  // After each step.
  void OnStep(const coscheduling::StepOutput& output, const coscheduling::Engine& engine,
              absl::Time now);
  // Publishes lists that were put off, if their time has come. To be called now and then.
  void Flush(const coscheduling::Engine& engine, absl::Time now);
  // When Flush has something to do; InfiniteFuture if nothing is put off.
  absl::Time NextFlush() const;

 private:
  void PublishNodes(const coscheduling::Engine& engine);
  void PublishQueues(const coscheduling::Engine& engine);

  Distributor* const distributor_;
  bool nodes_changed_ = false;
  bool queues_changed_ = false;
  absl::Time next_lists_ = absl::InfinitePast();
};

}  // namespace muster::extender
