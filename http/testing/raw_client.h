// A TCP client for tests that says exactly the given bytes, one call at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace muster::http {

class RawClient {
 public:
  // Connects to 127.0.0.1, from another loopback address if one is given; aborts the test process
  // if that fails.
  explicit RawClient(uint16_t port, const char* from = "127.0.0.1");
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // False if the peer has closed.
  bool Send(std::string_view bytes);
  // Reads until `end` has been seen, the peer closes, or the time is up; returns everything read
  // and not yet returned, up to and including `end`.
  std::string ReadUntil(std::string_view end, absl::Duration limit = absl::Seconds(10));
  // Reads one response with Content-Length: header and body.
  struct Message {
    int status = 0;
    std::string header;
    std::string body;
  };
  Message ReadMessage(absl::Duration limit = absl::Seconds(10));
  // True if the peer closes within the limit; what it sends before is dropped.
  bool AwaitClose(absl::Duration limit);
  void CloseWriting();

 private:
  bool Fill(absl::Time until);
  int fd_;
  bool closed_ = false;
  std::string pending_;
};

// Lets this process have up to 10,000 files open, as far as it may: both ends of a connection are
// in it. False if the limit can't be read or set.
bool AllowManyConnections();

// "POST path HTTP/1.1" with Host and Content-Length.
std::string RawPost(std::string_view path, std::string_view body);
std::string RawGet(std::string_view path);

}  // namespace muster::http
