#include "cluster/shape_room.h"

#include <algorithm>
#include <utility>

#include "cluster/free_devices.h"
#include "cluster/predicates.h"

namespace muster::cluster {
namespace {

// Nodes times shapes that are remembered: some 32 MB.
constexpr size_t kMostNumbers = 4'000'000;

}  // namespace

ShapeRoom::ShapeRoom(kube::Pod example) : example_(std::move(example)) {}

void ShapeRoom::Follow(const Snapshot& snapshot, const Domains& domains) {
  const std::vector<int> changed = snapshot.log().Since(position_);
  position_ = snapshot.log().end();
  const bool same_tree = !sums_.empty() && shape_ == domains.shape();
  nodes_.resize(snapshot.slot_count());
  ClassCheck check(snapshot, example_);
  FreeDevices devices;
  const ScoringStrategy& scoring = snapshot.profile().scoring;
  const bool scored = scoring.type != ScoringStrategy::Type::kFewestDevicesLeft;
  const bool one_per_node = MembersClash(*example_.spec, *example_.spec);
  auto look = [&](int slot) {
    const NodeInfo* info = snapshot.NodeIn(slot);
    Node now;
    if (info != nullptr && example_.spec_error.empty()) {
      const int64_t room = check.RoomOn(*info);
      const bool good =
          room > 0 && !check.Check(*info, Detail::kOmitted) &&
          (example_.spec->host_ports.empty() || !CheckRoom(snapshot, example_, *info));
      if (good) {
        constexpr int64_t kMostPreference = (1 << 30) - 1;
        const auto preference =
            std::clamp<int64_t>(check.PreferenceOn(*info) + scoring.ScoreOf(*example_.spec, *info),
                                -kMostPreference, kMostPreference);
        now.fits = static_cast<uint16_t>(one_per_node ? 1 : std::min(room, Node::kMost));
        now.preference = static_cast<int32_t>(preference);
        if (!scored) {
          now.devices = static_cast<uint16_t>(std::min<int64_t>(devices.On(*info), Node::kMost));
        }
        now.is_virtual = info->is_virtual;
      }
    }
    Node& before = nodes_[slot];
    if (same_tree) {
      Count(domains, slot, before, -1);
      Count(domains, slot, now, 1);
    }
    before = now;
  };
  std::ranges::for_each(changed, look);
  if (same_tree) return;
  shape_ = domains.shape();
  sums_.assign(domains.domains().size(), {});
  for (int slot : domains.order()) Count(domains, slot, nodes_[slot], 1);
}

void ShapeRoom::Count(const Domains& domains, int slot, const Node& node, int step) {
  if (node.fits == 0) return;
  for (int at = domains.DomainOf(slot); at >= 0; at = domains.domains()[at].parent) {
    (node.is_virtual ? sums_[at].coming : sums_[at].now) += int64_t{step} * node.fits;
  }
}

std::shared_ptr<const ShapeRoom> ShapeRooms::Of(const kube::Pod& pod, const Snapshot& snapshot,
                                                const Domains& domains) {
  const auto [it, is_new] = by_key_.try_emplace(ClassKey(pod));
  Entry& entry = it->second;
  entry.used = ++uses_;
  if (is_new) {
    entry.room = std::make_shared<ShapeRoom>(pod);
    const size_t most = kMostNumbers / std::max<size_t>(1, snapshot.nodes().size());
    while (by_key_.size() > std::max<size_t>(1, most)) {
      by_key_.erase(
          std::ranges::min_element(by_key_, {}, [](const auto& one) { return one.second.used; }));
    }
  }
  entry.room->Follow(snapshot, domains);
  return entry.room;
}

}  // namespace muster::cluster
