// One object against what is known of its cluster: the manifests in tests/lint again, applied
// object by object as an API server has them.
#include "lint/object_lint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "lint/field_reader.h"
#include "lint/json_tree.h"
#include "lint/known_policies.h"
#include "lint/test_objects.h"
#include "yaml/engine_options.h"

namespace muster::lint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::HasSubstr;
using Rules = std::set<std::string>;

const cluster::InstanceTypes& Types() { return cluster::InstanceTypes::BuiltIn(); }

Json ToJson(const yaml::YamlValue& value) {
  if (value.is_mapping()) {
    Json object = Json::object();
    for (const yaml::YamlField& field : value.Fields()) {
      object[field.key] = ToJson({field.value, field.line});
    }
    return object;
  }
  if (value.is_sequence()) {
    Json list = Json::array();
    for (const yaml::YamlValue& item : value.Items()) list.push_back(ToJson(item));
    return list;
  }
  if (!value.is_scalar()) return {};
  if (value.node()->quoted || !Json::accept(value.Text())) return value.Text();
  return Json::parse(value.Text());
}

std::vector<Json> ReadObjects(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  std::vector<Json> objects;
  const yaml::YamlFile file = yaml::ParseYaml(text.str());
  for (const yaml::YamlValue& document : file.documents) {
    const Json object = ToJson(document);
    if (!object.contains("items")) objects.push_back(object);
    for (const Json& item : object.value("items", Json::array())) objects.push_back(item);
  }
  return objects;
}

// As they come by a list: without kind and apiVersion.
void Know(const std::vector<Json>& objects, KnownPolicies* known) {
  const std::map<std::string, PolicyKind> kinds = {
      {"NodePool", PolicyKind::kNodePool},         {"ResourceFlavor", PolicyKind::kResourceFlavor},
      {"ClusterQueue", PolicyKind::kClusterQueue}, {"LocalQueue", PolicyKind::kLocalQueue},
      {"Topology", PolicyKind::kTopology},         {"PodGroup", PolicyKind::kPodGroup}};
  for (Json object : objects) {
    const auto kind = kinds.find(object.value("kind", ""));
    if (kind == kinds.end()) continue;
    object.erase("kind");
    object.erase("apiVersion");
    const Json& meta = object["metadata"];
    known->Upsert(kind->second, meta.value("namespace", "default") + "/" + meta.value("name", ""),
                  object.dump());
  }
}

// Muster's own configuration is what it was started with.
coscheduling::EngineOptions OptionsIn(const std::vector<Json>& objects) {
  coscheduling::EngineOptions options;
  for (const Json& object : objects) {
    const std::string text = object.value(Json::json_pointer("/data/config.yaml"), "");
    EXPECT_TRUE(yaml::ReadQuotaOptions(text, &options).ok()) << text;
  }
  return options;
}

Rules RulesFoundIn(const fs::path& path) {
  const std::vector<Json> objects = ReadObjects(path);
  KnownPolicies known(OptionsIn(objects));
  Know(objects, &known);
  Rules found;
  for (const Json& object : objects) {
    const ObjectLint lint = LintObject(object.dump(), "coscheduling", *known.All(), Types(),
                                       [&](std::string_view space, std::string_view name) {
                                         return known.MinMember(space, name);
                                       });
    EXPECT_FALSE(lint.skipped) << path;
    for (const Finding& finding : lint.findings) found.emplace(finding.rule);
  }
  return found;
}

Rules RulesExpectedIn(const fs::path& path) {
  Rules expected;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line) && line.starts_with("#");) {
    constexpr std::string_view kExpect = "# expect: ";
    if (!line.starts_with(kExpect)) continue;
    line.erase(0, kExpect.size());
    expected.insert(line.substr(0, line.find(' ')));
  }
  return expected;
}

