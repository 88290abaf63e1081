// A snapshot that was changed step by step equals one that is built from what is there now, fed in
// any order, and sums that were kept up to date equal those of all that stands there; and its
// journal names whatever changes a verdict, and what else changed.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cluster/label_bits.h"
#include "cluster/node_families.h"
#include "cluster/predicates.h"
#include "cluster/relations.h"
#include "cluster/snapshot.h"
#include "cluster/test_objects.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using namespace test;

constexpr int kSeeds = 40;
constexpr int kSteps = 250;

// What stands on the node, summed up pod by pod; nullopt if it can't be.
std::optional<kube::ResourceList> SumOf(const NodeInfo& info) {
  kube::ResourceList sum = info.reserved_for_daemons;
  for (const PlacedPod& placed : info.pods) {
    if (!placed.pod->spec_error.empty() || !sum.Add(placed.pod->spec->requests).ok()) return {};
  }
  for (const auto& pod : info.nominated) {
    if (!pod->spec_error.empty() || !sum.Add(pod->spec->requests).ok()) return {};
  }
  sum.DropZeros();
  return sum;
}

// Everything that a predicate can see, as text.
std::string Picture(const Snapshot& snapshot) {
  std::string text;
  for (const auto& [name, info] : snapshot.nodes()) {
    text += fmt::format("{} virtual={} claim={} stage={} '{}' error='{}' cordoned={}\n", name,
                        info.is_virtual, info.claim ? info.claim->meta.name : "-",
                        static_cast<int>(info.readiness.stage), info.readiness.message, info.error,
                        info.node->unschedulable);
    text += fmt::format("  allocatable {}; requested {}; daemons {}\n",
                        info.node->allocatable.ToString(), info.requested.ToString(),
                        info.reserved_for_daemons.ToString());
    const std::optional<kube::ResourceList> sum = SumOf(info);
    if (!sum) EXPECT_NE(info.error, "");
    if (info.error.empty()) EXPECT_EQ(info.requested, sum);
    EXPECT_EQ(info.free.size(), info.node->allocatable.entries().size());
    for (const auto& [resource, allocatable] : info.node->allocatable.entries()) {
      EXPECT_EQ(info.Free(resource),
                std::max<int64_t>(0, allocatable - info.requested.Get(resource)));
    }
    for (const auto& [key, value] : info.node->meta.labels)
      text += fmt::format("  {}={}\n", key, value);
    for (const kube::Taint& taint : info.node->taints) text += "  " + taint.ToString() + "\n";
    for (const PlacedPod& placed : info.pods) {
      text += fmt::format("  pod {} version {} assumed={}\n", placed.pod->meta.uid,
                          placed.pod->meta.resource_version, placed.assumed);
      EXPECT_EQ(snapshot.FindNodeOfPod(placed.pod->meta.uid), &info);
      EXPECT_EQ(placed.label_bits, LabelBits(placed.pod->meta.labels));
    }
    for (const auto& pod : info.nominated) {
      text += fmt::format("  nominated {} {}\n", pod->meta.uid, pod->spec->requests.ToString());
      EXPECT_FALSE(pod->IsBound() || pod->IsTerminal());
    }
    for (const auto& [other_name, other] : snapshot.nodes()) {
      EXPECT_EQ(info.family == other.family, NodeFamilies::Alike(*info.node, *other.node));
    }
  }
  std::vector<std::string> names;
  size_t virtual_count = 0;
  for (const NodeInfo* info : snapshot.node_list()) {
    names.push_back(info->name());
    virtual_count += info->is_virtual ? 1 : 0;
  }
  EXPECT_EQ(names.size(), snapshot.nodes().size());
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(virtual_count, snapshot.virtual_count());
  std::set<std::string> keep_away;
  for (const auto& [uid, node] : snapshot.anti_affinity_pods()) {
    keep_away.insert(fmt::format("{}@{}", uid, node));
  }
  for (const std::string& pair : keep_away) text += pair + "\n";
  return text;
}

