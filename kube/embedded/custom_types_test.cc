// CRDs: what a definition adds, how its schema checks, and what goes with it.
#include "kube/embedded/custom_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kube/embedded/test_client.h"

namespace muster::kube::embedded {
namespace {

using ::testing::HasSubstr;

constexpr const char* kCrds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
constexpr const char* kThings = "/apis/example.com/v1/namespaces/default/things";

TestJson Definition() {
  return TestJson::parse(R"({
    "metadata": {"name": "things.example.com"},
    "spec": {"group": "example.com", "scope": "Namespaced",
      "names": {"kind": "Thing", "plural": "things"},
      "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {
          "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 9},
            "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "parts": {"type": "array", "maxItems": 2, "items": {"type": "string", "minLength": 2}},
            "limits": {"type": "object",
                       "additionalProperties": {"x-kubernetes-int-or-string": true}},
            "note": {"type": "string", "nullable": true},
            "nested": {"type": "object", "default": {"a": 1},
                       "properties": {"a": {"type": "integer"},
                                      "b": {"type": "boolean", "default": true}}}}},
          "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}})");
}

TestJson Thing(TestJson spec) { return {{"metadata", {{"name", "t"}}}, {"spec", std::move(spec)}}; }

TEST(CustomTypesTest, ADefinitionServesItsKind) {
  TestServer server;
  EXPECT_EQ(server.Post(kThings, Thing({{"size", 1}})).status, 404);
  ASSERT_EQ(server.Post(kCrds, Definition()).status, 201);
  TestJson crd = server.Get(std::string(kCrds) + "/things.example.com").body;
  EXPECT_EQ(crd["status"]["conditions"][1]["type"], "Established");
  EXPECT_EQ(crd["status"]["conditions"][1]["status"], "True");
  EXPECT_EQ(crd["spec"]["names"]["listKind"], "ThingList");
  TestAnswer thing = server.Post(kThings, Thing({{"size", 1}, {"note", nullptr}}));
  ASSERT_EQ(thing.status, 201) << thing.body;
  EXPECT_EQ(thing.body["kind"], "Thing");
  EXPECT_EQ(thing.body["spec"]["color"], "red");
  EXPECT_EQ(thing.body["spec"]["nested"], (TestJson{{"a", 1}, {"b", true}}));
  EXPECT_TRUE(thing.body["spec"]["note"].is_null());
  EXPECT_EQ(server.Get(kThings, {{"fieldSelector", "spec.color=red"}}).body["items"].size(), 1u);
  EXPECT_EQ(server.Get(kThings, {{"fieldSelector", "spec.color=blue"}}).body["items"].size(), 0u);
}

struct SchemaCase {
  const char* name;
  const char* spec;
  int status;
  const char* message;
};

class SchemaTest : public ::testing::TestWithParam<SchemaCase> {};

TEST_P(SchemaTest, Checks) {
  TestServer server;
  server.Post(kCrds, Definition());
  TestAnswer answer = server.Post(kThings, Thing(TestJson::parse(GetParam().spec)));
  EXPECT_EQ(answer.status, GetParam().status) << answer.body;
  if (answer.status != 201) {
    EXPECT_THAT(answer.message(), HasSubstr(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SchemaTest,
    ::testing::Values(
        SchemaCase{"Missing", R"({})", 422, "spec.size: Required value"},
        SchemaCase{"TooSmall", R"({"size":0})", 422, "spec.size in body should be greater than"},
        SchemaCase{"TooLarge", R"({"size":10})", 422, "spec.size in body should be less than"},
        SchemaCase{"WrongType", R"({"size":"1"})", 400, "spec.size: want an integer, got \"1\""},
        SchemaCase{"Fraction", R"({"size":1.5})", 400, "spec.size: want an integer, got 1.5"},
        SchemaCase{"NotInEnum", R"({"size":1,"color":"green"})", 422,
                   "spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\""},
        SchemaCase{"TooMany", R"({"size":1,"parts":["aa","bb","cc"]})", 422, "at most 2 items"},
        SchemaCase{"TooShort", R"({"size":1,"parts":["a"]})", 422, "spec.parts[0]"},
        SchemaCase{"WrongElement", R"({"size":1,"parts":[1]})", 400,
                   "spec.parts[0]: want a string"},
        SchemaCase{"IntOrString", R"({"size":1,"limits":{"cpu":1,"memory":"1Gi"}})", 201, ""},
        SchemaCase{"NeitherIntNorString", R"({"size":1,"limits":{"cpu":{}}})", 400,
                   "spec.limits.cpu: want an integer or a string"},
        SchemaCase{"NullIsAbsent", R"({"size":1,"parts":null})", 201, ""},
        SchemaCase{"NullOfRequired", R"({"size":null})", 422, "spec.size: Required value"}),
    [](const auto& info) { return info.param.name; });

TEST(CustomTypesTest, AnUpdateChangesTheSchemaAndKeepsTheObjects) {
  TestServer server;
  server.Post(kCrds, Definition());
  server.Post(kThings, Thing({{"size", 1}}));
  TestJson wider = {
      {{"op", "replace"},
       {"path", "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum"},
       {"value", 99}}};
  ASSERT_EQ(
      server.Call(Method::kPatch, std::string(kCrds) + "/things.example.com", wider, {}, kJsonPatch)
          .status,
      200);
  EXPECT_EQ(server.MergePatch(std::string(kThings) + "/t", {{"spec", {{"size", 50}}}}).status, 200);
}

TEST(CustomTypesTest, ADefinitionGoesWithItsObjects) {
  TestServer server;
  server.Post(kCrds, Definition());
  server.Post(kThings, Thing({{"size", 1}}));
  Request request;
  request.path = kThings;
  request.query = {{"watch", "1"}};
  auto watch = server.server().Watch(request).session;
  ASSERT_NE(watch, nullptr);
  std::vector<WatchItem> items;
  EXPECT_TRUE(watch->Read(10, &items));
  EXPECT_EQ(server.Delete(std::string(kCrds) + "/things.example.com").status, 200);
  items.clear();
  EXPECT_FALSE(watch->Read(10, &items));
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].type, WatchItem::Type::kDeleted);
  EXPECT_EQ(server.Get(kThings).status, 404);
  // Defined again, it starts empty.
  server.Post(kCrds, Definition());
  EXPECT_EQ(server.Get(kThings).body["items"].size(), 0u);
}

TEST(CustomTypesTest, BadDefinitions) {
  TestServer server;
  TestJson crd = Definition();
  crd["metadata"]["name"] = "other.example.com";
  EXPECT_THAT(server.Post(kCrds, crd).message(), HasSubstr("must be spec.names.plural"));
  crd = Definition();
  crd["spec"]["versions"][0]["storage"] = false;
  EXPECT_THAT(server.Post(kCrds, crd).message(), HasSubstr("exactly one version"));
  crd = Definition();
  crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["type"] = "thing";
  server.Post(kCrds, crd);
  TestJson stored = server.Get(std::string(kCrds) + "/things.example.com").body;
  EXPECT_EQ(stored["status"]["conditions"][0]["type"], "Established");
  EXPECT_EQ(stored["status"]["conditions"][0]["status"], "False");
  EXPECT_THAT(stored["status"]["conditions"][0]["message"].get<std::string>(),
              HasSubstr("openAPIV3Schema.spec.type: unknown type \"thing\""));
  EXPECT_EQ(server.Get(kThings).status, 404);
}

TEST(CustomTypesTest, BuiltInKindsCannotBeReplaced) {
  TestServer server;
  TestJson crd = Definition();
  crd["metadata"]["name"] = "jobs.batch";
  crd["spec"]["group"] = "batch";
  crd["spec"]["names"] = {{"kind", "Job"}, {"plural", "jobs"}};
  server.Post(kCrds, crd);
  server.Delete(std::string(kCrds) + "/jobs.batch");
  EXPECT_EQ(server.Get("/apis/batch/v1/jobs").status, 200);
}

TEST(CustomTypesTest, NodePoolsTakeKarpentersDefaults) {
  TestServer server;
  TestAnswer pool =
      server.Post("/apis/karpenter.sh/v1/nodepools",
                  {{"metadata", {{"name", "gpu"}}},
                   {"spec", {{"template", {{"spec", {{"requirements", TestJson::array()}}}}}}}});
  ASSERT_EQ(pool.status, 201) << pool.body;
  EXPECT_EQ(pool.body["spec"]["disruption"],
            TestJson::parse(R"({"consolidateAfter":"0s","budgets":[{"nodes":"10%"}],
                                "consolidationPolicy":"WhenEmptyOrUnderutilized"})"));
  EXPECT_EQ(pool.body["spec"]["template"]["spec"]["expireAfter"], "720h");
}

}  // namespace
}  // namespace muster::kube::embedded
