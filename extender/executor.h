// Carries the engine's actions out over the API server.
//
// Every action becomes one request (writes/action_requests.h), sent at once and in parallel, as
// many as the API server bears (concurrency_limit.h). What is beyond it waits here, the most urgent
// first: bindings, so that no gang stays bound in part; admission records, one for a whole gang
// that waits for it; gate lifts, and what resumes jobs or suspends them; signals; the rest; and
// last what only reports. The less urgent may have a part of the places only: the rest half of
// them, reports an eighth, and the last eighth is for bindings and records alone. One that is to be
// tried again gives its place away while it pauses. Of a server that is slow or too busy for status
// writes bindings therefore see nothing. Among equally urgent ones namespaces take turns: one of
// thousands of gangs holds up nobody else's. That holds for reports as well, as the record of a
// gang is written only once its status, asked for before, has been.
//
// Waiting doesn't count against the time that a request may take: were the requests of thousands of
// pods all sent off with the same deadline, a busy API server would spend itself on those that are
// given up while it works on them.
//
// What comes back is handed to the engine's thread: first the object as it is now, then the
// outcome. After a failure the object is read, so that the engine sees why: a conflict, a pod that
// is gone, or a write that took effect although its answer was lost.
#pragma once

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
#include "kube/api.h"
#include "kube/client/concurrency_limit.h"
#include "kube/client/retry.h"
#include "kube/client/timer.h"
#include "writes/action_requests.h"

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
  // What happened to an action, and how long after CarryOut, for metrics. Any thread.
  using OnOutcome =
      std::function<void(std::string_view kind, const absl::Status&, absl::Duration took)>;

  // Asked before a queue's status is written. Any thread.
  using VersionsOfQueues = std::function<writes::QueueVersions()>;

  // `post` hands a task to the engine's thread; any thread may call it. Of all actions at most
  // `concurrency.most` are under way at once, as many as the transport sends at once. What waits
  // beside them is bounded by the engine, which asks for one action per target at a time. Transport
  // and timer must outlive the executor.
  Executor(kube::Transport& transport, kube::Timer& timer,
           const kube::ConcurrencyOptions& concurrency, Post post, OnOutcome on_outcome,
           const CrashAfter& crash_after = {}, VersionsOfQueues versions = nullptr);
  ~Executor();

  struct Stats {
    size_t waiting = 0;
    size_t in_flight = 0;
    size_t places = 0;   // how many may be
    size_t pausing = 0;  // until they are tried again
  };
  Stats stats() const;

  // Thread-safe. EmitEvent and AnswerBind are not for here and are ignored.
  void CarryOut(std::vector<coscheduling::NumberedAction> actions);

 private:
  struct Job;
  using JobPointer = std::shared_ptr<Job>;
  class Turns;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::extender
