// What a namespace's pod security level refuses (Kubernetes' Pod Security Standards), and resources
// that a pod itself can't ask for.
#include <algorithm>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "lint/rules.h"
#include "lint/text.h"
#include "lint/walk.h"

namespace muster::lint {
namespace {

using yaml::YamlField;
using yaml::YamlValue;

// The values at a path that a level refuses: `values` (with blanks between them) are those that are
// taken, or, if it says so, those that aren't.
struct Refused {
  std::string_view path;
  std::string_view values;
  bool taken;
};

constexpr std::string_view kAny = "*";

constexpr Refused kBaseline[] = {
    {"hostNetwork", "true", false},
    {"hostPID", "true", false},
    {"hostIPC", "true", false},
    {"volumes.*.hostPath", kAny, false},
    {"C.securityContext.privileged", "true", false},
    {"C.securityContext.procMount", "Unmasked", false},
    {"C.securityContext.capabilities.add.*",
     "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE SETFCAP SETGID "
     "SETPCAP SETUID SYS_CHROOT",
     true},
    {"C.securityContext.seccompProfile.type", "RuntimeDefault Localhost", true},
    {"C.ports.*.hostPort", "0", true},
    {"securityContext.seccompProfile.type", "RuntimeDefault Localhost", true},
    {"securityContext.sysctls.*.name",
     "kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.ip_unprivileged_port_start "
     "net.ipv4.tcp_syncookies net.ipv4.ping_group_range net.ipv4.ip_local_reserved_ports "
     "net.ipv4.tcp_keepalive_time net.ipv4.tcp_fin_timeout net.ipv4.tcp_keepalive_intvl "
     "net.ipv4.tcp_keepalive_probes",
     true},
};

constexpr Refused kRestricted[] = {
    {"C.securityContext.capabilities.add.*", "NET_BIND_SERVICE", true},
    {"C.securityContext.allowPrivilegeEscalation", "false", true},
    {"C.securityContext.runAsNonRoot", "true", true},
    {"C.securityContext.runAsUser", "0", false},
    {"securityContext.runAsNonRoot", "true", true},
    {"securityContext.runAsUser", "0", false},
    {"volumes.*.nfs", kAny, false},
};

// What each container must say, in itself or, if so, in the pod.
struct Wanted {
  std::string_view path, value;
  bool of_pod;
};
constexpr Wanted kWanted[] = {
    {"securityContext.allowPrivilegeEscalation", "false", false},
    {"securityContext.capabilities.drop.*", "ALL", false},
    {"securityContext.runAsNonRoot", "true", true},
    {"securityContext.seccompProfile.type", "", true},
};

bool IsAmong(std::string_view value, std::string_view values) {
  const std::vector<std::string_view> all = SplitWords(values);
  return values == kAny || std::ranges::find(all, value) != all.end();
}

class PodSecurity {
 public:
  PodSecurity(const WalkedObject& space, const YamlValue& level, Findings* findings)
      : level_(level.Text()),
        where_(fmt::format("namespace {} enforces pod security level {}", space.name, level_)),
        findings_(findings) {}

  void Check(const Workload& workload, const PodTemplate& pods) const {
    for (const YamlValue& spec : pods.layers) {
      const int told = &spec == &pods.layers.front() ? pods.told_at : 0;
      for (const Refused& each : kBaseline) Refuse(each, spec, workload, pods, told);
      if (level_ != "restricted") continue;
      for (const Refused& each : kRestricted) Refuse(each, spec, workload, pods, told);
    }
    if (level_ == "restricted" && pods.layers.size() == 1) Want(workload, pods);
  }

