// What happens in a world, as it is told to people, and what it costs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "simulation/gpu_ledger.h"
#include "simulation/world.h"

namespace muster::simulation {

struct TimelineEntry {
  Millis at = 0;
  // "gang" (a decision), "members", "node", "quota", or "muster" (it is killed and started).
  std::string what;
  std::string subject{};  // "default/job"; of nodes their NodePool
  std::string text;
  // Whom it is about: members or nodes to which the same happened at the same moment.
  std::vector<std::string> names{};
  // Of a decision.
  std::string state{};
  std::string reason{};
};

// Follows a world from its start: each change that the API server shows and each decision becomes
// a line of the timeline, and what they mean for nodes and members goes into the ledger.
class History : public WorldObserver {
 public:
  History();
  ~History() override;
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  void OnStart(kube::embedded::ApiServer* server, absl::Time start) override;
  void OnDecision(const coscheduling::DecisionNote& note, absl::Time now) override;
  void OnRestart(absl::Time now) override;
  void OnMoment(absl::Time now) override;
  void OnEnd() override;

  const std::vector<TimelineEntry>& timeline() const;
  const GpuLedger& ledger() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::simulation
