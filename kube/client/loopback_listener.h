// Listens on loopback for a test's server, with a thread per connection.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>

struct ssl_ctx_st;

namespace muster::kube {

class LoopbackListener {
 public:
  // Serves one connection, on its own thread, until it has ended; `number` counts from 1. The
  // socket is closed afterwards.
  using Serve = std::function<void(int socket, int number)>;

  explicit LoopbackListener(Serve serve);
  ~LoopbackListener();
  LoopbackListener(const LoopbackListener&) = delete;
  LoopbackListener& operator=(const LoopbackListener&) = delete;

  // Ends all connections and waits for their threads.
  void Stop();

  int port() const { return port_; }
  int connections() const { return connections_; }
  bool stopping() const { return stopping_; }

 private:
  void Accept();

  const Serve serve_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> connections_ = 0;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::list<int> open_;
  std::list<std::thread> threads_;
  std::thread acceptor_;
};

// A server's TLS context with this identity, as PEM. The caller frees it.
ssl_ctx_st* MakeServerContext(const std::string& certificate_pem, const std::string& key_pem);

}  // namespace muster::kube
