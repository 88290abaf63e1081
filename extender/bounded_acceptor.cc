#include "extender/bounded_acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "fmt/format.h"

namespace muster::extender {
namespace {

using boost::asio::ip::tcp;

constexpr int kBacklog = 4096;
// After a failed accept: most likely no file descriptors are left.
constexpr std::chrono::milliseconds kPause(100);

class File {
 public:
  explicit File(int number = -1) : number_(number) {}
  File(File&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~File() {
    if (number_ >= 0) close(number_);
  }
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

}  // namespace

class BoundedAcceptor::Impl {
 public:
  ~Impl() { Stop(); }

  absl::Status Listen(const http::ListenAddress& address) {
    boost::system::error_code error;
    const auto host = boost::asio::ip::make_address(address.host, error);
    if (error) {
      return absl::InvalidArgumentError(
          fmt::format("{}: not an IP address to listen at", address.host));
    }
    const tcp::endpoint endpoint(host, address.port);
    listening_ = File(socket(endpoint.protocol().family(),
                             SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    const int on = 1;
    tcp::endpoint bound = endpoint;
    socklen_t size = static_cast<socklen_t>(bound.capacity());
    if (listening_.get() < 0 ||
        setsockopt(listening_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(listening_.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 ||
        listen(listening_.get(), kBacklog) != 0 ||
        getsockname(listening_.get(), bound.data(), &size) != 0) {
      return absl::UnavailableError(
          fmt::format("listen at {}:{} for gRPC: {}", address.host, address.port, strerror(errno)));
    }
    port_ = bound.port();
    return absl::OkStatus();
  }

  void Start(size_t max_connections, std::function<void(int)> take) {
    max_connections_ = std::max<size_t>(max_connections, 1);
    take_ = std::move(take);
    events_ = File(epoll_create1(EPOLL_CLOEXEC));
    stop_ = File(eventfd(0, EFD_CLOEXEC));
    Await(listening_.get(), EPOLLIN, kListening);
    Await(stop_.get(), EPOLLIN, kStop);
    thread_ = std::thread([this] { Run(); });
  }

  void Stop() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(stop_.get(), &one, sizeof(one));
    thread_.join();
    listening_ = File();
  }

  uint16_t port() const { return port_; }

  http::Server::ConnectionCounts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  // A second descriptor of what was handed on, which tells of its end and can bring it about.
  struct Connection {
    File file;
    boost::asio::ip::address peer;
  };

  // What events tell by: connections have numbers, which no other ever had.
  static constexpr uint64_t kListening = UINT64_MAX;
  static constexpr uint64_t kStop = UINT64_MAX - 1;

  void Await(int file, uint32_t what, uint64_t number) {
    epoll_event event{};
    event.events = what;
    event.data.u64 = number;
    epoll_ctl(events_.get(), EPOLL_CTL_ADD, file, &event);
  }

  void Run() {
    std::array<epoll_event, 64> ready;
    for (;;) {
      const int count = epoll_wait(events_.get(), ready.data(), ready.size(), -1);
      for (int i = 0; i < count; ++i) {
        const uint64_t number = ready[static_cast<size_t>(i)].data.u64;
        if (number == kStop) return;
        if (number == kListening) {
          Accept();
        } else {
          End(number);
        }
      }
    }
  }

  void Accept() {
    tcp::endpoint peer;
    socklen_t size = static_cast<socklen_t>(peer.capacity());
    File accepted(accept4(listening_.get(), peer.data(), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    File watched(accepted.get() < 0 ? -1 : fcntl(accepted.get(), F_DUPFD_CLOEXEC, 0));
    if (watched.get() < 0) {
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(kPause);
      return;
    }
    const int on = 1;
    setsockopt(accepted.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    uint64_t ended = 0;
    for (; connections_.size() >= max_connections_; ++ended) EndOldestOfTheLargest();
    const uint64_t number = ++accepted_;
    Await(watched.get(), EPOLLRDHUP, number);
    connections_.emplace(number, Connection{std::move(watched), peer.address()});
    ++of_peer_[peer.address()];
    Count(ended);
    take_(accepted.release());
  }

  void EndOldestOfTheLargest() {
    const auto largest = std::max_element(
        of_peer_.begin(), of_peer_.end(),
        [](const auto& one, const auto& other) { return one.second < other.second; });
    const auto oldest = std::find_if(
        connections_.begin(), connections_.end(),
        [&](const auto& connection) { return connection.second.peer == largest->first; });
    shutdown(oldest->second.file.get(), SHUT_RDWR);
    Drop(oldest);
  }

  // It has ended, or its peer has.
  void End(uint64_t number) {
    const auto connection = connections_.find(number);
    if (connection == connections_.end()) return;
    Drop(connection);
    Count(0);
  }

  void Drop(std::map<uint64_t, Connection>::iterator connection) {
    const auto of = of_peer_.find(connection->second.peer);
    if (--of->second == 0) of_peer_.erase(of);
    // Closed alone it would stay in the set as long as the other descriptor is open.
    epoll_ctl(events_.get(), EPOLL_CTL_DEL, connection->second.file.get(), nullptr);
    connections_.erase(connection);
  }

  void Count(uint64_t ended) {
    const std::lock_guard lock(mutex_);
    counts_.open = connections_.size();
    counts_.ended_idle += ended;
  }

  File listening_, events_, stop_;
  uint16_t port_ = 0;
  size_t max_connections_ = 0;
  std::function<void(int)> take_;
  // The thread's alone.
  std::map<uint64_t, Connection> connections_;  // in the order in which they came
  std::map<boost::asio::ip::address, size_t> of_peer_;
  uint64_t accepted_ = 0;
  mutable std::mutex mutex_;
  http::Server::ConnectionCounts counts_;  // guarded by it
  std::thread thread_;
};

BoundedAcceptor::BoundedAcceptor() : impl_(std::make_unique<Impl>()) {}
BoundedAcceptor::~BoundedAcceptor() = default;
absl::Status BoundedAcceptor::Listen(const http::ListenAddress& address) {
  return impl_->Listen(address);
}
void BoundedAcceptor::Start(size_t max_connections, std::function<void(int)> take) {
  impl_->Start(max_connections, std::move(take));
}
void BoundedAcceptor::Stop() { impl_->Stop(); }
uint16_t BoundedAcceptor::port() const { return impl_->port(); }
http::Server::ConnectionCounts BoundedAcceptor::counts() const { return impl_->counts(); }

}  // namespace muster::extender
