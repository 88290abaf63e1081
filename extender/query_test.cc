// REST and gRPC side by side: both must say the same, message for message.

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "extender/access/problem.h"
#include "extender/grpc_server.h"
#include "extender/message_json.h"
#include "extender/openapi.h"
#include "extender/rest_routes.h"
#include "extender/testing/messages.h"
#include "extender/web_page.h"
#include "fmt/format.h"
#include "http/testing/raw_client.h"
#include "muster/v1/admission.grpc.pb.h"

namespace muster::extender {
namespace {

using coscheduling::GangKey;
using google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Message>
Message FromJson(const std::string& json) {
  Message message;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &message);
  EXPECT_TRUE(status.ok()) << status.ToString() << "\n" << json;
  return message;
}

// Of a refusal, which must be a problem in its whole form.
std::string DetailOf(const http::RawClient::Message& answer) {
  EXPECT_THAT(answer.header, HasSubstr("Content-Type: application/problem+json")) << answer.body;
  const auto problem = nlohmann::json::parse(answer.body);
  EXPECT_EQ(problem.at("status"), answer.status);
  EXPECT_EQ(problem.at("type"), "about:blank");
  EXPECT_EQ(problem.at("title"), std::string(TitleOf(answer.status)));
  return problem.at("detail");
}

class QueryTest : public ::testing::Test {
 protected:
  explicit QueryTest(StateStore::Limits limits = {}) : store_(limits) {
    http::ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.refusal = Problem;
    options.body_limit = 0;
    rest_ = *http::Server::Start(
        std::move(options),
        RestRoutes({&store_, [] { return "muster_up 1\n"; }, [this] { return not_ready_; },
                    [this] { return no_leader_; }}));
    grpc_ = *GrpcServer::Start({.listen = "127.0.0.1:0", .max_connections = 4}, &store_);
    stub_ = v1::Admission::NewStub(grpc::CreateChannel(fmt::format("127.0.0.1:{}", grpc_->port()),
                                                       grpc::InsecureChannelCredentials()));
  }
  ~QueryTest() override {
    grpc_->Stop(absl::ZeroDuration());
    rest_->Stop(absl::ZeroDuration());
  }

  http::RawClient::Message Get(const std::string& path) {
    http::RawClient client(rest_->port());
    client.Send(http::RawGet(path));
    return client.ReadMessage();
  }
  void Publish(const std::string& name_space, const std::string& name, uint64_t revision) {
    store_.Publish({{GangKey{name_space, name}, MakeGang(name_space, name, revision)}});
  }

  StateStore store_;
  std::string not_ready_;
  std::string no_leader_;
  std::unique_ptr<http::Server> rest_;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<v1::Admission::Stub> stub_;
};

TEST_F(QueryTest, QueuesAndFlavorsAreTheSameMessage) {
  store_.Publish(Listed::kQueues, MakeQueues());
  auto flavors = std::make_unique<v1::ListFlavorsResponse>();
  flavors->add_flavors()->set_name("spot");
  (*flavors->mutable_flavors(0)->mutable_node_labels())["pool"] = "gpu";
  store_.Publish(Listed::kFlavors, std::move(flavors));

  v1::ListQueuesResponse queues;
  grpc::ClientContext queues_context;
  ASSERT_TRUE(stub_->ListQueues(&queues_context, {}, &queues).ok());
  EXPECT_EQ(queues.queues_size(), 2);
  EXPECT_TRUE(
      MessageDifferencer::Equals(queues, FromJson<v1::ListQueuesResponse>(Get("/v1/queues").body)));

  v1::ListFlavorsResponse flavor_list;
  grpc::ClientContext flavors_context;
  ASSERT_TRUE(stub_->ListFlavors(&flavors_context, {}, &flavor_list).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(
      flavor_list, FromJson<v1::ListFlavorsResponse>(Get("/v1/flavors").body)));

  for (const auto& [name_space, path] :
       {std::pair{"", "/v1/queues/gpus"}, std::pair{"team", "/v1/queues/team/default"}}) {
    v1::GetQueueRequest request;
    request.set_namespace_(name_space);
    request.set_name(std::string(path).substr(std::string(path).rfind('/') + 1));
    grpc::ClientContext context;
    v1::Queue queue;
    ASSERT_TRUE(stub_->GetQueue(&context, request, &queue).ok()) << path;
    EXPECT_TRUE(MessageDifferencer::Equals(queue, FromJson<v1::Queue>(Get(path).body))) << path;
  }
}

TEST_F(QueryTest, AMissingQueueIsNamed) {
  store_.Publish(Listed::kQueues, MakeQueues());
  EXPECT_EQ(Get("/v1/queues/cpus").status, 404);
  EXPECT_EQ(DetailOf(Get("/v1/queues/cpus")), "there is no ClusterQueue cpus");
  EXPECT_EQ(DetailOf(Get("/v1/queues/team/gpus")), "there is no LocalQueue team/gpus");
  grpc::ClientContext context;
  v1::GetQueueRequest request;
  request.set_name("cpus");
  v1::Queue queue;
  const grpc::Status status = stub_->GetQueue(&context, request, &queue);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "there is no queue cpus");
}

