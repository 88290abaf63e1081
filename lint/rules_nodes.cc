// NodePools, their EC2NodeClasses and StorageClasses against the gangs that use them: what
// Karpenter takes from them but EC2, the image or the pods don't.
#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "fmt/format.h"
#include "kube/objects/quantity.h"
#include "kube/objects/well_known.h"
#include "lint/pool_fit.h"
#include "lint/rules.h"
#include "lint/text.h"
#include "lint/walk.h"

namespace muster::lint {
namespace {

using yaml::YamlField;
using yaml::YamlValue;

constexpr std::string_view kMismatch = "node-class-mismatch";

// The NodePool's EC2NodeClass, if it is given.
const Written* ClassOf(const NodePool& pool, const Manifests& manifests) {
  const std::string& name = pool.yaml.At("spec.template.spec.nodeClassRef.name").Text();
  const auto found = std::ranges::find_if(manifests.others, [&](const Written& each) {
    return each.yaml.Get("kind").Text() == "EC2NodeClass" &&
           each.yaml.At("metadata.name").Text() == name;
  });
  return found == manifests.others.end() ? nullptr : &*found;
}

// --- images ---

enum class Family { kUnknown, kBottlerocket, kAl2023, kAl2 };

Family FamilyOf(const YamlValue& spec) {
  const std::string& said = spec.Get("amiFamily").Text();
  std::string family = said;
  for (const YamlValue& alias : AllAt(spec, "amiSelectorTerms.*.alias")) {
    if (family.empty()) family = alias.Text().substr(0, alias.Text().find('@'));
  }
  std::ranges::transform(family, family.begin(), [](unsigned char c) { return std::tolower(c); });
  return family == "bottlerocket" ? Family::kBottlerocket
         : family == "al2023"     ? Family::kAl2023
         : family == "al2"        ? Family::kAl2
                                  : Family::kUnknown;
}

struct UserData {
  std::string_view what;
  bool bottlerocket, al2023, al2;  // who takes it
};

constexpr UserData kShell = {"a shell script", false, true, true};
constexpr UserData kMime = {"a MIME message", false, true, true};
constexpr UserData kNodeConfig = {"a NodeConfig", false, true, false};
constexpr UserData kToml = {"TOML", true, false, false};

std::optional<UserData> UserDataOf(std::string_view text) {
  for (std::string_view line : Split(text, "\n")) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    if (line.starts_with("#!")) return kShell;
    if (line.empty() || line.starts_with('#') || line.starts_with("---")) continue;
    if (line.starts_with("MIME-Version") || line.starts_with("Content-Type")) return kMime;
    if (line.starts_with("apiVersion: node.eks.aws")) return kNodeConfig;
    if (line.starts_with('[')) return kToml;
    return std::nullopt;
  }
  return std::nullopt;
}

void CheckUserData(const std::string& what, const Written& object, Findings* findings) {
  const YamlValue spec = object.yaml.Get("spec");
  const YamlValue data = spec.Get("userData");
  const std::optional<UserData> is = UserDataOf(data.Text());
  if (!is) return;
  const Family family = FamilyOf(spec);
  const bool taken = family == Family::kBottlerocket ? is->bottlerocket
                     : family == Family::kAl2023     ? is->al2023
                     : family == Family::kAl2        ? is->al2
                                                     : true;
  if (taken) return;
  findings->Add(kMismatch, object.file, data.line(),
                fmt::format("{}: userData is {}, which {} doesn't take: no node of it joins the "
                            "cluster",
                            what, is->what,
                            family == Family::kBottlerocket ? "Bottlerocket"
                            : family == Family::kAl2023     ? "AL2023"
                                                            : "AL2"),
                family == Family::kBottlerocket
                    ? "write userData as TOML, [settings.kernel.sysctl] for example, or take an "
                      "AL2023 image"
                : family == Family::kAl2023
                    ? "write a shell script, or a NodeConfig of node.eks.aws, or take a "
                      "Bottlerocket image"
                    : "write a shell script, or take an AL2023 image");
}

// --- disks ---

// Where the image keeps containers, their logs and their images.
std::string_view DataDevice(Family family) {
  return family == Family::kBottlerocket ? "/dev/xvdb" : "/dev/xvda";
}

void CheckDevices(const std::string& what, const Written& object, Findings* findings) {
  const YamlValue spec = object.yaml.Get("spec");
  const Family family = FamilyOf(spec);
  const std::vector<YamlValue> mappings = spec.Get("blockDeviceMappings").Items();
  if (family == Family::kUnknown || mappings.empty()) return;
  for (const YamlValue& each : mappings) {
    if (each.Get("deviceName").Text() == DataDevice(family) ||
        each.Get("rootVolume").Text() == "true") {
      return;
    }
  }
  const YamlValue name = mappings.front().Get("deviceName");
  findings->AddWarning(
      kMismatch, object.file, name.line(),
      fmt::format("{} gives {} {}, but its images keep containers, images and pods' disks on {}, "
                  "which stays at 20Gi",
                  what, name.Text(), mappings.front().At("ebs.volumeSize").Text(),
                  DataDevice(family)),
      fmt::format("call the device {}", DataDevice(family)));
}

// The bytes of disk that its nodes give to pods, at most; none: not known.
std::optional<int64_t> DiskOf(const Written& object) {
  const YamlValue spec = object.yaml.Get("spec");
  const Family family = FamilyOf(spec);
  if (family == Family::kUnknown || spec.Get("instanceStorePolicy").present()) return std::nullopt;
  std::string size = "20Gi";
  for (const YamlValue& each : spec.Get("blockDeviceMappings").Items()) {
    const bool root = each.Get("rootVolume").Text() == "true";
    if (each.At("ebs.snapshotID").present()) return std::nullopt;
    if (root || each.Get("deviceName").Text() == DataDevice(family)) {
      size = each.At("ebs.volumeSize").Text();
    }
  }
  const absl::StatusOr<int64_t> bytes = kube::ParseQuantity(size, kube::QuantityUnit::kWhole);
  return bytes.ok() ? std::optional(*bytes) : std::nullopt;
}

void CheckDisk(const LintGang& gang, const PodTemplate& pods, const Surroundings& around,
               Findings* findings) {
  const LocatedCount asks = pods.Asks("ephemeral-storage");
  const std::vector<const NodePool*>& pools = around.pools.For(pods);
  if (!asks.present() || pools.empty()) return;
  int64_t most = 0;
  for (const NodePool* pool : pools) {
    const Written* its = ClassOf(*pool, around.manifests);
    const std::optional<int64_t> disk = its == nullptr ? std::nullopt : DiskOf(*its);
    if (!disk) return;
    most = std::max(most, *disk);
  }
  if (asks.value < most) return;
  findings->Add("resources-too-large", pods.file, asks.line,
                fmt::format("{}: a pod asks for {} GiB of ephemeral-storage, and the disk of the "
                            "nodes of {} has {} GiB",
                            gang.Name(), asks.value >> 30, PoolNames(pools), most >> 30),
                "enlarge the volume in blockDeviceMappings of the EC2NodeClass, or say "
                "instanceStorePolicy: RAID0 for types with disks of their own");
}

// --- capacity ---

void CheckReservations(const NodePool& pool, const Written& its, Findings* findings) {
  const bool reserves = !its.yaml.At("spec.capacityReservationSelectorTerms").Items().empty();
  for (const YamlValue& each : pool.yaml.At("spec.template.spec.requirements").Items()) {
    if (each.Get("key").Text() != kube::kCapacityTypeLabel || each.Get("operator").Text() != "In") {
      continue;
    }
    const std::vector<YamlValue> values = each.Get("values").Items();
    const auto is = [](const YamlValue& value) { return value.Text() == "reserved"; };
    if (values.empty()) continue;
    if (reserves && std::ranges::none_of(values, is)) {
      findings->AddWarning(
          kMismatch, pool.file, values.front().line(),
          fmt::format("NodePool {} takes {} only, but its EC2NodeClass selects capacity "
                      "reservations: what is reserved stays unused",
                      pool.name, values.front().Text()),
          fmt::format("add reserved to the values of {}", kube::kCapacityTypeLabel));
    } else if (!reserves && std::ranges::all_of(values, is)) {
      findings->Add(kMismatch, pool.file, values.front().line(),
                    fmt::format("NodePool {} takes reserved capacity only, and its EC2NodeClass "
                                "selects no capacity reservations: it makes no nodes",
                                pool.name),
                    "say capacityReservationSelectorTerms in the EC2NodeClass, or allow on-demand");
    }
  }
}

void CheckPublicAddress(const LintGang& gang, const PodTemplate& pods, const NodePool& pool,
                        const Written& its, Findings* findings) {
  const YamlValue address = its.yaml.At("spec.associatePublicIPAddress");
  const LocatedCount efa = pods.Asks(kEfa);
  if (address.Text() != "true" || efa.value < 2) return;
  findings->Add(kMismatch, its.file, address.line(),
                fmt::format("the nodes of NodePool {} are to have a public address, and for {}'s "
                            "{} several network interfaces: EC2 launches no such instance",
                            pool.name, gang.Name(), Counted(efa.value, "EFA device")),
                "remove associatePublicIPAddress, or set it to false");
}

// --- lifetimes ---

// How long the job may run, as it says itself. 0: it doesn't say.
int64_t LongestRun(const Workload& workload) {
  int64_t longest = 0;
  for (const char* path : {"spec.activeDeadlineSeconds", "spec.runPolicy.activeDeadlineSeconds",
                           "spec.replicatedJobs.*.template.spec.activeDeadlineSeconds"}) {
    for (const YamlValue& deadline : AllAt(workload.yaml, path)) {
      int64_t seconds = 0;
      if (ParseInt(deadline.Text(), &seconds)) longest = std::max(longest, seconds);
    }
  }
  int64_t seconds = 0;
  if (ParseInt(workload.max_seconds.value, &seconds)) longest = std::max(longest, seconds);
  return longest;
}

constexpr absl::Duration kShortLife = absl::Hours(4);  // for any gang that trains

void CheckExpiry(const LintGang& gang, const NodePool& pool, Findings* findings) {
  const YamlValue expires = pool.yaml.At("spec.template.spec.expireAfter");
  absl::Duration life;
  if (!absl::ParseDuration(expires.Text(), &life) || life <= absl::ZeroDuration()) return;
  const int64_t run = LongestRun(*gang.workload);
  if (run == 0 ? life >= kShortLife : life >= absl::Seconds(run)) return;
  findings->Add(
      "node-expires", pool.file, expires.line(),
      fmt::format("NodePool {} takes its nodes away after {}, {}", pool.name, expires.Text(),
                  run == 0 ? fmt::format("and {} may run longer", gang.Name())
                           : fmt::format("but {} may run for {} s", gang.Name(), run)),
      "let expireAfter be longer than the job, 720h for example, or Never", "expireAfter: 720h\n");
}

// do-not-disrupt holds a drifted node only where no terminationGracePeriod ends the waiting
// (Karpenter v1.8, pkg/controllers/disruption/types.go).
void CheckDrift(const LintGang& gang, const NodePool& pool, const Written& its,
                Findings* findings) {
  const YamlValue grace = pool.yaml.At("spec.template.spec.terminationGracePeriod");
  absl::Duration period;
  if (!absl::ParseDuration(grace.Text(), &period)) return;
  const int64_t run = LongestRun(*gang.workload);
  if (run > 0 && absl::Seconds(run) <= period) return;
  for (const YamlValue& alias : AllAt(its.yaml, "spec.amiSelectorTerms.*.alias")) {
    if (!alias.Text().ends_with("@latest")) continue;
    findings->Add(
        "node-expires", pool.file, grace.line(),
        fmt::format("NodePool {} drains drifted nodes {} after, karpenter.sh/do-not-disrupt or "
                    "not, and {} drifts with each new image: {} may run longer",
                    pool.name, grace.Text(), alias.Text(), gang.Name()),
        fmt::format("remove terminationGracePeriod, or name the image in {}: {}@v20250505 for "
                    "example",
                    Concat("EC2NodeClass ", its.yaml.At("metadata.name").Text()),
                    alias.Text().substr(0, alias.Text().find('@'))));
    return;
  }
}

// --- volumes ---

bool IsDefault(const YamlValue& storage_class) {
  return storage_class.At("metadata.annotations")
             .Get("storageclass.kubernetes.io/is-default-class")
             .Text() == "true";
}

// EBS volumes are of one zone, which a class that binds at once chooses without asking the pod.
bool ChoosesZone(const YamlValue& storage_class) {
  const std::string& provisioner = storage_class.Get("provisioner").Text();
  return (provisioner == "ebs.csi.aws.com" || provisioner == "kubernetes.io/aws-ebs") &&
         storage_class.Get("volumeBindingMode").Text() != "WaitForFirstConsumer" &&
         storage_class.Get("allowedTopologies").Items().empty();
}

void CheckVolumes(const LintGang& gang, const PodTemplate& pods, const Manifests& manifests,
                  Findings* findings) {
  std::vector<YamlValue> claims = AllAt(gang.workload->yaml, "spec.volumeClaimTemplates.*.spec");
  for (const YamlValue& layer : pods.layers) {
    for (const YamlValue& each : AllAt(layer, "volumes.*.ephemeral.volumeClaimTemplate.spec")) {
      claims.push_back(each);
    }
    for (const YamlValue& name : AllAt(layer, "volumes.*.persistentVolumeClaim.claimName")) {
      for (const Written& each : manifests.others) {
        if (each.yaml.Get("kind").Text() == "PersistentVolumeClaim" &&
            each.yaml.At("metadata.name").Text() == name.Text() &&
            each.yaml.At("spec.volumeName").Text().empty()) {
          claims.push_back(each.yaml.Get("spec"));
        }
      }
    }
  }
  for (const Written& each : manifests.others) {
    if (each.yaml.Get("kind").Text() != "StorageClass" || !ChoosesZone(each.yaml)) continue;
    const std::string& name = each.yaml.At("metadata.name").Text();
    if (std::ranges::none_of(claims, [&](const YamlValue& claim) {
          const YamlValue its = claim.Get("storageClassName");
          return its.present() ? its.Text() == name : IsDefault(each.yaml);
        })) {
      continue;
    }
    const YamlValue mode = each.yaml.Get("volumeBindingMode");
    findings->Add(
        "volume-bound-at-once", each.file, mode.present() ? mode.line() : each.yaml.line(),
        fmt::format("StorageClass {} makes a volume in any zone before its pod has a node{}: {} "
                    "gets nodes in several zones, or none where its volumes are",
                    name, mode.present() ? "" : " (Immediate, which is the default)", gang.Name()),
        "make volumes where the pods are", "volumeBindingMode: WaitForFirstConsumer\n");
  }
}

// --- pods that each need a node of their own ---

struct Alone {
  int line = 0;
  std::string what;
};

Alone WhyAlone(const PodTemplate& pods) {
  const YamlValue& spec = pods.layers.front();
  const bool host = spec.Get("hostNetwork").Text() == "true";
  for (const YamlValue& port : AllAt(spec, "containers.*.ports.*")) {
    const YamlValue taken = port.Get(host ? "containerPort" : "hostPort");
    if (taken.present() && taken.Text() != "0") {
      return {taken.line(), Concat(host ? "containerPort " : "hostPort ", taken.Text(),
                                   host ? " with hostNetwork" : "")};
    }
  }
  for (const YamlValue& term :
       spec.At("affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution").Items()) {
    const YamlValue key = term.Get("topologyKey");
    if (key.Text() != kube::kHostnameLabel) continue;
    const std::vector<YamlField> labels = term.At("labelSelector.matchLabels").Fields();
    const bool own = std::ranges::all_of(labels, [&](const YamlField& field) {
      const auto label = pods.labels.find(field.key);
      return label != pods.labels.end() && label->second == field.value->text;
    });
    if (own && !labels.empty()) return {key.line(), "podAntiAffinity over the host's name"};
  }
  return {};
}

// The nodes that a NodePool's limits allow of its smallest type that fits; none: any number.
std::optional<int64_t> MostNodes(const NodePool& pool, const PodTemplate& pods,
                                 const cluster::InstanceTypes& types) {
  std::optional<int64_t> most;
  const auto take = [&](int64_t nodes) { most = most ? std::min(*most, nodes) : nodes; };
  const TypeSet fit = TypesOf(&pool, pods.node_selector, types);
  for (const auto& [resource, limit] : pool.limits) {
    if (resource == "nodes") take(limit.value);
    int64_t least = 0;
    for (const cluster::InstanceType* type : fit.known) {
      const int64_t amount = cluster::AmountOf(*type, resource);
      if (amount < pods.Asks(resource).value || amount == 0) continue;
      least = least == 0 ? amount : std::min(least, amount);
    }
    if (least > 0 && !fit.unknown && !fit.others) take(limit.value / least);
  }
  int64_t replicas = 0;
  if (ParseInt(pool.yaml.At("spec.replicas").Text(), &replicas)) take(replicas);
  return most;
}

void CheckAlone(const LintGang& gang, const PodTemplate& pods, const Surroundings& around,
                Findings* findings) {
  const std::vector<const NodePool*>& pools = around.pools.For(pods);
  if (pools.empty() || pods.layers.empty() || pods.told_at > 0) return;
  const Alone alone = WhyAlone(pods);
  if (alone.line == 0) return;
  int64_t all = 0;
  for (const NodePool* pool : pools) {
    const std::optional<int64_t> nodes = MostNodes(*pool, pods, around.types);
    if (!nodes) return;
    all += *nodes;
  }
  if (all >= pods.pods || findings->HasErrorAt(pods.file, alone.line)) return;
  findings->Add(
      "pool-limit-below-gang", pods.file, alone.line,
      fmt::format("{}: for {} no two of its {} fit on one node, and the limits of {} "
                  "allow {}",
                  gang.Name(), alone.what, Counted(pods.pods, "pod"), PoolNames(pools),
                  Counted(all, "node")),
      fmt::format("remove {}, or raise the limits to {}", alone.what, Counted(pods.pods, "node")));
}

}  // namespace

