#include "extender/scheduler_routes.h"

#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "coscheduling/engine.h"

namespace muster::extender {
namespace {

using coscheduling::FilterAnswer;

http::Response BadRequest(const absl::Status& status) {
  return {.status = 400, .body = EncodeError(std::string(status.message()))};
}

}  // namespace

struct SchedulerRoutes::State {
  State(const FilterTable& t, SchedulerRoutesOptions o) : table(t), options(std::move(o)) {}

  struct HeldBind {
    http::Responder responder;
    absl::Time since;
  };

  void Filter(const http::Request& request, const http::Responder& responder) {
    const absl::Time started = options.clock();
    absl::StatusOr<FilterReply> reply = AnswerFilter(
        request.body, [this](std::string_view uid) -> std::shared_ptr<const FilterAnswer> {
          std::string refused = options.not_leading();
          if (refused.empty()) return table.Find(uid);
          return std::make_shared<const FilterAnswer>(
              FilterAnswer{FilterAnswer::Kind::kHold, "", std::move(refused)});
        });
    if (!reply.ok()) {
      responder.Send(BadRequest(reply.status()));
      return;
    }
    const FilterReply::Outcome outcome = reply->outcome;
    if (outcome == FilterReply::Outcome::kRefused) {
      options.post_urgent(
          [uid = reply->pod_uid, node = reply->refused_node, offered = std::move(reply->offered)](
              coscheduling::Engine& engine, absl::Time now) {
            engine.RefusePlannedNode(uid, node, offered, now);
          });
    }
    responder.Send({.body = std::move(reply->body)});
    options.on_filter(outcome, request.coming + (options.clock() - started));
  }

  static void Answer(const absl::StatusOr<std::string>& body, const http::Responder& responder) {
    responder.Send(body.ok() ? http::Response{.body = *body} : BadRequest(body.status()));
  }

  void Bind(const http::Request& request, const http::Responder& responder) {
    absl::StatusOr<BindCall> call = DecodeBind(request.body);
    if (!call.ok()) {
      responder.Send(BadRequest(call.status()));
      return;
    }
    uint64_t id = 0;
    std::string error = options.not_leading();
    {
      const std::lock_guard lock(mutex);
      if (!refusal.empty()) error = refusal;
      if (!error.empty()) {
        // Refused.
      } else if (held.size() >= options.max_held_binds) {
        error = "too many bind calls are being held";
      } else {
        id = ++last_id;
        held.emplace(id, HeldBind{responder, options.clock()});
      }
    }
    if (!error.empty()) {
      responder.Send({.body = EncodeBindResult(error)});
      return;
    }
    options.post_urgent(
        [id, call = *std::move(call)](coscheduling::Engine& engine, absl::Time now) {
          engine.RequestBind(id, call.pod_uid, call.node, now);
        });
  }

  std::optional<HeldBind> Take(uint64_t id) {
    const std::lock_guard lock(mutex);
    auto it = held.find(id);
    if (it == held.end()) return std::nullopt;
    HeldBind bind = std::move(it->second);
    held.erase(it);
    return bind;
  }

  const FilterTable& table;
  const SchedulerRoutesOptions options;
  mutable std::mutex mutex;
  std::unordered_map<uint64_t, HeldBind> held;
  uint64_t last_id = 0;
  std::string refusal;
};

SchedulerRoutes::SchedulerRoutes(const FilterTable& table, SchedulerRoutesOptions options)
    : state_(std::make_shared<State>(table, std::move(options))) {}

SchedulerRoutes::~SchedulerRoutes() = default;

std::vector<http::Route> SchedulerRoutes::Routes() {
  const std::shared_ptr<State> state = state_;
  return {
      {"POST", "/filter",
       [state](const http::Request& request, const http::Responder& responder) {
         state->Filter(request, responder);
       }},
      {"POST", "/prioritize",
       [](const http::Request& request, const http::Responder& responder) {
         State::Answer(AnswerPrioritize(request.body), responder);
       }},
      {"POST", "/preempt",
       [](const http::Request& request, const http::Responder& responder) {
         State::Answer(AnswerPreemption(request.body), responder);
       }},
      {"POST", "/bind",
       [state](const http::Request& request, const http::Responder& responder) {
         state->Bind(request, responder);
       }},
  };
}

void SchedulerRoutes::AnswerBind(uint64_t request, std::string_view error) {
  std::optional<State::HeldBind> bind = state_->Take(request);
  if (!bind) return;
  bind->responder.Send({.body = EncodeBindResult(error)});
  state_->options.on_bind(error.empty(), state_->options.clock() - bind->since);
}

void SchedulerRoutes::RefuseNew(const std::string& error) {
  const std::lock_guard lock(state_->mutex);
  state_->refusal = error;
}

void SchedulerRoutes::Refuse(const std::string& error) {
  std::unordered_map<uint64_t, State::HeldBind> held;
  {
    const std::lock_guard lock(state_->mutex);
    state_->refusal = error;
    held.swap(state_->held);
  }
  for (auto& [id, bind] : held) bind.responder.Send({.body = EncodeBindResult(error)});
}

size_t SchedulerRoutes::held_binds() const {
  const std::lock_guard lock(state_->mutex);
  return state_->held.size();
}

}  // namespace muster::extender