// NodePools are their owner's business here, and a job is seen without the PodGroup that was
// applied before or after it.
const Rules& RulesOfSeveralObjects() {
  static const auto* rules = new Rules{"consolidate-after-short",
                                       "consolidation-underutilized",
                                       "instance-type-unknown",
                                       "min-member-unreachable",
                                       "min-member-below-job",
                                       "preemptible-without-effect",
                                       "schedule-timeout-long",
                                       "schedule-timeout-short",
                                       "api-refused",
                                       "node-pool-unusable",
                                       "reference-not-found",
                                       "value-unlikely",
                                       "node-class-mismatch",
                                       "node-expires",
                                       "volume-bound-at-once"};
  return *rules;
}

// Files whose job names our scheduler nowhere, or whose mistake is in the TrainJob's runtime.
const std::set<std::string>& NotOurs() {
  static const auto* files =
      new std::set<std::string>{"scheduler_name_missing_group.yaml",
                                "scheduler_name_missing_job.yaml", "zone_not_offered_runtime.yaml"};
  return *files;
}

TEST(ObjectLint, FindsWhatLintFindsInEachOfItsManifests) {
  size_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("tests/lint/bad")) {
    if (NotOurs().contains(entry.path().filename().string())) continue;
    Rules expected = RulesExpectedIn(entry.path());
    const Rules found = RulesFoundIn(entry.path());
    for (const std::string& rule : found) {
      EXPECT_TRUE(expected.contains(rule)) << entry.path() << ": " << rule;
    }
    for (const std::string& rule : expected) {
      if (RulesOfSeveralObjects().contains(rule)) continue;
      EXPECT_TRUE(found.contains(rule)) << entry.path() << ": " << rule;
      ++files;
    }
  }
  EXPECT_GE(files, 50U);
}

TEST(ObjectLint, FindsNothingInCorrectManifests) {
  for (const fs::directory_entry& entry : fs::directory_iterator("tests/lint/good")) {
    EXPECT_EQ(RulesFoundIn(entry.path()), Rules()) << entry.path();
  }
}

// A Job of four pods with `resources` each that want to be on one node.
ObjectLint Lint(const Json& object, const Manifests& known = {}) {
  return LintObject(object.dump(), "coscheduling", known, Types());
}

std::string RulesOf(const ObjectLint& lint) {
  std::string rules;
  for (const Finding& finding : lint.findings) {
    rules.append(rules.empty() ? "" : " ").append(finding.rule);
  }
  return rules;
}

TEST(ObjectLint, OtherSchedulersJobsAndOtherKindsAreNotOurs) {
  KnownPolicies known;
  known.Upsert(PolicyKind::kNodePool, "gpu", Pool("gpu", "g6.2xlarge").dump());
  EXPECT_EQ(RulesOf(Lint(OneNodeJob(), *known.All())), "pod-affinity-one-node");
  EXPECT_EQ(RulesOf(Lint(OneNodeJob("default-scheduler"), *known.All())), "");
  Json deployment = OneNodeJob();
  deployment["kind"] = "Deployment";
  deployment["apiVersion"] = "apps/v1";
  EXPECT_EQ(RulesOf(Lint(deployment, *known.All())), "");
}

TEST(ObjectLint, SpeaksOfTheNodePoolsThatThereAre) {
  KnownPolicies known;
  known.Upsert(PolicyKind::kNodePool, "gpu", Pool("gpu", "g6.2xlarge").dump());
  const ObjectLint lint = Lint(OneNodeJob(), *known.All());
  ASSERT_EQ(RulesOf(lint), "pod-affinity-one-node");
  EXPECT_THAT(
      lint.findings.front().message,
      HasSubstr("NodePool gpu: one pod asks for 4 nvidia.com/gpu, the largest instance type "
                "that is left, g6.2xlarge, has 1"));
  // One node of it holds all four.
  known.Upsert(PolicyKind::kNodePool, "gpu", Pool("gpu", "g6.12xlarge", 2).dump());
  EXPECT_EQ(RulesOf(Lint(OneNodeJob(), *known.All())), "");
  known.Remove(PolicyKind::kNodePool, "gpu");
  EXPECT_EQ(RulesOf(Lint(OneNodeJob(), *known.All())), "") << "who makes nodes isn't known";
}

