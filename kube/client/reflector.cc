#include "kube/client/reflector.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <mutex>
#include <random>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace muster::kube {
namespace {

// An attempt that has lasted this long was a good one: the next follows after the shortest pause. A
// sooner end counts as a failure, whoever ended it, so that nothing is tried in a tight loop.
constexpr absl::Duration kShortestGoodAttempt = absl::Seconds(1);
// On top of timeoutSeconds: when a watch that the server forgot to end is given up.
constexpr absl::Duration kWatchSlack = absl::Seconds(30);
// A picture that has expired sooner isn't read anew without a pause.
constexpr absl::Duration kShortestGoodPicture = absl::Seconds(10);
constexpr absl::Duration kListTimeout = absl::Minutes(1);
constexpr int kGone = 410;
// k8s.io/apiextensions-apiserver v0.34 pkg/apiserver/conversion/webhook_converter.go.
constexpr std::string_view kFailedConversion = "conversion webhook for";

std::string KeyOf(const ObjectHeader& header) {
  return fmt::format("{}/{}", header.name_space, header.name);
}

// A UID and a resourceVersion, as small as API servers' own let them be: a UUID in 16 bytes, a
// decimal in 8. Others are kept as they are.
class UidAndVersion {
 public:
  UidAndVersion() = default;
  UidAndVersion(std::string_view uid, std::string_view version) {
    if (!PackUid(uid) || !PackVersion(version)) {
      other_ = std::make_unique<std::pair<std::string, std::string>>(uid, version);
    }
  }

  std::string uid() const {
    if (other_) return other_->first;
    std::string text = fmt::format("{:016x}{:016x}", uid_[0], uid_[1]);
    for (const size_t dash : kDashes) text.insert(dash, 1, '-');
    return text;
  }
  std::string version() const { return other_ ? other_->second : fmt::format("{}", version_); }

  bool HasUidOf(const UidAndVersion& other) const {
    if (!other_ && !other.other_) return uid_ == other.uid_;
    return uid() == other.uid();
  }
  bool operator==(const UidAndVersion& other) const {
    if (!other_ && !other.other_) return uid_ == other.uid_ && version_ == other.version_;
    return uid() == other.uid() && version() == other.version();
  }

 private:
  static constexpr std::array<size_t, 4> kDashes = {8, 13, 18, 23};

  bool PackUid(std::string_view uid) {
    constexpr size_t kTextBytes = 36;
    if (uid.size() != kTextBytes) return false;
    size_t digits = 0;
    for (size_t i = 0; i < kTextBytes; ++i) {
      const char c = uid[i];
      if (std::ranges::find(kDashes, i) != kDashes.end()) {
        if (c != '-') return false;
        continue;
      }
      const bool is_digit = c >= '0' && c <= '9';
      if (!is_digit && (c < 'a' || c > 'f')) return false;
      uint64_t& half = uid_[digits++ / 16];
      half = half << 4 | static_cast<uint64_t>(is_digit ? c - '0' : c - 'a' + 10);
    }
    return true;
  }
  bool PackVersion(std::string_view version) {
    const char* end = version.data() + version.size();
    const auto [parsed, error] = std::from_chars(version.data(), end, version_);
    return error == std::errc() && parsed == end && (version.size() == 1 || version[0] != '0');
  }

  std::array<uint64_t, 2> uid_ = {};
  uint64_t version_ = 0;
  std::unique_ptr<std::pair<std::string, std::string>> other_;
};

ObjectHeader HeaderOf(const std::string& key, const UidAndVersion& known_as) {
  const size_t slash = key.find('/');
  return {key.substr(0, slash), key.substr(slash + 1), known_as.uid(), known_as.version()};
}

}  // namespace

// One mutex guards everything, and the sink is called under it. An attempt is one watch, or one
// list from first page to last; callbacks of earlier attempts are known by their number and
// ignored.
class Reflector::State : public std::enable_shared_from_this<State> {
 public:
  State(Transport& transport, Timer& timer, ReflectorOptions options, ReflectorSink& sink)
      : transport_(transport),
        timer_(timer),
        options_(std::move(options)),
        sink_(sink),
        random_(options_.seed),
        backoff_(options_.backoff, options_.seed),
        watch_list_works_(options_.use_watch_list) {
    stats_.path = options_.path;
  }

