// Admission webhooks, called for real over TLS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/escaping.h"
#include "kube/embedded/http_front.h"
#include "kube/embedded/test_client.h"
#include "kube/embedded/test_http_client.h"
#include "kube/embedded/test_webhook_server.h"

namespace muster::kube::embedded {
namespace {

using ::testing::HasSubstr;

constexpr const char* kConfigurations =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

std::string Base64(const std::string& text) {
  std::string encoded;
  absl::Base64Escape(text, &encoded);
  return encoded;
}

// Adds the gate; what the cluster's webhook does.
TestJson AddGate(const TestJson& review) {
  const char* patch =
      R"([{"op":"add","path":"/spec/schedulingGates","value":[{"name":"muster.dev/admission"}]}])";
  return {{"apiVersion", "admission.k8s.io/v1"},
          {"kind", "AdmissionReview"},
          {"response",
           {{"uid", review["request"]["uid"]},
            {"allowed", true},
            {"patchType", "JSONPatch"},
            {"patch", Base64(patch)}}}};
}

class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionTest()
      : webhook_([this](const std::string& body) {
          TestJson review = TestJson::parse(body);
          std::lock_guard lock(mutex_);
          reviews_.push_back(review);
          return answer_(review).dump();
        }) {
    HttpFrontOptions options;
    options.tls = true;
    front_ = *HttpFront::Start(&server_, options);
  }

  TestJson Webhook(const TestJson& changes = TestJson::object()) {
    TestJson webhook = {
        {"name", "gate.muster.dev"},
        {"clientConfig", {{"url", webhook_.url()}, {"caBundle", Base64(webhook_.ca_pem())}}},
        {"rules",
         {{{"operations", {"CREATE"}},
           {"apiGroups", {""}},
           {"apiVersions", {"v1"}},
           {"resources", {"pods"}}}}},
        {"matchConditions",
         {{{"name", "ours"}, {"expression", "object.spec.schedulerName == \"coscheduling\""}}}},
        {"sideEffects", "None"},
        {"timeoutSeconds", 1},
        {"admissionReviewVersions", {"v1"}}};
    webhook.update(changes);
    return webhook;
  }

  void Register(TestJson webhook) {
    Request request{Method::kPost,
                    kConfigurations,
                    {},
                    std::string(kJson),
                    TestJson{{"metadata", {{"name", "muster"}}}, {"webhooks", {webhook}}}.dump()};
    Response response = server_.Handle(request);
    ASSERT_EQ(response.status, 201) << response.body;
  }

  RawAnswer CreatePod(const std::string& scheduler, const std::string& query = "") {
    TestJson pod = MakePod("pod-" + std::to_string(++pods_));
    pod["spec"]["schedulerName"] = scheduler;
    TestHttpClient client(front_->port(), front_->ca_pem());
    return client.Call("POST", kPods + query, pod.dump());
  }

  std::mutex mutex_;
  std::vector<TestJson> reviews_;
  std::function<TestJson(const TestJson&)> answer_ = AddGate;
  ApiServer server_;
  TestWebhookServer webhook_;
  std::unique_ptr<HttpFront> front_;
  int pods_ = 0;
};

TEST_F(AdmissionTest, ChangesMatchingPodsOnly) {
  Register(Webhook());
  RawAnswer ours = CreatePod("coscheduling");
  ASSERT_EQ(ours.status, 201) << ours.body;
  TestJson pod = TestJson::parse(ours.body);
  EXPECT_EQ(pod["spec"]["schedulingGates"][0]["name"], "muster.dev/admission");
  EXPECT_EQ(pod["status"]["conditions"][0]["reason"], "SchedulingGated");
  TestJson other = TestJson::parse(CreatePod("default-scheduler").body);
  EXPECT_FALSE(other["spec"].contains("schedulingGates"));
  ASSERT_EQ(reviews_.size(), 1u);
  const TestJson& request = reviews_[0]["request"];
  EXPECT_EQ(request["operation"], "CREATE");
  EXPECT_EQ(request["kind"]["kind"], "Pod");
  EXPECT_EQ(request["resource"]["resource"], "pods");
  EXPECT_EQ(request["namespace"], "default");
  EXPECT_EQ(request["dryRun"], false);
  EXPECT_EQ(request["object"]["spec"]["schedulerName"], "coscheduling");
  EXPECT_TRUE(request["oldObject"].is_null());
}

TEST_F(AdmissionTest, DryRunIsTold) {
  Register(Webhook());
  RawAnswer answer = CreatePod("coscheduling", "?dryRun=All");
  EXPECT_EQ(answer.status, 201);
  EXPECT_THAT(answer.body, HasSubstr("muster.dev/admission"));
  EXPECT_EQ(reviews_[0]["request"]["dryRun"], true);
}

TEST_F(AdmissionTest, ADenialIsPassedOn) {
  answer_ = [](const TestJson& review) {
    return TestJson{{"response",
                     {{"uid", review["request"]["uid"]},
                      {"allowed", false},
                      {"status", {{"code", 422}, {"message", "no such queue"}}}}}};
  };
  Register(Webhook());
  RawAnswer answer = CreatePod("coscheduling");
  EXPECT_EQ(answer.status, 422);
  EXPECT_EQ(TestJson::parse(answer.body)["message"],
            "admission webhook \"gate.muster.dev\" denied the request: no such queue");
}

TEST_F(AdmissionTest, FailurePolicyDecidesWhenItCannotBeReached) {
  TestJson gone = {{"clientConfig", {{"url", "https://127.0.0.1:1/x"}}}};
  Register(Webhook(gone));
  RawAnswer refused = CreatePod("coscheduling");
  EXPECT_EQ(refused.status, 500);
  EXPECT_THAT(refused.body, HasSubstr("failed calling webhook \\\"gate.muster.dev\\\""));
  EXPECT_EQ(CreatePod("default-scheduler").status, 201);
  Request request;
  request.method = Method::kDelete;
  request.path = std::string(kConfigurations) + "/muster";
  server_.Handle(request);
  gone["failurePolicy"] = "Ignore";
  Register(Webhook(gone));
  EXPECT_EQ(CreatePod("coscheduling").status, 201);
}

TEST_F(AdmissionTest, AnUntrustedCertificateIsAFailure) {
  TestWebhookServer other([](const std::string&) { return "{}"; });
  Register(
      Webhook({{"clientConfig", {{"url", webhook_.url()}, {"caBundle", Base64(other.ca_pem())}}}}));
  RawAnswer answer = CreatePod("coscheduling");
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, HasSubstr("certificate verify failed"));
  EXPECT_TRUE(reviews_.empty());
}

