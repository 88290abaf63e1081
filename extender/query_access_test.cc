// Who gets which answer, by REST and by gRPC, over TLS: the service's servers with the embedded API
// server as the judge of tokens and rights.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "extender/access/access_control.h"
#include "extender/access/guard.h"
#include "extender/admission/certificates.h"
#include "extender/grpc_server.h"
#include "extender/rest_routes.h"
#include "extender/state_store.h"
#include "extender/testing/https_get.h"
#include "extender/testing/messages.h"
#include "fmt/format.h"
#include "http/testing/raw_client.h"
#include "kube/client/curl_transport.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/faults.h"
#include "kube/embedded/http_front.h"
#include "muster/v1/admission.grpc.pb.h"

namespace muster::extender {
namespace {

using coscheduling::GangKey;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kGroup = "scheduling.x-k8s.io";

std::vector<kube::embedded::Account> Accounts() {
  const auto podgroups = [](const char* verb, const char* name_space) {
    return kube::embedded::Grant{verb, kGroup, "podgroups", name_space};
  };
  return {
      {.token = "of-team",
       .user = "team-lead",
       .groups = {"team"},
       .audiences = {"muster.dev"},
       .may = {podgroups("get", "team"), podgroups("list", "team"), podgroups("watch", "team")}},
      {.token = "of-all",
       .user = "operator",
       .audiences = {"muster.dev"},
       .may = {podgroups("*", "*")}},
      {.token = "of-getter",
       .user = "getter",
       .audiences = {"muster.dev"},
       .may = {podgroups("get", "team")}},
      {.token = "of-nothing", .user = "nobody", .audiences = {"muster.dev"}},
      // As a pod has it by default: for the API server, whose owner may see everything.
      {.token = "for-others", .user = "operator"},
  };
}

class QueryAccessTest : public ::testing::Test {
 protected:
  QueryAccessTest() {
    api_.SetAccounts(Accounts());
    store_.Publish({{GangKey{"team", "train"}, MakeGang("team", "train", 1)},
                    {GangKey{"other", "train"}, MakeGang("other", "train", 1)}});
    store_.Publish(Listed::kQueues, MakeQueues());
    Serve({});
  }
  ~QueryAccessTest() override { End(); }

  void Serve(AccessOptions options, absl::Duration watch_life = absl::Minutes(10)) {
    End();
    const absl::Time now = absl::Now();
    authority_ = *IssueAuthority(absl::Hours(24), now);
    access_ = std::make_unique<AccessControl>(
        *transport_, [this] { return absl::Now() + later_; }, std::move(options));
    const http::Certificate certificate = NewCertificate();
    rest_ = *http::Server::Start({.listen = "127.0.0.1:0",
                                  .body_limit = 0,
                                  .certificate = certificate,
                                  .also_in_clear = true},
                                 RestRoutes({.store = &store_,
                                             .metrics = [] { return "muster_up 1\n"; },
                                             .not_ready_reason = [] { return ""; },
                                             .no_leader_reason = [] { return ""; },
                                             .access = access_.get(),
                                             .watch_life = watch_life}));
    grpc_ = *GrpcServer::Start({.listen = "127.0.0.1:0",
                                .certificate = certificate,
                                .access = access_.get(),
                                .watch_life = watch_life},
                               &store_);
    stub_ = NewStub();
  }
  void End() {
    if (access_ == nullptr) return;
    access_->Stop();
    rest_->Stop(absl::ZeroDuration());
    grpc_->Stop(absl::ZeroDuration());
    transport_->Stop();
    transport_ = NewTransport();
  }
  http::Certificate NewCertificate() {
    const KeyedCertificate made = *IssueServingCertificate({{"localhost"}, {"127.0.0.1"}},
                                                           authority_, absl::Hours(1), absl::Now());
    return {made.chain, made.key};
  }
  std::unique_ptr<kube::CurlTransport> NewTransport() {
    kube::ClientConfig config;
    config.server = front_->url();
    config.credentials = kube::FixedCredentials({});
    return *kube::CurlTransport::Create(config, {});
  }
  std::unique_ptr<v1::Admission::Stub> NewStub() {
    // A connection of its own, whatever others there are.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    grpc::SslCredentialsOptions trusted;
    trusted.pem_root_certs = authority_.chain;
    return v1::Admission::NewStub(grpc::CreateCustomChannel(
        fmt::format("127.0.0.1:{}", grpc_->port()), grpc::SslCredentials(trusted), arguments));
  }

