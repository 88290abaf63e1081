// The aggregated API as the API server meets it: over TLS, with its certificate, and with users
// whom it names. The embedded API server says what they may.

#include "extender/aggregated/api_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "extender/admission/certificates.h"
#include "extender/testing/https_get.h"
#include "extender/testing/messages.h"
#include "fmt/format.h"
#include "kube/client/curl_transport.h"
#include "kube/client/test_certificates.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/http_front.h"

namespace muster::extender {
namespace {

using coscheduling::GangKey;
using kube::TestCertificate;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kBase = "/apis/visibility.muster.dev/v1beta1";

std::vector<kube::embedded::Account> Accounts() {
  const auto grant = [](const char* verb, const char* resource, const char* name_space) {
    return kube::embedded::Grant{verb, "visibility.muster.dev", resource, name_space};
  };
  return {{.user = "team-lead",
           .may = {grant("get", "gangs", "team"), grant("list", "gangs", "team"),
                   grant("watch", "gangs", "team"), grant("list", "localqueues", "team")}},
          {.token = "of-operator",
           .user = "operator",
           .audiences = {"muster.dev"},
           .may = {grant("*", "*", "*")}},
          // Another group's rights are no rights here.
          {.user = "reader", .may = {{"*", "scheduling.x-k8s.io", "*", "*"}}}};
}

class ApiRoutesTest : public ::testing::Test {
 protected:
  ApiRoutesTest() {
    api_.SetAccounts(Accounts());
    store_.Publish({{GangKey{"team", "train"}, MakeGang("team", "train", 1)},
                    {GangKey{"other", "train"}, MakeGang("other", "train", 1)}});
    store_.Publish(Listed::kQueues, MakeQueues());
    store_.Publish(Listed::kNodes, MakeNodes({"n1", "n2"}));
    proxy_.Trust(*ReadFrontProxyConfig(json{
        {"data",
         {{"requestheader-client-ca-file", front_authority_.certificate_pem},
          {"requestheader-allowed-names", R"(["front-proxy-client"])"},
          {"requestheader-username-headers", R"(["X-Remote-User"])"},
          {"requestheader-group-headers",
           R"(["X-Remote-Group"])"}}}}.dump()));
    const absl::Time now = absl::Now();
    authority_ = *IssueAuthority(absl::Hours(24), now);
    const KeyedCertificate serving =
        *IssueServingCertificate({{"localhost"}, {}}, authority_, absl::Hours(1), now);
    server_ = *http::Server::Start(
        {.listen = "127.0.0.1:0",
         .body_limit = 0,
         .certificate = http::Certificate{serving.chain, serving.key},
         .client_certificates = true,
         .refusal = ApiRefusal},
        ApiRoutes({.store = &store_, .access = &access_, .proxy = &proxy_, .clock = [] {
                     return absl::Now();
                   }}));
  }
  ~ApiRoutesTest() override {
    access_.Stop();
    server_->Stop(absl::ZeroDuration());
    transport_->Stop();
  }

  std::unique_ptr<kube::CurlTransport> NewTransport() {
    kube::ClientConfig config;
    config.server = front_->url();
    config.credentials = kube::FixedCredentials({});
    return *kube::CurlTransport::Create(config, {});
  }
  // As the API server asks for a user.
  HttpsGot As(const std::string& user, const std::string& path,
              const std::vector<std::string>& more = {},
              std::function<bool(const std::string& line)> on_line = {}) {
    HttpsAsked asked{.port = server_->port(),
                     .authority = authority_.chain,
                     .path = path,
                     .headers = {"X-Remote-User: " + user},
                     .certificate = client_.certificate_pem,
                     .key = client_.key_pem,
                     .on_line = std::move(on_line)};
    asked.headers.insert(asked.headers.end(), more.begin(), more.end());
    return HttpsGet(asked);
  }
  HttpsGot WithoutCertificate(const std::string& path, const std::vector<std::string>& headers) {
    return HttpsGet(
        {.port = server_->port(), .authority = authority_.chain, .path = path, .headers = headers});
  }

