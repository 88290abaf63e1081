#include "cluster/soonest_room.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "cluster/node_families.h"
#include "cluster/node_stage.h"
#include "cluster/predicates.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

// Of how many members of the class there is room, `most` at most.
int64_t FitsIn(const Amounts& free, const WaitingClass& members, int64_t most) {
  int64_t count = std::min(members.most_per_node, most);
  for (size_t r = 0; r < free.size() && count > 0; ++r) {
    if (members.asks[r] > 0) count = std::min(count, free[r] / members.asks[r]);
  }
  return std::max<int64_t>(count, 0);
}

// The same of the classes in their order; takes it from `left`.
int64_t Fill(const FreeingNode& node, Amounts free, const std::vector<WaitingClass>& classes,
             std::vector<int64_t>* left, int64_t most) {
  int64_t placed = 0;
  for (size_t c = 0; c < classes.size() && placed < most; ++c) {
    if (!node.takes[c]) continue;
    const int64_t count = FitsIn(free, classes[c], std::min((*left)[c], most - placed));
    for (size_t r = 0; r < free.size(); ++r) free[r] -= count * classes[c].asks[r];
    (*left)[c] -= count;
    placed += count;
  }
  return placed;
}

// False if that is more than there can be.
bool Add(const Amounts& gives, Amounts* free) {
  bool adds = true;
  for (size_t r = 0; r < free->size(); ++r) {
    adds &= !__builtin_add_overflow((*free)[r], gives[r], &(*free)[r]);
  }
  return adds;
}

Amounts FreeAt(const FreeingNode& node, absl::Time time) {
  Amounts free = node.free;
  for (const FreeingNode::Ending& ending : node.endings) {
    if (ending.leaves.at <= time && !Add(ending.gives, &free)) return node.free;
  }
  return free;
}

// Of those that `next` gives, the first that have room at `time` for all that is required; empty if
// all of them don't.
template <typename Next>
std::vector<size_t> PickNext(const std::vector<FreeingNode>& nodes, Next next,
                             const std::vector<WaitingClass>& classes, int64_t required,
                             absl::Time time) {
  std::vector<int64_t> left;
  for (const WaitingClass& members : classes) left.push_back(members.members);
  std::vector<size_t> picked;
  while (const std::optional<size_t> node = next()) {
    const int64_t placed = Fill(nodes[*node], FreeAt(nodes[*node], time), classes, &left, required);
    if (placed == 0) continue;
    picked.push_back(*node);
    required -= placed;
    if (required == 0) return picked;
  }
  return {};
}

std::vector<size_t> Pick(const std::vector<FreeingNode>& nodes, const std::vector<size_t>& order,
                         const std::vector<WaitingClass>& classes, int64_t required,
                         absl::Time time) {
  const auto next = [&, at = order.begin()]() mutable {
    return at == order.end() ? std::nullopt : std::optional(*at++);
  };
  return PickNext(nodes, next, classes, required, time);
}

// When there is room for all that is required; nullopt if there never is.
std::optional<absl::Time> SoonestTime(const std::vector<FreeingNode>& nodes,
                                      const std::vector<size_t>& order,
                                      const std::vector<WaitingClass>& classes, int64_t required) {
  std::vector<absl::Time> times = {absl::InfinitePast(), absl::InfiniteFuture()};
  for (const size_t node : order) {
    for (const FreeingNode::Ending& ending : nodes[node].endings) times.push_back(ending.leaves.at);
  }
  std::ranges::sort(times);
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto soonest = std::ranges::partition_point(
      times, [&](absl::Time time) { return Pick(nodes, order, classes, required, time).empty(); });
  return soonest == times.end() ? std::nullopt : std::optional(*soonest);
}

