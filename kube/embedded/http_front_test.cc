#include "kube/embedded/http_front.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "kube/embedded/test_client.h"
#include "kube/embedded/test_http_client.h"

namespace muster::kube::embedded {
namespace {

using ::testing::HasSubstr;

constexpr const char* kConfigMaps = "/api/v1/namespaces/default/configmaps";

std::string ConfigMap(const std::string& name, size_t bytes = 0) {
  return TestJson{{"metadata", {{"name", name}}}, {"data", {{"x", std::string(bytes, 'x')}}}}
      .dump();
}

class HttpFrontTest : public ::testing::Test {
 protected:
  void Start(HttpFrontOptions options = {}) {
    options.faults = &faults_;
    absl::StatusOr<std::unique_ptr<HttpFront>> front = HttpFront::Start(&server_, options);
    ASSERT_TRUE(front.ok()) << front.status();
    front_ = *std::move(front);
  }

  TestHttpClient Client() { return TestHttpClient(front_->port(), front_->ca_pem()); }

  bool Eventually(const std::function<bool()>& holds, absl::Duration within = absl::Seconds(10)) {
    for (absl::Time end = absl::Now() + within; absl::Now() < end;) {
      if (holds()) return true;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return holds();
  }

  Faults faults_;
  ApiServer server_;
  std::unique_ptr<HttpFront> front_;
};

TEST_F(HttpFrontTest, ServesManyRequestsOnOneConnection) {
  Start();
  TestHttpClient client = Client();
  RawAnswer created = client.Call("POST", kConfigMaps, ConfigMap("a"));
  EXPECT_EQ(created.status, 201);
  EXPECT_EQ(created.content_type, "application/json");
  EXPECT_TRUE(created.keep_alive);
  RawAnswer listed =
      client.Call("GET", std::string(kConfigMaps) + "?fieldSelector=metadata.name%3Da&limit=5");
  EXPECT_EQ(TestJson::parse(listed.body)["items"].size(), 1u);
  EXPECT_EQ(client
                .Call("PATCH", std::string(kConfigMaps) + "/a", R"({"data":{"y":"1"}})",
                      "application/merge-patch+json; charset=utf-8")
                .status,
            200);
  EXPECT_EQ(client.Call("DELETE", std::string(kConfigMaps) + "/a").status, 200);
  EXPECT_EQ(client.Call("GET", std::string(kConfigMaps) + "/a").status, 404);
  EXPECT_EQ(client.Call("GET", "/healthz").body, "ok");
  EXPECT_EQ(front_->open_connections(), 1u);
}

TEST_F(HttpFrontTest, SpeaksTls) {
  HttpFrontOptions options;
  options.tls = true;
  Start(options);
  EXPECT_THAT(front_->url(), HasSubstr("https://127.0.0.1:"));
  TestHttpClient client = Client();
  EXPECT_EQ(client.Call("POST", kConfigMaps, ConfigMap("a")).status, 201);
  TestHttpClient watcher = Client();
  ASSERT_EQ(watcher.OpenStream(std::string(kConfigMaps) + "?watch=1"), 200);
  std::string line;
  ASSERT_TRUE(watcher.ReadLine(&line));
  EXPECT_THAT(line, HasSubstr(R"({"type":"ADDED","object":{)"));
  // An authority of somebody else's isn't trusted.
  ApiServer other_server;
  auto other = HttpFront::Start(&other_server, options);
  ASSERT_TRUE(other.ok());
  EXPECT_ANY_THROW(TestHttpClient(front_->port(), (*other)->ca_pem()));
}

TEST_F(HttpFrontTest, RefusesWhatIsNoRequest) {
  HttpFrontOptions options;
  options.max_header_bytes = 4096;
  options.max_body_bytes = 1000;
  Start(options);
  EXPECT_EQ(Client().SendRaw("GARBAGE\r\n\r\n").status, 400);
  EXPECT_EQ(Client().SendRaw("GET /x HTTP/9.9\r\n\r\n").status, 400);
  EXPECT_EQ(Client().Call("GET", "/api/v1/%zz").status, 400);
  EXPECT_EQ(Client().Call("GET", "/api/v1/" + std::string(5000, 'x')).status, 431);
  EXPECT_EQ(Client().Call("OPTIONS", "/api/v1/pods").status, 405);
  RawAnswer large = Client().Call("POST", kConfigMaps, ConfigMap("a", 2000));
  EXPECT_EQ(large.status, 413);
  EXPECT_THAT(large.body, HasSubstr("limit is 1000 bytes"));
  EXPECT_FALSE(large.keep_alive);
  EXPECT_EQ(Client().Call("GET", std::string(kConfigMaps) + "/a").status, 404);
  EXPECT_TRUE(Eventually([&] { return front_->open_connections() == 0; }));
}

TEST_F(HttpFrontTest, ListensOnLoopbackOnly) {
  HttpFrontOptions options;
  options.address = "0.0.0.0";
  auto front = HttpFront::Start(&server_, options);
  EXPECT_EQ(front.status().code(), absl::StatusCode::kInvalidArgument);
  Start();
  options.address = "127.0.0.1";
  options.port = front_->port();
  // A second front on the same port: refused, unless the kernel lets both listen.
  auto second = HttpFront::Start(&server_, options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(HttpFrontTest, StreamsAWatch) {
  Start();
  TestHttpClient watcher = Client();
  ASSERT_EQ(watcher.OpenStream(std::string(kConfigMaps) +
                               "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true"
                               "&resourceVersionMatch=NotOlderThan"),
            200);
  std::string line;
  ASSERT_TRUE(watcher.ReadLine(&line));
  EXPECT_THAT(line, HasSubstr("k8s.io/initial-events-end"));
  TestHttpClient client = Client();
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(client.Call("POST", kConfigMaps, ConfigMap("c" + std::to_string(i), 500)).status,
              201);
  }
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(watcher.ReadLine(&line));
    EXPECT_EQ(TestJson::parse(line)["object"]["metadata"]["name"], "c" + std::to_string(i));
  }
}

TEST_F(HttpFrontTest, ItsTimeoutEndsAWatchInGoodOrder) {
  Start();
  TestHttpClient watcher = Client();
  ASSERT_EQ(watcher.OpenStream(std::string(kConfigMaps) + "?watch=true&timeoutSeconds=1"), 200);
  std::string line;
  bool clean = false;
  EXPECT_FALSE(watcher.ReadLine(&line, &clean));
  EXPECT_TRUE(clean);
}

TEST_F(HttpFrontTest, AWatchOverTlsEndsInGoodOrderToo) {
  HttpFrontOptions options;
  options.tls = true;
  Start(options);
  TestHttpClient watcher = Client();
  ASSERT_EQ(watcher.OpenStream(std::string(kConfigMaps) + "?watch=true&timeoutSeconds=1"), 200);
  std::string line;
  bool clean = false;
  EXPECT_FALSE(watcher.ReadLine(&line, &clean));
  EXPECT_TRUE(clean);
  // Whether the client says goodbye or not.
  EXPECT_TRUE(Eventually([&] { return front_->open_connections() == 0; }));
}

TEST_F(HttpFrontTest, ARefusedWatchIsAnAnswer) {
  Start();
  RawAnswer answer = Client().Call("GET", "/api/v1/pods?watch=1&resourceVersion=99999999");
  EXPECT_EQ(answer.status, 504);
  EXPECT_THAT(answer.body, HasSubstr("Too large resource version"));
}

TEST_F(HttpFrontTest, ASlowReaderIsCutOff) {
  HttpFrontOptions options;
  options.write_timeout = absl::Milliseconds(300);
  Start(options);
  TestHttpClient slow = Client();
  slow.OpenStreamWithoutReading(std::string(kConfigMaps) + "?watch=1");
  ASSERT_TRUE(Eventually([&] { return front_->open_connections() == 1; }));
  for (int i = 0; i < 12; ++i) {
    Request request{Method::kPost,
                    kConfigMaps,
                    {},
                    std::string(kJson),
                    ConfigMap("c" + std::to_string(i), 500'000)};
    ASSERT_EQ(server_.Handle(request).status, 201);
  }
  EXPECT_TRUE(Eventually([&] { return front_->open_connections() == 0; }));
}

TEST_F(HttpFrontTest, AWatchEndsWithItsClient) {
  Start();
  {
    TestHttpClient watcher = Client();
    ASSERT_EQ(watcher.OpenStream("/api/v1/pods?watch=1"), 200);
    EXPECT_EQ(front_->open_connections(), 1u);
  }
  EXPECT_TRUE(Eventually([&] { return front_->open_connections() == 0; }));
}

TEST_F(HttpFrontTest, ConnectionsPastTheBoundWait) {
  HttpFrontOptions options;
  options.max_connections = 2;
  Start(options);
  auto first = std::make_unique<TestHttpClient>(front_->port());
  auto second = std::make_unique<TestHttpClient>(front_->port());
  EXPECT_EQ(first->Call("GET", "/version").status, 200);
  EXPECT_EQ(second->Call("GET", "/version").status, 200);
  std::atomic<bool> answered = false;
  std::thread third([&] {
    TestHttpClient client(front_->port());
    EXPECT_EQ(client.Call("GET", "/version").status, 200);
    answered = true;
  });
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_FALSE(answered);
  EXPECT_EQ(front_->open_connections(), 2u);
  first.reset();
  third.join();
  EXPECT_TRUE(answered);
}

TEST_F(HttpFrontTest, IdleConnectionsAreClosed) {
  HttpFrontOptions options;
  options.idle_timeout = absl::Milliseconds(200);
  Start(options);
  TestHttpClient client = Client();
  EXPECT_EQ(client.Call("GET", "/version").status, 200);
  EXPECT_TRUE(client.ClosedWithin(absl::Seconds(5)));
}

TEST_F(HttpFrontTest, Faults) {
  Start();
  FaultRule rule;
  rule.path = "/api/v1/namespaces/*/configmaps*";
  rule.count = 1;
  rule.status = 429;
  rule.retry_after = absl::Seconds(3);
  faults_.Add(rule);
  RawAnswer limited = Client().Call("POST", kConfigMaps, ConfigMap("a"));
  EXPECT_EQ(limited.status, 429);
  EXPECT_EQ(limited.retry_after, "3");
  EXPECT_EQ(TestJson::parse(limited.body)["reason"], "TooManyRequests");

  rule.action = FaultRule::Action::kRefuse;
  faults_.Add(rule);
  EXPECT_EQ(Client().Call("POST", kConfigMaps, ConfigMap("a")).status, 0);
  EXPECT_EQ(Client().Call("GET", std::string(kConfigMaps) + "/a").status, 404) << "no effect";

  rule.action = FaultRule::Action::kDropAnswer;
  faults_.Add(rule);
  EXPECT_EQ(Client().Call("POST", kConfigMaps, ConfigMap("a")).status, 0);
  EXPECT_EQ(Client().Call("GET", std::string(kConfigMaps) + "/a").status, 200) << "took effect";

  rule.action = FaultRule::Action::kDelay;
  rule.delay = absl::Milliseconds(300);
  faults_.Add(rule);
  absl::Time before = absl::Now();
  EXPECT_EQ(Client().Call("GET", std::string(kConfigMaps) + "/a").status, 200);
  EXPECT_GE(absl::Now() - before, absl::Milliseconds(300));
}

TEST_F(HttpFrontTest, FaultsOfStreams) {
  Start();
  TestHttpClient client = Client();
  for (const char* name : {"a", "b", "c"}) client.Call("POST", kConfigMaps, ConfigMap(name));
  FaultRule rule;
  rule.count = 1;
  rule.action = FaultRule::Action::kCutStream;
  rule.after_items = 2;
  faults_.Add(rule);
  std::string line;
  bool clean = true;
  TestHttpClient cut = Client();
  ASSERT_EQ(cut.OpenStream(std::string(kConfigMaps) + "?watch=1"), 200);
  EXPECT_TRUE(cut.ReadLine(&line));
  EXPECT_TRUE(cut.ReadLine(&line));
  EXPECT_FALSE(cut.ReadLine(&line, &clean));
  EXPECT_FALSE(clean);

  rule.action = FaultRule::Action::kExpireStream;
  rule.after_items = 1;
  faults_.Add(rule);
  TestHttpClient expired = Client();
  ASSERT_EQ(expired.OpenStream(std::string(kConfigMaps) + "?watch=1"), 200);
  EXPECT_TRUE(expired.ReadLine(&line));
  EXPECT_TRUE(expired.ReadLine(&line));
  EXPECT_EQ(TestJson::parse(line)["type"], "ERROR");
  EXPECT_EQ(TestJson::parse(line)["object"]["code"], 410);
  EXPECT_FALSE(expired.ReadLine(&line, &clean));
  EXPECT_TRUE(clean);
}

TEST_F(HttpFrontTest, ManyClientsAtOnce) {
  Start();
  constexpr int kClients = 8, kEach = 100;
  TestHttpClient watcher = Client();
  ASSERT_EQ(watcher.OpenStream(std::string(kConfigMaps) + "?watch=1"), 200);
  std::vector<std::thread> threads;
  for (int c = 0; c < kClients; ++c) {
    threads.emplace_back([&, c] {
      TestHttpClient client = Client();
      for (int i = 0; i < kEach; ++i) {
        std::string name = "c" + std::to_string(c) + "-" + std::to_string(i);
        EXPECT_EQ(client.Call("POST", kConfigMaps, ConfigMap(name)).status, 201);
        // All fight for one object: each either wins or is told of the conflict.
        RawAnswer shared = client.Call("GET", "/api/v1/namespaces/default");
        int status = client.Call("PUT", "/api/v1/namespaces/default", shared.body).status;
        EXPECT_TRUE(status == 200 || status == 409) << status;
      }
    });
  }
  std::string line;
  uint64_t last = 0;
  for (int i = 0; i < kClients * kEach; ++i) {
    ASSERT_TRUE(watcher.ReadLine(&line));
    uint64_t version = std::stoull(
        TestJson::parse(line)["object"]["metadata"]["resourceVersion"].get<std::string>());
    EXPECT_GT(version, last);
    last = version;
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(HttpFrontTest, ClosesEverythingWhenItGoes) {
  Start();
  TestHttpClient idle = Client();
  idle.Call("GET", "/version");
  TestHttpClient watcher = Client();
  ASSERT_EQ(watcher.OpenStream("/api/v1/pods?watch=1"), 200);
  front_.reset();
  EXPECT_TRUE(idle.ClosedWithin(absl::Seconds(5)));
  EXPECT_TRUE(watcher.ClosedWithin(absl::Seconds(5)));
}

TEST_F(HttpFrontTest, MayGoWhileARequestIsHeldUpByAFault) {
  Start();
  FaultRule rule;
  rule.action = FaultRule::Action::kDelay;
  rule.delay = absl::Minutes(10);
  const int delay = faults_.Add(rule);
  std::thread client([this] { EXPECT_EQ(Client().Call("GET", "/version").status, 0); });
  ASSERT_TRUE(Eventually([&] { return faults_.Struck(delay) == 1; }));
  const absl::Time begun = absl::Now();
  front_.reset();
  EXPECT_LT(absl::Now() - begun, absl::Seconds(10));
  client.join();
}

TEST_F(HttpFrontTest, MayGoWhileAWatchOpens) {
  for (int round = 0; round < 300; ++round) {
    Start();
    TestHttpClient watcher = Client();
    // The header's arrival is the client's to see before it is the server's to know.
    ASSERT_EQ(watcher.OpenStream("/api/v1/pods?watch=1"), 200) << "round " << round;
    front_.reset();
    ASSERT_TRUE(watcher.ClosedWithin(absl::Seconds(5))) << "round " << round;
  }
}

}  // namespace
}  // namespace muster::kube::embedded
