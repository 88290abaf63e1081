#include "kube/client/reflector.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "kube/client/fake_transport.h"
#include "kube/client/manual_timer.h"
#include "kube/client/typed_sink.h"

namespace muster::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Object(const std::string& name, int version, std::string uid = "") {
  if (uid.empty()) uid = "uid-" + name;
  return fmt::format(
      R"({{"metadata":{{"name":"{}","namespace":"n","uid":"{}","resourceVersion":"{}"}}}})", name,
      uid, version);
}

std::string Event(const std::string& type, const std::string& object) {
  return fmt::format(R"({{"type":"{}","object":{}}})", type, object);
}

std::string Bookmark(int version) {
  return Event("BOOKMARK", fmt::format(R"({{"metadata":{{"resourceVersion":"{}"}}}})", version));
}

std::string InitialEnd(int version) {
  return Event("BOOKMARK", fmt::format(R"({{"metadata":{{"resourceVersion":"{}","annotations":)"
                                       R"({{"k8s.io/initial-events-end":"true"}}}}}})",
                                       version));
}

std::string ErrorEvent(int code) {
  return Event("ERROR", fmt::format(R"({{"kind":"Status","code":{},"message":"no"}})", code));
}

std::string Page(const std::vector<std::string>& objects, int version,
                 const std::string& continue_token = "") {
  return fmt::format(R"({{"metadata":{{"resourceVersion":"{}","continue":"{}"}},"items":[{}]}})",
                     version, continue_token, fmt::join(objects, ","));
}

// Writes down what it hears: "+a@1" upserted at version 1, "-a(uid)" removed, "synced", ...
class Recorder : public ReflectorSink {
 public:
  void Upsert(const ObjectHeader& header, std::string_view json) override {
    EXPECT_THAT(std::string(json), HasSubstr(header.uid));
    heard.push_back(fmt::format("+{}@{}", header.name, header.resource_version));
    objects[header.name] = header.uid;
  }
  void Remove(const ObjectHeader& header) override {
    heard.push_back(fmt::format("-{}({})", header.name, header.uid));
    EXPECT_EQ(objects[header.name], header.uid);
    objects.erase(header.name);
  }
  void StateChanged(ReflectorState state, const absl::Status& why) override {
    static const std::map<ReflectorState, std::string> kNames = {
        {ReflectorState::kSyncing, "syncing"},
        {ReflectorState::kSynced, "synced"},
        {ReflectorState::kStale, "stale"},
        {ReflectorState::kAbsent, "absent"}};
    heard.push_back(kNames.at(state));
    EXPECT_EQ(why.ok(), state == ReflectorState::kSyncing || state == ReflectorState::kSynced);
  }
  std::vector<std::string> Take() { return std::exchange(heard, {}); }

  std::vector<std::string> heard;
  std::map<std::string, std::string> objects;
};

class ReflectorTest : public ::testing::Test {
 protected:
  void Start(bool watch_list = true) {
    ReflectorOptions options;
    options.path = "/api/v1/pods";
    options.label_selector = "app=a";
    options.field_selector = "spec.nodeName!=";
    options.use_watch_list = watch_list;
    options.may_be_absent = may_be_absent_;
    options.seed = 7;
    reflector_ = std::make_unique<Reflector>(transport_, timer_, options, sink_);
    reflector_->Start();
  }
  // Started, and synced at version 10 with the objects a and b.
  void StartSynced() {
    Start();
    Watch().Line(Event("ADDED", Object("a", 3)));
    Watch().Line(Event("ADDED", Object("b", 4)));
    Watch().Line(InitialEnd(10));
    ASSERT_THAT(sink_.Take(), ElementsAre("syncing", "+a@3", "+b@4", "synced"));
  }
  const FakeTransport::OpenWatch& Watch() { return *transport_.watches.back(); }
  size_t watches() const { return transport_.watches.size(); }
  FakeTransport::Sent& Sent() { return *transport_.sent.back(); }

  FakeTransport transport_;
  ManualTimer timer_{absl::FromUnixSeconds(1'000'000)};
  Recorder sink_;
  bool may_be_absent_ = false;
  std::unique_ptr<Reflector> reflector_;
};

class OfACrd : public ReflectorTest {
 protected:
  OfACrd() { may_be_absent_ = true; }
};