TEST_F(QueryTest, ListsAreTheSameMessage) {
  Publish("a", "x", 1);
  Publish("a", "y", 2);
  Publish("b", "x", 3);
  store_.Publish(Listed::kNodes, MakeNodes({"n1", "n2"}));
  for (const std::string name_space : {"", "a", "b", "none"}) {
    v1::ListGangsRequest request;
    request.set_namespace_(name_space);
    v1::ListGangsResponse from_grpc;
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->ListGangs(&context, request, &from_grpc).ok());
    const auto from_rest = FromJson<v1::ListGangsResponse>(
        Get(name_space.empty() ? "/v1/gangs" : "/v1/gangs?namespace=" + name_space).body);
    EXPECT_TRUE(MessageDifferencer::Equals(from_grpc, from_rest)) << name_space;
    EXPECT_EQ(from_grpc.gangs_size(), name_space.empty()  ? 3
                                      : name_space == "a" ? 2
                                      : name_space == "b" ? 1
                                                          : 0);
  }
  v1::ListNodesResponse nodes;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->ListNodes(&context, {}, &nodes).ok());
  EXPECT_EQ(nodes.nodes_size(), 2);
  EXPECT_TRUE(
      MessageDifferencer::Equals(nodes, FromJson<v1::ListNodesResponse>(Get("/v1/nodes").body)));
}

TEST_F(QueryTest, AStoreThatIsNotKeptUpIsShownToNobody) {
  Publish("a", "x", 1);
  http::RawClient gangs(rest_->port()), nodes(rest_->port());
  gangs.Send(http::RawGet("/v1/gangs?watch=true"));
  nodes.Send(http::RawGet("/v1/nodes?watch=true"));
  v1::WatchGangsRequest all;
  grpc::ClientContext watch_context;
  const auto watch = stub_->WatchGangs(&watch_context, all);
  v1::GangEvent event;
  ASSERT_TRUE(watch->Read(&event));
  while (store_.subscriptions() < 3) std::this_thread::yield();

  store_.SetClosed("not leading; leader is b_1");
  // Watches that were open end.
  EXPECT_FALSE(watch->Read(&event));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(gangs.ReadMessage().status, 200);
  EXPECT_EQ(nodes.ReadMessage().status, 200);
  for (const char* path : {"/v1/gangs", "/v1/gangs/a/x", "/v1/nodes", "/v1/gangs?watch=true",
                           "/v1/gangs/a/x?watch=true", "/v1/nodes?watch=true"}) {
    const http::RawClient::Message answer = Get(path);
    EXPECT_EQ(answer.status, 503) << path;
    EXPECT_EQ(DetailOf(answer), "not leading; leader is b_1") << path;
  }
  const auto refusal = [](const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    return status.error_message();
  };
  v1::ListGangsResponse list;
  grpc::ClientContext list_context, nodes_context, late_context;
  EXPECT_EQ(refusal(stub_->ListGangs(&list_context, {}, &list)), "not leading; leader is b_1");
  v1::ListNodesResponse node_list;
  EXPECT_EQ(refusal(stub_->ListNodes(&nodes_context, {}, &node_list)),
            "not leading; leader is b_1");
  EXPECT_EQ(refusal(stub_->WatchGangs(&late_context, all)->Finish()), "not leading; leader is b_1");

  store_.SetClosed("");
  EXPECT_EQ(Get("/v1/gangs/a/x").status, 200);
}

