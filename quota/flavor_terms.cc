#include "quota/flavor_terms.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::quota {
namespace {

using kube::Requirement;
using kube::SelectorOperator;

auto MarkerIn(const kube::NodeSelectorTerm& term) {
  return std::ranges::find(term.match_expressions, kFlavorTermMarker, &Requirement::key);
}

bool IsMarked(const kube::NodeSelectorTerm& term) {
  return MarkerIn(term) != term.match_expressions.end();
}

}  // namespace

std::optional<Expressions> Only(const kube::ResourceFlavor& flavor,
                                const std::vector<const kube::ResourceFlavor*>& others) {
  Expressions all;
  for (const auto& [key, value] : flavor.node_labels) {
    all.push_back({key, SelectorOperator::kIn, {value}});
  }
  for (const kube::ResourceFlavor* other : others) {
    const bool differs = std::ranges::any_of(flavor.node_labels, [&](const auto& label) {
      const auto same = other->node_labels.find(label.first);
      return same != other->node_labels.end() && same->second != label.second;
    });
    if (differs) continue;
    // A label that only it has tells them apart.
    const auto own = std::ranges::find_if(other->node_labels, [&](const auto& label) {
      return !flavor.node_labels.contains(label.first);
    });
    if (own == other->node_labels.end()) return std::nullopt;
    Requirement without = {own->first, SelectorOperator::kNotIn, {own->second}};
    if (std::ranges::find(all, without) == all.end()) all.push_back(std::move(without));
  }
  return all;
}

std::vector<Expressions> Combined(const std::vector<Expressions>& a,
                                  const std::vector<Expressions>& b) {
  std::vector<Expressions> all;
  for (const Expressions& left : a) {
    for (const Expressions& right : b) {
      Expressions& both = all.emplace_back(left);
      both.insert(both.end(), right.begin(), right.end());
    }
  }
  return all;
}

NodeTerms Restricted(const NodeTerms& terms, const std::vector<Expressions>& flavors) {
  NodeTerms asked = Unrestricted(terms);
  if (flavors.empty()) return asked;
  std::vector<kube::NodeSelectorTerm> all;
  for (const kube::NodeSelectorTerm& term :
       asked.value_or(std::vector(1, kube::NodeSelectorTerm()))) {
    for (const std::vector<Requirement>& flavor : flavors) {
      kube::NodeSelectorTerm& with = all.emplace_back(term);
      with.match_expressions.push_back(
          {std::string(kFlavorTermMarker), SelectorOperator::kDoesNotExist, {}});
      with.match_expressions.insert(with.match_expressions.end(), flavor.begin(), flavor.end());
    }
  }
  return all;
}

NodeTerms Unrestricted(const NodeTerms& terms) {
  if (!IsRestricted(terms)) return terms;
  std::vector<kube::NodeSelectorTerm> asked;
  for (kube::NodeSelectorTerm term : *terms) {
    term.match_expressions.erase(MarkerIn(term), term.match_expressions.end());
    // A term of ours alone: its user asks for nothing.
    if (term == kube::NodeSelectorTerm()) return std::nullopt;
    if (asked.empty() || asked.back() != term) asked.push_back(std::move(term));
  }
  return asked;
}

bool IsRestricted(const NodeTerms& terms) { return terms && std::ranges::any_of(*terms, IsMarked); }

Workload AsAsked(const kube::Workload& workload) {
  Workload asked;
  asked.id = workload.meta.uid;
  asked.name_space = workload.meta.name_space;
  asked.name = workload.meta.name;
  asked.queue = workload.queue;
  asked.queued_at = workload.meta.creation_time;
  for (const kube::Workload::PodSet& set : workload.pod_sets) {
    auto spec = std::make_shared<kube::PodSpec>(*set.spec);
    spec->affinity.required_node_terms = Unrestricted(spec->affinity.required_node_terms);
    std::string name =
        absl::StrCat(workload.meta.uid, "/", workload.meta.generation, "/", set.name);
    asked.pod_sets.push_back({std::move(name), set.count, std::move(spec)});
  }
  return asked;
}

OtherChoice ChoiceWithout(const kube::Workload& workload, const std::set<std::string>& left_out,
                          QuotaScheduler& scheduler, const Usable& usable) {
  OtherChoice choice;
  const Workload asked = AsAsked(workload);
  for (size_t i = 0; i < workload.pod_sets.size(); ++i) {
    const PodSet& set = asked.pod_sets[i];
    std::vector<Expressions> terms;
    std::set<std::string> seen;  // of the groups that are done
    for (const std::string& name : left_out) {
      if (!seen.insert(name).second) continue;
      std::vector<const kube::ResourceFlavor*> closed;
      if (const kube::ResourceFlavor* flavor = scheduler.FindFlavor(name)) closed.push_back(flavor);
      std::vector<const kube::ResourceFlavor*> open;
      for (const kube::ResourceFlavor* other : scheduler.OtherFlavors(asked, set.name, name)) {
        seen.insert(other->meta.name);
        const bool may_be = !left_out.contains(other->meta.name) && usable(set, *other);
        (may_be ? open : closed).push_back(other);
      }
      std::vector<Expressions> group;
      for (const kube::ResourceFlavor* other : open) {
        std::optional<Expressions> only = Only(*other, closed);
        if (!only) continue;
        if (choice.flavor.empty()) choice.flavor = other->meta.name;
        group.push_back(*std::move(only));
      }
      if (!group.empty()) terms = terms.empty() ? std::move(group) : Combined(terms, group);
    }
    const kube::Workload::PodSet& before = workload.pod_sets[i];
    const NodeTerms& now = before.spec->affinity.required_node_terms;
    NodeTerms wanted = Restricted(now, terms);
    if (wanted == now) continue;
    choice.pod_sets.push_back(
        {i, before.has_affinity, before.has_node_affinity, std::move(wanted)});
  }
  return choice;
}

kube::PodSpec WithFlavor(const kube::PodSpec& spec, const kube::ResourceFlavor& flavor) {
  kube::PodSpec with = spec;
  for (const auto& [key, value] : flavor.node_labels) with.node_selector.emplace(key, value);
  with.tolerations.insert(with.tolerations.end(), flavor.tolerations.begin(),
                          flavor.tolerations.end());
  return with;
}

}  // namespace muster::quota