  void Start() {
    std::lock_guard lock(mutex_);
    sink_.StateChanged(stats_.state, absl::OkStatus());
    Begin();
    Patrol();
  }

  void Stop() {
    std::unique_ptr<Stream> ended;
    Timer::Id retry_alarm = 0;
    Timer::Id patrol_alarm = 0;
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
      ++attempt_;
      ended = std::move(stream_);
      retry_alarm = retry_alarm_;
      patrol_alarm = patrol_alarm_;
    }
    timer_.Cancel(retry_alarm);
    timer_.Cancel(patrol_alarm);
  }

  ReflectorStats Stats() const {
    std::lock_guard lock(mutex_);
    ReflectorStats stats = stats_;
    stats.objects = known_.size();
    return stats;
  }

 private:
  struct Known {
    UidAndVersion known_as;
    uint32_t round = 0;  // the sync that last saw it
  };

  // Streams that an entry point has ended are destroyed after it has let go of the mutex: their
  // destruction waits for callbacks, which take it.
  class Entry {
   public:
    explicit Entry(State& state) : lock_(state.mutex_), ended_(state.ended_) {}
    ~Entry() {
      std::vector<std::unique_ptr<Stream>> ended = std::exchange(ended_, {});
      lock_.unlock();
    }

   private:
    std::unique_lock<std::mutex> lock_;
    std::vector<std::unique_ptr<Stream>>& ended_;
  };

  bool IsOf(uint64_t attempt) const { return !stopped_ && attempt == attempt_; }
  bool Resuming() const { return !version_.empty(); }

  void Begin();
  void OpenWatch();
  void ReadPage();
  void OnBegun(uint64_t attempt);
  void OnLine(uint64_t attempt, std::string_view line);
  void OnEvent(const WatchEvent& event);
  void OnErrorEvent(const WatchEvent& event);
  void OnWatchEnd(uint64_t attempt, const absl::StatusOr<Response>& end);
  void OnPage(uint64_t attempt, const absl::StatusOr<Response>& answer);
  void OnRefusal(const Response& response);
  void OnAbsent(const absl::Status& why);
  bool IsDoubtful();
  void ReadOtherVersion();

  void Deliver(const ObjectHeader& header, std::string_view json);
  void Forget(const ObjectHeader& header);
  void FinishSync(const std::string& version);
  void SetState(ReflectorState state, const absl::Status& why);
  void Heard();

  void EndAttempt();
  void Resync();
  void Fail(const absl::Status& error, absl::Duration at_least = absl::ZeroDuration());
  void BeginAfter(absl::Duration pause);
  void Patrol();
  void LookForStaleness(absl::Time now);

  Transport& transport_;
  Timer& timer_;
  const ReflectorOptions options_;
  ReflectorSink& sink_;

  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  Backoff backoff_;
  ReflectorStats stats_;
  absl::flat_hash_map<std::string, Known> known_;
  std::string version_;         // to take the watch up from; empty: read everything anew
  std::string continue_token_;  // of the list under way
  uint32_t round_ = 0;
  bool path_is_unknown_ = false;  // the alternative is read because `path` got a 404
  bool watch_list_works_;
  bool reading_all_ = false;  // the attempt is a list or the first part of a WatchList

  bool stopped_ = false;
  uint64_t attempt_ = 0;
  bool under_way_ = false;
  bool answered_ = false;  // the watch that is under way
  absl::Time attempt_began_ = absl::InfinitePast();
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Stream>> ended_;
  absl::Time synced_at_ = absl::InfinitePast();
  absl::Time failing_since_ = absl::InfiniteFuture();
  absl::Time absent_since_ = absl::InfiniteFuture();  // while nothing but 404 is answered
  absl::Status last_error_;
  Timer::Id retry_alarm_ = 0;
  Timer::Id patrol_alarm_ = 0;
};

void Reflector::State::Begin() {
  ++attempt_;
  under_way_ = true;
  answered_ = false;
  attempt_began_ = timer_.Now();
  if (Resuming()) {
    reading_all_ = false;
    return OpenWatch();
  }
  if (!reading_all_ || continue_token_.empty()) ++round_;
  reading_all_ = true;
  watch_list_works_ ? OpenWatch() : ReadPage();
}

