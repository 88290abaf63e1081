#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "kube/objects/decode.h"
#include "kube/objects/decode_parts.h"
#include "kube/objects/decode_pod_spec.h"

namespace muster::kube {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

// An integer of a PodGroup's spec. Our own CRD rejects the wrong ones, an older or foreign one may
// not; either way the gang must be able to say what is wrong with it.
int64_t ReadBounded(const JsonValue& value, int64_t least, JsonReader& reader) {
  if (!value.IsInteger()) {
    reader.RejectObject(fmt::format("{} is {}, must be an integer from {} to {}", value.Path(),
                                    value.present() ? value.Excerpt() : "missing", least, kMost));
    return 0;
  }
  const int64_t number = value.Int();
  if (number < least) {
    reader.RejectObject(fmt::format("{} is {}, must be at least {}", value.Path(), number, least));
  } else if (number > kMost) {
    reader.RejectObject(fmt::format("{} is {}, must be at most {}", value.Path(), number, kMost));
  }
  return number;
}

PodGroup::Status ReadPodGroupStatus(const JsonValue& value) {
  PodGroup::Status status;
  status.phase = value.Get("phase").String();
  status.occupied_by = value.Get("occupiedBy").String();
  status.scheduled = value.Get("scheduled").Int();
  status.running = value.Get("running").Int();
  status.succeeded = value.Get("succeeded").Int();
  status.failed = value.Get("failed").Int();
  status.schedule_start_time = value.Get("scheduleStartTime").Time();
  const JsonValue admitted = FindCondition(value.Get("conditions"), "Admitted");
  status.condition_status = admitted.Get("status").String();
  status.condition_reason = admitted.Get("reason").String();
  status.condition_message = admitted.Get("message").String();
  return status;
}

// What the DaemonSet controller adds to each of its pods
// (k8s.io/kubernetes pkg/controller/daemon/util/daemonset_util.go v1.34).
void AddDaemonTolerations(bool host_network, PodSpec& spec) {
  const auto add = [&spec](std::string key, TaintEffect effect) {
    Toleration toleration;
    toleration.key = std::move(key);
    toleration.exists = true;
    toleration.effect = effect;
    auto& have = spec.tolerations;
    if (std::find(have.begin(), have.end(), toleration) == have.end()) {
      have.push_back(std::move(toleration));
    }
  };
  add("node.kubernetes.io/not-ready", TaintEffect::kNoExecute);
  add("node.kubernetes.io/unreachable", TaintEffect::kNoExecute);
  add("node.kubernetes.io/disk-pressure", TaintEffect::kNoSchedule);
  add("node.kubernetes.io/memory-pressure", TaintEffect::kNoSchedule);
  add("node.kubernetes.io/pid-pressure", TaintEffect::kNoSchedule);
  add("node.kubernetes.io/unschedulable", TaintEffect::kNoSchedule);
  if (host_network) add("node.kubernetes.io/network-unavailable", TaintEffect::kNoSchedule);
}

}  // namespace

template <>
absl::StatusOr<PodGroup> Decode<PodGroup>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  PodGroup group;
  group.meta = ReadMeta(root.Get("metadata"));
  const JsonValue spec = root.Get("spec");
  group.min_member = ReadBounded(spec.Get("minMember"), 1, reader);
  const JsonValue min_resources = spec.Get("minResources");
  if (min_resources.present()) group.min_resources = ReadResourceList(min_resources);
  const JsonValue timeout = spec.Get("scheduleTimeoutSeconds");
  if (timeout.present()) group.schedule_timeout_seconds = ReadBounded(timeout, 0, reader);
  group.status = ReadPodGroupStatus(root.Get("status"));
  if (!reader.status().ok()) return reader.status();
  group.error = reader.unusable();
  return group;
}

template <>
absl::StatusOr<DaemonSet> Decode<DaemonSet>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  DaemonSet daemon_set;
  daemon_set.meta = ReadMeta(root.Get("metadata"));
  const JsonValue pod = root.Get("spec").Get("template");
  const JsonValue pod_spec = pod.Get("spec");
  const ObjectMeta pod_meta = ReadMeta(pod.Get("metadata"));
  PodSpec spec = ReadPodSpec(pod_spec, pod_spec.Absent(), pod_meta, reader);
  AddDaemonTolerations(pod_spec.Get("hostNetwork").Bool(), spec);
  daemon_set.pod_spec = std::make_shared<const PodSpec>(std::move(spec));
  if (!reader.status().ok()) return reader.status();
  daemon_set.error = reader.unusable();
  return daemon_set;
}

template <>
absl::StatusOr<PodDisruptionBudget> Decode<PodDisruptionBudget>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  PodDisruptionBudget budget;
  budget.meta = ReadMeta(root.Get("metadata"));
  budget.selector = ReadLabelSelector(root.Get("spec").Get("selector"));
  budget.disruptions_allowed = root.Get("status").Get("disruptionsAllowed").Int();
  if (!reader.status().ok()) return reader.status();
  return budget;
}

template <>
absl::StatusOr<Namespace> Decode<Namespace>(std::string_view json) {
  JsonReader reader(json);
  Namespace result;
  result.meta = ReadMeta(reader.root().Get("metadata"));
  if (!reader.status().ok()) return reader.status();
  result.meta.labels["kubernetes.io/metadata.name"] = result.meta.name;
  return result;
}

}  // namespace muster::kube
