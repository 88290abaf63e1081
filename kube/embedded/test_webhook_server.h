// An HTTPS server for tests that answers every POST with what a function makes of its body.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace muster::kube::embedded {

class TestWebhookServer {
 public:
  // Runs `answer` on a thread of its own, one call at a time.
  explicit TestWebhookServer(std::function<std::string(const std::string& body)> answer);
  ~TestWebhookServer();

  std::string url() const;  // "https://127.0.0.1:PORT/mutate"
  const std::string& ca_pem() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace muster::kube::embedded
