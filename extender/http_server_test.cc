#include "extender/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "absl/time/clock.h"
#include "extender/http_router.h"
#include "extender/listen_address.h"
#include "extender/testing/raw_client.h"
#include "fmt/format.h"

namespace muster::extender {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// Counts up whenever it is woken: one line per wake-up, the count only.
class Ticker : public StreamSource {
 public:
  explicit Ticker(std::shared_ptr<std::atomic<bool>> gone) : gone_(std::move(gone)) {}
  ~Ticker() override {
    stop_ = true;
    thread_.join();
    *gone_ = true;
  }
  void Start(std::function<void()> wake) override {
    thread_ = std::thread([this, wake] {
      while (!stop_) {
        ++ticks_;
        wake();
        absl::SleepFor(absl::Milliseconds(5));
      }
    });
  }
  Piece Next() override { return {fmt::format("tick {}\n", ticks_.load()), false, false}; }

 private:
  const std::shared_ptr<std::atomic<bool>> gone_;
  std::atomic<int> ticks_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Has always more, far beyond what a socket buffers.
class Flood : public StreamSource {
 public:
  Flood(std::atomic<size_t>* produced, std::atomic<bool>* gone)
      : produced_(produced), gone_(gone) {}
  ~Flood() override { *gone_ = true; }
  void Start(std::function<void()>) override {}
  Piece Next() override {
    *produced_ += 1 << 20;
    return {std::string(1 << 20, 'x'), true, false};
  }

