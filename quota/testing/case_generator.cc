#include "quota/testing/case_generator.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kube/objects/time_text.h"
#include "quota/testing/quota_history.h"

namespace muster::quota::testing {
namespace {

using nlohmann::json;

// Resources that share their flavors.
struct GroupShape {
  std::vector<std::string> resources;
  std::vector<std::string> flavors;
};

class CaseMaker {
 public:
  explicit CaseMaker(uint64_t seed) : seed_(seed), random_(seed * 0x9E3779B97F4A7C15u + 1) {}

  json Make() {
    fair_sharing_ = Chance(40);
    crowded_ = Chance(70);
    MakeGroups();
    json flavors = json::array();
    for (const GroupShape& group : groups_) {
      for (const std::string& name : group.flavors) flavors.push_back(MakeFlavor(name));
    }
    json cohorts = MakeCohorts();
    json queues = json::array();
    const int queue_count = 1 + Below(5);
    for (int i = 0; i < queue_count; ++i) queues.push_back(MakeQueue(absl::StrCat("q", i)));
    json admitted = json::array();
    const int admitted_count = Chance(20) ? Below(5) : 4 + Below(9);
    std::vector<int> reserved(static_cast<size_t>(admitted_count));
    for (size_t i = 0; i < reserved.size(); ++i) reserved[i] = static_cast<int>(i);
    for (size_t i = 1; i < reserved.size(); ++i) std::swap(reserved[i], reserved[Index(i + 1)]);
    for (int i = 0; i < admitted_count; ++i) {
      json workload = MakeWorkload(absl::StrCat("w", i), Pick(queues), true);
      workload["reservedAt"] = Time(1000 + reserved[static_cast<size_t>(i)]);
      admitted.push_back(std::move(workload));
    }
    json pending = json::array();
    const int pending_count = 1 + Below(3);
    for (int i = 0; i < pending_count; ++i) {
      pending.push_back(MakeWorkload(absl::StrCat("p", i), Pick(queues), false));
    }
    return {{"id", seed_},        {"fairSharing", fair_sharing_}, {"flavors", flavors},
            {"cohorts", cohorts}, {"clusterQueues", queues},      {"admitted", admitted},
            {"pending", pending}};
  }

  json MakeHistory() {
    fair_sharing_ = Chance(40);
    most_nominal_ = 6;
    likes_preemption_ = true;
    HistoryRun run(fair_sharing_);
    json events = json::array();
    const auto happens = [&](json event) {
      run.Happen(event);
      events.push_back(std::move(event));
    };
    MakeGroups();
    std::vector<std::string> flavors;
    for (const GroupShape& group : groups_) {
      flavors.insert(flavors.end(), group.flavors.begin(), group.flavors.end());
    }
    for (const std::string& name : flavors) {
      if (!Chance(5)) happens({{"flavor", MakeFlavor(name)}});
    }
    for (const json& cohort : MakeCohorts()) happens({{"cohort", cohort}});
    std::vector<json> queues;
    const int queue_count = 1 + Below(5);
    for (int i = 0; i < queue_count; ++i) {
      queues.push_back(MakeFirmQueue(absl::StrCat("q", i)));
      happens({{"clusterQueue", queues.back()}});
      happens({{"localQueue", MakeLocalQueue(absl::StrCat("l", i), queues.back())}});
    }
    int arrived = 0;
    for (int left = 40 + Below(21); left > 0; --left) {
      happens(MakeEvent(run, flavors, queues, arrived));
    }
    return {{"fairSharing", fair_sharing_}, {"events", events}};
  }

 private:
  // One that says how it queues.
  json MakeFirmQueue(const std::string& name) {
    json queue = MakeQueue(name);
    queue["spec"]["queueingStrategy"] = Chance(30) ? "StrictFIFO" : "BestEffortFIFO";
    return queue;
  }
  json MakeLocalQueue(const std::string& name, const json& queue) {
    return {{"metadata", {{"name", name}}},
            {"spec", {{"clusterQueue", queue["metadata"]["name"]}, {"stopPolicy", "None"}}}};
  }
  json Stopped(json object) {
    static const char* const kPolicies[] = {"None", "None", "Hold", "HoldAndDrain"};
    object["spec"]["stopPolicy"] = kPolicies[Below(4)];
    return object;
  }

