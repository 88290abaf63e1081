#include "kube/client/curl_transport.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <new>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kube/client/curl_transfer.h"
#include "kube/client/identity_keeper.h"

namespace muster::kube {
namespace {

using Clock = std::chrono::steady_clock;

// How late a request that is still waiting may learn that its time is up.
constexpr int kSweepMilliseconds = 200;
constexpr absl::Duration kLongestTimeout = absl::Hours(24);
// libcurl looks at every request under way, with a system call each, whenever one of them has an
// answer. So the more there are, the more answers are awaited before they are looked at: 128 wait
// 5 ms, some twentieth of the time that a server takes for so many at once.
constexpr std::chrono::microseconds kRestPerRequest(40);
constexpr std::chrono::microseconds kLongestRest(5000);
// How many urgent requests may go beyond max_in_flight, and how many of them may wait.
constexpr size_t kUrgentInFlight = 8;
constexpr size_t kUrgentQueued = 256;

void InitializeCurl() {
  static const CURLcode kCode = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (kCode != CURLE_OK) throw std::bad_alloc();
}

absl::Status Closing() { return absl::CancelledError("the transport is being closed"); }

void Complete(Exchange& exchange, absl::StatusOr<Response> answer) {
  if (exchange.watch) {
    exchange.watch->DeliverEnd(std::move(answer));
  } else {
    std::exchange(exchange.done, nullptr)(std::move(answer));
  }
}

}  // namespace

// One multi handle and its thread. Everything below `thread_` belongs to the loop's thread;
// `mutex_` guards what others hand in and the statistics.
class CurlTransport::Loop {
 public:
  // `longest_silence` is that of the connections of this loop, which is for watches or not.
  Loop(TransferSettings settings, CurlTransportOptions options, absl::Duration longest_silence,
       bool for_watches)
      : settings_(std::move(settings)),
        options_(std::move(options)),
        longest_silence_(longest_silence),
        for_watches_(for_watches),
        multi_(curl_multi_init()) {
    if (multi_ == nullptr) throw std::bad_alloc();
    curl_multi_setopt(multi_, CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_MULTIPLEX));
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS,
                      static_cast<long>(options_.max_in_flight + options_.max_watches));
    if (!for_watches_) {
      curl_multi_setopt(multi_, CURLMOPT_MAX_CONCURRENT_STREAMS,
                        static_cast<long>(options_.max_streams));
    }
  }

  // `keeper` must live until Join has returned.
  void Start(IdentityKeeper& keeper, const char* thread_name) {
    keeper_ = &keeper;
    thread_ = std::thread([this, thread_name] {
      pthread_setname_np(pthread_self(), thread_name);
      Run();
    });
  }

  ~Loop() { curl_multi_cleanup(multi_); }

  // Stop, Join, then EndLateComers until neither loop has any: callbacks of the one may have asked
  // something of the other after that had ended.
  void Stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    Wake();
  }
  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  bool EndLateComers();

  void Add(Exchange exchange) {
    exchange.sent_at = Clock::now();
    exchange.deadline = exchange.sent_at + absl::ToChronoMilliseconds(
                                               std::min(exchange.request.timeout, kLongestTimeout));
    bool first = false;
    {
      std::lock_guard lock(mutex_);
      first = incoming_.empty();
      incoming_.push_back(std::move(exchange));
    }
    if (first) Wake();
  }

  void Wake() { curl_multi_wakeup(multi_); }

  // The loop ends the stream of a cancelled watch; until then its lines go nowhere.
  void Cancelled(std::shared_ptr<WatchState> watch) {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    cancelled_.push_back(std::move(watch));
    curl_multi_wakeup(multi_);
  }

  TransportStats Stats() const {
    std::lock_guard lock(mutex_);
    TransportStats stats = stats_;
    stats.queued += incoming_.size();
    return stats;
  }

 private:
  using Transfers = std::unordered_set<CurlTransfer*>;

  void Run();
  void TakeIncoming();
  void Admit(Exchange exchange);
  void StartWaiting();
  void StartUpTo(size_t in_flight, std::deque<Exchange>& queue);
  void Start(Exchange exchange);
  std::deque<Exchange>& QueueOf(const Exchange& exchange);
  bool ReadFinished();
  void Finished(CurlTransfer* transfer, CURLcode code);
  bool Park(CurlTransfer* transfer, absl::StatusOr<Response>& answer);
  void Resend(Exchange exchange);
  void ResumeParked();
  void SweepWaiting();
  void EndCancelledWatches();
  void CutSilentConnections();
  void Cut(absl::Duration silence);
  void ProbeIfSilent();
  void OnProbed(bool answered);
  void Release(CurlTransfer* transfer);
  void EndEverything();
  void PublishGauges();
  void Count(const Exchange& exchange, const absl::StatusOr<Response>& answer);

  const TransferSettings settings_;
  const CurlTransportOptions options_;
  const absl::Duration longest_silence_;
  const bool for_watches_;
  OpenSockets sockets_;
  CURLM* const multi_;
  IdentityKeeper* keeper_ = nullptr;

  mutable std::mutex mutex_;
  std::deque<Exchange> incoming_;
  std::vector<std::shared_ptr<WatchState>> cancelled_;
  bool stopping_ = false;
  TransportStats stats_;

  std::thread thread_;
  IdentityKeeper::View identity_;
  std::deque<Exchange> waiting_;          // requests, bounded by max_queued
  std::deque<Exchange> waiting_urgent_;   // bounded by kUrgentQueued
  std::deque<Exchange> waiting_watches_;  // until there is an identity; bounded by max_watches
  std::vector<Exchange> parked_;          // answered 401; bounded by max_in_flight and max_watches
  Transfers requests_;
  Transfers watches_;
  std::vector<std::unique_ptr<CurlTransfer>> idle_;
  Clock::time_point last_sweep_ = Clock::now();
  bool probing_ = false;
  Clock::time_point next_probe_ = Clock::now();
};

