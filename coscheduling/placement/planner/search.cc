#include "coscheduling/placement/planner/search.h"

#include <algorithm>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace muster::coscheduling::planner {
namespace {

// What SearchPacking and SearchPlacements compare; a part of Score that only grows on the way.
struct Cost {
  int nodes = 0;
  int virtual_nodes = 0;
  int64_t devices = 0;
  auto operator<=>(const Cost&) const = default;
  Cost With(const NodeSlot& node) const {
    return {nodes + 1, virtual_nodes + node.is_virtual, devices + node.devices};
  }
};

struct Best {
  int placed = 0;
  Cost cost;
  Slots slots;
  explicit Best(const Score& incumbent)
      : placed(incumbent.placed),
        cost{incumbent.nodes, incumbent.virtual_nodes, incumbent.devices} {}
  bool Improves(int new_placed, const Cost& new_cost) const {
    return new_placed > placed || (new_placed == placed && new_cost < cost);
  }
  void Take(int new_placed, const Cost& new_cost, const Slots& new_slots) {
    placed = new_placed;
    cost = new_cost;
    slots = new_slots;
  }
};

class PackingSearch {
 public:
  PackingSearch(const Problem& problem, const Scope& scope, const Score& incumbent,
                SearchBudget* budget)
      : problem_(problem), budget_(*budget), room_(problem), best_(incumbent) {
    for (const MemberClass& member_class : problem.classes) left_.push_back(member_class.size());
    ListNodes(scope);
    FindBounds();
  }

  Slots Run() {
    Visit(0, Cost{});
    return best_.slots;
  }

 private:
  struct Node {
    int node = 0;
    std::vector<int> classes;
    std::vector<int> fits;  // by position in classes
    int most = 0;           // members it could take
    size_t twins_end = 0;   // the first node after this that differs from it
  };

  // Large nodes first, twins beside each other.
  void ListNodes(const Scope& scope) {
    absl::flat_hash_map<int, size_t> index;
    for (size_t c = 0; c < scope.candidates.size(); ++c) {
      for (int node : scope.candidates[c]) {
        auto [it, added] = index.try_emplace(node, nodes_.size());
        if (added) nodes_.push_back({.node = node, .classes = {}, .fits = {}});
        Node& entry = nodes_[it->second];
        int fits = room_.Fits(static_cast<int>(c), node, left_[c]);
        entry.classes.push_back(static_cast<int>(c));
        entry.fits.push_back(fits);
        entry.most = std::min(problem_.members(), entry.most + fits);
      }
    }
    using Order =
        std::tuple<int, bool, int64_t, const std::vector<int>&, const std::vector<int>&, int>;
    auto order = [&](const Node& a) {
      const NodeSlot& slot = problem_.nodes[a.node];
      return Order(-a.most, slot.is_virtual, slot.devices, a.classes, a.fits, slot.position);
    };
    std::sort(nodes_.begin(), nodes_.end(),
              [&](const Node& a, const Node& b) { return order(a) < order(b); });
    for (size_t i = nodes_.size(); i-- > 0;) {
      bool twin = i + 1 < nodes_.size() && Twins(nodes_[i], nodes_[i + 1]);
      nodes_[i].twins_end = twin ? nodes_[i + 1].twins_end : i + 1;
    }
  }

  bool Twins(const Node& a, const Node& b) const {
    const NodeSlot& x = problem_.nodes[a.node];
    const NodeSlot& y = problem_.nodes[b.node];
    size_t width = problem_.resources.size();
    return a.classes == b.classes && x.devices == y.devices && x.is_virtual == y.is_virtual &&
           std::equal(problem_.FreeOf(a.node), problem_.FreeOf(a.node) + width,
                      problem_.FreeOf(b.node));
  }

  // What the nodes from i on could take at most, by class and in one node.
  void FindBounds() {
    size_t classes = left_.size();
    room_from_.assign((nodes_.size() + 1) * classes, 0);
    most_from_.assign(nodes_.size() + 1, 0);
    for (size_t i = nodes_.size(); i-- > 0;) {
      for (size_t c = 0; c < classes; ++c) {
        room_from_[i * classes + c] = room_from_[(i + 1) * classes + c];
      }
      for (size_t k = 0; k < nodes_[i].classes.size(); ++k) {
        room_from_[i * classes + nodes_[i].classes[k]] += nodes_[i].fits[k];
      }
      most_from_[i] = std::max(most_from_[i + 1], nodes_[i].most);
    }
  }

