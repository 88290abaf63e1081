#include "extender/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace muster::extender {
namespace {

TEST(Config, SetsWhatItNamesAndLeavesTheRest) {
  ServeOptions options;
  options.engine.backoff_base = absl::Seconds(7);
  ASSERT_TRUE(ApplyConfig("engine: {provisioningDeadline: 3m}\n"
                          "webhook: {serviceName: muster, serviceNamespace: muster-system,\n"
                          "  warnings: false, gates: false}\n"
                          "lease: {name: other}\nmaxInFlight: 12\n",
                          "f.yaml", &options)
                  .ok());
  EXPECT_EQ(options.engine.provisioning_deadline, absl::Minutes(3));
  EXPECT_EQ(options.engine.backoff_base, absl::Seconds(7));
  EXPECT_EQ(options.webhook.service_name, "muster");
  EXPECT_FALSE(options.webhook.warnings);
  EXPECT_FALSE(options.webhook.gates);
  EXPECT_EQ(options.lease_name, "other");
  EXPECT_EQ(options.max_in_flight, 12u);
}

TEST(Config, SetsHowLongEachStageOfANodeMayTake) {
  ServeOptions options;
  ASSERT_TRUE(ApplyConfig("engine: {launchDeadline: 6m, registrationDeadline: inf,\n"
                          "  initializationDeadline: 90s, capacityBackoff: 5m,\n"
                          "  refusalDeadline: 20s, withdrawNodes: true}\n",
                          "f.yaml", &options)
                  .ok());
  EXPECT_EQ(options.engine.launch_deadline, absl::Minutes(6));
  EXPECT_EQ(options.engine.registration_deadline, absl::InfiniteDuration());
  EXPECT_EQ(options.engine.initialization_deadline, absl::Seconds(90));
  EXPECT_EQ(options.engine.capacity_backoff, absl::Minutes(5));
  EXPECT_EQ(options.engine.refusal_deadline, absl::Seconds(20));
  EXPECT_TRUE(options.engine.withdraw_nodes);
}

TEST(Config, SaysWhatAProfileOfKubeSchedulersWould) {
  ServeOptions options;
  const absl::Status status = ApplyConfig(
      "engine:\n"
      "  addedAffinity:\n"
      "    requiredDuringSchedulingIgnoredDuringExecution:\n"
      "      nodeSelectorTerms:\n"
      "      - matchExpressions: [{key: pool, operator: In, values: [gpu, big]}]\n"
      "        matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]\n"
      "    preferredDuringSchedulingIgnoredDuringExecution:\n"
      "    - {weight: 7, preference: {matchExpressions: [{key: gen, operator: Gt, values: "
      "['4']}]}}\n"
      "  scoringStrategy:\n"
      "    type: RequestedToCapacityRatio\n"
      "    resources: [{name: nvidia.com/gpu, weight: 5}, {name: cpu}]\n"
      "    requestedToCapacityRatio: {shape: [{utilization: 0, score: 0},\n"
      "      {utilization: 100, score: 10}]}\n",
      "f.yaml", &options);
  ASSERT_TRUE(status.ok()) << status;
  using kube::SelectorOperator;
  const cluster::Profile& profile = options.engine.profile;
  const kube::NodeSelectorTerm required = {{{"pool", SelectorOperator::kIn, {"gpu", "big"}}},
                                           {{"metadata.name", SelectorOperator::kNotIn, {"n1"}}}};
  EXPECT_EQ(profile.added_affinity.required, std::vector{required});
  const kube::PreferredNodeTerm preferred = {7, {{{"gen", SelectorOperator::kGt, {"4"}}}, {}}};
  EXPECT_EQ(profile.added_affinity.preferred, std::vector{preferred});
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(profile.scoring.type, cluster::ScoringStrategy::Type::kRequestedToCapacityRatio);
  EXPECT_EQ(profile.scoring.resources,
            (std::vector<std::pair<std::string, int64_t>>{{"nvidia.com/gpu", 5}, {"cpu", 1}}));
  EXPECT_EQ(profile.scoring.shape, (Pairs{{0, 0}, {100, 10}}));
  ASSERT_TRUE(
      ApplyConfig("engine: {scoringStrategy: {type: LeastAllocated}}\n", "f.yaml", &options).ok());
  EXPECT_EQ(options.engine.profile.scoring.type, cluster::ScoringStrategy::Type::kLeastAllocated);
  EXPECT_EQ(options.engine.profile.scoring.resources.size(), 2u);
}

TEST(Config, GivesGangsBackToKueueOnlyWhereItIsTold) {
  ServeOptions options;
  ASSERT_TRUE(ApplyConfig("quota: kueue\n", "f.yaml", &options).ok());
  EXPECT_FALSE(options.engine.kueue_fallback);
  ASSERT_TRUE(ApplyConfig("engine: {kueueFallback: true}\n", "f.yaml", &options).ok());
  EXPECT_TRUE(options.engine.kueue_fallback);
}

TEST(Config, QueriesTakeATokenUnlessItSaysOtherwise) {
  using Authentication = ServeOptions::Query::Authentication;
  ServeOptions options;
  EXPECT_EQ(options.query.authentication, Authentication::kToken);
  EXPECT_EQ(options.query.audiences, std::vector<std::string>{"muster.dev"});
  ASSERT_TRUE(ApplyConfig("query: {authentication: none}\n", "f.yaml", &options).ok());
  EXPECT_EQ(options.query.authentication, Authentication::kNone);
  ASSERT_TRUE(ApplyConfig("query: {authentication: token, audiences: [], serviceName: muster,\n"
                          "  serviceNamespace: muster-system}\n",
                          "f.yaml", &options)
                  .ok());
  EXPECT_EQ(options.query.authentication, Authentication::kToken);
  EXPECT_TRUE(options.query.audiences.empty());
  EXPECT_EQ(options.query.service_name, "muster");
  EXPECT_EQ(options.query.service_namespace, "muster-system");
}

TEST(Config, GangsWithoutAQueueAreUnderQuotaWhereItSaysSo) {
  ServeOptions options;
  EXPECT_FALSE(options.engine.manage_jobs_without_queue_name);
  ASSERT_TRUE(ApplyConfig("manageJobsWithoutQueueName: true\n"
                          "managedJobsNamespaceSelector:\n"
                          "  matchLabels: {team: ml}\n"
                          "  matchExpressions: [{key: tier, operator: NotIn, values: [test]}]\n",
                          "f.yaml", &options)
                  .ok());
  EXPECT_TRUE(options.engine.manage_jobs_without_queue_name);
  const kube::LabelSelector& selector = options.engine.managed_namespaces;
  kube::StringMap labels;
  EXPECT_FALSE(selector.Matches(labels));
  labels["team"] = "ml";
  EXPECT_TRUE(selector.Matches(labels));
  labels["tier"] = "test";
  EXPECT_FALSE(selector.Matches(labels));
  const absl::Status wrong =
      ApplyConfig("managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: Gt}]}\n",
                  "f.yaml", &options);
  EXPECT_EQ(std::string(wrong.message()),
            "f.yaml:1: operator: want In, NotIn, Exists or DoesNotExist");
}

TEST(Config, RequestsCountInQuotaAsItSays) {
  ServeOptions options;
  ASSERT_TRUE(ApplyConfig("resources:\n"
                          "  excludeResourcePrefixes: [vpc.amazonaws.com/]\n"
                          "  transformations:\n"
                          "  - {input: nvidia.com/mig-2g.10gb, strategy: Replace,\n"
                          "     outputs: {gpu-memory: 10Gi, credits: 2}}\n"
                          "  - {input: cpu, multiplyBy: hosts, outputs: {credits: 500m}}\n",
                          "f.yaml", &options)
                  .ok());
  kube::ResourceList requests;
  requests.Set("cpu", 3000);
  requests.Set("hosts", 2);
  requests.Set("nvidia.com/mig-2g.10gb", 1);
  requests.Set("vpc.amazonaws.com/efa", 4);
  EXPECT_EQ(options.engine.resources.Count(requests).ToString(),
            "cpu=3, credits=5, gpu-memory=10Gi, hosts=2");
}

TEST(Config, FollowsTheLeaseThatItNames) {
  ServeOptions options;
  ASSERT_TRUE(
      ApplyConfig("lease: {follow: muster-system/coscheduling}\n", "f.yaml", &options).ok());
  EXPECT_EQ(options.follow.name_space, "muster-system");
  EXPECT_EQ(options.follow.name, "coscheduling");
  EXPECT_EQ(options.follow.holder_prefix, "");
}

TEST(Config, KueuesLeaseIsThatOfItsManifestsUnlessAnotherOrNoneIsNamed) {
  ServeOptions options;
  EXPECT_EQ(options.kueue_lease.name_space, "kueue-system");
  EXPECT_EQ(options.kueue_lease.name, "c1f6bfd2.kueue.x-k8s.io");
  ASSERT_TRUE(ApplyConfig("kueueLease: batch/kueue\n", "f.yaml", &options).ok());
  EXPECT_EQ(options.kueue_lease.name_space, "batch");
  EXPECT_EQ(options.kueue_lease.name, "kueue");
  ASSERT_TRUE(ApplyConfig("kueueLease: \"\"\n", "f.yaml", &options).ok());
  EXPECT_EQ(options.kueue_lease.name, "");
}

TEST(Config, BindCallsAreHeldForHalfOfTheExtendersTimeout) {
  ServeOptions options;
  EXPECT_EQ(options.engine.bind_wait, options.http_timeout / 2);
  ASSERT_TRUE(ApplyConfig("extender: {httpTimeout: 50s}\n", "f.yaml", &options).ok());
  EXPECT_EQ(options.http_timeout, absl::Seconds(50));
  EXPECT_EQ(options.engine.bind_wait, absl::Seconds(25));
}

TEST(Config, AnEmptyFileSetsNothing) {
  ServeOptions options;
  EXPECT_TRUE(ApplyConfig("", "f.yaml", &options).ok());
  EXPECT_TRUE(ApplyConfig("# nothing\n", "f.yaml", &options).ok());
  EXPECT_TRUE(options.webhook.warnings);
}

TEST(Config, SaysFileLineAndFieldOfAMistake) {
  struct Case {
    const char* yaml;
    const char* message;
  };
  for (const Case& c : {
           Case{"engine:\n  backofBase: 3s\n", "f.yaml:2: engine.backofBase: unknown field"},
           Case{"engine: {backoffBase: soon}\n", "\"soon\" is no duration"},
           Case{"engine:\n  launchDeadline: 0s\n",
                "f.yaml:2: engine.launchDeadline: want more than 0; inf for none"},
           Case{"resources: {quotaCheckStrategy: IgnoreUndeclared}\n",
                "f.yaml:1: resources.quotaCheckStrategy: unknown field"},
           Case{
               "resources: {excludeResourcePrefixes: ['']}\n",
               "f.yaml:1: resources.excludeResourcePrefixes: \"\" would leave nothing that counts"},
           Case{"resources:\n  transformations:\n  - {input: a, strategy: Keep}\n",
                "f.yaml:3: resources.transformations.strategy: want Retain or Replace, is Keep"},
           Case{"resources: {transformations: [{outputs: {x: 1}}]}\n",
                "f.yaml:1: resources.transformations.input: missing"},
           Case{"resources:\n  transformations:\n  - {input: a}\n  - {input: a}\n",
                "f.yaml:4: resources.transformations.input: a stands twice"},
           Case{"resources: {transformations: [{input: a, outputs: {x: much}}]}\n",
                "f.yaml:1: resources.transformations.outputs.x: \"much\" is no quantity"},
           Case{"engine: {reservedIdleGPUSeconds: 0}\n",
                "f.yaml:1: engine.reservedIdleGPUSeconds: want more than 0"},
           Case{"engine: {scoringStrategy: {type: Fullest}}\n",
                "f.yaml:1: engine.scoringStrategy.type: unknown Fullest"},
           Case{"engine: {scoringStrategy: {type: MostAllocated,\n"
                "  requestedToCapacityRatio: {shape: []}}}\n",
                "goes with type RequestedToCapacityRatio, and no other"},
           Case{"engine: {scoringStrategy: {type: RequestedToCapacityRatio}}\n",
                "goes with type RequestedToCapacityRatio, and no other"},
           Case{"engine: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu,\n"
                "  weight: 101}]}}\n",
                "engine.scoringStrategy.resources.weight: want 1 to 100"},
           Case{"engine: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution:\n"
                "  {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Is}]}]}}}\n",
                "operator: want In, NotIn, Exists or DoesNotExist"},
           Case{"engine: {starvationAfter: 60s}\n",
                "f.yaml:1: engine.starvationAfter: unknown field"},
           Case{"webhook: {certFile: a}\n", "certFile, keyFile and caFile go together"},
           Case{"webhook: {serviceNamespace: a}\n", "serviceNamespace needs serviceName"},
           Case{"query: {authentication: off}\n",
                "query.authentication: want token or none, got \"off\""},
           Case{"query: {audiences: muster.dev}\n", "query.audiences: wrong type"},
           Case{"query: {serviceNamespace: a}\n", "query: serviceNamespace needs serviceName"},
           Case{"webhook: {serviceName: a, servicePort: 70000}\n",
                "webhook.servicePort: 70000 is not 1 to 65535"},
           Case{"lease: {follow: a}\n", "f.yaml:1: lease.follow: want NAMESPACE/NAME, got \"a\""},
           Case{"lease: {follow: a/b/c}\n", "got \"a/b/c\""},
           Case{"kueueLease: a\n", "f.yaml:1: kueueLease: want NAMESPACE/NAME, got \"a\""},
           Case{"lease: {follow: a/b, name: c}\n", "lease: follow excludes name and namespace"},
           Case{"lease: {holderPrefix: a_}\n", "lease: holderPrefix needs follow"},
           Case{"lease: {name: \"\"}\n", "lease.name: empty"},
           Case{"engine:\n  bindWait: 10s\n",
                "f.yaml:2: engine.bindWait: half of extender.httpTimeout; set that one"},
           Case{"extender: {httpTimeout: 1s}\n",
                "f.yaml:1: extender.httpTimeout: 1s, want 2s to 10m"},
           Case{"extender: {timeout: 1s}\n", "extender.timeout: unknown field"},
           Case{"maxInFlight: many\n", "config.maxInFlight: wrong type"},
           Case{"- a\n", "config: want a mapping"},
           Case{"a: [\n", "f.yaml:"},
           Case{"maxInFlight: 0\n", "f.yaml:1: config.maxInFlight: 0, want 1 to 100000"},
           Case{"\nmaxInFlight: -1\n", "f.yaml:2: config.maxInFlight: -1, want 1 to 100000"},
           Case{"engine:\n\twakeInterval: 1s\n", "f.yaml:2: a tab in the indentation"},
           Case{"maxInFlight: 1\nmaxInFlight: 2\n",
                "f.yaml:2: key maxInFlight stands twice, first in line 1"},
           Case{"lease: {name: caf\xE9}\n", "f.yaml:1: byte 0xe9 is not UTF-8"},
           Case{"engine: &a\n  wakeInterval: *a\n", "f.yaml:2: an alias inside the value"},
           Case{"engine: {? [a] : b}\n", "f.yaml:1: a key must be a word or a number"},
           Case{"maxInFlight: 1\n---\nmaxInFlight: 2\n", "f.yaml:3: a second document"},
       }) {
    ServeOptions options;
    const absl::Status status = ApplyConfig(c.yaml, "f.yaml", &options);
    EXPECT_FALSE(status.ok()) << c.yaml;
    EXPECT_NE(std::string(status.message()).find(c.message), std::string::npos) << status;
  }
}

TEST(Config, InstanceTypesAreLaidOverThoseThatAreKnown) {
  const std::string file = testing::TempDir() + "/muster-types.txt";
  std::ofstream(file) << "p9.huge  384  4096Gi  16  0  64  b900\n";
  ServeOptions options;
  ASSERT_TRUE(ApplyConfig("instanceTypes: " + file, "c.yaml", &options).ok());
  ASSERT_NE(options.engine.instance_types.Find("p9.huge"), nullptr);
  EXPECT_EQ(options.engine.instance_types.Find("p9.huge")->gpu, 16);
  EXPECT_NE(options.engine.instance_types.Find("p4d.24xlarge"), nullptr);

  std::ofstream(file) << "p9.huge  384  4096Gi  -16  0  64  b900\n";
  const absl::Status status = ApplyConfig("\ninstanceTypes: " + file, "c.yaml", &options);
  EXPECT_EQ(status.message(), "c.yaml:2: instanceTypes: " + file +
                                  ":1: p9.huge: gpu -16: must be an integer from 0 to 1000000");
  EXPECT_EQ(ApplyConfig("instanceTypes: nowhere.txt", "c.yaml", &options).message(),
            "c.yaml:1: instanceTypes: can't read file \"nowhere.txt\": No such file or directory");
  EXPECT_EQ(
      ApplyConfig("instanceTypes: " + testing::TempDir(), "c.yaml", &options).message(),
      "c.yaml:1: instanceTypes: can't read file \"" + testing::TempDir() + "\": Is a directory");
}

TEST(Config, AFileTooLargeIsRefusedUnread) {
  const std::string file = testing::TempDir() + "/muster-large.yaml";
  std::ofstream(file) << "maxInFlight: 1\n" << std::string(50 << 20, '#');
  ServeOptions options;
  EXPECT_EQ(ReadConfig(file, &options).message(),
            file + ":2: the file goes on past 8388608 bytes, more than is read");
  std::ofstream(file) << "p9.huge 384 4096Gi 16 0 64 b900\n" << std::string(50 << 20, '#');
  EXPECT_EQ(ApplyConfig("instanceTypes: " + file, "c.yaml", &options).message(),
            "c.yaml:1: instanceTypes: " + file +
                ":2: the file goes on past 8388608 bytes, more than is read");
  EXPECT_EQ(options.engine.instance_types.Find("p9.huge"), nullptr);
  std::filesystem::remove(file);
}

TEST(Config, AliasesThatMultiplyAreRefused) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + last;
    for (int k = 1; k < 10; ++k) text += ", " + last;
    text += "]\n";
  }
  ServeOptions options;
  EXPECT_EQ(ApplyConfig(text, "f.yaml", &options).message(),
            "f.yaml:6: more than 1000000 values, with aliases written out");
}

TEST(Config, AFileThatIsNotThereIsNamed) {
  ServeOptions options;
  const absl::Status status = ReadConfig("/nowhere/muster.yaml", &options);
  EXPECT_EQ(status.message(), "/nowhere/muster.yaml:1: No such file or directory");
  EXPECT_EQ(ReadConfig(testing::TempDir(), &options).message(),
            testing::TempDir() + ":1: Is a directory");
}

}  // namespace
}  // namespace muster::extender
