#include "extender/grpc_server.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <sys/resource.h>
#include <unistd.h>

#include <functional>
#include <iterator>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "extender/access/guard.h"
#include "extender/access/query_rights.h"
#include "extender/bounded_acceptor.h"
#include "extender/grpc_refusal.h"
#include "extender/grpc_tls.h"
#include "fmt/format.h"
#include "http/listen_address.h"
#include "muster/v1/admission.grpc.pb.h"

namespace muster::extender {
namespace {

constexpr int kMaxThreads = 8;
constexpr size_t kMaxMemory = 64 << 20;
// A client that vanished is noticed within about this time twice over.
constexpr int kKeepaliveMs = 30'000;
// Until a connection has shown that it speaks HTTP/2, and how long one may be without a call.
constexpr int kHandshakeMs = 10'000;
constexpr int kIdleMs = 300'000;
// Calls under way on one connection.
constexpr int kMaxStreams = 100;

// Bytes that `owner` keeps, uncopied.
grpc::Slice Lend(std::string_view bytes, std::shared_ptr<const Published> owner) {
  using Owner = std::shared_ptr<const Published>;
  return grpc::Slice(
      const_cast<char*>(bytes.data()), bytes.size(),
      [](void* kept) { delete static_cast<Owner*>(kept); }, new Owner(std::move(owner)));
}

// The key and length of a field that holds a message of so many bytes.
void AppendFieldHead(int field, size_t bytes, std::string* out) {
  constexpr int kLengthDelimited = 2;
  out->push_back(static_cast<char>(field << 3 | kLengthDelimited));
  for (; bytes >= 0x80; bytes >>= 7) out->push_back(static_cast<char>(bytes | 0x80));
  out->push_back(static_cast<char>(bytes));
}

grpc::ByteBuffer WireOf(const std::shared_ptr<const Published>& message) {
  const grpc::Slice slice = Lend(message->Wire(), message);
  return grpc::ByteBuffer(&slice, 1);
}

// A v1::GangEvent.
grpc::ByteBuffer WireOf(const GangChange& change) {
  v1::GangEvent type;
  type.set_type(change.deleted ? v1::GangEvent::DELETED : v1::GangEvent::UPDATED);
  std::string head = type.SerializeAsString();
  const std::string_view gang = change.gang->Wire();
  AppendFieldHead(v1::GangEvent::kGangFieldNumber, gang.size(), &head);
  v1::GangEvent version;
  version.set_version(change.version);
  const grpc::Slice slices[] = {grpc::Slice(head), Lend(gang, change.gang),
                                grpc::Slice(version.SerializeAsString())};
  return grpc::ByteBuffer(slices, std::size(slices));
}

// A v1::ListGangsResponse.
grpc::ByteBuffer WireOf(const GangPages& found) {
  std::vector<grpc::Slice> slices;
  slices.reserve(2 * found.gangs.size() + 1);  // each in two, and the rest
  for (const SharedGang& each : found.gangs) {
    std::string head;
    AppendFieldHead(v1::ListGangsResponse::kGangsFieldNumber, each->Wire().size(), &head);
    slices.emplace_back(head);
    slices.push_back(Lend(each->Wire(), each));
  }
  v1::ListGangsResponse rest;
  rest.set_continue_from(found.next);
  rest.set_version(found.version);
  slices.emplace_back(rest.SerializeAsString());
  return grpc::ByteBuffer(slices.data(), slices.size());
}

// False if it is no such message.
template <typename Message>
bool Read(const grpc::ByteBuffer& buffer, Message* message) {
  grpc::ByteBuffer copy = buffer;  // of references
  return grpc::SerializationTraits<Message>::Deserialize(&copy, message).ok();
}

const grpc::Status kUnreadable(grpc::StatusCode::INVALID_ARGUMENT, "the request can't be read");

// Runs `next` on one of gRPC's threads.
void Later(std::function<void()> next) {
  const auto holder = std::make_shared<std::unique_ptr<grpc::Alarm>>(new grpc::Alarm());
  (*holder)->Set(gpr_now(GPR_CLOCK_MONOTONIC), [holder, next = std::move(next)](bool) {
    next();
    holder->reset();  // which it holds itself
  });
}

// Asks for every call whether it may be answered.
class Callers {
 public:
  explicit Callers(AccessControl* access) : access_(access) {}

