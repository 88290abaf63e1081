#include "kube/embedded/http_front.h"

#include <fmt/format.h>

#include <atomic>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "http/server.h"
#include "kube/embedded/api_error.h"
#include "kube/embedded/https_webhook_caller.h"
#include "kube/embedded/self_signed.h"

namespace muster::kube::embedded {
namespace {

namespace asio = boost::asio;

constexpr size_t kItemsPerWatchRead = 256;
// A watch looks at its clock this often, so that bookmarks follow clocks that aren't the wall's.
constexpr absl::Duration kWatchTick = absl::Seconds(1);

std::optional<Method> MethodNamed(std::string_view name) {
  if (name == "GET") return Method::kGet;
  if (name == "POST") return Method::kPost;
  if (name == "PUT") return Method::kPut;
  if (name == "PATCH") return Method::kPatch;
  if (name == "DELETE") return Method::kDelete;
  return std::nullopt;
}

http::Response ToHttp(Response response, std::string content_type = std::string(kJson)) {
  http::Response answer{.status = response.status,
                        .content_type = std::move(content_type),
                        .body = std::move(response.body)};
  if (response.retry_after) {
    const absl::Duration whole = absl::Ceil(*response.retry_after, absl::Seconds(1));
    answer.headers.emplace_back("Retry-After", fmt::format("{}", absl::ToInt64Seconds(whole)));
  }
  return answer;
}

http::Response ToHttp(Answer answer) {
  http::Response made = ToHttp(std::move(answer.response), std::move(answer.content_type));
  for (const std::string& warning : answer.warnings) {
    made.headers.emplace_back("Warning", "299 - " + Quoted(warning));
  }
  return made;
}

http::Response ToHttp(const ApiError& error) {
  return ToHttp(Response{error.code, error.ToJson(), error.retry_after});
}

// What the HTTP server refuses before the API server sees it, as a Status.
http::Response Refusal(int status, std::string text, size_t max_body_bytes) {
  if (status == 413) return ToHttp(TooLarge(fmt::format("limit is {} bytes", max_body_bytes)));
  ApiError error = status < 500 ? BadRequest(std::move(text)) : Internal(text);
  error.code = status;
  return ToHttp(error);
}

// A watch's lines, as many at a time as make a chunk.
class WatchStream : public http::StreamSource {
 public:
  WatchStream(std::unique_ptr<WatchSession> session, std::optional<FaultDecision::Cut> cut,
              size_t chunk_bytes)
      : session_(std::move(session)), cut_(std::move(cut)), chunk_bytes_(chunk_bytes) {}

  void Start(std::function<void()> wake) override { session_->OnReady(std::move(wake)); }

  Piece Next() override {
    Piece piece{.look_again = kWatchTick};
    bool open = true;
    while (open && !IsCut() && piece.data.size() < chunk_bytes_) {
      items_.clear();
      open = session_->Read(kItemsPerWatchRead, &items_);
      if (items_.empty()) break;
      for (const WatchItem& item : items_) {
        if (IsCut()) break;
        item.AppendLine(&piece.data);
        piece.data += '\n';
        ++written_;
      }
    }
    if (IsCut() && cut_->expired) {
      piece.data += ExpiredLine() + "\n";
      piece.end = true;
      return piece;
    }
    piece.cut = IsCut();
    piece.end = !open;
    piece.more = !piece.data.empty();
    return piece;
  }

 private:
  bool IsCut() const { return cut_ && written_ >= cut_->after_items; }

  const std::unique_ptr<WatchSession> session_;
  const std::optional<FaultDecision::Cut> cut_;
  const size_t chunk_bytes_;
  std::vector<WatchItem> items_;
  size_t written_ = 0;
};

}  // namespace

class HttpFront::Impl {
 public:
  Impl(ApiServer* server, HttpFrontOptions options)
      : server_(server),
        options_(std::move(options)),
        webhook_caller_(std::make_shared<HttpsWebhookCaller>()),
        pool_(static_cast<size_t>(options_.webhook_threads)) {}

  ~Impl() {
    webhook_caller_->Stop();
    if (http_ != nullptr) {
      server_->SetWebhookCaller(nullptr);
      http_->Stop(absl::ZeroDuration());
    }
    pool_.stop();
    pool_.join();
  }

  absl::Status Listen() {
    boost::system::error_code error;
    const asio::ip::address address = asio::ip::make_address(options_.address, error);
    if (error || !address.is_loopback()) {
      return absl::InvalidArgumentError("address must be a loopback address, got \"" +
                                        options_.address + "\"");
    }
    host_ = address.is_v6() ? "[" + options_.address + "]" : options_.address;
    http::ServerOptions serving;
    serving.listen = fmt::format("{}:{}", host_, options_.port);
    serving.threads = options_.io_threads;
    serving.max_connections = options_.max_connections;
    serving.when_full = http::ServerOptions::WhenFull::kLetWait;
    serving.header_limit = options_.max_header_bytes;
    serving.body_limit = options_.max_body_bytes;
    serving.header_timeout = serving.body_timeout = options_.read_timeout;
    serving.write_timeout = options_.write_timeout;
    serving.idle_timeout = options_.idle_timeout;
    serving.otherwise = [this](http::Request& request, const http::Responder& responder) {
      OnRequest(request, responder);
    };
    serving.refusal = [limit = options_.max_body_bytes](int status, std::string text) {
      return Refusal(status, std::move(text), limit);
    };
    if (options_.tls) {
      absl::StatusOr<ServerCertificate> made = MakeServerCertificate(
          {options_.address}, {"localhost"}, absl::Now() - absl::Hours(1), absl::Hours(8760));
      if (!made.ok()) return made.status();
      ca_pem_ = std::move(made->ca_pem);
      serving.certificate = {std::move(made->certificate_pem), std::move(made->key_pem)};
    }
    server_->SetWebhookCaller(webhook_caller_);
    absl::StatusOr<std::unique_ptr<http::Server>> started =
        http::Server::Start(std::move(serving), {});
    if (!started.ok()) {
      server_->SetWebhookCaller(nullptr);
      return started.status();
    }
    http_ = *std::move(started);
    return absl::OkStatus();
  }