class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {}

  std::string Step() {
    ++version_;
    switch (Pick(22)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return PutNode();
      case 4:
        return RemoveNode();
      case 5:
      case 6:
      case 7:
        return PutClaim();
      case 8:
        return RemoveClaim();
      case 9:
      case 10:
      case 11:
      case 12:
        return PutPod();
      case 13:
        return RemovePod();
      case 14:
      case 15:
        return Assume();
      case 16:
        return Forget();
      case 17:
        return Heartbeat();
      case 18:
        return MarkNode();
      case 19:
      case 20:
        return ChangeStorage();
      case 21:
        return ChangeNamespace();
      default:
        return ChangeDaemonSet();
    }
  }

  // A pod that is set aside might as well not be there, and nothing of that is left.
  void LookWithoutOne() {
    const auto known = pods_.find(Name("pod-p", 12));
    if (known == pods_.end() || !known->second.IsBound()) return;
    const std::string before = Picture(snapshot_);
    snapshot_.SetAside(known->first);
    auto entry = pods_.extract(known);
    EXPECT_EQ(Picture(snapshot_), Rebuilt());
    snapshot_.PutBack(entry.key());
    pods_.insert(std::move(entry));
    EXPECT_EQ(Picture(snapshot_), before);
  }

  // Neither is there more of a nomination that doesn't count than of none.
  void LookWithoutNominations() {
    const std::string before = Picture(snapshot_);
    {
      const NominationsFor counted(&snapshot_, 1);
      const auto pods = pods_;
      for (auto& [uid, pod] : pods_) {
        if (pod.priority < 1) pod.nominated_node_name.clear();
      }
      EXPECT_EQ(Picture(snapshot_), Rebuilt());
      pods_ = pods;
    }
    EXPECT_EQ(Picture(snapshot_), before);
  }

  const Snapshot& snapshot() const { return snapshot_; }
  Journal TakeJournal() { return snapshot_.TakeJournal(); }

  std::string Rebuilt() {
    Snapshot fresh;
    std::vector<std::function<void()>> feeds;
    for (const auto& [name, node] : nodes_) feeds.emplace_back([&, n = node] { fresh.Upsert(n); });
    for (const auto& [name, claim] : claims_)
      feeds.emplace_back([&, c = claim] { fresh.Upsert(c); });
    for (const auto& [uid, pod] : pods_) feeds.emplace_back([&, p = pod] { fresh.Upsert(p); });
    for (const auto& [uid, daemons] : daemon_sets_) {
      feeds.emplace_back([&, d = daemons] { fresh.Upsert(d); });
    }
    for (const auto& [name, space] : namespaces_) {
      feeds.emplace_back([&, n = space] { fresh.Upsert(n); });
    }
    std::shuffle(feeds.begin(), feeds.end(), random_);
    for (const auto& feed : feeds) feed();
    for (auto it = assumed_.begin(); it != assumed_.end();) {
      const kube::Pod* pod = fresh.FindPod(it->first);
      const NodeInfo* info = fresh.FindNode(it->second);
      if (pod == nullptr || pod->IsBound() || pod->IsTerminal() || info == nullptr) {
        it = assumed_.erase(it);
        continue;
      }
      // A virtual node may have become a real one.
      it->second = info->name();
      EXPECT_TRUE(fresh.Assume(it->first, it->second).ok());
      ++it;
    }
    return Picture(fresh);
  }

 private:
  size_t Pick(size_t n) { return random_() % n; }
  bool Chance(int percent) { return static_cast<int>(Pick(100)) < percent; }
  std::string Name(const char* prefix, size_t n) { return fmt::format("{}{}", prefix, Pick(n)); }

  template <typename T>
  void Stamp(T& object) {
    object.meta.resource_version = std::to_string(1000 + version_);
  }

  std::string PutNode() {
    const size_t number = Pick(5);
    const std::string name = fmt::format("n{}", number);
    const std::string provider_id = Chance(85) ? fmt::format("id-{}", number) : "";
    kube::Node node = MakeEarlyNode(name, provider_id);
    const size_t stage = Pick(5);
    if (stage == 1) node = Registered(node);
    if (stage == 2) node = Initialized(node);
    if (stage >= 3) node = WithGpus(Initialized(node), Chance(80) ? 8 : 7, 8);
    if (Chance(20)) node.meta.labels.erase("karpenter.sh/nodepool");
    if (Chance(10)) node.taints.push_back({"gpu", "", kube::TaintEffect::kNoSchedule});
    if (Chance(10)) node.unschedulable = true;
    if (Chance(10)) node.meta.deletion_time = absl::UnixEpoch();
    if (Chance(5)) node.error = "status.capacity: bad";
    if (Chance(50)) node.meta.labels[kube::kZoneLabel] = Name("z", 2);
    Stamp(node);
    nodes_[name] = node;
    snapshot_.Upsert(node);
    return fmt::format("put node {}", name);
  }

  std::string RemoveNode() {
    const std::string name = Name("n", 5);
    nodes_.erase(name);
    snapshot_.RemoveNode(name);
    return "remove node " + name;
  }

  std::string PutClaim() {
    const size_t number = Pick(5);
    kube::NodeClaim claim = MakeClaim(fmt::format("c{}", number));
    if (Chance(60)) claim = Launched(claim, fmt::format("id-{}", Chance(80) ? number : Pick(5)));
    if (Chance(40)) claim.node_name = fmt::format("n{}", Chance(80) ? number : Pick(5));
    if (Chance(10)) claim.meta.deletion_time = absl::UnixEpoch();
    if (Chance(20)) SetTrue(claim, "Initialized");
    if (Chance(20)) claim.requirements = {In(kube::kZoneLabel, {"z0", "z1"})};
    if (Chance(5)) claim.error = "spec.requirements: bad";
    Stamp(claim);
    claims_[claim.meta.name] = claim;
    snapshot_.Upsert(claim);
    return "put claim " + claim.meta.name;
  }

  std::string RemoveClaim() {
    const std::string name = Name("c", 5);
    claims_.erase(name);
    snapshot_.RemoveNodeClaim(name);
    return "remove claim " + name;
  }

  std::string PutPod() {
    kube::Pod pod = MakePod(Name("p", 12), {{"nvidia.com/gpu", static_cast<int64_t>(Pick(9))}});
    auto known = pods_.find(pod.meta.uid);
    if (known != pods_.end() && Chance(60)) {
      pod = known->second;
    } else {
      pod = With(pod, [&](kube::PodSpec& spec) {
        if (Chance(5)) spec.requests.Set("memory", std::numeric_limits<int64_t>::max());
        if (Chance(20)) spec.host_ports = {{"", "TCP", 8000}};
        if (Chance(20))
          spec.affinity.required_pod_anti_affinity = {TermFor("app", "x", kube::kZoneLabel)};
      });
      // What a pod has claimed is for good.
      if (pod.meta.name == "p0" || pod.meta.name == "p1") {
        pod = With(pod, [](kube::PodSpec& spec) { spec.persistent_volume_claims = {"data"}; });
      }
      if (Chance(30) && !daemon_sets_.empty()) {
        pod.meta.owners = {{"apps/v1", "DaemonSet", "d", Name("ds-d", 3), true}};
      }
    }
    pod.meta.labels["app"] = Chance(50) ? "x" : "y";
    if (Chance(40)) pod.node_name = Name("n", 5);
    if (Chance(15)) pod.nominated_node_name = Name("n", 5);
    pod.priority = static_cast<int32_t>(Pick(2));
    if (Chance(10)) pod.phase = kube::PodPhase::kSucceeded;
    if (Chance(10)) pod.meta.deletion_time = absl::UnixEpoch();
    if (Chance(5)) pod.spec_error = "spec.containers[0]: bad";
    Stamp(pod);
    pods_[pod.meta.uid] = pod;
    snapshot_.Upsert(pod);
    return "put pod " + pod.meta.uid;
  }

  std::string RemovePod() {
    const std::string uid = Name("pod-p", 12);
    pods_.erase(uid);
    snapshot_.RemovePod(uid);
    return "remove " + uid;
  }

  std::string Assume() {
    const std::string uid = Name("pod-p", 12);
    const std::string node = Chance(50) ? Name("n", 5) : Name("nodeclaim/c", 5);
    if (snapshot_.Assume(uid, node).ok()) assumed_.emplace(uid, node);
    return fmt::format("assume {} on {}", uid, node);
  }

  std::string Forget() {
    const std::string uid = Name("pod-p", 12);
    assumed_.erase(uid);
    snapshot_.Forget(uid);
    return "forget " + uid;
  }

  std::string ChangeDaemonSet() {
    const std::string name = Name("d", 3);
    if (Chance(30)) {
      daemon_sets_.erase("ds-" + name);
      snapshot_.RemoveDaemonSet("ds-" + name);
      return "remove DaemonSet " + name;
    }
    kube::DaemonSet daemons = MakeDaemonSet(name, {{"cpu", 100 + static_cast<int64_t>(Pick(3))}});
    if (Chance(40)) {
      daemons.pod_spec = With(MakePod("x", {{"cpu", 7}}), [&](kube::PodSpec& spec) {
                           spec.node_selector = {{kube::kZoneLabel, Name("z", 2)}};
                         }).spec;
    }
    Stamp(daemons);
    daemon_sets_[daemons.meta.uid] = daemons;
    snapshot_.Upsert(daemons);
    return "put DaemonSet " + name;
  }

  std::string Heartbeat() {
    if (nodes_.empty()) return "no heartbeat";
    kube::Node& node = std::next(nodes_.begin(), Pick(nodes_.size()))->second;
    Stamp(node);
    snapshot_.Upsert(node);
    return "heartbeat of " + node.meta.name;
  }

  std::string MarkNode() {
    if (nodes_.empty()) return "no node to mark";
    kube::Node& node = std::next(nodes_.begin(), Pick(nodes_.size()))->second;
    Stamp(node);
    node.meta.annotations["mark"] = Name("m", 3);
    snapshot_.Upsert(node);
    return "mark " + node.meta.name;
  }

  // Claims, volumes and classes come, change and go; the claim of the probes is default/data.
  std::string ChangeStorage() {
    switch (Pick(8)) {
      case 0: {
        snapshot_.RemovePersistentVolumeClaim("default/data");
        return "remove claim";
      }
      case 4: {
        kube::CsiNode node;
        node.meta.name = Name("n", 5);
        if (Chance(80)) node.drivers["csi"] = Pick(3);
        if (Chance(20)) node.drivers["csi"] = std::nullopt;
        snapshot_.Upsert(node);
        return "put CSINode " + node.meta.name;
      }
      case 5: {
        const std::string name = Name("n", 5);
        snapshot_.RemoveCsiNode(name);
        return "remove CSINode " + name;
      }
      case 6: {
        kube::VolumeAttachment attachment;
        attachment.meta.name = Name("a", 6);
        attachment.attacher = "csi";
        attachment.node_name = Name("n", 5);
        attachment.volume_name = Name("v", 3);
        snapshot_.Upsert(attachment);
        return "attach " + attachment.meta.name;
      }
      case 7: {
        const std::string name = Name("a", 6);
        snapshot_.RemoveVolumeAttachment(name);
        return "detach " + name;
      }
      case 1: {
        kube::PersistentVolumeClaim claim;
        claim.meta.name = "data";
        claim.meta.name_space = "default";
        claim.storage_class = "fast";
        claim.bound = Chance(60);
        if (claim.bound) claim.volume_name = Name("v", 3);
        claim.wants.access_modes = Chance(30) ? kube::kReadWriteOncePod : kube::kReadWriteOnce;
        snapshot_.Upsert(claim);
        return "put claim";
      }
      case 2: {
        kube::PersistentVolume volume;
        volume.meta.name = Name("v", 3);
        volume.driver = Chance(80) ? "csi" : "";
        volume.handle = volume.meta.name;
        if (Chance(60)) volume.required_node_terms = {{{In(kube::kZoneLabel, {Name("z", 2)})}, {}}};
        snapshot_.Upsert(volume);
        return "put volume";
      }
      default: {
        kube::StorageClass storage_class;
        storage_class.meta.name = "fast";
        storage_class.wait_for_first_consumer = Chance(50);
        storage_class.provisioner = "csi";
        snapshot_.Upsert(storage_class);
        return "put storage class";
      }
    }
  }

  std::string ChangeNamespace() {
    if (Chance(30)) {
      namespaces_.erase("default");
      snapshot_.RemoveNamespace("default");
      return "remove namespace";
    }
    kube::Namespace space;
    space.meta.name = "default";
    if (Chance(70)) space.meta.labels["team"] = Name("t", 2);
    namespaces_["default"] = space;
    snapshot_.Upsert(space);
    return "put namespace";
  }

  std::mt19937_64 random_;
  int version_ = 0;
  Snapshot snapshot_;
  std::map<std::string, kube::Node> nodes_;
  std::map<std::string, kube::NodeClaim> claims_;
  std::map<std::string, kube::Pod> pods_;
  std::map<std::string, kube::DaemonSet> daemon_sets_;
  std::map<std::string, kube::Namespace> namespaces_;
  std::map<std::string, std::string> assumed_;
};