 private:
  std::atomic<size_t>* produced_;
  std::atomic<bool>* gone_;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void StartServer(HttpServerOptions options) {
    options.listen = "127.0.0.1:0";
    std::vector<HttpRoute> routes;
    routes.push_back({"POST", "/echo", [](HttpRequest request, Responder responder) {
                        responder.Send({.body = request.body});
                      }});
    routes.push_back({"GET", "/hello/{name}", [](HttpRequest request, Responder responder) {
                        const std::string* greeting = request.Query("greeting");
                        responder.Send(
                            {.body = (greeting ? *greeting : "hello") + " " + request.captures[0]});
                      }});
    routes.push_back({"POST", "/hold", [this](HttpRequest, Responder responder) {
                        std::lock_guard lock(mutex_);
                        held_.push_back(std::move(responder));
                      }});
    routes.push_back({"GET", "/drop", [](HttpRequest, Responder) {}});
    routes.push_back({"GET", "/ticks", [this](HttpRequest, Responder responder) {
                        responder.Stream("text/plain", std::make_unique<Ticker>(ticker_gone_));
                      }});
    routes.push_back({"GET", "/flood", [this](HttpRequest, Responder responder) {
                        responder.Stream("text/plain",
                                         std::make_unique<Flood>(&produced_, &flood_gone_));
                      }});
    absl::StatusOr<std::unique_ptr<HttpServer>> server =
        HttpServer::Start(std::move(options), std::move(routes));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  template <typename Condition>
  static bool Await(Condition condition, absl::Duration limit = absl::Seconds(10)) {
    const absl::Time until = absl::Now() + limit;
    while (!condition()) {
      if (absl::Now() > until) return false;
      absl::SleepFor(absl::Milliseconds(2));
    }
    return true;
  }
  size_t held() {
    std::lock_guard lock(mutex_);
    return held_.size();
  }

  std::mutex mutex_;
  std::vector<Responder> held_;
  std::shared_ptr<std::atomic<bool>> ticker_gone_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<size_t> produced_{0};
  std::atomic<bool> flood_gone_{false};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersWithExactLengthAndKeepsTheConnection) {
  StartServer({});
  RawClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    const std::string body = fmt::format("{{\"n\":{}}}", i);
    client.Send(RawPost("/echo", body));
    const RawClient::Message answer = client.ReadMessage();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, body);
    EXPECT_THAT(answer.header, HasSubstr(fmt::format("Content-Length: {}\r\n", body.size())));
    EXPECT_THAT(answer.header, Not(HasSubstr("Connection: close")));
  }
  EXPECT_EQ(server_->connections(), 1u);
}

TEST_F(HttpServerTest, CapturesAndQueryAreUnescaped) {
  StartServer({});
  RawClient client(server_->port());
  client.Send(RawGet("/hello/a%2Fb%20c?greeting=good+day%21"));
  EXPECT_EQ(client.ReadMessage().body, "good day! a/b c");
}

struct Refusal {
  const char* name;
  std::string request;
  int status;
  const char* text;
};

class HttpRefusals : public HttpServerTest, public ::testing::WithParamInterface<Refusal> {};

TEST_P(HttpRefusals, AreClear) {
  StartServer({.header_limit = 4096, .body_limit = 1000});
  RawClient client(server_->port());
  client.Send(GetParam().request);
  const RawClient::Message answer = client.ReadMessage();
  EXPECT_EQ(answer.status, GetParam().status);
  EXPECT_THAT(answer.header + answer.body, HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    Table, HttpRefusals,
    ::testing::Values(
        Refusal{"UnknownPath", RawGet("/nothing"), 404, "no such path: /nothing"},
        Refusal{"WrongMethod", RawGet("/echo"), 405, "Allow: POST"},
        Refusal{"OversizeByLength", RawPost("/echo", std::string(1001, 'x')), 413, "1000 bytes"},
        Refusal{"OversizeByChunks",
                "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" +
                    std::string(1001, 'x') + "\r\n0\r\n\r\n",
                413, "1000 bytes"},
        Refusal{"LengthAndChunks",
                "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
                "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                400, "malformed"},
        Refusal{"LongHeader", "GET /x HTTP/1.1\r\nHost: " + std::string(5000, 'h') + "\r\n\r\n",
                431, "4096 bytes"},
        Refusal{"NotHttp", "\x16\x03\x01 hello there\r\n\r\n", 400, "malformed"},
        Refusal{"BadLength", "POST /echo HTTP/1.1\r\nContent-Length: -4\r\n\r\n", 400, "malformed"},
        Refusal{"BadEscape", RawGet("/hello/%zz"), 400, "target"},
        Refusal{"NoAnswer", RawGet("/drop"), 500, "no answer"}),
    [](const auto& info) { return info.param.name; });

TEST_F(HttpServerTest, OversizeBodyIsAnsweredWhileItIsStillBeingSent) {
  StartServer({.body_limit = 1000});
  RawClient client(server_->port());
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n");
  client.Send(std::string(3000000, 'x'));
  EXPECT_EQ(client.ReadMessage().status, 413);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  StartServer({});
  RawClient client(server_->port());
  std::string all;
  for (int i = 0; i < 50; ++i) all += RawPost("/echo", fmt::format("body {}", i));
  client.Send(all);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(client.ReadMessage().body, fmt::format("body {}", i));
}

// Bytes that repeat at no power of two, so that a block in the wrong place shows.
std::string Pattern(size_t size, int seed) {
  std::string text(size, ' ');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + (i + i / 251 + seed) % 26);
  return text;
}

TEST_F(HttpServerTest, BodiesOfAnySizeAreWholeAndEndWhereTheNextRequestBegins) {
  StartServer({.body_limit = 8 << 20});
  RawClient client(server_->port());
  int seed = 0;
  for (size_t size : {1, 8'191, 65'536, 65'537, 230'000, 20'000, 3'000'000, 0, 230'000}) {
    const std::string large = Pattern(size, ++seed);
    const std::string small = Pattern(100, ++seed);
    client.Send(RawPost("/echo", large) + RawPost("/echo", small));
    ASSERT_TRUE(client.ReadMessage().body == large) << size;
    ASSERT_EQ(client.ReadMessage().body, small) << size;
  }
}

TEST_F(HttpServerTest, LargeBodyInPiecesIsWhole) {
  StartServer({.body_limit = 8 << 20});
  RawClient client(server_->port());
  const std::string body = Pattern(300'000, 7);
  const std::string request = RawPost("/echo", body);
  for (size_t at = 0; at < request.size(); at += 10'007) {
    client.Send(std::string_view(request).substr(at, 10'007));
    absl::SleepFor(absl::Microseconds(500));
  }
  EXPECT_TRUE(client.ReadMessage().body == body);
}

TEST_F(HttpServerTest, ChunkedBodyIsWhole) {
  StartServer({.body_limit = 8 << 20});
  RawClient client(server_->port());
  const std::string body = Pattern(300'000, 3);
  std::string request = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (size_t at = 0; at < body.size(); at += 70'001) {
    const std::string piece = body.substr(at, 70'001);
    request += fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
  }
  client.Send(request + "0\r\n\r\n" + RawPost("/echo", "next"));
  EXPECT_TRUE(client.ReadMessage().body == body);
  EXPECT_EQ(client.ReadMessage().body, "next");
}

TEST_F(HttpServerTest, RequestInSingleBytesIsRead) {
  StartServer({});
  RawClient client(server_->port());
  for (char c : RawPost("/echo", "slow but steady")) {
    client.Send(std::string(1, c));
    absl::SleepFor(absl::Microseconds(200));
  }
  EXPECT_EQ(client.ReadMessage().body, "slow but steady");
}

TEST_F(HttpServerTest, ContinueIsSentWhenAskedFor) {
  StartServer({});
  RawClient client(server_->port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("body");
  EXPECT_EQ(client.ReadMessage().body, "body");
}

TEST_F(HttpServerTest, SlowHeaderAndTruncatedBodyEndTheConnection) {
  StartServer({.header_timeout = absl::Milliseconds(100), .body_timeout = absl::Milliseconds(100)});
  RawClient slow_header(server_->port());
  slow_header.Send("POST /echo HTT");
  RawClient slow_body(server_->port());
  slow_body.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf");
  RawClient truncated(server_->port());
  truncated.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf");
  truncated.CloseWriting();
  EXPECT_TRUE(slow_header.AwaitClose(absl::Seconds(5)));
  EXPECT_TRUE(slow_body.AwaitClose(absl::Seconds(5)));
  EXPECT_TRUE(truncated.AwaitClose(absl::Seconds(5)));
  EXPECT_TRUE(Await([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, IdleConnectionIsClosed) {
  StartServer({.idle_timeout = absl::Milliseconds(100)});
  RawClient client(server_->port());
  client.Send(RawPost("/echo", "x"));
  EXPECT_EQ(client.ReadMessage().status, 200);
  EXPECT_TRUE(client.AwaitClose(absl::Seconds(5)));
}

TEST_F(HttpServerTest, ConnectionsPastTheLimitAreTurnedAway) {
  StartServer({.max_connections = 2});
  RawClient first(server_->port());
  RawClient second(server_->port());
  ASSERT_TRUE(Await([&] { return server_->connections() == 2; }));
  RawClient third(server_->port());
  EXPECT_TRUE(third.AwaitClose(absl::Seconds(5)));
  EXPECT_EQ(server_->refused_connections(), 1u);
  first.Send(RawPost("/echo", "x"));
  EXPECT_EQ(first.ReadMessage().status, 200);
}

TEST_F(HttpServerTest, HoldsManyRequestsAndAnswersFromAnotherThread) {
  StartServer({.threads = 2});
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 400; ++i) {
    clients.push_back(std::make_unique<RawClient>(server_->port()));
    clients.back()->Send(RawPost("/hold", "x"));
  }
  ASSERT_TRUE(Await([&] { return held() == 400; }));
  std::vector<Responder> held;
  {
    std::lock_guard lock(mutex_);
    held.swap(held_);
  }
  for (const Responder& responder : held) {
    responder.Send({.body = "released"});
    responder.Send({.body = "again"});  // the first answer counts
  }
  for (auto& client : clients) EXPECT_EQ(client->ReadMessage().body, "released");
}

TEST_F(HttpServerTest, StreamsInChunksUntilTheClientLeaves) {
  StartServer({});
  {
    RawClient client(server_->port());
    client.Send(RawGet("/ticks"));
    EXPECT_THAT(client.ReadUntil("\r\n\r\n"),
                AllOf(HasSubstr("Transfer-Encoding: chunked"), HasSubstr("200 OK")));
    EXPECT_THAT(client.ReadUntil("tick 1\n"), HasSubstr("tick 1\n"));
    EXPECT_THAT(client.ReadUntil("tick 5\n"), HasSubstr("tick 5\n"));
  }
  EXPECT_TRUE(Await([&] { return ticker_gone_->load(); }));
  EXPECT_TRUE(Await([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, ReaderThatDoesNotReadHoldsOnePieceAndIsCutOff) {
  StartServer({.write_timeout = absl::Milliseconds(300)});
  RawClient client(server_->port());
  client.Send(RawGet("/flood"));
  EXPECT_TRUE(Await([&] { return flood_gone_.load(); }));
  // The kernel's socket buffers take some; the server never runs ahead of them.
  EXPECT_LT(produced_.load(), 32u << 20);
}

TEST_F(HttpServerTest, StopAnswersWhatIsUnderWay) {
  StartServer({});
  RawClient busy(server_->port());
  RawClient idle(server_->port());
  RawClient streaming(server_->port());
  busy.Send(RawPost("/hold", "x"));
  streaming.Send(RawGet("/ticks"));
  streaming.ReadUntil("tick 1\n");
  ASSERT_TRUE(Await([&] { return held() == 1; }));
  std::thread stop([this] { server_->Stop(absl::Seconds(10)); });
  EXPECT_TRUE(idle.AwaitClose(absl::Seconds(5)));
  EXPECT_THAT(streaming.ReadUntil("0\r\n\r\n"), HasSubstr("0\r\n\r\n"));
  held_[0].Send({.body = "last words"});
  const RawClient::Message answer = busy.ReadMessage();
  EXPECT_EQ(answer.body, "last words");
  EXPECT_THAT(answer.header, HasSubstr("Connection: close"));
  stop.join();
  held_[0].Send({.body = "too late"});
}

TEST_F(HttpServerTest, StopPastItsGraceClosesAndLateAnswersGoNowhere) {
  StartServer({});
  RawClient client(server_->port());
  client.Send(RawPost("/hold", "x"));
  ASSERT_TRUE(Await([&] { return held() == 1; }));
  server_->Stop(absl::Milliseconds(50));
  EXPECT_TRUE(client.AwaitClose(absl::Seconds(5)));
  server_.reset();
  held_[0].Send({.body = "too late"});
  held_.clear();
}

TEST_F(HttpServerTest, ObserverSeesPatternStatusAndTime) {
  std::mutex mutex;
  std::vector<std::string> seen;
  StartServer({.observe = [&](std::string_view pattern, int status, absl::Duration took) {
    std::lock_guard lock(mutex);
    seen.push_back(fmt::format("{} {} {}", pattern, status, took < absl::Seconds(5)));
  }});
  RawClient client(server_->port());
  client.Send(RawGet("/hello/x"));
  client.ReadMessage();
  client.Send(RawGet("/nothing"));
  client.ReadMessage();
  std::lock_guard lock(mutex);
  EXPECT_THAT(seen, ElementsAre("/hello/{name} 200 true", " 404 true"));
}

TEST(HttpServerStart, SaysWhatIsWrongWithItsAddress) {
  const auto start = [](std::string listen) {
    HttpServerOptions options;
    options.listen = std::move(listen);
    return HttpServer::Start(std::move(options), {}).status();
  };
  EXPECT_THAT(std::string(start("nonsense").message()), HasSubstr("\"nonsense\": no port"));
  EXPECT_THAT(std::string(start("host.example:80").message()), HasSubstr("not an IP address"));
  auto first = HttpServer::Start({.listen = "127.0.0.1:0"}, {});
  ASSERT_TRUE(first.ok());
  const absl::Status taken = start(fmt::format("127.0.0.1:{}", (*first)->port()));
  EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.message()), HasSubstr("in use"));
}

TEST(ListenAddress, Forms) {
  EXPECT_EQ(ParseListenAddress("[::1]:0")->host, "::1");
  EXPECT_EQ(ParseListenAddress(":8080")->host, "0.0.0.0");
  EXPECT_EQ(ParseListenAddress("127.0.0.1:8888")->port, 8888);
  for (const char* bad : {"", "8080", "h:", "h:99999", "h:8a", "::1:80", "[::1:80"}) {
    EXPECT_FALSE(ParseListenAddress(bad).ok()) << bad;
  }
}

TEST(ParseTarget, SplitsBeforeItUnescapes) {
  const std::optional<HttpTarget> target = ParseTarget("/a%2Fb//c?x=1&y&z=%26");
  ASSERT_TRUE(target);
  EXPECT_THAT(target->segments, ElementsAre("a/b", "", "c"));
  EXPECT_THAT(target->query, ElementsAre(Pair("x", "1"), Pair("y", ""), Pair("z", "&")));
  EXPECT_FALSE(ParseTarget("http://host/x"));
  EXPECT_FALSE(ParseTarget("/%4"));
  EXPECT_TRUE(ParseTarget("/")->segments.empty());
}

}  // namespace
}  // namespace muster::extender