TEST_F(ReflectorTest, ReadsTheFirstPictureByWatchList) {
  Start();
  ASSERT_EQ(watches(), 1u);
  const Request& request = Watch().request;
  EXPECT_EQ(request.path, "/api/v1/pods");
  EXPECT_EQ(QueryOf(request, "watch"), "1");
  EXPECT_EQ(QueryOf(request, "sendInitialEvents"), "true");
  EXPECT_EQ(QueryOf(request, "resourceVersionMatch"), "NotOlderThan");
  EXPECT_EQ(QueryOf(request, "allowWatchBookmarks"), "true");
  EXPECT_EQ(QueryOf(request, "resourceVersion"), "");
  EXPECT_EQ(QueryOf(request, "labelSelector"), "app=a");
  EXPECT_EQ(QueryOf(request, "fieldSelector"), "spec.nodeName!=");
  const int timeout = std::stoi(QueryOf(request, "timeoutSeconds"));
  EXPECT_GE(timeout, 300);
  EXPECT_LE(timeout, 600);
  EXPECT_GT(request.timeout, absl::Seconds(timeout));

  Watch().Line(Event("ADDED", Object("a", 3)));
  Watch().Line(Bookmark(5));
  EXPECT_THAT(sink_.Take(), ElementsAre("syncing", "+a@3"));
  Watch().Line(InitialEnd(10));
  Watch().Line(Event("MODIFIED", Object("a", 11)));
  Watch().Line(Event("ADDED", Object("b", 12)));
  Watch().Line(Event("DELETED", Object("a", 13)));
  EXPECT_THAT(sink_.Take(), ElementsAre("synced", "+a@11", "+b@12", "-a(uid-a)"));
  EXPECT_EQ(reflector_->Stats().objects, 1u);
  EXPECT_EQ(reflector_->Stats().syncs, 1u);
  EXPECT_EQ(reflector_->Stats().events, 4u);
}

TEST_F(ReflectorTest, TakesAnEndedWatchUpFromTheLastVersion) {
  StartSynced();
  Watch().Line(Event("ADDED", Object("c", 12)));
  for (int minute = 0; minute < 6; ++minute) {
    timer_.Advance(absl::Minutes(1));
    Watch().Line(Bookmark(15 + minute));
  }
  Watch().End(200);
  ASSERT_EQ(watches(), 2u);
  EXPECT_TRUE(transport_.watches[0]->destroyed);
  EXPECT_EQ(QueryOf(Watch().request, "resourceVersion"), "20");
  EXPECT_EQ(QueryOf(Watch().request, "sendInitialEvents"), "");
  EXPECT_EQ(QueryOf(Watch().request, "resourceVersionMatch"), "");
  Watch().Line(Event("DELETED", Object("a", 21)));
  EXPECT_THAT(sink_.Take(), ElementsAre("+c@12", "-a(uid-a)"));
  EXPECT_EQ(reflector_->Stats().failures, 0u);
}

TEST_F(ReflectorTest, ACutStreamIsTakenUpAfterAShortPause) {
  StartSynced();
  timer_.Advance(absl::Seconds(30));
  Watch().Line(Event("MODIFIED", Object("a", 15)));
  Watch().End(absl::UnknownError("connection reset"));
  EXPECT_EQ(watches(), 1u);
  timer_.Advance(absl::Milliseconds(500));
  ASSERT_EQ(watches(), 2u);
  EXPECT_EQ(QueryOf(Watch().request, "resourceVersion"), "15");
  EXPECT_EQ(reflector_->Stats().failures, 1u);
  EXPECT_THAT(reflector_->Stats().last_error, HasSubstr("connection reset"));
  EXPECT_THAT(sink_.Take(), ElementsAre("+a@15"));
}

TEST_F(ReflectorTest, AnExpiredVersionIsReadAnewAndTheDifferenceDelivered) {
  for (const bool as_event : {true, false}) {
    transport_.watches.clear();
    sink_ = Recorder();
    StartSynced();
    timer_.Advance(absl::Minutes(1));
    if (as_event) {
      Watch().Line(ErrorEvent(410));
    } else {
      Watch().End(410);
    }
    ASSERT_EQ(watches(), 2u);
    EXPECT_EQ(QueryOf(Watch().request, "sendInitialEvents"), "true");
    Watch().Line(Event("ADDED", Object("a", 3)));   // unchanged
    Watch().Line(Event("ADDED", Object("c", 30)));  // new; b has vanished
    EXPECT_THAT(sink_.Take(), ElementsAre("+c@30"));
    Watch().Line(InitialEnd(40));
    EXPECT_THAT(sink_.Take(), ElementsAre("-b(uid-b)"));
    EXPECT_EQ(reflector_->Stats().syncs, 2u);
    EXPECT_EQ(reflector_->Stats().objects, 2u);
  }
}

