// One client's connection to the front; http_front.cc makes them.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <memory>

#include "kube/embedded/api_server.h"
#include "kube/embedded/http_front.h"

namespace muster::kube::embedded {

// What all connections of a front share; outlives them.
struct FrontContext {
  ApiServer* server = nullptr;
  HttpFrontOptions options;
  boost::asio::thread_pool* webhook_pool = nullptr;
  std::atomic<size_t> waiting_for_webhooks = 0;
};

// Keeps itself alive until it is closed. All its work is on its socket's strand.
class HttpConnection {
 public:
  virtual ~HttpConnection() = default;
  virtual void Run() = 0;
  // From any thread.
  virtual void Close() = 0;
};

// `on_closed` runs once, when the connection is destroyed. `tls` null: plain.
std::shared_ptr<HttpConnection> MakeHttpConnection(FrontContext* front,
                                                   boost::asio::ip::tcp::socket socket,
                                                   boost::asio::ssl::context* tls,
                                                   std::function<void()> on_closed);

}  // namespace muster::kube::embedded