 private:
  void Refuse(const Refused& each, const YamlValue& spec, const Workload& workload,
              const PodTemplate& pods, int told) const {
    const bool of_container = each.path.starts_with("C.");
    for (const char* list : {"containers", "initContainers"}) {
      const std::string path =
          of_container ? Concat(list, ".*", each.path.substr(1)) : std::string(each.path);
      for (const YamlValue& value : AllAt(spec, path)) {
        if (IsAmong(value.Text(), each.values) == each.taken) continue;
        const std::string text = value.is_scalar() ? Concat(" ", value.Text()) : "";
        Tell(
            workload, pods, told > 0 ? told : value.line(),
            fmt::format("doesn't allow {}{}", of_container ? each.path.substr(2) : each.path, text),
            fmt::format("remove {}{}", of_container ? each.path.substr(2) : each.path, text));
      }
      if (!of_container) break;
    }
  }

  void Want(const Workload& workload, const PodTemplate& pods) const {
    const YamlValue& spec = pods.layers.front();
    for (const YamlValue& container : AllAt(spec, "containers.*")) {
      for (const Wanted& each : kWanted) {
        std::vector<YamlValue> said = AllAt(container, each.path);
        if (each.of_pod && said.empty()) said = AllAt(spec, each.path);
        const bool right = std::ranges::any_of(said, [&](const YamlValue& value) {
          return each.value.empty() || value.Text() == each.value;
        });
        // What is said wrongly is told already.
        if (right || (!said.empty() && each.path.find("drop") == std::string_view::npos)) continue;
        Tell(workload, pods, pods.told_at > 0 ? pods.told_at : container.line(),
             fmt::format("wants {} {} of container {}", each.path, each.value,
                         container.Get("name").Text()),
             fmt::format("set {} {}", each.path,
                         each.value.empty() ? "RuntimeDefault" : each.value));
        break;
      }
    }
  }

  void Tell(const Workload& workload, const PodTemplate& pods, int line, const std::string& message,
            const std::string& fix) const {
    if (findings_->HasErrorAt(pods.file, line)) return;
    findings_->Add(
        "api-refused", pods.file, line,
        fmt::format("{}: {}, which {}: the API server refuses its pods", workload.ToString(),
                    where_, message),
        Concat(fix, ", or label the namespace pod-security.kubernetes.io/enforce: ", "privileged"));
  }

  const std::string& level_;
  const std::string where_;
  Findings* const findings_;
};

// What a pod itself, beside its containers, may ask for.
void CheckPodResources(const Workload& workload, const PodTemplate& pods, Findings* findings) {
  if (pods.layers.empty()) return;
  const YamlValue resources = pods.layers.front().Get("resources");
  for (const char* list : {"limits", "requests"}) {
    for (const YamlField& field : resources.Get(list).Fields()) {
      if (field.key == "cpu" || field.key == "memory" || field.key.starts_with("hugepages-")) {
        continue;
      }
      const int line = pods.told_at > 0 ? pods.told_at : field.line;
      findings->Add("api-refused", pods.file, line,
                    fmt::format("{} asks for {} in the resources of the pod, which may be only "
                                "cpu, memory and huge pages",
                                workload.ToString(), field.key),
                    Concat("move ", field.key, " to resources.limits of a container"));
    }
  }
}

}  // namespace

void CheckPodSecurity(const Manifests& manifests, Findings* findings) {
  for (const Workload& workload : manifests.workloads) {
    for (const PodTemplate& pods : workload.templates) {
      CheckPodResources(workload, pods, findings);
    }
  }
  for (const WalkedObject& object : WalkedObjects(manifests)) {
    const YamlValue level =
        object.yaml.At("metadata.labels").Get("pod-security.kubernetes.io/enforce");
    if (object.kind != "Namespace" ||
        (level.Text() != "baseline" && level.Text() != "restricted")) {
      continue;
    }
    const PodSecurity security(object, level, findings);
    for (const Workload& workload : manifests.workloads) {
      if (workload.name_space != object.name) continue;
      for (const PodTemplate& pods : workload.templates) security.Check(workload, pods);
    }
  }
}

}  // namespace muster::lint
