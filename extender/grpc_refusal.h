// Refusals as gRPC says them: with details for programs.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace muster::extender {

// The same code and message. Details, in grpc-status-details-bin: a google.rpc.ErrorInfo with a
// reason (UNAUTHENTICATED, FORBIDDEN, ...) of domain muster.dev and, where to try again helps, a
// google.rpc.RetryInfo.
grpc::Status GrpcRefusal(const absl::Status& refusal);

}  // namespace muster::extender
