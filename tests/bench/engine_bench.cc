// What the engine's thread costs while gangs wait in a full cluster: 1,000 of them, of 200 shapes
// with two classes of members each, on 5,000 nodes.
//
//   engine_bench                          every part
//   engine_bench PART...                  events, mixed, sizes, memory, plan, pods
//   engine_bench beats GANGS NODES BEATS  only heartbeats, in a cluster of that size
//
// events   Each event by itself, until the engine has nothing left to do: a node's heartbeat, which
//          changes its resource version only; a pod of another scheduler that comes to a full node,
//          changes, and goes, which makes room for nobody; a node that is freed, until the gang
//          that gets it is bound.
// mixed    2,000 events a second, below, for half a minute of virtual time. As the service's loop
//          does (extender/engine_loop.h), a step takes all that has come, and the thread then rests
//          twenty times as long as it worked, 50 ms at most.
// sizes    The first part's events with 100 to 10,000 gangs and on 1,000 to 20,000 nodes, as a
// table
//          and as engine_bench.svg beside this program. What doesn't depend on the size is flat.
// memory   Resident memory with 20,000 nodes, 150,000 foreign pods and 1,000 gangs.
// plan     On 100,000 nodes of three families in three zones with 615,000 pods, a gang of 10,000
//          members that take a node each, anywhere and in one domain of a network layer, in each
//          mode: what its plan takes, all steps from its last member until the plan is in force,
//          and what is left for each member until it is bound.
// pods     In the same cluster with 50,000 more pods: pod events, a thousand to a step, then also
//          while all nodes are taken and 1,000 gangs wait; and memory for each node and pod.
//
// Times are CPU times of the thread, so that what else the machine does hardly matters; making the
// objects, carrying out what is decided, and reading the clock isn't counted. Each part runs in a
// process of its own and is ended after a time, so that an engine that is far too slow is told
// soon: what wasn't measured by then counts as failed.

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"
#include "tests/bench/cost_plot.h"
#include "tests/bench/engine_world.h"
#include "tests/bench/machine.h"

namespace muster::bench {
namespace {

constexpr double kHeartbeatUs = 20;
constexpr double kForeignPodUs = 10;
constexpr double kFreedUs = 2'000;  // beside the plans of those that get the node
constexpr double kStepUs = 5'000;
constexpr double kResidentMiB = 450;
// A cost that grows with less than this power of the size is flat: caches hold less of more.
constexpr double kFlat = 0.35;
constexpr int kEventsPerSecond = 2'000;
constexpr double kHugePlanUs = 100'000;
constexpr double kHugeStepsUs = 500'000;
constexpr double kHugeEventsPerSecond = 100'000;

// --- figures, and processes that find them ---

// What a part found, by name.
using Figures = std::map<std::string, double>;

// In the child: tells the parent, at once, so that what was found before a part is ended is kept.
class Teller {
 public:
  explicit Teller(int fd) : fd_(fd) {}
  void Tell(const std::string& name, double value) const {
    const std::string line = fmt::format("{} {:.6g}\n", name, value);
    if (write(fd_, line.data(), line.size()) < 0) _exit(2);
  }
  // "heartbeat" becomes "heartbeat.count", ".mean", ".p99" and ".max", in microseconds.
  void Tell(const std::string& name, std::vector<double> us) const {
    if (us.empty()) return;
    std::ranges::sort(us);
    double sum = 0;
    for (double one : us) sum += one;
    const auto count = static_cast<double>(us.size());
    Tell(name + ".mean", sum / count);
    Tell(name + ".p50", us[us.size() / 2]);
    Tell(name + ".p99", us[static_cast<size_t>(0.99 * (count - 1))]);
    Tell(name + ".max", us.back());
    Tell(name + ".count", count);
  }

