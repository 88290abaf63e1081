#include "cluster/profile.h"

#include <algorithm>
#include <memory>

#include "absl/numeric/int128.h"
#include "cluster/snapshot.h"

namespace muster::cluster {
namespace {

constexpr int64_t kBest = 100;

bool IsEmpty(const kube::NodeSelectorTerm& term) {
  return term.match_expressions.empty() && term.match_fields.empty();
}

// Both hold. A term that says nothing matches nothing.
std::vector<kube::NodeSelectorTerm> Both(const std::vector<kube::NodeSelectorTerm>& some,
                                         const std::vector<kube::NodeSelectorTerm>& others) {
  std::vector<kube::NodeSelectorTerm> both;
  for (const kube::NodeSelectorTerm& a : some) {
    for (const kube::NodeSelectorTerm& b : others) {
      if (IsEmpty(a) || IsEmpty(b)) continue;
      kube::NodeSelectorTerm& term = both.emplace_back(a);
      term.match_expressions.insert(term.match_expressions.end(), b.match_expressions.begin(),
                                    b.match_expressions.end());
      term.match_fields.insert(term.match_fields.end(), b.match_fields.begin(),
                               b.match_fields.end());
    }
  }
  return both;
}

// part of whole in percent; both within int64, and part not above whole.
int64_t Percent(int64_t part, int64_t whole) {
  return static_cast<int64_t>(absl::int128(part) * kBest / whole);
}

// The height at `at` of the lines through the points.
int64_t HeightOf(const std::vector<std::pair<int64_t, int64_t>>& points, int64_t at) {
  constexpr int64_t kScale = 10;  // scores are given from 0 to 10
  for (size_t i = 0; i < points.size(); ++i) {
    const auto& [end, high] = points[i];
    if (at > end) continue;
    if (i == 0) return high * kScale;
    const auto& [begin, low] = points[i - 1];
    return low * kScale + (high - low) * kScale * (at - begin) / (end - begin);
  }
  return points.empty() ? 0 : points.back().second * kScale;
}

}  // namespace

void AddedAffinity::ApplyTo(kube::Pod* pod) const {
  if (empty()) return;
  kube::PodSpec spec = *pod->spec;
  kube::Affinity& affinity = spec.affinity;
  if (required) {
    affinity.adds_terms = true;
    affinity.own_node_terms = std::move(affinity.required_node_terms);
    affinity.required_node_terms =
        affinity.own_node_terms ? Both(*affinity.own_node_terms, *required) : *required;
  }
  affinity.preferred_node_terms.insert(affinity.preferred_node_terms.end(), preferred.begin(),
                                       preferred.end());
  pod->spec = std::make_shared<const kube::PodSpec>(std::move(spec));
}

int64_t ScoringStrategy::ScoreOf(const kube::PodSpec& spec, const NodeInfo& info) const {
  if (type == Type::kFewestDevicesLeft) return 0;
  int64_t sum = 0;
  int64_t weights = 0;
  for (const auto& [resource, weight] : resources) {
    const int64_t capacity = info.node->allocatable.Get(resource);
    if (capacity <= 0) continue;
    int64_t asked = 0;
    const bool fits = !__builtin_add_overflow(info.requested.Get(resource),
                                              spec.requests.Get(resource), &asked) &&
                      asked <= capacity;
    const int64_t used = fits ? Percent(asked, capacity) : kBest;
    if (type == Type::kRequestedToCapacityRatio) {
      const int64_t score = HeightOf(shape, used);
      if (score <= 0) continue;
      sum += score * weight;
    } else if (type == Type::kMostAllocated) {
      sum += used * weight;
    } else {
      sum += (fits ? Percent(capacity - asked, capacity) : 0) * weight;
    }
    weights += weight;
  }
  if (weights == 0) return 0;
  // Only the ratio's are rounded.
  return type == Type::kRequestedToCapacityRatio ? (sum + weights / 2) / weights : sum / weights;
}

}  // namespace muster::cluster
