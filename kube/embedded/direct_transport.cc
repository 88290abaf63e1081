#include "kube/embedded/direct_transport.h"

#include <algorithm>
#include <utility>

namespace muster::kube::embedded {
namespace {

constexpr size_t kItemsPerRead = 64;

}  // namespace

// One watch; reading ends when `open` is false.
struct DirectTransport::Session {
  OnLine on_line;
  OnEnd on_end;
  bool open = true;
  bool queued = false;  // a step for it waits
  std::unique_ptr<WatchSession> watch;
  std::vector<WatchItem> items;  // read, not delivered
  size_t next_item = 0;
  bool source_ended = false;
  std::optional<FaultDecision::Cut> cut;
  size_t delivered = 0;
  std::string line;
};

struct DirectTransport::Step {
  enum class Kind { kRequest, kAnswer, kOpen, kLine };
  Kind kind = Kind::kRequest;
  Request request;
  Done done;
  absl::StatusOr<Response> answer = Response{};  // kAnswer
  std::shared_ptr<Session> session;              // kOpen, kLine
  bool decided = false;                          // faults were asked
  bool drop_answer = false;
  bool timed_out = false;
};

struct DirectTransport::Hub {
  struct Delayed {
    absl::Time at;
    Step step;
  };
  std::deque<Step> ready;
  std::vector<Delayed> delayed;
  std::vector<std::shared_ptr<Session>> sessions;
  bool closed = false;

  void QueueLine(const std::shared_ptr<Session>& session) {
    if (session->queued || !session->open || closed) return;
    session->queued = true;
    Step step;
    step.kind = Step::Kind::kLine;
    step.session = session;
    ready.push_back(std::move(step));
  }
};

class DirectTransport::DirectStream : public Stream {
 public:
  DirectStream(std::shared_ptr<Hub> hub, std::shared_ptr<Session> session)
      : hub_(std::move(hub)), session_(std::move(session)) {}
  ~DirectStream() override {
    session_->open = false;
    session_->watch.reset();
    if (!hub_->closed) std::erase(hub_->sessions, session_);
  }

