// A blocking HTTP/1.1 client for tests of the front, plain or TLS, one connection.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace muster::kube::embedded {

struct RawAnswer {
  int status = 0;  // 0: the connection ended without an answer
  std::string content_type;
  std::string retry_after;
  std::string warning;
  std::string body;
  bool keep_alive = false;
};

class TestHttpClient {
 public:
  // An empty `ca_pem`: plain. Throws if it can't connect or the certificate isn't trusted.
  explicit TestHttpClient(uint16_t port, const std::string& ca_pem = "");
  ~TestHttpClient();

  RawAnswer Call(const std::string& method, const std::string& target, const std::string& body = "",
                 const std::string& content_type = "application/json",
                 const std::string& accept = "application/json");
  // Sends bytes as they are and reads one answer.
  RawAnswer SendRaw(const std::string& bytes);

  // Sends a GET and reads its status; the lines follow by ReadLine.
  int OpenStream(const std::string& target);
  // The next line of the stream; false at its end. `clean` tells how it ended.
  bool ReadLine(std::string* line, bool* clean = nullptr);
  // Sends a GET and then reads nothing.
  void OpenStreamWithoutReading(const std::string& target);
  // True if the server has closed the connection within that time.
  bool ClosedWithin(absl::Duration duration);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace muster::kube::embedded
