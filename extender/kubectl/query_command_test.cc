// The command as a user runs it: by his kubeconfig and its credential plugin, against the API group
// as Muster serves it. The embedded API server says what he may.

#include "extender/kubectl/query_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <sstream>
#include <streambuf>
#include <string>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "extender/admission/certificates.h"
#include "extender/aggregated/api_routes.h"
#include "extender/kubectl/object_text.h"
#include "extender/testing/messages.h"
#include "fmt/format.h"
#include "kube/client/credentials.h"
#include "kube/client/curl_transport.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/http_front.h"

namespace muster::extender {
namespace {

using coscheduling::GangKey;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<kube::embedded::Account> Accounts() {
  const auto grant = [](const char* verb, const char* resource) {
    return kube::embedded::Grant{verb, "visibility.muster.dev", resource, "team"};
  };
  const auto account = [](const char* name, std::vector<kube::embedded::Grant> may) {
    return kube::embedded::Account{.token = std::string("of-") + name,
                                   .user = name,
                                   .audiences = {"muster.dev"},
                                   .may = std::move(may)};
  };
  return {account("operator", {{"*", "visibility.muster.dev", "*", "*"}}),
          account("lead", {grant("*", "gangs"), grant("*", "localqueues")}),
          account("reader", {grant("get", "gangs"), grant("list", "gangs")})};
}

// What a command printed, readable while it goes on.
class Printed : public std::streambuf {
 public:
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  int overflow(int c) override {
    const std::lock_guard lock(mutex_);
    text_ += static_cast<char>(c);
    return c;
  }
  mutable std::mutex mutex_;
  std::string text_;
};

class QueryCommandTest : public ::testing::Test {
 protected:
  QueryCommandTest() {
    std::string pattern = ::testing::TempDir() + "/kubectl-muster-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    api_.SetAccounts(Accounts());
    store_.Publish({{GangKey{"team", "train"}, MakeGang("team", "train", 1)},
                    {GangKey{"other", "serve"}, MakeGang("other", "serve", 1)}});
    store_.Publish(Listed::kQueues, MakeQueues());
    auto nodes = std::make_unique<v1::ListNodesResponse>(*MakeNodes({"n1", "n2"}));
    nodes->mutable_nodes(0)->add_expected_for("team/train");
    (*nodes->mutable_nodes(0)->mutable_holds())["uid-of-train"].set_seconds(kNow + 840);
    nodes->mutable_nodes(1)->set_stage(v1::LAUNCHED);
    store_.Publish(Listed::kNodes, std::move(nodes));
    authority_ = *IssueAuthority(absl::Hours(24), absl::Now());
    const KeyedCertificate serving =
        *IssueServingCertificate({{"localhost"}, {}}, authority_, absl::Hours(1), absl::Now());
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
  ~QueryCommandTest() override {
    access_.Stop();
    server_->Stop(absl::ZeroDuration());
    transport_->Stop();
    std::filesystem::remove_all(folder_);
  }

  static constexpr int64_t kNow = 1'767'225'720;  // two minutes after the gangs came to their state

  std::unique_ptr<kube::CurlTransport> NewTransport() {
    kube::ClientConfig config;
    config.server = front_->url();
    config.credentials = kube::FixedCredentials({});
    return *kube::CurlTransport::Create(config, {});
  }

  std::string Server() const { return fmt::format("https://localhost:{}", server_->port()); }

  // A kubeconfig of `user`, whose token a plugin brings, in namespace team.
  std::string Kubeconfig(const std::string& user, const std::string& server) {
    const std::string plugin = folder_ + "/login";
    std::ofstream(plugin) << R"(#!/bin/sh
echo x >> "$(dirname "$0")/logins"
[ "$1" = nobody ] && { echo 'your session has expired' >&2; exit 255; }
echo '{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential",
       "status": {"token": "of-'$1'"}}'
)";
    chmod(plugin.c_str(), 0755);
    const std::string path = folder_ + "/config-" + user;
    std::ofstream(path) << fmt::format(
        R"(
current-context: team
contexts: [{{name: team, context: {{cluster: here, user: me, namespace: team}}}},
           {{name: elsewhere, context: {{cluster: here, user: me, namespace: elsewhere}}}}]
clusters: [{{name: here, cluster: {{server: '{}'{}}}}}]
users: [{{name: me, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1beta1,
                                    command: ./login, args: [{}]}}}}}}]
)",
        server,
        server.starts_with("https")
            ? ", certificate-authority-data: " + absl::Base64Escape(authority_.chain)
            : "",
        user);
    return path;
  }

  struct Ran {
    int code = 0;
    std::string out;
    std::string err;
  };
  Ran Run(const std::string& user, QueryOptions options, const std::string& server = "") {
    std::ostringstream out;
    std::ostringstream err;
    options.kubeconfig = Kubeconfig(user, server.empty() ? Server() : server);
    const int code =
        RunQuery(options, {.out = out,
                           .err = err,
                           .clock = [] { return absl::FromUnixSeconds(kNow); },
                           .sleep = [this](absl::Duration pause) { slept_ += pause; }});
    return {code, out.str(), err.str()};
  }

  // What a watch prints until it has printed `last`, or for some seconds, while these things happen
  // once it has printed something.
  Ran Watched(const std::string& user, QueryOptions options, const std::string& last,
              const std::function<void()>& happens, bool redraws = false) {
    Printed printed;
    std::ostream out(&printed);
    std::ostringstream err;
    options.kubeconfig = Kubeconfig(user, Server());
    options.watch = true;
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    std::thread meanwhile([&] {
      while (printed.text().empty() && absl::Now() < deadline)
        absl::SleepFor(absl::Milliseconds(5));
      happens();
    });
    const int code =
        RunQuery(options, {.out = out,
                           .err = err,
                           .redraws = redraws,
                           .clock = [] { return absl::FromUnixSeconds(kNow); },
                           .sleep = absl::SleepFor,
                           .ended =
                               [&] {
                                 return printed.text().find(last) != std::string::npos ||
                                        absl::Now() >= deadline;
                               }});
    meanwhile.join();
    return {code, printed.text(), err.str()};
  }

  std::string folder_;
  absl::Duration slept_;
  kube::embedded::ApiServer api_;
  std::unique_ptr<kube::embedded::HttpFront> front_ = *kube::embedded::HttpFront::Start(&api_);
  std::unique_ptr<kube::CurlTransport> transport_ = NewTransport();
  StateStore store_;
  FrontProxy proxy_;
  AccessControl access_{*transport_, [] { return absl::Now(); }, {}};
  KeyedCertificate authority_;
  std::unique_ptr<http::Server> server_;
};

