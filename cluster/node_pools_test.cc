#include "cluster/node_pools.h"

#include <gtest/gtest.h>

namespace muster::cluster {
namespace {

kube::NodePool Pool(const std::string& name, const std::string& group) {
  kube::NodePool pool;
  pool.meta.name = name;
  pool.node_class_group = group;
  pool.node_class_name = "efa";
  return pool;
}

kube::NodeClass Class(std::vector<std::string> zones) {
  kube::NodeClass node_class;
  node_class.meta.name = "efa";
  node_class.zones = std::move(zones);
  return node_class;
}

TEST(KnownNodePools, HaveTheClassTheyReferToInWhateverOrderTheyCome) {
  KnownNodePools pools;
  EXPECT_TRUE(pools.Upsert(Pool("first", "karpenter.k8s.aws")));
  EXPECT_TRUE(pools.Upsert(Pool("foreign", "karpenter.kwok.sh")));
  EXPECT_EQ(pools.all().at("first").node_class, nullptr);
  EXPECT_TRUE(pools.Upsert(Class({"z1"})));
  EXPECT_TRUE(pools.Upsert(Pool("second", "karpenter.k8s.aws")));
  for (const char* name : {"first", "second"}) {
    ASSERT_NE(pools.all().at(name).node_class, nullptr) << name;
    EXPECT_EQ(pools.all().at(name).node_class->zones.front(), "z1");
  }
  EXPECT_EQ(pools.all().at("foreign").node_class, nullptr);

  EXPECT_TRUE(pools.Remove(Class({})));
  EXPECT_EQ(pools.all().at("first").node_class, nullptr);
  EXPECT_FALSE(pools.Remove(Class({})));
}

// Others than these fields are written now and then.
TEST(KnownNodePools, ChangeWithWhatNodesThereMayBe) {
  KnownNodePools pools;
  pools.Upsert(Class({"z1"}));
  kube::NodePool pool = Pool("gpu", "karpenter.k8s.aws");
  EXPECT_TRUE(pools.Upsert(pool));
  EXPECT_FALSE(pools.Upsert(Class({"z1"})));
  pool.usage.Set("cpu", 1000);
  EXPECT_FALSE(pools.Upsert(pool));
  EXPECT_TRUE(pools.Upsert(Class({"z1", "z2"})));
  kube::NodeClass ill = Class({"z1", "z2"});
  ill.not_ready = "SubnetsReady: none";
  EXPECT_TRUE(pools.Upsert(ill));
  pool.is_static = true;
  EXPECT_TRUE(pools.Upsert(pool));
  EXPECT_TRUE(pools.Remove(pool));
  EXPECT_FALSE(pools.Remove(pool));
}

}  // namespace
}  // namespace muster::cluster
