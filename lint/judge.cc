#include "lint/judge.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "cluster/feasibility.h"
#include "cluster/volumes.h"
#include "coscheduling/engine.h"
#include "coscheduling/labels.h"
#include "coscheduling/provisioning/placeability.h"
#include "kube/objects/decode.h"
#include "kube/objects/topology_asked.h"
#include "kube/objects/well_known.h"
#include "lint/one_node.h"
#include "lint/pool_fit.h"
#include "lint/text.h"
#include "muster/v1/admission.pb.h"
#include "quota/flavor_terms.h"
#include "writes/action_requests.h"

namespace muster::lint {
namespace {

using coscheduling::Engine;
using coscheduling::EngineOptions;
using coscheduling::Observed;
using coscheduling::QuotaMode;
using coscheduling::Reason;

// A PodGroup, a Workload and its status come one after the other; nothing more is waited for.
constexpr int kSteps = 6;

// Reasons that nothing but another manifest does away with.
bool IsOfManifests(v1::ReasonCode code) {
  switch (code) {
    case v1::POD_GROUP_NOT_FOUND:
    case v1::POD_GROUP_INVALID:
    case v1::MEMBERS_DISAGREE:
    case v1::MEMBER_INVALID:
    case v1::MEMBER_NOT_SUPPORTED:
    case v1::MIN_MEMBER_UNREACHABLE:
    case v1::NATIVE_POD_GROUP:
    case v1::QUEUE_NOT_FOUND:
    case v1::QUEUE_INVALID:
    case v1::QUEUE_STOPPED:
    case v1::NAMESPACE_NOT_SELECTED:
    case v1::RESOURCE_NOT_COVERED:
    case v1::FLAVOR_MISMATCH:
    case v1::QUOTA_TOO_SMALL:
    case v1::PRIORITY_CLASS_NOT_FOUND:
      return true;
    default:
      return false;
  }
}

std::string GroupOf(const kube::Pod& pod) {
  const std::string* group = pod.meta.Label(kube::kPodGroupLabel);
  return group == nullptr ? "" : *group;
}

// PodGroups as they are by now, whose records are written to them.
using Groups = std::map<std::string, kube::PodGroup>;

void Answer(const coscheduling::Action& action, absl::Time now, Groups* groups, Engine* engine) {
  if (const auto* record = std::get_if<coscheduling::WriteRecord>(&action)) {
    const auto group = groups->find(record->group.name_space + "/" + record->group.name);
    if (group == groups->end()) return;
    kube::ObjectMeta& meta = group->second.meta;
    meta.annotations[std::string(coscheduling::kRecordAnnotation)] = record->record;
    meta.resource_version += "0";
    engine->Upsert(group->second);
  } else if (const auto* create = std::get_if<coscheduling::CreatePodGroup>(&action)) {
    kube::PodGroup group;
    group.meta.name = create->name;
    group.meta.name_space = create->name_space;
    group.meta.uid = "made/" + create->name_space + "/" + create->name;
    group.meta.resource_version = "1";
    group.meta.owners = create->owners;
    group.min_member = create->min_member;
    group.schedule_timeout_seconds = create->schedule_timeout_seconds;
    (*groups)[group.meta.FullName()] = group;
    engine->Upsert(std::move(group));
  } else if (const auto* write = std::get_if<coscheduling::WriteWorkload>(&action)) {
    nlohmann::json made =
        nlohmann::json::parse(writes::ToRequest(action, now)->request.body, nullptr, false);
    if (!made.is_object()) return;
    made["metadata"]["uid"] = "made/" + write->workload.name_space + "/" + write->workload.name;
    made["metadata"]["resourceVersion"] = "1";
    absl::StatusOr<kube::Workload> workload = kube::Decode<kube::Workload>(made.dump());
    if (workload.ok()) engine->Upsert(*std::move(workload));
  }
}

std::vector<Reason> ReasonsOf(bool (*wanted)(v1::ReasonCode), Groups groups, Engine* engine) {
  const absl::Time now = absl::FromUnixSeconds(1'767'225'600);
  engine->SetGatingActive(true);
  engine->SetSynced();
  engine->SetLeading(true);
  for (int i = 0; i < kSteps; ++i) {
    const coscheduling::StepOutput out = engine->Step(now);
    if (out.actions.empty()) break;
    for (const coscheduling::NumberedAction& each : out.actions) {
      Answer(each.action, now, &groups, engine);
      engine->Finish(each.id, absl::OkStatus(), now);
    }
  }
  std::vector<Reason> reasons;
  for (const coscheduling::GangKey& key : engine->Gangs()) {
    v1::Gang gang;
    if (!engine->Describe(key, &gang) || !wanted(gang.reason().code())) continue;
    reasons.push_back({gang.reason().code(), gang.reason().message(), gang.reason().fix()});
  }
  return reasons;
}

template <typename Kind>
const Kind* As(const Given& given) {
  return std::get_if<Kind>(given.object.get());
}

template <typename ByName>
std::string NamesOf(const ByName& objects) {
  std::string names;
  for (const auto& [name, object] : objects) Append(&names, names.empty() ? "" : ", ", name);
  return names.empty() ? "none" : names;
}

bool NamesPool(const PodTemplate& pods) {
  return std::ranges::any_of(AlternativesOf(pods), [](const Requirements& needs) {
    return std::ranges::any_of(
        needs, [](const Requirement& need) { return need.key == kube::kNodePoolLabel; });
  });
}

}  // namespace

std::string RuleOf(v1::ReasonCode code) {
  std::string rule = v1::ReasonCode_Name(code);
  std::ranges::transform(rule, rule.begin(), [](unsigned char c) {
    return c == '_' ? '-' : static_cast<char>(std::tolower(c));
  });
  return rule;
}

struct Judge::Known {
  cluster::NodePools pools;
  // The same with static ones as if they bought as many nodes as they keep.
  cluster::NodePools standing;
  std::map<std::string, const kube::ResourceFlavor*, std::less<>> flavors;
  std::map<std::string, const kube::ClusterQueue*, std::less<>> queues;
  std::map<std::string, const kube::LocalQueue*, std::less<>> local_queues;  // "NAMESPACE/NAME"
  std::set<std::string, std::less<>> local_queue_names;
  std::map<std::string, int> queues_of_cohort;
  std::map<std::string, int32_t> priorities;  // of PriorityClasses
  bool workload_priorities = false;
  bool topologies = false;
  std::set<std::string, std::less<>> name_spaces;
  std::vector<const Observed*> others;  // that quota depends on

