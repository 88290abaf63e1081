// One connection of an Server, and what all connections share. Private to the server.
#pragma once

#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "http/body_buffers.h"
#include "http/router.h"
#include "http/server.h"

namespace muster::http {

class Connection;

// All connections from one address.
struct Peer {
  // Each as it was idle when it was looked at last, so that the first that has been idle ever since
  // has been for longest, but for what became idle between two looks.
  std::list<Connection*> connections;
};

// Outlives every connection: each holds a reference.
struct ServerCore {
  ServerCore(ServerOptions options, std::vector<Route> routes)
      : options(std::move(options)), router(std::move(routes)), context(this->options.threads) {}

  const ServerOptions options;
  const Router router;
  boost::asio::io_context context;
  BodyBuffers body_buffers;

  // Set by Stop: answer what is under way and close.
  std::atomic<bool> stopping{false};

  // Runs `function` on `strand`, inline if already there; drops it once the io threads are ending,
  // because nobody would run it.
  template <typename Strand, typename Function>
  void Dispatch(const Strand& strand, Function function) {
    std::shared_lock lock(ended_mutex);
    if (!ended) boost::asio::dispatch(strand, std::move(function));
  }
  // The same, never inline: for callers that may hold a lock.
  template <typename Strand, typename Function>
  void Post(const Strand& strand, Function function) {
    std::shared_lock lock(ended_mutex);
    if (!ended) boost::asio::post(strand, std::move(function));
  }
  std::shared_mutex ended_mutex;
  bool ended = false;

  // Guards what follows.
  std::mutex mutex;
  // Open connections, each as long as it is one: what has ended is not here, even if a Responder
  // still refers to it.
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections;
  // Those that have any, and by how many they have.
  std::map<boost::asio::ip::address, Peer> peers;
  std::set<std::pair<size_t, Peer*>> peers_by_size;
  std::condition_variable no_connections;
  // Null without TLS. Connections keep the one they started with.
  std::shared_ptr<boost::asio::ssl::context> tls;
  uint64_t turned_away = 0;
  uint64_t ended_idle = 0;
  uint64_t ended_slow = 0;
  size_t held = 0;  // by all of them

  // What `connection` has of options.memory_limit from now on. Ends others, or this one, if that is
  // too much for all. Not to be called with the lock.
  void Hold(Connection& connection, size_t bytes);

  // The server's own refusal of a request.
  Response Refuse(int status, std::string text) const {
    if (options.refusal) return options.refusal(status, std::move(text));
    return {status, "text/plain", std::move(text), {}};
  }

  // Set before the io threads begin: tells whoever accepts that there is room again.
  std::function<void()> on_room = [] {};

  void Remove(Connection* connection);

  // With the lock, as the next. The connection is open from here on.
  void Add(const std::shared_ptr<Connection>& connection);
  // Of `peer`, or of the one with most connections; null if none is idle.
  Connection* LongestIdle(Peer* peer);

 private:
  void Resize(Peer& peer, size_t before);
  // With the lock; null if none takes anything.
  std::shared_ptr<Connection> SlowestOfTheLargest() const;
};

struct Answer {
  Response response = {};
  std::unique_ptr<StreamSource> source = nullptr;  // if set, the body comes from here
  bool hang_up = false;                            // instead of any answer
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::address peer, int socket) : peer(std::move(peer)), socket_(socket) {}
  virtual ~Connection() = default;
  virtual void Start() = 0;
  // The answer to the request under way. Thread-safe.
  virtual void Deliver(Answer answer) = 0;
  // Runs it on the connection's strand, never inline. Thread-safe.
  virtual void Run(std::function<void()> function) = 0;
  // The server is stopping: closes if idle or streaming. Thread-safe.
  virtual void Drain() = 0;
  // Closes whatever is under way. Thread-safe.
  virtual void Close() = 0;

  // Since when it waits for its handshake, a request, or the rest of one; nullopt while a whole
  // request is under way. Thread-safe.
  std::optional<int64_t> idle_since() const {
    const int64_t since = idle_since_;
    return since < kBusy ? std::optional(since) : std::nullopt;
  }
  // From now on no request is taken; false if one is under way. Thread-safe.
  bool EndIfIdle() {
    int64_t since = idle_since_;
    return since < kBusy && idle_since_.compare_exchange_strong(since, kEnded);
  }
  // Whether the kernel has bytes of it that weren't read yet, so that it is idle no more though its
  // thread has yet to see it. Thread-safe.
  bool HasInput() const;
  const boost::asio::ip::address peer;

  // Ticks of the steady clock.
  static int64_t Now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

  // Guarded by the server's mutex, as the next: what it takes of the memory limit; since when.
  size_t held = 0;
  int64_t held_since = 0;
  Peer* of_peer = nullptr;
  std::list<Connection*>::iterator place;  // there
  int64_t idle_when_seen = 0;

 protected:
  // All false if it was ended. It waits for a request, from now on if not already.
  bool SetIdle() { return idle_since() ? true : Set(Now()); }
  // It waits for the rest of one.
  bool SetReading() { return Set(Now()); }
  bool SetBusy() { return Set(kBusy); }

 private:
  bool Set(int64_t state) {
    int64_t before = idle_since_;
    while (before != kEnded && !idle_since_.compare_exchange_weak(before, state)) {
    }
    return before != kEnded;
  }
  static constexpr int64_t kBusy = INT64_MAX - 1;
  static constexpr int64_t kEnded = INT64_MAX;
  // Once it is closed the number may be another's: whose input it has is then told wrongly.
  const int socket_;
  std::atomic<int64_t> idle_since_ = Now();  // ticks of the steady clock
};

// The connection's first reference is held by its own coroutine from Start on.
std::shared_ptr<Connection> MakeConnection(std::shared_ptr<ServerCore> core,
                                           boost::asio::ip::tcp::socket socket,
                                           std::shared_ptr<boost::asio::ssl::context> tls);

}  // namespace muster::http
