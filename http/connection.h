// One connection of an Server, and what all connections share. Private to the server.
#pragma once

#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/strand.hpp>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "http/body_buffers.h"
#include "http/router.h"
#include "http/server.h"

namespace muster::http {

class Connection;

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
  // Open connections. One that has ended is not here, even if a Responder still refers to it.
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections;
  std::condition_variable no_connections;
  // Null without TLS. Connections keep the one they started with.
  std::shared_ptr<boost::asio::ssl::context> tls;
  uint64_t refused = 0;

  // The server's own refusal of a request.
  Response Refuse(int status, std::string text) const {
    if (options.refusal) return options.refusal(status, std::move(text));
    return {status, "text/plain", std::move(text), {}};
  }

  // Set before the io threads begin: tells whoever accepts that there is room again.
  std::function<void()> on_room = [] {};

  void Remove(Connection* connection) {
    std::lock_guard lock(mutex);
    connections.erase(connection);
    if (connections.empty()) no_connections.notify_all();
    on_room();
  }
};

struct Answer {
  Response response = {};
  std::unique_ptr<StreamSource> source = nullptr;  // if set, the body comes from here
  bool hang_up = false;                            // instead of any answer
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  virtual ~Connection() = default;
  virtual void Start() = 0;
  // The answer to the request under way. Thread-safe.
  virtual void Deliver(Answer answer) = 0;
  // The server is stopping: closes if idle or streaming. Thread-safe.
  virtual void Drain() = 0;
  // Closes whatever is under way. Thread-safe.
  virtual void Close() = 0;
};

// The connection's first reference is held by its own coroutine from Start on.
std::shared_ptr<Connection> MakeConnection(std::shared_ptr<ServerCore> core,
                                           boost::asio::ip::tcp::socket socket,
                                           std::shared_ptr<boost::asio::ssl::context> tls);

}  // namespace muster::http
