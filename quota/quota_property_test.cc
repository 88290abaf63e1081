// Whatever happens in whatever order: usage is what the admissions add up to, no limit is passed,
// passes end, and nobody waits for quota that is free.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quota/quota_scheduler.h"
#include "quota/testing/quota_world.h"
#include "tests/full.h"

namespace muster::quota {
namespace {

using ::testing::IsEmpty;
using namespace testing;  // NOLINT(google-build-using-namespace): the words of these tests

// Quota of a tree of one resource by its definition, from a list of admissions.
class Definition {
 public:
  struct Node {
    std::string parent;
    std::map<std::string, FlavorQuota> quotas;
  };
  std::map<std::string, Node> nodes;
  std::map<std::string, std::map<std::string, int64_t>> used;  // queue, flavor

  int64_t Subtree(const std::string& name, const std::string& flavor) const {
    int64_t sum = Quota(name, flavor).nominal;
    for (const auto& [child, node] : nodes) {
      if (node.parent == name) sum += Subtree(child, flavor) - Local(child, flavor);
    }
    return sum;
  }
  int64_t Local(const std::string& name, const std::string& flavor) const {
    const auto limit = Quota(name, flavor).lending_limit;
    return limit ? std::max<int64_t>(0, Subtree(name, flavor) - *limit) : 0;
  }
  int64_t Usage(const std::string& name, const std::string& flavor) const {
    auto queue = used.find(name);
    int64_t sum = 0;
    if (queue != used.end() && queue->second.contains(flavor)) sum = queue->second.at(flavor);
    for (const auto& [child, node] : nodes) {
      if (node.parent != name) continue;
      sum += std::max<int64_t>(0, Usage(child, flavor) - Local(child, flavor));
    }
    return sum;
  }
  // "" if every node keeps its limits.
  std::string Broken() const {
    for (const auto& [name, node] : nodes) {
      for (const std::string flavor : {"f0", "f1"}) {
        const int64_t excess = Usage(name, flavor) - Subtree(name, flavor);
        const auto limit = Quota(name, flavor).borrowing_limit;
        if (node.parent.empty() ? excess > 0 : limit && excess > *limit) {
          return absl::StrCat(name, " uses ", excess, " of ", flavor, " too many");
        }
      }
    }
    return "";
  }

 private:
  FlavorQuota Quota(const std::string& name, const std::string& flavor) const {
    const auto& quotas = nodes.at(name).quotas;
    auto it = quotas.find(flavor);
    return it == quotas.end() ? FlavorQuota{} : it->second;
  }
};

// A random tree, and a random history on it.
class History {
 public:
  History(uint64_t seed, bool preempts)
      : random_(seed), world_({.fair_sharing = seed % 3 == 0}), preempts_(preempts) {
    for (const char* flavor : {"f0", "f1"}) world_.Add(Flavor(flavor));
    for (int i = 0; i < 3; ++i) {
      const std::string name = "c" + std::to_string(i);
      const std::string parent = i > 0 && Below(3) > 0 ? "c" + std::to_string(Below(i)) : "";
      kube::Cohort cohort = MakeCohort(name, parent);
      cohort.resource_groups = Quotas(MakeQuotas(name, parent));
      world_.Add(cohort);
    }
    for (int i = 0; i < 4; ++i) AddQueue("q" + std::to_string(i));
  }

  void Step() {
    switch (Below(5)) {
      case 0:
        if (!world_.admissions.empty()) Withdraw(Pick(world_.admissions));
        break;
      case 1:
        if (!waiting_.empty()) {
          world_.scheduler.Withdraw(Pick(waiting_));
          waiting_.erase(picked_);
        }
        break;
      default:
        Enqueue();
    }
    if (Below(3) == 0) Decide();
  }

  void Decide() {
    std::map<std::string, std::set<std::string>> victims_of;  // as decided last
    for (const std::string& word : world_.Schedule()) {
      const size_t arrow = word.find("<-");
      if (arrow == std::string::npos) {
        waiting_.erase(word[0] == '+' ? word.substr(1) : word);
        continue;
      }
      victims_of[word.substr(0, arrow)] = VictimsOf(word.substr(arrow + 2));
    }
    std::set<std::string> victims;
    for (const auto& [id, its_victims] : victims_of) {
      if (world_.Code(id) != WaitCode::kPreempting) continue;
      for (const std::string& victim : its_victims) {
        EXPECT_TRUE(victims.insert(victim).second) << victim << " is counted on twice";
        EXPECT_TRUE(world_.admissions.contains(victim)) << victim;
      }
    }
    Check();
    for (const std::string& victim : victims) {
      if (Below(3) > 0) Withdraw(victim);
    }
  }