void CurlTransport::Loop::Run() {
  // Writing to a connection that the server has closed must not end the process.
  sigset_t pipe_signal;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, nullptr);

  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    identity_ = keeper_->Get();
    TakeIncoming();
    EndCancelledWatches();
    if (!parked_.empty()) ResumeParked();
    SweepWaiting();
    StartWaiting();
    ProbeIfSilent();
    PublishGauges();
    int running = 0;
    curl_multi_perform(multi_, &running);
    if (ReadFinished()) continue;
    std::this_thread::sleep_for(
        std::min<Clock::duration>(kRestPerRequest * requests_.size(), kLongestRest));
    curl_multi_poll(multi_, nullptr, 0, kSweepMilliseconds, nullptr);
  }
  EndEverything();
  EndLateComers();
}

void CurlTransport::Loop::TakeIncoming() {
  std::deque<Exchange> taken;
  {
    std::lock_guard lock(mutex_);
    taken.swap(incoming_);
  }
  for (Exchange& exchange : taken) Admit(std::move(exchange));
}

void CurlTransport::Loop::Admit(Exchange exchange) {
  const bool is_watch = exchange.watch != nullptr;
  std::deque<Exchange>& queue = QueueOf(exchange);
  const size_t size = queue.size() + (is_watch ? watches_.size() : 0);
  const size_t room = is_watch                  ? options_.max_watches
                      : exchange.request.urgent ? kUrgentQueued
                                                : options_.max_queued;
  if (size < room) {
    queue.push_back(std::move(exchange));
    return;
  }
  {
    std::lock_guard lock(mutex_);
    ++stats_.rejected;
  }
  Complete(exchange, absl::ResourceExhaustedError(
                         is_watch ? fmt::format("{} watches are open already", size)
                                  : fmt::format("{} requests are waiting already", size)));
}

void CurlTransport::Loop::StartWaiting() {
  if (!identity_.identity) return;
  for (; !waiting_watches_.empty(); waiting_watches_.pop_front()) {
    Start(std::move(waiting_watches_.front()));
  }
  StartUpTo(options_.max_in_flight + kUrgentInFlight, waiting_urgent_);
  StartUpTo(options_.max_in_flight, waiting_);
}

void CurlTransport::Loop::StartUpTo(size_t in_flight, std::deque<Exchange>& queue) {
  while (!queue.empty() && requests_.size() < in_flight) {
    Exchange next = std::move(queue.front());
    queue.pop_front();
    Start(std::move(next));
  }
}

std::deque<Exchange>& CurlTransport::Loop::QueueOf(const Exchange& exchange) {
  if (exchange.watch) return waiting_watches_;
  return exchange.request.urgent ? waiting_urgent_ : waiting_;
}

