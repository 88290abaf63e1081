// Carries the engine's actions out over the API server.
//
// Every action becomes one request (action_requests.h), sent at once and in parallel, as many as
// the transport takes; bindings and gate lifts of a batch go first. What comes back is handed to
// the engine's thread: first the object as it is now, then the outcome. After a failure the object
// is read, so that the engine sees why: a conflict, a pod that is gone, or a write that took effect
// although its answer was lost.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coscheduling/actions.h"
#include "extender/action_requests.h"
#include "kube/api.h"
#include "kube/client/retry.h"
#include "kube/client/timer.h"

namespace muster::coscheduling {
class Engine;
}

namespace muster::extender {

// Runs on the engine's thread, in the order of posting.
using EngineTask = std::function<void(coscheduling::Engine&, absl::Time now)>;

// For tests of what a crash leaves behind: ends the process by SIGKILL right after the n-th
// successful write of one kind. From environment variable MUSTER_TEST_CRASH_AFTER="kind:n", kinds
// as KindOf says ("signal", "gate-lift", "binding", "record", "hold").
class CrashAfter {
 public:
  // InvalidArgument for a text that isn't kind:n; never crashes if `text` is empty.
  static absl::StatusOr<CrashAfter> Parse(std::string_view text);
  CrashAfter() = default;
  CrashAfter(const CrashAfter& other)
      : kind_(other.kind_), left_(other.left_.load(std::memory_order_relaxed)) {}
  void OnSuccess(std::string_view kind);

 private:
  std::string kind_;
  std::atomic<int> left_ = 0;
};

class Executor {
 public:
  using Post = std::function<void(EngineTask)>;
  // What happened to an action, for metrics. Any thread.
  using OnOutcome =
      std::function<void(std::string_view kind, const absl::Status&, absl::Duration took)>;

  // Asked before a queue's status is written, on the thread that calls CarryOut.
  using VersionsOfQueues = std::function<QueueVersions()>;

  // `post` hands a task to the engine's thread; any thread may call it. Transport and timer must
  // outlive the executor.
  Executor(kube::Transport& transport, kube::Timer& timer, Post post, OnOutcome on_outcome,
           const CrashAfter& crash_after = {}, VersionsOfQueues versions = nullptr);
  ~Executor();

  // Thread-safe. EmitEvent and AnswerBind are not for here and are ignored.
  void CarryOut(std::vector<coscheduling::NumberedAction> actions);

 private:
  struct State;
  void Send(const coscheduling::NumberedAction& action);
  std::shared_ptr<State> state_;
};

}  // namespace muster::extender
