#include "extender/access/reviews.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "fmt/format.h"

namespace muster::extender {
namespace {

using nlohmann::json;

// Somebody waits for it.
constexpr absl::Duration kTimeout = absl::Seconds(5);

kube::Request Post(const char* path, const json& body) {
  // Replaced where it is no UTF-8: nobody is called so, and nobody may do it.
  return {.method = kube::Method::kPost,
          .path = path,
          .content_type = std::string(kube::kJson),
          .body = body.dump(-1, ' ', false, json::error_handler_t::replace),
          .timeout = kTimeout};
}

absl::Status NotAnswered(std::string_view what, std::string_view why) {
  return absl::UnavailableError(fmt::format("the API server didn't say {}: {}", what, why));
}

// The status of a review that was answered; not OK if it wasn't.
absl::StatusOr<json> StatusOf(const absl::StatusOr<kube::Response>& answer, std::string_view what) {
  if (!answer.ok()) return NotAnswered(what, std::string(answer.status().message()));
  if (!answer->ok()) return NotAnswered(what, std::string(kube::ToStatus(*answer).message()));
  json review = json::parse(answer->body, nullptr, false);
  if (!review.is_object() || !review.contains("status") || !review["status"].is_object()) {
    return NotAnswered(what, "its answer has no status");
  }
  return std::move(review["status"]);
}

std::string Text(const json& object, const char* field) {
  const auto at = object.find(field);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

bool IsTrue(const json& object, const char* field) {
  const auto at = object.find(field);
  return at != object.end() && at->is_boolean() && at->get<bool>();
}

std::vector<std::string> Texts(const json& object, const char* field) {
  std::vector<std::string> texts;
  const auto at = object.find(field);
  if (at == object.end() || !at->is_array()) return texts;
  for (const json& each : *at) {
    if (each.is_string()) texts.push_back(each.get<std::string>());
  }
  return texts;
}

// An API server that knows nothing of audiences names none, and vouches for its own alone.
bool IsForUs(const std::vector<std::string>& named, const std::vector<std::string>& audiences) {
  if (audiences.empty()) return true;
  return std::any_of(named.begin(), named.end(), [&audiences](const std::string& each) {
    return std::find(audiences.begin(), audiences.end(), each) != audiences.end();
  });
}

std::string Sentence(const Caller& caller, const Wanted& wanted) {
  std::string what = wanted.resource;
  if (!wanted.name.empty()) what += fmt::format(" \"{}\"", wanted.name);
  const std::string where = wanted.name_space.empty()
                                ? "in all namespaces"
                                : fmt::format("in the namespace \"{}\"", wanted.name_space);
  return fmt::format("User \"{}\" cannot {} {} in API group \"{}\" {}", caller.user, wanted.verb,
                     what, wanted.group, where);
}

}  // namespace

kube::Request TokenReviewOf(const std::string& token, const std::vector<std::string>& audiences) {
  json spec = {{"token", token}};
  if (!audiences.empty()) spec["audiences"] = audiences;
  return Post("/apis/authentication.k8s.io/v1/tokenreviews",
              {{"apiVersion", "authentication.k8s.io/v1"},
               {"kind", "TokenReview"},
               {"spec", std::move(spec)}});
}

absl::StatusOr<Caller> ReadTokenReview(const absl::StatusOr<kube::Response>& answer,
                                       const std::vector<std::string>& audiences) {
  const absl::StatusOr<json> status = StatusOf(answer, "whose the token is");
  if (!status.ok()) return status.status();
  const auto user = status->find("user");
  if (!IsTrue(*status, "authenticated") || user == status->end() || !user->is_object()) {
    return absl::UnauthenticatedError("the API server doesn't accept the token");
  }
  if (!IsForUs(Texts(*status, "audiences"), audiences)) {
    return absl::UnauthenticatedError("the token is for another audience");
  }
  Caller caller;
  caller.user = Text(*user, "username");
  caller.uid = Text(*user, "uid");
  caller.groups = Texts(*user, "groups");
  if (const auto extra = user->find("extra"); extra != user->end() && extra->is_object()) {
    for (const auto& [key, values] : extra->items()) {
      caller.extra[key] = Texts(*extra, key.c_str());
    }
  }
  if (caller.user.empty()) return absl::UnauthenticatedError("the token is of a user without name");
  return caller;
}

kube::Request AccessReviewOf(const Caller& caller, const Wanted& wanted) {
  json attributes = {{"verb", wanted.verb}, {"group", wanted.group}, {"resource", wanted.resource}};
  if (!wanted.name_space.empty()) attributes["namespace"] = wanted.name_space;
  if (!wanted.name.empty()) attributes["name"] = wanted.name;
  json spec = {{"user", caller.user},
               {"groups", caller.groups},
               {"resourceAttributes", std::move(attributes)}};
  if (!caller.uid.empty()) spec["uid"] = caller.uid;
  if (!caller.extra.empty()) spec["extra"] = caller.extra;
  return Post("/apis/authorization.k8s.io/v1/subjectaccessreviews",
              {{"apiVersion", "authorization.k8s.io/v1"},
               {"kind", "SubjectAccessReview"},
               {"spec", std::move(spec)}});
}

absl::Status ReadAccessReview(const absl::StatusOr<kube::Response>& answer, const Caller& caller,
                              const Wanted& wanted) {
  const absl::StatusOr<json> status = StatusOf(answer, "who may do that");
  if (!status.ok()) return status.status();
  if (IsTrue(*status, "allowed") && !IsTrue(*status, "denied")) return absl::OkStatus();
  return absl::PermissionDeniedError(Sentence(caller, wanted));
}

}  // namespace muster::extender
