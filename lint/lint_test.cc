#include "lint/lint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lint/output.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kFlavor =
    "apiVersion: kueue.x-k8s.io/v1beta2\n"
    "kind: ResourceFlavor\n"
    "metadata:\n"
    "  name: f\n"
    "spec:\n"
    "  nodeSelector:\n"
    "    nodeType: \"nvidia\"\n";

// A folder of its own, gone at the end.
class LintCommand : public ::testing::Test {
 protected:
  LintCommand()
      : folder_(std::filesystem::temp_directory_path() /
                Concat("muster_lint_", ::getpid(), "_",
                       ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~LintCommand() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  int Run(const LintOptions& options, const std::string& input = "") {
    std::istringstream in(input);
    out_.str("");
    err_.str("");
    return RunLint(options, in, out_, err_);
  }
  std::string out() const { return out_.str(); }
  std::string err() const { return err_.str(); }

 private:
  const std::filesystem::path folder_;
  std::ostringstream out_, err_;
};

TEST_F(LintCommand, SaysWhereWhatAndWhatToWriteInstead) {
  const std::string path = Write("flavor.yaml", kFlavor);
  EXPECT_EQ(Run({.files = {path}}), 1);
  EXPECT_EQ(out(),
            path +
                ":6: error: ResourceFlavor f has spec.nodeSelector, which doesn't exist: the "
                "API server drops it, and the flavor then stands for every node "
                "[flavor-node-selector]\n"
                "    fix: call it nodeLabels\n"
                "        spec:\n"
                "          nodeLabels:\n"
                "            nodeType: nvidia\n");
  EXPECT_EQ(err(), "");
}

TEST_F(LintCommand, NothingFoundIsExitCodeZero) {
  EXPECT_EQ(Run({.files = {"-"}}, "kind: Anything\n"), 0);
  EXPECT_EQ(out(), "");
  EXPECT_EQ(Run({.files = {"-"}}, ""), 0);
}

TEST_F(LintCommand, StandardInputIsAFileLikeAnother) {
  EXPECT_EQ(Run({.files = {"-"}}, kFlavor), 1);
  EXPECT_THAT(out(), HasSubstr("-:6: error: ResourceFlavor f"));
}

TEST_F(LintCommand, FilesAreLookedAtTogether) {
  const std::string local = Write("local.yaml",
                                  "apiVersion: kueue.x-k8s.io/v1beta2\n"
                                  "kind: LocalQueue\n"
                                  "metadata: {name: q}\n"
                                  "spec: {clusterQueue: nowhere}\n");
  const std::string cluster = Write("cluster.yaml",
                                    "apiVersion: kueue.x-k8s.io/v1beta2\n"
                                    "kind: ClusterQueue\n"
                                    "metadata: {name: somewhere}\n");
  EXPECT_EQ(Run({.files = {local}}), 0);
  EXPECT_EQ(Run({.files = {local, cluster}}), 1);
  EXPECT_THAT(out(), HasSubstr(local + ":4: error: LocalQueue default/q admits nothing: "));
  EXPECT_THAT(out(),
              HasSubstr("fix: correct LocalQueue default/q; there is ClusterQueue somewhere"));
}

TEST_F(LintCommand, WhatCannotBeReadIsExitCodeTwoAndTheRestIsLookedAt) {
  const std::string broken = Write("broken.yaml", "a: 1\na: 2\n");
  const std::string flavor = Write("flavor.yaml", kFlavor);
  EXPECT_EQ(Run({.files = {broken, flavor, "/no/such/file"}}), 2);
  EXPECT_THAT(out(), HasSubstr("[flavor-node-selector]"));
  EXPECT_THAT(err(), HasSubstr(broken + ":2: error: key a stands twice, first in line 1\n"));
  EXPECT_THAT(err(), HasSubstr("/no/such/file:1: error: No such file or directory\n"));
}

TEST_F(LintCommand, FieldsThatCannotBeReadAreNamed) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c : {
           Case{"apiVersion: karpenter.sh/v1\nkind: NodePool\nspec:\n  template:\n    spec:\n"
                "      requirements:\n        - key: a\n          operator: Is\n",
                "-:8: error: a: unknown operator Is"},
           Case{"apiVersion: karpenter.sh/v1\nkind: NodePool\nspec:\n  disruption:\n"
                "    consolidateAfter: soon\n",
                "-:5: error: consolidateAfter: must be Never or a duration"},
           Case{"apiVersion: karpenter.sh/v1\nkind: NodePool\nspec:\n  limits:\n    cpu: many\n",
                "-:5: error: cpu: must be a quantity from 0, is many"},
           Case{
               "apiVersion: scheduling.x-k8s.io/v1alpha1\nkind: PodGroup\nspec:\n  minMember: -1\n",
               "-:4: error: spec.minMember: must be an integer from 0, is -1"},
           Case{"apiVersion: batch/v1\nkind: Job\nspec:\n  parallelism: [1]\n",
                "-:4: error: parallelism: must be an integer from 0, is a structure"},
           Case{"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - resources:\n      limits:\n"
                "        nvidia.com/gpu: -8\n",
                "-:7: error: nvidia.com/gpu: must be a quantity from 0, is -8"},
           Case{"- a\n- b\n", "-:1: error: a manifest must be a mapping"},
       }) {
    EXPECT_EQ(Run({.files = {"-"}}, c.text), 2) << c.text;
    EXPECT_THAT(err(), HasSubstr(c.message));
  }
}

