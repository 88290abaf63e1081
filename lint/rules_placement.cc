// Whether a node could exist on which a pod, or the whole gang, would run.
#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "kube/objects/quantity.h"
#include "kube/objects/well_known.h"
#include "lint/pool_fit.h"
#include "lint/rules.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

using cluster::AmountOf;
using cluster::InstanceType;

using kube::kCpu;
using kube::kMemory;

const InstanceType* Largest(const std::vector<const InstanceType*>& types,
                            std::string_view resource) {
  const auto largest = std::ranges::max_element(
      types, {}, [&](const InstanceType* type) { return AmountOf(*type, resource); });
  return largest == types.end() ? nullptr : *largest;
}

// The types that the pods could get, and who allows them.
struct Allowed {
  TypeSet types;
  std::string by;     // "NodePool gpu allows", "the node selector allows"
  bool told = false;  // false: nothing that was given restricts them
};

Allowed AllowedTypes(const PodTemplate& pods, const Surroundings& around) {
  Allowed allowed;
  const std::vector<Requirements> alternatives = AlternativesOf(pods);
  if (around.manifests.pools.empty() || SelectsNodeGroup(pods)) {
    for (const Requirements& needs : alternatives) {
      if (std::ranges::none_of(needs, [](const Requirement& need) {
            return cluster::IsInstanceTypeLabel(need.key);
          })) {
        return allowed;
      }
      allowed.types.Add(TypesOf(nullptr, needs, around.types));
    }
    allowed.by = "the node selector allows";
    allowed.told = true;
    return allowed;
  }
  const std::vector<const NodePool*>& pools = around.pools.For(pods);
  for (const NodePool* pool : pools) {
    for (const Requirements& needs : alternatives) {
      if (OffersAll(*pool, needs, around.types)) {
        allowed.types.Add(TypesOf(pool, needs, around.types));
      }
    }
  }
  allowed.by = Concat(PoolNames(pools), pools.size() == 1 ? " allows" : " allow");
  allowed.told = !pools.empty();
  return allowed;
}

// --- required podAffinity ---

struct OneNode {
  int64_t pods = 0;
  const PodTemplate* first = nullptr;  // whose affinity it is
  const PodAffinityTerm* term = nullptr;
  std::vector<const PodTemplate*> templates;
};

const PodAffinityTerm* HostTerm(const PodTemplate& pods, const LintGang& gang) {
  for (const PodAffinityTerm& term : pods.pod_affinity) {
    if (term.topology_key != kube::kHostnameLabel || term.restricted) continue;
    if (std::ranges::any_of(gang.templates, [&](const PodTemplate* other) {
          return SelectsLabels(term.selector, other->labels);
        })) {
      return &term;
    }
  }
  return nullptr;
}

// The pods that their affinity puts on one node: all that have it, and the one they are drawn to if
// there is only one. Where several pods without it are selected, each may have a node of its own.
OneNode PodsOnOneNode(const LintGang& gang) {
  OneNode node;
  for (const PodTemplate* pods : gang.templates) {
    const PodAffinityTerm* term = HostTerm(*pods, gang);
    if (term == nullptr || pods->pods == 0) continue;
    if (node.first == nullptr) {
      node.first = pods;
      node.term = term;
    }
    node.pods += pods->pods;
    node.templates.push_back(pods);
  }
  if (node.first == nullptr) return node;
  int64_t drawn_to = 0;
  for (const PodTemplate* pods : gang.templates) {
    if (std::ranges::find(node.templates, pods) != node.templates.end()) continue;
    if (SelectsLabels(node.term->selector, pods->labels)) {
      drawn_to += pods->pods;
      node.templates.push_back(pods);
    }
  }
  node.pods = drawn_to > 1 ? 0 : node.pods + drawn_to;
  return node;
}

std::string PreferredAffinity(const PodAffinityTerm& term) {
  std::string yaml =
      "podAffinity:\n"
      "  preferredDuringSchedulingIgnoredDuringExecution:\n"
      "    - weight: 100\n"
      "      podAffinityTerm:\n";
  return yaml + yaml::EmitYaml(term.yaml, 8);
}

bool Holds(const InstanceType& type, const OneNode& node) {
  for (const std::string_view resource : {kGpu, kNeuron, kEfa, kCpu, kMemory}) {
    int64_t sum = 0;
    for (const PodTemplate* pods : node.templates) {
      int64_t all = 0;
      if (__builtin_mul_overflow(pods->Asks(resource).value, pods->pods, &all) ||
          __builtin_add_overflow(sum, all, &sum)) {
        return false;
      }
    }
    if (sum > AmountOf(type, resource)) return false;
  }
  return true;
}