  void Add(const Given& given) {
    if (const auto* pool = As<kube::NodePool>(given)) {
      pools.emplace(pool->meta.name, *pool);
      kube::NodePool& keeps = standing.emplace(pool->meta.name, *pool).first->second;
      int64_t nodes = 0;
      if (keeps.is_static && ParseInt(given.yaml.At("spec.replicas").Text(), &nodes)) {
        keeps.is_static = false;
        keeps.limits.emplace().Set("nodes", nodes);
      }
    } else if (const auto* flavor = As<kube::ResourceFlavor>(given)) {
      flavors.emplace(flavor->meta.name, flavor);
    } else if (const auto* queue = As<kube::ClusterQueue>(given)) {
      queues.emplace(queue->meta.name, queue);
      ++queues_of_cohort[queue->cohort];
    } else if (const auto* local = As<kube::LocalQueue>(given)) {
      local_queues.emplace(local->meta.FullName(), local);
      local_queue_names.insert(local->meta.name);
    } else if (const auto* priority = As<kube::PriorityClass>(given)) {
      priorities.emplace(priority->meta.name, priority->value);
      others.push_back(given.object.get());
    } else if (!std::holds_alternative<kube::PodGroup>(*given.object)) {
      workload_priorities |= std::holds_alternative<kube::WorkloadPriorityClass>(*given.object);
      topologies |= std::holds_alternative<kube::Topology>(*given.object);
      if (const auto* space = As<kube::Namespace>(given)) name_spaces.insert(space->meta.name);
      others.push_back(given.object.get());
    }
  }

  const kube::LocalQueue* LocalQueueOf(const Workload& workload) const {
    const auto local = local_queues.find(workload.name_space + "/" + workload.queue.value);
    return local == local_queues.end() ? nullptr : local->second;
  }

  // Enough is known of the job's queue to ask whether it may have what it asks for.
  bool KnowsQueueOf(const Workload& workload) const {
    // Its pods may name one, or its namespace have a default.
    if (!workload.queue.present()) return !local_queues.empty();
    const kube::LocalQueue* local = LocalQueueOf(workload);
    if (local == nullptr) {
      // There are others in its namespace, or this one in another.
      const auto first = local_queues.lower_bound(workload.name_space + "/");
      const bool here =
          first != local_queues.end() && first->first.starts_with(workload.name_space + "/");
      return here || local_queue_names.contains(workload.queue.value);
    }
    return !queues.empty();
  }

  std::vector<const kube::ResourceFlavor*> FlavorsOf(const Workload& workload) const {
    std::vector<const kube::ResourceFlavor*> found;
    const kube::LocalQueue* local = LocalQueueOf(workload);
    const auto queue = local == nullptr ? queues.end() : queues.find(local->cluster_queue);
    if (queue == queues.end()) return found;
    for (const kube::ResourceGroup& group : queue->second->resource_groups) {
      for (const kube::FlavorQuotas& quotas : group.flavors) {
        const auto flavor = flavors.find(quotas.flavor);
        if (flavor != flavors.end()) found.push_back(flavor->second);
      }
    }
    return found;
  }