// A pod of plain-pods' shape whose affinity selects all of its group.
TEST(ObjectLint, APodIsOneOfAsManyAsItsPodGroupSays) {
  const Json job = OneNodeJob();
  Json pod = job["spec"]["template"];
  pod["apiVersion"] = "v1";
  pod["kind"] = "Pod";
  pod["metadata"]["name"] = "sum-0";
  pod["metadata"]["namespace"] = "team";
  pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "sum";
  pod["metadata"].erase("annotations");
  EXPECT_EQ(RulesOf(Lint(pod)), "") << "by itself it is no gang";
  KnownPolicies known;
  known.Upsert(PolicyKind::kNodePool, "gpu", Pool("gpu", "g6.2xlarge").dump());
  const MinMemberOf members = [&](std::string_view space, std::string_view name) {
    return known.MinMember(space, name);
  };
  const auto lint = [&] {
    return LintObject(pod.dump(), "coscheduling", *known.All(), Types(), members);
  };
  EXPECT_EQ(RulesOf(lint()), "");
  known.Upsert(PolicyKind::kPodGroup, "team/sum",
               R"({"metadata": {"name": "sum", "namespace": "team"}, "spec": {"minMember": 4}})");
  ASSERT_EQ(RulesOf(lint()), "pod-affinity-one-node");
  EXPECT_THAT(lint().findings.back().message,
              HasSubstr("Pods of group team/sum: required podAffinity on kubernetes.io/hostname "
                        "puts 4 pods on one node"));
  pod["spec"]["containers"][0]["args"] = {"torchrun --nnodes=8 --nproc_per_node=1 x.py"};
  EXPECT_EQ(RulesOf(lint()), "pod-affinity-one-node") << "minMember may be less than all pods";
  known.Remove(PolicyKind::kPodGroup, "team/sum");
  EXPECT_EQ(RulesOf(lint()), "");
}

TEST(ObjectLint, ErrorsComeBeforeWarnings) {
  Json job = OneNodeJob();
  job["spec"]["template"]["metadata"]["annotations"]["muster.dev/preemptible"] = "perhaps";
  KnownPolicies known;
  known.Upsert(PolicyKind::kNodePool, "gpu", Pool("gpu", "g6.2xlarge").dump());
  EXPECT_EQ(RulesOf(Lint(job, *known.All())), "pod-affinity-one-node preemptible-without-effect");
}

TEST(ObjectLint, WhatCannotBeReadIsNotLookedAt) {
  EXPECT_TRUE(LintObject("{", "coscheduling", {}, Types()).skipped);
  EXPECT_TRUE(LintObject("7", "coscheduling", {}, Types()).findings.empty());
  Json job = OneNodeJob();
  job["spec"]["parallelism"] = "four";
  EXPECT_EQ(RulesOf(Lint(job)), "");
}

TEST(ObjectLint, TooMuchIsSkipped) {
  Json job = OneNodeJob();
  job["metadata"]["annotations"]["notes"] = std::string(kMaxObjectBytes, 'x');
  EXPECT_TRUE(Lint(job).skipped);
  job = OneNodeJob();
  job["notes"] = std::vector<int>(static_cast<size_t>(kMaxObjectValues));
  EXPECT_TRUE(Lint(job).skipped);
  job = OneNodeJob();
  job["notes"] = Json::parse(std::string(200, '[') + std::string(200, ']'));
  EXPECT_TRUE(Lint(job).skipped);
  // Its selector has to be held against every NodePool.
  KnownPolicies known;
  for (int i = 0; i < 300; ++i) {
    const std::string name = "pool-" + std::to_string(i);
    known.Upsert(PolicyKind::kNodePool, name, Pool(name, "g6.2xlarge").dump());
  }
  job = OneNodeJob();
  EXPECT_FALSE(Lint(job, *known.All()).skipped);
  job["spec"]["template"]["spec"]["nodeSelector"] = {{"a", "b"}, {"c", "d"}};
  EXPECT_TRUE(Lint(job, *known.All()).skipped);
}

