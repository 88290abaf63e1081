#include "lint/locate.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "cluster/instance_types.h"
#include "kube/objects/well_known.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

// Fields that reasons name; of others only those that are named by users themselves count.
constexpr std::array kFields = {"schedulerName",
                                "priorityClassName",
                                "schedulingGroup",
                                "minMember",
                                "minAvailable",
                                "minResources",
                                "resourceClaims",
                                "scheduleTimeoutSeconds",
                                "podManagementPolicy",
                                "cpu",
                                "memory",
                                "cohort",
                                "cohortName",
                                "parent",
                                "admissionChecks",
                                "admissionChecksStrategy",
                                "coveredResources",
                                "borrowingLimit",
                                "lendingLimit",
                                "namespaceSelector"};

// Fields whose values are names.
constexpr std::array kNaming = {"key", "topologyKey", "claimName"};

bool Continues(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '/';
}

bool IsNamed(std::string_view name, std::string_view text) {
  if (name.empty()) return false;
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    if (at > 0 && Continues(text[at - 1])) continue;
    if (end < text.size() && Continues(text[end])) continue;
    if (end + 1 < text.size() && text[end] == '.' && Continues(text[end + 1])) continue;
    return true;
  }
  return false;
}

struct Best {
  size_t length = 0;
  int line = 0;
  void Take(std::string_view name, int at, std::string_view text) {
    if (name.size() <= length || !IsNamed(name, text)) return;
    length = name.size();
    line = at;
  }
};

void Search(const yaml::YamlValue& value, std::string_view text, bool named_by_user, Best* best) {
  for (const yaml::YamlField& field : value.Fields()) {
    const yaml::YamlValue inner(field.value, field.line);
    const bool says = field.key.find_first_of("/.") != std::string::npos ||
                      std::ranges::find(kFields, field.key) != kFields.end();
    if (says || named_by_user) best->Take(field.key, field.line, text);
    if (std::ranges::find(kNaming, field.key) != kNaming.end()) {
      best->Take(inner.Text(), field.line, text);
      if (text.find(Concat("/", inner.Text(), " ")) != std::string_view::npos) {
        best->Take(inner.Text(), field.line, inner.Text());
      }
    }
    Search(inner, text, field.key == "nodeSelector" || field.key == "nodeLabels", best);
  }
  for (const yaml::YamlValue& item : value.Items()) Search(item, text, false, best);
}

int LineIn(const yaml::YamlValue& value, std::string_view text) {
  Best best;
  Search(value, text, false, &best);
  return best.line;
}

// The first path of the sentence, "spec.resourceGroups[1].flavors[0].name", as far as it leads into
// the object; 0 if nowhere.
int LineOfPath(const yaml::YamlValue& object, std::string_view text) {
  size_t at = 0;
  while (true) {
    at = text.find("spec", at);
    if (at == std::string_view::npos) return 0;
    const bool begins = at == 0 || !(Continues(text[at - 1]) || text[at - 1] == '.');
    at += 4;
    if (begins && at < text.size() && (text[at] == '.' || text[at] == '[')) break;
  }
  yaml::YamlValue value = object.Get("spec");
  int line = 0;
  while (value.present() && at + 1 < text.size() && (text[at] == '.' || text[at] == '[')) {
    const bool item = text[at++] == '[';
    size_t end = at;
    while (end < text.size() && (item ? text[end] != ']' : Continues(text[end]))) ++end;
    const std::string_view step = text.substr(at, end - at);
    int64_t index = 0;
    if (item && value.is_sequence()) {
      const std::vector<yaml::YamlValue> items = value.Items();
      if (!ParseInt(step, &index) || index < 0 || index >= static_cast<int64_t>(items.size())) {
        return line;
      }
      value = items[static_cast<size_t>(index)];
    } else {
      value = value.Get(step);
    }
    if (value.present()) line = value.line();
    at = end + (item ? 1 : 0);
  }
  return line;
}

// What a reason is about, in the spec of its pods.
enum class About { kAnything, kResources, kSelection, kTaints };

About AboutOf(v1::ReasonCode code) {
  switch (code) {
    case v1::RESOURCE_NOT_COVERED:
    case v1::QUOTA_TOO_SMALL:
    case v1::GPU_COUNT_TOO_LARGE:
    case v1::EFA_COUNT_TOO_LARGE:
    case v1::EFA_NOT_SUPPORTED:
    case v1::RESOURCES_TOO_LARGE:
      return About::kResources;
    case v1::ZONE_NOT_OFFERED:
    case v1::NODE_LABEL_NOT_OFFERED:
    case v1::CAPACITY_TYPE_NOT_OFFERED:
    case v1::INSTANCE_TYPE_NOT_ALLOWED:
    case v1::NODE_POOL_NOT_FOUND:
      return About::kSelection;
    case v1::POOL_TAINT_NOT_TOLERATED:
      return About::kTaints;
    default:
      return About::kAnything;
  }
}