void CurlTransport::Loop::Start(Exchange exchange) {
  if (exchange.watch && exchange.watch->cancelled()) return;
  std::unique_ptr<CurlTransfer> transfer;
  if (idle_.empty()) {
    transfer = std::make_unique<CurlTransfer>(settings_, sockets_);
  } else {
    transfer = std::move(idle_.back());
    idle_.pop_back();
  }
  transfer->Prepare(std::move(exchange), *identity_.identity, identity_.generation);
  if (curl_multi_add_handle(multi_, transfer->handle()) != CURLM_OK) throw std::bad_alloc();
  {
    std::lock_guard lock(mutex_);
    ++(transfer->exchange().watch ? stats_.watches_started : stats_.sent);
  }
  Transfers& under_way = transfer->exchange().watch ? watches_ : requests_;
  under_way.insert(transfer.release());
}

// True if anything was finished, so that what waits for its place can start at once.
bool CurlTransport::Loop::ReadFinished() {
  bool any = false;
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    Finished(CurlTransfer::Of(message->easy_handle), code);
    any = true;
  }
  return any;
}

void CurlTransport::Loop::Finished(CurlTransfer* transfer, CURLcode code) {
  auto answer = transfer->Finish(code);
  {
    std::lock_guard lock(mutex_);
    stats_.bytes_received += transfer->bytes_received();
    stats_.connections += transfer->connections_opened();
  }
  if (code == CURLE_OPERATION_TIMEDOUT) CutSilentConnections();
  if (Park(transfer, answer)) return;
  Exchange exchange = std::move(transfer->exchange());
  Release(transfer);
  Count(exchange, answer);
  Complete(exchange, std::move(answer));
}

// A 401 may only mean that the credentials have been rotated. Sends the exchange again at once if
// newer ones are there already, keeps it until they have been fetched, or returns false.
bool CurlTransport::Loop::Park(CurlTransfer* transfer, absl::StatusOr<Response>& answer) {
  if (!answer.ok() || answer->status != 401 || transfer->exchange().resent) return false;
  // The other loop may just have had them fetched.
  identity_ = keeper_->Get();
  const bool have_newer = transfer->generation() != identity_.generation;
  const uint64_t refetch = have_newer ? 0 : keeper_->Refetch();
  if (!have_newer && refetch == 0) return false;
  Exchange exchange = std::move(transfer->exchange());
  Release(transfer);
  if (have_newer) {
    Resend(std::move(exchange));
    return true;
  }
  exchange.refetch = refetch;
  exchange.refused_generation = identity_.generation;
  exchange.refused = *std::move(answer);
  parked_.push_back(std::move(exchange));
  return true;
}

void CurlTransport::Loop::Resend(Exchange exchange) {
  exchange.resent = true;
  {
    std::lock_guard lock(mutex_);
    ++stats_.resent_after_401;
  }
  QueueOf(exchange).push_front(std::move(exchange));
}

void CurlTransport::Loop::ResumeParked() {
  std::vector<Exchange> parked = std::exchange(parked_, {});
  for (Exchange& exchange : parked) {
    if (identity_.generation != exchange.refused_generation) {
      Resend(std::move(exchange));
    } else if (identity_.fetches >= exchange.refetch || exchange.deadline <= Clock::now()) {
      Count(exchange, exchange.refused);
      Complete(exchange, std::move(exchange.refused));
    } else {
      parked_.push_back(std::move(exchange));
    }
  }
}

// Ends what can't be sent: its time is up, or there are no credentials to send it with.
void CurlTransport::Loop::SweepWaiting() {
  const bool no_identity = !identity_.identity && identity_.fetches > 0;
  const Clock::time_point now = Clock::now();
  if (!no_identity && now - last_sweep_ < std::chrono::milliseconds(kSweepMilliseconds)) return;
  last_sweep_ = now;
  std::vector<Exchange> ended;
  for (std::deque<Exchange>* queue : {&waiting_, &waiting_urgent_, &waiting_watches_}) {
    const auto first_ended = std::stable_partition(
        queue->begin(), queue->end(),
        [&](const Exchange& exchange) { return !no_identity && exchange.deadline > now; });
    std::move(first_ended, queue->end(), std::back_inserter(ended));
    queue->erase(first_ended, queue->end());
  }
  for (Exchange& exchange : ended) {
    absl::StatusOr<Response> answer = absl::UnavailableError(
        no_identity ? fmt::format("no credentials: {}", std::string(identity_.error.message()))
                    : fmt::format("{} waited for {} and was not sent", exchange.request.path,
                                  absl::FormatDuration(exchange.request.timeout)));
    Count(exchange, answer);
    Complete(exchange, std::move(answer));
  }
}