TEST_F(QueryCommandTest, GangsAreThoseOfTheContextsNamespace) {
  const Ran ran = Run("lead", {.query = Query::kGangs});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out,
            "NAME   STATE         REASON        BOUND  QUEUE  AGE\n"
            "train  PROVISIONING  NODES_COMING  0/4    -      -\n");
  EXPECT_EQ(Run("lead", {.query = Query::kGangs, .name = "train"}).out, ran.out);
  // By one login each.
  EXPECT_EQ(*kube::ReadSmallFile(folder_ + "/logins", 100), "x\nx\n");
}

TEST_F(QueryCommandTest, OrOfAnotherOrOfAll) {
  const Ran other = Run("operator", {.query = Query::kGangs, .name_space = "other"});
  EXPECT_THAT(other.out, AllOf(HasSubstr("serve "), Not(HasSubstr("train"))));
  const Ran all =
      Run("operator", {.query = Query::kGangs, .all_namespaces = true, .output = "wide"});
  EXPECT_EQ(
      all.out,
      "NAMESPACE  NAME   STATE         REASON        BOUND  QUEUE  AGE  FLAVORS  MESSAGE\n"
      "other      serve  PROVISIONING  NODES_COMING  0/4    -      -    -        3 of 4 nodes "
      "are usable; \"n4\" is LAUNCHED\n"
      "team       train  PROVISIONING  NODES_COMING  0/4    -      -    -        3 of 4 nodes "
      "are usable; \"n4\" is LAUNCHED\n");
  const Ran none = Run("operator", {.query = Query::kGangs, .context = "elsewhere"});
  EXPECT_EQ(none.code, 0);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(none.err, "No gangs in namespace elsewhere.\n");
}

