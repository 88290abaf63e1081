// Names, wherever they stand in an object: of other objects that aren't there, of labels that
// nobody gives or reads, of values that a field doesn't have. Tables of fields, and one walk.
#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "kube/objects/topology_asked.h"
#include "kube/objects/well_known.h"
#include "lint/kinds.h"
#include "lint/near.h"
#include "lint/rules.h"
#include "lint/text.h"
#include "lint/walk.h"

namespace muster::lint {
namespace {

using yaml::YamlField;
using yaml::YamlValue;

// --- other objects ---

struct Refers {
  std::string_view path;  // the last steps of the field's path
  std::string_view kind;  // which the field beside it may say otherwise
  bool namespaced = false;
  // Told whenever others of the kind are given; else only if one of them is likely meant.
  bool all = false;
  std::string_view rule = "reference-not-found";
  std::string_view so = "";
};

constexpr Refers kRefers[] = {
    {"priorityClassName", "PriorityClass", false, true, "priority-class-not-found",
     ": the API server refuses the pods"},
    {"schedulingPolicy.priorityClass", "PriorityClass"},
    {"topologyName", "Topology", false, true, "queue-invalid",
     ": jobs that ask for a level of it aren't admitted, and with Kueue none is"},
    {"runtimeRef.name", "ClusterTrainingRuntime", false, true, "operator-refused"},
    {"nodeClassRef.name", "EC2NodeClass", false, true, "reference-not-found",
     ": the NodePool makes no nodes"},
    {"cohortName", "Cohort"},
    {"spec.cohort", "Cohort"},
    {"parentName", "Cohort"},
    {"serviceAccountName", "ServiceAccount", true},
    {"persistentVolumeClaim.claimName", "PersistentVolumeClaim", true},
    {"storageClassName", "StorageClass"},
    {"configMap.name", "ConfigMap", true},
    {"configMapRef.name", "ConfigMap", true},
    {"configMapKeyRef.name", "ConfigMap", true},
    {"secret.secretName", "Secret", true},
    {"secretRef.name", "Secret", true},
    {"secretKeyRef.name", "Secret", true},
    {"spec.subdomain", "Service", true},
    {"spec.serviceName", "Service", true},
};

// Kinds that stand in for each other, so that one is easily named for the other.
constexpr std::pair<std::string_view, std::string_view> kTwins[] = {
    {"ClusterTrainingRuntime", "TrainingRuntime"},
    {"TrainingRuntime", "ClusterTrainingRuntime"},
    {"EC2NodeClass", "NodeClass"},
    {"NodeClass", "EC2NodeClass"},
};

struct Named {
  std::string name_space, name;  // of cluster-wide ones the first is empty
};

struct Reference {
  const Refers* field = nullptr;
  const WalkedObject* object = nullptr;
  std::string kind, name_space, name;
  int line = 0;
};

bool IsOfNamespaces(std::string_view kind, bool namespaced) {
  return namespaced || kind == "TrainingRuntime";
}

// "llama" of "llama-sft".
bool IsPart(std::string_view a, std::string_view b) {
  const std::string_view longer = a.size() > b.size() ? a : b;
  const std::string_view shorter = a.size() > b.size() ? b : a;
  return shorter.size() >= 3 && longer.size() > shorter.size() && longer.starts_with(shorter) &&
         longer[shorter.size()] == '-';
}

class References {
 public:
  References(const std::vector<WalkedObject>& objects, Findings* findings) : findings_(findings) {
    for (const WalkedObject& object : objects) {
      const bool cluster_wide = std::ranges::none_of(
          kRefers, [&](const Refers& each) { return each.kind == object.kind && each.namespaced; });
      there_are_[object.kind].push_back(
          {cluster_wide && object.kind != "TrainingRuntime" ? "" : object.name_space, object.name});
    }
  }

  void See(const WalkedObject& object, const WalkedField& at) {
    const auto* field =
        std::ranges::find_if(kRefers, [&](const Refers& each) { return at.Is(each.path); });
    const std::string& name = at.value.Text();
    if (field == std::end(kRefers) || name.empty() || name.starts_with("system-")) return;
    Reference reference{field, &object, std::string(field->kind), "", name, at.value.line()};
    if (const std::string& kind = at.parent.Get("kind").Text(); !kind.empty()) {
      reference.kind = kind;
    }
    if (IsOfNamespaces(reference.kind, field->namespaced)) {
      reference.name_space = object.name_space;
    }
    used_.insert(Concat(reference.kind, " ", reference.name_space, "/", name));
    all_.push_back(std::move(reference));
  }