void Reflector::State::OpenWatch() {
  const auto seconds = std::max<int64_t>(1, absl::ToInt64Seconds(options_.shortest_watch));
  const int64_t timeout = std::uniform_int_distribution<int64_t>(seconds, 2 * seconds)(random_);
  Request request;
  request.path = stats_.path;
  request.timeout = absl::Seconds(timeout) + kWatchSlack;
  request.query = {{"watch", "1"},
                   {"allowWatchBookmarks", "true"},
                   {"timeoutSeconds", fmt::format("{}", timeout)}};
  if (Resuming()) {
    request.query.emplace_back("resourceVersion", version_);
  } else {
    request.query.emplace_back("sendInitialEvents", "true");
    request.query.emplace_back("resourceVersionMatch", "NotOlderThan");
  }
  if (!options_.label_selector.empty()) {
    request.query.emplace_back("labelSelector", options_.label_selector);
  }
  if (!options_.field_selector.empty()) {
    request.query.emplace_back("fieldSelector", options_.field_selector);
  }
  request.on_begun = [state = weak_from_this(), attempt = attempt_] {
    if (const auto alive = state.lock()) alive->OnBegun(attempt);
  };
  ++stats_.watches;
  stream_ = transport_.Watch(
      std::move(request),
      [state = weak_from_this(), attempt = attempt_](std::string_view line) {
        if (const auto alive = state.lock()) alive->OnLine(attempt, line);
      },
      [state = weak_from_this(), attempt = attempt_](absl::StatusOr<Response> end) {
        if (const auto alive = state.lock()) alive->OnWatchEnd(attempt, end);
      });
}

void Reflector::State::ReadPage() {
  Request request;
  request.path = stats_.path;
  request.timeout = kListTimeout;
  request.urgent = true;
  request.query = {{"limit", fmt::format("{}", options_.page_size)}};
  if (!continue_token_.empty()) request.query.emplace_back("continue", continue_token_);
  if (!options_.label_selector.empty()) {
    request.query.emplace_back("labelSelector", options_.label_selector);
  }
  if (!options_.field_selector.empty()) {
    request.query.emplace_back("fieldSelector", options_.field_selector);
  }
  transport_.Send(std::move(request),
                  [state = weak_from_this(), attempt = attempt_](absl::StatusOr<Response> answer) {
                    if (const auto alive = state.lock()) alive->OnPage(attempt, answer);
                  });
}

void Reflector::State::OnPage(uint64_t attempt, const absl::StatusOr<Response>& answer) {
  const Entry entry(*this);
  if (!IsOf(attempt)) return;
  if (!answer.ok()) return Fail(answer.status());
  if (!answer->ok()) return OnRefusal(*answer);
  const auto page = DecodeListPage(answer->body);
  if (!page.ok()) return Fail(page.status());
  Heard();
  for (const auto& item : page->items) Deliver(item.header, item.object);
  continue_token_ = page->continue_token;
  if (!continue_token_.empty()) return ReadPage();
  FinishSync(page->resource_version);
  Begin();
}

void Reflector::State::OnBegun(uint64_t attempt) {
  const Entry entry(*this);
  if (!IsOf(attempt)) return;
  answered_ = true;
  stats_.watching_since = stats_.last_contact = timer_.Now();
}

void Reflector::State::OnLine(uint64_t attempt, std::string_view line) {
  if (options_.before_line) options_.before_line();
  const Entry entry(*this);
  if (!IsOf(attempt)) return;
  answered_ = true;
  const auto event = DecodeWatchEvent(line);
  if (event.ok()) return OnEvent(*event);
  // Whatever it was meant to say is lost.
  version_.clear();
  Fail(event.status());
}

void Reflector::State::OnEvent(const WatchEvent& event) {
  if (event.type == WatchEvent::Type::kError) return OnErrorEvent(event);
  Heard();
  switch (event.type) {
    case WatchEvent::Type::kAdded:
    case WatchEvent::Type::kModified:
      Deliver(event.header, event.object);
      break;
    case WatchEvent::Type::kDeleted:
      Forget(event.header);
      break;
    default:
      break;
  }
  if (!reading_all_) {
    version_ = event.header.resource_version;
  } else if (event.initial_events_end) {
    FinishSync(event.header.resource_version);
  }
}

void Reflector::State::OnErrorEvent(const WatchEvent& event) {
  if (event.error_code == kGone) return Resync();
  Response response;
  response.status = event.error_code;
  response.body = event.error_message;
  OnRefusal(response);
}