  json MakeEvent(const HistoryRun& run, const std::vector<std::string>& flavors,
                 std::vector<json>& queues, int& arrived) {
    using State = HistoryRun::State;
    const auto pending = run.In(State::kPending);
    const auto admitted = run.In(State::kAdmitted);
    const auto evicting = run.In(State::kEvicting);
    const auto inactive = run.In(State::kInactive);
    const size_t queue = Index(queues.size());
    if (!evicting.empty() && Chance(40)) return {{"stopped", Pick(evicting)}};
    if (!inactive.empty() && Chance(20)) return {{"activated", Pick(inactive)}};
    const int kind = Below(100);
    if (kind < 15 && !admitted.empty()) return {{"ends", Pick(admitted)}};
    if (kind < 18 && !pending.empty()) return {{"ends", Pick(pending)}};
    if (kind < 21 && !admitted.empty()) return {{"deactivated", Pick(admitted)}};
    if (kind < 23 && !pending.empty()) return {{"deactivated", Pick(pending)}};
    if (kind < 26 && !pending.empty()) return {{"priority", {{Pick(pending), Below(4)}}}};
    if (kind < 28 && !admitted.empty()) return {{"priority", {{Pick(admitted), Below(4)}}}};
    if (kind < 33) {
      queues[queue] = Stopped(queues[queue]);
      return {{"clusterQueue", queues[queue]}};
    }
    if (kind < 37) {
      return {{"localQueue", Stopped(MakeLocalQueue(absl::StrCat("l", queue), queues[queue]))}};
    }
    if (kind < 42) {
      queues[queue] = MakeFirmQueue(absl::StrCat("q", queue));
      return {{"clusterQueue", queues[queue]}};
    }
    if (kind < 45) return {{"flavor", MakeFlavor(Pick(flavors))}};
    if (kind < 48 && !cohort_names_.empty()) return MakeCohortEvent();
    if (pending.size() > 12) return {{"ends", Pick(pending)}};
    json workload = MakeWorkload(absl::StrCat("w", arrived++), queues[queue], false);
    workload.erase("createdAt");
    workload["clusterQueue"] = absl::StrCat("l", queue);
    workload["priority"] = Below(4) + (Chance(30) ? 4 : 0);
    if (!last_arrival_.is_null() && Chance(30)) {
      workload["podSets"] = last_arrival_["podSets"];
      workload["clusterQueue"] = last_arrival_["clusterQueue"];
      if (Chance(50)) workload["priority"] = last_arrival_["priority"];
    }
    last_arrival_ = workload;
    return {{"arrives", workload}};
  }

