// What lint says of a manifest before there is a cluster is what the scheduler says of the gang in
// one: the same objects, applied to a world in virtual time, whose controllers make the pods.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "coscheduling/engine.h"
#include "lint/json_tree.h"
#include "lint/judge.h"
#include "lint/lint.h"
#include "muster/v1/admission.pb.h"
#include "simulation/world.h"

namespace muster {
namespace {

using nlohmann::json;

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool MakesPods(const std::string& kind) {
  return kind == "Job" || kind == "JobSet" || kind == "PyTorchJob" || kind == "MPIJob" ||
         kind == "StatefulSet" || kind == "RayCluster";
}

// Of the gangs that can't start, after the controllers had their turn.
std::vector<v1::Reason> ReasonsInAWorld(const std::string& text) {
  simulation::Scenario scenario;
  simulation::World world(scenario, {});
  // The definitions of Kueue's kinds that Muster comes with serve its newest version alone.
  const yaml::YamlFile file = yaml::ParseYaml(
      absl::StrReplaceAll(text, {{"kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"}}));
  std::set<std::string> spaces = {"default"};
  for (const yaml::YamlValue& document : file.documents) {
    const std::string& space = document.At("metadata.namespace").Text();
    if (document.Get("kind").Text() == "Namespace") {
      spaces.insert(document.At("metadata.name").Text());
    } else if (!space.empty() && spaces.insert(space).second) {
      const json object = {
          {"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", space}}}};
      const absl::Status applied = world.Perform(simulation::ApplyStep{object.dump()});
      EXPECT_TRUE(applied.ok()) << applied;
    }
  }
  for (const bool jobs : {false, true}) {
    for (const yaml::YamlValue& document : file.documents) {
      const json object = lint::JsonOf(document);
      const std::string kind = object.value("kind", "");
      if (MakesPods(kind) != jobs) continue;
      const absl::Status applied = world.Perform(simulation::ApplyStep{object.dump()});
      EXPECT_TRUE(applied.ok()) << applied;
      if (!jobs) continue;
      const std::string name = absl::StrCat(absl::AsciiStrToLower(kind), "/",
                                            object["metadata"].value("namespace", "default"), "/",
                                            object["metadata"].value("name", ""));
      simulation::ReconcileStep turn;
      turn.object = name;
      const absl::Status made = world.Perform(turn);
      EXPECT_TRUE(made.ok()) << made;
    }
  }
  world.RunUntil(world.start() + absl::Seconds(3));
  std::vector<v1::Reason> reasons;
  for (const coscheduling::GangKey& key : world.engine().Gangs()) {
    v1::Gang gang;
    if (!world.engine().Describe(key, &gang)) continue;
    // Of a PodGroup that nobody names: more may come.
    if (gang.reason().code() != v1::MEMBERS_MISSING) reasons.push_back(gang.reason());
  }
  return reasons;
}

class SameWords : public ::testing::TestWithParam<const char*> {};

TEST_P(SameWords, LintSaysWhatTheGangsReasonSays) {
  const std::string path = absl::StrCat("tests/lint/", GetParam(), ".yaml");
  const std::string text = TextOf(path);
  const lint::LintResult result = lint::Lint({{path, text}}, cluster::InstanceTypes::BuiltIn());
  std::string all;
  for (const lint::Finding& finding : result.findings) {
    absl::StrAppend(&all, std::string(finding.rule), ": ", finding.message, "\n");
  }
  const std::vector<v1::Reason> reasons = ReasonsInAWorld(text);
  ASSERT_FALSE(reasons.empty());
  for (const v1::Reason& reason : reasons) {
    const std::string rule = lint::RuleOf(reason.code());
    const bool said = std::ranges::any_of(result.findings, [&](const lint::Finding& finding) {
      return finding.rule == rule && finding.message.ends_with(reason.message()) &&
             finding.fix.starts_with(reason.fix());
    });
    EXPECT_TRUE(said) << rule << ": " << reason.message() << "\n    fix: " << reason.fix()
                      << "\nlint says\n"
                      << all;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Manifests, SameWords,
    ::testing::Values("mistakes/group_misspelt_jobset", "mistakes/group_other_namespace_job",
                      "mistakes/group_priority_differs_jobset", "bad/min_member_above_job_pytorch",
                      "mistakes/pod_efa_small_g5", "mistakes/pool_zone_by_id",
                      "mistakes/pool_toleration_value", "mistakes/queue_namespace_unlabelled",
                      "mistakes/queue_not_covered_efa_jobset", "mistakes/queue_quota_zero",
                      "mistakes/queue_stopped", "mistakes/queue_borrowing_limit_low",
                      "mistakes/queue_flavor_selector_conflict",
                      "mistakes/queue_priority_class_misspelt", "bad/local_queue_not_found_typo"),
    [](const auto& info) { return absl::StrReplaceAll(info.param, {{"/", "_"}}); });

}  // namespace
}  // namespace muster
