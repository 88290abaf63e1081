#include "extender/executor.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <deque>
#include <mutex>
#include <optional>
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

// The smaller, the sooner.
constexpr size_t kUrgencies = 5;
size_t UrgencyOf(const coscheduling::Action& action) {
  if (std::holds_alternative<coscheduling::BindPod>(action)) return 0;
  if (std::holds_alternative<coscheduling::WriteRecord>(action)) return 1;
  if (std::holds_alternative<coscheduling::LiftGate>(action)) return 2;
  if (std::holds_alternative<coscheduling::UpdatePodGroupStatus>(action) ||
      std::holds_alternative<coscheduling::UpdateQueueStatus>(action)) {
    return 4;
  }
  return 3;
}

// Each so manieth place goes to the least urgent, so that people see something while thousands of
// pods are bound.
constexpr uint64_t kTurnOfLeastUrgent = 32;

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
    case AnswerKind::kJob:
      return UpsertTask<kube::Job>(body);
    case AnswerKind::kJobSet:
      return UpsertTask<kube::JobSet>(body);
    case AnswerKind::kPyTorchJob:
      return UpsertTask<kube::PyTorchJob>(body);
    case AnswerKind::kTrainJob:
      return UpsertTask<kube::TrainJob>(body);
    case AnswerKind::kWorkload:
      return UpsertTask<kube::Workload>(body);
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

struct Executor::State : std::enable_shared_from_this<Executor::State> {
  State(kube::Transport& transport, kube::Timer& t, size_t m, Post p, OnOutcome o,
        const CrashAfter& c, VersionsOfQueues v)
      : sender(transport, t),
        timer(t),
        max_in_flight(m),
        post(std::move(p)),
        on_outcome(std::move(o)),
        crash_after(c),
        versions(std::move(v)) {}

  struct Waiting {
    coscheduling::NumberedAction action;
    absl::Time asked;
  };

  void SendWaiting();
  std::optional<Waiting> TakeNext();
  void Send(const Waiting& waiting);
  void Answered(const ActionRequest& made, uint64_t id, const absl::StatusOr<kube::Response>&);
  // The last thing about an action: the engine is told, and its place is another's.
  void Finish(uint64_t id, const absl::Status& outcome, EngineTask observe);

  kube::RetryingSender sender;
  kube::Timer& timer;
  const size_t max_in_flight;
  const Post post;
  const OnOutcome on_outcome;
  CrashAfter crash_after;
  const VersionsOfQueues versions;

  std::mutex mutex;
  std::array<std::deque<Waiting>, kUrgencies> waiting;
  size_t in_flight = 0;
  uint64_t taken = 0;
};

Executor::Executor(kube::Transport& transport, kube::Timer& timer, size_t max_in_flight, Post post,
                   OnOutcome on_outcome, const CrashAfter& crash_after, VersionsOfQueues versions)
    : state_(std::make_shared<State>(transport, timer, max_in_flight, std::move(post),
                                     std::move(on_outcome), crash_after, std::move(versions))) {}

Executor::~Executor() = default;

void Executor::CarryOut(std::vector<coscheduling::NumberedAction> actions) {
  const absl::Time now = state_->timer.Now();
  {
    std::lock_guard lock(state_->mutex);
    for (coscheduling::NumberedAction& action : actions) {
      state_->waiting[UrgencyOf(action.action)].push_back({std::move(action), now});
    }
  }
  state_->SendWaiting();
}

void Executor::State::SendWaiting() {
  while (const std::optional<Waiting> next = TakeNext()) Send(*next);
}

std::optional<Executor::State::Waiting> Executor::State::TakeNext() {
  std::lock_guard lock(mutex);
  if (in_flight >= max_in_flight) return std::nullopt;
  const auto has_some = [](const std::deque<Waiting>& queue) { return !queue.empty(); };
  auto queue = std::ranges::find_if(waiting, has_some);
  if (queue == waiting.end()) return std::nullopt;
  if (++taken % kTurnOfLeastUrgent == 0 && has_some(waiting.back())) queue = waiting.end() - 1;
  Waiting next = std::move(queue->front());
  queue->pop_front();
  ++in_flight;
  return next;
}

void Executor::State::Send(const Waiting& waiting) {
  QueueVersions queue_versions;
  if (versions && std::holds_alternative<coscheduling::UpdateQueueStatus>(waiting.action.action)) {
    queue_versions = versions();
  }
  std::optional<ActionRequest> made = ToRequest(waiting.action.action, timer.Now(), queue_versions);
  if (!made) {
    std::lock_guard lock(mutex);
    --in_flight;
    return;
  }
  const uint64_t id = waiting.action.id;
  const std::string_view kind = KindOf(waiting.action.action);
  kube::Request request = std::move(made->request);
  // The sender may outlive this call only together with the state that it belongs to.
  sender.Send(std::move(request), kPolicy,
              [weak = weak_from_this(), id, kind, asked = waiting.asked,
               made = *std::move(made)](const absl::StatusOr<kube::Response>& answer) {
                const std::shared_ptr<State> state = weak.lock();
                if (state == nullptr) return;
                const absl::Status outcome = OutcomeOf(answer);
                if (state->on_outcome) state->on_outcome(kind, outcome, state->timer.Now() - asked);
                if (outcome.ok()) state->crash_after.OnSuccess(kind);
                state->Answered(made, id, answer);
              });
}

void Executor::State::Answered(const ActionRequest& made, uint64_t id,
                               const absl::StatusOr<kube::Response>& answer) {
  const absl::Status outcome = OutcomeOf(answer);
  if (outcome.ok()) {
    Finish(id, outcome, ObserveTask(made.answer, answer->body));
    return;
  }
  sender.Send(made.read_back, kPolicy,
              [weak = weak_from_this(), id, outcome,
               kind = made.read_back_answer](const absl::StatusOr<kube::Response>& read) {
                const std::shared_ptr<State> state = weak.lock();
                if (state == nullptr) return;
                const bool is_there = read.ok() && read->ok();
                state->Finish(id, outcome, is_there ? ObserveTask(kind, read->body) : nullptr);
              });
}

void Executor::State::Finish(uint64_t id, const absl::Status& outcome, EngineTask observe) {
  post([id, outcome, observe = std::move(observe)](coscheduling::Engine& engine, absl::Time now) {
    if (observe) observe(engine, now);
    engine.Finish(id, outcome, now);
  });
  {
    std::lock_guard lock(mutex);
    --in_flight;
  }
  SendWaiting();
}

}  // namespace muster::extender
