// Connections that stay up but say nothing any more, over HTTP/2, where everything shares them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>

#include "absl/time/clock.h"
#include "kube/client/curl_transport.h"
#include "kube/client/silent_http2_server.h"

namespace muster::kube {
namespace {

using Silence = SilentHttp2Server::Answer;

constexpr size_t kStreams = 4;
// What has not happened by then never will.
constexpr absl::Duration kPatience = absl::Seconds(20);

bool Eventually(const std::function<bool()>& happened) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (!happened()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

using Pending = std::future<absl::StatusOr<Response>>;

bool IsReady(const Pending& answer) {
  return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

absl::StatusOr<Response> Wait(Pending answer) {
  if (!Eventually([&answer] { return IsReady(answer); })) {
    return absl::InternalError(fmt::format("no end after {}", absl::FormatDuration(kPatience)));
  }
  return answer.get();
}

class SilentConnection : public ::testing::Test {
 protected:
  void Connect(absl::Duration longest_silence) {
    ClientConfig config;
    config.server = fmt::format("https://127.0.0.1:{}", server_.port());
    config.ca_pem = authority_.certificate_pem;
    config.credentials = FixedCredentials({});
    CurlTransportOptions options;
    options.longest_silence = longest_silence;
    options.longest_watch_silence = longest_silence;
    options.probe_after = probe_after_;
    options.probe_timeout = absl::Milliseconds(300);
    options.max_streams = kStreams;
    auto transport = CurlTransport::Create(config, options);
    ASSERT_TRUE(transport.ok()) << transport.status();
    transport_ = *std::move(transport);
  }

  Pending Send(absl::Duration timeout) {
    Request request;
    request.path = "/x";
    request.timeout = timeout;
    const auto promise = std::make_shared<std::promise<absl::StatusOr<Response>>>();
    transport_->Send(std::move(request), [promise](absl::StatusOr<Response> answer) {
      promise->set_value(std::move(answer));
    });
    return promise->get_future();
  }
  absl::StatusOr<Response> SendAndWait() { return Wait(Send(kPatience / 2)); }
  std::unique_ptr<Stream> Watch() {
    Request request;
    request.path = "/w";
    request.timeout = absl::Hours(1);
    request.on_begun = [this] { ++watches_begun_; };
    return transport_->Watch(
        std::move(request), [](std::string_view) {},
        [this](absl::StatusOr<Response> end) { ++(end.ok() ? watches_answered_ : watches_cut_); });
  }
  [[nodiscard]] bool ServerHasDealtWith(int requests) {
    return Eventually([&] { return server_.requests() >= requests; });
  }

  // What the first connection answers, after so many requests that it leaves out; the others answer
  // everything.
  std::atomic<Silence> first_answers_ = Silence::kComplete;
  std::atomic<int> left_out_ = 0;
  const TestCertificate authority_ = MakeTestAuthority("muster test authority");
  SilentHttp2Server server_{MakeTestCertificate("server", "IP:127.0.0.1", authority_),
                            [this](int number) {
                              if (number > 1) return Silence::kComplete;
                              return left_out_-- > 0 ? Silence::kNone : first_answers_.load();
                            }};
  absl::Duration probe_after_ = absl::Hours(1);
  std::atomic<int> watches_begun_ = 0;
  std::atomic<int> watches_answered_ = 0;
  std::atomic<int> watches_cut_ = 0;
  std::unique_ptr<CurlTransport> transport_;
};

TEST_F(SilentConnection, ARequestThatTimesOutThereSendsTheNextElsewhere) {
  ASSERT_NO_FATAL_FAILURE(Connect(absl::Milliseconds(200)));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(SendAndWait().ok());
  EXPECT_EQ(server_.connections(), 1);
  first_answers_ = Silence::kNone;
  auto patient = Send(absl::Minutes(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Wait(Send(absl::Milliseconds(500))).status()));
  const auto next = SendAndWait();
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->status, 204);
  // Another that was under way there has ended too, or libcurl has sent it again by itself.
  const auto other = Wait(std::move(patient));
  EXPECT_TRUE(other.ok() || absl::IsUnknown(other.status())) << other.status();
  EXPECT_EQ(server_.connections(), 2);
}

TEST_F(SilentConnection, RequestsBeyondAConnectionsStreamsGoOnAnother) {
  first_answers_ = Silence::kNone;
  ASSERT_NO_FATAL_FAILURE(Connect(absl::Hours(1)));
  std::vector<Pending> unanswered;
  for (size_t i = 0; i < kStreams; ++i) unanswered.push_back(Send(absl::Hours(1)));
  ASSERT_TRUE(ServerHasDealtWith(kStreams));
  EXPECT_EQ(server_.connections(), 1);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(SendAndWait().ok());
  EXPECT_EQ(server_.connections(), 2);
}

TEST_F(SilentConnection, AWatchThatIsGivenUpThereIsOpenedAnewElsewhere) {
  first_answers_ = Silence::kBegun;
  ASSERT_NO_FATAL_FAILURE(Connect(absl::Milliseconds(200)));
  auto watch = Watch();
  ASSERT_TRUE(ServerHasDealtWith(1));
  absl::SleepFor(absl::Milliseconds(300));
  watch.reset();
  watch = Watch();
  ASSERT_TRUE(Eventually([&] { return watches_answered_ == 1; }));
  EXPECT_EQ(server_.connections(), 2);
}

TEST_F(SilentConnection, AWatchThatIsGivenUpThereEndsTheOthers) {
  first_answers_ = Silence::kBegun;
  ASSERT_NO_FATAL_FAILURE(Connect(absl::Milliseconds(200)));
  auto watch = Watch();
  const auto other = Watch();
  ASSERT_TRUE(ServerHasDealtWith(2));
  EXPECT_EQ(server_.connections(), 1);
  absl::SleepFor(absl::Milliseconds(300));
  watch.reset();
  watch = Watch();
  ASSERT_TRUE(Eventually([&] { return watches_answered_ == 1; }));
  ASSERT_TRUE(Eventually([&] { return watches_cut_ == 1; }));
  EXPECT_EQ(server_.connections(), 2);
}

// libcurl asks for those again by itself, as it does with requests: that must not be on the
// connection that was cut.
TEST_F(SilentConnection, AWatchThatIsGivenUpThereMovesThoseThatWereNotAnswered) {
  first_answers_ = Silence::kNone;
  ASSERT_NO_FATAL_FAILURE(Connect(absl::Milliseconds(200)));
  auto watch = Watch();
  const auto other = Watch();
  ASSERT_TRUE(ServerHasDealtWith(2));
  EXPECT_EQ(server_.connections(), 1);
  absl::SleepFor(absl::Milliseconds(300));
  watch.reset();
  ASSERT_TRUE(Eventually([&] { return watches_answered_ + watches_cut_ == 1; }));
  watch = Watch();
  ASSERT_TRUE(Eventually([&] { return watches_answered_ + watches_cut_ == 2; }));
  EXPECT_GE(watches_answered_, 1);
  EXPECT_EQ(server_.connections(), 2);
}

TEST_F(SilentConnection, OneThatSpeaksIsKeptWhateverTimesOutOnIt) {
  ASSERT_NO_FATAL_FAILURE(Connect(absl::Seconds(1)));
  EXPECT_TRUE(SendAndWait().ok());
  left_out_ = 1;
  auto lost = Send(absl::Seconds(2));
  ASSERT_TRUE(ServerHasDealtWith(2));
  ASSERT_TRUE(Eventually([&] {
    EXPECT_TRUE(SendAndWait().ok());
    return IsReady(lost);
  }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(lost.get().status()));
  EXPECT_TRUE(SendAndWait().ok());
  EXPECT_EQ(server_.connections(), 1);
}

TEST_F(SilentConnection, AWatchGivenUpOnOneThatSpokeDisturbsNoOther) {
  first_answers_ = Silence::kBegun;
  ASSERT_NO_FATAL_FAILURE(Connect(absl::Hours(1)));
  auto watch = Watch();
  const auto other = Watch();
  ASSERT_TRUE(ServerHasDealtWith(2));
  watch.reset();
  first_answers_ = Silence::kComplete;
  watch = Watch();
  ASSERT_TRUE(Eventually([&] { return watches_answered_ == 1; }));
  EXPECT_EQ(watches_cut_, 0);
  EXPECT_EQ(server_.connections(), 1);
}

TEST_F(SilentConnection, AWatchHasBegunWhenItsAnswerHasComeThoughNoLineHas) {
  first_answers_ = Silence::kNone;
  ASSERT_NO_FATAL_FAILURE(Connect(absl::Hours(1)));
  const auto unanswered = Watch();
  ASSERT_TRUE(ServerHasDealtWith(1));
  EXPECT_EQ(watches_begun_, 0);
  first_answers_ = Silence::kBegun;
  const auto answered = Watch();
  ASSERT_TRUE(Eventually([&] { return watches_begun_ == 1; }));
}

TEST_F(SilentConnection, AWatchConnectionThatFallsSilentIsAskedAndClosedIfItDoesNotAnswer) {
  probe_after_ = absl::Milliseconds(300);
  first_answers_ = Silence::kBegun;
  ASSERT_NO_FATAL_FAILURE(Connect(absl::Hours(1)));
  const auto watch = Watch();
  ASSERT_TRUE(Eventually([&] { return watches_begun_ == 1; }));
  first_answers_ = Silence::kNone;
  ASSERT_TRUE(Eventually([&] { return watches_cut_ == 1; }));
  EXPECT_EQ(transport_->Stats().probes_unanswered, 1u);
  EXPECT_EQ(transport_->Stats().connections_cut, 1u);
  const auto next = Watch();
  ASSERT_TRUE(Eventually([&] { return watches_answered_ == 1; }));
  EXPECT_EQ(server_.connections(), 2);
}

TEST_F(SilentConnection, AWatchConnectionThatAnswersWhenItIsAskedIsKept) {
  probe_after_ = absl::Milliseconds(300);
  first_answers_ = Silence::kBegun;
  ASSERT_NO_FATAL_FAILURE(Connect(absl::Hours(1)));
  const auto watch = Watch();
  ASSERT_TRUE(Eventually([&] { return watches_begun_ == 1; }));
  first_answers_ = Silence::kComplete;
  ASSERT_TRUE(Eventually([&] { return transport_->Stats().probes >= 3; }));
  EXPECT_EQ(watches_cut_, 0);
  EXPECT_EQ(transport_->Stats().probes_unanswered, 0u);
  EXPECT_EQ(server_.connections(), 1);
}

TEST_F(SilentConnection, AWatchConnectionThatFallsSilentHoldsNoRequestUp) {
  first_answers_ = Silence::kNone;
  ASSERT_NO_FATAL_FAILURE(Connect(absl::Milliseconds(200)));
  const auto watch = Watch();
  ASSERT_TRUE(ServerHasDealtWith(1));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(SendAndWait().ok());
  EXPECT_EQ(server_.connections(), 2);
}

}  // namespace
}  // namespace muster::kube
