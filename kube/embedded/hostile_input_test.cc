// Whatever a client sends, the server answers: random damage to valid requests of every kind.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kube/embedded/test_client.h"
#include "tests/full.h"

namespace muster::kube::embedded {
namespace {

const int kRounds = muster::testing::Rounds(1500);

class Damage {
 public:
  explicit Damage(uint32_t seed) : random_(seed) {}

  size_t Draw(size_t bound) { return random_() % bound; }

  // Replaces, removes or adds something somewhere in the value.
  void Apply(TestJson* value) {
    while (value->is_structured() && !value->empty() && Draw(4) != 0) {
      auto it = value->begin();
      std::advance(it, Draw(value->size()));
      value = &*it;
    }
    if (value->is_object() && Draw(2) == 0) {
      (*value)[Key()] = Anything();
    } else if (value->is_structured() && !value->empty() && Draw(2) == 0) {
      auto it = value->begin();
      std::advance(it, Draw(value->size()));
      value->erase(it);
    } else {
      *value = Anything();
    }
  }

  TestJson Anything() {
    static const auto* const kValues =
        new std::vector<TestJson>{nullptr,
                                  true,
                                  0,
                                  -1,
                                  1.5,
                                  99999999999999999,
                                  "",
                                  "a",
                                  "-1",
                                  "1Gi",
                                  "All",
                                  "Exists",
                                  "$patch",
                                  std::string(300, 'x'),
                                  TestJson::array(),
                                  TestJson::object(),
                                  TestJson::array({nullptr}),
                                  TestJson::array({TestJson::object()}),
                                  TestJson::object({{"$patch", "delete"}}),
                                  TestJson::object({{"a", TestJson::array({1})}})};
    return (*kValues)[Draw(kValues->size())];
  }

 private:
  std::string Key() {
    static const auto* const kKeys =
        new std::vector<std::string>{"spec",
                                     "metadata",
                                     "status",
                                     "name",
                                     "namespace",
                                     "labels",
                                     "conditions",
                                     "$patch",
                                     "$retainKeys",
                                     "$setElementOrder/containers",
                                     "$deleteFromPrimitiveList/finalizers",
                                     "finalizers",
                                     "ownerReferences",
                                     "resourceVersion",
                                     "uid",
                                     "",
                                     "a/b",
                                     "x"};
    return (*kKeys)[Draw(kKeys->size())];
  }

  std::mt19937 random_;
};

struct Sample {
  std::string path;  // of the collection
  TestJson object;
};

std::vector<Sample> Samples() {
  TestJson pod = MakeGatedPod("a");
  pod["metadata"]["labels"] = {{"a", "b"}};
  pod["metadata"]["finalizers"] = {"x.com/y"};
  pod["spec"]["tolerations"] = {{{"key", "k"}, {"operator", "Exists"}}};
  pod["spec"]["nodeSelector"] = {{"a", "b"}};
  pod["spec"]["initContainers"] = {{{"name", "i"}, {"image", "x"}, {"restartPolicy", "Always"}}};
  pod["spec"]["containers"][0]["resources"] = {{"limits", {{"cpu", "1"}, {"nvidia.com/gpu", 1}}}};
  pod["spec"]["containers"][0]["ports"] = {{{"containerPort", 80}}};
  pod["spec"]["affinity"] = TestJson::parse(
      R"({"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":
          [{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}]}}})");
  TestJson node = MakeNode("a");
  node["spec"] = {{"taints", {{{"key", "a"}, {"effect", "NoSchedule"}}}}};
  return {
      {kPods, pod},
      {kNodes, node},
      {kPodGroups, {{"metadata", {{"name", "a"}}}, {"spec", {{"minMember", 2}}}}},
      {"/apis/karpenter.sh/v1/nodepools",
       TestJson::parse(R"({"metadata":{"name":"a"},"spec":{"limits":{"cpu":"1"},"template":
           {"spec":{"requirements":[{"key":"a","operator":"In","values":["b"]}]}}}})")},
      {"/apis/karpenter.sh/v1/nodeclaims",
       TestJson::parse(
           R"({"metadata":{"name":"a"},"spec":{"resources":{"requests":{"cpu":"1"}}}})")},
      {"/api/v1/namespaces", {{"metadata", {{"name", "a"}}}}},
      {"/api/v1/namespaces/default/events",
       {{"metadata", {{"name", "a"}}}, {"involvedObject", {{"namespace", "default"}}}}},
      {"/apis/batch/v1/namespaces/default/jobs",
       {{"metadata", {{"name", "a"}}},
        {"spec", {{"template", {{"spec", {{"restartPolicy", "Never"}}}}}}}}},
      {"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
       TestJson::parse(R"({"metadata":{"name":"a"},"webhooks":[{"name":"a.b.c","sideEffects":"None",
           "clientConfig":{"url":"https://127.0.0.1:1"},"failurePolicy":"Ignore",
           "admissionReviewVersions":["v1"],"matchConditions":[{"name":"m","expression":"true"}],
           "rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],
                     "resources":["configmaps"]}]}]})")},
      {"/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
       TestJson::parse(R"({"metadata":{"name":"things.example.com"},"spec":{"group":"example.com",
           "scope":"Namespaced","names":{"kind":"Thing","plural":"things"},"versions":[{"name":"v1",
           "served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":
           {"spec":{"type":"object","properties":{"n":{"type":"integer"}}}}}},
           "additionalPrinterColumns":[{"name":"N","type":"date","jsonPath":".spec.n"}]}]}})")},
  };
}

