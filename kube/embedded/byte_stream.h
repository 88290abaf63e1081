// The bytes of one TCP connection, in the clear or by TLS, so that what is said over them is
// written, and compiled, once.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream_base.hpp>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace muster::kube::embedded {

// As much as a read takes at a time.
constexpr size_t kReadSize = 64 << 10;

// All calls, and what they call back, are on the socket's executor. At most one read and one write
// are under way; the stream and the buffers outlive them.
class ByteStream {
 public:
  using Done = std::function<void(boost::system::error_code)>;
  using Transferred = std::function<void(boost::system::error_code, size_t)>;

  virtual ~ByteStream() = default;

  virtual boost::asio::ip::tcp::socket& Socket() = 0;
  // In the clear there is nothing to agree on, and both end at once.
  virtual void Handshake(boost::asio::ssl::stream_base::handshake_type role, Done done) = 0;
  virtual void Shutdown(Done done) = 0;
  // Reads what is there, at least one byte.
  virtual void Read(boost::asio::mutable_buffer into, Transferred done) = 0;
  // Writes all of `from`.
  virtual void Write(boost::asio::const_buffer from, Transferred done) = 0;
  // What begins from now on fails with beast::error::timeout after this time, and closes the
  // socket; absl::InfiniteDuration() sets no limit.
  virtual void ExpireAfter(absl::Duration duration) = 0;
};

std::unique_ptr<ByteStream> MakeByteStream(boost::asio::ip::tcp::socket socket);
// `host`: a client's; the name that the server must have a certificate for. `tls` outlives it.
std::unique_ptr<ByteStream> MakeTlsStream(boost::asio::ip::tcp::socket socket,
                                          boost::asio::ssl::context& tls,
                                          const std::string& host = "");

}  // namespace muster::kube::embedded
