// The TCP sockets that one thread's libcurl handles have opened.
//
// HTTP/2 puts everything on one connection, and libcurl goes on using it when requests on it time
// out. A server that hangs, or one whose proxy does, keeps acknowledging what it is sent, so that
// TCP finds nothing wrong either: somebody has to end that connection.
#pragma once

#include <curl/curl.h>

#include <unordered_set>

#include "absl/time/time.h"

namespace muster::kube {

// Not thread-safe. Must outlive the handles attached and the connections they opened.
class OpenSockets {
 public:
  // Has the handle open and close its sockets here.
  void Attach(CURL* easy);
  // Whether one that is connected has received nothing for `silence` or longer.
  bool AnySilent(absl::Duration silence) const;
  // Shuts those down, as though the server had closed them, and returns their number: of what was
  // on them libcurl sends by itself again, elsewhere, what had no byte of an answer, and ends the
  // rest.
  size_t CutSilent(absl::Duration silence);

 private:
  static curl_socket_t Open(void* sockets, curlsocktype purpose, curl_sockaddr* address);
  static int Close(void* sockets, curl_socket_t socket);

  std::unordered_set<curl_socket_t> open_;
};

}  // namespace muster::kube