TEST_F(ReflectorTest, AnObjectMadeAgainUnderItsNameIsRemovedFirst) {
  StartSynced();
  timer_.Advance(absl::Minutes(1));
  Watch().Line(ErrorEvent(410));
  Watch().Line(Event("ADDED", Object("a", 30, "uid-second")));
  Watch().Line(Event("ADDED", Object("b", 31)));
  Watch().Line(InitialEnd(40));
  EXPECT_THAT(sink_.Take(), ElementsAre("-a(uid-a)", "+a@30", "+b@31"));
}

// What is removed is named as it was, in whatever form UIDs and versions come.
TEST_F(ReflectorTest, ARemovalAfterASyncTellsUidAndVersionAsTheyWere) {
  struct Case {
    const char* uid;
    const char* version;
  };
  for (const Case& c : {Case{"2c4e28ba-0fa1-11d2-883f-0016d3cca427", "18446744073709551615"},
                        Case{"2C4E28BA-0fa1-11d2-883f-0016d3cca427", "7"},
                        Case{"2c4e28ba00fa1-11d2-883f-0016d3cca427", "7"},
                        Case{"00000000-0000-0000-0000-000000000000", "0"},
                        Case{"u", "18446744073709551616"}, Case{"u", "007"}, Case{"u", "v1"}}) {
    class Last : public ReflectorSink {
     public:
      void Upsert(const ObjectHeader&, std::string_view) override {}
      void Remove(const ObjectHeader& header) override { removed = header; }
      void StateChanged(ReflectorState, const absl::Status&) override {}
      ObjectHeader removed;
    } last;
    ReflectorOptions options;
    options.path = "/api/v1/pods";
    Reflector reflector(transport_, timer_, options, last);
    reflector.Start();
    const std::string object = fmt::format(
        R"({{"metadata":{{"name":"a","namespace":"n","uid":"{}","resourceVersion":"{}"}}}})", c.uid,
        c.version);
    Watch().Line(Event("ADDED", object));
    Watch().Line(InitialEnd(10));
    timer_.Advance(absl::Minutes(1));
    Watch().Line(ErrorEvent(410));
    Watch().Line(InitialEnd(20));
    EXPECT_EQ(last.removed.uid, c.uid);
    EXPECT_EQ(last.removed.resource_version, c.version);
    EXPECT_EQ(last.removed.name, "a");
    EXPECT_EQ(last.removed.name_space, "n");
  }
}

TEST_F(ReflectorTest, APictureThatExpiresAtOnceIsNotReadInALoop) {
  StartSynced();
  for (int i = 0; i < 5; ++i) {
    Watch().Line(ErrorEvent(410));
    const size_t before = watches();
    timer_.Advance(absl::Milliseconds(200));
    EXPECT_EQ(watches(), before);
    while (watches() == before) timer_.Advance(absl::Milliseconds(100));
    Watch().Line(InitialEnd(100 + i));
  }
}

TEST_F(ReflectorTest, ACutDuringTheFirstPictureStartsItAnew) {
  Start();
  Watch().Line(Event("ADDED", Object("a", 3)));
  Watch().End(absl::UnknownError("cut"));
  timer_.Advance(absl::Seconds(1));
  ASSERT_EQ(watches(), 2u);
  EXPECT_EQ(QueryOf(Watch().request, "sendInitialEvents"), "true");
  Watch().Line(Event("ADDED", Object("b", 4)));
  Watch().Line(InitialEnd(9));
  EXPECT_THAT(sink_.Take(), ElementsAre("syncing", "+a@3", "+b@4", "-a(uid-a)", "synced"));
}

TEST_F(ReflectorTest, GarbageIsReadAnew) {
  StartSynced();
  Watch().Line(R"({"type":"ADDED","object":{"metadata")");
  timer_.Advance(absl::Seconds(1));
  ASSERT_EQ(watches(), 2u);
  EXPECT_EQ(QueryOf(Watch().request, "sendInitialEvents"), "true");
  EXPECT_EQ(reflector_->Stats().failures, 1u);
}

