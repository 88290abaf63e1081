// What Muster counts about itself, as Prometheus text. Names begin with muster_, times are seconds;
// what means the same as elsewhere has its name there: process_, and kueue_ where Muster admits in
// Kueue's place.
//
// Two ways in: what happens is told as it happens (the On... functions, which take a lock for
// nanoseconds); what others count already is read when a scrape comes, from a Sample. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coscheduling/engine.h"
#include "extender/access/access_control.h"
#include "extender/cluster_watch.h"
#include "extender/engine_loop.h"
#include "extender/event_recorder.h"
#include "extender/executor.h"
#include "extender/extender_protocol.h"
#include "extender/process_stats.h"
#include "extender/state_store.h"
#include "http/server.h"
#include "kube/client/transport_stats.h"
#include "lint/object_lint.h"

namespace muster::extender {

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The server's part of a filter call: from the whole request to the answer.
  void OnFilter(FilterReply::Outcome outcome, absl::Duration took);
  // From kube-scheduler's call to the answer, which is held until the gang is bound or fails.
  void OnBind(bool bound, absl::Duration took);
  // One action of the engine, as KindOf names it.
  void OnAction(std::string_view kind, const absl::Status& status, absl::Duration took);
  // http::ServerOptions::observe; `server` is "extender", "rest", "aggregated", "webhook" or
  // "health".
  void OnHttp(std::string_view server, std::string_view pattern, int status, absl::Duration took);
  // What lint found in an object that was applied.
  void OnObjectLint(const lint::ObjectLint& lint);
  // Engine::TakeStats, now and then.
  void OnEngine(const coscheduling::EngineStats& stats);
  // The nodes as published last (v1::ListNodesResponse), now and then while this process leads;
  // null while it doesn't.
  void OnNodes(absl::Time now, const MessageList* nodes);
  // EngineLoopStats::longest_step and longest_step_cpu, now and then.
  void OnLongestStep(absl::Time now, const EngineLoopStats& stats);
  // What became of a Workload (workload_changes.h), by its ClusterQueue.
  void OnAdmitted(const std::string& queue, absl::Duration wait);
  void OnEvicted(const std::string& queue, const std::string& reason);
  void OnPreempted(const std::string& queue, const std::string& reason);

  // How things are at the moment of a scrape. Gangs and queues are the leader's to tell: of a
  // replica that doesn't lead they are left out, as they were when it last did.
  struct Sample {
    absl::Time now;
    std::vector<SharedGang> gangs;
    std::shared_ptr<const MessageList> queues;  // null: none
    EngineLoopStats loop;
    kube::TransportStats api;
    std::vector<ClusterWatch::KindStats> watches;
    EventRecorder::Stats events;
    Executor::Stats actions;
    size_t held_binds = 0;
    size_t filter_answers = 0;
    size_t subscriptions = 0;
    std::optional<AccessControl::Stats> access;  // absent: everyone may ask
    std::vector<std::pair<const char*, http::Server::ConnectionCounts>> connections;  // by server
    ProcessStats process;
    absl::Time certificate_expires = absl::InfiniteFuture();  // of the webhook; never: unknown
    bool ready = false;
    bool leading = false;
    bool leader_known = false;
    std::optional<int64_t> transitions;  // Leadership's
    bool webhook_in_place = false;
    bool warnings_in_place = false;
    bool another_kueue = false;
  };
  std::string Text(const Sample& sample) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::extender
