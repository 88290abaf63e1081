#include "extender/executor.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "coscheduling/engine.h"
#include "fmt/format.h"
#include "writes/answers.h"

namespace muster::extender {
namespace {

// Short: the engine asks again by itself, with what it has seen by then.
const kube::RetryPolicy kPolicy = {.max_attempts = 4,
                                   .budget = absl::Seconds(10),
                                   .backoff = {absl::Milliseconds(50), absl::Seconds(2), 2},
                                   .carries_precondition = true};

// The smaller, the sooner.
constexpr size_t kUrgencies = 6;
size_t UrgencyOf(const coscheduling::Action& action) {
  if (std::holds_alternative<coscheduling::BindPod>(action)) return 0;
  const auto* status = std::get_if<coscheduling::ApplyWorkloadStatus>(&action);
  if (std::holds_alternative<coscheduling::WriteRecord>(action) ||
      std::holds_alternative<coscheduling::WriteWorkload>(action) ||
      (status != nullptr && status->admission)) {
    return 1;
  }
  if (std::holds_alternative<coscheduling::LiftGate>(action) ||
      std::holds_alternative<coscheduling::NominatePod>(action) ||
      std::holds_alternative<coscheduling::ChangeTemplates>(action) ||
      std::holds_alternative<coscheduling::SuspendJob>(action)) {
    return 2;
  }
  if (std::holds_alternative<coscheduling::SignalPod>(action)) return 3;
  if (std::holds_alternative<coscheduling::UpdatePodGroupStatus>(action) ||
      std::holds_alternative<coscheduling::UpdateQueueStatus>(action) ||
      std::holds_alternative<coscheduling::SetFinalizers>(action)) {
    return 5;
  }
  return 4;
}

// Whose turn it is used for. Bindings are nobody's: a gang isn't bound in part for longer because
// another one is being bound.
std::string_view NamespaceOf(const coscheduling::Action& action) {
  if (std::holds_alternative<coscheduling::BindPod>(action)) return "";
  return std::visit(
      [](const auto& each) -> std::string_view {
        if constexpr (requires { each.name_space; }) {
          return each.name_space;
        } else if constexpr (requires { each.pod; }) {
          return each.pod.name_space;
        } else if constexpr (requires { each.group; }) {
          return each.group.name_space;
        } else if constexpr (requires { each.workload; }) {
          return each.workload.name_space;
        } else if constexpr (requires { each.job; }) {
          return each.job.name_space;
        } else {
          return "";  // nodes, and what else is in no namespace
        }
      },
      action);
}

// Of kWhole places, how many each urgency and all that is less urgent may have under way, so that
// what is slow below never stands in the way of what is above.
constexpr size_t kWhole = 16;
constexpr std::array<size_t, kUrgencies> kShares = {16, 16, 14, 14, 8, 2};

// Each so manieth place goes to the least urgent, so that people see something while thousands of
// pods are bound.
constexpr uint64_t kTurnOfLeastUrgent = 32;

// Hands over the object in an answer; does nothing for one that can't be read, which the watch
// will bring again.
EngineTask ObserveTask(writes::AnswerKind kind, const std::string& body) {
  writes::Observation observe = writes::ObservationOf(kind, body);
  if (observe == nullptr) return nullptr;
  return
      [observe = std::move(observe)](coscheduling::Engine& engine, absl::Time) { observe(engine); };
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

// One action on its way: its write, and after a failure the reading of its object.
struct Executor::Job {
  coscheduling::NumberedAction action;
  size_t urgency = 0;
  absl::Time asked;
  std::optional<writes::ActionRequest> made;  // once it has had a place
  bool reading = false;
  absl::Status outcome;  // of the write, once its object is being read
  // Of what is being sent.
  int attempts = 0;
  absl::Time deadline;
  absl::Time sent;                      // the last attempt
  std::optional<kube::Backoff> pauses;  // once there has been one
  absl::StatusOr<kube::Response> last = absl::UnknownError("not sent yet");

  const kube::Request& request() const { return reading ? made->read_back : made->request; }
};

// Those that wait, one of each namespace in turn. What has no namespace has a turn like any.
class Executor::Turns {
 public:
  bool empty() const { return waiting_.empty(); }
  size_t size() const {
    size_t count = 0;
    for (const auto& [name_space, jobs] : waiting_) count += jobs.size();
    return count;
  }
  void Add(JobPointer job) { Of(*job).push_back(std::move(job)); }
  void AddFirst(JobPointer job) { Of(*job).push_front(std::move(job)); }
  JobPointer Take() {
    auto turn = waiting_.upper_bound(last_);
    if (turn == waiting_.end()) turn = waiting_.begin();
    JobPointer job = std::move(turn->second.front());
    turn->second.pop_front();
    last_ = turn->first;
    if (turn->second.empty()) waiting_.erase(turn);
    return job;
  }

 private:
  std::deque<JobPointer>& Of(const Job& job) {
    return waiting_[std::string(NamespaceOf(job.action.action))];
  }

  std::map<std::string, std::deque<JobPointer>> waiting_;  // none is empty
  std::string last_;                                       // whose turn was last
};

struct Executor::State : std::enable_shared_from_this<Executor::State> {
  State(kube::Transport& tr, kube::Timer& ti, const kube::ConcurrencyOptions& l, Post p,
        OnOutcome o, const CrashAfter& c, VersionsOfQueues v)
      : transport(tr),
        timer(ti),
        post(std::move(p)),
        on_outcome(std::move(o)),
        crash_after(c),
        versions(std::move(v)),
        limit(l) {}

  void SendWaiting();
  JobPointer TakeNext();
  size_t UnderWay() const;
  bool HasRoom(size_t urgency) const;
  std::optional<size_t> NextUrgency();
  bool Make(Job& job);
  void Send(const JobPointer& job);
  void Answered(const JobPointer& job, const absl::StatusOr<kube::Response>& answer);
  void GiveUp(const JobPointer& job);
  bool PutOff(const JobPointer& job, const absl::StatusOr<kube::Response>& answer);
  void Resume(const JobPointer& job);
  void Conclude(const JobPointer& job, const absl::StatusOr<kube::Response>& answer);
  void ReadBack(const JobPointer& job);
  void Finish(const Job& job, EngineTask observe);
  void GiveUpPlace(const Job& job);

  kube::Transport& transport;
  kube::Timer& timer;
  const Post post;
  const OnOutcome on_outcome;
  CrashAfter crash_after;
  const VersionsOfQueues versions;

  mutable std::mutex mutex;
  std::array<Turns, kUrgencies> waiting;
  std::array<size_t, kUrgencies> in_flight = {};
  kube::ConcurrencyLimit limit;
  size_t pausing = 0;
  uint64_t taken = 0;
};

Executor::Executor(kube::Transport& transport, kube::Timer& timer,
                   const kube::ConcurrencyOptions& concurrency, Post post, OnOutcome on_outcome,
                   const CrashAfter& crash_after, VersionsOfQueues versions)
    : state_(std::make_shared<State>(transport, timer, concurrency, std::move(post),
                                     std::move(on_outcome), crash_after, std::move(versions))) {}

Executor::~Executor() = default;

void Executor::CarryOut(std::vector<coscheduling::NumberedAction> actions) {
  const absl::Time now = state_->timer.Now();
  {
    std::lock_guard lock(state_->mutex);
    for (coscheduling::NumberedAction& action : actions) {
      auto job = std::make_shared<Job>();
      job->urgency = UrgencyOf(action.action);
      job->action = std::move(action);
      job->asked = now;
      state_->waiting[job->urgency].Add(std::move(job));
    }
  }
  state_->SendWaiting();
}

Executor::Stats Executor::stats() const {
  std::lock_guard lock(state_->mutex);
  Stats stats;
  for (const auto& queue : state_->waiting) stats.waiting += queue.size();
  stats.in_flight = state_->UnderWay();
  stats.places = state_->limit.limit();
  stats.pausing = state_->pausing;
  return stats;
}

void Executor::State::SendWaiting() {
  while (const JobPointer next = TakeNext()) Send(next);
}

Executor::JobPointer Executor::State::TakeNext() {
  std::lock_guard lock(mutex);
  const std::optional<size_t> urgency = NextUrgency();
  if (!urgency) return nullptr;
  ++taken;
  JobPointer next = waiting[*urgency].Take();
  ++in_flight[*urgency];
  return next;
}

size_t Executor::State::UnderWay() const {
  return std::accumulate(in_flight.begin(), in_flight.end(), size_t{0});
}

// Whether one more of this urgency leaves the more urgent the places that are theirs alone.
bool Executor::State::HasRoom(size_t urgency) const {
  size_t no_more_urgent = 0;
  for (size_t least = kUrgencies; least-- > 0;) {
    no_more_urgent += in_flight[least];
    const size_t places = std::max<size_t>(1, limit.limit() * kShares[least] / kWhole);
    if (least <= urgency && no_more_urgent >= places) return false;
  }
  return true;
}

std::optional<size_t> Executor::State::NextUrgency() {
  constexpr size_t kLeast = kUrgencies - 1;
  const auto may_go = [this](size_t urgency) {
    return !waiting[urgency].empty() && HasRoom(urgency);
  };
  if ((taken + 1) % kTurnOfLeastUrgent == 0 && may_go(kLeast)) return kLeast;
  for (size_t urgency = 0; urgency < kUrgencies; ++urgency) {
    if (may_go(urgency)) return urgency;
  }
  return std::nullopt;
}

// False for what isn't carried out here.
bool Executor::State::Make(Job& job) {
  if (job.made) return true;
  writes::QueueVersions queue_versions;
  const auto& action = job.action.action;
  if (versions && (std::holds_alternative<coscheduling::UpdateQueueStatus>(action) ||
                   std::holds_alternative<coscheduling::SetFinalizers>(action))) {
    queue_versions = versions();
  }
  job.made = writes::ToRequest(job.action.action, timer.Now(), queue_versions);
  return job.made.has_value();
}

// The job has a place.
void Executor::State::Send(const JobPointer& job) {
  if (!Make(*job)) return GiveUpPlace(*job);
  const absl::Time now = timer.Now();
  if (job->attempts == 0) job->deadline = now + kPolicy.budget;
  if (now >= job->deadline) return GiveUp(job);
  ++job->attempts;
  job->sent = now;
  kube::Request request = job->request();
  request.timeout = std::min(request.timeout, job->deadline - now);
  transport.Send(std::move(request),
                 [weak = weak_from_this(), job](const absl::StatusOr<kube::Response>& answer) {
                   const std::shared_ptr<State> state = weak.lock();
                   if (state != nullptr) state->Answered(job, answer);
                 });
}

void Executor::State::Answered(const JobPointer& job,
                               const absl::StatusOr<kube::Response>& answer) {
  {
    std::lock_guard lock(mutex);
    limit.OnAnswer(job->sent, timer.Now(), answer, UnderWay());
  }
  if (!PutOff(job, answer)) return Conclude(job, answer);
  GiveUpPlace(*job);
  SendWaiting();
}

// It has waited for its place beyond its time. Not at once: this may be deep below another's end.
void Executor::State::GiveUp(const JobPointer& job) {
  timer.After(absl::ZeroDuration(), [weak = weak_from_this(), job] {
    if (const std::shared_ptr<State> state = weak.lock()) state->Conclude(job, job->last);
  });
}

// Whether it is tried again after a pause, in which its place is another's.
bool Executor::State::PutOff(const JobPointer& job, const absl::StatusOr<kube::Response>& answer) {
  if (job->attempts >= kPolicy.max_attempts) return false;
  if (!kube::MayRetry(job->request(), kPolicy, answer)) return false;
  if (!job->pauses) job->pauses.emplace(kPolicy.backoff);
  absl::Duration pause = job->pauses->Next();
  if (answer.ok() && answer->retry_after) pause = std::max(pause, *answer->retry_after);
  if (timer.Now() + pause >= job->deadline) return false;
  job->last = answer;
  {
    std::lock_guard lock(mutex);
    ++pausing;
  }
  timer.After(pause, [weak = weak_from_this(), job] {
    if (const std::shared_ptr<State> state = weak.lock()) state->Resume(job);
  });
  return true;
}

// First of its namespace: it has waited longest.
void Executor::State::Resume(const JobPointer& job) {
  {
    std::lock_guard lock(mutex);
    --pausing;
    waiting[job->urgency].AddFirst(job);
  }
  SendWaiting();
}

// No more attempts of what was being sent.
void Executor::State::Conclude(const JobPointer& job,
                               const absl::StatusOr<kube::Response>& answer) {
  if (job->reading) {
    const bool is_there = answer.ok() && answer->ok();
    return Finish(*job,
                  is_there ? ObserveTask(job->made->read_back_answer, answer->body) : nullptr);
  }
  const std::string_view kind = writes::KindOf(job->action.action);
  job->outcome = OutcomeOf(answer);
  if (on_outcome) on_outcome(kind, job->outcome, timer.Now() - job->asked);
  if (job->outcome.ok()) {
    crash_after.OnSuccess(kind);
    return Finish(*job, ObserveTask(job->made->answer, answer->body));
  }
  // Held back by the fence: nothing was written that there would be to see.
  if (!answer.ok() && absl::IsFailedPrecondition(answer.status())) return Finish(*job, nullptr);
  ReadBack(job);
}

void Executor::State::ReadBack(const JobPointer& job) {
  job->reading = true;
  job->attempts = 0;
  job->pauses.reset();
  job->last = absl::UnknownError("not sent yet");
  Send(job);
}

// The last thing about an action: the engine is told, and its place is another's.
void Executor::State::Finish(const Job& job, EngineTask observe) {
  post([id = job.action.id, outcome = job.outcome, observe = std::move(observe)](
           coscheduling::Engine& engine, absl::Time now) {
    if (observe) observe(engine, now);
    engine.Finish(id, outcome, now);
  });
  GiveUpPlace(job);
  SendWaiting();
}

void Executor::State::GiveUpPlace(const Job& job) {
  std::lock_guard lock(mutex);
  --in_flight[job.urgency];
}

}  // namespace muster::extender
