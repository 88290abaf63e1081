// Seeded rounds of gangs that compete for too little room while nodes vanish, pods are deleted,
// writes get lost and Muster is killed. Whatever happens: never a partial gang, never an
// overcommitted node, no quota exceeded, no wait without a reason (invariants.h), and in the end
// everything that fits is bound.
//
// MUSTER_CONTENTION_ROUNDS sets the number of rounds (20, with MUSTER_FULL=1 1,000),
// MUSTER_CONTENTION_SEED the first seed.

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

#include "coscheduling/engine.h"
#include "fmt/format.h"
#include "muster/v1/admission.pb.h"
#include "simulation/scenario.h"
#include "simulation/world.h"

namespace muster::simulation {
namespace {

int FromEnvironment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

class Round {
 public:
  explicit Round(uint64_t seed) : random_(seed), seed_(seed) {}

  absl::Status Run() {
    const Scenario scenario = MakeCluster();
    World world(scenario,
                {.seed = seed_,
                 .lose_write = [this](std::string_view) { return Chance(lost_writes_); },
                 .lose_answer = [this](std::string_view) { return Chance(lost_writes_); }});
    if (Chance(60)) ApplyQuota(world);
    const int events = Between(10, 25);
    absl::Duration at;
    for (int i = 0; i < events; ++i) {
      at += absl::Milliseconds(Between(1, 8'000));
      world.RunUntil(world.start() + at);
      if (!world.broken_invariant().ok()) return Explain(world, world.broken_invariant());
      Disturb(world);
    }
    lost_writes_ = 0;
    // Past every deadline, backoff and repair of this cluster.
    world.RunUntil(world.start() + at + absl::Minutes(30));
    if (!world.broken_invariant().ok()) return Explain(world, world.broken_invariant());
    return CheckEnd(world);
  }

 private:
  int Between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool Chance(int percent) { return Between(1, 100) <= percent; }

  Scenario MakeCluster() {
    Scenario scenario;
    scenario.name = fmt::format("contention, seed {}", seed_);
    scenario.mode = seed_ % 2 == 0 ? Mode::kExtender : Mode::kStandalone;
    scenario.options.provisioning_deadline = absl::Minutes(2);
    scenario.options.backoff_base = absl::Seconds(20);
    scenario.options.backoff_max = absl::Minutes(1);
    scenario.options.repair_deadline = absl::Minutes(1);
    node_count_ = Between(2, 6);
    for (int i = 0; i < node_count_; ++i) {
      NodeSpec node;
      node.name = fmt::format("n{}", i);
      node.resources = {{"cpu", "96"},
                        {"memory", "1Ti"},
                        {"pods", "110"},
                        {"nvidia.com/gpu", std::to_string(Between(1, 4))}};
      node.labels = {{"topology.kubernetes.io/zone", Chance(50) ? "a" : "b"}};
      scenario.nodes.push_back(node);
    }
    if (Chance(50)) {
      InstanceTypeSpec type;
      type.name = "g";
      type.resources = {{"cpu", "96"}, {"memory", "1Ti"}, {"pods", "110"}, {"nvidia.com/gpu", "2"}};
      type.zones = {"a"};
      scenario.instance_types.push_back(type);
      NodePoolSpec pool;
      pool.name = "gpu";
      pool.instance_types = {"g"};
      pool.limits = {{"nvidia.com/gpu", std::to_string(2 * Between(0, 4))}};
      for (int i = 0; i < 4; ++i) {
        NodeDelays delays;
        delays.registration = absl::Seconds(Between(1, 30));
        delays.initialization = absl::Seconds(Between(0, 5));
        delays.never_registers = Chance(10);
        pool.delays.push_back(delays);
      }
      scenario.node_pools.push_back(pool);
    }
    lost_writes_ = Chance(50) ? Between(1, 20) : 0;
    return scenario;
  }

  // One or two ClusterQueues, for namespaces `default` and `team`, in a cohort or not.
  void ApplyQuota(World& world) {
    const auto apply = [&world](const std::string& manifest) {
      const absl::Status status = world.Perform(ApplyStep{manifest});
      ASSERT_TRUE(status.ok()) << status << "\n" << manifest;
    };
    apply(R"({"apiVersion":"v1","kind":"Namespace","metadata":{"name":"team"}})");
    for (const char* zone : {"a", "b"}) {
      apply(fmt::format(R"({{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ResourceFlavor",
            "metadata":{{"name":"zone-{0}"}},
            "spec":{{"nodeLabels":{{"topology.kubernetes.io/zone":"{0}"}}}}}})",
                        zone));
    }
    const bool in_cohort = Chance(50);
    const char* within[] = {"Never", "LowerPriority", "LowerOrNewerEqualPriority"};
    const char* reclaim[] = {"Never", "LowerPriority", "Any"};
    const char* strategy[] = {"BestEffortFIFO", "StrictFIFO"};
    for (const char* name_space : {"default", "team"}) {
      std::string flavors;
      for (const char* zone : {"a", "b"}) {
        flavors += fmt::format(
            R"({}{{"name":"zone-{}","resources":[{{"name":"nvidia.com/gpu","nominalQuota":{}}}]}})",
            flavors.empty() ? "" : ",", zone, Between(0, 8));
      }
      apply(fmt::format(
          R"({{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ClusterQueue",
              "metadata":{{"name":"of-{}"}},
              "spec":{{"namespaceSelector":{{}},"queueingStrategy":"{}",{}
                "preemption":{{"withinClusterQueue":"{}","reclaimWithinCohort":"{}"}},
                "resourceGroups":[{{"coveredResources":["nvidia.com/gpu"],
                                    "flavors":[{}]}}]}}}})",
          name_space, strategy[Between(0, 1)], in_cohort ? R"("cohortName":"all",)" : "",
          within[Between(0, 2)], reclaim[in_cohort ? Between(0, 2) : 0], flavors));
      apply(fmt::format(R"({{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"LocalQueue",
            "metadata":{{"name":"default","namespace":"{0}"}},
            "spec":{{"clusterQueue":"of-{0}"}}}})",
                        name_space));
    }
    with_quota_ = true;
  }

  void CreateGang(World& world) {
    GangSpec gang;
    if (with_quota_ && Chance(40)) gang.name_space = "team";
    gang.name = fmt::format("g{}", gangs_++);
    gang.members = Between(1, 6);
    if (!Chance(15)) gang.min_member = Between(1, gang.members + (Chance(10) ? 1 : 0));
    gang.requests = {{"nvidia.com/gpu", std::to_string(Between(1, 2))}};
    gang.priority = Between(0, 2);
    if (Chance(60)) gang.run_time = absl::Seconds(Between(5, 120));
    if (Chance(10)) gang.schedule_timeout_seconds = Between(5, 60);
    ASSERT_TRUE(world.Perform(gang).ok());
  }

  // What users, controllers and clouds do. What is named may be gone already: that is no error.
  void Disturb(World& world) {
    const int kind = Between(1, 100);
    const std::string pod = fmt::format("pod/{}g{}-{}", with_quota_ && Chance(40) ? "team/" : "",
                                        Between(0, std::max(0, gangs_ - 1)), Between(0, 5));
    if (kind <= 55 || gangs_ == 0) {
      CreateGang(world);
    } else if (kind <= 70) {
      world.Perform(DeleteStep{pod}).IgnoreError();
    } else if (kind <= 78) {
      world
          .Perform(PatchStep{
              pod, R"({"status":{"phase":"Failed","reason":"UnexpectedAdmissionError"}})", true})
          .IgnoreError();
    } else if (kind <= 86) {
      world.Perform(DeleteStep{fmt::format("node/n{}", Between(0, node_count_ - 1))}).IgnoreError();
    } else if (kind <= 92) {
      world
          .Perform(PatchStep{fmt::format("node/n{}", Between(0, node_count_ - 1)),
                             fmt::format(R"({{"spec":{{"unschedulable":{}}}}})", Chance(50)),
                             false})
          .IgnoreError();
    } else {
      world.Restart();
    }
  }

  absl::Status CheckEnd(World& world) {
    for (const coscheduling::GangKey& key : world.engine().Gangs()) {
      v1::Gang gang;
      world.engine().Describe(key, &gang);
      const bool rests = gang.state() != v1::READY && gang.state() != v1::BINDING &&
                         gang.reason().code() != v1::RECORD_PENDING;
      if (!rests) {
        return Explain(world, absl::FailedPreconditionError(fmt::format(
                                  "gang {} is still {}: {}", key.ToString(),
                                  v1::GangState_Name(gang.state()), gang.reason().message())));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Explain(const World& world, const absl::Status& status) const {
    std::string text = fmt::format("seed {}: {}", seed_, std::string(status.message()));
    for (const std::string& line : world.timeline()) text += "\n" + line;
    return absl::FailedPreconditionError(text);
  }

  std::mt19937_64 random_;
  const uint64_t seed_;
  int node_count_ = 0;
  int gangs_ = 0;
  int lost_writes_ = 0;  // percent
  bool with_quota_ = false;
};

// Sanitizers take some thirty times as long for a round.
#ifdef MUSTER_SANITIZED
constexpr int kRounds = 5, kAllRounds = 50;
#else
constexpr int kRounds = 20, kAllRounds = 1000;
#endif

TEST(Contention, NeverPartialNeverOvercommittedNeverWithoutAReason) {
  const int rounds = FromEnvironment("MUSTER_CONTENTION_ROUNDS",
                                     FromEnvironment("MUSTER_FULL", 0) == 1 ? kAllRounds : kRounds);
  const int first = FromEnvironment("MUSTER_CONTENTION_SEED", 1);
  for (int seed = first; seed < first + rounds; ++seed) {
    const absl::Status status = Round(static_cast<uint64_t>(seed)).Run();
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

}  // namespace
}  // namespace muster::simulation
