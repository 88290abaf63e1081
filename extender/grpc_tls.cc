#include "extender/grpc_tls.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <string>
#include <utility>

namespace muster::extender {
namespace {

// gRPC asks before each handshake.
struct Source {
  std::shared_ptr<const GrpcCertificate> served;
  int given = 0;
};

grpc_ssl_certificate_config_reload_status Fetch(void* data,
                                                grpc_ssl_server_certificate_config** config) {
  auto* source = static_cast<Source*>(data);
  const GrpcCertificate::Served now = source->served->Get();
  if (now.version == source->given) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair{now.certificate.key.c_str(), now.certificate.chain.c_str()};
  // Authorities of clients, whose certificates aren't asked for: there have to be some.
  const char* const authorities = pair.cert_chain;
  *config = grpc_ssl_server_certificate_config_create(authorities, &pair, 1);
  if (*config == nullptr) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
  source->given = now.version;
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

// gRPC's C++ has no credentials that ask for certificates again; those of its C do.
class ReloadingTls : public grpc::ServerCredentials {
 public:
  explicit ReloadingTls(std::shared_ptr<const GrpcCertificate> served)
      : source_{std::move(served)},
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE, Fetch, &source_))) {}
  ~ReloadingTls() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  Source source_;
  grpc_server_credentials* const credentials_;
};

}  // namespace

void GrpcCertificate::Set(http::Certificate certificate) {
  const std::lock_guard lock(mutex_);
  certificate_ = std::move(certificate);
  ++version_;
}

GrpcCertificate::Served GrpcCertificate::Get() const {
  const std::lock_guard lock(mutex_);
  return {certificate_, version_};
}

std::shared_ptr<grpc::ServerCredentials> GrpcTls(std::shared_ptr<const GrpcCertificate> served) {
  return std::make_shared<ReloadingTls>(std::move(served));
}

}  // namespace muster::extender
