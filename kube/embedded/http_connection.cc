#include "kube/embedded/http_connection.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kube/embedded/api_error.h"
#include "kube/embedded/byte_stream.h"
#include "kube/embedded/http_parsing.h"
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
constexpr absl::Duration kWatchTick = absl::Seconds(1);

Answer AnswerOf(const ApiError& error) {
  Answer answer;
  answer.response = {error.code, error.ToJson(), error.retry_after};
  return answer;
}

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

// The first lines of an answer; more headers and an empty line follow.
std::string HeadOf(int status, std::string_view content_type) {
  return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", status,
                     View(http::obsolete_reason(static_cast<http::status>(status))), content_type);
}

class Connection : public HttpConnection, public std::enable_shared_from_this<Connection> {
 public:
  Connection(FrontContext* front, std::unique_ptr<ByteStream> stream,
             std::function<void()> on_closed)
      : front_(front),
        stream_(std::move(stream)),
        timer_(stream_->Socket().get_executor()),
        on_closed_(std::move(on_closed)) {
    stream_->Socket().set_option(tcp::no_delay(true), ignored_);
  }

  ~Connection() override {
    watch_.reset();
    on_closed_();
  }

  void Run() override {
    Post([self = shared_from_this()] { self->Handshake(); });
  }

  void Close() override {
    Post([self = shared_from_this()] { self->CloseNow(); });
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  void Post(std::function<void()> work) { asio::post(timer_.get_executor(), std::move(work)); }

  void CloseNow() {
    closed_ = true;
    watch_.reset();
    timer_.cancel();
    stream_->Socket().close(ignored_);
  }

  void Handshake() {
    stream_->ExpireAfter(front_->options.read_timeout);
    stream_->Handshake(asio::ssl::stream_base::server,
                       [self = shared_from_this()](error_code error) {
                         if (!error) self->ReadHeader();
                       });
  }

  void ReadHeader() {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(front_->options.max_header_bytes));
    parser_->body_limit(front_->options.max_body_bytes);
    stream_->ExpireAfter(front_->options.idle_timeout);
    ReadUntil(&Parser::is_header_done, &Connection::OnHeader);
  }

  // Reads and parses until `done` holds or there is an error, and goes on with `next`.
  void ReadUntil(bool (Parser::*done)() const, void (Connection::*next)(error_code)) {
    const error_code malformed = Parse(buffer_, *parser_, done);
    if (malformed || ((*parser_).*done)()) return (this->*next)(malformed);
    stream_->Read(buffer_.prepare(kReadSize),
                  [self = shared_from_this(), done, next](error_code error, size_t size) {
                    if (error) return ((*self).*next)(error);
                    self->buffer_.commit(size);
                    self->ReadUntil(done, next);
                  });
  }

  void OnHeader(error_code error) {
    if (error) return OnReadError(error);
    // Clients such as curl ask before they send a large body.
    if (View(parser_->get()[http::field::expect]) == "100-continue") {
      answer_ = "HTTP/1.1 100 Continue\r\n\r\n";
      return Send(&Connection::OnContinued);
    }
    ReadBody();
  }

  void OnContinued(error_code error) {
    if (!error) ReadBody();
  }

  void ReadBody() {
    stream_->ExpireAfter(front_->options.read_timeout);
    ReadUntil(&Parser::is_done, &Connection::OnRead);
  }

  void OnRead(error_code error) {
    if (error) return OnReadError(error);
    OnRequest();
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
    stream_->ExpireAfter(absl::InfiniteDuration());
    Wait(fault_.delay, [self = shared_from_this(), is_watch] {
      if (!self->closed_) self->Serve(is_watch);
    });
  }