TEST(SnapshotProperty, StepByStepEqualsBuiltFromScratch) {
  for (int seed = 1; seed <= kSeeds; ++seed) {
    World world(seed);
    std::string steps;
    for (int i = 0; i < kSteps; ++i) {
      steps += world.Step() + "\n";
      const std::string want = world.Rebuilt();
      ASSERT_EQ(Picture(world.snapshot()), want) << "seed " << seed << ", after\n" << steps;
      if (i % 10 == 0) world.LookWithoutOne();
      if (i % 10 == 5) world.LookWithoutNominations();
    }
  }
}

// Pods that ask every predicate something.
std::vector<kube::Pod> Probes() {
  std::vector<kube::Pod> probes;
  for (int64_t gpus : {0, 1, 4, 8}) {
    kube::Pod probe = MakePod(fmt::format("probe{}", gpus), {{"nvidia.com/gpu", gpus}});
    probes.push_back(Labelled(probe, "app", "x"));
  }
  auto add = [&](auto change) {
    kube::Pod probe = With(probes[1], change);
    probe.meta.name += fmt::format("-{}", probes.size());
    probe.meta.uid += fmt::format("-{}", probes.size());
    probes.push_back(std::move(probe));
  };
  add([](kube::PodSpec& spec) { spec.node_selector = {{kube::kZoneLabel, "z1"}}; });
  add([](kube::PodSpec& spec) { spec.tolerations = {{"", true, "", {}}}; });
  add([](kube::PodSpec& spec) { spec.host_ports = {{"", "TCP", 8000}}; });
  add([](kube::PodSpec& spec) { spec.persistent_volume_claims = {"data"}; });
  add([](kube::PodSpec& spec) {
    spec.affinity.required_pod_affinity = {TermFor("app", "y", kube::kZoneLabel)};
  });
  add([](kube::PodSpec& spec) {
    kube::PodAffinityTerm term = TermFor("app", "x", kube::kHostnameLabel);
    term.namespace_selector = kube::LabelSelector{{In("team", {"t1"})}};
    spec.affinity.required_pod_anti_affinity = {term};
  });
  add([](kube::PodSpec& spec) {
    kube::TopologySpreadConstraint spread;
    spread.topology_key = kube::kZoneLabel;
    spread.selector = kube::LabelSelector{{In("app", {"x", "y"})}};
    spec.topology_spread = {spread};
  });
  return probes;
}