  void Tell() {
    for (const Reference& each : all_) {
      // Cohorts are there once they are named.
      if (each.kind == "Cohort" && !there_are_.contains("Cohort")) {
        there_are_["Cohort"].push_back({"", each.name});
      }
      TellOf(each);
    }
  }

 private:
  void TellOf(const Reference& each) {
    const std::vector<Named>& known = there_are_[each.kind];
    std::string names;
    std::string elsewhere;
    std::string near;
    bool any_here = false;
    for (const Named& named : known) {
      const bool here = named.name_space == each.name_space;
      any_here |= here;
      if (named.name == each.name) {
        if (here) return;
        elsewhere = named.name_space;
      }
      if (!here) continue;
      Append(&names, names.empty() ? "" : ", ", named.name);
      if (IsMeant(each, named)) near = named.name;
    }
    std::string fix;
    for (const auto& [kind, twin] : kTwins) {
      if (kind != each.kind || !elsewhere.empty()) continue;
      for (const Named& named : there_are_[std::string(twin)]) {
        const bool here = named.name_space.empty() || named.name_space == each.object->name_space;
        if (named.name == each.name && here && fix.empty()) {
          fix = Concat(named.name, " is a ", twin, ": say kind: ", twin, " beside the name");
        }
      }
    }
    if (!fix.empty()) {
    } else if (!near.empty()) {
      fix = Concat("name ", near);
    } else if (!elsewhere.empty() && (each.field->all || !any_here)) {
      fix = fmt::format("{} {} is of namespace {}: have it in namespace {}, where the pods are",
                        each.kind, each.name, elsewhere, each.name_space);
    } else if (each.field->all && !names.empty()) {
      fix = Concat("name one that exists: ", names);
    } else {
      return;
    }
    const std::string text =
        fmt::format("{} names {} {}{}{}, which {}{}", each.object->what, each.kind, each.name_space,
                    each.name_space.empty() ? "" : "/", each.name,
                    each.field->all ? "doesn't exist" : "isn't among those given", each.field->so);
    if (findings_->HasErrorAt(each.object->file, each.line)) return;
    if (each.field->rule == "queue-invalid" || !each.field->all) {
      findings_->AddWarning(each.field->rule, each.object->file, each.line, text, fix);
    } else {
      findings_->Add(each.field->rule, each.object->file, each.line, text, fix);
    }
  }

  bool IsMeant(const Reference& each, const Named& named) const {
    if (IsNearName(each.name, named.name)) return true;
    // "train" for "train-ranks", which nobody names.
    const std::string& longer = each.name.size() > named.name.size() ? each.name : named.name;
    const std::string& shorter = each.name.size() > named.name.size() ? named.name : each.name;
    const bool part =
        IsPart(longer, shorter) || (shorter.size() >= 3 && longer.ends_with("-" + shorter));
    const bool digits = longer.find_last_of("0123456789") != shorter.find_last_of("0123456789");
    return part && !digits && each.kind != "Cohort" &&
           !used_.contains(Concat(each.kind, " ", named.name_space, "/", named.name));
  }

