#include "http/server.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "http/asio_await.h"
#include "http/connection.h"
#include "http/listen_address.h"

namespace muster::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

using Ticks = std::chrono::steady_clock::duration;

constexpr int kBacklog = 4096;
constexpr auto kBeat = std::chrono::seconds(1);
// After a failed accept: most likely no file descriptors are left.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

absl::StatusOr<std::shared_ptr<asio::ssl::context>> MakeTls(const Certificate& certificate,
                                                            bool client_certificates) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  ErrorCode error;
  context->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1 |
                           asio::ssl::context::default_workarounds,
                       error);
  if (!error) context->use_certificate_chain(asio::buffer(certificate.chain), error);
  if (error) {
    return absl::InvalidArgumentError("TLS certificate chain: " + error.message());
  }
  context->use_private_key(asio::buffer(certificate.key), asio::ssl::context::pem, error);
  if (error) return absl::InvalidArgumentError("TLS private key: " + error.message());
  if (client_certificates) {
    SSL_CTX* const tls = context->native_handle();
    SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, [](int, X509_STORE_CTX*) { return 1; });
    // One that goes on with an earlier session shows no certificate.
    SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(tls, SSL_OP_NO_TICKET);
  }
  return context;
}

}  // namespace

class Server::Impl {
 public:
  Impl(ServerOptions options, std::vector<Route> routes)
      : core_(std::make_shared<ServerCore>(std::move(options), std::move(routes))),
        accepting_(asio::make_strand(core_->context)),
        acceptor_(core_->context),
        pulse_(core_->context),
        room_(core_->context, asio::steady_timer::time_point::max()),
        work_(asio::make_work_guard(core_->context)) {}

  ~Impl() { Stop(absl::ZeroDuration()); }