  void Check() {
    Definition definition = definition_;
    for (const auto& [id, admission] : world_.admissions) {
      for (const auto* all : {&admission.pod_sets, &admission.surplus}) {
        for (const PodSetAssignment& each : *all) {
          definition.used[admission.cluster_queue][each.flavors.at(kGpu)] += each.usage.Get(kGpu);
        }
      }
    }
    EXPECT_EQ(definition.Broken(), "");
    for (const QueueStatus& queue : world_.scheduler.ClusterQueues(0)) {
      for (const FlavorUsage& usage : queue.usage) {
        EXPECT_EQ(usage.reserved, definition.used[queue.name][usage.flavor]) << queue.name;
      }
    }
    EXPECT_FALSE(world_.scheduler.NeedsSchedule());
    EXPECT_THAT(world_.scheduler.Schedule(At(1000), {}), IsEmpty());
    if (!preempts_) ExpectNobodyStarves(definition);
  }

 private:
  // Every gang has one pod set, so that it fits if it fits in one flavor.
  void ExpectNobodyStarves(Definition& definition) {
    for (const auto& [id, workload] : waiting_) {
      EXPECT_NE(world_.Code(id), WaitCode::kNone) << id;
      for (const std::string flavor : {"f0", "f1"}) {
        const PodSet& pods = workload.pod_sets.front();
        int64_t& used = definition.used[workload.queue][flavor];
        const int64_t amount = pods.count * pods.spec->requests.Get(kGpu);
        used += amount;
        EXPECT_NE(definition.Broken(), "") << id << " would fit in " << flavor;
        used -= amount;
      }
    }
  }

  std::vector<FlavorQuota> MakeQuotas(const std::string& name, const std::string& parent) {
    std::vector<FlavorQuota> quotas;
    definition_.nodes[name].parent = parent;
    for (const char* flavor : {"f0", "f1"}) {
      FlavorQuota quota = {flavor, Below(8)};
      if (!parent.empty() && Below(3) == 0) quota.borrowing_limit = Below(5);
      if (!parent.empty() && Below(3) == 0) {
        quota.lending_limit = Below(static_cast<int>(quota.nominal) + 1);
      }
      definition_.nodes[name].quotas[flavor] = quota;
      quotas.push_back(quota);
    }
    return quotas;
  }

  void AddQueue(const std::string& name) {
    const std::string cohort = Below(5) > 0 ? "c" + std::to_string(Below(3)) : "";
    kube::ClusterQueue queue = Queue(name, MakeQuotas(name, cohort), cohort);
    if (preempts_) {
      queue.preemption.within_cluster_queue = static_cast<kube::WithinQueuePolicy>(Below(3));
      queue.preemption.reclaim_within_cohort = static_cast<kube::ReclaimPolicy>(Below(3));
      queue.preemption.borrow_from_lower_priority = Below(2) == 0;
      if (Below(4) == 0) queue.strategy = kube::QueueingStrategy::kStrictFifo;
    }
    queue.fungibility.when_can_borrow = static_cast<kube::FungibilityPolicy>(Below(2));
    queue.fungibility.when_can_preempt = static_cast<kube::FungibilityPolicy>(Below(2));
    world_.Add(queue);
  }

  void Enqueue() {
    const int number = ++count_;
    Workload gang = Gang("w" + std::to_string(number), "q" + std::to_string(Below(4)), 1 + Below(4),
                         Below(4), number);
    if (Below(3) == 0) gang.surplus = {Pods("worker", 1 + Below(3), 1)};
    world_.Enqueue(gang);
    waiting_[gang.id] = gang;
  }

  void Withdraw(const std::string& id) {
    world_.scheduler.Withdraw(id);
    world_.admissions.erase(id);
  }

  template <typename Map>
  std::string Pick(const Map& map) {
    auto it = map.begin();
    std::advance(it, Below(static_cast<int>(map.size())));
    picked_ = it->first;
    return picked_;
  }
  static std::set<std::string> VictimsOf(const std::string& list) {
    std::set<std::string> victims;
    std::string victim;
    for (char c : list + ",") {
      if (c == ',') victims.insert(std::exchange(victim, ""));
      if (c != ',' && c != '*') victim += c;
    }
    return victims;
  }
  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }

  std::mt19937_64 random_;
  QuotaWorld world_;
  const bool preempts_;
  Definition definition_;
  std::map<std::string, Workload> waiting_;
  std::string picked_;
  int count_ = 0;
};

TEST(QuotaProperty, HoldsAfterAnyHistoryWithPreemption) {
  for (int seed = 0; seed < muster::testing::Rounds(200) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    History history(static_cast<uint64_t>(seed), true);
    for (int step = 0; step < 60; ++step) history.Step();
    history.Decide();
  }
}

TEST(QuotaProperty, NobodyStarvesWhileQuotaIsFree) {
  for (int seed = 0; seed < muster::testing::Rounds(200) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    History history(static_cast<uint64_t>(seed), false);
    for (int step = 0; step < 60; ++step) history.Step();
    history.Decide();
  }
}

}  // namespace
}  // namespace muster::quota