  // `done` gets the answer, inline or on one of gRPC's threads.
  void Ask(const grpc::CallbackServerContext& context, Wanted wanted,
           AccessControl::Done done) const {
    if (access_ == nullptr) return done(absl::OkStatus());
    access_->Check(TokenIn(context), AddressIn(context.peer()), std::move(wanted),
                   [done = std::move(done),
                    asked_on = std::this_thread::get_id()](const absl::Status& answer) {
                     if (std::this_thread::get_id() == asked_on) return done(answer);
                     Later([done, answer] { done(answer); });
                   });
  }
  const AccessControl* access() const { return access_; }

 private:
  static std::string_view TokenIn(const grpc::CallbackServerContext& context) {
    const auto& metadata = context.client_metadata();
    const auto at = metadata.find("authorization");
    if (at == metadata.end()) return "";
    return {at->second.data(), at->second.size()};
  }
  // Of "ipv4:10.0.0.7:41234".
  static std::string AddressIn(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

  AccessControl* const access_;
};

// One WatchGangs call. gRPC owns it from its return on: OnDone ends it.
class GangWatch : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  GangWatch() : link_(std::make_shared<Link>()) { link_->watch = this; }

  // What the call gets, once it is known: gangs, until then at most, or its end. To be called once,
  // from any thread, though the call may have ended.
  using Begin = std::function<void(StateStore* store, const v1::WatchGangsRequest& request,
                                   absl::Time until)>;
  Begin Beginning() {
    return
        [link = link_](StateStore* store, const v1::WatchGangsRequest& request, absl::Time until) {
          const std::lock_guard lock(link->mutex);
          if (link->watch != nullptr) link->watch->Watch(store, request, until);
        };
  }
  std::function<void(const grpc::Status&)> Refusing() {
    return [link = link_](const grpc::Status& status) {
      const std::lock_guard lock(link->mutex);
      if (link->watch != nullptr) link->watch->End(status);
    };
  }

  void OnWriteDone(bool ok) override {
    const std::shared_ptr<Link> link = link_;
    std::lock_guard lock(link->mutex);
    writing_ = false;
    if (!ok || cancelled_) return End(grpc::Status::CANCELLED);
    Pump();
  }

  void OnCancel() override {
    const std::shared_ptr<Link> link = link_;
    std::lock_guard lock(link->mutex);
    cancelled_ = true;
    if (!writing_) End(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    const std::shared_ptr<Link> link = link_;
    std::lock_guard lock(link->mutex);
    link->watch = nullptr;
    delete this;
  }

 private:
  // Outlives the watch, for a wake-up that comes late.
  struct Link {
    std::recursive_mutex mutex;
    GangWatch* watch = nullptr;
  };

  void Watch(StateStore* store, const v1::WatchGangsRequest& request, absl::Time until) {
    if (ended_) return;
    until_ = until;
    const std::optional<uint64_t> since =
        request.since() == 0 ? std::nullopt : std::optional(request.since());
    auto subscription = store->WatchGangs(
        {request.namespace_(), request.name()},
        [link = link_] {
          const std::lock_guard lock(link->mutex);
          if (link->watch != nullptr) link->watch->Pump();
        },
        since);
    if (!subscription.ok()) {
      // Codes of Abseil are gRPC's.
      return End(grpc::Status(static_cast<grpc::StatusCode>(subscription.status().code()),
                              std::string(subscription.status().message())));
    }
    subscription_ = *std::move(subscription);
    Pump();
  }

  // One event is on the wire at a time, the newest version of its gang at that moment. Under the
  // link's lock, which is recursive because gRPC may call OnWriteDone from within StartWrite, and
  // OnDone, which ends this object, from within Finish: nothing is touched after either.
  void Pump() {
    if (writing_ || ended_ || !subscription_) return;
    if (subscription_->lost()) {
      return End(grpc::Status(grpc::StatusCode::DATA_LOSS,
                              "what was sent may be out of date; watch again"));
    }
    if (absl::Now() >= until_) {
      return End(grpc::Status(grpc::StatusCode::UNAVAILABLE,
                              "whether the caller may still watch isn't known; watch again"));
    }
    std::optional<GangChange> change = subscription_->Next();
    if (!change) return;
    event_ = WireOf(*change);
    writing_ = true;
    StartWrite(&event_);
  }

  void End(const grpc::Status& status) {
    if (std::exchange(ended_, true)) return;
    Finish(status);
  }

  const std::shared_ptr<Link> link_;
  std::unique_ptr<GangSubscription> subscription_;
  absl::Time until_ = absl::InfiniteFuture();
  grpc::ByteBuffer event_;
  bool writing_ = false;
  bool cancelled_ = false;
  bool ended_ = false;
};

using A = v1::Admission;
// What goes out is bytes that were made before.
using RawService = A::WithRawCallbackMethod_ListGangs<A::WithRawCallbackMethod_GetGang<
    A::WithRawCallbackMethod_WatchGangs<A::WithRawCallbackMethod_ListNodes<
        A::WithCallbackMethod_GetNode<A::WithRawCallbackMethod_ListQueues<
            A::WithCallbackMethod_GetQueue<A::WithRawCallbackMethod_ListFlavors<A::Service>>>>>>>>;

class AdmissionService final : public RawService {
 public:
  AdmissionService(StateStore* store, const GrpcServerOptions& options)
      : store_(store), callers_(options.access), watch_life_(options.watch_life) {}

