// One connection of an HttpServer, and what all connections share. Private to the server.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/strand.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "extender/body_buffers.h"
#include "extender/http_router.h"
#include "extender/http_server.h"

namespace muster::extender {

class HttpConnection;

// Outlives every connection: each holds a reference.
struct HttpServerCore {
  HttpServerCore(HttpServerOptions options, std::vector<HttpRoute> routes)
      : options(std::move(options)), router(std::move(routes)), context(this->options.threads) {}

  const HttpServerOptions options;
  const HttpRouter router;
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
  std::shared_mutex ended_mutex;
  bool ended = false;

  // Guards what follows.
  std::mutex mutex;
  // Open connections. One that has ended is not here, even if a Responder still refers to it.
  std::unordered_map<HttpConnection*, std::weak_ptr<HttpConnection>> connections;
  std::condition_variable no_connections;
  // Null without TLS. Connections keep the one they started with.
  std::shared_ptr<boost::asio::ssl::context> tls;
  uint64_t refused = 0;

  void Remove(HttpConnection* connection) {
    std::lock_guard lock(mutex);
    connections.erase(connection);
    if (connections.empty()) no_connections.notify_all();
  }
};

struct HttpAnswer {
  HttpResponse response;
  std::unique_ptr<StreamSource> source;  // if set, the body comes from here
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  virtual ~HttpConnection() = default;
  virtual void Start() = 0;
  // The answer to the request under way. Thread-safe.
  virtual void Deliver(HttpAnswer answer) = 0;
  // The server is stopping: closes if idle or streaming. Thread-safe.
  virtual void Drain() = 0;
  // Closes whatever is under way. Thread-safe.
  virtual void Close() = 0;
};

// The connection's first reference is held by its own coroutine from Start on.
std::shared_ptr<HttpConnection> MakeHttpConnection(std::shared_ptr<HttpServerCore> core,
                                                   boost::asio::ip::tcp::socket socket,
                                                   std::shared_ptr<boost::asio::ssl::context> tls);

}  // namespace muster::extender