  Findings* const findings_;
  std::map<std::string, std::vector<Named>> there_are_;
  std::set<std::string> used_;
  std::vector<Reference> all_;
};

// --- values of fields that have few ---

struct Choices {
  std::string_view path;
  std::string_view values;  // with blanks between them
};

// Of the kinds whose schemas don't say it.
constexpr Choices kChoices[] = {
    {"accessModes.*", "ReadWriteOnce ReadOnlyMany ReadWriteMany ReadWriteOncePod"},
    {"spec.completionMode", "Indexed NonIndexed"},
    {"spec.podManagementPolicy", "OrderedReady Parallel"},
    {"spec.podReplacementPolicy", "TerminatingOrFailed Failed"},
    {"emptyDir.medium", "Memory HugePages HugePages-2Mi HugePages-1Gi"},
    {"imagePullPolicy", "Always IfNotPresent Never"},
    {"dnsPolicy", "ClusterFirst ClusterFirstWithHostNet Default None"},
    {"preemptionPolicy", "PreemptLowerPriority Never"},
    {"reclaimPolicy", "Delete Retain Recycle"},
    {"persistentVolumeReclaimPolicy", "Delete Retain Recycle"},
    {"volumeBindingMode", "Immediate WaitForFirstConsumer"},
    {"spec.volumeMode", "Filesystem Block"},
    {"unhealthyPodEvictionPolicy", "IfHealthyBudget AlwaysAllow"},
    {"ports.protocol", "TCP UDP SCTP"},
    {"taints.effect", "NoSchedule PreferNoSchedule NoExecute"},
    {"nodeTaints.effect", "NoSchedule PreferNoSchedule NoExecute"},
    {"startupTaints.effect", "NoSchedule PreferNoSchedule NoExecute"},
    {"tolerations.effect", "NoSchedule PreferNoSchedule NoExecute"},
    {"tolerations.operator", "Equal Exists"},
};

// Of labels of nodes.
constexpr Choices kLabelChoices[] = {
    {"kubernetes.io/arch", "amd64 arm64"},
    {"kubernetes.io/os", "linux windows"},
    {"karpenter.sh/capacity-type", "on-demand spot reserved"},
    {"trainer.kubeflow.org/trainjob-ancestor-step",
     "trainer dataset-initializer model-initializer"},
};

// Maps whose keys are names of parts.
constexpr Choices kKeys[] = {
    {"pytorchReplicaSpecs", "Master Worker"},
    {"mpiReplicaSpecs", "Launcher Worker"},
};

// Lists of which no two entries may have the same.
constexpr std::pair<std::string_view, std::string_view> kUnique[] = {
    {"workerGroupSpecs", "groupName"}, {"replicatedJobs", "name"}, {"volumes", "name"},
    {"volumeMounts", "mountPath"},     {"initContainers", "name"},
};

// Numbers of which the first, where it is told, must lie on the right side of the other.
struct Bound {
  std::string_view bound, of;
  bool least;
};
constexpr Bound kBounds[] = {{"minReplicas", "maxReplicas", true},
                             {"maxReplicas", "replicas", false},
                             {"minReplicas", "replicas", true}};

// "p5en", but no type of another cloud: letters, a generation, letters.
bool IsFamily(std::string_view text) {
  const size_t digits = text.find_first_of("0123456789");
  const size_t rest = text.find_first_not_of("0123456789", digits);
  const auto is_letter = [](char c) { return std::islower(static_cast<unsigned char>(c)) != 0; };
  return digits != 0 && digits != std::string_view::npos &&
         std::ranges::all_of(text.substr(0, digits), is_letter) &&
         std::ranges::all_of(text.substr(std::min(rest, text.size())), is_letter);
}

std::string Listed(std::string_view values) {
  std::string list;
  for (const std::string_view each : SplitWords(values)) {
    Append(&list, list.empty() ? "" : ", ", each);
  }
  return list;
}

class Names {
 public:
  Names(const WalkedObject& object, const std::string& scheduler,
        const std::vector<std::string_view>& levels, Findings* findings)
      : object_(object), scheduler_(scheduler), levels_(levels), findings_(findings) {}

  void See(const WalkedField& at) {
    for (const Choices& each : kChoices) {
      if (at.value.is_scalar() && at.Is(each.path)) Choose(at, each.values);
    }
    for (const Choices& each : kKeys) {
      if (at.Is(each.path)) Keys(at.value, each.values);
    }
    for (const auto& [list, name] : kUnique) {
      if (at.Is(list)) Unique(at, name);
    }
    for (const Bound& each : kBounds) {
      if (at.Name() == each.bound) Within(at, each);
    }
    if (at.Is("nodeClassRef.kind") || at.Is("nodeClassRef.group")) NodeClass(at);
    Labels(at);
    Operator(at);
    PartName(at);
    if (at.Is("spec.taints.key") && object_.kind == "NodePool") Taint(at.value);
    if (at.IsIn("annotations")) Level(at);
    if (at.Name() == "schedulerName") Scheduler(at.value);
  }

 private:
  void Add(std::string_view rule, int line, std::string_view text, const std::string& fix) {
    if (findings_->HasErrorAt(object_.file, line)) return;
    findings_->Add(rule, object_.file, line, Concat(object_.what, ": ", text), fix);
  }

  void Choose(const WalkedField& at, std::string_view values) {
    const std::string& text = at.value.Text();
    const std::vector<std::string_view> known = SplitWords(values);
    if (text.empty() || std::ranges::find(known, text) != known.end()) return;
    const std::string_view meant = Nearest(text, known);
    Add("api-refused", at.value.line(),
        fmt::format("the API server refuses {} {}: it is one of {}", at.Name(), text,
                    Listed(values)),
        meant.empty() ? Concat("write one of ", Listed(values)) : Concat("write ", meant));
  }

