#include "worker/rendezvous/store.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace muster::worker {

struct RendezvousStore::State {
  State(Socket socket, int world_size, HeartbeatOptions heartbeat, uint64_t seed)
      : listener(std::move(socket)), options(heartbeat), book(world_size, heartbeat, seed) {}

  void Serve() {
    Deadline next_tick = DeadlineAfter(options.interval);
    while (!stopping) {
      Wait(next_tick);
      AcceptAll();
      ReadAll();
      if (TimeLeft(next_tick) == absl::ZeroDuration()) {
        next_tick = DeadlineAfter(options.interval);
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
      streams.try_emplace(++last_connection, *std::move(*socket));
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
      Deliver(book.OnMessage(id, *message, std::chrono::steady_clock::now()));
      if (!streams.contains(id)) return;
    }
  }

  void Close(RoundBook::Connection id) {
    streams.erase(id);
    Deliver(book.OnClosed(id, std::chrono::steady_clock::now()));
  }

  void Deliver(const RoundBook::Answers& answers) {
    for (const RoundBook::Answer& answer : answers) {
      const auto stream = streams.find(answer.connection);
      if (stream == streams.end()) continue;
      // What can't be sent is found out by the next Read().
      stream->second.Send(Encode(answer.message)).IgnoreError();
      if (answer.hang_up) streams.erase(stream);
    }
  }

  const Socket listener;
  const HeartbeatOptions options;
  const Socket wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<bool> stopping = false;
  // The thread's own:
  RoundBook book;
  std::map<RoundBook::Connection, FrameStream> streams;
  RoundBook::Connection last_connection = 0;

  std::mutex mutex;
  std::condition_variable changed;
  bool empty = true;  // guarded by mutex
  std::thread thread;
};

absl::StatusOr<std::unique_ptr<RendezvousStore>> RendezvousStore::Start(uint16_t port,
                                                                        int world_size,
                                                                        HeartbeatOptions options) {
  absl::StatusOr<Socket> listener = Listen(port);
  if (!listener.ok()) return listener.status();
  std::random_device random;
  const uint64_t seed = uint64_t{random()} << 32 | random();
  auto state = std::make_unique<State>(*std::move(listener), world_size, options, seed);
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