  HttpsGot Get(const std::string& path, const std::string& token, long limit_ms = 10'000) {
    HttpsAsked asked{.port = rest_->port(), .authority = authority_.chain, .path = path};
    if (!token.empty()) asked.headers.push_back("Authorization: Bearer " + token);
    asked.limit_ms = limit_ms;
    return HttpsGet(asked);
  }
  static std::unique_ptr<grpc::ClientContext> As(const std::string& token) {
    auto context = std::make_unique<grpc::ClientContext>();
    if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
    return context;
  }
  grpc::Status ListGangs(const std::string& name_space, const std::string& token,
                         v1::ListGangsResponse* response = nullptr) {
    v1::ListGangsRequest request;
    request.set_namespace_(name_space);
    v1::ListGangsResponse unused;
    return stub_->ListGangs(As(token).get(), request, response ? response : &unused);
  }
  // What each method says of namespace team, or of all.
  std::vector<std::pair<std::string, grpc::Status>> CallAll(const std::string& name_space,
                                                            const std::string& token) {
    std::vector<std::pair<std::string, grpc::Status>> said;
    said.emplace_back("ListGangs", ListGangs(name_space, token));
    v1::GetGangRequest gang;
    gang.set_namespace_(name_space.empty() ? "other" : name_space);
    gang.set_name("train");
    v1::Gang found;
    said.emplace_back("GetGang", stub_->GetGang(As(token).get(), gang, &found));
    v1::WatchGangsRequest watch;
    watch.set_namespace_(name_space);
    const auto context = As(token);
    const auto stream = stub_->WatchGangs(context.get(), watch);
    v1::GangEvent event;
    if (stream->Read(&event)) {
      said.emplace_back("WatchGangs", grpc::Status::OK);
      context->TryCancel();
      stream->Finish();
    } else {
      said.emplace_back("WatchGangs", stream->Finish());
    }
    v1::GetQueueRequest queue;
    queue.set_namespace_(name_space);
    queue.set_name(name_space.empty() ? "gpus" : "default");
    v1::Queue queue_found;
    said.emplace_back("GetQueue", stub_->GetQueue(As(token).get(), queue, &queue_found));
    if (!name_space.empty()) return said;
    v1::ListNodesResponse nodes;
    said.emplace_back("ListNodes", stub_->ListNodes(As(token).get(), {}, &nodes));
    v1::ListQueuesResponse queues;
    said.emplace_back("ListQueues", stub_->ListQueues(As(token).get(), {}, &queues));
    v1::ListFlavorsResponse flavors;
    said.emplace_back("ListFlavors", stub_->ListFlavors(As(token).get(), {}, &flavors));
    return said;
  }

  kube::embedded::ApiServer api_;
  kube::embedded::Faults faults_;
  std::unique_ptr<kube::embedded::HttpFront> front_ =
      *kube::embedded::HttpFront::Start(&api_, {.faults = &faults_});
  std::unique_ptr<kube::CurlTransport> transport_ = NewTransport();
  StateStore store_;
  KeyedCertificate authority_;
  absl::Duration later_ = absl::ZeroDuration();
  std::unique_ptr<AccessControl> access_;
  std::unique_ptr<http::Server> rest_;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<v1::Admission::Stub> stub_;
};

const std::vector<std::string> kOfTeam = {"/v1/gangs?namespace=team", "/v1/gangs/team/train",
                                          "/v1/queues/team/default"};
const std::vector<std::string> kOfAll = {
    "/v1/gangs",  "/v1/gangs?namespace=", "/v1/gangs?namespace=other", "/v1/gangs/other/train",
    "/v1/nodes",  "/v1/queues",           "/v1/queues/gpus",           "/v1/queues/other/default",
    "/v1/flavors"};

TEST_F(QueryAccessTest, WhoIsntKnownGets401Everywhere) {
  for (const char* token : {"", "invented", "for-others"}) {
    for (const auto& paths : {kOfTeam, kOfAll}) {
      for (const std::string& path : paths) {
        const HttpsGot answer = Get(path, token);
        EXPECT_EQ(answer.status, 401) << path << " " << token << answer.error;
        EXPECT_THAT(answer.header, AllOf(HasSubstr("Content-Type: application/problem+json"),
                                         HasSubstr("WWW-Authenticate: Bearer")));
        EXPECT_EQ(json::parse(answer.body)["status"], 401);
        EXPECT_EQ(json::parse(answer.body)["title"], "Unauthorized");
      }
    }
    for (const char* name_space : {"team", ""}) {
      for (const auto& [method, status] : CallAll(name_space, token)) {
        EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method << " " << token;
      }
    }
  }
  // Nor does he learn which paths or words there are.
  EXPECT_EQ(Get("/v1/gangs?nmaespace=a", "").status, 401);
  EXPECT_EQ(Get("/v1/gangs/team/nobody", "").status, 401);
}

TEST_F(QueryAccessTest, WhoMayInOneNamespaceGetsItsOwnAnd403ForTheRest) {
  for (const std::string& path : kOfTeam) {
    EXPECT_EQ(Get(path, "of-team").status, 200) << path;
  }
  EXPECT_EQ(Get("/v1/gangs/team/nobody", "of-team").status, 404);
  EXPECT_EQ(Get("/v1/gangs?namespace=team&nonsense=1", "of-team").status, 400);
  const json gangs = json::parse(Get("/v1/gangs?namespace=team", "of-team").body)["gangs"];
  ASSERT_EQ(gangs.size(), 1u);
  EXPECT_EQ(gangs[0]["namespace"], "team");
  for (const std::string& path : kOfAll) {
    const HttpsGot answer = Get(path, "of-team");
    EXPECT_EQ(answer.status, 403) << path;
    EXPECT_THAT(answer.header, HasSubstr("Content-Type: application/problem+json"));
    EXPECT_THAT(answer.body, HasSubstr("team-lead"));
  }
  for (const auto& [method, status] : CallAll("team", "of-team")) {
    EXPECT_TRUE(status.ok()) << method << ": " << status.error_message();
  }
  for (const char* name_space : {"other", ""}) {
    for (const auto& [method, status] : CallAll(name_space, "of-team")) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << method;
    }
  }
}

// The first of two names counts for the right and for the answer.
TEST_F(QueryAccessTest, ANamespaceThatIsNamedTwiceIsOne) {
  EXPECT_EQ(Get("/v1/gangs?namespace=other&namespace=team", "of-team").status, 403);
  const HttpsGot answer = Get("/v1/gangs?namespace=team&namespace=other", "of-team");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body.find("other"), std::string::npos);
}