Best InSpec(const yaml::YamlValue& spec, About about, std::string_view text) {
  Best best;
  switch (about) {
    case About::kAnything:
      Search(spec, text, false, &best);
      break;
    case About::kResources:
      for (const char* list : {"containers", "initContainers"}) {
        for (const yaml::YamlValue& container : spec.Get(list).Items()) {
          Search(container.Get("resources"), text, false, &best);
        }
      }
      break;
    case About::kSelection:
      Search(spec.Get("nodeSelector"), text, true, &best);
      Search(spec.Get("affinity"), text, false, &best);
      // Where the sentence names the NodePools' side only.
      for (const yaml::YamlField& field : spec.Get("nodeSelector").Fields()) {
        if (best.line == 0 && cluster::IsInstanceTypeLabel(field.key)) best.line = field.line;
      }
      for (const char* field : {"nodeSelector", "affinity"}) {
        if (best.line == 0 && spec.Get(field).present()) best.line = spec.Get(field).line();
      }
      break;
    case About::kTaints:
      Search(spec.Get("tolerations"), text, false, &best);
      if (best.line == 0 && spec.Get("tolerations").present()) {
        best.line = spec.Get("tolerations").line();
      }
      break;
  }
  return best;
}

bool IsOfQueue(v1::ReasonCode code) {
  return code == v1::QUEUE_NOT_FOUND || code == v1::QUEUE_INVALID || code == v1::QUEUE_STOPPED ||
         code == v1::NAMESPACE_NOT_SELECTED;
}

const Given* FindGiven(const Manifests& manifests, std::string_view kind, std::string_view name,
                       std::string_view name_space) {
  for (const Given& given : manifests.given) {
    if (given.yaml.Get("kind").Text() != kind || given.yaml.At("metadata.name").Text() != name) {
      continue;
    }
    const std::string& its = given.yaml.At("metadata.namespace").Text();
    if (name_space.empty() || (its.empty() ? "default" : its) == name_space) return &given;
  }
  return nullptr;
}

// The limit of a NodePool named in the text that is the lowest for what the pods ask for.
Place LimitOf(std::string_view text, const Workload& workload, const Manifests& manifests) {
  Place lowest;
  double least = 0;
  for (const NodePool& pool : manifests.pools) {
    if (!IsNamed(pool.name, text)) continue;
    for (const auto& [resource, limit] : pool.limits) {
      double asked = 0;
      for (const PodTemplate& pods : workload.templates) {
        asked += static_cast<double>(pods.Asks(resource).value) * static_cast<double>(pods.pods);
      }
      if (asked <= 0) continue;
      const double share = static_cast<double>(limit.value) / asked;
      if (lowest.line > 0 && share >= least) continue;
      lowest = {pool.file, limit.line};
      least = share;
    }
  }
  return lowest;
}

// "train-worker-0", or "PyTorchJob default/train, Worker".
bool NamesPods(const PodTemplate& pods, std::string_view text) {
  const std::string& role = pods.role.empty() ? pods.name : pods.role;
  if (role.empty()) return false;
  std::string lower = role;
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text.find(Concat("-", lower, "-")) < text.find(", of ") ||
         text.find(Concat(", ", role, " is ")) != std::string_view::npos || IsNamed(lower, text);
}

}  // namespace

