#include "worker/rendezvous/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/communicator/communicator.h"
#include "worker/rendezvous/store.h"

namespace muster::worker {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(2);
// One address that swallows packets doesn't use up the whole deadline.
constexpr absl::Duration kConnectTime = absl::Seconds(5);
constexpr absl::Duration kLeaveTime = absl::Seconds(2);

// 127.0.0.1 is where the store is for those who reach it so, and nowhere for all others.
void ReplaceLoopback(Round& round, const std::string& store_host) {
  for (Member& member : round.members) {
    if (IsLoopback(member.endpoint.host)) member.endpoint.host = store_host;
  }
}

}  // namespace

struct Rendezvous::State {
  explicit State(RendezvousOptions given)
      : options(std::move(given)), random(std::random_device{}()) {
    incarnation = std::uniform_int_distribution<uint64_t>()(random);
  }

  const RendezvousOptions options;
  std::mt19937_64 random;
  uint64_t incarnation = 0;
  int64_t generation = 0;
  std::unique_ptr<RendezvousStore> store;
  std::optional<FrameStream> stream;
  Deadline heard;  // when the store last said anything
  Deadline next_beat;
  std::vector<StoreMessage> unread;  // what came together with the round

  // The heartbeat thread has `stream` from the beginning of a round until StopBeating().
  const Socket wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<bool> stopping = false;
  std::thread thread;

  // ---- Joining ----

  absl::StatusOr<Round> Join(const Member& member, absl::Duration timeout,
                             const absl::Status& cause) {
    const Deadline deadline = DeadlineAfter(timeout);
    // Who was there and goes from then on has most likely given up, as this rank is about to, and
    // isn't to blame.
    const Deadline others_give_up = DeadlineAfter(0.9 * timeout);
    absl::Duration pause = kFirstPause;
    std::optional<std::vector<int>> missing;  // by what the store said last
    absl::Status last;
    while (true) {
      if (absl::Status stop = Stop(); !stop.ok()) return stop;
      last = ConnectAndAsk(member, deadline, cause);
      if (last.ok()) {
        pause = kFirstPause;
        absl::StatusOr<Round> round = AwaitRound(deadline, others_give_up, missing);
        if (round.ok() || absl::IsFailedPrecondition(round.status()) ||
            absl::IsCancelled(round.status())) {
          return round;
        }
        last = round.status();
        if (absl::IsDeadlineExceeded(last)) return last;
      }
      stream.reset();
      const absl::Duration jittered =
          pause * std::uniform_real_distribution<double>(0.5, 1.5)(random);
      if (TimeLeft(deadline) <= jittered) break;
      std::this_thread::sleep_for(absl::ToChronoMilliseconds(jittered));
      pause = std::min(2 * pause, kLongestPause);
    }
    // The store's own rank may give up, and take it along, a moment before this one.
    if (missing.has_value()) return TooFewCame(*missing, last);
    return WithRanksAtFault(
        absl::DeadlineExceededError(absl::StrCat(
            "the rendezvous store of rank 0 at ", ToText(options.store), " was not reached within ",
            absl::FormatDuration(timeout), ": ", last.message())),
        {0});
  }

  absl::Status TooFewCame(const std::vector<int>& missing, const absl::Status& store_lost) const {
    std::string message =
        absl::StrCat("rendezvous at ", ToText(options.store), ": ",
                     options.world_size - static_cast<int>(missing.size()), " of ",
                     options.world_size, " ranks came in time; missing: ", RankList(missing));
    if (!store_lost.ok()) {
      absl::StrAppend(&message, "; then the store of rank 0 was lost: ", store_lost.message());
    }
    return WithRanksAtFault(absl::DeadlineExceededError(message), missing);
  }

  absl::Status Stop() const {
    if (!options.stop_requested || !options.stop_requested()) return absl::OkStatus();
    return absl::CancelledError("stopped while waiting for the other ranks");
  }

