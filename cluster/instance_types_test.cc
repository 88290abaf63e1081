#include "cluster/instance_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cluster {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGibibyte = int64_t{1} << 30;

TEST(InstanceTypes, KnowWhatAWholeInstanceHas) {
  const InstanceTypes& types = InstanceTypes::BuiltIn();
  const InstanceType expected = {.name = "p4d.24xlarge",
                                 .cpu = 96,
                                 .memory = 1152 * kGibibyte,
                                 .gpu = 8,
                                 .neuron = 0,
                                 .efa = 4,
                                 .accelerator = "a100"};
  ASSERT_NE(types.Find("p4d.24xlarge"), nullptr);
  EXPECT_EQ(*types.Find("p4d.24xlarge"), expected);
  EXPECT_EQ(types.Find("p4d.48xlarge"), nullptr);
}

// The counts that jobs get wrong most.
TEST(InstanceTypes, CountsOfGpusAndEfaDevices) {
  struct Case {
    const char* name;
    int64_t gpu, efa;
  };
  for (const Case& c :
       {Case{"p3dn.24xlarge", 8, 1}, Case{"p4de.24xlarge", 8, 4}, Case{"p5.48xlarge", 8, 32},
        Case{"p5.4xlarge", 1, 1}, Case{"p5e.48xlarge", 8, 32}, Case{"p5en.48xlarge", 8, 16},
        Case{"p6-b200.48xlarge", 8, 8}, Case{"p6-b300.48xlarge", 8, 16}, Case{"g4dn.xlarge", 1, 0},
        Case{"g5.8xlarge", 1, 1}, Case{"g6.12xlarge", 4, 1}, Case{"g6.2xlarge", 1, 0},
        Case{"g6e.24xlarge", 4, 2}, Case{"g6e.48xlarge", 8, 4}}) {
    const InstanceType* type = InstanceTypes::BuiltIn().Find(c.name);
    ASSERT_NE(type, nullptr) << c.name;
    EXPECT_EQ(type->gpu, c.gpu) << c.name;
    EXPECT_EQ(type->efa, c.efa) << c.name;
  }
  EXPECT_EQ(InstanceTypes::BuiltIn().Find("trn1.32xlarge")->neuron, 16);
}

TEST(InstanceTypes, AFileAddsTypesAndReplacesThem) {
  InstanceTypes types = InstanceTypes::BuiltIn();
  const absl::Status added = types.Add(
      "# ours\n"
      "p9.96xlarge 384 4Ti 16 0 64 x100\n"
      "p5.48xlarge 192 2048Gi 7 0 32 h100   # one of them is broken\n",
      "types.txt");
  ASSERT_TRUE(added.ok()) << added;
  EXPECT_EQ(types.Find("p9.96xlarge")->gpu, 16);
  EXPECT_TRUE(types.KnowsFamily("p9"));
  EXPECT_EQ(types.Find("p5.48xlarge")->gpu, 7);
  EXPECT_EQ(InstanceTypes::BuiltIn().Find("p5.48xlarge")->gpu, 8);
  EXPECT_FALSE(InstanceTypes::BuiltIn().KnowsFamily("p9"));
}

