#include "tests/scenarios/fault_rounds.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "fmt/format.h"
#include "simulation/draw.h"
#include "simulation/world.h"

namespace muster::simulation {
namespace {

// How long after the last event faults go on, and how long after them everything must be settled:
// past every deadline, pause and repair of these clusters, and past the time in which room may be
// kept for others.
constexpr absl::Duration kFaultsGoOn = absl::Seconds(20);
constexpr absl::Duration kRest = absl::Minutes(10);
constexpr absl::Duration kSettling = absl::Minutes(7);

constexpr std::string_view kLocalQueue =
    R"({"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"LocalQueue",
        "metadata":{"name":"default","namespace":"default"},"spec":{"clusterQueue":"gpus"}})";

ReconcileStep TurnOf(const std::string& job) {
  ReconcileStep turn;
  turn.object = job;
  return turn;
}

class RoundDraw {
 public:
  explicit RoundDraw(uint64_t seed) : seed_(seed), draw_(seed, 17), more_(seed, 18) {}

  Scenario Make() {
    scenario_.name = fmt::format("Round {} comes to rest once nothing goes wrong any more", seed_);
    scenario_.mode = seed_ % 2 == 0 ? Mode::kExtender : Mode::kStandalone;
    MakeCluster();
    if (draw_.Chance(35)) MakeQueue();
    const int events = Between(5, 12);
    for (int i = 0; i < events; ++i) {
      at_ += absl::Milliseconds(draw_.Chance(30) ? Between(0, 50) : Between(50, 8'000));
      Disturb();
    }
    if (seed_ % 4 == 3) MakeMore();
    MakeFaults(at_ + kFaultsGoOn);
    // The jobs' controllers take their turns, so that what was suspended ends.
    for (absl::Duration turn = at_ + absl::Seconds(5); turn < at_ + kRest; turn += Pause(turn)) {
      for (const std::string& job : jobs_) AddAt(turn, TurnOf(job));
    }
    std::ranges::stable_sort(scenario_.steps, {}, &Step::at);
    Expectation rest;
    rest.settled = true;
    rest.within = kSettling;
    AddAt(at_ + kFaultsGoOn + kRest, rest);
    return std::move(scenario_);
  }

 private:
  int Between(int low, int high) { return static_cast<int>(draw_.Between(low, high)); }
  // Turns are frequent at first.
  absl::Duration Pause(absl::Duration turn) const {
    return turn < at_ + absl::Minutes(1) ? absl::Seconds(10) : absl::Minutes(1);
  }

  void AddAt(absl::Duration at, Action action) {
    const bool expects = std::holds_alternative<Expectation>(action);
    scenario_.steps.push_back(
        {.at = at, .action = std::move(action), .line = 1, .may_be_refused = !expects});
  }
  void Add(Action action) { AddAt(at_, std::move(action)); }

  void MakeCluster() {
    coscheduling::EngineOptions& options = scenario_.options;
    options.provisioning_deadline = absl::Minutes(2);
    options.backoff_base = absl::Seconds(20);
    options.backoff_max = absl::Minutes(1);
    options.capacity_backoff = absl::Seconds(30);
    options.repair_deadline = absl::Minutes(1);
    options.suspect_time = absl::Minutes(2);
    options.taint_suspects = draw_.Chance(30);
    node_count_ = Between(1, 4);
    for (int i = 0; i < node_count_; ++i) {
      NodeSpec node;
      node.name = fmt::format("n{}", i);
      node.resources = {{"cpu", "96"},
                        {"memory", "1Ti"},
                        {"pods", "110"},
                        {"nvidia.com/gpu", std::to_string(Between(1, 4))}};
      scenario_.nodes.push_back(node);
    }
    if (!draw_.Chance(35)) return;
    InstanceTypeSpec type;
    type.name = "g6.12xlarge";
    type.resources = {{"cpu", "48"}, {"memory", "192Gi"}, {"pods", "110"}, {"nvidia.com/gpu", "4"}};
    type.zones = {"us-west-2a"};
    scenario_.instance_types.push_back(type);
    NodePoolSpec pool;
    pool.name = "gpu";
    pool.instance_types = {type.name};
    pool.limits = {{"nvidia.com/gpu", std::to_string(4 * Between(0, 2))}};
    pool.consolidate_after = absl::Seconds(Between(0, 30));
    for (int i = 0; i < 3; ++i) {
      NodeDelays delays;
      delays.registration = absl::Seconds(Between(1, 20));
      delays.initialization = absl::Seconds(Between(0, 5));
      delays.never_registers = draw_.Chance(10);
      pool.delays.push_back(delays);
    }
    scenario_.node_pools.push_back(pool);
  }

  // What a quarter of the rounds have besides, at any time in them: edits of the queue and its
  // objects, StatefulSets, gangs with volumes. Drawn by itself, so that the others stay as they
  // are.
  void MakeMore() {
    const auto between = [this](int low, int high) {
      return static_cast<int>(more_.Between(low, high));
    };
    for (int i = between(2, 6); i > 0; --i) {
      const absl::Duration at =
          absl::Milliseconds(between(1, static_cast<int>(at_ / absl::Milliseconds(1))));
      const int kind = between(1, has_queue_ ? 100 : 40);
      if (kind <= 20) {
        const std::string name = fmt::format("s{}", jobs_.size());
        jobs_.push_back("statefulset/" + name);
        AddAt(at, ApplyStep{StatefulSetManifest(name, between(1, 3))});
        AddAt(at + absl::Milliseconds(between(0, 500)), TurnOf(jobs_.back()));
      } else if (kind <= 40) {
        AddGangWithVolume(at, fmt::format("v{}", i), between(1, 3), absl::Seconds(between(-5, 5)));
      } else if (kind <= 60) {
        AddAt(at, PatchStep{
                      "clusterqueue/gpus",
                      fmt::format(R"({{"spec":{{"stopPolicy":"{}"}}}})", StopPolicy(between(0, 2))),
                      false});
      } else if (kind <= 70) {
        AddAt(at, PatchStep{
                      "localqueue/default",
                      fmt::format(R"({{"spec":{{"stopPolicy":"{}"}}}})", StopPolicy(between(0, 2))),
                      false});
      } else if (kind <= 90) {
        AddAt(at, ApplyStep{ClusterQueueManifest(more_.Chance(50), between(0, 8))});
      } else {
        AddAt(at, DeleteStep{"localqueue/default"});
        if (more_.Chance(70)) {
          AddAt(at + absl::Milliseconds(between(0, 5'000)), ApplyStep{std::string(kLocalQueue)});
        }
      }
    }
  }

  // Its claim comes so much later than the gang.
  void AddGangWithVolume(absl::Duration at, const std::string& name, int members,
                         absl::Duration claim_comes) {
    GangSpec gang;
    gang.name = name;
    gang.members = members;
    gang.min_member = members;
    gang.requests = {{"nvidia.com/gpu", "1"}};
    gang.spec_json = fmt::format(
        R"({{"volumes":[{{"name":"d","persistentVolumeClaim":{{"claimName":"{}"}}}}]}})", name);
    AddAt(at, gang);
    const absl::Duration then = std::max(at + claim_comes, absl::ZeroDuration());
    AddAt(then, ApplyStep{R"({"apiVersion":"storage.k8s.io/v1","kind":"StorageClass",
                              "metadata":{"name":"late"},"provisioner":"x",
                              "volumeBindingMode":"WaitForFirstConsumer"})"});
    AddAt(then, ApplyStep{fmt::format(
                    R"({{"apiVersion":"v1","kind":"PersistentVolumeClaim",
                        "metadata":{{"name":"{}","namespace":"default"}},
                        "spec":{{"accessModes":["ReadWriteMany"],"storageClassName":"late",
                          "resources":{{"requests":{{"storage":"1Gi"}}}}}}}})",
                    name)});
  }

  static std::string_view StopPolicy(int which) {
    return which == 0 ? "None" : which == 1 ? "Hold" : "HoldAndDrain";
  }

  static std::string StatefulSetManifest(const std::string& name, int replicas) {
    return fmt::format(
        R"({{"apiVersion":"apps/v1","kind":"StatefulSet",
            "metadata":{{"name":"{0}","namespace":"default"}},
            "spec":{{"replicas":{1},"serviceName":"{0}","podManagementPolicy":"Parallel",
              "selector":{{"matchLabels":{{"app":"{0}"}}}},
              "template":{{"metadata":{{"labels":{{"app":"{0}"}}}},
                "spec":{{"schedulerName":"coscheduling","containers":[{{"name":"c","image":"i",
                  "resources":{{"requests":{{"nvidia.com/gpu":"1"}},
                                "limits":{{"nvidia.com/gpu":"1"}}}}}}]}}}}}}}})",
        name, replicas);
  }

  // Without preemption: of gangs that displace each other contention_test has rounds.
  void MakeQueue() {
    Add(ApplyStep{R"({"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ResourceFlavor",
                      "metadata":{"name":"any"}})"});
    const bool best_effort = draw_.Chance(50);
    Add(ApplyStep{ClusterQueueManifest(best_effort, Between(2, 8))});
    Add(ApplyStep{std::string(kLocalQueue)});
    has_queue_ = true;
  }

  static std::string ClusterQueueManifest(bool best_effort, int gpus) {
    return fmt::format(
        R"({{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ClusterQueue","metadata":{{"name":"gpus"}},
            "spec":{{"namespaceSelector":{{}},"queueingStrategy":"{}",
              "resourceGroups":[{{"coveredResources":["nvidia.com/gpu"],
                "flavors":[{{"name":"any",
                  "resources":[{{"name":"nvidia.com/gpu","nominalQuota":{}}}]}}]}}]}}}})",
        best_effort ? "BestEffortFIFO" : "StrictFIFO", gpus);
  }

  void MakeGang() {
    GangSpec gang;
    gang.name = fmt::format("g{}", gangs_.size());
    gang.members = Between(1, 4);
    if (!draw_.Chance(10)) gang.min_member = Between(1, gang.members);
    gang.requests = {{"nvidia.com/gpu", std::to_string(Between(1, 2))}};
    gang.priority = Between(0, 2);
    if (draw_.Chance(40)) gang.run_time = absl::Seconds(Between(5, 60));
    // No node and no pool has such a label.
    if (draw_.Chance(5)) gang.node_selector = {{"pool", "nowhere"}};
    gangs_.push_back(gang);
    Add(gang);
  }

  std::string JobManifest(const std::string& name, int pods) {
    const std::string pod = fmt::format(
        R"({{"spec":{{"schedulerName":"coscheduling","restartPolicy":"Never","containers":[{{
            "name":"c","image":"i","resources":{{"requests":{{"nvidia.com/gpu":"1"}},
            "limits":{{"nvidia.com/gpu":"1"}}}}}}]}}}})");
    const std::string job = fmt::format(
        R"({{"parallelism":{0},"completions":{0},"completionMode":"Indexed","template":{1}}})",
        pods, pod);
    switch (Between(0, 2)) {
      case 0:
        jobs_.push_back("job/" + name);
        return fmt::format(R"({{"apiVersion":"batch/v1","kind":"Job",
                               "metadata":{{"name":"{}","namespace":"default"}},"spec":{}}})",
                           name, job);
      case 1:
        jobs_.push_back("jobset/" + name);
        return fmt::format(
            R"({{"apiVersion":"jobset.x-k8s.io/v1alpha2","kind":"JobSet",
                "metadata":{{"name":"{}","namespace":"default"}},"spec":{{"replicatedJobs":[
                {{"name":"w","replicas":1,"template":{{"spec":{}}}}}{}]}}}})",
            name, job,
            draw_.Chance(50) ? ""
                             : fmt::format(R"(,{{"name":"x","replicas":1,
                "dependsOn":[{{"name":"w","status":"Ready"}}],"template":{{"spec":{}}}}})",
                                           job));
      default:
        jobs_.push_back("pytorchjob/" + name);
        return fmt::format(
            R"({{"apiVersion":"kubeflow.org/v1","kind":"PyTorchJob",
                "metadata":{{"name":"{}","namespace":"default"}},"spec":{{"pytorchReplicaSpecs":{{
                "Master":{{"replicas":1,"restartPolicy":"Never","template":{}}},
                "Worker":{{"replicas":{},"restartPolicy":"Never","template":{}}}}}}}}})",
            name, pod, std::max(1, pods - 1), pod);
    }
  }

  void MakeJob() {
    Add(ApplyStep{JobManifest(fmt::format("j{}", jobs_.size()), Between(1, 3))});
    at_ += absl::Milliseconds(Between(0, 500));
    Add(TurnOf(jobs_.back()));
  }

  std::string SomePod() {
    const GangSpec& gang = gangs_[Between(0, static_cast<int>(gangs_.size()) - 1)];
    return fmt::format("pod/{}-{}", gang.name, Between(0, gang.members - 1));
  }
  std::string SomeNode() { return fmt::format("node/n{}", Between(0, node_count_ - 1)); }

  // Its user deletes all of it, in either order.
  void DeleteGang() {
    const GangSpec& gang = gangs_[Between(0, static_cast<int>(gangs_.size()) - 1)];
    const bool group_first = draw_.Chance(50);
    if (group_first) Add(DeleteStep{"podgroup/" + gang.name});
    for (int i = 0; i < gang.members; ++i) Add(DeleteStep{fmt::format("pod/{}-{}", gang.name, i)});
    if (!group_first) Add(DeleteStep{"podgroup/" + gang.name});
  }

  // What users, controllers and clouds do. What is named may be gone already.
  void Disturb() {
    const int kind = Between(1, 100);
    if (kind <= 30 || gangs_.empty()) {
      MakeGang();
    } else if (kind <= 38) {
      MakeJob();
    } else if (kind <= 58) {
      DeleteGang();
    } else if (kind <= 68) {
      Add(DeleteStep{SomePod()});
    } else if (kind <= 74) {
      Add(PatchStep{SomePod(),
                    R"({"status":{"phase":"Failed","reason":"UnexpectedAdmissionError"}})", true});
    } else if (kind <= 82) {
      Add(DeleteStep{SomeNode()});
    } else if (kind <= 86) {
      Add(PatchStep{SomeNode(),
                    fmt::format(R"({{"spec":{{"unschedulable":{}}}}})", draw_.Chance(50)), false});
    } else if (kind <= 92) {
      const GangSpec& gang = gangs_[Between(0, static_cast<int>(gangs_.size()) - 1)];
      Add(PatchStep{"podgroup/" + gang.name,
                    fmt::format(R"({{"spec":{{"minMember":{}}}}})", Between(1, gang.members + 1)),
                    false});
    } else {
      Add(RestartStep{});
    }
  }

  DurationRange Latency(int most_ms) {
    return {absl::Milliseconds(1), absl::Milliseconds(Between(1, most_ms))};
  }

  void MakeFaults(absl::Duration until) {
    FaultSpec faults;
    faults.seed = seed_;
    faults.until = until;
    WriteFaults write;
    write.request = Latency(draw_.Chance(30) ? 3'000 : 200);
    write.answer = Latency(draw_.Chance(30) ? 5'000 : 200);
    if (draw_.Chance(50)) write.lost = Between(1, 10);
    if (draw_.Chance(50)) write.refused = Between(1, 10);
    if (draw_.Chance(50)) write.unanswered = Between(1, 10);
    faults.writes["any"] = write;
    for (const char* kind :
         {"any", "pod", "podgroup", "node", "nodeclaim", "job", "jobset", "pytorchjob"}) {
      WatchFaults watch;
      watch.latency = Latency(draw_.Chance(30) ? 5'000 : 200);
      if (draw_.Chance(30)) watch.stalls = Between(1, 10);
      if (draw_.Chance(30)) watch.breaks = Between(1, 10);
      if (draw_.Chance(30)) watch.repeats = Between(1, 20);
      watch.stall = {absl::Seconds(1), absl::Seconds(Between(1, 10))};
      if (draw_.Chance(60)) faults.watches[kind] = watch;
    }
    if (draw_.Chance(50)) {
      faults.calls.latency = Latency(1'000);
      faults.calls.lost = Between(0, 5);
      faults.calls.unanswered = Between(0, 5);
      faults.calls.repeated = Between(0, 10);
      faults.calls.filter_fails = Between(0, 10);
    }
    scenario_.faults = std::move(faults);
  }

  const uint64_t seed_;
  Draw draw_;
  Draw more_;
  Scenario scenario_;
  bool has_queue_ = false;
  absl::Duration at_;
  int node_count_ = 0;
  std::vector<GangSpec> gangs_;
  std::vector<std::string> jobs_;
};

// Names, times and amounts are left out, states and reasons stay.
std::string SortOf(std::string_view kind, std::string_view message) {
  std::string sort(kind);
  const std::string first_line(message.substr(0, message.find('\n')));
  const std::vector<std::string> words = absl::StrSplit(first_line, absl::ByAnyChar(" ,;"));
  for (const std::string& word : words) {
    const bool says = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
      return std::isalpha(c) != 0 || c == '_' || c == ':' || c == '\'';
    });
    // What follows is a reason's sentence.
    if (says) sort += " " + word;
    if (says && word.ends_with("):")) break;
    if (sort.size() > 100) break;
  }
  return sort;
}

// Turns of a job's controller go with the job, and only with it: without them a job that was
// suspended never ends.
void DropIdleTurns(Scenario* scenario) {
  std::set<std::string> applied;
  for (const Step& step : scenario->steps) {
    if (const auto* apply = std::get_if<ApplyStep>(&step.action)) {
      applied.insert(nlohmann::json::parse(apply->manifest_json).at("metadata").at("name"));
    }
  }
  std::erase_if(scenario->steps, [&](const Step& step) {
    const auto* turn = std::get_if<ReconcileStep>(&step.action);
    return turn != nullptr && !applied.contains(turn->object.substr(turn->object.find('/') + 1));
  });
}

// Tries to leave things out, in runs that it counts.
class Shrinker {
 public:
  Shrinker(Scenario scenario, std::string sort, int tries)
      : best_(std::move(scenario)), sort_(std::move(sort)), tries_(tries) {}

  Scenario Run() {
    for (bool smaller = true; smaller && tries_ > 0;) {
      smaller = DropSteps();
      smaller |= DropEach(&Scenario::nodes);
      smaller |= DropEach(&Scenario::node_pools);
      smaller |= DropFaults();
      smaller |= DropMembers();
    }
    return std::move(best_);
  }

 private:
  bool Try(Scenario candidate) {
    if (tries_-- <= 0 || RunRound(candidate).sort != sort_) return false;
    best_ = std::move(candidate);
    return true;
  }

  // Halves, quarters, ... down to single steps. The last one is what is expected.
  bool DropSteps() {
    bool any = false;
    for (size_t size = best_.steps.size() / 2; size > 0 && tries_ > 0; size /= 2) {
      for (size_t from = 0; from + 1 < best_.steps.size() && tries_ > 0;) {
        Scenario candidate = best_;
        const size_t to = std::min(from + size, candidate.steps.size() - 1);
        const auto begin = candidate.steps.begin();
        candidate.steps.erase(
            std::remove_if(begin + static_cast<ptrdiff_t>(from), begin + static_cast<ptrdiff_t>(to),
                           [](const Step& step) {
                             return !std::holds_alternative<ReconcileStep>(step.action);
                           }),
            begin + static_cast<ptrdiff_t>(to));
        DropIdleTurns(&candidate);
        if (candidate.steps.size() < best_.steps.size() && Try(std::move(candidate))) {
          any = true;
        } else {
          from += size;
        }
      }
    }
    return any;
  }

  template <typename T>
  bool DropEach(std::vector<T> Scenario::* list) {
    bool any = false;
    for (size_t i = (best_.*list).size(); i-- > 0 && tries_ > 0;) {
      Scenario candidate = best_;
      (candidate.*list).erase((candidate.*list).begin() + static_cast<ptrdiff_t>(i));
      any |= Try(std::move(candidate));
    }
    return any;
  }

  bool TryWith(const std::function<void(FaultSpec*)>& change) {
    if (!best_.faults) return false;
    Scenario candidate = best_;
    change(&*candidate.faults);
    return Try(std::move(candidate));
  }

  bool Zero(const std::function<double*(FaultSpec*)>& share) {
    if (!best_.faults || *share(&*best_.faults) == 0) return false;
    return TryWith([&](FaultSpec* faults) { *share(faults) = 0; });
  }

  bool DropFaults() {
    if (!best_.faults) return false;
    Scenario without = best_;
    without.faults.reset();
    if (Try(std::move(without))) return true;
    bool any = false;
    for (const auto& [kind, of] : FaultSpec(*best_.faults).watches) {
      any |= TryWith([&](FaultSpec* faults) { faults->watches.erase(kind); });
    }
    for (const auto& [kind, of] : FaultSpec(*best_.faults).watches) {
      for (double WatchFaults::* share :
           {&WatchFaults::stalls, &WatchFaults::breaks, &WatchFaults::repeats}) {
        any |= Zero([&](FaultSpec* faults) { return &(faults->watches[kind].*share); });
      }
    }
    for (const auto& [kind, of] : FaultSpec(*best_.faults).writes) {
      any |= TryWith([&](FaultSpec* faults) { faults->writes.erase(kind); });
    }
    for (const auto& [kind, of] : FaultSpec(*best_.faults).writes) {
      for (double WriteFaults::* share :
           {&WriteFaults::lost, &WriteFaults::refused, &WriteFaults::unanswered}) {
        any |= Zero([&](FaultSpec* faults) { return &(faults->writes[kind].*share); });
      }
    }
    for (double CallFaults::* share : {&CallFaults::lost, &CallFaults::unanswered,
                                       &CallFaults::repeated, &CallFaults::filter_fails}) {
      any |= Zero([&](FaultSpec* faults) { return &(faults->calls.*share); });
    }
    if (best_.faults->calls.latency.high > absl::ZeroDuration()) {
      any |= TryWith([](FaultSpec* faults) { faults->calls.latency = {}; });
    }
    return any;
  }

  bool DropMembers() {
    bool any = false;
    for (size_t i = 0; i < best_.steps.size() && tries_ > 0; ++i) {
      const auto* gang = std::get_if<GangSpec>(&best_.steps[i].action);
      if (gang == nullptr || gang->members <= 1) continue;
      Scenario candidate = best_;
      auto& fewer = std::get<GangSpec>(candidate.steps[i].action);
      --fewer.members;
      if (fewer.min_member) fewer.min_member = std::min<int64_t>(*fewer.min_member, fewer.members);
      any |= Try(std::move(candidate));
    }
    return any;
  }

  Scenario best_;
  const std::string sort_;
  int tries_;
};

}  // namespace

Scenario DrawRound(uint64_t seed) { return RoundDraw(seed).Make(); }

RoundResult RunRound(const Scenario& scenario) {
  World world(scenario, {.seed = 1});
  RoundResult result;
  RunSteps(&world, scenario, absl::InfiniteDuration(), [&](const StepFailure& failure) {
    const char* kind = failure.kind == StepFailure::Kind::kRefused  ? "refused"
                       : failure.kind == StepFailure::Kind::kBroken ? "broken"
                                                                    : "unexpected";
    result.message = std::string(failure.status.message());
    result.sort = SortOf(kind, result.message);
    for (const std::string& line : world.timeline()) result.message += "\n" + line;
    return false;
  });
  return result;
}

Scenario Shrunk(Scenario scenario, const std::string& sort, int tries) {
  return Shrinker(std::move(scenario), sort, tries).Run();
}

}  // namespace muster::simulation
