#include "http/connection.h"

#include <fmt/format.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "http/asio_await.h"

namespace muster::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using ErrorCode = boost::system::error_code;
using Strand = asio::strand<asio::io_context::executor_type>;
// beast::tcp_stream with the strand's own type, which spares a type-erased call per operation.
using PlainStream = beast::basic_stream<asio::ip::tcp, Strand>;
// Not beast::ssl_stream: of two buffers it was seen never to send the second.
using TlsStream = asio::ssl::stream<PlainStream>;

// Operations report errors as values. A co_await never stands inside a condition here: g++ 12
// destroys its temporary too early (the awaiting frame is lost).

// A coroutine that throws is a bug: let it end the process rather than lose a connection silently.
void RethrowFromCoroutine(std::exception_ptr error) {
  if (error) std::rethrow_exception(error);
}

// What a client may still send after an answer that didn't wait for all of its request.
constexpr size_t kLingerBytes = 8 << 20;
constexpr absl::Duration kLingerTime = absl::Seconds(2);
constexpr size_t kReadSize = 64 << 10;
// Enough for most headers; what follows goes straight into the body.
constexpr size_t kHeaderReadSize = 8 << 10;
// What a connection keeps while it waits.
constexpr size_t kFirstReadSize = 1 << 10;
// What simdjson may read past a text's end.
constexpr size_t kBodyPadding = 64;

bool IsThisHost(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback();
  }
  return address.is_loopback();
}

template <typename Stream>
class ConnectionOf final : public Connection {
 public:
  ConnectionOf(std::shared_ptr<ServerCore> core, asio::ip::address peer, Stream stream,
               std::shared_ptr<asio::ssl::context> tls)
      : Connection(std::move(peer), beast::get_lowest_layer(stream).socket().native_handle()),
        core_(std::move(core)),
        tls_(std::move(tls)),
        stream_(std::move(stream)),
        strand_(beast::get_lowest_layer(stream_).get_executor()),
        signal_(strand_, asio::steady_timer::time_point::max()),
        buffer_(core_->options.header_limit + 2 * kReadSize) {}

  void Start() override {
    asio::co_spawn(
        strand_, [self = Self()]() -> asio::awaitable<void> { co_await self->Run(); },
        RethrowFromCoroutine);
  }

  void Deliver(Answer answer) override {
    auto shared = std::make_shared<Answer>(std::move(answer));
    core_->Dispatch(strand_, [self = Self(), shared] {
      self->answer_ = std::move(*shared);
      self->signal_.cancel();
    });
  }

  void Run(std::function<void()> function) override {
    core_->Post(strand_, [self = Self(), function = std::move(function)] { function(); });
  }

  void Drain() override {
    core_->Dispatch(strand_, [self = Self()] {
      if (self->phase_ == Phase::kIdle) self->Abort();
      if (self->phase_ == Phase::kStreaming) self->signal_.cancel();
    });
  }

  void Close() override {
    core_->Dispatch(strand_, [self = Self()] { self->Abort(); });
  }

 private:
  enum class Phase { kIdle, kReading, kWaiting, kWriting, kStreaming };
  using Parser = beast::http::request_parser<beast::http::string_body>;
  static constexpr bool kIsPlain = std::is_same_v<Stream, PlainStream>;

  std::shared_ptr<ConnectionOf> Self() {
    return std::static_pointer_cast<ConnectionOf>(shared_from_this());
  }
  PlainStream& Plain() { return beast::get_lowest_layer(stream_); }
  void Expire(absl::Duration after) { Plain().expires_after(absl::ToChronoMilliseconds(after)); }

  void Abort() {
    closed_ = true;
    signal_.cancel();
    Plain().close();
  }

  asio::awaitable<void> Run() {
    bool open = co_await Begin();
    while (open) open = co_await ServeOne();
    if (!closed_) co_await Shutdown();
    core_->Remove(this);
  }

