// The two questions that an API server answers for others: whose is this token, and may he do this?
//
// TokenReview (authentication.k8s.io/v1) and SubjectAccessReview (authorization.k8s.io/v1), as
// requests and as answers; nothing is sent or kept here.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kube/api.h"

namespace muster::extender {

// Somebody whom the API server knows.
struct Caller {
  std::string user = {};
  std::string uid = {};
  std::vector<std::string> groups = {};
  std::map<std::string, std::vector<std::string>> extra = {};
};

// What he wants to do with a resource. Without a namespace: in all of them; without a name: with
// whichever there are.
struct Wanted {
  std::string verb;
  std::string group;
  std::string resource;
  std::string name_space = {};
  std::string name = {};
};

// Whether `token` is somebody's who was given it for one of `audiences`; none: for the API server
// itself.
kube::Request TokenReviewOf(const std::string& token, const std::vector<std::string>& audiences);
// Unauthenticated if it is nobody's, or for others; Unavailable if that wasn't answered.
absl::StatusOr<Caller> ReadTokenReview(const absl::StatusOr<kube::Response>& answer,
                                       const std::vector<std::string>& audiences);

kube::Request AccessReviewOf(const Caller& caller, const Wanted& wanted);
// OK if he may. PermissionDenied, in the API server's usual words, if not; Unavailable if that
// wasn't answered.
absl::Status ReadAccessReview(const absl::StatusOr<kube::Response>& answer, const Caller& caller,
                              const Wanted& wanted);

}  // namespace muster::extender