TEST_F(ReflectorTest, LinesOfAnEndedAttemptAreIgnored) {
  StartSynced();
  const auto old = transport_.watches[0];
  Watch().Line(ErrorEvent(500));
  EXPECT_TRUE(old->destroyed);
  old->on_line(Event("ADDED", Object("late", 99)));
  old->on_end(absl::CancelledError(""));
  EXPECT_THAT(sink_.Take(), IsEmpty());
}

TEST_F(ReflectorTest, BacksOffAndHonoursRetryAfter) {
  StartSynced();
  timer_.Advance(absl::Minutes(1));
  std::vector<absl::Duration> pauses;
  Watch().End(absl::UnavailableError("refused"));
  for (int i = 0; i < 9; ++i) {
    const absl::Time failed = timer_.Now();
    const size_t before = watches();
    while (watches() == before) timer_.Advance(absl::Milliseconds(10));
    pauses.push_back(timer_.Now() - failed);
    Watch().End(absl::UnavailableError("refused"));
  }
  EXPECT_LE(pauses[0], absl::Milliseconds(510));
  EXPECT_GE(pauses[3], absl::Seconds(2));
  EXPECT_LE(pauses[8], absl::Milliseconds(5010));
  EXPECT_GE(pauses[8], absl::Milliseconds(2500));
  timer_.Advance(absl::Seconds(6));
  Watch().Begin();
  timer_.Advance(absl::Seconds(5));  // a good attempt: the next pause is short again
  size_t before = watches();
  Watch().End(Response{429, "", absl::Seconds(7)});
  timer_.Advance(absl::Milliseconds(6900));
  EXPECT_EQ(watches(), before);
  timer_.Advance(absl::Milliseconds(200));
  ASSERT_EQ(watches(), before + 1);
  // A server, or a proxy before it, that says "tomorrow" is asked sooner.
  before = watches();
  Watch().End(Response{503, "", absl::Hours(24)});
  timer_.Advance(absl::Seconds(11));
  ASSERT_EQ(watches(), before + 1);
  EXPECT_EQ(QueryOf(Watch().request, "resourceVersion"), "10");
}

TEST_F(ReflectorTest, SaysWhenThePictureGrowsStaleAndWhenItIsGoodAgain) {
  StartSynced();
  timer_.Advance(absl::Minutes(1));
  Watch().End(absl::UnavailableError("refused"));
  timer_.Advance(absl::Seconds(1));
  Watch().End(absl::UnavailableError("refused"));
  EXPECT_THAT(sink_.Take(), IsEmpty());
  for (int i = 0; i < 200 && sink_.heard.empty(); ++i) {
    timer_.Advance(absl::Milliseconds(100));
    Watch().End(absl::UnavailableError("refused"));
  }
  EXPECT_THAT(sink_.Take(), ElementsAre("stale"));
  EXPECT_EQ(reflector_->Stats().state, ReflectorState::kStale);
  timer_.Advance(absl::Seconds(31));
  Watch().Line(Bookmark(50));
  EXPECT_THAT(sink_.Take(), ElementsAre("synced"));
  EXPECT_EQ(reflector_->Stats().last_contact, timer_.Now());
}

TEST_F(ReflectorTest, AWatchThatStaysOpenInSilenceIsGoodAgain) {
  StartSynced();
  timer_.Advance(absl::Minutes(1));
  while (sink_.heard.empty()) {
    Watch().End(absl::UnavailableError("refused"));
    timer_.Advance(absl::Milliseconds(100));
  }
  EXPECT_THAT(sink_.Take(), ElementsAre("stale"));
  while (Watch().destroyed) timer_.Advance(absl::Milliseconds(100));
  Watch().Begin();
  timer_.Advance(absl::Seconds(3));
  EXPECT_THAT(sink_.Take(), ElementsAre("synced"));
}

