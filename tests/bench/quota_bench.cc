// How long quota takes to admit what waits: Kueue's own scalability setup (v0.19.2,
// test/performance/scheduler/default_generator_config.yaml), 5 cohorts of 6 queues, 500 gangs in
// each: 350 of 1 cpu, 100 of 5, 50 of 20, at priorities 50, 100 and 200. Here each queue has four
// flavors, with labels and a taint, and gangs that select, exclude and tolerate them, in eight ways
// for each size.
//
// AllFit: quota for all of them, so that each is admitted once. Contended: the published quota of
// 20 cpu, in each flavor, and up to 100 borrowed; the small ones come first, then the medium and
// the large ones, for which others are preempted. Churn: the same quota for half of them, mixed;
// then, again and again, the first in ends, and another one comes.
//
// With MUSTER_KUEUE_ORACLE=path of the oracle (tests/kueue) they are also asked of Kueue's own
// scheduler, cache and queue manager, in process and without an API server, and each ratio is held
// to the bound; of Churn the first 500 that end. On both sides the clock runs from the first
// workload that comes, so that finding its queue and matching its flavors is in it.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kube/objects/time_text.h"
#include "nlohmann/json.hpp"
#include "quota/quota_scheduler.h"
#include "quota/testing/quota_case.h"
#include "tests/bench/machine.h"

namespace muster::quota {
namespace {

using nlohmann::json;

constexpr int kCohorts = 5;
constexpr int kQueues = 6;                 // of each
constexpr int64_t kStart = 1'767'225'600;  // Unix time at which the first gang comes
constexpr double kTimesKueue = 20;

struct Size {
  const char* name;
  int count;
  int cpu;
  int priority;
  int interval_ms;
};
constexpr std::array<Size, 3> kSizes = {
    {{"small", 350, 1, 50, 100}, {"medium", 100, 5, 100, 500}, {"large", 50, 20, 200, 1200}}};

// Which gangs come together, each wave once nobody of those before fits any more; then how often
// the first in ends, and the next one comes.
struct Course {
  std::vector<size_t> waves;
  size_t ends = 0;
};

json Flavor(const char* name, const char* arch, const char* tier, const char* zone) {
  json spec = {{"nodeLabels", {{"arch", arch}, {"tier", tier}, {"zone", zone}}}};
  if (tier == std::string_view("spot")) {
    json taint = {{"key", "tier"}, {"value", "spot"}, {"effect", "NoSchedule"}};
    spec["nodeTaints"] = json::array({taint});
  }
  return {{"metadata", {{"name", name}}}, {"spec", spec}};
}

json Flavors() {
  return json::array(
      {Flavor("arm", "arm64", "reserved", "west"), Flavor("spot", "amd64", "spot", "west"),
       Flavor("west", "amd64", "reserved", "west"), Flavor("east", "amd64", "reserved", "east")});
}

json Expression(const char* key, const char* op, json values) {
  return {{"key", key}, {"operator", op}, {"values", std::move(values)}};
}

// Nobody can use arm; spot only who tolerates it.
json PodSetOf(int cpu, int variant) {
  json set = {{"name", "main"}, {"count", 1}, {"requests", {{"cpu", cpu}}}};
  json expressions = json::array(
      {Expression("zone", "In", {"north", variant % 4 == 0 ? "east" : "west", "east"})});
  if (variant % 2 == 0) {
    set["nodeSelector"] = {{"arch", "amd64"}};
  } else {
    expressions.push_back(Expression("arch", "NotIn", {"arm64", "riscv64"}));
  }
  json other = {{"key", "team"}, {"operator", "Equal"}, {"value", std::to_string(variant)}};
  set["tolerations"] = json::array({other});
  if (variant >= 4) set["tolerations"].push_back({{"key", "tier"}, {"operator", "Exists"}});
  json term = {{"matchExpressions", expressions}};
  set["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = {
      {"nodeSelectorTerms", json::array({term})}};
  return set;
}

// Size by size, or all sizes mixed.
json MakeCase(int nominal, bool mixed) {
  json queues = json::array();
  std::vector<std::string> names;
  for (int c = 0; c < kCohorts; ++c) {
    for (int q = 0; q < kQueues; ++q) {
      names.push_back(fmt::format("cohort{}-queue{}", c, q));
      json quota = {{"name", "cpu"}, {"nominalQuota", nominal}, {"borrowingLimit", 100}};
      json group = {{"coveredResources", json::array({"cpu"})}, {"flavors", json::array()}};
      for (const json& flavor : Flavors()) {
        group["flavors"].push_back(
            {{"name", flavor.at("metadata").at("name")}, {"resources", json::array({quota})}});
      }
      json spec = {
          {"cohortName", fmt::format("cohort{}", c)},
          {"namespaceSelector", json::object()},
          {"preemption", {{"reclaimWithinCohort", "Any"}, {"withinClusterQueue", "LowerPriority"}}},
          {"resourceGroups", json::array({group})}};
      queues.push_back({{"metadata", {{"name", names.back()}}}, {"spec", spec}});
    }
  }
  std::vector<std::pair<double, json>> pending;  // by when they come
  for (const Size& size : kSizes) {
    for (int i = 0; i < size.count; ++i) {
      for (const std::string& name : names) {
        const std::string id = fmt::format("{}-{}{}", name, size.name, i);
        const absl::Time created =
            absl::FromUnixSeconds(kStart) + absl::Milliseconds(i * size.interval_ms);
        json gang = {{"uid", id},
                     {"name", id},
                     {"clusterQueue", name},
                     {"priority", size.priority},
                     {"createdAt", kube::TimeText(created)},
                     {"podSets", json::array({PodSetOf(size.cpu, i % 8)})}};
        pending.emplace_back(mixed ? static_cast<double>(i) / size.count : size.cpu,
                             std::move(gang));
      }
    }
  }
  std::ranges::stable_sort(pending, {}, [](const auto& each) { return each.first; });
  json quota_case = {{"id", 1},
                     {"fairSharing", false},
                     {"flavors", Flavors()},
                     {"cohorts", json::array()},
                     {"clusterQueues", queues},
                     {"admitted", json::array()},
                     {"pending", json::array()}};
  for (auto& [when, gang] : pending) quota_case["pending"].push_back(std::move(gang));
  return quota_case;
}

struct Result {
  size_t admitted = 0;  // less those preempted
  size_t preempted = 0;
  size_t ended = 0;
  double cpu_s = 0;    // as the machine may do other things
  double clock_s = 0;  // by the clock, as Kueue is measured
};

class Race {
 public:
  explicit Race(const json& quota_case) : loaded_(testing::LoadCase(quota_case)) {
    for (const Workload& each : loaded_.pending) by_id_.emplace(each.id, &each);
  }

