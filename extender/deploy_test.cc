// What deploy/ says must be what this program reads, and its parts must agree with each other. Runs
// in the project's root.

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/suspect_nodes.h"
#include "coscheduling/gangs/job_gangs.h"
#include "coscheduling/labels.h"
#include "extender/admission/webhook_configuration.h"
#include "extender/config.h"
#include "extender/leader_label.h"
#include "kube/client/lease.h"
#include "kube/embedded/quota_crds.h"
#include "kube/objects/job_restart.h"
#include "kube/objects/node_holds.h"
#include "quota/admission_writes.h"
#include "quota/pod_sets.h"

namespace muster::extender {
namespace {

// The object of this kind and name among the documents of a file.
YAML::Node Find(const std::string& file, const std::string& kind, const std::string& name) {
  for (const YAML::Node& object : YAML::LoadAllFromFile("deploy/" + file)) {
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
  const YAML::Node map = Find("base/muster-config.yaml", "ConfigMap", "muster");
  const absl::Status status =
      ApplyConfig(map["data"]["config.yaml"].as<std::string>(), "muster-config.yaml", &options);
  EXPECT_TRUE(status.ok()) << status;
  return options;
}

YAML::Node Container(const std::string& name) {
  const YAML::Node pod = Find("base/deployment.yaml", "Deployment", "muster")["spec"]["template"];
  for (const YAML::Node& container : pod["spec"]["containers"]) {
    if (container["name"].as<std::string>() == name) return container;
  }
  ADD_FAILURE() << "no container " << name;
  return {};
}

TEST(Deploy, TheWebhooksServiceIsThereAndReachesItsPort) {
  const ServeOptions options = Deployed();
  const YAML::Node service = Find("base/services.yaml", "Service", options.webhook.service_name);
  const YAML::Node deployment = Find("base/deployment.yaml", "Deployment", "muster");
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
  const YAML::Node map = Find("base/scheduler-config.yaml", "ConfigMap", "muster-kube-scheduler");
  const YAML::Node election =
      YAML::Load(map["data"]["config.yaml"].as<std::string>())["leaderElection"];
  EXPECT_TRUE(election["leaderElect"].as<bool>());
  EXPECT_EQ(options.follow.name_space, election["resourceNamespace"].as<std::string>());
  EXPECT_EQ(options.follow.name, election["resourceName"].as<std::string>());

  const YAML::Node reader = Find("base/rbac-muster.yaml", "Role", "muster");
  EXPECT_EQ(reader["metadata"]["namespace"].as<std::string>(), options.follow.name_space);
  EXPECT_TRUE(MayOnLease(reader, options.follow.name, "get"));
  const YAML::Node holder = Find("base/rbac-kube-scheduler.yaml", "Role", "muster-kube-scheduler");
  EXPECT_EQ(holder["metadata"]["namespace"].as<std::string>(), options.follow.name_space);
  EXPECT_TRUE(MayOnLease(holder, options.follow.name, "update"));

  const auto args = Container("muster")["args"].as<std::vector<std::string>>();
  EXPECT_NE(std::find(args.begin(), args.end(), "--leader-elect=true"), args.end());
}

YAML::Node SchedulerConfig() {
  const YAML::Node map = Find("base/scheduler-config.yaml", "ConfigMap", "muster-kube-scheduler");
  return YAML::Load(map["data"]["config.yaml"].as<std::string>());
}

TEST(Deploy, MusterAnswersBindCallsWithinTheTimeThatKubeSchedulerWaits) {
  const YAML::Node scheduler = SchedulerConfig();
  ASSERT_EQ(scheduler["extenders"].size(), 1u);
  const auto text = scheduler["extenders"][0]["httpTimeout"].as<std::string>();
  absl::Duration waits;
  ASSERT_TRUE(absl::ParseDuration(text, &waits)) << text;
  EXPECT_EQ(Deployed().http_timeout, waits) << "extender.httpTimeout of muster-config.yaml";
  EXPECT_EQ(Deployed().engine.bind_wait, waits / 2);
}

// Users can't reach it: no Service has it, and the NetworkPolicy lets nobody in.
TEST(Deploy, TheKubeletAsksAtAPortThatIsItsOwn) {
  const YAML::Node container = Container("muster");
  std::string number;
  for (const YAML::Node& port : container["ports"]) {
    if (port["name"].as<std::string>() == "health")
      number = port["containerPort"].as<std::string>();
  }
  ASSERT_FALSE(number.empty());
  const auto args = container["args"].as<std::vector<std::string>>();
  EXPECT_NE(std::find(args.begin(), args.end(), "--health-listen=0.0.0.0:" + number), args.end());
  for (const char* probe : {"livenessProbe", "readinessProbe", "startupProbe"}) {
    EXPECT_EQ(container[probe]["httpGet"]["port"].as<std::string>(), "health") << probe;
  }
  for (const YAML::Node& object : YAML::LoadAllFromFile("deploy/base/services.yaml")) {
    for (const YAML::Node& port : object["spec"]["ports"]) {
      EXPECT_NE(port["targetPort"].as<std::string>(), "health") << object["metadata"]["name"];
    }
  }
  const YAML::Node policy = Find("base/network-policy.yaml", "NetworkPolicy", "muster");
  for (const YAML::Node& rule : policy["spec"]["ingress"]) {
    ASSERT_TRUE(rule["ports"]) << "a rule for every port";
    for (const YAML::Node& port : rule["ports"]) {
      EXPECT_NE(port["port"].as<std::string>(), "health");
    }
  }
}

TEST(Deploy, QueriesGoToTheLeaderAndTheGateToEveryPod) {
  const YAML::Node queries = Find("base/services.yaml", "Service", "muster");
  ASSERT_TRUE(queries["spec"]["selector"][kLeadingLabel]);
  EXPECT_EQ(queries["spec"]["selector"][kLeadingLabel].as<std::string>(), "true");
  const YAML::Node gate = Find("base/services.yaml", "Service", Deployed().webhook.service_name);
  EXPECT_FALSE(gate["spec"]["selector"][kLeadingLabel]);
}

using Verbs = std::set<std::string>;

// What the ClusterRole lets be done to a resource under any name.
Verbs MayOn(const std::string& group, const std::string& resource) {
  Verbs verbs;
  for (const YAML::Node& rule : Find("base/rbac-muster.yaml", "ClusterRole", "muster")["rules"]) {
    const auto groups = rule["apiGroups"].as<std::vector<std::string>>();
    const auto resources = rule["resources"].as<std::vector<std::string>>();
    if (rule["resourceNames"]) continue;
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) continue;
    if (std::find(resources.begin(), resources.end(), resource) == resources.end()) continue;
    for (const YAML::Node& verb : rule["verbs"]) verbs.insert(verb.as<std::string>());
  }
  return verbs;
}

// Its patches of queues and flavors are held to a finalizer by policies/account.yaml.
TEST(Deploy, MusterWritesOnlyTheStatusOfQueuesAndSuspendsOnlyJobsThatCanBe) {
  const Verbs read = {"get", "list", "watch"};
  const Verbs only_read = {"list", "watch"};
  const Verbs suspend = {"get", "list", "patch", "watch"};
  for (const char* resource : {"localqueues", "cohorts"}) {
    EXPECT_EQ(MayOn("kueue.x-k8s.io", resource), read) << resource;
  }
  EXPECT_EQ(MayOn("kueue.x-k8s.io", "workloadpriorityclasses"), only_read);
  EXPECT_EQ(MayOn("kueue.x-k8s.io", "topologies"), only_read);
  for (const char* resource : {"resourceflavors", "clusterqueues"}) {
    EXPECT_EQ(MayOn("kueue.x-k8s.io", resource), (Verbs{"get", "list", "patch", "watch"}))
        << resource;
  }
  for (const char* resource : {"clusterqueues/status", "localqueues/status", "cohorts/status"}) {
    EXPECT_EQ(MayOn("kueue.x-k8s.io", resource), Verbs{"patch"}) << resource;
  }
  const std::multimap<std::string, std::string> owners = {{"batch", "jobs"},
                                                          {"apps", "statefulsets"},
                                                          {"jobset.x-k8s.io", "jobsets"},
                                                          {"kubeflow.org", "pytorchjobs"},
                                                          {"kubeflow.org", "mpijobs"},
                                                          {"trainer.kubeflow.org", "trainjobs"},
                                                          {"ray.io", "rayclusters"},
                                                          {"ray.io", "rayjobs"}};
  for (const auto& [group, resource] : owners) {
    EXPECT_EQ(MayOn(group, resource), resource == "statefulsets" ? only_read : suspend) << resource;
    EXPECT_EQ(MayOn(group, resource + "/status"), resource == "jobs" ? Verbs{"patch"} : Verbs{})
        << resource;
  }
  EXPECT_EQ(MayOn("scheduling.x-k8s.io", "podgroups"),
            (Verbs{"create", "get", "list", "patch", "watch"}));
}

TEST(Deploy, OnlyTheRightsOfWithdrawNodesLetNodeClaimsBeDeleted) {
  EXPECT_FALSE(Deployed().engine.withdraw_nodes);
  EXPECT_EQ(MayOn("karpenter.sh", "nodeclaims"), (Verbs{"list", "watch"}));
  const char* file = "withdraw-nodes/rbac.yaml";
  const YAML::Node rules = Find(file, "ClusterRole", "muster-withdraw-nodes")["rules"];
  ASSERT_EQ(rules.size(), 1u);
  using Values = std::vector<std::string>;
  EXPECT_EQ(rules[0]["apiGroups"].as<Values>(), Values{"karpenter.sh"});
  EXPECT_EQ(rules[0]["resources"].as<Values>(), Values{"nodeclaims"});
  EXPECT_EQ(rules[0]["verbs"].as<Values>(), (Values{"get", "delete"}));
  const YAML::Node binding = Find(file, "ClusterRoleBinding", "muster-withdraw-nodes");
  EXPECT_EQ(binding["roleRef"]["name"].as<std::string>(), "muster-withdraw-nodes");
  const YAML::Node of_muster = Find("base/rbac-muster.yaml", "ClusterRoleBinding", "muster");
  EXPECT_EQ(YAML::Dump(binding["subjects"]), YAML::Dump(of_muster["subjects"]));
}

// Quota lies in them.
TEST(Deploy, MusterMakesWorkloadsAndWritesTheirStatus) {
  EXPECT_EQ(MayOn("kueue.x-k8s.io", "workloads"),
            (Verbs{"get", "list", "watch", "create", "patch"}));
  EXPECT_EQ(MayOn("kueue.x-k8s.io", "workloads/status"), Verbs{"patch"});
}

TEST(Deploy, TheRightsOfKueueFallbackAreOnWorkloadsAlone) {
  EXPECT_FALSE(Deployed().engine.kueue_fallback);
  const char* file = "kueue-fallback/rbac.yaml";
  const YAML::Node rules = Find(file, "ClusterRole", "muster-kueue-fallback")["rules"];
  ASSERT_EQ(rules.size(), 1u);
  using Values = std::vector<std::string>;
  EXPECT_EQ(rules[0]["apiGroups"].as<Values>(), Values{"kueue.x-k8s.io"});
  EXPECT_EQ(rules[0]["resources"].as<Values>(), Values{"workloads"});
  EXPECT_EQ(rules[0]["verbs"].as<Values>(), (Values{"get", "list", "watch", "patch"}));
  const YAML::Node binding = Find(file, "ClusterRoleBinding", "muster-kueue-fallback");
  EXPECT_EQ(binding["roleRef"]["name"].as<std::string>(), "muster-kueue-fallback");
  const YAML::Node of_muster = Find("base/rbac-muster.yaml", "ClusterRoleBinding", "muster");
  EXPECT_EQ(YAML::Dump(binding["subjects"]), YAML::Dump(of_muster["subjects"]));
}

// What it lets be done to the one object of this name.
Verbs MayOnNamed(const std::string& resource, const std::string& name) {
  Verbs verbs;
  for (const YAML::Node& rule : Find("base/rbac-muster.yaml", "ClusterRole", "muster")["rules"]) {
    const auto resources = rule["resources"].as<std::vector<std::string>>();
    if (!rule["resourceNames"] || resources != std::vector{resource}) continue;
    if (rule["resourceNames"].as<std::vector<std::string>>() != std::vector{name}) continue;
    for (const YAML::Node& verb : rule["verbs"]) verbs.insert(verb.as<std::string>());
  }
  return verbs;
}

nlohmann::json ToJson(const YAML::Node& node) {
  if (node.IsMap()) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& entry : node) object[entry.first.as<std::string>()] = ToJson(entry.second);
    return object;
  }
  if (node.IsSequence()) {
    nlohmann::json list = nlohmann::json::array();
    for (const YAML::Node& item : node) list.push_back(ToJson(item));
    return list;
  }
  int64_t number = 0;
  if (node.Tag() != "!" && YAML::convert<int64_t>::decode(node, number)) return number;
  return node.as<std::string>();
}