Request RandomRequest(Damage* damage, const Sample& sample) {
  TestJson object = sample.object;
  std::string name = object["metadata"]["name"];
  for (size_t i = damage->Draw(3) + 1; i > 0; --i) damage->Apply(&object);
  Request request;
  request.path = sample.path;
  request.content_type = kJson;
  request.method = Method::kPost;
  size_t form = damage->Draw(8);
  if (form >= 2) request.path += "/" + name;
  if (form == 3 || form == 5) request.path += "/status";
  if (form == 2 || form == 3) request.method = Method::kPut;
  if (form >= 4 && form <= 6) {
    request.method = Method::kPatch;
    const std::string_view types[] = {kMergePatch, kStrategicMergePatch, kApplyPatch};
    request.content_type = types[damage->Draw(3)];
    request.query = {{"fieldManager", damage->Draw(2) ? "one" : "two"}};
    if (request.content_type == kApplyPatch && damage->Draw(2)) {
      request.query.emplace_back("force", "true");
    }
  }
  if (form == 6) {
    request.content_type = kJsonPatch;
    TestJson step = {{"op", "replace"}, {"path", "/spec"}, {"value", damage->Anything()}};
    damage->Apply(&step);
    object = TestJson::array({step});
  }
  if (form == 7) {
    request.path += damage->Draw(2) ? "/binding" : "/eviction";
    object = MakeBinding(name, "n1");
    damage->Apply(&object);
  }
  request.body = object.dump();
  if (damage->Draw(10) == 0) request.body.resize(damage->Draw(request.body.size() + 1));
  return request;
}

TEST(HostileInputTest, EveryRequestIsAnswered) {
  for (uint32_t seed = 0; seed < 3; ++seed) {
    Damage damage(seed);
    std::vector<Sample> samples = Samples();
    auto server = std::make_unique<TestServer>();
    int accepted = 0;
    for (int round = 0; round < kRounds / 3; ++round) {
      if (round % 500 == 0) {
        server = std::make_unique<TestServer>();
        for (Sample& sample : samples) {
          const TestAnswer made = server->Post(sample.path, sample.object);
          ASSERT_EQ(made.status, 201) << sample.path;
          for (const char* of : {"apiVersion", "kind"}) sample.object[of] = made.body[of];
        }
      }
      const Sample& sample = samples[damage.Draw(samples.size())];
      Request request = RandomRequest(&damage, sample);
      RequestHeaders headers;
      if (damage.Draw(4) == 0) headers.accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
      Response response = server->server().Handle(request, headers).response;
      TestJson body = TestJson::parse(response.body, nullptr, false);
      ASSERT_TRUE(body.is_object())
          << "seed " << seed << ": " << request.path << " " << request.body;
      ASSERT_TRUE(response.status >= 200 && response.status < 600) << response.status;
      if (response.ok()) {
        ++accepted;
        ASSERT_EQ(server->Get(sample.path).status, 200);
      } else {
        ASSERT_EQ(body["kind"], "Status") << response.body;
        ASSERT_FALSE(body["message"].get<std::string>().empty());
      }
      server->Delete(sample.path + "/" + sample.object["metadata"]["name"].get<std::string>());
      server->Post(sample.path, sample.object);
    }
    EXPECT_GT(accepted, kRounds / 100) << "too few requests come through to test anything";
  }
}

TEST(HostileInputTest, OddPaths) {
  TestServer server;
  for (const char* path :
       {"", "/", "//", "/api", "/api/", "/api/v1/", "/apis/", "/apis/x", "/api/v2/pods",
        "/api/v1/namespaces/default/pods/a/b/c", "/api/v1/pods/a", "/api/v1/namespaces/x/nodes",
        "/api/v1/namespaces/\xff\xfe/pods", "/api/v1/namespaces/ /pods", "/openapi/v3/none",
        "/openapi/v4", "/apis/batch/v1/namespaces/default"}) {
    for (Method method :
         {Method::kGet, Method::kPost, Method::kPut, Method::kPatch, Method::kDelete}) {
      Request request{method, path, {{"watch", "\xff"}}, std::string(kJson), "{}"};
      Response response = server.server().Handle(request);
      EXPECT_TRUE(response.status >= 200 && response.status < 500) << path;
      EXPECT_FALSE(TestJson::parse(response.body, nullptr, false).is_discarded()) << path;
      request.query = {{"watch", "1"}};
      auto watch = server.server().Watch(request);
      EXPECT_TRUE(watch.session != nullptr || watch.refusal.status >= 400) << path;
    }
  }
  EXPECT_EQ(server.Get(kPods, {{"labelSelector", "\xff\xfe=\xff"}}).status, 200);
  EXPECT_EQ(server.Get(kPods, {{"fieldSelector", "\xff"}}).status, 400);
}

}  // namespace
}  // namespace muster::kube::embedded