TEST(InstanceTypes, ABadEntryIsNamedAndNothingIsAdded) {
  struct Case {
    const char* line;
    const char* message;
  };
  for (const Case& c :
       {Case{"p9.large 8 16Gi -1 0 0 -",
             "types.txt:2: p9.large: gpu -1: must be an integer from 0"},
        Case{"p9.large 0 16Gi 1 0 0 -", "p9.large: cpu 0: must be an integer from 1"},
        Case{"p9.large 8 16Gi 1 x 0 -", "p9.large: neuron x: must be an integer from 0"},
        Case{"p9.large 8 16Gi 1 0 99999999999999999999 -", "p9.large: efa 99999999999999999999"},
        Case{"p9.large 8 -16Gi 1 0 0 -", "p9.large: memory -16Gi: must be a quantity above 0"},
        Case{"p9.large 8 many 1 0 0 -", "p9.large: memory many: must be a quantity above 0"},
        Case{"p9.large 8 16Gi 1 0", "p9.large: 5 columns, must be 7"},
        Case{"p9. 8 16Gi 1 0 0 -", "p9.: the name must be FAMILY.SIZE"},
        Case{"p9.large 8 16Gi 1000001 0 0 -", "gpu 1000001: must be an integer from 0 to 1000000"},
        Case{"p9.large 9223372036854775807 16Gi 1 0 0 -", "p9.large: cpu 9223372036854775807"},
        Case{"p9.large 8 16Gi 1 0 0 h\xC3\xA9", "types.txt:2: p9.large: names must be printable"},
        Case{"p9\x01 8 16Gi 1 0 0 -", "names must be printable ASCII"},
        Case{"# caf\xE9", "types.txt:2: not UTF-8, which the table must be in"},
        Case{"p8.large 8 16Gi 1 0 0 -", "p8.large: stands twice in this file"}}) {
    InstanceTypes types;
    const absl::Status status =
        types.Add(std::string("p8.large 8 16Gi 1 0 0 -\n") + c.line + "\n", "types.txt");
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
    EXPECT_TRUE(types.all().empty()) << c.line;
  }
}

TEST(InstanceTypes, ATableTooLargeIsRefusedUnread) {
  InstanceTypes types;
  const std::string text = "p9.large 8 16Gi 1 0 0 -\n" + std::string(50 << 20, '#');
  EXPECT_EQ(std::string(types.Add(text, "types.txt").message()),
            "types.txt:2: the file goes on past 8388608 bytes, more than is read");
  EXPECT_TRUE(types.all().empty());
}

TEST(InstanceTypes, CommentsMayBeInAnyLanguage) {
  InstanceTypes types;
  EXPECT_TRUE(types.Add("# \xEC\x9A\xB0\xEB\xA6\xAC\np9.large 8 16Gi 1 0 0 -\n", "f").ok());
}

TEST(InstanceTypes, LabelsThatFollowFromTheType) {
  const InstanceType& b200 = *InstanceTypes::BuiltIn().Find("p6-b200.48xlarge");
  EXPECT_EQ(InstanceTypeLabel(b200, "node.kubernetes.io/instance-type"), "p6-b200.48xlarge");
  EXPECT_EQ(InstanceTypeLabel(b200, "karpenter.k8s.aws/instance-family"), "p6-b200");
  EXPECT_EQ(InstanceTypeLabel(b200, "karpenter.k8s.aws/instance-category"), "p");
  EXPECT_EQ(InstanceTypeLabel(b200, "karpenter.k8s.aws/instance-generation"), "6");
  EXPECT_EQ(InstanceTypeLabel(b200, "eks.amazonaws.com/instance-size"), "48xlarge");
  EXPECT_EQ(InstanceTypeLabel(b200, "karpenter.k8s.aws/instance-gpu-name"), "b200");
  EXPECT_EQ(InstanceTypeLabel(b200, "karpenter.k8s.aws/instance-memory"), "2097152");
  const InstanceType& trn1 = *InstanceTypes::BuiltIn().Find("trn1.32xlarge");
  EXPECT_EQ(InstanceTypeLabel(trn1, "karpenter.k8s.aws/instance-gpu-count"), "");
  EXPECT_EQ(InstanceTypeLabel(trn1, "karpenter.k8s.aws/instance-accelerator-name"), "trainium");
  EXPECT_TRUE(IsInstanceTypeLabel("karpenter.k8s.aws/instance-gpu-count"));
  EXPECT_FALSE(IsInstanceTypeLabel("karpenter.k8s.aws/instance-gpu-memory"));
  EXPECT_FALSE(IsInstanceTypeLabel("topology.kubernetes.io/zone"));
}

}  // namespace
}  // namespace muster::cluster
