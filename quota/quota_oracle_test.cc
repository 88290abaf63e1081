// What Kueue has no like of, held to simple oracles: placement, and surplus among the victims.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "quota/judgement.h"
#include "quota/quota_scheduler.h"
#include "quota/testing/case_generator.h"
#include "quota/testing/quota_case.h"
#include "quota/testing/quota_world.h"
#include "tests/full.h"

namespace muster::quota {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the words of these tests

// A flavor that no node can serve is a flavor with a taint that nobody tolerates.
TEST(QuotaOracle, FeasibilityIsAMismatch) {
  for (int seed = 1; seed <= muster::testing::Rounds(300) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const nlohmann::json plain = MakeCase(static_cast<uint64_t>(seed));
    nlohmann::json tainted = plain;
    std::set<std::string> refused;
    for (size_t i = 0; i < plain["flavors"].size(); ++i) {
      if ((seed * 7 + static_cast<int>(i) * 3) % 5 > 1) continue;
      refused.insert(plain["flavors"][i]["metadata"]["name"]);
      tainted["flavors"][i]["spec"]["nodeTaints"].push_back(
          {{"key", "refused"}, {"effect", "NoSchedule"}});
    }
    const Feasibility feasible = [&](const Workload&, const PodSet&,
                                     const kube::ResourceFlavor& flavor) {
      return refused.contains(flavor.meta.name) ? "refused" : "";
    };
    const LoadedCase one = LoadCase(plain);
    const LoadedCase other = LoadCase(tainted);
    for (const Workload& workload : one.pending) {
      const Judgement a = Judge::Alone(*one.scheduler, workload, feasible);
      const Judgement b = Judge::Alone(*other.scheduler, workload, {});
      EXPECT_EQ(a.mode, b.mode);
      EXPECT_EQ(a.borrowing, b.borrowing);
      EXPECT_EQ(a.pod_sets, b.pod_sets);
      EXPECT_EQ(a.victims.size(), b.victims.size());
    }
  }
}

// The victims of one queue with one flavor, by the rule: parts (surplus, or all of a gang) by
// priority, surplus first, latest first, until it fits; then, last to first, back what isn't
// needed.
TEST(QuotaOracle, SurplusGoesFirst) {
  for (int seed = 0; seed < muster::testing::Rounds(500) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    auto below = [&](int bound) {
      return static_cast<int>(random() % static_cast<uint64_t>(bound));
    };
    QuotaWorld world;
    kube::ClusterQueue queue = Queue("q", {{"h100", 20}});
    queue.preemption.within_cluster_queue = kube::WithinQueuePolicy::kLowerPriority;
    world.Add(queue);
    struct Part {
      int gang = 0;
      int64_t priority = 0;
      bool surplus = false;
      int64_t amount = 0;
    };
    std::vector<Part> parts;
    int64_t used = 0;
    for (int i = 0; i < 5; ++i) {
      const int64_t base = 1 + below(3);
      const int64_t surplus = below(3);
      const int64_t priority = below(3);
      if (used + base + surplus > 20) break;
      used += base + surplus;
      Workload gang = Gang(std::to_string(i), "q", base, priority, i);
      if (surplus > 0) gang = WithSurplus(gang, surplus);
      world.Admit({gang});
      if (surplus > 0) parts.push_back({i, priority, true, surplus});
      parts.push_back({i, priority, false, base});
    }
    std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
      return std::tuple(a.priority, !a.surplus, -a.gang) <
             std::tuple(b.priority, !b.surplus, -b.gang);
    });
    const int64_t asked = 20 - used + 1 + below(8);
    const int64_t mine = 1 + below(3);
    std::vector<Part> taken;
    int64_t free = 20 - used;
    for (const Part& part : parts) {
      if (free >= asked || part.priority >= mine) break;
      taken.push_back(part);
      free += part.amount;
    }
    std::map<std::string, bool> victims;  // and whether surplus suffices
    if (free >= asked) {
      for (size_t i = taken.size() - 1; i-- > 0;) {
        // Surplus goes with its gang.
        const bool whole_goes = std::any_of(taken.begin(), taken.end(), [&](const Part& other) {
          return taken[i].surplus && !other.surplus && other.gang == taken[i].gang;
        });
        if (whole_goes || free - taken[i].amount < asked) continue;
        free -= taken[i].amount;
        taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(i));
      }
      for (const Part& part : taken) {
        auto [it, inserted] = victims.try_emplace(std::to_string(part.gang), part.surplus);
        it->second = it->second && part.surplus;
      }
    }
    const Judgement judgement =
        Judge::Alone(world.scheduler, Gang("new", "q", asked, mine, 99), {});
    std::map<std::string, bool> ours;
    for (const Victim& victim : judgement.victims) ours[victim.id] = victim.surplus_only;
    EXPECT_EQ(ours, victims);
  }
}

}  // namespace
}  // namespace muster::quota