void CurlTransport::Loop::EndCancelledWatches() {
  std::vector<std::shared_ptr<WatchState>> cancelled;
  {
    std::lock_guard lock(mutex_);
    cancelled.swap(cancelled_);
  }
  bool any_open = false;
  for (const auto& watch : cancelled) {
    const auto at = std::find_if(
        watches_.begin(), watches_.end(),
        [&watch](CurlTransfer* transfer) { return transfer->exchange().watch == watch; });
    if (at == watches_.end()) continue;
    Release(*at);
    any_open = true;
  }
  if (any_open) CutSilentConnections();
  const auto is_cancelled = [](const Exchange& exchange) {
    return exchange.watch && exchange.watch->cancelled();
  };
  if (cancelled.empty()) return;
  std::erase_if(waiting_watches_, is_cancelled);
  std::erase_if(parked_, is_cancelled);
}

// HTTP/1.1 has a connection for each, which ends with what was on it.
void CurlTransport::Loop::CutSilentConnections() {
  if (settings_.is_https()) Cut(longest_silence_);
}

void CurlTransport::Loop::Cut(absl::Duration silence) {
  const size_t cut = sockets_.CutSilent(silence);
  std::lock_guard lock(mutex_);
  stats_.connections_cut += cut;
}

// One probe at a time, and not more often than connections may be silent.
void CurlTransport::Loop::ProbeIfSilent() {
  const Clock::time_point now = Clock::now();
  if (!for_watches_ || probing_ || watches_.empty() || !identity_.identity || now < next_probe_) {
    return;
  }
  next_probe_ = now + std::chrono::milliseconds(kSweepMilliseconds);
  if (!sockets_.AnySilent(options_.probe_after)) return;
  next_probe_ = now + absl::ToChronoMilliseconds(options_.probe_after);
  probing_ = true;
  Exchange probe;
  probe.request.path = "/version";
  probe.done = [this](const absl::StatusOr<Response>& answer) { OnProbed(answer.ok()); };
  probe.sent_at = now;
  probe.deadline = now + absl::ToChronoMilliseconds(options_.probe_timeout);
  Start(std::move(probe));
}

// Any answer will do, a refusal too.
void CurlTransport::Loop::OnProbed(bool answered) {
  probing_ = false;
  if (!answered) Cut(std::min(options_.probe_after, options_.probe_timeout));
  std::lock_guard lock(mutex_);
  ++stats_.probes;
  if (!answered) ++stats_.probes_unanswered;
}

// Takes the handle off the wire, if it is still there, and keeps it for the next exchange.
void CurlTransport::Loop::Release(CurlTransfer* transfer) {
  curl_multi_remove_handle(multi_, transfer->handle());
  requests_.erase(transfer);
  watches_.erase(transfer);
  transfer->exchange() = {};
  std::unique_ptr<CurlTransfer> owned(transfer);
  if (idle_.size() < options_.max_in_flight) idle_.push_back(std::move(owned));
}

void CurlTransport::Loop::EndEverything() {
  std::vector<Exchange> ended;
  for (Transfers* transfers : {&requests_, &watches_}) {
    while (!transfers->empty()) {
      CurlTransfer* transfer = *transfers->begin();
      ended.push_back(std::move(transfer->exchange()));
      Release(transfer);
    }
  }
  for (std::deque<Exchange>* queue : {&waiting_, &waiting_urgent_, &waiting_watches_}) {
    std::move(queue->begin(), queue->end(), std::back_inserter(ended));
    queue->clear();
  }
  std::move(parked_.begin(), parked_.end(), std::back_inserter(ended));
  parked_.clear();
  idle_.clear();
  for (Exchange& exchange : ended) Complete(exchange, Closing());
}

bool CurlTransport::Loop::EndLateComers() {
  std::deque<Exchange> late;
  {
    std::lock_guard lock(mutex_);
    late.swap(incoming_);
  }
  for (Exchange& exchange : late) Complete(exchange, Closing());
  return !late.empty();
}

