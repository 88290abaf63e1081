#include "cluster/label_bits.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster::cluster {
namespace {

using kube::SelectorOperator;

bool MayMatch(const kube::LabelSelector& selector, const kube::StringMap& labels) {
  const uint64_t needed = NeededBits(selector);
  return (LabelBits(labels) & needed) == needed;
}

TEST(LabelBits, NeverDenyAMatch) {
  std::vector<kube::StringMap> all_labels;
  for (int i = 0; i < 100; ++i) {
    const std::string number = std::to_string(i);
    all_labels.push_back({{"app", "a" + std::to_string(i % 3)}, {"index", number}});
    all_labels.push_back({{"k" + number, number}});
  }
  all_labels.emplace_back();
  const std::vector<std::string> none;
  std::vector<kube::LabelSelector> selectors = {{}};
  for (const std::string key : {"app", "index", "k7", "absent"}) {
    selectors.push_back({{{key, SelectorOperator::kIn, {"a1"}}}});
    selectors.push_back({{{key, SelectorOperator::kIn, {"a1", "7"}}}});
    selectors.push_back({{{key, SelectorOperator::kNotIn, {"a1"}}}});
    selectors.push_back({{{key, SelectorOperator::kExists, none}}});
    selectors.push_back({{{key, SelectorOperator::kDoesNotExist, none}}});
    selectors.push_back({{{key, SelectorOperator::kGt, {"5"}}}});
    selectors.push_back({{{key, SelectorOperator::kLt, {"5"}}}});
    selectors.push_back(
        {{{key, SelectorOperator::kExists, none}, {"app", SelectorOperator::kIn, {"a2"}}}});
  }
  for (const kube::LabelSelector& selector : selectors) {
    for (const kube::StringMap& labels : all_labels) {
      if (selector.Matches(labels)) {
        EXPECT_TRUE(MayMatch(selector, labels));
      }
    }
  }
}

TEST(LabelBits, DenyMostThatDoNotMatch) {
  const kube::LabelSelector selector = {{{"job", SelectorOperator::kIn, {"train"}}}};
  int passed = 0;
  for (int i = 0; i < 1000; ++i) {
    passed += MayMatch(selector, {{"app" + std::to_string(i), "x"}, {"index", std::to_string(i)}});
  }
  EXPECT_LT(passed, 200);
}

}  // namespace
}  // namespace muster::cluster