 private:
  const int fd_;
};

// Runs `part` in a process of its own, which may use so much CPU time. "ended" is set in what it
// found if it wasn't done by then, or died.
Figures RunPart(int cpu_seconds, const std::function<void(const Teller&)>& part) {
  int ends[2];
  if (pipe(ends) != 0) std::exit(2);
  std::cout.flush();
  const pid_t child = fork();
  if (child < 0) std::exit(2);
  if (child == 0) {
    close(ends[0]);
    const auto seconds = static_cast<rlim_t>(cpu_seconds);
    const rlimit limit{seconds, seconds + 1};
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CPU, &limit);
    setrlimit(RLIMIT_CORE, &no_core);
    part(Teller(ends[1]));
    _exit(0);
  }
  close(ends[1]);
  // A machine that is busy otherwise gives it less than a core.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10 * cpu_seconds);
  std::string told;
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd one{ends[0], POLLIN, 0};
    if (poll(&one, 1, 1'000) == 0) continue;
    char chunk[4096];
    const ssize_t n = read(ends[0], chunk, sizeof chunk);
    if (n <= 0) break;
    told.append(chunk, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  if (waitpid(child, &status, WNOHANG) == 0) {
    // It has closed the pipe, or is past the deadline.
    if (std::chrono::steady_clock::now() >= deadline) kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  Figures figures;
  std::istringstream lines(told);
  std::string name;
  double value = 0;
  while (lines >> name >> value) figures[name] = value;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) figures["ended"] = 1;
  return figures;
}

// --- what is measured ---

// Ends a series early.
class Budget {
 public:
  explicit Budget(double cpu_seconds) : end_(ThreadCpu() + cpu_seconds) {}
  bool Left() const { return ThreadCpu() < end_; }

 private:
  const double end_;
};

void CheckAllWait(const EngineWorld& world) {
  std::string others;
  for (const auto& [state, count] : world.States()) {
    if (!state.starts_with("PROVISIONING ")) others += fmt::format(" {} {}", count, state);
  }
  if (others.empty()) return;
  std::cerr << "engine_bench: not all gangs wait for nodes:" << others << "\n";
  _exit(1);
}

// All gangs wait for nodes. Their first plans, signals and statuses are behind them then, and the
// time in which one that has just asked for nodes keeps those that are free (signal_grace).
void AwaitQuiet(EngineWorld& world, const Teller& teller) {
  world.Settle();
  world.Pass(absl::Minutes(1));
  world.Settle();
  teller.Tell("start.s", world.TakeEngineSeconds());
  CheckAllWait(world);
  teller.Tell("waiting", static_cast<double>(world.gang_count()));
}

double TakeUs(EngineWorld& world) { return world.TakeEngineSeconds() * 1e6; }

std::vector<double> Repeat(EngineWorld& world, int times, const std::function<void(int)>& event) {
  std::vector<double> us;
  const Budget budget(8);
  for (int i = 0; i < times && budget.Left(); ++i) {
    world.Pass(absl::Milliseconds(10));
    world.TakeEngineSeconds();
    event(i);
    world.Settle();
    us.push_back(TakeUs(world));
  }
  return us;
}

// Neighbours in time are no neighbours in memory.
int Scattered(int i, int nodes) { return static_cast<int>(int64_t{i} * 7'919 % nodes); }

void MeasureHeartbeats(EngineWorld& world, int times, const Teller& teller) {
  teller.Tell("heartbeat",
              Repeat(world, times, [&](int i) { world.Heartbeat(Scattered(i, world.nodes())); }));
}

void MeasureForeignPods(EngineWorld& world, int times, const Teller& teller) {
  std::vector<std::string> uids;
  teller.Tell("pod.comes", Repeat(world, times, [&](int i) {
                uids.push_back(world.ServiceComes(Scattered(i, world.nodes())));
              }));
  const int came = static_cast<int>(uids.size());
  teller.Tell("pod.changes", Repeat(world, came, [&](int i) { world.ServiceChanges(uids[i]); }));
  teller.Tell("pod.goes", Repeat(world, came, [&](int i) { world.ServiceGoes(uids[i]); }));
}

// Each time the node's tenant goes. It is kept for the first in line, or a gang gets it, alone or
// with nodes that were kept for it. Then that gang is over, and another one of its shape and other
// tenants come.
void MeasureFreedNodes(EngineWorld& world, int times, const Teller& teller) {
  std::vector<double> all;
  std::vector<double> beside_plans;
  std::vector<double> plans;
  std::vector<double> comes;
  const Budget budget(12);
  for (int i = 0; i < times && budget.Left(); ++i) {
    const int node = Scattered(i, world.nodes());
    world.Pass(absl::Seconds(1));
    world.Settle();
    std::string fits;
    for (uint64_t draw = 0; fits.empty(); ++draw) {
      const std::string gang = world.AnyWaitingGang(draw);
      if (NodesOf(world.ShapeOf(gang)) == 1) fits = gang;
    }
    world.TakeEngineSeconds();
    world.TenantGoes(node);
    const double plan_us = world.PlanSeconds(fits) * 1e6;
    world.Settle();
    const double us = TakeUs(world);
    const std::vector<EngineWorld::Bound> bound = world.TakeBound();
    const bool got = bound.size() == 1 && bound.front().nodes.contains(NodeName(node));
    if (!got && !(bound.empty() && world.IsKept(NodeName(node)))) {
      std::cerr << fmt::format("engine_bench: {} is free, not kept, and {} gangs started, want 1\n",
                               NodeName(node), bound.size());
      _exit(1);
    }
    beside_plans.push_back(std::max(0.0, us - plan_us));
    if (!got) continue;
    all.push_back(us);
    plans.push_back(plan_us);
    const int shape = world.ShapeOf(bound.front().gang);
    world.GangGoes(bound.front().gang);
    for (const std::string& one : bound.front().nodes) world.TenantComes(world.NumberOf(one));
    world.Settle();
    world.TakeEngineSeconds();
    world.GangComes(shape);
    world.Settle();
    comes.push_back(TakeUs(world));
  }
  teller.Tell("freed", all);
  teller.Tell("freed.plan", plans);
  teller.Tell("freed.beside", beside_plans);
  teller.Tell("gang.comes", comes);
}

void MeasureEvents(const WorldSize& size, int times, const Teller& teller) {
  EngineWorld world(size);
  AwaitQuiet(world, teller);
  MeasureHeartbeats(world, times, teller);
  MeasureForeignPods(world, times, teller);
  MeasureFreedNodes(world, times / 20, teller);
  CheckAllWait(world);
}

// What happens in a second of the mixed load, of kEventsPerSecond. A gang that got a node runs for
// five seconds; then a tenant and a gang like it come.
enum class Sort {
  kHeartbeat,
  kPodComes,
  kPodChanges,
  kPodGoes,
  kPendingPod,
  kMember,
  kNamespace,
  kRelabel,
  kFreed,
  kWithdrawn,
};
constexpr std::pair<Sort, int> kMixture[] = {
    {Sort::kHeartbeat, 400},   // a node's status, nothing in it that matters
    {Sort::kPodComes, 400},    // a service's pod is bound to a full node
    {Sort::kPodChanges, 400},  // it runs
    {Sort::kPodGoes, 400},    {Sort::kPendingPod, 300},  // one that isn't bound, seen again
    {Sort::kMember, 96},                                 // an annotation of a waiting gang's member
    {Sort::kNamespace, 1},                               // an annotation of a gang's namespace
    {Sort::kRelabel, 1},                                 // a label of a node that nobody selects
    {Sort::kFreed, 1},      // a tenant goes: a gang is placed, bound, and starts
    {Sort::kWithdrawn, 1},  // a user deletes a waiting gang and makes it anew
};

class MixedLoad {
 public:
  explicit MixedLoad(EngineWorld& world) : world_(world) {
    for (const auto& [sort, count] : kMixture) sorts_.insert(sorts_.end(), count, sort);
  }

  void Next() {
    if (place_ == 0) std::ranges::shuffle(sorts_, random_);
    Happen(sorts_[place_]);
    place_ = (place_ + 1) % sorts_.size();
  }

  // Gangs that were bound have run for long enough.
  void EndGangs() {
    for (EngineWorld::Bound& bound : world_.TakeBound()) {
      running_.push_back({world_.now() + absl::Seconds(5), std::move(bound)});
    }
    while (!running_.empty() && running_.front().first <= world_.now()) {
      const EngineWorld::Bound bound = std::move(running_.front().second);
      running_.pop_front();
      const int shape = world_.ShapeOf(bound.gang);
      world_.GangGoes(bound.gang);
      for (const std::string& node : bound.nodes) {
        free_.erase(world_.NumberOf(node));
        world_.TenantComes(world_.NumberOf(node));
      }
      world_.GangComes(shape);
      ++ended_;
    }
  }
  int ended() const { return ended_; }

 private:
  int Draw(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  const std::string& DrawService() {
    return world_.services()[Draw(static_cast<int>(world_.services().size()))];
  }

  void Happen(Sort sort) {
    const int node = Draw(world_.nodes());
    if (world_.services().empty()) world_.ServiceComes(node);
    switch (sort) {
      case Sort::kHeartbeat:
        return world_.Heartbeat(node);
      case Sort::kPodComes:
        world_.ServiceComes(node);
        return;
      case Sort::kPodChanges:
        return world_.ServiceChanges(DrawService());
      case Sort::kPodGoes:
        return world_.ServiceGoes(DrawService());
      case Sort::kPendingPod:
        return world_.PendingServiceChanges();
      case Sort::kMember:
        return world_.MemberChanges(world_.AnyWaitingGang(random_()));
      case Sort::kNamespace:
        return world_.NamespaceChanges();
      case Sort::kRelabel:
        return world_.Relabel(node, std::to_string(random_()));
      case Sort::kFreed:
        if (free_.insert(node).second) world_.TenantGoes(node);
        return;
      case Sort::kWithdrawn: {
        const std::string gang = world_.AnyWaitingGang(random_());
        const int shape = world_.ShapeOf(gang);
        world_.GangGoes(gang);
        world_.GangComes(shape);
        return;
      }
    }
  }

  EngineWorld& world_;
  std::mt19937_64 random_{1};
  std::vector<Sort> sorts_;
  size_t place_ = 0;
  std::set<int> free_;
  std::deque<std::pair<absl::Time, EngineWorld::Bound>> running_;
  int ended_ = 0;
};

void MeasureMixed(const Teller& teller) {
  const absl::Duration kLength = absl::Seconds(30);
  const absl::Duration kBetween = absl::Seconds(1) / kEventsPerSecond;
  constexpr int kRestPerStep = 20;
  const absl::Duration kLongestRest = absl::Milliseconds(50);
  EngineWorld world({});
  AwaitQuiet(world, teller);
  world.hold_answers = true;
  MixedLoad load(world);
  const Budget budget(60);
  const absl::Time begin = world.now();
  absl::Time next = begin;
  std::vector<double> us;
  double busy = 0;
  int events = 0;
  while (world.now() < begin + kLength && budget.Left()) {
    world.DeliverAnswers();
    load.EndGangs();
    for (; next <= world.now(); next += kBetween) {
      load.Next();
      ++events;
    }
    world.Step();
    const double seconds = world.TakeEngineSeconds();
    us.push_back(seconds * 1e6);
    busy += seconds;
    const absl::Duration worked = absl::Seconds(seconds);
    const absl::Duration rest = std::min(kRestPerStep * worked, kLongestRest);
    world.Pass(std::max(worked + rest, next - world.now()));
  }
  teller.Tell("step", us);
  teller.Tell("mixed.events", events);
  teller.Tell("mixed.seconds", absl::ToDoubleSeconds(world.now() - begin));
  teller.Tell("mixed.busy", busy);
  teller.Tell("mixed.gangs", load.ended());
}

// "VmRSS" or "VmHWM" of this process, in MiB.
double MemoryMiB(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stod(line.substr(field.size() + 1)) / 1024;
  }
  return -1;
}

void MeasureMemory(const Teller& teller) {
  constexpr int kNodes = 20'000;
  teller.Tell("before", MemoryMiB("VmRSS"));
  EngineWorld world(
      {.gangs = 1'000, .nodes = kNodes, .services = 150'000 - kNodes * (1 + kDaemons)});
  teller.Tell("loaded", MemoryMiB("VmRSS"));
  AwaitQuiet(world, teller);
  teller.Tell("quiet", MemoryMiB("VmRSS"));
  const Budget budget(20);
  int beats = 0;
  for (; beats < kNodes && budget.Left(); ++beats) {
    world.Pass(absl::Milliseconds(1));
    world.Heartbeat(beats);
    world.Settle();
  }
  teller.Tell("beats", beats);
  teller.Tell("resident", MemoryMiB("VmRSS"));
  teller.Tell("peak", MemoryMiB("VmHWM"));
}

// --- a huge cluster ---

constexpr int kHugeNodes = 100'000;
constexpr int kHugeGang = 10'000;
constexpr int kHugeServices = 50'000;
constexpr int kHugeRounds = 5;
constexpr int kTakenPercent = 15;  // of the nodes, at first
constexpr int kNetworks = 6;       // domains of the network's first layer, two to a zone
constexpr const char* kNetworkLayer = "topology.k8s.aws/network-node-layer-1";

int NetworkOf(int node) { return static_cast<int>(int64_t{node} * kNetworks / kHugeNodes); }

// Of ten spines eight are p5, and one of each of two others with less of everything.
void ChangeHugeNode(int number, kube::Node* node) {
  kube::StringMap& labels = node->meta.labels;
  const int network = NetworkOf(number);
  const std::string zone = fmt::format("us-west-2{}", "abc"[network * 3 / kNetworks]);
  for (const char* key : {kube::kZoneLabel, "failure-domain.beta.kubernetes.io/zone",
                          "topology.ebs.csi.aws.com/zone"}) {
    labels[key] = zone;
  }
  labels[kNetworkLayer] = fmt::format("nn-1{:015x}", network);
  const int family = number / 256 % 10;
  if (family < 8) return;
  const char* type = family == 8 ? "p4d.24xlarge" : "g6e.48xlarge";
  labels[kube::kInstanceTypeLabel] = labels["beta.kubernetes.io/instance-type"] = type;
  labels["nvidia.com/gpu.product"] = family == 8 ? "NVIDIA-A100-SXM4-40GB" : "NVIDIA-L40S";
  node->allocatable.Set(kube::kEfa, 4);
  node->capacity.Set(kube::kEfa, 4);
}

bool HasTenantAtFirst(int node) { return Scattered(node, 100) < kTakenPercent; }

WorldSize HugeSize() {
  WorldSize size{.gangs = 0, .nodes = kHugeNodes, .services = 0};
  size.change_node = ChangeHugeNode;
  size.has_tenant = HasTenantAtFirst;
  return size;
}

// What a gang of kHugeGang took, each time that one came.
struct HugeGangs {
  std::vector<double> arrival, plan, steps, rest;
};

// One comes, is planned, is bound whole, and goes.
void RunHugeGang(EngineWorld& world, const std::string& level, HugeGangs* took) {
  world.Settle();
  world.TakeEngineSeconds();
  const std::string gang = world.GangComes(AlikeShape(kHugeGang), level);
  took->arrival.push_back(TakeUs(world) / kHugeGang);
  took->plan.push_back(world.KeptPlanSeconds(gang, level) * 1e6);
  const uint64_t plans = world.engine().TakeStats().plans;
  // What comes of the step that plans isn't the plan's.
  world.hold_answers = true;
  for (int steps = 0;; ++steps) {
    world.Step();
    if (world.engine().TakeStats().plans != plans) break;
    world.DeliverAnswers();
    if (steps == 100) _exit(1);
  }
  took->steps.push_back(TakeUs(world));
  world.hold_answers = false;
  world.DeliverAnswers();
  world.Settle();
  took->rest.push_back(TakeUs(world) / kHugeGang);
  const std::vector<EngineWorld::Bound> bound = world.TakeBound();
  std::set<int> networks;
  for (const EngineWorld::Bound& one : bound) {
    for (const std::string& node : one.nodes) networks.insert(NetworkOf(world.NumberOf(node)));
  }
  if (bound.size() != 1 || bound.front().nodes.size() != kHugeGang ||
      (!level.empty() && networks.size() != 1)) {
    std::cerr << fmt::format("engine_bench: {} gangs of {} were bound, over {} networks\n",
                             bound.size(), kHugeGang, networks.size());
    _exit(1);
  }
  world.GangGoes(gang);
}

void MeasureHugeGangs(bool standalone, const Teller& teller) {
  WorldSize size = HugeSize();
  size.standalone = standalone;
  EngineWorld world(size);
  for (const char* level : {"", kNetworkLayer}) {
    HugeGangs took;
    for (int round = 0; round < kHugeRounds; ++round) RunHugeGang(world, level, &took);
    const std::string name = *level == 0 ? "anywhere" : "network";
    teller.Tell(name + ".arrival", took.arrival);
    teller.Tell(name + ".plan", took.plan);
    teller.Tell(name + ".steps", took.steps);
    teller.Tell(name + ".rest", took.rest);
  }
}

// So many of one sort, a thousand to each step.
void RunEvents(EngineWorld& world, const std::string& name, int count, const Teller& teller,
               const std::function<void(int)>& event) {
  world.Settle();
  world.TakeEngineSeconds();
  for (int i = 0; i < count; ++i) {
    event(i);
    if (i % 1'000 != 999) continue;
    world.Pass(absl::Milliseconds(10));
    world.Settle();
  }
  teller.Tell(name, TakeUs(world) / count);
}

void RunPodEvents(EngineWorld& world, const std::string& name, const Teller& teller) {
  constexpr int kEvents = 100'000;
  std::vector<std::string> uids;
  RunEvents(world, name + ".comes", kEvents, teller,
            [&](int i) { uids.push_back(world.ServiceComes(Scattered(i, kHugeNodes))); });
  RunEvents(world, name + ".changes", kEvents, teller,
            [&](int i) { world.ServiceChanges(uids[i]); });
  RunEvents(world, name + ".goes", kEvents, teller, [&](int i) { world.ServiceGoes(uids[i]); });
}

void MeasureHugePods(const Teller& teller) {
  WorldSize size = HugeSize();
  size.services = kHugeServices;
  size.loaded = [&](const std::string& what) { teller.Tell(what, MemoryMiB("VmRSS")); };
  EngineWorld world(size);
  RunPodEvents(world, "free", teller);
  for (int node = 0; node < kHugeNodes; ++node) {
    if (!HasTenantAtFirst(node)) world.TenantComes(node);
  }
  world.Settle();
  for (int i = 0; i < 1'000; ++i) world.GangComes(i % kShapes);
  AwaitQuiet(world, teller);
  RunPodEvents(world, "full", teller);
  teller.Tell("resident", MemoryMiB("VmRSS"));
  teller.Tell("peak", MemoryMiB("VmHWM"));
}

// --- what is told ---

bool Has(const Figures& figures, const std::string& name) { return figures.contains(name); }

std::string Us(double us) {
  if (us >= 1e6) return fmt::format("{:.2f} s", us / 1e6);
  if (us >= 1e3) return fmt::format("{:.2f} ms", us / 1e3);
  return fmt::format("{:.2f} µs", us);
}

bool Verdict(bool kept, const std::string& text) {
  std::cout << (kept ? "passed: " : "FAILED: ") << text << std::endl;
  return kept;
}

enum class Judged { kMean, kMeanAndP99, kAll };

// The mean always: what an engine does once in a while is in no percentile. Of single events only
// that: where one takes microseconds, p99 tells which of them were interrupted, and found the
// caches filled by somebody else.
bool JudgeSeries(const Figures& figures, const std::string& name, const std::string& what,
                 double bound_us, Judged judged = Judged::kMean) {
  if (!Has(figures, name + ".count")) {
    return Verdict(false, fmt::format("{}: not measured in time (bound {})", what, Us(bound_us)));
  }
  const double mean = figures.at(name + ".mean");
  const double p99 = figures.at(name + ".p99");
  const double max = figures.at(name + ".max");
  const auto [worst, judged_name] = judged == Judged::kMean         ? std::pair{mean, "the mean"}
                                    : judged == Judged::kMeanAndP99 ? std::pair{p99, "mean and p99"}
                                                                    : std::pair{max, "all"};
  return Verdict(mean <= bound_us && worst <= bound_us,
                 fmt::format("{}: mean {}, p50 {}, p99 {}, at most {}, of {:g} (bound {} for {})",
                             what, Us(mean), Us(figures.at(name + ".p50")), Us(p99), Us(max),
                             figures.at(name + ".count"), Us(bound_us), judged_name));
}

void TellStart(const Figures& figures) {
  if (!Has(figures, "start.s")) return;
  std::cout << fmt::format("all of {:g} gangs wait after {:.2f} s of the engine's thread\n",
                           figures.at("waiting"), figures.at("start.s"));
}

bool Events() {
  const Figures figures =
      RunPart(120, [](const Teller& teller) { MeasureEvents({}, 2'000, teller); });
  TellStart(figures);
  bool good = JudgeSeries(figures, "heartbeat", "a node's heartbeat", kHeartbeatUs);
  good &= JudgeSeries(figures, "pod.comes", "a foreign pod comes", kForeignPodUs);
  good &= JudgeSeries(figures, "pod.changes", "a foreign pod changes", kForeignPodUs);
  good &= JudgeSeries(figures, "pod.goes", "a foreign pod goes", kForeignPodUs);
  good &= JudgeSeries(figures, "freed.beside",
                      "a node is freed, beside the plan of the gang that gets it", kFreedUs);
  if (Has(figures, "freed.count") && Has(figures, "gang.comes.count")) {
    std::cout << fmt::format(
        "with the plan, until it is bound: mean {}, p99 {}; such a plan: mean {}; a gang that "
        "comes "
        "and waits: mean {}\n",
        Us(figures.at("freed.mean")), Us(figures.at("freed.p99")),
        Us(figures.at("freed.plan.mean")), Us(figures.at("gang.comes.mean")));
  }
  return good && !Has(figures, "ended");
}

bool Mixed() {
  const Figures figures = RunPart(180, MeasureMixed);
  const bool good =
      JudgeSeries(figures, "step", fmt::format("a step under {} events a second", kEventsPerSecond),
                  kStepUs, Judged::kMeanAndP99);
  if (Has(figures, "mixed.gangs")) {
    const double seconds = figures.at("mixed.seconds");
    std::cout << fmt::format(
        "{:g} events in {:.1f} s of virtual time, {:.1f} for each step; {:g} gangs started and "
        "ended; the thread worked {:.1f} % of the time\n",
        figures.at("mixed.events"), seconds, figures.at("mixed.events") / figures.at("step.count"),
        figures.at("mixed.gangs"), 100 * figures.at("mixed.busy") / seconds);
  }
  return good && !Has(figures, "ended");
}

struct Series {
  const char* figure;
  const char* name;
  double bound_us;
  // What is left of one when a plan's time is taken off varies too much to have an exponent.
  bool judge_growth = true;
};
constexpr Series kSeries[] = {
    {"heartbeat", "a node's heartbeat", kHeartbeatUs},
    {"pod.comes", "a foreign pod comes", kForeignPodUs},
    {"pod.goes", "a foreign pod goes", kForeignPodUs},
    {"freed.beside", "a node is freed, beside the plan", kFreedUs, false},
};

// One axis of sizes. The plan of the gang that gets a node grows with the nodes; it is shown, and
// not judged here.
bool Along(const std::string& title, const std::vector<int>& sizes, const char* x_name,
           const std::function<WorldSize(int)>& world_of, std::vector<Panel>* panels) {
  std::cout << fmt::format("\n{:>8}", x_name);
  for (const Series& series : kSeries) std::cout << fmt::format("  {:>32}", series.name);
  std::cout << fmt::format("  {:>12}\n", "the plan");
  Panel panel{title, x_name, "µs", {}};
  for (const Series& series : kSeries) panel.curves.push_back({series.name, {}});
  panel.curves.push_back({"the plan of the gang that gets it", {}});
  std::vector<std::string> missing;
  bool within = true;
  for (const int size : sizes) {
    const Figures figures =
        RunPart(45, [&](const Teller& teller) { MeasureEvents(world_of(size), 1'000, teller); });
    std::cout << fmt::format("{:>8}", size);
    const auto show = [&](const std::string& figure, int width, Curve& curve) {
      auto it = figures.find(figure);
      std::cout << fmt::format("  {:>{}}", it == figures.end() ? "not in time" : Us(it->second),
                               width);
      if (it != figures.end()) curve.points.emplace_back(size, std::max(it->second, 0.01));
      return it != figures.end();
    };
    bool all = true;
    for (size_t i = 0; i < std::size(kSeries); ++i) {
      const std::string figure = std::string(kSeries[i].figure) + ".mean";
      all &= show(figure, 32, panel.curves[i]);
      within &= Has(figures, figure) && figures.at(figure) <= kSeries[i].bound_us;
    }
    show("freed.plan.mean", 12, panel.curves.back());
    std::cout << std::endl;
    if (!all) missing.push_back(std::to_string(size));
  }
  bool good = Verdict(within && missing.empty(),
                      fmt::format("with every number of {} the means keep the bounds", x_name));
  for (size_t i = 0; i < std::size(kSeries); ++i) {
    if (!kSeries[i].judge_growth) continue;
    const double growth = Growth(panel.curves[i]);
    good &= Verdict(missing.empty() && growth <= kFlat,
                    fmt::format("{}: cost grows with {}^{:.2f} (bound {})", kSeries[i].name, x_name,
                                growth, kFlat));
  }
  panels->push_back(std::move(panel));
  return good;
}

bool Sizes(const std::filesystem::path& folder) {
  std::vector<Panel> panels;
  bool good = Along(
      "5,000 nodes", {100, 300, 1'000, 3'000, 10'000}, "gangs",
      [](int gangs) { return WorldSize{.gangs = gangs}; }, &panels);
  good &= Along(
      "1,000 gangs", {1'000, 2'000, 5'000, 10'000, 20'000}, "nodes",
      [](int nodes) { return WorldSize{.nodes = nodes, .services = nodes / 2}; }, &panels);
  const std::filesystem::path plot = folder / "engine_bench.svg";
  std::ofstream(plot) << PlotSvg(panels);
  std::cout << "plotted in " << plot.string() << "\n";
  return good;
}

bool Memory() {
  const Figures figures = RunPart(400, MeasureMemory);
  const bool measured = Has(figures, "resident");
  if (!measured && !Has(figures, "loaded")) return Verdict(false, "memory: nothing was measured");
  const double resident = measured ? figures.at("resident") : figures.at("loaded");
  return Verdict(
      measured && resident <= kResidentMiB,
      fmt::format(
          "resident memory with 20,000 nodes, 150,000 foreign pods and 1,000 gangs: {:.0f} "
          "MiB{} (bound {} MiB); {:.0f} once all is loaded{}",
          resident, measured ? "" : " and not yet planned", kResidentMiB, figures.at("loaded"),
          measured ? fmt::format(", {:.0f} when all gangs wait, {:.0f} at most; after {:g} "
                                 "heartbeats",
                                 figures.at("quiet"), figures.at("peak"), figures.at("beats"))
                   : ""));
}

bool HugeGangsOf(bool standalone) {
  const Figures figures =
      RunPart(300, [&](const Teller& teller) { MeasureHugeGangs(standalone, teller); });
  std::cout << fmt::format("\na gang of {} on {} nodes, {}\n", kHugeGang, kHugeNodes,
                           standalone ? "standalone" : "extender mode");
  bool good = true;
  for (const auto& [name, where] : {std::pair{"anywhere", ""}, {"network", " in one network"}}) {
    good &= JudgeSeries(figures, fmt::format("{}.plan", name), fmt::format("its plan{}", where),
                        kHugePlanUs, Judged::kAll);
    good &= JudgeSeries(figures, fmt::format("{}.steps", name),
                        "from its last member until the plan is in force", kHugeStepsUs);
    if (!Has(figures, fmt::format("{}.rest.mean", name))) continue;
    std::cout << fmt::format(
        "for each member: {} when it comes, {} from the plan until its binding was seen\n",
        Us(figures.at(fmt::format("{}.arrival.mean", name))),
        Us(figures.at(fmt::format("{}.rest.mean", name))));
  }
  return good && !Has(figures, "ended");
}

bool HugeGangsOfBoth() {
  const bool alone = HugeGangsOf(/*standalone=*/true);
  return HugeGangsOf(/*standalone=*/false) && alone;
}

bool HugePods() {
  const Figures figures = RunPart(600, MeasureHugePods);
  std::cout << fmt::format("\n{} nodes\n", kHugeNodes);
  bool good = true;
  for (const auto& [name, when] : {std::pair{"free", "15 % of the nodes taken"},
                                   {"full", "all nodes taken and 1,000 gangs waiting"}}) {
    for (const auto& [sort, what] :
         {std::pair{"comes", "come"}, {"changes", "change"}, {"goes", "go"}}) {
      const auto us = figures.find(fmt::format("{}.{}", name, sort));
      if (us == figures.end()) {
        good = Verdict(false, fmt::format("pods {} with {}: not measured in time", what, when));
        continue;
      }
      good &= Verdict(1e6 / us->second >= kHugeEventsPerSecond,
                      fmt::format("{:.0f} pods {} a second with {} (at least {})", 1e6 / us->second,
                                  what, when, kHugeEventsPerSecond));
    }
  }
  if (!Has(figures, "peak")) return false;
  const double node = (figures.at("nodes") - figures.at("nothing")) / kHugeNodes;
  const double pod = (figures.at("pods") - figures.at("nodes")) /
                     (kHugeNodes * (kDaemons + kTakenPercent / 100.0));
  std::cout << fmt::format(
      "memory: {:.0f} bytes for a node, {:.0f} for a pod on it; {:.0f} MiB in the end, {:.0f} at "
      "most\n",
      node * (1 << 20), pod * (1 << 20), figures.at("resident"), figures.at("peak"));
  return good && !Has(figures, "ended");
}

bool Beats(int gangs, int nodes, int beats) {
  const Figures figures = RunPart(600, [&](const Teller& teller) {
    EngineWorld world({.gangs = gangs, .nodes = nodes, .services = nodes / 2});
    AwaitQuiet(world, teller);
    MeasureHeartbeats(world, beats, teller);
  });
  TellStart(figures);
  return JudgeSeries(figures, "heartbeat",
                     fmt::format("a heartbeat with {} gangs on {} nodes", gangs, nodes),
                     kHeartbeatUs);
}

int Usage() {
  std::cerr << "usage: engine_bench [events|mixed|sizes|memory|plan|pods]...\n"
               "       engine_bench beats GANGS NODES BEATS\n";
  return 2;
}

int Main(const std::vector<std::string>& arguments) {
  const MachineLoad machine;
  bool good = true;
  if (!arguments.empty() && arguments.front() == "beats") {
    int sizes[3];
    if (arguments.size() != 4) return Usage();
    for (int i = 0; i < 3; ++i) {
      if (!absl::SimpleAtoi(arguments[i + 1], &sizes[i]) || sizes[i] < 1) return Usage();
    }
    good = Beats(sizes[0], sizes[1], sizes[2]);
  } else {
    const std::map<std::string, std::function<bool()>> parts = {
        {"events", Events},
        {"mixed", Mixed},
        {"sizes", [] { return Sizes(std::filesystem::canonical("/proc/self/exe").parent_path()); }},
        {"memory", Memory},
        {"plan", HugeGangsOfBoth},
        {"pods", HugePods},
    };
    std::vector<std::string> names = arguments;
    if (names.empty()) names = {"events", "mixed", "sizes", "memory", "plan", "pods"};
    for (const std::string& name : names) {
      if (!parts.contains(name)) return Usage();
    }
    for (const std::string& name : names) good &= parts.at(name)();
  }
  std::cout << "machine: " << machine.Describe() << "\n";
  return good ? 0 : 1;
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) { return muster::bench::Main({argv + 1, argv + argc}); }
