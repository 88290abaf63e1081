#include "kube/embedded/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kube/embedded/api_error.h"
#include "kube/embedded/http_translation.h"

namespace muster::kube::embedded {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// How long a connection that the server ends waits for the client to notice.
constexpr absl::Duration kLinger = absl::Seconds(2);
constexpr size_t kItemsPerChunk = 256;
// A watch looks at its clock this often, so that bookmarks follow clocks that aren't the wall's.
constexpr auto kWatchTick = std::chrono::seconds(1);

std::chrono::milliseconds Milliseconds(absl::Duration duration) {
  return std::chrono::milliseconds(absl::ToInt64Milliseconds(duration));
}

Answer AnswerOf(const ApiError& error) {
  Answer answer;
  answer.response = {error.code, error.ToJson(), error.retry_after};
  return answer;
}

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

template <typename Stream>
class Connection : public HttpConnection, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  template <typename... Tls>
  Connection(FrontContext* front, tcp::socket socket, std::function<void()> on_closed, Tls&... tls)
      : front_(front),
        stream_(std::move(socket), tls...),
        timer_(stream_.get_executor()),
        on_closed_(std::move(on_closed)) {
    beast::get_lowest_layer(stream_).socket().set_option(tcp::no_delay(true), ignored_);
  }

  ~Connection() override {
    watch_.reset();
    on_closed_();
  }

  void Run() override {
    asio::post(stream_.get_executor(), [self = this->shared_from_this()] { self->Handshake(); });
  }

  void Close() override {
    asio::post(stream_.get_executor(), [self = this->shared_from_this()] { self->CloseNow(); });
  }

 private:
  static constexpr bool kTls = !std::is_same_v<Stream, beast::tcp_stream>;

  void ExpireAfter(absl::Duration duration) {
    beast::get_lowest_layer(stream_).expires_after(Milliseconds(duration));
  }

  void CloseNow() {
    closed_ = true;
    watch_.reset();
    timer_.cancel();
    beast::get_lowest_layer(stream_).socket().close(ignored_);
  }

  void Handshake() {
    if constexpr (kTls) {
      ExpireAfter(front_->options.read_timeout);
      stream_.async_handshake(asio::ssl::stream_base::server,
                              [self = this->shared_from_this()](error_code error) {
                                if (!error) self->ReadHeader();
                              });
    } else {
      ReadHeader();
    }
  }

