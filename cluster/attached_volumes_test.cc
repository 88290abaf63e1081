#include "cluster/attached_volumes.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cluster/alone.h"
#include "cluster/predicates.h"
#include "cluster/test_objects.h"

namespace muster::cluster {
namespace {

using test::BoundTo;
using test::MakeNode;
using test::MakePod;
using test::With;

constexpr const char* kDisk = "disk.csi";

kube::Pod Claiming(const std::string& name, std::vector<std::string> claims) {
  return With(MakePod(name),
              [&](kube::PodSpec& spec) { spec.persistent_volume_claims = std::move(claims); });
}

// A cluster with node "a", on which kDisk takes two volumes and other.csi any number.
class VolumeWorld {
 public:
  VolumeWorld() {
    snapshot.Upsert(MakeNode("a"));
    snapshot.Upsert(MakeNode("b"));
    Limit("a", 2);
    kube::StorageClass storage_class;
    storage_class.meta.name = "late";
    storage_class.provisioner = kDisk;
    storage_class.wait_for_first_consumer = true;
    snapshot.Upsert(storage_class);
  }

  void Limit(const std::string& node, std::optional<int64_t> most) {
    kube::CsiNode csi;
    csi.meta.name = node;
    csi.drivers = {{kDisk, most}, {"other.csi", std::nullopt}};
    snapshot.Upsert(csi);
  }
  // default/NAME, bound to a volume of the driver.
  void Bind(const std::string& name, const std::string& driver = kDisk, uint8_t modes = 0) {
    kube::PersistentVolume volume;
    volume.meta.name = "pv-" + name;
    volume.driver = driver;
    volume.handle = "vol-" + name;
    snapshot.Upsert(volume);
    kube::PersistentVolumeClaim claim = Claim(name);
    claim.volume_name = volume.meta.name;
    claim.bound = true;
    claim.wants.access_modes = modes;
    snapshot.Upsert(claim);
  }
  // default/NAME, which waits for its first consumer.
  void Wait(const std::string& name) { snapshot.Upsert(Claim(name)); }
  void Stand(const std::string& pod, std::vector<std::string> claims,
             const std::string& node = "a") {
    snapshot.Upsert(BoundTo(Claiming(pod, std::move(claims)), node));
  }
  void Attach(const std::string& name, const std::string& volume, const std::string& node = "a") {
    kube::VolumeAttachment attachment;
    attachment.meta.name = name;
    attachment.attacher = kDisk;
    attachment.node_name = node;
    attachment.volume_name = volume;
    snapshot.Upsert(attachment);
  }
  std::optional<Rejection> WhyNot(const kube::Pod& pod, const std::string& node = "a") {
    return CheckAll(snapshot, pod, *snapshot.FindNode(node));
  }

  Snapshot snapshot;

