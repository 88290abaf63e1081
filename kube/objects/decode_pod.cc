#include <algorithm>
#include <limits>
#include <utility>

#include "kube/objects/decode.h"
#include "kube/objects/decode_parts.h"
#include "kube/objects/decode_pod_spec.h"

namespace muster::kube {
namespace {

// Times beyond are as good as none, and sums of them can't overflow.
constexpr int64_t kLongest = std::numeric_limits<int32_t>::max();

PodPhase ReadPhase(const JsonValue& value) {
  const std::string_view phase = value.View();
  if (phase.empty() || phase == "Pending") return PodPhase::kPending;
  if (phase == "Running") return PodPhase::kRunning;
  if (phase == "Succeeded") return PodPhase::kSucceeded;
  if (phase == "Failed") return PodPhase::kFailed;
  return PodPhase::kUnknown;
}

// A container that could not be started at all is terminated too, with no or the epoch's start.
bool HasStarted(const JsonValue& terminated) {
  const auto started_at = terminated.Get("startedAt").Time();
  return started_at && *started_at > absl::UnixEpoch();
}

void ReadContainerStatus(const JsonValue& status, Pod& pod) {
  const JsonValue state = status.Get("state");
  const JsonValue now = state.Get("terminated");
  const JsonValue before = status.Get("lastState").Get("terminated");
  if (state.Get("running").present() || status.Get("started").Bool() || HasStarted(now) ||
      HasStarted(before)) {
    pod.started = true;
  }
  for (const JsonValue& terminated : {now, before}) {
    if (pod.termination_message.empty()) {
      pod.termination_message = terminated.Get("message").String();
    }
    if (const auto ended = terminated.Get("finishedAt").Time();
        ended && *ended > absl::UnixEpoch()) {
      pod.ended_at = std::max(*ended, pod.ended_at.value_or(*ended));
    }
  }
}

void ReadPodStatus(const JsonValue& status, Pod& pod) {
  pod.phase = ReadPhase(status.Get("phase"));
  pod.status_reason = status.Get("reason").String();
  pod.status_message = status.Get("message").String();
  pod.nominated_node_name = status.Get("nominatedNodeName").String();
  pod.start_time = status.Get("startTime").Time().value_or(absl::InfiniteFuture());
  const JsonValue conditions = status.Get("conditions");
  const JsonValue scheduled = FindCondition(conditions, "PodScheduled");
  pod.scheduled_status = scheduled.Get("status").String();
  pod.scheduled_reason = scheduled.Get("reason").String();
  pod.scheduled_message = scheduled.Get("message").String();
  pod.ready = FindCondition(conditions, "Ready").Get("status").View() == "True";
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    status.Get(list).ForEach([&](const JsonValue& value) { ReadContainerStatus(value, pod); });
  }
}

}  // namespace

template <>
absl::StatusOr<Pod> Decode<Pod>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  Pod pod;
  pod.meta = ReadMeta(root.Get("metadata"));
  const JsonValue spec = root.Get("spec");
  const JsonValue status = root.Get("status");
  pod.spec = std::make_shared<const PodSpec>(ReadPodSpec(spec, status, pod.meta, reader));
  pod.scheduler_name = spec.Get("schedulerName").String();
  if (pod.scheduler_name.empty()) pod.scheduler_name = "default-scheduler";
  pod.priority = spec.Get("priority").Int32();
  pod.priority_class_name = spec.Get("priorityClassName").String();
  pod.preempts = spec.Get("preemptionPolicy").String() != "Never";
  pod.node_name = spec.Get("nodeName").String();
  spec.Get("schedulingGates").ForEach([&](const JsonValue& gate) {
    pod.scheduling_gates.push_back(gate.Get("name").String());
  });
  pod.native_group = spec.Get("schedulingGroup").Get("podGroupName").String();
  if (const int64_t active = spec.Get("activeDeadlineSeconds").Int(); active > 0) {
    constexpr int64_t kUsualGrace = 30;  // what the API server writes in where nothing is said
    const int64_t grace = spec.Get("terminationGracePeriodSeconds").Int(kUsualGrace);
    pod.longest_seconds = std::min(active, kLongest) + std::clamp<int64_t>(grace, 0, kLongest);
  }
  ReadPodStatus(status, pod);
  if (!reader.status().ok()) return reader.status();
  pod.spec_error = reader.unusable();
  return pod;
}

}  // namespace muster::kube
