// Lists and watches: versions, pages, bookmarks, compaction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kube/embedded/test_client.h"

namespace muster::kube::embedded {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Query = std::vector<std::pair<std::string, std::string>>;

class Watcher {
 public:
  Watcher(TestServer* server, const std::string& path, Query query = {}) {
    query.emplace_back("watch", "1");
    Request request;
    request.path = path;
    request.query = std::move(query);
    ApiServer::WatchResult result = server->server().Watch(request);
    session = std::move(result.session);
    refusal = std::move(result.refusal);
  }

  // "ADDED a" per item since the last call; bookmarks as "BOOKMARK version", "initial-end" added.
  std::vector<std::string> Read(size_t max = 1000) {
    std::vector<WatchItem> items;
    open = session->Read(max, &items);
    std::vector<std::string> texts;
    for (const WatchItem& item : items) {
      std::string line;
      item.AppendLine(&line);
      last = TestJson::parse(line);
      std::string text = last["type"].get<std::string>() + " ";
      if (last["type"] == "BOOKMARK") {
        text += last["object"]["metadata"]["resourceVersion"];
        if (last["object"]["metadata"].contains("annotations")) text += " initial-end";
      } else if (last["type"] == "ERROR") {
        text += std::to_string(last["object"]["code"].get<int>());
      } else {
        text += last["object"]["metadata"]["name"];
      }
      texts.push_back(text);
    }
    return texts;
  }