void Reflector::State::OnWatchEnd(uint64_t attempt, const absl::StatusOr<Response>& end) {
  const Entry entry(*this);
  if (!IsOf(attempt)) return;
  if (!end.ok()) return Fail(end.status());
  if (!end->ok()) return OnRefusal(*end);
  if (reading_all_) return Fail(absl::UnavailableError("the watch ended before it was complete"));
  if (timer_.Now() - attempt_began_ < kShortestGoodAttempt) {
    return Fail(absl::UnavailableError("the watch ended at once"));
  }
  EndAttempt();
  Begin();
}

void Reflector::State::OnRefusal(const Response& response) {
  const absl::Status error = ToStatus(response);
  if (response.status == kGone) return Resync();
  if (response.status == 404) return OnAbsent(error);
  if (response.status == 500 && response.body.find(kFailedConversion) != std::string::npos) {
    ReadOtherVersion();
  }
  const bool watch_list = reading_all_ && watch_list_works_;
  if (watch_list && (response.status == 400 || response.status == 422)) {
    // The server has no WatchList, or not for this resource.
    watch_list_works_ = false;
    EndAttempt();
    return Begin();
  }
  Fail(error,
       std::min(response.retry_after.value_or(absl::ZeroDuration()), options_.longest_retry_after));
}

void Reflector::State::OnAbsent(const absl::Status& why) {
  if (!options_.may_be_absent) return Fail(why);
  if (!options_.alternative_path.empty()) {
    const bool first = stats_.path == options_.path;
    const bool first_is_unknown = path_is_unknown_;
    ReadOtherVersion();
    if (first) {
      path_is_unknown_ = true;
      EndAttempt();
      return Begin();
    }
    // The first version is there but couldn't be read: not the same as having no objects.
    if (!first_is_unknown) return Fail(why);
  }
  if (IsDoubtful()) return Fail(why);
  EndAttempt();
  version_.clear();
  continue_token_.clear();
  reading_all_ = false;
  failing_since_ = absl::InfiniteFuture();
  stats_.last_contact = timer_.Now();
  ++round_;
  FinishSync("");
  SetState(ReflectorState::kAbsent, why);
  backoff_.Reset();  // a definite answer; what failed before was of a resource that is gone
  BeginAfter(options_.absent_retry * std::uniform_real_distribution<double>(0.5, 1.0)(random_));
}

// Objects are known, and it isn't long enough that the server has said there are none.
bool Reflector::State::IsDoubtful() {
  if (known_.empty()) return false;
  absent_since_ = std::min(absent_since_, timer_.Now());
  return timer_.Now() - absent_since_ < options_.confirm_absence;
}

// The next attempt reads everything anew, in the version that the failed one didn't read.
void Reflector::State::ReadOtherVersion() {
  if (options_.alternative_path.empty()) return;
  stats_.path = stats_.path == options_.path ? options_.alternative_path : options_.path;
  path_is_unknown_ = false;
  version_.clear();
  continue_token_.clear();
}

void Reflector::State::Deliver(const ObjectHeader& header, std::string_view json) {
  const auto [at, is_new] = known_.try_emplace(KeyOf(header));
  Known& known = at->second;
  known.round = round_;
  UidAndVersion known_as(header.uid, header.resource_version);
  if (!is_new && known.known_as == known_as) return;
  if (!is_new && !known.known_as.HasUidOf(known_as)) {
    ++stats_.events;
    sink_.Remove(HeaderOf(at->first, known.known_as));
  }
  known.known_as = std::move(known_as);
  ++stats_.events;
  sink_.Upsert(header, json);
}

void Reflector::State::Forget(const ObjectHeader& header) {
  if (known_.erase(KeyOf(header)) == 0) return;
  ++stats_.events;
  sink_.Remove(header);
}

// What this round hasn't seen has vanished.
void Reflector::State::FinishSync(const std::string& version) {
  for (auto at = known_.begin(); at != known_.end();) {
    const auto next = std::next(at);
    if (at->second.round != round_) {
      ++stats_.events;
      sink_.Remove(HeaderOf(at->first, at->second.known_as));
      known_.erase(at);
    }
    at = next;
  }
  version_ = version;
  reading_all_ = false;
  if (version_.empty()) return;
  synced_at_ = timer_.Now();
  ++stats_.syncs;
  SetState(ReflectorState::kSynced, absl::OkStatus());
}

void Reflector::State::SetState(ReflectorState state, const absl::Status& why) {
  if (stats_.state == state) return;
  stats_.state = state;
  sink_.StateChanged(state, why);
}

