#include "kube/embedded/api_server.h"

#include "kube/embedded/server_impl.h"

namespace muster::kube::embedded {

ApiServer::ApiServer(ApiServerOptions options)
    : impl_(std::make_unique<ServerImpl>(std::move(options))) {}

ApiServer::~ApiServer() = default;

Response ApiServer::Handle(const Request& request) { return Handle(request, {}).response; }

Answer ApiServer::Handle(const Request& request, const RequestHeaders& headers) {
  return impl_->Handle(request, headers);
}

bool ApiServer::IsWatch(const Request& request) {
  if (request.method != Method::kGet) return false;
  for (const auto& [key, value] : request.query) {
    if (key == "watch") return value == "1" || value == "true";
  }
  return false;
}

ApiServer::WatchResult ApiServer::Watch(const Request& request, const RequestHeaders& headers) {
  return impl_->Watch(request, headers);
}

bool ApiServer::MayBlock(const Request& request) const { return impl_->MayBlock(request); }

void ApiServer::SetWebhookCaller(std::shared_ptr<WebhookCaller> caller) {
  impl_->SetWebhookCaller(std::move(caller));
}

void ApiServer::SetAccounts(std::vector<Account> accounts) {
  impl_->SetAccounts(std::move(accounts));
}

void ApiServer::CompactHistory() { impl_->CompactHistory(); }

uint64_t ApiServer::revision() const { return impl_->revision(); }

absl::Time ApiServer::now() const { return impl_->now(); }

const ApiServerOptions& ApiServer::options() const { return impl_->options(); }

}  // namespace muster::kube::embedded
