#include "kube/objects/topology_asked.h"

#include "gtest/gtest.h"
#include "kube/objects/well_known.h"

namespace muster::kube {
namespace {

constexpr char kLeaf[] = "topology.k8s.aws/network-node-layer-3";

// Of a master and its workers.
TopologyAsked Asked(const StringMap& master, const StringMap& workers, bool efa = false) {
  ResourceList none, some;
  some.Set("cpu", 1000);
  if (efa) some.Set(std::string(kEfa), 4);
  return TopologyOf({{"master-0", &master, &none}, {"worker-0", &workers, &some}});
}

const std::string kRequired(kRequiredTopology);
const std::string kPreferred(kPreferredTopology);
const std::string kUnconstrained(kUnconstrainedTopology);

TEST(TopologyAsked, IsNothingWhereNobodyAsks) {
  EXPECT_EQ(Asked({}, {}).required, "");
  EXPECT_EQ(Asked({}, {}).error, "");
}

TEST(TopologyAsked, GoesForAllThoughOneTemplateSaysIt) {
  const TopologyAsked asked = Asked({}, {{kRequired, kLeaf}});
  EXPECT_EQ(asked.required, kLeaf);
  EXPECT_EQ(asked.because, "annotation kueue.x-k8s.io/podset-required-topology");
  EXPECT_EQ(Asked({{kPreferred, kLeaf}}, {{kPreferred, kLeaf}}).preferred, kLeaf);
}

TEST(TopologyAsked, IsOneZoneForEfaUnlessSomethingElseIsSaid) {
  EXPECT_EQ(Asked({}, {}, true).required, kZoneLabel);
  EXPECT_EQ(Asked({}, {}, true).because, "vpc.amazonaws.com/efa");
  EXPECT_EQ(Asked({}, {{kRequired, kLeaf}}, true).required, kLeaf);
  EXPECT_EQ(Asked({}, {{kPreferred, kLeaf}}, true).required, kZoneLabel);
  EXPECT_EQ(Asked({}, {{kUnconstrained, "true"}}, true).required, "");
  EXPECT_EQ(Asked({}, {{kUnconstrained, "false"}}, true).required, kZoneLabel);
}

TEST(TopologyAsked, NamesTheFieldOfWhatCannotBeMeant) {
  EXPECT_EQ(Asked({{kRequired, kLeaf}}, {{kPreferred, kLeaf}}).error,
            "annotations kueue.x-k8s.io/podset-required-topology of master-0 and "
            "kueue.x-k8s.io/podset-preferred-topology of worker-0 exclude each other");
  EXPECT_EQ(Asked({{kRequired, kLeaf}, {kUnconstrained, "true"}}, {}).error,
            "annotations kueue.x-k8s.io/podset-required-topology of master-0 and "
            "kueue.x-k8s.io/podset-unconstrained-topology of master-0 exclude each other");
  EXPECT_EQ(
      Asked({{kRequired, kLeaf}}, {{kRequired, kZoneLabel}}).error,
      "annotation kueue.x-k8s.io/podset-required-topology of master-0 is "
      "topology.k8s.aws/network-node-layer-3, of worker-0 topology.kubernetes.io/zone, though "
      "they start as one gang, which has one place");
  EXPECT_EQ(Asked({{kUnconstrained, "yes"}}, {}).error,
            "annotation kueue.x-k8s.io/podset-unconstrained-topology of master-0 is \"yes\", and "
            "must be \"true\" or \"false\"");
  EXPECT_EQ(Asked({{kRequired, ""}}, {}).error,
            "annotation kueue.x-k8s.io/podset-required-topology of master-0 is \"\", and must be "
            "the label of a level");
}

}  // namespace
}  // namespace muster::kube
