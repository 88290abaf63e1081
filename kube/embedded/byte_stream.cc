#include "kube/embedded/byte_stream.h"

#include <openssl/ssl.h>

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <type_traits>
#include <utility>

namespace muster::kube::embedded {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using PlainStream = beast::tcp_stream;
using TlsStream = asio::ssl::stream<PlainStream>;

template <typename Stream>
class StreamOf final : public ByteStream {
 public:
  template <typename... Tls>
  explicit StreamOf(tcp::socket socket, Tls&... tls) : stream_(std::move(socket), tls...) {}

  Stream& stream() { return stream_; }

  tcp::socket& Socket() override { return Lowest().socket(); }

  void Handshake(asio::ssl::stream_base::handshake_type role, Done done) override {
    if constexpr (kTls) {
      stream_.async_handshake(role, std::move(done));
    } else {
      Post(std::move(done));
    }
  }

  void Shutdown(Done done) override {
    if constexpr (kTls) {
      stream_.async_shutdown(std::move(done));
    } else {
      Post(std::move(done));
    }
  }

  void Read(asio::mutable_buffer into, Transferred done) override {
    stream_.async_read_some(into, std::move(done));
  }

  void Write(asio::const_buffer from, Transferred done) override {
    asio::async_write(stream_, from, std::move(done));
  }

  void ExpireAfter(absl::Duration duration) override {
    if (duration == absl::InfiniteDuration()) return Lowest().expires_never();
    Lowest().expires_after(absl::ToChronoMilliseconds(duration));
  }

 private:
  static constexpr bool kTls = std::is_same_v<Stream, TlsStream>;

  PlainStream& Lowest() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }

  void Post(Done done) {
    asio::post(Lowest().get_executor(), [done = std::move(done)] { done(error_code()); });
  }

  Stream stream_;
};

}  // namespace

std::unique_ptr<ByteStream> MakeByteStream(tcp::socket socket) {
  return std::make_unique<StreamOf<PlainStream>>(std::move(socket));
}

std::unique_ptr<ByteStream> MakeTlsStream(tcp::socket socket, asio::ssl::context& tls,
                                          const std::string& host) {
  auto made = std::make_unique<StreamOf<TlsStream>>(std::move(socket), tls);
  if (!host.empty()) {
    SSL_set_tlsext_host_name(made->stream().native_handle(), host.c_str());
    made->stream().set_verify_callback(asio::ssl::host_name_verification(host));
  }
  return made;
}

}  // namespace muster::kube::embedded
