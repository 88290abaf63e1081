// TCP sockets as the worker uses them: non-blocking, closed on exec, IPv4 or IPv6.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/communicator/deadline.h"

namespace muster::worker {

// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { Close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

// A name or numeric address, and a port.
struct Endpoint {
  std::string host;
  uint16_t port = 0;
};
// "10.0.0.7:29500", "[fd00::7]:29500".
std::string ToText(const Endpoint& endpoint);

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
};

// On all of the machine's addresses, IPv6 and IPv4; port 0 takes a free one. AlreadyExists if the
// port is taken.
absl::StatusOr<Socket> Listen(uint16_t port);

// The next connection that waits there; empty if none does.
absl::StatusOr<std::optional<Socket>> Accept(const Socket& listener);

// Blocks as long as the resolver does. Unavailable if the name isn't known (yet).
absl::StatusOr<std::vector<SocketAddress>> Resolve(const Endpoint& endpoint);

// Connects to the first address that answers. Unavailable if none does, DeadlineExceeded.
absl::StatusOr<Socket> Connect(const std::vector<SocketAddress>& addresses, Deadline deadline);

// This socket's own end, and the other one, as a numeric address; IPv4 without the IPv6 prefix.
Endpoint LocalEnd(const Socket& socket);
Endpoint RemoteEnd(const Socket& socket);
// 127.0.0.0/8 or ::1.
bool IsLoopback(absl::string_view host);

// False at `deadline`. `events` as in poll(2).
bool WaitFor(const Socket& socket, int16_t events, Deadline deadline);

// Moves what can be moved now: the bytes moved, 0 if it would block; Unavailable if the other end
// has closed or is unreachable.
absl::StatusOr<size_t> SendSome(const Socket& socket, std::span<const std::byte> bytes);
absl::StatusOr<size_t> ReceiveSome(const Socket& socket, std::span<std::byte> bytes);

// All of it, or Unavailable, or DeadlineExceeded.
absl::Status SendAll(const Socket& socket, std::span<const std::byte> bytes, Deadline deadline);

}  // namespace muster::worker
