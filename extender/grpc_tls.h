// TLS for a gRPC server whose certificate is renewed while it runs: connections that are open keep
// the one that they began with.
#pragma once

#include <memory>
#include <mutex>

#include "grpcpp/security/server_credentials.h"
#include "http/server.h"

namespace muster::extender {

// What is served now. Thread-safe.
class GrpcCertificate {
 public:
  explicit GrpcCertificate(http::Certificate certificate) : certificate_(std::move(certificate)) {}

  void Set(http::Certificate certificate);
  struct Served {
    http::Certificate certificate;
    int version;
  };
  Served Get() const;

 private:
  mutable std::mutex mutex_;
  http::Certificate certificate_;
  int version_ = 1;
};

// Of TLS 1.2 and later, without client certificates.
std::shared_ptr<grpc::ServerCredentials> GrpcTls(std::shared_ptr<const GrpcCertificate> served);

}  // namespace muster::extender