int64_t DevicesOf(const OneNode& node, std::string_view resource) {
  int64_t sum = 0;
  for (const PodTemplate* pods : node.templates) sum += pods->Asks(resource).value * pods->pods;
  return sum;
}

// --- node selection ---

std::string_view RuleFor(std::string_view key) {
  if (key == kube::kNodePoolLabel) return "nodepool-not-found";
  if (key == kube::kZoneLabel) return "zone-not-offered";
  if (key == kCapacityTypeLabel) return "capacity-type-not-offered";
  if (cluster::IsInstanceTypeLabel(key)) return "instance-type-not-allowed";
  return "node-label-not-offered";
}

bool NamesPool(const PodTemplate& pods) {
  return std::ranges::any_of(AlternativesOf(pods), [](const Requirements& needs) {
    return std::ranges::any_of(
        needs, [](const Requirement& need) { return need.key == kube::kNodePoolLabel; });
  });
}

void ReportUnoffered(const Requirement& need, const std::vector<const NodePool*>& pools,
                     const PodTemplate& pods, const LintGang& gang, Findings* findings) {
  const std::string offered = need.key == kube::kNodePoolLabel
                                  ? Concat("there is ", PoolNames(pools))
                                  : WhatIsOffered(pools, need.key);
  findings->Add(RuleFor(need.key), pods.file, need.line,
                fmt::format("{} selects {}, but {}", gang.Name(), need.ToString(), offered),
                need.key == kube::kNodePoolLabel
                    ? "name a NodePool that exists"
                    : "select what the NodePool offers, leave the line out, or let the NodePool "
                      "offer it");
}

// No pool offers all of `needs`: which of them is it?
void ExplainSelection(const Requirements& needs, const PodTemplate& pods, const LintGang& gang,
                      const Surroundings& around, Findings* findings) {
  std::vector<const NodePool*> pools;
  for (const NodePool& pool : around.manifests.pools) pools.push_back(&pool);
  for (const Requirement& need : needs) {
    if (need.key != kube::kNodePoolLabel) continue;
    std::vector<const NodePool*> named;
    std::ranges::copy_if(pools, std::back_inserter(named),
                         [&](const NodePool* pool) { return need.Accepts(pool->name); });
    if (named.empty()) {
      ReportUnoffered(need, pools, pods, gang, findings);
      return;
    }
    pools = std::move(named);
  }
  bool found = false;
  for (const Requirement& need : needs) {
    if (std::ranges::any_of(
            pools, [&](const NodePool* pool) { return Offers(*pool, need, around.types); })) {
      continue;
    }
    ReportUnoffered(need, pools, pods, gang, findings);
    found = true;
  }
  if (found || needs.empty()) return;
  std::string all;
  for (const Requirement& need : needs) Append(&all, all.empty() ? "" : ", ", need.ToString());
  findings->Add("node-label-not-offered", pods.file, needs.front().line,
                fmt::format("{} selects {}; {} offer{} each of them, but not all together",
                            gang.Name(), all, PoolNames(pools), pools.size() == 1 ? "s" : ""),
                "select what one NodePool offers at the same time");
}

// --- taints ---

bool Bars(const Taint& taint) { return taint.effect != "PreferNoSchedule"; }

const Taint* FirstUntolerated(const NodePool& pool, const std::vector<Toleration>& tolerations) {
  for (const Taint& taint : pool.taints) {
    if (Bars(taint) && std::ranges::none_of(tolerations, [&](const Toleration& toleration) {
          return toleration.Tolerates(taint);
        })) {
      return &taint;
    }
  }
  return nullptr;
}