  absl::Status ConnectAndAsk(const Member& member, Deadline deadline, const absl::Status& cause) {
    if (!stream.has_value()) {
      const absl::Duration time = std::min(TimeLeft(deadline), kConnectTime);
      // Its own name may not be known yet.
      const Endpoint where =
          store != nullptr ? Endpoint{.host = "127.0.0.1", .port = store->port()} : options.store;
      const absl::StatusOr<std::vector<SocketAddress>> addresses = Resolve(where);
      if (!addresses.ok()) return addresses.status();
      absl::StatusOr<Socket> socket = Connect(*addresses, DeadlineAfter(time));
      if (!socket.ok()) return socket.status();
      stream.emplace(*std::move(socket));
    }
    MemberMessage join;
    join.type = MemberMessage::Type::kJoin;
    join.member = member;
    join.generation = generation;
    join.incarnation = incarnation;
    join.cause = cause;
    if (member.endpoint.host.empty()) {
      join.member.endpoint.host = LocalEnd(stream->socket()).host;
    }
    heard = std::chrono::steady_clock::now();
    next_beat = DeadlineAfter(options.heartbeat.interval);
    return stream->Send(Encode(join));
  }

  absl::StatusOr<Round> AwaitRound(Deadline deadline, Deadline others_give_up,
                                   std::optional<std::vector<int>>& missing) {
    while (true) {
      if (absl::Status stop = Stop(); !stop.ok()) return stop;
      absl::StatusOr<std::vector<StoreMessage>> messages = Exchange(deadline);
      if (!messages.ok()) return messages.status();
      for (size_t i = 0; i < messages->size(); ++i) {
        StoreMessage& message = (*messages)[i];
        if (message.type == StoreMessage::Type::kRefused) return message.status;
        if (message.type == StoreMessage::Type::kWaiting &&
            (!missing.has_value() || message.ranks.size() <= missing->size() ||
             TimeLeft(others_give_up) > absl::ZeroDuration())) {
          missing = std::move(message.ranks);
        }
        if (message.type != StoreMessage::Type::kRound) continue;
        generation = message.round.generation;
        ReplaceLoopback(message.round, RemoteEnd(stream->socket()).host);
        Round round = std::move(message.round);
        messages->erase(messages->begin(), messages->begin() + static_cast<ptrdiff_t>(i) + 1);
        unread = *std::move(messages);
        return round;
      }
      if (TimeLeft(deadline) > absl::ZeroDuration()) continue;
      if (missing.has_value()) return TooFewCame(*missing, absl::OkStatus());
      return absl::UnavailableError("not heard from since it took the connection");
    }
  }

  // ---- Both ----

  // Waits until the next beat at the longest, beats, and returns what the store said. Unavailable
  // if it is gone or silent for too long.
  absl::StatusOr<std::vector<StoreMessage>> Exchange(Deadline until) {
    std::vector<pollfd> waits = {{.fd = wake.fd(), .events = POLLIN, .revents = 0},
                                 {.fd = stream->socket().fd(), .events = POLLIN, .revents = 0}};
    if (stream->wants_to_send()) waits[1].events |= POLLOUT;
    const absl::Duration wait = TimeLeft(std::min(until, next_beat));
    poll(waits.data(), waits.size(), static_cast<int>(absl::ToInt64Milliseconds(wait) + 1));
    absl::StatusOr<std::vector<std::string>> frames = stream->Receive();
    if (!frames.ok()) return frames.status();
    std::vector<StoreMessage> messages;
    for (const std::string& frame : *frames) {
      absl::StatusOr<StoreMessage> message = DecodeStoreMessage(frame);
      if (!message.ok()) return absl::UnavailableError(message.status().message());
      messages.push_back(*std::move(message));
    }
    const Deadline now = std::chrono::steady_clock::now();
    if (!messages.empty()) heard = now;
    const absl::Duration silence = absl::FromChrono(now - heard);
    if (silence > options.heartbeat.silence_limit) {
      return absl::UnavailableError(
          absl::StrCat("not heard from for ",
                       absl::FormatDuration(absl::Trunc(silence, absl::Milliseconds(100)))));
    }
    if (now < next_beat) return messages;
    next_beat = DeadlineAfter(options.heartbeat.interval);
    MemberMessage beat;
    if (options.position) beat.position = options.position();
    // If this fails the next Receive() says so, after the store's last words.
    stream->Send(Encode(beat)).IgnoreError();
    return messages;
  }

