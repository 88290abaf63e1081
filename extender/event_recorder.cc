#include "extender/event_recorder.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "extender/json_text.h"
#include "fmt/format.h"
#include "kube/objects/time_text.h"

namespace muster::extender {
namespace {

using coscheduling::EmitEvent;
using nlohmann::json;

constexpr absl::Duration kDrainInterval = absl::Milliseconds(100);
constexpr size_t kMaxMessage = 1024;  // the API server's own limit
// Of an event's name: the API server takes 253 bytes, and a number is added to this.
constexpr size_t kMaxNameStart = 220;

std::string KeyOf(const EmitEvent& event) {
  return fmt::format("{}\n{}\n{}\n{}", event.uid, event.warning, event.reason, event.message);
}

std::string EventsPath(const EmitEvent& event) {
  return fmt::format("/api/v1/namespaces/{}/events", event.name_space);
}

// As client-go names them, unique per object and moment.
std::string NameOf(const EmitEvent& event, absl::Time at, uint64_t serial) {
  std::string start = event.name.substr(0, kMaxNameStart);
  while (start.ends_with('-') || start.ends_with('.')) start.pop_back();
  return fmt::format("{}.{:x}{:02x}", start, static_cast<uint64_t>(absl::ToUnixNanos(at)),
                     serial & 0xff);
}

// What is told of a namespace that is being deleted, or has been, nobody can read.
bool HasNoReader(const kube::Response& answer) {
  return answer.status == 404 ||
         (answer.status == 403 &&
          answer.body.find("\"NamespaceTerminating\"") != std::string::npos);
}

kube::Request Create(const EmitEvent& event, const std::string& name, const std::string& instance,
                     absl::Time at) {
  std::string api_version = event.kind == "Pod" ? "v1" : "scheduling.x-k8s.io/v1alpha1";
  if (!event.api_version.empty()) api_version = event.api_version;
  json body = {{"apiVersion", "v1"},
               {"kind", "Event"},
               {"metadata", {{"name", name}, {"namespace", event.name_space}}},
               {"involvedObject",
                {{"apiVersion", std::move(api_version)},
                 {"kind", event.kind},
                 {"namespace", event.name_space},
                 {"name", event.name},
                 {"uid", event.uid}}},
               {"type", event.warning ? "Warning" : "Normal"},
               {"reason", event.reason},
               {"message", Utf8Prefix(event.message, kMaxMessage)},
               {"source", {{"component", "muster"}}},
               {"reportingComponent", "muster"},
               {"reportingInstance", instance},
               {"firstTimestamp", kube::TimeText(at)},
               {"lastTimestamp", kube::TimeText(at)},
               {"count", 1}};
  kube::Request request;
  request.method = kube::Method::kPost;
  request.path = EventsPath(event);
  request.content_type = kube::kJson;
  request.body = body.dump(-1, ' ', false, json::error_handler_t::replace);
  return request;
}

kube::Request Count(const EmitEvent& event, const std::string& name, int64_t count, absl::Time at) {
  kube::Request request;
  request.method = kube::Method::kPatch;
  request.path = EventsPath(event) + "/" + name;
  request.content_type = kube::kMergePatch;
  request.body = json({{"count", count}, {"lastTimestamp", kube::TimeText(at)}}).dump();
  return request;
}

}  // namespace

struct EventRecorder::State : std::enable_shared_from_this<EventRecorder::State> {
  State(kube::Transport& tr, kube::Timer& ti, EventRecorderOptions o)
      : transport(tr),
        timer(ti),
        options(std::move(o)),
        tokens(static_cast<double>(options.burst)),
        refilled(timer.Now()) {}

  struct Waiting {
    EmitEvent event;
    absl::Time at;  // when it happened
  };
  struct Remembered {
    std::string name;
    int64_t count = 0;
    absl::Time last;
  };

  bool TakeToken(absl::Time now) {
    const double earned = absl::ToDoubleSeconds(now - refilled) * options.per_second;
    tokens = std::min(tokens + earned, static_cast<double>(options.burst));
    refilled = now;
    if (tokens < 1) return false;
    tokens -= 1;
    return true;
  }