TEST_F(ReflectorTest, AWatchWithoutAnAnswerIsNotHealthyHoweverLongItIsOpen) {
  StartSynced();
  timer_.Advance(absl::Minutes(1));
  Watch().End(200);  // an ordinary end; what follows is never answered
  ASSERT_EQ(watches(), 2u);
  timer_.Advance(absl::Seconds(9));
  EXPECT_THAT(sink_.Take(), IsEmpty());
  EXPECT_EQ(reflector_->Stats().watching_since, absl::InfiniteFuture());
  timer_.Advance(absl::Seconds(3));
  EXPECT_THAT(sink_.Take(), ElementsAre("stale"));
  timer_.Advance(absl::Seconds(60));
  EXPECT_GE(watches(), 4u) << "it is asked for anew";
  EXPECT_THAT(sink_.Take(), IsEmpty());
  while (Watch().destroyed) timer_.Advance(absl::Milliseconds(100));
  Watch().Begin();
  EXPECT_EQ(reflector_->Stats().watching_since, timer_.Now());
  timer_.Advance(absl::Seconds(3));
  EXPECT_THAT(sink_.Take(), ElementsAre("synced"));
}

TEST_F(ReflectorTest, WatchesThatAreAnsweredAndEndAtOnceAreNotHealthy) {
  StartSynced();
  timer_.Advance(absl::Minutes(1));
  Watch().End(200);
  for (int i = 0; i < 300 && sink_.heard.empty(); ++i) {
    Watch().Begin();
    Watch().End(200);
    timer_.Advance(absl::Milliseconds(100));
  }
  EXPECT_THAT(sink_.Take(), ElementsAre("stale"));
}

TEST_F(ReflectorTest, AListThatIsNeverAnsweredIsNotHealthy) {
  Start(false);
  Sent().Answer(200, Page({Object("a", 3)}, 10));
  Watch().Begin();
  timer_.Advance(absl::Minutes(1));
  sink_.Take();
  Watch().Line(ErrorEvent(410));
  ASSERT_EQ(transport_.sent.size(), 2u);
  timer_.Advance(absl::Seconds(12));
  EXPECT_THAT(sink_.Take(), ElementsAre("stale"));
  Sent().Answer(200, Page({Object("a", 3)}, 20));
  EXPECT_THAT(sink_.Take(), ElementsAre("synced"));
}

TEST_F(ReflectorTest, AWatchListThatIsNotAnsweredIsAskedForAgainAndNothingIsSynced) {
  Start();
  timer_.Advance(absl::Minutes(2));
  EXPECT_GE(watches(), 4u);
  EXPECT_THAT(transport_.sent, IsEmpty()) << "the server may well have WatchList";
  EXPECT_THAT(sink_.Take(), ElementsAre("syncing"));
}

TEST_F(ReflectorTest, LinesAreWaitedForWithoutALockHeld) {
  bool asked = false;
  ReflectorOptions options;
  options.path = "/api/v1/pods";
  options.before_line = [&] { asked = reflector_->Stats().watches == 1; };
  reflector_ = std::make_unique<Reflector>(transport_, timer_, options, sink_);
  reflector_->Start();
  Watch().Line(Event("ADDED", Object("a", 3)));
  EXPECT_TRUE(asked);
}

TEST_F(ReflectorTest, AWatchThatLosesItsBookmarksIsOpenedAnew) {
  StartSynced();
  EXPECT_EQ(reflector_->Stats().state, ReflectorState::kSynced);
  for (int minute = 0; minute < 4; ++minute) {
    timer_.Advance(absl::Minutes(1));
    Watch().Line(Bookmark(20 + minute));
  }
  EXPECT_EQ(watches(), 1u);
  timer_.Advance(absl::Seconds(149));
  EXPECT_EQ(watches(), 1u);
  timer_.Advance(absl::Seconds(5));
  ASSERT_EQ(watches(), 2u);
  EXPECT_TRUE(transport_.watches[0]->destroyed);
  EXPECT_EQ(QueryOf(Watch().request, "resourceVersion"), "23");
  EXPECT_THAT(reflector_->Stats().last_error, HasSubstr("not even a bookmark"));
  EXPECT_THAT(sink_.Take(), IsEmpty());
}

TEST_F(ReflectorTest, AWatchThatIsNeverAnsweredIsOpenedAnewUntilOneIs) {
  Start(false);
  Sent().Answer(200, Page({Object("a", 3)}, 10));
  for (size_t silent = 1; silent <= 3; ++silent) {
    ASSERT_EQ(watches(), silent);
    EXPECT_EQ(QueryOf(Watch().request, "resourceVersion"), "10");
    timer_.Advance(absl::Seconds(18));
  }
  Watch().Line(Event("ADDED", Object("b", 11)));
  EXPECT_EQ(sink_.objects.size(), 2u);
  EXPECT_EQ(reflector_->Stats().state, ReflectorState::kSynced);
}