  kube::embedded::ApiServer api_;
  std::unique_ptr<kube::embedded::HttpFront> front_ = *kube::embedded::HttpFront::Start(&api_);
  std::unique_ptr<kube::CurlTransport> transport_ = NewTransport();
  StateStore store_;
  const TestCertificate front_authority_ = kube::MakeTestAuthority("front-proxy-ca");
  const TestCertificate client_ =
      kube::MakeTestCertificate("front-proxy-client", "", front_authority_);
  FrontProxy proxy_;
  AccessControl access_{*transport_, [] { return absl::Now(); }, {}};
  KeyedCertificate authority_;
  std::unique_ptr<http::Server> server_;
};

std::string At(const std::string& rest) { return kBase + rest; }

TEST_F(ApiRoutesTest, AUserGetsWhatHeMay) {
  const HttpsGot one = As("team-lead", At("/namespaces/team/gangs/train"));
  ASSERT_EQ(one.status, 200) << one.body << one.error;
  const json gang = json::parse(one.body);
  EXPECT_EQ(gang["apiVersion"], "visibility.muster.dev/v1beta1");
  EXPECT_EQ(gang["kind"], "Gang");
  EXPECT_EQ(gang["metadata"]["name"], "train");
  EXPECT_EQ(gang["metadata"]["namespace"], "team");
  EXPECT_EQ(gang["status"]["reason"]["code"], "NODES_COMING");
  const json list = json::parse(As("team-lead", At("/namespaces/team/gangs")).body);
  EXPECT_EQ(list["kind"], "GangList");
  ASSERT_EQ(list["items"].size(), 1u);
  EXPECT_EQ(list["items"][0], gang);
  const json queues = json::parse(As("team-lead", At("/namespaces/team/localqueues")).body);
  EXPECT_EQ(queues["items"][0]["metadata"]["name"], "default");
}

TEST_F(ApiRoutesTest, AndIsRefusedTheRest) {
  for (const char* path :
       {"/gangs", "/namespaces/other/gangs", "/namespaces/other/gangs/train", "/localqueues",
        "/namespaces/team/localqueues/default", "/clusterqueues", "/clusterqueues/gpus", "/flavors",
        "/nodes", "/nodes/n1", "/gangs?watch=true"}) {
    const HttpsGot answer = As("team-lead", At(path));
    EXPECT_EQ(answer.status, 403) << path;
    const json status = json::parse(answer.body);
    EXPECT_EQ(status["kind"], "Status");
    EXPECT_EQ(status["reason"], "Forbidden");
    EXPECT_THAT(status["message"].get<std::string>(), HasSubstr("team-lead"));
    EXPECT_EQ(As("reader", At(path)).status, 403) << path;
  }
}

TEST_F(ApiRoutesTest, WhoMayEverythingGetsIt) {
  for (const char* path : {"/gangs", "/namespaces/other/gangs/train", "/localqueues",
                           "/clusterqueues", "/clusterqueues/gpus", "/flavors", "/nodes",
                           "/nodes/n1", "/namespaces/team/localqueues/default"}) {
    EXPECT_EQ(As("operator", At(path)).status, 200) << path;
  }
  const json all = json::parse(As("operator", At("/gangs?limit=500")).body);
  EXPECT_EQ(all["items"].size(), 2u);
  EXPECT_EQ(As("operator", At("/clusterqueues/default")).status, 404);
  const HttpsGot missing = As("operator", At("/namespaces/team/gangs/nobody"));
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(json::parse(missing.body)["message"],
            "gangs.visibility.muster.dev \"nobody\" not found");
  EXPECT_EQ(json::parse(missing.body)["details"]["kind"], "gangs");
  EXPECT_EQ(As("operator", At("/gangs?labelSelector=a%3Db")).status, 400);
  EXPECT_EQ(As("operator", At("/pods")).status, 404);
}

// Whoever reaches the port may say that he is root.
TEST_F(ApiRoutesTest, HeadersWithoutTheApiServersCertificateAreNothing) {
  for (const char* header : {"X-Remote-User: operator", "X-Remote-Group: system:masters"}) {
    EXPECT_EQ(WithoutCertificate(At("/gangs"), {header}).status, 401);
  }
  const TestCertificate other = kube::MakeTestAuthority("front-proxy-ca");
  for (const TestCertificate& shown :
       {kube::MakeTestCertificate("front-proxy-client", "", other),
        kube::MakeTestCertificate("kubelet", "", front_authority_)}) {
    const HttpsGot answer = HttpsGet({.port = server_->port(),
                                      .authority = authority_.chain,
                                      .path = At("/gangs"),
                                      .headers = {"X-Remote-User: operator"},
                                      .certificate = shown.certificate_pem,
                                      .key = shown.key_pem});
    EXPECT_EQ(answer.status, 401) << answer.error;
    EXPECT_EQ(json::parse(answer.body)["reason"], "Unauthorized");
  }
  // The user whom the API server names counts, not the token that he has with him.
  EXPECT_EQ(As("team-lead", At("/gangs"), {"Authorization: Bearer of-operator"}).status, 403);
}

TEST_F(ApiRoutesTest, WhoComesByHimselfBringsAToken) {
  EXPECT_EQ(WithoutCertificate(At("/gangs"), {}).status, 401);
  EXPECT_EQ(WithoutCertificate(At("/gangs"), {"Authorization: Bearer invented"}).status, 401);
  EXPECT_EQ(WithoutCertificate(At("/gangs"),
                               {"Authorization: Bearer of-operator", "X-Remote-User: team-lead"})
                .status,
            200);
}

TEST_F(ApiRoutesTest, KubectlGetsTables) {
  const std::string accept =
      "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
  const json table = json::parse(As("team-lead", At("/namespaces/team/gangs"), {accept}).body);
  EXPECT_EQ(table["kind"], "Table");
  std::vector<std::string> names;
  for (const json& column : table["columnDefinitions"]) names.push_back(column["name"]);
  EXPECT_THAT(names, ElementsAre("Name", "State", "Reason", "Bound", "Queue", "Age"));
  ASSERT_EQ(table["rows"].size(), 1u);
  EXPECT_EQ(table["rows"][0]["cells"],
            json({"train", "PROVISIONING", "NODES_COMING", "0/4", "", "<unknown>"}));
  EXPECT_EQ(table["rows"][0]["object"]["metadata"]["namespace"], "team");
  for (const char* path : {"/clusterqueues", "/localqueues", "/flavors", "/nodes", "/gangs"}) {
    const json each = json::parse(As("operator", At(path), {accept}).body);
    for (const json& row : each["rows"]) {
      EXPECT_EQ(row["cells"].size(), each["columnDefinitions"].size()) << path;
    }
  }
}

// "ADDED train@7", or what an ERROR says.
std::vector<std::string> EventsIn(const std::string& body) {
  std::vector<std::string> events;
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);) {
    const json event = json::parse(line);
    json object = event["object"];
    if (object["kind"] == "Table") {
      EXPECT_EQ(object["rows"].size(), 1u);
      object = object["rows"][0]["object"];
    }
    const std::string told = event["type"] == "ERROR"
                                 ? object["reason"].get<std::string>()
                                 : object["metadata"]["name"].get<std::string>();
    events.push_back(event["type"].get<std::string>() + " " + told);
  }
  return events;
}

