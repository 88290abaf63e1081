// The API request of each action: one place that knows how a decision is written to the API server.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "coscheduling/actions.h"
#include "kube/api.h"

namespace muster::writes {

// What the request's answer is: which object, if any, came back.
enum class AnswerKind {
  kNone,
  kPod,
  kNode,
  kPodGroup,
  kJob,
  kJobSet,
  kPyTorchJob,
  kTrainJob,
  kMPIJob,
  kRayCluster,
  kRayJob,
  kWorkload,
  kVolumeClaim,
  kVolume,
};

struct ActionRequest {
  kube::Request request;
  AnswerKind answer = AnswerKind::kNone;
  // GET of the object the action is about: to be read again when the write failed, so that the
  // engine sees why.
  kube::Request read_back;
  AnswerKind read_back_answer = AnswerKind::kNone;
};

// The versions of Kueue's API in which queues and Workloads are read, and so written.
struct QueueVersions {
  std::string cluster_queues = "v1beta2";
  std::string local_queues = "v1beta2";
  std::string cohorts = "v1beta2";
  std::string workloads = "v1beta2";
};

// nullopt for the actions that are no request of their own: EmitEvent and AnswerBind. `now` is for
// timestamps in what is written.
std::optional<ActionRequest> ToRequest(const coscheduling::Action& action, absl::Time now,
                                       const QueueVersions& versions = {});

// "record", "signal", "gate-lift", "nomination", "binding", "hold", "wake", "volume-node", "evict",
// "status", "event", "bind-answer", "pod-group", "min-member", "suspend", "resume", "restart-over",
// "give-back", "requeue", "give-back-over", "workload", "workload-status", "workload-touch",
// "workload-reclaim", "workload-end", "finalizer": for metrics, logs and MUSTER_TEST_CRASH_AFTER.
std::string_view KindOf(const coscheduling::Action& action);

}  // namespace muster::writes