void CheckNodes(const std::vector<LintGang>& gangs, const Surroundings& around,
                Findings* findings) {
  const Manifests& manifests = around.manifests;
  for (const Written& each : manifests.others) {
    if (each.yaml.Get("kind").Text() != "EC2NodeClass") continue;
    const std::string what = Concat("EC2NodeClass ", each.yaml.At("metadata.name").Text());
    CheckUserData(what, each, findings);
    CheckDevices(what, each, findings);
  }
  for (const NodePool& pool : manifests.pools) {
    const Written* its = ClassOf(pool, manifests);
    if (its != nullptr) CheckReservations(pool, *its, findings);
  }
  for (const LintGang& gang : gangs) {
    for (const PodTemplate* pods : gang.templates) {
      CheckDisk(gang, *pods, around, findings);
      if (!gang.IsGang()) continue;
      CheckAlone(gang, *pods, around, findings);
      CheckVolumes(gang, *pods, manifests, findings);
      if (!pods->WantsDevices()) continue;
      for (const NodePool* pool : around.pools.For(*pods)) {
        const Written* its = ClassOf(*pool, manifests);
        if (its != nullptr) {
          CheckPublicAddress(gang, *pods, *pool, *its, findings);
          CheckDrift(gang, *pool, *its, findings);
        }
        CheckExpiry(gang, *pool, findings);
      }
    }
  }
}

}  // namespace muster::lint