TEST_F(QueryCommandTest, ObjectsAreAsTheApiHasThem) {
  const json one =
      json::parse(Run("lead", {.query = Query::kGangs, .name = "train", .output = "json"}).out);
  EXPECT_EQ(one["kind"], "Gang");
  EXPECT_EQ(one["status"]["reason"]["code"], "NODES_COMING");
  const json list = json::parse(Run("lead", {.query = Query::kGangs, .output = "json"}).out);
  EXPECT_EQ(list["kind"], "GangList");
  EXPECT_EQ(list["items"][0], one);
  EXPECT_EQ(Run("operator", {.query = Query::kGangs, .all_namespaces = true, .output = "name"}).out,
            "gang.visibility.muster.dev/serve\ngang.visibility.muster.dev/train\n");
  EXPECT_THAT(Run("lead", {.query = Query::kQueues, .output = "yaml"}).out,
              HasSubstr("items:\n"
                        "  - apiVersion: visibility.muster.dev/v1beta1\n"
                        "    kind: LocalQueue\n"
                        "    metadata:\n"
                        "      creationTimestamp: null\n"
                        "      name: default\n"
                        "      namespace: team\n"));
}

TEST(ObjectText, YamlQuotesWhatWouldBeSomethingElse) {
  EXPECT_EQ(ObjectText(json::parse(R"({"a": "true", "b": "12", "c": "x: y", "d": "", "e": 3,
                                       "f": false, "g": [], "h": {}, "i": ["spot", "N"],
                                       "a/b": "2026-01-01T00:00:00Z", "j": "a\nb"})"),
                       ObjectForm::kYaml),
            "a: \"true\"\n"
            "a/b: \"2026-01-01T00:00:00Z\"\n"
            "b: \"12\"\n"
            "c: \"x: y\"\n"
            "d: \"\"\n"
            "e: 3\n"
            "f: false\n"
            "g: []\n"
            "h: {}\n"
            "i:\n"
            "  - spot\n"
            "  - \"N\"\n"
            "j: \"a\\nb\"\n");
}

TEST_F(QueryCommandTest, QueuesAreThoseOfANamespaceOrOfTheCluster) {
  EXPECT_EQ(Run("lead", {.query = Query::kQueues}).out,
            "QUEUE    CLUSTERQUEUE  PENDING  ADMITTED  FLAVOR  RESOURCE  USED\n"
            "default  gpus          0        0\n");
  EXPECT_EQ(Run("operator", {.query = Query::kQueues, .all_namespaces = true}).out,
            "QUEUE  COHORT  PENDING  ADMITTED  FLAVOR  RESOURCE        USED  NOMINAL  BORROWED\n"
            "gpus   -       1        0         spot    nvidia.com/gpu  8     0        0\n"
            "\n"
            "QUEUE  PLACE  GANG  PRIORITY  REASON        MESSAGE\n"
            "gpus   1      /job  0         QUOTA_IN_USE  \n");
  EXPECT_EQ(Run("operator", {.query = Query::kQueues, .context = "elsewhere"}).err,
            "No localqueues in namespace elsewhere. Those of the cluster: -A.\n");
}

