#include "cluster/subtree.h"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

class Search {
 public:
  Search(const Domains& domains, const ShapeRoom& room, const SubtreeQuery& query)
      : domains_(domains), room_(room), query_(query) {
    for (int slot : query.excluded) {
      const int fits = FitsOn(slot, /*excluded=*/false);
      if (fits == 0) continue;
      for (int at = domains_.DomainOf(slot); at >= 0; at = Of(at).parent) missing_[at] += fits;
    }
    // Domains that are gone are empty.
    const auto count = static_cast<int>(domains_.domains().size());
    for (int domain = 0; domain < count; ++domain) {
      if (RoomIn(domain) > 0 && IsWithin(domain)) within_.push_back(domain);
    }
  }

  TreeFill Run() {
    const int zone = domains_.LevelOf(kube::kZoneLabel);
    const int one_zone = zone >= 0 && domains_.CountAt(zone) > 0 ? zone : -1;
    if (auto fill = Lowest(query_.pods, one_zone)) return *std::move(fill);
    if (query_.least < query_.pods) {
      const int64_t most = Most(one_zone);
      if (most > 0 && most >= query_.least) return *Lowest(static_cast<int>(most), one_zone);
    }
    const int64_t most = std::min<int64_t>(query_.pods, Most(-1));
    if (most == 0) return {};
    return *Lowest(static_cast<int>(most), -1);
  }

 private:
  const Domains::Domain& Of(int domain) const { return domains_.domains()[domain]; }
  int hosts() const { return static_cast<int>(domains_.levels().size()); }

  int FitsOn(int slot, bool excluded) const {
    const ShapeRoom::Node& node = room_.On(slot);
    if (node.is_virtual && !query_.include_coming) return 0;
    return excluded && query_.excluded.contains(slot) ? 0 : node.fits;
  }

  int64_t RoomIn(int domain) const {
    int64_t room = room_.Now(domain);
    if (query_.include_coming) room += room_.Coming(domain);
    const auto missing = missing_.find(domain);
    return missing == missing_.end() ? room : room - missing->second;
  }

  bool OnHostsOnly() const { return query_.required_level == hosts(); }
  // In a domain of the level that is required.
  bool IsWithin(int domain) const {
    return query_.required_level < 0 || OnHostsOnly() ||
           domains_.Above(domain, query_.required_level) >= 0;
  }

  template <typename Visit>
  void VisitHosts(int64_t least, Visit visit) const {
    for (int domain : within_) {
      if (RoomIn(domain) < least) continue;
      for (int slot : Of(domain).nodes) {
        const int fits = FitsOn(slot, /*excluded=*/true);
        if (fits >= least) visit(slot, fits);
      }
    }
  }

  // How many pods, at most all, one domain or node holds that lies in one of this level.
  int64_t Most(int level) const {
    int64_t most = 0;
    for (int domain : within_) {
      if (OnHostsOnly() || Of(domain).level < level) continue;
      most = std::max(most, RoomIn(domain));
    }
    VisitHosts(1, [&](int, int fits) { most = std::max<int64_t>(most, fits); });
    return std::min<int64_t>(most, query_.pods);
  }

  // In the lowest domain that holds so many; it must lie in one of the level `at_least`.
  std::optional<TreeFill> Lowest(int pods, int at_least) const {
    if (auto on_one = OnOneHost(pods)) return on_one;
    if (OnHostsOnly()) return std::nullopt;
    int lowest = at_least - 1;
    for (int domain : within_) {
      if (RoomIn(domain) >= pods) lowest = std::max(lowest, Of(domain).level);
    }
    if (lowest < at_least) return std::nullopt;
    std::vector<int> candidates;
    for (int domain : within_) {
      if (Of(domain).level == lowest && RoomIn(domain) >= pods) candidates.push_back(domain);
    }
    std::ranges::sort(candidates, {}, [&](int domain) { return Of(domain).first; });
    std::optional<TreeFill> best;
    bool best_is_leaf = false;
    int64_t best_room = 0;
    for (int domain : candidates) {
      const bool leaf = Of(domain).children.empty();
      std::vector<Bin> bins = BinsIn(domain);
      // Without domains below, only the number of nodes is left to be compared.
      if (best && leaf && best_is_leaf && LeastNodes(bins, pods) > best->domains.back()) continue;
      TreeFill fill = FillTree(domains_, std::move(bins), pods);
      const bool better = !best || fill.BetterThan(*best);
      const bool tighter = RoomIn(domain) < best_room;
      if (!better && (!tighter || best->BetterThan(fill))) continue;
      best = std::move(fill);
      best_is_leaf = leaf;
      best_room = RoomIn(domain);
    }
    return best;
  }

  std::optional<TreeFill> OnOneHost(int pods) const {
    int best = -1;
    const auto price = [&](int slot) {
      const Bin bin = BinOn(slot, pods);
      return std::tuple(bin.cost, bin.position);
    };
    VisitHosts(pods, [&](int slot, int) {
      if (best < 0 || price(slot) < price(best)) best = slot;
    });
    if (best < 0) return std::nullopt;
    TreeFill fill;
    fill.takes = {{best, pods}};
    fill.placed = pods;
    fill.domains.assign(hosts() + 1, 1);
    fill.cost = BinOn(best, pods).cost;
    return fill;
  }

  Bin BinOn(int slot, int fits) const {
    const ShapeRoom::Node& node = room_.On(slot);
    return {.node = slot,
            .fits = fits,
            .cost = {.virtual_nodes = node.is_virtual ? 1 : 0,
                     .devices = node.devices,
                     .disfavour = -int64_t{std::min(fits, query_.pods)} * node.preference},
            .position = domains_.PositionOf(slot),
            .domain = domains_.DomainOf(slot)};
  }

  std::vector<Bin> BinsIn(int domain) const {
    std::vector<Bin> bins;
    for (int i = Of(domain).first; i < Of(domain).last; ++i) {
      const int slot = domains_.order()[i];
      const int fits = FitsOn(slot, /*excluded=*/true);
      if (fits > 0) bins.push_back(BinOn(slot, fits));
    }
    return bins;
  }

  static int LeastNodes(const std::vector<Bin>& bins, int pods) {
    std::vector<int> fits;
    for (const Bin& bin : bins) fits.push_back(bin.fits);
    std::ranges::sort(fits, std::greater<>());
    int nodes = 0;
    for (int64_t missing = pods; missing > 0; ++nodes) missing -= fits[nodes];
    return nodes;
  }

  const Domains& domains_;
  const ShapeRoom& room_;
  const SubtreeQuery& query_;
  std::map<int, int64_t> missing_;  // by domain: room on excluded nodes
  std::vector<int> within_;         // domains with room that may be used
};

}  // namespace

TreeFill FillLowestSubtree(const Domains& domains, const ShapeRoom& room,
                           const SubtreeQuery& query) {
  return Search(domains, room, query).Run();
}

}  // namespace muster::cluster
