// Who there is, for clients that ask who somebody is and what he may do: TokenReview and
// SubjectAccessReview, which are answered and kept nowhere. What requests themselves may do doesn't
// depend on it: everything.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kube/embedded/api_error.h"
#include "kube/embedded/api_server.h"

namespace muster::kube::embedded {

// The answer to a review; nothing if the request is none.
std::optional<ApiResult<Answer>> AnswerReview(const Request& request,
                                              const std::vector<Account>& accounts);

}  // namespace muster::kube::embedded