struct Verdicts {
  bool by_class = false;
  bool by_room = false;
  bool by_relations = false;
};

// Node name -> for each probe, what passes.
using AllVerdicts = std::map<std::string, std::vector<Verdicts>>;

AllVerdicts Judge(const Snapshot& snapshot, const std::vector<kube::Pod>& probes) {
  std::vector<const kube::Pod*> members;
  for (const kube::Pod& probe : probes) members.push_back(&probe);
  std::vector<const NodeInfo*> nodes;
  for (const auto& [name, info] : snapshot.nodes()) nodes.push_back(&info);
  const Relations as_seen(snapshot, members, nodes, /*include_virtual=*/false);
  const Relations as_forecast(snapshot, members, nodes, /*include_virtual=*/true);
  AllVerdicts verdicts;
  for (size_t n = 0; n < nodes.size(); ++n) {
    const NodeInfo& info = *nodes[n];
    const Relations& relations = info.is_virtual ? as_forecast : as_seen;
    for (size_t p = 0; p < probes.size(); ++p) {
      verdicts[info.name()].push_back({!CheckClass(snapshot, probes[p], info),
                                       !CheckRoom(snapshot, probes[p], info),
                                       relations.Allows(relations.KindOf(p), static_cast<int>(n))});
    }
  }
  return verdicts;
}

