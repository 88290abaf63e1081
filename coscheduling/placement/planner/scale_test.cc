// What is guaranteed for gangs that are too large for brute force, against simpler methods that are
// exact for the case at hand.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cluster/placing_order.h"
#include "cluster/predicates.h"
#include "cluster/relations.h"
#include "coscheduling/placement/planner/planner.h"
#include "coscheduling/placement/planner/testing.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

using testing::GangWorld;

using Random = std::mt19937_64;
int Upto(Random& random, int most) { return static_cast<int>(random() % (most + 1)); }

// --- many classes, a node each ---

// How many members can be matched to nodes one to one, by augmenting paths.
class Matching {
 public:
  explicit Matching(std::vector<std::vector<int>> allowed, int nodes)
      : allowed_(std::move(allowed)), member_of_(nodes, -1) {}
  int Run() {
    int matched = 0;
    for (size_t m = 0; m < allowed_.size(); ++m) {
      seen_.assign(member_of_.size(), false);
      matched += Augment(static_cast<int>(m));
    }
    return matched;
  }

 private:
  bool Augment(int member) {
    for (int node : allowed_[member]) {
      if (seen_[node]) continue;
      seen_[node] = true;
      if (member_of_[node] < 0 || Augment(member_of_[node])) {
        member_of_[node] = member;
        return true;
      }
    }
    return false;
  }

  std::vector<std::vector<int>> allowed_;
  std::vector<int> member_of_;
  std::vector<bool> seen_;
};

TEST(PlannerAtScale, WholeNodeMembersOfManyClassesAreNearlyAllMatched) {
  constexpr int kPools = 8;
  int complete = 0, could_be = 0, left_over = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    Random random(seed);
    GangWorld world;
    int nodes = 20 + Upto(random, 40);
    std::vector<int> pool_of;
    for (int n = 0; n < nodes; ++n) {
      pool_of.push_back(Upto(random, kPools - 1));
      kube::Node node = testing::NodeWith(fmt::format("n{:03}", n), "a", 8);
      node.meta.labels["pool"] = fmt::format("p{}", pool_of[n]);
      world.Add(std::move(node));
    }
    int members = nodes - Upto(random, 3);
    std::vector<std::vector<int>> allowed(members);
    for (int m = 0; m < members; ++m) {
      // Requests that differ, but two never fit on one node.
      kube::PodSpec spec = testing::SpecWith(5 + Upto(random, 3), 1 + Upto(random, 2));
      std::vector<std::string> pools;
      for (int p = 0; p < kPools; ++p) {
        if (Upto(random, 2) == 0) pools.push_back(fmt::format("p{}", p));
      }
      spec.affinity.required_node_terms.emplace().push_back(
          {{{"pool", kube::SelectorOperator::kIn, pools}}, {}});
      world.AddMember(testing::PodWith(fmt::format("m{:03}", m), spec));
      for (int n = 0; n < nodes; ++n) {
        if (std::ranges::count(pools, fmt::format("p{}", pool_of[n])) > 0) allowed[m].push_back(n);
      }
    }
    Plan plan = world.MakePlan();
    int matched = Matching(allowed, nodes).Run();
    could_be += matched == members;
    left_over += matched - static_cast<int>(plan.placements.size());
    ASSERT_LE(static_cast<int>(plan.placements.size()), matched) << "seed " << seed;
    ASSERT_FALSE(world.FirstBroken(plan.placements));
    complete += plan.complete;
  }
  EXPECT_GT(could_be, 10);
  EXPECT_LT(could_be, 140);
  EXPECT_GE(complete, could_be - 3);
  EXPECT_LE(left_over, 12);  // of some 6,000
}

// --- spread ---

// How many members one spread constraint over zones lets in, filling the emptiest zone first.
int LevelFill(std::vector<int> standing, std::vector<int> room, int members, int skew) {
  int placed = 0;
  while (placed < members) {
    int least = *std::ranges::min_element(standing);
    int best = -1;
    for (size_t z = 0; z < standing.size(); ++z) {
      if (room[z] == 0 || standing[z] + 1 - least > skew) continue;
      if (best < 0 || standing[z] < standing[best]) best = static_cast<int>(z);
    }
    if (best < 0) break;
    ++standing[best];
    --room[best];
    ++placed;
  }
  return placed;
}