TEST_F(ReflectorTest, FallsBackToPagesWhereThereIsNoWatchList) {
  Start();
  Watch().End(422, "sendInitialEvents is forbidden");
  ASSERT_EQ(transport_.sent.size(), 1u);
  EXPECT_EQ(QueryOf(Sent().request, "limit"), "500");
  EXPECT_EQ(QueryOf(Sent().request, "continue"), "");
  EXPECT_EQ(QueryOf(Sent().request, "labelSelector"), "app=a");
  EXPECT_EQ(QueryOf(Sent().request, "watch"), "");
  Sent().Answer(200, Page({Object("a", 3)}, 10, "next"));
  ASSERT_EQ(transport_.sent.size(), 2u);
  EXPECT_EQ(QueryOf(Sent().request, "continue"), "next");
  EXPECT_THAT(sink_.Take(), ElementsAre("syncing", "+a@3"));
  Sent().Answer(200, Page({Object("b", 4)}, 10));
  EXPECT_THAT(sink_.Take(), ElementsAre("+b@4", "synced"));
  ASSERT_EQ(watches(), 2u);
  EXPECT_EQ(QueryOf(Watch().request, "resourceVersion"), "10");

  Watch().Begin();
  timer_.Advance(absl::Minutes(1));
  Watch().Line(ErrorEvent(410));
  ASSERT_EQ(transport_.sent.size(), 3u);
  Sent().Answer(200, Page({Object("b", 4)}, 20));
  EXPECT_THAT(sink_.Take(), ElementsAre("-a(uid-a)"));
}

TEST_F(ReflectorTest, AWatchListThatNeverCompletesFallsBackToo) {
  Start();
  Watch().Begin();
  Watch().Line(Event("ADDED", Object("a", 3)));
  timer_.Advance(absl::Seconds(15));
  EXPECT_THAT(transport_.sent, IsEmpty());
  timer_.Advance(absl::Seconds(10));
  ASSERT_EQ(transport_.sent.size(), 1u);
  EXPECT_TRUE(Watch().destroyed);
  Sent().Answer(200, Page({Object("a", 3)}, 10));
  EXPECT_THAT(sink_.Take(), ElementsAre("syncing", "+a@3", "synced"));
}

TEST_F(ReflectorTest, APageThatFailsIsAskedForAgainAndAnExpiredTokenStartsAnew) {
  Start(false);
  Sent().Answer(200, Page({Object("a", 3)}, 10, "next"));
  Sent().Answer(503);
  timer_.Advance(absl::Seconds(1));
  ASSERT_EQ(transport_.sent.size(), 3u);
  EXPECT_EQ(QueryOf(Sent().request, "continue"), "next");
  Sent().Answer(410);
  timer_.Advance(absl::Seconds(2));
  ASSERT_EQ(transport_.sent.size(), 4u);
  EXPECT_EQ(QueryOf(Sent().request, "continue"), "");
  Sent().Answer(200, Page({Object("b", 4)}, 12));
  EXPECT_THAT(sink_.Take(), ElementsAre("syncing", "+a@3", "+b@4", "-a(uid-a)", "synced"));
}

TEST_F(ReflectorTest, WhatEveryServerHasIsNeverAbsent) {
  Start();
  Watch().End(404);
  timer_.Advance(absl::Minutes(5));
  EXPECT_GT(watches(), 10u);
  Watch().End(404);
  EXPECT_THAT(sink_.Take(), ElementsAre("syncing"));
  EXPECT_THAT(reflector_->Stats().last_error, HasSubstr("NOT_FOUND"));
}

TEST_F(ReflectorTest, WhatEveryServerHasKeepsItsObjectsThroughA404) {
  StartSynced();
  timer_.Advance(absl::Minutes(1));
  Watch().End(200);
  for (int i = 0; i < 1200; ++i) {
    Watch().End(404);
    timer_.Advance(absl::Milliseconds(100));
  }
  EXPECT_THAT(sink_.Take(), ElementsAre("stale"));
  EXPECT_EQ(reflector_->Stats().objects, 2u);
}