TEST_F(AdmissionTest, ASlowWebhookTimesOut) {
  std::promise<void> timed_out;
  answer_ = [until = timed_out.get_future().share()](const TestJson& review) {
    until.wait();
    return AddGate(review);
  };
  Register(Webhook());
  RawAnswer answer = CreatePod("coscheduling");
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, HasSubstr("context deadline exceeded"));
  timed_out.set_value();
}

TEST_F(AdmissionTest, NonsenseIsAFailure) {
  Register(Webhook());
  for (const char* text : {"[]", "7", R"({"response":{"uid":"other","allowed":true}})"}) {
    answer_ = [text](const TestJson&) { return TestJson::parse(text); };
    EXPECT_EQ(CreatePod("coscheduling").status, 500) << text;
  }
  answer_ = [](const TestJson& review) {
    TestJson answer = AddGate(review);
    answer["response"]["patch"] = Base64(R"([{"op":"remove","path":"/spec/nothing"}])");
    return answer;
  };
  EXPECT_EQ(CreatePod("coscheduling").status, 500);
}

TEST_F(AdmissionTest, TheWebhookMayAskTheServer) {
  answer_ = [this](const TestJson& review) {
    TestHttpClient client(front_->port(), front_->ca_pem());
    EXPECT_EQ(client.Call("GET", kPods).status, 200);
    return AddGate(review);
  };
  Register(Webhook());
  EXPECT_EQ(CreatePod("coscheduling").status, 201);
}

TEST_F(AdmissionTest, UnknownConditionsAreNamed) {
  Register(Webhook({{"matchConditions",
                     {{{"name", "odd"}, {"expression", "object.spec.containers.size() > 1"}}}}}));
  RawAnswer answer = CreatePod("coscheduling");
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, HasSubstr("matchCondition \\\"odd\\\""));
}

TEST_F(AdmissionTest, SelectorsAndUpdates) {
  TestJson webhook = Webhook({{"objectSelector", {{"matchLabels", {{"gang", "yes"}}}}}});
  webhook.erase("matchConditions");
  webhook["rules"][0]["operations"] = {"CREATE", "UPDATE"};
  webhook["namespaceSelector"] = {{"matchExpressions",
                                   {{{"key", "kubernetes.io/metadata.name"},
                                     {"operator", "NotIn"},
                                     {"values", {"kube-system"}}}}}};
  answer_ = [](const TestJson& review) {
    return TestJson{{"response", {{"uid", review["request"]["uid"]}, {"allowed", true}}}};
  };
  Register(webhook);
  EXPECT_EQ(CreatePod("coscheduling").status, 201);
  EXPECT_TRUE(reviews_.empty()) << "without the label";
  TestHttpClient client(front_->port(), front_->ca_pem());
  TestJson pod = MakePod("labelled");
  pod["metadata"]["labels"] = {{"gang", "yes"}};
  EXPECT_EQ(client.Call("POST", "/api/v1/namespaces/kube-system/pods", pod.dump()).status, 201);
  EXPECT_TRUE(reviews_.empty()) << "namespace left out";
  EXPECT_EQ(client.Call("POST", kPods, pod.dump()).status, 201);
  ASSERT_EQ(reviews_.size(), 1u);
  EXPECT_EQ(client
                .Call("PATCH", std::string(kPods) + "/labelled",
                      R"({"metadata":{"annotations":{"a":"b"}}})", "application/merge-patch+json")
                .status,
            200);
  ASSERT_EQ(reviews_.size(), 2u);
  EXPECT_EQ(reviews_[1]["request"]["operation"], "UPDATE");
  EXPECT_FALSE(reviews_[1]["request"]["oldObject"]["metadata"].contains("annotations"));
}

}  // namespace
}  // namespace muster::kube::embedded
