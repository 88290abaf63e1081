#include "worker/rendezvous/store.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace muster::worker {

namespace {

// Beside all ranks at once, each twice.
constexpr size_t kMostGuests = 256;
constexpr absl::Duration kGuestTime = absl::Seconds(10);

// A connection whose other end hasn't proved yet that it knows the job's secret.
struct Guest {
  Deadline until;
  std::optional<MemberMessage> join;  // once it has asked
  std::string nonce;                  // that it was asked with
};

}  // namespace

struct RendezvousStore::State {
  State(Socket socket, int ranks, HeartbeatOptions heartbeat, JobSecret job_secret, uint64_t seed)
      : listener(std::move(socket)),
        options(heartbeat),
        world_size(ranks),
        secret(std::move(job_secret)),
        book(ranks, heartbeat, seed) {}

  void Serve() {
    Deadline next_tick = DeadlineAfter(options.interval);
    while (!stopping) {
      Wait(next_tick);
      AcceptAll();
      ReadAll();
      if (TimeLeft(next_tick) == absl::ZeroDuration()) {
        next_tick = DeadlineAfter(options.interval);
        HangUpOnIdleGuests();
        Deliver(book.OnTick(std::chrono::steady_clock::now()));
      }
      const std::lock_guard lock(mutex);
      empty = book.empty();
      changed.notify_all();
    }
  }

  void Wait(Deadline next_tick) {
    std::vector<pollfd> waits = {{.fd = wake.fd(), .events = POLLIN, .revents = 0},
                                 {.fd = listener.fd(), .events = POLLIN, .revents = 0}};
    for (const auto& [id, stream] : streams) {
      const int events = POLLIN | (stream.wants_to_send() ? POLLOUT : 0);
      waits.push_back(
          {.fd = stream.socket().fd(), .events = static_cast<int16_t>(events), .revents = 0});
    }
    poll(waits.data(), waits.size(),
         static_cast<int>(absl::ToInt64Milliseconds(TimeLeft(next_tick)) + 1));
  }

  void AcceptAll() {
    while (true) {
      absl::StatusOr<std::optional<Socket>> socket = Accept(listener);
      // Out of descriptors, perhaps: those who wait are accepted when some are free.
      if (!socket.ok() || !socket->has_value()) return;
      ++last_connection;
      if (!secret.is_set()) {
        streams.try_emplace(last_connection, *std::move(*socket));
        continue;
      }
      // Who fills the store with idle connections loses the oldest of them.
      const size_t most = kMostGuests + 2 * static_cast<size_t>(world_size);
      if (guests.size() >= most) Close(guests.begin()->first);
      streams.try_emplace(last_connection, *std::move(*socket), FrameStream::kLargestGuestFrame);
      guests[last_connection].until = DeadlineAfter(kGuestTime);
    }
  }

  void HangUpOnIdleGuests() {
    // In the order in which they came.
    while (!guests.empty() && TimeLeft(guests.begin()->second.until) == absl::ZeroDuration()) {
      Close(guests.begin()->first);
    }
  }

  void ReadAll() {
    std::vector<RoundBook::Connection> connections;
    for (const auto& [id, stream] : streams) connections.push_back(id);
    for (const RoundBook::Connection id : connections) Read(id);
  }

  void Read(RoundBook::Connection id) {
    const auto stream = streams.find(id);
    if (stream == streams.end()) return;  // hung up on by another one's message
    const absl::StatusOr<std::vector<std::string>> frames = stream->second.Receive();
    if (!frames.ok() || !stream->second.Flush().ok()) return Close(id);
    for (const std::string& frame : *frames) {
      const absl::StatusOr<MemberMessage> message = DecodeMemberMessage(frame);
      if (!message.ok()) return Close(id);
      Hear(id, *message);
      if (!streams.contains(id)) return;
    }
  }

