#include "extender/config.h"

#include <gtest/gtest.h>

#include <fstream>

namespace muster::extender {
namespace {

TEST(Config, SetsWhatItNamesAndLeavesTheRest) {
  ServeOptions options;
  options.engine.backoff_base = absl::Seconds(7);
  ASSERT_TRUE(ApplyConfig("engine: {provisioningDeadline: 3m}\n"
                          "webhook: {serviceName: muster, serviceNamespace: muster-system,\n"
                          "  warnings: false}\n"
                          "lease: {name: other}\nmaxInFlight: 12\n",
                          "f.yaml", &options)
                  .ok());
  EXPECT_EQ(options.engine.provisioning_deadline, absl::Minutes(3));
  EXPECT_EQ(options.engine.backoff_base, absl::Seconds(7));
  EXPECT_EQ(options.webhook.service_name, "muster");
  EXPECT_FALSE(options.webhook.warnings);
  EXPECT_EQ(options.lease_name, "other");
  EXPECT_EQ(options.max_in_flight, 12u);
}

TEST(Config, FollowsTheLeaseThatItNames) {
  ServeOptions options;
  ASSERT_TRUE(
      ApplyConfig("lease: {follow: muster-system/coscheduling}\n", "f.yaml", &options).ok());
  EXPECT_EQ(options.follow.name_space, "muster-system");
  EXPECT_EQ(options.follow.name, "coscheduling");
  EXPECT_EQ(options.follow.holder_prefix, "");
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
           Case{"engine: {starvationAfter: 60s, starvationHold: 60s}\n",
                "f.yaml:1: engine.starvationHold: 1m isn't below starvationAfter 1m"},
           Case{"webhook: {certFile: a}\n", "certFile, keyFile and caFile go together"},
           Case{"webhook: {serviceNamespace: a}\n", "serviceNamespace needs serviceName"},
           Case{"webhook: {serviceName: a, servicePort: 70000}\n",
                "webhook.servicePort: 70000 is not 1 to 65535"},
           Case{"lease: {follow: a}\n", "f.yaml:1: lease.follow: want NAMESPACE/NAME, got \"a\""},
           Case{"lease: {follow: a/b/c}\n", "got \"a/b/c\""},
           Case{"lease: {follow: a/b, name: c}\n", "lease: follow excludes name and namespace"},
           Case{"lease: {holderPrefix: a_}\n", "lease: holderPrefix needs follow"},
           Case{"lease: {name: \"\"}\n", "lease.name: empty"},
           Case{"maxInFlight: many\n", "config.maxInFlight: wrong type"},
           Case{"- a\n", "config: want a mapping"},
           Case{"a: [\n", "f.yaml:"},
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
  EXPECT_EQ(status.message(),
            "c.yaml:2: instanceTypes: " + file + ":1: p9.huge: gpu -16: must be an integer from 0");
  EXPECT_EQ(ApplyConfig("instanceTypes: nowhere.txt", "c.yaml", &options).message(),
            "c.yaml:1: instanceTypes: can't read file \"nowhere.txt\"");
}

TEST(Config, AFileThatIsNotThereIsNamed) {
  ServeOptions options;
  const absl::Status status = ReadConfig("/nowhere/muster.yaml", &options);
  EXPECT_NE(std::string(status.message()).find("/nowhere/muster.yaml"), std::string::npos);
}

}  // namespace
}  // namespace muster::extender