TEST_F(QueryTest, OneGangIsTheSameMessageAndAMissingOneIsNamed) {
  Publish("a", "x", 1);
  v1::GetGangRequest request;
  request.set_namespace_("a");
  request.set_name("x");
  v1::Gang gang;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->GetGang(&context, request, &gang).ok());
  }
  const std::string body = Get("/v1/gangs/a/x").body;
  EXPECT_TRUE(MessageDifferencer::Equals(gang, FromJson<v1::Gang>(body)));
  // Defaults are printed, so that a reader needs no knowledge of them.
  EXPECT_THAT(body, HasSubstr("\"attempt\":0"));

  request.set_name("nobody");
  grpc::ClientContext context;
  const grpc::Status missing = stub_->GetGang(&context, request, &gang);
  EXPECT_EQ(missing.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(missing.error_message(), "there is no gang a/nobody");
  const http::RawClient::Message answer = Get("/v1/gangs/a/nobody");
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(DetailOf(answer), "there is no gang a/nobody");
}

TEST_F(QueryTest, OneNodeIsTheSameMessageAndAMissingOneIsNamed) {
  auto nodes = MakeNodes({"n1", ""});
  auto& list =
      const_cast<v1::ListNodesResponse&>(dynamic_cast<const v1::ListNodesResponse&>(*nodes));
  list.mutable_nodes(1)->set_node_claim("gpu-x7k2p");
  store_.Publish(Listed::kNodes, std::move(nodes));
  for (const char* name : {"n1", "gpu-x7k2p"}) {
    v1::GetNodeRequest request;
    request.set_name(name);
    v1::Node node;
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->GetNode(&context, request, &node).ok()) << name;
    const std::string body = Get(fmt::format("/v1/nodes/{}", name)).body;
    EXPECT_TRUE(MessageDifferencer::Equals(node, FromJson<v1::Node>(body))) << body;
  }
  v1::GetNodeRequest request;
  request.set_name("n2");
  v1::Node node;
  grpc::ClientContext context;
  EXPECT_EQ(stub_->GetNode(&context, request, &node).error_message(), "there is no node n2");
  EXPECT_EQ(Get("/v1/nodes/n2").status, 404);
  EXPECT_EQ(DetailOf(Get("/v1/nodes/n2")), "there is no node n2");
}