class ApiWatchTest : public ApiRoutesTest {
 protected:
  // What happens during a watch, and of how many events that watch tells because of it.
  struct Happening {
    size_t events;
    std::function<void()> happens;
  };
  // Of a watch that tells of `first` events, and then of what happens, each thing once all before
  // it was told. Where it is to tell of nothing it goes on for a second.
  HttpsGot Watched(const std::string& path, size_t first, std::vector<Happening> happenings = {}) {
    std::mutex mutex;  // of both
    const auto subscriptions = store_.subscriptions();
    size_t awaited = first;
    auto next = happenings.begin();
    // False if all has happened and was told.
    const auto go_on = [&] {
      while (awaited == 0 && next != happenings.end()) {
        next->happens();
        awaited += (next++)->events;
      }
      return awaited > 0;
    };
    std::thread at_once;  // what happens first, where no event comes before
    if (first == 0 && !happenings.empty()) {
      at_once = std::thread([&] {
        while (store_.subscriptions() == subscriptions) std::this_thread::yield();
        const std::lock_guard lock(mutex);
        go_on();
      });
    }
    const bool nothing = first == 0 && happenings.empty();
    HttpsGot got = As("operator",
                      At(path) + (path.find('?') == std::string::npos ? "?" : "&") +
                          (nothing ? "watch=true&timeoutSeconds=1" : "watch=true"),
                      {}, [&](const std::string&) {
                        const std::lock_guard lock(mutex);
                        if (awaited > 0) --awaited;
                        return go_on();
                      });
    if (at_once.joinable()) at_once.join();
    // The server hears of the end a little later, and the next watch's subscription is awaited.
    const absl::Time late = absl::Now() + absl::Seconds(10);
    while (store_.subscriptions() != subscriptions && absl::Now() < late) std::this_thread::yield();
    EXPECT_EQ(got.status, 200) << got.body;
    return got;
  }
  std::string VersionOf(const std::string& path) {
    return json::parse(As("operator", At(path)).body)["metadata"]["resourceVersion"];
  }
  std::function<void()> Change(const std::string& name, uint64_t revision) {
    return
        [=, this] { store_.Publish({{GangKey{"team", name}, MakeGang("team", name, revision)}}); };
  }
  std::function<void()> End(const std::string& name) {
    return [=, this] { store_.Publish({{GangKey{"team", name}, nullptr}}); };
  }
};

