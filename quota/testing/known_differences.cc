#include "quota/testing/known_differences.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "quota/testing/quota_history.h"

namespace muster::quota::testing {
namespace {

using nlohmann::json;
using State = HistoryRun::State;

bool Is(const json& states, const std::string& id, const char* word) {
  return states.value(id, "").starts_with(word);
}

std::set<std::string> Circling(const json& course, int64_t event) {
  const auto circling = course.find("circling");
  if (circling == course.end()) return {};
  return circling->value(absl::StrCat(event), std::set<std::string>());
}

// The object of this kind and name as the last event has it that does; null if
// none does.
json LastOf(const json& history, const char* kind, const std::string& name) {
  json last;
  for (const json& event : history.at("events")) {
    if (event.contains(kind) && event[kind]["metadata"]["name"] == name) last = event[kind];
    if (kind == std::string_view("cohort") && event.value("deleteCohort", "") == name) last = {};
  }
  return last;
}

std::string StopPolicy(const json& object) {
  return object.is_null() ? "" : object["spec"].value("stopPolicy", "None");
}

json ArrivalOf(const json& history, const std::string& id) {
  for (const json& event : history.at("events")) {
    if (event.contains("arrives") && event["arrives"]["uid"] == id) return event["arrives"];
  }
  return {};
}

std::string LocalQueueOf(const json& history, const std::string& id) {
  return ArrivalOf(history, id).value("clusterQueue", "");
}

std::string ClusterQueueOf(const json& history, const std::string& id) {
  const json local = LastOf(history, "localQueue", LocalQueueOf(history, id));
  return local.is_null() ? "" : local["spec"]["clusterQueue"].get<std::string>();
}

// Of the tree that its ClusterQueue stands in.
std::string RootOf(const json& history, const std::string& id) {
  const std::string name = ClusterQueueOf(history, id);
  const json queue = LastOf(history, "clusterQueue", name);
  std::string root = queue.is_null() ? "" : queue["spec"].value("cohortName", "");
  if (root.empty()) return absl::StrCat("ClusterQueue ", name);
  while (true) {
    const json cohort = LastOf(history, "cohort", root);
    const std::string parent = cohort.is_null() ? "" : cohort["spec"].value("parentName", "");
    if (parent.empty()) return root;
    root = parent;
  }
}

int64_t PriorityOf(const json& history, const std::string& id) {
  int64_t priority = ArrivalOf(history, id).value("priority", 0);
  for (const json& event : history.at("events")) {
    if (event.contains("priority")) priority = event["priority"].value(id, priority);
  }
  return priority;
}

// With `pods` quota enough.
json WithPodsFree(json history) {
  for (json& event : history["events"]) {
    for (const char* kind : {"clusterQueue", "cohort"}) {
      if (!event.contains(kind) || !event[kind]["spec"].contains("resourceGroups")) continue;
      for (json& group : event[kind]["spec"]["resourceGroups"]) {
        if (group["coveredResources"] != json::array({"pods"})) continue;
        for (json& flavor : group["flavors"]) {
          flavor["resources"] = json::array({{{"name", "pods"}, {"nominalQuota", 1000}}});
        }
      }
    }
  }
  return history;
}

json WithoutPreference(json history) {
  for (json& event : history["events"]) {
    if (!event.contains("clusterQueue")) continue;
    json& spec = event["clusterQueue"]["spec"];
    if (spec.contains("flavorFungibility")) spec["flavorFungibility"].erase("preference");
  }
  return history;
}

// What stands in a LocalQueue on Hold, while its ClusterQueue drains.
bool IsUndrained(const Fork& fork) {
  const json changes = Changes(fork.ours, fork.theirs);
  return std::ranges::all_of(changes.items(), [&](const auto& change) {
    const std::string& id = change.key();
    if (!Is(fork.ours, id, "evicting") || !Is(fork.theirs, id, "admitted")) return false;
    const json local = LastOf(fork.history, "localQueue", LocalQueueOf(fork.history, id));
    const json queue = LastOf(fork.history, "clusterQueue", ClusterQueueOf(fork.history, id));
    return StopPolicy(local) == "Hold" && StopPolicy(queue) == "HoldAndDrain";
  });
}

// All that differ are in one tree, which is this.
bool AreUnder(const std::string& root, const json& changes, const json& history) {
  return std::ranges::all_of(
      changes.items(), [&](const auto& change) { return RootOf(history, change.key()) == root; });
}

// Kueue admits somebody into room that those use whom it evicts for somebody
// else in the same cycle.
bool IsBesideVictims(const Fork& fork) {
  const json changes = Changes(fork.ours, fork.theirs);
  for (const auto& [id, change] : changes.items()) {
    if (!Is(fork.ours, id, "pending") || !Is(fork.theirs, id, "admitted")) return false;
  }
  return std::ranges::any_of(fork.theirs.items(), [&](const auto& each) {
    return Is(fork.theirs, each.key(), "evicting") && Is(fork.before, each.key(), "admitted") &&
           AreUnder(RootOf(fork.history, each.key()), changes, fork.history);
  });
}

// Somebody whose victims are leaving keeps them, and its flavors, over this
// event, where Kueue judges anew: takes other flavors, names others as well, or
// nobody any more so that another gets the room. That they suffice is seen from
// what comes once they are gone: it is admitted, at nobody else's expense.
bool KeepsVictims(const Fork& fork) {
  HistoryRun run(fork.history.at("fairSharing"));
  std::set<std::string> preempting;  // since they wait
  const json& events = fork.history.at("events");
  for (size_t i = 0; i < events.size(); ++i) {
    if (i > 0) preempting.merge(run.Preempting());
    const std::vector<std::string> pending = run.In(State::kPending);
    std::erase_if(preempting, [&](const std::string& id) {
      return std::ranges::find(pending, id) == pending.end();
    });
    run.Happen(events[i]);
  }
  const json changes = Changes(fork.ours, fork.theirs);
  for (const auto& [id, change] : changes.items()) {
    const bool more_go = Is(fork.ours, id, "admitted") && Is(fork.theirs, id, "evicting");
    const bool other_room = Is(fork.ours, id, "pending") && Is(fork.theirs, id, "admitted");
    const bool other_claim = Is(fork.ours, id, "admitted") && Is(fork.theirs, id, "pending");
    const bool comes_and_goes = Is(fork.ours, id, "pending") && Is(fork.theirs, id, "evicting");
    const bool other_flavors =
        Is(fork.ours, id, "admitted") && Is(fork.theirs, id, "admitted") && preempting.contains(id);
    if (!more_go && !other_room && !other_claim && !comes_and_goes && !other_flavors) return false;
  }
  for (const std::string& id : run.In(State::kEvicting)) run.Happen({{"stopped", id}});
  const json after = run.States();
  for (const auto& [id, state] : fork.ours.items()) {
    if (Is(fork.ours, id, "admitted") && !Is(after, id, "admitted")) return false;
  }
  return std::ranges::any_of(preempting, [&](const std::string& id) {
    return Is(after, id, "admitted") && AreUnder(RootOf(fork.history, id), changes, fork.history);
  });
}

// Kueue admits a workload without all of its pod sets.
bool IsCutShort(const Fork& fork) {
  const json changes = Changes(fork.ours, fork.theirs);
  return std::ranges::all_of(changes.items(), [&](const auto& change) {
    const std::string& id = change.key();
    if (!Is(fork.ours, id, "pending") || !Is(fork.theirs, id, "admitted")) return false;
    const std::string state = fork.theirs.at(id);
    const auto words = static_cast<size_t>(std::ranges::count(state, ' '));  // one is the queue's
    return words - 1 < ArrivalOf(fork.history, id)["podSets"].size();
  });
}

// Kueue has somebody try its flavors in turn for ever: those behind it in its
// queue never have their turn, those in other queues of its tree don't get what
// is set aside for it in each cycle, and what it gets once there is room
// depends on which flavor is the next.
bool IsCircling(const Fork& fork) {
  const auto is_kept_out = [&](const std::string& id, const std::string& first) {
    const std::string queue = ClusterQueueOf(fork.history, first);
    if (ClusterQueueOf(fork.history, id) == queue) {
      return id != first && PriorityOf(fork.history, id) <= PriorityOf(fork.history, first);
    }
    const json spec = LastOf(fork.history, "clusterQueue", queue)["spec"];
    return RootOf(fork.history, id) == RootOf(fork.history, first) &&
           spec["preemption"].value("reclaimWithinCohort", "Never") != "Any";
  };
  const auto is_kept_out_by_any = [&](const std::string& id) {
    return std::ranges::any_of(fork.circling,
                               [&](const std::string& first) { return is_kept_out(id, first); });
  };
  HistoryRun run(fork.history.at("fairSharing"));
  for (const json& event : fork.history.at("events")) run.Happen(event);
  const bool preempts_here = std::ranges::any_of(run.Preempting(), is_kept_out_by_any);
  const json changes = Changes(fork.ours, fork.theirs);
  return std::ranges::all_of(changes.items(), [&](const auto& change) {
    const std::string& id = change.key();
    if (fork.circled.contains(id)) return true;
    if (Is(fork.ours, id, "evicting") && Is(fork.theirs, id, "admitted")) return preempts_here;
    return Is(fork.ours, id, "admitted") && Is(fork.theirs, id, "pending") &&
           is_kept_out_by_any(id);
  });
}

}  // namespace

Fork ForkAfter(const json& history, int64_t event, const json& ours, const json& theirs) {
  const auto at = static_cast<size_t>(event);
  const std::vector<json> left = StatesOf(ours);
  const std::vector<json> right = StatesOf(theirs);
  return {.history = Until(history, event),
          .before = at > 0 ? left[at - 1] : json::object(),
          .ours = left[at],
          .theirs = at < right.size() ? right[at] : json(),
          .circled = Circling(theirs, event - 1),
          .circling = Circling(theirs, event)};
}

json Changes(const json& ours, const json& theirs) {
  json changes = json::object();
  for (const auto& [id, state] : ours.items()) {
    const json other = theirs.value(id, json("(none)"));
    if (other != state) changes[id] = {{"ours", state}, {"Kueue", other}};
  }
  return changes;
}

json Until(json history, int64_t event) {
  auto& events = history["events"];
  events.erase(events.begin() + event + 1, events.end());
  return history;
}

bool SaysNothingNew(const json& history, int64_t event) {
  const json& now = history.at("events")[static_cast<size_t>(event)];
  const json before = Until(history, event - 1);
  for (const char* kind : {"flavor", "cohort", "clusterQueue", "localQueue"}) {
    if (!now.contains(kind)) continue;
    json old = LastOf(before, kind, now[kind]["metadata"]["name"]);
    json written = now[kind];
    for (json* each : {&old, &written}) {
      if (!each->is_null() && StopPolicy(*each) == "None") (*each)["spec"].erase("stopPolicy");
    }
    return old == written;
  }
  return false;
}

json WokenAfter(json history, int64_t event) {
  auto& events = history["events"];
  events.insert(events.begin() + event + 1, json{{"wake", true}});
  return history;
}

std::string_view KnownDifference(const Fork& fork,
                                 const std::function<bool(const json&)>& goes_alike) {
  if (fork.theirs.is_null()) return "";
  if (const json free = WithPodsFree(fork.history); free != fork.history && goes_alike(free)) {
    return "it preempts for fewer pods";
  }
  if (const json plain = WithoutPreference(fork.history);
      plain != fork.history && goes_alike(plain)) {
    return "it takes a preemption for a fit";
  }
  if (IsUndrained(fork)) return "it doesn't drain what stands in a LocalQueue on Hold";
  if (IsCutShort(fork)) return "it admits without all pod sets";
  if (IsBesideVictims(fork)) return "it admits beside victims";
  if (IsCircling(fork)) return "it tries flavors in turn for ever";
  if (KeepsVictims(fork)) return "it judges anew while victims leave";
  return "";
}

}  // namespace muster::quota::testing