  grpc::ServerUnaryReactor* ListGangs(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* bytes,
                                      grpc::ByteBuffer* response) override {
    v1::ListGangsRequest request;
    if (!Read(*bytes, &request)) return Answer(context, kUnreadable);
    const std::string name_space = request.namespace_();
    const GangPage page = {request.limit(), request.continue_from()};
    if (const absl::Status status = Check(page); !status.ok()) {
      return Answer(
          context, grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, std::string(status.message())));
    }
    return AnswerIfAllowed(context, ToListGangs(name_space), [this, name_space, page, response] {
      *response = WireOf(store_->GangsOn({name_space, ""}, page));
      return grpc::Status::OK;
    });
  }

  grpc::ServerUnaryReactor* GetGang(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* bytes,
                                    grpc::ByteBuffer* response) override {
    v1::GetGangRequest request;
    if (!Read(*bytes, &request)) return Answer(context, kUnreadable);
    if (request.namespace_().empty() || request.name().empty()) {
      return Answer(context,
                    grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                 request.name().empty() ? "name: empty" : "namespace: empty"));
    }
    return AnswerIfAllowed(
        context, ToGetGang(request.namespace_(), request.name()), [this, request, response] {
          const SharedGang gang = store_->FindGang(request.namespace_(), request.name());
          if (!gang) {
            return grpc::Status(
                grpc::StatusCode::NOT_FOUND,
                fmt::format("there is no gang {}/{}", request.namespace_(), request.name()));
          }
          *response = WireOf(gang);
          return grpc::Status::OK;
        });
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchGangs(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* bytes) override {
    auto* watch = new GangWatch();
    v1::WatchGangsRequest request;
    if (!Read(*bytes, &request)) {
      watch->Refusing()(kUnreadable);
      return watch;
    }
    callers_.Ask(*context, ToWatchGangs(request.namespace_(), request.name()),
                 [this, request, begin = watch->Beginning(),
                  refuse = watch->Refusing()](const absl::Status& answer) {
                   if (!answer.ok()) return refuse(GrpcRefusal(answer));
                   begin(store_, request, WatchedUntil(callers_.access(), watch_life_));
                 });
    return watch;
  }

  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context, const grpc::ByteBuffer*,
                                      grpc::ByteBuffer* response) override {
    return AnswerList(context, Listed::kNodes, response);
  }

  grpc::ServerUnaryReactor* GetNode(grpc::CallbackServerContext* context,
                                    const v1::GetNodeRequest* request,
                                    v1::Node* response) override {
    return AnswerIfAllowed(context, ToListGangs(), [this, name = request->name(), response] {
      std::optional<v1::Node> node = FindNode(*store_, name);
      if (!node) return grpc::Status(grpc::StatusCode::NOT_FOUND, "there is no node " + name);
      *response = *std::move(node);
      return grpc::Status::OK;
    });
  }

  grpc::ServerUnaryReactor* ListQueues(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer*,
                                       grpc::ByteBuffer* response) override {
    return AnswerList(context, Listed::kQueues, response);
  }

  grpc::ServerUnaryReactor* GetQueue(grpc::CallbackServerContext* context,
                                     const v1::GetQueueRequest* request,
                                     v1::Queue* response) override {
    return AnswerIfAllowed(
        context, ToListGangs(request->namespace_()), [this, request = *request, response] {
          std::optional<v1::Queue> queue = FindQueue(*store_, request.namespace_(), request.name());
          if (!queue) {
            return grpc::Status(
                grpc::StatusCode::NOT_FOUND,
                fmt::format("there is no queue {}{}{}", request.namespace_(),
                            request.namespace_().empty() ? "" : "/", request.name()));
          }
          *response = *std::move(queue);
          return grpc::Status::OK;
        });
  }