// The same where all members are alike: what each node holds adds up.
std::optional<absl::Time> SoonestTimeOfOneClass(const std::vector<FreeingNode>& nodes,
                                                const std::vector<size_t>& order,
                                                const WaitingClass& members, int64_t required) {
  struct Event {
    absl::Time at;
    size_t in_order;
    const FreeingNode::Ending* ending;
  };
  if (members.members < required) return std::nullopt;
  std::vector<Event> events;
  std::vector<Amounts> free;
  std::vector<int64_t> fits;
  int64_t room = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const FreeingNode& node = nodes[order[i]];
    free.push_back(node.free);
    fits.push_back(node.takes.front() ? FitsIn(node.free, members, required) : 0);
    room += fits.back();
    if (!node.takes.front()) continue;
    for (const FreeingNode::Ending& ending : node.endings) {
      events.push_back({ending.leaves.at, i, &ending});
    }
  }
  if (room >= required) return absl::InfinitePast();
  // Most have no end, and stay where they are.
  const auto endless = std::ranges::partition(
      events, [](const Event& event) { return event.at != absl::InfiniteFuture(); });
  std::ranges::sort(events.begin(), endless.begin(), {}, &Event::at);
  for (const Event& event : events) {
    Amounts& left = free[event.in_order];
    if (!Add(event.ending->gives, &left)) left = nodes[order[event.in_order]].free;
    int64_t& before = fits[event.in_order];
    const int64_t now = FitsIn(left, members, required);
    room += now - std::exchange(before, now);
    if (room >= required) return event.at;
  }
  return std::nullopt;
}

std::optional<SoonestSet> FindInDomain(const std::vector<FreeingNode>& nodes,
                                       std::vector<size_t> order,
                                       const std::vector<WaitingClass>& classes, int64_t required) {
  const std::optional<absl::Time> soonest =
      classes.size() == 1 ? SoonestTimeOfOneClass(nodes, order, classes.front(), required)
                          : SoonestTime(nodes, order, classes, required);
  if (!soonest) return std::nullopt;
  // When the last of what has to go does, how much that is if it isn't known, and how little there
  // is room for then.
  using Rank = std::tuple<absl::Time, int64_t, int64_t, std::string_view, size_t>;
  std::vector<Rank> ranks;
  for (const size_t node : order) {
    absl::Time last = absl::InfinitePast();
    int64_t to_go = 0;
    int64_t room = nodes[node].free.front();
    for (const FreeingNode::Ending& ending : nodes[node].endings) {
      if (ending.leaves.at > *soonest) continue;
      last = std::max(last, ending.leaves.at);
      room += ending.gives.front();
      if (ending.leaves.at == absl::InfiniteFuture()) to_go += ending.gives.front();
    }
    ranks.emplace_back(last, to_go, -room, nodes[node].name, node);
  }
  // Only the first of them are looked at.
  std::ranges::make_heap(ranks, std::greater<>());
  const auto next = [&]() -> std::optional<size_t> {
    if (ranks.empty()) return std::nullopt;
    std::ranges::pop_heap(ranks, std::greater<>());
    const size_t node = std::get<4>(ranks.back());
    ranks.pop_back();
    return node;
  };
  std::vector<size_t> picked = PickNext(nodes, next, classes, required, *soonest);
  // In another order they may be packed less well.
  if (picked.empty()) picked = Pick(nodes, order, classes, required, *soonest);
  return SoonestSet{*soonest, *soonest, std::move(picked)};
}

// When the set is to be expected free.
absl::Time ExpectedOf(const std::vector<FreeingNode>& nodes, const SoonestSet& set,
                      const std::vector<WaitingClass>& classes, int64_t required) {
  std::vector<FreeingNode> expected;
  std::vector<size_t> all;
  for (const size_t node : set.nodes) {
    all.push_back(all.size());
    FreeingNode& one = expected.emplace_back(nodes[node]);
    for (FreeingNode::Ending& ending : one.endings) ending.leaves.at = ending.leaves.expected;
  }
  const auto found = FindInDomain(expected, std::move(all), classes, required);
  return found ? std::min(found->free_by, set.free_by) : set.free_by;
}

bool OnePerNode(const Snapshot& snapshot, const kube::Pod& pod) {
  return MembersClash(*pod.spec, *pod.spec) ||
         std::ranges::any_of(pod.spec->affinity.required_pod_anti_affinity, [&](const auto& term) {
           return term.topology_key == kube::kHostnameLabel &&
                  TermSelects(snapshot, term, pod, pod);
         });
}

