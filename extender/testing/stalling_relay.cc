#include "extender/testing/stalling_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <map>
#include <stdexcept>
#include <vector>

namespace muster::extender {
namespace {

constexpr int kTickMilliseconds = 10;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// What is there to read goes to the other side; false at the end.
bool Relay(int from, int to) {
  std::array<char, 64 << 10> bytes;
  const ssize_t size = recv(from, bytes.data(), bytes.size(), 0);
  if (size <= 0) return false;
  for (ssize_t done = 0; done < size;) {
    const ssize_t sent = send(to, bytes.data() + done, size - done, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    done += sent;
  }
  return true;
}

}  // namespace

StallingRelay::StallingRelay(uint16_t to) : to_(to) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener_, 128) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("can't listen on loopback");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
}

StallingRelay::~StallingRelay() {
  ended_ = true;
  thread_.join();
  close(listener_);
}

void StallingRelay::Run() {
  std::map<int, int> other;  // each socket's other side
  while (!ended_) {
    if (stalled_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kTickMilliseconds));
      continue;
    }
    std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
    for (const auto& [from, to] : other) polled.push_back({from, POLLIN, 0});
    if (poll(polled.data(), polled.size(), kTickMilliseconds) <= 0) continue;
    for (const pollfd& ready : polled) {
      if (ready.revents == 0) continue;
      if (ready.fd == listener_) {
        const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address = Loopback(to_);
        if (connect(server, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
          other[client] = server;
          other[server] = client;
        } else {
          close(client);
          close(server);
        }
        continue;
      }
      const auto at = other.find(ready.fd);
      if (at == other.end() || Relay(at->first, at->second)) continue;
      const int to = at->second;
      close(ready.fd);
      close(to);
      other.erase(ready.fd);
      other.erase(to);
    }
  }
  for (const auto& [from, to] : other) close(from);
}

}  // namespace muster::extender