TEST_F(LintCommand, AFileTooLargeIsRefusedUnread) {
  std::string text = "a: |\n";
  while (text.size() < size_t{50} << 20) text += std::string(1023, 'x') + "\n";
  const std::string path = Write("large.yaml", text);
  EXPECT_EQ(Run({.files = {path}}), 2);
  EXPECT_THAT(err(), HasSubstr("the file goes on past 8388608 bytes"));
}

TEST_F(LintCommand, TheConfigurationSaysWhatRequestsCountAs) {
  constexpr const char* kObjects =
      "apiVersion: batch/v1\n"
      "kind: Job\n"
      "metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: default}}\n"
      "spec:\n"
      "  template:\n"
      "    spec:\n"
      "      restartPolicy: Never\n"
      "      containers:\n"
      "      - {name: c, image: i, resources: {limits: {nvidia.com/gpu: 4, cpu: 1}}}\n"
      "---\n"
      "apiVersion: kueue.x-k8s.io/v1beta2\n"
      "kind: LocalQueue\n"
      "metadata: {name: default}\n"
      "spec: {clusterQueue: q}\n"
      "---\n"
      "apiVersion: kueue.x-k8s.io/v1beta2\n"
      "kind: ClusterQueue\n"
      "metadata: {name: q}\n"
      "spec:\n"
      "  namespaceSelector: {}\n"
      "  resourceGroups:\n"
      "  - coveredResources: [nvidia.com/gpu]\n"
      "    flavors: [{name: f, resources: [{name: nvidia.com/gpu, nominalQuota: 4}]}]\n";
  EXPECT_EQ(Run({.files = {"-"}}, kObjects), 1);
  EXPECT_THAT(out(), HasSubstr("Job default/j: ClusterQueue q has nothing for 1 pod: none of its "
                               "spec.resourceGroups covers cpu [resource-not-covered]"));
  const std::string excludes = Write("excludes.yaml",
                                     "lease: {name: muster}\n"
                                     "resources: {excludeResourcePrefixes: [cpu]}\n");
  EXPECT_EQ(Run({.files = {"-"}, .config = excludes}, kObjects), 0) << out();
  const std::string doubles = Write("doubles.yaml",
                                    "resources:\n"
                                    "  excludeResourcePrefixes: [cpu]\n"
                                    "  transformations:\n"
                                    "  - {input: nvidia.com/gpu, outputs: {nvidia.com/gpu: 1}}\n");
  EXPECT_EQ(Run({.files = {"-"}, .config = doubles}, kObjects), 1);
  EXPECT_THAT(out(), HasSubstr("Job default/j: ClusterQueue q has nothing for 1 pod: flavor f "
                               "could give at most 4 nvidia.com/gpu of the 8 nvidia.com/gpu asked "
                               "for [quota-too-small]"));
  for (const char* mode : {"off", "kueue"}) {
    const std::string other = Write("other.yaml", Concat("quota: ", mode, "\n"));
    EXPECT_EQ(Run({.files = {"-"}, .config = other}, kObjects), 0) << out();
  }
  const std::string wrong = Write("wrong.yaml", "quota: internal\nresources: all\n");
  EXPECT_EQ(Run({.files = {"-"}, .config = wrong}, kObjects), 2);
  EXPECT_EQ(err(), "muster: " + wrong + ": line 2: resources: want a mapping\n");
  EXPECT_EQ(Run({.files = {"-"}, .config = "/no/such/file"}, kObjects), 2);
  EXPECT_EQ(Run({.files = {"-"}},
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: muster}\n"
                "data:\n  config.yaml: |\n    resources: all\n"),
            2);
  EXPECT_EQ(err(), "-:5: error: config.yaml: line 1: resources: want a mapping\n");
}