  // The handshake, if there is one.
  asio::awaitable<bool> Begin() {
    if constexpr (!kIsPlain) {
      Expire(core_->options.header_timeout);
      ErrorCode error;
      size_t count = 0;
      if (core_->options.also_in_clear) {
        std::tie(error, count) =
            co_await Plain().async_read_some(buffer_.prepare(kFirstReadSize), kAwait);
        buffer_.commit(count);
        // RFC 8446, 5.1: a TLSPlaintext of type handshake. No method of HTTP begins with it.
        constexpr unsigned char kHandshake = 22;
        in_clear_ =
            !error && *static_cast<const unsigned char*>(buffer_.data().data()) != kHandshake;
      }
      if (!error && !in_clear_) {
        std::tie(error, count) = co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                                                  buffer_.data(), kAwait);
        buffer_.consume(count);
        if (!error && core_->options.client_certificates) ReadClientCertificates();
      }
      if (error) Abort();
      co_return !error;
    }
    co_return true;
  }

  void ReadClientCertificates() {
    if constexpr (!kIsPlain) {
      SSL* const tls = stream_.native_handle();
      auto found = std::make_shared<std::vector<std::string>>();
      const auto add = [&found](X509* certificate) {
        unsigned char* der = nullptr;
        const int size = i2d_X509(certificate, &der);
        if (size > 0) found->emplace_back(reinterpret_cast<const char*>(der), size);
        OPENSSL_free(der);
      };
      // Of a server the chain is without the client's own.
      X509* const own = SSL_get0_peer_certificate(tls);
      if (own == nullptr) return;
      add(own);
      STACK_OF(X509)* const others = SSL_get_peer_cert_chain(tls);
      for (int i = 0; i < sk_X509_num(others); ++i) add(sk_X509_value(others, i));
      client_certificates_ = std::move(found);
    }
  }

  // True if the socket is read and written as it is.
  bool InClear() const { return kIsPlain || in_clear_; }

  // One request and its answer. False: the connection is done.
  asio::awaitable<bool> ServeOne() {
    const bool more = co_await WaitForFirstByte();
    if (!more) co_return false;
    phase_ = Phase::kReading;
    const auto begun = std::chrono::steady_clock::now();
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(core_->options.header_limit));
    parser.body_limit(core_->options.body_limit);
    std::string body;
    const ErrorCode error = co_await ReadRequest(parser, body);
    if (error) {
      co_await RejectUnreadable(error);
      co_return false;
    }
    if (!SetBusy()) co_return false;
    Hold(0);
    const auto ready = std::chrono::steady_clock::now();
    const bool keep_alive = parser.get().keep_alive();
    chunked_ = parser.get().version() >= 11;
    pattern_ = {};
    answer_.reset();
    Handle(parser.get(), std::move(body), absl::FromChrono(ready - begun));
    phase_ = Phase::kWaiting;
    while (!answer_ && !closed_) {
      co_await signal_.async_wait(kAwait);
    }
    if (closed_) co_return false;
    Answer answer = std::move(*answer_);
    answer_.reset();
    if (answer.hang_up) {
      Abort();
      co_return false;
    }
    const bool streams = answer.source != nullptr;
    const int status = answer.response.status;
    bool keep = keep_alive && !core_->stopping && !streams;
    if (streams) {
      co_await WriteStream(std::move(answer));
    } else {
      if (core_->options.observe) {
        core_->options.observe(pattern_, status,
                               absl::FromChrono(std::chrono::steady_clock::now() - ready));
      }
      const bool written = co_await Write(std::move(answer.response), keep);
      keep = keep && written;
    }
    co_return keep;
  }

  asio::awaitable<bool> WaitForFirstByte() {
    if (buffer_.size() > 0) co_return SetReading();  // a pipelined request, or some of it
    phase_ = Phase::kIdle;
    if (core_->stopping) co_return false;
    Expire(core_->options.idle_timeout);
    if (!SetIdle()) co_return false;
    buffer_.shrink_to_fit();
    size_t count = 0;
    const ErrorCode error = co_await AwaitSome(buffer_.prepare(kFirstReadSize), count);
    if (error || !SetReading()) co_return false;
    buffer_.commit(count);
    co_return true;
  }

  asio::awaitable<ErrorCode> ReadRequest(Parser& parser, std::string& body) {
    Expire(core_->options.header_timeout);
    ErrorCode error = co_await ReadUntil(parser, &Parser::is_header_done);
    if (error) co_return error;
    if (parser.is_done()) co_return error;
    if (beast::iequals(parser.get()[beast::http::field::expect], "100-continue")) {
      error = co_await WriteAll({"HTTP/1.1 100 Continue\r\n\r\n"});
      if (error) co_return error;
    }
    Expire(core_->options.body_timeout);
    if (!parser.chunked()) {
      const size_t length = parser.content_length().value();  // at most body_limit
      error = co_await ReadBody(length, body);
      co_return error;
    }
    error = co_await ReadUntil(parser, &Parser::is_done);
    body = std::move(parser.get().body());
    co_return error;
  }

  asio::awaitable<ErrorCode> ReadUntil(Parser& parser, bool (Parser::*done)() const) {
    for (;;) {
      size_t count = buffer_.size();
      ErrorCode error;
      while (count > 0 && buffer_.size() > 0 && !(parser.*done)()) {
        count = parser.put(buffer_.data(), error);
        buffer_.consume(count);
        if (error && error != beast::http::error::need_more) co_return error;
      }
      if ((parser.*done)()) co_return ErrorCode();
      error = co_await ReadSome(buffer_.prepare(kHeaderReadSize), count);
      if (error) co_return error;
      buffer_.commit(count);
      // A body that comes in chunks.
      if (parser.is_header_done()) Hold(parser.get().body().capacity());
    }
  }

  // A body whose length is known. Its memory grows with what has come, not with what was announced.
  asio::awaitable<ErrorCode> ReadBody(size_t length, std::string& body) {
    if (length > kReadSize / 4) body = core_->body_buffers.Take();
    size_t have = std::min(length, buffer_.size());
    GrowBody(std::min(length, std::max({have, body.size(), kReadSize})), body);
    std::memcpy(body.data(), buffer_.data().data(), have);
    buffer_.consume(have);
    while (have < length) {
      if (have == body.size()) GrowBody(std::min(length, 2 * have), body);
      size_t count = 0;
      const ErrorCode error =
          co_await ReadSome(asio::buffer(body.data() + have, body.size() - have), count);
      if (error) co_return error;
      have += count;
    }
    co_return ErrorCode();
  }

  void GrowBody(size_t size, std::string& body) {
    Hold(size);
    body.reserve(size + kBodyPadding);
    body.resize(size);
  }

  void Hold(size_t bytes) {
    // Little is worth no lock.
    if (bytes < 4 * kFirstReadSize) bytes = 0;
    if (bytes == holding_ || core_->options.memory_limit == SIZE_MAX) return;
    holding_ = bytes;
    core_->Hold(*this, bytes);
  }

  // Takes what is there, else waits for it: a wait costs two switches of threads.
  asio::awaitable<ErrorCode> ReadSome(asio::mutable_buffer into, size_t& count) {
    if (InClear()) {
      ErrorCode error;
      count = Plain().socket().read_some(into, error);
      if (error != asio::error::would_block) co_return error;
    }
    const ErrorCode error = co_await AwaitSome(into, count);
    co_return error;
  }

  asio::awaitable<ErrorCode> AwaitSome(asio::mutable_buffer into, size_t& count) {
    ErrorCode error;
    if (InClear()) {
      std::tie(error, count) = co_await Plain().async_read_some(into, kAwait);
    } else {
      std::tie(error, count) = co_await stream_.async_read_some(into, kAwait);
    }
    co_return error;
  }

  // The request could not be read to its end: says why if the client still listens.
  asio::awaitable<void> RejectUnreadable(ErrorCode error) {
    if (error == beast::http::error::end_of_stream ||
        error == beast::http::error::partial_message ||
        error.category() != make_error_code(beast::http::error::end_of_stream).category()) {
      Abort();  // the client has gone or was too slow: nobody to tell
      co_return;
    }
    Response response;
    if (error == beast::http::error::body_limit) {
      response = core_->Refuse(413, "request body is larger than the limit of " +
                                        std::to_string(core_->options.body_limit) + " bytes");
    } else if (error == beast::http::error::header_limit ||
               error == beast::http::error::buffer_overflow) {
      response = core_->Refuse(431, "request header is larger than the limit of " +
                                        std::to_string(core_->options.header_limit) + " bytes");
    } else {
      response = core_->Refuse(400, "malformed request: " + error.message());
    }
    if (core_->options.observe) core_->options.observe("", response.status, absl::ZeroDuration());
    const bool written = co_await Write(std::move(response), false);
    if (written) co_await Linger();
  }

  void Handle(const Parser::value_type& message, std::string body, absl::Duration coming);

  asio::awaitable<bool> Write(Response response, bool keep_alive) {
    phase_ = Phase::kWriting;
    std::string head = HeadOf(response);
    fmt::format_to(std::back_inserter(head), "Content-Length: {}\r\n",
                   response.body.size() + response.shared.text.size());
    // What either version doesn't do by itself.
    if (!keep_alive && chunked_) head += "Connection: close\r\n";
    if (keep_alive && !chunked_) head += "Connection: keep-alive\r\n";
    head += "\r\n";
    const ErrorCode error =
        co_await WriteAll({head, response.body, response.shared.text}, response.body.capacity());
    if (error) Abort();
    co_return !error;
  }

  // The first lines of an answer; more headers and an empty line follow.
  std::string HeadOf(const Response& response) const {
    std::string head = fmt::format(
        "HTTP/1.{} {} {}\r\nContent-Type: {}\r\n", chunked_ ? 1 : 0, response.status,
        std::string(
            beast::http::obsolete_reason(static_cast<beast::http::status>(response.status))),
        response.content_type);
    for (const auto& [name, value] : response.headers) {
      fmt::format_to(std::back_inserter(head), "{}: {}\r\n", name, value);
    }
    return head;
  }

  using Parts = absl::InlinedVector<std::string_view, 4>;

  // Sends what the socket takes at once, then waits for the rest: a wait costs two switches of
  // threads. `own` is what of it nobody else keeps, and is kept that long.
  asio::awaitable<ErrorCode> WriteAll(Parts parts, size_t own = 0) {
    if (InClear()) {
      ErrorCode error;
      const size_t sent = Plain().socket().write_some(Buffers(parts), error);
      if (error && error != asio::error::would_block) co_return error;
      if (DropFirst(sent, parts)) co_return ErrorCode();
    }
    Hold(own);
    Expire(core_->options.write_timeout);
    ErrorCode error;
    size_t size = 0;
    if (InClear()) {
      const auto rest = Buffers(parts);
      std::tie(error, size) = co_await asio::async_write(Plain(), rest, kAwait);
    } else {
      // As one: each buffer would make a record, and a packet, of its own.
      std::string all;
      for (const std::string_view part : parts) all += part;
      std::tie(error, size) = co_await asio::async_write(stream_, asio::buffer(all), kAwait);
    }
    Hold(0);
    co_return error;
  }

  static std::vector<asio::const_buffer> Buffers(const Parts& parts) {
    std::vector<asio::const_buffer> buffers;
    buffers.reserve(parts.size());
    for (const std::string_view part : parts) buffers.emplace_back(part.data(), part.size());
    return buffers;
  }

  // Takes what has been sent off the front; whether that was all.
  static bool DropFirst(size_t sent, Parts& parts) {
    size_t whole = 0;
    while (whole < parts.size() && sent >= parts[whole].size()) sent -= parts[whole++].size();
    parts.erase(parts.begin(), parts.begin() + static_cast<Parts::difference_type>(whole));
    if (!parts.empty()) parts.front().remove_prefix(sent);
    return parts.empty();
  }

  asio::awaitable<void> WriteStream(Answer answer) {
    phase_ = Phase::kStreaming;
    std::string head = HeadOf(answer.response);
    head += "Cache-Control: no-store\r\n";
    if (chunked_) head += "Connection: close\r\nTransfer-Encoding: chunked\r\n";
    head += "\r\n";
    const ErrorCode error = co_await WriteAll({head});
    if (error) co_return Abort();
    // Closed meanwhile, a written header is no error.
    if (closed_) co_return;
    buffer_.shrink_to_fit();
    listening_ = true;
    asio::co_spawn(
        strand_, [self = Self()]() -> asio::awaitable<void> { co_await self->AwaitHangup(); },
        RethrowFromCoroutine);
    wake_ = std::make_shared<WakeUp>();
    wake_->connection = std::weak_ptr<ConnectionOf>(Self());
    answer.source->Start([wake = wake_] { wake->Call(); });
    co_await PumpStream(*answer.source);
  }

  asio::awaitable<void> PumpStream(StreamSource& source) {
    while (!closed_) {
      wake_->pending = false;
      const StreamSource::Piece piece = source.Next();
      const bool written = co_await WritePiece(piece);
      if (!written) co_return;
      if (piece.cut) co_return Abort();
      if (piece.end || core_->stopping) {
        co_await WriteLastPiece();
        co_await StopListening();
        co_return;
      }
      if (piece.rest > absl::ZeroDuration()) co_await Rest(piece.rest);
      if (piece.more || wake_->pending || closed_) continue;
      if (piece.look_again < absl::InfiniteDuration()) {
        signal_.expires_after(absl::ToChronoMilliseconds(piece.look_again));
      }
      co_await signal_.async_wait(kAwait);
      signal_.expires_at(asio::steady_timer::time_point::max());
    }
  }

  // Whatever wakes the stream meanwhile, but for its end.
  asio::awaitable<void> Rest(absl::Duration rest) {
    const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(rest);
    while (!closed_ && !core_->stopping && std::chrono::steady_clock::now() < until) {
      signal_.expires_at(until);
      co_await signal_.async_wait(kAwait);
    }
    signal_.expires_at(asio::steady_timer::time_point::max());
  }

  asio::awaitable<bool> WritePiece(const StreamSource::Piece& piece) {
    size_t size = piece.data.size();
    for (const SharedText& shared : piece.shared) size += shared.text.size();
    if (size == 0) co_return true;
    const std::string head = chunked_ ? fmt::format("{:x}\r\n", size) : "";
    Parts parts = {head, piece.data};
    for (const SharedText& shared : piece.shared) parts.push_back(shared.text);
    if (chunked_) parts.emplace_back("\r\n");
    const ErrorCode error = co_await WriteAll(std::move(parts), piece.data.capacity());
    if (error) Abort();
    co_return !error;
  }

  asio::awaitable<void> WriteLastPiece() {
    if (!chunked_ || closed_) co_return;
    const ErrorCode error = co_await WriteAll({"0\r\n\r\n"});
    if (error) Abort();
  }

  // Watches, while a stream is written, for the client to go. In the clear it may say a little.
  // Over TLS the socket is only looked at, so that no read is in the way of the stream's shutdown:
  // whatever arrives is the client's end, which has nothing to say.
  asio::awaitable<void> AwaitHangup() {
    if (InClear()) {
      std::array<char, 512> unused;
      ErrorCode error;
      for (size_t total = 0; !closed_ && !stream_ended_ && !error && total < kReadSize;) {
        Plain().expires_never();
        size_t size = 0;
        std::tie(error, size) = co_await Plain().async_read_some(asio::buffer(unused), kAwait);
        total += size;
      }
    } else {
      do {
        co_await Plain().socket().async_wait(asio::ip::tcp::socket::wait_read, kAwait);
      } while (!closed_ && !stream_ended_ && NothingHasCome());
    }
    listening_ = false;
    signal_.cancel();
    if (!stream_ended_) Abort();
  }

  // A wait may end for what was read before it began.
  bool NothingHasCome() {
    char unused = 0;
    return recv(Plain().socket().native_handle(), &unused, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EWOULDBLOCK);
  }

  // Takes AwaitHangup's read out of the way of the connection's own end.
  asio::awaitable<void> StopListening() {
    stream_ended_ = true;
    if (!closed_) Plain().cancel();
    while (listening_ && !closed_) {
      co_await signal_.async_wait(kAwait);
    }
  }

  // Takes what the client is still sending, so that it reads our answer before it sees a reset.
  asio::awaitable<void> Linger() {
    ErrorCode ignored;
    Plain().socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    Expire(kLingerTime);
    std::vector<char> unused(kReadSize);
    for (size_t total = 0; total < kLingerBytes;) {
      auto [error, size] = co_await Plain().async_read_some(asio::buffer(unused), kAwait);
      if (error) break;
      total += size;
    }
    Abort();
  }

  asio::awaitable<void> Shutdown() {
    if constexpr (!kIsPlain) {
      if (!in_clear_) {
        Expire(kLingerTime);
        co_await stream_.async_shutdown(kAwait);
      }
    }
    ErrorCode ignored;
    Plain().socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    Abort();
  }

  // A source's way to wake its stream, which may be long gone.
  struct WakeUp {
    std::weak_ptr<ConnectionOf> connection;
    std::atomic<bool> pending{false};
    void Call() {
      if (pending.exchange(true)) return;
      const std::shared_ptr<ConnectionOf> self = connection.lock();
      if (!self) return;
      self->core_->Post(self->strand_, [self] { self->signal_.cancel(); });
    }
  };

  const std::shared_ptr<ServerCore> core_;
  const std::shared_ptr<asio::ssl::context> tls_;
  Stream stream_;
  Strand strand_;
  // Cancelled, on the strand, whenever what the coroutine waits for may be there.
  asio::steady_timer signal_;
  beast::flat_buffer buffer_;
  Phase phase_ = Phase::kReading;
  bool closed_ = false;
  bool in_clear_ = false;  // of a stream that could be TLS
  std::shared_ptr<const std::vector<std::string>> client_certificates_;
  bool chunked_ = true;
  size_t holding_ = 0;         // of the memory limit
  bool listening_ = false;     // AwaitHangup is under way
  bool stream_ended_ = false;  // and has nothing to tell any more
  std::string_view pattern_;   // of the route, owned by the router
  std::optional<Answer> answer_;
  std::shared_ptr<WakeUp> wake_;
};

}  // namespace

