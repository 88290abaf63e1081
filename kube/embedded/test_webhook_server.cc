#include "kube/embedded/test_webhook_server.h"

#include <sys/socket.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "kube/embedded/self_signed.h"

namespace muster::kube::embedded {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

}  // namespace

struct TestWebhookServer::State {
  asio::io_context io;
  asio::ssl::context tls{asio::ssl::context::tls_server};
  tcp::acceptor acceptor{io, {asio::ip::make_address("127.0.0.1"), 0}};
  ServerCertificate certificate;
  std::function<std::string(const std::string&)> answer;
  std::atomic<bool> stopping = false;
  std::thread thread;

  void ServeOne(tcp::socket socket) {
    asio::ssl::stream<tcp::socket> stream(std::move(socket), tls);
    error_code error;
    stream.handshake(asio::ssl::stream_base::server, error);
    if (error) return;
    boost::beast::flat_buffer buffer;
    http::request<http::string_body> request;
    http::read(stream, buffer, request, error);
    if (error) return;
    http::response<http::string_body> response(http::status::ok, 11);
    response.body() = answer(request.body());
    response.keep_alive(false);
    response.prepare_payload();
    http::write(stream, response, error);
    stream.shutdown(error);
  }
};

TestWebhookServer::TestWebhookServer(std::function<std::string(const std::string&)> answer)
    : state_(std::make_unique<State>()) {
  state_->answer = std::move(answer);
  state_->certificate =
      *MakeServerCertificate({"127.0.0.1"}, {}, absl::Now() - absl::Hours(1), absl::Hours(24));
  state_->tls.use_certificate_chain(asio::buffer(state_->certificate.certificate_pem));
  state_->tls.use_private_key(asio::buffer(state_->certificate.key_pem), asio::ssl::context::pem);
  state_->thread = std::thread([state = state_.get()] {
    while (!state->stopping) {
      error_code error;
      tcp::socket socket = state->acceptor.accept(error);
      if (!error && !state->stopping) state->ServeOne(std::move(socket));
    }
  });
}

TestWebhookServer::~TestWebhookServer() {
  state_->stopping = true;
  // A connection of our own wakes the thread from accept.
  asio::io_context io;
  tcp::socket knock(io);
  error_code ignored;
  knock.connect(state_->acceptor.local_endpoint(), ignored);
  state_->thread.join();
}

std::string TestWebhookServer::url() const {
  return "https://127.0.0.1:" + std::to_string(state_->acceptor.local_endpoint().port()) +
         "/mutate";
}

const std::string& TestWebhookServer::ca_pem() const { return state_->certificate.ca_pem; }

}  // namespace muster::kube::embedded
