#include "kube/embedded/https_webhook_caller.h"

#include <openssl/ssl.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/time/clock.h"

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
      : resolver_(io), stream_(io, tls), target_(target) {
    request_.method(http::verb::post);
    request_.version(11);
    request_.target(target.path);
    request_.set(http::field::host, target.host + ":" + target.port);
    request_.set(http::field::content_type, "application/json");
    request_.set(http::field::accept, "application/json");
    request_.keep_alive(false);
    request_.body() = body;
    request_.prepare_payload();
    parser_.body_limit(kMaxAnswerBytes);
  }

  void Start() {
    SSL_set_tlsext_host_name(stream_.native_handle(), target_.host.c_str());
    stream_.set_verify_callback(asio::ssl::host_name_verification(target_.host));
    error_code error;
    asio::ip::address address = asio::ip::make_address(target_.host, error);
    if (!error) {
      uint16_t port = static_cast<uint16_t>(std::atoi(target_.port.c_str()));
      beast::get_lowest_layer(stream_).async_connect(
          tcp::endpoint(address, port), [this](error_code failed) { OnConnect(failed); });
      return;
    }
    resolver_.async_resolve(target_.host, target_.port,
                            [this](error_code failed, const tcp::resolver::results_type& results) {
                              if (failed) return Fail("resolve", failed);
                              beast::get_lowest_layer(stream_).async_connect(
                                  results, [this](error_code unreached, const tcp::endpoint&) {
                                    OnConnect(unreached);
                                  });
                            });
  }

  std::optional<absl::StatusOr<std::string>> result;

 private:
  void OnConnect(error_code error) {
    if (error) return Fail("connect", error);
    stream_.async_handshake(asio::ssl::stream_base::client, [this](error_code failed) {
      if (failed) return Fail("TLS handshake", failed);
      http::async_write(stream_, request_, [this](error_code unsent, size_t) {
        if (unsent) return Fail("write", unsent);
        http::async_read(stream_, buffer_, parser_,
                         [this](error_code unread, size_t) { OnAnswer(unread); });
      });
    });
  }

  void OnAnswer(error_code error) {
    if (error) return Fail("read", error);
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
  beast::ssl_stream<beast::tcp_stream> stream_;
  const Target target_;
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
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