// They are made with the other manifests, and Muster isn't ready while they say anything else.
TEST(Deploy, TheWebhooksSayWhatMusterLooksFor) {
  const ServeOptions options = Deployed();
  const YAML::Node deployment = Find("base/deployment.yaml", "Deployment", "muster");
  for (const WebhookPurpose purpose : {WebhookPurpose::kGate, WebhookPurpose::kWarnings}) {
    const WebhookObject& object = ObjectFor(purpose);
    nlohmann::json found = ToJson(Find("base/webhooks.yaml", object.kind, object.name));
    found["metadata"]["resourceVersion"] = "1";
    WantedWebhook wanted;
    wanted.scheduler_name = "coscheduling";
    wanted.install = options.follow.name_space + "/" + options.follow.name;
    wanted.service = {deployment["metadata"]["namespace"].as<std::string>(),
                      options.webhook.service_name, options.webhook.service_port};
    wanted.purpose = purpose;
    wanted.guards_queues = options.engine.quota == coscheduling::QuotaMode::kInternal;
    const absl::StatusOr<FoundWebhook> inspected = InspectWebhook(found.dump(), wanted);
    ASSERT_TRUE(inspected.ok()) << inspected.status();
    EXPECT_EQ(inspected->difference, "") << object.name;
    EXPECT_EQ(inspected->other_install, "") << object.name;
  }
}

