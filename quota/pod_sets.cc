#include "quota/pod_sets.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "absl/strings/str_split.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"
#include "quota/amount.h"

namespace muster::quota {
namespace {

// Which part of its job a member is.
// training-operator puts the second and, on a master alone, the third; mpi-operator the third
// (v0.6, pkg/controller/mpi_job_controller.go).
constexpr std::array<std::string_view, 4> kRoleLabels = {
    kube::kPodSetLabel, "training.kubeflow.org/replica-type", "training.kubeflow.org/job-role",
    "jobset.sigs.k8s.io/replicatedjob-name"};

constexpr size_t kMaxRole = 28;  // with two digests a name has 63 characters at most
constexpr size_t kDigests = 33;  // both, and what is between them
constexpr std::string_view kOnlyRole = "main";

// A part of the name of a Workload's pod set.
std::string RoleName(std::string_view role) {
  std::string name(role.substr(0, kMaxRole));
  std::ranges::transform(name, name.begin(), [](unsigned char c) {
    return static_cast<char>(std::isalnum(c) != 0 ? std::tolower(c) : '-');
  });
  return name;
}

// FNV-1a: the same digest wherever it is computed.
uint64_t Digest(std::string_view text) {
  uint64_t hash = 14695981039346656037ULL;
  for (unsigned char c : text) hash = (hash ^ c) * 1099511628211ULL;
  return hash;
}

void Append(const std::vector<kube::Requirement>& requirements, std::string* text) {
  for (const kube::Requirement& requirement : requirements) *text += requirement.ToString() + "&";
}

std::string RequestsText(const kube::PodSpec& spec) {
  std::string text;
  for (const auto& [resource, amount] : spec.requests.entries()) {
    text += fmt::format("{}={};", resource, amount);
  }
  return text;
}

// What a flavor may add to, once the pod has it.
std::string PlaceText(const kube::PodSpec& spec) {
  std::string text;
  for (const auto& [key, value] : spec.node_selector) text += fmt::format("s{}={};", key, value);
  if (spec.affinity.required_node_terms) {
    for (const kube::NodeSelectorTerm& term : *spec.affinity.required_node_terms) {
      text += "|";
      Append(term.match_expressions, &text);
      text += "/";
      Append(term.match_fields, &text);
    }
  }
  for (const kube::Toleration& toleration : spec.tolerations) {
    text += fmt::format("t{},{},{},{};", toleration.key, toleration.exists, toleration.value,
                        toleration.effect ? static_cast<int>(*toleration.effect) : -1);
  }
  return text;
}

std::string PlaceDigest(const kube::PodSpec& spec) {
  return fmt::format("{:016x}", Digest(PlaceText(spec)));
}

// The part of its pod set's name that nothing but its spec says.
std::string DemandOf(const kube::Pod& pod) {
  std::string name;
  for (std::string_view label : kRoleLabels) {
    const std::string* role = pod.meta.Label(label);
    if (role == nullptr) continue;
    name = RoleName(*role) + "-";
    break;
  }
  return fmt::format("{}{:016x}-", name, Digest(RequestsText(*pod.spec)));
}

bool IsJustFor(const PodSetAssignment& given, const kube::PodSpec& pod) {
  return given.PaysFor(pod) && std::ranges::all_of(given.usage.entries(), [&](const auto& used) {
           return used.first == kube::kPods ||
                  used.second == given.count * pod.requests.Get(used.first);
         });
}

void CountIn(const std::string& name, const kube::Pod& pod, std::vector<PodSet>* sets) {
  auto it = std::ranges::find(*sets, name, &PodSet::name);
  if (it == sets->end()) it = sets->insert(it, {name, 0, pod.spec});
  ++it->count;
}

}  // namespace

std::string PodSetOf(const kube::Pod& pod) {
  std::string name = DemandOf(pod);
  const std::string* written = pod.meta.Annotation(kPodSetAnnotation);
  if (written != nullptr && written->starts_with(name)) return *written;
  return name + PlaceDigest(*pod.spec);
}

bool IsOfRole(const std::string& pod_set, std::string_view role) {
  if (pod_set.size() <= kDigests + 1) return role == kOnlyRole;
  return pod_set.substr(0, pod_set.size() - kDigests - 1) == RoleName(role);
}

std::optional<std::vector<PodSet>> AsOfJob(const std::vector<PodSet>& asked,
                                           const std::vector<kube::AnyJob::PodSet>& job) {
  if (asked.size() != job.size()) return std::nullopt;
  std::vector<PodSet> all;
  for (const kube::AnyJob::PodSet& made : job) {
    const auto same = [&made](const PodSet& set) {
      return set.count == made.count && IsOfRole(set.name, made.name);
    };
    const auto set = std::ranges::find_if(asked, same);
    if (set == asked.end()) return std::nullopt;
    all.push_back({made.name, set->count, set->spec});
  }
  return all;
}

void NameByPods(std::vector<const kube::Pod*> pods, Admission* admission) {
  std::ranges::stable_partition(pods, &kube::Pod::IsBound);
  std::vector<std::string> pod_sets_of_pods;
  for (const kube::Pod* pod : pods) pod_sets_of_pods.push_back(PodSetOf(*pod));
  for (PodSetAssignment& given : admission->pod_sets) {
    if (std::ranges::count(pod_sets_of_pods, given.name) > 0) continue;
    const auto of_role = std::ranges::find_if(
        pod_sets_of_pods,
        [&given](const std::string& pod_set) { return IsOfRole(pod_set, given.name); });
    if (of_role != pod_sets_of_pods.end()) {
      given.name = *of_role;
      continue;
    }
    // Of plain pods a digest of Kueue's own: theirs is what asks for just that.
    for (size_t i = 0; i < pods.size(); ++i) {
      const std::string& set = pod_sets_of_pods[i];
      if (!IsOfRole(set, kOnlyRole) || !IsJustFor(given, *pods[i]->spec)) continue;
      if (admission->Find(set) != nullptr) continue;
      given.name = set;
      break;
    }
  }
}

PodSets GroupByPodSet(const std::vector<const kube::Pod*>& members, int64_t required) {
  PodSets sets;
  for (const kube::Pod* pod : members) {
    CountIn(PodSetOf(*pod), *pod, required-- > 0 ? &sets.required : &sets.surplus);
  }
  return sets;
}

std::set<std::string> FindUncounted(std::vector<const kube::Pod*> pods, const Admission& held,
                                    const std::set<std::string>& own, bool taken_back,
                                    std::set<std::string>* joining) {
  std::ranges::stable_partition(pods, [&](const kube::Pod* pod) {
    return pod->IsBound() || joining->contains(pod->meta.uid);
  });
  std::set<std::string> uncounted;
  std::map<std::string, int64_t> taken;
  std::vector<const kube::Pod*> beyond;
  for (const kube::Pod* pod : pods) {
    const std::string& uid = pod->meta.uid;
    bool counted = true;
    if (!own.contains(uid) || joining->contains(uid)) {
      const std::string set = PodSetOf(*pod);
      counted = ++taken[set] <= held.CountedAsNeeded(set);
    } else if (taken_back) {
      counted = false;  // nobody takes it up any more
    } else if (!pod->IsDeleting()) {
      beyond.push_back(pod);
    }
    if (!counted && !pod->IsBound()) uncounted.insert(uid);
  }
  for (const kube::Pod* pod : beyond) {
    const std::string set = PodSetOf(*pod);
    if (++taken[set] <= held.CountedAsNeeded(set)) joining->insert(pod->meta.uid);
  }
  return uncounted;
}

std::vector<std::pair<const kube::Pod*, PodSetAssignment>> MissingSurplus(
    const std::vector<const kube::Pod*>& pods, const Admission& granted, const Admission& held,
    const std::set<std::string>& own) {
  std::map<std::string, int64_t> missing;
  for (const PodSetAssignment& given : granted.surplus) missing[given.name] += given.count;
  for (const PodSetAssignment& given : held.surplus) missing[given.name] -= given.count;
  // The first of each pod set are in the gang's own.
  std::map<std::string, int64_t> needed;
  std::vector<std::pair<const kube::Pod*, PodSetAssignment>> found;
  for (const kube::Pod* pod : pods) {
    const std::string set = PodSetOf(*pod);
    if (own.contains(pod->meta.uid) || ++needed[set] <= held.CountedAsNeeded(set)) continue;
    if (missing[set]-- <= 0) continue;
    const auto given = std::ranges::find(granted.surplus, set, &PodSetAssignment::name);
    found.emplace_back(pod, given->ReducedTo(1));
  }
  return found;
}

void AddUnadmitted(const kube::ResourceList& counted, const kube::ObjectMeta& node,
                   const std::vector<const kube::ResourceFlavor*>& flavors,
                   FlavorAmounts* amounts) {
  for (const kube::ResourceFlavor* flavor : flavors) {
    const bool may_be_of_it = std::ranges::all_of(flavor->node_labels, [&](const auto& label) {
      const std::string* value = node.Label(label.first);
      return value != nullptr && *value == label.second;
    });
    if (!may_be_of_it) continue;
    for (const auto& [resource, amount] : counted.entries()) {
      int64_t& sum = (*amounts)[{flavor->meta.name, resource}];
      sum = Saturate(Amount(sum) + Amount(amount));
    }
  }
}

FlavorAmounts UnadmittedOf(
    const std::vector<const kube::Pod*>& pods, const Admission* held, const ResourceRules& rules,
    const std::vector<const kube::ResourceFlavor*>& flavors,
    const std::function<const kube::Node*(const std::string& name)>& node_of) {
  FlavorAmounts amounts;
  std::map<std::string, int64_t> taken;
  for (const kube::Pod* pod : pods) {
    if (!pod->IsBound() || pod->IsTerminal()) continue;
    const auto* given = held == nullptr ? nullptr : held->Find(PodSetOf(*pod));
    const bool counted = given != nullptr && ++taken[given->name] <= held->Counted(given->name);
    const kube::Node* node = node_of(pod->node_name);
    if (node == nullptr) continue;
    kube::ResourceList uses = rules.Count(pod->spec->requests);
    // Kueue counts templates, not what becomes of them.
    if (counted) uses = given->LackingFor(uses);
    AddUnadmitted(uses, node->meta, flavors, &amounts);
  }
  return amounts;
}

std::string FlavorsText(const PodSetAssignment& given) {
  std::string text;
  for (const auto& [resource, flavor] : given.flavors) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", resource, flavor);
  }
  return text;
}

