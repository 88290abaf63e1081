#include "quota/resource_rules.h"

#include <gtest/gtest.h>

#include <limits>

namespace muster::quota {
namespace {

constexpr int64_t kGi = int64_t{1} << 30;

kube::ResourceList Asks(const std::vector<std::pair<std::string, int64_t>>& amounts) {
  kube::ResourceList list;
  for (const auto& [resource, amount] : amounts) list.Set(resource, amount);
  return list;
}

absl::int128 Whole(int64_t number) { return absl::int128(number) * 1'000'000'000; }

struct RulesCase {
  const char* name;
  ResourceRules rules;
  kube::ResourceList requests, counted;
};

// Those of Kueue v0.19.2 pkg/workload/workload_test.go (TestNewInfo) among them.
TEST(ResourceRules, CountWhatIsAskedForAsKueueDoes) {
  const ResourceTransformation mig_1g = {
      "nvidia.com/mig-1g.5gb",
      false,
      "",
      {{"example.com/credits", Whole(1)}, {"example.com/gpu-memory", Whole(5 * kGi)}}};
  const ResourceTransformation mig_2g = {
      "nvidia.com/mig-2g.10gb",
      false,
      "",
      {{"example.com/credits", Whole(2)}, {"example.com/gpu-memory", Whole(10 * kGi)}}};
  const ResourceTransformation cpu = {"cpu", true, "", {{"example.com/credits", Whole(2)}}};
  const int64_t most = std::numeric_limits<int64_t>::max();
  const RulesCase cases[] = {
      {"without rules it counts as it is",
       {},
       Asks({{"cpu", 1500}, {"pods", 1}}),
       Asks({{"cpu", 1500}, {"pods", 1}})},
      {"what is excluded counts for nothing, but pods are pods",
       {{"vpc.amazonaws.com/", "p"}, {}},
       Asks({{"nvidia.com/gpu", 8}, {"pods", 1}, {"vpc.amazonaws.com/efa", 4}}),
       Asks({{"nvidia.com/gpu", 8}, {"pods", 1}})},
      {"outputs of several inputs add up, in place of them or beside them",
       {{}, {mig_1g, mig_2g, cpu}},
       Asks({{"cpu", 2000}, {"nvidia.com/mig-1g.5gb", 2}, {"nvidia.com/mig-2g.10gb", 1}}),
       Asks({{"cpu", 2000}, {"example.com/credits", 8}, {"example.com/gpu-memory", 20 * kGi}})},
      {"a replaced input without outputs counts for nothing",
       {{}, {{"cpu", false, "", {}}}},
       Asks({{"cpu", 2000}, {"memory", 5}}),
       Asks({{"memory", 5}})},
      {"an input is multiplied by what else is asked for, where it is, and retained as it was",
       {{},
        {{"nvidia.com/gpumem", true, "nvidia.com/gpu", {{"nvidia.com/total-gpumem", Whole(1)}}}}},
       Asks({{"nvidia.com/gpu", 2}, {"nvidia.com/gpumem", 1024}}),
       Asks({{"nvidia.com/gpu", 2},
             {"nvidia.com/gpumem", 1024},
             {"nvidia.com/total-gpumem", 2048}})},
      {"by nothing where that isn't asked for",
       {{},
        {{"nvidia.com/gpumem", false, "nvidia.com/gpu", {{"nvidia.com/total-gpumem", Whole(1)}}}}},
       Asks({{"nvidia.com/gpumem", 1024}}),
       Asks({{"nvidia.com/total-gpumem", 1024}})},
      {"fractions are added exactly and rounded up at the end, cores to thousandths",
       {{},
        {{"a", false, "", {{"cpu", 1'500'000}, {"x", 500'000'000}}},
         {"b", false, "", {{"x", 700'000'000}}}}},
       Asks({{"a", 1}, {"b", 1}}),
       Asks({{"cpu", 2}, {"x", 2}})},
      {"what is negative takes from other outputs, and from nothing else",
       {{},
        {{"a", false, "", {{"x", Whole(-3)}, {"y", Whole(-3)}}},
         {"b", false, "", {{"x", Whole(5)}}}}},
       Asks({{"a", 1}, {"b", 1}, {"y", 7}}),
       Asks({{"x", 2}, {"y", 7}})},
      {"what is past int64 is more than any quota",
       {{}, {{"memory", false, "memory", {{"x", Whole(kGi)}}}}},
       Asks({{"memory", most}}),
       Asks({{"x", most}})},
  };
  for (const RulesCase& c : cases) {
    EXPECT_EQ(c.rules.Count(c.requests).ToString(), c.counted.ToString()) << c.name;
  }
}

}  // namespace
}  // namespace muster::quota
