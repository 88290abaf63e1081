#include "extender/admission/webhook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"

namespace muster::extender {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// As kube-apiserver v1.34 sends it, shortened.
Json Review(const std::string& spec) {
  return Json::parse(R"json({
    "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
    "request": {
      "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
      "kind": {"group": "", "version": "v1", "kind": "Pod"},
      "resource": {"group": "", "version": "v1", "resource": "pods"},
      "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
      "requestResource": {"group": "", "version": "v1", "resource": "pods"},
      "namespace": "default", "operation": "CREATE",
      "userInfo": {"username": "system:serviceaccount:kubeflow:training-operator"},
      "object": {"kind": "Pod", "apiVersion": "v1",
                 "metadata": {"generateName": "worker-", "namespace": "default"},
                 "spec": )json" +
                     spec + R"json(},
      "oldObject": null, "dryRun": false,
      "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}}})json");
}

const GateOptions kOurs = {.guards_queues = true};

Json Answered(const Json& review, const GateOptions& options = kOurs) {
  const absl::StatusOr<std::string> answer = ReviewAdmission(review.dump(), options);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? Json::parse(*answer) : Json();
}

// The gates of the pod after the answer's patch; the spec must be unchanged elsewhere.
Json GatesAfter(const Json& review) {
  const Json answer = Answered(review)["response"];
  EXPECT_EQ(answer["allowed"], true);
  const Json& pod = review["request"]["object"];
  if (!answer.contains("patch")) return pod["spec"].value("schedulingGates", Json("untouched"));
  EXPECT_EQ(answer["patchType"], "JSONPatch");
  std::string patch;
  EXPECT_TRUE(absl::Base64Unescape(answer["patch"].get<std::string>(), &patch));
  Json patched = pod.patch(Json::parse(patch));
  Json gates = patched["spec"]["schedulingGates"];
  Json rest = pod;
  rest["spec"].erase("schedulingGates");
  patched["spec"].erase("schedulingGates");
  EXPECT_EQ(patched, rest);
  return gates;
}

struct GateCase {
  const char* name;
  const char* spec;
  const char* gates;  // afterwards
};

class Gate : public ::testing::TestWithParam<GateCase> {};

TEST_P(Gate, OfAPodThatIsCreated) {
  EXPECT_EQ(GatesAfter(Review(GetParam().spec)), Json::parse(GetParam().gates));
}

INSTANTIATE_TEST_SUITE_P(
    Webhook, Gate,
    ::testing::Values(
        GateCase{"IsAddedWhereThereIsNone", R"({"schedulerName":"coscheduling"})",
                 R"([{"name":"muster.dev/admission"}])"},
        GateCase{"IsAddedWhereTheListIsNull",
                 R"({"schedulerName":"coscheduling","schedulingGates":null})",
                 R"([{"name":"muster.dev/admission"}])"},
        GateCase{"IsAddedWhereTheListIsEmpty",
                 R"({"schedulerName":"coscheduling","schedulingGates":[]})",
                 R"([{"name":"muster.dev/admission"}])"},
        GateCase{"IsAddedBesideTheGatesOfOthers",
                 R"({"schedulerName":"coscheduling","schedulingGates":[{"name":"a.b/c"}]})",
                 R"([{"name":"a.b/c"},{"name":"muster.dev/admission"}])"},
        GateCase{"IsAddedOnceOnly",
                 R"({"schedulerName":"coscheduling",
                     "schedulingGates":[{"name":"muster.dev/admission"},{"name":"a.b/c"}]})",
                 R"([{"name":"muster.dev/admission"},{"name":"a.b/c"}])"},
        GateCase{"IsForAPodWhoseNodeNameIsEmpty",
                 R"({"schedulerName":"coscheduling","nodeName":""})",
                 R"([{"name":"muster.dev/admission"}])"},
        GateCase{"IsNotForPodsOfOtherSchedulers", R"({"schedulerName":"default-scheduler"})",
                 R"("untouched")"},
        GateCase{"IsNotForPodsWithoutASchedulerName", R"({})", R"("untouched")"}),
    [](const auto& info) { return info.param.name; });

