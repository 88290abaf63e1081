#include "kube/embedded/http_front.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "kube/embedded/http_connection.h"
#include "kube/embedded/https_webhook_caller.h"
#include "kube/embedded/self_signed.h"

namespace muster::kube::embedded {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// Accepting is tried again this long after it failed, for want of descriptors for example.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

}  // namespace

class HttpFront::Impl {
 public:
  Impl(ApiServer* server, HttpFrontOptions options)
      : webhook_pool_(static_cast<size_t>(options.webhook_threads)),
        io_(options.io_threads),
        acceptor_(asio::make_strand(io_)),
        pause_(acceptor_.get_executor()),
        webhook_caller_(std::make_shared<HttpsWebhookCaller>()) {
    context_.server = server;
    context_.options = std::move(options);
    context_.webhook_pool = &webhook_pool_;
  }

  ~Impl() {
    // From here on connections that go don't ask for the next one to be accepted.
    stopping_ = true;
    if (!threads_.empty()) context_.server->SetWebhookCaller(nullptr);
    webhook_caller_->Stop();
    asio::post(acceptor_.get_executor(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
      pause_.cancel();
    });
    {
      std::lock_guard lock(mutex_);
      for (const auto& weak : connections_) {
        if (auto connection = weak.lock()) connection->Close();
      }
    }
    webhook_pool_.join();
    io_.stop();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Listen() {
    const HttpFrontOptions& options = context_.options;
    error_code error;
    asio::ip::address address = asio::ip::make_address(options.address, error);
    if (error || !address.is_loopback()) {
      return absl::InvalidArgumentError("address must be a loopback address, got \"" +
                                        options.address + "\"");
    }
    if (options.tls) {
      absl::Status status = MakeTls();
      if (!status.ok()) return status;
    }
    tcp::endpoint endpoint(address, options.port);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return absl::UnavailableError(
          fmt::format("can't listen on {}:{}: {}", options.address, options.port, error.message()));
    }
    endpoint_ = acceptor_.local_endpoint();
    context_.server->SetWebhookCaller(webhook_caller_);
    asio::post(acceptor_.get_executor(), [this] { Accept(); });
    for (int i = 0; i < options.io_threads; ++i) {
      threads_.emplace_back([this] { io_.run(); });
    }
    return absl::OkStatus();
  }

  uint16_t port() const { return endpoint_.port(); }
  const std::string& ca_pem() const { return certificate_.ca_pem; }
  size_t open_connections() const { return open_; }

  std::string url() const {
    bool v6 = endpoint_.address().is_v6();
    return fmt::format("{}://{}{}{}:{}", context_.options.tls ? "https" : "http", v6 ? "[" : "",
                       endpoint_.address().to_string(), v6 ? "]" : "", port());
  }

 private:
  absl::Status MakeTls() {
    absl::StatusOr<ServerCertificate> made = MakeServerCertificate(
        {context_.options.address}, {"localhost"}, absl::Now() - absl::Hours(1), absl::Hours(8760));
    if (!made.ok()) return made.status();
    certificate_ = *std::move(made);
    tls_ = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
    SSL_CTX_set_min_proto_version(tls_->native_handle(), TLS1_2_VERSION);
    error_code error;
    tls_->use_certificate_chain(asio::buffer(certificate_.certificate_pem), error);
    if (!error) {
      tls_->use_private_key(asio::buffer(certificate_.key_pem), asio::ssl::context::pem, error);
    }
    if (error) return absl::InternalError("TLS: " + error.message());
    return absl::OkStatus();
  }

  // On the acceptor's strand, as all of the next three.
  void Accept() {
    if (stopping_ || accepting_ || open_ >= context_.options.max_connections) return;
    accepting_ = true;
    acceptor_.async_accept(asio::make_strand(io_), [this](error_code error, tcp::socket socket) {
      accepting_ = false;
      if (stopping_) return;
      if (error) return AcceptLater();
      Start(std::move(socket));
      Accept();
    });
  }

  void AcceptLater() {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([this](error_code error) {
      if (!error) Accept();
    });
  }

  void Start(tcp::socket socket) {
    ++open_;
    auto connection = MakeHttpConnection(&context_, std::move(socket), tls_.get(), [this] {
      --open_;
      if (!stopping_) asio::post(acceptor_.get_executor(), [this] { Accept(); });
    });
    {
      std::lock_guard lock(mutex_);
      std::erase_if(connections_, [](const auto& weak) { return weak.expired(); });
      connections_.push_back(connection);
    }
    connection->Run();
  }

  // Outlives the io context, in whose queue connections may still be held.
  FrontContext context_;
  std::unique_ptr<asio::ssl::context> tls_;
  ServerCertificate certificate_;
  std::atomic<size_t> open_ = 0;
  std::atomic<bool> stopping_ = false;
  asio::thread_pool webhook_pool_;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  tcp::endpoint endpoint_;
  bool accepting_ = false;
  const std::shared_ptr<HttpsWebhookCaller> webhook_caller_;
  std::mutex mutex_;
  std::list<std::weak_ptr<HttpConnection>> connections_;
  std::vector<std::thread> threads_;
};

absl::StatusOr<std::unique_ptr<HttpFront>> HttpFront::Start(ApiServer* server,
                                                            HttpFrontOptions options) {
  auto impl = std::make_unique<Impl>(server, std::move(options));
  absl::Status status = impl->Listen();
  if (!status.ok()) return status;
  return std::unique_ptr<HttpFront>(new HttpFront(std::move(impl)));
}

HttpFront::HttpFront(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpFront::~HttpFront() = default;

uint16_t HttpFront::port() const { return impl_->port(); }

std::string HttpFront::url() const { return impl_->url(); }

const std::string& HttpFront::ca_pem() const { return impl_->ca_pem(); }

size_t HttpFront::open_connections() const { return impl_->open_connections(); }

// The server asks for no credentials, but kubectl asks its user for some over https if it has none.
std::string HttpFront::Kubeconfig() const {
  std::string authority;
  if (!ca_pem().empty()) {
    absl::Base64Escape(ca_pem(), &authority);
    authority = "\n    certificate-authority-data: " + authority;
  }
  return fmt::format(
      "apiVersion: v1\n"
      "kind: Config\n"
      "current-context: embedded\n"
      "clusters:\n"
      "- name: embedded\n"
      "  cluster:\n"
      "    server: {}{}\n"
      "users:\n"
      "- name: admin\n"
      "  user:\n"
      "    token: anyone\n"
      "contexts:\n"
      "- name: embedded\n"
      "  context:\n"
      "    cluster: embedded\n"
      "    user: admin\n",
      url(), authority);
}

}  // namespace muster::kube::embedded