void CheckTaints(const PodTemplate& pods, const LintGang& gang, const Surroundings& around,
                 Findings* findings) {
  std::vector<Toleration> tolerations = pods.tolerations;
  for (const ResourceFlavor* flavor : FlavorsOf(*gang.workload, around.manifests)) {
    tolerations.insert(tolerations.end(), flavor->tolerations.begin(), flavor->tolerations.end());
  }
  const Taint* barring = nullptr;
  const NodePool* barred = nullptr;
  for (const NodePool* pool : around.pools.For(pods)) {
    const Taint* taint = FirstUntolerated(*pool, tolerations);
    if (taint == nullptr) return;
    if (barring == nullptr) {
      barring = taint;
      barred = pool;
    }
  }
  if (barring == nullptr) return;
  std::string yaml = Concat("tolerations:\n  - key: ", barring->key);
  Append(&yaml, "\n    operator: Exists\n    effect: ", barring->effect, "\n");
  findings->Add("pool-taint-not-tolerated", pods.file,
                pods.tolerations_line > 0 ? pods.tolerations_line : pods.spec_line,
                fmt::format("{} doesn't tolerate taint {} of NodePool {}, so Karpenter makes no "
                            "node for it",
                            gang.Name(), barring->ToString(), barred->name),
                "tolerate it", yaml);
}

// --- devices and sizes ---

std::vector<const InstanceType*> TypesWith(const std::vector<const InstanceType*>& types,
                                           std::string_view resource, int64_t amount) {
  std::vector<const InstanceType*> left;
  std::ranges::copy_if(types, std::back_inserter(left), [&](const InstanceType* type) {
    return AmountOf(*type, resource) >= amount;
  });
  return left;
}

std::string_view Noun(std::string_view resource) {
  if (resource == kGpu) return "GPU";
  return resource == kNeuron ? "Neuron device" : "EFA device";
}

void ReportTooMany(std::string_view rule, std::string_view resource, const LocatedCount& asks,
                   const std::vector<const InstanceType*>& types, const PodTemplate& pods,
                   const LintGang& gang, const std::string& by, Findings* findings) {
  const InstanceType* largest = Largest(types, resource);
  const int64_t most = largest == nullptr ? 0 : AmountOf(*largest, resource);
  const std::string has =
      most == 0 ? Concat("no type that ", by, " has any")
                : fmt::format("the largest type that {}, {}, has {}", by, largest->name, most);
  findings->Add(
      rule, pods.file, asks.line,
      fmt::format("{} asks for {} per pod, but {}", gang.Name(),
                  Counted(asks.value, Noun(resource)), has),
      most == 0 ? Concat("use types that have ", Noun(resource), "s, or don't ask for any")
                : fmt::format(
                      "ask for at most {} per pod and make more pods, or allow larger types", most),
      most == 0 ? "" : Concat(resource, ": \"", most, "\"\n"));
}

void CheckSizes(const PodTemplate& pods, const LintGang& gang, const Surroundings& around,
                Findings* findings) {
  const Allowed allowed = AllowedTypes(pods, around);
  if (!allowed.told || allowed.types.unknown || allowed.types.empty()) return;
  std::vector<const InstanceType*> types = allowed.types.known;
  for (const std::string_view device : {kGpu, kNeuron}) {
    const LocatedCount asks = pods.Asks(device);
    if (!asks.present()) continue;
    std::vector<const InstanceType*> left = TypesWith(types, device, asks.value);
    if (!left.empty()) {
      types = std::move(left);
      continue;
    }
    ReportTooMany("gpu-count-too-large", device, asks, types, pods, gang, allowed.by, findings);
    return;
  }
  // Types without GPUs can have EFA devices, and the table doesn't have these.
  if (!pods.Asks(kGpu).present() && !pods.Asks(kNeuron).present()) return;
  if (const LocatedCount asks = pods.Asks(kEfa); asks.present()) {
    std::vector<const InstanceType*> left = TypesWith(types, kEfa, asks.value);
    if (left.empty()) {
      const bool some = AmountOf(*Largest(types, kEfa), kEfa) > 0;
      ReportTooMany(some ? "efa-count-too-large" : "efa-not-supported", kEfa, asks, types, pods,
                    gang, allowed.by, findings);
      return;
    }
    types = std::move(left);
  }
  for (const std::string_view resource : {kCpu, kMemory}) {
    const LocatedCount asks = pods.Asks(resource);
    if (!asks.present()) continue;
    std::vector<const InstanceType*> left = TypesWith(types, resource, asks.value);
    if (!left.empty()) {
      types = std::move(left);
      continue;
    }
    const kube::QuantityUnit unit = kube::UnitOf(resource);
    const InstanceType* largest = Largest(types, resource);
    findings->Add(
        "resources-too-large", pods.file, asks.line,
        fmt::format("{} asks for {} {} per pod, but the largest type with its devices "
                    "that {}, {}, has {}",
                    gang.Name(), kube::FormatQuantity(asks.value, unit), resource, allowed.by,
                    largest->name, kube::FormatQuantity(AmountOf(*largest, resource), unit)),
        "ask for less than the type has: the kubelet and the system take their share");
    return;
  }
}