struct StateCase {
  const char* name;
  const char* annotations;
  const char* left;
};

class StateOfAPodThatIsCreated : public ::testing::TestWithParam<StateCase> {};

TEST_P(StateOfAPodThatIsCreated, IsTakenOff) {
  Json review = Review(R"({"schedulerName":"coscheduling"})");
  Json& pod = review["request"]["object"];
  pod["metadata"]["annotations"] = Json::parse(GetParam().annotations);
  std::string patch;
  ASSERT_TRUE(
      absl::Base64Unescape(Answered(review)["response"]["patch"].get<std::string>(), &patch));
  EXPECT_EQ(pod.patch(Json::parse(patch))["metadata"]["annotations"], Json::parse(GetParam().left));
}

INSTANTIATE_TEST_SUITE_P(
    Webhook, StateOfAPodThatIsCreated,
    ::testing::Values(
        StateCase{"All",
                  R"({"muster.dev/admission":"{}","muster.dev/epoch":"7","muster.dev/wake":"x",
                      "muster.dev/pod-set":"a","muster.dev/flavors":"f","muster.dev/queue":"q"})",
                  "{}"},
        StateCase{
            "ButNotWhatUsersSay",
            R"({"muster.dev/epoch":"7","muster.dev/gang":"false","muster.dev/fallback":"never",
                      "a.b/muster.dev~epoch":"1"})",
            R"({"muster.dev/gang":"false","muster.dev/fallback":"never",
                      "a.b/muster.dev~epoch":"1"})"}),
    [](const auto& info) { return info.param.name; });

struct RefusedCase {
  const char* name;
  const char* change;  // merged into the pod
  const char* says;    // "": allowed
};

class PodThatIsCreated : public ::testing::TestWithParam<RefusedCase> {};

TEST_P(PodThatIsCreated, IsRefusedInWords) {
  Json review = Review(R"({"schedulerName":"default-scheduler"})");
  review["request"]["object"].merge_patch(Json::parse(GetParam().change));
  const Json response = Answered(review)["response"];
  if (*GetParam().says == 0) {
    EXPECT_EQ(response["allowed"], true);
    return;
  }
  EXPECT_EQ(response["allowed"], false);
  EXPECT_FALSE(response.contains("patch"));
  EXPECT_EQ(response["status"]["code"], 422);
  EXPECT_THAT(response["status"]["message"].get<std::string>(), HasSubstr(GetParam().says));
}

constexpr char kInQueue[] = R"({"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"team"}}})";
INSTANTIATE_TEST_SUITE_P(
    Webhook, PodThatIsCreated,
    ::testing::Values(
        RefusedCase{"OursOnANode", R"({"spec":{"schedulerName":"coscheduling","nodeName":"n1"}})",
                    "spec.nodeName is \"n1\", with spec.schedulerName \"coscheduling\""},
        RefusedCase{"OthersOnANode", R"({"spec":{"nodeName":"n1"}})", ""},
        RefusedCase{"OthersInAQueue", kInQueue,
                    "label kueue.x-k8s.io/queue-name is \"team\", and spec.schedulerName is "
                    "\"default-scheduler\": quota of a queue is given to pods of schedulerName "
                    "\"coscheduling\" only"},
        RefusedCase{"OthersInAQueueThatSomebodyMakes",
                    R"({"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"team"},
                        "ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"j"}]}})",
                    ""},
        RefusedCase{"OthersThatKueueManages",
                    R"({"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"team",
                                              "kueue.x-k8s.io/managed":"true"}}})",
                    ""},
        RefusedCase{"OthersWithoutAQueue", R"({"metadata":{"labels":{"a":"b"}}})", ""}),
    [](const auto& info) { return info.param.name; });

TEST(Webhook, LeavesQueuesToKueueWhereQuotaIsItsOwn) {
  Json review = Review(R"({"schedulerName":"default-scheduler"})");
  review["request"]["object"].merge_patch(Json::parse(kInQueue));
  EXPECT_EQ(Answered(review, {.guards_queues = false})["response"]["allowed"], true);
}