TEST_F(LintCommand, InstanceTypesCanBeAdded) {
  constexpr const char* kJob =
      "apiVersion: batch/v1\n"
      "kind: Job\n"
      "metadata: {name: j}\n"
      "spec:\n"
      "  template:\n"
      "    spec:\n"
      "      restartPolicy: Never\n"
      "      nodeSelector: {node.kubernetes.io/instance-type: p9.large}\n"
      "      containers:\n"
      "      - {name: c, image: i, resources: {limits: {nvidia.com/gpu: 4}}}\n";
  EXPECT_EQ(Run({.files = {"-"}}, kJob), 0);
  const std::string types = Write("types.txt", "p9.large 8 64Gi 2 0 0 x100\n");
  EXPECT_EQ(Run({.files = {"-"}, .instance_types = types}, kJob), 1);
  EXPECT_THAT(out(), HasSubstr("one pod asks for 4 nvidia.com/gpu, the largest instance type that "
                               "is left, p9.large, has 2"));
  const std::string negative = Write("negative.txt", "p9.large 8 64Gi -2 0 0 x100\n");
  EXPECT_EQ(Run({.files = {"-"}, .instance_types = negative}, kJob), 2);
  EXPECT_EQ(err(),
            "muster: " + negative + ":1: p9.large: gpu -2: must be an integer from 0 to 1000000\n");
  EXPECT_EQ(Run({.files = {"-"}, .instance_types = "/no/such/file"}, kJob), 2);
  const std::string latin1 = Write("latin1.txt", "p9.large 8 64Gi 2 0 0 x\n# caf\xE9\n");
  EXPECT_EQ(Run({.files = {"-"}, .instance_types = latin1}, kJob), 2);
  EXPECT_THAT(err(), HasSubstr(latin1 + ":2: not UTF-8"));
  const std::string large = Write("large.txt", "\n" + std::string(50 << 20, '#'));
  EXPECT_EQ(Run({.files = {"-"}, .instance_types = large}, kJob), 2);
  EXPECT_THAT(err(), HasSubstr(large + ":2: the file goes on past 8388608 bytes"));
}

// What is wrong with the text itself is told with file and line, on standard error and in what
// tools read, and is exit code 2.
TEST_F(LintCommand, TextThatIsNoManifestIsNamed) {
  struct Case {
    std::string text;
    int line;
    const char* message;
  };
  for (const Case& c : {Case{"a: 1\nb:\n\tc: 2\n", 3, "a tab in the indentation"},
                        Case{"a: 1\nb: 2\na: 3\n", 3, "key a stands twice, first in line 1"},
                        Case{"a: 1\nb: caf\xE9\n", 2, "byte 0xe9 is not UTF-8"},
                        Case{std::string("\xFF\xFE"
                                         "a\0",
                                         4),
                             1, "byte 0xff is not UTF-8"},
                        Case{"a: &x\n  b: *x\n", 2, "an alias inside the value that it stands for"},
                        Case{"a: *nowhere\n", 1, "not YAML: the referenced anchor is not defined"},
                        Case{std::string(400, '['), 1, "nested deeper than 100 levels"},
                        Case{"a: 1\nb: [\n", 3, "not YAML"}}) {
    const std::string path = Write("bad.yaml", c.text);
    EXPECT_EQ(Run({.files = {path}}), 2) << c.message;
    EXPECT_THAT(err(), HasSubstr(Concat(path, ":", c.line, ": error: ", c.message)));
    EXPECT_EQ(Run({.files = {path}, .output = "sarif"}), 2);
    const json run = json::parse(out())["runs"][0];
    const json& told = run["invocations"][0]["toolExecutionNotifications"][0];
    EXPECT_EQ(told["locations"][0]["physicalLocation"]["region"]["startLine"], c.line);
  }
  EXPECT_EQ(Run({.files = {std::filesystem::temp_directory_path().string()}}), 2);
  EXPECT_THAT(err(), HasSubstr(":1: error: Is a directory"));
}

TEST_F(LintCommand, Json) {
  EXPECT_EQ(Run({.files = {"-"}, .output = "json"}, std::string(kFlavor) + "---\na: 1\na: 2\n"), 2);
  const json result = json::parse(out());
  EXPECT_EQ(result["files"], 1);
  ASSERT_EQ(result["findings"].size(), 1U);
  EXPECT_EQ(result["findings"][0]["rule"], "flavor-node-selector");
  EXPECT_EQ(result["findings"][0]["line"], 6);
  EXPECT_EQ(result["findings"][0]["severity"], "error");
  EXPECT_EQ(result["findings"][0]["yaml"], "spec:\n  nodeLabels:\n    nodeType: nvidia\n");
  ASSERT_EQ(result["errors"].size(), 1U);
  EXPECT_EQ(result["errors"][0]["line"], 10);
}