void Reflector::State::Heard() {
  stats_.last_contact = timer_.Now();
  failing_since_ = absl::InfiniteFuture();
  absent_since_ = absl::InfiniteFuture();
  if (stats_.state == ReflectorState::kStale && Resuming()) {
    SetState(ReflectorState::kSynced, absl::OkStatus());
  }
}

void Reflector::State::EndAttempt() {
  ++attempt_;
  under_way_ = false;
  stats_.watching_since = absl::InfiniteFuture();
  if (stream_) ended_.push_back(std::move(stream_));
}

// The version to go on from has expired: reads everything anew, at once unless that was done only
// just now.
void Reflector::State::Resync() {
  version_.clear();
  continue_token_.clear();
  if (reading_all_ || timer_.Now() - synced_at_ < kShortestGoodPicture) {
    return Fail(absl::OutOfRangeError("the resource version expired"));
  }
  EndAttempt();
  Begin();
}

void Reflector::State::Fail(const absl::Status& error, absl::Duration at_least) {
  EndAttempt();
  ++stats_.failures;
  stats_.last_error = error.ToString();
  last_error_ = error;
  const absl::Time now = timer_.Now();
  if (now - attempt_began_ >= kShortestGoodAttempt) backoff_.Reset();
  failing_since_ = std::min(failing_since_, now);
  if (!absl::IsNotFound(error)) absent_since_ = absl::InfiniteFuture();
  BeginAfter(std::max(backoff_.Next(), at_least));
}

void Reflector::State::BeginAfter(absl::Duration pause) {
  retry_alarm_ = timer_.After(pause, [state = weak_from_this(), attempt = attempt_] {
    const auto alive = state.lock();
    if (!alive) return;
    const Entry entry(*alive);
    if (alive->IsOf(attempt)) alive->Begin();
  });
}

// An answered watch owes nothing more, once it has lasted for a moment: it may have nothing to say.
void Reflector::State::LookForStaleness(absl::Time now) {
  if (answered_ && now - stats_.watching_since >= kShortestGoodAttempt) {
    failing_since_ = absent_since_ = absl::InfiniteFuture();
    if (stats_.state == ReflectorState::kStale && Resuming()) {
      SetState(ReflectorState::kSynced, absl::OkStatus());
    }
  }
  if (stats_.state != ReflectorState::kSynced) return;
  if (now - failing_since_ >= options_.stale_after) {
    SetState(ReflectorState::kStale, last_error_);
  } else if (under_way_ && (reading_all_ || !answered_) &&
             now - std::max(attempt_began_, stats_.last_contact) >= options_.stale_after) {
    SetState(ReflectorState::kStale,
             absl::DeadlineExceededError(
                 fmt::format("no answer for {}", absl::FormatDuration(options_.stale_after))));
  }
}

// Every so often: has the server been silent for too long?
void Reflector::State::Patrol() {
  const absl::Time now = timer_.Now();
  LookForStaleness(now);
  const absl::Duration silent = now - std::max(attempt_began_, stats_.last_contact);
  if (stream_ && !answered_ && now - attempt_began_ >= options_.answer_patience) {
    Fail(absl::DeadlineExceededError(fmt::format("the watch was not answered for {}",
                                                 absl::FormatDuration(options_.answer_patience))));
  } else if (stream_ && reading_all_ && silent >= options_.watch_list_patience) {
    watch_list_works_ = false;
    EndAttempt();
    Begin();
  } else if (stream_ && !reading_all_ && silent >= options_.longest_silence) {
    Fail(absl::DeadlineExceededError(
        fmt::format("not even a bookmark for {}", absl::FormatDuration(options_.longest_silence))));
  }
  patrol_alarm_ = timer_.After(options_.stale_after / 8, [state = weak_from_this()] {
    const auto alive = state.lock();
    if (!alive) return;
    const Entry entry(*alive);
    if (!alive->stopped_) alive->Patrol();
  });
}

Reflector::Reflector(Transport& transport, Timer& timer, ReflectorOptions options,
                     ReflectorSink& sink)
    : state_(std::make_shared<State>(transport, timer, std::move(options), sink)) {}

Reflector::~Reflector() { state_->Stop(); }

void Reflector::Start() { state_->Start(); }

ReflectorStats Reflector::Stats() const { return state_->Stats(); }

}  // namespace muster::kube