  void ReadHeader() {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(front_->options.max_header_bytes));
    parser_->body_limit(front_->options.max_body_bytes);
    ExpireAfter(front_->options.idle_timeout);
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = this->shared_from_this()](error_code error, size_t) { self->OnHeader(error); });
  }

  void OnHeader(error_code error) {
    if (error) return OnReadError(error);
    // Clients such as curl ask before they send a large body.
    if (View(parser_->get()[http::field::expect]) == "100-continue") {
      continue_ = std::make_unique<http::response<http::empty_body>>(http::status::continue_, 11);
      ExpireAfter(front_->options.write_timeout);
      http::async_write(stream_, *continue_,
                        [self = this->shared_from_this()](error_code failed, size_t) {
                          if (!failed) self->ReadBody();
                        });
      return;
    }
    ReadBody();
  }

  void ReadBody() {
    ExpireAfter(front_->options.read_timeout);
    http::async_read(stream_, buffer_, *parser_,
                     [self = this->shared_from_this()](error_code error, size_t) {
                       if (error) return self->OnReadError(error);
                       self->OnRequest();
                     });
  }

  void OnReadError(error_code error) {
    keep_alive_ = false;
    if (error == http::error::body_limit) {
      return Write(
          AnswerOf(TooLarge(fmt::format("limit is {} bytes", front_->options.max_body_bytes))));
    }
    if (error == http::error::header_limit) {
      ApiError too_long = BadRequest("request header fields too large");
      too_long.code = 431;
      return Write(AnswerOf(too_long));
    }
    // What isn't HTTP gets an answer, a connection that ends or idles gets none.
    if (error.category() == http::make_error_code(http::error::bad_version).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      return Write(AnswerOf(BadRequest("malformed HTTP request: " + error.message())));
    }
    CloseNow();
  }

  void OnRequest() {
    auto message = parser_->release();
    keep_alive_ = message.keep_alive();
    request_ = Request();
    headers_ = RequestHeaders{std::string(View(message[http::field::accept]))};
    std::optional<Method> method = MethodNamed(View(message.method_string()));
    if (!method) {
      ApiError error = BadRequest("unknown method " + std::string(View(message.method_string())));
      error.code = 405;
      error.reason = "MethodNotAllowed";
      return Write(AnswerOf(error));
    }
    request_.method = *method;
    if (!ParseTarget(View(message.target()), &request_)) {
      return Write(AnswerOf(BadRequest("malformed request target")));
    }
    request_.content_type = std::string(View(message[http::field::content_type]));
    request_.body = std::move(message.body());
    const bool is_watch = ApiServer::IsWatch(request_);
    fault_ = front_->options.faults == nullptr ? FaultDecision()
                                               : front_->options.faults->Decide(request_, is_watch);
    if (fault_.answer) {
      Answer answer;
      answer.response = *std::move(fault_.answer);
      return Write(std::move(answer));
    }
    if (fault_.refuse) return CloseNow();
    if (fault_.delay <= absl::ZeroDuration()) return Serve(is_watch);
    beast::get_lowest_layer(stream_).expires_never();
    timer_.expires_after(Milliseconds(fault_.delay));
    timer_.async_wait([self = this->shared_from_this(), is_watch](error_code error) {
      if (!error && !self->closed_) self->Serve(is_watch);
    });
  }

  void Serve(bool is_watch) {
    if (is_watch) return OpenWatch();
    if (!front_->server->MayBlock(request_))
      return Finish(front_->server->Handle(request_, headers_));
    if (front_->waiting_for_webhooks.fetch_add(1) >= front_->options.max_waiting_for_webhooks) {
      --front_->waiting_for_webhooks;
      return Write(AnswerOf(
          TooManyRequests("too many requests wait for admission webhooks", absl::Seconds(1))));
    }
    beast::get_lowest_layer(stream_).expires_never();
    asio::post(*front_->webhook_pool, [self = this->shared_from_this()] {
      Answer answer = self->front_->server->Handle(self->request_, self->headers_);
      --self->front_->waiting_for_webhooks;
      asio::post(self->stream_.get_executor(),
                 [self, answer = std::move(answer)]() mutable { self->Finish(std::move(answer)); });
    });
  }

  void Finish(Answer answer) {
    if (fault_.drop_answer || closed_) return CloseNow();
    Write(std::move(answer));
  }

  void Write(Answer answer) {
    response_.emplace(static_cast<http::status>(answer.response.status), 11);
    response_->set(http::field::content_type, answer.content_type);
    for (const std::string& warning : answer.warnings) {
      response_->insert("Warning", "299 - " + Quoted(warning));
    }
    if (answer.response.retry_after) {
      int64_t seconds =
          absl::ToInt64Seconds(absl::Ceil(*answer.response.retry_after, absl::Seconds(1)));
      response_->set(http::field::retry_after, std::to_string(seconds));
    }
    response_->keep_alive(keep_alive_);
    response_->body() = std::move(answer.response.body);
    response_->prepare_payload();
    ExpireAfter(front_->options.write_timeout);
    http::async_write(stream_, *response_,
                      [self = this->shared_from_this()](error_code error, size_t) {
                        self->response_.reset();
                        if (error || !self->keep_alive_) return self->Shutdown();
                        self->ReadHeader();
                      });
  }

  void Shutdown() {
    watch_.reset();
    ExpireAfter(kLinger);
    if constexpr (kTls) {
      stream_.async_shutdown([self = this->shared_from_this()](error_code) { self->CloseNow(); });
    } else {
      beast::get_lowest_layer(stream_).socket().shutdown(tcp::socket::shutdown_send, ignored_);
      Drain();
    }
  }

  // Closing with unread bytes would reset the connection before the client has read its answer.
  void Drain() {
    stream_.async_read_some(asio::buffer(discarded_),
                            [self = this->shared_from_this()](error_code error, size_t) {
                              if (error) return self->CloseNow();
                              self->Drain();
                            });
  }

  // Watches.

  void OpenWatch() {
    ApiServer::WatchResult result = front_->server->Watch(request_, headers_);
    if (!result.session) {
      Answer answer;
      answer.response = std::move(result.refusal);
      return Finish(std::move(answer));
    }
    if (fault_.drop_answer) return CloseNow();
    watch_ = std::move(result.session);
    // A stream's connection isn't used again.
    stream_header_.emplace(http::status::ok, 11);
    stream_header_->set(http::field::content_type, "application/json");
    stream_header_->keep_alive(false);
    stream_header_->chunked(true);
    serializer_.emplace(*stream_header_);
    ExpireAfter(front_->options.write_timeout);
    http::async_write_header(
        stream_, *serializer_, [self = this->shared_from_this()](error_code error, size_t) {
          // Closed meanwhile, a written header is no error.
          if (error || self->closed_) return self->CloseNow();
          self->NoticeEnd();
          self->watch_->OnReady(
              [weak = self->weak_from_this(), executor = self->stream_.get_executor()] {
                asio::post(executor, [weak] {
                  if (auto alive = weak.lock()) alive->OnWake();
                });
              });
          self->WriteItems();
        });
  }

  // A client has nothing to say during a watch: whatever arrives is its end.
  void NoticeEnd() {
    beast::get_lowest_layer(stream_).socket().async_wait(
        tcp::socket::wait_read, [self = this->shared_from_this()](error_code error) {
          if (!error) self->CloseNow();
        });
  }

  void OnWake() {
    woken_ = true;
    if (!writing_) WriteItems();
  }

  void WriteItems() {
    if (!watch_ || writing_) return;
    woken_ = false;
    chunk_.clear();
    bool open = true;
    bool cut = false;
    while (open && !cut && chunk_.size() < front_->options.watch_chunk_bytes) {
      items_.clear();
      open = watch_->Read(kItemsPerChunk, &items_);
      if (items_.empty()) break;
      for (const WatchItem& item : items_) {
        cut = fault_.cut && written_items_ >= fault_.cut->after_items;
        if (cut) break;
        item.AppendLine(&chunk_);
        chunk_ += '\n';
        ++written_items_;
      }
    }
    cut |= fault_.cut && written_items_ >= fault_.cut->after_items;
    if (cut && fault_.cut->expired) {
      chunk_ += ExpiredLine() + "\n";
      open = false;
      cut = false;
    }
    if (!chunk_.empty()) return WriteChunk(open, cut);
    if (cut) return CloseNow();
    if (!open) return WriteLastChunk();
    WaitForItems();
  }

  void WriteChunk(bool open, bool cut) {
    writing_ = true;
    ExpireAfter(front_->options.write_timeout);
    asio::async_write(stream_, http::make_chunk(asio::buffer(chunk_)),
                      [self = this->shared_from_this(), open, cut](error_code error, size_t) {
                        self->writing_ = false;
                        if (error || cut) return self->CloseNow();
                        if (!open) return self->WriteLastChunk();
                        self->WriteItems();
                      });
  }

  void WriteLastChunk() {
    writing_ = true;
    ExpireAfter(front_->options.write_timeout);
    asio::async_write(stream_, http::make_chunk_last(),
                      [self = this->shared_from_this()](error_code, size_t) { self->Shutdown(); });
  }

  void WaitForItems() {
    if (woken_) return WriteItems();
    beast::get_lowest_layer(stream_).expires_never();
    timer_.expires_after(kWatchTick);
    timer_.async_wait([self = this->shared_from_this()](error_code error) {
      if (!error && self->watch_ && !self->writing_) self->WriteItems();
    });
  }

  FrontContext* const front_;
  Stream stream_;
  asio::steady_timer timer_;
  const std::function<void()> on_closed_;
  error_code ignored_;
  beast::flat_buffer buffer_;
  std::array<char, 4096> discarded_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::unique_ptr<http::response<http::empty_body>> continue_;
  std::optional<http::response<http::string_body>> response_;
  bool keep_alive_ = true;
  bool closed_ = false;

  Request request_;
  RequestHeaders headers_;
  FaultDecision fault_;

  std::unique_ptr<WatchSession> watch_;
  std::optional<http::response<http::empty_body>> stream_header_;
  std::optional<http::response_serializer<http::empty_body>> serializer_;
  std::vector<WatchItem> items_;
  std::string chunk_;
  size_t written_items_ = 0;
  bool writing_ = false;
  bool woken_ = false;
};

}  // namespace

std::shared_ptr<HttpConnection> MakeHttpConnection(FrontContext* front, tcp::socket socket,
                                                   asio::ssl::context* tls,
                                                   std::function<void()> on_closed) {
  if (tls == nullptr) {
    return std::make_shared<Connection<beast::tcp_stream>>(front, std::move(socket),
                                                           std::move(on_closed));
  }
  return std::make_shared<Connection<beast::ssl_stream<beast::tcp_stream>>>(
      front, std::move(socket), std::move(on_closed), *tls);
}

}  // namespace muster::kube::embedded
