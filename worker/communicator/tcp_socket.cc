#include "worker/communicator/tcp_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace muster::worker {
namespace {

constexpr int kFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
// Every rank may connect twice before the first one is accepted.
constexpr int kBacklog = 4096;

std::string ErrorText(int error) { return std::generic_category().message(error); }

absl::Status Failed(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", ErrorText(error)));
}

Endpoint ToEndpoint(const sockaddr_storage& storage, socklen_t length) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&storage), length, host, sizeof host, port,
                  sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  absl::string_view text = host;
  if (absl::StartsWith(text, "::ffff:") && absl::StrContains(text, '.')) text.remove_prefix(7);
  return {.host = std::string(text), .port = static_cast<uint16_t>(std::stoi(port))};
}

void SendWithoutDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

absl::StatusOr<Socket> ListenOn(const sockaddr* address, socklen_t length, uint16_t port) {
  Socket socket(::socket(address->sa_family, kFlags, 0));
  if (!socket.open()) return Failed("socket", errno);
  const int on = 1;
  const int off = 0;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) {
    setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (bind(socket.fd(), address, length) != 0 || listen(socket.fd(), kBacklog) != 0) {
    const int error = errno;
    const std::string text = absl::StrCat("listening on port ", port, ": ", ErrorText(error));
    return error == EADDRINUSE ? absl::AlreadyExistsError(text) : absl::UnavailableError(text);
  }
  return socket;
}

absl::StatusOr<Socket> ConnectOne(const SocketAddress& address, Deadline deadline) {
  const std::string where = ToText(ToEndpoint(address.storage, address.length));
  Socket socket(::socket(address.storage.ss_family, kFlags, 0));
  if (!socket.open()) return Failed(where, errno);
  if (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) !=
      0) {
    if (errno != EINPROGRESS) return Failed(where, errno);
    if (!WaitFor(socket, POLLOUT, deadline)) {
      return absl::DeadlineExceededError(absl::StrCat(where, ": no answer"));
    }
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Failed(where, error);
  }
  // A port that nobody listens on may be the very one that the kernel gave to this end.
  if (ToText(LocalEnd(socket)) == where) {
    return absl::UnavailableError(absl::StrCat(where, ": nobody listens there"));
  }
  SendWithoutDelay(socket.fd());
  return socket;
}

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

void Socket::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

std::string ToText(const Endpoint& endpoint) {
  if (absl::StrContains(endpoint.host, ':')) {
    return absl::StrCat("[", endpoint.host, "]:", endpoint.port);
  }
  return absl::StrCat(endpoint.host, ":", endpoint.port);
}

absl::StatusOr<Socket> Listen(uint16_t port) {
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_any;
  six.sin6_port = htons(port);
  absl::StatusOr<Socket> both = ListenOn(reinterpret_cast<sockaddr*>(&six), sizeof six, port);
  if (both.ok() || absl::IsAlreadyExists(both.status())) return both;
  // A kernel without IPv6.
  sockaddr_in four = {};
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(INADDR_ANY);
  four.sin_port = htons(port);
  return ListenOn(reinterpret_cast<sockaddr*>(&four), sizeof four, port);
}

absl::StatusOr<std::optional<Socket>> Accept(const Socket& listener) {
  Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.open()) {
    SendWithoutDelay(socket.fd());
    return socket;
  }
  // A connection that was given up before it was accepted is no error of the listener.
  if (WouldBlock(errno) || errno == ECONNABORTED) return std::nullopt;
  return Failed("accept", errno);
}

absl::StatusOr<std::vector<SocketAddress>> Resolve(const Endpoint& endpoint) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("the name ", endpoint.host, " is not known: ", gai_strerror(error)));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
    addresses.push_back(address);
  }
  freeaddrinfo(found);
  return addresses;
}

absl::StatusOr<Socket> Connect(const std::vector<SocketAddress>& addresses, Deadline deadline) {
  absl::Status last = absl::UnavailableError("no address to connect to");
  for (size_t i = 0; i < addresses.size(); ++i) {
    // An address that swallows everything leaves time for those after it.
    const absl::Duration share = TimeLeft(deadline) / static_cast<int64_t>(addresses.size() - i);
    absl::StatusOr<Socket> socket = ConnectOne(addresses[i], DeadlineAfter(share));
    if (socket.ok()) return socket;
    last = socket.status();
  }
  return last;
}

Endpoint LocalEnd(const Socket& socket) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof storage;
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return ToEndpoint(storage, length);
}

Endpoint RemoteEnd(const Socket& socket) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof storage;
  if (getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return ToEndpoint(storage, length);
}

bool IsLoopback(absl::string_view host) {
  return host == "::1" || (absl::StartsWith(host, "127.") && !absl::StrContains(host, ':'));
}

bool WaitFor(const Socket& socket, int16_t events, Deadline deadline) {
  pollfd wait = {.fd = socket.fd(), .events = events, .revents = 0};
  while (true) {
    const int64_t left = absl::ToInt64Milliseconds(TimeLeft(deadline) + absl::Microseconds(999));
    const int ready = poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready > 0) return true;
    if (TimeLeft(deadline) == absl::ZeroDuration()) return false;
  }
}

absl::StatusOr<size_t> SendSome(const Socket& socket, std::span<const std::byte> bytes) {
  const ssize_t sent = send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (WouldBlock(errno)) return 0;
  return Failed("sending", errno);
}

absl::StatusOr<size_t> ReceiveSome(const Socket& socket, std::span<std::byte> bytes) {
  const ssize_t received = recv(socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (received > 0) return static_cast<size_t>(received);
  if (received == 0) return absl::UnavailableError("the other end closed the connection");
  if (WouldBlock(errno)) return 0;
  return Failed("receiving", errno);
}

absl::Status SendAll(const Socket& socket, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const absl::StatusOr<size_t> sent = SendSome(socket, bytes);
    if (!sent.ok()) return sent.status();
    bytes = bytes.subspan(*sent);
    if (*sent == 0 && !WaitFor(socket, POLLOUT, deadline)) {
      return absl::DeadlineExceededError("sending: the other end doesn't read");
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::worker
