#include "kube/embedded/https_webhook_caller.h"

#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "kube/embedded/byte_stream.h"
#include "kube/embedded/http_parsing.h"

namespace muster::kube::embedded {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr size_t kMaxAnswerBytes = 8 << 20;
constexpr auto kSlice = std::chrono::milliseconds(100);

struct Target {
  std::string host;
  std::string port = "443";
  std::string path = "/";
};

// https://HOST[:PORT][/PATH]
std::optional<Target> ParseUrl(const std::string& url) {
  constexpr std::string_view kScheme = "https://";
  if (!url.starts_with(kScheme)) return std::nullopt;
  std::string rest = url.substr(kScheme.size());
  Target target;
  size_t slash = rest.find('/');
  if (slash != std::string::npos) target.path = rest.substr(slash);
  std::string authority = rest.substr(0, slash);
  size_t bracket = authority.find(']');
  size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  if (colon != std::string::npos) target.port = authority.substr(colon + 1);
  target.host = authority.substr(0, colon);
  if (bracket != std::string::npos && target.host.size() > 2) {
    target.host = target.host.substr(1, target.host.size() - 2);
  }
  if (target.host.empty() || target.port.empty()) return std::nullopt;
  return target;
}

// One call; every step starts the next, the first error ends it.
class Exchange {
 public:
  Exchange(asio::io_context& io, asio::ssl::context& tls, const Target& target,
           const std::string& body)
      : resolver_(io), socket_(io), tls_(tls), target_(target) {
    request_ = fmt::format(
        "POST {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\n"
        "Accept: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        target.path, target.host, target.port, body.size());
    request_ += body;
    parser_.body_limit(kMaxAnswerBytes);
  }

  void Start() {
    resolver_.async_resolve(target_.host, target_.port,
                            [this](error_code error, const tcp::resolver::results_type& results) {
                              if (error) return Fail("resolve", error);
                              asio::async_connect(socket_, results,
                                                  [this](error_code failed, const tcp::endpoint&) {
                                                    if (failed) return Fail("connect", failed);
                                                    Handshake();
                                                  });
                            });
  }

  std::optional<absl::StatusOr<std::string>> result;

 private:
  using Parser = http::response_parser<http::string_body>;

  void Handshake() {
    stream_ = MakeTlsStream(std::move(socket_), tls_, target_.host);
    stream_->Handshake(asio::ssl::stream_base::client, [this](error_code error) {
      if (error) return Fail("TLS handshake", error);
      stream_->Write(asio::buffer(request_), [this](error_code failed, size_t) {
        if (failed) return Fail("write", failed);
        Read();
      });
    });
  }

  void Read() {
    stream_->Read(buffer_.prepare(kReadSize), [this](error_code error, size_t size) {
      buffer_.commit(size);
      OnRead(error);
    });
  }

  void OnRead(error_code unread) {
    error_code error = Parse(buffer_, parser_, &Parser::is_done);
    if (error) return Fail("read", error);
    // An answer without a length ends with its connection.
    if (unread && parser_.got_some() && !parser_.is_done()) parser_.put_eof(error);
    if (parser_.is_done()) return OnAnswer();
    if (unread) return Fail("read", error ? error : unread);
    Read();
  }

  void OnAnswer() {
    http::response<http::string_body> answer = parser_.release();
    if (answer.result_int() != 200) {
      result =
          absl::UnavailableError("the webhook answered " + std::to_string(answer.result_int()));
      return;
    }
    result = std::move(answer.body());
  }

  void Fail(const char* step, error_code error) {
    result = absl::UnavailableError(std::string(step) + " " + target_.host + ":" + target_.port +
                                    ": " + error.message());
  }

  tcp::resolver resolver_;
  tcp::socket socket_;  // until it is connected
  asio::ssl::context& tls_;
  const Target target_;
  std::string request_;
  std::unique_ptr<ByteStream> stream_;
  beast::flat_buffer buffer_;
  Parser parser_;
};

}  // namespace

absl::StatusOr<std::string> HttpsWebhookCaller::Call(const WebhookCall& call) {
  std::optional<Target> target = ParseUrl(call.url);
  if (!target) return absl::InvalidArgumentError("not an https URL: " + call.url);
  asio::ssl::context tls(asio::ssl::context::tls_client);
  tls.set_verify_mode(asio::ssl::verify_peer);
  error_code error;
  if (call.ca_bundle.empty()) {
    tls.set_default_verify_paths(error);
  } else {
    tls.add_certificate_authority(asio::buffer(call.ca_bundle), error);
  }
  if (error) return absl::InvalidArgumentError("caBundle: " + error.message());
  asio::io_context io;
  Exchange exchange(io, tls, *target, call.body);
  exchange.Start();
  const absl::Time deadline = absl::Now() + call.timeout;
  while (!exchange.result) {
    if (stopped_) return absl::CancelledError("the server is stopping");
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError("context deadline exceeded: no answer within " +
                                         absl::FormatDuration(call.timeout));
    }
    io.run_one_for(kSlice);
  }
  return *std::move(exchange.result);
}

}  // namespace muster::kube::embedded
