#include "kube/embedded/test_http_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <optional>

namespace muster::kube::embedded {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

}  // namespace

struct TestHttpClient::State {
  asio::io_context io;
  asio::ssl::context tls{asio::ssl::context::tls_client};
  tcp::socket socket{io};
  std::optional<asio::ssl::stream<tcp::socket&>> secure;
  beast::flat_buffer buffer;
  std::optional<http::response_parser<http::buffer_body>> stream;
  std::string pending;

  size_t Write(const std::string& bytes, error_code& error) {
    return secure ? asio::write(*secure, asio::buffer(bytes), error)
                  : asio::write(socket, asio::buffer(bytes), error);
  }
  template <typename Parser>
  void Read(Parser& parser, error_code& error) {
    if (secure) {
      http::read(*secure, buffer, parser, error);
    } else {
      http::read(socket, buffer, parser, error);
    }
  }
};

TestHttpClient::TestHttpClient(uint16_t port, const std::string& ca_pem)
    : state_(std::make_unique<State>()) {
  state_->socket.connect({asio::ip::make_address("127.0.0.1"), port});
  if (ca_pem.empty()) return;
  state_->tls.add_certificate_authority(asio::buffer(ca_pem));
  state_->tls.set_verify_mode(asio::ssl::verify_peer);
  state_->secure.emplace(state_->socket, state_->tls);
  state_->secure->set_verify_callback(asio::ssl::host_name_verification("127.0.0.1"));
  state_->secure->handshake(asio::ssl::stream_base::client);
}

TestHttpClient::~TestHttpClient() = default;

RawAnswer TestHttpClient::Call(const std::string& method, const std::string& target,
                               const std::string& body, const std::string& content_type,
                               const std::string& accept) {
  std::string text = method + " " + target + " HTTP/1.1\r\nHost: localhost\r\nAccept: " + accept;
  if (!body.empty()) text += "\r\nContent-Type: " + content_type;
  text += "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  return SendRaw(text);
}

RawAnswer TestHttpClient::SendRaw(const std::string& bytes) {
  error_code error;
  state_->Write(bytes, error);
  http::response_parser<http::string_body> parser;
  parser.body_limit(256 << 20);
  state_->Read(parser, error);
  RawAnswer answer;
  if (error) return answer;
  const auto& message = parser.get();
  answer.status = static_cast<int>(message.result_int());
  answer.content_type = std::string(message[http::field::content_type]);
  answer.retry_after = std::string(message[http::field::retry_after]);
  answer.warning = std::string(message["Warning"]);
  answer.body = message.body();
  answer.keep_alive = message.keep_alive();
  return answer;
}

int TestHttpClient::OpenStream(const std::string& target) {
  OpenStreamWithoutReading(target);
  error_code error;
  state_->stream.emplace();
  state_->stream->body_limit(boost::none);
  if (state_->secure) {
    http::read_header(*state_->secure, state_->buffer, *state_->stream, error);
  } else {
    http::read_header(state_->socket, state_->buffer, *state_->stream, error);
  }
  return error ? 0 : static_cast<int>(state_->stream->get().result_int());
}

bool TestHttpClient::ReadLine(std::string* line, bool* clean) {
  while (true) {
    size_t end = state_->pending.find('\n');
    if (end != std::string::npos) {
      *line = state_->pending.substr(0, end);
      state_->pending.erase(0, end + 1);
      return true;
    }
    if (state_->stream->is_done()) {
      if (clean != nullptr) *clean = true;
      return false;
    }
    char bytes[4096];
    state_->stream->get().body().data = bytes;
    state_->stream->get().body().size = sizeof(bytes);
    error_code error;
    if (state_->secure) {
      http::read_some(*state_->secure, state_->buffer, *state_->stream, error);
    } else {
      http::read_some(state_->socket, state_->buffer, *state_->stream, error);
    }
    state_->pending.append(bytes, sizeof(bytes) - state_->stream->get().body().size);
    if (error && error != http::error::need_buffer) {
      if (clean != nullptr) *clean = false;
      return false;
    }
  }
}

void TestHttpClient::OpenStreamWithoutReading(const std::string& target) {
  error_code error;
  // The kernel would take megabytes for a client that doesn't read.
  state_->socket.set_option(tcp::socket::receive_buffer_size(64 << 10), error);
  state_->Write("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n", error);
}

bool TestHttpClient::ClosedWithin(absl::Duration duration) {
  pollfd fd = {state_->socket.native_handle(), POLLRDHUP, 0};
  return poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(duration))) > 0;
}

}  // namespace muster::kube::embedded