TEST_F(ApiWatchTest, TellsWhatChangesAfterWhatWasListed) {
  const std::string version = VersionOf("/gangs");
  const HttpsGot got = Watched("/gangs?resourceVersion=" + version, 0,
                               {{1, Change("new", 1)}, {1, Change("train", 2)}, {1, End("new")}});
  EXPECT_THAT(EventsIn(got.body), ElementsAre("ADDED new", "MODIFIED train", "DELETED new"));
  // Whoever had been away goes on from where he was, and hears of what is gone.
  std::istringstream lines(got.body);
  std::string first;
  std::getline(lines, first);
  const std::string seen = json::parse(first)["object"]["metadata"]["resourceVersion"];
  EXPECT_GT(std::stoull(seen), std::stoull(version));
  EXPECT_THAT(EventsIn(Watched("/gangs?resourceVersion=" + seen, 2).body),
              ElementsAre("MODIFIED train", "DELETED new"));
}

TEST_F(ApiWatchTest, BeginsWithAllThatIsThereIfNoVersionIsNamed) {
  EXPECT_THAT(EventsIn(Watched("/gangs", 2, {{1, Change("train", 2)}}).body),
              ElementsAre("ADDED train", "ADDED train", "MODIFIED train"));
  EXPECT_THAT(EventsIn(Watched("/namespaces/team/gangs?resourceVersion=0", 1).body),
              ElementsAre("ADDED train"));
}

TEST_F(ApiWatchTest, OfOneByItsName) {
  EXPECT_THAT(EventsIn(Watched("/namespaces/team/gangs?fieldSelector=metadata.name%3Dtrain", 1,
                               {{0, Change("other", 1)}, {1, Change("train", 2)}})
                           .body),
              ElementsAre("ADDED train", "MODIFIED train"));
}

// A pod's gang of the same name is there and isn't shown, until it is the only one.
TEST_F(ApiWatchTest, OneObjectHasAName) {
  auto pod = std::make_shared<v1::Gang>(*MakeGang("team", "train", 9));
  pod->set_kind("Pod");
  const std::string version = VersionOf("/gangs");
  EXPECT_THAT(
      EventsIn(Watched("/gangs?resourceVersion=" + version, 0,
                       {{0, [&] { store_.Publish({{GangKey{"team", "train", true}, pod}}); }},
                        {1, Change("other", 1)},
                        {1, End("train")},
                        {1, [&] { store_.Publish({{GangKey{"team", "train", true}, nullptr}}); }}})
                   .body),
      ElementsAre("ADDED other", "MODIFIED train", "DELETED train"));
}

