// Pods on their way through an API server, the registration and the served webhook.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "extender/admission/webhook.h"
#include "extender/admission/webhook_registration.h"
#include "extender/admission/webhook_server.h"
#include "fmt/format.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/direct_transport.h"
#include "kube/embedded/https_webhook_caller.h"

namespace muster::extender {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kPods = "/api/v1/namespaces/default/pods";

// One process of Muster, as far as the gate goes.
struct Process {
  Process(kube::Transport& transport, const std::string& listen, absl::Duration validity,
          absl::Time now) {
    WebhookServerOptions serve;
    serve.listen = listen;
    serve.certificates.names.ips = {"127.0.0.1"};
    serve.certificates.certificate_validity = validity;
    server = WebhookServer::Start(std::move(serve), now).value();
    WebhookRegistrationOptions options;
    options.webhook.scheduler_name = "coscheduling";
    options.webhook.url = fmt::format("https://127.0.0.1:{}{}", server->port(), kMutatePodsPath);
    options.webhook.ca_bundle = server->CaBundlePem();
    registration = std::make_unique<WebhookRegistration>(std::move(options), transport, [] {});
  }

  std::unique_ptr<WebhookServer> server;
  std::unique_ptr<WebhookRegistration> registration;
};

class AdmissionFlow : public ::testing::Test {
 protected:
  AdmissionFlow() { api_.SetWebhookCaller(std::make_shared<kube::embedded::HttpsWebhookCaller>()); }

  void StartProcess(absl::Time now, const std::string& listen = "127.0.0.1:0",
                    absl::Duration validity = absl::Hours(1)) {
    process_ = std::make_unique<Process>(transport_, listen, validity, now);
  }
  void Register(absl::Time now) {
    for (int i = 0; i < 5; ++i) {
      process_->registration->Tick(now + i * absl::Seconds(1));
      transport_.Pump();
    }
    EXPECT_TRUE(process_->registration->InPlace().ok()) << process_->registration->InPlace();
  }

  struct Outcome {
    int status;
    std::string message;
    Json gates;
  };
  Outcome CreatePod(const std::string& scheduler, bool dry_run = false) {
    kube::Request request;
    request.method = kube::Method::kPost;
    request.path = kPods;
    if (dry_run) request.query = {{"dryRun", "All"}};
    request.content_type = kube::kJson;
    const Json pod = {
        {"metadata", {{"name", fmt::format("p{}", ++pods_)}}},
        {"spec",
         {{"schedulerName", scheduler}, {"containers", {{{"name", "c"}, {"image", "i"}}}}}}};
    request.body = pod.dump();
    const kube::Response response = api_.Handle(request);
    const Json body = Json::parse(response.body);
    if (!response.ok()) return {response.status, body.value("message", ""), {}};
    return {response.status, "", body["spec"].value("schedulingGates", Json())};
  }

  const Json gated_ = Json::parse(R"([{"name":"muster.dev/admission"}])");
  kube::embedded::ApiServer api_;
  kube::embedded::DirectTransport transport_{&api_, nullptr};
  std::unique_ptr<Process> process_;
  int pods_ = 0;
};

TEST_F(AdmissionFlow, OurPodsAreGatedAndNoOthers) {
  StartProcess(absl::Now());
  Register(absl::Now());
  EXPECT_EQ(CreatePod("coscheduling").gates, gated_);
  EXPECT_EQ(CreatePod("coscheduling", /*dry_run=*/true).gates, gated_);
  EXPECT_EQ(CreatePod("default-scheduler").gates, Json());
}

TEST_F(AdmissionFlow, WhileMusterIsDownNoneOfOursGetsInAndARestartRecovers) {
  StartProcess(absl::Now());
  Register(absl::Now());
  const std::string listen = fmt::format("127.0.0.1:{}", process_->server->port());
  process_.reset();
  const Outcome refused = CreatePod("coscheduling");
  EXPECT_EQ(refused.status, 500);
  EXPECT_THAT(refused.message, HasSubstr("failed calling webhook \"admission.muster.dev\""));
  EXPECT_EQ(CreatePod("default-scheduler").status, 201);

  StartProcess(absl::Now(), listen);
  EXPECT_EQ(CreatePod("coscheduling").status, 500) << "the authority of the process before";
  Register(absl::Now());
  EXPECT_EQ(CreatePod("coscheduling").gates, gated_);
}

TEST_F(AdmissionFlow, AnExpiredCertificateKeepsOursOutUntilItIsRenewed) {
  const absl::Time hour_ago = absl::Now() - absl::Hours(1);
  StartProcess(hour_ago, "127.0.0.1:0", absl::Minutes(30));
  Register(hour_ago);
  const Outcome refused = CreatePod("coscheduling");
  EXPECT_EQ(refused.status, 500);
  EXPECT_THAT(refused.message,
              AllOf(HasSubstr("failed calling webhook"), HasSubstr("certificate verify failed")));
  EXPECT_EQ(CreatePod("default-scheduler").status, 201);
  process_->server->Tick(absl::Now());
  EXPECT_EQ(CreatePod("coscheduling").gates, gated_);
}

TEST_F(AdmissionFlow, ADeletedRegistrationComesBack) {
  StartProcess(absl::Now());
  Register(absl::Now());
  kube::Request request;
  request.method = kube::Method::kDelete;
  const WebhookObject& registration = ObjectFor(WebhookPurpose::kGate);
  request.path = fmt::format("{}/{}", registration.collection, registration.name);
  EXPECT_TRUE(api_.Handle(request).ok());
  EXPECT_EQ(CreatePod("coscheduling").gates, Json()) << "nothing calls the webhook";
  process_->registration->OnChanged();
  Register(absl::Now() + absl::Seconds(10));
  EXPECT_EQ(CreatePod("coscheduling").gates, gated_);
}

TEST_F(AdmissionFlow, TheServersDefaultsAreNoDifference) {
  StartProcess(absl::Now());
  Register(absl::Now());
  const uint64_t revision = api_.revision();
  Register(absl::Now() + absl::Minutes(5));
  EXPECT_EQ(api_.revision(), revision);
}

}  // namespace
}  // namespace muster::extender
