// What deploy/ says must be what this program reads, and its parts must agree with each other. Runs
// in the project's root.

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "extender/config.h"
#include "extender/leader_label.h"

namespace muster::extender {
namespace {

// The object of this kind and name among the documents of a file.
YAML::Node Find(const std::string& file, const std::string& kind, const std::string& name) {
  for (const YAML::Node& object : YAML::LoadAllFromFile("deploy/base/" + file)) {
    if (object["kind"].as<std::string>() == kind &&
        object["metadata"]["name"].as<std::string>() == name) {
      return object;
    }
  }
  ADD_FAILURE() << file << " has no " << kind << " " << name;
  return {};
}

ServeOptions Deployed() {
  ServeOptions options;
  const YAML::Node map = Find("muster-config.yaml", "ConfigMap", "muster");
  const absl::Status status =
      ApplyConfig(map["data"]["config.yaml"].as<std::string>(), "muster-config.yaml", &options);
  EXPECT_TRUE(status.ok()) << status;
  return options;
}

YAML::Node Container(const std::string& name) {
  const YAML::Node pod = Find("deployment.yaml", "Deployment", "muster")["spec"]["template"];
  for (const YAML::Node& container : pod["spec"]["containers"]) {
    if (container["name"].as<std::string>() == name) return container;
  }
  ADD_FAILURE() << "no container " << name;
  return {};
}

TEST(Deploy, TheWebhooksServiceIsThereAndReachesItsPort) {
  const ServeOptions options = Deployed();
  const YAML::Node service = Find("services.yaml", "Service", options.webhook.service_name);
  const YAML::Node deployment = Find("deployment.yaml", "Deployment", "muster");
  const auto name_space = service["metadata"]["namespace"].as<std::string>();
  EXPECT_EQ(name_space, deployment["metadata"]["namespace"].as<std::string>());
  if (!options.webhook.service_namespace.empty()) {
    EXPECT_EQ(options.webhook.service_namespace, name_space);
  }
  const YAML::Node port = service["spec"]["ports"][0];
  EXPECT_EQ(port["port"].as<int>(), options.webhook.service_port);
  for (const auto& label : service["spec"]["selector"]) {
    EXPECT_EQ(deployment["spec"]["template"]["metadata"]["labels"][label.first.as<std::string>()]
                  .as<std::string>(),
              label.second.as<std::string>());
  }
  std::optional<int> listened;
  for (const YAML::Node& declared : Container("muster")["ports"]) {
    if (declared["name"].as<std::string>() == port["targetPort"].as<std::string>()) {
      listened = declared["containerPort"].as<int>();
    }
  }
  ASSERT_TRUE(listened.has_value());
  const auto args = Container("muster")["args"].as<std::vector<std::string>>();
  EXPECT_NE(
      std::find(args.begin(), args.end(), "--webhook-listen=0.0.0.0:" + std::to_string(*listened)),
      args.end());
}

// Whether a Role of deploy/ lets `verb` be done to the Lease of this name.
bool MayOnLease(const YAML::Node& role, const std::string& name, const std::string& verb) {
  for (const YAML::Node& rule : role["rules"]) {
    const auto has = [&rule](const char* field, const std::string& value) {
      const auto values = rule[field].as<std::vector<std::string>>();
      return std::find(values.begin(), values.end(), value) != values.end();
    };
    if (has("resources", "leases") && has("resourceNames", name) && has("verbs", verb)) return true;
  }
  return false;
}

TEST(Deploy, MusterFollowsTheLeaseThatTheKubeSchedulersHold) {
  const ServeOptions options = Deployed();
  const YAML::Node map = Find("scheduler-config.yaml", "ConfigMap", "muster-kube-scheduler");
  const YAML::Node election =
      YAML::Load(map["data"]["config.yaml"].as<std::string>())["leaderElection"];
  EXPECT_TRUE(election["leaderElect"].as<bool>());
  EXPECT_EQ(options.follow.name_space, election["resourceNamespace"].as<std::string>());
  EXPECT_EQ(options.follow.name, election["resourceName"].as<std::string>());

  const YAML::Node reader = Find("rbac-muster.yaml", "Role", "muster");
  EXPECT_EQ(reader["metadata"]["namespace"].as<std::string>(), options.follow.name_space);
  EXPECT_TRUE(MayOnLease(reader, options.follow.name, "get"));
  const YAML::Node holder = Find("rbac-kube-scheduler.yaml", "Role", "muster-kube-scheduler");
  EXPECT_EQ(holder["metadata"]["namespace"].as<std::string>(), options.follow.name_space);
  EXPECT_TRUE(MayOnLease(holder, options.follow.name, "update"));

  const auto args = Container("muster")["args"].as<std::vector<std::string>>();
  EXPECT_NE(std::find(args.begin(), args.end(), "--leader-elect=true"), args.end());
}

TEST(Deploy, QueriesGoToTheLeaderAndTheGateToEveryPod) {
  const YAML::Node queries = Find("services.yaml", "Service", "muster");
  ASSERT_TRUE(queries["spec"]["selector"][kLeadingLabel]);
  EXPECT_EQ(queries["spec"]["selector"][kLeadingLabel].as<std::string>(), "true");
  const YAML::Node gate = Find("services.yaml", "Service", Deployed().webhook.service_name);
  EXPECT_FALSE(gate["spec"]["selector"][kLeadingLabel]);
}

}  // namespace
}  // namespace muster::extender
