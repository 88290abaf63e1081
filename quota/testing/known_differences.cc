#include "quota/testing/known_differences.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "quota/testing/quota_case.h"
#include "quota/testing/quota_history.h"

namespace muster::quota::testing {
namespace {

using nlohmann::json;
using State = HistoryRun::State;

constexpr std::string_view kFewerPods = "it preempts for fewer pods";
constexpr std::string_view kTakenForFit = "it takes a preemption for a fit";

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

bool IsWaiting(const json& history, const std::string& id) {
  return Is(StatesOf(FollowHistory(history)).back(), id, "pending");
}

// In one ClusterQueue, as important, and with the same demand.
bool AreAlike(const json& history, const std::string& id, const std::string& other) {
  return ClusterQueueOf(history, id) == ClusterQueueOf(history, other) &&
         PriorityOf(history, id) == PriorityOf(history, other) &&
         ArrivalOf(history, id)["podSets"] == ArrivalOf(history, other)["podSets"];
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

void DropPreference(json& cluster_queue) {
  json& spec = cluster_queue["spec"];
  if (spec.contains("flavorFungibility")) spec["flavorFungibility"].erase("preference");
}

// Of a history, or of a case.
json WithoutPreference(json question) {
  if (question.contains("clusterQueues")) {
    for (json& queue : question["clusterQueues"]) DropPreference(queue);
    return question;
  }
  for (json& event : question["events"]) {
    if (event.contains("clusterQueue")) DropPreference(event["clusterQueue"]);
  }
  return question;
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

// Without some of our own rules from this event on we would come to where Kueue is: before the last
// event that isn't seen yet.
bool GoesAlikeWithout(const Fork& fork, const OwnRules& rules, size_t from, bool woken) {
  HistoryRun run(fork.history.at("fairSharing"));
  const json& events = fork.history.at("events");
  for (size_t i = 0; i < events.size(); ++i) {
    if (i == from) run.Obey(rules);
    json event = events[i];
    if (i + 1 == events.size()) {
      if (run.States() != fork.before) return false;
      if (woken) event["wake"] = true;
    }
    run.Happen(event);
  }
  return run.States() == fork.theirs;
}

bool GoesAlikeWithout(const Fork& fork, const OwnRules& rules, bool woken = false) {
  for (size_t from = fork.history.at("events").size(); from-- > 0;) {
    if (GoesAlikeWithout(fork, rules, from, woken)) return true;
  }
  return false;
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
  std::set<std::string> circling = fork.circled;
  circling.insert(fork.circling.begin(), fork.circling.end());
  const auto is_kept_out_by_any = [&](const std::string& id) {
    return std::ranges::any_of(circling,
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
    return !Is(fork.ours, id, "pending") && Is(fork.theirs, id, "pending") &&
           is_kept_out_by_any(id);
  });
}

json Only(const json& answer) { return answer.at("results").at(0); }

constexpr OwnRules kLeavesPodsOut = {.counts_pods = false};

// In the same flavors, where by us somebody must go; and without a preference Kueue agrees.
bool IsTakenForFit(const json& alone, const json& ours, const json& theirs, const Ask& ask) {
  if (ours.at("mode") != "Preempt" || theirs.at("mode") != "Fit") return false;
  if (ours.at("podSets") != theirs.at("podSets")) return false;
  if (ours.at("borrowing") != theirs.at("borrowing")) return false;
  const json plain = WithoutPreference(alone);
  return plain != alone && Agrees(Only(AnswerCase(plain)), Only(ask(plain)));
}

// By one factor for all, which changes no share's place among others.
json WithHeavierWeights(json quota_case, int64_t factor) {
  for (const char* kind : {"clusterQueues", "cohorts"}) {
    for (json& each : quota_case[kind]) {
      json& weight = each["spec"]["fairSharing"]["weight"];
      const std::string text = weight.is_null() ? "1" : weight.get<std::string>();
      const bool is_milli = text.ends_with("m");
      weight = absl::StrCat(std::stoll(text) * factor, is_milli ? "m" : "");
    }
  }
  return quota_case;
}

bool IsRoundedOtherwise(const json& alone, const Ask& ask) {
  if (!alone.at("fairSharing")) return false;
  for (const int64_t factor : {3, 5, 7, 11, 13}) {
    const json heavier = WithHeavierWeights(alone, factor);
    const json theirs = Only(ask(heavier));
    if (Agrees(Only(AnswerCase(alone)), theirs) ||
        Agrees(Only(AnswerCase(alone, kLeavesPodsOut)), theirs)) {
      return true;
    }
  }
  return false;
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

bool FreesNothing(const json& history, int64_t event) {
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
  for (const char* what : {"ends", "deactivated"}) {
    if (now.contains(what)) return IsWaiting(before, now[what]);
  }
  return false;
}

std::string_view WhyAsleep(const json& history, int64_t event) {
  const json& now = history.at("events")[static_cast<size_t>(event)];
  const json before = Until(history, event - 1);
  for (const char* what : {"ends", "stopped", "deactivated"}) {
    if (!now.contains(what)) continue;
    const json local = LastOf(before, "localQueue", LocalQueueOf(before, now[what]));
    if (StopPolicy(local) != "None") return "it wakes nobody for what a stopped LocalQueue had";
  }
  for (const auto& [kind, above] :
       {std::pair("clusterQueue", "cohortName"), {"cohort", "parentName"}}) {
    if (!now.contains(kind)) continue;
    const json old = LastOf(before, kind, now[kind]["metadata"]["name"]);
    if (!old.is_null() && old["spec"].value(above, "") != now[kind]["spec"].value(above, "")) {
      return "it wakes nobody in a tree that a queue or cohort leaves";
    }
  }
  if (now.contains("localQueue") && StopPolicy(now["localQueue"]) != "None") {
    return "it wakes nobody when a LocalQueue is stopped";
  }
  if (now.contains("deleteCohort"))
    return "it wakes nobody in a tree that a queue or cohort leaves";
  for (const char* what : {"arrives", "activated", "stopped"}) {
    if (!now.contains(what)) continue;
    const std::string id = what == std::string_view("arrives") ? now[what]["uid"] : now[what];
    const json states = StatesOf(FollowHistory(before)).back();
    for (const auto& [other, state] : states.items()) {
      if (other != id && Is(states, other, "pending") && AreAlike(history, id, other)) {
        return "it doesn't try whom it refused the like of";
      }
    }
  }
  return "";
}

json Woken(json history, int64_t event) {
  history["events"][static_cast<size_t>(event)]["wake"] = true;
  return history;
}

std::string_view KnownDifference(const Fork& fork,
                                 const std::function<bool(const json&)>& goes_alike) {
  if (fork.theirs.is_null()) return "";
  if (const json free = WithPodsFree(fork.history); free != fork.history && goes_alike(free)) {
    return kFewerPods;
  }
  if (const json plain = WithoutPreference(fork.history);
      plain != fork.history && goes_alike(plain)) {
    return kTakenForFit;
  }
  if (IsUndrained(fork)) return "it doesn't drain what stands in a LocalQueue on Hold";
  if (IsCutShort(fork)) return "it admits without all pod sets";
  if (IsBesideVictims(fork)) return "it admits beside victims";
  if (IsCircling(fork)) return "it tries flavors in turn for ever";
  constexpr OwnRules kTriesOnce = {.tries_again = false};
  constexpr OwnRules kJudgesAnew = {.keeps_victims = false};
  constexpr OwnRules kNeither = {.keeps_victims = false, .tries_again = false};
  if (GoesAlikeWithout(fork, kTriesOnce)) return "it tries flavors once";
  if (GoesAlikeWithout(fork, kJudgesAnew)) return "it judges anew while victims leave";
  if (GoesAlikeWithout(fork, kNeither)) {
    return "it judges anew while victims leave, and tries flavors once";
  }
  // Whom somebody kept out waits in Kueue still to be tried.
  for (const OwnRules& rules : {OwnRules(), kTriesOnce, kJudgesAnew, kNeither}) {
    if (!fork.circled.empty() && GoesAlikeWithout(fork, rules, true)) {
      return "it tries flavors in turn for ever";
    }
  }
  return "";
}

json Alone(json quota_case, size_t pending) {
  json workload = quota_case.at("pending").at(pending);
  quota_case["pending"] = json::array({std::move(workload)});
  return quota_case;
}

std::string_view WhyDecidedOtherwise(const json& alone, const json& theirs, const Ask& ask) {
  if (Agrees(Only(AnswerCase(alone, kLeavesPodsOut)), theirs)) return kFewerPods;
  if (IsTakenForFit(alone, Only(AnswerCase(alone)), theirs, ask)) return kTakenForFit;
  if (IsRoundedOtherwise(alone, ask)) return "it rounds shares";
  return "";
}

}  // namespace muster::quota::testing
