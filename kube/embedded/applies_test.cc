// Server-side apply; what the real server answers to the same requests is in
// tests/conformance/applies.yaml.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kube/embedded/test_client.h"

namespace muster::kube::embedded {
namespace {

using ::testing::ElementsAre;

constexpr const char* kAppliedMap = "/api/v1/namespaces/default/configmaps/a";
constexpr const char* kAppliedGroup =
    "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups/g";

TestJson Data(TestJson data) {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", {{"name", "a"}}},
          {"data", std::move(data)}};
}

class ApplyTest : public ::testing::Test {
 protected:
  TestServer server;

  TestAnswer Apply(const std::string& manager, const std::string& path, const TestJson& config,
                   bool force = false) {
    std::vector<std::pair<std::string, std::string>> query = {{"fieldManager", manager}};
    if (force) query.emplace_back("force", "true");
    return server.Call(Method::kPatch, path, config, std::move(query), kApplyPatch);
  }

  // fieldsV1 of a manager's only entry; null if it has none.
  TestJson FieldsOf(const std::string& path, const std::string& manager) {
    const TestJson object = server.Get(path).body;
    for (const TestJson& entry : object["metadata"].value("managedFields", TestJson::array())) {
      if (entry["manager"] == manager) return entry["fieldsV1"];
    }
    return nullptr;
  }
};

std::vector<std::string> ConflictsOf(const TestAnswer& answer) {
  std::vector<std::string> conflicts;
  for (const TestJson& cause : answer.body["details"]["causes"]) {
    conflicts.push_back(cause.value("message", "") + " at " + cause.value("field", ""));
  }
  return conflicts;
}

TEST_F(ApplyTest, CreatesWhatIsNotThere) {
  TestAnswer made = Apply("one", kAppliedMap, Data({{"k", "v"}}));
  EXPECT_EQ(made.status, 201) << made.body;
  EXPECT_EQ(FieldsOf(kAppliedMap, "one"), TestJson::parse(R"({"f:data":{"f:k":{}}})"));
  EXPECT_EQ(Apply("one", kAppliedMap, Data({{"k", "v"}})).body, made.body)
      << "a second time: no change";
}

TEST_F(ApplyTest, WhatAManagerSaysNoMoreGoesUnlessAnotherOwnsIt) {
  Apply("one", kAppliedMap, Data({{"k", "v"}, {"l", "w"}, {"both", "b"}}));
  Apply("two", kAppliedMap, Data({{"both", "b"}, {"m", "x"}}));
  TestAnswer less = Apply("one", kAppliedMap, Data({{"k", "v"}}));
  EXPECT_EQ(less.status, 200) << less.body;
  EXPECT_EQ(less.body["data"], TestJson::parse(R"({"k":"v","both":"b","m":"x"})"));
  EXPECT_EQ(Apply("two", kAppliedMap, Data({{"m", "x"}})).body["data"],
            TestJson::parse(R"({"k":"v","m":"x"})"));
}

TEST_F(ApplyTest, AnothersFieldIsAConflictUntilItIsForced) {
  Apply("one", kAppliedMap, Data({{"k", "v"}}));
  TestAnswer refused = Apply("two", kAppliedMap, Data({{"k", "w"}}));
  EXPECT_EQ(refused.status, 409);
  EXPECT_EQ(refused.message(), "Apply failed with 1 conflict: conflict with \"one\": .data.k");
  EXPECT_EQ(Apply("two", kAppliedMap, Data({{"k", "w"}}), /*force=*/true).status, 200);
  EXPECT_EQ(FieldsOf(kAppliedMap, "one"), nullptr);
  EXPECT_EQ(Apply("one", kAppliedMap, Data({{"k", "w"}})).status, 200)
      << "the same value is shared";
}

TEST_F(ApplyTest, UpdatesOwnWhatTheyChange) {
  Apply("one", kAppliedMap, Data({{"k", "v"}}));
  server.Call(Method::kPatch, kAppliedMap, {{"data", {{"k", "changed"}, {"n", "1"}}}},
              {{"fieldManager", "editor"}}, kMergePatch);
  EXPECT_EQ(FieldsOf(kAppliedMap, "one"), nullptr);
  EXPECT_EQ(FieldsOf(kAppliedMap, "editor"), TestJson::parse(R"({"f:data":{"f:k":{},"f:n":{}}})"));
  EXPECT_THAT(ConflictsOf(Apply("one", kAppliedMap, Data({{"k", "v"}, {"n", "2"}}))),
              ElementsAre(R"(conflict with "editor" using v1 at .data.k)",
                          R"(conflict with "editor" using v1 at .data.n)"));
}

TEST_F(ApplyTest, WhatWasThereBeforeTheFirstApplyBelongsToNobodyElse) {
  server.Post("/api/v1/namespaces/default/configmaps", Data({{"k", "v"}, {"l", "w"}}));
  EXPECT_FALSE(server.Get(kAppliedMap).body["metadata"].contains("managedFields"));
  EXPECT_THAT(ConflictsOf(Apply("one", kAppliedMap, Data({{"k", "x"}}))),
              ElementsAre(R"(conflict with "before-first-apply" using v1 at .data.k)"));
  EXPECT_EQ(Apply("one", kAppliedMap, Data({{"k", "v"}})).status, 200);
  EXPECT_EQ(Apply("one", kAppliedMap, Data(TestJson::object())).body["data"],
            TestJson::parse(R"({"k":"v","l":"w"})"));
}

TEST_F(ApplyTest, TheStatusHasManagersOfItsOwn) {
  TestJson group = {{"apiVersion", "scheduling.x-k8s.io/v1alpha1"},
                    {"kind", "PodGroup"},
                    {"metadata", {{"name", "g"}}},
                    {"spec", {{"minMember", 2}}},
                    {"status", {{"phase", "Ignored"}}}};
  EXPECT_EQ(Apply("one", std::string(kAppliedGroup) + "/status", group).status, 404);
  TestAnswer made = Apply("one", kAppliedGroup, group);
  ASSERT_EQ(made.status, 201) << made.body;
  EXPECT_FALSE(made.body.contains("status"));

  group["spec"]["minMember"] = 7;
  group["status"] = {{"phase", "Running"}, {"running", 2}};
  TestAnswer status = Apply("one", std::string(kAppliedGroup) + "/status", group);
  ASSERT_EQ(status.status, 200) << status.body;
  EXPECT_EQ(status.body["spec"]["minMember"], 2);
  EXPECT_EQ(status.body["status"], group["status"]);

  group["status"] = {{"phase", "Running"}};
  EXPECT_EQ(Apply("one", std::string(kAppliedGroup) + "/status", group).body["status"],
            group["status"])
      << "what was applied before and isn't any more goes";
  group["spec"]["minMember"] = 2;
  EXPECT_EQ(Apply("one", kAppliedGroup, group).body["status"], group["status"])
      << "the object's own path leaves the status alone";
}

TEST_F(ApplyTest, ListsMergeByTheirKeys) {
  const std::string path = kPodA;
  TestJson pod = MakePod("a");
  pod["spec"]["containers"].push_back({{"name", "side"}, {"image", "example/side:1"}});
  pod["spec"]["tolerations"] = {{{"key", "a"}, {"operator", "Exists"}}};
  pod["metadata"]["finalizers"] = {"example.com/one"};
  ASSERT_EQ(Apply("one", path, pod).status, 201);

  TestJson other = {{"apiVersion", "v1"},
                    {"kind", "Pod"},
                    {"metadata", {{"name", "a"}, {"finalizers", {"example.com/two"}}}},
                    {"spec", {{"containers", {{{"name", "side"}, {"image", "example/side:2"}}}}}}};
  EXPECT_THAT(ConflictsOf(Apply("two", path, other)),
              ElementsAre(R"(conflict with "one" at .spec.containers[name="side"].image)"));
  TestAnswer forced = Apply("two", path, other, /*force=*/true);
  ASSERT_EQ(forced.status, 200) << forced.body;
  EXPECT_EQ(forced.body["spec"]["containers"].size(), 2u);
  EXPECT_EQ(forced.body["spec"]["containers"][1]["image"], "example/side:2");
  EXPECT_EQ(forced.body["metadata"]["finalizers"],
            TestJson::parse(R"(["example.com/one","example.com/two"])"));

  other["spec"] = {{"tolerations", {{{"key", "b"}, {"operator", "Exists"}}}}};
  EXPECT_THAT(ConflictsOf(Apply("two", path, other)),
              ElementsAre(R"(conflict with "one" at .spec.tolerations)"))
      << "an atomic list has one owner";
}

TEST_F(ApplyTest, RefusesWhatCannotBeApplied) {
  EXPECT_EQ(server.Call(Method::kPatch, kAppliedMap, Data({{"k", "v"}}), {}, kApplyPatch).status,
            422)
      << "no manager";
  TestJson config = Data({{"k", "v"}});
  config["apiVersion"] = "v2";
  EXPECT_EQ(Apply("one", kAppliedMap, config).message(),
            "invalid object type: /v2, Kind=ConfigMap");
  config = Data({{"k", "v"}});
  config["metadata"]["managedFields"] = TestJson::array();
  EXPECT_EQ(Apply("one", kAppliedMap, config).status, 400);
  config = Data({{"k", "v"}});
  config["date"] = 1;
  EXPECT_THAT(Apply("one", kAppliedMap, config).message(),
              ::testing::HasSubstr(".date: field not declared in schema"));
  TestJson twice = MakePod("a");
  twice["spec"]["containers"].push_back(twice["spec"]["containers"][0]);
  EXPECT_THAT(Apply("one", kPodA, twice).message(),
              ::testing::HasSubstr(R"(duplicate entries for key [name="main"])"));
  EXPECT_EQ(server
                .Call(Method::kPatch, kAppliedMap, Data({{"k", "v"}}), {{"fieldManager", "one"}},
                      "application/apply-patch+cbor")
                .status,
            415);
}

// So that an object that many write doesn't grow without end.
TEST_F(ApplyTest, UpdatersPastTenShareAnEntry) {
  Apply("one", kAppliedMap, Data({{"k", "v"}}));
  for (int i = 0; i < 20; ++i) {
    server.Advance(absl::Seconds(1));
    server.Call(Method::kPatch, kAppliedMap, {{"data", {{"n" + std::to_string(i), "x"}}}},
                {{"fieldManager", "editor-" + std::to_string(i)}}, kMergePatch);
  }
  EXPECT_EQ(server.Get(kAppliedMap).body["metadata"]["managedFields"].size(), 11u);
  EXPECT_EQ(FieldsOf(kAppliedMap, "ancient-changes")["f:data"].size(), 11u);
}

}  // namespace
}  // namespace muster::kube::embedded
