#include "cluster/zones.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/test_objects.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

kube::NodePool PoolIn(std::vector<std::string> zones) {
  kube::NodePool pool;
  if (!zones.empty()) {
    pool.requirements.push_back({kube::kZoneLabel, kube::SelectorOperator::kIn, std::move(zones)});
  }
  return pool;
}

TEST(Zones, AreThoseThatPoolsName) {
  NodePools pools = {{"a", PoolIn({"z2", "z1"})}, {"b", PoolIn({"z3"})}};
  EXPECT_THAT(ZonesOf(pools, {}), ElementsAre("z1", "z2", "z3"));
  pools["any"] = PoolIn({});
  NodeInfo there;
  kube::Node node;
  node.meta.labels[kube::kZoneLabel] = "z4";
  there.node = std::make_shared<const kube::Node>(node);
  EXPECT_THAT(ZonesOf(pools, {&there}), ElementsAre("z1", "z2", "z3", "z4"));
  EXPECT_THAT(ZonesOf({}, {&there}), IsEmpty());
  EXPECT_EQ(ZoneOf(&there), "z4");
  EXPECT_EQ(ZoneOf(nullptr), "");
}

TEST(Zones, ComeInOneOrder) {
  const absl::Time now = absl::UnixEpoch() + absl::Hours(10);
  std::vector<Zone> zones = {
      {.name = "failed", .room = 9, .suffices = true, .failed_until = now},
      {.name = "refused", .room = 9, .suffices = true, .refused_at = now},
      {.name = "small", .room = 9},
      {.name = "fair", .room = 1, .suffices = true},
      {.name = "best", .room = 2, .suffices = true},
  };
  Order(&zones);
  std::vector<std::string> names;
  for (const Zone& zone : zones) names.push_back(zone.name);
  EXPECT_THAT(names, ElementsAre("best", "fair", "refused", "small", "failed"));
  EXPECT_EQ(OthersText(zones, "best"),
            "fair, refused, small (NodePools make too few), "
            "failed (failed, not before 10:00:00Z)");
  EXPECT_EQ(OthersText({{.name = "only"}}, "only"), "");
}

}  // namespace
}  // namespace muster::cluster
