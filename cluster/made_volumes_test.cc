#include "cluster/made_volumes.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/alone.h"
#include "cluster/attached_volumes.h"
#include "cluster/test_objects.h"

namespace muster::cluster {
namespace {

using test::MakeNode;
using test::MakePod;
using test::With;

constexpr int64_t kGi = int64_t{1} << 30;

// Nodes "a" and "b", and class "local", whose volumes somebody makes.
class LocalWorld {
 public:
  LocalWorld() {
    snapshot.Upsert(MakeNode("a"));
    snapshot.Upsert(MakeNode("b"));
    kube::StorageClass storage_class;
    storage_class.meta.name = "local";
    storage_class.provisioner = "kubernetes.io/no-provisioner";
    storage_class.wait_for_first_consumer = true;
    snapshot.Upsert(storage_class);
  }

  kube::PersistentVolume Disk(const std::string& name, int64_t gi, const std::string& node = "a") {
    kube::PersistentVolume volume;
    volume.meta.name = name;
    volume.meta.uid = "uid-" + name;
    volume.storage_class = "local";
    volume.available = true;
    volume.has.bytes = gi * kGi;
    volume.has.access_modes = kube::kReadWriteOnce | kube::kReadOnlyMany;
    volume.required_node_terms = {
        {{{kube::kHostnameLabel, kube::SelectorOperator::kIn, {node}}}, {}}};
    return volume;
  }
  void Put(kube::PersistentVolume volume) { snapshot.Upsert(std::move(volume)); }

  kube::PersistentVolumeClaim Claim(const std::string& name, int64_t gi) {
    kube::PersistentVolumeClaim claim;
    claim.meta.name = name;
    claim.meta.name_space = "default";
    claim.meta.uid = "uid-" + name;
    claim.storage_class = "local";
    claim.wants.bytes = gi * kGi;
    claim.wants.access_modes = kube::kReadWriteOnce;
    return claim;
  }
  // A pod "NAME" with its own claims "NAME-0", "NAME-1" of these sizes.
  kube::Pod Claiming(const std::string& name, const std::vector<int64_t>& sizes) {
    kube::Pod pod = With(MakePod(name), [&](kube::PodSpec& spec) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        snapshot.Upsert(Claim(name + "-" + std::to_string(i), sizes[i]));
        spec.persistent_volume_claims.push_back(name + "-" + std::to_string(i));
      }
    });
    snapshot.Upsert(pod);
    return pod;
  }
  const NodeInfo& node(const std::string& name = "a") { return *snapshot.FindNode(name); }
  // "CLAIM:VOLUME" in order; "-" if the node won't do.
  std::string Choice(const kube::Pod& pod, const std::string& name = "a") {
    const ClaimPlan plan = PlanClaims(snapshot, pod, node(name), snapshot.taken_volumes());
    EXPECT_EQ(plan.why_not, CheckClass(snapshot, pod, node(name)));
    if (plan.why_not) return "-";
    std::string text;
    for (const auto& [claim, volume] : plan.bind) {
      text += (text.empty() ? "" : " ") + claim->meta.name + ":" + volume->meta.name;
    }
    return text;
  }

  Snapshot snapshot;
};

TEST(PlanClaims, ChoosesTheSmallestThatWillDo) {
  LocalWorld world;
  world.Put(world.Disk("large", 9));
  world.Put(world.Disk("small", 3));
  world.Put(world.Disk("tiny", 1));
  world.Put(world.Disk("there", 2, "b"));
  EXPECT_EQ(world.Choice(world.Claiming("p", {2})), "p-0:small");
  EXPECT_EQ(world.Choice(world.Claiming("p", {2}), "b"), "p-0:there");
  EXPECT_EQ(world.Choice(world.Claiming("q", {4})), "q-0:large");
  EXPECT_EQ(world.Choice(world.Claiming("r", {10})), "-");
  // The smaller claim chooses first, whatever the order in the pod.
  EXPECT_EQ(world.Choice(world.Claiming("s", {2, 1, 2})), "s-1:tiny s-0:small s-2:large");
  EXPECT_EQ(world.Choice(world.Claiming("t", {2, 2, 2})), "-");
  const auto why = CheckClass(world.snapshot, world.Claiming("r", {10}), world.node());
  EXPECT_EQ(why->detail,
            "storage class local of PersistentVolumeClaim default/r-0 has no volume left that this "
            "node reaches");
}