TEST_F(OfACrd, AnAbsentResourceIsReportedAndComesAlive) {
  Start();
  Watch().End(404);
  EXPECT_THAT(sink_.Take(), ElementsAre("syncing", "absent"));
  timer_.Advance(absl::Seconds(10));
  ASSERT_EQ(watches(), 2u);
  Watch().End(404);
  EXPECT_THAT(sink_.Take(), IsEmpty());
  timer_.Advance(absl::Seconds(10));
  Watch().Line(Event("ADDED", Object("a", 3)));
  Watch().Line(InitialEnd(4));
  EXPECT_THAT(sink_.Take(), ElementsAre("+a@3", "synced"));
}

// Each time that its CRD goes there are failures first; they don't add up.
TEST_F(OfACrd, AbsenceIsADefiniteAnswerAfterWhichPausesAreShortAgain) {
  Start();
  Watch().Line(InitialEnd(10));
  timer_.Advance(absl::Minutes(1));
  for (int round = 0; round < 8; ++round) {
    Watch().End(absl::UnavailableError("refused"));
    timer_.Advance(absl::Milliseconds(510));
    ASSERT_EQ(watches(), 2u * round + 2) << "the first pause of a round is the shortest";
    Watch().End(404);
    timer_.Advance(absl::Seconds(10));
    ASSERT_EQ(watches(), 2u * round + 3);
  }
}

TEST_F(OfACrd, WhenItGoesItsObjectsGoFirst) {
  StartSynced();
  timer_.Advance(absl::Minutes(1));
  Watch().Line(Event("DELETED", Object("a", 11)));
  Watch().Line(Event("DELETED", Object("b", 12)));
  Watch().End(200);
  Watch().End(404);
  EXPECT_THAT(sink_.Take(), ElementsAre("-a(uid-a)", "-b(uid-b)", "absent"));
}

TEST_F(OfACrd, A404WhileObjectsAreKnownIsDoubtedForAMinute) {
  StartSynced();
  timer_.Advance(absl::Minutes(1));
  Watch().End(200);
  const absl::Time first = timer_.Now();
  while (timer_.Now() - first < absl::Seconds(59)) {
    Watch().End(404);
    timer_.Advance(absl::Milliseconds(100));
  }
  EXPECT_THAT(sink_.Take(), ElementsAre("stale"));
  EXPECT_EQ(reflector_->Stats().objects, 2u);
  while (timer_.Now() - first < absl::Seconds(70)) {
    Watch().End(404);
    timer_.Advance(absl::Milliseconds(100));
  }
  EXPECT_THAT(sink_.Take(), ::testing::UnorderedElementsAre("-a(uid-a)", "-b(uid-b)", "absent"));
}

TEST_F(OfACrd, AnyOtherAnswerMeanwhileBeginsTheDoubtAnew) {
  StartSynced();
  timer_.Advance(absl::Minutes(1));
  Watch().End(200);
  for (int i = 0; i < 3000; ++i) {
    // Longer than the longest pause, shorter apart than the doubt lasts.
    if (i % 400 < 100) {
      Watch().End(503);
    } else {
      Watch().End(404);
    }
    timer_.Advance(absl::Milliseconds(100));
  }
  EXPECT_THAT(sink_.Take(), ElementsAre("stale"));
  while (Watch().destroyed) timer_.Advance(absl::Milliseconds(100));
  Watch().Line(Bookmark(50));
  EXPECT_THAT(sink_.Take(), ElementsAre("synced"));
  EXPECT_EQ(QueryOf(Watch().request, "resourceVersion"), "10") << "nothing was lost";
}

constexpr const char* kOlder = "/apis/kueue.x-k8s.io/v1beta1/clusterqueues";
constexpr const char* kNewer = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";
constexpr const char* kNoConversion =
    R"({"kind":"Status","code":500,"message":"conversion webhook for kueue.x-k8s.io/v1beta2, )"
    R"(Kind=ClusterQueue failed: no endpoints available"})";

class InTwoVersions : public ReflectorTest {
 protected:
  void SetUp() override {
    ReflectorOptions options;
    options.path = kOlder;
    options.alternative_path = kNewer;
    options.may_be_absent = true;
    options.seed = 7;
    reflector_ = std::make_unique<Reflector>(transport_, timer_, options, sink_);
    reflector_->Start();
    EXPECT_EQ(Path(), kOlder);
    sink_.Take();
  }
  void Sync() {
    Watch().Line(Event("ADDED", Object("a", 3)));
    Watch().Line(InitialEnd(10));
    ASSERT_THAT(sink_.Take(), ElementsAre("+a@3", "synced"));
    timer_.Advance(absl::Minutes(1));
    sink_.Take();
  }
  const std::string& Path() { return Watch().request.path; }
};

