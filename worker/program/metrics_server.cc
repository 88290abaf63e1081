#include "worker/program/metrics_server.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <span>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "worker/communicator/tcp_socket.h"

namespace muster::worker {
namespace {

// A scraper sends its request at once; whoever doesn't may not keep others waiting.
constexpr absl::Duration kPatience = absl::Seconds(1);
constexpr size_t kMostRequest = 8192;

std::string Response(std::string_view status, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      status, body.size(), body);
}

// The request's head, or what came of it in time.
std::string ReadRequest(const Socket& socket, Deadline deadline) {
  std::string request;
  std::array<std::byte, 1024> buffer;
  while (request.find("\r\n\r\n") == std::string::npos && request.size() < kMostRequest &&
         WaitFor(socket, POLLIN, deadline)) {
    const absl::StatusOr<size_t> size = ReceiveSome(socket, buffer);
    if (!size.ok()) break;
    request.append(reinterpret_cast<const char*>(buffer.data()), *size);
  }
  return request;
}

}  // namespace

struct MetricsServer::State {
  Socket listener;
  Socket stop;
  std::function<std::string()> text;
  std::thread thread;

  void Serve() {
    while (true) {
      std::array<pollfd, 2> waits = {{{.fd = stop.fd(), .events = POLLIN, .revents = 0},
                                      {.fd = listener.fd(), .events = POLLIN, .revents = 0}}};
      poll(waits.data(), waits.size(), -1);
      if (waits[0].revents != 0) return;
      absl::StatusOr<std::optional<Socket>> socket = Accept(listener);
      if (!socket.ok()) return;
      if (socket->has_value()) Answer(**socket);
    }
  }

  void Answer(const Socket& socket) const {
    const Deadline deadline = DeadlineAfter(kPatience);
    const std::string request = ReadRequest(socket, deadline);
    const bool found = request.starts_with("GET /metrics ") || request.starts_with("GET /metrics?");
    const std::string response =
        found ? Response("200 OK", text()) : Response("404 Not Found", "see /metrics\n");
    SendAll(socket, std::as_bytes(std::span(response)), deadline).IgnoreError();
  }
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    uint16_t port, std::function<std::string()> text) {
  auto state = std::make_unique<State>();
  absl::StatusOr<Socket> listener = Listen(port);
  if (!listener.ok()) return listener.status();
  state->listener = *std::move(listener);
  state->stop = Socket(eventfd(0, EFD_CLOEXEC));
  state->text = std::move(text);
  state->thread = std::thread([state = state.get()] { state->Serve(); });
  // Not make_unique: the constructor is private.
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(state)));
}

MetricsServer::MetricsServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

MetricsServer::~MetricsServer() {
  eventfd_write(state_->stop.fd(), 1);
  state_->thread.join();
}

uint16_t MetricsServer::port() const { return LocalEnd(state_->listener).port; }

}  // namespace muster::worker