  void Keys(const YamlValue& map, std::string_view values) {
    const std::vector<std::string_view> known = SplitWords(values);
    for (const YamlField& field : map.Fields()) {
      // The training operator corrects the case.
      const bool there = std::ranges::any_of(known, [&](std::string_view each) {
        return field.key.empty() || each == field.key ||
               (object_.kind != "MPIJob" && each.substr(1) == field.key.substr(1) &&
                field.key.front() == each.front() + ('a' - 'A'));
      });
      if (there) continue;
      const std::string_view meant = Nearest(field.key, known);
      Add("operator-refused", field.line,
          fmt::format("its operator knows no replica type {}, only {}", field.key, Listed(values)),
          meant.empty() ? Concat("call it one of ", Listed(values)) : Concat("call it ", meant));
    }
  }

  void Unique(const WalkedField& at, std::string_view name) {
    std::map<std::string, int> lines;
    for (const YamlValue& item : at.value.Items()) {
      const YamlValue its = item.Get(name);
      if (!its.present()) continue;
      const auto [before, is_new] = lines.emplace(its.Text(), its.line());
      if (is_new) continue;
      Add("api-refused", its.line(),
          fmt::format("two of its {} have the {} {}, the other in line {}", at.Name(), name,
                      its.Text(), before->second),
          fmt::format("give one of them another {}", name));
    }
  }

  // Of AWS: the two go together.
  void NodeClass(const WalkedField& at) {
    constexpr std::pair<std::string_view, std::string_view> kClasses[] = {
        {"EC2NodeClass", "karpenter.k8s.aws"}, {"NodeClass", "eks.amazonaws.com"}};
    const std::string& kind = at.parent.Get("kind").Text();
    for (const auto& [known, group] : kClasses) {
      const bool of_kind = at.Name() == "kind";
      const bool wrong = of_kind
                             ? kind != known && kind.size() == known.size() && IsNear(kind, known)
                             : kind == known && at.value.Text() != group;
      if (!wrong) continue;
      Add("api-refused", at.value.line(),
          fmt::format("there is no {} {}{}", of_kind ? "kind of node class" : known,
                      of_kind ? "" : "of ", at.value.Text()),
          Concat("write ", of_kind ? known : group));
    }
  }

  void Within(const WalkedField& at, const Bound& each) {
    int64_t bound = 0;
    int64_t other = 0;
    if (!ParseInt(at.value.Text(), &bound) || !ParseInt(at.parent.Get(each.of).Text(), &other) ||
        (each.least ? bound <= other : bound >= other)) {
      return;
    }
    Add("operator-refused", at.value.line(),
        fmt::format("{} is {}, {} {}: the operator takes no {} than that", each.bound, bound,
                    each.of, other, each.least ? "less" : "more"),
        each.least ? fmt::format("raise {} to {} at least, or lower {} to {}", each.of, bound,
                                 each.bound, other)
                   : fmt::format("raise {} to {} at least, or lower {} to {}", each.bound, other,
                                 each.of, bound));
  }

  // What agents take off a node when they are ready.
  void Taint(const YamlValue& key) {
    if (!key.Text().ends_with("agent-not-ready") && !key.Text().ends_with("uninitialized")) return;
    Add("pool-taint-not-tolerated", key.line(),
        fmt::format("{} is a taint that is there while a node starts, and here it stays for those "
                    "who don't tolerate it",
                    key.Text()),
        fmt::format("move {} to spec.template.spec.startupTaints", key.Text()));
  }

  // How many values a condition on labels has.
  void Operator(const WalkedField& at) {
    if (!at.Is("requirements.operator") && !at.Is("matchExpressions.operator")) return;
    const std::string& text = at.value.Text();
    const size_t values = at.parent.Get("values").Items().size();
    const bool one = text == "Gt" || text == "Lt" || text == "Gte" || text == "Lte";
    const bool some = text == "In" || text == "NotIn";
    const bool none = text == "Exists" || text == "DoesNotExist";
    if (!(one && values != 1) && !(some && values == 0) && !(none && values > 0)) return;
    Add("api-refused", at.value.line(),
        fmt::format("the API server refuses operator {} with {}: it takes {}", text,
                    Counted(static_cast<int64_t>(values), "value"),
                    one    ? "one, a number"
                    : some ? "one at least"
                           : "none"),
        one    ? "leave one number in values, as a text"
        : some ? "say values, a list"
               : "leave values out, or make the operator In");
  }