TEST(PlannerAtScale, ZoneSpreadPlacesAsManyAsTheEmptiestZonesLetIn) {
  int complete = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    GangWorld world;
    std::vector<int> standing(3), room(3);
    int nodes = 6 + Upto(random, 30);
    for (int n = 0; n < nodes; ++n) {
      int zone = n < 3 ? n : Upto(random, 2);
      std::string name = fmt::format("n{:02}", n);
      int gpus = Upto(random, 8);
      world.Add(testing::NodeWith(name, std::string(1, static_cast<char>('a' + zone)), gpus));
      room[zone] += gpus;
      for (int p = Upto(random, 2); p > 0; --p) {
        world.Add(testing::Bound(
            testing::PodWith(fmt::format("{}-{}", name, p), testing::SpecWith(0), {{"job", "j"}}),
            name));
        ++standing[zone];
      }
    }
    int members = 5 + Upto(random, 60);
    int skew = 1 + Upto(random, 3);
    kube::PodSpec spec = testing::SpecWith(1);
    spec.topology_spread.push_back(testing::Spread("job", "j", kube::kZoneLabel, skew));
    world.AddMembers("w", members, spec, {{"job", "j"}});
    Plan plan = world.MakePlan();
    ASSERT_EQ(static_cast<int>(plan.placements.size()), LevelFill(standing, room, members, skew))
        << "seed " << seed;
    complete += plan.complete;
  }
  EXPECT_GT(complete, 50);
  EXPECT_LT(complete, 290);
}

// --- a required leaf ---

// How many members of so many GPUs the leaf with the most room holds.
int64_t MostInOneLeaf(const cluster::Snapshot& snapshot, const std::string& level, int64_t gpus) {
  std::map<std::string, int64_t> leaves;
  int64_t most = 0;
  for (const auto& [name, info] : snapshot.nodes()) {
    int64_t& room = leaves[*info.node->meta.Label(level)];
    room += info.Free("nvidia.com/gpu") / gpus;
    most = std::max(most, room);
  }
  return most;
}

// 5,000 nodes of 8 GPUs in 500 leaves, 85 % in use at first; gangs come, and of those that found a
// place some stay for a while.
TEST(PlannerAtScale, AGangIsRefusedALeafExactlyWhenNoLeafHoldsIt) {
  const std::string level = "topology.k8s.aws/network-node-layer-3";
  Random random(1);
  cluster::Snapshot snapshot;
  for (int n = 0; n < 5000; ++n) {
    const std::string name = fmt::format("n{:04}", n);
    kube::Node node = testing::NodeWith(name, "a", 8, 192);
    node.meta.labels[level] = fmt::format("leaf-{:03}", n / 10);
    snapshot.Upsert(std::move(node));
    int used = 0;
    for (int g = 0; g < 8; ++g) used += Upto(random, 99) < 85;
    snapshot.Upsert(testing::Bound(testing::PodWith(name, testing::SpecWith(used)), name));
  }
  Planner planner;
  std::vector<std::vector<std::string>> standing;
  int refused = 0;
  for (int gang = 0; gang < 300; ++gang) {
    const int gpus = 1 + Upto(random, 7);
    const int size = 1 + Upto(random, gpus == 1 ? 24 : 8);
    PlanRequest request;
    std::vector<std::shared_ptr<const kube::Pod>> members;
    for (int m = 0; m < size; ++m) {
      const std::string name = fmt::format("g{:03}-{}", gang, m);
      snapshot.Upsert(testing::PodWith(name, testing::SpecWith(gpus)));
      members.push_back(snapshot.SharePod("uid-" + name));
      request.members.push_back(members.back().get());
    }
    request.required = members.size();
    request.required_topology_key = level;
    const int64_t most = MostInOneLeaf(snapshot, level, gpus);
    const Plan plan = planner.MakePlan(snapshot, request);
    ASSERT_EQ(plan.complete, most >= size) << "gang " << gang;
    ASSERT_EQ(static_cast<int64_t>(plan.placements.size()), std::min<int64_t>(most, size));
    std::set<std::string> leaves;
    std::vector<std::string> placed;
    for (const auto& [uid, node] : plan.placements) {
      leaves.insert(*snapshot.FindNode(node)->node->meta.Label(level));
      placed.push_back(uid);
    }
    ASSERT_LE(leaves.size(), 1u) << "gang " << gang;
    refused += !plan.complete;
    if (!plan.complete) continue;
    for (const auto& [uid, node] : plan.placements) ASSERT_TRUE(snapshot.Assume(uid, node).ok());
    standing.push_back(std::move(placed));
    if (Upto(random, 1) == 0) continue;
    std::swap(standing[Upto(random, static_cast<int>(standing.size()) - 1)], standing.back());
    for (const std::string& uid : standing.back()) snapshot.Forget(uid);
    standing.pop_back();
  }
  EXPECT_GT(refused, 30);
  EXPECT_LT(refused, 270);
}