TEST_F(LintCommand, Sarif) {
  EXPECT_EQ(Run({.files = {"-"}, .output = "sarif"}, std::string(kFlavor) + "---\na: 1\na: 2\n"),
            2);
  const json result = json::parse(out());
  EXPECT_EQ(result["version"], "2.1.0");
  const json& run = result["runs"][0];
  const json& rules = run["tool"]["driver"]["rules"];
  EXPECT_EQ(rules.size(), Rules().size());
  ASSERT_EQ(run["results"].size(), 1U);
  const json& found = run["results"][0];
  EXPECT_EQ(found["ruleId"], "flavor-node-selector");
  EXPECT_EQ(rules[found["ruleIndex"].get<size_t>()]["id"], "flavor-node-selector");
  EXPECT_EQ(found["level"], "error");
  const json& place = found["locations"][0]["physicalLocation"];
  EXPECT_EQ(place["artifactLocation"]["uri"], "-");
  EXPECT_EQ(place["region"]["startLine"], 6);
  const json& invocation = run["invocations"][0];
  EXPECT_EQ(invocation["executionSuccessful"], false);
  EXPECT_EQ(invocation["toolExecutionNotifications"].size(), 1U);
}

TEST(Lint, RulesAreSortedAndUnique) {
  for (size_t i = 1; i < Rules().size(); ++i) EXPECT_LT(Rules()[i - 1].id, Rules()[i].id);
}

// The five causes that one message of Karpenter's can have, each told apart.
TEST(Lint, WhyNoInstanceTypeMetTheRequirements) {
  constexpr const char* kPool =
      "apiVersion: karpenter.sh/v1\n"
      "kind: NodePool\n"
      "metadata: {name: gpu}\n"
      "spec:\n"
      "  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 20m}\n"
      "  template:\n"
      "    spec:\n"
      "      requirements:\n"
      "      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}\n"
      "      - {key: topology.kubernetes.io/zone, operator: In, values: [ap-northeast-2c]}\n"
      "      - {key: node.kubernetes.io/instance-type, operator: In, values: [p4d.24xlarge, "
      "g6.2xlarge]}\n";
  struct Case {
    const char* selector;
    int gpus;
    int efa;
    const char* rule;
    const char* message;
  };
  for (const Case& c : {
           Case{"karpenter.sh/nodepool: gpu", 16, 0, "gpu-count-too-large",
                "one pod asks for 16 nvidia.com/gpu, the largest instance type that is left, "
                "p4d.24xlarge, has 8"},
           Case{"topology.kubernetes.io/zone: ap-northeast-2a", 1, 0, "zone-not-offered",
                "the pods select topology.kubernetes.io/zone=ap-northeast-2a, it offers "
                "topology.kubernetes.io/zone=ap-northeast-2c"},
           Case{"karpenter.sh/capacity-type: spot", 1, 0, "capacity-type-not-offered",
                "the pods select karpenter.sh/capacity-type=spot, it offers "
                "karpenter.sh/capacity-type=on-demand"},
           Case{"node.kubernetes.io/instance-type: g6.2xlarge", 1, 1, "efa-not-supported",
                "one pod asks for 1 vpc.amazonaws.com/efa, none of its instance types has any "
                "(g6.2xlarge)"},
           Case{"node.kubernetes.io/instance-type: p5.48xlarge", 1, 0, "instance-type-not-allowed",
                "the pods select node.kubernetes.io/instance-type=p5.48xlarge, it offers "
                "node.kubernetes.io/instance-type"},
       }) {
    const std::string job = fmt::format(
        "---\n"
        "apiVersion: batch/v1\n"
        "kind: Job\n"
        "metadata: {{name: j}}\n"
        "spec:\n"
        "  template:\n"
        "    spec:\n"
        "      restartPolicy: Never\n"
        "      nodeSelector: {{{}}}\n"
        "      containers:\n"
        "      - name: c\n"
        "        image: i\n"
        "        resources:\n"
        "          limits: {{nvidia.com/gpu: {}, vpc.amazonaws.com/efa: {}, hugepages-2Mi: 1Gi, "
        "memory: 8Gi}}\n"
        "        volumeMounts: [{{name: shm, mountPath: /dev/shm}}]\n"
        "      volumes: [{{name: shm, emptyDir: {{medium: Memory}}}}]\n",
        c.selector, c.gpus, c.efa);
    const LintResult result = Lint({{"f", kPool + job}}, cluster::InstanceTypes::BuiltIn());
    ASSERT_EQ(result.findings.size(), 1U) << c.rule << "\n" << TextOutput(result);
    EXPECT_EQ(result.findings[0].rule, c.rule);
    EXPECT_THAT(result.findings[0].message, HasSubstr(Concat("NodePool gpu: ", c.message)));
  }
}

}  // namespace
}  // namespace muster::lint