void ServerCore::Remove(Connection* connection) {
  std::lock_guard lock(mutex);
  if (connections.erase(connection) == 0) return;
  held -= std::exchange(connection->held, 0);
  Peer& peer = *connection->of_peer;
  peer.connections.erase(connection->place);
  Resize(peer, peer.connections.size() + 1);
  if (peer.connections.empty()) peers.erase(connection->peer);
  if (connections.empty()) no_connections.notify_all();
  on_room();
}

bool Connection::HasInput() const {
  int bytes = 0;
  return ioctl(socket_, FIONREAD, &bytes) == 0 && bytes > 0;
}

void ServerCore::Resize(Peer& peer, size_t before) {
  peers_by_size.erase({before, &peer});
  if (!peer.connections.empty()) peers_by_size.emplace(peer.connections.size(), &peer);
}

void ServerCore::Add(const std::shared_ptr<Connection>& connection) {
  Peer& peer = peers[connection->peer];
  connections.emplace(connection.get(), connection);
  connection->of_peer = &peer;
  connection->idle_when_seen = connection->idle_since().value_or(0);
  connection->place = peer.connections.insert(peer.connections.end(), connection.get());
  Resize(peer, peer.connections.size() - 1);
}

namespace {

// Looks at each twice at most: first whether it has been idle since it was looked at before.
Connection* LongestIdleOf(Peer& peer) {
  bool any = false;
  const size_t count = peer.connections.size();
  for (size_t looks = 0; looks < 2 * count && (any || looks < count); ++looks) {
    Connection* first = peer.connections.front();
    if (const std::optional<int64_t> since = first->idle_since()) {
      if (since == first->idle_when_seen && !first->HasInput()) return first;
      first->idle_when_seen = *since;
      any = true;
    }
    peer.connections.splice(peer.connections.end(), peer.connections, peer.connections.begin());
  }
  return nullptr;
}

}  // namespace

