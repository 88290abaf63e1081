// How long a plan takes, and how that compares with what any planner must do: look at each node.
//
// A plan is one thread's work, so what is held to the limit is its CPU time, that of the first plan
// of a case and the median of all others: it is the plan's duration on a machine that does nothing
// else. Counters: "tree_ms" is what it took to build the tree of domains of all nodes,
// "best_ms" is the fastest plan by the clock; "walks" is that time in walks, where a walk visits
// all nodes of the snapshot and reads how many GPUs are free on each.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "cluster/snapshot.h"
#include "coscheduling/placement/planner/planner.h"
#include "coscheduling/placement/planner/testing.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"
#include "tests/bench/machine.h"

namespace muster::coscheduling {
namespace {

using testing::GangWorld;

constexpr int kNodes = 5000;
constexpr int kMembers = 1000;
constexpr int kGpus = 8;
constexpr double kLimitMs = 20;
constexpr double kLargeLimitMs = 100;
constexpr double kMembersPerSecond = 3000;

std::string Name(const std::string& prefix, int number) {
  std::string digits = std::to_string(number);
  return prefix + std::string(5 - digits.size(), '0') + digits;
}

kube::Node BenchNode(int i) {
  static const char* const kZones[] = {"us-west-2a", "us-west-2b", "us-west-2c"};
  kube::Node node = testing::NodeWith(Name("ip-10-0-", i), kZones[i % 3], kGpus, 192);
  // As many labels as a node that Karpenter makes has.
  for (const char* label :
       {"beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
        "k8s.io/cloud-provider-aws", "karpenter.k8s.aws/instance-category",
        "karpenter.k8s.aws/instance-cpu", "karpenter.k8s.aws/instance-family",
        "karpenter.k8s.aws/instance-gpu-count", "karpenter.k8s.aws/instance-gpu-name",
        "karpenter.k8s.aws/instance-memory", "karpenter.sh/capacity-type", "kubernetes.io/arch",
        "kubernetes.io/os", "node.kubernetes.io/instance-type", "topology.kubernetes.io/region"}) {
    node.meta.labels[label] = "value";
  }
  node.meta.labels["karpenter.sh/nodepool"] = "gpu";
  node.meta.labels["karpenter.sh/registered"] = "true";
  node.meta.labels["karpenter.sh/initialized"] = "true";
  node.allocatable.Set("memory", int64_t{2000} << 30);
  node.capacity = node.allocatable;
  node.taints.push_back({"nvidia.com/gpu", "", kube::TaintEffect::kNoSchedule});
  return node;
}

// 5,000 nodes of 8 GPUs in three zones, four pods on each, a fifth of the nodes busy; in the last
// zone all but a hundred if it is crowded.
GangWorld& Cluster(GangWorld& world, bool crowded_zone = false) {
  for (int i = 0; i < kNodes; ++i) {
    kube::Node node = BenchNode(i);
    std::string name = node.meta.name;
    world.Add(std::move(node));
    for (int p = 0; p < 4; ++p) {
      const bool busy = i % 5 == 0 || (crowded_zone && i % 3 == 2 && i >= 300);
      int64_t gpus = p == 0 && busy ? kGpus : 0;
      kube::Pod pod = testing::PodWith(name + "-" + std::to_string(p), testing::SpecWith(gpus),
                                       {{"app", p == 0 ? "job" : "daemon"}});
      world.Add(testing::Bound(std::move(pod), name));
    }
  }
  return world;
}

kube::PodSpec MemberSpec(int64_t gpus) {
  kube::PodSpec spec = testing::SpecWith(gpus, 8);
  spec.requests.Set("memory", int64_t{64} << 30);
  spec.tolerations.push_back({"nvidia.com/gpu", true, "", std::nullopt});
  spec.node_selector["karpenter.sh/nodepool"] = "gpu";
  return spec;
}

// Each member has a label of its own, as those of a Job have.
void AddGang(GangWorld& world, int count, const kube::PodSpec& spec, const std::string& role) {
  for (int i = 0; i < count; ++i) {
    world.AddMember(
        testing::PodWith(Name("member-" + role, i), spec,
                         {{"job", "train"}, {"role", role}, {"index", std::to_string(i)}}));
  }
}

double WalkSeconds(const cluster::Snapshot& snapshot) {
  double best = 1;
  for (int round = 0; round < 100; ++round) {
    auto start = std::chrono::steady_clock::now();
    int64_t free = 0;
    for (const auto& [name, info] : snapshot.nodes()) free += info.Free("nvidia.com/gpu");
    benchmark::DoNotOptimize(free);
    std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
  }
  return best;
}

// By case: the CPU times and durations of its plans, in milliseconds.
struct Times {
  std::vector<double> cpu;
  std::vector<double> clock;
  double first = 0;  // CPU time of the first
  double limit = kLimitMs;
  bool wrong = false;
};
std::map<std::string, Times>& AllTimes() {
  static std::map<std::string, Times> times;
  return times;
}

void Measure(benchmark::State& state, const std::string& name, GangWorld& world,
             bool complete = true, double limit = kLimitMs) {
  Times& times = AllTimes()[name];
  times.limit = limit;
  // The tree stands before anybody is planned; the first plan for members of a shape looks at all
  // nodes.
  double before = bench::ThreadCpu();
  world.Follow();
  state.counters["tree_ms"] = (bench::ThreadCpu() - before) * 1e3;
  before = bench::ThreadCpu();
  benchmark::DoNotOptimize(world.MakePlan());
  times.first = (bench::ThreadCpu() - before) * 1e3;
  state.counters["first_ms"] = times.first;
  double best = 1e9;
  for (auto _ : state) {
    const double cpu_before = bench::ThreadCpu();
    auto start = std::chrono::steady_clock::now();
    Plan plan = world.MakePlan();
    std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    times.cpu.push_back((bench::ThreadCpu() - cpu_before) * 1e3);
    times.clock.push_back(time.count() * 1e3);
    best = std::min(best, time.count());
    if (plan.complete != complete) {
      times.wrong = true;
      state.SkipWithError("the plan isn't what was expected");
      break;
    }
    benchmark::DoNotOptimize(plan);
  }
  state.counters["best_ms"] = best * 1e3;
  state.counters["walks"] = best / WalkSeconds(world.snapshot());
}

struct Decisions {
  int64_t members = 0;
  double cpu = 0;
  bool wrong = false;
};
Decisions& AllDecisions() {
  static Decisions decisions;
  return decisions;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// True if all cases kept the limit.
bool Judge() {
  bool good = true;
  for (const auto& [name, times] : AllTimes()) {
    const double cpu = Median(times.cpu);
    const bool kept = cpu <= times.limit && times.first <= times.limit && !times.wrong;
    good &= kept;
    std::cout << fmt::format(
        "{}: plan of {}: {:.1f} ms CPU, {:.1f} ms by the clock, the first one {:.1f} ms CPU "
        "(limit: "
        "{} ms CPU){}\n",
        kept ? "passed" : "FAILED", name, cpu, Median(times.clock), times.first, times.limit,
        times.wrong ? ", and not the plan expected" : "");
  }
  const Decisions& decisions = AllDecisions();
  if (decisions.members == 0) return good;
  const double rate = static_cast<double>(decisions.members) / decisions.cpu;
  const bool kept = rate >= kMembersPerSecond && !decisions.wrong;
  std::cout << fmt::format("{}: {:.0f} members/s of gangs that want a leaf (at least {})\n",
                           kept ? "passed" : "FAILED", rate, kMembersPerSecond);
  return good && kept;
}

void WalkNodes(benchmark::State& state) {
  GangWorld world;
  Cluster(world);
  for (auto _ : state) {
    int64_t free = 0;
    for (const auto& [name, info] : world.snapshot().nodes()) free += info.Free("nvidia.com/gpu");
    benchmark::DoNotOptimize(free);
  }
}

void WholeNodeMembers(benchmark::State& state) {
  GangWorld world;
  AddGang(Cluster(world), kMembers, MemberSpec(kGpus), "worker");
  Measure(state, "WholeNodeMembers", world);
}

void EightMembersPerNode(benchmark::State& state) {
  GangWorld world;
  AddGang(Cluster(world), kMembers, MemberSpec(1), "worker");
  Measure(state, "EightMembersPerNode", world);
}

void MasterAndWorkers(benchmark::State& state) {
  GangWorld world;
  kube::PodSpec master = MemberSpec(0);
  AddGang(Cluster(world), 1, master, "master");
  AddGang(world, kMembers - 1, MemberSpec(kGpus), "worker");
  Measure(state, "MasterAndWorkers", world);
}

// Classes whose members differ in what they ask for.
void EightClasses(benchmark::State& state) {
  GangWorld world;
  Cluster(world);
  for (int i = 0; i < 8; ++i) {
    kube::PodSpec spec = MemberSpec(1 + i % kGpus);
    spec.requests.Set("memory", int64_t{64 + i} << 30);
    AddGang(world, kMembers / 8, spec, Name("role", i));
  }
  Measure(state, "EightClasses", world);
}

void AntiAffinityPerHost(benchmark::State& state) {
  GangWorld world;
  kube::PodSpec spec = MemberSpec(2);
  spec.affinity.required_pod_anti_affinity.push_back(
      testing::Term("job", "train", kube::kHostnameLabel));
  AddGang(Cluster(world), kMembers, spec, "worker");
  Measure(state, "AntiAffinityPerHost", world);
}

void SpreadOverZones(benchmark::State& state) {
  GangWorld world;
  kube::PodSpec spec = MemberSpec(1);
  spec.topology_spread.push_back(testing::Spread("job", "train", kube::kZoneLabel));
  AddGang(Cluster(world), kMembers, spec, "worker");
  Measure(state, "SpreadOverZones", world);
}

void AntiAffinityPerHostAndSpreadOverZones(benchmark::State& state) {
  GangWorld world;
  kube::PodSpec spec = MemberSpec(2);
  spec.affinity.required_pod_anti_affinity.push_back(
      testing::Term("job", "train", kube::kHostnameLabel));
  spec.topology_spread.push_back(testing::Spread("job", "train", kube::kZoneLabel));
  AddGang(Cluster(world), kMembers, spec, "worker");
  Measure(state, "AntiAffinityPerHostAndSpreadOverZones", world);
}

void MasterAndWorkersSpreadOverZones(benchmark::State& state) {
  GangWorld world;
  kube::PodSpec master = MemberSpec(0);
  kube::PodSpec worker = MemberSpec(1);
  for (kube::PodSpec* spec : {&master, &worker}) {
    spec->topology_spread.push_back(testing::Spread("job", "train", kube::kZoneLabel));
  }
  AddGang(Cluster(world), 1, master, "master");
  AddGang(world, kMembers - 1, worker, "worker");
  Measure(state, "MasterAndWorkersSpreadOverZones", world);
}

void AllOnOneHost(benchmark::State& state) {
  GangWorld world;
  kube::PodSpec spec = MemberSpec(2);
  spec.affinity.required_pod_affinity.push_back(
      testing::Term("job", "train", kube::kHostnameLabel));
  AddGang(Cluster(world), 4, spec, "worker");
  Measure(state, "AllOnOneHost", world);
}

void TooLargeGang(benchmark::State& state) {
  GangWorld world;
  AddGang(Cluster(world), 4100, MemberSpec(kGpus), "worker");
  Measure(state, "TooLargeGang", world, /*complete=*/false);
}

void NoNodeFits(benchmark::State& state) {
  GangWorld world;
  AddGang(Cluster(world), kMembers, MemberSpec(2 * kGpus), "worker");
  Measure(state, "NoNodeFits", world, /*complete=*/false);
}

// Two zones have room for all, the third doesn't have a third.
void SpreadOverACrowdedZone(benchmark::State& state) {
  GangWorld world;
  kube::PodSpec spec = MemberSpec(kGpus);
  spec.topology_spread.push_back(testing::Spread("job", "train", kube::kZoneLabel));
  AddGang(Cluster(world, /*crowded_zone=*/true), kMembers, spec, "worker");
  Measure(state, "SpreadOverACrowdedZone", world, /*complete=*/false);
}

void AntiAffinityAndSpreadOverACrowdedZone(benchmark::State& state) {
  GangWorld world;
  kube::PodSpec spec = MemberSpec(2);
  spec.affinity.required_pod_anti_affinity.push_back(
      testing::Term("job", "train", kube::kHostnameLabel));
  spec.topology_spread.push_back(testing::Spread("job", "train", kube::kZoneLabel));
  AddGang(Cluster(world, /*crowded_zone=*/true), kMembers, spec, "worker");
  Measure(state, "AntiAffinityAndSpreadOverACrowdedZone", world, /*complete=*/false);
}

// --- trees of domains ---

// So many nodes in leaves of ten, ten leaves to a spine and ten spines to a pod of the network, in
// three zones; a fifth of the nodes, or so much of all devices, in use.
GangWorld& Tree(GangWorld& world, int nodes, double used) {
  uint64_t seed = 1;
  for (int i = 0; i < nodes; ++i) {
    kube::Node node = BenchNode(i);
    node.meta.labels[kube::kZoneLabel] = Name("zone-", i * 3 / nodes);
    for (int layer = 1, size = 1000; layer <= 3; ++layer, size /= 10) {
      node.meta.labels[fmt::format("topology.k8s.aws/network-node-layer-{}", layer)] =
          fmt::format("nn-{}-{}-{}", layer, i * 3 / nodes, i / size);
    }
    std::string name = node.meta.name;
    world.Add(std::move(node));
    int gpus = 0;
    for (int g = 0; g < kGpus; ++g) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      gpus += static_cast<double>(seed >> 40) < used * (1 << 24) ? 1 : 0;
    }
    if (gpus > 0) world.Add(testing::Bound(testing::PodWith(name, testing::SpecWith(gpus)), name));
  }
  return world;
}

void WholeNodesOfATree(benchmark::State& state) {
  GangWorld world;
  AddGang(Tree(world, kNodes, 0.05), kMembers, MemberSpec(kGpus), "worker");
  Measure(state, "WholeNodesOfATree", world);
}

void SharedNodesOfATree(benchmark::State& state) {
  GangWorld world;
  AddGang(Tree(world, kNodes, 0.5), kMembers, MemberSpec(1), "worker");
  Measure(state, "SharedNodesOfATree", world);
}

void MasterAndWorkersOfATree(benchmark::State& state) {
  GangWorld world;
  AddGang(Tree(world, kNodes, 0.05), 1, MemberSpec(0), "master");
  AddGang(world, kMembers - 1, MemberSpec(kGpus), "worker");
  Measure(state, "MasterAndWorkersOfATree", world);
}

void TenThousandMembersOnAHundredThousandNodes(benchmark::State& state) {
  GangWorld world;
  AddGang(Tree(world, 100'000, 0.05), 10'000, MemberSpec(kGpus), "worker");
  Measure(state, "TenThousandMembersOnAHundredThousandNodes", world, /*complete=*/true,
          kLargeLimitMs);
}

// The most members that one leaf holds, by a walk over all nodes.
int64_t MostInOneLeaf(const cluster::Snapshot& snapshot) {
  std::map<std::string, int64_t> leaves;
  for (const auto& [name, info] : snapshot.nodes()) {
    leaves[*info.node->meta.Label("topology.k8s.aws/network-node-layer-3")] +=
        info.Free("nvidia.com/gpu");
  }
  int64_t most = 0;
  for (const auto& [leaf, free] : leaves) most = std::max(most, free);
  return most;
}

// 5,000 nodes in 500 leaves, this share of the devices in use: gangs of four that want one leaf,
// each gone before the next one comes.
void DecideOfALeaf(benchmark::State& state, double used, int gangs, Decisions* decisions) {
  GangWorld world;
  AddGang(Tree(world, kNodes, used), 4, MemberSpec(1), "worker");
  world.request().required_topology_key = "topology.k8s.aws/network-node-layer-3";
  const bool fits = MostInOneLeaf(world.snapshot()) >= 4;
  for (auto _ : state) {
    const double before = bench::ThreadCpu();
    for (int gang = 0; gang < gangs; ++gang) {
      const Plan plan = world.MakePlan();
      AllDecisions().wrong |= plan.complete != fits;
      for (const auto& [uid, node] : plan.placements) {
        AllDecisions().wrong |= !world.snapshot().Assume(uid, node).ok();
      }
      for (const auto& [uid, node] : plan.placements) world.snapshot().Forget(uid);
    }
    decisions->cpu += bench::ThreadCpu() - before;
    decisions->members += int64_t{4} * gangs;
  }
  state.counters["members/s"] = static_cast<double>(decisions->members) / decisions->cpu;
  if (AllDecisions().wrong) state.SkipWithError("a decision isn't what the leaves' devices say");
}

void GangsOfARequiredLeaf(benchmark::State& state) {
  DecideOfALeaf(state, 0.85, 1500, &AllDecisions());
}

// Why they are refused is told of each node.
void RefusedGangsOfARequiredLeaf(benchmark::State& state) {
  Decisions refused;
  DecideOfALeaf(state, 0.995, 50, &refused);
}

void Recheck(benchmark::State& state) {
  GangWorld world;
  AddGang(Cluster(world), kMembers, MemberSpec(kGpus), "worker");
  Plan plan = world.MakePlan();
  for (auto _ : state) {
    auto broken = world.FirstBroken(plan.placements);
    if (broken) state.SkipWithError("the plan is broken");
  }
}

BENCHMARK(WalkNodes)->Unit(benchmark::kMillisecond);
BENCHMARK(WholeNodeMembers)->Unit(benchmark::kMillisecond);
BENCHMARK(EightMembersPerNode)->Unit(benchmark::kMillisecond);
BENCHMARK(MasterAndWorkers)->Unit(benchmark::kMillisecond);
BENCHMARK(EightClasses)->Unit(benchmark::kMillisecond);
BENCHMARK(AntiAffinityPerHost)->Unit(benchmark::kMillisecond);
BENCHMARK(SpreadOverZones)->Unit(benchmark::kMillisecond);
BENCHMARK(AntiAffinityPerHostAndSpreadOverZones)->Unit(benchmark::kMillisecond);
BENCHMARK(MasterAndWorkersSpreadOverZones)->Unit(benchmark::kMillisecond);
BENCHMARK(AllOnOneHost)->Unit(benchmark::kMillisecond);
BENCHMARK(TooLargeGang)->Unit(benchmark::kMillisecond);
BENCHMARK(NoNodeFits)->Unit(benchmark::kMillisecond);
BENCHMARK(SpreadOverACrowdedZone)->Unit(benchmark::kMillisecond);
BENCHMARK(AntiAffinityAndSpreadOverACrowdedZone)->Unit(benchmark::kMillisecond);
BENCHMARK(WholeNodesOfATree)->Unit(benchmark::kMillisecond);
BENCHMARK(SharedNodesOfATree)->Unit(benchmark::kMillisecond);
BENCHMARK(MasterAndWorkersOfATree)->Unit(benchmark::kMillisecond);
BENCHMARK(TenThousandMembersOnAHundredThousandNodes)->Unit(benchmark::kMillisecond);
BENCHMARK(GangsOfARequiredLeaf)->Unit(benchmark::kMillisecond);
BENCHMARK(RefusedGangsOfARequiredLeaf)->Unit(benchmark::kMillisecond);
BENCHMARK(Recheck)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace muster::coscheduling

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const muster::bench::MachineLoad machine;
  benchmark::RunSpecifiedBenchmarks();
  std::cout << "machine: " << machine.Describe() << "\n";
  return muster::coscheduling::Judge() ? 0 : 1;
}