// What of a node is in no pod and no version.
std::map<std::string, std::string> NodePictures(const Snapshot& snapshot) {
  std::map<std::string, std::string> pictures;
  for (const auto& [name, info] : snapshot.nodes()) {
    std::string& text = pictures[name];
    text = fmt::format("{} {} {} {} {} {} {}", info.is_virtual, info.UsableNow(),
                       info.readiness.message, info.error, info.requested.ToString(),
                       info.node->allocatable.ToString(), info.reserved_for_daemons.ToString());
    for (const kube::Taint& taint : info.node->taints) text += taint.ToString();
    for (const auto* map : {&info.node->meta.labels, &info.node->meta.annotations}) {
      for (const auto& [key, value] : *map) text += fmt::format(" {}={}", key, value);
    }
    for (const PlacedPod& placed : info.pods) {
      text += fmt::format(" {} {}", placed.pod->meta.uid, placed.pod->IsDeleting());
      for (const auto& [key, value] : placed.pod->meta.labels) text += " " + value;
    }
  }
  return pictures;
}

bool TouchesRelations(const Journal& journal) {
  constexpr NodeChanges kRead = {NodeChange::kCame, NodeChange::kWent, NodeChange::kClass,
                                 NodeChange::kPods};
  return !journal.namespaces.empty() ||
         std::any_of(journal.nodes.begin(), journal.nodes.end(),
                     [&](const auto& entry) { return entry.second.observed.HasAny(kRead); });
}