Connection* ServerCore::LongestIdle(Peer* peer) {
  if (peer != nullptr) return LongestIdleOf(*peer);
  Connection* longest = nullptr;
  size_t size = 0;
  for (auto at = peers_by_size.rbegin(); at != peers_by_size.rend(); ++at) {
    if (longest != nullptr && at->first < size) break;
    size = at->first;
    Connection* of_peer = LongestIdleOf(*at->second);
    if (of_peer == nullptr) continue;
    if (longest == nullptr || of_peer->idle_when_seen < longest->idle_when_seen) longest = of_peer;
  }
  return longest;
}

void ServerCore::Hold(Connection& connection, size_t bytes) {
  std::vector<std::shared_ptr<Connection>> ended;
  {
    const std::lock_guard lock(mutex);
    const auto entry = connections.find(&connection);
    if (entry == connections.end()) return;
    if (connection.held == 0) connection.held_since = Connection::Now();
    held += bytes - connection.held;
    connection.held = bytes;
    while (held > options.memory_limit) {
      std::shared_ptr<Connection> slowest = SlowestOfTheLargest();
      if (!slowest) break;
      held -= std::exchange(slowest->held, 0);
      ++ended_slow;
      ended.push_back(std::move(slowest));
    }
  }
  for (const std::shared_ptr<Connection>& each : ended) each->Close();
}

