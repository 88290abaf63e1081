#include "quota/topology_levels.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kube/objects/well_known.h"
#include "quota/pod_sets.h"
#include "quota/testing/quota_world.h"

namespace muster::quota {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kRack[] = "cloud.provider.com/rack";
constexpr char kBlock[] = "cloud.provider.com/block";

kube::Topology TopologyOf(std::string name, std::vector<std::string> levels) {
  kube::Topology topology;
  topology.meta.name = std::move(name);
  topology.levels = std::move(levels);
  return topology;
}

kube::ResourceFlavor FlavorWith(std::string name, std::string topology) {
  kube::ResourceFlavor flavor = testing::Flavor(std::move(name), {{"pool", "gpu"}});
  flavor.topology_name = std::move(topology);
  return flavor;
}

kube::TopologyAsked Asks(std::string_view annotation, const std::string& label) {
  const kube::StringMap annotations = {{std::string(annotation), label}};
  return kube::TopologyOf({{"worker", &annotations, nullptr}});
}

Admission Given(const std::string& flavor) {
  Admission given;
  given.pod_sets = {{"worker", 2, {{testing::kGpu, flavor}}, {}}};
  return given;
}

class TopologyLevels : public ::testing::Test {
 protected:
  TopologyLevels() {
    quotas_.Upsert(TopologyOf("racks", {kBlock, kRack, kube::kHostnameLabel}));
    quotas_.Upsert(TopologyOf("zones", {kube::kZoneLabel, kRack}));
    for (const char* topology : {"racks", "zones", "missing", ""}) {
      quotas_.Upsert(FlavorWith(std::string("of-") + topology, topology));
    }
  }
  std::string WhyNot(const kube::TopologyAsked& asked, const std::string& topology) {
    return WhyNoLevel(quotas_, asked, *quotas_.FindFlavor("of-" + topology));
  }