  void Enqueue(const EmitEvent& event, absl::Time at) {
    {
      const std::lock_guard lock(mutex);
      waiting.push_back({event, at});
      if (waiting.size() > options.max_waiting) {
        waiting.pop_front();
        ++stats.dropped;
      }
    }
    Drain();
  }

  struct Outgoing {
    kube::Request request;
    std::optional<Waiting> counted;  // if this counts an event that exists already
  };

  void Drain() {
    std::vector<Outgoing> requests;
    {
      const std::lock_guard lock(mutex);
      const absl::Time now = timer.Now();
      while (!waiting.empty() && in_flight < options.max_in_flight && TakeToken(now)) {
        requests.push_back(RequestFor(waiting.back()));
        waiting.pop_back();
        ++in_flight;
      }
      if (!waiting.empty() && !draining) {
        draining = true;
        timer.After(kDrainInterval, [weak = weak_from_this()] {
          const std::shared_ptr<State> state = weak.lock();
          if (state == nullptr) return;
          {
            const std::lock_guard again(state->mutex);
            state->draining = false;
          }
          state->Drain();
        });
      }
      stats.sent += requests.size();
    }
    for (Outgoing& outgoing : requests) Send(std::move(outgoing));
  }

  void Send(Outgoing outgoing) {
    transport.Send(std::move(outgoing.request),
                   [weak = weak_from_this(), counted = std::move(outgoing.counted)](
                       const absl::StatusOr<kube::Response>& answer) {
                     if (const std::shared_ptr<State> state = weak.lock()) {
                       state->Answered(counted, answer);
                     }
                   });
  }

  void Answered(const std::optional<Waiting>& counted,
                const absl::StatusOr<kube::Response>& answer) {
    const bool written = answer.ok() && answer->ok();
    // The API server forgets events after an hour: this one begins anew.
    const bool forgotten = counted && answer.ok() && answer->status == 404;
    const bool moot = answer.ok() && HasNoReader(*answer);
    {
      const std::lock_guard lock(mutex);
      --in_flight;
      if (!written && !forgotten && !moot) ++stats.failed;
      if (forgotten) Forget(KeyOf(counted->event));
    }
    if (forgotten) Enqueue(counted->event, counted->at);
    Drain();
  }

  void Forget(const std::string& key) {
    remembered.erase(key);
    std::erase(order, key);
  }

  Outgoing RequestFor(const Waiting& told) {
    const EmitEvent& event = told.event;
    const std::string key = KeyOf(event);
    auto it = remembered.find(key);
    if (it != remembered.end()) {
      Remembered& known = it->second;
      known.last = std::max(known.last, told.at);
      return {Count(event, known.name, ++known.count, known.last), told};
    }
    if (order.size() >= options.max_remembered) {
      remembered.erase(order.front());
      order.pop_front();
    }
    std::string name = NameOf(event, told.at, ++serial);
    remembered.emplace(key, Remembered{name, 1, told.at});
    order.push_back(key);
    return {Create(event, name, options.instance, told.at), std::nullopt};
  }

  kube::Transport& transport;
  kube::Timer& timer;
  const EventRecorderOptions options;
  std::mutex mutex;
  double tokens;
  absl::Time refilled;
  bool draining = false;
  size_t in_flight = 0;
  uint64_t serial = 0;
  std::deque<Waiting> waiting;
  std::unordered_map<std::string, Remembered> remembered;
  std::deque<std::string> order;
  Stats stats;
};

EventRecorder::EventRecorder(kube::Transport& transport, kube::Timer& timer,
                             EventRecorderOptions options)
    : state_(std::make_shared<State>(transport, timer, std::move(options))) {}

EventRecorder::~EventRecorder() = default;

void EventRecorder::Forget() {
  std::deque<State::Waiting> dropped;  // ends after the lock does
  const std::lock_guard lock(state_->mutex);
  state_->stats.dropped += state_->waiting.size();
  dropped.swap(state_->waiting);
  state_->remembered = {};
  state_->order = {};
}

void EventRecorder::Record(const EmitEvent& event) { state_->Enqueue(event, state_->timer.Now()); }

EventRecorder::Stats EventRecorder::stats() const {
  const std::lock_guard lock(state_->mutex);
  Stats stats = state_->stats;
  stats.waiting = state_->waiting.size();
  stats.remembered = state_->order.size();
  return stats;
}

}  // namespace muster::extender
