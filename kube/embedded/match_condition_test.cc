#include "kube/embedded/match_condition.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace muster::kube::embedded {
namespace {

struct ConditionCase {
  std::string expression;
  const char* want;  // "true", "false", "malformed", "error"
};

class MatchConditionTest : public ::testing::TestWithParam<ConditionCase> {};

TEST_P(MatchConditionTest, Evaluates) {
  nlohmann::json variables = nlohmann::json::parse(R"({
    "object": {"spec": {"schedulerName": "coscheduling", "priority": 5, "hostNetwork": true},
               "metadata": {"labels": {"a/b": "c"}}},
    "oldObject": null, "request": {"operation": "CREATE"}})");
  absl::StatusOr<bool> value = EvaluateCondition(GetParam().expression, variables);
  std::string got = value.ok()                                ? (*value ? "true" : "false")
                    : absl::IsInvalidArgument(value.status()) ? "malformed"
                                                              : "error";
  EXPECT_EQ(got, GetParam().want) << GetParam().expression << ": " << value.status();
}

INSTANTIATE_TEST_SUITE_P(
    All, MatchConditionTest,
    ::testing::Values(
        ConditionCase{"object.spec.schedulerName == \"coscheduling\"", "true"},
        ConditionCase{"object.spec.schedulerName == 'other'", "false"},
        ConditionCase{"object.spec.schedulerName != 'other'", "true"},
        ConditionCase{"!(object.spec.schedulerName == 'other')", "true"},
        ConditionCase{"object.spec.schedulerName in ['a', 'coscheduling']", "true"},
        ConditionCase{"object.spec.schedulerName in []", "false"},
        ConditionCase{"'a/b' in object.metadata.labels", "true"},
        ConditionCase{"'c' in object.metadata.labels", "false"},
        ConditionCase{"'a' in object.metadata.annotations", "error"},
        ConditionCase{"'a' in object.spec.priority", "error"},
        ConditionCase{"5 in object.metadata.labels", "error"}, ConditionCase{"'a' in", "malformed"},
        ConditionCase{"object.spec.priority == 5 && request.operation == 'CREATE'", "true"},
        ConditionCase{"object.spec.priority == -5 || object.spec.hostNetwork", "true"},
        ConditionCase{"!has(object.spec.nodeName)", "true"},
        ConditionCase{"has(object.spec.nodeName) && object.spec.nodeName != ''", "false"},
        ConditionCase{"object.metadata.labels['a/b'] == 'c'", "true"},
        ConditionCase{"has(object.spec.a.b.c)", "false"},
        ConditionCase{"object.spec.nodeName == ''", "error"},
        ConditionCase{"object.spec.nodeName == '' || true", "true"},
        ConditionCase{"false && object.spec.nodeName == ''", "false"},
        ConditionCase{"object.spec.priority", "error"},
        ConditionCase{"!object.spec.priority", "error"}, ConditionCase{"", "malformed"},
        ConditionCase{"object.spec.containers.all(c, c.name != '')", "malformed"},
        ConditionCase{"object.spec.priority > 3", "malformed"},
        ConditionCase{"params.x == 1", "malformed"},
        ConditionCase{"object.spec.schedulerName == 'open", "malformed"},
        ConditionCase{"(true", "malformed"}, ConditionCase{"true true", "malformed"},
        ConditionCase{"object.", "malformed"}, ConditionCase{"object['a'", "malformed"},
        ConditionCase{std::string(5000, '('), "malformed"},
        ConditionCase{std::string(5000, '!') + "true", "malformed"}));

}  // namespace
}  // namespace muster::kube::embedded