std::shared_ptr<Connection> ServerCore::SlowestOfTheLargest() const {
  std::map<boost::asio::ip::address, std::pair<size_t, Connection*>> peers;
  for (const auto& [connection, weak] : connections) {
    if (connection->held == 0) continue;
    auto& [sum, slowest] = peers[connection->peer];
    sum += connection->held;
    if (slowest == nullptr || connection->held_since < slowest->held_since) slowest = connection;
  }
  std::pair<size_t, Connection*> largest;
  for (const auto& [peer, of] : peers) largest = std::max(largest, of);
  return largest.second == nullptr ? nullptr : connections.at(largest.second).lock();
}

class Responder::Exchange {
 public:
  Exchange(std::shared_ptr<ServerCore> core, std::shared_ptr<Connection> connection)
      : core_(std::move(core)), connection_(std::move(connection)) {}
  ~Exchange() {
    if (!answered_) Deliver({.response = core_->Refuse(500, "no answer")});
  }
  void Deliver(Answer answer) {
    if (!answered_.exchange(true)) connection_->Deliver(std::move(answer));
  }
  void Resume(std::function<void()> next) { connection_->Run(std::move(next)); }

 private:
  const std::shared_ptr<ServerCore> core_;
  const std::shared_ptr<Connection> connection_;
  std::atomic<bool> answered_{false};
};

