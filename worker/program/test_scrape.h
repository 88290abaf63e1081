#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <span>
#include <string>

#include "worker/communicator/tcp_socket.h"

namespace muster::worker {

// What a server on this machine answers to a request until it hangs up.
inline std::string Ask(uint16_t port, const std::string& request) {
  constexpr absl::Duration kPatience = absl::Seconds(30);
  const auto socket = Connect(*Resolve({"127.0.0.1", port}), DeadlineAfter(kPatience));
  EXPECT_TRUE(socket.ok()) << socket.status();
  if (!socket.ok()) return "";
  EXPECT_TRUE(SendAll(*socket, std::as_bytes(std::span(request)), DeadlineAfter(kPatience)).ok());
  std::string answer;
  std::array<std::byte, 512> buffer;
  while (WaitFor(*socket, POLLIN, DeadlineAfter(kPatience))) {
    const auto size = ReceiveSome(*socket, buffer);
    if (!size.ok()) break;
    answer.append(reinterpret_cast<const char*>(buffer.data()), *size);
  }
  return answer;
}

}  // namespace muster::worker