void CurlTransport::Loop::PublishGauges() {
  std::lock_guard lock(mutex_);
  stats_.in_flight = requests_.size();
  stats_.watches = watches_.size();
  stats_.queued = waiting_.size() + waiting_urgent_.size();
}

void CurlTransport::Loop::Count(const Exchange& exchange, const absl::StatusOr<Response>& answer) {
  if (exchange.watch) return;
  const absl::Duration latency = absl::FromChrono(Clock::now() - exchange.sent_at);
  std::lock_guard lock(mutex_);
  if (!answer.ok()) {
    ++stats_.unanswered;
    return;
  }
  const int family = answer->status / 100;
  ++stats_.answered[family >= 1 && family <= 5 ? family : 0];
  const auto bucket = std::lower_bound(kLatencyBoundsMs.begin(), kLatencyBoundsMs.end(),
                                       absl::ToInt64Milliseconds(latency));
  ++stats_.latency_counts[bucket - kLatencyBoundsMs.begin()];
  stats_.latency_sum += latency;
}

namespace {

// Ends its watch when destroyed; the loop may be gone by then.
template <typename Loop>
class CurlStream : public Stream {
 public:
  CurlStream(std::shared_ptr<Loop> loop, std::shared_ptr<WatchState> watch)
      : loop_(std::move(loop)), watch_(std::move(watch)) {}
  ~CurlStream() override {
    watch_->Cancel();
    loop_->Cancelled(watch_);
  }

 private:
  std::shared_ptr<Loop> loop_;
  std::shared_ptr<WatchState> watch_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CurlTransport>> CurlTransport::Create(
    ClientConfig config, const CurlTransportOptions& options) {
  InitializeCurl();
  auto settings = MakeTransferSettings(std::move(config));
  if (!settings.ok()) return settings.status();
  settings->user_agent = options.user_agent;
  settings->max_line_bytes = options.max_line_bytes;
  settings->max_body_bytes = options.max_body_bytes;
  settings->connect_timeout_ms =
      static_cast<long>(absl::ToInt64Milliseconds(options.connect_timeout));
  return std::unique_ptr<CurlTransport>(new CurlTransport(*settings, options));
}

CurlTransport::CurlTransport(const TransferSettings& settings, const CurlTransportOptions& options)
    : requests_(std::make_shared<Loop>(settings, options, options.longest_silence,
                                       /*for_watches=*/false)),
      watches_(std::make_shared<Loop>(settings, options, options.longest_watch_silence,
                                      /*for_watches=*/true)),
      keeper_(std::make_unique<IdentityKeeper>(settings.config.credentials,
                                               options.refetch_interval, [this] {
                                                 requests_->Wake();
                                                 watches_->Wake();
                                               })) {
  requests_->Start(*keeper_, "kube-requests");
  watches_->Start(*keeper_, "kube-watches");
}

CurlTransport::~CurlTransport() { Stop(); }

void CurlTransport::Stop() {
  for (Loop* loop : {watches_.get(), requests_.get()}) loop->Stop();
  for (Loop* loop : {watches_.get(), requests_.get()}) loop->Join();
  while (watches_->EndLateComers() || requests_->EndLateComers()) {
  }
}

void CurlTransport::Send(Request request, Done done) {
  Exchange exchange;
  exchange.request = std::move(request);
  exchange.done = std::move(done);
  requests_->Add(std::move(exchange));
}

std::unique_ptr<Stream> CurlTransport::Watch(Request request, OnLine on_line, OnEnd on_end) {
  auto watch = std::make_shared<WatchState>(std::move(request.on_begun), std::move(on_line),
                                            std::move(on_end));
  Exchange exchange;
  exchange.request = std::move(request);
  exchange.watch = watch;
  auto stream = std::make_unique<CurlStream<Loop>>(watches_, std::move(watch));
  watches_->Add(std::move(exchange));
  return stream;
}

TransportStats CurlTransport::Stats() const {
  TransportStats stats = requests_->Stats();
  const TransportStats watches = watches_->Stats();
  stats.rejected += watches.rejected;
  stats.resent_after_401 += watches.resent_after_401;
  stats.watches_started = watches.watches_started;
  stats.bytes_received += watches.bytes_received;
  stats.watches = watches.watches;
  stats.connections += watches.connections;
  stats.probes = watches.probes;
  stats.probes_unanswered = watches.probes_unanswered;
  stats.connections_cut += watches.connections_cut;
  return stats;
}

}  // namespace muster::kube
