// Histories for comparison with Kueue: what happens to queues and workloads, one event after the
// other, in the format of tests/kueue/README.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "quota/judgement.h"
#include "quota/quota_scheduler.h"

namespace muster::quota::testing {

// A QuotaScheduler with what its user knows, and does: it evicts those who are named or drained,
// which ends with an event "stopped".
class HistoryRun {
 public:
  enum class State { kPending, kAdmitted, kEvicting, kInactive };

  explicit HistoryRun(bool fair_sharing);

  // Aborts if the event isn't well-formed. What it can't be done to is left as it is.
  void Happen(const nlohmann::json& event);
  // From now on.
  void Obey(const OwnRules& rules) { rules_ = rules; }

  // By id: "pending", "inactive", or "admitted" or "evicting" with the queue and the flavors.
  nlohmann::json States() const;
  // In order.
  std::vector<std::string> In(State state) const;
  // Those pending for whom quota is being taken back.
  std::set<std::string> Preempting() const;

 private:
  struct Known {
    Workload workload;
    State state = State::kPending;
    std::shared_ptr<const Admission> admission = nullptr;  // while it has quota
  };

  void Apply(const std::string& what, const nlohmann::json& value);
  void Wait(Known& known);
  void Decide();

  QuotaScheduler scheduler_;
  std::map<std::string, Known> known_;
  int64_t clock_ = 0;
  OwnRules rules_;
};

// The course of tests/kueue/README.md, and the states that it leads to after each event.
nlohmann::json FollowHistory(const nlohmann::json& history);
std::vector<nlohmann::json> StatesOf(const nlohmann::json& course);

// Where two courses of a history part first: the number of the event, or -1.
int64_t FirstDifference(const nlohmann::json& ours, const nlohmann::json& theirs);

// The smallest part of the history's events that it can find for which `fails` still holds, as it
// does for the whole.
nlohmann::json Shrink(nlohmann::json history,
                      const std::function<bool(const nlohmann::json& history)>& fails);

}  // namespace muster::quota::testing
