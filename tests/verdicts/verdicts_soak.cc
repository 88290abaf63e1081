// Fresh random clusters, judged by kube-scheduler's own plugins and by Muster: each pod on each
// node; then whole gangs, which the planner places and kube-scheduler's plugins take one by one.
//
//	verdicts_soak ORACLE [SEED [CLUSTERS [GANGS]]]
//
// Prints every difference with what shows it again. The last line is "N passed, N failed".
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "cluster/alone.h"
#include "cluster/placing_order.h"
#include "cluster/predicates.h"
#include "cluster/relations.h"
#include "coscheduling/placement/planner/planner.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tests/verdicts/verdicts.h"

namespace muster::testing {
namespace {

using coscheduling::Plan;
using coscheduling::PlanRequest;
using Json = nlohmann::json;

constexpr int kPodsOfACluster = 8;  // times 6 nodes

// Of `command`, while it runs. Throws std::runtime_error if it fails.
void ForEachLine(const std::string& command, const std::function<void(const Json& line)>& visit) {
  std::FILE* output = popen(command.c_str(), "r");  // NOLINT(cert-env33-c): our own program
  if (output == nullptr) throw std::runtime_error(command + " can't be started");
  char* buffer = nullptr;
  size_t capacity = 0;
  const absl::Cleanup free = [&] { std::free(buffer); };
  for (ssize_t length = 0; (length = getline(&buffer, &capacity, output)) > 0;) {
    visit(Json::parse(buffer, buffer + length));
  }
  if (const int status = pclose(output); status != 0) {
    throw std::runtime_error(fmt::format("{} ended with status {}", command, status));
  }
}

struct Counts {
  int64_t passed = 0;
  int64_t failed = 0;

  void Fail(const std::string& what) {
    std::cout << "FAILED: " << what << std::endl;
    ++failed;
  }
};

void CompareVerdicts(const std::string& oracle, int64_t seed, int clusters, Counts* counts) {
  VerdictComparison comparison;
  int64_t differences = 0;
  ForEachLine(fmt::format("{} verdicts {} {} {}", oracle, seed, clusters, kPodsOfACluster),
              [&](const Json& line) {
                for (const std::string& difference : comparison.Add(line)) {
                  counts->Fail(difference);
                  ++differences;
                }
              });
  std::cout << fmt::format("{:20} {:>9} {:>9}\n", "plugin", "verdicts", "refusals");
  for (const auto& [plugin, tally] : comparison.plugins()) {
    std::cout << fmt::format("{:20} {:>9} {:>9}\n", plugin, tally.verdicts, tally.refusals);
  }
  std::cout << fmt::format("{} pods x nodes, {} that no plugin refuses; {} differences\n",
                           comparison.verdicts(), comparison.passes(), differences)
            << std::flush;
  counts->passed += comparison.verdicts() - differences;
}

struct Gang {
  explicit Gang(const Json& line) : seed(line["seed"].get<int64_t>()) {
    Feed(line, &snapshot);
    for (const Json& member : line["members"]) {
      kube::Pod pod = ReadPod(line, member);
      const std::string uid = pod.meta.uid;
      snapshot.Upsert(std::move(pod));
      members.push_back(snapshot.SharePod(uid));
      request.members.push_back(members.back().get());
    }
    request.required = members.size();
    snapshot.CountNominations(members.front()->priority);
  }

  // None before the engine would ask for it: claims that one pod has alone are in nobody's way.
  Plan MakePlan() const {
    std::vector<std::string> uids;
    for (const kube::Pod* member : request.members) uids.push_back(member->meta.uid);
    if (cluster::WhyUnstartable(snapshot, uids, /*alone=*/true)) return {};
    return coscheduling::MakePlan(snapshot, request);
  }

  // What its guarantees depend on (coscheduling/placement/planner/README.md).
  const char* Kind() const {
    const cluster::Relations relations(snapshot, request.members, snapshot.node_list(), false);
    if (relations.between_members()) return "with relations";
    std::set<std::string> classes;
    for (const kube::Pod* member : request.members) classes.insert(cluster::ClassKey(*member));
    return classes.size() == 1 ? "alike" : "of several classes";
  }

