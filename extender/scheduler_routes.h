// kube-scheduler's side of the service: the extender's four verbs as HTTP routes.
//
// filter, prioritize and preempt are answered on the io thread from the published table. bind is
// held, without a thread, until the engine answers; kube-scheduler has one call per pod under way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "extender/executor.h"
#include "extender/extender_protocol.h"
#include "extender/filter_table.h"
#include "http/server.h"

namespace muster::extender {

struct SchedulerRoutesOptions {
  // Bind calls held at once; one more is answered with an error.
  size_t max_held_binds = 50'000;
  // Hands a task to the engine's thread.
  std::function<void(EngineTask)> post_urgent;
  // For metrics; any thread. The time is from when the call's first byte was read: of a large
  // cluster's nodes reading takes longer than answering.
  std::function<void(FilterReply::Outcome, absl::Duration)> on_filter;
  std::function<void(bool bound, absl::Duration)> on_bind;
  std::function<absl::Time()> clock;
  // "" if this process leads; else the error that filter and bind calls get. Any thread.
  std::function<std::string()> not_leading = [] { return std::string(); };
};

class SchedulerRoutes {
 public:
  // `table` must outlive the routes' server.
  SchedulerRoutes(const FilterTable& table, SchedulerRoutesOptions options);
  ~SchedulerRoutes();

  std::vector<http::Route> Routes();

  // The engine's AnswerBind: ends the call with this id. Unknown ids are ignored.
  void AnswerBind(uint64_t request, std::string_view error);
  // The process stops: bind calls from now on are answered with this error; Refuse ends those that
  // are held, too.
  void RefuseNew(const std::string& error);
  void Refuse(const std::string& error);
  size_t held_binds() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::extender