  uint16_t port() const { return http_->port(); }
  const std::string& ca_pem() const { return ca_pem_; }
  size_t open_connections() const { return http_->connection_counts().open; }
  std::string url() const {
    return fmt::format("{}://{}:{}", options_.tls ? "https" : "http", host_, port());
  }

 private:
  // One request on its way to the API server and back.
  struct Call {
    Request request;
    RequestHeaders headers;
    FaultDecision fault = {};
    bool is_watch = false;
    http::Responder responder;
  };
  using CallPtr = std::shared_ptr<Call>;

  void OnRequest(http::Request& request, const http::Responder& responder) {
    const std::optional<Method> method = MethodNamed(request.method);
    if (!method) {
      ApiError error = BadRequest("unknown method " + request.method);
      error.code = 405;
      error.reason = "MethodNotAllowed";
      return responder.Send(ToHttp(error));
    }
    auto call = std::make_shared<Call>(
        Call{.request = {.method = *method,
                         .path = std::move(request.path),
                         .query = std::move(request.query),
                         .content_type = request.content_type,
                         .body = std::move(request.body)},
             .headers = {std::move(request.accept), std::move(request.user_agent)},
             .responder = responder});
    call->is_watch = ApiServer::IsWatch(call->request);
    if (options_.faults != nullptr) {
      call->fault = options_.faults->Decide(call->request, call->is_watch);
    }
    if (call->fault.answer) return responder.Send(ToHttp(*std::move(call->fault.answer)));
    if (call->fault.refuse) return responder.HangUp();
    if (call->fault.delay <= absl::ZeroDuration()) return Serve(call);
    auto timer =
        std::make_shared<asio::steady_timer>(pool_, absl::ToChronoMilliseconds(call->fault.delay));
    timer->async_wait([this, call, timer](boost::system::error_code error) {
      if (!error) Serve(call);
    });
  }

  void Serve(const CallPtr& call) {
    if (call->is_watch) return OpenWatch(*call);
    if (!server_->MayBlock(call->request)) return Handle(*call);
    if (waiting_for_webhooks_.fetch_add(1) >= options_.max_waiting_for_webhooks) {
      --waiting_for_webhooks_;
      return call->responder.Send(ToHttp(
          TooManyRequests("too many requests wait for admission webhooks", absl::Seconds(1))));
    }
    asio::post(pool_, [this, call] {
      Handle(*call);
      --waiting_for_webhooks_;
    });
  }

  void Handle(const Call& call) {
    Answer answer = server_->Handle(call.request, call.headers);
    if (call.fault.drop_answer) return call.responder.HangUp();
    call.responder.Send(ToHttp(std::move(answer)));
  }

  void OpenWatch(const Call& call) {
    ApiServer::WatchResult result = server_->Watch(call.request, call.headers);
    if (!result.session) return call.responder.Send(ToHttp(std::move(result.refusal)));
    if (call.fault.drop_answer) return call.responder.HangUp();
    call.responder.Stream(std::string(kJson),
                          std::make_unique<WatchStream>(std::move(result.session), call.fault.cut,
                                                        options_.watch_chunk_bytes));
  }

  ApiServer* const server_;
  const HttpFrontOptions options_;
  const std::shared_ptr<HttpsWebhookCaller> webhook_caller_;
  std::string host_;  // as in a URL
  std::string ca_pem_;
  std::atomic<size_t> waiting_for_webhooks_ = 0;
  // For requests that wait, for a webhook or by a fault.
  asio::thread_pool pool_;
  std::unique_ptr<http::Server> http_;
};

absl::StatusOr<std::unique_ptr<HttpFront>> HttpFront::Start(ApiServer* server,
                                                            HttpFrontOptions options) {
  auto impl = std::make_unique<Impl>(server, std::move(options));
  absl::Status status = impl->Listen();
  if (!status.ok()) return status;
  return std::unique_ptr<HttpFront>(new HttpFront(std::move(impl)));
}

HttpFront::HttpFront(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpFront::~HttpFront() = default;

uint16_t HttpFront::port() const { return impl_->port(); }

std::string HttpFront::url() const { return impl_->url(); }

const std::string& HttpFront::ca_pem() const { return impl_->ca_pem(); }

size_t HttpFront::open_connections() const { return impl_->open_connections(); }

// The server asks for no credentials, but kubectl asks its user for some over https if it has none.
std::string HttpFront::Kubeconfig() const {
  std::string authority;
  if (!ca_pem().empty()) {
    absl::Base64Escape(ca_pem(), &authority);
    authority = "\n    certificate-authority-data: " + authority;
  }
  return fmt::format(
      "apiVersion: v1\n"
      "kind: Config\n"
      "current-context: embedded\n"
      "clusters:\n"
      "- name: embedded\n"
      "  cluster:\n"
      "    server: {}{}\n"
      "users:\n"
      "- name: admin\n"
      "  user:\n"
      "    token: anyone\n"
      "contexts:\n"
      "- name: embedded\n"
      "  context:\n"
      "    cluster: embedded\n"
      "    user: admin\n",
      url(), authority);
}

}  // namespace muster::kube::embedded