TEST(Deploy, MusterAddsItsAuthorityToItsTwoWebhooksAndMakesAndDeletesNone) {
  for (const WebhookPurpose purpose : {WebhookPurpose::kGate, WebhookPurpose::kWarnings}) {
    const WebhookObject& object = ObjectFor(purpose);
    const Verbs any = MayOn("admissionregistration.k8s.io", object.resource);
    const Verbs own = MayOnNamed(object.resource, object.name);
    EXPECT_EQ(any, Verbs{}) << object.resource;
    EXPECT_EQ(own, (Verbs{"get", "patch"})) << object.name;
  }
}

// Who waits for the other's lead to end waits equally long, whichever of the two Leases it is.
TEST(Deploy, BothLeasesHaveTheSameTimes) {
  const YAML::Node election = SchedulerConfig()["leaderElection"];
  const kube::LeaseOptions own;
  const auto said = [&](const char* key) {
    absl::Duration time;
    EXPECT_TRUE(absl::ParseDuration(election[key].as<std::string>(), &time)) << key;
    return time;
  };
  EXPECT_EQ(said("leaseDuration"), own.duration);
  EXPECT_EQ(said("renewDeadline"), own.renew_deadline);
  EXPECT_EQ(said("retryPeriod"), own.retry_period);
  EXPECT_EQ(own.duration, absl::Seconds(6));
}

