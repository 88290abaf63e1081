#include "extender/state_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "extender/publisher.h"
#include "extender/testing/messages.h"
#include "fmt/format.h"
#include "muster/v1/admission.pb.h"

namespace muster::extender {
namespace {

int NodesIn(const MessageList& list) {
  return dynamic_cast<const v1::ListNodesResponse&>(list.message()).nodes_size();
}

using coscheduling::GangKey;
using ::testing::ElementsAre;

std::vector<std::string> Drain(GangSubscription& subscription) {
  std::vector<std::string> seen;
  while (std::optional<GangChange> change = subscription.Next()) {
    seen.push_back(fmt::format("{}{}/{}@{}", change->deleted ? "-" : "+",
                               change->gang->gang().namespace_(), change->gang->gang().name(),
                               change->gang->gang().revision()));
  }
  return seen;
}

TEST(StateStore, ListsByNamespaceInOrder) {
  StateStore store;
  store.Publish({{GangKey{"b", "x"}, MakeGang("b", "x", 1)},
                 {GangKey{"a", "y"}, MakeGang("a", "y", 1)},
                 {GangKey{"a", "x"}, MakeGang("a", "x", 1)}});
  const auto names = [&](const GangFilter& filter) {
    std::vector<std::string> all;
    for (const SharedGang& gang : store.Gangs(filter)) {
      all.push_back(gang->gang().namespace_() + "/" + gang->gang().name());
    }
    return all;
  };
  EXPECT_THAT(names({}), ElementsAre("a/x", "a/y", "b/x"));
  EXPECT_THAT(names({"a", ""}), ElementsAre("a/x", "a/y"));
}

TEST(StateStore, PodGroupComesBeforeAPodOfTheSameName) {
  StateStore store;
  store.Publish({{GangKey{"a", "x", true}, MakeGang("a", "x", 7)}});
  EXPECT_EQ(store.FindGang("a", "x")->gang().revision(), 7u);
  store.Publish({{GangKey{"a", "x", false}, MakeGang("a", "x", 8)}});
  EXPECT_EQ(store.FindGang("a", "x")->gang().revision(), 8u);
  EXPECT_EQ(store.FindGang("a", "nobody"), nullptr);
}

TEST(StateStore, ReaderGetsEverythingThenTheNewestOnly) {
  StateStore store;
  store.Publish({{GangKey{"a", "x"}, MakeGang("a", "x", 1)}});
  int wakes = 0;
  auto subscription = *store.WatchGangs({}, [&] { ++wakes; });
  EXPECT_THAT(Drain(*subscription), ElementsAre("+a/x@1"));
  store.Publish({{GangKey{"a", "x"}, MakeGang("a", "x", 2)}});
  store.Publish({{GangKey{"a", "x"}, MakeGang("a", "x", 3)}});
  store.Publish({{GangKey{"a", "y"}, MakeGang("a", "y", 1)}});
  EXPECT_EQ(wakes, 3);
  EXPECT_THAT(Drain(*subscription), ElementsAre("+a/x@3", "+a/y@1"));
  store.Publish({{GangKey{"a", "x"}, nullptr}});
  store.Publish({{GangKey{"a", "z"}, nullptr}});  // never was
  EXPECT_THAT(Drain(*subscription), ElementsAre("-a/x@3"));
}

TEST(StateStore, GangMadeAnewIsAnUpdate) {
  StateStore store;
  store.Publish({{GangKey{"a", "x"}, MakeGang("a", "x", 1)}});
  auto subscription = *store.WatchGangs({}, [] {});
  Drain(*subscription);
  store.Publish({{GangKey{"a", "x"}, nullptr}});
  store.Publish({{GangKey{"a", "x"}, MakeGang("a", "x", 1)}});
  EXPECT_THAT(Drain(*subscription), ElementsAre("+a/x@1"));
}

TEST(StateStore, ReaderOfOneGangHearsNothingElse) {
  StateStore store;
  int wakes = 0;
  auto subscription = *store.WatchGangs({"a", "x"}, [&] { ++wakes; });
  store.Publish({{GangKey{"a", "y"}, MakeGang("a", "y", 1)}});
  EXPECT_EQ(wakes, 0);
  store.Publish({{GangKey{"a", "x"}, MakeGang("a", "x", 1)}});
  EXPECT_THAT(Drain(*subscription), ElementsAre("+a/x@1"));
}

TEST(StateStore, WatchesAreBounded) {
  StateStore store({.subscriptions = 2});
  auto first = store.WatchGangs({}, [] {});
  auto second = store.WatchList(Listed::kNodes, [] {});
  EXPECT_EQ(store.WatchGangs({}, [] {}).status().message(), "2 watches are open, the limit");
  first->reset();
  EXPECT_TRUE(store.WatchList(Listed::kNodes, [] {}).ok());
  EXPECT_EQ(store.subscriptions(), 1u);
}

std::vector<std::pair<GangKey, GangMessage>> One(const std::string& name_space,
                                                 const std::string& name, uint64_t revision) {
  return {{GangKey{name_space, name}, MakeGang(name_space, name, revision)}};
}

TEST(StateStore, ReaderOfANamespaceHearsOfThatAlone) {
  StateStore store;
  store.Publish(One("a", "x", 1));
  store.Publish(One("b", "x", 1));
  int wakes = 0;
  auto subscription = *store.WatchGangs({"b", ""}, [&] { ++wakes; });
  EXPECT_THAT(Drain(*subscription), ElementsAre("+b/x@1"));
  store.Publish(One("a", "x", 2));
  store.Publish({{GangKey{"a", "x"}, nullptr}});
  EXPECT_EQ(wakes, 0);
  store.Publish({{GangKey{"b", "x"}, nullptr}, {GangKey{"b", "y"}, MakeGang("b", "y", 1)}});
  EXPECT_EQ(wakes, 1);  // for both
  EXPECT_THAT(Drain(*subscription), ElementsAre("-b/x@1", "+b/y@1"));
}

TEST(StateStore, WhatWasGoneBeforeIsNotTold) {
  StateStore store;
  auto slow = *store.WatchGangs({}, [] {});  // so that it is remembered
  store.Publish(One("a", "x", 1));
  store.Publish({{GangKey{"a", "x"}, nullptr}});
  store.Publish(One("a", "y", 1));
  auto late = *store.WatchGangs({}, [] {});
  EXPECT_THAT(Drain(*late), ElementsAre("+a/y@1"));
  EXPECT_THAT(Drain(*slow), ElementsAre("-a/x@1", "+a/y@1"));
}

TEST(StateStore, ReaderThatMissesDeletionsIsLostAndOthersAreNot) {
  StateStore store({.gone = 10});
  int woken = 0;
  auto slow = *store.WatchGangs({}, [&] { ++woken; });
  auto quick = *store.WatchGangs({}, [] {});
  auto elsewhere = *store.WatchGangs({"b", ""}, [] {});
  for (int i = 0; i < 11; ++i) {
    const std::string name = fmt::format("g{}", i);
    store.Publish(One("a", name, 1));
    store.Publish({{GangKey{"a", name}, nullptr}});
    EXPECT_THAT(Drain(*quick), ElementsAre(fmt::format("-a/{}@1", name)));
  }
  EXPECT_TRUE(slow->lost());
  EXPECT_EQ(woken, 22);
  EXPECT_THAT(Drain(*slow), ElementsAre());
  EXPECT_FALSE(quick->lost());
  EXPECT_FALSE(elsewhere->lost());
  store.Publish(One("a", "x", 1));
  EXPECT_THAT(Drain(*quick), ElementsAre("+a/x@1"));
}

// Nothing is remembered for readers that have gone.
TEST(StateStore, ReadersThatLeaveAreNotWaitedFor) {
  StateStore store({.gone = 1});
  auto stays = *store.WatchGangs({}, [] {});
  for (int i = 0; i < 5; ++i) {
    const std::string name = fmt::format("g{}", i);
    auto leaves = *store.WatchGangs({"a", i % 2 == 0 ? name : ""}, [] {});
    store.Publish(One("a", name, 1));
    store.Publish({{GangKey{"a", name}, nullptr}});
    leaves.reset();
    EXPECT_THAT(Drain(*stays), ElementsAre(fmt::format("-a/{}@1", name)));
  }
  EXPECT_FALSE(stays->lost());
}

TEST(StateStore, WhoComesBackHearsWhatHeMissed) {
  StateStore store({.gone = 10, .remembered = 2});
  store.Publish(One("a", "x", 1));
  store.Publish(One("a", "y", 1));
  store.Publish(One("b", "x", 1));
  const uint64_t version = store.GangsOn({}, {}).version;
  store.Publish(One("a", "x", 2));
  store.Publish({{GangKey{"a", "y"}, nullptr}});
  store.Publish(One("a", "z", 1));
  auto all = *store.WatchGangs({}, [] {}, version);
  EXPECT_THAT(Drain(*all), ElementsAre("+a/x@2", "-a/y@1", "+a/z@1"));
  auto of_b = *store.WatchGangs({"b", ""}, [] {}, version);
  EXPECT_THAT(Drain(*of_b), ElementsAre());
  auto late = *store.WatchGangs({}, [] {}, store.GangsOn({}, {}).version);
  EXPECT_THAT(Drain(*late), ElementsAre());

  // Two that are gone are remembered for those who aren't there.
  store.Publish({{GangKey{"a", "x"}, nullptr}, {GangKey{"a", "z"}, nullptr}});
  EXPECT_EQ(store.WatchGangs({}, [] {}, version).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(store.WatchGangs(
                     {}, [] {}, version + 1'000'000)
                .status()
                .code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_THAT(Drain(*all), ElementsAre("-a/x@2", "-a/z@1"));
}

TEST(StateStore, WhatIsNewIsToldFromWhatChanged) {
  StateStore store;
  store.Publish(One("a", "x", 1));
  auto subscription = *store.WatchGangs({}, [] {});
  EXPECT_TRUE(subscription->Next()->is_new);
  store.Publish(One("a", "x", 2));
  const GangChange changed = *subscription->Next();
  EXPECT_FALSE(changed.is_new);
  EXPECT_EQ(changed.version, store.GangsOn({}, {}).version);
  store.Publish(One("a", "y", 1));
  EXPECT_TRUE(subscription->Next()->is_new);
}

// Versions of one process are none of the next one's, which began to lead later.
TEST(StateStore, VersionsGrowWheneverItOpens) {
  StateStore store;
  store.SetClosed("another one leads");
  const auto before = static_cast<uint64_t>(absl::ToUnixMicros(absl::Now()));
  store.SetClosed("");
  EXPECT_GE(store.GangsOn({}, {}).version, before);
  EXPECT_EQ(store.WatchGangs({}, [] {}, before - 1).status().code(), absl::StatusCode::kOutOfRange);
}

// The engine only leaves it there: who reads is woken on another thread.
TEST(Distributor, BringsTheNewestToTheStoreOnAThreadOfItsOwn) {
  StateStore store;
  std::atomic<bool> woken_here = false;
  const std::thread::id here = std::this_thread::get_id();
  auto subscription =
      *store.WatchGangs({}, [&] { woken_here = std::this_thread::get_id() == here; });
  {
    Distributor distributor(&store);
    for (uint64_t i = 1; i <= 100; ++i) distributor.Publish(One("a", "x", i));
    distributor.Publish(Listed::kNodes, MakeNodes({"n1"}));
    distributor.Publish(Listed::kNodes, MakeNodes({"n1", "n2"}));
  }
  EXPECT_FALSE(woken_here);
  EXPECT_THAT(Drain(*subscription), ElementsAre("+a/x@100"));
  EXPECT_EQ(NodesIn(*store.List(Listed::kNodes)), 2);
}

TEST(StateStore, NodesAreReadOncePerChange) {
  StateStore store;
  auto subscription = *store.WatchList(Listed::kNodes, [] {});
  EXPECT_EQ(NodesIn(*subscription->Next()), 0);
  EXPECT_EQ(subscription->Next(), nullptr);
  store.Publish(Listed::kNodes, MakeNodes({"n1"}));
  store.Publish(Listed::kNodes, MakeNodes({"n1", "n2"}));
  EXPECT_EQ(NodesIn(*subscription->Next()), 2);
  EXPECT_EQ(subscription->Next(), nullptr);
}

TEST(StateStore, ReadersAlwaysEndOnTheLastVersion) {
  StateStore store;
  constexpr int kVersions = 2000;
  std::vector<std::thread> readers;
  std::atomic<int> good = 0;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      std::atomic<bool> woken = true;
      auto subscription = *store.WatchGangs({}, [&] { woken = true; });
      uint64_t last = 0;
      while (last < kVersions) {
        if (!woken.exchange(false)) continue;
        while (std::optional<GangChange> change = subscription->Next()) {
          if (change->gang->gang().revision() <= last) return;
          last = change->gang->gang().revision();
        }
      }
      ++good;
    });
  }
  for (int i = 1; i <= kVersions; ++i) {
    store.Publish({{GangKey{"a", "x"}, MakeGang("a", "x", static_cast<uint64_t>(i))}});
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(good, 4);
}

}  // namespace
}  // namespace muster::extender