  absl::Status Start() {
    if (core_->options.certificate) {
      if (absl::Status status = SetCertificate(*core_->options.certificate); !status.ok()) {
        return status;
      }
    }
    if (absl::Status status = Listen(); !status.ok()) return status;
    if (core_->options.when_full == ServerOptions::WhenFull::kLetWait) {
      core_->on_room = [this] { core_->Post(accepting_, [this] { room_.cancel(); }); };
    }
    asio::co_spawn(accepting_, Accept(), [](std::exception_ptr error) {
      if (error) std::rethrow_exception(error);
    });
    asio::co_spawn(accepting_, Beat(), [](std::exception_ptr error) {
      if (error) std::rethrow_exception(error);
    });
    for (int i = 0; i < core_->options.threads; ++i) {
      threads_.emplace_back([core = core_] {
        pthread_setname_np(pthread_self(), "http");
        // Only of this thread: Linux has it so, whatever POSIX says. A larger one is never refused.
        setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), core->options.niceness);
        core->context.run();
      });
    }
    return absl::OkStatus();
  }

  uint16_t port() const { return port_; }

  ConnectionCounts counts() const {
    std::lock_guard lock(core_->mutex);
    return {.open = core_->connections.size(),
            .turned_away = core_->turned_away,
            .ended_idle = core_->ended_idle,
            .ended_slow = core_->ended_slow};
  }

  absl::Duration silent_for() const {
    const Ticks silent(Connection::Now() - beat_);
    return std::max(absl::ZeroDuration(), absl::FromChrono(silent - kBeat));
  }

  absl::Status SetCertificate(const Certificate& certificate) {
    absl::StatusOr<std::shared_ptr<asio::ssl::context>> tls =
        MakeTls(certificate, core_->options.client_certificates);
    if (!tls.ok()) return tls.status();
    std::lock_guard lock(core_->mutex);
    core_->tls = *std::move(tls);
    return absl::OkStatus();
  }

  void Stop(absl::Duration grace) {
    if (threads_.empty()) return;
    core_->stopping = true;
    // Nobody is admitted after this, so that every connection there is gets closed below.
    std::promise<void> closed;
    asio::post(accepting_, [this, &closed] {
      ErrorCode ignored;
      acceptor_.close(ignored);
      room_.cancel();
      pulse_.cancel();
      closed.set_value();
    });
    closed.get_future().wait();
    ForEachConnection([](Connection& connection) { connection.Drain(); });
    AwaitNoConnections(grace);
    ForEachConnection([](Connection& connection) { connection.Close(); });
    {
      std::unique_lock lock(core_->ended_mutex);
      core_->ended = true;
    }
    work_.reset();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  absl::Status Listen() {
    absl::StatusOr<ListenAddress> address = ParseListenAddress(core_->options.listen);
    if (!address.ok()) return address.status();
    ErrorCode error;
    const tcp::endpoint endpoint(asio::ip::make_address(address->host, error), address->port);
    if (error) {
      return absl::InvalidArgumentError(
          fmt::format("{}: not an IP address to listen at", core_->options.listen));
    }
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(kBacklog, error);
    if (error) {
      return absl::UnavailableError(
          fmt::format("listen at {}: {}", core_->options.listen, error.message()));
    }
    port_ = acceptor_.local_endpoint().port();
    return absl::OkStatus();
  }

  asio::awaitable<void> Accept() {
    asio::steady_timer pause(core_->context);
    while (acceptor_.is_open()) {
      if (MustWait()) {
        co_await room_.async_wait(kAwait);
        continue;
      }
      auto [error, socket] = co_await acceptor_.async_accept(kAwait);
      // What was accepted before the acceptor was closed, but comes here after it, is let go.
      if (core_->stopping || error == asio::error::operation_aborted) co_return;
      if (error) {
        pause.expires_after(kAcceptPause);
        co_await pause.async_wait(kAwait);
        continue;
      }
      Admit(std::move(socket));
    }
  }

  asio::awaitable<void> Beat() {
    while (!core_->stopping) {
      beat_ = Connection::Now();
      pulse_.expires_after(kBeat);
      co_await pulse_.async_wait(kAwait);
    }
  }

  bool MustWait() const {
    return core_->options.when_full == ServerOptions::WhenFull::kLetWait &&
           counts().open >= core_->options.max_connections;
  }

  // Only one connection is admitted at a time.
  void Admit(tcp::socket socket) {
    std::shared_ptr<asio::ssl::context> tls;
    {
      std::lock_guard lock(core_->mutex);
      tls = core_->tls;
    }
    std::shared_ptr<Connection> connection =
        MakeConnection(core_, std::move(socket), std::move(tls));
    if (!connection) return;
    std::shared_ptr<Connection> ended;
    {
      std::lock_guard lock(core_->mutex);
      const auto peer = core_->peers.find(connection->peer);
      const bool peer_is_full =
          peer != core_->peers.end() &&
          peer->second.connections.size() >= core_->options.max_connections_per_peer;
      if (peer_is_full || core_->connections.size() >= core_->options.max_connections) {
        ended = MakeRoom(peer_is_full ? &peer->second : nullptr);
        if (!ended) {
          ++core_->turned_away;
          return;  // closes the socket
        }
        ++core_->ended_idle;
      }
      core_->Add(connection);
    }
    if (ended) {
      core_->Remove(ended.get());  // its place is taken, though it has yet to close
      ended->Close();
    }
    connection->Start();
    if (core_->stopping) connection->Drain();
  }

  // With the lock. What is ended takes no request any more; null if none may be.
  std::shared_ptr<Connection> MakeRoom(Peer* peer) {
    if (core_->options.when_full != ServerOptions::WhenFull::kEndOldestIdle) return nullptr;
    Connection* idle = core_->LongestIdle(peer);
    if (idle == nullptr || !idle->EndIfIdle()) return nullptr;
    return core_->connections.at(idle).lock();
  }

  template <typename Function>
  void ForEachConnection(Function function) {
    std::vector<std::shared_ptr<Connection>> alive;
    {
      std::lock_guard lock(core_->mutex);
      for (auto& [pointer, weak] : core_->connections) {
        if (auto connection = weak.lock()) alive.push_back(std::move(connection));
      }
    }
    for (const std::shared_ptr<Connection>& connection : alive) function(*connection);
  }

  void AwaitNoConnections(absl::Duration limit) {
    std::unique_lock lock(core_->mutex);
    core_->no_connections.wait_for(lock, absl::ToChronoNanoseconds(limit),
                                   [this] { return core_->connections.empty(); });
  }

  const std::shared_ptr<ServerCore> core_;
  // While the io threads run the acceptor is used on the strand alone; its sockets aren't.
  asio::strand<asio::io_context::executor_type> accepting_;
  tcp::acceptor acceptor_;
  asio::steady_timer pulse_;  // on the strand too
  std::atomic<int64_t> beat_ = Connection::Now();
  // On the strand too. Cancelled whenever there may be room for a connection again.
  asio::steady_timer room_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::vector<std::thread> threads_;
  uint16_t port_ = 0;
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options,
                                                      std::vector<Route> routes) {
  auto impl = std::make_shared<Impl>(std::move(options), std::move(routes));
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
uint16_t Server::port() const { return impl_->port(); }
absl::Duration Server::silent_for() const { return impl_->silent_for(); }
Server::ConnectionCounts Server::connection_counts() const { return impl_->counts(); }
absl::Status Server::SetCertificate(const Certificate& certificate) {
  return impl_->SetCertificate(certificate);
}
void Server::Stop(absl::Duration grace) { impl_->Stop(grace); }

}  // namespace muster::http
