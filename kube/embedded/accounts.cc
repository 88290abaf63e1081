#include "kube/embedded/accounts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/embedded/json_fields.h"
#include "kube/embedded/server_impl.h"

namespace muster::kube::embedded {
namespace {

constexpr const char* kTokenReviews = "/apis/authentication.k8s.io/v1/tokenreviews";
constexpr const char* kAccessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

// Of the server itself: what a token is for if nothing else is asked.
const std::vector<std::string> kOwnAudience = {"https://kubernetes.default.svc"};

std::vector<std::string> Common(const std::vector<std::string>& some,
                                const std::vector<std::string>& others) {
  std::vector<std::string> common;
  for (const std::string& each : some) {
    if (std::find(others.begin(), others.end(), each) != others.end()) common.push_back(each);
  }
  return common;
}

Json TokenStatus(const Json& spec, const std::vector<Account>& accounts) {
  std::vector<std::string> wanted = kOwnAudience;
  if (const auto given = spec.find("audiences"); given != spec.end() && !given->empty()) {
    wanted = given->get<std::vector<std::string>>();
  }
  for (const Account& account : accounts) {
    if (account.token.empty() || account.token != StringAt(spec, {"token"})) continue;
    const std::vector<std::string> audiences =
        Common(wanted, account.audiences.empty() ? kOwnAudience : account.audiences);
    if (audiences.empty()) break;
    return {{"authenticated", true},
            {"user", {{"username", account.user}, {"groups", account.groups}}},
            {"audiences", audiences}};
  }
  return {{"user", Json::object()}, {"error", "invalid bearer token"}};
}

bool Covers(const Grant& grant, const Json& wanted) {
  const auto is = [&wanted](const std::string& mine, const char* field) {
    return mine == "*" || mine == StringAt(wanted, {field});
  };
  return is(grant.verb, "verb") && is(grant.group, "group") && is(grant.resource, "resource") &&
         is(grant.name_space, "namespace");
}

Json AccessStatus(const Json& spec, const std::vector<Account>& accounts) {
  const auto wanted = spec.find("resourceAttributes");
  for (const Account& account : accounts) {
    if (account.user != StringAt(spec, {"user"}) || wanted == spec.end()) continue;
    for (const Grant& grant : account.may) {
      if (Covers(grant, *wanted)) return {{"allowed", true}};
    }
  }
  return {{"allowed", false}};
}

}  // namespace

std::optional<ApiResult<Answer>> AnswerReview(const Request& request,
                                              const std::vector<Account>& accounts) {
  const bool of_token = request.path == kTokenReviews;
  if (!of_token && request.path != kAccessReviews) return std::nullopt;
  if (request.method != Method::kPost) return MethodNotAllowed();
  ApiResult<Json> review = ParseJson(request.body);
  if (!review.ok()) return review.error();
  const auto spec = review->find("spec");
  if (!review->is_object() || spec == review->end() || !spec->is_object()) {
    return BadRequest("the review has no spec");
  }
  (*review)["status"] = of_token ? TokenStatus(*spec, accounts) : AccessStatus(*spec, accounts);
  Answer answer;
  answer.response = {201, review->dump(), std::nullopt};
  return answer;
}

}  // namespace muster::kube::embedded