std::set<std::string> FlavorNames(const PodSetAssignment& given) {
  std::set<std::string> names;
  for (const auto& [resource, flavor] : given.flavors) names.insert(flavor);
  return names;
}

std::set<std::string> FlavorNames(const Admission& admission) {
  std::set<std::string> names;
  for (const PodSetAssignment& given : admission.pod_sets) names.merge(FlavorNames(given));
  return names;
}

std::set<std::string> FlavorNames(const Admission& admission,
                                  const std::vector<const kube::Pod*>& pods) {
  std::set<std::string> all = FlavorNames(admission);
  if (all.size() <= 1) return all;
  std::set<std::string> names;
  for (const kube::Pod* pod : pods) {
    if (const PodSetAssignment* given = admission.Find(PodSetOf(*pod))) {
      names.merge(FlavorNames(*given));
    }
  }
  return names.empty() ? all : names;
}

bool IsGivenFlavors(const kube::Pod& pod) {
  return pod.meta.Annotation(kPodSetAnnotation) != nullptr;
}

bool HasFlavors(const kube::Pod& pod, const PodSetAssignment& given) {
  const std::string* name = pod.meta.Annotation(kPodSetAnnotation);
  const std::string* flavors = pod.meta.Annotation(kFlavorsAnnotation);
  return name != nullptr && *name == given.name && flavors != nullptr &&
         *flavors == FlavorsText(given);
}

