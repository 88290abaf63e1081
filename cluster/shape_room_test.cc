#include "cluster/shape_room.h"

#include <random>
#include <string>

#include "cluster/predicates.h"
#include "cluster/test_objects.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace muster::cluster {
namespace {

TEST(ShapeRoom, KeptByChangesIsWhatPredicatesSayNow) {
  int64_t rooms = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    auto upto = [&](int most) { return static_cast<int>(random() % (most + 1)); };
    kube::Pod shape = test::MakePod("shape", {{"nvidia.com/gpu", 1 + upto(3)}});
    if (upto(2) == 0) {
      shape = test::With(shape, [](kube::PodSpec& spec) { spec.node_selector["pool"] = "x"; });
    }
    if (upto(3) == 0) {
      shape = test::With(shape, [](kube::PodSpec& spec) { spec.host_ports = {{"", "TCP", 80}}; });
    }
    if (upto(3) == 0) {
      shape = test::With(shape, [](kube::PodSpec& spec) { spec.uses_resource_claims = true; });
    }
    Snapshot snapshot;
    Domains domains;
    ShapeRooms kept;
    for (int step = 0; step < 120; ++step) {
      const std::string name = fmt::format("n{}", upto(7));
      const std::string pod = fmt::format("p{}", upto(9));
      switch (upto(7)) {
        case 0:
          snapshot.RemoveNode(name);
          break;
        case 1:
          snapshot.RemovePod("pod-" + pod);
          break;
        case 2:
          snapshot.Upsert(test::MakePod(pod, {{"nvidia.com/gpu", upto(4)}}));
          break;
        case 3:
          snapshot.Assume("pod-" + pod, name).IgnoreError();
          break;
        case 4:
          snapshot.Forget("pod-" + pod);
          break;
        case 5: {
          kube::Pod bound =
              test::MakePod(fmt::format("b{}", upto(9)), {{"nvidia.com/gpu", upto(4)}});
          if (upto(2) == 0) {
            bound =
                test::With(bound, [](kube::PodSpec& spec) { spec.host_ports = {{"", "TCP", 80}}; });
          }
          snapshot.Upsert(test::BoundTo(std::move(bound), name));
          break;
        }
        default: {
          if (upto(3) == 0) {
            kube::NodeClaim claim = test::MakeClaim(fmt::format("c{}", upto(2)));
            if (upto(1) == 0) claim.node_name = name;
            snapshot.Upsert(std::move(claim));
            break;
          }
          kube::Node node = test::MakeNode(name, upto(1) == 0 ? "a" : "b");
          if (upto(1) == 0) node.meta.labels["pool"] = "x";
          if (upto(4) == 0) node.unschedulable = true;
          if (upto(4) == 0) node.ready = false;
          if (upto(3) == 0) {
            node.taints.push_back({"soft", "", kube::TaintEffect::kPreferNoSchedule});
          }
          snapshot.Upsert(std::move(node));
        }
      }
      if (upto(2) == 0) continue;  // several changes at once
      domains.Follow(snapshot);
      const ShapeRoom& room = *kept.Of(shape, snapshot, domains);
      std::vector<int64_t> now(domains.domains().size()), coming(domains.domains().size());
      for (const auto& [node, info] : snapshot.nodes()) {
        int64_t fits = CheckClass(snapshot, shape, info) || CheckRoom(snapshot, shape, info)
                           ? 0
                           : RoomFor(shape, info);
        if (MembersClash(*shape.spec, *shape.spec)) fits = std::min<int64_t>(fits, 1);
        ASSERT_EQ(room.On(info.slot).fits, fits) << "seed " << seed << " step " << step;
        if (fits > 0) {
          ASSERT_EQ(room.On(info.slot).is_virtual, info.is_virtual);
          ASSERT_EQ(room.On(info.slot).devices, info.Free("nvidia.com/gpu"));
          ASSERT_EQ(room.On(info.slot).preference, NodePreferenceScore(*shape.spec, info));
        }
        int at = domains.DomainOf(info.slot);
        for (; at >= 0; at = domains.domains()[at].parent) {
          (info.is_virtual ? coming : now)[at] += fits;
        }
      }
      for (size_t d = 0; d < now.size(); ++d) {
        ASSERT_EQ(room.Now(static_cast<int>(d)), now[d]) << "seed " << seed << " step " << step;
        ASSERT_EQ(room.Coming(static_cast<int>(d)), coming[d]);
      }
      rooms += room.Now(Domains::kRoot);
    }
  }
  EXPECT_GT(rooms, 10'000);
}

}  // namespace
}  // namespace muster::cluster