  void Hear(RoundBook::Connection id, const MemberMessage& message) {
    const auto guest = guests.find(id);
    if (guest == guests.end()) {
      if (!secret.is_set() && !message.nonce.empty()) {
        return Refuse(id, message, "has a secret, and rank 0 has none");
      }
      return Deliver(book.OnMessage(id, message, std::chrono::steady_clock::now()));
    }
    if (message.type == MemberMessage::Type::kJoin) return Challenge(guest->second, id, message);
    // Beats come meanwhile.
    if (message.type != MemberMessage::Type::kProve) return;
    const Guest& asked = guest->second;
    if (!asked.join.has_value() ||
        !secret.Proves(message.proof, JobSecret::Side::kMember, asked.join->nonce, asked.nonce)) {
      return Refuse(id, asked.join, "doesn't know the job's secret");
    }
    const MemberMessage join = *asked.join;
    guests.erase(guest);
    streams.at(id).set_largest(FrameStream::kLargestFrame);
    Deliver(book.OnMessage(id, join, std::chrono::steady_clock::now()));
  }

  void Challenge(Guest& guest, RoundBook::Connection id, const MemberMessage& join) {
    if (join.nonce.empty()) return Refuse(id, join, "has no secret, and rank 0 asks for the job's");
    if (!IsNonce(join.nonce)) return Close(id);
    guest.join = join;
    guest.nonce = NewNonce();
    StoreMessage challenge;
    challenge.type = StoreMessage::Type::kChallenge;
    challenge.nonce = guest.nonce;
    challenge.proof = secret.Proof(JobSecret::Side::kStore, join.nonce, guest.nonce);
    Deliver({{.connection = id, .message = std::move(challenge)}});
  }

  void Refuse(RoundBook::Connection id, const std::optional<MemberMessage>& join,
              absl::string_view why) {
    StoreMessage refusal;
    refusal.type = StoreMessage::Type::kRefused;
    refusal.status = absl::FailedPreconditionError(absl::StrCat(
        join.has_value() ? absl::StrCat("rank ", join->member.rank) : "a rank", " ", why,
        ": give all pods of the job the same MUSTER_JOB_SECRET, or the same file "
        "as job-secret-file"));
    Deliver({{.connection = id, .message = std::move(refusal), .hang_up = true}});
  }

  void Close(RoundBook::Connection id) {
    streams.erase(id);
    // Of one that the book has never heard of it needn't hear now.
    if (guests.erase(id) > 0) return;
    Deliver(book.OnClosed(id, std::chrono::steady_clock::now()));
  }

  void Deliver(const RoundBook::Answers& answers) {
    for (const RoundBook::Answer& answer : answers) {
      const auto stream = streams.find(answer.connection);
      if (stream == streams.end()) continue;
      // What can't be sent is found out by the next Read().
      stream->second.Send(Encode(answer.message)).IgnoreError();
      if (!answer.hang_up) continue;
      guests.erase(stream->first);
      streams.erase(stream);
    }
  }

  const Socket listener;
  const HeartbeatOptions options;
  const int world_size;
  const JobSecret secret;
  const Socket wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<bool> stopping = false;
  // The thread's own:
  RoundBook book;
  std::map<RoundBook::Connection, FrameStream> streams;
  std::map<RoundBook::Connection, Guest> guests;  // those of the streams that aren't trusted yet
  RoundBook::Connection last_connection = 0;

  std::mutex mutex;
  std::condition_variable changed;
  bool empty = true;  // guarded by mutex
  std::thread thread;
};

absl::StatusOr<std::unique_ptr<RendezvousStore>> RendezvousStore::Start(uint16_t port,
                                                                        int world_size,
                                                                        HeartbeatOptions options,
                                                                        const JobSecret& secret) {
  absl::StatusOr<Socket> listener = Listen(port);
  if (!listener.ok()) return listener.status();
  std::random_device random;
  const uint64_t seed = uint64_t{random()} << 32 | random();
  auto state = std::make_unique<State>(*std::move(listener), world_size, options, secret, seed);
  state->thread = std::thread([&raw = *state] { raw.Serve(); });
  return std::unique_ptr<RendezvousStore>(new RendezvousStore(std::move(state)));
}

RendezvousStore::RendezvousStore(std::unique_ptr<State> state) : state_(std::move(state)) {}

RendezvousStore::~RendezvousStore() {
  state_->stopping = true;
  eventfd_write(state_->wake.fd(), 1);
  state_->thread.join();
}

uint16_t RendezvousStore::port() const { return LocalEnd(state_->listener).port; }

void RendezvousStore::WaitUntilEmpty(absl::Duration limit) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, absl::ToChronoMilliseconds(limit), [&] { return state_->empty; });
}

}  // namespace muster::worker