TEST(Webhook, EchoesTheUidAndSpeaksV1) {
  const Json answer = Answered(Review(R"({"schedulerName":"coscheduling"})"));
  EXPECT_EQ(answer["apiVersion"], "admission.k8s.io/v1");
  EXPECT_EQ(answer["kind"], "AdmissionReview");
  EXPECT_EQ(answer["response"]["uid"], "705ab4f5-6393-11e8-b7cc-42010a800002");
}

TEST(Webhook, AnswersADryRunAlike) {
  Json review = Review(R"({"schedulerName":"coscheduling"})");
  const Json answer = Answered(review);
  review["request"]["dryRun"] = true;
  EXPECT_EQ(Answered(review), answer);
}

TEST(Webhook, HasNothingToAddToItsOwnResult) {
  Json review = Review(R"({"schedulerName":"coscheduling"})");
  review["request"]["object"]["spec"]["schedulingGates"] = GatesAfter(review);
  EXPECT_FALSE(Answered(review)["response"].contains("patch"));
}

lint::ObjectLint SomeFinding(std::string_view name_space, std::string_view json) {
  const Json pod = Json::parse(json);
  lint::Finding finding;
  finding.rule = "some-rule";
  finding.message =
      std::string(name_space) + "/" + pod["metadata"]["generateName"].get<std::string>();
  finding.fix = "leave it out";
  return {.findings = {finding}};
}

TEST(Webhook, WarnsOfAPodThatSomebodyApplies) {
  const GateOptions warns = {.linter = SomeFinding};
  Json review = Review(R"({"schedulerName":"coscheduling"})");
  Json response = Answered(review, warns)["response"];
  EXPECT_EQ(response["warnings"], Json({"some-rule: default/worker-; leave it out"}));
  EXPECT_TRUE(response.contains("patch")) << "gated all the same";
  EXPECT_FALSE(Answered(review)["response"].contains("warnings")) << "turned off";
  review["request"]["object"]["metadata"]["ownerReferences"] = Json::parse(R"([{"kind":"Job"}])");
  response = Answered(review, warns)["response"];
  EXPECT_FALSE(response.contains("warnings")) << "a controller reads none";
  EXPECT_TRUE(response.contains("patch"));
}

TEST(Webhook, WarnsOfNoPodThatIsRefusedOrNotOurs) {
  for (const char* spec : {R"({"schedulerName":"coscheduling","nodeName":"n"})",
                           R"({"schedulerName":"default-scheduler"})"}) {
    const Json answer = Answered(Review(spec), {.linter = SomeFinding});
    EXPECT_FALSE(answer["response"].contains("warnings")) << spec;
  }
}

struct Untouched {
  const char* name;
  const char* change;  // merged into the request
};

class OtherRequest : public ::testing::TestWithParam<Untouched> {};

TEST_P(OtherRequest, IsAllowedAsItIs) {
  Json review = Review(R"({"schedulerName":"coscheduling"})");
  review["request"].merge_patch(Json::parse(GetParam().change));
  const Json response = Answered(review)["response"];
  EXPECT_EQ(response["allowed"], true);
  EXPECT_FALSE(response.contains("patch"));
}

INSTANTIATE_TEST_SUITE_P(
    Webhook, OtherRequest,
    ::testing::Values(
        Untouched{"Update", R"({"operation":"UPDATE"})"},
        Untouched{"DeleteWithoutObject", R"({"operation":"DELETE","object":null})"},
        Untouched{"Connect", R"({"operation":"CONNECT"})"},
        Untouched{"Binding", R"({"subResource":"binding","object":{"kind":"Binding"}})"},
        Untouched{"OtherResource", R"({"resource":{"resource":"deployments","group":"apps"}})"}),
    [](const auto& info) { return info.param.name; });

struct Malformed {
  const char* name;
  std::function<void(Json&)> spoil;
  const char* fault;
};

class BadReview : public ::testing::TestWithParam<Malformed> {};