void CheckEfaSetup(const PodTemplate& pods, const LintGang& gang, Findings* findings) {
  for (const Container& container : pods.containers) {
    const LocatedCount efa = container.Asks(kEfa);
    if (!efa.present() || pods.incomplete) continue;
    if (!container.Asks(kHugePages).present()) {
      findings->Add(
          "efa-without-hugepages", pods.file, efa.line,
          fmt::format("container {} of {} has {} but no {}: libfabric can't have its "
                      "buffers there",
                      container.name, gang.Name(), Counted(efa.value, "EFA device"), kHugePages),
          "ask for huge pages, and for cpu or memory beside them",
          Concat("limits:\n  ", kEfa, ": \"", efa.value, "\"\n  ", kHugePages,
                 ": 5120Mi\n  memory: 32000Mi\n"));
    }
    if (container.shm_volume.empty() ||
        std::ranges::find(pods.memory_volumes, container.shm_volume) == pods.memory_volumes.end()) {
      findings->Add("efa-without-shm", pods.file, efa.line,
                    fmt::format("container {} of {} has {}, but {} at /dev/shm: what the runtime "
                                "gives is 64 MiB, too small for NCCL",
                                container.name, gang.Name(), Counted(efa.value, "EFA device"),
                                container.shm_volume.empty() ? "no volume" : "no memory volume"),
                    "mount a memory volume there",
                    "volumeMounts:\n  - name: shm\n    mountPath: /dev/shm\n"
                    "volumes:\n  - name: shm\n    emptyDir:\n      medium: Memory\n");
    }
  }
}

}  // namespace

void CheckPodAffinity(const LintGang& gang, const Surroundings& around, Findings* findings) {
  const OneNode node = PodsOnOneNode(gang);
  if (node.pods <= 1) return;
  const Allowed allowed = AllowedTypes(*node.first, around);
  std::string largest = "no node is known to hold them";
  for (const std::string_view resource : {kGpu, kNeuron}) {
    if (DevicesOf(node, resource) == 0) continue;
    largest = fmt::format("that takes {} on one node",
                          Counted(DevicesOf(node, resource), Noun(resource)));
    const InstanceType* type = Largest(allowed.types.known, resource);
    if (allowed.told && type != nullptr) {
      Append(&largest, ", and the largest type that ", allowed.by, ", ", type->name, ", has ",
             AmountOf(*type, resource));
    }
  }
  if (allowed.told) {
    if (allowed.types.unknown || allowed.types.others) return;
    if (std::ranges::any_of(allowed.types.known,
                            [&](const InstanceType* type) { return Holds(*type, node); })) {
      return;
    }
  } else if (!node.first->WantsDevices()) {
    return;
  }
  const auto add = allowed.told ? &Findings::Add : &Findings::AddWarning;
  (findings->*add)(
      "pod-affinity-one-node", node.first->file, node.term->line,
      fmt::format("required podAffinity on {} asks for {} of {} on one node; {}",
                  kube::kHostnameLabel, Counted(node.pods, "pod"), gang.Name(), largest),
      "prefer it instead of requiring it, or leave it out: Muster puts a gang on neighbouring "
      "nodes, "
      "in one zone where one has room",
      PreferredAffinity(*node.term));
}

void CheckNodeSelection(const LintGang& gang, const Surroundings& around, Findings* findings) {
  if (around.manifests.pools.empty()) return;
  for (const PodTemplate* pods : gang.templates) {
    // Pods without devices may run where no NodePool is needed.
    if (SelectsNodeGroup(*pods) || (!pods->WantsDevices() && !NamesPool(*pods))) continue;
    if (!around.pools.For(*pods).empty()) {
      if (!pods->incomplete) CheckTaints(*pods, gang, around, findings);
      continue;
    }
    ExplainSelection(AlternativesOf(*pods).front(), *pods, gang, around, findings);
  }
}

void CheckDevices(const LintGang& gang, const Surroundings& around, Findings* findings) {
  for (const PodTemplate* pods : gang.templates) {
    if (!pods->WantsDevices()) continue;
    CheckSizes(*pods, gang, around, findings);
    CheckEfaSetup(*pods, gang, findings);
  }
}

}  // namespace muster::lint
