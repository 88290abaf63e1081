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

// The pod specs of `node` whose containers run the worker's image, wherever they stand.
void FindPods(const YAML::Node& node, std::vector<PodTemplate>& found) {
  if (node.IsMap() && node["containers"]) {
    for (const YAML::Node& container : node["containers"]) {
      const YAML::Node image = container["image"];
      if (image && image.Scalar().starts_with("muster-worker:")) found.push_back({node, container});
    }
  }
  if (!node.IsMap() && !node.IsSequence()) return;
  for (const auto& entry : node) FindPods(node.IsMap() ? entry.second : YAML::Node(entry), found);
}

std::vector<PodTemplate> PodsOf(const std::string& file) {
  std::vector<PodTemplate> found;
  for (const YAML::Node& document : YAML::LoadAllFromFile(std::string(kFolder) + "/" + file)) {
    FindPods(document, found);
  }
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
  const std::vector<PodTemplate> pods = PodsOf(GetParam().first);
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

}  // namespace
}  // namespace muster::worker