  // Cancelled, the timer does nothing.
  void Wait(absl::Duration duration, std::function<void()> work) {
    timer_.expires_after(absl::ToChronoMilliseconds(duration));
    timer_.async_wait([work = std::move(work)](error_code error) {
      if (!error) work();
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
    stream_->ExpireAfter(absl::InfiniteDuration());
    asio::post(*front_->webhook_pool, [self = shared_from_this()] {
      Answer answer = self->front_->server->Handle(self->request_, self->headers_);
      --self->front_->waiting_for_webhooks;
      self->Post([self, answer = std::move(answer)]() mutable { self->Finish(std::move(answer)); });
    });
  }

  void Finish(Answer answer) {
    if (fault_.drop_answer || closed_) return CloseNow();
    Write(std::move(answer));
  }

  void Write(Answer answer) {
    answer_ = HeadOf(answer.response.status, answer.content_type);
    const auto add = std::back_inserter(answer_);
    for (const std::string& warning : answer.warnings) {
      fmt::format_to(add, "Warning: 299 - {}\r\n", Quoted(warning));
    }
    if (answer.response.retry_after) {
      fmt::format_to(
          add, "Retry-After: {}\r\n",
          absl::ToInt64Seconds(absl::Ceil(*answer.response.retry_after, absl::Seconds(1))));
    }
    if (!keep_alive_) answer_ += "Connection: close\r\n";
    fmt::format_to(add, "Content-Length: {}\r\n\r\n", answer.response.body.size());
    answer_ += answer.response.body;
    Send(&Connection::OnAnswered);
  }

  void OnAnswered(error_code error) {
    answer_ = std::string();
    if (error || !keep_alive_) return Shutdown();
    ReadHeader();
  }

  // Sends answer_, and goes on with `next`.
  void Send(void (Connection::*next)(error_code)) {
    stream_->ExpireAfter(front_->options.write_timeout);
    stream_->Write(
        asio::buffer(answer_),
        [self = shared_from_this(), next](error_code error, size_t) { ((*self).*next)(error); });
  }

  void Shutdown() {
    watch_.reset();
    stream_->ExpireAfter(kLinger);
    stream_->Shutdown([self = shared_from_this()](error_code) {
      self->stream_->Socket().shutdown(tcp::socket::shutdown_send, self->ignored_);
      self->Drain();
    });
  }

  // Closing with unread bytes would reset the connection before the client has read its answer.
  void Drain() {
    stream_->Read(asio::buffer(discarded_), [self = shared_from_this()](error_code error, size_t) {
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
    answer_ =
        HeadOf(200, "application/json") + "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    Send(&Connection::OnStreamBegun);
  }

  void OnStreamBegun(error_code error) {
    // Closed meanwhile, a written header is no error.
    if (error || closed_) return CloseNow();
    NoticeEnd();
    watch_->OnReady([weak = weak_from_this(), executor = timer_.get_executor()] {
      asio::post(executor, [weak] {
        if (auto alive = weak.lock()) alive->OnWake();
      });
    });
    WriteItems();
  }

  // A client has nothing to say during a watch: whatever arrives is its end.
  void NoticeEnd() {
    stream_->Socket().async_wait(tcp::socket::wait_read,
                                 [self = shared_from_this()](error_code error) {
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
    answer_ = fmt::format("{:x}\r\n", chunk_.size());
    answer_ += chunk_;
    answer_ += "\r\n";
    open_ = open;
    cut_ = cut;
    Send(&Connection::OnChunkWritten);
  }

  void OnChunkWritten(error_code error) {
    writing_ = false;
    if (error || cut_) return CloseNow();
    if (!open_) return WriteLastChunk();
    WriteItems();
  }

  void WriteLastChunk() {
    writing_ = true;
    answer_ = "0\r\n\r\n";
    Send(&Connection::OnStreamEnded);
  }

  void OnStreamEnded(error_code) { Shutdown(); }

  void WaitForItems() {
    if (woken_) return WriteItems();
    stream_->ExpireAfter(absl::InfiniteDuration());
    Wait(kWatchTick, [self = shared_from_this()] {
      if (self->watch_ && !self->writing_) self->WriteItems();
    });
  }

  FrontContext* const front_;
  const std::unique_ptr<ByteStream> stream_;
  asio::steady_timer timer_;
  const std::function<void()> on_closed_;
  error_code ignored_;
  beast::flat_buffer buffer_;
  std::array<char, 4096> discarded_;
  std::optional<Parser> parser_;
  std::string answer_;  // what is being sent
  bool keep_alive_ = true;
  bool closed_ = false;

  Request request_;
  RequestHeaders headers_;
  FaultDecision fault_;

  std::unique_ptr<WatchSession> watch_;
  std::vector<WatchItem> items_;
  std::string chunk_;
  size_t written_items_ = 0;
  bool writing_ = false;
  bool woken_ = false;
  // What follows the chunk that is being sent: more, and unless the stream is cut, its last one.
  bool open_ = true;
  bool cut_ = false;
};

}  // namespace

std::shared_ptr<HttpConnection> MakeHttpConnection(FrontContext* front, tcp::socket socket,
                                                   asio::ssl::context* tls,
                                                   std::function<void()> on_closed) {
  std::unique_ptr<ByteStream> stream =
      tls == nullptr ? MakeByteStream(std::move(socket)) : MakeTlsStream(std::move(socket), *tls);
  return std::make_shared<Connection>(front, std::move(stream), std::move(on_closed));
}

}  // namespace muster::kube::embedded