  grpc::ServerUnaryReactor* ListFlavors(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer*,
                                        grpc::ByteBuffer* response) override {
    return AnswerList(context, Listed::kFlavors, response);
  }

 private:
  grpc::ServerUnaryReactor* AnswerList(grpc::CallbackServerContext* context, Listed kind,
                                       grpc::ByteBuffer* response) const {
    return AnswerIfAllowed(context, ToListGangs(), [this, kind, response] {
      *response = WireOf(store_->List(kind));
      return grpc::Status::OK;
    });
  }

  // By `answer`, once whoever calls may have what is `wanted`, and while the store is readable.
  grpc::ServerUnaryReactor* AnswerIfAllowed(grpc::CallbackServerContext* context, Wanted wanted,
                                            std::function<grpc::Status()> answer) const {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    callers_.Ask(*context, std::move(wanted),
                 [this, reactor, answer = std::move(answer)](const absl::Status& allowed) {
                   if (!allowed.ok()) return reactor->Finish(GrpcRefusal(allowed));
                   const absl::Status readable = store_->Readable();
                   reactor->Finish(readable.ok() ? answer()
                                                 : grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                                                std::string(readable.message())));
                 });
    return reactor;
  }

  static grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                          const grpc::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  StateStore* const store_;
  const Callers callers_;
  const absl::Duration watch_life_;
};

}  // namespace

class GrpcServer::Impl {
 public:
  Impl(GrpcServerOptions options, StateStore* store)
      : options_(std::move(options)), service_(store, options_) {
    if (options_.certificate) {
      certificate_ = std::make_shared<GrpcCertificate>(*options_.certificate);
      credentials_ = GrpcTls(certificate_);
    } else {
      credentials_ = grpc::InsecureServerCredentials();
    }
  }

  absl::Status Start() {
    const absl::StatusOr<http::ListenAddress> address = http::ParseListenAddress(options_.listen);
    if (!address.ok()) return address.status();
    if (absl::Status status = acceptor_.Listen(*address); !status.ok()) return status;
    // gRPC's threads, and those that they make, are as nice as the one that makes the first.
    std::thread([this] {
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), options_.niceness);
      Build();
      acceptor_.Start(options_.max_connections, [this](int connection) { Take(connection); });
    }).join();
    return server_ ? absl::OkStatus() : absl::InternalError("gRPC doesn't start");
  }

  void SetCertificate(http::Certificate certificate) { certificate_->Set(std::move(certificate)); }

  uint16_t port() const { return acceptor_.port(); }
  http::Server::ConnectionCounts connection_counts() const { return acceptor_.counts(); }

  void SetServing(bool serving) {
    grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
    for (const char* service : {"", A::service_full_name()}) {
      health->SetServingStatus(service, serving);
    }
  }

  void Stop(absl::Duration grace) {
    acceptor_.Stop();
    if (!server_) return;
    server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
    server_->Wait();
    server_.reset();
  }

 private:
  using Builder = grpc::ServerBuilder::experimental_type;

  void Build() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    connections_ = builder.experimental().AddExternalConnectionAcceptor(
        Builder::ExternalConnectionType::FROM_FD, credentials_);
    builder.RegisterService(&service_);
    grpc::ResourceQuota quota("muster");
    quota.SetMaxThreads(kMaxThreads);
    quota.Resize(kMaxMemory);
    builder.SetResourceQuota(quota);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
    server_ = builder.BuildAndStart();
  }

  // On the acceptor's thread; gRPC owns the connection from here on.
  void Take(int connection) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters taken;
    taken.fd = connection;
    connections_->HandleNewConnection(&taken);
  }

  const GrpcServerOptions options_;
  AdmissionService service_;
  BoundedAcceptor acceptor_;
  std::shared_ptr<GrpcCertificate> certificate_;  // null: none
  // The server asks them until it has ended.
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<grpc::Server> server_;
};

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(GrpcServerOptions options,
                                                              StateStore* store) {
  auto impl = std::make_unique<Impl>(std::move(options), store);
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() { Stop(absl::ZeroDuration()); }
void GrpcServer::SetCertificate(http::Certificate certificate) {
  impl_->SetCertificate(std::move(certificate));
}
void GrpcServer::SetServing(bool serving) { impl_->SetServing(serving); }
uint16_t GrpcServer::port() const { return impl_->port(); }
http::Server::ConnectionCounts GrpcServer::connection_counts() const {
  return impl_->connection_counts();
}
void GrpcServer::Stop(absl::Duration grace) { impl_->Stop(grace); }

}  // namespace muster::extender