// The members' classes, those that are hard to place first, and their resources, the scarce ones
// first.
class Wants {
 public:
  Wants(const Snapshot& snapshot, const std::vector<const kube::Pod*>& members) {
    std::set<std::pair<bool, std::string>> resources;
    std::map<std::string, std::pair<const kube::Pod*, int64_t>> by_key;
    for (const kube::Pod* pod : members) {
      auto& [example, count] = by_key[ClassKey(*pod)];
      example = pod;
      ++count;
      for (const auto& [resource, amount] : pod->spec->requests.entries()) {
        if (amount > 0) resources.emplace(!IsDevice(resource), resource);
      }
    }
    for (const auto& [common, resource] : resources) resources_.push_back(resource);
    std::vector<std::pair<WaitingClass, const kube::Pod*>> classes;
    for (const auto& [key, some] : by_key) {
      const auto& [pod, count] = some;
      classes.push_back({{count, AskedBy(*pod), OnePerNode(snapshot, *pod) ? 1 : kManyPods}, pod});
    }
    std::ranges::stable_sort(classes, std::greater<>(), [](const auto& c) { return c.first.asks; });
    for (auto& [one, pod] : classes) {
      classes_.push_back(std::move(one));
      checks_.emplace_back(snapshot, *pod);
    }
  }

  bool empty() const { return resources_.empty(); }
  const std::vector<WaitingClass>& classes() const { return classes_; }
  const std::vector<std::string>& resources() const { return resources_; }
  // Whether one of them has room when all that leaves has left.
  bool MayHaveRoom(const FreeingNode& node) const {
    const Amounts free = FreeAt(node, absl::InfiniteFuture());
    for (size_t c = 0; c < classes_.size(); ++c) {
      if (node.takes[c] && FitsIn(free, classes_[c], 1) > 0) return true;
    }
    return false;
  }
  absl::InlinedVector<bool, 8> TakenBy(const NodeInfo& info) {
    absl::InlinedVector<bool, 8> takes;
    for (ClassCheck& check : checks_) takes.push_back(!check.Check(info, Detail::kOmitted));
    return takes;
  }

 private:
  Amounts AskedBy(const kube::Pod& pod) const {
    Amounts amounts;
    for (const std::string& resource : resources_) {
      amounts.push_back(pod.spec->requests.Get(resource));
    }
    return amounts;
  }

  std::vector<std::string> resources_;
  std::vector<WaitingClass> classes_;
  std::vector<ClassCheck> checks_;
};

}  // namespace

std::optional<SoonestSet> FindSoonest(const std::vector<FreeingNode>& nodes,
                                      const std::vector<WaitingClass>& classes, int64_t required) {
  if (required <= 0) return std::nullopt;
  std::map<int, std::vector<size_t>> domains;
  for (size_t i = 0; i < nodes.size(); ++i) domains[nodes[i].domain].push_back(i);
  std::optional<SoonestSet> best;
  for (auto& [domain, members] : domains) {
    std::optional<SoonestSet> set = FindInDomain(nodes, std::move(members), classes, required);
    if (set && (!best || set->free_by < best->free_by)) best = std::move(set);
  }
  if (best) best->expected = ExpectedOf(nodes, *best, classes, required);
  return best;
}

size_t FreeingNodes::PlaceOf(const std::string& resource) {
  const auto it = std::ranges::find(resources_, resource);
  if (it != resources_.end()) return static_cast<size_t>(it - resources_.begin());
  resources_.push_back(resource);
  return resources_.size() - 1;
}

// A node that is usable has nothing of which there is more than fits.
void FreeingNodes::Add(const kube::ResourceList& list, int sign, AllAmounts* sums) {
  for (const auto& [resource, amount] : list.entries()) {
    const size_t place = PlaceOf(resource);
    if (sums->size() <= place) sums->resize(place + 1);
    int64_t& sum = (*sums)[place];
    if (__builtin_add_overflow(sum, sign * amount, &sum)) sum = 0;
  }
}

FreeingNodes::Node FreeingNodes::Read(const NodeInfo& info) {
  Node node;
  node.pool = &*pools_.try_emplace(PoolOf(*info.node)).first;
  node.usable = info.UsableNow();
  ++node.pool->second.nodes;
  node.pool->second.usable += node.usable ? 1 : 0;
  Add(info.node->allocatable, 1, &node.free);
  Add(info.requested, -1, &node.free);
  for (size_t i = 0; i < info.pods.size(); ++i) {
    const kube::Pod& pod = *info.pods[i].pod;
    const kube::ResourceList& asks = pod.spec->requests;
    if (pod.longest_seconds > 0 || pod.IsDeleting() || is_told_(pod)) {
      Add(asks, 1, &node.told.emplace_back(Told{static_cast<uint32_t>(i), {}}).asks);
    } else if (!StaysWithNode(pod)) {
      Add(asks, 1, &node.untold);
    }
  }
  return node;
}