std::set<std::string> CarriedFlavors(const kube::Pod& pod) {
  std::set<std::string> names;
  const std::string* text = pod.meta.Annotation(kFlavorsAnnotation);
  if (text == nullptr) return names;
  for (absl::string_view pair : absl::StrSplit(*text, ',')) {
    const size_t equals = pair.find('=');
    if (equals != absl::string_view::npos) names.insert(std::string(pair.substr(equals + 1)));
  }
  return names;
}

std::shared_ptr<const kube::PodSpec> SpecBeforeFlavors(const kube::Workload& workload,
                                                       const std::string& pod_set) {
  const auto set = std::ranges::find_if(workload.pod_sets, [&pod_set](const auto& each) {
    return each.name == pod_set || IsOfRole(pod_set, each.name);
  });
  return set == workload.pod_sets.end() ? nullptr : set->spec;
}

std::map<std::string, std::set<std::string>> TakeOffFlavors(
    const std::vector<const kube::Pod*>& members, const kube::Workload& workload,
    std::vector<PodSet>* pod_sets) {
  std::map<std::string, std::set<std::string>> carried;
  for (const kube::Pod* pod : members) {
    const auto set = std::ranges::find(*pod_sets, PodSetOf(*pod), &PodSet::name);
    if (set == pod_sets->end() || carried.contains(set->name)) continue;
    carried[set->name] = CarriedFlavors(*pod);
    set->spec = SpecBeforeFlavors(workload, set->name);
    if (set->spec == nullptr) return {};
  }
  return carried;
}

FlavorAdditions FlavorsFor(const kube::Pod& pod, const PodSetAssignment& given,
                           const std::string& queue,
                           const std::vector<const kube::ResourceFlavor*>& flavors) {
  FlavorAdditions added;
  for (const kube::ResourceFlavor* flavor : flavors) {
    for (const auto& [key, value] : flavor->node_labels) {
      if (!pod.spec->node_selector.contains(key)) added.node_selector.emplace(key, value);
    }
    for (size_t i = 0; i < flavor->tolerations.size(); ++i) {
      const kube::Toleration& toleration = flavor->tolerations[i];
      const auto same = [&](const FlavorAdditions::Tolerate& other) {
        return other.toleration == toleration;
      };
      if (std::ranges::find(pod.spec->tolerations, toleration) == pod.spec->tolerations.end() &&
          std::ranges::none_of(added.tolerations, same)) {
        added.tolerations.push_back({toleration, flavor->toleration_seconds[i]});
      }
    }
  }
  added.annotations = {{std::string(kPodSetAnnotation), given.name},
                       {std::string(kFlavorsAnnotation), FlavorsText(given)},
                       {std::string(kQueueAnnotation), queue}};
  return added;
}

}  // namespace muster::quota