// The text of a policy's variable.
std::string VariableOf(const std::string& policy, const std::string& name) {
  const YAML::Node spec = Find("policies/state.yaml", "ValidatingAdmissionPolicy", policy)["spec"];
  for (const YAML::Node& variable : spec["variables"]) {
    if (variable["name"].as<std::string>() == name) return variable["expression"].as<std::string>();
  }
  ADD_FAILURE() << policy << " has no variable " << name;
  return "";
}

TEST(Deploy, ThePolicyGuardsAllState) {
  const std::string annotations = VariableOf("muster-state", "annotationsChanged");
  for (const std::string_view name :
       {coscheduling::kRecordAnnotation, quota::kLeaderAnnotation, coscheduling::kEpochAnnotation,
        coscheduling::kWakeAnnotation, quota::kPodSetAnnotation, quota::kFlavorsAnnotation,
        quota::kQueueAnnotation, kube::kTriedAnnotation, kube::kRestartAnnotation,
        kube::kHoldsAnnotation, kube::kHoldAddedAnnotation, cluster::kSuspectAnnotation}) {
    EXPECT_NE(annotations.find("'" + std::string(name) + "'"), std::string::npos) << name;
  }
  EXPECT_NE(VariableOf("muster-state", "labelsChanged").find(coscheduling::kDerivedLabel),
            std::string::npos);
  EXPECT_NE(VariableOf("muster-state", "gateLifted").find(coscheduling::kGate), std::string::npos);
  EXPECT_EQ(MayOn("muster.dev", "state"), Verbs{"update"});
}