// What is looked at at all; tests/bench/lint_bench.cc has the time that it takes.
TEST(ObjectLint, LooksAtTheLargestObjects) {
  KnownPolicies known;
  AddPoolsByRequirement(&known);
  for (const auto& [what, object] : LargestObjects()) {
    EXPECT_FALSE(LintObject(object, "coscheduling", *known.All(), Types()).skipped) << what;
  }
}

TEST(KnownPolicies, AKindWithAnObjectThatCannotBeReadIsLeftOut) {
  KnownPolicies known;
  known.Upsert(PolicyKind::kNodePool, "good", Pool("good", "g6.2xlarge").dump());
  known.Upsert(PolicyKind::kResourceFlavor, "f", R"({"metadata": {"name": "f"}})");
  Json odd = Pool("odd", "g6.2xlarge");
  odd["spec"]["template"]["spec"]["requirements"][0]["operator"] = "Near";
  known.Upsert(PolicyKind::kNodePool, "odd", odd.dump());
  EXPECT_TRUE(known.All()->pools.empty());
  EXPECT_EQ(known.All()->flavors.size(), 1U);
  known.Upsert(PolicyKind::kNodePool, "odd", Pool("odd", "g6.2xlarge", 2).dump());
  EXPECT_EQ(known.All()->pools.size(), 2U);
}

TEST(KnownPolicies, APictureStaysAsItWasAndStatusMakesNoNewOne) {
  KnownPolicies known;
  known.Upsert(PolicyKind::kNodePool, "gpu", Pool("gpu", "g6.2xlarge").dump());
  const std::shared_ptr<const Manifests> before = known.All();
  Json same = Pool("gpu", "g6.2xlarge");
  same["status"]["resources"]["nodes"] = "3";
  known.Upsert(PolicyKind::kNodePool, "gpu", same.dump());
  EXPECT_EQ(known.All(), before);
  known.Remove(PolicyKind::kNodePool, "gpu");
  EXPECT_EQ(before->pools.size(), 1U);
  EXPECT_TRUE(known.All()->pools.empty());
}

TEST(JsonTree, KeepsTextAndNumbersApart) {
  const yaml::YamlFile file =
      ParseJson(R"({"a": "1", "b": 1, "c": true, "d": null, "e": [{"f": 1.5}]})");
  ASSERT_EQ(file.documents.size(), 1U);
  const yaml::YamlValue root = file.documents.front();
  EXPECT_EQ(root.Get("a").Text(), "1");
  EXPECT_TRUE(root.Get("a").node()->quoted);
  EXPECT_EQ(root.Get("b").Text(), "1");
  EXPECT_FALSE(root.Get("b").node()->quoted);
  EXPECT_EQ(root.Get("c").Text(), "true");
  EXPECT_FALSE(root.Get("d").present());
  EXPECT_EQ(root.Get("e").Items().front().Get("f").Text(), "1.5");
  EXPECT_EQ(root.line(), 1);
}

TEST(JsonTree, SaysWhatItDoesNotTake) {
  EXPECT_THAT(ParseJson("{").error.value().message, HasSubstr("not JSON"));
  EXPECT_THAT(ParseJson(std::string(101, '[') + std::string(101, ']')).error.value().message,
              HasSubstr("nested deeper than 100 levels"));
  EXPECT_THAT(ParseJson("[1, 2, 3]", 3).error.value().message, HasSubstr("more than 3 values"));
}

}  // namespace
}  // namespace muster::lint