 private:
  const std::shared_ptr<Hub> hub_;
  const std::shared_ptr<Session> session_;
};

DirectTransport::DirectTransport(ApiServer* server, Faults* faults, DirectTransportOptions options)
    : server_(server),
      faults_(faults),
      options_(options),
      random_(options.shuffle_seed.value_or(0)),
      hub_(std::make_shared<Hub>()) {}

DirectTransport::~DirectTransport() {
  hub_->closed = true;
  for (const auto& session : hub_->sessions) {
    session->open = false;
    session->watch.reset();
  }
  hub_->sessions.clear();
  hub_->ready.clear();
  hub_->delayed.clear();
}

void DirectTransport::Send(Request request, Done done) {
  if (hub_->ready.size() + hub_->delayed.size() >= options_.max_queued) {
    done(absl::ResourceExhaustedError("too many requests wait for the embedded API server"));
    return;
  }
  Step step;
  step.request = std::move(request);
  step.done = std::move(done);
  hub_->ready.push_back(std::move(step));
}

std::unique_ptr<Stream> DirectTransport::Watch(Request request, OnLine on_line, OnEnd on_end) {
  auto session = std::make_shared<Session>();
  session->on_line = std::move(on_line);
  session->on_end = std::move(on_end);
  hub_->sessions.push_back(session);
  Step step;
  step.kind = Step::Kind::kOpen;
  step.request = std::move(request);
  step.session = session;
  hub_->ready.push_back(std::move(step));
  return std::make_unique<DirectStream>(hub_, std::move(session));
}

DirectTransport::Step DirectTransport::TakeStep() {
  size_t index = options_.shuffle_seed ? random_() % hub_->ready.size() : 0;
  Step step = std::move(hub_->ready[index]);
  hub_->ready.erase(hub_->ready.begin() + static_cast<std::ptrdiff_t>(index));
  return step;
}

void DirectTransport::WakeDueSessions() {
  const absl::Time now = server_->now();
  for (size_t i = 0; i < hub_->delayed.size();) {
    if (hub_->delayed[i].at > now) {
      ++i;
      continue;
    }
    hub_->ready.push_back(std::move(hub_->delayed[i].step));
    hub_->delayed.erase(hub_->delayed.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (const auto& session : hub_->sessions) {
    if (session->watch && session->watch->NextDue() <= now) hub_->QueueLine(session);
  }
}

bool DirectTransport::PumpOne() {
  while (true) {
    if (hub_->ready.empty()) WakeDueSessions();
    if (hub_->ready.empty()) return false;
    Step step = TakeStep();
    switch (step.kind) {
      case Step::Kind::kRequest:
        RunRequest(std::move(step));
        return true;
      case Step::Kind::kAnswer:
        step.done(std::move(step.answer));
        return true;
      case Step::Kind::kOpen:
        if (!step.session->open) continue;
        OpenSession(std::move(step));
        return true;
      case Step::Kind::kLine:
        step.session->queued = false;
        if (!step.session->open) continue;
        DeliverLine(step.session);
        return true;
    }
  }
}

size_t DirectTransport::Pump() {
  size_t steps = 0;
  while (PumpOne()) ++steps;
  return steps;
}

absl::Time DirectTransport::NextDue() const {
  if (!hub_->ready.empty()) return server_->now();
  absl::Time due = absl::InfiniteFuture();
  for (const Hub::Delayed& delayed : hub_->delayed) due = std::min(due, delayed.at);
  for (const auto& session : hub_->sessions) {
    if (session->watch) due = std::min(due, session->watch->NextDue());
  }
  return due;
}

void DirectTransport::RunRequest(Step step) {
  if (faults_ != nullptr && !step.decided) {
    FaultDecision fault = faults_->Decide(step.request, /*is_watch=*/false);
    step.decided = true;
    step.drop_answer = fault.drop_answer;
    if (fault.answer) {
      step.done(*std::move(fault.answer));
      return;
    }
    if (fault.refuse) {
      step.done(absl::UnavailableError("connection refused: injected fault"));
      return;
    }
    if (fault.delay >= step.request.timeout) {
      // The caller's patience ends first; the request still takes effect.
      step.timed_out = true;
      fault.delay = step.request.timeout;
    }
    if (fault.delay > absl::ZeroDuration()) {
      hub_->delayed.push_back({server_->now() + fault.delay, std::move(step)});
      return;
    }
  }
  absl::StatusOr<Response> answer = server_->Handle(step.request);
  if (step.timed_out) answer = absl::DeadlineExceededError("no answer in time: injected fault");
  if (step.drop_answer) answer = absl::UnavailableError("connection lost: injected fault");
  if (!options_.shuffle_seed) {
    step.done(std::move(answer));
    return;
  }
  step.kind = Step::Kind::kAnswer;
  step.answer = std::move(answer);
  hub_->ready.push_back(std::move(step));
}

void DirectTransport::OpenSession(Step step) {
  const std::shared_ptr<Session>& session = step.session;
  if (faults_ != nullptr && !step.decided) {
    FaultDecision fault = faults_->Decide(step.request, /*is_watch=*/true);
    step.decided = true;
    session->cut = fault.cut;
    if (fault.answer) return EndSession(session, *std::move(fault.answer));
    if (fault.refuse || fault.drop_answer) {
      return EndSession(session, absl::UnavailableError("connection lost: injected fault"));
    }
    if (fault.delay > absl::ZeroDuration()) {
      hub_->delayed.push_back({server_->now() + fault.delay, std::move(step)});
      return;
    }
  }
  ApiServer::WatchResult result = server_->Watch(step.request);
  if (!result.session) return EndSession(session, std::move(result.refusal));
  session->watch = std::move(result.session);
  session->watch->OnReady([hub = std::weak_ptr<Hub>(hub_), weak = std::weak_ptr(session)] {
    std::shared_ptr<Hub> alive = hub.lock();
    std::shared_ptr<Session> woken = weak.lock();
    if (alive && woken) alive->QueueLine(woken);
  });
  hub_->QueueLine(session);
  if (step.request.on_begun) step.request.on_begun();
}

void DirectTransport::DeliverLine(const std::shared_ptr<Session>& session) {
  if (session->cut && session->delivered >= session->cut->after_items) {
    if (session->cut->expired) session->on_line(ExpiredLine());
    if (session->open) EndSession(session, Response{200, "", std::nullopt});
    return;
  }
  if (session->next_item == session->items.size() && !session->source_ended) {
    session->items.clear();
    session->next_item = 0;
    session->source_ended = !session->watch->Read(kItemsPerRead, &session->items);
  }
  if (session->next_item == session->items.size()) {
    if (session->source_ended) EndSession(session, Response{200, "", std::nullopt});
    return;
  }
  session->line.clear();
  session->items[session->next_item++].AppendLine(&session->line);
  ++session->delivered;
  session->on_line(session->line);
  // Another step follows; it finds out by itself whether there is more.
  hub_->QueueLine(session);
}

void DirectTransport::EndSession(const std::shared_ptr<Session>& session,
                                 absl::StatusOr<Response> end) {
  session->open = false;
  session->watch.reset();
  std::erase(hub_->sessions, session);
  session->on_end(std::move(end));
}

}  // namespace muster::kube::embedded