Place PlaceOf(const Judgement& judgement, const Workload& workload, const LintGang* gang,
              const Manifests& manifests) {
  const std::string& text = judgement.reason.message;
  const v1::ReasonCode code = judgement.reason.code;
  if (judgement.line > 0) return {workload.file, judgement.line};
  if (code == v1::NODE_POOL_UNUSABLE && IsNamed("spec.replicas", text)) {
    for (const NodePool& pool : manifests.pools) {
      const yaml::YamlValue replicas = pool.yaml.At("spec.replicas");
      if (replicas.present() && IsNamed(pool.name, text)) return {pool.file, replicas.line()};
    }
  }
  if (IsOfQueue(code) && workload.queue.present()) return {workload.file, workload.queue.line};
  if (code == v1::POOL_LIMIT_BELOW_GANG) {
    if (const Place place = LimitOf(text, workload, manifests); place.line > 0) return place;
  }
  if (code == v1::POD_GROUP_INVALID || code == v1::MIN_MEMBER_UNREACHABLE) {
    if (workload.kind == "StatefulSet") return {workload.file, workload.one_by_one.line};
    const PodGroup* of_gang = gang == nullptr ? nullptr : gang->group;
    // Another part of the job may be the one that has the PodGroup.
    for (const PodGroup& each : manifests.groups) {
      const std::string name = Concat("PodGroup ", each.name_space, "/", each.name);
      if (IsNamed(name, text)) of_gang = &each;
    }
    if (of_gang != nullptr) {
      const Given* group = FindGiven(manifests, "PodGroup", of_gang->name, of_gang->name_space);
      const int line = group == nullptr ? 0 : LineIn(group->yaml.Get("spec"), text);
      if (line > 0) return {of_gang->file, line};
      const LocatedCount& least = of_gang->min_member;
      return {of_gang->file, least.present() ? least.line : of_gang->line};
    }
    if (workload.min_available.present()) return {workload.file, workload.min_available.line};
  }
  // The pods that are named, then all.
  const PodTemplate* pods = judgement.pods;
  if (pods == nullptr && workload.templates.size() == 1) pods = &workload.templates.front();
  for (const PodTemplate& each : workload.templates) {
    if (pods == nullptr && NamesPods(each, text)) pods = &each;
  }
  if (code == v1::MEMBERS_DISAGREE && IsNamed("spec.priority", text)) {
    if (pods != nullptr && pods->priority_class.present()) {
      return {pods->file, pods->priority_class.line};
    }
    for (const PodTemplate& each : workload.templates) {
      if (each.priority_class.present()) return {each.file, each.priority_class.line};
    }
  }
  if (pods != nullptr && !judgement.at.empty()) {
    for (const yaml::YamlValue& layer : pods->layers) {
      const yaml::YamlValue field = layer.At(judgement.at);
      if (!field.present()) continue;
      const bool told = pods->told_at > 0 && &layer == &pods->layers.front();
      const int line = LineIn(field, text);
      return {pods->file, told ? pods->told_at : line > 0 ? line : field.line()};
    }
  }
  const About about = AboutOf(code);
  const auto in_template = [&](const PodTemplate& each) {
    Best best;
    for (const yaml::YamlValue& layer : each.layers) {
      // A runtime's stands for the job's own line.
      const bool told = each.told_at > 0 && &layer == &each.layers.front();
      const Best in_layer = InSpec(layer, about, text);
      if (in_layer.length > best.length || best.line == 0) {
        best = in_layer;
        if (told && best.line > 0) best.line = each.told_at;
      }
    }
    if (about == About::kAnything || about == About::kResources) {
      Search(each.resources, text, false, &best);
    }
    if (about != About::kAnything) return best.line;
    if (each.told_at == 0) Search(each.metadata, text, false, &best);
    for (const auto& [key, annotation] : each.annotations) best.Take(key, annotation.line, text);
    return best.line;
  };
  if (pods != nullptr) {
    const bool by_path = about == About::kAnything && pods->told_at == 0;
    const int of_path = by_path ? LineOfPath(pods->whole, text) : 0;
    if (of_path > 0) return {pods->file, of_path};
    if (const int line = in_template(*pods); line > 0) return {pods->file, line};
    if (code == v1::MEMBERS_DISAGREE && pods->spec_line > 0) return {pods->file, pods->spec_line};
  }
  for (const PodTemplate& each : workload.templates) {
    if (pods != nullptr && code != v1::MEMBERS_DISAGREE) break;
    if (const int line = in_template(each); line > 0) return {each.file, line};
  }
  if (about == About::kAnything) {
    for (const int line :
         {LineIn(workload.yaml.Get("metadata"), text), LineOfPath(workload.yaml, text)}) {
      if (line > 0) return {workload.file, line};
    }
  }
  if (pods == nullptr && !workload.templates.empty()) pods = &workload.templates.front();
  if (pods != nullptr && code == v1::POD_AFFINITY_ONE_NODE && pods->pod_affinity_line > 0) {
    return {pods->file, pods->pod_affinity_line};
  }
  if (workload.queue.present() && code >= v1::QUEUE_NOT_FOUND &&
      code <= v1::PRIORITY_CLASS_NOT_FOUND) {
    return {workload.file, workload.queue.line};
  }
  if (pods != nullptr) return {pods->file, pods->spec_line > 0 ? pods->spec_line : pods->line};
  return {workload.file, workload.line};
}

Place PlaceOf(const QueueFault& fault) {
  const yaml::YamlValue& queue = fault.queue->yaml;
  const yaml::YamlValue leads_to = queue.At("spec.clusterQueue");
  if (leads_to.present()) return {fault.queue->file, leads_to.line()};
  const int of_path = LineOfPath(queue, fault.reason.message);
  Best best;
  Search(queue.Get("spec"), fault.reason.message, false, &best);
  for (const yaml::YamlValue& group : queue.At("spec.resourceGroups").Items()) {
    for (const yaml::YamlValue& flavor : group.Get("flavors").Items()) {
      const yaml::YamlValue name = flavor.Get("name");
      best.Take(name.Text(), name.line(), fault.reason.message);
    }
  }
  // A path into a list says more than a name does.
  if (of_path > 0 && (best.line == 0 || fault.reason.message.find("]") != std::string::npos)) {
    best.line = of_path;
  }
  return {fault.queue->file, best.line > 0 ? best.line : queue.line()};
}

}  // namespace muster::lint