// --- whatever it is, it is valid ---

kube::PodSpec AnySpec(Random& random) {
  static const char* const kKeys[] = {kube::kHostnameLabel, kube::kZoneLabel, "rack"};
  auto key = [&] { return kKeys[random() % 3]; };
  kube::PodSpec spec = testing::SpecWith(Upto(random, 3), 1 + Upto(random, 3));
  if (Upto(random, 3) == 0) {
    spec.affinity.required_pod_affinity.push_back(testing::Term("job", "j", key()));
  }
  if (Upto(random, 3) == 0) {
    spec.affinity.required_pod_anti_affinity.push_back(testing::Term("role", "r0", key()));
  }
  if (Upto(random, 2) == 0) {
    spec.topology_spread.push_back(testing::Spread("job", "j", key(), 1 + Upto(random, 2)));
  }
  return spec;
}

// An order in which the planner believes the placements to be valid.
std::vector<const kube::Pod*> ClaimedOrder(const GangWorld& world, const Plan& plan) {
  const PlanRequest& request = world.request();
  std::vector<const cluster::NodeInfo*> infos;
  std::map<std::string, int> index;
  for (const auto& [name, info] : world.snapshot().nodes()) {
    index[name] = static_cast<int>(infos.size());
    infos.push_back(&info);
  }
  cluster::Relations relations(world.snapshot(), request.members, infos, false);
  std::vector<cluster::Placing> placements;
  std::vector<const kube::Pod*> pods;
  for (size_t m = 0; m < request.members.size(); ++m) {
    auto it = plan.placements.find(request.members[m]->meta.uid);
    if (it == plan.placements.end()) continue;
    placements.push_back({relations.KindOf(m), index.at(it->second)});
    pods.push_back(request.members[m]);
  }
  std::vector<const kube::Pod*> order;
  for (size_t i : cluster::PlaceInOrder(placements, &relations).placed) order.push_back(pods[i]);
  return order;
}

// Places them one after the other by the rules of cluster/, each beside those that stand by then.
void ExpectValid(GangWorld& world, const Plan& plan) {
  cluster::Snapshot& snapshot = world.snapshot();
  std::vector<const kube::Pod*> order = ClaimedOrder(world, plan);
  ASSERT_EQ(order.size(), plan.placements.size());
  for (const kube::Pod* pod : order) {
    const std::string& uid = pod->meta.uid;
    const cluster::NodeInfo& info = *snapshot.FindNode(plan.placements.at(uid));
    auto rejection = cluster::CheckAll(snapshot, *pod, info);
    ASSERT_FALSE(rejection) << pod->meta.name << ": " << rejection->detail;
    ASSERT_TRUE(snapshot.Assume(uid, info.name()).ok());
  }
  for (const kube::Pod* pod : order) snapshot.Forget(pod->meta.uid);
}

TEST(PlannerAtScale, EveryPlacementIsValidBesideThoseBeforeIt) {
  size_t placed = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Random random(seed);
    GangWorld world;
    int nodes = 8 + Upto(random, 24);
    for (int n = 0; n < nodes; ++n) {
      kube::Node node = testing::NodeWith(fmt::format("n{:02}", n),
                                          std::string(1, static_cast<char>('a' + Upto(random, 2))),
                                          Upto(random, 8), 8 + Upto(random, 24));
      if (Upto(random, 5) > 0) node.meta.labels["rack"] = fmt::format("r{}", Upto(random, 5));
      world.Add(std::move(node));
    }
    for (int c = Upto(random, 2); c >= 0; --c) {
      world.AddMembers(fmt::format("m{}", c), 1 + Upto(random, 30), AnySpec(random),
                       {{"job", "j"}, {"role", fmt::format("r{}", c)}});
    }
    Plan plan = world.MakePlan();
    auto broken = world.FirstBroken(plan.placements);
    ASSERT_FALSE(broken) << "seed " << seed << ": " << broken->second.detail;
    ExpectValid(world, plan);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    ASSERT_EQ(world.MakePlan().placements, plan.placements) << "seed " << seed;
    placed += plan.placements.size();
  }
  EXPECT_GT(placed, 2000u);
}

}  // namespace
}  // namespace muster::coscheduling