TEST_F(QueryCommandTest, NodesThatComeAreFirst) {
  EXPECT_EQ(Run("operator", {.query = Query::kNodes}).out,
            "NAME  STAGE     NODEPOOL  TYPE  ZONE  FOR         HELD\n"
            "n2    LAUNCHED  -         -     -     -           -\n"
            "n1    USABLE    -         -     -     team/train  team/train 14m\n");
}

TEST_F(QueryCommandTest, AGangIsExplainedWithItsPlaceInLine) {
  auto gang = std::make_shared<v1::Gang>(*MakeGang("team", "train", 2));
  gang->set_state(v1::WAITING_FOR_QUOTA);
  gang->set_queue("default");
  store_.Publish({{GangKey{"team", "train"}, gang}});
  auto queues = std::make_unique<v1::ListQueuesResponse>(*MakeQueues());
  v1::PendingGang* waiting = queues->mutable_queues(1)->add_pending_gangs();
  waiting->set_namespace_("team");
  waiting->set_name("train");
  waiting->set_place(3);
  store_.Publish(Listed::kQueues, std::move(queues));
  const Ran ran = Run("lead", {.query = Query::kExplain, .name = "train"});
  EXPECT_THAT(ran.out, AllOf(HasSubstr("State:     WAITING_FOR_QUOTA for 2m"),
                             HasSubstr("quota    now    place 3 in line in ClusterQueue gpus\n")));
  EXPECT_EQ(
      Run("operator", {.query = Query::kExplain, .context = "elsewhere", .name = "team/train"}).out,
      ran.out);
  // Who may only see gangs is told the rest.
  const Ran reader = Run("reader", {.query = Query::kExplain, .name = "train"});
  EXPECT_EQ(reader.code, 0) << reader.err;
  EXPECT_THAT(reader.out, HasSubstr("quota    now    -\n"));
}

TEST_F(QueryCommandTest, WhatIsNotThereIsAnAnswer) {
  const Ran ran = Run("lead", {.query = Query::kExplain, .name = "lost"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.err,
            "muster: there is no gang lost in namespace team; those that are there: kubectl get "
            "gangs.visibility.muster.dev -n team\n");
}

TEST_F(QueryCommandTest, TheRightThatIsMissingIsNamed) {
  const Ran nodes = Run("lead", {.query = Query::kNodes});
  EXPECT_EQ(nodes.code, 2);
  EXPECT_THAT(nodes.err,
              AllOf(HasSubstr("lead"), HasSubstr("list"), HasSubstr("nodes"),
                    HasSubstr("ClusterRole view, or muster-view, by a ClusterRoleBinding\n")));
  EXPECT_THAT(Run("lead", {.query = Query::kGangs, .all_namespaces = true}).err,
              HasSubstr("look into one namespace, by -n"));
  EXPECT_THAT(Run("lead", {.query = Query::kGangs, .name_space = "other"}).err,
              HasSubstr("ClusterRole view, bound in namespace other, has that right"));
  EXPECT_EQ(slept_, absl::ZeroDuration());
}

TEST_F(QueryCommandTest, WhoIsUnknownIsToldToLogIn) {
  const Ran stranger = Run("stranger", {.query = Query::kGangs});
  EXPECT_EQ(stranger.code, 2);
  EXPECT_THAT(stranger.err, HasSubstr("log in again"));
  const Ran nobody = Run("nobody", {.query = Query::kGangs});
  EXPECT_EQ(nobody.code, 2);
  EXPECT_THAT(nobody.err, AllOf(HasSubstr("muster: can't log in: credential plugin"),
                                HasSubstr("exited with 255: your session has expired")));
}

TEST_F(QueryCommandTest, ANewLeaderIsWaitedFor) {
  store_.SetClosed("not leading; leader is b");
  const Ran ran = Run("lead", {.query = Query::kGangs});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err,
              AllOf(HasSubstr("Muster doesn't answer (HTTP 503: not leading; leader is b)"),
                    HasSubstr("no replica of it leads"), HasSubstr("get pods")));
  EXPECT_GE(slept_, absl::Seconds(10));
  EXPECT_LE(slept_, absl::Seconds(15));
}