  bool CanImprove(size_t i, const Cost& cost) const {
    int64_t reach = placed_;
    for (size_t c = 0; c < left_.size(); ++c) {
      reach += std::min<int64_t>(left_[c], room_from_[i * left_.size() + c]);
    }
    if (reach != best_.placed) return reach > best_.placed;
    int missing = best_.placed - placed_;
    int nodes = most_from_[i] == 0 ? 0 : (missing + most_from_[i] - 1) / most_from_[i];
    return Cost{cost.nodes + nodes, cost.virtual_nodes, cost.devices} < best_.cost;
  }

  void Visit(size_t i, const Cost& cost) {
    if (!budget_.Spend()) return;
    if (best_.Improves(placed_, cost)) best_.Take(placed_, cost, slots_);
    if (i == nodes_.size() || !CanImprove(i, cost)) return;
    std::vector<int> state = left_;
    state.push_back(static_cast<int>(i));
    auto [seen, added] = seen_.try_emplace(std::move(state), cost);
    if (!added) {
      if (seen->second <= cost) return;
      seen->second = cost;
    }
    Fill(i, 0, 0, cost);
    Visit(nodes_[i].twins_end, cost);
  }

  // Chooses how many members of nodes_[i].classes[k] and of the classes after it go there.
  void Fill(size_t i, size_t k, int on_node, const Cost& cost) {
    const Node& node = nodes_[i];
    if (k == node.classes.size()) {
      if (on_node > 0 && !CanTakeMore(node) && budget_.Spend()) {
        Visit(i + 1, cost.With(problem_.nodes[node.node]));
      }
      return;
    }
    int c = node.classes[k];
    int fits = left_[c] == 0 ? 0 : room_.Fits(c, node.node, left_[c]);
    for (int count = fits; count >= 0 && budget_.steps > 0; --count) {
      Take(c, node.node, count);
      Fill(i, k + 1, on_node + count, cost);
      Return(c, node.node, count);
    }
  }

  bool CanTakeMore(const Node& node) const {
    return std::any_of(node.classes.begin(), node.classes.end(),
                       [&](int c) { return left_[c] > 0 && room_.Fits(c, node.node, 1) > 0; });
  }

  void Take(int c, int node, int count) {
    if (count == 0) return;
    room_.Take(c, node, count);
    left_[c] -= count;
    placed_ += count;
    slots_.push_back({node, c, count});
  }

  void Return(int c, int node, int count) {
    if (count == 0) return;
    room_.Return(c, node, count);
    left_[c] += count;
    placed_ -= count;
    slots_.pop_back();
  }

  const Problem& problem_;
  SearchBudget& budget_;
  Room room_;
  std::vector<Node> nodes_;
  std::vector<int64_t> room_from_;  // by node, then class
  std::vector<int> most_from_;      // by node
  std::vector<int> left_;           // by class
  int placed_ = 0;
  Slots slots_;
  Best best_;
  absl::flat_hash_map<std::vector<int>, Cost> seen_;  // by left_ and node
};

class PlacementSearch {
 public:
  PlacementSearch(const Problem& problem, const Scope& scope, const Score& incumbent,
                  SearchBudget* budget)
      : problem_(problem),
        scope_(scope),
        budget_(*budget),
        room_(problem),
        relations_(problem.relations),
        best_(incumbent) {
    for (const MemberClass& member_class : problem.classes) left_.push_back(member_class.size());
    counts_.resize(problem.classes.size());
    for (size_t c = 0; c < counts_.size(); ++c) counts_[c].resize(scope.candidates[c].size());
  }

  Slots Run() {
    Visit(Cost{});
    return best_.slots;
  }

 private:
  using State = std::pair<uint64_t, uint64_t>;

  static uint64_t Mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  // Changes the state's 128-bit name for one member more or less; sums make its order irrelevant.
  static State Moved(State state, int c, int k, int64_t sign) {
    uint64_t move = Mix((static_cast<uint64_t>(c) << 32) | static_cast<uint32_t>(k));
    state.first += sign * move;
    state.second += sign * Mix(move);
    return state;
  }

