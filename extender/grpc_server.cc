#include "extender/grpc_server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "fmt/format.h"
#include "http/listen_address.h"
#include "muster/v1/admission.grpc.pb.h"

namespace muster::extender {
namespace {

constexpr int kMaxThreads = 8;
constexpr size_t kMaxMemory = 64 << 20;
// A client that vanished is noticed within about this time twice over.
constexpr int kKeepaliveMs = 30'000;

// One WatchGangs call. gRPC owns it from its return on: OnDone ends it.
class GangWatch : public grpc::ServerWriteReactor<v1::GangEvent> {
 public:
  GangWatch(StateStore* store, GangFilter filter) : link_(std::make_shared<Link>()) {
    link_->watch = this;
    auto subscription = store->WatchGangs(std::move(filter), [link = link_] {
      std::lock_guard lock(link->mutex);
      if (link->watch != nullptr) link->watch->Pump();
    });
    std::lock_guard lock(link_->mutex);
    if (!subscription.ok()) {
      // Codes of Abseil are gRPC's.
      End(grpc::Status(static_cast<grpc::StatusCode>(subscription.status().code()),
                       std::string(subscription.status().message())));
      return;
    }
    subscription_ = *std::move(subscription);
    Pump();
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

  // One event is on the wire at a time, the newest version of its gang at that moment. Under the
  // link's lock, which is recursive because gRPC may call OnWriteDone from within StartWrite, and
  // OnDone, which ends this object, from within Finish: nothing is touched after either.
  void Pump() {
    if (writing_ || ended_ || !subscription_) return;
    if (subscription_->lost()) {
      return End(grpc::Status(grpc::StatusCode::DATA_LOSS,
                              "what was sent may be out of date; watch again"));
    }
    std::optional<GangChange> change = subscription_->Next();
    if (!change) return;
    event_.set_type(change->deleted ? v1::GangEvent::DELETED : v1::GangEvent::UPDATED);
    *event_.mutable_gang() = *change->gang;
    writing_ = true;
    StartWrite(&event_);
  }

  void End(const grpc::Status& status) {
    if (std::exchange(ended_, true)) return;
    Finish(status);
  }

  const std::shared_ptr<Link> link_;
  std::unique_ptr<GangSubscription> subscription_;
  v1::GangEvent event_;
  bool writing_ = false;
  bool cancelled_ = false;
  bool ended_ = false;
};

class AdmissionService final : public v1::Admission::CallbackService {
 public:
  explicit AdmissionService(StateStore* store) : store_(store) {}

  grpc::ServerUnaryReactor* ListGangs(grpc::CallbackServerContext* context,
                                      const v1::ListGangsRequest* request,
                                      v1::ListGangsResponse* response) override {
    if (auto readable = store_->Readable(); !readable.ok()) return Refuse(context, readable);
    for (const GangMessage& gang : store_->Gangs({request->namespace_(), ""})) {
      *response->add_gangs() = *gang;
    }
    return Answer(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* GetGang(grpc::CallbackServerContext* context,
                                    const v1::GetGangRequest* request,
                                    v1::Gang* response) override {
    if (request->namespace_().empty() || request->name().empty()) {
      return Answer(context,
                    grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                 request->name().empty() ? "name: empty" : "namespace: empty"));
    }
    if (auto readable = store_->Readable(); !readable.ok()) return Refuse(context, readable);
    const GangMessage gang = store_->FindGang(request->namespace_(), request->name());
    if (!gang) {
      return Answer(context, grpc::Status(grpc::StatusCode::NOT_FOUND,
                                          fmt::format("there is no gang {}/{}",
                                                      request->namespace_(), request->name())));
    }
    *response = *gang;
    return Answer(context, grpc::Status::OK);
  }

  grpc::ServerWriteReactor<v1::GangEvent>* WatchGangs(
      grpc::CallbackServerContext*, const v1::WatchGangsRequest* request) override {
    return new GangWatch(store_, {request->namespace_(), request->name()});
  }

  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context,
                                      const v1::ListNodesRequest*,
                                      v1::ListNodesResponse* response) override {
    if (auto readable = store_->Readable(); !readable.ok()) return Refuse(context, readable);
    response->CopyFrom(store_->List(Listed::kNodes)->message());
    return Answer(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* ListQueues(grpc::CallbackServerContext* context,
                                       const v1::ListQueuesRequest*,
                                       v1::ListQueuesResponse* response) override {
    if (auto readable = store_->Readable(); !readable.ok()) return Refuse(context, readable);
    response->CopyFrom(store_->List(Listed::kQueues)->message());
    return Answer(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* GetQueue(grpc::CallbackServerContext* context,
                                     const v1::GetQueueRequest* request,
                                     v1::Queue* response) override {
    if (auto readable = store_->Readable(); !readable.ok()) return Refuse(context, readable);
    std::optional<v1::Queue> queue = FindQueue(*store_, request->namespace_(), request->name());
    if (!queue) {
      return Answer(
          context,
          grpc::Status(grpc::StatusCode::NOT_FOUND,
                       fmt::format("there is no queue {}{}{}", request->namespace_(),
                                   request->namespace_().empty() ? "" : "/", request->name())));
    }
    *response = *std::move(queue);
    return Answer(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* ListFlavors(grpc::CallbackServerContext* context,
                                        const v1::ListFlavorsRequest*,
                                        v1::ListFlavorsResponse* response) override {
    if (auto readable = store_->Readable(); !readable.ok()) return Refuse(context, readable);
    response->CopyFrom(store_->List(Listed::kFlavors)->message());
    return Answer(context, grpc::Status::OK);
  }

 private:
  static grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context,
                                          const absl::Status& why) {
    return Answer(context, grpc::Status(grpc::StatusCode::UNAVAILABLE, std::string(why.message())));
  }

  static grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                          const grpc::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  StateStore* const store_;
};

}  // namespace

class GrpcServer::Impl {
 public:
  explicit Impl(StateStore* store) : service_(store) {}

  absl::Status Start(const std::string& listen) {
    const absl::StatusOr<http::ListenAddress> address = http::ParseListenAddress(listen);
    if (!address.ok()) return address.status();
    const bool ipv6 = address->host.find(':') != std::string::npos;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(
        fmt::format("{}:{}", ipv6 ? fmt::format("[{}]", address->host) : address->host,
                    address->port),
        grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    grpc::ResourceQuota quota("muster");
    quota.SetMaxThreads(kMaxThreads);
    quota.Resize(kMaxMemory);
    builder.SetResourceQuota(quota);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
    // Two processes on one port would each get some of the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    server_ = builder.BuildAndStart();
    if (!server_ || port_ == 0) {
      return absl::UnavailableError(fmt::format("listen at {} for gRPC: in use", listen));
    }
    return absl::OkStatus();
  }

  uint16_t port() const { return static_cast<uint16_t>(port_); }

  void Stop(absl::Duration grace) {
    if (!server_) return;
    server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
    server_->Wait();
    server_.reset();
  }

 private:
  AdmissionService service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const std::string& listen,
                                                              StateStore* store) {
  auto impl = std::make_unique<Impl>(store);
  if (absl::Status status = impl->Start(listen); !status.ok()) return status;
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() { Stop(absl::ZeroDuration()); }
uint16_t GrpcServer::port() const { return impl_->port(); }
void GrpcServer::Stop(absl::Duration grace) { impl_->Stop(grace); }

}  // namespace muster::extender