void FreeingNodes::Leave(Node* node) {
  if (node->pool == nullptr) return;
  Pool& pool = node->pool->second;
  pool.usable -= node->usable ? 1 : 0;
  if (--pool.nodes == 0) pools_.erase(pools_.find(node->pool->first));
  *node = {};
}

void FreeingNodes::Follow(const Snapshot& snapshot) {
  const std::vector<int> changed = snapshot.log().Since(position_);
  position_ = snapshot.log().end();
  nodes_.resize(snapshot.slot_count());
  const auto read = [&](int slot) {
    const NodeInfo* info = snapshot.NodeIn(slot);
    Leave(&nodes_[slot]);
    if (info != nullptr) nodes_[slot] = Read(*info);
  };
  std::ranges::for_each(changed, read);
}

std::optional<SoonestRoom> FreeingNodes::FindSoonest(const Snapshot& snapshot,
                                                     const RoomWanted& wanted) {
  Follow(snapshot);
  Wants wants(snapshot, wanted.members);
  if (wants.empty()) return std::nullopt;
  const auto domain_of = [&](const NodeInfo& info) {
    const bool hosts = wanted.level == static_cast<int>(wanted.tree->levels().size());
    return hosts ? info.slot : wanted.tree->Above(wanted.tree->DomainOf(info.slot), wanted.level);
  };
  std::vector<size_t> places;
  for (const std::string& resource : wants.resources()) places.push_back(PlaceOf(resource));
  const auto wanted_of = [&](const AllAmounts& all) {
    Amounts amounts;
    for (const size_t place : places) amounts.push_back(place < all.size() ? all[place] : 0);
    return amounts;
  };
  std::vector<std::pair<const void*, bool>> pools;
  const auto may_use_pool = [&](const Node& node) {
    const auto known = std::ranges::find(pools, node.pool, &std::pair<const void*, bool>::first);
    if (known != pools.end()) return known->second;
    return pools.emplace_back(node.pool, wanted.may_use_pool(node.pool->first)).second;
  };
  std::vector<FreeingNode>& nodes = found_;
  nodes.clear();
  for (const NodeInfo* info : snapshot.node_list()) {
    const Node& kept = nodes_[info->slot];
    if (!info->UsableNow() || !may_use_pool(kept)) continue;
    if (wanted.excluded != nullptr && wanted.excluded->contains(info->name())) continue;
    FreeingNode node;
    node.name = info->name();
    if (wanted.level >= 0) {
      node.domain = domain_of(*info);
      if (node.domain < 0) continue;
      if (wanted.beside >= 0 && !wanted.tree->Share(info->slot, wanted.beside, wanted.level)) {
        continue;
      }
    }
    node.takes = wants.TakenBy(*info);
    if (std::ranges::none_of(node.takes, std::identity())) continue;
    node.free = wanted_of(kept.free);
    if (!kept.untold.empty()) node.endings.push_back({{}, wanted_of(kept.untold)});
    for (const Told& told : kept.told) {
      if (const auto leaves = wanted.leaves(*info->pods[told.place].pod)) {
        node.endings.push_back({*leaves, wanted_of(told.asks)});
      }
    }
    if (wants.MayHaveRoom(node)) nodes.push_back(std::move(node));
  }
  const auto set = cluster::FindSoonest(nodes, wants.classes(), wanted.required);
  if (!set) return std::nullopt;
  SoonestRoom found;
  found.free_by = set->free_by;
  found.expected = set->expected;
  for (const size_t node : set->nodes) {
    const NodeInfo& info = *snapshot.FindNode(nodes[node].name);
    found.nodes.emplace(info.name());
    found.pools.insert(PoolOf(*info.node));
    found.idle_gpus += info.Free(kube::kNvidiaGpu);
  }
  return found;
}

std::string PoolOf(const kube::Node& node) {
  const std::string* type = node.meta.Label(kube::kInstanceTypeLabel);
  std::string pool = type == nullptr ? "any" : *type;
  for (const auto& [resource, amount] : node.allocatable.entries()) {
    if (amount > 0 && IsDevice(resource)) pool += "," + resource;
  }
  for (const kube::Taint& taint : node.taints) {
    if (taint.effect != kube::TaintEffect::kPreferNoSchedule) pool += ";" + taint.ToString();
  }
  return pool;
}

bool StaysWithNode(const kube::Pod& pod) {
  const kube::OwnerReference* owner = pod.meta.Controller();
  return owner != nullptr && (owner->kind == "DaemonSet" || owner->kind == "Node");
}

}  // namespace muster::cluster
