// What operators and the API server want of objects of one kind, that their schemas don't say.
#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "kube/objects/quantity.h"
#include "kube/objects/well_known.h"
#include "lint/rules.h"
#include "lint/text.h"
#include "lint/walk.h"

namespace muster::lint {
namespace {

using yaml::YamlField;
using yaml::YamlValue;

// --- fields that need, or rule out, another ---

constexpr std::string_view kPods = "pods";  // any job's, whose fields are those of the pods' spec
constexpr std::string_view kNone = "-";     // the other must not be there

struct Needs {
  std::string_view kind, base;   // where both fields stand
  std::string_view field, when;  // its value for which that holds; empty: any
  std::string_view needs;
  std::string_view value;  // that the other must have; empty: any
  std::string_view rule = "api-refused";
};

constexpr std::string_view kJobs = "spec.replicatedJobs.*.template.spec";
constexpr std::string_view kRestart = "template.spec.restartPolicy";
constexpr std::string_view kRules = "spec.podFailurePolicy.rules.*";
constexpr std::string_view kByOperator = "operator-refused";

constexpr Needs kNeeds[] = {
    {"Job", "spec", "podFailurePolicy", "", kRestart, "Never"},
    {"Job", "spec", "backoffLimitPerIndex", "", "completionMode", "Indexed"},
    {"Job", "spec", "successPolicy", "", "completionMode", "Indexed"},
    {"Job", "spec", "maxFailedIndexes", "", "backoffLimitPerIndex", ""},
    {"Job", kRules, "onExitCodes", "", "onPodConditions", kNone},
    {"JobSet", kJobs, "podFailurePolicy", "", kRestart, "Never"},
    {"JobSet", kJobs, "backoffLimitPerIndex", "", "completionMode", "Indexed"},
    {"JobSet", kJobs, "successPolicy", "", "completionMode", "Indexed"},
    {"JobSet", kJobs, "maxFailedIndexes", "", "backoffLimitPerIndex", ""},
    {"JobSet", kJobs, "completionMode", "Indexed", "completions", ""},
    {"RayJob", "spec", "ttlSecondsAfterFinished", "", "shutdownAfterJobFinishes", "true",
     kByOperator},
    {"RayJob", "spec", "suspend", "true", "shutdownAfterJobFinishes", "true", kByOperator},
    {"RayJob", "spec", "suspend", "true", "clusterSelector", kNone, kByOperator},
    {"RayJob", "spec", "submissionMode", "SidecarMode", "clusterSelector", kNone, kByOperator},
    {"RayJob", "spec", "submissionMode", "SidecarMode", "submitterPodTemplate", kNone, kByOperator},
    {"NodePool", "spec.disruption.budgets.*", "schedule", "", "duration", ""},
    {"NodePool", "spec.disruption.budgets.*", "duration", "", "schedule", ""},
    {"NodePool", "spec", "replicas", "", "weight", kNone},
    {"NodePool", "spec", "replicas", "", "limits.cpu", kNone},
    {"NodePool", "spec", "replicas", "", "limits.memory", kNone},
    {"NodePool", "spec", "replicas", "", "limits.nvidia.com/gpu", kNone},
    {"EC2NodeClass", "spec", "role", "", "instanceProfile", kNone},
    {"PodDisruptionBudget", "spec", "minAvailable", "", "maxUnavailable", kNone},
    {kPods, "initContainers.*", "readinessProbe", "", "restartPolicy", "Always"},
    {kPods, "initContainers.*", "livenessProbe", "", "restartPolicy", "Always"},
    {kPods, "initContainers.*", "startupProbe", "", "restartPolicy", "Always"},
    {kPods, "initContainers.*", "lifecycle", "", "restartPolicy", "Always"},
    {kPods, "containers.*.livenessProbe", "successThreshold", "", "successThreshold", "1"},
    {kPods, "containers.*.startupProbe", "successThreshold", "", "successThreshold", "1"},
    {kPods, "topologySpreadConstraints.*", "minDomains", "", "whenUnsatisfiable", "DoNotSchedule"},
    {kPods, "topologySpreadConstraints.*", "matchLabelKeys", "", "labelSelector", ""},
    {kPods, "tolerations.*", "tolerationSeconds", "", "effect", "NoExecute"},
    {kPods, "volumes.*", "emptyDir", "", "persistentVolumeClaim", kNone},
    {kPods, "volumes.*", "emptyDir", "", "hostPath", kNone},
    {kPods, "containers.*.env.*", "value", "", "valueFrom", kNone},
    {kPods, "securityContext", "fsGroupChangePolicy", "", "fsGroup", ""},
};

// What a path leads to first; a key with dots may end it.
YamlValue FirstAt(const YamlValue& base, std::string_view path) {
  if (path.find('/') != std::string_view::npos) {
    const auto [parent, key] = SplitOnce(path, '.');
    return base.Get(parent).Get(key);
  }
  const std::vector<YamlValue> all = AllAt(base, path);
  return all.empty() ? YamlValue() : all.front();
}

void CheckNeeds(std::string_view kind, const YamlValue& yaml, const std::string& what,
                const std::string& file, Findings* findings) {
  for (const Needs& each : kNeeds) {
    if (kind != each.kind) continue;
    for (const YamlValue& base : AllAt(yaml, each.base)) {
      const YamlValue field = FirstAt(base, each.field);
      const YamlValue other = FirstAt(base, each.needs);
      if (!field.present() || (field.Text() == "0" && each.value != kNone)) continue;
      if (!each.when.empty() && field.Text() != each.when) continue;
      const std::string said = Concat(each.field, each.when.empty() ? "" : " ", each.when);
      if (each.value == kNone) {
        if (!other.present()) continue;
        findings->Add(each.rule, file, other.line(),
                      fmt::format("{}: it says both {} and {}, of which only one is taken", what,
                                  said, each.needs),
                      fmt::format("leave {} out", each.needs));
        continue;
      }
      if (other.present() && (each.value.empty() || other.Text() == each.value)) continue;
      const std::string is =
          other.present() ? Concat("it is ", other.Text()) : std::string("it isn't said");
      findings->Add(
          each.rule, file, other.present() ? other.line() : field.line(),
          fmt::format("{}: {} needs {}{}{}, and {}", what, said, each.needs,
                      each.value.empty() ? "" : " ", each.value, is),
          each.value.empty()
              ? fmt::format("say {}, or leave {} out", each.needs, each.field)
              : fmt::format("set {} to {}, or leave {} out", each.needs, each.value, each.field));
    }
  }
}

// --- variables that an operator sets itself ---

constexpr std::string_view kReservedEnv[] = {
    "PET_NNODES",      "PET_NPROC_PER_NODE", "PET_NODE_RANK",  "PET_MASTER_ADDR",
    "PET_MASTER_PORT", "JAX_NUM_PROCESSES",  "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS"};

void CheckReservedEnv(const WalkedObject& object, Findings* findings) {
  if (object.kind != "TrainJob") return;
  for (const YamlValue& name : AllAt(object.yaml, "spec.trainer.env.*.name")) {
    if (std::ranges::find(kReservedEnv, name.Text()) == std::end(kReservedEnv)) continue;
    findings->Add(kByOperator, object.file, name.line(),
                  fmt::format("{}: Trainer sets {} itself, and refuses a TrainJob that does",
                              object.what, name.Text()),
                  fmt::format("remove {}; trainer.numNodes and trainer.numProcPerNode say what "
                              "may be said",
                              name.Text()));
  }
}

// --- names of which others are made ---

struct MadeName {
  std::string_view kind;
  std::string_view longest;  // what follows it in the longest name that is made of it
};

// Names that must be names of Services, or of hosts: a letter first, and 63 characters with what
// follows. KubeRay's bounds are those of its validation.go.
constexpr MadeName kMadeNames[] = {
    {"PyTorchJob", "-master-0"},     {"MPIJob", "-worker-0"},
    {"TrainJob", "-node-0-0-xxxxx"}, {"RayCluster", "-serve-svc"},
    {"RayJob", "-xxxxx-serve-svc"},  {"RayService", "-xxxxx-serve-svc"},
};

void CheckMadeNames(const WalkedObject& object, Findings* findings) {
  constexpr size_t kMost = 63;
  const YamlValue name = object.yaml.At("metadata.name");
  const std::string& text = name.Text();
  if (text.empty() || findings->HasErrorAt(object.file, name.line())) return;
  const auto tell = [&](const YamlValue& at, const std::string& message, const std::string& fix) {
    findings->Add(object.kind == "Job" || object.kind == "Service" ? "api-refused" : kByOperator,
                  object.file, at.line(), Concat(object.what, ": ", message), fix);
  };
  const auto too_long = [&](const YamlValue& at, size_t length, std::string_view of) {
    if (length <= kMost) return;
    tell(at,
         fmt::format("{} made of it have names of {} characters, and a host's name has {} at "
                     "most",
                     of, length, kMost),
         fmt::format("make the name {} characters shorter", length - kMost));
  };
  const auto letter_first = [&](std::string_view of) {
    const bool letter = std::isalpha(static_cast<unsigned char>(text.front())) != 0;
    const size_t dot = text.find('.');
    if (letter && dot == std::string::npos) return;
    std::string right = text;
    std::ranges::replace(right, '.', '-');
    tell(name,
         fmt::format("{} be called {}, and its name must begin with a letter and have no dot "
                     "(DNS-1035)",
                     of, text),
         letter ? Concat("call it ", right)
                : Concat("let the name begin with a letter: job-", right, " for example"));
  };
  for (const MadeName& each : kMadeNames) {
    if (object.kind != each.kind) continue;
    letter_first("a Service would");
    too_long(name, text.size() + each.longest.size(), "Services or pods");
  }
  const auto digits = [](const YamlValue& count) {
    return std::max<size_t>(count.Text().size(), 1);
  };
  if (object.kind == "Service") letter_first("it would");
  if (object.kind == "JobSet") {
    letter_first("a Service would");
    for (const YamlValue& job : AllAt(object.yaml, "spec.replicatedJobs.*")) {
      // "-JOB-0-0-xxxxx"
      too_long(job.Get("name"),
               text.size() + job.Get("name").Text().size() + 9 + digits(job.Get("replicas")),
               "pods");
    }
  }
  if (object.kind == "Job" && object.yaml.At("spec.completionMode").Text() == "Indexed") {
    if (text.find('.') != std::string::npos) letter_first("hosts of its pods would");
    too_long(name, text.size() + 1 + digits(object.yaml.At("spec.completions")), "hosts");
  }
  // A label of the pods has it with a hash.
  if (object.kind == "StatefulSet") too_long(name, text.size() + 11, "labels");
}

// --- NodePools ---

bool IsDuration(std::string_view text) {
  if (text == "Never") return true;
  bool digits = false;
  for (const char c : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit && (!digits || (c != 's' && c != 'm' && c != 'h'))) return false;
    digits = digit;
  }
  return !text.empty() && !digits;
}

void CheckNodePoolFields(const WalkedObject& object, Findings* findings) {
  if (object.kind != "NodePool") return;
  for (const char* path :
       {"spec.template.spec.expireAfter", "spec.template.spec.terminationGracePeriod",
        "spec.disruption.consolidateAfter", "spec.disruption.budgets.*.duration"}) {
    for (const YamlValue& value : AllAt(object.yaml, path)) {
      if (!value.is_scalar() || IsDuration(value.Text())) continue;
      int64_t days = 0;
      const std::string& text = value.Text();
      const bool of_days =
          text.ends_with('d') && ParseInt(std::string_view(text).substr(0, text.size() - 1), &days);
      findings->Add("api-refused", object.file, value.line(),
                    fmt::format("{}: {} is {}, and the API server takes hours, minutes and seconds "
                                "(720h, 30m) or Never",
                                object.what, path, text),
                    of_days ? Concat("write ", days * 24, "h")
                            : Concat("write its unit, ", text, "m or ", text, "s for example"));
    }
  }
  for (const YamlValue& each : AllAt(object.yaml, "spec.template.spec.requirements.*")) {
    int64_t least = 0;
    const int64_t values = static_cast<int64_t>(each.Get("values").Items().size());
    if (!ParseInt(each.Get("minValues").Text(), &least) || each.Get("operator").Text() != "In" ||
        least <= values) {
      continue;
    }
    findings->Add(
        "api-refused", object.file, each.Get("minValues").line(),
        fmt::format("{}: minValues is {}, of {}", object.what, least, Counted(values, "value")),
        fmt::format("give {} values, or lower minValues to {}", least, values));
  }
}

// --- Topologies ---

void CheckTopology(const WalkedObject& object, Findings* findings) {
  if (object.kind != "Topology") return;
  const std::vector<YamlValue> levels = AllAt(object.yaml, "spec.levels.*.nodeLabel");
  for (size_t i = 0; i < levels.size(); ++i) {
    const bool again = std::ranges::any_of(
        levels.begin(), levels.begin() + static_cast<std::ptrdiff_t>(i),
        [&](const YamlValue& before) { return before.Text() == levels[i].Text(); });
    const bool host = levels[i].Text() == kube::kHostnameLabel && i + 1 < levels.size();
    if (!again && !host) continue;
    findings->Add("api-refused", object.file, levels[i].line(),
                  again ? fmt::format("{} has level {} twice", object.what, levels[i].Text())
                        : fmt::format("{}: {} is the lowest level that there can be, and others "
                                      "follow it",
                                      object.what, levels[i].Text()),
                  again ? "leave one of them out" : "make it the last level");
  }
}

// --- names of pods ---

// "workers-0-0.train:29500" of a JobSet, "train-0.ranks" of the others: the pod's name without its
// indices, and its subdomain.
struct HostName {
  std::string base, subdomain;
};

HostName HostOf(std::string_view word, int indices) {
  word = word.substr(0, word.find(':'));
  const auto [pod, rest] = SplitOnce(word, '.');
  std::string_view base = pod;
  for (int i = 0; i < indices; ++i) {
    const size_t dash = base.rfind('-');
    if (dash == std::string_view::npos || dash + 1 == base.size() ||
        base.substr(dash + 1).find_first_not_of("0123456789") != std::string_view::npos) {
      return {};
    }
    base = base.substr(0, dash);
  }
  return {std::string(base), std::string(SplitOnce(rest, '.').first)};
}

// Where one of the pod's name and its subdomain is right, the other is meant to be.
void CheckHostNames(const Workload& workload, Findings* findings) {
  const bool set = workload.kind == "JobSet";
  if (!set && workload.kind != "Job" && workload.kind != "StatefulSet") return;
  std::vector<std::string> bases;
  for (const PodTemplate& pods : workload.templates) {
    bases.push_back(set ? Concat(workload.name, "-", pods.role) : workload.name);
  }
  for (const PodTemplate& pods : workload.templates) {
    if (pods.layers.empty() || pods.told_at > 0) continue;
    std::string subdomain = set ? workload.yaml.At("spec.network.subdomain").Text()
                            : workload.kind == "Job" ? pods.layers.front().Get("subdomain").Text()
                                                     : workload.yaml.At("spec.serviceName").Text();
    if (set && subdomain.empty()) subdomain = workload.name;
    if (subdomain.empty()) continue;
    const auto look = [&](std::string_view text, int line) {
      for (const std::string_view word : SplitWords(text, " =\"'\n\t/@,;()&|$")) {
        const HostName host = HostOf(word, set ? 2 : 1);
        if (host.base.empty() || host.subdomain.empty()) continue;
        const bool of_pods = std::ranges::find(bases, host.base) != bases.end();
        const bool of_domain = host.subdomain == subdomain;
        if (of_pods == of_domain) continue;
        const std::string right = of_pods ? subdomain : Concat(bases.front(), set ? "-0-0" : "-0");
        findings->Add("reference-not-found", pods.file, line,
                      of_pods ? fmt::format("{} looks for {}, but its pods are in subdomain {}",
                                            workload.ToString(), word, subdomain)
                              : fmt::format("{} looks for {}, and none of its pods is called so",
                                            workload.ToString(), word),
                      of_pods ? Concat("write ", host.base, set ? "-0-0." : "-0.", right)
                              : Concat("write ", right, ".", subdomain));
        return;
      }
    };
    for (const Container& container : pods.containers) {
      for (const YamlValue& word : container.words) look(word.Text(), word.line());
      for (const auto& [name, value] : container.env) look(value.value, value.line);
    }
  }
}

// --- memory ---

// What a volume of memory holds counts as its container's.
void CheckMemoryVolumes(const Workload& workload, Findings* findings) {
  for (const PodTemplate& pods : workload.templates) {
    if (pods.layers.empty() || pods.told_at > 0) continue;
    for (const YamlValue& volume : pods.layers.front().Get("volumes").Items()) {
      const YamlValue size = volume.At("emptyDir.sizeLimit");
      if (volume.At("emptyDir.medium").Text() != "Memory" || !size.present()) continue;
      const absl::StatusOr<int64_t> bytes =
          kube::ParseQuantity(size.Text(), kube::QuantityUnit::kWhole);
      for (const Container& each : pods.containers) {
        const auto limit = each.limits.find("memory");
        if (!bytes.ok() || limit == each.limits.end() || each.limits.empty() ||
            each.shm_volume != volume.Get("name").Text() || *bytes <= limit->second.value) {
          continue;
        }
        findings->Add(
            "value-unlikely", pods.file, size.line(),
            fmt::format("{}: volume {} in memory may hold {}, which counts as container "
                        "{}'s memory, whose limit is less",
                        workload.ToString(), volume.Get("name").Text(), size.Text(), each.name),
            fmt::format("lower sizeLimit below the limit in line {}, or raise that",
                        limit->second.line));
        break;
      }
    }
  }
}

// --- Karpenter's node class ---

void CheckNodeClass(const WalkedObject& object, Findings* findings) {
  const YamlValue spec = object.yaml.Get("spec");
  if (object.kind != "EC2NodeClass" || !spec.present()) return;
  constexpr std::string_view kFamilies[] = {"al2",         "al2023",      "bottlerocket",
                                            "windows2019", "windows2022", "windows2025"};
  bool alias = false;
  for (const YamlValue& term : spec.Get("amiSelectorTerms").Items()) {
    const YamlValue its = term.Get("alias");
    if (!its.present()) continue;
    alias = true;
    const auto [family, version] = SplitOnce(its.Text(), '@');
    const bool known = std::ranges::find(kFamilies, family) != std::end(kFamilies);
    if (known && (version == "latest" || (version.starts_with('v') && version.size() > 1))) {
      continue;
    }
    std::string_view meant = "al2023";
    for (const std::string_view each : kFamilies) {
      if (family.starts_with(each)) meant = each;
    }
    const std::string right = Concat(meant, "@",
                                     version.empty()                                   ? ""
                                     : version == "latest" || version.starts_with('v') ? ""
                                                                                       : "v",
                                     version.empty() ? "latest" : version);
    findings->Add(
        "api-refused", object.file, its.line(),
        known ? fmt::format("{}: alias {} is a family of images with no version", object.what,
                            its.Text())
              : fmt::format("{}: alias {} is of no family that Karpenter knows; it takes "
                            "the image for GPUs by itself",
                            object.what, its.Text()),
        fmt::format("write {} (families: al2, al2023, bottlerocket, windows2022, ...)", right),
        Concat("- alias: ", right, "\n"));
  }
  if (!alias && spec.Get("amiSelectorTerms").present() && !spec.Get("amiFamily").present()) {
    findings->Add("api-refused", object.file, spec.Get("amiSelectorTerms").line(),
                  fmt::format("{} selects images without an alias and says no amiFamily, which the "
                              "API server refuses",
                              object.what),
                  "say amiFamily, AL2023 for example", "amiFamily: AL2023\n");
  }
  const YamlValue profile = spec.Get("instanceProfile");
  if (profile.Text().starts_with("arn:") || spec.Get("role").Text().starts_with("arn:")) {
    const YamlValue arn = profile.present() ? profile : spec.Get("role");
    const std::string name = arn.Text().substr(arn.Text().rfind('/') + 1);
    findings->Add("value-unlikely", object.file, arn.line(),
                  fmt::format("{} gives an ARN where Karpenter wants the name", object.what),
                  Concat("write ", name));
  }
  if (!profile.present() && !spec.Get("role").present()) {
    findings->Add("api-refused", object.file, spec.line(),
                  fmt::format("{} has neither role nor instanceProfile, of which the API server "
                              "wants one",
                              object.what),
                  "say role, the name of the nodes' IAM role");
  }
}

// --- Ray ---

// "2.52.0" of "rayproject/ray:2.52.0-py312-gpu"; empty: of another image, or tag.
std::string_view RayVersionOf(std::string_view image) {
  const size_t tag = image.rfind(':');
  if (image.find("rayproject/ray") == std::string_view::npos || tag == std::string_view::npos) {
    return "";
  }
  const std::string_view version = image.substr(tag + 1);
  const std::string_view number = version.substr(0, version.find_first_not_of("0123456789."));
  return std::ranges::count(number, '.') == 2 ? number : "";
}

void CheckRayVersion(const WalkedObject& object, const YamlValue& cluster,
                     const YamlValue& container, Findings* findings) {
  const YamlValue version = cluster.Get("rayVersion");
  const std::string_view of_image = RayVersionOf(container.Get("image").Text());
  if (!version.present() || of_image.empty() || of_image == version.Text()) return;
  findings->Add(
      "operator-refused", object.file, container.Get("image").line(),
      fmt::format("{} is of rayVersion {}, and this image of {}: Ray's processes must be "
                  "of one version",
                  object.what, version.Text(), of_image),
      fmt::format("take the image of {}, or set rayVersion to {}", version.Text(), of_image));
}

void CheckRay(const WalkedObject& object, Findings* findings) {
  if (!object.kind.starts_with("Ray")) return;
  const YamlValue spec = object.yaml.Get("spec");
  const YamlValue cluster = object.kind == "RayJob" ? spec.Get("rayClusterSpec") : spec;
  std::vector<YamlValue> groups = cluster.Get("workerGroupSpecs").Items();
  groups.push_back(cluster.Get("headGroupSpec"));
  for (const YamlValue& group : groups) {
    const YamlValue told = group.At("rayStartParams.num-gpus");
    const std::vector<YamlValue> containers = group.At("template.spec.containers").Items();
    if (!containers.empty()) CheckRayVersion(object, cluster, containers.front(), findings);
    int64_t count = 0;
    int64_t gpus = 0;
    if (containers.empty() || !ParseInt(told.Text(), &count)) continue;
    ParseInt(containers.front().At("resources.limits").Get(kGpu).Text(), &gpus);
    // Without GPUs it is a number that Ray alone counts.
    if (gpus == 0 || count <= gpus) continue;
    findings->Add(
        "nproc-per-node-mismatch", object.file, told.line(),
        fmt::format("{} tells Ray of {} per pod, and its first container has {}", object.what,
                    Counted(count, "GPU"), gpus),
        fmt::format("set num-gpus to \"{}\", or leave it out: Ray takes the limit", gpus));
  }
}

}  // namespace

void CheckAllKinds(const Manifests& manifests, Findings* findings) {
  for (const WalkedObject& object : WalkedObjects(manifests)) {
    CheckNeeds(object.kind, object.yaml, object.what, object.file, findings);
    CheckReservedEnv(object, findings);
    CheckMadeNames(object, findings);
    CheckNodePoolFields(object, findings);
    CheckNodeClass(object, findings);
    CheckTopology(object, findings);
    CheckRay(object, findings);
  }
  for (const Workload& workload : manifests.workloads) {
    for (const PodTemplate& pods : workload.templates) {
      if (pods.told_at > 0 || pods.layers.empty()) continue;
      CheckNeeds(kPods, pods.layers.front(), workload.ToString(), pods.file, findings);
    }
    CheckHostNames(workload, findings);
    CheckMemoryVolumes(workload, findings);
  }
}

}  // namespace muster::lint
