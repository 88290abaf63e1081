#include "extender/access/reviews.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace muster::extender {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kOurs = {"muster.dev"};

kube::Response Review(const json& status) {
  return {201, json{{"kind", "Review"}, {"status", status}}.dump(), std::nullopt};
}

json Anna(const json& more = json::object()) {
  json status = {{"authenticated", true},
                 {"audiences", {"muster.dev"}},
                 {"user",
                  {{"username", "anna"},
                   {"uid", "7"},
                   {"groups", {"team", "system:authenticated"}},
                   {"extra", {{"example.org/scope", {"a", "b"}}}}}}};
  status.update(more);
  return status;
}

TEST(TokenReview, AsksForOurAudience) {
  const kube::Request request = TokenReviewOf("t.o.k", kOurs);
  EXPECT_EQ(request.method, kube::Method::kPost);
  EXPECT_EQ(request.path, "/apis/authentication.k8s.io/v1/tokenreviews");
  EXPECT_EQ(json::parse(request.body)["spec"],
            json({{"token", "t.o.k"}, {"audiences", {"muster.dev"}}}));
  EXPECT_FALSE(json::parse(TokenReviewOf("t", {}).body)["spec"].contains("audiences"));
}

TEST(TokenReview, SaysWhoItIs) {
  const absl::StatusOr<Caller> caller = ReadTokenReview(Review(Anna()), kOurs);
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->user, "anna");
  EXPECT_EQ(caller->uid, "7");
  EXPECT_THAT(caller->groups, ElementsAre("team", "system:authenticated"));
  EXPECT_THAT(caller->extra.at("example.org/scope"), ElementsAre("a", "b"));
}

TEST(TokenReview, ATokenThatIsntForUsIsNobodys) {
  const struct {
    const char* what;
    json status;
  } cases[] = {
      {"not accepted", {{"authenticated", false}, {"error", "expired"}}},
      {"nothing said", json::object()},
      {"a word for a truth", Anna({{"authenticated", "true"}})},
      {"no user", Anna({{"user", nullptr}})},
      {"a user without name", Anna({{"user", {{"username", ""}}}})},
      {"another audience", Anna({{"audiences", {"https://kubernetes.default.svc"}}})},
      {"an API server that knows no audiences", Anna({{"audiences", nullptr}})},
  };
  for (const auto& one : cases) {
    const absl::Status status = ReadTokenReview(Review(one.status), kOurs).status();
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << one.what << ": " << status;
  }
  // Where none is asked for, the API server's own.
  EXPECT_TRUE(ReadTokenReview(Review(Anna({{"audiences", nullptr}})), {}).ok());
}

TEST(TokenReview, AFailureIsNoAnswer) {
  const absl::StatusOr<kube::Response> cases[] = {
      absl::UnavailableError("no connection"),
      absl::DeadlineExceededError("too slow"),
      kube::Response{500, "{}", std::nullopt},
      kube::Response{403, R"({"message":"muster may not create tokenreviews"})", std::nullopt},
      kube::Response{401, "{}", std::nullopt},
      kube::Response{201, "no JSON", std::nullopt},
      kube::Response{201, "[]", std::nullopt},
      kube::Response{201, R"({"status":true})", std::nullopt},
  };
  for (const auto& answer : cases) {
    EXPECT_TRUE(absl::IsUnavailable(ReadTokenReview(answer, kOurs).status()));
    EXPECT_TRUE(absl::IsUnavailable(ReadAccessReview(answer, {}, {})));
  }
}

TEST(AccessReview, SaysWhoWantsWhat) {
  const Caller anna = *ReadTokenReview(Review(Anna()), kOurs);
  const kube::Request request =
      AccessReviewOf(anna, {"get", "scheduling.x-k8s.io", "podgroups", "team", "train"});
  EXPECT_EQ(request.path, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
  EXPECT_EQ(json::parse(request.body)["spec"],
            json::parse(R"({"user":"anna","uid":"7","groups":["team","system:authenticated"],
                            "extra":{"example.org/scope":["a","b"]},
                            "resourceAttributes":{"verb":"get","group":"scheduling.x-k8s.io",
                                "resource":"podgroups","namespace":"team","name":"train"}})"));
  const json all =
      json::parse(AccessReviewOf(anna, {"list", "scheduling.x-k8s.io", "podgroups"}).body)["spec"];
  EXPECT_FALSE(all["resourceAttributes"].contains("namespace"));
  EXPECT_FALSE(all["resourceAttributes"].contains("name"));
}

TEST(AccessReview, OnlyAClearYesIsOne) {
  const Caller caller{.user = "anna"};
  const Wanted wanted{"list", "scheduling.x-k8s.io", "podgroups", "team"};
  EXPECT_TRUE(ReadAccessReview(Review({{"allowed", true}}), caller, wanted).ok());
  for (const json& status :
       {json{{"allowed", false}}, json{{"allowed", true}, {"denied", true}}, json::object(),
        json{{"allowed", "true"}}, json{{"evaluationError", "no role"}, {"allowed", false}}}) {
    const absl::Status refused = ReadAccessReview(Review(status), caller, wanted);
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << status;
    EXPECT_EQ(refused.message(),
              "User \"anna\" cannot list podgroups in API group \"scheduling.x-k8s.io\" in the "
              "namespace \"team\"");
  }
  EXPECT_THAT(
      std::string(ReadAccessReview(Review(json::object()), caller, {"watch", "g", "r"}).message()),
      HasSubstr("cannot watch r in API group \"g\" in all namespaces"));
}

// What a user writes reaches the API server as text, whatever it is.
TEST(AccessReview, IsValidJsonWhateverIsAskedFor) {
  const std::string body =
      AccessReviewOf({.user = "a\"b"}, {"get", "g", "r", "\xff\x01", "}"}).body;
  EXPECT_TRUE(json::accept(body)) << body;
}

}  // namespace
}  // namespace muster::extender