  void Visit(const Cost& cost) {
    if (!budget_.Spend()) return;
    if (best_.Improves(placed_, cost)) best_.Take(placed_, cost, CurrentSlots());
    if (placed_ == problem_.members()) return;
    if (best_.placed == problem_.members() && !(cost < best_.cost)) return;
    if (!seen_.insert(state_).second) return;
    for (bool used : {true, false}) {
      for (size_t c = 0; c < left_.size(); ++c) {
        if (left_[c] > 0) PlaceEverywhere(static_cast<int>(c), used, cost);
      }
    }
  }

  void PlaceEverywhere(int c, bool used, const Cost& cost) {
    int kind = problem_.classes[c].kind;
    for (size_t k = 0; k < scope_.candidates[c].size() && budget_.steps > 0; ++k) {
      int node = scope_.candidates[c][k];
      if (room_.Used(node) != used || room_.Fits(c, node, 1) == 0) continue;
      if (!relations_.Allows(kind, node)) continue;
      State before = state_;
      state_ = Moved(state_, c, static_cast<int>(k), 1);
      room_.Take(c, node, 1);
      relations_.Place(kind, node);
      --left_[c];
      ++placed_;
      ++counts_[c][k];
      Visit(used ? cost : cost.With(problem_.nodes[node]));
      --counts_[c][k];
      --placed_;
      ++left_[c];
      relations_.Remove(kind, node);
      room_.Return(c, node, 1);
      state_ = before;
    }
  }

  Slots CurrentSlots() const {
    Slots slots;
    for (size_t c = 0; c < counts_.size(); ++c) {
      for (size_t k = 0; k < counts_[c].size(); ++k) {
        if (counts_[c][k] > 0) {
          slots.push_back({scope_.candidates[c][k], static_cast<int>(c), counts_[c][k]});
        }
      }
    }
    return slots;
  }

  const Problem& problem_;
  const Scope& scope_;
  SearchBudget& budget_;
  Room room_;
  Relations relations_;
  std::vector<int> left_;                 // by class
  std::vector<std::vector<int>> counts_;  // by class, then candidate
  int placed_ = 0;
  State state_ = {0, 0};
  absl::flat_hash_set<State> seen_;
  Best best_;
};

}  // namespace

std::vector<int64_t> Fingerprint(const Problem& problem, const Scope& scope, int node,
                                 bool with_relations) {
  const NodeSlot& slot = problem.nodes[node];
  std::vector<int64_t> fingerprint = {slot.zone, slot.is_virtual, slot.devices};
  for (size_t c = 0; c < scope.candidates.size(); ++c) {
    const std::vector<int>& candidates = scope.candidates[c];
    bool candidate = std::binary_search(candidates.begin(), candidates.end(), node);
    fingerprint.push_back(candidate);
    if (candidate) fingerprint.push_back(PreferenceOf(problem.classes[c], node));
  }
  const int64_t* free = problem.FreeOf(node);
  fingerprint.insert(fingerprint.end(), free, free + problem.resources.size());
  if (with_relations) problem.relations.AppendFingerprint(node, &fingerprint);
  return fingerprint;
}

Scope ThinOut(const Problem& problem, const Scope& scope, bool with_relations) {
  std::vector<int> nodes = NodesOf(scope);
  std::sort(nodes.begin(), nodes.end(),
            [&](int a, int b) { return problem.nodes[a].position < problem.nodes[b].position; });
  absl::flat_hash_map<std::vector<int64_t>, int> kept;
  std::vector<char> keep(problem.nodes.size());
  for (int node : nodes) {
    int twins = ++kept[Fingerprint(problem, scope, node, with_relations)];
    keep[node] = twins <= problem.members();
  }
  return Narrow(scope, [&](int, int node) { return keep[node] != 0; });
}

Slots SearchPacking(const Problem& problem, const Scope& scope, const Score& incumbent,
                    SearchBudget* budget) {
  return PackingSearch(problem, scope, incumbent, budget).Run();
}

Slots SearchPlacements(const Problem& problem, const Scope& scope, const Score& incumbent,
                       SearchBudget* budget) {
  return PlacementSearch(problem, scope, incumbent, budget).Run();
}

}  // namespace muster::coscheduling::planner