// What is published as a list is told object by object.
TEST_F(ApiWatchTest, OfAListTellsWhatIsAnotherThanBefore) {
  const auto nodes = [this](std::vector<std::string> names, v1::NodeStage first) {
    return [=, this] {
      auto list = std::make_unique<v1::ListNodesResponse>(*MakeNodes(names));
      list->mutable_nodes(0)->set_stage(first);
      store_.Publish(Listed::kNodes, std::move(list));
    };
  };
  const std::string version = VersionOf("/nodes");
  EXPECT_THAT(EventsIn(Watched("/nodes?resourceVersion=" + version, 0,
                               {{1, nodes({"n1", "n2", "n3"}, v1::USABLE)},
                                {2, nodes({"n1", "n3"}, v1::GOING)},
                                {0, nodes({"n1", "n3"}, v1::GOING)}})
                           .body),
              ElementsAre("ADDED n3", "MODIFIED n1", "DELETED n2"));
  // Whoever was away meanwhile is told the same, of each its newest.
  const HttpsGot again = Watched("/nodes?resourceVersion=" + version, 3);
  EXPECT_THAT(EventsIn(again.body), ElementsAre("ADDED n3", "MODIFIED n1", "DELETED n2"));
  const json last = json::parse(again.body.substr(again.body.rfind("{\"type\"")));
  EXPECT_EQ(last["object"]["metadata"]["resourceVersion"], VersionOf("/nodes"));
  EXPECT_THAT(EventsIn(Watched("/nodes", 2, {{1, nodes({"n1"}, v1::GOING)}}).body),
              ElementsAre("ADDED n3", "ADDED n1", "DELETED n3"));
  EXPECT_THAT(
      EventsIn(Watched("/nodes?fieldSelector=metadata.name%3Dn2", 0,
                       {{1, nodes({"n1", "n2"}, v1::USABLE)}, {1, nodes({"n1"}, v1::GOING)}})
                   .body),
      ElementsAre("ADDED n2", "DELETED n2"));
}

TEST_F(ApiWatchTest, OfQueuesOfANamespaceAndOfTheCluster) {
  EXPECT_THAT(EventsIn(Watched("/namespaces/team/localqueues", 1).body),
              ElementsAre("ADDED default"));
  EXPECT_THAT(EventsIn(Watched("/namespaces/other/localqueues", 0).body), ElementsAre());
  EXPECT_THAT(EventsIn(Watched("/clusterqueues", 1,
                               {{1,
                                 [this] {
                                   auto queues =
                                       std::make_unique<v1::ListQueuesResponse>(*MakeQueues());
                                   queues->mutable_queues(0)->set_pending(7);
                                   store_.Publish(Listed::kQueues, std::move(queues));
                                 }}})
                           .body),
              ElementsAre("ADDED gpus", "MODIFIED gpus"));
}

// So many are remembered; whoever heard of fewer lists anew.
TEST_F(ApiWatchTest, OfAListForgetsWhatIsLongGone) {
  std::vector<std::string> many;
  for (int i = 0; i < 300; ++i) many.push_back(fmt::format("n{}", i));
  store_.Publish(Listed::kNodes, MakeNodes(many));
  const std::string before = VersionOf("/nodes");
  store_.Publish(Listed::kNodes, MakeNodes({"n1"}));
  const std::string after = VersionOf("/nodes");
  EXPECT_EQ(As("operator", At("/nodes?watch=1&resourceVersion=" + before)).status, 410);
  EXPECT_THAT(EventsIn(Watched("/nodes?resourceVersion=" + after, 0).body), ElementsAre());
  // And what another leader told is unknown here.
  store_.SetClosed("another one leads");
  store_.SetClosed("");
  EXPECT_EQ(As("operator", At("/nodes?watch=1&resourceVersion=" + after)).status, 410);
}