struct TraitCase {
  const char* name;
  std::function<void(kube::PersistentVolumeClaim&, kube::PersistentVolume&)> change;
  bool fits;
};

TEST(PlanClaims, LooksAtWhatAVolumeIs) {
  using Claim = kube::PersistentVolumeClaim;
  using Volume = kube::PersistentVolume;
  const std::vector<TraitCase> cases = {
      {"as it is", [](Claim&, Volume&) {}, true},
      {"another access mode",
       [](Claim& c, Volume&) { c.wants.access_modes = kube::kReadWriteMany; }, false},
      {"a device", [](Claim& c, Volume&) { c.wants.block = true; }, false},
      {"both devices", [](Claim& c, Volume& v) { c.wants.block = v.has.block = true; }, true},
      {"other attributes", [](Claim&, Volume& v) { v.has.attributes_class = "fast"; }, false},
      {"another class", [](Claim&, Volume& v) { v.storage_class = "other"; }, false},
      {"not available", [](Claim&, Volume& v) { v.available = false; }, false},
      {"being deleted", [](Claim&, Volume& v) { v.meta.deletion_time = absl::UnixEpoch(); }, false},
      {"kept for another claim", [](Claim&, Volume& v) { v.claim_ref = "default/other"; }, false},
      {"kept for this claim", [](Claim&, Volume& v) { v.claim_ref = "default/p-0"; }, true},
      {"kept for this claim by UID",
       [](Claim&, Volume& v) { v.claim_ref = "default/p-0", v.claim_uid = "uid-p-0"; }, true},
      {"kept for a claim of this name that is gone",
       [](Claim&, Volume& v) { v.claim_ref = "default/p-0", v.claim_uid = "before"; }, false},
      {"labels that the selector wants",
       [](Claim& c, Volume& v) {
         c.selector = kube::LabelSelector{{{"disk", kube::SelectorOperator::kIn, {"nvme"}}}};
         v.meta.labels["disk"] = "nvme";
       },
       true},
      {"other labels",
       [](Claim& c, Volume&) {
         c.selector = kube::LabelSelector{{{"disk", kube::SelectorOperator::kIn, {"nvme"}}}};
       },
       false},
      {"reached from everywhere", [](Claim&, Volume& v) { v.required_node_terms.reset(); }, true},
  };
  for (const TraitCase& c : cases) {
    LocalWorld world;
    const kube::Pod pod = world.Claiming("p", {1});
    kube::PersistentVolumeClaim claim = world.Claim("p-0", 1);
    kube::PersistentVolume volume = world.Disk("disk", 1);
    c.change(claim, volume);
    world.snapshot.Upsert(claim);
    world.Put(volume);
    EXPECT_EQ(world.Choice(pod), c.fits ? "p-0:disk" : "-") << c.name;
  }
}

TEST(PlanClaims, OneThatIsKeptElsewhereLetsNoOtherBeChosen) {
  LocalWorld world;
  const kube::Pod pod = world.Claiming("p", {1});
  world.Put(world.Disk("free", 1));
  kube::PersistentVolume kept = world.Disk("kept", 1, "b");
  kept.claim_ref = "default/p-0";
  world.Put(kept);
  EXPECT_EQ(world.Choice(pod, "b"), "p-0:kept");
  EXPECT_EQ(world.Choice(pod, "a"), "-");
}

TEST(PlanClaims, WhatAssumedPodsChoseIsTaken) {
  LocalWorld world;
  world.Put(world.Disk("d1", 1));
  world.Put(world.Disk("d2", 2));
  const kube::Pod p = world.Claiming("p", {1});
  const kube::Pod q = world.Claiming("q", {1});
  const kube::Pod r = world.Claiming("r", {1});
  EXPECT_EQ(MadeRoom(world.snapshot, p, world.node()), 2);
  ASSERT_TRUE(world.snapshot.Assume("pod-q", "a").ok());
  EXPECT_EQ(world.Choice(p), "p-0:d2");
  EXPECT_EQ(world.Choice(q), "q-0:d1") << "its own is free for it";
  ASSERT_TRUE(world.snapshot.Assume("pod-p", "a").ok());
  EXPECT_EQ(world.Choice(r), "-");
  EXPECT_EQ(MadeRoom(world.snapshot, r, world.node()), 0);
  world.snapshot.Forget("pod-q");
  EXPECT_EQ(world.Choice(p), "p-0:d1");
  EXPECT_EQ(world.Choice(r), "r-0:d2");
  world.snapshot.RemovePod("pod-p");
  EXPECT_EQ(world.Choice(r), "r-0:d1");
}

