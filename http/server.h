// The HTTP/1.1 server of all that Muster serves: kube-scheduler's calls, the webhook and the
// queries from a small, fixed set of routes, and the embedded API server, which reads every path
// itself.
//
// A few io threads serve every connection. A handler answers through a Responder, at once or later
// and from any thread, so thousands of requests can be held without a thread each. Bodies without
// end (watches) are pulled from a StreamSource whenever the client can take more: what waits for a
// slow client is the source's business, the server holds one piece at most.
//
// Bounds: connections in all and of a peer, header and body size, what all requests and answers
// under way take, and time for the handshake, the header, the body, each write, and an idle
// connection. Unknown path: 404; known path with another method: 405 with Allow; larger body: 413;
// malformed: 400; longer header: 431; no answer: 500. Pipelined requests are answered in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::http {

struct Request {
  std::string method;
  std::string path;                                        // without the query, unescaped
  std::vector<std::pair<std::string, std::string>> query;  // unescaped
  std::vector<std::string> captures;                       // one per {...} of the route's pattern
  std::string content_type;                                // headers as they came; "" without
  std::string accept;
  std::string user_agent;
  std::string authorization;
  std::string peer;            // its address
  bool secret = false;         // nobody on a network reads it: over TLS, or from this host
  absl::Duration coming = {};  // from when its first byte was read to when its last one was
  // All of them, and the certificates that the client has shown and has the key of, in DER, its own
  // first; who signed them is for others to say. Both only where ServerOptions::client_certificates
  // is set.
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::shared_ptr<const std::vector<std::string>> client_certificates = {};  // null: none
  // Has some capacity past its end, for parsers that read in blocks.
  std::string body;

  // The first value of a query parameter, or nullptr.
  const std::string* Query(std::string_view name) const;
};

// Bytes that many answers share.
struct SharedText {
  std::string_view text;
  std::shared_ptr<const void> owner;  // keeps them; null: they are there for ever
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // besides type and length
  SharedText shared = {};                                         // goes on where `body` ends
};

// A body without end. Used by one connection, never by two threads at once.
class StreamSource {
 public:
  virtual ~StreamSource() = default;
  // Called once, before the first Next. `wake` tells the server that Next has something again; it
  // may be called from any thread, also after the stream has ended.
  virtual void Start(std::function<void()> wake) = 0;
  // The next piece of the body. `more` false: nothing now, wait for wake, at most `look_again`.
  struct Piece {
    std::string data = {};
    bool more = false;
    bool end = false;  // the body ends after this piece
    bool cut = false;  // the connection ends after this piece, and the body has no end
    absl::Duration look_again = absl::InfiniteDuration();
    // The next piece isn't asked for any sooner, so that what comes meanwhile goes together.
    absl::Duration rest = absl::ZeroDuration();
    std::vector<SharedText> shared = {};  // go on where `data` ends
  };
  virtual Piece Next() = 0;
};

// The one chance to answer a request. Copies share it; the first answer counts. If all copies are
// gone without an answer, the client gets a 500. Thread-safe.
class Responder {
 public:
  class Exchange;
  explicit Responder(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  void Send(Response response) const;
  // Answers 200 with a chunked body; the connection ends with it.
  void Stream(std::string content_type, std::unique_ptr<StreamSource> source) const;
  // Ends the connection without an answer.
  void HangUp() const;
  // Runs `next` on an io thread, never inline; not at all once the server has ended. For who learns
  // the answer on a thread that has other things to do.
  void Resume(std::function<void()> next) const;

 private:
  std::shared_ptr<Exchange> exchange_;
};

// Runs on an io thread; must not block. The request lives until the handler returns, which may move
// from it.
using Handler = std::function<void(Request& request, const Responder& responder)>;

struct Route {
  std::string method;   // "GET"
  std::string pattern;  // "/v1/gangs/{namespace}/{name}"; {...} matches one segment
  Handler handler;
};

// PEM texts.
struct Certificate {
  std::string chain;
  std::string key;
};

struct ServerOptions {
  std::string listen = {};  // "127.0.0.1:8888", "[::1]:0"; port 0 picks a free one
  int threads = 2;
  // Of the io threads, as setpriority(2) has it: while others want the processor, a server of 10
  // gets a tenth of what one of 0 does.
  int niceness = 0;
  size_t max_connections = 4096;
  size_t header_limit = 16 << 10;
  uint64_t body_limit = 64 << 10;  // 0: a request with a body is refused
  // What bodies being read and answers being written take together, without what they share. Past
  // it, of the peer whose connections take most, those go that have taken longest.
  size_t memory_limit = SIZE_MAX;
  // Bytes that the kernel may keep of what a client doesn't take; 0: as it likes, 4 MiB or so.
  int send_buffer = 0;
  // Time for the TLS handshake, and for a header once its first byte has come.
  absl::Duration header_timeout = absl::Seconds(10);
  absl::Duration body_timeout = absl::Seconds(30);
  absl::Duration write_timeout = absl::Seconds(30);
  // Above the 90 s after which Go's client drops an idle connection itself, so that a request never
  // meets a connection that is just being closed.
  absl::Duration idle_timeout = absl::Minutes(5);
  // Serves HTTPS if set.
  std::optional<Certificate> certificate = {};
  // HTTP too, at the same port: what a connection begins with tells which.
  bool also_in_clear = false;
  // Asks clients for a certificate, which they need not have.
  bool client_certificates = false;
  // Of one peer, by its address; so that no peer can take the place of all others.
  size_t max_connections_per_peer = SIZE_MAX;
  // What becomes of a connection that comes while there are max_connections (or that many of its
  // peer): closed at once; left in the kernel's queue until another one ends (the peer's bound
  // isn't looked at); or taken in the place of one that waits for its handshake, a request, or the
  // rest of one: of the peer's own, else of the peer with most connections, the one that has waited
  // longest, but none whose next bytes have come.
  enum class WhenFull { kTurnAway, kLetWait, kEndOldestIdle };
  WhenFull when_full = WhenFull::kTurnAway;
  // Answers whatever no route does, instead of 404 and 405.
  Handler otherwise = {};
  // The server's own refusals in words of the caller's; by default the text alone.
  std::function<Response(int status, std::string text)> refusal = {};
  // Called on an io thread after each answer: the route's pattern ("" if none matched), status, and
  // the time from the end of the request's body to the answer.
  std::function<void(std::string_view pattern, int status, absl::Duration took)> observe = {};
};

class Server {
 public:
  // Listens and serves. InvalidArgument for an unusable address or certificate = {}; Unavailable,
  // with the address, if it can't be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options,
                                                       std::vector<Route> routes);
  // Stop with no grace.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;
  struct ConnectionCounts {
    size_t open = 0;
    uint64_t turned_away = 0;  // because there were too many
    uint64_t ended_idle = 0;   // to make room for others
    uint64_t ended_slow = 0;   // because all together took too much memory
  };
  ConnectionCounts connection_counts() const;
  // For how long the io threads have done nothing, although there is something each second. Past a
  // few seconds they hang, or don't get the processor.
  absl::Duration silent_for() const;

  // For new connections from now on. Only for a server that was started with a certificate.
  absl::Status SetCertificate(const Certificate& certificate);

  // Takes no new connections, closes idle ones and streams, gives answers under way `grace` to
  // complete, then closes the rest. Returns when all io threads have ended. Responders may be used
  // afterwards, to no effect.
  void Stop(absl::Duration grace);

 private:
  class Impl;
  explicit Server(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace muster::http