TEST_F(InTwoVersions, TheFirstIsReadIfItIsServed) {
  Sync();
  EXPECT_EQ(watches(), 1u);
  EXPECT_EQ(reflector_->Stats().path, kOlder);
}

TEST_F(InTwoVersions, TheOtherIsReadAtOnceIfTheFirstIsNotServed) {
  Watch().End(404);
  EXPECT_EQ(Path(), kNewer);
  Sync();
  EXPECT_EQ(reflector_->Stats().path, kNewer);
}

TEST_F(InTwoVersions, AnUpgradeThatEndsTheFirstLosesNothing) {
  Sync();
  Watch().End(200);
  Watch().End(404);
  ASSERT_EQ(Path(), kNewer);
  Watch().Line(Event("ADDED", Object("a", 3)));
  Watch().Line(Event("ADDED", Object("b", 11)));
  Watch().Line(InitialEnd(12));
  EXPECT_THAT(sink_.Take(), ElementsAre("+b@11"));
}

TEST_F(InTwoVersions, AbsentMeansThatNeitherIsServed) {
  Watch().End(404);
  Watch().End(404);
  EXPECT_THAT(sink_.Take(), ElementsAre("absent"));
  timer_.Advance(absl::Seconds(10));
  EXPECT_EQ(Path(), kOlder);
  Watch().End(404);
  EXPECT_EQ(Path(), kNewer);
  Sync();
}

TEST_F(InTwoVersions, TheOtherIsReadWhileObjectsCantBeConvertedToTheFirst) {
  Watch().End(500, kNoConversion);
  timer_.Advance(absl::Seconds(10));
  EXPECT_EQ(Path(), kNewer);
  Sync();

  // The same as an event of a watch that was open.
  Watch().Line(Event("ERROR", kNoConversion));
  timer_.Advance(absl::Seconds(10));
  EXPECT_EQ(Path(), kOlder);
}

TEST_F(InTwoVersions, WhatCantBeConvertedIsNotAbsent) {
  Watch().End(500, kNoConversion);
  timer_.Advance(absl::Seconds(10));
  ASSERT_EQ(Path(), kNewer);
  Watch().End(404);
  EXPECT_THAT(sink_.Take(), IsEmpty());
  timer_.Advance(absl::Minutes(1));
  EXPECT_EQ(Path(), kOlder);
}

TEST_F(InTwoVersions, AnyOtherFailureIsTriedAgainInTheSameVersion) {
  Watch().End(500);
  timer_.Advance(absl::Seconds(10));
  EXPECT_EQ(watches(), 2u);
  EXPECT_EQ(Path(), kOlder);
}

TEST_F(ReflectorTest, DestructionEndsEverything) {
  StartSynced();
  reflector_.reset();
  EXPECT_TRUE(Watch().destroyed);
  EXPECT_EQ(timer_.NextAlarm(), absl::InfiniteFuture());

  Start(false);
  sink_.Take();
  reflector_.reset();
  Sent().Answer(200, Page({Object("a", 3)}, 10));
  EXPECT_THAT(sink_.Take(), IsEmpty());
}

TEST(TypedSink, DecodesAndReportsWhatItCannot) {
  std::vector<std::string> heard;
  TypedSink<Pod> sink({[&](const Pod& pod) { heard.push_back("+" + pod.meta.name); },
                       [&](const ObjectHeader& header) { heard.push_back("-" + header.name); },
                       [&](ReflectorState, const absl::Status&) { heard.emplace_back("state"); },
                       [&](const ObjectHeader& header, const absl::Status& error) {
                         heard.push_back("?" + header.name + " " + std::string(error.message()));
                       }});
  const ObjectHeader header{"n", "a", "u", "1"};
  sink.Upsert(header, R"({"metadata":{"name":"a"}})");
  sink.Upsert(header, R"({"metadata":{"name":"a"},"spec":{"nodeName":7}})");
  sink.Remove(header);
  sink.StateChanged(ReflectorState::kSynced, absl::OkStatus());
  EXPECT_THAT(heard, ElementsAre("+a", "?a spec.nodeName: want string, got 7", "-a", "state"));
}

}  // namespace
}  // namespace muster::kube
