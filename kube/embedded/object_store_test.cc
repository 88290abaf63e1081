#include "kube/embedded/object_store.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;
using State = std::map<std::string, int>;

State Collect(const ObjectStore& store, uint64_t revision, const std::string& prefix = "",
              const std::string& after = "", size_t limit = SIZE_MAX) {
  State state;
  EXPECT_TRUE(store.ScanAt(0, revision, prefix, after,
                           [&](const std::string& key, const ObjectPtr& object) {
                             if (state.size() == limit) return false;
                             state[key] = object->value()["n"];
                             return true;
                           }));
  return state;
}

// Random changes, each remembered: every earlier state must be readable, whole and in pages.
TEST(ObjectStoreTest, ReadsEveryEarlierState) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    ObjectStore store(1000);
    std::map<uint64_t, State> history;
    State state;
    for (int step = 0; step < 150; ++step) {
      std::string key = std::string(random() % 2 ? "a/" : "a-b/") + std::to_string(random() % 8);
      if (state.contains(key) && random() % 3 == 0) {
        store.Remove(0, key, {{"metadata", Json::object()}, {"n", step}});
        state.erase(key);
      } else {
        store.Put(0, key, {{"metadata", Json::object()}, {"n", step}});
        state[key] = step;
      }
      history[store.revision()] = state;
      if (random() % 5 == 0) store.Put(1, "other", {{"metadata", Json::object()}});
    }
    for (const auto& [revision, want] : history) {
      ASSERT_EQ(Collect(store, revision), want) << "seed " << seed << " revision " << revision;
      State in_a;
      for (const auto& [key, n] : want) {
        if (key.starts_with("a/")) in_a[key] = n;
      }
      ASSERT_EQ(Collect(store, revision, "a/"), in_a) << "seed " << seed;
      State paged;
      std::string after;
      while (true) {
        State page = Collect(store, revision, "", after, 3);
        if (page.empty()) break;
        after = page.rbegin()->first;
        paged.merge(page);
      }
      ASSERT_EQ(paged, want) << "seed " << seed;
    }
  }
}

TEST(ObjectStoreTest, KeepsABoundedHistory) {
  ObjectStore store(10);
  for (int i = 0; i < 25; ++i) store.Put(0, std::to_string(i), {{"metadata", Json::object()}});
  // Revision 1 is the empty store; 25 changes made 2 to 26; 17 to 26 are kept.
  EXPECT_EQ(store.revision(), 26u);
  EXPECT_EQ(store.CompactedRevision(0), 16u);
  EXPECT_FALSE(store.FirstChangeAfter(0, 15).has_value());
  EXPECT_EQ(store.FirstChangeAfter(0, 16), 15u);
  EXPECT_EQ(store.FindChange(0, 14), nullptr);
  EXPECT_EQ(store.FindChange(0, 15)->object->revision(), 17u);
  EXPECT_EQ(store.FindChange(0, 25), nullptr);
  EXPECT_EQ(store.EndOfChanges(0), 25u);
  EXPECT_FALSE(
      store.ScanAt(0, 15, "", "", [](const std::string&, const ObjectPtr&) { return true; }));
  EXPECT_EQ(store.Count(0), 25u);
}

TEST(ObjectStoreTest, AnObjectIsSerialisedOnce) {
  ObjectStore store(10);
  ObjectPtr object = store.Put(0, "a", {{"metadata", Json::object()}});
  EXPECT_EQ(object->bytes(), R"({"metadata":{"resourceVersion":"2"}})");
  EXPECT_EQ(object->bytes().data(), store.Find(0, "a")->bytes().data());
}

}  // namespace
}  // namespace muster::kube::embedded
