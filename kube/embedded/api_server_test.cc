// The verbs on objects: what kube-apiserver v1.34 answers, case by case.
#include "kube/embedded/api_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kube/embedded/test_client.h"

namespace muster::kube::embedded {
namespace {

using ::testing::HasSubstr;

constexpr const char* kConfigMaps = "/api/v1/namespaces/default/configmaps";

TEST(CreateTest, FillsInWhatTheServerSets) {
  TestServer server;
  TestAnswer answer = server.Post(kPods, MakePod("a"));
  ASSERT_EQ(answer.status, 201) << answer.body;
  EXPECT_EQ(answer.body["metadata"]["namespace"], "default");
  EXPECT_EQ(answer.body["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
  EXPECT_EQ(answer.body["metadata"]["generation"], 1);
  EXPECT_EQ(answer.body["metadata"]["uid"].get<std::string>().size(), 36u);
  EXPECT_EQ(answer.body["spec"]["schedulerName"], "default-scheduler");
  EXPECT_EQ(answer.body["spec"]["restartPolicy"], "Always");
  EXPECT_EQ(answer.body["spec"]["priority"], 0);
  EXPECT_EQ(answer.body["status"]["phase"], "Pending");
  EXPECT_EQ(answer.body["status"]["qosClass"], "BestEffort");
  EXPECT_EQ(server.Get(kPodA).body, answer.body);
}

TEST(CreateTest, IgnoresWhatOnlyTheServerMaySet) {
  TestServer server;
  TestJson pod = MakePod("a");
  pod["metadata"]["uid"] = "mine";
  pod["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z";
  pod["metadata"]["generation"] = 7;
  pod["status"] = {{"phase", "Running"}};
  TestAnswer answer = server.Post(kPods, pod);
  EXPECT_NE(answer.body["metadata"]["uid"], "mine");
  EXPECT_EQ(answer.body["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
  EXPECT_EQ(answer.body["metadata"]["generation"], 1);
  EXPECT_EQ(answer.body["status"]["phase"], "Pending");
}

TEST(CreateTest, LimitsBecomeRequests) {
  TestServer server;
  TestJson pod = MakePod("a");
  pod["spec"]["containers"][0]["resources"]["limits"] = {{"nvidia.com/gpu", "1"}, {"cpu", 2}};
  TestAnswer answer = server.Post(kPods, pod);
  ASSERT_EQ(answer.status, 201) << answer.body;
  EXPECT_EQ(answer.body["spec"]["containers"][0]["resources"]["requests"],
            (TestJson{{"nvidia.com/gpu", "1"}, {"cpu", "2"}}));
  EXPECT_EQ(answer.body["status"]["qosClass"], "Burstable");
}

TEST(CreateTest, ANodeKeepsItsStatus) {
  TestServer server;
  TestAnswer answer = server.Post(kNodes, MakeNode("n1"));
  ASSERT_EQ(answer.status, 201) << answer.body;
  EXPECT_EQ(answer.body["status"]["allocatable"], answer.body["status"]["capacity"]);
}

TEST(CreateTest, AGatedPodIsMarkedAsSuch) {
  TestServer server;
  TestAnswer answer = server.Post(kPods, MakeGatedPod("a"));
  ASSERT_EQ(answer.status, 201) << answer.body;
  ASSERT_EQ(answer.body["status"]["conditions"].size(), 1u);
  const TestJson& condition = answer.body["status"]["conditions"][0];
  EXPECT_EQ(condition["type"], "PodScheduled");
  EXPECT_EQ(condition["status"], "False");
  EXPECT_EQ(condition["reason"], "SchedulingGated");
  EXPECT_EQ(condition["message"], "Scheduling is blocked due to non-empty scheduling gates");
}

TEST(CreateTest, GenerateNameGivesDistinctNames) {
  TestServer server;
  TestJson pod = MakePod("");
  pod["metadata"] = {{"generateName", "worker-"}};
  std::set<std::string> names;
  for (int i = 0; i < 50; ++i) {
    TestAnswer answer = server.Post(kPods, pod);
    ASSERT_EQ(answer.status, 201) << answer.body;
    names.insert(answer.body["metadata"]["name"]);
  }
  EXPECT_EQ(names.size(), 50u);
  EXPECT_EQ(names.begin()->substr(0, 7), "worker-");
  EXPECT_EQ(names.begin()->size(), 12u);
}

TEST(CreateTest, EqualSeedsGiveEqualObjects) {
  ApiServerOptions options;
  options.seed = 42;
  TestServer first(options), second(options);
  EXPECT_EQ(first.Post(kPods, MakePod("a")).body, second.Post(kPods, MakePod("a")).body);
  options.seed = 43;
  TestServer third(options);
  EXPECT_NE(first.Get(kPodA).body["metadata"]["uid"],
            third.Post(kPods, MakePod("a")).body["metadata"]["uid"]);
}

TEST(CreateTest, DryRunChangesNothing) {
  TestServer server;
  uint64_t before = server.server().revision();
  TestAnswer answer = server.Call(Method::kPost, kPods, MakePod("a"), {{"dryRun", "All"}});
  EXPECT_EQ(answer.status, 201);
  EXPECT_EQ(answer.body["spec"]["restartPolicy"], "Always");
  EXPECT_EQ(server.Get(kPodA).status, 404);
  EXPECT_EQ(server.server().revision(), before);
}

TEST(CreateTest, PriorityComesFromTheClass) {
  TestServer server;
  server.Post("/apis/scheduling.k8s.io/v1/priorityclasses",
              {{"metadata", {{"name", "high"}}}, {"value", 1000}});
  TestJson pod = MakePod("a");
  pod["spec"]["priorityClassName"] = "high";
  EXPECT_EQ(server.Post(kPods, pod).body["spec"]["priority"], 1000);
  pod["metadata"]["name"] = "b";
  pod["spec"]["priorityClassName"] = "unheard-of";
  TestAnswer answer = server.Post(kPods, pod);
  EXPECT_EQ(answer.status, 403);
  EXPECT_THAT(answer.message(), HasSubstr("no PriorityClass with name unheard-of was found"));
}

struct BadCreate {
  const char* name;
  const char* path;
  std::string body;
  int status;
  const char* reason;
  const char* message;
};

class BadCreateTest : public ::testing::TestWithParam<BadCreate> {};

TEST_P(BadCreateTest, IsRefused) {
  TestServer server;
  uint64_t before = server.server().revision();
  Request request;
  request.method = Method::kPost;
  request.path = GetParam().path;
  request.content_type = kJson;
  request.body = GetParam().body;
  Response response = server.server().Handle(request);
  TestJson body = TestJson::parse(response.body);
  EXPECT_EQ(response.status, GetParam().status) << response.body;
  EXPECT_EQ(body["code"], GetParam().status);
  EXPECT_EQ(body["kind"], "Status");
  EXPECT_EQ(body["reason"], GetParam().reason);
  EXPECT_THAT(body["message"].get<std::string>(), HasSubstr(GetParam().message));
  EXPECT_EQ(server.server().revision(), before);
}

std::string Edited(TestJson object, const std::string& pointer, TestJson value) {
  object[TestJson::json_pointer(pointer)] = std::move(value);
  return object.dump();
}

INSTANTIATE_TEST_SUITE_P(
    All, BadCreateTest,
    ::testing::Values(
        BadCreate{"Truncated", kPods, R"({"metadata":{"name":"a")", 400, "BadRequest",
                  "body is not JSON"},
        BadCreate{"NotAnObject", kPods, "[1]", 400, "BadRequest", "want an object"},
        BadCreate{"NestedTooDeep", kPods, std::string(100000, '['), 400, "BadRequest",
                  "nested more than 256 levels"},
        BadCreate{"TooLong", kPods, std::string((3 << 20) + 1, ' '), 413, "RequestEntityTooLarge",
                  "limit is 3145728 bytes"},
        BadCreate{"OtherKind", kPods, Edited(MakePod("a"), "/kind", "Node"), 400, "BadRequest",
                  "doesn't match the path"},
        BadCreate{"OtherNamespace", kPods, Edited(MakePod("a"), "/metadata/namespace", "x"), 400,
                  "BadRequest", "namespace of the provided object does not match"},
        BadCreate{"NoSuchNamespace", "/api/v1/namespaces/x/pods", MakePod("a").dump(), 404,
                  "NotFound", "namespaces \"x\" not found"},
        BadCreate{"NoName", kPods, Edited(MakePod("a"), "/metadata/name", ""), 422, "Invalid",
                  "metadata.name: Required value: name or generateName is required"},
        BadCreate{"BadName", kPods, MakePod("A_b").dump(), 422, "Invalid",
                  "metadata.name: Invalid value: \"A_b\""},
        BadCreate{"ResourceVersion", kPods, Edited(MakePod("a"), "/metadata/resourceVersion", "5"),
                  400, "BadRequest", "resourceVersion should not be set"},
        BadCreate{"WrongType", kPods, Edited(MakePod("a"), "/spec/nodeName", 7), 400, "BadRequest",
                  "spec.nodeName: want a string, got 7"},
        BadCreate{"WrongTypeOfLabel", kPods, Edited(MakePod("a"), "/metadata/labels", {{"a", 1}}),
                  400, "BadRequest", "metadata.labels.a: want a string, got 1"},
        BadCreate{"BadLabel", kPods, Edited(MakePod("a"), "/metadata/labels", {{"a b", "c"}}), 422,
                  "Invalid", "metadata.labels"},
        BadCreate{"NoContainers", kPods, Edited(MakePod("a"), "/spec", TestJson::object()), 422,
                  "Invalid", "spec.containers: Required value"},
        BadCreate{"NoImage", kPods, Edited(MakePod("a"), "/spec/containers/0", {{"name", "c"}}),
                  422, "Invalid", "spec.containers[0].image: Required value"},
        BadCreate{
            "NotAQuantity", kPods,
            Edited(MakePod("a"), "/spec/containers/0/resources", {{"requests", {{"cpu", "two"}}}}),
            400, "BadRequest", "spec.containers[0].resources.requests.cpu: want a quantity"},
        BadCreate{"NegativeQuantity", kPods,
                  Edited(MakePod("a"), "/spec/containers/0/resources",
                         {{"requests", {{"memory", "-1"}}}}),
                  422, "Invalid", "must be greater than or equal to 0"},
        BadCreate{"HalfAGpu", kPods,
                  Edited(MakePod("a"), "/spec/containers/0/resources",
                         {{"limits", {{"nvidia.com/gpu", "500m"}}}}),
                  422, "Invalid", "must be an integer"},
        BadCreate{"GpuRequestWithoutLimit", kPods,
                  Edited(MakePod("a"), "/spec/containers/0/resources",
                         {{"requests", {{"nvidia.com/gpu", "1"}}}}),
                  422, "Invalid", "Limit must be set for non overcommitable resources"},
        BadCreate{"RequestAboveLimit", kPods,
                  Edited(MakePod("a"), "/spec/containers/0/resources",
                         {{"requests", {{"cpu", "2"}}}, {"limits", {{"cpu", "1"}}}}),
                  422, "Invalid", "must be less than or equal to cpu limit of 1"},
        BadCreate{
            "TwoGatesOfOneName", kPods,
            Edited(MakePod("a"), "/spec/schedulingGates", {{{"name", "x/y"}}, {{"name", "x/y"}}}),
            422, "Invalid", "Duplicate value: \"x/y\""},
        BadCreate{"GatedAndBound", kPods, Edited(MakeGatedPod("a"), "/spec/nodeName", "n1"), 422,
                  "Invalid", "cannot be set until all schedulingGates have been cleared"},
        BadCreate{"BadToleration", kPods,
                  Edited(MakePod("a"), "/spec/tolerations", {{{"operator", "Equal"}}}), 422,
                  "Invalid", "operator must be Exists when `key` is empty"},
        BadCreate{"BadTaint", kNodes,
                  Edited(MakeNode("n"), "/spec", {{"taints", {{{"key", "a"}, {"effect", "No"}}}}}),
                  422, "Invalid", "spec.taints[0].effect: Unsupported value: \"No\""},
        BadCreate{"ZeroMinMember", kPodGroups,
                  R"({"metadata":{"name":"g"},"spec":{"minMember":0}})", 422, "Invalid",
                  "spec.minMember in body should be greater than or equal to 1"},
        BadCreate{"HugeMinMember", kPodGroups,
                  R"({"metadata":{"name":"g"},"spec":{"minMember":4294967296}})", 400, "BadRequest",
                  "spec.minMember: want an integer of 32 bits"},
        BadCreate{"TextMinMember", kPodGroups,
                  R"({"metadata":{"name":"g"},"spec":{"minMember":"4"}})", 400, "BadRequest",
                  "spec.minMember: want an integer, got \"4\""},
        BadCreate{"UnknownKind", "/apis/example.com/v1/things", "{}", 404, "NotFound",
                  "could not find the requested resource"},
        BadCreate{"EventOfOtherNamespace", "/api/v1/namespaces/default/events",
                  R"({"metadata":{"name":"e"},"involvedObject":{"namespace":"kube-system"}})", 422,
                  "Invalid", "does not match event.namespace"}),
    [](const auto& info) { return info.param.name; });

TEST(CreateTest, UnknownFields) {
  TestServer server;
  TestJson pod = MakePod("a");
  pod["spec"]["nodName"] = "n1";
  TestAnswer strict = server.Call(Method::kPost, kPods, pod, {{"fieldValidation", "Strict"}});
  EXPECT_EQ(strict.status, 400);
  EXPECT_THAT(strict.message(), HasSubstr("unknown field \"spec.nodName\""));

  Request request{Method::kPost, kPods, {}, std::string(kJson), pod.dump()};
  Answer warned = server.server().Handle(request, {});
  EXPECT_EQ(warned.response.status, 201);
  EXPECT_THAT(warned.warnings, ::testing::ElementsAre("unknown field \"spec.nodName\""));
  EXPECT_FALSE(server.Get(kPodA).body["spec"].contains("nodName"));
}

TEST(CreateTest, CustomResourcesKeepUnknownFields) {
  TestServer server;
  TestAnswer answer = server.Post(
      kPodGroups, {{"metadata", {{"name", "g"}}}, {"spec", {{"minMember", 2}, {"extra", 1}}}});
  EXPECT_EQ(answer.status, 201) << answer.body;
  EXPECT_EQ(answer.body["spec"]["extra"], 1);
}

TEST(UpdateTest, StaleResourceVersionConflicts) {
  TestServer server;
  TestJson first = server.Post(kConfigMaps, {{"metadata", {{"name", "a"}}}}).body;
  TestJson second = first;
  second["data"]["x"] = "1";
  TestAnswer updated = server.Put(std::string(kConfigMaps) + "/a", second);
  EXPECT_EQ(updated.status, 200);
  first["data"]["x"] = "2";
  TestAnswer refused = server.Put(std::string(kConfigMaps) + "/a", first);
  EXPECT_EQ(refused.status, 409);
  EXPECT_EQ(refused.reason(), "Conflict");
  EXPECT_EQ(refused.message(),
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; "
            "please apply your changes to the latest version and try again");
  TestAnswer patched = server.MergePatch(
      std::string(kConfigMaps) + "/a",
      {{"metadata", {{"resourceVersion", first["metadata"]["resourceVersion"]}}}});
  EXPECT_EQ(patched.status, 409);
  first["metadata"].erase("resourceVersion");
  EXPECT_EQ(server.Put(std::string(kConfigMaps) + "/a", first).body["data"]["x"], "2");
}

TEST(UpdateTest, OtherUidConflicts) {
  TestServer server;
  server.Post(kPods, MakePod("a"));
  TestAnswer answer = server.MergePatch(kPodA, {{"metadata", {{"uid", "another"}}}});
  EXPECT_EQ(answer.status, 409);
  EXPECT_THAT(answer.message(), HasSubstr("Precondition failed: UID in precondition: another"));
}

TEST(UpdateTest, CustomResourcesWantAVersion) {
  TestServer server;
  TestJson group = {{"metadata", {{"name", "g"}}}, {"spec", {{"minMember", 2}}}};
  server.Post(kPodGroups, group);
  TestAnswer answer = server.Put(std::string(kPodGroups) + "/g", group);
  EXPECT_EQ(answer.status, 422);
  EXPECT_THAT(answer.message(), HasSubstr("metadata.resourceVersion"));
}

TEST(UpdateTest, NoChangeMakesNoVersion) {
  TestServer server;
  TestJson pod = server.Post(kPods, MakePod("a")).body;
  uint64_t before = server.server().revision();
  EXPECT_EQ(server.Put(kPodA, pod).body, pod);
  EXPECT_EQ(server.MergePatch(kPodA, {{"metadata", {{"labels", nullptr}}}}).body, pod);
  EXPECT_EQ(server.server().revision(), before);
}

TEST(UpdateTest, GenerationCountsSpecOnly) {
  TestServer server;
  const std::string group = std::string(kPodGroups) + "/g";
  server.Post(kPodGroups, {{"metadata", {{"name", "g"}}}, {"spec", {{"minMember", 2}}}});
  EXPECT_EQ(server.MergePatch(group, {{"metadata", {{"labels", {{"a", "b"}}}}}})
                .body["metadata"]["generation"],
            1);
  EXPECT_EQ(server.MergePatch(group, {{"spec", {{"minMember", 3}}}}).body["metadata"]["generation"],
            2);
  EXPECT_EQ(server.MergePatch(group + "/status", {{"status", {{"phase", "Pending"}}}})
                .body["metadata"]["generation"],
            2);
}

TEST(UpdateTest, StatusAndSpecAreKeptApart) {
  TestServer server;
  const std::string group = std::string(kPodGroups) + "/g";
  server.Post(kPodGroups, {{"metadata", {{"name", "g"}}}, {"spec", {{"minMember", 2}}}});
  TestJson both = {{"spec", {{"minMember", 5}}}, {"status", {{"phase", "Running"}}}};
  TestAnswer main = server.MergePatch(group, both);
  EXPECT_EQ(main.body["spec"]["minMember"], 5);
  EXPECT_FALSE(main.body.contains("status"));
  both["spec"]["minMember"] = 9;
  both["metadata"]["annotations"]["a"] = "b";
  TestAnswer status = server.MergePatch(group + "/status", both);
  EXPECT_EQ(status.body["spec"]["minMember"], 5);
  EXPECT_EQ(status.body["status"]["phase"], "Running");
  EXPECT_FALSE(status.body["metadata"].contains("annotations"));
  EXPECT_EQ(server.Get(group + "/status").body, status.body);
}

TEST(UpdateTest, PodStatusMayChangeAnnotations) {
  TestServer server;
  server.Post(kPods, MakePod("a"));
  TestAnswer answer =
      server.MergePatch(kPodA + "/status", {{"metadata", {{"annotations", {{"a", "b"}}}}},
                                            {"spec", {{"nodeName", "n1"}}},
                                            {"status", {{"nominatedNodeName", "n2"}}}});
  EXPECT_EQ(answer.body["metadata"]["annotations"]["a"], "b");
  EXPECT_FALSE(answer.body["spec"].contains("nodeName"));
  EXPECT_EQ(answer.body["status"]["nominatedNodeName"], "n2");
  EXPECT_EQ(answer.body["status"]["qosClass"], "BestEffort");
}

TEST(UpdateTest, MissingObjectsAndPaths) {
  TestServer server;
  EXPECT_EQ(server.MergePatch(kPodA, {{"metadata", TestJson::object()}}).status, 404);
  EXPECT_EQ(server.Put(kPodA, MakePod("a")).status, 404);
  EXPECT_EQ(server.Get(std::string(kConfigMaps) + "/a/status").status, 404);
  EXPECT_EQ(server.Call(Method::kPut, kPods, MakePod("a")).status, 405);
  EXPECT_EQ(server.Call(Method::kPost, "/api/v1/pods", MakePod("a")).status, 405);
  EXPECT_EQ(server.Call(Method::kPost, kPodA + "/exec", MakePod("a")).status, 404);
}

TEST(UpdateTest, UnsupportedPatches) {
  TestServer server;
  server.Post(kPods, MakePod("a"));
  server.Post(kPodGroups, {{"metadata", {{"name", "g"}}}, {"spec", {{"minMember", 2}}}});
  EXPECT_EQ(server
                .Call(Method::kPatch, std::string(kPodGroups) + "/g", TestJson::object(), {},
                      kStrategicMergePatch)
                .status,
            415);
}

TEST(DeleteTest, AnUnboundPodGoesAtOnce) {
  TestServer server;
  server.Post(kPods, MakePod("a"));
  TestAnswer answer = server.Delete(kPodA);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body["kind"], "Pod");
  EXPECT_EQ(server.Get(kPodA).status, 404);
  EXPECT_EQ(server.Delete(kPodA).reason(), "NotFound");
}

TEST(DeleteTest, ABoundPodEndsGracefully) {
  TestServer server;
  server.Post(kPods, MakePod("a"));
  server.Post(kPodA + "/binding", MakeBinding("a", "n1"));
  TestAnswer answer = server.Delete(kPodA);
  EXPECT_EQ(answer.body["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
  EXPECT_EQ(answer.body["metadata"]["deletionGracePeriodSeconds"], 30);
  // A longer wish changes nothing, a shorter one shortens, zero removes.
  uint64_t before = server.server().revision();
  server.Delete(kPodA, {{"gracePeriodSeconds", 60}});
  EXPECT_EQ(server.server().revision(), before);
  server.Advance(absl::Seconds(5));
  server.Delete(kPodA, {{"gracePeriodSeconds", 10}});
  EXPECT_EQ(server.Get(kPodA).body["metadata"]["deletionTimestamp"], "2026-01-01T00:00:15Z");
  server.Delete(kPodA, {{"gracePeriodSeconds", 0}});
  EXPECT_EQ(server.Get(kPodA).status, 404);
}

TEST(DeleteTest, AnEndedPodGoesAtOnce) {
  TestServer server;
  server.Post(kPods, MakePod("a"));
  server.Post(kPodA + "/binding", MakeBinding("a", "n1"));
  server.MergePatch(kPodA + "/status", {{"status", {{"phase", "Succeeded"}}}});
  server.Delete(kPodA);
  EXPECT_EQ(server.Get(kPodA).status, 404);
}

TEST(DeleteTest, Preconditions) {
  TestServer server;
  TestJson pod = server.Post(kPods, MakePod("a")).body;
  TestAnswer answer = server.Delete(kPodA, {{"preconditions", {{"uid", "another"}}}});
  EXPECT_EQ(answer.status, 409);
  EXPECT_THAT(answer.message(), HasSubstr("the UID in the precondition (another) does not match"));
  EXPECT_EQ(server.Delete(kPodA, {{"preconditions", {{"resourceVersion", "1"}}}}).status, 409);
  EXPECT_EQ(server.Get(kPodA).status, 200);
  EXPECT_EQ(server
                .Delete(kPodA, {{"preconditions",
                                 {{"uid", pod["metadata"]["uid"]},
                                  {"resourceVersion", pod["metadata"]["resourceVersion"]}}}})
                .status,
            200);
}

TEST(DeleteTest, DryRunKeepsTheObject) {
  TestServer server;
  server.Post(kPods, MakePod("a"));
  EXPECT_EQ(server.Delete(kPodA, {{"dryRun", {"All"}}}).status, 200);
  EXPECT_EQ(server.Get(kPodA).status, 200);
}

TEST(DeleteTest, FinalizersHoldAnObject) {
  TestServer server;
  TestJson node = MakeNode("n1");
  node["metadata"]["finalizers"] = {"karpenter.sh/termination"};
  server.Post(kNodes, node);
  TestAnswer deleted = server.Delete("/api/v1/nodes/n1");
  EXPECT_EQ(deleted.body["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
  TestAnswer added =
      server.MergePatch("/api/v1/nodes/n1",
                        {{"metadata", {{"finalizers", {"karpenter.sh/termination", "x.com/y"}}}}});
  EXPECT_EQ(added.status, 422);
  EXPECT_THAT(added.message(), HasSubstr("no new finalizers can be added"));
  EXPECT_EQ(server.MergePatch("/api/v1/nodes/n1", {{"metadata", {{"finalizers", nullptr}}}}).status,
            200);
  EXPECT_EQ(server.Get("/api/v1/nodes/n1").status, 404);
}

TEST(DeleteTest, ACollectionBySelector) {
  TestServer server;
  for (const char* name : {"a", "b", "c"}) {
    TestJson pod = MakePod(name);
    pod["metadata"]["labels"] = {{"keep", *name == 'b' ? "yes" : "no"}};
    server.Post(kPods, pod);
  }
  TestAnswer answer =
      server.Call(Method::kDelete, kPods, nullptr, {{"labelSelector", "keep!=yes"}});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body["items"].size(), 2u);
  TestJson left = server.Get(kPods).body["items"];
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0]["metadata"]["name"], "b");
}

TEST(DeleteTest, ANamespaceGoesWithItsContent) {
  TestServer server;
  server.Post("/api/v1/namespaces", {{"metadata", {{"name", "team"}}}});
  server.Post("/api/v1/namespaces/team/pods", MakePod("free"));
  server.Post("/api/v1/namespaces/team/pods", MakePod("bound"));
  server.Post("/api/v1/namespaces/team/pods/bound/binding", MakeBinding("bound", "n1"));
  server.Delete("/api/v1/namespaces/team");
  EXPECT_EQ(server.Get("/api/v1/namespaces/team").body["status"]["phase"], "Terminating");
  EXPECT_EQ(server.Get("/api/v1/namespaces/team/pods").body["items"].size(), 1u);
  TestAnswer late = server.Post("/api/v1/namespaces/team/pods", MakePod("late"));
  EXPECT_EQ(late.status, 403);
  EXPECT_EQ(late.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
  server.Delete("/api/v1/namespaces/team/pods/bound", {{"gracePeriodSeconds", 0}});
  EXPECT_EQ(server.Get("/api/v1/namespaces/team").status, 404);
}

TEST(EventsTest, AreDroppedAfterTheirLifetime) {
  TestServer server;
  auto event = [](const std::string& name) {
    return TestJson{{"metadata", {{"name", name}}},
                    {"involvedObject", {{"kind", "Pod"}, {"namespace", "default"}}}};
  };
  const std::string events = "/api/v1/namespaces/default/events";
  server.Post(events, event("old"));
  server.Advance(absl::Minutes(59));
  server.Post(events, event("young"));
  EXPECT_EQ(server.Get(events).body["items"].size(), 2u);
  server.Advance(absl::Minutes(2));
  server.Post(events, event("new"));
  EXPECT_EQ(server.Get(events + "/old").status, 404);
  EXPECT_EQ(server.Get(events).body["items"].size(), 2u);
}

}  // namespace
}  // namespace muster::kube::embedded
