#include "quota/layout.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster::quota {
namespace {

// The cohorts that queues, cohorts and objects name, with what is wrong with them.
class Cohorts {
 public:
  explicit Cohorts(const QuotaObjects& objects) {
    for (const auto& [name, cohort] : objects.cohorts()) {
      all_[name].object = &cohort;
      if (!cohort.parent.empty()) {
        all_[name].parent = cohort.parent;
        all_.try_emplace(cohort.parent);
      }
    }
    for (const auto& [name, queue] : objects.cluster_queues()) {
      if (!queue.cohort.empty()) all_.try_emplace(queue.cohort);
    }
    for (auto& [name, cohort] : all_) Check(name, cohort);
  }

  struct Cohort {
    const kube::Cohort* object = nullptr;  // null: it is only named
    std::string parent;
    std::string error;  // its own, or that of a cohort above it
    std::string fix;
    bool cyclic = false;  // is in a cycle, or below one
    int node = kNoNode;
  };
  std::map<std::string, Cohort, std::less<>>& all() { return all_; }

 private:
  void Check(const std::string& name, Cohort& cohort) {
    std::vector<std::string> path;
    for (std::string at = name; !at.empty(); at = all_.find(at)->second.parent) {
      const auto seen = std::find(path.begin(), path.end(), at);
      const kube::Cohort* object = all_.find(at)->second.object;
      if (seen != path.end()) {
        path.erase(path.begin(), seen);
        // Told alike from wherever it is found.
        std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());
        path.push_back(path.front());
        cohort.cyclic = true;
        cohort.error =
            absl::StrCat("cohorts form a cycle by spec.parentName: ", absl::StrJoin(path, " -> "));
        cohort.fix = absl::StrCat(
            "remove spec.parentName from one of them, for example from Cohort ", path.front());
        return;
      }
      if (object != nullptr && !object->error.empty() && cohort.error.empty()) {
        cohort.error = absl::StrCat("Cohort ", at, ": ", object->error);
        cohort.fix = absl::StrCat("correct Cohort ", at);
      }
      path.push_back(at);
    }
  }

  std::map<std::string, Cohort, std::less<>> all_;
};

void SetQuotas(QuotaTree& tree, int node, const std::vector<kube::ResourceGroup>& groups,
               Names& names) {
  for (const kube::ResourceGroup& group : groups) {
    for (const kube::FlavorQuotas& flavor : group.flavors) {
      for (const kube::ResourceQuota& quota : flavor.resources) {
        tree.SetQuota(node, names.Pair(names.Flavor(flavor.flavor), names.Resource(quota.resource)),
                      quota.nominal, quota.borrowing_limit, quota.lending_limit);
      }
    }
  }
}

Group MakeGroup(const kube::ResourceGroup& from, const QuotaObjects& objects, Names& names) {
  Group group;
  for (const std::string& resource : from.covered_resources) {
    group.resources.push_back(names.Resource(resource));
  }
  for (const kube::FlavorQuotas& flavor : from.flavors) {
    GroupFlavor& made = group.flavors.emplace_back();
    made.flavor = names.Flavor(flavor.flavor);
    for (int resource : group.resources) made.pairs.push_back(names.Pair(made.flavor, resource));
    auto it = objects.flavors().find(flavor.flavor);
    if (it != objects.flavors().end()) made.object = &it->second;
  }
  return group;
}

void CheckFlavors(QueueConfig& queue, const QuotaObjects& objects) {
  for (const kube::ResourceGroup& group : queue.object->resource_groups) {
    for (const kube::FlavorQuotas& flavor : group.flavors) {
      if (!queue.error.empty()) return;
      auto it = objects.flavors().find(flavor.flavor);
      if (it == objects.flavors().end()) {
        queue.error = absl::StrCat("ResourceFlavor ", flavor.flavor, ", which it names in ",
                                   "spec.resourceGroups, doesn't exist");
        queue.fix = absl::StrCat("create ResourceFlavor ", flavor.flavor,
                                 ", or remove it from ClusterQueue ", queue.object->meta.name);
        queue.lacks_flavor = true;
      } else if (!it->second.error.empty()) {
        queue.error = absl::StrCat("ResourceFlavor ", flavor.flavor, ": ", it->second.error);
        queue.fix = absl::StrCat("correct ResourceFlavor ", flavor.flavor);
      }
    }
  }
}

}  // namespace

QueueConfig::Place QueueConfig::Find(int resource) const {
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::vector<int>& covered = groups[g].resources;
    auto it = std::find(covered.begin(), covered.end(), resource);
    if (it != covered.end()) return {static_cast<int>(g), static_cast<int>(it - covered.begin())};
  }
  return {};
}

int Layout::FindQueue(std::string_view name) const {
  auto it = by_name.find(name);
  return it == by_name.end() ? -1 : it->second;
}

Layout::Layout(const QuotaObjects& objects, Names& names) {
  Cohorts cohorts(objects);
  for (auto& [name, cohort] : cohorts.all()) {
    if (cohort.cyclic) continue;
    QuotaTree::Node node;
    node.name = name;
    if (cohort.object != nullptr) node.fair_weight_milli = cohort.object->fair_weight_milli;
    cohort.node = tree.AddNode(std::move(node));
    if (cohort.object != nullptr)
      SetQuotas(tree, cohort.node, cohort.object->resource_groups, names);
  }
  for (auto& [name, cohort] : cohorts.all()) {
    if (cohort.cyclic || cohort.parent.empty()) continue;
    tree.SetParent(cohort.node, cohorts.all().find(cohort.parent)->second.node);
  }
  for (const auto& [name, object] : objects.cluster_queues()) {
    QueueConfig& queue = queues.emplace_back();
    queue.object = &object;
    for (const kube::ResourceGroup& group : object.resource_groups) {
      queue.groups.push_back(MakeGroup(group, objects, names));
    }
    queue.error = object.error;
    if (!queue.error.empty()) queue.fix = absl::StrCat("correct ClusterQueue ", name);
    if (queue.error.empty() && !object.admission_checks.empty()) {
      queue.error = absl::StrCat("spec.admissionChecks names ", object.admission_checks.front(),
                                 ", and only Kueue itself runs admission checks");
      queue.fix = "remove the admission checks, or let Kueue admit (quota: kueue)";
    }
    int parent = kNoNode;
    if (!object.cohort.empty()) {
      const Cohorts::Cohort& cohort = cohorts.all().find(object.cohort)->second;
      parent = cohort.node;
      if (queue.error.empty()) {
        queue.error = cohort.error;
        queue.fix = cohort.fix;
      }
    }
    CheckFlavors(queue, objects);
    queue.node = tree.AddNode({.name = name,
                               .parent = parent,
                               .is_queue = true,
                               .active = queue.IsActive(),
                               .fair_weight_milli = object.fair_weight_milli});
    SetQuotas(tree, queue.node, object.resource_groups, names);
  }
  tree.Seal(names);
  queue_of_node.assign(static_cast<size_t>(tree.size()), -1);
  for (size_t i = 0; i < queues.size(); ++i) {
    queues[i].root = tree.node(queues[i].node).root;
    queue_of_node[static_cast<size_t>(queues[i].node)] = static_cast<int>(i);
    by_name.emplace(queues[i].object->meta.name, static_cast<int>(i));
  }
}

}  // namespace muster::quota
