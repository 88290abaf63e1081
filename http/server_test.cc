#include "http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "fmt/format.h"
#include "http/listen_address.h"
#include "http/router.h"
#include "http/testing/raw_client.h"

namespace muster::http {
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

// Wakes its stream each millisecond, and wants to be asked every 50 ms.
class Restful : public StreamSource {
 public:
  explicit Restful(std::atomic<int>* said) : said_(said) {}
  ~Restful() override {
    stop_ = true;
    thread_.join();
  }
  void Start(std::function<void()> wake) override {
    thread_ = std::thread([this, wake] {
      while (!stop_) {
        wake();
        absl::SleepFor(absl::Milliseconds(1));
      }
    });
  }
  Piece Next() override {
    ++*said_;
    return {.data = "said\n", .rest = absl::Milliseconds(50)};
  }

 private:
  std::atomic<int>* const said_;
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

// Bytes that the server was lent.
const std::string kLent(200'000, 'l');

// Says three things at once, the second and third of them lent.
class Lender : public StreamSource {
 public:
  explicit Lender(std::shared_ptr<const void> owner) : owner_(std::move(owner)) {}
  void Start(std::function<void()>) override {}
  Piece Next() override {
    return {.data = "own ", .end = true, .shared = {{kLent, owner_}, {" static", nullptr}}};
  }

 private:
  const std::shared_ptr<const void> owner_;
};

// Says one thing, and then ends in the way that it is told to: when it is looked at again.
class OneLine : public StreamSource {
 public:
  explicit OneLine(Piece last) : last_(std::move(last)) {}
  void Start(std::function<void()>) override {}
  Piece Next() override {
    if (said_) return last_;
    said_ = true;
    return {.data = "one line\n", .look_again = absl::Milliseconds(20)};
  }

 private:
  const Piece last_;
  bool said_ = false;
};

class ServerTest : public ::testing::Test {
 protected:
  void StartServer(ServerOptions options) {
    options.listen = "127.0.0.1:0";
    std::vector<Route> routes;
    routes.push_back({"GET", "/hang-up", [](Request, Responder responder) { responder.HangUp(); }});
    routes.push_back({"GET", "/ending", [](Request, Responder responder) {
                        responder.Stream("text/plain", std::make_unique<OneLine>(
                                                           StreamSource::Piece{.end = true}));
                      }});
    routes.push_back({"GET", "/cut", [](Request, Responder responder) {
                        responder.Stream("text/plain", std::make_unique<OneLine>(
                                                           StreamSource::Piece{.cut = true}));
                      }});
    routes.push_back({"GET", "/lent", [this](Request, Responder responder) {
                        responder.Send({.body = "own ", .shared = {kLent, lent_}});
                      }});
    routes.push_back({"GET", "/lent-stream", [this](Request, Responder responder) {
                        responder.Stream("text/plain", std::make_unique<Lender>(lent_));
                      }});
    routes.push_back({"GET", "/large", [](Request, Responder responder) {
                        responder.Send({.body = std::string(1 << 20, 'x')});
                      }});
    routes.push_back({"GET", "/niceness", [](Request, Responder responder) {
                        const int nice = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
                        responder.Send({.body = std::to_string(nice)});
                      }});
    routes.push_back({"POST", "/echo", [](Request request, Responder responder) {
                        responder.Send({.body = request.body});
                      }});
    routes.push_back({"GET", "/hello/{name}", [](Request request, Responder responder) {
                        const std::string* greeting = request.Query("greeting");
                        responder.Send(
                            {.body = (greeting ? *greeting : "hello") + " " + request.captures[0]});
                      }});
    routes.push_back({"POST", "/block", [this](Request, Responder responder) {
                        blocked_.Notify();
                        go_on_.WaitForNotification();
                        responder.Send({});
                      }});
    routes.push_back({"POST", "/hold", [this](Request, Responder responder) {
                        std::lock_guard lock(mutex_);
                        held_.push_back(std::move(responder));
                      }});
    routes.push_back({"GET", "/restful", [this](Request, Responder responder) {
                        responder.Stream("text/plain", std::make_unique<Restful>(&restful_said_));
                      }});
    routes.push_back({"GET", "/drop", [](Request, Responder) {}});
    routes.push_back({"GET", "/ticks", [this](Request, Responder responder) {
                        responder.Stream("text/plain", std::make_unique<Ticker>(ticker_gone_));
                      }});
    routes.push_back({"GET", "/flood", [this](Request, Responder responder) {
                        responder.Stream("text/plain",
                                         std::make_unique<Flood>(&produced_, &flood_gone_));
                      }});
    absl::StatusOr<std::unique_ptr<Server>> server =
        Server::Start(std::move(options), std::move(routes));
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
  absl::Notification blocked_;
  absl::Notification go_on_;
  std::shared_ptr<std::atomic<bool>> ticker_gone_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<int> restful_said_{0};
  std::shared_ptr<int> lent_ = std::make_shared<int>();
  std::atomic<size_t> produced_{0};
  std::atomic<bool> flood_gone_{false};
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, AnswersWithExactLengthAndKeepsTheConnection) {
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
  EXPECT_EQ(server_->connection_counts().open, 1u);
}

TEST_F(ServerTest, CapturesAndQueryAreUnescaped) {
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

class Refusals : public ServerTest, public ::testing::WithParamInterface<Refusal> {};

TEST_P(Refusals, AreClear) {
  StartServer({.header_limit = 4096, .body_limit = 1000});
  RawClient client(server_->port());
  client.Send(GetParam().request);
  const RawClient::Message answer = client.ReadMessage();
  EXPECT_EQ(answer.status, GetParam().status);
  EXPECT_THAT(answer.header + answer.body, HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    Table, Refusals,
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

TEST_F(ServerTest, OversizeBodyIsAnsweredWhileItIsStillBeingSent) {
  StartServer({.body_limit = 1000});
  RawClient client(server_->port());
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n");
  client.Send(std::string(3000000, 'x'));
  EXPECT_EQ(client.ReadMessage().status, 413);
}

TEST_F(ServerTest, PipelinedRequestsAreAnsweredInOrder) {
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

TEST_F(ServerTest, BodiesOfAnySizeAreWholeAndEndWhereTheNextRequestBegins) {
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

TEST_F(ServerTest, LargeBodyInPiecesIsWhole) {
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

TEST_F(ServerTest, ChunkedBodyIsWhole) {
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

TEST_F(ServerTest, RequestInSingleBytesIsRead) {
  StartServer({});
  RawClient client(server_->port());
  for (char c : RawPost("/echo", "slow but steady")) {
    client.Send(std::string(1, c));
    absl::SleepFor(absl::Microseconds(200));
  }
  EXPECT_EQ(client.ReadMessage().body, "slow but steady");
}

TEST_F(ServerTest, ContinueIsSentWhenAskedFor) {
  StartServer({});
  RawClient client(server_->port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("body");
  EXPECT_EQ(client.ReadMessage().body, "body");
}

TEST_F(ServerTest, SlowHeaderAndTruncatedBodyEndTheConnection) {
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
  EXPECT_TRUE(Await([&] { return server_->connection_counts().open == 0; }));
}

TEST_F(ServerTest, IdleConnectionIsClosed) {
  StartServer({.idle_timeout = absl::Milliseconds(100)});
  RawClient client(server_->port());
  client.Send(RawPost("/echo", "x"));
  EXPECT_EQ(client.ReadMessage().status, 200);
  EXPECT_TRUE(client.AwaitClose(absl::Seconds(5)));
}

TEST_F(ServerTest, ConnectionsPastTheLimitAreTurnedAway) {
  StartServer({.max_connections = 2});
  RawClient first(server_->port());
  RawClient second(server_->port());
  ASSERT_TRUE(Await([&] { return server_->connection_counts().open == 2; }));
  RawClient third(server_->port());
  EXPECT_TRUE(third.AwaitClose(absl::Seconds(5)));
  EXPECT_EQ(server_->connection_counts().turned_away, 1u);
  first.Send(RawPost("/echo", "x"));
  EXPECT_EQ(first.ReadMessage().status, 200);
}

TEST_F(ServerTest, ConnectionsPastTheLimitMayWaitForAnEnd) {
  StartServer({.max_connections = 2, .when_full = ServerOptions::WhenFull::kLetWait});
  auto first = std::make_unique<RawClient>(server_->port());
  RawClient second(server_->port());
  ASSERT_TRUE(Await([&] { return server_->connection_counts().open == 2; }));
  RawClient third(server_->port());
  third.Send(RawPost("/echo", "x"));
  EXPECT_EQ(third.ReadUntil("x", absl::Milliseconds(100)), "");
  first.reset();
  EXPECT_EQ(third.ReadMessage().body, "x");
  EXPECT_EQ(server_->connection_counts().turned_away, 0u);
}

TEST_F(ServerTest, TheConnectionThatWaitedLongestGoesForANewOne) {
  StartServer({.max_connections = 3, .when_full = ServerOptions::WhenFull::kEndOldestIdle});
  RawClient busy(server_->port());
  busy.Send(RawPost("/hold", ""));
  ASSERT_TRUE(Await([&] { return held() == 1; }));
  RawClient oldest(server_->port());
  ASSERT_TRUE(Await([&] { return server_->connection_counts().open == 2; }));
  RawClient newer(server_->port());
  ASSERT_TRUE(Await([&] { return server_->connection_counts().open == 3; }));
  oldest.Send(RawPost("/echo", "x"));
  ASSERT_EQ(oldest.ReadMessage().body, "x");  // so it waits anew, and `newer` has for longer
  RawClient next(server_->port());
  next.Send(RawPost("/echo", "y"));
  EXPECT_EQ(next.ReadMessage().body, "y");
  EXPECT_TRUE(newer.AwaitClose(absl::Seconds(5)));
  oldest.Send(RawPost("/echo", "z"));
  EXPECT_EQ(oldest.ReadMessage().body, "z");
  held_.clear();
  EXPECT_EQ(busy.ReadMessage().status, 500);
  EXPECT_EQ(server_->connection_counts().ended_idle, 1u);
  EXPECT_EQ(server_->connection_counts().turned_away, 0u);
}

// It says a byte now and then, and never all.
TEST_F(ServerTest, ARequestThatNeverEndsGoesForANewOne) {
  StartServer({.max_connections = 1, .when_full = ServerOptions::WhenFull::kEndOldestIdle});
  RawClient slow(server_->port());
  slow.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf");
  ASSERT_TRUE(Await([&] { return server_->connection_counts().open == 1; }));
  RawClient next(server_->port());
  next.Send(RawPost("/echo", "x"));
  EXPECT_EQ(next.ReadMessage().body, "x");
  EXPECT_TRUE(slow.AwaitClose(absl::Seconds(5)));
}

// It came with the one before.
TEST_F(ServerTest, APipelinedRequestThatNeverEndsGoesForANewOne) {
  StartServer({.max_connections = 1, .when_full = ServerOptions::WhenFull::kEndOldestIdle});
  RawClient slow(server_->port());
  slow.Send(RawPost("/echo", "first") + "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Len");
  EXPECT_EQ(slow.ReadMessage().body, "first");
  absl::SleepFor(absl::Milliseconds(20));
  RawClient next(server_->port());
  next.Send(RawPost("/echo", "x"));
  EXPECT_EQ(next.ReadMessage().body, "x");
  EXPECT_TRUE(slow.AwaitClose(absl::Seconds(5)));
}

TEST_F(ServerTest, WhereAllAreBusyANewConnectionIsTurnedAway) {
  StartServer({.max_connections = 1, .when_full = ServerOptions::WhenFull::kEndOldestIdle});
  RawClient busy(server_->port());
  busy.Send(RawPost("/hold", ""));
  ASSERT_TRUE(Await([&] { return held() == 1; }));
  RawClient next(server_->port());
  EXPECT_TRUE(next.AwaitClose(absl::Seconds(5)));
  EXPECT_EQ(server_->connection_counts().turned_away, 1u);
  held_.clear();
  EXPECT_EQ(busy.ReadMessage().status, 500);
}

// Its request is there, though no thread has looked.
TEST_F(ServerTest, AConnectionWhoseRequestHasComeDoesntGoForANewOne) {
  StartServer(
      {.threads = 1, .max_connections = 2, .when_full = ServerOptions::WhenFull::kEndOldestIdle});
  RawClient used(server_->port());
  ASSERT_TRUE(Await([&] { return server_->connection_counts().open == 1; }));
  RawClient blocks(server_->port());
  blocks.Send(RawPost("/block", ""));
  blocked_.WaitForNotification();
  RawClient next(server_->port());  // is seen before what `used` sends
  used.Send(RawPost("/echo", "x"));
  go_on_.Notify();
  EXPECT_EQ(used.ReadMessage().body, "x");
  EXPECT_EQ(blocks.ReadMessage().status, 200);
  EXPECT_EQ(server_->connection_counts().ended_idle + server_->connection_counts().turned_away, 1u);
}

// 127.0.0.2 takes all that it may, and then some.
TEST_F(ServerTest, APeerThatIsFullEndsItsOwnConnections) {
  StartServer({.max_connections = 8,
               .max_connections_per_peer = 4,
               .when_full = ServerOptions::WhenFull::kEndOldestIdle});
  RawClient other(server_->port());
  ASSERT_TRUE(Await([&] { return server_->connection_counts().open == 1; }));
  std::vector<std::unique_ptr<RawClient>> greedy;
  for (int i = 0; i < 20; ++i) {
    greedy.push_back(std::make_unique<RawClient>(server_->port(), "127.0.0.2"));
  }
  // An ended connection counts as open until its thread has seen the end.
  ASSERT_TRUE(Await([&] {
    const auto counts = server_->connection_counts();
    return counts.ended_idle == 16 && counts.open == 5;
  }));
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(greedy[i]->AwaitClose(absl::Seconds(5)));
  other.Send(RawPost("/echo", "x"));
  EXPECT_EQ(other.ReadMessage().body, "x");
}

TEST_F(ServerTest, WhereThereAreTooManyThePeerWithMostGivesWay) {
  StartServer({.max_connections = 6, .when_full = ServerOptions::WhenFull::kEndOldestIdle});
  RawClient modest(server_->port(), "127.0.0.3");  // has waited longest
  ASSERT_TRUE(Await([&] { return server_->connection_counts().open == 1; }));
  std::vector<std::unique_ptr<RawClient>> greedy;
  for (int i = 0; i < 5; ++i) {
    greedy.push_back(std::make_unique<RawClient>(server_->port(), "127.0.0.2"));
  }
  ASSERT_TRUE(Await([&] { return server_->connection_counts().open == 6; }));
  RawClient next(server_->port());
  next.Send(RawPost("/echo", "x"));
  EXPECT_EQ(next.ReadMessage().body, "x");
  modest.Send(RawPost("/echo", "y"));
  EXPECT_EQ(modest.ReadMessage().body, "y");
  EXPECT_EQ(server_->connection_counts().ended_idle, 1u);
}

TEST_F(ServerTest, WhatIsLentIsSentWholeAndGivenBack) {
  StartServer({.send_buffer = 4096});
  {
    RawClient client(server_->port());
    client.Send(RawGet("/lent"));
    EXPECT_EQ(client.ReadMessage().body, "own " + kLent);
    client.Send(RawGet("/lent-stream"));
    EXPECT_THAT(client.ReadUntil("0\r\n\r\n"),
                HasSubstr("\r\nown " + kLent + " static\r\n0\r\n\r\n"));
  }
  RawClient gone(server_->port());
  gone.Send(RawGet("/lent"));
  gone.ReadUntil("own");
  EXPECT_GT(lent_.use_count(), 1);
  server_->Stop(absl::ZeroDuration());
  EXPECT_EQ(lent_.use_count(), 1);
}

// 127.0.0.2 sends bodies that it never ends.
TEST_F(ServerTest, BodiesThatTakeTooMuchTogetherGoByWhoTakesMost) {
  StartServer({.body_limit = 1 << 20, .memory_limit = 2 << 20});
  const std::string half(600'000, 'x');
  const std::string head = fmt::format(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 2 * half.size() - 200'000);
  RawClient modest(server_->port());
  modest.Send(head + half);
  std::vector<std::unique_ptr<RawClient>> greedy;
  for (int i = 0; i < 8; ++i) {
    greedy.push_back(std::make_unique<RawClient>(server_->port(), "127.0.0.2"));
    greedy.back()->Send(head + half);
  }
  EXPECT_TRUE(Await([&] { return server_->connection_counts().ended_slow >= 6; }));
  EXPECT_TRUE(greedy[0]->AwaitClose(absl::Seconds(5)));
  modest.Send(std::string_view(half).substr(200'000));
  EXPECT_EQ(modest.ReadMessage().body.size(), 1'000'000u);
}

TEST_F(ServerTest, AnswersThatNobodyTakesGoWhenTheyTakeTooMuchTogether) {
  StartServer({.memory_limit = 3 << 20, .send_buffer = 4096});
  std::vector<std::unique_ptr<RawClient>> greedy;
  for (int i = 0; i < 24; ++i) {
    greedy.push_back(std::make_unique<RawClient>(server_->port(), "127.0.0.2"));
    for (int j = 0; j < 8; ++j) greedy.back()->Send(RawGet("/large"));  // more than kernels keep
  }
  EXPECT_TRUE(Await([&] { return server_->connection_counts().ended_slow >= 21; }));
  RawClient modest(server_->port());
  modest.Send(RawGet("/large"));
  EXPECT_EQ(modest.ReadMessage().body.size(), 1u << 20);
}

TEST_F(ServerTest, AServerWithoutBodiesRefusesThem) {
  StartServer({.body_limit = 0});
  RawClient client(server_->port());
  client.Send(RawPost("/echo", ""));
  EXPECT_EQ(client.ReadMessage().status, 200);
  client.Send(RawPost("/echo", "x"));
  EXPECT_EQ(client.ReadMessage().status, 413);
}

TEST_F(ServerTest, ItsThreadsAreAsNiceAsTheyAreTold) {
  const int own = getpriority(PRIO_PROCESS, 0);
  StartServer({.niceness = 19});
  RawClient client(server_->port());
  client.Send(RawGet("/niceness"));
  EXPECT_EQ(client.ReadMessage().body, "19");
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), own);
}

TEST_F(ServerTest, AServerWhoseThreadsHangFallsSilent) {
  StartServer({.threads = 1});
  EXPECT_TRUE(Await([&] { return server_->silent_for() == absl::ZeroDuration(); }));
  mutex_.lock();
  RawClient client(server_->port());
  client.Send(RawPost("/hold", "x"));
  EXPECT_TRUE(Await([&] { return server_->silent_for() > absl::Milliseconds(500); }));
  mutex_.unlock();
  EXPECT_TRUE(Await([&] { return server_->silent_for() == absl::ZeroDuration(); }));
}

TEST_F(ServerTest, StopDoesNotWaitForRoom) {
  StartServer({.max_connections = 1, .when_full = ServerOptions::WhenFull::kLetWait});
  RawClient first(server_->port());
  ASSERT_TRUE(Await([&] { return server_->connection_counts().open == 1; }));
  RawClient second(server_->port());
  server_->Stop(absl::ZeroDuration());
  EXPECT_TRUE(first.AwaitClose(absl::Seconds(5)));
  server_.reset();
  EXPECT_TRUE(second.AwaitClose(absl::Seconds(5)));
}

TEST_F(ServerTest, StopMeetsConnectionsThatCome) {
  for (int round = 0; round < 50; ++round) {
    StartServer({});
    std::atomic<bool> stop{false};
    std::atomic<int> connected{0};
    std::thread clients([&, port = server_->port()] {
      while (!stop) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) ++connected;
        close(fd);
      }
    });
    EXPECT_TRUE(Await([&] { return connected >= 3; }));
    server_->Stop(absl::ZeroDuration());
    EXPECT_EQ(server_->connection_counts().open, 0u);
    stop = true;
    clients.join();
  }
}

TEST_F(ServerTest, ThousandsOfIdleConnectionsCostNobodyAnything) {
#ifdef MUSTER_SANITIZED
  constexpr size_t kIdle = 400;
#else
  constexpr size_t kIdle = 4095;  // and one that is busy
#endif
  ASSERT_TRUE(AllowManyConnections());
  StartServer({});
  std::vector<std::unique_ptr<RawClient>> idle;
  for (size_t i = 0; i < kIdle; ++i) idle.push_back(std::make_unique<RawClient>(server_->port()));
  ASSERT_TRUE(Await([&] { return server_->connection_counts().open == kIdle; }));
  RawClient busy(server_->port());
  busy.Send(RawPost("/echo", "x"));
  EXPECT_EQ(busy.ReadMessage().body, "x");
  const absl::Time begun = absl::Now();
  server_->Stop(absl::Seconds(10));
  EXPECT_LT(absl::Now() - begun, absl::Seconds(10));
  for (auto& client : idle) ASSERT_TRUE(client->AwaitClose(absl::Seconds(5)));
}

TEST_F(ServerTest, HandlersSeeTheHeadersThatTheyAskFor) {
  StartServer({.otherwise = [](Request& request, const Responder& responder) {
    responder.Send({.status = 201,
                    .body = request.method + " " + request.path + " " + request.content_type + " " +
                            request.accept,
                    .headers = {{"Warning", "299 - \"x\""}}});
  }});
  RawClient client(server_->port());
  client.Send(
      "PUT /any/path?x=1 HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\n"
      "Content-Type: text/plain\r\nContent-Length: 0\r\n\r\n");
  const RawClient::Message answer = client.ReadMessage();
  EXPECT_EQ(answer.status, 201);
  EXPECT_EQ(answer.body, "PUT /any/path text/plain text/html");
  EXPECT_THAT(answer.header, HasSubstr("Warning: 299 - \"x\"\r\n"));
  // A known path with another method is what no route answers, too.
  client.Send(RawGet("/echo"));
  EXPECT_EQ(client.ReadMessage().body, "GET /echo  ");
}

TEST_F(ServerTest, RefusesInTheWordsThatItIsGiven) {
  StartServer({.refusal = [](int status, std::string text) {
    return Response{.status = status, .body = "sorry: " + text};
  }});
  for (const auto& [request, status] :
       {std::pair(RawGet("/nothing"), 404), std::pair(RawGet("/echo"), 405),
        std::pair(RawGet("/%zz"), 400), std::pair(std::string("nonsense\r\n\r\n"), 400),
        std::pair(RawGet("/drop"), 500)}) {
    RawClient client(server_->port());
    client.Send(request);
    const RawClient::Message answer = client.ReadMessage();
    EXPECT_EQ(answer.status, status);
    EXPECT_THAT(answer.body, ::testing::StartsWith("sorry: ")) << status;
  }
}

TEST_F(ServerTest, HangUpIsNoAnswer) {
  StartServer({});
  RawClient client(server_->port());
  client.Send(RawGet("/hang-up"));
  EXPECT_EQ(client.ReadUntil("HTTP"), "");
  EXPECT_TRUE(client.AwaitClose(absl::Seconds(5)));
}

TEST_F(ServerTest, AStreamEndsWithALastChunkUnlessItIsCut) {
  StartServer({});
  RawClient ending(server_->port());
  ending.Send(RawGet("/ending"));
  EXPECT_THAT(ending.ReadUntil("0\r\n\r\n"), HasSubstr("one line\n\r\n0\r\n\r\n"));
  EXPECT_TRUE(ending.AwaitClose(absl::Seconds(5)));
  RawClient cut(server_->port());
  cut.Send(RawGet("/cut"));
  EXPECT_THAT(cut.ReadUntil("0\r\n\r\n"), ::testing::EndsWith("one line\n\r\n"));
  EXPECT_TRUE(Await([&] { return server_->connection_counts().open == 0; }));
}

TEST_F(ServerTest, HoldsManyRequestsAndAnswersFromAnotherThread) {
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

TEST_F(ServerTest, StreamsInChunksUntilTheClientLeaves) {
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
  EXPECT_TRUE(Await([&] { return server_->connection_counts().open == 0; }));
}

// It is woken all the time, and has something to say each time.
TEST_F(ServerTest, AStreamThatRestsSaysWhatCameMeanwhileAtOnce) {
  StartServer({});
  RawClient client(server_->port());
  const absl::Time begun = absl::Now();  // what is read late was sent earlier
  client.Send(RawGet("/restful"));
  client.ReadUntil("\n");
  std::string said;
  for (int i = 0; i < 5; ++i) said = client.ReadUntil("said\n");
  EXPECT_GE(absl::Now() - begun, absl::Milliseconds(200));
  EXPECT_THAT(said, HasSubstr("said\n"));
  EXPECT_LT(restful_said_.load(), 20);
}

TEST_F(ServerTest, ReaderThatDoesNotReadHoldsOnePieceAndIsCutOff) {
  StartServer({.write_timeout = absl::Milliseconds(300)});
  RawClient client(server_->port());
  client.Send(RawGet("/flood"));
  EXPECT_TRUE(Await([&] { return flood_gone_.load(); }));
  // The kernel's socket buffers take some; the server never runs ahead of them.
  EXPECT_LT(produced_.load(), 32u << 20);
}

TEST_F(ServerTest, StopAnswersWhatIsUnderWay) {
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

TEST_F(ServerTest, StopPastItsGraceClosesAndLateAnswersGoNowhere) {
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

TEST_F(ServerTest, ObserverSeesPatternStatusAndTime) {
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

TEST(ServerStart, SaysWhatIsWrongWithItsAddress) {
  const auto start = [](std::string listen) {
    ServerOptions options;
    options.listen = std::move(listen);
    return Server::Start(std::move(options), {}).status();
  };
  EXPECT_THAT(std::string(start("nonsense").message()), HasSubstr("\"nonsense\": no port"));
  EXPECT_THAT(std::string(start("host.example:80").message()), HasSubstr("not an IP address"));
  auto first = Server::Start({.listen = "127.0.0.1:0"}, {});
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
  const std::optional<Target> target = ParseTarget("/a%2Fb//c?x=1&y&z=%26");
  ASSERT_TRUE(target);
  EXPECT_THAT(target->segments, ElementsAre("a/b", "", "c"));
  EXPECT_THAT(target->query, ElementsAre(Pair("x", "1"), Pair("y", ""), Pair("z", "&")));
  EXPECT_FALSE(ParseTarget("http://host/x"));
  EXPECT_FALSE(ParseTarget("/%4"));
  EXPECT_TRUE(ParseTarget("/")->segments.empty());
}

}  // namespace
}  // namespace muster::http