TEST(SelectionsFor, KeepsVolumesForClaimsAndStopsOnceThatIsWritten) {
  LocalWorld world;
  world.Put(world.Disk("d1", 1));
  world.Claiming("p", {1});
  ASSERT_TRUE(world.snapshot.Assume("pod-p", "a").ok());
  std::vector<SelectNode> selections = SelectionsFor(world.snapshot, "pod-p", "a");
  ASSERT_EQ(selections.size(), 1u);
  EXPECT_EQ(selections[0].claim.uid, "uid-p-0");
  ASSERT_TRUE(selections[0].volume);
  EXPECT_EQ(selections[0].volume->uid, "uid-d1");
  EXPECT_FALSE(selections[0].was_kept);
  kube::PersistentVolume kept = world.Disk("d1", 1);
  kept.claim_ref = "default/p-0";
  world.Put(kept);
  EXPECT_TRUE(SelectionsFor(world.snapshot, "pod-p", "a").at(0).was_kept);
  kept.claim_uid = "uid-p-0";
  world.Put(kept);
  EXPECT_TRUE(SelectionsFor(world.snapshot, "pod-p", "a").empty());
}

// Whatever the sizes: what the needs say of several pods on one node is what choosing one after the
// other comes to.
TEST(MadeNeeds, AddUpToWhatCanBeChosen) {
  const std::vector<std::vector<int64_t>> all_sizes = {
      {1, 2, 3}, {2, 2}, {3, 3, 3}, {1, 3}, {1, 1, 1, 1}};
  for (const auto& disks : all_sizes) {
    for (const auto& pods : all_sizes) {
      LocalWorld world;
      for (size_t i = 0; i < disks.size(); ++i) {
        world.Put(world.Disk("d" + std::to_string(i), disks[i]));
      }
      std::map<std::string, int64_t> needs;
      for (size_t i = 0; i < pods.size(); ++i) {
        const kube::Pod pod = world.Claiming("p" + std::to_string(i), {pods[i]});
        for (const auto& [need, amount] : NeedsOf(world.snapshot, pod)) needs[need] += amount;
      }
      bool by_needs = true;
      for (const auto& [need, amount] : needs) {
        by_needs &= amount <= FreeFor(world.snapshot, world.node(), need);
      }
      bool by_choice = true;
      // The large ones first would be right as well.
      for (size_t i = 0; i < pods.size(); ++i) {
        const std::string name = "p" + std::to_string(i);
        const kube::Pod& pod = *world.snapshot.FindPod("pod-" + name);
        if (world.Choice(pod) == "-") {
          by_choice = false;
          break;
        }
        ASSERT_TRUE(world.snapshot.Assume("pod-" + name, "a").ok());
      }
      // A claim larger than every volume has no need that says so: it fits nowhere by itself.
      EXPECT_EQ(by_needs && pods.back() <= disks.back(), by_choice)
          << disks.size() << " disks, " << pods.size() << " pods";
    }
  }
}

TEST(WhyUnstartable, VolumesThatCannotBeCountedNodeByNodeTakeAKubeScheduler) {
  LocalWorld world;
  world.Put(world.Disk("d1", 1));
  world.Claiming("p", {1});
  world.Claiming("q", {5});
  const auto why = [&] {
    return WhyUnstartable(world.snapshot, {"pod-p", "pod-q"}, /*alone=*/true);
  };
  EXPECT_FALSE(why());
  kube::PersistentVolume far = world.Disk("far", 1);
  far.required_node_terms.reset();
  world.Put(far);
  ASSERT_TRUE(why());
  EXPECT_NE(why()->what.find("more than one node reaches far"), std::string::npos) << why()->what;
  EXPECT_FALSE(WhyUnstartable(world.snapshot, {"pod-p", "pod-q"}, /*alone=*/false));
  world.snapshot.RemovePersistentVolume("far");
  kube::PersistentVolumeClaim claim = world.Claim("q-0", 5);
  claim.wants.block = true;
  world.snapshot.Upsert(claim);
  ASSERT_TRUE(why());
  EXPECT_NE(why()->what.find("default/p-0 asks for others of them"), std::string::npos);
  claim.wants.block = false;
  claim.selector.emplace();
  world.snapshot.Upsert(claim);
  ASSERT_TRUE(why());
  EXPECT_NE(why()->what.find("by their labels"), std::string::npos);
}

}  // namespace
}  // namespace muster::cluster