  // Its parent is one with a lower number, so that there is no cycle.
  json MakeCohortEvent() {
    const size_t which = Index(cohort_names_.size());
    if (Chance(15)) return {{"deleteCohort", cohort_names_[which]}};
    json spec = json::object();
    const bool has_parent = which > 0 && Chance(75);
    if (has_parent) spec["parentName"] = cohort_names_[Index(which)];
    if (Chance(40)) spec["resourceGroups"] = MakeQuotas(has_parent, 6, true);
    AddWeight(spec);
    return {{"cohort", {{"metadata", {{"name", cohort_names_[which]}}}, {"spec", spec}}}};
  }

  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }
  size_t Index(size_t bound) { return static_cast<size_t>(random_() % bound); }
  bool Chance(int percent) { return Below(100) < percent; }
  template <typename Container>
  const typename Container::value_type& Pick(const Container& all) {
    return all[Index(all.size())];
  }
  static std::string Time(int second) {
    return kube::TimeText(absl::FromUnixSeconds(1'767'225'600 + second));
  }
  std::string Quantity(const std::string& resource, int amount) {
    if (resource == "memory") return absl::StrCat(amount, "Gi");
    if (resource == "cpu" && Chance(30)) return absl::StrCat(amount * 1000, "m");
    return absl::StrCat(amount);
  }

  void MakeGroups() {
    const int shape = Below(10);
    if (shape < 4) {
      groups_.push_back({{"cpu"}, Flavors(1 + Below(3))});
    } else if (shape < 7) {
      groups_.push_back({{"cpu", "memory"}, Flavors(1 + Below(3))});
    } else if (shape < 9) {
      groups_.push_back({{"cpu", "memory"}, Flavors(1 + Below(2))});
      groups_.push_back({{"nvidia.com/gpu"}, Flavors(1 + Below(3))});
    } else {
      groups_.push_back({{"cpu"}, Flavors(1 + Below(2))});
      groups_.push_back({{"nvidia.com/gpu"}, Flavors(1 + Below(2))});
      groups_.push_back({{"pods"}, Flavors(1)});
    }
  }
  std::vector<std::string> Flavors(int count) {
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) names.push_back(absl::StrCat("f", flavor_count_++));
    return names;
  }

  json MakeFlavor(const std::string& name) {
    json spec = json::object();
    if (Chance(40)) spec["nodeLabels"]["zone"] = Chance(50) ? "a" : "b";
    if (Chance(25)) spec["nodeLabels"]["model"] = Chance(50) ? "large" : "7";
    if (Chance(15)) {
      spec["nodeTaints"].push_back({{"key", "spot"}, {"value", "yes"}, {"effect", Effect()}});
      if (Chance(15)) spec["tolerations"].push_back({{"key", "spot"}, {"operator", "Exists"}});
    }
    return {{"metadata", {{"name", name}}}, {"spec", spec}};
  }
  const char* Effect() {
    static const char* const kEffects[] = {"NoSchedule", "NoExecute", "PreferNoSchedule"};
    return kEffects[Below(3)];
  }

  // Trees of up to three levels of cohorts. Some exist only by being named.
  json MakeCohorts() {
    json cohorts = json::array();
    const int count = Chance(15) ? 0 : 1 + Below(5);
    std::vector<int> depth;
    for (int i = 0; i < count; ++i) {
      const std::string name = absl::StrCat("c", i);
      cohort_names_.push_back(name);
      const size_t parent = i > 0 ? Index(static_cast<size_t>(i)) : 0;
      const bool has_parent = i > 0 && depth[parent] < 2 && Chance(75);
      depth.push_back(has_parent ? depth[parent] + 1 : 0);
      if (!has_parent && Chance(50)) continue;
      json spec = json::object();
      if (has_parent) spec["parentName"] = cohort_names_[parent];
      if (Chance(40)) spec["resourceGroups"] = MakeQuotas(has_parent, 6, true);
      AddWeight(spec);
      cohorts.push_back({{"metadata", {{"name", name}}}, {"spec", spec}});
    }
    return cohorts;
  }
  void AddWeight(json& spec) {
    static const char* const kWeights[] = {"0", "500m", "1", "2", "3", "1500m"};
    if (fair_sharing_ && Chance(40)) spec["fairSharing"]["weight"] = kWeights[Below(6)];
  }

  json MakeQuotas(bool may_limit, int most, bool is_cohort) {
    json groups = json::array();
    for (const GroupShape& shape : groups_) {
      if (!groups.empty() && Chance(15)) continue;
      std::vector<std::string> flavors = shape.flavors;
      if (flavors.size() > 1 && Chance(30)) flavors.erase(flavors.begin() + Below(2));
      if (flavors.size() > 1 && Chance(30)) std::swap(flavors.front(), flavors.back());
      json quotas = json::array();
      for (const std::string& flavor : flavors) {
        json resources = json::array();
        for (const std::string& name : shape.resources) {
          const int nominal = Below(most + 1);
          json quota = {{"name", name}, {"nominalQuota", Quantity(name, nominal)}};
          if (may_limit && Chance(25)) quota["borrowingLimit"] = Quantity(name, Below(6));
          if (may_limit && Chance(25)) {
            quota["lendingLimit"] = Quantity(name, Below((is_cohort ? nominal + 4 : nominal) + 1));
          }
          resources.push_back(std::move(quota));
        }
        quotas.push_back({{"name", flavor}, {"resources", resources}});
      }
      groups.push_back({{"coveredResources", shape.resources}, {"flavors", quotas}});
    }
    return groups;
  }

  json MakeQueue(const std::string& name) {
    json spec = {{"namespaceSelector", json::object()}};
    const bool has_cohort = !cohort_names_.empty() && Chance(90);
    if (has_cohort) spec["cohortName"] = Pick(cohort_names_);
    spec["resourceGroups"] = MakeQuotas(has_cohort, most_nominal_, false);
    static const char* const kWithin[] = {"Never", "LowerPriority", "LowerOrNewerEqualPriority"};
    static const char* const kReclaim[] = {"Never", "LowerPriority", "Any"};
    const int from = likes_preemption_ && Chance(80) ? 1 : 0;
    json preemption = {{"withinClusterQueue", kWithin[from + Below(3 - from)]},
                       {"reclaimWithinCohort", kReclaim[from + Below(3 - from)]}};
    if (preemption["reclaimWithinCohort"] != "Never" && Chance(40)) {
      preemption["borrowWithinCohort"]["policy"] = "LowerPriority";
      if (Chance(50)) preemption["borrowWithinCohort"]["maxPriorityThreshold"] = Below(4);
    }
    spec["preemption"] = preemption;
    if (Chance(60)) {
      const bool borrow_on = Chance(60);
      const bool preempt_on = Chance(60);
      json fungibility = {{"whenCanBorrow", borrow_on ? "TryNextFlavor" : "MayStopSearch"},
                          {"whenCanPreempt", preempt_on ? "TryNextFlavor" : "MayStopSearch"}};
      // Kueue's CRD allows a preference only where the search goes on.
      if (borrow_on && preempt_on && Chance(60)) {
        fungibility["preference"] =
            Chance(50) ? "BorrowingOverPreemption" : "PreemptionOverBorrowing";
      }
      spec["flavorFungibility"] = fungibility;
    }
    AddWeight(spec);
    return {{"metadata", {{"name", name}}}, {"spec", spec}};
  }

  json MakeWorkload(const std::string& name, const json& queue, bool admitted) {
    json pod_sets = json::array();
    const int count = Chance(25) ? 2 : 1;
    for (int i = 0; i < count; ++i) {
      pod_sets.push_back(
          MakePodSet(absl::StrCat("s", i), queue["spec"]["resourceGroups"], admitted));
    }
    return {{"uid", name},
            {"name", name},
            {"clusterQueue", queue["metadata"]["name"]},
            {"priority", Below(4)},
            {"createdAt", Time(Below(20))},
            {"podSets", pod_sets}};
  }

  json MakePodSet(const std::string& name, const json& groups, bool admitted) {
    json pod_set = {{"name", name}, {"count", 1 + Below(admitted ? 3 : 2)}};
    json requests = json::object();
    json flavors = json::object();
    for (const json& group : groups) {
      const std::string flavor = Pick(group["flavors"])["name"];
      for (const std::string resource : group["coveredResources"]) {
        if (resource == "pods") {
          flavors[resource] = flavor;
          continue;
        }
        if (Chance(12)) continue;
        const int most = admitted ? (crowded_ ? 5 : 3) : 4;
        requests[resource] = Quantity(resource, Chance(5) ? 0 : 1 + Below(most));
        flavors[resource] = flavor;
      }
    }
    if (!admitted && Chance(2)) requests["example.com/nothing"] = "1";
    pod_set["requests"] = requests;
    if (admitted) {
      pod_set["flavors"] = flavors;
      return pod_set;
    }
    if (Chance(20)) pod_set["nodeSelector"]["zone"] = Chance(50) ? "a" : "b";
    if (Chance(10)) pod_set["nodeSelector"]["hostname"] = "h1";
    if (Chance(30)) {
      json toleration = {{"key", "spot"}, {"operator", "Equal"}, {"value", "yes"}};
      if (Chance(30)) toleration["effect"] = "NoSchedule";
      pod_set["tolerations"].push_back(std::move(toleration));
    }
    if (Chance(20)) pod_set["affinity"] = MakeAffinity();
    return pod_set;
  }

  json MakeAffinity() {
    json terms = json::array();
    const int count = 1 + Below(2);
    for (int i = 0; i < count; ++i) {
      json expressions = json::array();
      const int expression_count = 1 + Below(2);
      for (int e = 0; e < expression_count; ++e) expressions.push_back(MakeExpression());
      terms.push_back({{"matchExpressions", expressions}});
    }
    json affinity;
    affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = {
        {"nodeSelectorTerms", terms}};
    return affinity;
  }
  json MakeExpression() {
    switch (Below(6)) {
      case 0:
        return Expression("zone", "In", "a");
      case 1:
        return Expression("zone", "NotIn", "a");
      case 2:
        return {{"key", "model"}, {"operator", "Exists"}};
      case 3:
        return {{"key", "model"}, {"operator", "DoesNotExist"}};
      case 4:
        return Expression("model", "Gt", "5");
      default:
        return Expression("hostname", "In", "h1");
    }
  }
  static json Expression(const char* key, const char* op, const char* value) {
    return {{"key", key}, {"operator", op}, {"values", json::array({value})}};
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
  bool fair_sharing_ = false;
  bool crowded_ = false;
  int flavor_count_ = 0;
  int most_nominal_ = 10;  // of a queue's flavor
  bool likes_preemption_ = false;
  std::vector<GroupShape> groups_;
  std::vector<std::string> cohort_names_;
  json last_arrival_;  // in a history
};

}  // namespace

json MakeCase(uint64_t seed) { return CaseMaker(seed).Make(); }

json MakeHistory(uint64_t seed) { return CaseMaker(seed ^ 0xA5A5A5A5u).MakeHistory(); }

}  // namespace muster::quota::testing