  Result Run(const Course& course) {
    const double begin = bench::ThreadCpu();
    const auto clock_begin = std::chrono::steady_clock::now();
    for (size_t wave : course.waves) Arrive(wave);
    while (result_.ended < course.ends) {
      while (!running_.empty() && !admitted_.contains(running_.front())) running_.pop_front();
      if (running_.empty()) break;
      ++result_.ended;
      loaded_.scheduler->Withdraw(running_.front());
      admitted_.erase(running_.front());
      Arrive(1);
    }
    result_.cpu_s = bench::ThreadCpu() - begin;
    result_.clock_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - clock_begin).count();
    return result_;
  }

 private:
  void Arrive(size_t count) {
    for (; count > 0 && next_ < loaded_.pending.size(); --count) {
      loaded_.scheduler->Enqueue(loaded_.pending[next_++]);
    }
    while (Admit()) {
    }
  }

  // True if evictions, which are done at once, have made room.
  bool Admit() {
    bool evicted = false;
    for (const Decision& decision :
         loaded_.scheduler->Schedule(absl::FromUnixSeconds(kStart + 100'000'000 + ++passes_), {})) {
      for (const Victim& victim : decision.victims) {
        if (admitted_.erase(victim.id) == 0) continue;
        Workload again = *by_id_.at(victim.id);
        again.queued_at = absl::FromUnixSeconds(kStart);
        loaded_.scheduler->Withdraw(victim.id);
        loaded_.scheduler->Enqueue(again);
        ++result_.preempted;
        --result_.admitted;
        evicted = true;
      }
      if (!decision.admission) continue;
      running_.push_back(decision.id);
      admitted_.insert(decision.id);
      ++result_.admitted;
    }
    return evicted;
  }

