// The whole service over its real endpoints, against the embedded API server on a socket. The test
// plays kube-scheduler and the user.

#include "extender/service.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "absl/time/clock.h"
#include "extender/admission/certificates.h"
#include "extender/admission/testing/certificate_folder.h"
#include "extender/rest_client.h"
#include "extender/testing/stalling_relay.h"
#include "fmt/format.h"
#include "http/testing/raw_client.h"
#include "kube/client/kubeconfig.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/faults.h"
#include "kube/embedded/http_front.h"
#include "muster/v1/admission.grpc.pb.h"

namespace muster::extender {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kPods = "/api/v1/namespaces/default/pods";
constexpr const char* kGroups = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups";

template <typename Condition>
bool Await(Condition condition, absl::Duration limit = absl::Seconds(30)) {
  const absl::Time until = absl::Now() + limit;
  while (!condition()) {
    if (absl::Now() > until) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

bool HasIpv6Loopback() {
  std::ifstream addresses("/proc/net/if_inet6");
  const std::string text{std::istreambuf_iterator<char>(addresses), {}};
  return text.find("00000000000000000000000000000001") != std::string::npos;
}

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() : front_(*kube::embedded::HttpFront::Start(&server_, {.faults = &faults_})) {
    kubeconfig_ = std::filesystem::temp_directory_path() /
                  fmt::format("muster-service-test-{}.yaml", getpid());
    std::ofstream(kubeconfig_) << front_->Kubeconfig();
  }
  ~ServiceTest() override {
    service_.reset();
    std::filesystem::remove(kubeconfig_);
  }

  static ServeOptions Options() {
    ServeOptions options;
    options.extender_listen = options.listen = options.grpc_listen = options.webhook_listen =
        options.health_listen = "127.0.0.1:0";
    options.leader_elect = false;
    // What it answers to whom is query_access_test.cc's.
    options.query.authentication = ServeOptions::Query::Authentication::kNone;
    return options;
  }
  void StartService(ServeOptions options = Options()) {
    Begin(std::move(options));
    ASSERT_TRUE(Await([&] { return Rest("/readyz").status == 200; })) << Rest("/readyz").body;
  }
  void Begin(ServeOptions options) {
    absl::StatusOr<kube::ClientConfig> cluster = kube::LoadKubeconfig({kubeconfig_});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    absl::StatusOr<std::unique_ptr<Service>> service =
        Service::Start(std::move(options), *std::move(cluster));
    ASSERT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
  }

  struct Answer {
    int status;
    json body;
  };
  Answer Api(kube::Method method, const std::string& path, const json& body = nullptr) {
    kube::Request request;
    request.method = method;
    request.path = path;
    if (!body.is_null()) {
      request.content_type = kube::kJson;
      request.body = body.dump();
    }
    const kube::Response response = server_.Handle(request);
    return {response.status, json::parse(response.body, nullptr, false)};
  }
  Answer CreatePod(const std::string& name, const std::string& gang,
                   const std::string& scheduler = "coscheduling") {
    json labels = json::object();
    if (!gang.empty()) labels["scheduling.x-k8s.io/pod-group"] = gang;
    const json container = {{"name", "main"},
                            {"image", "train"},
                            {"resources", {{"limits", {{"nvidia.com/gpu", "8"}}}}}};
    return Api(
        kube::Method::kPost, kPods,
        {{"apiVersion", "v1"},
         {"kind", "Pod"},
         {"metadata", {{"name", name}, {"labels", labels}}},
         {"spec", {{"schedulerName", scheduler}, {"containers", json::array({container})}}}});
  }
  static bool IsGated(const json& pod) {
    return !pod["spec"].value("schedulingGates", json::array()).empty();
  }
  json Pod(const std::string& name) {
    return Api(kube::Method::kGet, fmt::format("{}/{}", kPods, name)).body;
  }
  void CreateNode(const std::string& name) {
    const json amounts = {
        {"cpu", "96"}, {"memory", "1Ti"}, {"pods", "110"}, {"nvidia.com/gpu", "8"}};
    const Answer made = Api(kube::Method::kPost, "/api/v1/nodes",
                            {{"apiVersion", "v1"},
                             {"kind", "Node"},
                             {"metadata", {{"name", name}}},
                             {"status",
                              {{"capacity", amounts},
                               {"allocatable", amounts},
                               {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}});
    ASSERT_EQ(made.status, 201) << made.body;
  }
  void CreateGroup(const std::string& name, int members) {
    const Answer made = Api(kube::Method::kPost, kGroups,
                            {{"apiVersion", "scheduling.x-k8s.io/v1alpha1"},
                             {"kind", "PodGroup"},
                             {"metadata", {{"name", name}}},
                             {"spec", {{"minMember", members}}}});
    ASSERT_EQ(made.status, 201) << made.body;
  }

  // As a kube-scheduler writes its Lease.
  void SetHolder(const std::string& holder) {
    const std::string path = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    json spec = {{"leaseDurationSeconds", 3600},
                 {"renewTime", "2030-01-01T00:00:00.000000Z"},
                 {"leaseTransitions", 7}};
    if (!holder.empty()) spec["holderIdentity"] = holder;
    Api(kube::Method::kDelete, path + "/coscheduling");
    const Answer made = Api(kube::Method::kPost, path,
                            {{"apiVersion", "coordination.k8s.io/v1"},
                             {"kind", "Lease"},
                             {"metadata", {{"name", "coscheduling"}}},
                             {"spec", spec}});
    ASSERT_EQ(made.status, 201) << made.body;
  }

  http::RawClient::Message Rest(const std::string& path) {
    return Ask(service_->rest_port(), path);
  }
  static http::RawClient::Message Ask(uint16_t port, const std::string& path) {
    http::RawClient client(port);
    client.Send(http::RawGet(path));
    return client.ReadMessage();
  }
  // The value of a metric without labels.
  std::string Metric(const std::string& name) {
    const std::string text = Rest("/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    if (at == std::string::npos) return "absent";
    const size_t value = at + name.size() + 2;
    return text.substr(value, text.find('\n', value) - value);
  }
  v1::Gang Gang(const std::string& name) {
    return RestClient(fmt::format("127.0.0.1:{}", service_->rest_port()))
        .GetGang("default", name)
        .value_or(v1::Gang());
  }
  bool AwaitState(const std::string& gang, v1::GangState state) {
    return Await([&] { return Gang(gang).state() == state; });
  }
  json Filter(const std::string& pod, const std::vector<std::string>& nodes) {
    http::RawClient client(service_->extender_port());
    client.Send(http::RawPost(
        "/filter", json{{"Pod", Pod(pod)}, {"Nodes", nullptr}, {"NodeNames", nodes}}.dump()));
    return json::parse(client.ReadMessage().body, nullptr, false);
  }
  static std::string BindBody(const json& pod, const std::string& node) {
    return json{{"PodName", pod["metadata"]["name"]},
                {"PodNamespace", "default"},
                {"PodUID", pod["metadata"]["uid"]},
                {"Node", node}}
        .dump();
  }

  kube::embedded::Faults faults_;
  kube::embedded::ApiServer server_;
  std::unique_ptr<kube::embedded::HttpFront> front_;
  std::string kubeconfig_;
  std::unique_ptr<Service> service_;
};

TEST_F(ServiceTest, GangGoesFromTheGateToItsNodesInOneStroke) {
  StartService();
  CreateNode("n1");
  CreateNode("n2");
  CreateGroup("train", 2);
  const Answer first = CreatePod("train-0", "train");
  ASSERT_EQ(first.status, 201) << first.body;
  EXPECT_EQ(first.body["spec"]["schedulingGates"],
            json::array({{{"name", "muster.dev/admission"}}}));
  ASSERT_TRUE(AwaitState("train", v1::WAITING_FOR_MEMBERS));
  EXPECT_THAT(Filter("train-0", {"n1", "n2"})["Error"].get<std::string>(), Not(""));

  ASSERT_EQ(CreatePod("train-1", "train").status, 201);
  ASSERT_TRUE(Await([&] { return !IsGated(Pod("train-0")) && !IsGated(Pod("train-1")); }))
      << Rest("/v1/gangs").body;

  // kube-scheduler asks. The filter passes the planned node only; the first bind call commits all.
  std::vector<std::string> planned;
  for (const char* pod : {"train-0", "train-1"}) {
    json reply;
    ASSERT_TRUE(Await([&] {
      reply = Filter(pod, {"n1", "n2"});
      return reply["Error"].get<std::string>().empty();
    })) << reply;
    ASSERT_EQ(reply["NodeNames"].size(), 1u) << reply;
    planned.push_back(reply["NodeNames"][0]);
  }
  EXPECT_NE(planned[0], planned[1]);
  http::RawClient bind(service_->extender_port());
  bind.Send(http::RawPost("/bind", BindBody(Pod("train-0"), planned[0])));
  EXPECT_EQ(bind.ReadMessage(absl::Seconds(20)).body, R"({"Error":""})");
  ASSERT_TRUE(AwaitState("train", v1::BOUND)) << Rest("/v1/gangs").body;
  bind.Send(http::RawPost("/bind", BindBody(Pod("train-1"), planned[1])));
  EXPECT_EQ(bind.ReadMessage(absl::Seconds(20)).body, R"({"Error":""})");
  for (int i : {0, 1}) {
    const json pod = Pod(fmt::format("train-{}", i));
    EXPECT_EQ(pod["spec"]["nodeName"], planned[i]);
    EXPECT_EQ(pod["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"], "true");
  }

  // All interfaces tell the same.
  v1::GetGangRequest request;
  request.set_namespace_("default");
  request.set_name("train");
  auto stub = v1::Admission::NewStub(grpc::CreateChannel(
      fmt::format("127.0.0.1:{}", service_->grpc_port()), grpc::InsecureChannelCredentials()));
  v1::Gang from_grpc, from_rest;
  EXPECT_TRUE(Await([&] {
    grpc::ClientContext context;
    from_rest = Gang("train");
    return stub->GetGang(&context, request, &from_grpc).ok() &&
           google::protobuf::util::MessageDifferencer::Equals(from_grpc, from_rest);
  })) << from_grpc.DebugString()
      << from_rest.DebugString();
  EXPECT_TRUE(Await([&] {
    const json events = Api(kube::Method::kGet, "/api/v1/namespaces/default/events").body;
    for (const json& event : events["items"]) {
      if (event["involvedObject"]["kind"] == "PodGroup") return true;
    }
    return false;
  }));
  const std::string metrics = Rest("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("muster_gangs{state=\"BOUND\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("muster_bind_seconds_count{outcome=\"bound\"} 2\n"));
  EXPECT_THAT(metrics, HasSubstr("muster_ready 1\n"));
  EXPECT_THAT(metrics, HasSubstr("muster_webhook_in_place 1\n"));
  EXPECT_THAT(metrics, HasSubstr("muster_http_request_seconds_count{route=\"/mutate-pods\","
                                 "server=\"webhook\",status=\"200\"} 2\n"));
  EXPECT_THAT(metrics, HasSubstr("muster_webhook_certificate_expiration_timestamp_seconds "));
  EXPECT_THAT(metrics, HasSubstr("\nprocess_open_fds "));
}

TEST_F(ServiceTest, APodsJobSaysHowLargeItsGangIsAndOwnsThePodGroup) {
  StartService();
  const json container = {{"name", "main"}, {"image", "train"}};
  const json pod_spec = {{"schedulerName", "coscheduling"},
                         {"restartPolicy", "Never"},
                         {"containers", json::array({container})}};
  const Answer job = Api(kube::Method::kPost, "/apis/batch/v1/namespaces/default/jobs",
                         {{"apiVersion", "batch/v1"},
                          {"kind", "Job"},
                          {"metadata", {{"name", "train"}}},
                          {"spec", {{"parallelism", 3}, {"template", {{"spec", pod_spec}}}}}});
  ASSERT_EQ(job.status, 201) << job.body;
  const json owner = {{"apiVersion", "batch/v1"},
                      {"kind", "Job"},
                      {"name", "train"},
                      {"uid", job.body["metadata"]["uid"]},
                      {"controller", true}};
  const Answer pod =
      Api(kube::Method::kPost, kPods,
          {{"apiVersion", "v1"},
           {"kind", "Pod"},
           {"metadata", {{"name", "train-0"}, {"ownerReferences", json::array({owner})}}},
           {"spec", pod_spec}});
  ASSERT_EQ(pod.status, 201) << pod.body;
  EXPECT_TRUE(Await([&] { return Gang("train").reason().code() == v1::MEMBERS_MISSING; }));
  EXPECT_EQ(Gang("train").min_member(), 3);
  const std::string path = fmt::format("{}/train", kGroups);
  ASSERT_TRUE(Await([&] { return Api(kube::Method::kGet, path).status == 200; }));
  const json group = Api(kube::Method::kGet, path).body;
  EXPECT_EQ(group["spec"]["minMember"], 3);
  EXPECT_EQ(group["metadata"]["ownerReferences"][0], owner);
  Api(kube::Method::kDelete, "/apis/batch/v1/namespaces/default/jobs/train");
  EXPECT_TRUE(Await([&] { return Gang("train").reason().code() == v1::OWNER_NOT_FOUND; }));
}

// What a job's controller says when the API server refuses a pod.
TEST_F(ServiceTest, PodsThatTheApiServerRefusesAreNamedInTheGangsReason) {
  StartService();
  CreateGroup("train", 2);
  json pod = CreatePod("train-0", "train").body;
  const json owner = {{"apiVersion", "apps/v1"},
                      {"kind", "ReplicaSet"},
                      {"name", "train"},
                      {"uid", "set-uid"},
                      {"controller", true}};
  ASSERT_EQ(Api(kube::Method::kDelete, fmt::format("{}/train-0", kPods)).status, 200);
  pod["metadata"] = {{"name", "train-0"},
                     {"labels", pod["metadata"]["labels"]},
                     {"ownerReferences", json::array({owner})}};
  pod["spec"].erase("schedulingGates");
  pod.erase("status");
  const Answer made = Api(kube::Method::kPost, kPods, pod);
  ASSERT_EQ(made.status, 201) << made.body;
  ASSERT_TRUE(Await([&] { return Gang("train").reason().code() == v1::MEMBERS_MISSING; }));

  const std::string now =
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now() + absl::Seconds(2), absl::UTCTimeZone());
  const auto event = [&](const std::string& name, const std::string& reason) {
    return json{
        {"apiVersion", "v1"},
        {"kind", "Event"},
        {"metadata", {{"name", name}}},
        {"involvedObject",
         {{"kind", "ReplicaSet"}, {"namespace", "default"}, {"name", "train"}, {"uid", "set-uid"}}},
        {"type", "Warning"},
        {"reason", reason},
        {"message",
         "Error creating: pods \"train-x\" is forbidden: exceeded quota: gpu, "
         "requested: pods=1, used: pods=1, limited: pods=1"},
        {"count", 1},
        {"firstTimestamp", now},
        {"lastTimestamp", now}};
  };
  const std::string events = "/api/v1/namespaces/default/events";
  ASSERT_EQ(Api(kube::Method::kPost, events, event("train.1", "FailedDelete")).status, 201);
  ASSERT_EQ(Api(kube::Method::kPost, events, event("train.2", "FailedCreate")).status, 201);
  EXPECT_TRUE(Await([&] { return Gang("train").reason().code() == v1::PODS_REFUSED; }));
  const v1::Reason reason = Gang("train").reason();
  EXPECT_EQ(reason.message(),
            "1 of 2 members exist; pods of ReplicaSet default/train are refused: exceeded quota: "
            "gpu, requested: pods=1, used: pods=1, limited: pods=1");
  EXPECT_THAT(reason.fix(), HasSubstr("raise ResourceQuota default/gpu"));
  // The PodGroup says it too, and so does an event about it.
  EXPECT_TRUE(Await([&] {
    const json group = Api(kube::Method::kGet, fmt::format("{}/train", kGroups)).body;
    return group.dump().find("exceeded quota: gpu") != std::string::npos;
  })) << Api(kube::Method::kGet, fmt::format("{}/train", kGroups)).body;
  EXPECT_TRUE(Await([&] {
    const json all = Api(kube::Method::kGet, events).body;
    for (const json& told : all["items"]) {
      if (told["reason"] == "PodsRefused" && told["type"] == "Warning") return true;
    }
    return false;
  }));
  // Of the events only those that say so were read.
  EXPECT_THAT(Rest("/metrics").body,
              HasSubstr("muster_watch_objects{kind=\"events/FailedCreate\"} 1\n"));
  EXPECT_TRUE(Await([&] { return Metric("muster_pod_refusals") == "1"; }));
  EXPECT_EQ(Metric("muster_pod_refusals_dropped_total"), "0");
}

// Kueue before v0.15 has no v1beta2.
TEST_F(ServiceTest, QueuesThatAreServedInV1beta1OnlyGetTheirStatusThere) {
  const std::string crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
  for (const char* kind : {"clusterqueues", "localqueues", "resourceflavors"}) {
    const std::string path = fmt::format("{}/{}.kueue.x-k8s.io", crds, kind);
    json crd = Api(kube::Method::kGet, path).body;
    ASSERT_EQ(Api(kube::Method::kDelete, path).status, 200);
    crd["spec"]["versions"][0]["name"] = "v1beta1";
    crd["metadata"] = {{"name", crd["metadata"]["name"]}};
    crd.erase("status");
    const Answer made = Api(kube::Method::kPost, crds, crd);
    ASSERT_EQ(made.status, 201) << made.body;
  }
  StartService();
  const std::string kueue = "/apis/kueue.x-k8s.io/v1beta1";
  const json quota = {
      {"coveredResources", {"nvidia.com/gpu"}},
      {"flavors",
       {{{"name", "spot"}, {"resources", {{{"name", "nvidia.com/gpu"}, {"nominalQuota", "8"}}}}}}}};
  ASSERT_EQ(Api(kube::Method::kPost, kueue + "/resourceflavors",
                {{"apiVersion", "kueue.x-k8s.io/v1beta1"},
                 {"kind", "ResourceFlavor"},
                 {"metadata", {{"name", "spot"}}},
                 {"spec", json::object()}})
                .status,
            201);
  ASSERT_EQ(
      Api(kube::Method::kPost, kueue + "/clusterqueues",
          {{"apiVersion", "kueue.x-k8s.io/v1beta1"},
           {"kind", "ClusterQueue"},
           {"metadata", {{"name", "gpus"}}},
           {"spec",
            {{"namespaceSelector", json::object()}, {"resourceGroups", json::array({quota})}}}})
          .status,
      201);
  ASSERT_EQ(Api(kube::Method::kPost, kueue + "/namespaces/default/localqueues",
                {{"apiVersion", "kueue.x-k8s.io/v1beta1"},
                 {"kind", "LocalQueue"},
                 {"metadata", {{"name", "team"}}},
                 {"spec", {{"clusterQueue", "gpus"}}}})
                .status,
            201);
  for (const auto& [path, usage] :
       {std::pair(kueue + "/clusterqueues/gpus", "flavorsUsage"),
        std::pair(kueue + "/namespaces/default/localqueues/team", "flavorUsage")}) {
    json status;
    EXPECT_TRUE(Await([&] {
      status = Api(kube::Method::kGet, path).body["status"];
      return status.contains("conditions") && status["conditions"][0]["status"] == "True" &&
             status.contains(usage);
    })) << path
        << status;
  }
}

TEST_F(ServiceTest, EventsThatMayNotBeReadHoldNothingUp) {
  kube::embedded::FaultRule rule;
  rule.action = kube::embedded::FaultRule::Action::kAnswer;
  rule.path = "/api/v1/events";
  rule.status = 403;
  faults_.Add(rule);
  StartService();
  CreateGroup("train", 2);
  ASSERT_EQ(CreatePod("train-0", "train").status, 201);
  EXPECT_TRUE(AwaitState("train", v1::WAITING_FOR_MEMBERS));
  EXPECT_EQ(Rest("/readyz").status, 200);
}

TEST_F(ServiceTest, OtherSchedulersPodsAreUntouchedAlsoWhileItIsDown) {
  StartService();
  EXPECT_FALSE(IsGated(CreatePod("other-0", "", "default-scheduler").body));
  service_->Stop();
  service_.reset();
  EXPECT_EQ(CreatePod("other-1", "", "default-scheduler").status, 201);
  // Ours don't get in ungated.
  EXPECT_GE(CreatePod("ours-0", "").status, 500);
  // A restarted process, with a new authority and on another port, takes over by itself.
  StartService();
  const Answer again = CreatePod("ours-1", "");
  EXPECT_EQ(again.status, 201) << again.body;
  EXPECT_TRUE(IsGated(again.body));
}

// What the sanitizers look at: an answer that comes while it stops asks for the next write.
TEST_F(ServiceTest, StopsInTheMiddleOfAQueueOfWrites) {
  constexpr int kMembers = 24;
  kube::embedded::FaultRule slow;
  slow.action = kube::embedded::FaultRule::Action::kDelay;
  slow.method = kube::Method::kPatch;
  slow.path = fmt::format("{}/*", kPods);
  slow.delay = absl::Milliseconds(10);
  const int writes = faults_.Add(slow);
  for (int i = 0; i < kMembers; ++i) CreateNode(fmt::format("node-{}", i));
  for (int round = 0; round < 4; ++round) {
    ServeOptions options = Options();
    options.max_in_flight = 2;
    options.stop_grace = absl::ZeroDuration();
    StartService(std::move(options));
    const std::string gang = fmt::format("train-{}", round);
    const size_t before = faults_.Struck(writes);
    CreateGroup(gang, kMembers);
    for (int i = 0; i < kMembers; ++i) {
      ASSERT_EQ(CreatePod(fmt::format("{}-{}", gang, i), gang).status, 201);
    }
    const auto gated = [&] {
      int count = 0;
      for (int i = 0; i < kMembers; ++i) {
        if (IsGated(Pod(fmt::format("{}-{}", gang, i)))) ++count;
      }
      return count;
    };
    ASSERT_TRUE(Await([&] { return faults_.Struck(writes) > before; }));
    service_->Stop();
    // The API server may still carry out what was under way, so writes are counted as it gets them.
    // What came before the stop is counted when an answer to a later request is here.
    const int left = gated();
    const size_t asked = faults_.Struck(writes);
    service_.reset();
    absl::SleepFor(absl::Milliseconds(20));
    EXPECT_EQ(faults_.Struck(writes), asked) << "written after it had stopped";
    EXPECT_GT(left, 0) << "all was written before it stopped: nothing is tested";
    for (int i = 0; i < kMembers; ++i) {
      Api(kube::Method::kDelete, fmt::format("{}/{}-{}", kPods, gang, i));
    }
  }
}

TEST_F(ServiceTest, ListeningAtEveryAddressItRegistersOneThatCanBeCalled) {
  for (const auto& [any, pod] : {std::pair("0.0.0.0", "v4"), std::pair("[::]", "v6")}) {
    if (pod == std::string("v6") && !HasIpv6Loopback()) continue;
    ServeOptions options = Options();
    options.webhook_listen = fmt::format("{}:0", any);
    StartService(std::move(options));
    // Called over HTTPS: the URL's name is in the certificate.
    const Answer made = CreatePod(pod, "");
    EXPECT_EQ(made.status, 201) << any << made.body;
    EXPECT_TRUE(IsGated(made.body)) << any;
    service_.reset();
  }
}

TEST_F(ServiceTest, IsNotReadyWhileItsWebhookIsNotRegistered) {
  kube::embedded::FaultRule may_not_create;
  may_not_create.method = kube::Method::kPost;
  may_not_create.path = "*/mutatingwebhookconfigurations";
  may_not_create.status = 403;
  may_not_create.message = "may not register";
  const int forbidden = faults_.Add(may_not_create);
  Begin(Options());
  ASSERT_TRUE(Await([&] { return faults_.Struck(forbidden) > 0; }));
  EXPECT_TRUE(Await([&] {
    const http::RawClient::Message answer = Rest("/readyz");
    return answer.status == 503 &&
           answer.body.find(
               "the webhook is not registered; create "
               "mutatingwebhookconfigurations/muster-admission: HTTP 403: may not register") !=
               std::string::npos;
  })) << Rest("/readyz").body;
  faults_.Remove(forbidden);
  EXPECT_TRUE(Await([&] { return Rest("/readyz").status == 200; })) << Rest("/readyz").body;
}

TEST_F(ServiceTest, IsReadyAlthoughItMayNotRegisterItsWarnings) {
  kube::embedded::FaultRule may_not_create;
  may_not_create.method = kube::Method::kPost;
  may_not_create.path = "*/validatingwebhookconfigurations";
  may_not_create.status = 403;
  may_not_create.message = "may not register";
  const int forbidden = faults_.Add(may_not_create);
  StartService();
  ASSERT_TRUE(Await([&] { return faults_.Struck(forbidden) > 0; }));
  EXPECT_EQ(Metric("muster_warnings_in_place"), "0");
  EXPECT_EQ(Metric("muster_webhook_in_place"), "1");
  EXPECT_TRUE(IsGated(CreatePod("ours", "").body));
  faults_.Remove(forbidden);
  EXPECT_TRUE(Await([&] { return Metric("muster_warnings_in_place") == "1"; }));
}

TEST_F(ServiceTest, IsNotReadyOnceItsWebhooksCertificateHasExpired) {
  const KeyedCertificate authority = IssueAuthority(absl::Hours(1), absl::Now()).value();
  const CertificateNames names{.dns = {}, .ips = {"127.0.0.1"}};
  CertificateFolder folder;
  folder.WriteIssued(names, authority, absl::Seconds(6), absl::Now());
  ServeOptions options = Options();
  options.webhook.cert_file = folder.files().certificate;
  options.webhook.key_file = folder.files().key;
  options.webhook.ca_file = folder.files().authority;
  StartService(std::move(options));
  EXPECT_TRUE(Await([&] { return Metric("muster_webhook_in_place") == "1"; }));

  ASSERT_TRUE(Await([&] { return Rest("/readyz").status == 503; }));
  EXPECT_THAT(Rest("/readyz").body, HasSubstr("not ready: the webhook's certificate expired at "));
  EXPECT_THAT(service_->NotReadyReason(), HasSubstr("the webhook's certificate expired at "));
  EXPECT_TRUE(Await([&] { return Metric("muster_webhook_in_place") == "0"; }));

  folder.WriteIssued(names, authority, absl::Hours(1), absl::Now());
  EXPECT_TRUE(Await([&] { return Rest("/readyz").status == 200; })) << Rest("/readyz").body;
}

TEST_F(ServiceTest, FollowsTheSchedulersLeaseFromReadyFollowerToLeader) {
  SetHolder("other-host_1");
  ServeOptions options = Options();
  options.leader_elect = true;
  options.follow = {.name_space = "default", .name = "coscheduling", .holder_prefix = ""};
  // Somebody leads and has registered the webhook, whose URL is the leader's.
  ServeOptions leaders = Options();
  leaders.lease_name = "coscheduling";
  StartService(leaders);
  const std::unique_ptr<Service> leader = std::move(service_);
  StartService(options);
  EXPECT_EQ(Metric("muster_leading"), "0");
  EXPECT_EQ(Metric("muster_leader_known"), "1");
  leader->Stop();

  CreateNode("n1");
  CreateGroup("train", 1);
  const std::string refusal = "not leading; leader is other-host_1";
  const json pod = {{"metadata", {{"name", "p"}, {"namespace", "default"}, {"uid", "u"}}}};
  http::RawClient client(service_->extender_port());
  client.Send(http::RawPost("/filter", json{{"Pod", pod}, {"NodeNames", {"n1"}}}.dump()));
  EXPECT_EQ(json::parse(client.ReadMessage().body)["Error"], refusal);
  client.Send(http::RawPost("/bind", BindBody(pod, "n1")));
  EXPECT_EQ(json::parse(client.ReadMessage().body)["Error"], refusal);
  EXPECT_EQ(Rest("/v1/gangs").status, 503);
  EXPECT_EQ(json::parse(Rest("/v1/gangs").body)["detail"], refusal);

  // The kube-scheduler beside it takes over, and it with it: also the webhook's registration.
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  SetHolder(fmt::format("{}_2", host));
  ASSERT_TRUE(Await([&] {
    return Metric("muster_leading") == "1" && CreatePod("train-0", "train").status == 201;
  })) << Rest("/readyz").body;
  ASSERT_TRUE(Await([&] { return Filter("train-0", {"n1"})["Error"].get<std::string>().empty(); }));
  client.Send(http::RawPost("/bind", BindBody(Pod("train-0"), "n1")));
  EXPECT_EQ(client.ReadMessage(absl::Seconds(20)).body, R"({"Error":""})");
  EXPECT_EQ(Metric("muster_leader_transitions_total"), "7");

  EXPECT_TRUE(Await([&] { return Rest("/readyz").status == 200; })) << Rest("/readyz").body;

  // Released: nobody leads.
  SetHolder("");
  ASSERT_TRUE(Await([&] { return Metric("muster_leader_known") == "0"; }));
  EXPECT_EQ(Metric("muster_leading"), "0");
  // The gate still needs it.
  EXPECT_EQ(Rest("/readyz").status, 200);
  EXPECT_EQ(Rest("/readyz").body,
            "ok; no scheduler leads: Lease default/coscheduling has no holder");
  client.Send(http::RawPost("/bind", BindBody(pod, "n1")));
  EXPECT_EQ(json::parse(client.ReadMessage().body)["Error"], "not leading; no leader is known");
}

TEST_F(ServiceTest, TwoCandidatesForOneLeaseAreBothReadyAndOneLeads) {
  ServeOptions options = Options();
  options.leader_elect = true;
  StartService(options);
  EXPECT_EQ(Metric("muster_leading"), "1");
  const std::unique_ptr<Service> leader = std::move(service_);
  StartService(options);
  EXPECT_EQ(Metric("muster_leading"), "0");
  leader->Stop();
  EXPECT_TRUE(Await([&] { return Metric("muster_leading") == "1"; }));
}

// Whoever is no replica of it, by the Lease, takes neither its webhook nor the lead.
TEST_F(ServiceTest, ASecondMusterOfAnotherInstallIsRefused) {
  ServeOptions options = Options();
  options.leader_elect = true;
  StartService(options);
  const std::unique_ptr<Service> first = std::move(service_);
  const std::string path =
      "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/muster-admission";
  const json registered = Api(kube::Method::kGet, path).body;

  options.lease_name = "another";
  Begin(options);
  const std::string why = "is of install default/muster, and this is default/another";
  ASSERT_TRUE(Await([&] {
    return Rest("/readyz").body.find(why) != std::string::npos && Metric("muster_ready") == "0";
  })) << Rest("/readyz").body;
  EXPECT_EQ(Metric("muster_leading"), "0") << "although it holds its own Lease";
  const json pod = {{"metadata", {{"name", "p"}, {"namespace", "default"}, {"uid", "u"}}}};
  http::RawClient client(service_->extender_port());
  client.Send(http::RawPost("/filter", json{{"Pod", pod}, {"NodeNames", {"n1"}}}.dump()));
  EXPECT_THAT(json::parse(client.ReadMessage().body)["Error"].get<std::string>(),
              AllOf(HasSubstr("not leading: "), HasSubstr(why), HasSubstr("muster uninstall")));
  EXPECT_EQ(Api(kube::Method::kGet, path).body, registered);
  EXPECT_EQ(CreatePod("gated", "").status, 201) << "by the first one";
  EXPECT_TRUE(IsGated(Pod("gated")));
}

TEST_F(ServiceTest, AStandbyTellsNothingOfGangsAndQueues) {
  ServeOptions options = Options();
  options.leader_elect = true;
  StartService(options);
  const std::unique_ptr<Service> leader = std::move(service_);
  StartService(options);
  ASSERT_EQ(Metric("muster_leading"), "0");
  CreateGroup("train", 1);
  CreatePod("train-0", "train");
  EXPECT_TRUE(Await([&] {
    return Rest("/metrics").body.find(R"(muster_watch_objects{kind="podgroups"} 1)") !=
           std::string::npos;
  }));
  const std::string metrics = Rest("/metrics").body;
  EXPECT_THAT(metrics, Not(HasSubstr("muster_gangs{")));
  EXPECT_THAT(metrics, HasSubstr("muster_watch_age_seconds{kind=\"pods\"}"));
  for (const char* nothing :
       {"muster_actions_waiting", "muster_actions_pausing", "muster_events_waiting",
        "muster_events_remembered", "muster_filter_answers", "muster_held_binds",
        "muster_engine_queue"}) {
    EXPECT_TRUE(Await([&] { return Metric(nothing) == "0"; })) << nothing << Metric(nothing);
  }
  leader->Stop();
}

// With the times that are used outside of tests.
TEST_F(ServiceTest, AnApiServerThatFallsSilentIsNoticedWithin45SecondsAndItsReturnWithin15) {
  front_ = *kube::embedded::HttpFront::Start(&server_, {.tls = true});
  std::ofstream(kubeconfig_) << front_->Kubeconfig();
  const std::string server = kube::LoadKubeconfig({kubeconfig_})->server;
  StallingRelay relay(static_cast<uint16_t>(std::stoi(server.substr(server.rfind(':') + 1))));
  std::string text = front_->Kubeconfig();
  const std::string through = fmt::format("https://127.0.0.1:{}", relay.port());
  for (size_t at = 0; (at = text.find(server, at)) != std::string::npos; at += through.size()) {
    text.replace(at, server.size(), through);
  }
  std::ofstream(kubeconfig_) << text;
  StartService();
  relay.Stall();
  EXPECT_TRUE(Await([&] { return Rest("/readyz").status != 200; }, absl::Seconds(45)));
  EXPECT_THAT(Rest("/readyz").body, HasSubstr("pods are stale"));
  absl::SleepFor(absl::Seconds(5));
  relay.GoOn();
  EXPECT_TRUE(Await([&] { return Rest("/readyz").status == 200; }, absl::Seconds(15)))
      << Rest("/readyz").body;
  service_.reset();
}

// Whoever may ask, and holds all the connections that there are, finds the others as they were.
TEST_F(ServiceTest, EachPlaneHasAPortAndAHealthOfItsOwn) {
  StartService();
  for (const char* path : {"/healthz", "/healthz/control", "/healthz/query", "/healthz/webhook"}) {
    const http::RawClient::Message answer = Ask(service_->health_port(), path);
    EXPECT_EQ(answer.status, 200) << path << ": " << answer.body;
  }
  EXPECT_EQ(Ask(service_->health_port(), "/readyz").status, 200);
  EXPECT_EQ(Ask(service_->health_port(), "/metrics").status, 404);
  EXPECT_EQ(Ask(service_->health_port(), "/v1/gangs").status, 404);
  EXPECT_EQ(Ask(service_->extender_port(), "/healthz").status, 404);
}

TEST_F(ServiceTest, AFollowedLeaseNeedsTheElection) {
  ServeOptions options = Options();
  options.follow = {.name_space = "a", .name = "b", .holder_prefix = ""};
  const auto service = Service::Start(std::move(options), *kube::LoadKubeconfig({kubeconfig_}));
  EXPECT_THAT(std::string(service.status().message()),
              HasSubstr("lease.follow is given, but --leader-elect=false"));
}

// Unless the configuration says otherwise. Which answers who gets is query_access_test.cc's.
TEST_F(ServiceTest, QueriesTakeATokenAndTheRestDoesnt) {
  server_.SetAccounts({{.token = "of-anna",
                        .user = "anna",
                        .audiences = {"muster.dev"},
                        .may = {{"list", "scheduling.x-k8s.io", "podgroups", "default"}}}});
  ServeOptions options = Options();
  options.query = {};
  StartService(std::move(options));
  for (const char* path : {"/v1/gangs", "/v1/gangs/a/b", "/v1/nodes", "/v1/queues", "/v1/queues/a",
                           "/v1/queues/a/b", "/v1/flavors"}) {
    EXPECT_EQ(Rest(path).status, 401) << path;
  }
  const std::string address = fmt::format("127.0.0.1:{}", service_->rest_port());
  EXPECT_TRUE(RestClient(address, "of-anna").ListGangs("default").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(RestClient(address, "of-anna").ListGangs("").status()));
  EXPECT_TRUE(absl::IsUnauthenticated(RestClient(address).ListGangs("default").status()));
  EXPECT_EQ(Rest("/").status, 200);
  const std::string metrics = Rest("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("muster_access_refusals_total{reason=\"forbidden\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("muster_access_cache_hits_total{review=\"token\"} 1"));
}

TEST_F(ServiceTest, UnusableExtenderCallsAreRefusedByField) {
  StartService();
  http::RawClient client(service_->extender_port());
  client.Send(http::RawPost("/filter", "{\"Pod\":"));
  EXPECT_EQ(client.ReadMessage().status, 400);
  client.Send(http::RawPost("/bind", R"({"PodName":"p","PodNamespace":"default","PodUID":"u"})"));
  const http::RawClient::Message missing = client.ReadMessage();
  EXPECT_EQ(missing.status, 400);
  EXPECT_EQ(missing.body, R"({"error":"Node: missing"})");
  client.Send(http::RawPost("/unreserve", "{}"));
  EXPECT_EQ(client.ReadMessage().status, 404);
  // A pod that nobody has seen: an answer, not a wait.
  client.Send(
      http::RawPost("/bind", BindBody({{"metadata", {{"name", "p"}, {"uid", "u"}}}}, "n1")));
  EXPECT_THAT(client.ReadMessage(absl::Seconds(20)).body, Not(R"({"Error":""})"));
}

}  // namespace
}  // namespace muster::extender