  // The plan's places in an order in which each is allowed beside those before.
  Json InOrder(const Plan& plan) const {
    const auto& nodes = snapshot.node_list();
    cluster::Relations relations(snapshot, request.members, nodes, false);
    std::vector<cluster::Placing> placings;
    for (size_t i = 0; i < request.members.size(); ++i) {
      const std::string& node = plan.placements.at(request.members[i]->meta.uid);
      const auto at = std::ranges::find(nodes, node, &cluster::NodeInfo::name);
      placings.push_back({relations.KindOf(i), static_cast<int>(at - nodes.begin())});
    }
    Json places = Json::array();
    for (const size_t i : cluster::PlaceInOrder(placings, &relations).placed) {
      const kube::Pod& member = *request.members[i];
      places.push_back({member.meta.name, plan.placements.at(member.meta.uid)});
    }
    return places;
  }

  int64_t seed;
  cluster::Snapshot snapshot;
  std::vector<std::shared_ptr<const kube::Pod>> members;
  PlanRequest request;
};

struct GangTally {
  int64_t gangs = 0;
  int64_t placed = 0;
  int64_t missed = 0;  // that one pod at a time was placed
};

void ComparePlacements(const std::string& oracle, int64_t seed, int gangs, Counts* counts) {
  std::map<std::string, GangTally> kinds;
  const std::string plans = fmt::format("build/verdicts_plans_{}.jsonl", seed);
  std::ofstream file(plans);
  ForEachLine(fmt::format("{} gangs {} {}", oracle, seed, gangs), [&](const Json& line) {
    Gang gang(line);
    const std::string kind = gang.Kind();
    GangTally& tally = kinds[kind];
    ++tally.gangs;
    const Plan plan = gang.MakePlan();
    if (plan.complete) {
      ++tally.placed;
      const Json places = gang.InOrder(plan);
      file << Json{{"seed", gang.seed}, {"places", places}}.dump() << "\n";
      if (places.size() != gang.members.size()) {
        counts->Fail(fmt::format("seed {}: no order for {} of {} places", gang.seed,
                                 gang.members.size() - places.size(), gang.members.size()));
      }
    } else if (line["fitsOneByOne"].get<bool>()) {
      ++tally.missed;
      if (kind == "alike") {
        counts->Fail(
            fmt::format("seed {}: a gang of {} that is {} fits one pod at a time, and has no "
                        "plan: {} placed",
                        gang.seed, gang.members.size(), kind, plan.placements.size()));
      }
    }
  });
  file.close();
  int64_t bindings = 0;
  ForEachLine(fmt::format("{} replay < {}", oracle, plans), [&](const Json& line) {
    const std::string refused = line["refused"].get<std::string>();
    if (refused.empty()) {
      ++counts->passed;
    } else {
      counts->Fail(fmt::format("seed {}: binding {}", line["seed"].get<int64_t>(), refused));
    }
    ++bindings;
  });
  std::remove(plans.c_str());
  std::cout << fmt::format("{:20} {:>9} {:>9} {:>25}\n", "gangs", "gangs", "placed",
                           "placed one by one instead");
  for (const auto& [kind, tally] : kinds) {
    std::cout << fmt::format("{:20} {:>9} {:>9} {:>25}\n", kind, tally.gangs, tally.placed,
                             tally.missed);
  }
  std::cout << fmt::format("{} whole placements replayed\n", bindings) << std::flush;
}

}  // namespace
}  // namespace muster::testing

int main(int argc, char** argv) {
  if (argc < 2 || argc > 5) {
    std::cerr << "usage: verdicts_soak ORACLE [SEED [CLUSTERS [GANGS]]]\n";
    return 2;
  }
  const auto number = [&](int at, int64_t otherwise) {
    return at < argc ? std::stoll(argv[at]) : otherwise;
  };
  const int64_t seed = number(2, std::random_device()() % 1'000'000'000);
  muster::testing::Counts counts;
  std::cout << "seed " << seed << std::endl;
  try {
    muster::testing::CompareVerdicts(argv[1], seed, static_cast<int>(number(3, 5'000)), &counts);
    muster::testing::ComparePlacements(argv[1], seed, static_cast<int>(number(4, 6'000)), &counts);
  } catch (const std::exception& error) {
    counts.Fail(error.what());
  }
  std::cout << fmt::format("{} passed, {} failed\n", counts.passed, counts.failed);
  return counts.failed == 0 && counts.passed > 0 ? 0 : 1;
}