TEST_F(QueryCommandTest, ACommandThatCannotReachAnythingSaysSo) {
  const Ran absent = Run("lead", {.query = Query::kGangs}, front_->url());
  EXPECT_EQ(absent.code, 2);
  EXPECT_THAT(absent.err, HasSubstr("this cluster has no API group visibility.muster.dev"));
  const Ran nowhere = Run("lead", {.query = Query::kGangs}, "http://127.0.0.1:1");
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("can't reach the API server: http://127.0.0.1:1"));
}

TEST_F(QueryCommandTest, RowsAreAddedAsThingsChange) {
  const auto bind = [this] {
    auto gang = std::make_shared<v1::Gang>(*MakeGang("team", "train", 2));
    gang->set_state(v1::BOUND);
    for (v1::Member& member : *gang->mutable_members()) member.set_node("n");
    gang->mutable_reason()->set_code(v1::ALL_BOUND);
    store_.Publish({{GangKey{"team", "train"}, gang}});
  };
  EXPECT_EQ(Watched("lead", {.query = Query::kGangs}, "4/4", bind).out,
            "NAME   STATE         REASON        BOUND  QUEUE  AGE\n"
            "train  PROVISIONING  NODES_COMING  0/4    -      -\n"
            "train  BOUND         ALL_BOUND     4/4    -      -\n");
  const auto come = [this] { store_.Publish(Listed::kNodes, MakeNodes({"n1", "n2", "n3"})); };
  EXPECT_EQ(Watched("operator", {.query = Query::kNodes}, "n3", come).out,
            "NAME  STAGE     NODEPOOL  TYPE  ZONE  FOR         HELD\n"
            "n2    LAUNCHED  -         -     -     -           -\n"
            "n1    USABLE    -         -     -     team/train  team/train 14m\n"
            "n1    USABLE    -         -     -     -           -\n"
            "n2    USABLE    -         -     -     -           -\n"
            "n3    USABLE    -         -     -     -           -\n");
  EXPECT_THAT(
      Watched("lead", {.query = Query::kGangs, .output = "name"}, "/more",
              [this] { store_.Publish({{GangKey{"team", "more"}, MakeGang("team", "more", 1)}}); })
          .out,
      HasSubstr("gang.visibility.muster.dev/train\ngang.visibility.muster.dev/more\n"));
}

TEST_F(QueryCommandTest, AStoryIsToldAnewInItsPlace) {
  const auto change = [this] {
    auto gang = std::make_shared<v1::Gang>(*MakeGang("team", "train", 2));
    gang->set_state(v1::READY);
    store_.Publish({{GangKey{"team", "train"}, gang}});
  };
  const QueryOptions options{.query = Query::kExplain, .name = "train"};
  const Ran terminal = Watched("lead", options, "READY", change, true);
  EXPECT_EQ(terminal.out.find("\033[H\033[2JGang:"), 0u);
  EXPECT_NE(terminal.out.rfind("\033[H\033[2JGang:"), 0u);
  store_.Publish({{GangKey{"team", "train"}, MakeGang("team", "train", 3)}});
  const Ran file = Watched("lead", options, "READY", change);
  EXPECT_EQ(file.out.find("Gang:"), 0u);
  EXPECT_NE(file.out.find("\n\nGang:"), std::string::npos);
  const Ran gone = Watched("lead", options, "never",
                           [this] { store_.Publish({{GangKey{"team", "train"}, nullptr}}); });
  EXPECT_EQ(gone.code, 1);
  EXPECT_EQ(gone.err, "muster: gang train is gone\n");
}

TEST_F(QueryCommandTest, WhoMayNotWatchIsTold) {
  const Ran ran = Watched("reader", {.query = Query::kGangs}, "never", [] {});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("reader"), HasSubstr("watch")));
}

}  // namespace
}  // namespace muster::extender
