// An HTTP/2 server for tests whose connections can fall silent: open, and acknowledged by the
// kernel, but without another byte.
#pragma once

#include <atomic>
#include <functional>

#include "kube/client/loopback_listener.h"
#include "kube/client/test_certificates.h"

struct ssl_ctx_st;

namespace muster::kube {

class SilentHttp2Server {
 public:
  enum class Answer {
    kNone,
    kBegun,     // 200, and nothing that follows: a watch without events
    kComplete,  // 204
  };

  // `answer` is asked about every request, on its connection's thread, with the number of that
  // connection (from 1).
  SilentHttp2Server(const TestCertificate& certificate, std::function<Answer(int)> answer);
  ~SilentHttp2Server();

  int port() const { return listener_.port(); }
  int connections() const { return listener_.connections(); }
  // Requests that have been dealt with, answered or not: nothing is written for them any more.
  int requests() const { return requests_; }

 private:
  void Serve(int fd, int number);

  const std::function<Answer(int)> answer_;
  ssl_ctx_st* const context_;
  std::atomic<int> requests_ = 0;
  LoopbackListener listener_;  // last: its threads use the rest
};

}  // namespace muster::kube