TEST_F(QueryAccessTest, EachVerbIsARightOfItsOwn) {
  EXPECT_EQ(Get("/v1/gangs/team/train", "of-getter").status, 200);
  EXPECT_EQ(Get("/v1/gangs?namespace=team", "of-getter").status, 403);
  EXPECT_EQ(Get("/v1/gangs/team/train?watch=true", "of-getter").status, 403);
  EXPECT_EQ(Get("/v1/gangs/team/train", "of-nothing").status, 403);
}

TEST_F(QueryAccessTest, WhoMayEverywhereGetsEverything) {
  for (const auto& paths : {kOfTeam, kOfAll}) {
    for (const std::string& path : paths) {
      const int status = Get(path, "of-all").status;
      EXPECT_EQ(status, path == "/v1/queues/other/default" ? 404 : 200) << path;
    }
  }
  v1::ListGangsResponse gangs;
  ASSERT_TRUE(ListGangs("", "of-all", &gangs).ok());
  EXPECT_EQ(gangs.gangs_size(), 2);
  for (const auto& [method, status] : CallAll("", "of-all")) {
    EXPECT_TRUE(status.ok()) << method << ": " << status.error_message();
  }
}

TEST_F(QueryAccessTest, WhatTellsNothingIsEveryones) {
  for (const char* path : {"/metrics", "/healthz", "/readyz", "/openapi.json", "/"}) {
    EXPECT_EQ(Get(path, "").status, 200) << path;
    http::RawClient in_clear(rest_->port());
    in_clear.Send(http::RawGet(path));
    EXPECT_EQ(in_clear.ReadMessage().status, 200) << path;
  }
}

// kubectl port-forward, and whoever is on the same host: nobody listens there.
TEST_F(QueryAccessTest, FromThisHostATokenMayComeInTheClear) {
  http::RawClient client(rest_->port());
  for (int i = 0; i < 2; ++i) {
    client.Send(
        "GET /v1/gangs/team/train HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer of-team\r\n\r\n");
    EXPECT_EQ(client.ReadMessage().status, 200);
  }
  client.Send(http::RawGet("/v1/gangs"));
  EXPECT_EQ(client.ReadMessage().status, 401);
}

TEST_F(QueryAccessTest, FromElsewhereNoneIsTakenInTheClear) {
  const http::Handler guarded = Guarded(
      access_.get(), [](const http::Request&) { return Wanted(); },
      [](http::Request&, const http::Responder& responder) { responder.Send({}); });
  const auto server = *http::Server::Start(
      {.listen = "127.0.0.1:0"},
      {{"GET", "/", [&](http::Request& request, const http::Responder& responder) {
          EXPECT_TRUE(std::exchange(request.secret, false));
          guarded(request, responder);
        }}});
  http::RawClient client(server->port());
  client.Send("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer of-all\r\n\r\n");
  const http::RawClient::Message answer = client.ReadMessage();
  EXPECT_EQ(answer.status, 403);
  EXPECT_THAT(answer.body, HasSubstr("over TLS only"));
  EXPECT_EQ(access_->stats().caches[AccessControl::kTokens].misses, 0u);
}

