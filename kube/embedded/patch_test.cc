#include "kube/embedded/patch.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "kube/embedded/schema.h"

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;

struct PatchCase {
  const char* name;
  const char* before;
  const char* patch;
  const char* after;  // empty: refused
};

std::string NameOf(const ::testing::TestParamInfo<PatchCase>& info) { return info.param.name; }

class JsonPatchTest : public ::testing::TestWithParam<PatchCase> {};

TEST_P(JsonPatchTest, Applies) {
  Json target = Json::parse(GetParam().before);
  MaybeError error = ApplyJsonPatch(Json::parse(GetParam().patch), &target);
  if (*GetParam().after == 0) {
    EXPECT_TRUE(error.has_value()) << target;
  } else {
    ASSERT_FALSE(error.has_value()) << error->message;
    EXPECT_EQ(target, Json::parse(GetParam().after));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, JsonPatchTest,
    ::testing::Values(
        PatchCase{"Add", R"({"a":1})", R"([{"op":"add","path":"/b","value":2}])",
                  R"({"a":1,"b":2})"},
        PatchCase{"AddReplaces", R"({"a":1})", R"([{"op":"add","path":"/a","value":2}])",
                  R"({"a":2})"},
        PatchCase{"AddToEndOfList", R"({"a":[1]})", R"([{"op":"add","path":"/a/-","value":2}])",
                  R"({"a":[1,2]})"},
        PatchCase{"InsertIntoList", R"({"a":[1,3]})", R"([{"op":"add","path":"/a/1","value":2}])",
                  R"({"a":[1,2,3]})"},
        PatchCase{"AddPastTheEnd", R"({"a":[1]})", R"([{"op":"add","path":"/a/2","value":2}])", ""},
        PatchCase{"AddBelowNothing", R"({})", R"([{"op":"add","path":"/a/b","value":2}])", ""},
        PatchCase{"AddBelowAString", R"({"a":"x"})", R"([{"op":"add","path":"/a/b","value":2}])",
                  ""},
        PatchCase{"Remove", R"({"a":1,"b":2})", R"([{"op":"remove","path":"/a"}])", R"({"b":2})"},
        PatchCase{"RemoveNothing", R"({})", R"([{"op":"remove","path":"/a"}])", ""},
        PatchCase{"RemoveFromList", R"({"a":[1,2,3]})", R"([{"op":"remove","path":"/a/1"}])",
                  R"({"a":[1,3]})"},
        PatchCase{"RemoveEverything", R"({})", R"([{"op":"remove","path":""}])", ""},
        PatchCase{"Replace", R"({"a":1})", R"([{"op":"replace","path":"/a","value":{"x":1}}])",
                  R"({"a":{"x":1}})"},
        PatchCase{"ReplaceNothing", R"({})", R"([{"op":"replace","path":"/a","value":1}])",
                  R"({"a":1})"},
        PatchCase{"TestPasses", R"({"a":1})",
                  R"([{"op":"test","path":"/a","value":1},{"op":"remove","path":"/a"}])", R"({})"},
        PatchCase{"TestFails", R"({"a":1})", R"([{"op":"test","path":"/a","value":2}])", ""},
        PatchCase{"Move", R"({"a":{"b":1}})", R"([{"op":"move","from":"/a/b","path":"/c"}])",
                  R"({"a":{},"c":1})"},
        PatchCase{"MoveIntoItself", R"({"a":{}})", R"([{"op":"move","from":"/a","path":"/a/b"}])",
                  ""},
        PatchCase{"Copy", R"({"a":[1]})", R"([{"op":"copy","from":"/a","path":"/b"}])",
                  R"({"a":[1],"b":[1]})"},
        PatchCase{"EscapedNames", R"({"x/y":{"a~b":1}})",
                  R"([{"op":"replace","path":"/x~1y/a~0b","value":2}])", R"({"x/y":{"a~b":2}})"},
        PatchCase{"BadEscape", R"({"a":1})", R"([{"op":"remove","path":"/a~2"}])", ""},
        PatchCase{"LeadingZero", R"({"a":[1,2]})", R"([{"op":"remove","path":"/a/01"}])", ""},
        PatchCase{"HugeIndex", R"({"a":[1]})",
                  R"([{"op":"remove","path":"/a/99999999999999999999"}])", ""},
        PatchCase{"UnknownOp", R"({})", R"([{"op":"frob","path":"/a","value":1}])", ""},
        PatchCase{"NoPath", R"({})", R"([{"op":"add","value":1}])", ""},
        PatchCase{"NoValue", R"({})", R"([{"op":"add","path":"/a"}])", ""},
        PatchCase{"OperationIsNoObject", R"({})", R"([7])", ""},
        PatchCase{"NotAList", R"({})", R"({"op":"add"})", ""}),
    NameOf);

class StrategicMergeTest : public ::testing::TestWithParam<PatchCase> {};

TEST_P(StrategicMergeTest, Applies) {
  Json target = Json::parse(GetParam().before);
  MaybeError error =
      ApplyStrategicMergePatch(*CoreSchema("Pod"), Json::parse(GetParam().patch), &target);
  if (*GetParam().after == 0) {
    EXPECT_TRUE(error.has_value()) << target;
  } else {
    ASSERT_FALSE(error.has_value()) << error->message;
    EXPECT_EQ(target, Json::parse(GetParam().after));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, StrategicMergeTest,
    ::testing::Values(
        PatchCase{"MapsMerge", R"({"metadata":{"labels":{"a":"1","b":"2"}}})",
                  R"({"metadata":{"labels":{"b":null,"c":"3"}}})",
                  R"({"metadata":{"labels":{"a":"1","c":"3"}}})"},
        PatchCase{"ContainersMergeByName",
                  R"({"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"y"}]}})",
                  R"({"spec":{"containers":[{"name":"b","image":"z"},{"name":"c","image":"n"}]}})",
                  R"({"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"z"},
                      {"name":"c","image":"n"}]}})"},
        PatchCase{"NestedListsMerge",
                  R"({"spec":{"containers":[{"name":"a","env":[{"name":"X","value":"1"}],
                      "args":["p","q"]}]}})",
                  R"({"spec":{"containers":[{"name":"a","env":[{"name":"Y","value":"2"}],
                      "args":["r"]}]}})",
                  R"({"spec":{"containers":[{"name":"a","env":[{"name":"X","value":"1"},
                      {"name":"Y","value":"2"}],"args":["r"]}]}})"},
        PatchCase{"DeleteAnEntry", R"({"spec":{"schedulingGates":[{"name":"a"},{"name":"b"}]}})",
                  R"({"spec":{"schedulingGates":[{"$patch":"delete","name":"a"}]}})",
                  R"({"spec":{"schedulingGates":[{"name":"b"}]}})"},
        PatchCase{"ReplaceAList", R"({"spec":{"containers":[{"name":"a"},{"name":"b"}]}})",
                  R"({"spec":{"containers":[{"name":"c"},{"$patch":"replace"}]}})",
                  R"({"spec":{"containers":[{"name":"c"}]}})"},
        PatchCase{"ReplaceAMap", R"({"spec":{"nodeSelector":{"a":"1","b":"2"}}})",
                  R"({"spec":{"nodeSelector":{"$patch":"replace","c":"3"}}})",
                  R"({"spec":{"nodeSelector":{"c":"3"}}})"},
        PatchCase{"AtomicListIsReplaced", R"({"spec":{"tolerations":[{"key":"a"},{"key":"b"}]}})",
                  R"({"spec":{"tolerations":[{"key":"c"}]}})",
                  R"({"spec":{"tolerations":[{"key":"c"}]}})"},
        PatchCase{
            "PrimitivesAreASet", R"({"metadata":{"finalizers":["a","b"]}})",
            R"({"metadata":{"finalizers":["b","c"],"$deleteFromPrimitiveList/finalizers":["a"]}})",
            R"({"metadata":{"finalizers":["b","c"]}})"},
        PatchCase{"ConditionsMergeByType",
                  R"({"status":{"conditions":[{"type":"Ready","status":"True"}]}})",
                  R"({"status":{"conditions":[{"type":"PodScheduled","status":"False"}]}})",
                  R"({"status":{"conditions":[{"type":"Ready","status":"True"},
                      {"type":"PodScheduled","status":"False"}]}})"},
        PatchCase{
            "ElementOrder",
            R"({"spec":{"containers":[{"name":"a"},{"name":"server"},{"name":"b"}]}})",
            R"({"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"},{"name":"n"}],
                      "containers":[{"name":"n"}]}})",
            R"({"spec":{"containers":[{"name":"server"},{"name":"b"},{"name":"a"},
                      {"name":"n"}]}})"},
        PatchCase{"RetainKeys", R"({"spec":{"volumes":[{"name":"v","emptyDir":{}}]}})",
                  R"({"spec":{"volumes":[{"$retainKeys":["name","hostPath"],"name":"v",
                      "hostPath":{"path":"/x"}}]}})",
                  R"({"spec":{"volumes":[{"name":"v","hostPath":{"path":"/x"}}]}})"},
        PatchCase{"NewObjectsLoseDirectives", R"({})",
                  R"({"spec":{"affinity":{"$patch":"replace","nodeAffinity":{}}}})",
                  R"({"spec":{"affinity":{"nodeAffinity":{}}}})"},
        PatchCase{"EntryWithoutKey", R"({"spec":{"containers":[{"name":"a"}]}})",
                  R"({"spec":{"containers":[{"image":"x"}]}})", ""},
        PatchCase{"EntryIsNoObject", R"({"spec":{"containers":[{"name":"a"}]}})",
                  R"({"spec":{"containers":[7]}})", ""},
        PatchCase{"NotAnObject", R"({})", R"([])", ""}),
    NameOf);

TEST(MergePatchTest, NullRemoves) {
  Json target = Json::parse(R"({"a":{"b":1,"c":2},"l":[1,2]})");
  ApplyMergePatch(Json::parse(R"({"a":{"b":null,"d":3},"l":[3]})"), &target);
  EXPECT_EQ(target, Json::parse(R"({"a":{"c":2,"d":3},"l":[3]})"));
}

}  // namespace
}  // namespace muster::kube::embedded