void Responder::Send(Response response) const {
  exchange_->Deliver({.response = std::move(response)});
}

void Responder::Stream(std::string content_type, std::unique_ptr<StreamSource> source) const {
  Answer answer;
  answer.response.content_type = std::move(content_type);
  answer.source = std::move(source);
  exchange_->Deliver(std::move(answer));
}

void Responder::HangUp() const { exchange_->Deliver({.hang_up = true}); }

void Responder::Resume(std::function<void()> next) const { exchange_->Resume(std::move(next)); }

namespace {

template <typename Stream>
void ConnectionOf<Stream>::Handle(const Parser::value_type& message, std::string body,
                                  absl::Duration coming) {
  Responder responder(std::make_shared<Responder::Exchange>(core_, Self()));
  const auto text_of = [](beast::string_view text) {
    return std::string(text.data(), text.size());
  };
  const std::string method = text_of(message.method_string());
  std::optional<Target> parsed = ParseTarget(text_of(message.target()));
  if (!parsed) return responder.Send(core_->Refuse(400, "malformed request target"));
  Router::Match match = core_->router.Find(method, *parsed);
  const Handler* handler = nullptr;
  if (match.route != nullptr) {
    pattern_ = match.route->pattern;
    handler = &match.route->handler;
  } else if (core_->options.otherwise) {
    handler = &core_->options.otherwise;
  } else if (match.allow.empty()) {
    return responder.Send(core_->Refuse(404, "no such path: " + parsed->path));
  } else {
    Response refusal =
        core_->Refuse(405, "method " + method + " is not allowed here, use " + match.allow);
    refusal.headers.emplace_back("Allow", match.allow);
    return responder.Send(std::move(refusal));
  }
  Request request{.method = method,
                  .path = std::move(parsed->path),
                  .query = std::move(parsed->query),
                  .captures = std::move(match.captures),
                  .content_type = text_of(message[beast::http::field::content_type]),
                  .accept = text_of(message[beast::http::field::accept]),
                  .user_agent = text_of(message[beast::http::field::user_agent]),
                  .authorization = text_of(message[beast::http::field::authorization]),
                  .peer = peer.to_string(),
                  .secret = !InClear() || IsThisHost(peer),
                  .coming = coming,
                  .client_certificates = client_certificates_,
                  .body = std::move(body)};
  if (core_->options.client_certificates) {
    for (const auto& field : message) {
      request.headers.emplace_back(text_of(field.name_string()), text_of(field.value()));
    }
  }
  (*handler)(request, responder);
  core_->body_buffers.Give(std::move(request.body));
}

}  // namespace

std::shared_ptr<Connection> MakeConnection(std::shared_ptr<ServerCore> core,
                                           asio::ip::tcp::socket socket,
                                           std::shared_ptr<asio::ssl::context> tls) {
  const Strand strand = asio::make_strand(core->context);
  ErrorCode ignored;
  asio::ip::address peer = socket.remote_endpoint(ignored).address();
  if (ignored) return nullptr;  // it has gone
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  if (core->options.send_buffer > 0) {
    socket.set_option(asio::socket_base::send_buffer_size(core->options.send_buffer), ignored);
  }
  const auto protocol = socket.local_endpoint(ignored).protocol();
  PlainStream plain(strand);
  plain.socket().assign(protocol, socket.release(ignored), ignored);
  if (!ignored) plain.socket().non_blocking(true, ignored);
  if (ignored) return nullptr;
  if (!tls) {
    return std::make_shared<ConnectionOf<PlainStream>>(std::move(core), std::move(peer),
                                                       std::move(plain), nullptr);
  }
  asio::ssl::context& context = *tls;
  return std::make_shared<ConnectionOf<TlsStream>>(
      std::move(core), std::move(peer), TlsStream(std::move(plain), context), std::move(tls));
}

}  // namespace muster::http