 private:
  static kube::PersistentVolumeClaim Claim(const std::string& name) {
    kube::PersistentVolumeClaim claim;
    claim.meta.name = name;
    claim.meta.name_space = "default";
    claim.storage_class = "late";
    return claim;
  }
};

struct LimitCase {
  const char* name;
  std::function<void(VolumeWorld&)> change;
  std::vector<std::string> claims;    // of the pod that asks for node a
  std::optional<int64_t> more, left;  // in the refusal
};

TEST(CheckRoom, CountsVolumesOfADriverByVolume) {
  const std::vector<LimitCase> cases = {
      {"an empty node", [](VolumeWorld& w) { w.Bind("x"); }, {"x"}, {}, {}},
      {"up to the limit",
       [](VolumeWorld& w) { w.Bind("x"), w.Bind("y"), w.Stand("p", {"y"}); },
       {"x"},
       {},
       {}},
      {"more than the limit at once",
       [](VolumeWorld& w) { w.Bind("x"), w.Bind("y"), w.Bind("z"); },
       {"x", "y", "z"},
       3,
       2},
      {"a full node",
       [](VolumeWorld& w) {
         for (const char* name : {"x", "y", "z"}) w.Bind(name);
         w.Stand("p", {"y"}), w.Stand("q", {"z"});
       },
       {"x"},
       1,
       0},
      {"pods that share a volume count once",
       [](VolumeWorld& w) { w.Bind("x"), w.Bind("y"), w.Stand("p", {"y"}), w.Stand("q", {"y"}); },
       {"x"},
       {},
       {}},
      {"a volume that is there already is none more",
       [](VolumeWorld& w) { w.Bind("x"), w.Bind("y"), w.Stand("p", {"x", "y"}); },
       {"x"},
       {},
       {}},
      {"a pod that has ended counts no more",
       [](VolumeWorld& w) {
         for (const char* name : {"x", "y", "z"}) w.Bind(name);
         kube::Pod ended = BoundTo(Claiming("p", {"y", "z"}), "a");
         ended.phase = kube::PodPhase::kSucceeded;
         w.snapshot.Upsert(ended);
       },
       {"x"},
       {},
       {}},
      {"claims that wait count for their class' driver",
       [](VolumeWorld& w) {
         for (const char* name : {"x", "y", "z"}) w.Wait(name);
         w.Stand("p", {"y", "z"});
       },
       {"x"},
       1,
       0},
      {"attached, and used by no pod there",
       [](VolumeWorld& w) {
         for (const char* name : {"x", "y", "z"}) w.Bind(name);
         w.Stand("p", {"y"}), w.Attach("va", "pv-z");
       },
       {"x"},
       1,
       0},
      {"attached for a pod there",
       [](VolumeWorld& w) {
         w.Bind("x"), w.Bind("y"), w.Stand("p", {"y"}), w.Attach("va", "pv-y");
       },
       {"x"},
       {},
       {}},
      {"attached elsewhere, or of an unknown volume",
       [](VolumeWorld& w) {
         for (const char* name : {"x", "y", "z"}) w.Bind(name);
         w.Attach("va", "pv-y", "b"), w.Attach("vb", "pv-gone"), w.Attach("vc", "pv-z");
       },
       {"x"},
       {},
       {}},
      {"still attached from before counts beside the pod's own",
       [](VolumeWorld& w) {
         w.Bind("x"), w.Bind("y"), w.Attach("va", "pv-x"), w.Stand("p", {"y"});
       },
       {"x"},
       1,
       0},
      {"a driver without a limit",
       [](VolumeWorld& w) {
         for (const char* name : {"x", "y", "z"}) w.Bind(name, "other.csi");
       },
       {"x", "y", "z"},
       {},
       {}},
      {"volumes of another driver",
       [](VolumeWorld& w) {
         w.Bind("x"), w.Bind("y", "third.csi"), w.Bind("z", "");
         w.Stand("p", {"y", "z"});
       },
       {"x"},
       {},
       {}},
      {"a limit that the node no longer has",
       [](VolumeWorld& w) { w.Bind("x"), w.Limit("a", 0), w.snapshot.RemoveCsiNode("a"); },
       {"x"},
       {},
       {}},
      {"no volume at all", [](VolumeWorld& w) { w.Bind("x"), w.Limit("a", 0); }, {"x"}, 1, 0},
  };
  for (const LimitCase& c : cases) {
    VolumeWorld world;
    // Before and after: what is kept of the node is forgotten when it changes.
    world.snapshot.AttachedOn(*world.snapshot.FindNode("a"));
    c.change(world);
    std::optional<Rejection> want;
    if (c.more) want = LacksAttachments(kDisk, *c.more, *c.left);
    EXPECT_EQ(world.WhyNot(Claiming("new", c.claims)), want) << c.name;
  }
}

TEST(CheckRoom, CountsVolumesOfNominatedPodsAndDoesNotCountOnThem) {
  VolumeWorld world;
  for (const char* name : {"v0", "v1", "v2"}) world.Bind(name);
  const auto nominate = [&](std::vector<std::string> claims) {
    kube::Pod pod = Claiming("nominated", std::move(claims));
    pod.nominated_node_name = "a";
    world.snapshot.Upsert(pod);
  };
  world.Stand("p", {"v0"});
  EXPECT_EQ(world.WhyNot(Claiming("q", {"v1"})), std::nullopt);
  nominate({"v2"});
  EXPECT_EQ(world.WhyNot(Claiming("q", {"v1"}))->code, RejectionCode::kVolumeLimit);
  EXPECT_EQ(world.WhyNot(Claiming("q", {"v2"})), std::nullopt);
  world.Limit("a", 1);
  EXPECT_EQ(world.WhyNot(Claiming("q", {"v2"}))->code, RejectionCode::kVolumeLimit)
      << "it may go elsewhere";
  nominate({});
  EXPECT_EQ(world.WhyNot(Claiming("q", {"v0"})), std::nullopt);
}

TEST(CheckRoom, APodThatStandsThereDoesNotCountAgainstItself) {
  VolumeWorld world;
  world.Bind("x"), world.Bind("y"), world.Stand("p", {"x"}), world.Stand("q", {"y"});
  EXPECT_EQ(world.WhyNot(*world.snapshot.FindPod("pod-p")), std::nullopt);
}

TEST(CheckRoom, APodMayNeedItsDriverOnTheNode) {
  VolumeWorld world;
  world.Bind("x", "third.csi");
  const kube::Pod pod = Claiming("new", {"x"});
  kube::CsiDriver driver;
  driver.meta.name = "third.csi";
  world.snapshot.Upsert(driver);
  EXPECT_EQ(world.WhyNot(pod), std::nullopt);
  driver.must_be_on_node = true;
  world.snapshot.Upsert(driver);
  EXPECT_EQ(world.WhyNot(pod),
            (Rejection{RejectionCode::kVolume, "CSI driver third.csi isn't on this node"}));
  EXPECT_EQ(world.WhyNot(pod, "b")->code, RejectionCode::kVolume);  // it has no CSINode
  world.snapshot.RemoveCsiDriver("third.csi");
  EXPECT_EQ(world.WhyNot(pod), std::nullopt);
}

TEST(CheckRoom, AReadWriteOncePodClaimIsOnePodsAlone) {
  VolumeWorld world;
  world.Bind("x", kDisk, kube::kReadWriteOncePod);
  const kube::Pod pod = Claiming("new", {"x"});
  world.snapshot.Upsert(Claiming("p", {"x"}));
  EXPECT_EQ(world.WhyNot(pod), std::nullopt) << "the other one stands nowhere";
  world.Stand("p", {"x"}, "b");
  EXPECT_EQ(world.WhyNot(pod),
            (Rejection{RejectionCode::kVolumeInUse,
                       "PersistentVolumeClaim default/x is ReadWriteOncePod, and pod default/p "
                       "has it"}));
  EXPECT_EQ(world.WhyNot(*world.snapshot.FindPod("pod-p"), "b"), std::nullopt);
  world.Bind("x", kDisk, kube::kReadWriteOnce | kube::kReadWriteOncePod);
  EXPECT_EQ(world.WhyNot(pod)->code, RejectionCode::kVolumeInUse);
  world.Bind("x", kDisk, kube::kReadWriteOnce);
  EXPECT_EQ(world.WhyNot(pod), std::nullopt);
  world.Bind("x", kDisk, kube::kReadWriteOncePod);
  world.snapshot.RemovePod("pod-p");
  EXPECT_EQ(world.WhyNot(pod), std::nullopt);
}

TEST(RoomNow, DividesWhatIsLeftByWhatEachPodHasForItself) {
  VolumeWorld world;
  world.Limit("a", 7);
  for (const char* name : {"own", "own2", "common", "there"}) world.Bind(name);
  world.Stand("p", {"there"});
  const auto room = [&](std::vector<std::string> claims) {
    return RoomNow(world.snapshot, Claiming("new", std::move(claims)),
                   *world.snapshot.FindNode("a"));
  };
  EXPECT_EQ(room({"own"}), 6);
  EXPECT_EQ(room({"own", "own2"}), 3);
  world.snapshot.Upsert(Claiming("q", {"common"}));
  world.snapshot.Upsert(Claiming("r", {"common"}));
  EXPECT_EQ(room({"common"}), 109) << "of 110 places; all have the one volume";
  EXPECT_EQ(room({"common", "own"}), 5);
  world.Limit("a", 1);
  EXPECT_EQ(room({"common"}), 0);
  EXPECT_EQ(room({"there"}), 109);
}

TEST(NeedsOf, HasVolumesOfLimitedDriversBesideTheRequests) {
  VolumeWorld world;
  world.Bind("x"), world.Bind("y"), world.Bind("free", "other.csi"), world.Wait("w");
  const kube::Pod pod = Claiming("new", {"x", "y", "w", "free"});
  EXPECT_EQ(NeedsOf(world.snapshot, pod),
            (std::vector<Need>{{"pods", 1}, {"attachable-volumes-csi-disk.csi", 3}}));
  world.snapshot.Upsert(Claiming("p", {"x"}));
  world.snapshot.Upsert(Claiming("q", {"x"}));
  EXPECT_EQ(NeedsOf(world.snapshot, pod).back(), (Need{"shared volume disk.csi/vol-x", 1}));
  const NodeInfo& node = *world.snapshot.FindNode("a");
  EXPECT_EQ(FreeFor(world.snapshot, node, "pods"), 110);
  EXPECT_EQ(FreeFor(world.snapshot, node, "attachable-volumes-csi-disk.csi"), 2);
  EXPECT_EQ(FreeFor(world.snapshot, node, "shared volume disk.csi/vol-x"), kManyPods);
  world.Stand("r", {"y"});
  EXPECT_EQ(FreeFor(world.snapshot, node, "attachable-volumes-csi-disk.csi"), 1);
  world.snapshot.RemoveCsiNode("a");
  EXPECT_EQ(NeedsOf(world.snapshot, pod), (std::vector<Need>{{"pods", 1}}));
}

TEST(Journal, NamesANodeWhoseAttachmentsNoPodAccountsFor) {
  VolumeWorld world;
  world.Bind("x"), world.Bind("y"), world.Stand("p", {"x"});
  world.snapshot.TakeJournal();
  world.Attach("va", "pv-x");
  EXPECT_TRUE(world.snapshot.TakeJournal().empty()) << "a pod there uses it";
  world.Attach("vb", "pv-y");
  EXPECT_EQ(world.snapshot.TakeJournal().nodes.at("a").observed, NodeChange::kClass);
  world.snapshot.RemoveVolumeAttachment("vb");
  EXPECT_EQ(world.snapshot.TakeJournal().nodes.at("a").observed, NodeChange::kClass);
  world.Limit("a", 2);
  EXPECT_TRUE(world.snapshot.TakeJournal().empty()) << "nothing new";
  world.Limit("a", 3);
  EXPECT_EQ(world.snapshot.TakeJournal().nodes.at("a").observed, NodeChange::kClass);
}

TEST(Journal, NamesAReadWriteOncePodClaimWhoseUserComesOrGoes) {
  VolumeWorld world;
  world.Bind("x", kDisk, kube::kReadWriteOncePod), world.Bind("y");
  world.snapshot.TakeJournal();
  world.Stand("p", {"x", "y"});
  EXPECT_EQ(world.snapshot.TakeJournal().volume_claims.size(), 1);
  world.snapshot.RemovePod("pod-p");
  EXPECT_EQ(world.snapshot.TakeJournal().volume_claims.count("default/x"), 1);
}

TEST(WhyUnstartable, TwoPodsOfAGangCannotHaveAClaimThatIsOnePodsAlone) {
  VolumeWorld world;
  world.Bind("x", kDisk, kube::kReadWriteOncePod), world.Bind("y", kDisk, kube::kReadWriteOnce);
  world.snapshot.Upsert(Claiming("p", {"x", "y"}));
  world.snapshot.Upsert(Claiming("q", {"y"}));
  const std::vector<std::string> gang = {"pod-p", "pod-q"};
  EXPECT_FALSE(WhyUnstartable(world.snapshot, gang, /*alone=*/true));
  world.snapshot.Upsert(Claiming("r", {"x"}));
  const auto both = WhyUnstartable(world.snapshot, {"pod-p", "pod-q", "pod-r"}, /*alone=*/false);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->what,
            "PersistentVolumeClaim default/x is ReadWriteOncePod, and both p and r name it");
  EXPECT_FALSE(both->in_use);
  world.Stand("r", {"x"}, "b");
  const auto used = WhyUnstartable(world.snapshot, gang, /*alone=*/false);
  ASSERT_TRUE(used);
  EXPECT_EQ(used->what,
            "PersistentVolumeClaim default/x of p is ReadWriteOncePod, and pod default/r on node b "
            "has it");
  EXPECT_TRUE(used->in_use && used->of_claim);
  world.snapshot.RemovePod("pod-r");
  EXPECT_FALSE(WhyUnstartable(world.snapshot, gang, /*alone=*/false));
}

TEST(WhyUnstartable, AVolumeWithoutAClaimIsJudgedByAKubeSchedulerAlone) {
  VolumeWorld world;
  world.snapshot.Upsert(
      With(MakePod("p"), [](kube::PodSpec& spec) { spec.inline_volume = "awsElasticBlockStore"; }));
  EXPECT_FALSE(WhyUnstartable(world.snapshot, {"pod-p"}, /*alone=*/false));
  const auto why = WhyUnstartable(world.snapshot, {"pod-p"}, /*alone=*/true);
  EXPECT_EQ(why->what,
            "p has a volume without a claim (spec.volumes[].awsElasticBlockStore), and a Muster "
            "without a kube-scheduler knows nothing of those");
}

TEST(WhyUnstartable, APodMayNameAClaimOfOnePodInTwoOfItsVolumes) {
  VolumeWorld world;
  world.Bind("x", kDisk, kube::kReadWriteOncePod);
  world.snapshot.Upsert(Claiming("p", {"x", "x"}));
  EXPECT_FALSE(WhyUnstartable(world.snapshot, {"pod-p"}, /*alone=*/true));
}

}  // namespace
}  // namespace muster::cluster
