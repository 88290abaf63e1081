// The example jobs against the program that they start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "worker/program/test_job.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;

constexpr char kFolder[] = "deploy/examples/worker";
constexpr char kProgram[] = "/usr/local/bin/muster-worker";
constexpr char kMountedConfig[] = "/etc/training/config.yaml";

struct PodTemplate {
  YAML::Node pod_spec;
  YAML::Node container;
};

// The pod specs of `node`, wherever they stand, by their containers.
void FindPods(const YAML::Node& node, std::vector<PodTemplate>& found) {
  if (node.IsMap() && node["containers"]) {
    for (const YAML::Node& container : node["containers"]) {
      found.push_back({node, container});
    }
  }
  if (!node.IsMap() && !node.IsSequence()) return;
  for (const auto& entry : node) FindPods(node.IsMap() ? entry.second : YAML::Node(entry), found);
}

std::vector<PodTemplate> PodsOf(const std::string& path) {
  std::vector<PodTemplate> found;
  for (const YAML::Node& document : YAML::LoadAllFromFile(path)) FindPods(document, found);
  return found;
}

bool Mounts(const YAML::Node& container, const std::string& path) {
  for (const YAML::Node& mount : container["volumeMounts"]) {
    if (mount["mountPath"].Scalar() == path) return true;
  }
  return false;
}

// Whether the job's secret comes from one.
bool HasSecret(const YAML::Node& container) {
  for (const YAML::Node& variable : container["env"]) {
    if (variable["name"].Scalar() != "MUSTER_JOB_SECRET") continue;
    return variable["valueFrom"]["secretKeyRef"]["name"].IsDefined() && !variable["value"];
  }
  return false;
}

class Examples : public testing::TestWithParam<std::pair<std::string, size_t>> {};
INSTANTIATE_TEST_SUITE_P(All, Examples,
                         testing::Values(std::pair("jobset.yaml", 1),
                                         std::pair("plain-pods.yaml", 2),
                                         std::pair("pytorchjob.yaml", 2),
                                         std::pair("trainjob.yaml", 1)),
                         [](const auto& info) {
                           const std::string& name = info.param.first;
                           return name.substr(0, name.find_first_of("-."));
                         });

TEST_P(Examples, StartTheProgramInExecFormWithSettingsThatItKnows) {
  const std::vector<PodTemplate> pods = PodsOf(std::string(kFolder) + "/" + GetParam().first);
  ASSERT_EQ(pods.size(), GetParam().second);
  for (const PodTemplate& pod : pods) {
    const auto command = pod.container["command"].as<std::vector<std::string>>();
    ASSERT_EQ(command, std::vector<std::string>{kProgram});
    Flags arguments;
    for (std::string argument : pod.container["args"].as<std::vector<std::string>>()) {
      const size_t at = argument.find(kMountedConfig);
      if (at != std::string::npos) {
        argument.replace(at, sizeof kMountedConfig - 1, std::string(kFolder) + "/config.yaml");
      }
      arguments.push_back(argument);
    }
    const Ran ran = RunWorker(arguments + Flags{"--print-config"});
    ASSERT_EQ(ran.exit_code, 0) << ran.printed;
    const YAML::Node config = YAML::Load(ran.printed);
    // What the configuration says of the pod is what the pod is.
    const YAML::Node limits = pod.container["resources"]["limits"];
    EXPECT_EQ(config["gpus"].as<int>(), limits["nvidia.com/gpu"].as<int>());
    EXPECT_EQ(config["efa-devices"].as<int>(), limits["vpc.amazonaws.com/efa"].as<int>());
    absl::Duration grace;
    ASSERT_TRUE(absl::ParseDuration(config["grace-period"].Scalar(), &grace));
    EXPECT_EQ(absl::ToInt64Seconds(grace),
              pod.pod_spec["terminationGracePeriodSeconds"].as<int64_t>());
    EXPECT_THAT(config["checkpoints"].Scalar(), HasSubstr("/checkpoints"));
    EXPECT_TRUE(Mounts(pod.container, "/checkpoints"));
    EXPECT_EQ(config["termination-log"].Scalar(), "/dev/termination-log");
    EXPECT_TRUE(HasSecret(pod.container));
  }
}

class LaunchExamples : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, LaunchExamples,
                         testing::Values("accelerate", "deepspeed", "python", "torchrun"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(LaunchExamples, CopyTheProgramAndStartItWithSettingsThatItKnows) {
  const std::vector<PodTemplate> pods =
      PodsOf(absl::StrCat("deploy/examples/launch/", GetParam(), ".yaml"));
  ASSERT_EQ(pods.size(), 1U);
  const YAML::Node copy = pods[0].pod_spec["initContainers"][0];
  EXPECT_TRUE(copy["image"].Scalar().starts_with("muster-worker:"));
  EXPECT_EQ(copy["command"].as<std::vector<std::string>>(),
            (std::vector<std::string>{"cp", kProgram, "/muster/muster-worker"}));
  const YAML::Node& container = pods[0].container;
  EXPECT_EQ(container["command"].as<std::vector<std::string>>(),
            std::vector<std::string>{"/muster/muster-worker"});
  EXPECT_TRUE(Mounts(copy, "/muster") && Mounts(container, "/muster"));
  Flags settings = container["args"].as<std::vector<std::string>>();
  settings.insert(std::find(settings.begin(), settings.end(), "--"), "--print-config");
  const Ran ran = RunWorker(settings);
  ASSERT_EQ(ran.exit_code, 0) << ran.printed;
  const YAML::Node config = YAML::Load(ran.printed);
  const YAML::Node limits = container["resources"]["limits"];
  EXPECT_EQ(config["gpus"].as<int>(), limits["nvidia.com/gpu"].as<int>());
  EXPECT_EQ(config["efa-devices"].as<int>(), limits["vpc.amazonaws.com/efa"].as<int>());
}

}  // namespace
}  // namespace muster::worker