TEST_P(BadReview, NamesTheField) {
  Json review = Review(R"({"schedulerName":"coscheduling"})");
  GetParam().spoil(review);
  const absl::Status status = ReviewAdmission(review.dump(), kOurs).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().fault));
}

INSTANTIATE_TEST_SUITE_P(
    Webhook, BadReview,
    ::testing::Values(
        Malformed{"OldVersion", [](Json& r) { r["apiVersion"] = "admission.k8s.io/v1beta1"; },
                  "apiVersion: want \"admission.k8s.io/v1\", got \"admission.k8s.io/v1beta1\""},
        Malformed{"NoVersion", [](Json& r) { r.erase("apiVersion"); }, "apiVersion: want"},
        Malformed{"OtherKind", [](Json& r) { r["kind"] = "ConversionReview"; },
                  "kind: want \"AdmissionReview\""},
        Malformed{"KindOfWrongType", [](Json& r) { r["kind"] = 7; }, "kind: want string, got 7"},
        Malformed{"NoRequest", [](Json& r) { r.erase("request"); }, "request: is missing"},
        Malformed{"RequestOfWrongType", [](Json& r) { r["request"] = "x"; },
                  "request: want an object"},
        Malformed{"NoUid", [](Json& r) { r["request"].erase("uid"); }, "request.uid: is missing"},
        Malformed{"EmptyUid", [](Json& r) { r["request"]["uid"] = ""; }, "request.uid"},
        Malformed{"NoOperation", [](Json& r) { r["request"].erase("operation"); },
                  "request.operation: is missing"},
        Malformed{"NoResource", [](Json& r) { r["request"].erase("resource"); },
                  "request.resource: is missing"},
        Malformed{"NoObject", [](Json& r) { r["request"].erase("object"); },
                  "request.object: is missing"},
        Malformed{"SpecOfWrongType", [](Json& r) { r["request"]["object"]["spec"] = 1; },
                  "request.object.spec: want an object"},
        Malformed{"GatesOfWrongType",
                  [](Json& r) { r["request"]["object"]["spec"]["schedulingGates"] = "all"; },
                  "request.object.spec.schedulingGates: want an array, got \"all\""},
        Malformed{
            "GateOfWrongType",
            [](Json& r) { r["request"]["object"]["spec"]["schedulingGates"] = {{{"name", 3}}}; },
            "request.object.spec.schedulingGates[0].name: want string, got 3"}),
    [](const auto& info) { return info.param.name; });

TEST(Webhook, OversizeReviewIsRefusedUnread) {
  const std::string body(kMaxReviewBytes + 1, ' ');
  EXPECT_THAT(std::string(ReviewAdmission(body, kOurs).status().message()),
              HasSubstr("AdmissionReview of 8388609 bytes, at most 8388608 are read"));
}

TEST(Webhook, EveryTruncationIsAnError) {
  const std::string whole = Review(R"({"schedulerName":"coscheduling"})").dump();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ReviewAdmission(whole.substr(0, size), kOurs).ok()) << size;
  }
}

// Whatever a byte becomes: an error, or an answer that is JSON and allows.
TEST(Webhook, EveryChangedByteIsSurvived) {
  const std::string whole =
      Review(R"({"schedulerName":"coscheduling","schedulingGates":[{"name":"a"}]})").dump();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char byte : {'\0', '"', '{', '}', '[', ']', ',', ':', '0', '\\', '\x80', '\xff'}) {
      std::string changed = whole;
      changed[at] = byte;
      const absl::StatusOr<std::string> answer = ReviewAdmission(changed, kOurs);
      if (!answer.ok()) continue;
      const Json parsed = Json::parse(*answer, nullptr, /*allow_exceptions=*/false);
      ASSERT_FALSE(parsed.is_discarded());
      EXPECT_EQ(parsed["response"]["allowed"], true);
    }
  }
}

TEST(Webhook, DeepNestingIsRefused) {
  const std::string body = R"({"apiVersion":)" + std::string(100'000, '[');
  EXPECT_FALSE(ReviewAdmission(body, kOurs).ok());
}

}  // namespace
}  // namespace muster::extender