// `changes` are those of the node that both verdicts are about.
void ExpectExplained(const Verdicts& before, const Verdicts& now, NodeChanges changes,
                     const Journal& journal, bool has_claims) {
  const bool storage = !journal.volume_claims.empty() || !journal.volumes.empty() ||
                       !journal.storage_classes.empty();
  if (before.by_class != now.by_class && !storage) {
    EXPECT_TRUE(changes.HasAny(
        {NodeChange::kClass, now.by_class ? NodeChange::kRoomGrew : NodeChange::kWent}));
  }
  if (before.by_room != now.by_room && !(storage && has_claims)) {
    EXPECT_TRUE(changes.Has(now.by_room ? NodeChange::kRoomGrew : NodeChange::kRoomShrank) ||
                (has_claims && changes.HasAny({NodeChange::kClass, NodeChange::kPods})));
  }
  if (before.by_relations != now.by_relations) EXPECT_TRUE(TouchesRelations(journal));
  if (storage || TouchesRelations(journal)) return;
  auto passes = [](const Verdicts& v) { return v.by_class && v.by_room && v.by_relations; };
  if (!passes(before) && passes(now)) EXPECT_TRUE(changes.HasAny(kMayHelp));
  if (passes(before) && !passes(now)) EXPECT_TRUE(changes.HasAny(kMayHurt));
}

TEST(SnapshotProperty, TheJournalNamesWhateverChangedAVerdict) {
  const std::vector<kube::Pod> probes = Probes();
  for (int seed = 1; seed <= kSeeds; ++seed) {
    World world(1000 + seed);
    AllVerdicts before;
    std::map<std::string, std::string> pictures;
    for (int i = 0; i < kSteps; ++i) {
      const std::string step = world.Step();
      const Journal journal = world.TakeJournal();
      AllVerdicts now = Judge(world.snapshot(), probes);
      std::map<std::string, std::string> pictures_now = NodePictures(world.snapshot());
      const bool own = step.starts_with("assume") || step.starts_with("forget");
      if (step.starts_with("heartbeat")) EXPECT_TRUE(journal.empty());
      for (const auto& [name, entry] : journal.nodes) {
        EXPECT_FALSE(own) << "no news to him who does it himself";
        EXPECT_FALSE(entry.observed.empty());
        EXPECT_EQ(entry.observed.Has(NodeChange::kCame), !before.contains(name));
        EXPECT_TRUE(now.contains(name) || entry.observed.Has(NodeChange::kWent));
      }
      for (const auto& [name, verdicts] : now) {
        if (own) break;
        auto entry = journal.nodes.find(name);
        const NodeChanges changes =
            entry == journal.nodes.end() ? NodeChanges() : entry->second.observed;
        if (changes.empty()) EXPECT_EQ(pictures[name], pictures_now[name]);
        if (!before.contains(name)) {
          EXPECT_TRUE(changes.Has(NodeChange::kCame));
          continue;
        }
        for (size_t p = 0; p < probes.size(); ++p) {
          const bool has_claims = !probes[p].spec->persistent_volume_claims.empty();
          ExpectExplained(before[name][p], verdicts[p], changes, journal, has_claims);
        }
      }
      for (const auto& [name, verdicts] : before) {
        if (now.contains(name)) continue;
        ASSERT_TRUE(journal.nodes.contains(name));
        EXPECT_TRUE(journal.nodes.at(name).observed.Has(NodeChange::kWent));
      }
      ASSERT_FALSE(HasFailure()) << "seed " << seed << ", step " << i << ": " << step;
      before = std::move(now);
      pictures = std::move(pictures_now);
    }
  }
}

// However rarely it is taken.
TEST(SnapshotProperty, TheJournalNamesNothingThatNobodyCanHaveSeen) {
  for (int seed = 1; seed <= kSeeds; ++seed) {
    World world(2000 + seed);
    for (int i = 0; i < 10; ++i) {
      std::set<std::string> seen;
      for (const auto& [name, info] : world.snapshot().nodes()) seen.insert(name);
      for (int step = 0; step < kSteps / 10; ++step) world.Step();
      for (const auto& [name, entry] : world.TakeJournal().nodes) {
        EXPECT_TRUE(seen.contains(name) || world.snapshot().nodes().contains(name)) << name;
        EXPECT_EQ(entry.is_new, !seen.contains(name));
      }
    }
  }
}

}  // namespace
}  // namespace muster::cluster