  // ---- During a round ----

  void StartBeating(std::function<void(absl::Status)> on_loss) {
    stopping = false;
    thread = std::thread([this, on_loss = std::move(on_loss)] {
      absl::Status loss = BeatUntilLoss();
      const bool lost = !loss.ok();
      if (lost && !stopping) on_loss(std::move(loss));
      // The store goes on hearing from this rank while the job makes up its mind.
      if (!lost || !stream.has_value()) return;
      while (!stopping && Exchange(Deadline::max()).ok()) continue;
    });
  }

  absl::Status BeatUntilLoss() {
    absl::StatusOr<std::vector<StoreMessage>> messages = std::exchange(unread, {});
    while (!stopping) {
      if (!messages.ok()) {
        return WithRanksAtFault(absl::UnavailableError(absl::StrCat(
                                    "rank 0 (with the rendezvous store at ", ToText(options.store),
                                    ") is lost: ", messages.status().message())),
                                {0});
      }
      for (StoreMessage& message : *messages) {
        if (message.type == StoreMessage::Type::kLost) return std::move(message.status);
      }
      messages = Exchange(Deadline::max());
    }
    return absl::OkStatus();
  }

  void StopBeating() {
    if (!thread.joinable()) return;
    stopping = true;
    eventfd_write(wake.fd(), 1);
    thread.join();
    eventfd_t ignored = 0;
    eventfd_read(wake.fd(), &ignored);
  }

  void Leave() {
    StopBeating();
    if (!stream.has_value()) return;
    MemberMessage leave;
    leave.type = MemberMessage::Type::kLeave;
    absl::Status status = stream->Send(Encode(leave));
    const Deadline deadline = DeadlineAfter(kLeaveTime);
    while (status.ok() && TimeLeft(deadline) > absl::ZeroDuration()) {
      const absl::StatusOr<std::vector<StoreMessage>> messages = Exchange(deadline);
      status = messages.status();
      if (!messages.ok()) break;
      const bool left = std::any_of(messages->begin(), messages->end(), [](const auto& each) {
        return each.type == StoreMessage::Type::kLeft;
      });
      if (left) break;
    }
    stream.reset();
  }
};

absl::StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Start(RendezvousOptions options) {
  auto state = std::make_unique<State>(std::move(options));
  if (state->options.serve) {
    absl::StatusOr<std::unique_ptr<RendezvousStore>> store = RendezvousStore::Start(
        state->options.store.port, state->options.world_size, state->options.heartbeat);
    if (!store.ok()) return store.status();
    state->store = *std::move(store);
  }
  return std::unique_ptr<Rendezvous>(new Rendezvous(std::move(state)));
}

Rendezvous::Rendezvous(std::unique_ptr<State> state) : state_(std::move(state)) {}

Rendezvous::~Rendezvous() { state_->StopBeating(); }

absl::StatusOr<Round> Rendezvous::Join(const Member& member, absl::Duration timeout,
                                       std::function<void(absl::Status)> on_loss,
                                       const absl::Status& cause) {
  state_->StopBeating();
  absl::StatusOr<Round> round = state_->Join(member, timeout, cause);
  if (round.ok()) state_->StartBeating(std::move(on_loss));
  return round;
}

void Rendezvous::Leave(absl::Duration patience) {
  state_->Leave();
  if (state_->store != nullptr) state_->store->WaitUntilEmpty(patience);
}

uint16_t Rendezvous::served_port() const {
  return state_->store == nullptr ? 0 : state_->store->port();
}

}  // namespace muster::worker
