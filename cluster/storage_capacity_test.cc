#include "cluster/storage_capacity.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "cluster/predicates.h"
#include "cluster/test_objects.h"

namespace muster::cluster {
namespace {

using test::MakeNode;
using test::MakePod;
using test::With;
using enum kube::SelectorOperator;

kube::CsiStorageCapacity Capacity(const std::string& name, std::vector<kube::Requirement> nodes,
                                  std::optional<int64_t> most) {
  kube::CsiStorageCapacity capacity;
  capacity.meta.name = name;
  capacity.meta.name_space = "csi";
  capacity.storage_class = "fast";
  capacity.nodes = kube::LabelSelector{std::move(nodes)};
  capacity.most = most;
  return capacity;
}

// Nodes "a1" and "a2" in zone "a", "b1" in zone "b"; pod "p" claims 10 of class "fast".
class CapacityWorld {
 public:
  CapacityWorld() {
    for (const char* name : {"a1", "a2", "b1"}) {
      snapshot.Upsert(MakeNode(name, std::string(name).substr(0, 1)));
    }
    kube::StorageClass storage_class;
    storage_class.meta.name = "fast";
    storage_class.provisioner = "disk.csi";
    storage_class.wait_for_first_consumer = true;
    snapshot.Upsert(storage_class);
    kube::PersistentVolumeClaim claim;
    claim.meta.name = "data";
    claim.meta.name_space = "default";
    claim.storage_class = "fast";
    claim.wants.bytes = 10;
    snapshot.Upsert(claim);
    Tell(true);
  }

  void Tell(bool tells) {
    kube::CsiDriver driver;
    driver.meta.name = "disk.csi";
    driver.tells_capacity = tells;
    snapshot.Upsert(driver);
  }

  std::string Nodes() const {
    const kube::Pod pod =
        With(MakePod("p"), [](kube::PodSpec& spec) { spec.persistent_volume_claims = {"data"}; });
    std::string nodes;
    for (const auto& [name, info] : snapshot.nodes()) {
      const auto why_not = CheckClass(snapshot, pod, info);
      if (!why_not) nodes += (nodes.empty() ? "" : " ") + name;
      if (why_not) EXPECT_EQ(why_not->code, RejectionCode::kVolume);
    }
    return nodes;
  }

  Snapshot snapshot;
};

TEST(StorageCapacity, AVolumeIsMadeWhereItsDriverHasRoomForIt) {
  CapacityWorld world;
  EXPECT_EQ(world.Nodes(), "") << "nothing is told";
  world.Tell(false);
  EXPECT_EQ(world.Nodes(), "a1 a2 b1") << "nor has to be";
  world.Tell(true);
  world.snapshot.Upsert(Capacity("c", {{kube::kZoneLabel, kIn, {"a"}}}, 9));
  EXPECT_EQ(world.Nodes(), "");
  world.snapshot.Upsert(Capacity("c", {{kube::kZoneLabel, kIn, {"a"}}}, 10));
  EXPECT_EQ(world.Nodes(), "a1 a2");
  const auto one_of_two = Capacity(
      "d", {{kube::kZoneLabel, kExists, {}}, {kube::kHostnameLabel, kNotIn, {"a1", "a2"}}}, 100);
  world.snapshot.Upsert(one_of_two);
  EXPECT_EQ(world.Nodes(), "a1 a2 b1");
  world.snapshot.Upsert(
      Capacity("c", {{kube::kZoneLabel, kIn, {"a"}}, {kube::kHostnameLabel, kIn, {"a2"}}}, 10));
  EXPECT_EQ(world.Nodes(), "a2 b1");
  world.snapshot.Remove(one_of_two);
  EXPECT_EQ(world.Nodes(), "a2");
  auto changed = Capacity("c", {}, 10);
  EXPECT_EQ((world.snapshot.Upsert(changed), world.Nodes()), "a1 a2 b1") << "of all nodes";
  changed.nodes.reset();
  EXPECT_EQ((world.snapshot.Upsert(changed), world.Nodes()), "") << "of none";
  EXPECT_EQ((world.snapshot.Upsert(Capacity("c", {}, {})), world.Nodes()), "") << "not known";
}

TEST(StorageCapacity, AnotherIsNewsForWhoWaitsForTheClass) {
  CapacityWorld world;
  world.snapshot.TakeJournal();
  world.snapshot.Upsert(Capacity("c", {}, 10));
  EXPECT_TRUE(world.snapshot.TakeJournal().storage_classes.contains("fast"));
  world.snapshot.Upsert(Capacity("c", {}, 10));
  EXPECT_TRUE(world.snapshot.TakeJournal().empty());
  world.snapshot.Remove(Capacity("c", {}, 10));
  EXPECT_TRUE(world.snapshot.TakeJournal().storage_classes.contains("fast"));
}

}  // namespace
}  // namespace muster::cluster