  // Names of which those of Jobs, Services and pods are made.
  void PartName(const WalkedField& at) {
    const bool of_object = at.path.size() == 2 && at.Is("metadata.name") &&
                           SchemaOfKind(object_.kind, object_.yaml.Get("apiVersion").Text());
    if (!of_object && !at.Is("replicatedJobs.name") && !at.Is("workerGroupSpecs.groupName") &&
        !at.Is("containers.name") && !at.Is("volumes.name")) {
      return;
    }
    std::string right;
    for (const char c : at.value.Text()) {
      const auto letter = static_cast<unsigned char>(c);
      right += c == '_' || c == ' ' ? '-' : static_cast<char>(std::tolower(letter));
    }
    if (right == at.value.Text()) return;
    Add("api-refused", at.value.line(),
        fmt::format("the API server refuses the name {}: it takes lower case letters, digits and -",
                    at.value.Text()),
        Concat("call it ", right, ", in lower case"));
  }

  // A level of a topology that none of those given has; Muster takes some levels without one.
  void Level(const WalkedField& at) {
    const bool of_topology =
        at.Name() == kube::kRequiredTopology || at.Name() == kube::kPreferredTopology;
    if (!of_topology || levels_.empty() ||
        std::ranges::find(levels_, at.value.Text()) != levels_.end() ||
        findings_->HasErrorAt(object_.file, at.value.line())) {
      return;
    }
    std::string names;
    for (const std::string_view level : levels_) Append(&names, names.empty() ? "" : ", ", level);
    findings_->AddWarning(
        "reference-not-found", object_.file, at.value.line(),
        fmt::format(
            "{}: {} is no level of any Topology that is given, so that Kueue admits nothing "
            "of it",
            object_.what, at.value.Text()),
        Concat("name a level that there is: ", names));
  }

  void Scheduler(const YamlValue& value) {
    std::string letters;
    for (const char c : value.Text()) {
      if (std::isalpha(static_cast<unsigned char>(c)) != 0) letters += c;
    }
    const size_t same =
        static_cast<size_t>(std::ranges::mismatch(letters, scheduler_).in1 - letters.begin());
    if (value.Text() == scheduler_ || same < 8) return;
    Add("name-not-read", value.line(),
        fmt::format("schedulerName is {}, which no scheduler is called", value.Text()),
        Concat("write ", scheduler_));
  }

  void Labels(const WalkedField& at) {
    const bool selects = at.IsIn("nodeSelector") || at.IsIn("nodeLabels");
    const bool names = at.Name() == "topologyKey" || at.Name() == "nodeLabel" ||
                       at.Is("matchExpressions.key") || at.Is("requirements.key");
    const bool labels = at.IsIn("labels");
    if (selects || labels || at.IsIn("annotations")) {
      Label(at.Name(), at.value.line(), selects);
      if (selects || labels) Value(at.Name(), at.value);
    } else if (names && at.value.is_scalar()) {
      Label(at.value.Text(), at.value.line(), true);
      for (const YamlValue& value : at.parent.Get("values").Items()) Value(at.value.Text(), value);
    }
  }

  void Label(std::string_view key, int line, bool of_nodes) {
    const std::string_view meant = KeyMeant(key);
    if (meant.empty() || (of_nodes && !IsNodeKey(meant))) return;
    Add("name-not-read", line,
        of_nodes ? fmt::format("no node has a label {}", key) : fmt::format("nobody reads {}", key),
        Concat("call it ", meant));
  }