  testing::LoadedCase loaded_;
  std::unordered_map<std::string, const Workload*> by_id_;
  std::unordered_set<std::string> admitted_;
  std::deque<std::string> running_;  // first admitted first; some have been evicted
  size_t next_ = 0;
  int64_t passes_ = 0;
  Result result_;
};

Result Best(const json& quota_case, const Course& course, int rounds) {
  Result best = Race(quota_case).Run(course);
  for (int i = 1; i < rounds; ++i) {
    const Result again = Race(quota_case).Run(course);
    best.cpu_s = std::min(best.cpu_s, again.cpu_s);
    best.clock_s = std::min(best.clock_s, again.clock_s);
  }
  return best;
}

// The limit is far below Kueue's published 351 s for as many gangs.
bool Report(const std::string& name, const Result& result, size_t expected, double limit_s) {
  const bool kept = result.cpu_s <= limit_s && (expected == 0 || result.admitted == expected);
  std::cout << fmt::format(
      "{}: {}: {} gangs admitted in {:.1f} ms CPU ({:.0f} per second; {} preempted; {} ended; "
      "limit "
      "{} s)\n",
      kept ? "passed" : "FAILED", name, result.admitted, result.cpu_s * 1e3,
      static_cast<double>(result.admitted) / result.cpu_s, result.preempted, result.ended, limit_s);
  return kept;
}

// What the oracle's bench mode prints, or null.
json AskOracle(const std::string& binary, const json& quota_case, const Course& course) {
  std::string path = "/tmp/quota_bench_XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return nullptr;
  std::ofstream(path) << quota_case.dump();
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen(
          fmt::format("{} bench {} {} {}", binary, path, fmt::join(course.waves, ","), course.ends)
              .c_str(),
          "r"),
      pclose);
  std::string output;
  std::array<char, 4096> chunk;
  while (pipe != nullptr && fgets(chunk.data(), chunk.size(), pipe.get()) != nullptr) {
    output += chunk.data();
  }
  std::remove(path.c_str());
  return json::parse(output, nullptr, false);
}

bool Compare(const char* name, const json& quota_case, const Course& course, int rounds) {
  const char* binary = std::getenv("MUSTER_KUEUE_ORACLE");
  if (binary == nullptr || *binary == '\0') {
    std::cout << "FAILED: MUSTER_KUEUE_ORACLE names no oracle to compare with (tests/kueue)\n";
    return false;
  }
  // The fastest of each side.
  const Result ours = Best(quota_case, course, rounds);
  json theirs;
  for (int round = 0; round < rounds; ++round) {
    json answer = AskOracle(binary, quota_case, course);
    if (!answer.is_object()) {
      std::cout << "FAILED: the oracle gave no answer\n";
      return false;
    }
    if (theirs.is_null() || answer.at("seconds") < theirs.at("seconds")) theirs = std::move(answer);
  }
  const double seconds = theirs.at("seconds");
  const double times = seconds / ours.clock_s;
  const bool kept = times >= kTimesKueue && theirs.at("admitted") == ours.admitted;
  std::cout << fmt::format(
      "{}: {} by Kueue's packages: {} gangs admitted, {} preempted in {:.1f} ms by the clock, "
      "{:.0f} "
      "times our {:.1f} ms by the clock ({}, {}; bound: {} times)\n",
      kept ? "passed" : "FAILED", name, theirs.at("admitted").get<int64_t>(),
      theirs.at("preempted").get<int64_t>(), seconds * 1e3, times, ours.clock_s * 1e3,
      ours.admitted, ours.preempted, kTimesKueue);
  return kept;
}

int Main() {
  const bench::MachineLoad load;
  constexpr size_t kGangs = kCohorts * kQueues * 500;
  const Course at_once{{kGangs}, 0};
  const Course by_size{{kGangs / 10 * 7, kGangs / 10 * 2, kGangs / 10}, 0};
  // Of one queue: 350 * 1 + 100 * 5 + 50 * 20.
  const json all_fit = MakeCase(1850, true);
  const json contended = MakeCase(20, false);
  const json churn = MakeCase(20, true);
  bool good = Report("AllFit", Best(all_fit, at_once, 5), kGangs, 1);
  good &= Report("Contended", Best(contended, by_size, 5), 0, 1);
  good &= Report("Churn", Best(churn, {{kGangs / 2}, kGangs}, 1), kGangs, 4);
  good &= Compare("AllFit", all_fit, at_once, 3);
  good &= Compare("Contended", contended, by_size, 3);
  good &= Compare("Churn", churn, {{kGangs / 2}, 500}, 3);
  std::cout << load.Describe() << "\n";
  return good ? 0 : 1;
}

}  // namespace
}  // namespace muster::quota

int main() { return muster::quota::Main(); }
