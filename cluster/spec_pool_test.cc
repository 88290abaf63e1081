#include "cluster/spec_pool.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cluster/test_objects.h"

namespace muster::cluster {
namespace {

using namespace test;

TEST(SpecPool, GivesOneCopyOfEqualSpecs) {
  SpecPool pool;
  kube::Pod a = MakePod("a", {{"nvidia.com/gpu", 8}});
  kube::Pod b = MakePod("b", {{"nvidia.com/gpu", 8}});
  kube::Pod c = MakePod("c", {{"nvidia.com/gpu", 4}});
  EXPECT_EQ(pool.Share(a.spec), a.spec);
  EXPECT_EQ(pool.Share(b.spec), a.spec);
  EXPECT_EQ(pool.Share(c.spec), c.spec);
}

TEST(SpecPool, TellsSpecsApartThatDifferOnlyInOneToleration) {
  SpecPool pool;
  auto tolerating = [](const std::string& key) {
    return With(MakePod("a"),
                [&](kube::PodSpec& spec) { spec.tolerations = {{key, true, "", {}}}; })
        .spec;
  };
  auto x = tolerating("x");
  auto y = tolerating("y");
  EXPECT_EQ(pool.Share(x), x);
  EXPECT_EQ(pool.Share(y), y);
}

TEST(SpecPool, ForgetsWhatNobodyUses) {
  SpecPool pool;
  std::vector<std::shared_ptr<const kube::PodSpec>> kept;
  for (int i = 0; i < 100'000; ++i) {
    auto spec = pool.Share(MakePod("p", {{"cpu", i}}).spec);
    if (i % 100 == 0) kept.push_back(std::move(spec));
  }
  EXPECT_LE(pool.size(), 2 * (kept.size() + 1024));
}

}  // namespace
}  // namespace muster::cluster
