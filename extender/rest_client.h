// The admission API as a command-line client: GET over HTTP, JSON to messages.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "muster/v1/admission.pb.h"

namespace muster::extender {

class RestClient {
 public:
  // `server` is "http://127.0.0.1:8080"; with or without the scheme. `token` is the caller's, if
  // the service asks for one.
  explicit RestClient(std::string server, std::string token = "");

  // NotFound with the service's own words; Unauthenticated and PermissionDenied likewise;
  // Unavailable naming the address if it can't be reached.
  absl::StatusOr<v1::Gang> GetGang(const std::string& name_space, const std::string& name) const;
  // Of all namespaces if `name_space` is empty.
  absl::StatusOr<v1::ListGangsResponse> ListGangs(const std::string& name_space) const;
  absl::StatusOr<v1::ListNodesResponse> ListNodes() const;
  absl::StatusOr<v1::ListQueuesResponse> ListQueues() const;
  // The body as it came.
  absl::StatusOr<std::string> Get(const std::string& path) const;

 private:
  std::string server_;
  std::string token_;
};

}  // namespace muster::extender
