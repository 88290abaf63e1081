#include "kube/embedded/accounts.h"

#include <gtest/gtest.h>

#include "kube/embedded/test_client.h"

namespace muster::kube::embedded {
namespace {

constexpr const char* kTokenReviews = "/apis/authentication.k8s.io/v1/tokenreviews";
constexpr const char* kAccessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

class AccountsTest : public ::testing::Test {
 protected:
  AccountsTest() {
    server_.server().SetAccounts(
        {{.token = "of-anna",
          .user = "anna",
          .groups = {"team"},
          .audiences = {"muster.dev"},
          .may = {{"get", "scheduling.x-k8s.io", "podgroups", "team"}}},
         {.token = "of-root", .user = "root", .may = {{"*", "*", "*", "*"}}}});
  }
  TestJson Whose(const TestJson& spec) {
    const TestAnswer answer = server_.Post(kTokenReviews, {{"spec", spec}});
    EXPECT_EQ(answer.status, 201);
    return answer.body["status"];
  }
  bool May(const std::string& user, const TestJson& attributes) {
    const TestAnswer answer = server_.Post(
        kAccessReviews, {{"spec", {{"user", user}, {"resourceAttributes", attributes}}}});
    EXPECT_EQ(answer.status, 201);
    return answer.body["status"]["allowed"];
  }

  TestServer server_;
};

TEST_F(AccountsTest, ATokenIsSomebodysForItsAudience) {
  const TestJson anna = Whose({{"token", "of-anna"}, {"audiences", {"other", "muster.dev"}}});
  EXPECT_EQ(anna["authenticated"], true);
  EXPECT_EQ(anna["user"]["username"], "anna");
  EXPECT_EQ(anna["user"]["groups"], TestJson({"team"}));
  EXPECT_EQ(anna["audiences"], TestJson({"muster.dev"}));
  EXPECT_FALSE(Whose({{"token", "of-anna"}}).contains("authenticated"));
  EXPECT_FALSE(
      Whose({{"token", "of-root"}, {"audiences", {"muster.dev"}}}).contains("authenticated"));
  EXPECT_EQ(Whose({{"token", "of-root"}})["user"]["username"], "root");
  EXPECT_FALSE(Whose({{"token", "of-nobody"}}).contains("authenticated"));
  EXPECT_FALSE(Whose({{"token", ""}}).contains("authenticated"));
}

TEST_F(AccountsTest, RightsAreThoseThatWereGiven) {
  const TestJson of_team = {{"verb", "get"},
                            {"group", "scheduling.x-k8s.io"},
                            {"resource", "podgroups"},
                            {"namespace", "team"}};
  EXPECT_TRUE(May("anna", of_team));
  EXPECT_TRUE(May("root", of_team));
  EXPECT_FALSE(May("bob", of_team));
  for (const char* field : {"verb", "group", "resource", "namespace"}) {
    TestJson other = of_team;
    other[field] = "other";
    EXPECT_FALSE(May("anna", other)) << field;
    other.erase(field);
    EXPECT_FALSE(May("anna", other)) << field;
    EXPECT_TRUE(May("root", other)) << field;
  }
}

TEST_F(AccountsTest, ReviewsAreMadeOnly) {
  EXPECT_EQ(server_.Get(kTokenReviews).status, 405);
  EXPECT_EQ(server_.Post(kTokenReviews, TestJson::object()).status, 400);
  EXPECT_EQ(server_.Post(kAccessReviews, {{"spec", 1}}).status, 400);
}

}  // namespace
}  // namespace muster::kube::embedded