TEST_F(QueryAccessTest, GrpcInTheClearIsNoAnswer) {
  const auto stub = v1::Admission::NewStub(grpc::CreateChannel(
      fmt::format("127.0.0.1:{}", grpc_->port()), grpc::InsecureChannelCredentials()));
  const auto context = As("of-all");
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  v1::ListGangsResponse response;
  EXPECT_FALSE(stub->ListGangs(context.get(), {}, &response).ok());
}

// google.rpc.Status in the words of the wire: a program finds the reason without reading sentences.
TEST_F(QueryAccessTest, GrpcRefusalsHaveDetails) {
  const struct {
    const char* token;
    const char* reason;
  } cases[] = {{"invented", "UNAUTHENTICATED"}, {"of-team", "FORBIDDEN"}};
  for (const auto& one : cases) {
    const grpc::Status status = ListGangs("", one.token);
    EXPECT_THAT(status.error_details(), AllOf(HasSubstr("type.googleapis.com/google.rpc.ErrorInfo"),
                                              HasSubstr(one.reason), HasSubstr("muster.dev")));
    EXPECT_EQ(status.error_details()[0], 0x08);
    EXPECT_EQ(status.error_details()[1], static_cast<char>(status.error_code()));
  }
}

TEST_F(QueryAccessTest, WhileTheApiServerIsAwayWhatIsKnownServes) {
  EXPECT_EQ(Get("/v1/gangs?namespace=team", "of-team").status, 200);
  faults_.Add({});
  EXPECT_EQ(Get("/v1/gangs?namespace=team", "of-team").status, 200);
  const HttpsGot answer = Get("/v1/gangs?namespace=team", "of-all");
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.header, AllOf(HasSubstr("Retry-After: 5"),
                                   HasSubstr("Content-Type: application/problem+json")));
  const grpc::Status status = ListGangs("team", "of-all");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_details(), HasSubstr("type.googleapis.com/google.rpc.RetryInfo"));
  later_ = absl::Minutes(2);
  EXPECT_EQ(Get("/v1/gangs?namespace=team", "of-team").status, 503);
}

TEST_F(QueryAccessTest, AWatchTellsWhoMayItsOwn) {
  v1::WatchGangsRequest request;
  request.set_namespace_("team");
  const auto context = As("of-team");
  const auto stream = stub_->WatchGangs(context.get(), request);
  v1::GangEvent event;
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.gang().namespace_(), "team");
  store_.Publish({{GangKey{"other", "train"}, MakeGang("other", "train", 2)},
                  {GangKey{"team", "train"}, MakeGang("team", "train", 3)}});
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.gang().revision(), 3u);
  context->TryCancel();
  const HttpsGot rest = Get("/v1/gangs?namespace=team&watch=true", "of-team", 500);
  EXPECT_EQ(rest.status, 200);
  EXPECT_THAT(rest.body, HasSubstr("\"namespace\":\"team\""));
  EXPECT_EQ(rest.body.find("other"), std::string::npos);
}

// Rights may be taken back: whoever goes on watching is asked about again.
TEST_F(QueryAccessTest, AWatchEndsBeforeItsAnswerIsOld) {
  Serve({}, absl::Milliseconds(300));
  const HttpsGot gangs = Get("/v1/gangs?watch=true", "of-all");
  EXPECT_EQ(gangs.error, "");
  EXPECT_THAT(gangs.body, HasSubstr("\"UPDATED\""));
  EXPECT_EQ(Get("/v1/nodes?watch=true", "of-all").error, "");
  const auto context = As("of-all");
  const auto stream = stub_->WatchGangs(context.get(), {});
  v1::GangEvent event;
  ASSERT_TRUE(stream->Read(&event));
  ASSERT_TRUE(stream->Read(&event));
  absl::SleepFor(absl::Milliseconds(700));
  store_.Publish({{GangKey{"team", "train"}, MakeGang("team", "train", 2)}});
  EXPECT_FALSE(stream->Read(&event));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(QueryAccessTest, ANewCertificateIsServedToWhoComesNext) {
  EXPECT_EQ(Get("/healthz", "").status, 200);
  ASSERT_TRUE(ListGangs("team", "of-team").ok());
  const KeyedCertificate before =
      std::exchange(authority_, *IssueAuthority(absl::Hours(24), absl::Now()));
  const http::Certificate certificate = NewCertificate();
  ASSERT_TRUE(rest_->SetCertificate(certificate).ok());
  grpc_->SetCertificate(certificate);
  // The connection that is open goes on.
  EXPECT_TRUE(ListGangs("team", "of-team").ok());
  EXPECT_EQ(Get("/healthz", "").status, 200);
  EXPECT_EQ(HttpsGet({.port = rest_->port(), .authority = before.chain, .path = "/healthz"}).status,
            0);
  stub_ = NewStub();
  const grpc::Status status = ListGangs("team", "of-team");
  EXPECT_TRUE(status.ok()) << status.error_message();
}

}  // namespace
}  // namespace muster::extender