TEST(Deploy, ThePoliciesOfTheAccountAreAboutMustersAccountAndItsPods) {
  const YAML::Node account = Find("base/rbac-muster.yaml", "ServiceAccount", "muster")["metadata"];
  const std::string user = "request.userInfo.username == 'system:serviceaccount:" +
                           account["namespace"].as<std::string>() + ":" +
                           account["name"].as<std::string>() + "'";
  size_t policies = 0;
  for (const YAML::Node& object : YAML::LoadAllFromFile("deploy/policies/account.yaml")) {
    if (object["kind"].as<std::string>() != "ValidatingAdmissionPolicy") continue;
    ++policies;
    ASSERT_EQ(object["spec"]["matchConditions"].size(), 1u);
    const auto name = object["metadata"]["name"].as<std::string>();
    const auto looked = object["spec"]["matchConditions"][0]["expression"].as<std::string>();
    if (name == "muster-account-pods") {
      EXPECT_TRUE(looked.starts_with(user + " && ")) << looked;
    } else {
      EXPECT_EQ(looked, user) << name;
    }
    const YAML::Node binding =
        Find("policies/account.yaml", "ValidatingAdmissionPolicyBinding", name);
    EXPECT_EQ(binding["spec"]["policyName"].as<std::string>(), name);
    EXPECT_EQ(binding["spec"]["validationActions"].as<std::vector<std::string>>(),
              std::vector<std::string>{"Deny"});
  }
  EXPECT_EQ(policies, 7u);
  const auto args = Container("muster")["args"].as<std::vector<std::string>>();
  const std::string flag = "--scheduler-name=";
  std::string scheduler;
  for (const std::string& arg : args) {
    if (arg.starts_with(flag)) scheduler = arg.substr(flag.size());
  }
  const YAML::Node pods =
      Find("policies/account.yaml", "ValidatingAdmissionPolicy", "muster-account-pods");
  for (const char* before : {"oldObject", "variables.before"}) {
    const std::string own = std::string(before) + ".spec.schedulerName == '" + scheduler + "'";
    EXPECT_NE(YAML::Dump(pods).find(own), std::string::npos) << own;
  }
}

using Fields = std::map<std::string, std::string>;  // "spec.cohort" -> "string"

void GatherFields(const YAML::Node& schema, const std::string& path, Fields* fields) {
  if (schema["type"]) fields->emplace(path, schema["type"].as<std::string>());
  for (const auto& property : schema["properties"]) {
    GatherFields(property.second, path + "." + property.first.as<std::string>(), fields);
  }
  for (const char* of : {"items", "additionalProperties"}) {
    if (schema[of]) GatherFields(schema[of], path + "[]", fields);
  }
}

Fields FieldsOf(const YAML::Node& version) {
  Fields fields;
  GatherFields(version["schema"]["openAPIV3Schema"], version["name"].as<std::string>(), &fields);
  return fields;
}

TEST(Deploy, OnlyTheStoredVersionOfKueuesObjectsIsServedAndItIsThatOfTheEmbeddedServer) {
  std::map<std::string, Fields> embedded;
  for (const std::string& json : kube::embedded::QuotaCrds()) {
    const YAML::Node crd = YAML::Load(json);  // JSON is YAML
    embedded[crd["metadata"]["name"].as<std::string>()] = FieldsOf(crd["spec"]["versions"][0]);
  }
  size_t definitions = 0;
  for (const auto& entry : std::filesystem::directory_iterator("deploy/crds/kueue")) {
    if (entry.path().filename() == "kustomization.yaml") continue;
    const YAML::Node crd = YAML::LoadFile(entry.path());
    ++definitions;
    for (const YAML::Node& version : crd["spec"]["versions"]) {
      const bool newest = version["name"].as<std::string>() == "v1beta2";
      // Without a webhook nothing converts between versions.
      EXPECT_EQ(version["served"].as<bool>(), newest) << entry.path();
      EXPECT_EQ(version["storage"].as<bool>(), newest) << entry.path();
      if (!newest) continue;
      EXPECT_EQ(embedded[crd["metadata"]["name"].as<std::string>()], FieldsOf(version))
          << entry.path() << ": run kube/embedded/generate_quota_crds.py";
    }
  }
  EXPECT_EQ(definitions, embedded.size());
}

}  // namespace
}  // namespace muster::extender