TEST_F(ApiWatchTest, ShowsTablesToKubectl) {
  const std::string version = VersionOf("/gangs");
  store_.Publish({{GangKey{"team", "train"}, MakeGang("team", "train", 2)}});
  const HttpsGot got =
      As("operator", At("/gangs?watch=1&timeoutSeconds=1&resourceVersion=" + version),
         {"Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json"});
  EXPECT_THAT(EventsIn(got.body), ElementsAre("MODIFIED train"));
  EXPECT_EQ(json::parse(got.body)["object"]["columnDefinitions"].size(), 6u);
}

TEST_F(ApiWatchTest, EndsWhereItsStoryBreaksOff) {
  EXPECT_THAT(
      EventsIn(Watched("/gangs", 2, {{1, [this] { store_.SetClosed("another one leads"); }}}).body),
      ElementsAre("ADDED train", "ADDED train", "ERROR Expired"));
  store_.SetClosed("");
  EXPECT_THAT(
      EventsIn(Watched("/nodes", 2, {{1, [this] { store_.SetClosed("another one leads"); }}}).body),
      ElementsAre("ADDED n1", "ADDED n2", "ERROR Expired"));
}

TEST_F(ApiWatchTest, WhatCannotBeGoneOnFromIsRefused) {
  const std::string before = VersionOf("/gangs");
  store_.SetClosed("another one leads");
  store_.SetClosed("");
  const auto refused = [this](const std::string& query) {
    const HttpsGot answer = As("operator", At("/gangs?watch=1&" + query));
    return fmt::format("{} {}", answer.status,
                       json::parse(answer.body)["reason"].get<std::string>());
  };
  EXPECT_EQ(refused("resourceVersion=" + before), "410 Expired");
  EXPECT_EQ(refused("resourceVersion=99999999999999999"), "410 Expired");
  EXPECT_EQ(refused("resourceVersion=first"), "400 BadRequest");
  EXPECT_EQ(refused("timeoutSeconds=-1"), "400 BadRequest");
  EXPECT_EQ(refused("sendInitialEvents=true&resourceVersionMatch=NotOlderThan"), "422 Invalid");
  EXPECT_EQ(refused("fieldSelector=spec.nodeName%3Dx"), "400 BadRequest");
}

TEST_F(ApiRoutesTest, DocumentsAreEveryones) {
  const json groups = json::parse(WithoutCertificate("/apis", {}).body);
  EXPECT_EQ(groups["groups"][0]["name"], "visibility.muster.dev");
  EXPECT_EQ(json::parse(WithoutCertificate("/apis/visibility.muster.dev", {}).body)["kind"],
            "APIGroup");
  const json resources = json::parse(WithoutCertificate(kBase, {}).body);
  std::vector<std::string> names;
  for (const json& resource : resources["resources"]) {
    names.push_back(resource["name"]);
    EXPECT_EQ(resource["verbs"], json({"get", "list", "watch"}));
  }
  EXPECT_THAT(names, ElementsAre("clusterqueues", "flavors", "gangs", "localqueues", "nodes"));
  EXPECT_EQ(json::parse(WithoutCertificate("/openapi/v2", {}).body)["swagger"], "2.0");
  const json root = json::parse(WithoutCertificate("/openapi/v3", {}).body);
  ASSERT_EQ(root["paths"].size(), 1u);
  const json document =
      json::parse(WithoutCertificate(root["paths"].begin().value()["serverRelativeURL"], {}).body);
  EXPECT_EQ(document["paths"].size(), 12u);
  // Every reference leads somewhere.
  const std::string text = document.dump();
  for (size_t at = text.find("schemas/"); at != std::string::npos; at = text.find("schemas/", at)) {
    at += 8;
    const std::string name = text.substr(at, text.find('"', at) - at);
    EXPECT_TRUE(document["components"]["schemas"].contains(name)) << name;
  }
}

TEST_F(ApiRoutesTest, AStandbySaysThatItIsOne) {
  store_.SetClosed("not leading; leader is b");
  const HttpsGot answer = As("operator", At("/gangs"));
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(json::parse(answer.body)["message"], "not leading; leader is b");
  EXPECT_EQ(WithoutCertificate(kBase, {}).status, 200);
}

}  // namespace
}  // namespace muster::extender