  // Where no Topology is given, those whose levels pods ask for, but for labels that are misspelt
  // rather: of a domain whose labels are known.
  void TellLevels(const kube::Pod& pod, Engine* engine) const {
    if (topologies) return;
    const auto domain = [](std::string_view label) { return label.substr(0, label.find('/')); };
    for (const std::string_view name : {kube::kRequiredTopology, kube::kPreferredTopology}) {
      const std::string* level = pod.meta.Annotation(name);
      if (level == nullptr || domain(*level) == domain(kube::kHostnameLabel) ||
          std::ranges::any_of(kube::UsualLevels(), [&](const std::string& usual) {
            return domain(*level) == domain(usual);
          })) {
        continue;
      }
      kube::Topology topology;
      topology.meta.name = topology.meta.uid = "with " + *level;
      topology.meta.resource_version = "1";
      topology.levels = {*level, std::string(kube::kHostnameLabel)};
      engine->Upsert(std::move(topology));
    }
  }

  // Queues as they are, or as they may be where others of their cohort, their flavors or the
  // namespaces' labels aren't known.
  // Of one job: its queue, and those that share quota with it; without a job all.
  void TellQueues(const Workload* workload, Engine* engine) const {
    const std::string name_space = workload == nullptr ? "" : workload->name_space;
    const auto is_its = [&](const kube::LocalQueue& local) {
      return workload == nullptr ||
             (local.meta.name_space == name_space &&
              (local.meta.name == workload->queue.value || !workload->queue.present()));
    };
    std::set<std::string_view> its_queues;
    for (const auto& [name, local] : local_queues) {
      if (!is_its(*local)) continue;
      its_queues.insert(local->cluster_queue);
      engine->Upsert(*local);
    }
    const auto shares = [&](const kube::ClusterQueue& queue) {
      return workload == nullptr || !queue.cohort.empty() || its_queues.contains(queue.meta.name);
    };
    std::set<std::string_view> its_flavors;
    for (const auto& [name, queue] : queues) {
      for (const kube::ResourceGroup& group : queue->resource_groups) {
        for (const kube::FlavorQuotas& quotas : group.flavors) {
          if (shares(*queue)) its_flavors.insert(quotas.flavor);
        }
      }
    }
    for (const Observed* each : others) engine->Upsert(*each);
    for (const auto& [name, flavor] : flavors) {
      if (its_flavors.contains(name)) engine->Upsert(*flavor);
    }
    for (const auto& [name, known] : queues) {
      if (!shares(*known)) continue;
      kube::ClusterQueue queue = *known;
      if (queue.namespace_selector && !name_spaces.contains(name_space))
        queue.namespace_selector.emplace();
      if (flavors.empty()) {
        for (const kube::ResourceGroup& group : queue.resource_groups) {
          for (const kube::FlavorQuotas& quotas : group.flavors) {
            kube::ResourceFlavor flavor;
            flavor.meta.name = flavor.meta.uid = quotas.flavor;
            flavor.meta.resource_version = "1";
            engine->Upsert(std::move(flavor));
          }
        }
      }
      if (!queue.cohort.empty() && queues_of_cohort.at(queue.cohort) < 2) {
        kube::ClusterQueue other;
        other.meta.name = other.meta.uid = "others in cohort " + queue.cohort;
        other.meta.resource_version = "1";
        other.cohort = queue.cohort;
        other.resource_groups = queue.resource_groups;
        for (kube::ResourceGroup& group : other.resource_groups) {
          for (kube::FlavorQuotas& quotas : group.flavors) {
            for (kube::ResourceQuota& quota : quotas.resources) {
              quota = {quota.resource, int64_t{1} << 60, std::nullopt, std::nullopt};
            }
          }
        }
        engine->Upsert(std::move(other));
      }
      engine->Upsert(std::move(queue));
    }
  }
};

Judge::Judge(const Manifests& known, const cluster::InstanceTypes& types,
             std::string scheduler_name)
    : manifests_(known), types_(types), scheduler_name_(std::move(scheduler_name)) {
  auto all = std::make_unique<Known>();
  for (const Given& given : known.given) all->Add(given);
  known_ = std::move(all);
}

Judge::~Judge() = default;

// By QueueFaults, at the queue itself.
bool Judge::IsTold(const coscheduling::Reason& reason) const {
  const bool of_queue =
      reason.code == v1::QUEUE_INVALID ||
      (reason.code == v1::QUEUE_NOT_FOUND && reason.message.starts_with("ClusterQueue"));
  return of_queue && std::ranges::any_of(manifests_.given, [](const Given& given) {
           return given.yaml.present() && std::holds_alternative<kube::ClusterQueue>(*given.object);
         });
}

// "; there is PodGroup a/x, a/y"
std::string Judge::NamesThereAre(const Reason& reason) const {
  std::string names;
  const auto add = [&]<typename Kind>(std::string_view kind, const Given& given) {
    const auto* object = As<Kind>(given);
    if (object == nullptr) return;
    Append(&names, names.empty() ? Concat("; there is ", kind, " ") : std::string(", "),
           object->meta.FullName());
  };
  for (const Given& given : manifests_.given) {
    switch (reason.code) {
      case v1::POD_GROUP_NOT_FOUND:
        add.operator()<kube::PodGroup>("PodGroup", given);
        break;
      case v1::QUEUE_NOT_FOUND:
        add.operator()<kube::LocalQueue>("LocalQueue", given);
        break;
      case v1::PRIORITY_CLASS_NOT_FOUND:
        if (reason.message.starts_with("Workload")) {
          add.operator()<kube::WorkloadPriorityClass>("WorkloadPriorityClass", given);
        } else {
          add.operator()<kube::PriorityClass>("PriorityClass", given);
        }
        break;
      case v1::MEMBER_INVALID:
        if (const auto* topology = As<kube::Topology>(given);
            topology != nullptr && reason.message.find("-topology names") != std::string::npos) {
          Append(&names, "; Topology ", topology->meta.name, " has");
          for (const std::string& level : topology->levels) Append(&names, " ", level);
        }
        break;
      default:
        break;
    }
  }
  return names;
}

std::vector<QueueFault> Judge::QueueFaults() const {
  std::vector<QueueFault> faults;
  if (manifests_.quota_mode != QuotaMode::kInternal || known_->queues.empty()) return faults;
  Engine engine{EngineOptions()};
  known_->TellQueues(nullptr, &engine);
  ReasonsOf(IsOfManifests, {}, &engine);
  std::vector<v1::Queue> queues;
  engine.DescribeQueues(&queues);
  for (const Given& given : manifests_.given) {
    if (!given.yaml.present()) continue;
    const auto* queue = As<kube::ClusterQueue>(given);
    const auto* local = As<kube::LocalQueue>(given);
    if (queue == nullptr && local == nullptr) continue;
    const kube::ObjectMeta& meta = queue != nullptr ? queue->meta : local->meta;
    for (const v1::Queue& each : queues) {
      if (each.error().empty() || each.name() != meta.name ||
          each.namespace_() != meta.name_space) {
        continue;
      }
      const bool lost = local != nullptr && !known_->queues.contains(local->cluster_queue);
      if (local != nullptr && !lost && local->error.empty()) continue;  // it is its ClusterQueue's
      const std::string named =
          Concat(queue != nullptr ? "ClusterQueue " : "LocalQueue ", meta.FullName());
      const size_t path = each.error().starts_with("spec.") ? each.error().find(": ") : 0;
      std::string fix = path == 0 || path == std::string::npos
                            ? Concat("correct ", named)
                            : Concat("correct ", each.error().substr(0, path), " of ", named);
      if (each.error().find("flavors[") < path &&
          each.error().find("want an object") != std::string::npos) {
        Append(&fix, "; each flavor is an object with its name and its own quotas");
      }
      if (const size_t end = each.error().find(" is missing)"); end != std::string::npos) {
        const size_t start = each.error().rfind('(', end) + 1;
        Append(&fix, ": add ", each.error().substr(start, end - start), " with its nominalQuota");
      }
      if (lost) Append(&fix, "; there is ClusterQueue ", NamesOf(known_->queues));
      if (queue != nullptr && each.error().find("ResourceFlavor") != std::string::npos) {
        Append(&fix, "; there is ResourceFlavor ", NamesOf(known_->flavors));
      }
      faults.push_back({{lost ? v1::QUEUE_NOT_FOUND : v1::QUEUE_INVALID,
                         Concat(named, " admits nothing: ", each.error()), std::move(fix)},
                        &given});
    }
  }
  return faults;
}

std::map<std::string, kube::PodGroup> Judge::TellGang(const Workload& workload,
                                                      const MadePods& made, Engine* engine) const {
  Groups groups;
  bool some_group = false;
  for (const Given& given : manifests_.given) {
    const auto* group = As<kube::PodGroup>(given);
    if (group == nullptr) continue;
    some_group = true;
    if (group->meta.name_space == workload.name_space) groups[group->meta.FullName()] = *group;
  }
  // The PodGroups that are named, if none is given that could be meant.
  std::map<std::string, int64_t> named;
  for (const kube::Pod& pod : made.pods) {
    if (const std::string name = GroupOf(pod); !name.empty()) ++named[name];
  }
  for (const auto& [name, pods] : named) {
    if (some_group) break;
    kube::PodGroup group;
    group.meta.name = name;
    group.meta.name_space = workload.name_space;
    group.meta.uid = "named/" + name;
    group.meta.resource_version = "1";
    group.min_member = pods;
    groups[group.meta.FullName()] = std::move(group);
  }
  for (const auto& [name, group] : groups) engine->Upsert(group);
  for (const Observed& owner : made.owners) engine->Upsert(owner);
  for (const kube::Pod& each : made.pods) {
    kube::Pod pod = each;
    const auto priority = known_->priorities.find(pod.priority_class_name);
    if (priority != known_->priorities.end()) pod.priority = priority->second;
    engine->Upsert(std::move(pod));
  }
  return groups;
}

std::vector<Judgement> Judge::Membership(const Workload& workload, const MadePods& made) const {
  if (made.pods.empty()) return {};
  EngineOptions options;
  options.scheduler_name = scheduler_name_;
  options.quota = known_->KnowsQueueOf(workload) ? manifests_.quota_mode : QuotaMode::kOff;
  options.resources = manifests_.resources;
  Engine engine(std::move(options));
  known_->TellQueues(&workload, &engine);
  for (const kube::Pod& pod : made.pods) known_->TellLevels(pod, &engine);
  const Groups groups = TellGang(workload, made, &engine);
  std::vector<Judgement> found;
  for (Reason& reason : ReasonsOf(IsOfManifests, groups, &engine)) {
    const bool of_class = reason.code == v1::PRIORITY_CLASS_NOT_FOUND;
    if (of_class && !known_->workload_priorities && reason.message.starts_with("Workload"))
      continue;
    if (of_class && known_->priorities.empty() && !reason.message.starts_with("Workload")) continue;
    if (IsTold(reason)) continue;
    Append(&reason.fix, NamesThereAre(reason));
    found.push_back({std::move(reason), nullptr, "", 0});
  }
  return found;
}

std::vector<Judgement> Judge::Place(const LintGang& gang, const MadePods& made) const {
  if (known_->pools.empty()) return SizesOfTypes(gang, made);
  std::vector<const kube::ResourceFlavor*> flavors = known_->FlavorsOf(*gang.workload);
  if (flavors.empty()) flavors.push_back(nullptr);
  std::vector<Judgement> found;
  for (const kube::ResourceFlavor* flavor : flavors) {
    std::map<const kube::PodSpec*, std::shared_ptr<const kube::PodSpec>> with_flavor;
    std::map<const kube::PodSpec*, const PodTemplate*> templates;
    std::vector<kube::Pod> pods;
    for (size_t i = 0; i < made.pods.size(); ++i) {
      const PodTemplate& its = *made.templates[i];
      // Pods without devices may run where no NodePool is needed.
      if (std::ranges::count(gang.templates, &its) == 0 || SelectsNodeGroup(its) ||
          (!its.WantsDevices() && !NamesPool(its))) {
        continue;
      }
      kube::Pod pod = made.pods[i];
      if (flavor != nullptr) {
        auto& spec = with_flavor[made.pods[i].spec.get()];
        if (spec == nullptr) {
          spec = std::make_shared<const kube::PodSpec>(quota::WithFlavor(*pod.spec, *flavor));
        }
        pod.spec = spec;
      }
      templates.emplace(pod.spec.get(), &its);
      pods.push_back(std::move(pod));
    }
    if (pods.empty()) return {};
    std::vector<const kube::Pod*> asked;
    for (const kube::Pod& pod : pods) asked.push_back(&pod);
    const LocatedCount least = gang.MinMember();
    const bool all = pods.size() == static_cast<size_t>(gang.pods);
    const int64_t required = all && least.present() && least.value < gang.pods
                                 ? least.value
                                 : static_cast<int64_t>(pods.size());
    const cluster::Snapshot nothing;
    std::optional<Judgement> first;
    for (const cluster::Demand& demand : cluster::DemandsOf(nothing, asked, required)) {
      const cluster::Feasibility verdict = cluster::JudgeFeasibility(
          demand, known_->pools, cluster::PoolLimits::kWhole, nothing, types_);
      if (first || !verdict.refusal) continue;
      // What static pools keep may do.
      const bool lacks = verdict.verdict == cluster::Feasibility::Verdict::kInfeasible ||
                         cluster::JudgeFeasibility(demand, known_->standing,
                                                   cluster::PoolLimits::kWhole, nothing, types_)
                                 .verdict == cluster::Feasibility::Verdict::kInfeasible;
      if (!lacks) continue;
      const auto its = templates.find(demand.spec.get());
      first = {coscheduling::ReasonFor(*verdict.refusal),
               its == templates.end() ? nullptr : its->second, "", 0};
    }
    if (!first) return {};
    if (found.empty()) found.push_back(*std::move(first));
  }
  return found;
}

// Without NodePools the types that the pods select themselves are those that any could make.
std::vector<Judgement> Judge::SizesOfTypes(const LintGang& gang, const MadePods& made) const {
  cluster::NodePools any;
  kube::NodePool& pool = any["of any kind"];
  pool.meta.name = "of any kind";
  pool.node_class_group = "karpenter.k8s.aws";
  const auto keep_types = [](std::vector<kube::Requirement>* all) {
    std::erase_if(*all, [](const kube::Requirement& each) {
      return !cluster::IsInstanceTypeLabel(each.key);
    });
  };
  std::map<const kube::PodSpec*, std::shared_ptr<const kube::PodSpec>> by_types;
  std::map<const kube::PodSpec*, const PodTemplate*> templates;
  std::vector<kube::Pod> pods;
  for (size_t i = 0; i < made.pods.size(); ++i) {
    const PodTemplate& its = *made.templates[i];
    if (std::ranges::count(gang.templates, &its) == 0 || !its.WantsDevices()) continue;
    auto& spec = by_types[made.pods[i].spec.get()];
    if (spec == nullptr) {
      kube::PodSpec only = *made.pods[i].spec;
      only.node_selector = {};
      for (const auto& [key, value] : made.pods[i].spec->node_selector) {
        if (cluster::IsInstanceTypeLabel(key)) only.node_selector[key] = value;
      }
      bool selects = !only.node_selector.empty();
      if (auto& terms = only.affinity.required_node_terms) {
        for (kube::NodeSelectorTerm& term : *terms) {
          term.match_fields.clear();
          keep_types(&term.match_expressions);
          selects = selects || !term.match_expressions.empty();
        }
        // A term that says nothing of types allows all.
        if (std::ranges::any_of(*terms, [](const kube::NodeSelectorTerm& term) {
              return term.match_expressions.empty();
            })) {
          terms.reset();
        }
      }
      if (!selects) return {};
      spec = std::make_shared<const kube::PodSpec>(std::move(only));
    }
    kube::Pod& pod = pods.emplace_back(made.pods[i]);
    pod.spec = spec;
    templates.emplace(spec.get(), &its);
  }
  std::vector<const kube::Pod*> asked;
  for (const kube::Pod& pod : pods) asked.push_back(&pod);
  const cluster::Snapshot nothing;
  for (const cluster::Demand& demand :
       cluster::DemandsOf(nothing, asked, static_cast<int64_t>(asked.size()))) {
    const cluster::Feasibility verdict =
        cluster::JudgeFeasibility(demand, any, cluster::PoolLimits::kWhole, nothing, types_);
    if (verdict.verdict != cluster::Feasibility::Verdict::kInfeasible) continue;
    const auto its = templates.find(demand.spec.get());
    return {{coscheduling::ReasonFor(*verdict.refusal),
             its == templates.end() ? nullptr : its->second, "", 0}};
  }
  return {};
}

namespace {

constexpr size_t kMostPlaced = 64;  // pods whose places are looked for
constexpr size_t kMostNodes = 400;  // among which they are

// What ties pods to each other, or to places; and where in their spec it stands.
enum class Tie { kNone, kAffinity, kAntiAffinity, kSpread, kVolumes };
constexpr std::array<std::pair<Tie, const char*>, 4> kTies = {{
    {Tie::kAffinity, "affinity.podAffinity"},
    {Tie::kAntiAffinity, "affinity.podAntiAffinity"},
    {Tie::kSpread, "topologySpreadConstraints"},
    {Tie::kVolumes, "volumes"},
}};

bool Has(const kube::PodSpec& spec, Tie tie) {
  switch (tie) {
    case Tie::kNone:
      return false;
    case Tie::kAffinity:
      return !spec.affinity.required_pod_affinity.empty();
    case Tie::kAntiAffinity:
      return !spec.affinity.required_pod_anti_affinity.empty();
    case Tie::kSpread:
      return std::ranges::any_of(spec.topology_spread,
                                 &kube::TopologySpreadConstraint::do_not_schedule);
    case Tie::kVolumes:
      return !spec.persistent_volume_claims.empty();
  }
  return false;
}

void Drop(Tie tie, kube::PodSpec* spec) {
  if (tie == Tie::kAffinity) spec->affinity.required_pod_affinity.clear();
  if (tie == Tie::kAntiAffinity) spec->affinity.required_pod_anti_affinity.clear();
  if (tie == Tie::kSpread) spec->topology_spread.clear();
  if (tie == Tie::kVolumes) spec->persistent_volume_claims.clear();
}

bool AnyHas(const MadePods& made, Tie tie) {
  return std::ranges::any_of(made.pods, [&](const kube::Pod& pod) { return Has(*pod.spec, tie); });
}

std::string TextOf(const kube::LabelSelector& selector) {
  std::string text;
  for (const kube::Requirement& each : selector.requirements) {
    Append(&text, text.empty() ? "" : ", ",
           each.op == kube::SelectorOperator::kIn && each.values.size() == 1
               ? Concat(each.key, "=", each.values.front())
               : each.ToString());
  }
  return text;
}

// "over topology.kubernetes.io/zone to pods with app=train"
std::string TextOf(const std::vector<kube::PodAffinityTerm>& terms) {
  std::string text;
  for (const kube::PodAffinityTerm& term : terms) {
    Append(&text, text.empty() ? " over " : ", over ", term.topology_key);
    if (term.selector) Append(&text, " to pods with ", TextOf(*term.selector));
  }
  return text;
}

// More than any gang would try where the NodePool doesn't say.
const std::vector<std::string>& SomeZones() {
  static const auto* zones = new std::vector<std::string>{"a", "b", "c", "d", "e", "f"};
  return *zones;
}

std::vector<std::string> ZonesOf(const kube::NodePool& pool, const kube::PodSpec& spec) {
  std::vector<std::string> zones = SomeZones();
  for (const kube::Requirement& each : pool.requirements) {
    if (each.key == kube::kZoneLabel && each.op == kube::SelectorOperator::kIn) zones = each.values;
  }
  if (const auto asked = spec.node_selector.find(kube::kZoneLabel);
      asked != spec.node_selector.end()) {
    zones = {asked->second};
  }
  return zones;
}

std::set<std::string> TopologyKeys(const kube::PodSpec& spec) {
  std::set<std::string> keys;
  for (const auto* terms :
       {&spec.affinity.required_pod_affinity, &spec.affinity.required_pod_anti_affinity}) {
    for (const kube::PodAffinityTerm& term : *terms) keys.insert(term.topology_key);
  }
  for (const kube::TopologySpreadConstraint& each : spec.topology_spread) {
    keys.insert(each.topology_key);
  }
  return keys;
}

}  // namespace

std::optional<Reason> Judge::ShortOfRoom(const LintGang& gang, const MadePods& made, int without,
                                         std::set<std::string>* all_zones) const {
  EngineOptions options;
  options.scheduler_name = scheduler_name_;
  options.quota = QuotaMode::kOff;
  Engine engine(std::move(options));
  // On which nodes there are volumes that somebody makes isn't known.
  const auto is_of_made_volumes = [&](const kube::PersistentVolumeClaim& claim) {
    return claim.volume_name.empty() &&
           std::ranges::any_of(manifests_.given, [&](const Given& given) {
             const auto* storage_class = As<kube::StorageClass>(given);
             return storage_class != nullptr && storage_class->meta.name == claim.storage_class &&
                    storage_class->provisioner == kube::kNoProvisioner;
           });
  };
  bool claims = false;
  std::set<std::string> untold;
  for (const Given& given : manifests_.given) {
    if (const auto* claim = As<kube::PersistentVolumeClaim>(given)) {
      if (is_of_made_volumes(*claim)) {
        untold.insert(claim->meta.FullName());
        continue;
      }
      claims = true;
      kube::PersistentVolumeClaim bound = *claim;
      bound.bound = true;  // by the time that it must be
      engine.Upsert(std::move(bound));
    } else if (std::holds_alternative<kube::PersistentVolume>(*given.object) ||
               std::holds_alternative<kube::StorageClass>(*given.object)) {
      engine.Upsert(*given.object);
    }
  }
  MadePods placed = made;
  std::map<const kube::PodSpec*, std::shared_ptr<const kube::PodSpec>> specs;
  int node_count = 0;
  for (kube::Pod& pod : placed.pods) {
    auto& spec = specs[pod.spec.get()];
    if (spec == nullptr) {
      kube::PodSpec with = *pod.spec;
      Drop(static_cast<Tie>(without), &with);
      // What isn't given is as it should be.
      if (!claims) with.persistent_volume_claims.clear();
      std::erase_if(with.persistent_volume_claims, [&](const std::string& claim) {
        return untold.contains(cluster::FullClaimName(pod, claim));
      });
      spec = std::make_shared<const kube::PodSpec>(with);
      const int64_t count = static_cast<int64_t>(placed.pods.size());
      for (const auto& [name, pool] : known_->pools) {
        if (cluster::WhyPoolCannotHold(pool, with, types_)) continue;
        for (const std::string& zone : ZonesOf(pool, with)) {
          if (static_cast<size_t>(node_count + count) > kMostNodes) return std::nullopt;
          all_zones->insert(zone);
          for (int64_t i = 0; i < count; ++i) {
            kube::Node node;
            node.meta.name = node.meta.uid = Concat("node-", ++node_count);
            node.meta.resource_version = "1";
            node.meta.labels = pool.labels;
            for (const std::string& key : TopologyKeys(*pod.spec)) node.meta.labels[key] = zone;
            for (const auto& [key, value] : with.node_selector) node.meta.labels[key] = value;
            node.meta.labels[std::string(kube::kNodePoolLabel)] = name;
            node.meta.labels[std::string(kube::kZoneLabel)] = zone;
            for (const char* label : {kube::kRegisteredLabel, kube::kInitializedLabel}) {
              node.meta.labels[label] = "true";
            }
            node.meta.labels[std::string(kube::kHostnameLabel)] = node.meta.name;
            node.taints = pool.taints;
            node.ready = true;
            for (const auto& [resource, amount] : with.requests.entries()) {
              int64_t room = 0;
              if (__builtin_mul_overflow(amount, count, &room)) room = INT64_MAX / 2;
              node.allocatable.Set(resource, room);
            }
            node.capacity = node.allocatable;
            engine.Upsert(std::move(node));
          }
        }
      }
    }
    pod.spec = spec;
  }
  if (node_count == 0) return std::nullopt;
  const Groups groups = TellGang(*gang.workload, placed, &engine);
  const auto lacks_room = [](v1::ReasonCode code) { return code == v1::CAPACITY_SHORT; };
  std::vector<Reason> reasons = ReasonsOf(lacks_room, groups, &engine);
  if (reasons.empty()) return std::nullopt;
  return std::move(reasons.front());
}

std::string Judge::FixOfTie(int tie, const kube::PodSpec& spec, const std::string& zones) const {
  const std::string elsewhere =
      Concat("let the NodePools make nodes in more zones", zones.empty() ? "" : " than ", zones);
  switch (static_cast<Tie>(tie)) {
    case Tie::kNone:
      break;
    case Tie::kAffinity:
      return Concat("prefer podAffinity", TextOf(spec.affinity.required_pod_affinity),
                    " instead of requiring it, or correct what it selects");
    case Tie::kAntiAffinity:
      return Concat("prefer podAntiAffinity", TextOf(spec.affinity.required_pod_anti_affinity),
                    " instead of requiring it, or ", elsewhere);
    case Tie::kSpread: {
      std::string text = "loosen topologySpreadConstraints";
      for (const kube::TopologySpreadConstraint& each : spec.topology_spread) {
        Append(&text, " over ", each.topology_key);
        if (each.min_domains) Append(&text, " (minDomains ", *each.min_domains, ")");
      }
      return Concat(text, ", or ", elsewhere);
    }
    case Tie::kVolumes: {
      std::string text = "name a PersistentVolumeClaim whose volume the pods can reach";
      std::string claims;
      for (const Given& given : manifests_.given) {
        if (const auto* claim = As<kube::PersistentVolumeClaim>(given)) {
          Append(&claims, claims.empty() ? "; there is " : ", ", claim->meta.FullName());
        }
        const auto* volume = As<kube::PersistentVolume>(given);
        if (volume == nullptr || !volume->required_node_terms) continue;
        for (const kube::NodeSelectorTerm& term : *volume->required_node_terms) {
          for (const kube::Requirement& each : term.match_expressions) {
            Append(&text, "; PersistentVolume ", volume->meta.name, " is where ", each.ToString());
          }
        }
      }
      return Concat(text, claims);
    }
  }
  return "loosen what ties the pods to each other, to their volumes or to places, or " + elsewhere;
}

std::vector<Judgement> Judge::Room(const LintGang& gang, const MadePods& made) const {
  const bool ties =
      std::ranges::any_of(kTies, [&](const auto& tie) { return AnyHas(made, tie.first); });
  if (!ties || known_->pools.empty() || made.pods.size() > kMostPlaced) return {};
  std::set<std::string> all_zones;
  std::optional<Reason> reason = ShortOfRoom(gang, made, static_cast<int>(Tie::kNone), &all_zones);
  if (!reason) return {};
  std::string zones;
  for (const std::string& zone : all_zones) {
    if (std::ranges::count(SomeZones(), zone) > 0) continue;
    Append(&zones, zones.empty() ? "" : ", ", zone);
  }
  // Nobody asked for these nodes.
  constexpr std::string_view kAsked = "; nodes were asked for";
  if (const size_t at = reason->message.find(kAsked); at != std::string::npos) {
    reason->message.erase(at, kAsked.size());
  }
  // Without which of them would there be room?
  Judgement found{*std::move(reason), nullptr, "", 0};
  found.reason.fix = FixOfTie(static_cast<int>(Tie::kNone), *made.pods.front().spec, zones);
  for (const auto& [tie, place] : kTies) {
    const auto tied = std::ranges::find_if(
        made.pods, [&, its = tie](const kube::Pod& pod) { return Has(*pod.spec, its); });
    if (tied == made.pods.end()) continue;
    if (ShortOfRoom(gang, made, static_cast<int>(tie), &all_zones)) continue;
    found.reason.fix = FixOfTie(static_cast<int>(tie), *tied->spec, zones);
    found.pods = made.templates[static_cast<size_t>(tied - made.pods.begin())];
    found.at = place;
    break;
  }
  return {std::move(found)};
}

std::vector<Judgement> Judge::OneNode(const Workload& workload, const MadePods& made) const {
  std::vector<Judgement> found;
  if (known_->pools.empty()) return found;
  for (const Together& set : PodsOfOneNode(manifests_.given, workload, made)) {
    // As pods that want to be where one of them is.
    std::map<const kube::PodSpec*, std::shared_ptr<const kube::PodSpec>> together;
    std::vector<kube::Pod> pods;
    for (const size_t i : set.pods) {
      auto& spec = together[made.pods[i].spec.get()];
      if (spec == nullptr) {
        kube::PodSpec with = *made.pods[i].spec;
        kube::PodAffinityTerm term;
        term.topology_key = kube::kHostnameLabel;
        term.selector.emplace();
        with.affinity.required_pod_affinity = {std::move(term)};
        spec = std::make_shared<const kube::PodSpec>(std::move(with));
      }
      pods.push_back(made.pods[i]);
      pods.back().spec = spec;
    }
    if (pods.size() < 2 || !made.templates[set.pods.front()]->WantsDevices()) continue;
    std::vector<const kube::Pod*> asked;
    for (const kube::Pod& pod : pods) asked.push_back(&pod);
    const cluster::Snapshot nothing;
    for (const cluster::Demand& demand :
         cluster::DemandsOf(nothing, asked, static_cast<int64_t>(asked.size()))) {
      const cluster::Feasibility verdict = cluster::JudgeFeasibility(
          demand, known_->pools, cluster::PoolLimits::kWhole, nothing, types_);
      if (verdict.verdict != cluster::Feasibility::Verdict::kInfeasible ||
          demand.pods_on_one_node == 0) {
        continue;
      }
      found.push_back({{v1::CAPACITY_SHORT,
                        Concat(set.why, ", and no NodePool makes a node for all of them"), set.fix},
                       made.templates[set.pods.front()],
                       set.at,
                       set.line});
      break;
    }
  }
  return found;
}

}  // namespace muster::lint
