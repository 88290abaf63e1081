#include "kube/embedded/https_webhook_caller.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "http/asio_await.h"

namespace muster::kube::embedded {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr size_t kMaxAnswerBytes = 8 << 20;
constexpr size_t kReadBytes = 64 << 10;
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

// One call on a connection of its own. Destroying its io context ends it wherever it stands.
class Exchange {
 public:
  Exchange(asio::io_context& io, asio::ssl::context& tls, const Target& target,
           const std::string& body)
      : target_(target), resolver_(io), stream_(io, tls) {
    request_ = fmt::format(
        "POST {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\n"
        "Accept: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        target.path, target.host, target.port, body.size());
    request_ += body;
    parser_.body_limit(kMaxAnswerBytes);
  }

  asio::awaitable<void> Run() { result = co_await Call(); }

  std::optional<absl::StatusOr<std::string>> result;

 private:
  using Parser = beast::http::response_parser<beast::http::string_body>;

  asio::awaitable<absl::StatusOr<std::string>> Call() {
    SSL_set_tlsext_host_name(stream_.native_handle(), target_.host.c_str());
    stream_.set_verify_callback(asio::ssl::host_name_verification(target_.host));
    auto [unresolved, addresses] =
        co_await resolver_.async_resolve(target_.host, target_.port, http::kAwait);
    if (unresolved) co_return Failure("resolve", unresolved);
    auto [unconnected, endpoint] =
        co_await asio::async_connect(stream_.next_layer(), addresses, http::kAwait);
    if (unconnected) co_return Failure("connect", unconnected);
    auto [untrusted] =
        co_await stream_.async_handshake(asio::ssl::stream_base::client, http::kAwait);
    if (untrusted) co_return Failure("TLS handshake", untrusted);
    auto [unwritten, size] =
        co_await asio::async_write(stream_, asio::buffer(request_), http::kAwait);
    if (unwritten) co_return Failure("write", unwritten);
    error_code unread;
    while (!parser_.is_done()) {
      error_code error = Parse();
      if (error) co_return Failure("read", error);
      if (parser_.is_done()) break;
      if (unread) {
        // An answer without a length ends with its connection.
        if (parser_.got_some()) parser_.put_eof(error);
        if (parser_.is_done()) break;
        co_return Failure("read", error ? error : unread);
      }
      size_t count = 0;
      std::tie(unread, count) =
          co_await stream_.async_read_some(buffer_.prepare(kReadBytes), http::kAwait);
      buffer_.commit(count);
    }
    beast::http::response<beast::http::string_body> answer = parser_.release();
    if (answer.result_int() != 200) {
      co_return absl::UnavailableError(fmt::format("the webhook answered {}", answer.result_int()));
    }
    co_return std::move(answer.body());
  }

  // Takes what has been read.
  error_code Parse() {
    while (buffer_.size() > 0 && !parser_.is_done()) {
      error_code error;
      const size_t used = parser_.put(buffer_.data(), error);
      buffer_.consume(used);
      if (error && error != beast::http::error::need_more) return error;
      if (used == 0) break;
    }
    return {};
  }

  absl::Status Failure(const char* step, error_code error) const {
    return absl::UnavailableError(
        fmt::format("{} {}:{}: {}", step, target_.host, target_.port, error.message()));
  }

  const Target target_;
  std::string request_;
  tcp::resolver resolver_;
  asio::ssl::stream<tcp::socket> stream_;
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
  asio::co_spawn(
      io, [&exchange] { return exchange.Run(); },
      [](std::exception_ptr failed) {
        if (failed) std::rethrow_exception(failed);
      });
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