  std::unique_ptr<WatchSession> session;
  Response refusal;
  bool open = true;
  TestJson last;
};

std::string Version(TestServer& server) { return std::to_string(server.server().revision()); }

void CreatePods(TestServer& server, std::initializer_list<const char*> names) {
  for (const char* name : names) ASSERT_EQ(server.Post(kPods, MakePod(name)).status, 201);
}

TEST(WatchTest, FollowsChangesFromAVersion) {
  TestServer server;
  CreatePods(server, {"a"});
  Watcher watch(&server, kPods, {{"resourceVersion", Version(server)}});
  EXPECT_THAT(watch.Read(), IsEmpty());
  CreatePods(server, {"b"});
  server.MergePatch(std::string(kPods) + "/a", {{"metadata", {{"labels", {{"x", "y"}}}}}});
  server.Delete(std::string(kPods) + "/a");
  EXPECT_THAT(watch.Read(), ElementsAre("ADDED b", "MODIFIED a", "DELETED a"));
  // A deletion carries the version of the deletion, so that a client can go on from it.
  EXPECT_EQ(watch.last["object"]["metadata"]["resourceVersion"], Version(server));
  EXPECT_TRUE(watch.open);
}

TEST(WatchTest, WithoutAVersionStartsWithTheState) {
  TestServer server;
  CreatePods(server, {"b", "a"});
  for (const Query& query : {Query{}, Query{{"resourceVersion", "0"}}}) {
    Watcher watch(&server, kPods, query);
    EXPECT_THAT(watch.Read(), ElementsAre("ADDED a", "ADDED b"));
  }
}

TEST(WatchTest, WatchListEndsTheStateWithABookmark) {
  TestServer server;
  CreatePods(server, {"a", "b"});
  std::string version = Version(server);
  Watcher watch(&server, kPods,
                {{"sendInitialEvents", "true"},
                 {"resourceVersionMatch", "NotOlderThan"},
                 {"allowWatchBookmarks", "true"}});
  CreatePods(server, {"c"});
  EXPECT_THAT(watch.Read(1), ElementsAre("ADDED a"));
  EXPECT_THAT(watch.Read(),
              ElementsAre("ADDED b", "BOOKMARK " + version + " initial-end", "ADDED c"));
  EXPECT_THAT(watch.Read(), IsEmpty());
}

TEST(WatchTest, WatchListOfNothingStillEnds) {
  TestServer server;
  Watcher watch(&server, kPods,
                {{"sendInitialEvents", "true"},
                 {"resourceVersionMatch", "NotOlderThan"},
                 {"allowWatchBookmarks", "true"}});
  EXPECT_THAT(watch.Read(), ElementsAre("BOOKMARK " + Version(server) + " initial-end"));
}

TEST(WatchTest, BookmarksCarryTheLatestVersionOfAnyKind) {
  TestServer server;
  Watcher watch(&server, kPods,
                {{"resourceVersion", Version(server)}, {"allowWatchBookmarks", "true"}});
  Watcher silent(&server, kPods, {{"resourceVersion", Version(server)}});
  server.Post(kNodes, MakeNode("n1"));
  server.Advance(absl::Seconds(59));
  EXPECT_THAT(watch.Read(), IsEmpty());
  EXPECT_EQ(watch.session->NextDue(), server.now() + absl::Seconds(1));
  server.Advance(absl::Seconds(1));
  EXPECT_THAT(watch.Read(), ElementsAre("BOOKMARK " + Version(server)));
  EXPECT_THAT(watch.Read(), IsEmpty());
  EXPECT_THAT(silent.Read(), IsEmpty());
}

TEST(WatchTest, EndsAtItsTimeout) {
  TestServer server;
  Watcher watch(&server, kPods, {{"timeoutSeconds", "300"}});
  EXPECT_EQ(watch.session->NextDue(), server.now() + absl::Seconds(300));
  server.Advance(absl::Seconds(299));
  watch.Read();
  EXPECT_TRUE(watch.open);
  server.Advance(absl::Seconds(1));
  CreatePods(server, {"late"});
  EXPECT_THAT(watch.Read(), ElementsAre("ADDED late"));
  EXPECT_FALSE(watch.open);
}

TEST(WatchTest, ACompactedVersionIsAnErrorInTheStream) {
  TestServer server;
  std::string version = Version(server);
  CreatePods(server, {"a"});
  server.server().CompactHistory();
  Watcher watch(&server, kPods, {{"resourceVersion", version}});
  ASSERT_NE(watch.session, nullptr);
  EXPECT_THAT(watch.Read(), ElementsAre("ERROR 410"));
  EXPECT_EQ(watch.last["object"]["reason"], "Expired");
  EXPECT_FALSE(watch.open);
  Watcher fresh(&server, kPods, {{"resourceVersion", Version(server)}});
  EXPECT_THAT(fresh.Read(), IsEmpty());
}

TEST(WatchTest, AReaderThatFallsBehindTheHistoryIsCutOff) {
  ApiServerOptions options;
  options.history_limit = 10;
  TestServer server(options);
  Watcher watch(&server, kPods);
  for (int i = 0; i < 5; ++i) CreatePods(server, {std::to_string(i).c_str()});
  EXPECT_EQ(watch.Read().size(), 5u);
  for (int i = 10; i < 21; ++i) CreatePods(server, {std::to_string(i).c_str()});
  EXPECT_THAT(watch.Read(), ElementsAre("ERROR 410"));
  EXPECT_FALSE(watch.open);
}

TEST(WatchTest, SelectorsTurnChangesIntoComingAndGoing) {
  TestServer server;
  CreatePods(server, {"a", "b"});
  Watcher labels(&server, kPods,
                 {{"labelSelector", "team=x"}, {"resourceVersion", Version(server)}});
  Watcher bound(&server, "/api/v1/pods",
                {{"fieldSelector", "spec.nodeName=n1"}, {"resourceVersion", Version(server)}});
  const std::string pod = std::string(kPods) + "/a";
  server.MergePatch(pod, {{"metadata", {{"labels", {{"team", "x"}}}}}});
  server.MergePatch(pod, {{"metadata", {{"labels", {{"more", "1"}}}}}});
  server.MergePatch(pod, {{"metadata", {{"labels", {{"team", "y"}}}}}});
  EXPECT_THAT(labels.Read(), ElementsAre("ADDED a", "MODIFIED a", "DELETED a"));
  server.Post(pod + "/binding", MakeBinding("a", "n1"));
  server.Post(std::string(kPods) + "/b/binding", MakeBinding("b", "n2"));
  server.Delete(pod, {{"gracePeriodSeconds", 0}});
  EXPECT_THAT(bound.Read(), ElementsAre("ADDED a", "DELETED a"));
}

TEST(WatchTest, NamespacesAreKeptApart) {
  TestServer server;
  server.Post("/api/v1/namespaces", {{"metadata", {{"name", "default-2"}}}});
  Watcher one(&server, kPods, {{"resourceVersion", Version(server)}});
  Watcher all(&server, "/api/v1/pods", {{"resourceVersion", Version(server)}});
  server.Post("/api/v1/namespaces/default-2/pods", MakePod("other"));
  CreatePods(server, {"mine"});
  EXPECT_THAT(one.Read(), ElementsAre("ADDED mine"));
  EXPECT_THAT(all.Read(), ElementsAre("ADDED other", "ADDED mine"));
}

TEST(WatchTest, WakesOncePerRead) {
  TestServer server;
  Watcher watch(&server, kPods);
  int wakes = 0;
  CreatePods(server, {"a"});
  watch.session->OnReady([&] { ++wakes; });
  EXPECT_EQ(wakes, 1) << "something waited already";
  CreatePods(server, {"b"});
  EXPECT_EQ(wakes, 1) << "not read yet";
  watch.Read();
  CreatePods(server, {"c"});
  CreatePods(server, {"d"});
  EXPECT_EQ(wakes, 2);
  server.Post(kNodes, MakeNode("n"));
  watch.Read();
  EXPECT_EQ(wakes, 2);
}

struct BadOptions {
  const char* name;
  Query query;
  int status;
  const char* message;
};

class BadWatchTest : public ::testing::TestWithParam<BadOptions> {};

TEST_P(BadWatchTest, IsRefused) {
  TestServer server;
  Watcher watch(&server, kPods, GetParam().query);
  ASSERT_EQ(watch.session, nullptr);
  EXPECT_EQ(watch.refusal.status, GetParam().status);
  EXPECT_THAT(watch.refusal.body, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadWatchTest,
    ::testing::Values(
        BadOptions{"InitialEventsWithoutMatch",
                   {{"sendInitialEvents", "true"}},
                   422,
                   "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"},
        BadOptions{"MatchWithoutInitialEvents",
                   {{"resourceVersionMatch", "NotOlderThan"}},
                   422,
                   "forbidden for watch unless sendInitialEvents"},
        BadOptions{"FutureVersion",
                   {{"resourceVersion", "999999"}},
                   504,
                   "Too large resource version: 999999"},
        BadOptions{"BadVersion", {{"resourceVersion", "x1"}}, 422, "must be a number"},
        BadOptions{"BadLabels", {{"labelSelector", "a in (b"}}, 400, "unable to parse requirement"},
        BadOptions{"BadFields",
                   {{"fieldSelector", "spec.color=red"}},
                   400,
                   "field label not supported: spec.color"}),
    [](const auto& info) { return info.param.name; });

TEST(ListTest, PagesShowOneMoment) {
  TestServer server;
  CreatePods(server, {"a", "b", "c", "d", "e"});
  std::string version = Version(server);
  TestJson first = server.Get(kPods, {{"limit", "2"}}).body;
  EXPECT_EQ(first["metadata"]["resourceVersion"], version);
  // What happens between two pages isn't seen.
  server.Delete(std::string(kPods) + "/d");
  CreatePods(server, {"bb"});
  server.MergePatch(std::string(kPods) + "/c", {{"metadata", {{"labels", {{"new", "1"}}}}}});
  std::vector<std::string> names;
  TestJson page = first;
  while (true) {
    for (const TestJson& item : page["items"]) names.push_back(item["metadata"]["name"]);
    if (!page["metadata"].contains("continue")) break;
    page = server.Get(kPods, {{"limit", "2"}, {"continue", page["metadata"]["continue"]}}).body;
    EXPECT_EQ(page["metadata"]["resourceVersion"], version);
  }
  EXPECT_THAT(names, ElementsAre("a", "b", "c", "d", "e"));
  TestJson exact =
      server.Get(kPods, {{"resourceVersion", version}, {"resourceVersionMatch", "Exact"}}).body;
  EXPECT_EQ(exact["items"].size(), 5u);
  EXPECT_FALSE(exact["items"][2]["metadata"].contains("labels"));
  EXPECT_EQ(server.Get(kPods).body["items"].size(), 5u);
}

TEST(ListTest, ACompactedPageIsGone) {
  TestServer server;
  CreatePods(server, {"a", "b", "c"});
  TestJson first = server.Get(kPods, {{"limit", "1"}}).body;
  std::string old_version = Version(server);
  CreatePods(server, {"d"});
  server.server().CompactHistory();
  TestAnswer next =
      server.Get(kPods, {{"limit", "1"}, {"continue", first["metadata"]["continue"]}});
  EXPECT_EQ(next.status, 410);
  EXPECT_EQ(next.reason(), "Expired");
  EXPECT_EQ(server.Get(kPods, {{"resourceVersion", old_version}, {"resourceVersionMatch", "Exact"}})
                .status,
            410);
  EXPECT_EQ(server.Get(kPods, {{"continue", "garbage!"}}).status, 400);
}

TEST(ListTest, Selectors) {
  TestServer server;
  for (const char* name : {"a", "b", "c"}) {
    TestJson pod = MakePod(name);
    pod["metadata"]["labels"] = {{"app", name}};
    server.Post(kPods, pod);
  }
  server.Post(std::string(kPods) + "/a/binding", MakeBinding("a", "n1"));
  auto names = [&](Query query) {
    std::string text;
    TestJson list = server.Get(kPods, std::move(query)).body;
    for (const TestJson& item : list["items"]) {
      text += item["metadata"]["name"].get<std::string>();
    }
    return text;
  };
  EXPECT_EQ(names({{"labelSelector", "app in (a, c)"}}), "ac");
  EXPECT_EQ(names({{"labelSelector", "app notin (a),app"}}), "bc");
  EXPECT_EQ(names({{"labelSelector", "!app"}}), "");
  EXPECT_EQ(names({{"labelSelector", "app!=b"}}), "ac");
  EXPECT_EQ(names({{"labelSelector", "app==b"}}), "b");
  EXPECT_EQ(names({{"fieldSelector", "metadata.name=b"}}), "b");
  EXPECT_EQ(names({{"fieldSelector", "spec.nodeName="}}), "bc");
  EXPECT_EQ(names({{"fieldSelector", "spec.nodeName!=,status.phase=Pending"}}), "a");
  EXPECT_EQ(names({{"fieldSelector", "status.phase!=Pending"}}), "");
}

TEST(ListTest, VersionsInTheFutureTimeOut) {
  TestServer server;
  TestAnswer answer = server.Get(kPods, {{"resourceVersion", "999999"}});
  EXPECT_EQ(answer.status, 504);
  EXPECT_EQ(answer.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
  EXPECT_EQ(server.Get(kPods, {{"watch", "1"}}).status, 400) << "streams have their own door";
}

}  // namespace
}  // namespace muster::kube::embedded