// Gangs that come and go between two pages neither hide others nor have them come twice.
TEST_F(QueryTest, PagesTellOfEachGangOnce) {
  for (const char* name : {"a", "c", "e", "g", "i"}) Publish("team", name, 1);
  Publish("team-2", "a", 1);
  store_.Publish({{GangKey{"team", "e", true}, MakeGang("team", "e", 2)}});
  for (const bool by_grpc : {false, true}) {
    std::vector<std::string> names;
    std::string from;
    int pages = 0;
    do {
      v1::ListGangsResponse page;
      if (by_grpc) {
        v1::ListGangsRequest request;
        request.set_namespace_("team");
        request.set_limit(2);
        request.set_continue_from(from);
        grpc::ClientContext context;
        ASSERT_TRUE(stub_->ListGangs(&context, request, &page).ok());
      } else {
        const std::string more = from.empty() ? "" : "&continue=" + from;
        page = FromJson<v1::ListGangsResponse>(Get("/v1/gangs?namespace=team&limit=2" + more).body);
      }
      EXPECT_LE(page.gangs_size(), 2);
      for (const v1::Gang& gang : page.gangs()) names.push_back(gang.name());
      from = page.continue_from();
      if (++pages == 1) {
        store_.Publish({{GangKey{"team", "a"}, nullptr}, {GangKey{"team", "e"}, nullptr}});
        Publish("team", "b", 1);  // before the page that comes
        Publish("team", "h", 1);
      }
    } while (!from.empty());
    EXPECT_THAT(names, ElementsAre("a", "c", "e", "g", "h", "i")) << by_grpc;
    EXPECT_EQ(pages, 3);
    store_.Publish({{GangKey{"team", "b"}, nullptr}, {GangKey{"team", "h"}, nullptr}});
    Publish("team", "a", 1);
    Publish("team", "e", 1);
  }
  v1::ListGangsRequest request;
  request.set_continue_from("team/a");
  v1::ListGangsResponse page;
  grpc::ClientContext context;
  EXPECT_EQ(stub_->ListGangs(&context, request, &page).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(QueryTest, WhatNoRouteAnswersIsAProblemToo) {
  EXPECT_EQ(Get("/v2/gangs").status, 404);
  EXPECT_EQ(DetailOf(Get("/v2/gangs")), "no such path: /v2/gangs");
  const std::pair<std::string, int> cases[] = {
      {"DELETE /v1/gangs HTTP/1.1\r\nHost: x\r\n\r\n", 405},
      {"GET /v1/gangs HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", 413},
      {"GET /v1/gangs HTTP/1.1\r\nHost: x\r\nX: " + std::string(1 << 20, 'x') + "\r\n\r\n", 431},
      {"this isn't HTTP\r\n\r\n", 400},
  };
  for (const auto& [request, status] : cases) {
    http::RawClient client(rest_->port());
    client.Send(request);
    const http::RawClient::Message answer = client.ReadMessage();
    EXPECT_EQ(answer.status, status);
    EXPECT_NE(DetailOf(answer), "");
  }
}

// A call of grpc.health.v1.Health/Check: the status in its answer, or the call's own error.
class HealthCheck {
 public:
  explicit HealthCheck(uint16_t port)
      : stub_(grpc::CreateChannel(fmt::format("127.0.0.1:{}", port),
                                  grpc::InsecureChannelCredentials())) {}
  std::string Of(const std::string& service) {
    // HealthCheckRequest and HealthCheckResponse have one field each, with number 1.
    std::string bytes;
    if (!service.empty()) bytes = std::string("\x0a") + static_cast<char>(service.size()) + service;
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer answer;
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto call =
        stub_.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
    call->StartCall();
    grpc::Status status;
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    if (!status.ok()) return status.error_message();
    grpc::Slice said;
    EXPECT_TRUE(answer.DumpToSingleSlice(&said).ok());
    return said.size() == 2 && said.begin()[1] == 1 ? "SERVING" : "NOT_SERVING";
  }

 private:
  grpc::GenericStub stub_;
};

TEST_F(QueryTest, GrpcTellsOfItsHealth) {
  HealthCheck health(grpc_->port());
  grpc_->SetServing(true);
  EXPECT_EQ(health.Of(""), "SERVING");
  EXPECT_EQ(health.Of("muster.v1.Admission"), "SERVING");
  EXPECT_EQ(health.Of("muster.v2.Admission"), "service name unknown");
  grpc_->SetServing(false);
  EXPECT_EQ(health.Of(""), "NOT_SERVING");
  EXPECT_EQ(health.Of("muster.v1.Admission"), "NOT_SERVING");
}

TEST_F(QueryTest, WatchesTellTheSameStory) {
  Publish("a", "x", 1);
  http::RawClient rest(rest_->port());
  rest.Send(http::RawGet("/v1/gangs?watch=true"));
  grpc::ClientContext context;
  auto stream = stub_->WatchGangs(&context, {});
  const auto expect_next = [&](v1::GangEvent::Type type, uint64_t revision) {
    v1::GangEvent from_grpc;
    ASSERT_TRUE(stream->Read(&from_grpc));
    std::string line = rest.ReadUntil("}\n");
    line.erase(0, line.find("{\"type\""));
    const auto from_rest = FromJson<v1::GangEvent>(line);
    EXPECT_TRUE(MessageDifferencer::Equals(from_grpc, from_rest));
    EXPECT_EQ(from_rest.type(), type);
    EXPECT_EQ(from_rest.gang().revision(), revision);
  };
  expect_next(v1::GangEvent::UPDATED, 1);
  Publish("a", "x", 2);
  expect_next(v1::GangEvent::UPDATED, 2);
  store_.Publish({{GangKey{"a", "x"}, nullptr}});
  expect_next(v1::GangEvent::DELETED, 2);
}

// However many read it: none of the texts is anybody's own.
TEST_F(QueryTest, WhatIsPublishedIsMadeOnce) {
  Publish("a", "x", 1);
  const SharedGang gang = store_.FindGang("a", "x");
  EXPECT_EQ(gang->Json(), ToJson(gang->message()));
  EXPECT_EQ(gang->Json().data(), store_.FindGang("a", "x")->Json().data());
  EXPECT_EQ(gang->Wire(), gang->message().SerializeAsString());
  v1::ListGangsResponse list;
  list.set_version(store_.GangsOn({}, {}).version);
  EXPECT_EQ(Get("/v1/gangs?namespace=none").body, ToJson(list));
  *list.add_gangs() = gang->gang();
  EXPECT_EQ(Get("/v1/gangs").body, ToJson(list));
}

// Of gRPC; those of REST tell the same.
TEST_F(QueryTest, AWatchGoesOnWhereAListOrAnotherOneEnded) {
  Publish("a", "x", 1);
  Publish("a", "y", 1);
  v1::ListGangsResponse list;
  grpc::ClientContext list_context;
  ASSERT_TRUE(stub_->ListGangs(&list_context, {}, &list).ok());
  Publish("a", "y", 2);
  store_.Publish({{GangKey{"a", "x"}, nullptr}});
  Publish("a", "z", 1);
  const auto told = [&](uint64_t since, size_t count) {
    v1::WatchGangsRequest request;
    request.set_since(since);
    grpc::ClientContext context;
    auto stream = stub_->WatchGangs(&context, request);
    http::RawClient rest(rest_->port());
    rest.Send(http::RawGet(fmt::format("/v1/gangs?watch=true&since={}", since)));
    std::vector<v1::GangEvent> events(count);
    for (v1::GangEvent& event : events) {
      EXPECT_TRUE(stream->Read(&event));
      std::string line = rest.ReadUntil("}\n");
      line.erase(0, line.find("{\"type\""));
      EXPECT_TRUE(MessageDifferencer::Equals(event, FromJson<v1::GangEvent>(line)));
    }
    context.TryCancel();
    return events;
  };
  const std::vector<v1::GangEvent> events = told(list.version(), 3);
  EXPECT_EQ(events[0].gang().name(), "y");
  EXPECT_EQ(events[0].gang().revision(), 2u);
  EXPECT_EQ(events[1].type(), v1::GangEvent::DELETED);
  EXPECT_EQ(events[1].gang().name(), "x");
  EXPECT_EQ(events[2].gang().name(), "z");
  EXPECT_EQ(told(events[1].version(), 1)[0].gang().name(), "z");
}

TEST_F(QueryTest, AWatchSinceWhatIsNotKnownIsToldToBeginAnew) {
  Publish("a", "x", 1);
  const uint64_t known = store_.GangsOn({}, {}).version;
  const std::string text = fmt::format("what changed since {} isn't known here", known + 1);
  const http::RawClient::Message answer =
      Get(fmt::format("/v1/gangs?watch=true&since={}", known + 1));
  EXPECT_EQ(answer.status, 410);
  EXPECT_THAT(DetailOf(answer), HasSubstr(text));
  v1::WatchGangsRequest request;
  request.set_since(known + 1);
  grpc::ClientContext context;
  auto stream = stub_->WatchGangs(&context, request);
  v1::GangEvent event;
  EXPECT_FALSE(stream->Read(&event));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(status.error_message(), HasSubstr(text));
}

// gRPC bounds its own memory, not its connections.
TEST_F(QueryTest, PastTheLimitTheOldestGrpcConnectionOfWhoHasMostGoes) {
  v1::ListGangsResponse response;
  grpc::ClientContext first;
  ASSERT_TRUE(stub_->ListGangs(&first, {}, &response).ok());  // from 127.0.0.1
  std::vector<std::unique_ptr<http::RawClient>> greedy;
  for (int i = 0; i < 20; ++i) {
    greedy.push_back(std::make_unique<http::RawClient>(grpc_->port(), "127.0.0.2"));
  }
  for (int i = 0; i < 17; ++i) EXPECT_TRUE(greedy[i]->AwaitClose(absl::Seconds(5))) << i;
  // Counted a moment after they are closed.
  for (int i = 0; i < 500 && grpc_->connection_counts().ended_idle < 17; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(grpc_->connection_counts().open, 4u);
  EXPECT_EQ(grpc_->connection_counts().ended_idle, 17u);
  grpc::ClientContext second;
  EXPECT_TRUE(stub_->ListGangs(&second, {}, &response).ok());
  greedy.clear();
  for (int i = 0; i < 500 && grpc_->connection_counts().open > 1; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(grpc_->connection_counts().open, 1u);
}

TEST_F(QueryTest, SlowGrpcReaderGetsTheLastVersion) {
  grpc::ClientContext context;
  v1::WatchGangsRequest request;
  request.set_namespace_("a");
  auto stream = stub_->WatchGangs(&context, request);
  constexpr uint64_t kVersions = 3000;
  for (uint64_t i = 1; i <= kVersions; ++i) Publish("a", "x", i);
  v1::GangEvent event;
  uint64_t last = 0;
  size_t events = 0;
  while (last < kVersions && stream->Read(&event)) {
    ASSERT_GT(event.gang().revision(), last);
    last = event.gang().revision();
    ++events;
  }
  EXPECT_EQ(last, kVersions);
  EXPECT_LT(events, kVersions);
}

TEST_F(QueryTest, WatchOfACancelledOrVanishedClientIsGivenUp) {
  {
    grpc::ClientContext context;
    auto stream = stub_->WatchGangs(&context, {});
    Publish("a", "x", 1);
    v1::GangEvent event;
    ASSERT_TRUE(stream->Read(&event));
    EXPECT_EQ(store_.subscriptions(), 1u);
    context.TryCancel();
    EXPECT_FALSE(stream->Read(&event));
    stream->Finish();
    http::RawClient rest(rest_->port());
    rest.Send(http::RawGet("/v1/nodes?watch=true"));
    rest.ReadUntil("{\"nodes\":[]}\n");
  }
  for (int i = 0; i < 500 && store_.subscriptions() > 0; ++i)
    absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(store_.subscriptions(), 0u);
}

TEST_F(QueryTest, NodeWatchSendsTheListAfterEachChange) {
  http::RawClient client(rest_->port());
  client.Send(http::RawGet("/v1/nodes?watch=true"));
  client.ReadUntil("{\"nodes\":[]}\n");
  store_.Publish(Listed::kNodes, MakeNodes({"n1"}));
  EXPECT_THAT(client.ReadUntil("}\n"), HasSubstr("\"name\":\"n1\""));
}

TEST_F(QueryTest, UnusableParametersAreNamed) {
  const struct {
    const char* path;
    const char* error;
  } cases[] = {
      {"/v1/gangs?watch=true&since=now",
       R"(since: want a version that a list or a watch told, got "now")"},
      {"/v1/gangs?watch=maybe", R"(watch: want true or false, got "maybe")"},
      {"/v1/gangs?nmaespace=a", R"(query parameter nmaespace is unknown here)"},
      {"/v1/gangs/a/x?namespace=b", R"(query parameter namespace is unknown here)"},
      {"/v1/gangs?limit=0", R"(limit: want a whole number from 1 to 2147483647, got "0")"},
      {"/v1/gangs?limit=2147483648",
       R"(limit: want a whole number from 1 to 2147483647, got "2147483648")"},
      {"/v1/gangs?limit=many", R"(limit: want a whole number from 1 to 2147483647, got "many")"},
      {"/v1/gangs?continue=a/x", R"(continue: want what the answer before named, got "a/x")"},
      {"/v1/gangs?watch=true&limit=1", "a watch has no pages: limit and continue are for lists"},
      {"/v1/nodes/n?watch=true", "query parameter watch is unknown here"},
      {"/v1/nodes?watch=1", R"(watch: want true or false, got "1")"},
  };
  for (const auto& test : cases) {
    const http::RawClient::Message answer = Get(test.path);
    EXPECT_EQ(answer.status, 400) << test.path;
    EXPECT_EQ(DetailOf(answer), test.error);
  }
  v1::Gang gang;
  grpc::ClientContext context;
  EXPECT_EQ(stub_->GetGang(&context, {}, &gang).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(QueryTest, HealthReadinessAndMetrics) {
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/readyz").body, "ok");
  no_leader_ = "no scheduler leads";
  EXPECT_EQ(Get("/readyz").body, "ok; no scheduler leads");
  not_ready_ = "pods: not read yet";
  const http::RawClient::Message waiting = Get("/readyz");
  EXPECT_EQ(waiting.status, 503);
  EXPECT_EQ(waiting.body, "not ready: pods: not read yet");
  EXPECT_EQ(Get("/metrics").body, "muster_up 1\n");
}

TEST_F(QueryTest, ThePageIsOfItsOwnFilesAlone) {
  EXPECT_THAT(Get("/").body, HasSubstr("<title>Muster</title>"));
  std::set<std::string> served;
  for (const WebFile& file : WebFiles()) {
    const http::RawClient::Message answer = Get(file.path);
    EXPECT_EQ(answer.status, 200) << file.path;
    EXPECT_EQ(answer.body, file.text) << file.path;
    EXPECT_THAT(answer.header, HasSubstr(std::string("Content-Type: ") + file.content_type));
    for (const char* header : {"Content-Security-Policy: default-src 'none'; script-src 'self'; ",
                               "frame-ancestors 'none'", "require-trusted-types-for 'script'",
                               "X-Content-Type-Options: nosniff", "Referrer-Policy: no-referrer"}) {
      EXPECT_THAT(answer.header, HasSubstr(header)) << file.path;
    }
    EXPECT_THAT(answer.header, Not(HasSubstr("unsafe"))) << file.path;
    // An address is of an XML namespace, or of somebody else's file.
    std::string text(file.text);
    for (size_t at; (at = text.find("http://www.w3.org/2000/svg")) != std::string::npos;) {
      text.erase(at, 26);
    }
    EXPECT_THAT(text, Not(HasSubstr("http://"))) << file.path;
    EXPECT_THAT(text, Not(HasSubstr("https://"))) << file.path;
    EXPECT_THAT(text, Not(HasSubstr("innerHTML"))) << file.path;
    served.insert(file.path);
  }
  // All that it loads is there.
  for (const char* path : {"/page.css", "/page.js", "/icon.svg"}) {
    EXPECT_TRUE(served.contains(path)) << path;
  }
  EXPECT_EQ(Get("/nothing.js").status, 404);
}

TEST_F(QueryTest, DescriptionCoversEveryFieldAndPath) {
  const nlohmann::json description = nlohmann::json::parse(Get("/openapi.json").body);
  EXPECT_EQ(description, nlohmann::json::parse(OpenApiJson()));
  const auto& schemas = description["components"]["schemas"];
  const nlohmann::json gang = nlohmann::json::parse(ToJson(*MakeGang("a", "x", 1)));
  for (const auto& [key, value] : gang.items()) {
    EXPECT_TRUE(schemas["Gang"]["properties"].contains(key)) << key;
  }
  for (const auto& [key, value] : gang["nodes"][0].items()) {
    EXPECT_TRUE(schemas["Node"]["properties"].contains(key)) << key;
  }
  EXPECT_EQ(schemas["Gang"]["properties"]["stateSince"]["format"], "date-time");
  EXPECT_EQ(schemas["Gang"]["properties"]["minMember"]["type"], "string");
  for (const auto& [path, operation] : description["paths"].items()) {
    for (const auto& parameter : operation["get"]["parameters"]) {
      EXPECT_TRUE(parameter.contains("in")) << path << ": " << parameter;
    }
    for (const char* status : {"400", "401", "403", "429", "503"}) {
      EXPECT_TRUE(operation["get"]["responses"].contains(status)) << path << " " << status;
    }
  }
  // Every reference leads somewhere.
  const std::string text = description.dump();
  for (size_t at = text.find("schemas/"); at != std::string::npos; at = text.find("schemas/", at)) {
    at += 8;
    EXPECT_TRUE(schemas.contains(text.substr(at, text.find('"', at) - at)));
  }
}

class FewWatches : public QueryTest {
 protected:
  FewWatches() : QueryTest({.subscriptions = 1}) {}
};

TEST_F(FewWatches, AreRefusedPastTheLimit) {
  http::RawClient first(rest_->port());
  first.Send(http::RawGet("/v1/nodes?watch=true"));
  first.ReadUntil("\n{");
  first.ReadUntil("}\n");
  const http::RawClient::Message answer = Get("/v1/gangs?watch=true");
  EXPECT_EQ(answer.status, 429);
  EXPECT_THAT(answer.header, HasSubstr("Retry-After: 5"));
  EXPECT_EQ(DetailOf(answer), "1 watches are open, the limit");
  grpc::ClientContext context;
  auto stream = stub_->WatchGangs(&context, {});
  v1::GangEvent event;
  EXPECT_FALSE(stream->Read(&event));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(GrpcServerStart, SaysWhatIsWrongWithItsAddress) {
  StateStore store;
  EXPECT_THAT(std::string(GrpcServer::Start({.listen = "nonsense"}, &store).status().message()),
              HasSubstr("no port"));
  EXPECT_THAT(
      std::string(GrpcServer::Start({.listen = "host.example:1"}, &store).status().message()),
      HasSubstr("not an IP address"));
  auto first = GrpcServer::Start({.listen = "127.0.0.1:0"}, &store);
  ASSERT_TRUE(first.ok());
  const std::string taken = fmt::format("127.0.0.1:{}", (*first)->port());
  const absl::Status status = GrpcServer::Start({.listen = taken}, &store).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("in use"));
}

}  // namespace
}  // namespace muster::extender
