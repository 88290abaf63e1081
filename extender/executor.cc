#include "extender/executor.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <utility>

#include "coscheduling/engine.h"
#include "fmt/format.h"
#include "kube/objects/decode.h"

namespace muster::extender {
namespace {

// Short: the engine asks again by itself, with what it has seen by then.
const kube::RetryPolicy kPolicy = {.max_attempts = 4,
                                   .budget = absl::Seconds(10),
                                   .backoff = {absl::Milliseconds(50), absl::Seconds(2), 2},
                                   .carries_precondition = true};

int Urgency(const coscheduling::Action& action) {
  if (std::holds_alternative<coscheduling::BindPod>(action)) return 0;
  if (std::holds_alternative<coscheduling::LiftGate>(action)) return 1;
  if (std::holds_alternative<coscheduling::UpdatePodGroupStatus>(action)) return 3;
  return 2;
}

// Hands over the object in an answer; does nothing for one that can't be read, which the watch
// will bring again.
template <typename T>
EngineTask UpsertTask(const std::string& body) {
  absl::StatusOr<T> object = kube::Decode<T>(body);
  if (!object.ok()) return nullptr;
  return [object = *std::move(object)](coscheduling::Engine& engine, absl::Time) {
    engine.Upsert(object);
  };
}

EngineTask ObserveTask(AnswerKind kind, const std::string& body) {
  switch (kind) {
    case AnswerKind::kPod:
      return UpsertTask<kube::Pod>(body);
    case AnswerKind::kNode:
      return UpsertTask<kube::Node>(body);
    case AnswerKind::kPodGroup:
      return UpsertTask<kube::PodGroup>(body);
    case AnswerKind::kNone:
      return nullptr;
  }
  return nullptr;
}

absl::Status OutcomeOf(const absl::StatusOr<kube::Response>& answer) {
  return answer.ok() ? kube::ToStatus(*answer) : answer.status();
}

}  // namespace

absl::StatusOr<CrashAfter> CrashAfter::Parse(std::string_view text) {
  CrashAfter crash;
  if (text.empty()) return crash;
  const size_t colon = text.find(':');
  int count = 0;
  if (colon != std::string_view::npos) {
    const char* end = text.data() + text.size();
    auto [parsed, error] = std::from_chars(text.data() + colon + 1, end, count);
    if (error != std::errc() || parsed != end) count = 0;
  }
  if (count < 1) {
    return absl::InvalidArgumentError(
        fmt::format("MUSTER_TEST_CRASH_AFTER is \"{}\", want kind:n with n of at least 1", text));
  }
  crash.kind_ = text.substr(0, colon);
  crash.left_ = count;
  return crash;
}

void CrashAfter::OnSuccess(std::string_view kind) {
  if (kind_.empty() || kind != kind_) return;
  if (left_.fetch_sub(1) == 1) std::raise(SIGKILL);
}

struct Executor::State {
  State(kube::Transport& transport, kube::Timer& t, Post p, OnOutcome o, const CrashAfter& c,
        VersionsOfQueues v)
      : sender(transport, t),
        timer(t),
        post(std::move(p)),
        on_outcome(std::move(o)),
        crash_after(c),
        versions(std::move(v)) {}

  kube::RetryingSender sender;
  kube::Timer& timer;
  const Post post;
  const OnOutcome on_outcome;
  CrashAfter crash_after;
  const VersionsOfQueues versions;
};

Executor::Executor(kube::Transport& transport, kube::Timer& timer, Post post, OnOutcome on_outcome,
                   const CrashAfter& crash_after, VersionsOfQueues versions)
    : state_(std::make_shared<State>(transport, timer, std::move(post), std::move(on_outcome),
                                     crash_after, std::move(versions))) {}

Executor::~Executor() = default;

void Executor::CarryOut(std::vector<coscheduling::NumberedAction> actions) {
  std::ranges::stable_sort(actions, {}, [](const coscheduling::NumberedAction& action) {
    return Urgency(action.action);
  });
  for (const coscheduling::NumberedAction& action : actions) Send(action);
}

void Executor::Send(const coscheduling::NumberedAction& action) {
  const absl::Time sent = state_->timer.Now();
  QueueVersions versions;
  if (state_->versions && std::holds_alternative<coscheduling::UpdateQueueStatus>(action.action)) {
    versions = state_->versions();
  }
  std::optional<ActionRequest> made = ToRequest(action.action, sent, versions);
  if (!made) return;
  const uint64_t id = action.id;
  const std::string_view kind = KindOf(action.action);
  kube::Request request = std::move(made->request);
  // The sender may outlive this call only together with the state that it belongs to.
  std::weak_ptr<State> weak = state_;
  state_->sender.Send(
      std::move(request), kPolicy,
      [weak, id, kind, sent, made = *std::move(made)](absl::StatusOr<kube::Response> answer) {
        const std::shared_ptr<State> state = weak.lock();
        if (state == nullptr) return;
        const absl::Status outcome = OutcomeOf(answer);
        if (state->on_outcome) state->on_outcome(kind, outcome, state->timer.Now() - sent);
        if (outcome.ok()) {
          EngineTask observe = ObserveTask(made.answer, answer->body);
          state->crash_after.OnSuccess(kind);
          state->post(
              [id, observe = std::move(observe)](coscheduling::Engine& engine, absl::Time now) {
                if (observe) observe(engine, now);
                engine.Finish(id, absl::OkStatus(), now);
              });
          return;
        }
        const AnswerKind read_kind = made.read_back_answer;
        state->sender.Send(made.read_back, kPolicy,
                           [weak, id, outcome, read_kind](absl::StatusOr<kube::Response> read) {
                             const std::shared_ptr<State> after = weak.lock();
                             if (after == nullptr) return;
                             EngineTask observe;
                             if (read.ok() && read->ok())
                               observe = ObserveTask(read_kind, read->body);
                             after->post([id, outcome, observe = std::move(observe)](
                                             coscheduling::Engine& engine, absl::Time now) {
                               if (observe) observe(engine, now);
                               engine.Finish(id, outcome, now);
                             });
                           });
      });
}

}  // namespace muster::extender