  void Value(std::string_view key, const YamlValue& value) {
    if (key == kube::kZoneLabel) Zone(value);
    const size_t dot = value.Text().find('.');
    const bool type = key == kube::kInstanceTypeLabel && IsFamily(value.Text());
    const bool family = key == "karpenter.k8s.aws/instance-family" && dot != std::string::npos;
    if ((type || family) && !value.Text().empty()) {
      Add("value-unlikely", value.line(),
          fmt::format("{} is an instance {}, and {} wants a {}", value.Text(),
                      type ? "family" : "type", key, type ? "type" : "family"),
          type ? std::string("call the label karpenter.k8s.aws/instance-family, or name a type")
               : fmt::format("write the family {}, or call the label {}",
                             value.Text().substr(0, dot), kube::kInstanceTypeLabel));
    }
    if (key.starts_with("karpenter.k8s.aws/instance-") || key == kube::kInstanceTypeLabel) {
      std::string lower = value.Text();
      std::ranges::transform(lower, lower.begin(),
                             [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      if (lower != value.Text()) {
        Add("value-unlikely", value.line(),
            fmt::format("{} is {}, and its values are in lower case", key, value.Text()),
            Concat("write ", lower));
      }
    }
    for (const Choices& each : kLabelChoices) {
      const std::vector<std::string_view> known = SplitWords(each.values);
      if (key != each.path || std::ranges::find(known, value.Text()) != known.end()) continue;
      if (value.Text().empty()) continue;
      const std::string_view meant = value.Text() == "x86_64"    ? "amd64"
                                     : value.Text() == "aarch64" ? "arm64"
                                                                 : Nearest(value.Text(), known);
      Add("value-unlikely", value.line(),
          fmt::format("{} is {}, and there is only {}", key, value.Text(), Listed(each.values)),
          meant.empty() ? Concat("write one of ", Listed(each.values)) : Concat("write ", meant));
    }
  }

  // "us-east-1a", but not the region "us-east-1", nor the zone's id "use1-az1".
  void Zone(const YamlValue& value) {
    const std::string& text = value.Text();
    const std::vector<std::string_view> parts = Split(text, "-");
    const bool is_id = parts.size() == 2 && parts[1].starts_with("az") &&
                       std::isdigit(static_cast<unsigned char>(text.back())) != 0;
    const bool is_region = parts.size() == 3 && parts[0].size() == 2 && parts[2].size() == 1 &&
                           std::isdigit(static_cast<unsigned char>(text.back())) != 0;
    if (!is_id && !is_region) return;
    Add("value-unlikely", value.line(),
        fmt::format("{} is {}, no zone", text, is_id ? "the id of a zone" : "a region"),
        is_id ? std::string("call the label topology.k8s.aws/zone-id, or name the zone")
              : Concat("name a zone of it, ", text, "a for example"));
  }

  const WalkedObject& object_;
  const std::string& scheduler_;
  const std::vector<std::string_view>& levels_;  // of all Topologies
  Findings* const findings_;
};

// --- parts of the same object ---

// Fields that name entries of lists.
struct Targets {
  std::string_view kind, path, lists;  // lists with blanks between them
  std::string_view rule = "operator-refused";
};
constexpr std::string_view kReplicatedJobs = "spec.replicatedJobs.*.name";
constexpr std::string_view kContainers =
    "spec.template.spec.containers.*.name spec.template.spec.initContainers.*.name";
constexpr Targets kTargets[] = {
    {"JobSet", "spec.successPolicy.targetReplicatedJobs.*", kReplicatedJobs},
    {"JobSet", "spec.failurePolicy.rules.*.targetReplicatedJobs.*", kReplicatedJobs},
    {"JobSet", "spec.coordinator.replicatedJob", kReplicatedJobs},
    {"Job", "spec.podFailurePolicy.rules.*.onExitCodes.containerName", kContainers, "api-refused"},
};

void CheckTargets(const WalkedObject& object, Findings* findings) {
  for (const Targets& each : kTargets) {
    if (object.kind != each.kind) continue;
    std::string names;
    std::set<std::string> known;
    for (const std::string_view list : SplitWords(each.lists)) {
      for (const YamlValue& name : AllAt(object.yaml, list)) {
        known.insert(name.Text());
        Append(&names, names.empty() ? "" : ", ", name.Text());
      }
    }
    for (const YamlValue& target : AllAt(object.yaml, each.path)) {
      if (known.contains(target.Text())) continue;
      findings->Add(
          each.rule, object.file, target.line(),
          fmt::format("{}: {} names {}, which none of {} is called", object.what, each.path,
                      target.Text(),
                      each.lists == kContainers ? "its containers" : "its replicatedJobs"),
          Concat("name one that it has: ", names));
    }
  }
}

// A set's selector must select the pods of its template.
void CheckSelector(const WalkedObject& object, Findings* findings) {
  const YamlValue selector = object.yaml.At("spec.selector.matchLabels");
  const YamlValue labels = object.yaml.At("spec.template.metadata.labels");
  if (!object.yaml.At("spec.template.spec").present() || object.kind == "Job") return;
  for (const YamlField& field : selector.Fields()) {
    const YamlValue label = labels.Get(field.key);
    if (label.Text() == field.value->text) continue;
    findings->Add(
        "api-refused", object.file, field.line,
        fmt::format(
            "{}: its selector wants {}={}, and its pods have {}, which the API server "
            "refuses",
            object.what, field.key, field.value->text,
            label.present() ? Concat(field.key, "=", label.Text()) : std::string("no such label")),
        Concat("make spec.selector.matchLabels and spec.template.metadata.labels say the same"));
    return;
  }
}

// --- Services ---

struct ServiceGiven {
  const WalkedObject* object = nullptr;
  YamlValue selector;
  bool headless = false;
};

// The field of the selector that the pods don't meet; key empty: they meet all.
YamlField Unmet(const YamlValue& selector, const std::map<std::string, std::string>& labels) {
  for (const YamlField& field : selector.Fields()) {
    const auto label = labels.find(field.key);
    if (label == labels.end() || label->second != field.value->text) return field;
  }
  return {};
}

// Pods' names are resolved by a headless Service of their subdomain's name that selects them.
void CheckSubdomain(const Workload& workload, const std::vector<ServiceGiven>& services,
                    Findings* findings) {
  for (const PodTemplate& pods : workload.templates) {
    if (pods.incomplete || pods.told_at > 0 || pods.layers.empty() || workload.kind == "JobSet") {
      continue;
    }
    YamlValue name = pods.layers.front().Get("subdomain");
    if (workload.kind == "StatefulSet") name = workload.yaml.At("spec.serviceName");
    if (!name.present()) continue;
    const ServiceGiven* its = nullptr;
    const ServiceGiven* selects = nullptr;
    for (const ServiceGiven& each : services) {
      if (each.object->name_space != workload.name_space) continue;
      if (each.object->name == name.Text()) its = &each;
      if (each.headless && !each.selector.Fields().empty() &&
          Unmet(each.selector, pods.labels).key.empty()) {
        selects = &each;
      }
    }
    const std::string& file = its == nullptr ? pods.file : its->object->file;
    if (its == nullptr && selects != nullptr) {
      findings->Add("reference-not-found", file, name.line(),
                    fmt::format("{}: its pods are in subdomain {}, but the headless Service that "
                                "selects them is called {}: their names aren't resolved",
                                workload.ToString(), name.Text(), selects->object->name),
                    Concat("name ", selects->object->name, ", or call the Service ", name.Text()));
    }
    if (its == nullptr || its->selector.Fields().empty()) continue;
    if (!its->headless) {
      if (!workload.is_gang) continue;
      const YamlValue spec = its->object->yaml.Get("spec");
      findings->AddWarning("reference-not-found", file, spec.line(),
                           fmt::format("{} names Service {} as its pods' subdomain, which isn't "
                                       "headless: their names aren't resolved",
                                       workload.ToString(), name.Text()),
                           "set clusterIP: None", "clusterIP: None\n");
      continue;
    }
    const YamlField unmet = Unmet(its->selector, pods.labels);
    if (unmet.key.empty()) continue;
    const auto label = pods.labels.find(unmet.key);
    findings->Add(
        "reference-not-found", file, unmet.line,
        fmt::format("Service {} selects {}={}, but the pods of {}, whose subdomain it is, have {}: "
                    "their names aren't resolved",
                    its->object->name, unmet.key, unmet.value->text, workload.ToString(),
                    label == pods.labels.end() ? std::string("no such label")
                                               : Concat(unmet.key, "=", label->second)),
        label == pods.labels.end() ? Concat("select a label that the pods have")
                                   : Concat("select ", unmet.key, ": ", label->second));
  }
}

// --- what selects pods ---

struct PodsGiven {
  std::string name_space, what, name;
  std::map<std::string, std::string> labels;
};

std::vector<PodsGiven> AllPods(const Manifests& manifests) {
  std::vector<PodsGiven> all;
  for (const Workload& workload : manifests.workloads) {
    for (const PodTemplate& pods : workload.templates) {
      all.push_back({workload.name_space, workload.ToString(), workload.name, pods.labels});
    }
  }
  for (const Written& each : manifests.others) {
    PodsGiven pods{"", "", each.yaml.At("metadata.name").Text(), {}};
    pods.name_space = each.yaml.At("metadata.namespace").Text();
    if (pods.name_space.empty()) pods.name_space = "default";
    pods.what = Concat(each.yaml.Get("kind").Text(), " ", pods.name);
    for (const YamlField& field : each.yaml.At("spec.template.metadata.labels").Fields()) {
      pods.labels[field.key] = field.value->text;
    }
    if (!pods.labels.empty()) all.push_back(std::move(pods));
  }
  return all;
}

// A selector that selects nobody, where pods that were meant are given: of a label that differs by
// a letter, or, with `parts`, by what follows a dash, which in jobs may well be another job.
void CheckSelects(const WalkedObject& object, const std::string& what, const YamlValue& selector,
                  bool parts, const std::vector<PodsGiven>& all, Findings* findings) {
  if (selector.Fields().empty()) return;
  const PodsGiven* meant = nullptr;
  YamlField wrong;
  for (const PodsGiven& pods : all) {
    if (pods.name_space != object.name_space) continue;
    const YamlField unmet = Unmet(selector, pods.labels);
    if (unmet.key.empty()) return;
    const auto label = pods.labels.find(unmet.key);
    const bool named = object.name == pods.name;
    if (label == pods.labels.end() && !named) continue;
    // Others may lead to pods that aren't given.
    if (!named && !IsNearName(unmet.value->text, label->second) &&
        !(parts && IsPart(unmet.value->text, label->second))) {
      continue;
    }
    meant = &pods;
    wrong = unmet;
  }
  if (meant == nullptr || findings->HasErrorAt(object.file, wrong.line)) return;
  const auto label = meant->labels.find(wrong.key);
  std::string labels;
  for (const auto& [key, value] : meant->labels) {
    Append(&labels, labels.empty() ? "" : ", ", key, ": ", value);
  }
  findings->Add(
      "reference-not-found", object.file, wrong.line,
      fmt::format("{} selects {}={}, and none of the pods that are given; those of {} "
                  "have {}",
                  what, wrong.key, wrong.value->text, meant->what,
                  label == meant->labels.end() ? std::string("no such label") : label->second),
      label == meant->labels.end() ? Concat("select a label that the pods have: ", labels)
                                   : Concat("select ", wrong.key, ": ", label->second));
}

void CheckSelectors(const WalkedObject& object, const std::vector<PodsGiven>& all,
                    Findings* findings) {
  constexpr std::pair<std::string_view, std::string_view> kSelectors[] = {
      {"PodDisruptionBudget", "spec.selector.matchLabels"},
      {"NetworkPolicy", "spec.podSelector.matchLabels"},
      {"Service", "spec.selector"},
  };
  for (const auto& [kind, path] : kSelectors) {
    if (object.kind == kind) {
      CheckSelects(object, object.what, object.yaml.At(path), true, all, findings);
    }
  }
  Walk(object.yaml, [&](const WalkedField& at) {
    if (at.Is("topologySpreadConstraints.labelSelector") ||
        at.Is("podAffinityTerm.labelSelector") ||
        at.Is("requiredDuringSchedulingIgnoredDuringExecution.labelSelector")) {
      const YamlValue namespaces = at.parent.Get("namespaces");
      if (namespaces.present() || at.parent.Get("namespaceSelector").present()) return;
      CheckSelects(object, Concat(object.what, ": its labelSelector"), at.value.Get("matchLabels"),
                   false, all, findings);
    }
  });
}

// --- labels that stand on the object instead of the nodes ---

void CheckFlavorLabels(const WalkedObject& object, Findings* findings) {
  if (object.kind != "ResourceFlavor" || object.yaml.At("spec.nodeLabels").present()) return;
  for (const YamlField& field : object.yaml.At("metadata.labels").Fields()) {
    if (!IsNodeKey(field.key)) continue;
    findings->Add("name-not-read", object.file, field.line,
                  fmt::format("{}: label {} is of the flavor itself, which has no "
                              "spec.nodeLabels and so stands for every node",
                              object.what, field.key),
                  Concat("move ", field.key, " to spec.nodeLabels"),
                  Concat("spec:\n  nodeLabels:\n    ", field.key, ": ", field.value->text, "\n"));
  }
}

}  // namespace

void CheckAllNames(const Manifests& manifests, const std::string& scheduler_name,
                   Findings* findings) {
  const std::vector<WalkedObject> objects = WalkedObjects(manifests);
  References references(objects, findings);
  std::vector<ServiceGiven> services;
  std::vector<std::string_view> levels;
  for (const WalkedObject& object : objects) {
    if (object.kind == "Topology") {
      for (const YamlValue& level : AllAt(object.yaml, "spec.levels.*.nodeLabel")) {
        levels.push_back(level.Text());
      }
    }
    if (object.kind == "Service") {
      services.push_back({&object, object.yaml.At("spec.selector"),
                          object.yaml.At("spec.clusterIP").Text() == "None"});
    }
  }
  for (const Workload& workload : manifests.workloads) {
    CheckSubdomain(workload, services, findings);
  }
  const std::vector<PodsGiven> pods = AllPods(manifests);
  for (const WalkedObject& object : objects) {
    CheckSelectors(object, pods, findings);
    Names names(object, scheduler_name, levels, findings);
    CheckTargets(object, findings);
    CheckSelector(object, findings);
    CheckFlavorLabels(object, findings);
    Walk(object.yaml, [&](const WalkedField& at) {
      names.See(at);
      references.See(object, at);
    });
  }
  references.Tell();
}

}  // namespace muster::lint