  QuotaScheduler quotas_{QuotaOptions()};
};

TEST_F(TopologyLevels, AreThoseOfTheFlavorAndAZoneAboveThem) {
  const Admission racks = Given("of-racks");
  EXPECT_THAT(LevelsFor(quotas_, &racks, {}),
              ElementsAre(kube::kZoneLabel, kBlock, kRack, kube::kHostnameLabel));
  const Admission zones = Given("of-zones");
  EXPECT_THAT(LevelsFor(quotas_, &zones, {}), ElementsAre(kube::kZoneLabel, kRack));
  const Admission none = Given("of-");
  EXPECT_THAT(LevelsFor(quotas_, &none, {}), IsEmpty());
  EXPECT_THAT(LevelsFor(quotas_, nullptr, Asks(kube::kRequiredTopology, kube::kZoneLabel)),
              IsEmpty());
}

TEST_F(TopologyLevels, WithoutQuotaAreThoseOfATopologyThatHasTheOneAskedFor) {
  EXPECT_THAT(LevelsFor(quotas_, nullptr, Asks(kube::kPreferredTopology, kBlock)),
              ElementsAre(kube::kZoneLabel, kBlock, kRack, kube::kHostnameLabel));
  EXPECT_THAT(LevelsFor(quotas_, nullptr, Asks(kube::kRequiredTopology, "room")), IsEmpty());
}

TEST_F(TopologyLevels, ThatNobodyHasAreNamedWithTheAnnotation) {
  EXPECT_EQ(WhyNoLevel(quotas_, Asks(kube::kRequiredTopology, kRack)), "");
  EXPECT_EQ(WhyNoLevel(quotas_, Asks(kube::kRequiredTopology, kube::kHostnameLabel)), "");
  EXPECT_EQ(WhyNoLevel(quotas_, {}), "");
  EXPECT_THAT(WhyNoLevel(quotas_, Asks(kube::kPreferredTopology, "room")),
              HasSubstr("annotation kueue.x-k8s.io/podset-preferred-topology names room"));
  quotas_.Remove(TopologyOf("racks", {}));
  EXPECT_THAT(WhyNoLevel(quotas_, Asks(kube::kRequiredTopology, kBlock)), HasSubstr(kBlock));
}

TEST_F(TopologyLevels, OfAFlavorMustHaveTheOneAskedFor) {
  EXPECT_EQ(WhyNot({}, "racks"), "");
  EXPECT_EQ(WhyNot(Asks(kube::kRequiredTopology, kRack), "racks"), "");
  EXPECT_EQ(WhyNot(Asks(kube::kRequiredTopology, kube::kHostnameLabel), "zones"), "");
  EXPECT_EQ(
      WhyNot(Asks(kube::kRequiredTopology, kBlock), "zones"),
      "annotation kueue.x-k8s.io/podset-required-topology names cloud.provider.com/block, and "
      "its Topology zones has levels topology.kubernetes.io/zone, cloud.provider.com/rack");
  EXPECT_EQ(WhyNot(Asks(kube::kPreferredTopology, kube::kZoneLabel), ""), "");
  EXPECT_THAT(WhyNot(Asks(kube::kPreferredTopology, kRack), ""),
              HasSubstr("its spec.topologyName names none"));
  EXPECT_EQ(WhyNot({}, "missing"),
            "its spec.topologyName names Topology missing, which doesn't exist");
}

TEST_F(TopologyLevels, OfATopologyThatCannotBeReadAreNone) {
  kube::Topology bad = TopologyOf("racks", {kRack});
  bad.error = "spec.levels: missing";
  quotas_.Upsert(std::move(bad));
  EXPECT_THAT(WhyNot({}, "racks"), HasSubstr("spec.levels: missing"));
  const Admission racks = Given("of-racks");
  EXPECT_THAT(LevelsFor(quotas_, &racks, {}), IsEmpty());
}

// --- where pods stand ---

kube::Node NodeIn(const std::string& name, const std::string& block, const std::string& rack) {
  kube::Node node;
  node.meta.name = name;
  node.meta.labels = {{kube::kHostnameLabel, name}, {kBlock, block}};
  if (!rack.empty()) node.meta.labels[kRack] = rack;
  return node;
}

TEST(StandingOn, CountsPodsByTheLabelsOfTheirNodes) {
  const kube::Node a = NodeIn("a", "b", "r1"), b = NodeIn("b", "b", "r2");
  const kube::TopologyAssignment racks = {{kBlock, kRack}, {{{"b", "r1"}, 2}, {{"b", "r2"}, 1}}};
  EXPECT_EQ(StandingOn({kBlock, kRack}, {&a, &b, &a}), racks);
  const kube::TopologyAssignment hosts = {{kube::kHostnameLabel}, {{{"a"}, 2}, {{"b"}, 1}}};
  EXPECT_EQ(StandingOn({kBlock, kRack, kube::kHostnameLabel}, {&a, &b, &a}), hosts);
  const kube::Node bare = NodeIn("c", "b", "");
  EXPECT_EQ(StandingOn({kBlock, kRack}, {&a, &bare}), kube::TopologyAssignment());
}

class Places : public TopologyLevels {
 protected:
  Places() {
    workload_.cluster_queue = "gpus";
    workload_.reserved = true;
    workload_.reserved_sets = {{"main", 2, {{testing::kGpu, "of-zones"}}, {}}};
    nodes_["n"] = NodeIn("n", "b", "r1");
    nodes_["n"].meta.labels[kube::kZoneLabel] = "z";
  }
  kube::Pod PodOn(const std::string& node) {
    kube::Pod pod;
    pod.meta.name = pod.meta.uid = "p" + std::to_string(++pods_);
    pod.spec = std::make_shared<const kube::PodSpec>();
    pod.node_name = node;
    return pod;
  }
  std::optional<Admission> Of(const std::vector<const kube::Pod*>& pods) {
    if (!pods.empty()) workload_.reserved_sets[0].name = PodSetOf(*pods.front());
    return WithPlaces(quotas_, workload_, pods, [this](const std::string& name) {
      const auto node = nodes_.find(name);
      return node == nodes_.end() ? nullptr : &node->second;
    });
  }

  kube::Workload workload_;
  std::map<std::string, kube::Node> nodes_;
  int pods_ = 0;
};

TEST_F(Places, AreSaidOnceAllPodsOfASetStand) {
  const kube::Pod first = PodOn("n"), second = PodOn("n"), waiting = PodOn(""),
                  lost = PodOn("gone");
  EXPECT_FALSE(Of({}));
  EXPECT_FALSE(Of({&first}));
  EXPECT_FALSE(Of({&first, &waiting}));
  EXPECT_FALSE(Of({&first, &lost}));
  const std::optional<Admission> all = Of({&first, &second});
  ASSERT_TRUE(all);
  const kube::TopologyAssignment standing = {{kube::kZoneLabel, kRack}, {{{"z", "r1"}, 2}}};
  EXPECT_EQ(all->pod_sets[0].topology, standing);
  // What it says already isn't said again; where others stand since is.
  workload_.reserved_sets[0].topology = standing;
  EXPECT_FALSE(Of({&first, &second}));
  EXPECT_FALSE(Of({&first}));
  nodes_["m"] = NodeIn("m", "b", "r2");
  nodes_["m"].meta.labels[kube::kZoneLabel] = "z";
  const kube::Pod moved = PodOn("m");
  ASSERT_TRUE(Of({&first, &moved}));
  EXPECT_EQ(Of({&first, &moved})->pod_sets[0].topology.pods.size(), 2u);
}

TEST_F(Places, AreNotSaidOfAFlavorWithoutATopology) {
  workload_.reserved_sets[0].flavors = {{testing::kGpu, "of-"}};
  const kube::Pod first = PodOn("n"), second = PodOn("n");
  EXPECT_FALSE(Of({&first, &second}));
}

}  // namespace
}  // namespace muster::quota
