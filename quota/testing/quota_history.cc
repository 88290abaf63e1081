#include "quota/testing/quota_history.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "quota/testing/quota_case.h"

namespace muster::quota::testing {
namespace {

using nlohmann::json;

std::string Describe(const Admission& admission) {
  std::string words = admission.cluster_queue;
  for (const PodSetAssignment& set : admission.pod_sets) {
    absl::StrAppend(&words, " ", set.name, ":",
                    absl::StrJoin(set.flavors, ",", absl::PairFormatter("=")));
  }
  return words;
}

json Without(const json& history, size_t from, size_t count) {
  json shorter = history;
  auto& events = shorter["events"];
  const auto first = events.begin() + static_cast<std::ptrdiff_t>(from);
  events.erase(first, first + static_cast<std::ptrdiff_t>(count));
  return shorter;
}

}  // namespace

HistoryRun::HistoryRun(bool fair_sharing) : scheduler_({.fair_sharing = fair_sharing}) {
  kube::Namespace name_space;
  name_space.meta.name = kNamespace;
  scheduler_.Upsert(std::move(name_space));
  // Without any queue there is no quota, and everybody would be admitted.
  kube::LocalQueue unused;
  unused.meta.name = "unused";
  unused.meta.name_space = kNamespace;
  scheduler_.Upsert(std::move(unused));
}

void HistoryRun::Happen(const json& event) {
  ++clock_;
  for (const auto& [what, value] : event.items()) Apply(what, value);
  Decide();
}

void HistoryRun::Wait(Known& known) {
  known.state = State::kPending;
  known.admission = nullptr;
  scheduler_.Enqueue(known.workload);
}

void HistoryRun::Apply(const std::string& what, const json& value) {
  if (what == "arrives") {
    Known& known = known_[value.at("uid")];
    known.workload = MakeWorkload(value);
    known.workload.queued_at = absl::FromUnixSeconds(clock_);
    return Wait(known);
  }
  if (what == "wake") return scheduler_.InvalidatePlacement();
  if (what == "deleteCohort") {
    kube::Cohort cohort;
    cohort.meta.name = value;
    scheduler_.Remove(cohort);
    return;
  }
  if (what == "priority") {
    for (const auto& [id, priority] : value.items()) {
      const auto it = known_.find(id);
      if (it == known_.end()) continue;
      Known& known = it->second;
      if (known.workload.priority == priority) continue;
      known.workload.priority = priority;
      if (known.admission != nullptr) scheduler_.SetAdmitted(known.workload, *known.admission);
      if (known.state == State::kPending) scheduler_.Enqueue(known.workload);
    }
    return;
  }
  if (!value.is_string()) return UpsertObject(scheduler_, what, value);
  const auto it = known_.find(value);
  if (it == known_.end()) return;
  Known& known = it->second;
  if (what == "ends") {
    scheduler_.Withdraw(it->first);
    known_.erase(it);
  } else if (what == "stopped") {
    if (known.state == State::kEvicting) Wait(known);
  } else if (what == "deactivated") {
    scheduler_.Withdraw(it->first);
    known.state = State::kInactive;
    known.admission = nullptr;
  } else if (what == "activated") {
    if (known.state == State::kInactive) Wait(known);
  } else {
    std::cerr << "history: no event " << what << "\n";
    std::abort();
  }
}

void HistoryRun::Decide() {
  const absl::Time now = absl::FromUnixSeconds(clock_);
  std::map<std::string, std::vector<Victim>> victims;
  const bool obeys_all = rules_.keeps_victims && rules_.tries_again;
  for (Decision& decision :
       obeys_all ? scheduler_.Schedule(now, {}) : Judge::Schedule(scheduler_, now, rules_)) {
    if (decision.admission != nullptr) {
      Known& known = known_.at(decision.id);
      known.state = State::kAdmitted;
      known.admission = std::move(decision.admission);
    } else {
      std::vector<Victim>& all = victims[decision.id];
      if (rules_.keeps_victims) all.clear();  // else they go at once, as by Kueue in each cycle
      all.insert(all.end(), decision.victims.begin(), decision.victims.end());
    }
  }
  for (const auto& [id, all] : victims) {
    for (const Victim& victim : all) known_.at(victim.id).state = State::kEvicting;
  }
  for (const auto& [id, why] : scheduler_.ToDrain()) known_.at(id).state = State::kEvicting;
}

json HistoryRun::States() const {
  json states = json::object();
  for (const auto& [id, known] : known_) {
    switch (known.state) {
      case State::kPending:
        states[id] = "pending";
        break;
      case State::kInactive:
        states[id] = "inactive";
        break;
      case State::kAdmitted:
        states[id] = absl::StrCat("admitted ", Describe(*known.admission));
        break;
      case State::kEvicting:
        states[id] = absl::StrCat("evicting ", Describe(*known.admission));
        break;
    }
  }
  return states;
}

std::vector<std::string> HistoryRun::In(State state) const {
  std::vector<std::string> ids;
  for (const auto& [id, known] : known_) {
    if (known.state == state) ids.push_back(id);
  }
  return ids;
}

std::set<std::string> HistoryRun::Preempting() const {
  std::set<std::string> ids;
  for (const std::string& id : In(State::kPending)) {
    if (scheduler_.WhyWaiting(id).code == WaitCode::kPreempting) ids.insert(id);
  }
  return ids;
}

json FollowHistory(const json& history) {
  HistoryRun run(history.value("fairSharing", false));
  json before = json::object();
  json changes = json::array();
  for (const json& event : history.at("events")) {
    run.Happen(event);
    json now = run.States();
    json& changed = changes.emplace_back(json::object());
    for (const auto& [id, state] : now.items()) {
      if (!before.contains(id) || before[id] != state) changed[id] = state;
    }
    for (const auto& [id, state] : before.items()) {
      if (!now.contains(id)) changed[id] = nullptr;
    }
    before = std::move(now);
  }
  return {{"changes", changes}};
}

std::vector<json> StatesOf(const json& course) {
  std::vector<json> states;
  json now = json::object();
  for (const json& changes : course.at("changes")) {
    now.merge_patch(changes);
    states.push_back(now);
  }
  return states;
}

int64_t FirstDifference(const json& ours, const json& theirs) {
  const std::vector<json> left = StatesOf(ours);
  const std::vector<json> right = StatesOf(theirs);
  for (size_t i = 0; i < left.size(); ++i) {
    if (i >= right.size() || left[i] != right[i]) return static_cast<int64_t>(i);
  }
  return -1;
}

json Shrink(json history, const std::function<bool(const json& history)>& fails) {
  for (size_t step = history.at("events").size() / 2; step > 0;) {
    bool shorter = false;
    for (size_t from = 0; from + step <= history.at("events").size();) {
      json tried = Without(history, from, step);
      if (fails(tried)) {
        history = std::move(tried);
        shorter = true;
      } else {
        from += step;
      }
    }
    if (step > 1 || !shorter) step /= 2;
  }
  return history;
}

}  // namespace muster::quota::testing
